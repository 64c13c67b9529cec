"""Tables beside a traditional binlog: rows and groups of one step, whatever a crash leaves of the two logs."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.opening import reaching_as_it_is
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.two_phase import RowTwoPhase
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Position, Xid
from binlog_storage.errors import CorruptRedo, DiskError, DiskFull, StorageError, WaitGivenUp
from binlog_storage.redo.format import REDO_NAME, tables_record
from binlog_storage.redo.log import RedoLog
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.store import TableTransaction
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.check import Violation
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.states import crash_points
from tests.storage.crash.tables import CLASSIC, TableChecker, commits_and_snapshots, played
from tests.storage.crash.variants import Limits
from tests.storage.groups import (
    COMMIT_EVENT,
    append_all,
    begin_event,
    events,
    group,
    gtid_event,
    simple,
)

HISTORIES = 2
STATES = 80
T = 1
RENAMED = 45_000  # bytes of a group that is


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_random(number: int, rng: random.Random) -> None:
    checker = TableChecker(played(rng, 80, options=CLASSIC), rng)
    checker.run(STATES)
    assert checker.states >= STATES // 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(20))
def test_random_in_full(number: int, rng: random.Random) -> None:
    checker = TableChecker(played(rng, 300, options=CLASSIC), rng)
    checker.run(2000)
    assert checker.states >= 1000


def test_commits_and_snapshots(rng: random.Random) -> None:
    checker = TableChecker(commits_and_snapshots(rng, options=CLASSIC), rng)
    checker.run(STATES)


# --- the same, of stores with a mistake ---


def no_place(self: RowLog, record: bytes, end: Position) -> None:
    self._append(tables_record(record))
    self._noted, self._placed_lsn = end, self.redo.lsn


_replay = RedoLog.replay
PLANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no place is noted": lambda: mock.patch.object(RowLog, "_append_behind", no_place),
    "groups are written before the redo log is synced": lambda: mock.patch.object(
        RowLog, "flush", lambda self: self.redo.write()
    ),
    "no place is asked for": lambda: mock.patch.object(
        RedoLog, "replay", lambda self, take=None, _=None: _replay(self, take)
    ),
    "what is prepared and unknown stays": lambda: mock.patch.object(
        RowTwoPhase, "settle", return_value=False
    ),
    "RESET MASTER leaves places": lambda: mock.patch.object(RowLog, "all_settled"),
}


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("plant", PLANTS)
def test_planted(plant: str) -> None:
    with PLANTS[plant]():
        for seed in range(10):
            rng = random.Random(seed)
            try:
                TableChecker(played(rng, 120, options=CLASSIC), rng).run(STATES)
            except (Violation, CorruptRedo):
                return
    pytest.fail("it was not found")


# --- one matter each ---


def opened(disk: MemoryDisk, **more: int) -> ClassicEngine:
    options = replace(CLASSIC, **more)  # type: ignore[arg-type]
    return ClassicEngine(disk, options, facts=StateStore(disk), clock=lambda: 1e9)


def with_table(disk: MemoryDisk, **more: int) -> ClassicEngine:
    engine = opened(disk, **more)
    t = engine.tables.begin()
    t.create_table(T, b"definition")
    t.commit()
    engine.sync()
    return engine


def put(engine: ClassicEngine, key: bytes, seq_no: int, size: int = 200) -> None:
    t = engine.tables.begin()
    t.put(T, key, b"%d" % seq_no)
    gtid = Gtid(0, 1, seq_no)
    caches = Transaction(engine.writer_of(t))
    caches.write(events(size, str(seq_no)))
    if size == RENAMED:  # the last event does not count
        caches.write(COMMIT_EVENT)
    caches.commit((begin_event if size == RENAMED else gtid_event)(gtid), gtid)


def rows(engine: ClassicEngine) -> dict[bytes, bytes]:
    return dict(engine.tables.scan(T))


def test_a_group_commit_has_two_syncs() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    syncs: list[str] = []
    disk.fault = lambda kind, name: syncs.append(name) if kind == "sync" else None
    for n in range(1, 6):
        put(engine, b"%d" % n, n)
    engine.sync()
    assert syncs == [REDO_NAME, "binlog.000001"]


def test_a_group_commit_of_text_is_one_write_and_one_sync() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    seen: list[tuple[str, str]] = []
    disk.fault = lambda kind, name: seen.append((kind, name))
    append_all(engine, simple(5))
    engine.sync()
    assert seen == [("write", "binlog.000001"), ("sync", "binlog.000001")]


def test_a_commit_of_text_takes_few_calls(tmp_path: Path) -> None:
    """They are most of what a small commit costs."""
    disk = OsDisk(tmp_path)
    with closing(ClassicEngine(disk, facts=StateStore(disk))) as engine:
        first, second = simple(2)
        engine.append(first.payload, first.gtid)
        engine.sync()
        payload, gtid = second.payload, second.gtid
        append = calls(lambda: engine.append(payload, gtid, engine.age))
        assert engine.has_room
        assert len(calls(lambda: engine.has_room)) <= 3
        assert len(append) <= 12, append
        assert len(sync := calls(engine.sync)) <= 26, sync


def calls(work: Callable[[], object]) -> list[str]:
    """The functions in Python that are called."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found[1:]


def test_room_is_asked_for_again_only_where_it_may_be_gone() -> None:
    """What `has_room` remembers of the redo log is never more than there is."""
    engine = with_table(
        MemoryDisk(), innodb_log_file_size=1 << 20, innodb_log_buffer_size=256 << 10
    )
    row_log = engine._row_log
    assert row_log is not None
    redo = row_log.redo

    def has_room() -> bool:
        return not redo.is_full and redo.room() > max(redo.capacity / 8, 128 << 10)

    seen = []
    for n in range(1, 200):
        assert row_log.has_room == has_room()
        seen.append(row_log.has_room)
        if not row_log.has_room and n % 3 == 0:
            engine.sync()
            engine.step()
        t = engine.tables.begin()
        t.put(T, b"key", n.to_bytes(4) * 2000)
        t.commit()
    assert set(seen) == {True, False}
    engine.close()


def test_a_snapshot_that_cannot_be_written_is_told() -> None:
    """By the names of an `.ibb` store: metrics and /readyz have no others."""
    disk = MemoryDisk()
    engine = with_table(disk)
    put(engine, b"a", 1)

    def full(what: str, name: str) -> None:
        if name.startswith(TABLES_NAME):
            raise DiskFull("no space")

    disk.fault = full
    engine._snapshots._due_from = 0
    engine.step()
    assert [(one.what, one.why) for one in engine.stalled()] == [("tables", "no space")]
    began = time.monotonic()
    with pytest.raises(DiskFull):
        engine._snapshots.relieve()  # as who waits for room in the log does, again and again
    tables, waiting = engine.stalled()
    assert (tables.what, waiting.what) == ("tables", "rows")
    assert waiting.why == "changes of rows wait for a snapshot of the tables: no space"
    assert 0 < waiting.seconds <= time.monotonic() - began
    disk.fault = None
    engine.step()
    assert engine.stalled() == []
    engine.close()


@pytest.mark.parametrize("size", [200, 3 << 20])
def test_what_the_binlog_has_lost_is_undone_in_the_background(size: int) -> None:
    disk = MemoryDisk()
    engine = with_table(disk, max_binlog_size=1 << 24)
    put(engine, b"a", 1)
    engine.sync()
    put(engine, b"a", 2, size)
    put(engine, b"b", 3)
    engine._row_log.write()  # type: ignore[union-attr]
    left = disk.contents()
    left["binlog.000001"] = left["binlog.000001"][: engine.durable_end.offset]
    with closing(opened(MemoryDisk(left), undo_at_start=0)) as engine:
        assert rows(engine) == {b"a": b"1"}
        assert engine.binlog_state().has(Gtid(0, 1, 1))
        assert engine.rows_to_undo == 1  # the log ends behind it
        while engine.step():
            pass
        assert not engine.tables.open


def test_a_binlog_that_has_lost_what_was_durable_is_refused() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    begin = engine._log.appended_end.offset
    for n in range(1, 4):
        put(engine, b"%d" % n, n)
        engine.sync()
    disk.crash()
    left = disk.contents()
    left["binlog.000001"] = left["binlog.000001"][:begin]
    disk = MemoryDisk(left)
    with pytest.raises(
        CorruptRedo, match=r"does not reach up to offset .* innodb_force_recovery=6"
    ):
        opened(disk)
    assert disk.contents() == left
    with closing(opened(disk, innodb_force_recovery=6)) as engine:
        assert rows(engine) == {b"1": b"1", b"2": b"2", b"3": b"3"}
    with closing(opened(disk)) as engine:
        assert len(rows(engine)) == 3


def test_groups_are_behind_the_commits_without_groups_in_front_of_them() -> None:
    """With sql_log_bin=0, or of facts: what a power cut leaves of the file has no group without them."""
    disk = MemoryDisk()
    engine = with_table(disk)
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    t.commit()
    engine.append(*group(Gtid(0, 1, 1), 200))
    engine.write_log()
    redo = engine._row_log.redo  # type: ignore[union-attr]
    assert redo.durable_lsn == redo.lsn


def test_facts_are_behind_the_groups_in_front_of_them() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    engine.append(*group(Gtid(0, 1, 1), 200))
    engine.facts.set("lease/one", 1)
    assert engine.durable_end == engine.written_end
    engine.append(*group(Gtid(0, 1, 2), 200))
    engine.facts._log({"lease/two": 2})
    engine._row_log.write()  # type: ignore[union-attr]
    left = disk.contents()
    offline = OfflineFacts(MemoryDisk(left), reaching_as_it_is(MemoryDisk(left), "binlog"))
    with closing(opened(MemoryDisk(left))) as engine:
        for facts in (engine.facts, offline):
            assert facts.items("lease/") == [("lease/one", 1)]


def test_facts_on_a_full_disk() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    engine.sync()

    def fault(kind: str, name: str) -> None:
        if kind == "write" and name.startswith("binlog.0"):
            raise DiskFull("no room (injected)")

    disk.fault = fault
    engine.facts.set("account/a", 1)  # the redo log has its room
    engine.append(*group(Gtid(0, 1, 1), 200))
    engine._patience.note_full(DiskFull("no room"), engine._full.tries)
    with pytest.raises(DiskFull):
        engine.facts.set("account/b", 2)
    disk.fault = None
    engine._full.freed()
    engine.sync()
    engine.facts.set("account/b", 3)
    engine.close()
    with closing(opened(MemoryDisk(disk.contents()))) as engine:
        assert engine.facts.items("account/") == [("account/a", 1), ("account/b", 3)]


def test_a_log_that_is_too_small_for_a_transaction_is_used_again_and_again() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    t = engine.tables.begin()
    for n in range(400):
        t.put(T, b"%d" % n, bytes(2000))
    gtid = Gtid(0, 1, 1)
    caches = Transaction(engine.writer_of(t))
    caches.write(events(200, "all"))
    caches.commit(gtid_event(gtid), gtid)
    engine.sync()
    disk.crash()
    with closing(opened(disk)) as engine:
        assert len(rows(engine)) == 400


def test_xa_over_restarts() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    for name in (b"one", b"two"):
        t = engine.tables.begin()
        t.put(T, name, name)
        caches = Transaction(engine.writer_of(t))
        caches.write(events(300, "xa"))
        caches.prepare(Xid(1, name))
    disk.crash()
    engine = opened(disk)
    assert engine.prepared() == list(engine.tables.prepared) == [Xid(1, b"one"), Xid(1, b"two")]
    assert rows(engine) == {}
    gtid = Gtid(0, 1, 1)
    engine.commit_prepared(Xid(1, b"one"), gtid_event(gtid), gtid)
    engine.rollback_prepared(Xid(1, b"two"))
    engine.sync()
    for _ in range(2):
        assert rows(engine) == {b"one": b"one"}
        assert not engine.tables.open
        disk.crash()
        engine = opened(disk)


def test_slots_go_with_the_binlog_that_they_refer_to(rng: random.Random) -> None:
    """Whatever a power cut leaves of RESET MASTER: the new binlog has the new age, the old one the old age."""
    disk = RecordingDisk(MemoryDisk())
    engine = ClassicEngine(disk, CLASSIC, facts=StateStore(disk), clock=lambda: 1e9)
    engine.facts.set("lease/one", 1)
    engine.append(*group(Gtid(0, 1, 7), 200))
    engine.sync()
    begin = len(disk.trace)
    engine.reset(BinlogState([Gtid(0, 1, 99)]))
    assert engine.facts.binlog_age == 1
    engine.close()
    found = set()
    for point, states in enumerate(crash_points(disk, Limits(per_point=12), rng)):
        for state in states if point >= begin else ():
            left = MemoryDisk(state.files)
            for _ in range(2):
                with closing(opened(left)) as again:
                    last = again.binlog_state().last(0)
                    assert last is not None
                    found.add((last.seq_no, again.facts.binlog_age))
                    assert not any(name.endswith(".reset") for name in left.names())
                left = MemoryDisk(left.contents())
    assert found == {(7, 0), (99, 1)}


def test_a_reset_without_room_leaves_the_age() -> None:
    disk = MemoryDisk()
    engine = with_table(disk)
    engine.facts.set("lease/one", 1)

    def fault(kind: str, name: str) -> None:
        if kind in ("write", "create") and name.startswith("binlog.index"):
            raise DiskFull("no room (injected)")

    disk.fault = fault
    with pytest.raises(WaitGivenUp):
        engine.reset(given_up=lambda: True)
    disk.fault = None
    assert engine.facts.binlog_age == 0
    with closing(opened(MemoryDisk(disk.contents()))) as again:
        assert again.facts.binlog_age == 0
    engine._full.freed()
    engine.reset()
    assert engine.facts.binlog_age == 1


RENAMING: dict[str, Any] = {"binlog_large_commit_threshold": 40_000, "max_binlog_size": 1 << 24}


def prepare(engine: ClassicEngine, key: bytes, name: Xid, size: int) -> None:
    t = engine.tables.begin()
    t.put(T, key, b"xa")
    caches = Transaction(engine.writer_of(t))
    caches.write(events(size, "xa") + COMMIT_EVENT)
    caches.prepare(name)


def test_rows_of_renamed_groups(rng: random.Random) -> None:
    """Whatever a power cut leaves: a row is there if its group is, and so is what was told."""
    disk = RecordingDisk(MemoryDisk())
    engine = ClassicEngine(
        disk, replace(CLASSIC, **RENAMING), facts=StateStore(disk), clock=lambda: 1e9
    )
    t = engine.tables.begin()
    t.create_table(T, b"definition")
    t.commit()
    put(engine, b"1", 1)
    engine.sync()
    told = [(len(disk.trace), 1)]
    put(engine, b"2", 2, RENAMED)
    assert engine.durable_end == engine.written_end
    told.append((len(disk.trace), 2))
    name = Xid(1, b"x")
    prepare(engine, b"3", name, RENAMED)
    put(engine, b"4", 3)
    engine.commit_prepared(name, begin_event(Gtid(0, 1, 4)), Gtid(0, 1, 4))
    told.append((len(disk.trace), 4))
    assert len(engine.files()) == 3
    engine.close()
    keys = {1: b"1", 2: b"2", 3: b"4", 4: b"3"}
    found = set()
    seen = set()
    for point, states in enumerate(crash_points(disk, Limits(per_point=4), rng)):
        for state in states if point >= told[0][0] else ():
            if state.key in seen:
                continue
            seen.add(state.key)
            left = MemoryDisk(state.files)
            with closing(opened(left, **RENAMING)) as again:
                while again.step():
                    pass
                last = again.binlog_state().last(0)
                assert last is not None
                count = last.seq_no
                assert count >= max(number for at, number in told if at <= point)
                assert set(rows(again)) == {keys[n] for n in range(1, count + 1)}
                if count < 4:  # the number of a file that was given up is used again
                    for xid in again.prepared():
                        again.rollback_prepared(xid)
                    put(again, b"5", 5, RENAMED)
            with closing(opened(MemoryDisk(left.contents()), **RENAMING)) as again:
                assert (b"5" in rows(again)) == (count < 4)
            found.add(count)
    assert found == {1, 2, 3, 4}


def test_rows_wait_for_a_copy() -> None:
    """A commit with rows comes behind a large group that is being copied; a commit without a group in front of it."""
    disk = MemoryDisk()
    engine = with_table(disk, max_binlog_size=1 << 24)
    others: list[threading.Thread] = []

    def without_a_group() -> None:
        t = engine.tables.begin()
        t.put(T, b"0", b"0")
        t.commit()

    def meanwhile(kind: str, name: str) -> None:
        if kind == "write" and name == "binlog.000001" and not others:
            for call in (lambda: put(engine, b"2", 2), without_a_group):
                others.append(threading.Thread(target=call))
                others[-1].start()
            others[1].join(20)
            assert not others[1].is_alive()
            assert set(rows(engine)) == {b"0"}

    disk.fault = meanwhile
    put(engine, b"1", 1, 3 << 20)
    disk.fault = None
    others[0].join(20)
    assert engine.binlog_state().last(0) == Gtid(0, 1, 2)
    engine.sync()
    disk.crash()
    with closing(opened(disk)) as again:
        assert set(rows(again)) == {b"0", b"1", b"2"}


@pytest.mark.parametrize("kind", ["write", "create", "sync", "rename", "sync directory"])
def test_a_full_disk_while_a_group_with_rows_is_renamed(kind: str) -> None:
    """It is waited for, up to the commit of the rows; what fails behind that ends the store. In front of the index it
    is nowhere at the next start, behind it it is there."""
    at, ended = 0, set()
    while True:
        at += 1
        disk, left = MemoryDisk(), at
        engine = with_table(disk, **RENAMING)
        engine._full._instead = lambda seconds: None
        t = engine.tables.begin()
        t.put(T, b"a", b"1")
        caches = Transaction(engine.writer_of(t))
        caches.write(events(RENAMED, "a") + COMMIT_EVENT)

        def fault(met: str, name: str) -> None:
            nonlocal left
            left -= met == kind and name != REDO_NAME
            if met == kind and not left:
                left = -1
                raise DiskFull("no room (injected)")

        disk.fault = fault
        try:
            caches.commit(begin_event(GTID), GTID)
        except DiskFull:
            pytest.fail("it was not waited for")
        except DiskError:
            assert engine._soundness.failed
        ended.add(engine._soundness.failed)
        disk.fault = None
        if not engine._soundness.failed:
            engine.sync()
            assert rows(engine) == {b"a": b"1"}
        disk.crash()
        with closing(opened(disk, **RENAMING)) as again:
            while again.step():
                pass
            assert (rows(again) == {b"a": b"1"}) == again.binlog_state().has(GTID)
            assert again.binlog_state().has(GTID) or engine._soundness.failed
        if left > 0:
            break
    assert at > 1
    assert ended == ({False, True} if kind in ("rename", "sync directory") else {False})


GTID = Gtid(0, 1, 1)


def one_row(engine: ClassicEngine) -> TableTransaction:
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    return t


def small(engine: ClassicEngine) -> None:
    t = one_row(engine)
    with waiting(engine):
        engine.append_with(group(GTID, 200).payload, GTID, t)


def large(engine: ClassicEngine) -> None:
    caches = Transaction(engine.writer_of(one_row(engine)))
    caches.write(events(2 << 20, "large"))
    with waiting(engine):
        caches.commit(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))


def at_once(engine: ClassicEngine) -> None:
    with waiting(engine):
        payload = group(GTID, 200).payload
        assert engine.append_change(T, b"a", None, b"1", payload, GTID) is not None


def xa(engine: ClassicEngine) -> None:
    caches = Transaction(engine.writer_of(one_row(engine)))
    with waiting(engine):
        caches.prepare(Xid(1, b"x"))
    with waiting(engine):
        engine.commit_prepared(Xid(1, b"x"), gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))


@contextmanager
def waiting(engine: ClassicEngine) -> Iterator[None]:
    """There is room once another thread has had the append lock."""
    got = threading.Event()

    def take() -> None:
        with engine._log.append_lock:
            got.set()

    def relieve() -> None:
        other = threading.Thread(target=take, daemon=True)
        other.start()
        other.join(10)
        assert got.is_set(), "the lock was not given back"

    def admits(size: int) -> bool:
        return got.is_set()

    rows = engine._row_log
    with (
        mock.patch.object(rows, "_admits", admits),
        mock.patch.object(rows, "relieve", relieve),
    ):
        yield
    assert got.is_set()


@pytest.mark.parametrize("commit", [small, large, at_once, xa], ids=lambda f: f.__name__)
def test_who_waits_for_room_lets_others_work(commit: Callable[[ClassicEngine], None]) -> None:
    """A snapshot, which makes the room, needs the append lock."""
    engine = with_table(MemoryDisk())
    commit(engine)
    assert rows(engine) == {b"a": b"1"}


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failure_for_lack_of_room_is_none_to_be_tried_again(kind: str) -> None:
    """Of the redo log, which has its room: whether the rows are there shows at the next start, so "nothing was done"
    would be a lie."""

    def full(what: str, name: str) -> None:
        if (what, name) == (kind, REDO_NAME):
            raise DiskFull(f"cannot {what} {name}: No space left on device (injected)")

    disk = MemoryDisk()
    engine = with_table(disk)
    put(engine, b"1", 1)
    heard: list[StorageError] = []
    engine.when_failed(heard.append)
    disk.fault = full
    with pytest.raises(DiskError, match="No space left") as caught:
        engine.sync()
    assert not isinstance(caught.value, DiskFull)
    assert [isinstance(error, DiskFull) for error in heard] == [False], (
        "who commits hears of it here"
    )
    assert engine._soundness.failed
    engine.close()
