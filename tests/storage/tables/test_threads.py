"""Many threads move money between accounts: at every moment, and behind every crash, there is as much as ever."""

from __future__ import annotations

import random
import threading

from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import Deadlock, LockWaitTimeout
from binlog_storage.tables.store import TableTransaction
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.tables.test_transactions import OPTIONS, T, commit, crashed, rows

ACCOUNTS = 12
EACH = 1000
THREADS = 6
MOVES = 60


def total(found: dict[bytes, bytes]) -> int:
    return sum(int(row[:20]) for row in found.values())


def balance(amount: int) -> bytes:
    return b"%020d" % amount + b"." * 400


def move(t: TableTransaction, rng: random.Random) -> None:
    """In the order of chance, so that some wait in a circle."""
    one, two = rng.sample(range(ACCOUNTS), 2)
    amount = rng.randrange(50)
    for account, change in ((one, -amount), (two, amount)):
        row = t.lock(T, b"%d" % account)
        assert row is not None
        t.put(T, b"%d" % account, balance(int(row[:20]) + change))


def test_nothing_is_lost_between_threads() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS, background=True)
    t = engine.tables.begin()
    t.create_table(T, b"")
    for n in range(ACCOUNTS):
        t.put(T, b"%d" % n, balance(EACH))
    t.commit()
    engine.sync()
    failed: list[BaseException] = []
    deadlocks: list[int] = []
    publishing = threading.Lock()

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            for n in range(MOVES):
                t = engine.tables.begin()
                t.lock_wait_s = 30.0
                try:
                    move(t, rng)
                    mark = t.savepoint()
                    if rng.random() < 0.3:
                        move(t, rng)
                        t.rollback_to(mark)
                    if rng.random() < 0.2:
                        t.rollback()
                    elif rng.random() < 0.5:
                        t.commit()
                    else:
                        with publishing:  # numbers are given in order
                            commit(engine, t)
                        engine.sync()
                except Deadlock:
                    deadlocks.append(n)
                with engine.tables.view() as view:
                    assert total(dict(engine.tables.scan(T, view=view))) == ACCOUNTS * EACH
        except (AssertionError, LockWaitTimeout, LookupError) as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert not len(engine.tables.locks)
    assert not engine.tables.open
    assert engine._snapshots.made > 0
    assert engine.tables.locks.deadlocks == len(deadlocks)
    engine.close()
    engine = crashed(engine, disk)
    assert total(rows(engine)) == ACCOUNTS * EACH
