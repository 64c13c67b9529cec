"""START TRANSACTION WITH CONSISTENT SNAPSHOT: rows and the place in the binlog are those of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.page import PAGE_SIZE

from tests.binlog_server.lab import Client, Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import SCHEMA, USERS, rows, session

SNAPSHOT = "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, "INSERT INTO shop.t VALUES (1, 'one', 1)", users=USERS) as lab:
        yield lab


async def place(client: Client) -> dict[str, str]:
    """By the last word of the variable's name."""
    found = await client.query("SHOW STATUS LIKE 'binlog_snapshot_%'")
    return {str(name).rpartition("_")[2]: str(value) for name, value in found}


async def gtids(client: Client, found: dict[str, str]) -> str | None:
    sql = f"SELECT BINLOG_GTID_POS('{found['file']}', '{found['position']}')"
    ((text,),) = await client.query(sql)
    return None if text is None else str(text)


async def test_the_place_belongs_to_the_rows(lab: Lab) -> None:
    reader, writer = await session(lab), await session(lab)
    await reader.query(SNAPSHOT)
    before = await place(reader)
    assert before["gtid"] == "0-1-3"
    for i in range(2, 5):
        await writer.query(f"INSERT INTO t VALUES ({i}, 'more', 1)")
    assert await rows(reader) == [("1", "one", "1")]
    assert await place(reader) == before
    assert await gtids(reader, before) == await gtids(writer, before) == "0-1-3"
    now = await place(writer)
    assert int(now["position"]) > int(before["position"])
    assert "gtid" not in now
    assert await gtids(writer, now) == "0-1-6"
    await reader.query("COMMIT")
    assert await place(reader) == now


@pytest.mark.parametrize(
    "end", ["COMMIT", "ROLLBACK", "BEGIN", "CREATE DATABASE IF NOT EXISTS other"]
)
@pytest.mark.parametrize("changes", [(), ("INSERT INTO t VALUES (7, 'x', 1)",)])
async def test_it_ends_with_its_transaction(lab: Lab, end: str, changes: tuple[str, ...]) -> None:
    """No view is left: it would keep all that is older than what others change."""
    reader = await session(lab)
    assert isinstance(lab.engine, IbbEngine)
    for begin in (SNAPSHOT, "BEGIN"):
        for text in (begin, "SELECT * FROM t", *changes, "SELECT * FROM t", end):
            await reader.query(text)
        assert "gtid" not in await place(reader)
        assert lab.engine.tables._views == {}
        await reader.query("DELETE FROM t WHERE id = 7")


async def test_places_that_are_none(lab: Lab) -> None:
    client = await session(lab)
    now = await place(client)
    assert await gtids(client, {**now, "position": str(PAGE_SIZE)}) is not None, (
        "the file's beginning"
    )
    for other in (
        "0",
        "100",
        str(PAGE_SIZE + 1),
        str(int(now["position"]) + 1),
        str(2**64 - 1),
        "-1",
        "x",
    ):
        assert await gtids(client, {**now, "position": other}) is None, other
    for name in ("binlog.000001", "binlog-000007.ibb", ""):
        assert await gtids(client, {**now, "file": name}) is None


async def test_a_snapshot_is_durable_before_it_is_read(lab: Lab) -> None:
    """A replica that is made of it has nothing that a crash here could lose."""
    client = await session(lab)
    await client.query("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    await client.query("INSERT INTO t VALUES (2, 'two', 1)")
    await client.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    await client.query(SNAPSHOT)
    assert lab.engine.durable_end == lab.engine.written_end


@pytest.mark.parametrize(
    ("level", "sees", "warned"),
    [
        ("REPEATABLE READ", 1, []),
        ("READ COMMITTED", 2, []),
        (
            "READ UNCOMMITTED",
            2,
            "InnoDB: WITH CONSISTENT SNAPSHOT is ignored at READ UNCOMMITTED isolation level.",
        ),
    ],
)
async def test_levels(lab: Lab, level: str, sees: int, warned: str) -> None:
    reader, writer = await session(lab), await session(lab)
    await reader.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    await reader.query(SNAPSHOT)
    expected = [("Warning", "138", warned)] if warned else []
    assert await rows(reader, "SHOW WARNINGS") == expected
    await writer.query("INSERT INTO t VALUES (2, 'two', 1)")
    assert len(await rows(reader)) == sees


async def test_without_tables_there_is_none() -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        await client.query(SNAPSHOT)
        assert "consistent-read" in str(await client.query("SHOW WARNINGS"))
        assert await place(client) == {}
