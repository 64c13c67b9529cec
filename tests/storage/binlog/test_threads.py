"""One thread appends and syncs, three read, on a real disk with tiny files: nobody sees a torn group."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import group, gtid_event, history, state_after, wanted
from tests.storage.sizes import small

TINY = small(page_cache_bytes=1 << 20)
DEADLINE = 20.0


class Follower(threading.Thread):
    """Reads from the start, then follows; sometimes lets go and comes back by its position."""

    def __init__(
        self, engine: IbbEngine, expected: list[bytes], seed: int, deadline: float
    ) -> None:
        super().__init__(name=f"follower {seed}")
        self._engine = engine
        self._expected = expected
        self._rng = random.Random(seed)
        self._deadline = deadline
        self._woken = threading.Event()
        self._hold = engine.hold(self.name, dump=True)
        self.count = 0
        self.failure: str | None = None

    def run(self) -> None:
        stop = self._engine.subscribe(self._woken.set)
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - told by the test, which looks at `failure`
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            stop()
            self._hold.release()

    def _follow(self) -> None:
        place = self._engine.find_start(SlavePosition()).position
        while self.count < len(self._expected):
            if time.monotonic() > self._deadline:
                self.failure = f"only {self.count} of {len(self._expected)} groups in time"
                return
            self._woken.clear()
            batch = self._engine.read(place)
            for payload in batch.groups:
                if payload != self._expected[self.count]:
                    self.failure = f"group {self.count} is not what was appended"
                    return
                self.count += 1
            place = batch.end
            self._hold.move(place.file_no)
            if not batch.groups:
                self._woken.wait(0.2)


def test_readers_beside_a_writer(tmp_path: Path, rng: random.Random) -> None:
    # The first group is of another kind than markers, so that a search from nothing finds the beginning.
    groups = [group(Gtid(0, 1, 1)), *history(rng, 1200, size_max=50_000, domains=3)]
    engine = IbbEngine(OsDisk(tmp_path), TINY)
    deadline = time.monotonic() + DEADLINE
    readers = [Follower(engine, [p for p, _ in groups], seed, deadline) for seed in range(3)]
    for reader in readers:
        reader.start()
    for number, (payload, gtid) in enumerate(groups):
        if gtid is not None and number % 50 == 7:
            spilled = engine.begin()
            at = len(gtid_event(gtid))
            while at < len(payload):
                spilled.spill(payload[at : at + 777])
                at += 777
            spilled.commit(payload[: len(gtid_event(gtid))], gtid)
        else:
            engine.append(payload, gtid)
        if rng.random() < 0.1:
            engine.sync()
    engine.sync()
    for reader in readers:
        reader.join(DEADLINE)
    assert [reader.failure for reader in readers] == [None] * 3
    assert [reader.count for reader in readers] == [len(groups)] * 3
    engine.close()


def test_readers_beside_flush_and_purge(tmp_path: Path, rng: random.Random) -> None:
    """The caretaker makes files and purges in its own thread; readers hold what they still need, and get everything."""
    options = small(max_binlog_total_size=1, slave_connections_needed_for_purge=0)
    groups = [group(Gtid(0, 1, 1)), *history(rng, 900, size_max=40_000, domains=3)]
    engine = IbbEngine(
        OsDisk(tmp_path), options, facts=StateStore(OsDisk(tmp_path)), background=True
    )
    deadline = time.monotonic() + DEADLINE
    readers = [Follower(engine, [p for p, _ in groups], seed, deadline) for seed in range(4)]
    for reader in readers:
        reader.start()
    for payload, gtid in groups:
        engine.append(payload, gtid)
        what = rng.random()
        if what < 0.1:
            engine.sync()
        elif what < 0.13:
            engine.flush()
        elif what < 0.16:
            engine.purge_to(engine.written_end.file_no)
            time.sleep(0.001)
    engine.sync()
    for reader in readers:
        reader.join(DEADLINE)
    assert [reader.failure for reader in readers] == [None] * 4
    assert [reader.count for reader in readers] == [len(groups)] * 4
    engine.flush()
    engine.purge_to(engine.written_end.file_no)
    assert len(engine.files()) <= 3, "nobody holds anything any more"
    assert engine.binlog_state() == state_after(groups)
    engine.close()


def test_searching_beside_a_writer(tmp_path: Path, rng: random.Random) -> None:
    groups = [group(Gtid(0, 1, seq_no), rng.randrange(60, 6000)) for seq_no in range(1, 1500)]
    engine = IbbEngine(OsDisk(tmp_path), TINY)
    engine.append(*groups[0])
    engine.sync()
    failures: list[str] = []
    done = threading.Event()

    def search(seed: int) -> None:
        mine = random.Random(seed)
        while not done.is_set():
            durable = engine.durable_end
            seq_no = mine.randrange(1, len(groups))
            at = SlavePosition([Gtid(0, 1, seq_no)])
            try:
                start = engine.find_start(at)
                batch = engine.read(start.position)
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.append(f"{seq_no}: {type(error).__name__}: {error}")
                return
            expected = [p for p, _ in groups[seq_no:]]
            found = list(wanted(batch.groups, at, start.state))
            if found != expected[: len(found)]:
                failures.append(f"{seq_no}: wrong groups from {start.position}, durable {durable}")

    threads = [threading.Thread(target=search, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for payload, gtid in groups[1:]:
        engine.append(payload, gtid)
        if rng.random() < 0.05:
            engine.sync()
    engine.sync()
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert failures == []
    assert engine.binlog_state() == state_after(groups)
    engine.close()


def test_a_start_is_found_while_the_binlog_is_reset() -> None:
    """A replica that connects in these milliseconds is served what there is before or behind them, and not told that
    what it needs was purged, or is damaged: it would stop for good."""
    engine = IbbEngine(MemoryDisk(), TINY, background=True)
    failures: list[BaseException] = []
    is_over = threading.Event()
    past = BinlogState([Gtid(0, 1, 5)])

    def look() -> None:
        try:
            while not is_over.is_set():
                found = engine.find_start(past.position())
                assert found.state in (BinlogState(), past)
        except BaseException as error:
            failures.append(error)
            raise

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(200):
        engine.reset(past.copy() if number % 2 else None)
        if failures:
            break
    is_over.set()
    for reader in readers:
        reader.join(20)
    engine.close()
    assert failures == []
