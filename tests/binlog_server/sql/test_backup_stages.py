"""BACKUP STAGE and BACKUP LOCK answer as a MariaDB 11.8.9 that was asked the same; and what they hold up here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.errors import RemoteError
from binlog_protocol.wire.results import parse_ok
from binlog_storage.binlog.options import StoreOptions

from tests.binlog_server.lab import ROOT, Client, Lab, until

SMALL = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)
NOT_RUNNING = 4146, 'You must start backup with "BACKUP STAGE START"'
ACTIVE = 4145, "Can't execute the command as you have a BACKUP STAGE active"
CONFLICT = 1223, "Can't execute the query because you have a conflicting read lock"


def passed(stage: str, current: str) -> tuple[int, str]:
    return 4147, f"Backup stage '{stage}' is same or before current backup stage '{current}'"


# Statements of one session, each with its error; None is OK.
SCRIPTS: dict[str, list[tuple[str, tuple[int, str] | None]]] = {
    "unknown": [
        (
            "BACKUP STAGE FOO",
            (
                4149,
                "Unknown backup stage: 'FOO'. Stage should be one of START, FLUSH, BLOCK_DDL, BLOCK_COMMIT or END",
            ),
        )
    ],
    "not begun": [
        *((f"BACKUP STAGE {stage}", NOT_RUNNING) for stage in ("END", "FLUSH", "BLOCK_DDL")),
        ("BACKUP UNLOCK", None),
        ("BACKUP LOCK t", (1046, "No database selected")),
    ],
    "twice": [
        ("BACKUP STAGE START", None),
        ("BACKUP STAGE START", passed("START", "START")),
        ("BACKUP STAGE END", None),
        ("BACKUP STAGE END", NOT_RUNNING),
    ],
    "backwards": [
        ("BACKUP STAGE START", None),
        ("BACKUP STAGE BLOCK_COMMIT", None),
        ("BACKUP STAGE FLUSH", passed("FLUSH", "BLOCK_COMMIT")),
        ("BACKUP STAGE BLOCK_COMMIT", passed("BLOCK_COMMIT", "BLOCK_COMMIT")),
        ("backup stage end", None),
    ],
    "commits": [
        ("BACKUP STAGE START", None),
        ("INSERT INTO test.t VALUES (1)", ACTIVE),
        ("CREATE TABLE test.x (a INT)", ACTIVE),
        ("FLUSH TABLES WITH READ LOCK", ACTIVE),
        ("BACKUP STAGE BLOCK_COMMIT", None),
        ("INSERT INTO test.t VALUES (2)", ACTIVE),
        ("FLUSH BINARY LOGS", None),
        ("RESET MASTER", None),
        ("BACKUP STAGE END", None),
        ("INSERT INTO test.t VALUES (3)", None),
    ],
    "a lock": [
        ("BACKUP LOCK test.t", None),
        ("BACKUP STAGE START", CONFLICT),
        ("INSERT INTO test.t VALUES (3)", CONFLICT),
        ("CREATE TABLE test.y (a INT)", CONFLICT),
        ("BACKUP LOCK test.u", None),
        ("BACKUP UNLOCK", None),
        ("INSERT INTO test.t VALUES (3)", None),
    ],
    "a lock within": [
        ("BACKUP STAGE START", None),
        ("BACKUP LOCK test.t", None),
        ("BACKUP UNLOCK", None),
        ("BACKUP STAGE END", None),
    ],
    "other locks": [
        ("LOCK TABLES test.t READ", None),
        (
            "BACKUP STAGE START",
            (
                1192,
                "Can't execute the given command because you have active locked tables or an active transaction",
            ),
        ),
        ("UNLOCK TABLES", None),
        ("BEGIN", None),
        ("BACKUP STAGE START", None),
        ("COMMIT", None),
    ],
    "prepared": [
        ("PREPARE s FROM 'BACKUP STAGE START'", None),
        ("EXECUTE s", None),
        ("BACKUP STAGE END", None),
    ],
}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=ROOT, store=SMALL) as running:
        yield running


async def answered(client: Client, said: str) -> tuple[int, str] | None:
    try:
        await client.query(said)
    except RemoteError as error:
        return error.errno, error.message
    return None


@pytest.mark.parametrize("name", SCRIPTS)
async def test_as_a_mariadb(name: str, lab: Lab) -> None:
    client = await lab.root()
    for said, error in SCRIPTS[name]:
        assert await answered(client, said) == error, said


async def test_one_session_at_a_time(lab: Lab) -> None:
    """Another one waits for it, for lock_wait_timeout; and gets it when the session has gone."""
    first, second = await lab.root(), await lab.root()
    await first.query("BACKUP STAGE START")
    await second.query("SET lock_wait_timeout=0")
    refused = 1205, "Lock wait timeout exceeded; try restarting transaction"
    assert await answered(second, "BACKUP STAGE START") == refused
    await second.query("SET lock_wait_timeout=100")
    waiting = asyncio.ensure_future(second.query("BACKUP STAGE START"))
    first.close()
    await waiting
    assert await answered(second, "BACKUP STAGE END") is None


@pytest.mark.parametrize("said", ["FLUSH BINARY LOGS", "RESET MASTER", "PURGE BINARY LOGS TO '{}'"])
async def test_others_do_not_change_files(said: str, lab: Lab) -> None:
    """They wait; KILL ends that, and so does END. What commits does not wait, and no purge takes a file."""
    lab.publish("0-1-1")
    first, second = await lab.root(), await lab.root()
    await first.query("FLUSH BINARY LOGS")
    await first.query("BACKUP STAGE START")
    oldest, newest = [row[0] for row in await first.query("SHOW BINARY LOGS")][:2]
    text = said.format(newest)
    ((number,),) = await second.query("SELECT CONNECTION_ID()")
    waiting = asyncio.ensure_future(answered(second, text))
    third = await lab.root()
    await third.query("INSERT INTO test.t VALUES (1)")
    assert lab.engine.purge_to(1).kept == 0
    shown = [row[0] for row in await first.query("SHOW BINARY LOGS")]
    assert oldest in shown
    assert not waiting.done()
    await first.query(f"KILL QUERY {number}")
    assert await waiting == (1317, "Query execution was interrupted")
    waiting = asyncio.ensure_future(answered(second, text))
    # Its own stage does not make it wait; the files stay all the same.
    kept = (1378, "A purgeable log is in use, will not purge") if "PURGE" in said else None
    assert await answered(first, text) == kept
    await first.query("BACKUP STAGE END")
    await waiting


async def test_a_stage_ends_with_its_session(lab: Lab) -> None:
    first, second = await lab.root(), await lab.root()
    await first.query("BACKUP STAGE START")
    first.close()
    await until(lambda: lab.server.backups._staged is None)
    assert await answered(second, "FLUSH BINARY LOGS") is None
    assert not lab.engine.references.holds()  # type: ignore[attr-defined]


async def test_what_does_not_stop_says_so(lab: Lab) -> None:
    client = await lab.root()
    await client.query("BACKUP STAGE START")
    await client.query("BACKUP STAGE BLOCK_DDL")
    ((level, code, message),) = await client.query("SHOW WARNINGS")
    assert (level, code) == ("Warning", "1235")
    assert "DDL of others goes on" in str(message)
    told = parse_ok(await client.ask(Query("BACKUP STAGE BLOCK_COMMIT").build()))
    assert told.warnings == 0


# What is said by other sessions, and whether it commits something.
WAITS = [
    ("INSERT INTO test.t VALUES (1)",),
    ("CREATE TABLE test.x (a INT) ENGINE=InnoDB",),
    ("BEGIN", "INSERT INTO test.t VALUES (1)", "COMMIT"),
    ("SET sql_log_bin=1", "DROP TABLE IF EXISTS test.none"),
]


async def blocked(lab: Lab) -> Client:
    client = await lab.root()
    await client.query("BACKUP STAGE START")
    await client.query("BACKUP STAGE BLOCK_COMMIT")
    return client


async def ended_by_end(lab: Lab, first: Client, number: str) -> None:
    await first.query("BACKUP STAGE END")


async def ended_by_disconnect(lab: Lab, first: Client, number: str) -> None:
    first.close()


async def ended_by_kill(lab: Lab, first: Client, number: str) -> None:
    await (await lab.root()).query(f"KILL {number}")


async def ended_by_reset(lab: Lab, first: Client, number: str) -> None:
    assert (await first.ask(b"\x1f"))[:1] == b"\0"  # COM_RESET_CONNECTION


@pytest.mark.parametrize(
    "end",
    [ended_by_end, ended_by_disconnect, ended_by_kill, ended_by_reset],
    ids=lambda f: f.__name__,
)
async def test_no_commit_while_they_are_blocked(
    end: Callable[[Lab, Client, str], Awaitable[None]], lab: Lab
) -> None:
    """Nothing gets into the log, whoever says it; and all goes on when the stage ends, however it does."""
    others = [await lab.root() for _ in WAITS]
    await others[0].query("INSERT INTO test.t VALUES (0)")
    for other, (*before, _) in zip(others, WAITS, strict=True):
        for said in before:
            await other.query(said)
    first = await blocked(lab)
    ((number,),) = await first.query("SELECT CONNECTION_ID()")
    state = lab.engine.binlog_state()
    waiting = [
        asyncio.ensure_future(other.query(said[-1]))
        for other, said in zip(others, WAITS, strict=True)
    ]
    await until(lambda: lab.server.room.waiting_s > 0)
    await first.query("SELECT 1")
    assert lab.engine.binlog_state() == state
    assert not any(one.done() for one in waiting)
    assert [one.what for one in lab.server.engine.stalled()] == ["backup"]
    lab.server.facts.set("a.fact", 1)  # leases and accounts do not wait
    await end(lab, first, str(number))
    await asyncio.gather(*waiting)
    assert lab.engine.binlog_state() != state
    assert not lab.server.engine.stalled()


async def test_two_holds_are_counted(lab: Lab) -> None:
    switching = lab.server.switching
    switching.block_commits()
    switching.block_commits()
    switching.unblock_commits()
    assert not switching.has_room
    assert not switching.wait_for_room(0)
    assert not switching.has_room_to_spill
    run = object()  # is not looked at
    assert switching.append_run(run, 3, 0) == 3
    assert switching.append_change(run) is False
    switching.unblock_commits()
    assert switching.has_room
    assert switching.append_run == lab.engine.append_run


async def test_block_commit_waits_for_those_under_way(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KILL QUERY ends that wait, and the stage is the one before: commits go on."""
    under_way = [True]  # as within a turn: see `GroupWriter.turn`
    monkeypatch.setattr(lab.engine, "wait_for_room", lambda *_, **__: not under_way[0])
    first, other = await lab.root(), await lab.root()
    ((number,),) = await first.query("SELECT CONNECTION_ID()")
    await first.query("BACKUP STAGE START")
    waiting = asyncio.ensure_future(answered(first, "BACKUP STAGE BLOCK_COMMIT"))
    await until(lambda: not lab.server.switching._is_free)
    await other.query(f"KILL QUERY {number}")
    assert await waiting == (1317, "Query execution was interrupted")
    under_way[0] = False
    await other.query("INSERT INTO test.t VALUES (1)")
    assert await answered(first, "BACKUP STAGE BLOCK_COMMIT") is None
