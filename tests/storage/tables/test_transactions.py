"""Transactions on tables: what they see, what is left of them, and what a restart or a crash makes of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import cast

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import UNDO_NEVER, UNDO_SYNCHRONOUS
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Xid
from binlog_storage.errors import (
    Deadlock,
    DuplicateKey,
    LockWaitTimeout,
    NoRoom,
    StorageError,
    TransactionEnded,
    UnknownTable,
    WaitGivenUp,
)
from binlog_storage.redo.log import RedoLog
from binlog_storage.tables.locks import Mode
from binlog_storage.tables.records import State
from binlog_storage.tables.store import (
    UNDO_NODES,
    LockBusy,
    TableTransaction,
    TransactionFacts,
)
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.tables import CLASSIC
from tests.storage.groups import events, group, gtid_event, read_all
from tests.storage.sizes import small

OPTIONS = small(8, slave_connections_needed_for_purge=0)
GTIDS = (Gtid(9, 1, n) for n in count(1))
T = 1


class Kind:
    """The engine of a test: each runs over both."""

    is_ibb = True


@pytest.fixture(autouse=True, params=[True, False], ids=["ibb", "traditional"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kind, "is_ibb", request.param)


def opened(disk: MemoryDisk, **more: int) -> IbbEngine:
    if Kind.is_ibb:
        return IbbEngine(disk, small(8, slave_connections_needed_for_purge=0, **more))
    options = replace(CLASSIC, max_binlog_size=128 << 10, **more)  # type: ignore[arg-type]
    engine = ClassicEngine(disk, options, facts=StateStore(disk))
    return cast("IbbEngine", engine)  # in what is tested here they are alike


def redo_of(engine: IbbEngine) -> RedoLog:
    return engine.tables.log.redo if isinstance(engine.tables.log, RowLog) else engine._redo


def engine_with(disk: MemoryDisk, rows: dict[bytes, bytes] | None = None) -> IbbEngine:
    engine = opened(disk)
    t = engine.tables.begin()
    t.create_table(T, b"definition")
    for key, row in (rows or {}).items():
        t.insert(T, key, row)
    t.commit()
    engine.sync()
    return engine


def rows(engine: IbbEngine) -> dict[bytes, bytes]:
    return dict(engine.tables.scan(T))


def commit(engine: IbbEngine, t: TableTransaction, size: int = 200) -> bytes:
    gtid = next(GTIDS)
    payload, _ = group(gtid, size)
    events_of = Transaction(engine.writer_of(t))
    head = gtid_event(gtid)
    events_of.write(payload[len(head) :])
    events_of.commit(head, gtid)
    return payload


def crashed(engine: IbbEngine, disk: MemoryDisk, **more: int) -> IbbEngine:
    """What is there after a power cut right now."""
    disk.crash()
    return opened(disk, **more)


def test_a_transaction_sees_its_changes_and_nobody_else_does() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"2"})
    t = engine.tables.begin()
    assert t.put(T, b"a", b"10") == b"1"
    assert t.delete(T, b"b") == b"2"
    t.insert(T, b"c", b"3")
    assert dict(t.scan(T)) == {b"a": b"10", b"c": b"3"}
    assert rows(engine) == {b"a": b"1", b"b": b"2"}
    t.commit()
    assert rows(engine) == {b"a": b"10", b"c": b"3"}
    with pytest.raises(TransactionEnded):
        t.put(T, b"a", b"")


def test_savepoints_and_rollback() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    mark = t.savepoint()
    t.put(T, b"a", b"3")
    t.delete(T, b"a")
    t.insert(T, b"a", b"4")
    t.insert(T, b"b", b"4")
    t.rollback_to(mark)
    assert dict(t.scan(T)) == {b"a": b"2"}
    t.put(T, b"c", b"5")
    t.rollback()
    assert rows(engine) == {b"a": b"1"}
    assert not len(engine.tables.locks)


def test_a_duplicate_key_and_an_unknown_table() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    t = engine.tables.begin()
    with pytest.raises(DuplicateKey):
        t.insert(T, b"a", b"2")
    with pytest.raises(UnknownTable):
        t.insert(77, b"a", b"2")
    t.commit()
    assert rows(engine) == {b"a": b"1"}


def test_views() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    with engine.tables.view() as view:
        for n in range(2, 300):
            t = engine.tables.begin()
            t.put(T, b"a", b"%d" % n)
            t.put(T, b"b", b"%d" % n) if n % 2 else t.delete(T, b"b")
            t.commit()
        assert dict(engine.tables.scan(T, view=view)) == {b"a": b"1"}
        assert rows(engine) == {b"a": b"299", b"b": b"299"}
    while engine.tables.forget(10):
        pass
    versions = engine.tables.memory.tables[T].rows
    assert all(version.prev is None for version in versions.values())


class _Racing:
    """The transaction of a version: commits, with all that follows, right after a reader has seen it unfinished."""

    def __init__(self, t: TableTransaction) -> None:
        self._t = t

    @property
    def commit_no(self) -> int:
        seen = self._t._trx.commit_no
        if not self._t.ended:
            self._t.commit()
        return seen


@pytest.mark.parametrize("row", [b"2", None])
def test_a_commit_while_a_row_is_read(row: bytes | None) -> None:
    """Whoever reads meanwhile sees the row of before or of behind, never none."""
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    t = engine.tables.begin()
    if row is None:
        t.delete(T, b"a")
    else:
        t.put(T, b"a", row)
    engine.tables.memory.tables[T].rows[b"a"].trx = _Racing(t)  # type: ignore[assignment]
    assert engine.tables.get(T, b"a") == b"1"
    assert t.ended
    assert engine.tables.get(T, b"a") == row


def test_nobody_waits_for_a_lock_of_a_store_that_is_closed() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two = engine.tables.begin(), engine.tables.begin()
    one.put(T, b"a", b"2")
    engine.tables.close()
    with pytest.raises(WaitGivenUp):
        two.lock(T, b"a")
    two.lock(T, b"b")


@pytest.mark.parametrize("kind", [True], indirect=True)
def test_groups_that_cannot_be_written_together_are_not_written_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state break that cannot be noted, on a full disk, is met before the first of them is logged."""
    engine = engine_with(MemoryDisk())
    commits = []
    for key in (b"a", b"b"):
        gtid = next(GTIDS)
        t = engine.tables.begin()
        t.put(T, key, b"1")
        commits.append((group(gtid, 200).payload, gtid, t))

    def note_break(gtid: Gtid | None, before: int = 0) -> None:
        if gtid == commits[1][1]:
            raise NoRoom("no room for the break")

    monkeypatch.setattr(engine._appender, "note_break", note_break)
    with pytest.raises(NoRoom):
        engine.append_together(commits)
    assert rows(engine) == {}
    assert not engine.binlog_state().entries()
    monkeypatch.undo()
    engine.append_together(commits)
    assert rows(engine) == {b"a": b"1", b"b": b"1"}


def test_the_snapshot_has_its_place_in_the_binlog() -> None:
    engine = engine_with(MemoryDisk())
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    commit(engine, t)
    view, end, state = engine.consistent_snapshot()
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    commit(engine, t)
    assert engine.tables.get(T, b"a", view) == b"1"
    assert end < engine.written_end
    assert len(state.entries()) == 1
    view.close()


@pytest.mark.parametrize("size", [200, 100_000])
def test_a_group_and_its_rows_commit_together(size: int) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    payload = commit(engine, t, size)
    engine = crashed(engine, disk)  # not synced: neither is there
    assert (rows(engine), read_all(engine)) == ({}, [])
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    payload = commit(engine, t, size)
    engine.sync()
    engine = crashed(engine, disk)
    assert (rows(engine), read_all(engine)) == ({b"a": b"1"}, [payload])


@pytest.mark.parametrize("kind", [True], indirect=True)
def test_groups_that_commit_together() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    commits, payloads = [], []
    for n in range(3):
        t = engine.tables.begin()
        t.put(T, b"%d" % n, b"row")
        gtid = next(GTIDS)
        payload, _ = group(gtid, 300)
        commits.append((payload, gtid, t))
        payloads.append(payload)
    engine.append_together(commits)
    engine.sync()
    engine = crashed(engine, disk)
    assert read_all(engine) == payloads
    assert len(rows(engine)) == 3


def change_at_once(
    engine: IbbEngine, key: bytes, before: bytes | None, after: bytes | None, size: int = 300
) -> bytes | None:
    gtid = next(GTIDS)
    payload = group(gtid, size).payload
    if engine.append_change(T, key, before, after, payload, gtid) is None:
        assert engine.binlog_state().last(gtid.domain_id) != gtid
        return None
    return payload


@pytest.mark.parametrize("is_viewed", [True, False])
def test_a_change_with_its_commit_at_once(is_viewed: bool) -> None:
    """One mini-transaction: a crash leaves the row and the group, or neither; on a page, and over its end."""
    disk = MemoryDisk()
    engine = engine_with(disk)
    view = engine.tables.view()
    if not is_viewed:
        view.close()
    before = engine.tables.commits, engine.tables.changes
    payloads = []
    for number, size in enumerate((300, 20_000, 300)):
        lsn = redo_of(engine).lsn
        made = change_at_once(engine, b"%d" % number, None, b"row", size)
        assert made is not None
        payloads.append(made)
        if size == 300:
            assert redo_of(engine).lsn - lsn < 500 + size, "a mini-transaction"
    payloads.append(change_at_once(engine, b"0", b"row", b"other") or b"")
    payloads.append(change_at_once(engine, b"1", b"row", None) or b"")
    if is_viewed:
        assert dict(engine.tables.scan(T, view=view)) == {}
        view.close()
    assert (engine.tables.commits, engine.tables.changes) == (before[0] + 5, before[1] + 5)
    now = engine.tables.view()
    payloads.append(change_at_once(engine, b"0", b"other", b"last") or b"")
    assert dict(engine.tables.scan(T, view=now)) == {b"0": b"other", b"2": b"row"}
    now.close()
    assert rows(engine) == {b"0": b"last", b"2": b"row"}
    assert (rows(crashed(engine_with(other := MemoryDisk()), other)), len(payloads)) == ({}, 6)
    engine.sync()
    change_at_once(engine, b"3", None, b"not durable")
    engine = crashed(engine, disk)
    assert rows(engine) == {b"0": b"last", b"2": b"row"}
    assert read_all(engine) == payloads
    assert change_at_once(engine, b"2", b"row", b"again") is not None


def test_what_is_not_done_at_once() -> None:
    """Another row than the one that was seen, a lock, who waits for one, DDL, a table that is gone, a large group."""
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1", b"c": b"1"})
    assert change_at_once(engine, b"a", None, b"2") is None
    assert change_at_once(engine, b"a", b"0", b"2") is None
    assert change_at_once(engine, b"new", b"1", b"2") is None
    one, two = engine.tables.begin(), engine.tables.begin()
    two.blocks = False
    one.put(T, b"a", b"2")
    for before in (b"1", b"2"):
        assert change_at_once(engine, b"a", before, b"3") is None
    one.lock(T, b"b", Mode.SHARED)
    assert change_at_once(engine, b"b", b"1", b"3") is None
    assert change_at_once(engine, b"c", b"1", b"2") is not None  # the table itself is shared
    with pytest.raises(LockBusy):
        two.lock(T, None)
    assert change_at_once(engine, b"c", b"2", b"3") is None  # who waits for the table comes first
    one.rollback()
    assert change_at_once(engine, b"c", b"2", b"3") is None
    two.rollback()
    assert change_at_once(engine, b"a", b"1", b"2", size=engine.cache_bytes + 1000) is None
    assert change_at_once(engine, b"a", b"1", b"2") is not None
    t = engine.tables.begin()
    t.drop_table(T)
    t.commit()
    assert change_at_once(engine, b"a", b"2", b"3") is None


def test_ddl_is_undone_like_anything_else() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.create_table(2, b"two")
    t.insert(2, b"x", b"y")
    t.drop_table(T)
    t.rollback()
    assert engine.tables.tables() == {T: b"definition"}
    assert rows(engine) == {b"a": b"1"}
    t = engine.tables.begin()
    t.drop_table(T)
    t.create_table(3, b"three")
    t.commit()
    engine.sync()
    for _ in range(2):
        assert engine.tables.tables() == {3: b"three"}
        with pytest.raises(UnknownTable):
            engine.tables.get(T, b"a")
        engine = crashed(engine, disk)


# --- locks ---


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except StorageError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if condition():
            return
        waiting.wait(0.005)
    raise AssertionError("it never came")


def test_a_writer_waits_for_the_one_before() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two = engine.tables.begin(), engine.tables.begin()
    one.put(T, b"a", b"2")
    thread, found = in_thread(lambda: two.put(T, b"a", b"3"))
    until(lambda: engine.tables.locks.waits == 1)
    assert not found
    one.commit()
    thread.join()
    assert found == [b"2"]
    two.commit()
    assert rows(engine) == {b"a": b"3"}
    assert not len(engine.tables.locks)


def test_a_wait_that_takes_too_long() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two = engine.tables.begin(), engine.tables.begin()
    one.put(T, b"a", b"2")
    two.lock_wait_s = 0.01
    two.put(T, b"b", b"1")
    with pytest.raises(LockWaitTimeout):
        two.put(T, b"a", b"3")
    two.commit()
    one.rollback()
    assert rows(engine) == {b"a": b"1", b"b": b"1"}
    assert not len(engine.tables.locks)


def test_who_waits_in_a_circle() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    big, little = engine.tables.begin(), engine.tables.begin()
    big.put(T, b"c", b"2")
    big.put(T, b"a", b"2")
    little.put(T, b"b", b"2")
    thread, found = in_thread(lambda: little.put(T, b"a", b"3"))
    until(lambda: engine.tables.locks.waits == 1)
    assert big.put(T, b"b", b"3") == b"1"  # the other one was rolled back for it
    thread.join()
    assert isinstance(found[0], Deadlock)
    assert little.ended
    big.commit()
    assert rows(engine) == {b"a": b"2", b"b": b"3", b"c": b"2"}
    # The one that closes the circle gives way if it has done less.
    big, little = engine.tables.begin(), engine.tables.begin()
    big.put(T, b"c", b"5")
    big.put(T, b"a", b"5")
    little.put(T, b"b", b"5")
    thread, found = in_thread(lambda: big.put(T, b"b", b"6"))
    until(lambda: isinstance(big._trx.waiting, object) and big._trx.waiting is not None)
    with pytest.raises(Deadlock):
        little.lock(T, b"a", Mode.SHARED)
    thread.join()
    assert found == [b"3"]
    big.commit()
    assert not len(engine.tables.locks)


def test_shared_locks_go_together_and_first_come_first_served() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two, writer, late = (engine.tables.begin() for _ in range(4))
    assert one.lock(T, b"a", Mode.SHARED) == two.lock(T, b"a", Mode.SHARED) == b"1"
    thread, found = in_thread(lambda: writer.put(T, b"a", b"2"))
    until(lambda: engine.tables.locks.waits == 1)
    late_thread, late_found = in_thread(lambda: late.lock(T, b"a", Mode.SHARED))
    until(lambda: engine.tables.locks.waits == 2)
    one.commit()
    assert not found
    assert not late_found
    two.commit()
    thread.join()
    writer.commit()
    late_thread.join()
    assert late_found == [b"2"]
    late.rollback()
    assert not len(engine.tables.locks)


def test_ddl_waits_for_who_has_changed_rows() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, ddl = engine.tables.begin(), engine.tables.begin()
    one.put(T, b"a", b"2")
    thread, _ = in_thread(lambda: ddl.drop_table(T))
    until(lambda: engine.tables.locks.waits == 1)
    one.commit()
    thread.join()
    ddl.commit()
    assert engine.tables.tables() == {}


# --- crashes ---


@pytest.mark.parametrize("more", [0, 1000])
def test_what_was_open_is_undone_and_locked_until_then(more: int) -> None:
    disk = MemoryDisk()
    before = {b"a": b"1", b"b": b"2"}
    engine = engine_with(disk, before)
    t = engine.tables.begin()
    t.put(T, b"a", b"10")
    mark = t.savepoint()
    t.delete(T, b"b")
    t.rollback_to(mark)
    t.delete(T, b"b")
    for n in range(more):
        t.insert(T, b"row %d" % n, b"x" * 50)
    engine.sync()
    engine = crashed(engine, disk)
    assert engine.rows_to_undo == 2 + more
    assert rows(engine) == before
    other = engine.tables.begin()
    other.lock_wait_s = 0.01
    with pytest.raises(LockWaitTimeout):
        other.put(T, b"a", b"3")
    other.put(T, b"free", b"1")
    other.commit()
    left = engine.rows_to_undo
    engine._rows.undoer.step()
    assert engine.rows_to_undo < left
    left = engine.rows_to_undo
    engine.sync()
    engine = crashed(engine, disk)  # in the middle: it goes on there
    assert engine.rows_to_undo == left
    while engine.step():
        pass
    assert engine.rows_to_undo == 0
    other = engine.tables.begin()
    assert other.put(T, b"a", b"3") == b"1"
    other.commit()
    assert rows(engine) == before | {b"a": b"3", b"free": b"1"}
    engine.sync()
    engine = crashed(engine, disk)
    assert not engine.tables.open


def test_synchronously_and_not_at_all() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    engine.sync()
    engine = crashed(engine, disk, undo_at_start=UNDO_NEVER)
    engine.step()
    assert engine.rows_to_undo == 1
    engine = crashed(engine, disk, undo_at_start=UNDO_SYNCHRONOUS)
    assert engine.rows_to_undo == 0
    assert rows(engine) == {b"a": b"1"}


@pytest.mark.parametrize("force", range(6))
def test_innodb_force_recovery(force: int, caplog: pytest.LogCaptureFixture) -> None:
    """From 3 on what a crash has left stays as it is, and locked; a start without it goes on."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    p = engine.tables.begin()
    p.put(T, b"p", b"2")
    Transaction(engine.writer_of(p)).prepare(X)
    engine.sync()
    caplog.set_level(logging.INFO)
    engine = crashed(engine, disk, innodb_force_recovery=force)
    assert engine.tables.transactions() == [
        TransactionFacts(t.id, State.ACTIVE, 1, True, False, None),
        TransactionFacts(p.id, State.PREPARED, 1, True, False, X),
    ]
    while engine.step():
        pass
    assert engine.rows_to_undo == (force >= 3)
    assert ("stay locked" in caplog.text) is (force >= 3)
    assert ("Starting the rollback of 1 recovered" in caplog.text) is (force < 3)
    other = engine.tables.begin()
    other.lock_wait_s = 0.0
    if force >= 3:
        with pytest.raises(LockWaitTimeout):
            other.put(T, b"a", b"3")
        engine = crashed(engine, disk)
        while engine.step():
            pass
    else:
        other.put(T, b"a", b"3")
    assert rows(engine) == {b"a": b"1"}
    assert engine.prepared() == [X]


def test_what_is_being_undone_is_told() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    for number in range(2):
        t = engine.tables.begin()
        for n in range(UNDO_NODES + 10):
            t.put(T, b"%d %d" % (number, n), b"")
    engine.sync()
    engine = crashed(engine, disk)
    engine.step()
    assert [(one.changes, one.is_undoing) for one in engine.tables.transactions()] == [
        (10, True),
        (UNDO_NODES + 10, False),
    ]


# --- XA ---

X = Xid(1, b"x")


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_prepared(end: str, snapshot: bool) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    prepared = Transaction(engine.writer_of(t))
    data = events(300, "prepared")
    prepared.write(data)
    prepared.prepare(X)
    if snapshot:
        engine._snapshots.make()
    engine.sync()
    for _ in range(2):
        engine = crashed(engine, disk)
        assert engine.prepared() == [X]
        assert rows(engine) == {b"a": b"1"}
        assert engine.rows_to_undo == 0
        other = engine.tables.begin()
        other.lock_wait_s = 0.01
        with pytest.raises(LockWaitTimeout):
            other.put(T, b"a", b"3")
        other.rollback()
    gtid = next(GTIDS)
    if end == "commit":
        engine.commit_prepared(X, gtid_event(gtid), gtid)
    else:
        engine.rollback_prepared(X)
    row = b"2" if end == "commit" else b"1"
    assert rows(engine) == {b"a": row}
    engine.sync()
    engine = crashed(engine, disk)
    assert rows(engine) == {b"a": row}
    assert engine.prepared() == []
    assert not engine.tables.open
    assert read_all(engine) == ([gtid_event(gtid) + data] if end == "commit" else [])
