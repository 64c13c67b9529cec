"""LOCK TABLES of tables here: who waits, what the session itself may do, what gives the locks back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.connection.commands import ResetConnection

from tests.binlog_server.lab import Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import USERS, errno, rows, session, waiting

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE shop.u (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE shop.m (id INT PRIMARY KEY, n INT) ENGINE=MyISAM",
    "INSERT INTO shop.t VALUES (1, 0)",
    "INSERT INTO shop.m VALUES (1, 0)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


@pytest.mark.parametrize("what", ["t READ", "t WRITE", "t AS a READ LOCAL, t b LOW_PRIORITY WRITE"])
@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO t VALUES (2, 0)",
        "UPDATE t SET n = n + 1 WHERE id = 1",
        "DELETE FROM t",
        "SELECT id FROM t FOR UPDATE",
        "ALTER TABLE t ADD COLUMN b INT",
        "TRUNCATE t",
        "DROP TABLE t",
        "LOCK TABLES t READ",
    ],
)
async def test_others_wait_for_the_end(lab: Lab, what: str, change: str) -> None:
    one, other = await session(lab), await session(lab)
    await one.query(f"LOCK TABLES {what}, u WRITE")
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, change) == 1205
    await other.query("SET innodb_lock_wait_timeout=50")
    late = asyncio.create_task(other.query(change))
    await waiting(lab)
    third = await session(lab)
    assert await rows(third, "SELECT id, n FROM t") == [("1", "0")]
    await third.query("UPDATE m SET n = n + 1")
    await one.query("UNLOCK TABLES")
    await late


async def test_who_has_changed_rows_is_waited_for(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 5")
    late = asyncio.create_task(other.query("LOCK TABLES t WRITE"))
    await waiting(lab)
    await one.query("COMMIT")
    await late
    await other.query("UPDATE t SET n = n + 1")
    await other.query("UNLOCK TABLES")
    assert await rows(one, "SELECT n FROM t") == [("6",)]


@pytest.mark.parametrize(
    "freed_by",
    [
        "UNLOCK TABLES",
        "BEGIN",
        "START TRANSACTION READ ONLY",
        "LOCK TABLES u READ",
        "reset",
        "gone",
    ],
)
async def test_what_gives_the_locks_back(lab: Lab, freed_by: str) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("LOCK TABLES t WRITE, m WRITE")
    await one.query("UPDATE t SET n = 1")
    await one.query("COMMIT")
    await one.query("ROLLBACK")
    late = asyncio.create_task(other.query("UPDATE t SET n = n + 10"))
    await waiting(lab)
    if freed_by == "gone":
        one.close()
    elif freed_by == "reset":
        assert (await one.ask(ResetConnection().build()))[:1] == b"\0"
    else:
        await one.query(freed_by)
    await late
    await other.query("UPDATE m SET n = n + 10")
    assert await rows(other, "SELECT n FROM t UNION ALL SELECT n FROM m") == [("11",), ("10",)]


async def test_what_the_session_itself_may_do(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("LOCK TABLES t WRITE, m WRITE, u READ")
    late = asyncio.create_task(other.query("LOCK TABLES t WRITE, u READ"))
    await waiting(lab)  # and does not stand in the way of who has the lock
    for text, number in {
        "INSERT INTO t VALUES (2, 0), (3, 0)": 0,
        "UPDATE t SET n = 7 WHERE id = 1": 0,
        "DELETE FROM t WHERE id = 3": 0,
        "INSERT INTO m VALUES (2, 0)": 0,
        "SELECT id FROM t FOR UPDATE": 0,
        "ALTER TABLE t COMMENT 'locked', ADD KEY (n)": 0,
        "ALTER TABLE t DISABLE KEYS": 0,
        "ALTER TABLE t ADD COLUMN c INT": 1235,
        "TRUNCATE t": 1235,
        "DROP TABLE t": 1235,
        "INSERT INTO u VALUES (1, 0)": 1099,
        "TRUNCATE u": 1099,
        "CREATE TABLE v (id INT PRIMARY KEY)": 1100,
        "SET autocommit = 0": 0,
        "INSERT INTO t VALUES (9, 9)": 0,
        "ROLLBACK": 0,
        "SET autocommit = 1": 0,
        "XA START 'x'": 1400,
    }.items():
        assert await errno(one, text) == number, text
    await one.query("UNLOCK TABLES")
    await late
    assert await errno(one, "SELECT id FROM m FOR UPDATE") == 0
    assert await errno(other, "INSERT INTO m VALUES (3, 0)") == 1100
    assert await errno(other, "UPDATE u SET n = 1") == 1099
    await other.query("UNLOCK TABLES")
    assert await rows(other, "SELECT * FROM t") == [("1", "7"), ("2", "0")]


REFUSED = {
    "LOCK TABLES nope WRITE": 1146,
    "LOCK TABLES t WRITE, t READ": 1066,
    "LOCK TABLES t a WRITE, u a READ": 1066,
    "LOCK TABLES t": 1064,
    "LOCK TABLES t WRITE,": 1064,
    "LOCK TABLES t WRITE u READ": 1064,
    "LOCK TABLES": 1064,
    "LOCK TABLES elsewhere.t READ": 1146,
}


async def test_what_is_refused_locks_nothing(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("LOCK TABLES t WRITE")
    for text, number in REFUSED.items():
        assert await errno(one, text) == number, text
    await other.query("UPDATE t SET n = 3")
    await one.query("INSERT INTO u VALUES (1, 0)")


async def test_a_wait_ends_with_its_session(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 5")
    late = asyncio.create_task(errno(other, "LOCK TABLES u WRITE, t WRITE"))
    await waiting(lab)
    ((number,),) = await rows(
        one, "SELECT id FROM information_schema.processlist WHERE info LIKE 'LOCK%'"
    )
    await one.query(f"KILL QUERY {number}")
    assert await late == 1317
    third = await session(lab)
    await third.query("LOCK TABLES u WRITE")


async def test_what_a_dump_has_around_rows(lab: Lab) -> None:
    one = await session(lab)
    for text in (
        "LOCK TABLES `u` WRITE",
        "/*!40000 ALTER TABLE `u` DISABLE KEYS */",
        "INSERT INTO `u` VALUES (1,1),(2,2)",
        "/*!40000 ALTER TABLE `u` ENABLE KEYS */",
        "UNLOCK TABLES",
    ):
        await one.query(text)
    assert await rows(one, "SELECT * FROM u") == [("1", "1"), ("2", "2")]


async def test_a_session_that_only_reads_changes_no_accounts_and_locks_for_no_writes(
    lab: Lab,
) -> None:
    """As in a live 11.8: 1792; a transaction that only reads is ended by them, and so refuses none."""
    one = await session(lab)
    texts = (
        *("CREATE USER new", "GRANT RELOAD ON *.* TO new", "DROP USER new"),
        *("SET DEFAULT ROLE NONE", "LOCK TABLES t WRITE"),
    )
    for begin, number in (
        ("SET SESSION TRANSACTION READ ONLY", 1792),
        ("SET SESSION TRANSACTION READ WRITE", 0),
        ("START TRANSACTION READ ONLY", 0),
    ):
        found = {}
        for text in texts:
            await one.query(begin)
            found[text] = await errno(one, text)
            await one.query("UNLOCK TABLES")
        assert found == dict.fromkeys(texts, number), begin
        await one.query(begin)
        assert await errno(one, "SHOW GRANTS") == 0
        assert await errno(one, "LOCK TABLES t READ") == 0
        await one.query("UNLOCK TABLES")
