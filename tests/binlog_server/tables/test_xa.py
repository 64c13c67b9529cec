"""XA with rows: prepared ones keep their locks, whoever comes and goes, and end as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.connection.commands import ResetConnection
from binlog_protocol.errors import RemoteError
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine

from tests.binlog_server.lab import Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import (
    SCHEMA,
    USERS,
    errno,
    groups,
    kinds,
    rows,
    session,
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(
        *SCHEMA, "INSERT INTO shop.t VALUES (1, 'one', 1), (2, 'two', 2)", users=USERS
    ) as lab:
        yield lab


async def prepared(client: Client, *texts: str, xid: str = "'q'") -> None:
    for text in (f"XA START {xid}", *texts, f"XA END {xid}", f"XA PREPARE {xid}"):
        await client.query(text)


async def in_time(client: Client, sql: str) -> int:
    """The error of a statement that waits no time for locks."""
    await client.query("SET innodb_lock_wait_timeout = 0")
    return await errno(client, sql)


async def test_rows_and_text_are_one_group_at_the_commit(lab: Lab) -> None:
    replay = await lab.client("replay", "pw")
    await prepared(
        replay, "INSERT INTO shop.t VALUES (3, 'three', 3)", "INSERT INTO else.where VALUES (1)"
    )
    other = await session(lab)
    assert len(groups(lab)) == 1, "nothing yet"
    assert await errno(other, "XA COMMIT 'q'") == 1397, "its session is there"
    await replay.query("XA COMMIT 'q'")
    assert [kinds(group) for group in groups(lab)] == ["GATWX", "GATWQQ"]
    assert [row[0] for row in await rows(other)] == ["1", "2", "3"]


@pytest.mark.parametrize("how", ["closed", "reset", "there"])
async def test_locks_stay(lab: Lab, how: str) -> None:
    owner, other = await session(lab), await session(lab)
    await prepared(owner, "UPDATE t SET n = 10 WHERE id = 1", "INSERT INTO t VALUES (3, 'c', 3)")
    if how == "closed":
        owner.close()
        await until(lambda: all(not branch.is_owned for branch in lab.server.xa._by_xid.values()))
    elif how == "reset":
        await owner.ask(ResetConnection().build())
        assert await rows(owner, "SELECT @@in_transaction") == [("0",)]
    assert (await rows(other))[0] == ("1", "one", "1")
    for text in (
        "UPDATE t SET n = 0 WHERE id = 1",
        "INSERT INTO t VALUES (3, 'd', 4)",
        "TRUNCATE t",
        "DROP TABLE t",
    ):
        assert await in_time(other, text) == 1205
    assert await errno(other, "UPDATE t SET n = 0 WHERE id = 2") == 0
    assert await errno(other, "XA START 'q'") == 1440
    ending = owner if how == "there" else other
    await ending.query("XA COMMIT 'q'")
    assert await rows(other) == [("1", "one", "10"), ("2", "two", "0"), ("3", "c", "3")]
    assert await errno(other, "UPDATE t SET n = 0 WHERE id = 1") == 0
    assert await errno(other, "XA COMMIT 'q'") == 1397


async def test_a_rollback_frees_rows(lab: Lab) -> None:
    owner, other = await session(lab), await session(lab)
    await prepared(owner, "UPDATE t SET n = 10")
    owner.close()
    await until(lambda: not lab.server.xa._by_xid)
    await other.query("XA ROLLBACK 'q'")
    assert await in_time(other, "UPDATE t SET a = 'x'") == 0
    assert await rows(other) == [("1", "x", "1"), ("2", "x", "2")]


async def test_a_victim_of_a_deadlock_is_rolled_back_only(lab: Lab) -> None:
    victim, other = await session(lab), await session(lab)
    await other.query("BEGIN")
    await other.query("UPDATE t SET n = 5 WHERE id = 2")
    await other.query("INSERT INTO t VALUES (8, 'x', 1), (9, 'y', 1)")
    await victim.query("XA START 'v'")
    await victim.query("UPDATE t SET n = 6 WHERE id = 1")
    late = asyncio.create_task(other.query("UPDATE t SET n = 7 WHERE id = 1"))
    await until(lambda: lab.engine.counters()["Innodb_row_lock_current_waits"] == 1)
    assert await errno(victim, "UPDATE t SET n = 8 WHERE id = 2") == 1213
    await late
    for text, number in (
        ("SELECT 1", 0),
        ("SELECT * FROM t", 1399),
        ("UPDATE t SET n = 8", 1399),
        ("DESCRIBE t", 1399),
        ("SHOW INDEX FROM t", 1399),
        ("SHOW CREATE TABLE t", 1399),
        ("SHOW TABLES", 0),
        ("XA END 'v'", 1399),
        ("XA PREPARE 'v'", 1399),
        ("COMMIT", 1399),
        ("XA COMMIT 'v'", 1614),
        ("XA COMMIT 'v'", 1397),
        ("SELECT @@in_transaction", 0),
    ):
        assert await errno(victim, text) == number, text
    await other.query("COMMIT")
    assert (await rows(victim))[:2] == [("1", "one", "7"), ("2", "two", "5")]


async def test_a_wait_that_takes_too_long_ends_the_statement_alone(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await other.query("BEGIN")
    await other.query("UPDATE t SET n = 5 WHERE id = 2")
    await one.query("XA START 'q'")
    await one.query("UPDATE t SET n = 6 WHERE id = 1")
    assert await in_time(one, "UPDATE t SET n = 7") == 1205
    await other.query("ROLLBACK")
    await one.query("XA END 'q'")
    await one.query("XA COMMIT 'q' ONE PHASE")
    assert await rows(other) == [("1", "one", "6"), ("2", "two", "2")]
    assert kinds(groups(lab)[-1]) == "GATUX"


async def test_ends_without_a_prepare_leave_nothing(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    for end in ("XA ROLLBACK 'q'", "close"):
        await one.query("XA START 'q'")
        await one.query("UPDATE t SET n = 6")
        await one.query("XA END 'q'")
        if end == "close":
            one.close()
            await until(lambda: not lab.server.xa._by_xid)
        else:
            await one.query(end)
    assert await in_time(other, "UPDATE t SET n = 3") == 0
    assert await rows(other, "XA RECOVER") == []
    assert await errno(other, "XA START 'q'") == 0


@pytest.mark.parametrize("change", ["DO 1", "INSERT INTO t (a) VALUES ('x')"])
async def test_savepoints_of_a_prepared_one(lab: Lab, change: str) -> None:
    """As in a live 11.8: none can be rolled back to, and it is no error to release one."""
    root = await session(lab)
    for text in ("XA START 'q'", "SAVEPOINT s", change, "XA END 'q'", "XA PREPARE 'q'"):
        await root.query(text)
    assert await errno(root, "ROLLBACK TO S") == 1399
    assert await errno(root, "RELEASE SAVEPOINT s") == 0
    assert await errno(root, "ROLLBACK TO nope") == 1305
    await root.query("XA ROLLBACK 'q'")
    assert await errno(root, "ROLLBACK TO s") == 1305


async def test_one_that_changed_nothing(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await prepared(one, "SELECT * FROM t", "UPDATE t SET n = n")
    assert await rows(other, "XA RECOVER FORMAT='SQL'") == [("1", "1", "0", "'q'")]
    one.close()
    await until(lambda: not any(b.is_owned for b in lab.server.xa._by_xid.values()))
    assert await errno(other, "XA COMMIT 'q'") == 1402
    assert await errno(other, "XA COMMIT 'q'") == 1397
    assert len(groups(lab)) == 1


async def test_what_cannot_be_prepared_is_rolled_back(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("XA START 'q'")
    await one.query("UPDATE t SET n = 6")
    await one.query("XA END 'q'")
    lab.server.publisher.read_only = True
    assert await errno(one, "XA PREPARE 'q'") == 1290
    assert await rows(one, "SELECT @@in_transaction") == [("0",)]
    lab.server.publisher.read_only = False
    assert await in_time(other, "UPDATE t SET n = 7") == 0
    assert await errno(one, "XA START 'q'") == 0


async def test_who_may_end_what_others_have_prepared(lab: Lab) -> None:
    one = await session(lab)
    await prepared(one, "UPDATE t SET n = 6")
    one.close()
    await until(lambda: not lab.server.xa._by_xid)
    reader, writer = await session(lab, "reader"), await session(lab, "writer")
    assert await errno(reader, "XA COMMIT 'q'") == 1227
    assert await rows(reader, "XA RECOVER") == [("1", "1", "0", "q")]
    assert await errno(writer, "XA COMMIT 'q'") == 0


async def test_the_next_process_finds_it(lab: Lab) -> None:
    """It is listed, holds its files and its rows, and is ended."""
    one = await session(lab)
    await prepared(one, "UPDATE t SET n = 6 WHERE id = 1")
    engine = IbbEngine(lab.directory.disk.after_crash(), StoreOptions(max_binlog_size=1 << 20))
    async with Lab(engine, users=USERS, local_tables=True) as after:
        client = await session(after)
        assert await rows(client, "XA RECOVER FORMAT='SQL'") == [("1", "1", "0", "'q'")]
        assert await in_time(client, "UPDATE t SET n = 7 WHERE id = 1") == 1205
        await client.query("FLUSH BINARY LOGS")
        held = str(await client.query("EXPLAIN PURGE TO 'binlog-000001.ibb'"))
        assert "prepared XA transaction ('q'; XA COMMIT or XA ROLLBACK ends it)" in held
        with pytest.raises(RemoteError, match="'q' is prepared"):
            await client.query("RESET MASTER")
        assert await errno(client, "XA START 'q'") == 1440
        await client.query("XA COMMIT 'q'")
        assert await rows(client) == [("1", "one", "6"), ("2", "two", "2")]
        await client.query("RESET MASTER")
        await client.query("UPDATE t SET n = 8 WHERE id = 1")
