"""innodb_snapshot_isolation: a row that has changed since the view is error 1020, and the transaction is rolled back.

Each scene has been compared with a live 11.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.binlog_server.lab import Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import USERS, errno, rows, session, waiting

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT, u INT UNIQUE)",
    "CREATE TABLE shop.m (id INT PRIMARY KEY, n INT) ENGINE=MyISAM",
    "INSERT INTO shop.t VALUES (1, 1, 1), (2, 2, 2), (7, 7, 7)",
    "INSERT INTO shop.m VALUES (1, 1)",
    "CREATE TABLE shop.w (id INT PRIMARY KEY, n INT)",
    "INSERT INTO shop.w VALUES (50, 7)",
)
CHANGED = "UPDATE t SET n = n + 1 WHERE id = 7"
MADE = "INSERT INTO t VALUES (6, 6, 6)"
GONE = "DELETE FROM t WHERE id = 7"
MOVED = "UPDATE t SET u = 70 WHERE id = 7"
SCENES = [
    # what another session commits behind the view; a statement; its error
    (CHANGED, "UPDATE t SET n = 0 WHERE id = 7", 1020),
    (CHANGED, "UPDATE t SET n = 0 WHERE id = 7 AND n = 7", 1020),
    (CHANGED, "UPDATE t SET n = 0 WHERE n = 2", 1020),  # all rows are looked at
    (CHANGED, "UPDATE t SET n = 0 ORDER BY id DESC LIMIT 1", 1020),
    (CHANGED, "UPDATE t SET n = 0 ORDER BY id LIMIT 1", 0),  # up to the first
    (CHANGED, "UPDATE t SET n = 0 WHERE id = 1", 0),
    (CHANGED, "UPDATE t SET n = 0 WHERE id < 3", 0),
    (CHANGED, "UPDATE t SET n = 0 WHERE u = 7", 1020),
    (CHANGED, "UPDATE t SET id = 7 WHERE id = 1", 1020),
    (CHANGED, "DELETE FROM t WHERE id = 7", 1020),
    (CHANGED, "SELECT * FROM t WHERE id = 7 FOR UPDATE", 1020),
    (CHANGED, "SELECT * FROM t WHERE id = 7 LOCK IN SHARE MODE", 1020),
    (CHANGED, "SELECT * FROM t WHERE id = 7 FOR UPDATE SKIP LOCKED", 1020),
    (CHANGED, "SELECT * FROM t", 0),
    (CHANGED, "INSERT INTO t VALUES (7, 0, 0)", 1020),
    (CHANGED, "INSERT IGNORE INTO t VALUES (7, 0, 0)", 1020),
    (CHANGED, "INSERT INTO t VALUES (8, 0, 7)", 1062),
    (CHANGED, "INSERT INTO t VALUES (8, 0, 7) ON DUPLICATE KEY UPDATE n = 0", 1020),
    (CHANGED, "INSERT INTO t VALUES (7, 0, 7) ON DUPLICATE KEY UPDATE n = 0", 1020),
    (CHANGED, "REPLACE INTO t VALUES (7, 9, 7)", 1020),
    (CHANGED, "REPLACE INTO t VALUES (8, 9, 7)", 1020),
    (MADE, "DELETE FROM t WHERE id = 6", 1020),
    (MADE, "INSERT INTO t VALUES (6, 6, 6)", 1020),
    (MADE, "INSERT INTO t VALUES (8, 6, 6)", 1062),
    (GONE, "UPDATE t SET n = 0 WHERE id = 7", 1020),
    (GONE, "UPDATE t SET n = 0 WHERE id > 2", 1020),
    (GONE, "UPDATE t SET n = 0 WHERE u = 7", 0),  # the entry of the index is gone, too
    (GONE, "INSERT INTO t VALUES (7, 7, 8)", 1020),
    (MOVED, "UPDATE t SET n = 0 WHERE u = 7", 0),
    (MOVED, "UPDATE t SET n = 0 WHERE u = 70", 1020),
    # what is read to change something else
    (CHANGED, "INSERT INTO w SELECT id, n FROM t WHERE id = 7", 1020),
    (CHANGED, "INSERT INTO w SELECT id + 100, n FROM t WHERE id = 1 AND n = 9", 0),
    (CHANGED, "INSERT INTO w SELECT id, n FROM t WHERE n = 99", 1020),  # all rows are looked at
    (GONE, "INSERT INTO w SELECT id, n FROM t WHERE id = 7", 1020),
    (MADE, "REPLACE INTO w SELECT id, n FROM t WHERE n = 99", 1020),
    (CHANGED, "INSERT INTO t SELECT id + 100, n, NULL FROM t WHERE id IN (1, 2)", 0),
    (CHANGED, "INSERT INTO w SELECT id, n FROM m WHERE n = 99", 0),
    ("UPDATE m SET n = 2", "UPDATE m SET n = n + 1", 0),
    ("UPDATE t SET n = n WHERE id = 7", "UPDATE t SET n = 0 WHERE id = 7", 0),
]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def test_what_is_refused(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    for change, statement, number in SCENES:
        for view in ("SELECT COUNT(*) FROM t", "START TRANSACTION WITH CONSISTENT SNAPSHOT"):
            await other.query("DELETE FROM t")
            await other.query("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (7, 7, 7)")
            await one.query("BEGIN")
            await one.query(view)
            await one.query("INSERT INTO t VALUES (5, 5, 5)")
            await other.query(change)
            scene = f"{change}; {statement}"
            assert await errno(one, statement) == number, scene
            is_undone = number == 1020
            assert await rows(one, "SELECT @@in_transaction") == [(str(int(not is_undone)),)], scene
            await one.query("COMMIT")
            found = await rows(other, "SELECT id FROM t WHERE id = 5")
            assert found == ([] if is_undone else [("5",)]), scene


@pytest.mark.parametrize(
    ("before", "is_refused"),
    [
        ((), True),
        (("SET innodb_snapshot_isolation=OFF",), False),
        (("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",), False),
        (("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",), False),
    ],
)
async def test_where_it_holds(lab: Lab, before: tuple[str, ...], is_refused: bool) -> None:
    one, other = await session(lab), await session(lab)
    for text in (*before, "BEGIN", "SELECT COUNT(*) FROM t"):
        await one.query(text)
    await other.query(CHANGED)
    assert await errno(one, CHANGED) == (1020 if is_refused else 0)
    await one.query("COMMIT")
    assert await rows(other, "SELECT n FROM t WHERE id = 7") == [("8" if is_refused else "9",)]


async def test_without_a_view_nothing_is_too_late(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await other.query(CHANGED)
    await one.query(CHANGED)  # and so it has the lock before it looks
    assert await rows(one, "SELECT n FROM t WHERE id = 7") == [("9",)]
    await one.query(CHANGED)
    await one.query("COMMIT")
    assert await rows(other, "SELECT n FROM t WHERE id = 7") == [("10",)]


@pytest.mark.parametrize(("end", "number"), [("COMMIT", 1020), ("ROLLBACK", 0)])
async def test_behind_a_wait(lab: Lab, end: str, number: int) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await rows(one, "SELECT COUNT(*) FROM t")
    await other.query("BEGIN")
    await other.query(CHANGED)
    late = asyncio.create_task(errno(one, CHANGED))
    await waiting(lab)
    await other.query(end)
    assert await late == number


async def test_no_update_is_lost(lab: Lab) -> None:
    """Read, compute in the client, write: whoever was too late is told."""

    async def count(times: int) -> int:
        client, done = await session(lab), 0
        while done < times:
            await client.query("BEGIN")
            ((n,),) = await rows(client, "SELECT n FROM t WHERE id = 1")
            number = await errno(client, f"UPDATE t SET n = {int(n) + 1} WHERE id = 1")
            assert number in (0, 1020, 1213)
            if number == 0:
                await client.query("COMMIT")
                done += 1
        return done

    counted = await asyncio.gather(*(count(8) for _ in range(3)))
    assert await rows(await session(lab), "SELECT n FROM t WHERE id = 1") == [
        (str(1 + sum(counted)),)
    ]
