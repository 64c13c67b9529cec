"""`binlog_format` STATEMENT and MIXED: what is text and what is rows, and what a text locks up to its commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.statement_context import IntvarEvent

from tests.binlog_server.lab import ROOT, Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno, kinds
from tests.storage.groups import read_all

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)",
    "CREATE TABLE shop.u (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE shop.m (id INT PRIMARY KEY, n INT UNIQUE) ENGINE=MyISAM",
    "INSERT INTO shop.u VALUES (1, 1), (2, 2)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        yield lab


async def session(lab: Lab, logged: str = "STATEMENT") -> Client:
    client = await lab.root()
    await client.query("USE shop")
    await client.query(f"SET binlog_format = {logged}")
    return client


def groups(lab: Lab) -> list[str]:
    """Kinds of events of the groups behind the schema's."""
    lab.engine.sync()
    found = [list(split_events(payload)) for payload in read_all(lab.engine) if payload[4] == 162]
    return [kinds(group) for group in found[len(SCHEMA) :]]


def events(lab: Lab) -> list[bytes]:
    lab.engine.sync()
    return [event for payload in read_all(lab.engine) for event in split_events(payload)]


def numbers(lab: Lab) -> list[int]:
    """Of INTVAR events."""
    return [IntvarEvent.parse(e).value for e in events(lab) if e[4] == EventType.INTVAR]


def waiting(lab: Lab) -> int:
    return int(lab.engine.counters()["Innodb_row_lock_current_waits"])


@pytest.mark.parametrize(
    ("statement", "of_statement", "of_mixed"),
    [
        ("INSERT INTO u VALUES (5, 5)", "GQX", "GQX"),
        ("UPDATE u SET n = n WHERE id = 1", "GQX", "GQX"),  # nothing changes
        ("UPDATE u SET n = (@x := id + 5)", "GvQX", "GATUX"),
        (
            "UPDATE u SET n = n + @ten",
            "GATUX",
            "GATUX",
        ),  # a DECIMAL, whose digits a replica may see otherwise
        ("UPDATE u SET n = 7 + RAND() LIMIT 1", "GrQX", "GATUX"),
        ("INSERT INTO u SELECT 9, COUNT(*) FROM information_schema.SCHEMATA", "GQX", "GATWX"),
        ("INSERT INTO t (id) VALUES (NULL), (NULL)", "GiQX", "GiQX"),
        # MariaDB goes on behind 50, or not: that depends on what it has reserved
        ("INSERT INTO t (id) VALUES (NULL), (50), (NULL)", "GATWX", "GATWX"),
        ("INSERT INTO m VALUES (1, 1), (2, 1)", "GQQ", "GQQ"),
        ("INSERT INTO m SELECT id, 7 FROM u", "GATWQ", "GATWQ"),  # fails half-way
        # a text that is too long for this server is NULL here, but not on a replica
        ("INSERT IGNORE INTO u VALUES (5, LENGTH(REPEAT('x', 2000000)))", "GATWX", "GATWX"),
        ("UPDATE IGNORE u SET n = 7 WHERE SPACE(n * 1000000) IS NULL", "GATUX", "GATUX"),
        ("UPDATE u SET n = LENGTH(REPEAT('x', 2000000))", "", ""),
        ("SELECT * FROM u FOR UPDATE", "", ""),
        ("INSERT INTO u VALUES (1, 1)", "", ""),
    ],
)
async def test_text_or_rows(lab: Lab, statement: str, of_statement: str, of_mixed: str) -> None:
    for logged, expected in (("STATEMENT", of_statement), ("MIXED", of_mixed)):
        client = await session(lab, logged)
        await client.query("SET @ten = 1e1")
        before = len(groups(lab))
        await errno(client, statement)
        assert groups(lab)[before:] == [expected] * bool(expected)
        await client.query("DELETE FROM m")
        await client.query("DELETE FROM t")
        await client.query("DELETE FROM u WHERE id > 2")
        await client.query("UPDATE u SET n = id")


@pytest.mark.parametrize(
    ("setting", "statement", "expected"),
    [
        ("NAMES utf8mb4 COLLATE utf8mb4_bin", "UPDATE u SET n = 'a' = 'A'", "GATUX"),
        ("collation_connection = binary", "UPDATE u SET n = 'a' = 'A'", "GATUX"),
        ("sql_mode = TIME_ROUND_FRACTIONAL", "UPDATE u SET n = 5", "GATUX"),
        ("default_week_format = 3", "UPDATE u SET n = WEEK('2024-01-01') + 8", "GATUX"),
        ("group_concat_max_len = 4", "UPDATE u SET n = 5", "GQX"),
        (
            "group_concat_max_len = 4, sql_mode = ''",
            "INSERT INTO u SELECT 9, GROUP_CONCAT(n + 10000) FROM u",
            "GATWX",
        ),
    ],
)
async def test_rows_where_replicas_would_compute_otherwise(
    lab: Lab, setting: str, statement: str, expected: str
) -> None:
    for logged in ("STATEMENT", "MIXED"):
        client = await session(lab, logged)
        await client.query(f"SET {setting}")
        await client.query("DELETE FROM u WHERE id > 2")
        await client.query("UPDATE u SET n = id + 20")
        before = len(groups(lab))
        await client.query(statement)
        assert groups(lab)[before:] == [expected]


async def test_a_failure_half_way_goes_along(lab: Lab) -> None:
    client = await session(lab)
    assert await errno(client, "INSERT INTO m VALUES (1, 1), (2, 2), (3, 2), (4, 4)") == 1062
    (text,) = (QueryEvent.parse(e) for e in events(lab) if b"(3, 2)" in e)
    assert text.error_code == 1062
    assert await client.query("SELECT id FROM m ORDER BY id") == [["1"], ["2"]]


async def test_a_text_waits_for_who_has_changed_a_row_and_makes_others_wait(lab: Lab) -> None:
    one, other, third = await session(lab), await session(lab, "ROW"), await session(lab, "ROW")
    await other.query("BEGIN")
    await other.query("UPDATE u SET n = 20 WHERE id = 2")
    await one.query("BEGIN")
    asked = asyncio.ensure_future(one.query("INSERT INTO t (n) SELECT SUM(n) FROM u"))
    await until(lambda: waiting(lab) == 1)
    await other.query("COMMIT")
    await asked
    # Whoever changes rows of what it has read comes behind it, be it in one step; who reads waits for nobody.
    later = asyncio.ensure_future(third.query("UPDATE u SET n = 30 WHERE id = 2"))
    await until(lambda: waiting(lab) == 1)
    assert await other.query("SELECT n FROM u WHERE id = 2") == [["20"]]
    await one.query("COMMIT")
    await later
    assert await other.query("SELECT n FROM t") == [["21"]]
    assert groups(lab) == ["GATUX", "GiQX", "GATUX"]


async def test_a_table_that_is_altered_while_a_text_waits_for_it(lab: Lab) -> None:
    """The text is looked at anew: a replica gets it behind the ALTER."""
    one, other = await session(lab), await session(lab, "ROW")
    await other.query("BEGIN")
    await other.query("UPDATE u SET n = 20 WHERE id = 2")
    altering = asyncio.ensure_future(
        (await session(lab)).query("ALTER TABLE u RENAME COLUMN n TO k")
    )
    await until(lambda: waiting(lab) == 1)
    asked = asyncio.ensure_future(errno(one, "INSERT INTO t (n) SELECT SUM(n) FROM u"))
    await until(lambda: waiting(lab) == 2)
    await other.query("COMMIT")
    await altering
    assert await asked == 1054


async def test_numbers_that_others_take_meanwhile(lab: Lab) -> None:
    """Another one takes a number and waits for the table: those of the text are in a row all the same."""
    one, other = await session(lab), await session(lab, "ROW")
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 1")
    asked = asyncio.ensure_future(other.query("INSERT INTO t (n) VALUES (100)"))
    await until(lambda: waiting(lab) == 1)
    await one.query("INSERT INTO t (n) SELECT n FROM u ORDER BY id")
    await one.query("INSERT INTO t (n) VALUES (8), (9)")
    await one.query("COMMIT")
    await asked
    found = [int(str(row[0])) for row in await one.query("SELECT id FROM t ORDER BY n")]
    assert numbers(lab) == [found[0], found[2]]
    assert found[1] == found[0] + 1
    assert found[3] == found[2] + 1


async def test_a_session_does_not_wait_for_itself(lab: Lab) -> None:
    """Tables with and without transactions in one transaction: the ones are not locked by statements on the others."""
    one = await session(lab)
    await one.query("SET innodb_lock_wait_timeout = 1")
    await one.query("BEGIN")
    await one.query("INSERT INTO m VALUES (1, 1)")
    await one.query("INSERT INTO u SELECT id + 10, n FROM m")
    ((_, number, why),) = await one.query("SHOW WARNINGS")
    assert (number, "non-transactional" in str(why)) == ("1592", True)
    await one.query("INSERT INTO m SELECT id + 100, id FROM u WHERE id = 2")
    await one.query("INSERT INTO m VALUES (5, 5)")
    await one.query("COMMIT")
    assert groups(lab) == ["GQQ", "GQQ", "GQQ", "GQX"]


async def test_savepoints_and_rollback(lab: Lab) -> None:
    one = await session(lab, "MIXED")
    await one.query("BEGIN")
    await one.query("INSERT INTO u VALUES (3, 3)")
    await one.query("SAVEPOINT s")
    await one.query("INSERT INTO u VALUES (4, 4)")
    await one.query("UPDATE u SET n = RAND()")
    await one.query("ROLLBACK TO s")
    await one.query("INSERT INTO u VALUES (5, 5)")
    assert await errno(one, "INSERT INTO u VALUES (6, 6), (5, 5)") == 1062
    await one.query("COMMIT")
    await one.query("BEGIN")
    await one.query("DELETE FROM u")
    await one.query("ROLLBACK")
    assert groups(lab) == ["GQQX"]
    assert await one.query("SELECT id FROM u ORDER BY id") == [["1"], ["2"], ["3"], ["5"]]


async def test_the_format_of_a_transaction_stays(lab: Lab) -> None:
    one = await session(lab)
    await one.query("BEGIN")
    assert await errno(one, "SET binlog_format = ROW") == 1679
    assert await errno(one, "SET STATEMENT binlog_format = ROW FOR DELETE FROM u") == 1679
    await one.query("COMMIT")
    await one.query("SET STATEMENT binlog_format = ROW FOR INSERT INTO u VALUES (3, 3)")
    await one.query("INSERT INTO u VALUES (4, 4)")
    assert groups(lab) == ["GATWX", "GQX"]


async def test_rows_in_xa_and_in_read_committed(lab: Lab) -> None:
    one = await session(lab)
    await one.query("XA START 'x'")
    await one.query("INSERT INTO u VALUES (3, 3)")
    await one.query("XA END 'x'")
    await one.query("XA COMMIT 'x' ONE PHASE")
    await one.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert await errno(one, "INSERT INTO u VALUES (4, 4)") == 1665
    assert await errno(one, "SELECT * FROM u FOR UPDATE") == 1665
    await one.query("INSERT INTO m VALUES (4, 4)")
    await one.query("SET binlog_format = MIXED")
    await one.query("INSERT INTO u VALUES (4, 4)")
    assert groups(lab) == ["GATWX", "GQQ", "GATWX"]
