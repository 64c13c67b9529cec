"""REPLACE, IGNORE, ON DUPLICATE KEY UPDATE, INSERT ... SELECT, RETURNING: what is logged, who may, who waits.

What they answer is held against a real server: tests/integration/compared_tables.sql.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import ROOT, Lab
from tests.binlog_server.tables.test_sessions import errno, groups, kinds, rows, session, waiting

WORDS = ("INSERT", "UPDATE", "DELETE", "SELECT")
USERS = {
    **ROOT,
    **{
        "".join(word[0] for word in words).lower(): Account("pw", frozenset(words))
        for words in (("INSERT",), ("INSERT", "SELECT"), ("INSERT", "DELETE"), ("DELETE",), ("UPDATE", "SELECT"),
                      ("INSERT", "UPDATE", "SELECT"))
    },
}  # fmt: skip
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, a INT)",
    "CREATE TABLE shop.one (id INT PRIMARY KEY, a INT)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=USERS, local_tables=True) as lab:
        client = await lab.root()
        for text in (
            *SCHEMA,
            "INSERT INTO shop.t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
            "INSERT INTO shop.one VALUES (1, 1)",
        ):
            await client.query(text)
        yield lab


LOGGED = {  # as 11.8 logs them
    "REPLACE INTO t VALUES (7, 7, 7)": "W",
    "REPLACE INTO t VALUES (1, 9, 9)": "DW",
    "REPLACE INTO t (u, a) VALUES (2, 22)": "U",
    "REPLACE INTO t VALUES (1, 2, 0)": "DU",
    "REPLACE INTO t VALUES (1, 1, 1)": "DW",
    "REPLACE INTO t VALUES (7, 7, 7), (7, 8, 8), (9, 8, 9)": "WDWU",
    "REPLACE INTO one VALUES (1, 1)": "",
    "REPLACE INTO one VALUES (1, 2), (1, 2), (2, 2)": "UW",
    "INSERT INTO t VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE a = a + 1": "U",
    "INSERT INTO t VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE a = 1": "",
    "INSERT INTO t (u, a) VALUES (1, 5), (9, 9), (9, 8) ON DUPLICATE KEY UPDATE a = VALUES(a)": "UWU",
    "INSERT IGNORE INTO t VALUES (1, 9, 9), (9, 1, 9), (10, 10, NULL)": "W",
    "INSERT IGNORE INTO t VALUES (1, 9, 9)": "",
    "UPDATE IGNORE t SET u = 1": "",
    "UPDATE IGNORE t SET u = 9": "U",
    "INSERT INTO t (u) SELECT u + 10 FROM t": "W",
    "INSERT INTO t (u) SELECT 1 FROM t WHERE u > 100": "",
    "REPLACE INTO t SELECT id, u + 1, a FROM t ORDER BY id": "DUW",
    "DELETE FROM t ORDER BY id DESC LIMIT 2 RETURNING id": "D",
    "INSERT INTO t (a) VALUES (1) RETURNING id": "W",
}


@pytest.mark.parametrize("text", LOGGED)
async def test_what_is_logged(lab: Lab, text: str) -> None:
    client = await session(lab)
    await client.query(text)
    found = groups(lab)[3:]
    wanted = LOGGED[text]
    assert [kinds(group) for group in found] == ([f"GAT{wanted}X"] if wanted else [])


NEEDED = {
    "INSERT IGNORE INTO shop.t VALUES (1, 1, 1)": "i is id ius",
    "REPLACE INTO shop.t VALUES (1, 1, 1)": "id",
    "INSERT INTO shop.t VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE a = 1": "ius",
    "INSERT INTO shop.t (u) VALUES (50) RETURNING id": "is ius",
    "INSERT INTO shop.t (u) SELECT 60": "i is id ius",
    "INSERT INTO shop.t (a) SELECT a FROM shop.t": "is ius",
    "INSERT INTO shop.t (a) SELECT a FROM shop.one": "is ius",
    "INSERT INTO shop.t (a) VALUES ((SELECT MAX(a) FROM shop.t x))": "is ius",
    "DELETE FROM shop.one RETURNING id": "",
}


@pytest.mark.parametrize("text", NEEDED)
async def test_rights(lab: Lab, text: str) -> None:
    for name in ("i", "is", "id", "d", "us", "ius"):
        client = await session(lab, name)
        assert await errno(client, "START TRANSACTION") == 0
        assert await errno(client, text) == (0 if name in NEEDED[text].split() else 1142), name
        assert await errno(client, "ROLLBACK") == 0


async def test_returning_gives_rows_inside_and_outside_of_transactions(lab: Lab) -> None:
    client = await session(lab)
    assert await rows(client, "INSERT INTO t (u) VALUES (8), (9) RETURNING id, u * 2") == [
        ("4", "16"),
        ("5", "18"),
    ]
    await client.query("BEGIN")
    assert await rows(client, "DELETE FROM t WHERE u > 7 RETURNING *") == [
        ("4", "8", None),
        ("5", "9", None),
    ]
    assert await rows(
        client, "INSERT INTO t (u) VALUES (8) RETURNING (SELECT COUNT(*) FROM one)"
    ) == [("1",)]
    await client.query("ROLLBACK")
    assert len(await rows(client, "SELECT * FROM t")) == 5
    assert await errno(client, "INSERT INTO t (u) VALUES (8) RETURNING id") == 1062


async def test_a_row_that_is_being_taken_is_waited_for(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    for text, left in (
        ("REPLACE INTO t (u, a) VALUES (5, 55)", ("5", "55")),
        ("INSERT INTO t (u, a) VALUES (5, 55) ON DUPLICATE KEY UPDATE a = a + 50", ("5", "56")),
        ("INSERT IGNORE INTO t (u, a) VALUES (5, 55)", ("5", "6")),
    ):
        await one.query("BEGIN")
        await one.query("INSERT INTO t VALUES (50, 5, 6)")
        late = asyncio.create_task(errno(other, text))
        await waiting(lab)
        await one.query("COMMIT")
        assert await late == 0
        assert await rows(one, "SELECT u, a FROM t WHERE u = 5") == [left]
        await one.query("DELETE FROM t WHERE u = 5")


async def test_ignore_leaves_waits_as_they_are(lab: Lab) -> None:
    client, other = await session(lab), await session(lab)
    await client.query("BEGIN")
    await client.query("INSERT INTO t VALUES (9, 9, 9)")
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, "INSERT IGNORE INTO t VALUES (10, 9, 9)") == 1205


async def test_what_is_prepared_returns_rows(lab: Lab) -> None:
    client = await session(lab)
    await client.query("PREPARE made FROM 'INSERT INTO t (u) VALUES (?), (?) RETURNING u, u + 1'")
    await client.query("PREPARE gone FROM 'DELETE FROM t WHERE u > ? RETURNING u'")
    for first in (70, 80):
        await client.query(f"SET @one = {first}, @other = {first + 1}")
        assert await rows(client, "EXECUTE made USING @one, @other") == [
            (str(first), str(first + 1)),
            (str(first + 1), str(first + 2)),
        ]
    await client.query("SET @least = 69")
    assert await rows(client, "EXECUTE gone USING @least") == [("70",), ("71",), ("80",), ("81",)]
    assert await rows(client, "EXECUTE gone USING @least") == []
    assert (
        await errno(client, "PREPARE p FROM 'INSERT INTO nope (u) VALUES (?) RETURNING u'") == 1146
    )
    assert (
        await errno(client, "PREPARE p FROM 'INSERT INTO elsewhere.t VALUES (1) RETURNING a'")
        == 1146
    )


async def test_ignore_passes_over_what_is_no_json(lab: Lab) -> None:
    root = await lab.root()
    await root.query("CREATE TABLE shop.j (id INT PRIMARY KEY, g JSON)")
    await root.query("INSERT IGNORE INTO shop.j VALUES (1, 'x'), (2, '{}'), (3, '[')")
    assert [row[1] for row in await root.query("SHOW WARNINGS")] == ["4025", "4025"]
    await root.query("UPDATE IGNORE shop.j SET g = 'y'")
    await root.query("INSERT IGNORE INTO shop.j VALUES (2, '1') ON DUPLICATE KEY UPDATE g = 'z'")
    assert [row[1] for row in await root.query("SHOW WARNINGS")] == ["4025"]
    assert await root.query("SELECT * FROM shop.j") == [["2", "{}"]]
