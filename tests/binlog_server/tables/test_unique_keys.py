"""Unique keys: who has a value, who waits for it, and what is left of one behind rollbacks, DDL and a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.errors import RemoteError
from binlog_storage.binlog.store import IbbEngine

from tests.binlog_server.lab import STORE, Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import USERS, errno, rows, session, waiting

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, u INT UNIQUE, a VARCHAR(20), b INT, UNIQUE ab (a(3), b), KEY (b))",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


ALL = "SELECT id, u, a, b FROM shop.t ORDER BY id"
REFUSED = (
    ("INSERT INTO t VALUES (1, 9, 'q', 9)", "'1' for key 'PRIMARY'"),
    ("INSERT INTO t VALUES (9, 1, 'q', 9)", "'1' for key 'u'"),
    ("INSERT INTO t VALUES (9, 9, 'ABCxx', 1)", "'ABC-1' for key 'ab'"),
    ("INSERT INTO t VALUES (9, 9, 'x', 9), (10, 9, 'x', 8)", "'9' for key 'u'"),
    ("UPDATE t SET u = 1 WHERE id = 2", "'1' for key 'u'"),
    ("UPDATE t SET u = 5", "'5' for key 'u'"),
    ("UPDATE t SET id = id + 10, u = 2 WHERE id = 1", "'2' for key 'u'"),
    ("UPDATE t SET id = 2 WHERE id = 1", "'2' for key 'PRIMARY'"),
)


async def test_duplicates_are_refused_as_a_whole(lab: Lab) -> None:
    client = await session(lab)
    await client.query(
        "INSERT INTO t VALUES (1, 1, 'abcd', 1), (2, 2, 'abd', 1), (3, NULL, NULL, 1)"
    )
    await client.query(
        "INSERT INTO t VALUES (4, NULL, NULL, 1), (5, NULL, 'abc', NULL), (6, NULL, 'abc', NULL)"
    )
    before = await rows(client, ALL)
    assert len(before) == 6
    for begin in ("SET @a = 1", "BEGIN"):
        await client.query(begin)
        for text, entry in REFUSED:
            with pytest.raises(RemoteError, match=f"Duplicate entry {entry}"):
                await client.query(text)
        assert await rows(client, ALL) == before
    await client.query("COMMIT")
    for text in (
        "UPDATE t SET u = u + 10 WHERE id = 1",
        "INSERT INTO t VALUES (9, 1, 'other', 9)",  # its value is free
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE u = 2",
        "INSERT INTO t VALUES (2, 2, 'abd', 1)",
    ):
        await client.query(text)
    assert [row[0] for row in await rows(client, ALL)] == ["1", "2", "3", "4", "5", "6", "9"]


async def test_a_value_that_is_rolled_back_is_free(lab: Lab) -> None:
    client = await session(lab)
    for text in (
        "BEGIN",
        "INSERT INTO t VALUES (1, 1, 'a', 1)",
        "SAVEPOINT s",
        "UPDATE t SET u = 2",
        "INSERT INTO t VALUES (2, 1, 'b', 1)",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (3, 2, 'c', 1)",
    ):
        await client.query(text)
    assert await errno(client, "INSERT INTO t VALUES (4, 1, 'd', 1)") == 1062
    await client.query("COMMIT")
    assert [row[:2] for row in await rows(client, ALL)] == [("1", "1"), ("3", "2")]


async def test_a_value_that_may_be_taken_is_waited_for(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 1, 'a', 1)")
    for end, found in (("COMMIT", 1062), ("ROLLBACK", 0)):
        await one.query("BEGIN")
        await one.query("INSERT INTO t VALUES (2, 2, 'b', 1)")
        late = asyncio.create_task(errno(other, "INSERT INTO t VALUES (3, 2, 'c', 1)"))
        await waiting(lab)
        await one.query(end)
        assert await late == found
        await one.query("DELETE FROM t WHERE id > 1")
    await one.query("BEGIN")
    await one.query("DELETE FROM t WHERE id = 1")
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, "INSERT INTO t VALUES (3, 1, 'c', 1)") == 1205
    await one.query("ROLLBACK")
    assert await errno(other, "INSERT INTO t VALUES (3, 1, 'c', 1)") == 1062


async def test_two_that_are_refused_do_not_wait_for_each_other(lab: Lab) -> None:
    one, other, third = [await session(lab) for _ in range(3)]
    await one.query("INSERT INTO t VALUES (1, 1, 'a', 1)")
    for number, client in ((8, one), (9, other)):
        await client.query("BEGIN")
        await client.query(f"INSERT INTO t VALUES ({number}, {number}, 'x', {number})")
        assert await errno(client, "INSERT INTO t VALUES (2, 1, 'b', 1)") == 1062
        assert await errno(client, "INSERT INTO t VALUES (1, 2, 'b', 1)") == 1062
    await third.query("SET innodb_lock_wait_timeout=0")
    assert (
        await errno(third, "DELETE FROM t WHERE id = 1") == 1205
    )  # they rely on the row that they met
    await one.query("COMMIT")
    await other.query("COMMIT")
    await third.query("DELETE FROM t")


async def test_a_circle_over_unique_values(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await other.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1, 'a', 1), (3, 3, 'c', 3)")
    await other.query("INSERT INTO t VALUES (2, 2, 'b', 1)")
    late = asyncio.create_task(errno(one, "INSERT INTO t VALUES (4, 2, 'd', 1)"))
    await waiting(lab)
    assert await errno(other, "INSERT INTO t VALUES (5, 1, 'e', 1)") == 1213
    assert await late == 0
    await one.query("COMMIT")


async def test_ddl_takes_indexes_along(lab: Lab) -> None:
    client = await session(lab)
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    tables = len(engine.tables.tables())
    await client.query("INSERT INTO t VALUES (1, 1, 'a', 1)")
    await client.query("TRUNCATE t")
    assert len(engine.tables.tables()) == tables
    await client.query("INSERT INTO t VALUES (1, 1, 'a', 1)")
    assert await errno(client, "INSERT INTO t VALUES (2, 1, 'b', 1)") == 1062
    await client.query("DROP TABLE t")
    assert len(engine.tables.tables()) == tables - 3
    await client.query(SCHEMA[1])
    await client.query("INSERT INTO t VALUES (1, 1, 'a', 1)")
    await client.query("DROP DATABASE shop")
    assert len(engine.tables.tables()) == tables - 3
    for text in SCHEMA:
        await client.query(text)
    assert await rows(client, ALL) == []


async def test_restart(lab: Lab) -> None:
    client = await session(lab)
    await client.query("INSERT INTO t VALUES (1, 1, 'a', 1), (2, 2, 'b', 1)")
    await client.query("UPDATE t SET u = 7 WHERE id = 2")
    await client.query("BEGIN")
    await client.query("INSERT INTO t VALUES (3, 3, 'c', 1)")
    await client.query("DELETE FROM t WHERE id = 1")
    disk = lab.directory.disk
    await lab.stop()
    engine = IbbEngine(disk, STORE)
    while engine.rows_to_undo:  # here no thread does it; a session that was closed late leaves some
        engine.step()
    async with Lab(engine, users=USERS, local_tables=True) as again:
        other = await session(again)
        assert [await errno(other, f"INSERT INTO t VALUES (9, {u}, 'x', 9)") for u in (1, 7)] == [
            1062,
            1062,
        ]
        await other.query("INSERT INTO t VALUES (9, 2, 'x', 9), (3, 3, 'y', 1)")
        assert [row[:2] for row in await rows(other, ALL)] == [
            ("1", "1"), ("2", "7"), ("3", "3"), ("9", "2"),
        ]  # fmt: skip


async def test_check_table_finds_what_is_not_as_it_should_be(lab: Lab) -> None:
    client = await lab.client("root", "pw")
    await client.query("CREATE TABLE shop.checked (id INT PRIMARY KEY, n INT UNIQUE)")
    await client.query("INSERT INTO shop.checked VALUES (1, 1), (2, NULL)")
    checked = "CHECK TABLE shop.checked"
    assert await rows(client, checked) == [("shop.checked", "check", "status", "OK")]
    table = lab.server.tables.find("shop", "checked")
    assert table is not None
    (index,) = table.indexes
    for number, key, value in ((index.number, b"no entry", b"x"), (table.number, b"no key", b"")):
        store = lab.server.tables.store
        trx = store.begin()
        raw = next(store.scan(table.number))[1]
        trx.put(number, key, value or raw)
        trx.commit()
        assert await rows(client, checked) == [("shop.checked", "check", "error", "Corrupt")]
        trx = store.begin()
        trx.delete(number, key)
        trx.commit()
        assert await rows(client, checked) == [("shop.checked", "check", "status", "OK")]
