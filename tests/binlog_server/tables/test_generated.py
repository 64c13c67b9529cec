"""Generated columns: what they hold, what is refused, and what replicas get; ALTER of columns that CHECKs name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent

from tests.binlog_server.lab import ROOT, Client, Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno
from tests.storage.groups import read_all

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, a INT, v INT AS (a + 1), "
    "s INT GENERATED ALWAYS AS (v * 2) STORED UNIQUE, CHECK (s < 1000))",
    "INSERT INTO shop.t (id, a) VALUES (1, 10), (2, NULL)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        yield lab


async def root(lab: Lab) -> Client:
    client = await lab.root()
    await client.query("USE shop")
    return client


async def rows(client: Client) -> list[list[str | None]]:
    return await client.query("SELECT * FROM t ORDER BY id")


async def test_each_change_computes_them_anew(lab: Lab) -> None:
    client = await root(lab)
    assert await rows(client) == [["1", "10", "11", "22"], ["2", None, None, None]]
    for text in (
        "UPDATE t SET a=20 WHERE id=1",
        "INSERT INTO t VALUES (3, 30, DEFAULT, NULL)",
        "INSERT INTO t (id, a) VALUES (2, 0) ON DUPLICATE KEY UPDATE a=5",
        "REPLACE INTO t (id, a) VALUES (4, 30)",  # takes the place of 3, by the unique key
        "INSERT INTO t (id, a) SELECT id + 10, a + 1 FROM t WHERE v=6",
    ):
        await client.query(text)
    assert await rows(client) == [
        ["1", "20", "21", "42"],
        ["2", "5", "6", "12"],
        ["4", "30", "31", "62"],
        ["12", "6", "7", "14"],
    ]
    assert await client.query("SELECT id FROM t WHERE s=14") == [["12"]]
    assert await client.query("CHECK TABLE t") == [["shop.t", "check", "status", "OK"]]
    assert await errno(client, "INSERT INTO t (id, a) VALUES (5, 30)") == 1062
    assert await errno(client, "UPDATE t SET a=500 WHERE id=1") == 4025


async def test_a_value_for_one_is_none(lab: Lab) -> None:
    client = await root(lab)
    assert await errno(client, "INSERT INTO t (id, a, v) VALUES (3, 1, 7)") == 1906
    assert await errno(client, "UPDATE t SET s=7") == 1906
    await client.query("SET sql_mode=''")
    await client.query("INSERT INTO t (id, a, v) VALUES (3, 1, 7)")
    told = "The value specified for generated column 'v' in table 't' has been ignored"
    assert await client.query("SHOW WARNINGS") == [["Warning", "1906", told]]
    assert (await rows(client))[-1] == ["3", "1", "2", "4"]


@pytest.mark.parametrize(
    ("columns", "number"),
    [
        ("b INT AS (a + nope)", 1054),
        ("b INT AS (NOW()) STORED", 1901),
        ("b TIME AS (LOCALTIME) STORED", 1901),
        ("b DATE AS (UTC_DATE) STORED", 1901),
        ("b DATE AS (CURRENT_DATE) VIRTUAL", 1235),
        ("b INT AS (COUNT(a))", 1901),
        ("b INT AS (RAND()) VIRTUAL", 1235),
        ("b INT AS (c), c INT AS (a)", 4029),
        ("b INT AS (b)", 4029),
        ("b INT NOT NULL AS (a)", 1064),
        ("b INT AS (a) DEFAULT 5", 1064),
        ("b INT AS (a) STORED PRIMARY KEY", 1064),
        ("b INT AS (id) STORED AUTO_INCREMENT", 1064),
    ],
)
async def test_what_is_refused(lab: Lab, columns: str, number: int) -> None:
    client = await root(lab)
    text = f"CREATE TABLE g (id INT PRIMARY KEY, a INT, {columns})"
    assert await errno(client, text) == number
    assert await client.query("SHOW TABLES") == [["t"]]


async def test_keys_and_numbers(lab: Lab) -> None:
    client = await root(lab)
    assert (
        await errno(client, "CREATE TABLE g (i INT, b INT AS (i) STORED, PRIMARY KEY (b))") == 1903
    )
    numbered = "CREATE TABLE g (i INT AUTO_INCREMENT PRIMARY KEY, n INT, b INT AS (i + 1) {})"
    assert await errno(client, numbered.format("STORED")) == 1901
    await client.query(numbered.format("VIRTUAL"))
    await client.query("INSERT INTO g (n) VALUES (5), (6)")
    assert await client.query("SELECT i, b FROM g") == [["1", "2"], ["2", "3"]]


async def test_altered(lab: Lab) -> None:
    client = await root(lab)
    assert await errno(client, "ALTER TABLE t DROP COLUMN a") == 1054
    await client.query("ALTER TABLE t ADD COLUMN w VARCHAR(9) AS (CONCAT('x', a)) FIRST, ADD n INT")
    assert await rows(client) == [
        ["x10", "1", "10", "11", "22", None],
        [None, "2", None, None, None, None],
    ]
    await client.query("ALTER TABLE t MODIFY w INT AS (a - 1) VIRTUAL AFTER s, DROP COLUMN n")
    assert await rows(client) == [["1", "10", "11", "22", "9"], ["2", None, None, None, None]]
    lab.engine.sync()
    events = [event for payload in read_all(lab.engine) for event in split_events(payload)]
    texts = [QueryEvent.parse(e).text.decode() for e in events if e[4] == EventType.QUERY]
    assert texts[-1].endswith(
        "CHANGE COLUMN `w` `w` int(11) GENERATED ALWAYS AS (`a` - 1) VIRTUAL AFTER `s`, DROP COLUMN `n`"
    )


async def test_shown(lab: Lab) -> None:
    client = await root(lab)
    ((_, text),) = await client.query("SHOW CREATE TABLE t")
    assert text is not None
    assert "`v` int(11) GENERATED ALWAYS AS (`a` + 1) VIRTUAL,\n" in text
    assert "`s` int(11) GENERATED ALWAYS AS (`v` * 2) STORED,\n" in text
    described = await client.query("DESCRIBE t")
    assert [row[-1] for row in described] == ["", "", "VIRTUAL GENERATED", "STORED GENERATED"]


@pytest.mark.parametrize(
    ("actions", "left"),
    [
        ("DROP COLUMN a", ["CONSTRAINT `two` CHECK (`b` < `c`)"]),
        ("DROP CONSTRAINT two, DROP COLUMN b", ["`a` int(11) DEFAULT NULL CHECK (`a` > 1)"]),
        ("MODIFY a BIGINT", ["CONSTRAINT `two` CHECK (`b` < `c`)"]),
        (
            "RENAME COLUMN a TO `d``e`, CHANGE b f BIGINT",
            ["DEFAULT NULL CHECK (`d``e` > 1)", "CONSTRAINT `two` CHECK (`f` < `c`)"],
        ),
        (
            "CONVERT TO CHARACTER SET utf8mb3 COLLATE utf8mb3_bin",
            ["DEFAULT NULL CHECK (`a` > 1)", "CONSTRAINT `two` CHECK (`b` < `c`)"],
        ),
    ],
)
async def test_checks_of_columns_that_are_altered(lab: Lab, actions: str, left: list[str]) -> None:
    client = await root(lab)
    await client.query(
        "CREATE TABLE k (id INT PRIMARY KEY, a INT CHECK (a > 1), b INT, c INT, v TEXT, "
        "CONSTRAINT two CHECK (b < c))"
    )
    await client.query("INSERT INTO k VALUES (1, 2, 3, 4, 'x')")
    await client.query(f"ALTER TABLE k {actions}")
    ((_, text),) = await client.query("SHOW CREATE TABLE k")
    assert text is not None
    assert text.count("CHECK") == len(left)
    assert all(one in text for one in left)


async def test_checks_stand_in_the_way(lab: Lab) -> None:
    client = await root(lab)
    await client.query("CREATE TABLE k (id INT PRIMARY KEY, a INT, b INT, CHECK (a < b))")
    await client.query("INSERT INTO k VALUES (1, 2, 300)")
    assert await errno(client, "ALTER TABLE k DROP COLUMN a") == 1054
    assert await errno(client, "ALTER TABLE k MODIFY b INT CHECK (b < 5)") == 4025
    await client.query("SET sql_mode=''")
    assert await errno(client, "ALTER TABLE k CHANGE a z TINYINT, MODIFY b BIT(1)") == 4025
    assert (await client.query("SELECT * FROM k")) == [["1", "2", "300"]]


async def test_a_renamed_column_is_renamed_in_expressions(lab: Lab) -> None:
    client = await root(lab)
    await client.query("ALTER TABLE t RENAME COLUMN a TO z, CHANGE s w BIGINT AS (v * 3) STORED")
    ((_, text),) = await client.query("SHOW CREATE TABLE t")
    assert text is not None
    assert "`v` int(11) GENERATED ALWAYS AS (`z` + 1) VIRTUAL" in text
    assert "CHECK (`w` < 1000)" in text
    await client.query("UPDATE t SET z=1 WHERE id=2")
    assert (await rows(client))[1] == ["2", "1", "2", "6"]


async def test_defaults_know_who_asks_however_the_table_is_spelled(lab: Lab) -> None:
    client = await root(lab)
    await client.query(
        "CREATE TABLE d (id INT PRIMARY KEY, who VARCHAR(90) DEFAULT (user()), "
        "u VARCHAR(36) DEFAULT uuid() UNIQUE, n INT DEFAULT (id * 2))"
    )
    await client.query("INSERT INTO d (id) VALUES (1), (2)")
    for text in (
        "INSERT INTO shop.d (id) SELECT id + 10 FROM d WHERE id < 3",
        "INSERT INTO d (id) SELECT id + 20 FROM shop.d WHERE id < 3",
        "UPDATE d SET who=DEFAULT, n=DEFAULT(n) + 1 WHERE id=1",
    ):
        await client.query(text)
    found = await client.query("SELECT id, n FROM d WHERE who=USER() AND DEFAULT(who)=USER()")
    assert found == [["1", "3"], ["2", "4"], ["11", "22"], ["12", "24"], ["21", "42"], ["22", "44"]]
    assert await client.query("SELECT COUNT(DISTINCT u) FROM d") == [["6"]]
    # Replicas would make other values of the statement that they get.
    assert await errno(client, "ALTER TABLE d ADD c CHAR(36) DEFAULT (uuid())") == 1235
    await client.query("DELETE FROM d")
    await client.query("ALTER TABLE d ADD c CHAR(36) DEFAULT (uuid())")
