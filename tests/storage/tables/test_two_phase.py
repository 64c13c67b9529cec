"""Engines with a log of their own: whatever crashes where, they and the binlog agree behind the next start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import Xid
from binlog_storage.engine.references import Reason
from binlog_storage.errors import StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import events, gtid_event
from tests.storage.tables.test_transactions import OPTIONS, T, engine_with, rows


class Crash(Exception):
    """The power goes."""


class Other:
    """See `binlog_storage.tables.participants.Participant`. What it has is durable at once."""

    def __init__(self, name: str, before: Callable[[str], None] = lambda _: None) -> None:
        self.name = name
        self.before = before
        self.prepared: set[Xid] = set()
        self.committed: set[Xid] = set()

    def prepare(self, xid: Xid) -> None:
        self.before(f"prepare {self.name}")
        self.prepared.add(xid)

    def commit(self, xid: Xid) -> None:
        self.before(f"commit {self.name}")
        if xid in self.prepared:
            self.prepared.discard(xid)
            self.committed.add(xid)

    def rollback(self, xid: Xid) -> None:
        self.before(f"rollback {self.name}")
        self.prepared.discard(xid)

    def recover(self) -> list[Xid]:
        return list(self.prepared)


GTID = Gtid(5, 1, 1)


def start(engine: IbbEngine, others: list[Other]) -> None:
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    group = engine._appender.begin(tables=t)
    group.spill(events(300, "data"))
    engine.commit_two_phase(group, gtid_event(GTID), GTID, others)


def crashing(where: str) -> Callable[[str], None]:
    """To be called before each step: it raises `Crash` at that one, and at all behind it."""
    gone: list[str] = []

    def before(what: str) -> None:
        if what == where or gone:
            gone.append(what)
            raise Crash

    return before


def started_again(other: Other) -> Other:
    """The same engine behind the crash, with what it had on its disk."""
    again = Other(other.name)
    again.prepared, again.committed = other.prepared, other.committed
    return again


# The place, and whether the sync before it had come to an end all the same.
PLACES = [
    ("prepare one", False),
    ("prepare two", False),
    ("sync", False),
    ("sync", True),
    ("commit one", False),
    ("commit two", False),
    ("", True),
]


@pytest.mark.parametrize(("where", "told"), PLACES)
def test_a_crash_anywhere(where: str, told: bool) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)

    before = crashing(where)
    one, two = Other("one", before), Other("two", before)
    sync = engine._durability.sync_log

    def sync_log(durable: Callable[[], object] | None = None) -> None:
        if told:
            sync()
        before("sync")
        sync(durable)

    engine._durability.sync_log = sync_log  # type: ignore[method-assign]
    with contextlib.suppress(Crash):
        start(engine, [one, two])
    disk.crash()
    after = [started_again(one), started_again(two)]
    for _ in range(2):
        engine = IbbEngine(disk, OPTIONS, participants=after)
        decided = engine.binlog_state().has(GTID)
        assert decided == (told or where.startswith("commit"))
        assert rows(engine) == ({b"a": b"1"} if decided else {})
        for other in after:
            assert not other.prepared
            assert len(other.committed) == decided
        while engine.step():
            pass
        disk.crash()


def test_an_engine_that_refuses() -> None:
    engine = engine_with(MemoryDisk())

    def before(what: str) -> None:
        if what == "prepare two":
            raise StorageError("no")

    one, two = Other("one"), Other("two", before)
    with pytest.raises(StorageError):
        start(engine, [one, two])
    assert not one.prepared
    assert not engine.binlog_state().entries()


def test_a_binlog_that_does_not_know_rolls_back(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    other = Other("one")
    other.prepared.add(Xid(1, b"nobody knows"))
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    Transaction(engine.writer_of(t)).prepare(Xid(1, b"user"))
    engine._snapshots.make()
    engine.close()
    for name in disk.names():  # by hand
        if name.endswith((".ibb", ".redo")):
            disk.unlink(name)
    engine = IbbEngine(disk, OPTIONS, participants=[other])
    assert not other.prepared
    assert not other.committed
    assert rows(engine) == {}
    assert "Rolled back transaction with xid" in caplog.text


def test_a_user_xa_that_is_not_prepared_everywhere() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"0"})
    for name, engines in (("all", 2), ("some", 3)):
        t = engine.tables.begin()
        t.put(T, name.encode(), b"1")
        group = engine._appender.begin(tables=t)
        group.prepare(Xid(1, name.encode()), engines)
    other = Other("one")
    other.prepared |= {Xid(1, b"all"), Xid(1, b"some")}
    engine.sync()
    disk.crash()
    engine = IbbEngine(disk, OPTIONS, participants=[other])
    assert engine.prepared() == [Xid(1, b"all")]
    assert other.prepared == {Xid(1, b"all")}
    assert engine.rows_to_undo == 1
    while engine.step():
        pass
    engine.sync()
    disk.crash()
    engine = IbbEngine(disk, OPTIONS)  # without the other engine nothing is decided
    assert list(engine.tables.prepared) == [Xid(1, b"all")]


def prepared_by_a_client(engine: IbbEngine, others: list[Other], *, tables: bool = True) -> None:
    t = engine.tables.begin()
    t.put(T, b"a", b"1")
    group = engine._appender.begin(tables=t if tables else None)
    group.spill(events(300, "data"))
    engine.prepare_two_phase(group, USER, others)


USER = Xid(1, b"user")


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_a_client_ends_what_is_prepared_everywhere(
    commit: bool, restart: bool, tables: bool
) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    others = [Other("one"), Other("two")]
    prepared_by_a_client(engine, others, tables=tables)
    engine.sync()
    if restart:
        disk.crash()
        engine = IbbEngine(disk, OPTIONS, participants=others)
        assert engine.prepared() == [USER]
        assert all(other.prepared == {USER} for other in others)
    if commit:
        engine.commit_prepared(USER, gtid_event(GTID), GTID)
    else:
        engine.rollback_prepared(USER)
    for _ in range(2):
        assert rows(engine) == ({b"a": b"1"} if commit and tables else {})
        assert engine.binlog_state().has(GTID) == commit
        assert not engine.prepared()
        assert not engine.references.count(Reason.PREPARED_XA)
        for other in others:
            assert not other.prepared
            assert len(other.committed) == commit
        disk.crash()  # it is durable already
        engine = IbbEngine(disk, OPTIONS, participants=others)


@pytest.mark.parametrize(
    "where", ["prepare two", "end", "commit one", "commit two", "rollback one", ""]
)
@pytest.mark.parametrize("commit", [False, True])
def test_a_crash_anywhere_in_an_xa_of_a_client(commit: bool, where: str) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)

    before = crashing(where)
    one, two = Other("one", before), Other("two", before)
    with contextlib.suppress(Crash):
        prepared_by_a_client(engine, [one, two])
        engine.sync()
        before("end")
        if commit:
            engine.commit_prepared(USER, gtid_event(GTID), GTID)
        else:
            engine.rollback_prepared(USER)
    disk.crash()
    after = [started_again(one), started_again(two)]
    engine = IbbEngine(disk, OPTIONS, participants=after)
    if engine.prepared():
        assert where == "end"
        assert all(other.prepared == {USER} for other in after)
        engine.commit_prepared(USER, gtid_event(GTID), GTID)
    while engine.step():
        pass
    decided = engine.binlog_state().has(GTID)
    assert decided == (where == "end" or (commit and where != "prepare two"))
    assert rows(engine) == ({b"a": b"1"} if decided else {})
    for other in after:
        assert not other.prepared
        assert len(other.committed) == decided
    assert not engine.references.count(Reason.PREPARED_XA)


def test_an_engine_that_cannot_end_it_now(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)

    def before(what: str) -> None:
        if what == "commit one":
            raise StorageError("not now")

    one, two = Other("one", before), Other("two")
    prepared_by_a_client(engine, [one, two])
    engine.commit_prepared(USER, gtid_event(GTID), GTID)
    assert "one: not now; the next start does it there" in caplog.text
    assert two.committed == {USER}
    assert engine.references.count(Reason.PREPARED_XA) == 1, "the decision is needed until then"
    disk.crash()
    one.before = lambda _: None
    engine = IbbEngine(disk, OPTIONS, participants=[one, two])
    assert one.committed == {USER}
    assert not engine.references.count(Reason.PREPARED_XA)


def test_an_engine_that_refuses_to_prepare_for_a_client() -> None:
    engine = engine_with(MemoryDisk())

    def before(what: str) -> None:
        if what == "prepare two":
            raise StorageError("no")

    one = Other("one")
    with pytest.raises(StorageError):
        prepared_by_a_client(engine, [one, Other("two", before)])
    assert not one.prepared
    assert not engine.prepared()
