"""XA transactions that a store holds prepared: seen, and ended."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import Xid
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.sql_commit.xid import xid_of
from tests.binlog_server.lab import Lab
from tests.binlog_server.sql_commit.test_sql_commit import GRANTED, ok, refused
from tests.storage.vectors import VECTORS


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=GRANTED) as lab:
        yield lab


ROWS = Origin(1).statement(b"INSERT INTO t VALUES (1)", 5) + Origin(1).statement(b"COMMIT", 5)


def prepare(lab: Lab, xid: Xid) -> None:
    group = lab.engine.begin()
    group.spill(ROWS)
    group.prepare(xid)
    lab.engine.sync()


NAMES = {
    "plain": (b"'q'", Xid(1, b"q"), "'q'"),
    "with a branch": (b"'a','b'", Xid(1, b"a", b"b"), "'a','b'"),
    "another format": (b"'a','',2", Xid(2, b"a"), "'a','',2"),
    "a dot": (b"'a.b'", Xid(1, b"a.b"), "X'612e62'"),
    "hexadecimal": (b"X'616263', 0x643a65 , 10", Xid(10, b"abc", b"d:e"), "X'616263',X'643a65',10"),
    "the largest": (
        b"0x" + b"00" * 64 + b",'" + b"x" * 64 + b"',2147483647",
        Xid(2147483647, bytes(64), b"x" * 64),
        f"X'{'00' * 64}',X'{'78' * 64}',2147483647",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    text, xid, shown = NAMES[name]
    assert xid_of(b" " + text + b" ") == (xid, "")
    assert xid_of(text + b" ONE  phase", "COMMIT") == (xid, "ONE PHASE")
    assert xid_of(text + b" suspend FOR migrate", "END") == (xid, "SUSPEND FOR MIGRATE")
    assert xid.sql() == shown
    assert xid_of(shown.encode()) == (xid, ""), "it can be pasted"


@pytest.mark.parametrize(
    ("text", "errno"),
    [
        (b"", 1064),
        (b"''", 1398),
        (b"'a' 'b'", 1064),
        (b"'a',", 1064),
        (b"'a','b',-1", 1064),
        (b"'a','b',2147483648", 1064),
        (b"'" + b"a" * 65 + b"'", 1064),
        (b"X'123'", 1064),
        (b"n'a'", 1064),
        (b"@a", 1064),
        (b"'a'; SELECT 1", 1064),
    ],
)
def test_what_is_no_name(text: bytes, errno: int) -> None:
    with pytest.raises(ServerError) as error:
        xid_of(text)
    assert error.value.errno == errno


async def test_recover(lab: Lab) -> None:
    client = await lab.client("sql")
    assert await client.query("XA RECOVER") == []
    for xid in (Xid(7, b"gb", b"r"), Xid(1, b"a.b")):
        prepare(lab, xid)
    assert await client.query("XA RECOVER") == [
        ["7", "2", "1", "gbr"],
        ["1", "3", "0", "a.b"],
    ]
    sql = [["7", "2", "1", "'gb','r',7"], ["1", "3", "0", "X'612e62'"]]
    assert await client.query("xa recover format='sql'") == sql
    assert await refused(client, "XA RECOVER FORMAT='XML'") == (
        1791,
        "Unknown XA RECOVER format name: 'XML'",
    )


async def test_commit(lab: Lab) -> None:
    """It is the session's next group, and a replica gets it like any other."""
    lab.publish("0-1-1")
    prepare(lab, Xid(1, b"q"))
    replica = await lab.replica("0-1-1")
    client = await lab.client("sql")
    await ok(client, "SET gtid_domain_id = 3, server_id = 9")
    await ok(client, "XA COMMIT 'q'")
    assert lab.engine.prepared() == []
    assert lab.engine.binlog_state().last(3) == Gtid(3, 9, 1)
    await replica.opening()
    kinds: list[int] = []
    while kinds.count(EventType.QUERY) < 2:
        kinds.append((await replica.event())[TYPE_OFFSET])
    assert kinds[-3:] == [EventType.GTID, EventType.QUERY, EventType.QUERY]
    assert await refused(client, "XA COMMIT 'q'") == (1397, "XAER_NOTA: Unknown XID")


async def test_rollback_lets_the_files_go(lab: Lab) -> None:
    lab.publish("0-1-1")
    prepare(lab, Xid(1, b"q"))
    client = await lab.client("sql")
    await ok(client, "FLUSH BINARY LOGS")
    await ok(client, "SET GLOBAL slave_connections_needed_for_purge = 0")
    held = (await client.query("EXPLAIN PURGE TO 'binlog-000001.ibb'"))[0]
    assert "prepared XA transaction ('q'; XA COMMIT or XA ROLLBACK ends it)" in str(held[5])
    errno, text = await refused(client, "RESET MASTER")
    assert errno == 4244
    assert "'q' is prepared" in text
    assert (await refused(client, "PURGE BINARY LOGS TO 'binlog-000001.ibb'"))[0] == 1378
    await ok(client, "XA ROLLBACK 'q'")
    assert lab.engine.binlog_state().last(0) == Gtid(0, 1, 1), "no group"
    await ok(client, "RESET MASTER")


REFUSED = {
    "XA COMMIT 'other'": (1397, "XAER_NOTA: Unknown XID"),
    "XA ROLLBACK 'q','b'": (1397, "XAER_NOTA: Unknown XID"),
    "XA COMMIT 'q' ONE PHASE": (
        1398,
        "XAER_INVAL: Invalid arguments (or unsupported command)",
    ),
}


@pytest.mark.parametrize("sql", REFUSED)
async def test_refused(lab: Lab, sql: str) -> None:
    prepare(lab, Xid(1, b"q"))
    assert await refused(await lab.client("sql"), sql) == REFUSED[sql]
    assert lab.engine.prepared() == [Xid(1, b"q")]


async def test_not_inside_a_transaction(lab: Lab) -> None:
    prepare(lab, Xid(1, b"q"))
    client = await lab.client("sql")
    await ok(client, "BEGIN")
    assert await refused(client, "XA ROLLBACK 'q'") == (
        1400,
        "XAER_OUTSIDE: Some work is done outside global transaction",
    )


async def test_read_only(lab: Lab) -> None:
    """Nothing is committed then; what is rolled back is no group, and lets the files go."""
    prepare(lab, Xid(1, b"q"))
    lab.server.publisher.read_only = True
    client = await lab.client("sql")
    assert (await refused(client, "XA COMMIT 'q'"))[0] == 1290
    await ok(client, "XA ROLLBACK 'q'")
    assert lab.engine.prepared() == []


def vector(directory: Path) -> MemoryDisk:
    return MemoryDisk(
        {path.stem: gzip.decompress(path.read_bytes()) for path in directory.glob("*.ibb.gz")}
    )


def test_a_directory_of_mariadb_says_so_at_its_start(caplog: pytest.LogCaptureFixture) -> None:
    engine = IbbEngine(vector(VECTORS / "xa"), StoreOptions(4 * PAGE_SIZE))
    waiting = engine.prepared()
    assert waiting
    assert f"Found {len(waiting)} prepared XA transaction(s)" in caplog.text
    assert waiting[0].sql() in caplog.text
    for xid in waiting:
        engine.rollback_prepared(xid)
    engine.reset()
    engine.close()
