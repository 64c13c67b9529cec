"""SELECT ... FOR UPDATE and LOCK IN SHARE MODE: which rows are locked, who waits, for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.connection.commands import ResetConnection

from binlog_server.sql_commit.held_statements import RowSide
from tests.binlog_server.lab import Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import USERS, errno, groups, rows, session, waiting

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.jobs (id INT PRIMARY KEY, state VARCHAR(9), u INT UNIQUE, n INT)",
    "INSERT INTO shop.jobs VALUES (1, 'new', 10, 0), (2, 'new', 20, 0), (3, 'done', 30, 0), (4, 'new', 40, 0)",
)
NEXT = "SELECT id, n FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def test_a_locked_row_is_waited_for_and_read_anew(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    assert await rows(one, NEXT) == [("1", "0")]
    assert await rows(other, "SELECT n FROM jobs WHERE id = 1") == [
        ("0",)
    ]  # a plain read waits for nobody
    late = asyncio.create_task(rows(other, NEXT))
    await waiting(lab)
    await one.query("UPDATE jobs SET state = 'done' WHERE id = 1")
    await one.query("COMMIT")
    assert await late == [("2", "0")]  # the row that it waited for is none any longer
    assert await rows(one, NEXT) == [("2", "0")]  # without a transaction nothing stays locked
    assert len(groups(lab)) == 2


async def test_how_long_to_wait(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await rows(one, NEXT)
    await other.query("BEGIN")
    await other.query("UPDATE jobs SET n = 7 WHERE id = 4")
    assert await errno(other, f"{NEXT} NOWAIT") == 1205
    assert await errno(other, f"{NEXT} WAIT 0") == 1205
    assert await rows(other, f"{NEXT} SKIP LOCKED") == [("2", "0")]
    assert await rows(one, f"{NEXT} skip  locked") == [("1", "0")]
    assert await rows(one, "SELECT id FROM jobs WHERE state = 'new' FOR UPDATE SKIP LOCKED") == [
        ("1",)
    ]
    assert await errno(other, "SELECT id FROM jobs WHERE u = 10 LOCK IN SHARE MODE NOWAIT") == 1205
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, NEXT) == 1205
    assert await rows(other, "SELECT n FROM jobs WHERE id = 4") == [
        ("7",)
    ]  # only the statement is undone
    late = asyncio.create_task(rows(other, f"{NEXT} WAIT 30;"))
    await waiting(lab)
    await one.query("ROLLBACK")
    assert await late == [("1", "0")]


async def test_skip_locked_waits_for_ddl_and_skips_rows_alone(lab: Lab) -> None:
    one, other, third = [await session(lab) for _ in range(3)]
    await one.query("BEGIN")
    await one.query("UPDATE jobs SET n = 7 WHERE id = 1")
    ddl = asyncio.create_task(errno(other, "ALTER TABLE jobs COMMENT = 'x'"))
    await waiting(lab)
    text = "SELECT id FROM jobs WHERE state = 'new' FOR UPDATE"
    assert await errno(third, f"{text} NOWAIT") == 1205
    late = asyncio.create_task(rows(third, f"{text} SKIP LOCKED"))
    await until(lambda: lab.engine.counters()["Innodb_row_lock_current_waits"] == 2)
    await one.query("COMMIT")
    assert await ddl == 0
    assert ("2",) in await late, "nobody has that row"


async def test_shared_locks_go_together(lab: Lab) -> None:
    one, other, third = [await session(lab) for _ in range(3)]
    for client in (one, other):
        await client.query("BEGIN")
        assert await rows(
            client, "SELECT id FROM jobs WHERE u BETWEEN 10 AND 20 LOCK IN SHARE MODE"
        ) == [("1",), ("2",)]
    assert await errno(third, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT") == 1205
    await third.query("SET innodb_lock_wait_timeout=0")
    assert await errno(third, "UPDATE jobs SET n = 1 WHERE id = 2") == 1205
    assert (
        await errno(third, "UPDATE jobs SET n = 1 WHERE id = 3") == 0
    )  # rows that were only looked at are free
    assert await errno(third, "DROP TABLE jobs") == 1205
    late = asyncio.create_task(errno(one, "UPDATE jobs SET n = 1 WHERE id = 1"))
    await waiting(lab)
    assert await errno(other, "UPDATE jobs SET n = 2 WHERE id = 1") == 1213
    assert await rows(other, "SELECT @@in_transaction") == [("0",)]
    assert await late == 0
    await one.query("COMMIT")


async def test_expressions_prepared_ones_and_views(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("SET innodb_snapshot_isolation=OFF")
    await one.query("BEGIN")
    assert len(await rows(one, "SELECT * FROM jobs")) == 4  # the view of REPEATABLE READ
    await other.query("UPDATE jobs SET n = 5 WHERE id = 2")
    assert await rows(one, "SELECT n FROM jobs WHERE id = 2") == [("0",)]
    found = await rows(
        one,
        "SELECT j.n + 1 AS m, UPPER(state) FROM shop.jobs j WHERE j.id < 3 ORDER BY m DESC FOR UPDATE",
    )
    assert found == [("6", "NEW"), ("1", "NEW")]  # as they are now
    await one.query("PREPARE s FROM 'SELECT id FROM jobs WHERE id = ? FOR UPDATE NOWAIT'")
    await one.query("SET @id = 4")
    assert await rows(one, "EXECUTE s USING @id") == [("4",)]
    assert await errno(other, "SELECT id FROM jobs WHERE id = 4 FOR UPDATE NOWAIT") == 1205
    await one.query("COMMIT")
    writer = await session(lab, "writer")
    assert await errno(writer, "SELECT id FROM shop.jobs FOR UPDATE") == 1142


async def test_a_wait_is_killed(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await rows(one, NEXT)
    number = (await rows(other, "SELECT CONNECTION_ID()"))[0][0]
    late = asyncio.create_task(errno(other, NEXT))
    await waiting(lab)
    await one.query(f"KILL QUERY {number}")
    assert await late == 1317


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM jobs FOR UPDATE",
        "SELECT DISTINCT id FROM jobs FOR UPDATE",
        "SELECT n FROM jobs GROUP BY n FOR UPDATE",
        "SELECT a.id FROM jobs a JOIN jobs b ON a.id = b.id FOR UPDATE",
        "SELECT a.id FROM jobs a, jobs b LOCK IN SHARE MODE",
        "SELECT id FROM jobs FOR UPDATE -- of all",
        "SELECT id FROM jobs UNION SELECT 1 FROM jobs FOR UPDATE",
        "SELECT * FROM (SELECT id FROM jobs FOR UPDATE) x",
        "SELECT id FROM jobs LIMIT 1, 2 FOR UPDATE",
        "SELECT (SELECT MAX(id) FROM jobs FOR UPDATE)",
    ],
)
async def test_no_lock_is_left_out(lab: Lab, text: str) -> None:
    """What cannot be done is refused: no rows without their locks."""
    client, other = await session(lab), await session(lab)
    await client.query("BEGIN")
    number = await errno(client, text)
    if number == 0:
        assert await errno(other, "SELECT id FROM jobs FOR UPDATE NOWAIT") == 1205
    else:
        assert number == 1235


@pytest.mark.parametrize(
    ("before", "ends"),
    [
        (True, b"\x03COMMIT"),
        (True, b"\x03ROLLBACK"),
        (True, b"\x03BEGIN"),
        (True, b"\x03SET autocommit=1"),
        (True, b"\x03FLUSH LOGS"),  # a commit stands in front of it
        (True, ResetConnection().build()),
        (False, b"\x03ALTER TABLE jobs ADD UNIQUE KEY state (state)"),  # 1062
    ],
)
async def test_locks_are_free_when_the_answer_comes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, ends: bytes, *, before: bool
) -> None:
    """They are let go in a thread: a NOWAIT of another session behind the answer of COMMIT met them once."""
    one, other = await session(lab), await session(lab)
    if before:
        await one.query("SET autocommit=0")
        await rows(one, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE")
    entered, go_on = threading.Event(), threading.Event()
    roll_back = RowSide.roll_back

    def held(side: RowSide) -> None:
        if not entered.is_set():
            entered.set()
            go_on.wait()
        roll_back(side)

    monkeypatch.setattr(RowSide, "roll_back", held)
    answer = asyncio.create_task(one.ask(ends))
    try:
        await until(entered.is_set)
        assert await errno(other, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT") == 1205
        assert not answer.done()
    finally:
        go_on.set()
    await answer
    assert await errno(other, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT") == 0


async def test_a_read_only_transaction_takes_shared_locks_alone(lab: Lab) -> None:
    """As a live 11.8."""
    one = await session(lab)
    await one.query("CREATE TEMPORARY TABLE own (id INT PRIMARY KEY)")
    for begin in ("START TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ ONLY"):
        await one.query(begin)
        for wish in ("FOR UPDATE", "FOR UPDATE NOWAIT", "FOR UPDATE SKIP LOCKED"):
            assert await errno(one, f"SELECT id FROM jobs WHERE id = 1 {wish}") == 1792
        assert await rows(one, "SELECT id FROM jobs WHERE id = 1 LOCK IN SHARE MODE") == [("1",)]
        assert await errno(one, "SELECT id FROM own FOR UPDATE") == 0
        await one.query("COMMIT")
