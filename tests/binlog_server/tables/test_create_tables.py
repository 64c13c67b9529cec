"""CREATE TABLE ... LIKE and CREATE OR REPLACE TABLE: what they log, whom they wait for, what they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_storage.tables.store import TableStore

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno
from tests.storage.groups import read_all

USERS = {
    "root": Account("pw", frozenset({"ALL PRIVILEGES"})),
    "maker": Account("pw", frozenset({"CREATE", "INSERT"})),
}
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE)",
    "INSERT INTO shop.t VALUES (1, 1), (2, 2)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def session(lab: Lab, user: str = "root") -> Client:
    client = await lab.client(user, "pw")
    await client.query("USE shop")
    return client


def texts(lab: Lab) -> list[str]:
    """The statements behind the schema's."""
    lab.engine.sync()
    events = [event for payload in read_all(lab.engine) for event in split_events(payload)]
    queries = [QueryEvent.parse(e).text.decode() for e in events if e[4] == EventType.QUERY]
    return queries[2:]


@pytest.mark.parametrize("columns", ["(id INT)", "(id INT, id INT)", "SELECT 1"])
async def test_a_table_that_is_there_is_told_first(lab: Lab, columns: str) -> None:
    """Whatever is wrong with the new one: an application that says IF NOT EXISTS goes on."""
    root = await session(lab)
    assert await errno(root, f"CREATE TABLE t {columns}") == 1050
    await root.query(f"CREATE TABLE IF NOT EXISTS t {columns}")
    assert await root.query("SHOW WARNINGS") == [["Note", "1050", "Table 't' already exists"]]
    assert await errno(root, f"CREATE OR REPLACE TABLE t {columns}") != 1050
    assert await root.query("SELECT COUNT(*) FROM t") == [["2"]]


async def test_what_is_logged(lab: Lab) -> None:
    root = await session(lab)
    for text in (
        "CREATE TABLE a LIKE t",
        "CREATE TABLE IF NOT EXISTS a LIKE t",  # it is there: nothing
        "CREATE OR REPLACE TABLE a (LIKE shop.t)",
        "CREATE OR REPLACE TABLE b (id INT PRIMARY KEY)",
    ):
        await root.query(text)
    assert texts(lab) == [
        "CREATE TABLE `shop`.`a` LIKE `shop`.`t`",
        "CREATE OR REPLACE TABLE `shop`.`a` LIKE `shop`.`t`",
        "CREATE OR REPLACE TABLE `shop`.`b` (\n  `id` int(11) NOT NULL,\n  PRIMARY KEY (`id`)\n) "
        "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    ]


async def test_none_goes_through_all_definitions(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the ten thousandth takes no longer than the first."""
    client = await lab.root()
    monkeypatch.setattr(TableStore, "tables", mock.Mock(side_effect=AssertionError))
    await client.query("CREATE DATABASE other")
    for name in ("b", "c", "a"):
        await client.query(f"CREATE TABLE other.{name} (id INT PRIMARY KEY)")
    assert await client.query("SHOW TABLES FROM other") == [["a"], ["b"], ["c"]]
    await client.query("DROP TABLE other.c, other.a")
    assert await client.query("SHOW TABLES FROM other") == [["b"]]


async def test_rights(lab: Lab) -> None:
    maker = await session(lab, "maker")
    assert await errno(maker, "CREATE TABLE a LIKE t") == 1142  # SELECT
    assert await errno(maker, "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)") == 1142  # DROP
    assert await errno(maker, "CREATE TABLE a (id INT PRIMARY KEY)") == 0
    assert texts(lab)[:-1] == []


async def test_a_table_that_others_have_changed_is_waited_for(lab: Lab) -> None:
    root, other = await session(lab), await session(lab)
    await other.query("BEGIN")
    await other.query("UPDATE t SET n = 20 WHERE id = 2")
    await root.query("CREATE TABLE a LIKE t")  # rows of it are no matter
    asked = asyncio.ensure_future(
        root.query("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, m INT)")
    )
    await until(lambda: lab.engine.counters()["Innodb_row_lock_current_waits"] == 1)
    assert await root_rows(lab) == [["1"], ["2"]]
    await other.query("COMMIT")
    await asked
    assert await root_rows(lab) == []
    await root.query("INSERT INTO t VALUES (1, 1)")


async def root_rows(lab: Lab) -> list[list[str | None]]:
    client = await session(lab)
    return await client.query("SELECT id FROM t ORDER BY id")


async def test_one_that_fails_leaves_the_old_one(lab: Lab) -> None:
    root = await session(lab)
    assert await errno(root, "CREATE OR REPLACE TABLE t LIKE nope") == 1146
    assert await errno(root, "CREATE OR REPLACE TABLE t (id INT)") == 1173
    assert await root_rows(lab) == [["1"], ["2"]]
    assert texts(lab) == []


async def test_a_restart_finds_the_new_one(lab: Lab) -> None:
    root = await session(lab)
    await root.query("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v VARCHAR(3) UNIQUE)")
    await root.query("CREATE TABLE a LIKE t")
    await root.query("INSERT INTO a VALUES (1, 'x')")
    again = type(lab.server.tables)(lab.server.tables._engine)
    assert sorted(again.databases["shop"].tables) == ["a", "t"]
    found = again.find("shop", "t")
    assert found is not None
    assert [column.name for column in found.definition.columns] == ["id", "v"]


async def test_a_check_holds_in_each_engine_and_as_prepared(lab: Lab) -> None:
    client = await session(lab)
    for engine in ("InnoDB", "MyISAM"):
        await client.query(
            f"CREATE TABLE {engine} (id INT PRIMARY KEY, n INT CHECK (n not in (3)), CHECK (id > 0 or n > 9)) "
            f"ENGINE={engine}"
        )
    assert "CHECK (`n` <> 3)" in texts(lab)[-1]
    again = type(lab.server.tables)(lab.server.tables._engine).find("shop", "MyISAM")
    assert again is not None
    assert again.definition.checks == (("n", "`n` <> 3"), ("CONSTRAINT_1", "`id` > 0 or `n` > 9"))
    for engine in ("InnoDB", "MyISAM"):
        assert await errno(client, f"INSERT INTO {engine} VALUES (0, 1)") == 4025
        assert await errno(client, f"INSERT INTO {engine} VALUES (1, 3)") == 4025
        await client.query(f"INSERT INTO {engine} VALUES (1, NULL), (0, 10)")
        assert await errno(client, f"UPDATE {engine} SET n = 3 WHERE id = 1") == 4025
        await client.query(f"PREPARE p FROM 'INSERT INTO {engine} VALUES (?, ?)'")
        await client.query("SET @a = 2, @b = 3")
        assert await errno(client, "EXECUTE p USING @a, @b") == 4025


def groups(lab: Lab) -> list[list[str]]:
    """The events of each group, by kind; GTID events with flags and engines, QUERY events with their first words."""
    lab.engine.sync()
    found = []
    for payload in read_all(lab.engine):
        told = []
        for event in split_events(payload):
            kind = EventType(event[4])
            if kind is EventType.GTID:
                gtid = GtidEvent.parse(event)
                told.append(f"GTID {gtid.flags2:02x} {gtid.extra_engines}")
            elif kind is EventType.QUERY:
                told.append(QueryEvent.parse(event).text.decode().partition(" (")[0])
            else:
                told.append(kind.name)
        found.append(told)
    return found


ROWS = ["ANNOTATE_ROWS", "TABLE_MAP", "WRITE_ROWS_V1"]


async def test_a_table_and_the_rows_of_a_query_are_one_group(lab: Lab) -> None:
    """GTID flags and ends are those of 10.11 and 11.8."""
    root = await session(lab)
    for text in (
        "CREATE TABLE a (PRIMARY KEY (id)) SELECT * FROM t",
        "CREATE OR REPLACE TABLE a (PRIMARY KEY (id)) AS SELECT id FROM t WHERE id>5",
        "CREATE TABLE m (PRIMARY KEY (id)) ENGINE=MyISAM SELECT id FROM t",
        "CREATE TABLE IF NOT EXISTS m (PRIMARY KEY (id)) SELECT id FROM t",  # it is there: nothing
    ):
        await root.query(text)
    assert groups(lab)[-3:] == [
        ["GTID 28 None", "CREATE TABLE `shop`.`a`", *ROWS, "XID"],
        ["GTID 28 255", "CREATE OR REPLACE TABLE `shop`.`a`", "COMMIT"],
        ["GTID 28 255", "CREATE TABLE `shop`.`m`", *ROWS, "COMMIT"],
    ]
    assert await root.query("SELECT * FROM m") == [["1"], ["2"]]


async def test_a_query_that_fails_leaves_no_table(lab: Lab) -> None:
    root = await session(lab)
    before = groups(lab)
    for text, number in (
        ("CREATE TABLE a (PRIMARY KEY (n)) SELECT 1 AS n FROM t", 1062),
        ("CREATE TABLE a (PRIMARY KEY (n)) ENGINE=MyISAM SELECT 1 AS n FROM t", 1062),
        ("CREATE TABLE a (id INT PRIMARY KEY, CHECK (id<2)) SELECT id FROM t", 4025),
        ("CREATE TABLE a (id INT PRIMARY KEY) SELECT nope FROM t", 1054),
        ("CREATE TABLE a (id INT PRIMARY KEY) SELECT id FROM nope", 1146),
        ("CREATE TABLE a SELECT id FROM t", 1173),
        ("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) SELECT id FROM t", 1093),
        ("CREATE OR REPLACE TABLE t (PRIMARY KEY (n)) SELECT 7 AS n UNION ALL SELECT 7", 1062),
        ("CREATE TABLE a (id INT PRIMARY KEY) SELECT SLEEP(1) AS id", 1235),
        ("CREATE TABLE a (id INT PRIMARY KEY) ENGINE=SQLITE SELECT id FROM t", 1235),
    ):
        assert await errno(root, text) == number, text
    assert await root.query("SHOW TABLES") == [["t"]]
    assert await root.query("SELECT COUNT(*) FROM t") == [["2"]]
    assert groups(lab) == before


async def test_rights_of_a_table_of_a_query(lab: Lab) -> None:
    maker = await session(lab, "maker")
    assert await errno(maker, "CREATE TABLE a (PRIMARY KEY (id)) SELECT id FROM t") == 1142
    assert await errno(maker, "CREATE TABLE a (PRIMARY KEY (id)) SELECT 1 AS id") == 0
