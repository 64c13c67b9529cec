"""Groups of our own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidFlags
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_protocol.groups.statement_group import Origin, QuickGroup
from binlog_protocol.groups.stored_group import is_start_marker
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import BinlogEngine, Position, Xid
from binlog_storage.ibb.chunk import Record, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.commits.publisher import Publisher
from tests.binlog_server.lab import STORE


def publisher(engine: BinlogEngine, domain_id: int = 0) -> Publisher:
    return Publisher(engine, server_version="11.8.6-MariaDB", server_id=7, domain_id=domain_id)


def stored(engine: BinlogEngine) -> list[bytes]:
    engine.sync()
    found: list[bytes] = []
    position = engine.find_start(type(engine.binlog_state().position())()).position
    while position < engine.durable_end:
        batch = engine.read(position)
        found += batch.groups
        position = batch.end
    return found


def whole(payload: bytes) -> EventGroup:
    """What an assembler makes of the events."""
    assembler = EventGroupAssembler()
    *first, last = [assembler.feed(event) for event in split_events(payload)]
    assert first == [None] * len(first)
    assert isinstance(last, EventGroup)
    assert last.payload == payload
    return last


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_groups_are_whole(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    own = publisher(engine, domain_id=3)
    assert own.ddl("CREATE TABLE t (a INT)", "test") == Gtid(3, 7, 1)
    assert own.transaction(["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"]) == Gtid(
        3, 7, 2
    )
    marker, ddl, transaction = stored(engine)
    assert is_start_marker(marker)
    assert whole(ddl).gtid == Gtid(3, 7, 1)
    assert whole(ddl).flags2 & GtidFlags.DDL
    assert whole(ddl).is_standalone
    assert whole(transaction).gtid == Gtid(3, 7, 2)
    assert [event[4] for event in split_events(transaction)] == [
        EventType.GTID,
        EventType.QUERY,
        EventType.QUERY,
        EventType.XID,
    ]
    assert not whole(transaction).is_standalone


def test_one_start_marker_per_start(disk: MemoryDisk) -> None:
    for _ in range(2):
        engine = IbbEngine(disk, STORE)
        own = publisher(engine)
        for _ in range(3):
            own.transaction(["DO 1"])
        engine.close()
        disk.crash()
    engine = IbbEngine(disk, STORE)
    publisher(engine)  # one that publishes nothing marks nothing
    kinds = [is_start_marker(payload) for payload in stored(engine)]
    assert kinds == [True, False, False, False] * 2
    marker = FormatDescription.parse(stored(engine)[0])
    assert marker.created > 0
    assert marker.server_version == "11.8.6-MariaDB"


def test_numbers_go_on_after_a_restart(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    own = publisher(engine)
    assert [own.transaction(["DO 1"]).seq_no for _ in range(5)] == [1, 2, 3, 4, 5]
    engine.close()
    disk.kill()
    engine = IbbEngine(disk, STORE)
    assert publisher(engine).transaction(["DO 1"]) == Gtid(0, 7, 6)
    assert publisher(engine, domain_id=1).transaction(["DO 1"]) == Gtid(1, 7, 1)


def test_what_was_not_synced_is_numbered_again(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    own = publisher(engine)
    own.transaction(["DO 1"])
    engine.sync()
    own.transaction(["DO 2"])
    disk.crash()
    assert publisher(IbbEngine(disk, STORE)).transaction(["DO 3"]) == Gtid(0, 7, 2)


def test_numbers_follow_those_of_others(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    other = Publisher(engine, server_version="11.8.6-MariaDB", server_id=9, domain_id=0)
    for _ in range(4):
        other.transaction(["DO 1"])
    assert publisher(engine).transaction(["DO 1"]) == Gtid(0, 7, 5)


@pytest.mark.parametrize("text", ["INSERT INTO `ü` VALUES ('日本 😀\0')", "", "x" * 100_000])
def test_statement_text(disk: MemoryDisk, text: str) -> None:
    engine = IbbEngine(disk, STORE)
    own = publisher(engine)
    own.ddl(text, "schéma")
    own.transaction([text], "schéma")
    for payload in stored(engine)[1:]:
        queries = [e for e in split_events(payload) if e[4] == EventType.QUERY]
        (query,) = map(QueryEvent.parse, queries)
        assert query.text.decode() == text
        assert query.database.decode() == "schéma"
        assert query.server_id == 7


@pytest.mark.parametrize("size", [100, 4000, 4096, 5000, 100_000])
def test_transactions_beyond_the_cache(disk: MemoryDisk, size: int) -> None:
    """They are written out of band, in pieces of the cache's size, and are read back whole."""
    engine = IbbEngine(disk, STORE)
    own = Publisher(
        engine, server_version="11.8.6-MariaDB", server_id=7, domain_id=0, binlog_cache_size=4096
    )
    text = f"INSERT INTO t VALUES ('{'x' * size}')"
    gtid = own.transaction([text, "INSERT INTO t VALUES ('last')"])
    _, payload = stored(engine)
    group = whole(payload)
    assert group.gtid == gtid
    queries = [QueryEvent.parse(e).text for e in split_events(payload) if e[4] == EventType.QUERY]
    assert queries == [text.encode(), b"INSERT INTO t VALUES ('last')"]
    spilled = {r.type for r in records(engine)} & {RecordType.OOB_DATA}
    assert bool(spilled) == (len(payload) > 4096)


def records(engine: IbbEngine) -> list[Record]:
    reader = RecordReader(engine._pages, Position(0, PAGE_SIZE), engine.durable_end)
    found = []
    while (record := reader.next()) is not None:
        found.append(record)
    return found


# --- domains of an upstream ---


def relay(engine: BinlogEngine) -> Publisher:
    return Publisher(engine, server_version="11.8.6", server_id=7, domain_id=0, follows=True)


def test_domains_of_the_upstream_are_not_ours(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    Publisher(engine, server_version="11.8.6", server_id=9, domain_id=0).transaction(["DO 1"])
    own = relay(engine)
    with pytest.raises(ServerError, match=r"^1290 .*domain 0"):
        own.require_open(0)
    own.require_open(1)
    assert own.follows_in(0)
    assert not own.follows_in(1), "commits number it already"
    assert own.follows_in(2)
    with pytest.raises(ServerError, match=r"^1290 .*domain 2"):
        own.require_open(2)


def test_a_promoted_relay_goes_on_where_its_upstream_ended(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    master = Publisher(engine, server_version="11.8.6", server_id=9, domain_id=0)
    master.transaction(["DO 1"])
    own = relay(engine)
    with pytest.raises(ServerError, match=r"^1290 "):
        own.require_open(0)
    master.transaction(["DO 2"])  # as the relay stores it: past the publisher
    own.follows = False
    own.require_open(0)
    assert own.transaction(["DO 3"]) == Gtid(0, 7, 3)
    own.follows = True
    assert not own.follows_in(0), "commits number it now"


def test_without_an_upstream_every_domain_is_ours(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    Publisher(engine, server_version="11.8.6", server_id=9, domain_id=0).transaction(["DO 1"])
    publisher(engine).require_open(0)


def test_read_only_and_stop(disk: MemoryDisk) -> None:
    own = publisher(IbbEngine(disk, STORE))
    assert own.accepts
    own.read_only = True
    assert not own.accepts
    with pytest.raises(ServerError, match=r"^1290 .*--read-only"):
        own.require_open(0)
    own.read_only = False
    assert own.accepts
    own.stop()
    own.read_only = False
    assert not own.accepts
    with pytest.raises(ServerError, match=r"^1053 "):
        own.require_open(0)


# --- RESET MASTER between a number and its group, from another thread ---


def commit_one(own: Publisher, size: int, *, standalone: bool = False) -> None:
    transaction = own.begin()
    transaction.write(b"x" * size)
    own.commit(transaction, Origin(7), own.domain(0), standalone=standalone)


COMMITS: dict[str, Callable[[Publisher], object]] = {
    "quickly": lambda own: own.commit_quickly(
        own.domain(0), QuickGroup(0, Origin(7)), 7, b"INSERT INTO t VALUES (1)"
    ),
    "a transaction": lambda own: commit_one(own, 100),
    "DDL": lambda own: commit_one(own, 100, standalone=True),
    "a program's transaction": lambda own: own.transaction(["INSERT INTO t VALUES (1)"]),
    "a program's DDL": lambda own: own.ddl("CREATE TABLE t (a INT)"),
}


@pytest.mark.parametrize("appends", [1, 2])
@pytest.mark.parametrize("name", COMMITS)
def test_a_number_that_was_given_before_a_reset(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, name: str, appends: int
) -> None:
    """The new binlog begins with a start marker and number 1, whichever of the two the reset came before."""
    engine = IbbEngine(disk, STORE)
    own = publisher(engine)
    for _ in range(5):
        COMMITS[name](own)
    real, left = engine.append, [0] * appends

    def append(payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if left:
            left.pop()
            engine.reset()
        return real(payload, gtid, age)

    monkeypatch.setattr(engine, "append", append)
    COMMITS[name](own)
    monkeypatch.undo()
    assert left == []
    assert engine.binlog_state().entries() == [Gtid(0, 7, 1)]
    assert [is_start_marker(payload) for payload in stored(engine)] == [True, False]
    COMMITS[name](own)
    assert engine.binlog_state().entries() == [Gtid(0, 7, 2)]


def test_a_reset_before_a_transaction_spills_at_its_end(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = IbbEngine(disk, STORE)
    own = publisher(engine)
    for _ in range(5):
        commit_one(own, 100)
    real = Transaction._spill_all

    def spill_all(self: Transaction) -> None:
        monkeypatch.undo()
        engine.reset()
        real(self)

    monkeypatch.setattr(Transaction, "_spill_all", spill_all)
    commit_one(own, 32 * 1024 - 40)
    assert engine.binlog_state().entries() == [Gtid(0, 7, 1)]
    assert engine.references.holds() == []
    assert [is_start_marker(payload) for payload in stored(engine)] == [True, False]


def test_a_reset_behind_the_state_that_numbers_are_taken_from(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = IbbEngine(disk, STORE)
    for _ in range(5):
        COMMITS["quickly"](publisher(engine))
    own = publisher(engine)
    real = engine.binlog_state

    def binlog_state(domain_id: int | None = None) -> BinlogState:
        monkeypatch.undo()
        found = real(domain_id)
        engine.reset()
        return found

    monkeypatch.setattr(engine, "binlog_state", binlog_state)
    COMMITS["quickly"](own)
    assert engine.binlog_state().entries() == [Gtid(0, 7, 1)]


def test_a_start_marker_is_in_front_of_what_was_prepared_before_the_start(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, STORE)
    name = Xid(1, b"x")
    before = publisher(engine).begin()
    before.write(b"x" * 100)
    before.prepare(name)
    own = publisher(engine)
    own.commit_prepared(name, Origin(7), own.domain(0))
    assert [is_start_marker(payload) for payload in stored(engine)] == [True, False]
