"""A start on a full disk, at every step of it: rows are served, nothing is decided; with room all of it is."""

from __future__ import annotations

import random

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import UNDO_SYNCHRONOUS
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.engine import Xid
from binlog_storage.engine.references import Reason
from binlog_storage.errors import DiskError, LockWaitTimeout
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.binlog.test_opening_on_a_full_disk import CHANGES, full_from
from tests.storage.groups import events, gtid_event
from tests.storage.sizes import small
from tests.storage.tables.test_transactions import T, commit, engine_with, opened, rows, until
from tests.storage.tables.test_two_phase import Other

BEGUN = {b"a": b"0", b"b": b"0", b"c": b"0", b"d": b"0"}
COMMITTED = BEGUN | {b"a": b"1"}
KEPT, HALF, UNKNOWN = (Xid(1, name) for name in (b"kept", b"half", b"unknown"))


def left_by_a_crash() -> MemoryDisk:
    """A transaction that is active, one that stays prepared, and one that is not prepared everywhere."""
    disk = MemoryDisk()
    engine = engine_with(disk, BEGUN)
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    commit(engine, t, 3000)
    engine.checkpoint()
    engine.tables.begin().put(T, b"b", b"active")
    for xid, key, engines in ((KEPT, b"c", 2), (HALF, b"d", 3)):
        t = engine.tables.begin()
        t.put(T, key, b"prepared")
        engine.writer_of(t).begin().prepare(xid, engines)
    for n in range(1, 30):
        payload = events(3000, str(n))
        group = Transaction(engine)
        group.write(payload)
        group.commit(gtid_event(Gtid(0, 1, n)), Gtid(0, 1, n))
    engine.sync()
    disk.crash()
    return disk


def start(disk: Disk, other: Other, **more: int) -> IbbEngine:
    patient = PatientDisk(disk)
    options = small(8, slave_connections_needed_for_purge=0, **more)
    return IbbEngine(patient, options, participants=[other])


def other_engine() -> Other:
    other = Other("one")
    other.prepared |= {KEPT, HALF, UNKNOWN}
    return other


def is_locked(engine: IbbEngine, key: bytes) -> bool:
    t = engine.tables.begin()
    t.lock_wait_s = 0.0
    try:
        t.lock(T, key)
    except LockWaitTimeout:
        return True
    finally:
        t.rollback()
    return False


def require_settled(engine: IbbEngine, other: Other) -> None:
    while engine.step():
        pass
    assert not engine.rows_to_undo
    assert engine.prepared() == [KEPT]
    assert other.prepared == {KEPT}
    assert [key for key in BEGUN if is_locked(engine, key)] == [b"c"]
    assert rows(engine) == COMMITTED


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("more", [{}, {"innodb_log_file_size": 1 << 20}], ids=["", "resized"])
@pytest.mark.parametrize("synchronous", [False, True])
def test_at_every_step(synchronous: bool, more: dict[str, int]) -> None:
    if synchronous:
        more = more | {"undo_at_start": UNDO_SYNCHRONOUS}
    base = left_by_a_crash().contents()
    kinds: list[str] = []
    disk = MemoryDisk(base)
    disk.fault = lambda kind, _: kinds.append(kind)
    engine = start(disk, other := other_engine(), **more)
    steps = sum(kind in CHANGES for kind in kinds)
    disk.fault = None
    require_settled(engine, other)
    waited = refused = 0
    for number in range(1, steps + 1):
        disk, other = MemoryDisk(base), other_engine()
        disk.fault = full_from(number, disk)
        try:
            engine = start(disk, other, **more)
        except DiskError:  # in what is logged behind the opening, on a disk that copies on write
            refused += 1
            after = disk.after_crash(random.Random(number))
            require_settled(start(after, other, **more), other)
            continue
        assert rows(engine) == COMMITTED
        late = engine._late
        if late.full is None:
            continue
        waited += 1
        engine.step()  # tries again, in vain
        assert other.prepared == {KEPT, HALF, UNKNOWN}, "decided, and nothing of it could be logged"
        assert [key for key in BEGUN if is_locked(engine, key)] == [b"b", b"c", b"d"]
        after = disk.after_crash(random.Random(number))
        killed = other_engine()
        require_settled(start(after, killed, **more), killed)
        disk.fault = None
        engine.step()
        require_settled(engine, other)
        disk.crash()
        require_settled(start(disk, other, **more), other)
    assert waited > 3
    assert refused <= 2 + 2 * synchronous


def test_by_the_thread_once_there_is_room() -> None:
    disk, other = left_by_a_crash(), other_engine()
    disk.fault = full_from(1, disk)
    engine = start(disk, other)
    assert engine._late.full is not None
    engine.start()
    disk.fault = None
    engine.keeper.caretaker.poke()
    until(lambda: not engine.rows_to_undo and other.prepared == {KEPT})
    assert rows(engine) == COMMITTED
    engine.close()


def test_what_was_committed_holds_no_file_where_nobody_takes_part() -> None:
    """On a full disk PURGE is what makes room."""
    disk = MemoryDisk()
    engine = opened(disk)
    group = Transaction(engine)
    group.write(events(300, "data"))
    group.prepare(KEPT)
    engine.commit_prepared(KEPT, gtid_event(Gtid(5, 1, 1)), Gtid(5, 1, 1))
    engine.sync()
    disk.crash()
    disk.fault = full_from(1, disk)
    engine = IbbEngine(PatientDisk(disk), small(8, slave_connections_needed_for_purge=0))
    assert engine._late.full is not None
    assert not engine.references.count(Reason.PREPARED_XA)
