"""KILL QUERY ends what runs, and leaves the connection."""

from __future__ import annotations

import pytest
from binlog_protocol.connection.commands import Query
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import DiskFull
from binlog_storage.ibb.file_names import file_name
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.sql.runner import THREADS
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import RowStream
from tests.binlog_server.lab import (
    REPLICA_AND_WATCHER,
    WITH_ROOT,
    Lab,
    until,
    within,
)
from tests.storage.groups import append_all, simple
from tests.storage.sizes import small

PREFIX = "Rpl_semi_sync_master_"


async def test_of_a_wait() -> None:
    async with Lab(users=WITH_ROOT) as lab:
        dba, waits = await lab.root(), await lab.root()
        waits.command(Query("SELECT MASTER_GTID_WAIT('0-1-99')").build())
        waiting = max(lab.server.connections, key=lambda connection: connection.id)
        number = waiting.id
        await until(lambda: "MASTER_GTID_WAIT" in (waiting.info or ""))
        await dba.query(f"KILL QUERY {number}")
        assert await waits.error() == (1317, "Query execution was interrupted")
        assert [row[1] for row in await waits.query("SHOW WARNINGS")] == ["1317"]
        await dba.query(f"KILL QUERY {number}")  # of who does nothing
        assert await waits.query("SELECT 1") == [["1"]]


async def test_of_a_dump() -> None:
    async with Lab(users=WITH_ROOT) as lab:
        dba, replica = await lab.root(), await lab.replica()
        await replica.opening()
        (number,) = [c.id for c in lab.server.connections if c.dump_server_id]
        await dba.query(f"KILL QUERY {number}")
        assert await replica.ended()


WAITING = "Waiting for semi-sync ACK from slave"


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "in a transaction"])
async def test_of_a_commit_that_waits_for_replicas(quick: bool) -> None:
    """As MariaDB: it is committed, so it is OK, without a warning; semi-sync stays ON, and others go on waiting."""
    async with Lab(
        users=WITH_ROOT, rpl_semi_sync_master_enabled=True, rpl_semi_sync_master_timeout=3_600_000
    ) as lab:
        dba, killed, other = [await lab.root() for _ in range(3)]
        numbers = [connection.id for connection in lab.server.connections]
        if not quick:
            await killed.query("BEGIN")
        for client in (killed, other):
            client.command(Query("INSERT INTO t VALUES ('x')").build())
        if not quick:
            assert (await killed.answer())[:1] == b"\0"
            killed.command(Query("COMMIT").build())
        await until(lambda: lab.server.semi_sync.status_variables()[f"{PREFIX}wait_sessions"] == 2)
        shown = {row[0]: row for row in await dba.query("SHOW PROCESSLIST")}
        text = "INSERT INTO t VALUES ('x')" if quick else "COMMIT"
        assert shown[str(numbers[1])][4:8] == ["Query", "0", WAITING, text]
        await dba.query(f"KILL QUERY {numbers[1]}")
        assert (await killed.answer())[:1] == b"\0"
        assert await killed.query("SHOW WARNINGS") == []
        status = {row[0]: row[1] for row in await dba.query("SHOW STATUS LIKE 'Rpl_semi%'")}
        names = ("no_tx", "status", "wait_sessions")
        assert [status[f"{PREFIX}{name}"] for name in names] == ["1", "ON", "1"]
        shown = {row[0]: row for row in await dba.query("SHOW PROCESSLIST")}
        assert shown[str(numbers[1])][4:6] == ["Sleep", "0"]
        assert shown[str(numbers[2])][6] == WAITING
        # Who has gone waits for nothing, and is not answered.
        await dba.query(f"KILL {numbers[2]}")
        await until(lambda: lab.server.semi_sync.status_variables()[f"{PREFIX}wait_sessions"] == 0)
        assert await killed.query("SELECT 1") == [["1"]]


async def test_time_of_who_commits_counts_from_the_last_statement() -> None:
    async with Lab(users=WITH_ROOT) as lab:
        dba, busy = await lab.root(), await lab.root()
        connection = max(lab.server.connections, key=lambda connection: connection.id)
        for statement in ("INSERT INTO t VALUES (1)", "BEGIN", "SELECT 1"):
            connection.since -= 1000
            await busy.query(statement)
            assert [row[5] for row in await dba.query("SHOW PROCESSLIST") if row[4] == "Sleep"] == [
                "0"
            ]


def test_rows_that_are_skipped_are_steps_too() -> None:
    """So that KILL QUERY, or a client that goes, ends a long way to the first row."""
    lab = Lab(users=WITH_ROOT)
    lab.publish(",".join(f"0-1-{number}" for number in range(1, 301)))
    sql = SqlSession(lab.server, 1, "", grants=REPLICA_AND_WATCHER)
    result = sql.execute("SHOW BINLOG EVENTS LIMIT 890, 2")
    assert isinstance(result, RowStream)
    steps = list(result.batches)
    assert [len(step) for step in steps] == [0, 0, 0, 0, 0, 2]
    lab.directory.close()


async def test_a_client_sees_no_step_without_rows() -> None:
    async with Lab(users=WITH_ROOT) as lab:
        lab.publish(",".join(f"0-1-{number}" for number in range(1, 301)))
        dba = await lab.root()
        assert len(await dba.query("SHOW BINLOG EVENTS LIMIT 890, 2")) == 2
        assert await dba.query("SHOW BINLOG EVENTS LIMIT 5000, 2") == []


async def test_of_a_wait_for_room_on_the_disk() -> None:
    """FLUSH waits for it, as long as its client does; PURGE, which makes some, waits for no FLUSH."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(slave_connections_needed_for_purge=0), background=True)
    append_all(engine, simple(30, size=5000))
    engine.flush()
    async with Lab(engine, users=WITH_ROOT) as lab:
        dba = await lab.root()
        disk.fault = no_files
        clients = [await lab.root() for _ in range(THREADS + 2)]
        numbers = sorted(connection.id for connection in lab.server.connections)[1:]
        for client in clients:
            client.command(Query("FLUSH BINARY LOGS").build())
        await until(lambda: engine._full.error is not None)
        second = engine.files()[1].number
        await within(dba.query(f"PURGE BINARY LOGS TO '{file_name(second)}'"))
        assert engine.files()[0].number == second
        await within(dba.query("CREATE BINLOG LEASE a"))
        # One that runs tells how far it came; one that has not begun was interrupted.
        # The first client may have had a file that was made ahead.
        for client, number in list(zip(clients, numbers, strict=True))[1:3]:
            await dba.query(f"KILL QUERY {number}")
            errno, text = await within(client.error())
            assert errno in (1021, 1317), text
        clients[3].close()  # nobody to wait for
        disk.fault = None
        engine._full.freed()
        for client in [clients[0], *clients[4:]]:
            assert (await within(client.answer()))[:1] == b"\0"


def no_files(kind: str, name: str) -> None:
    if kind in ("create", "allocate") and name.endswith(".ibb"):
        raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")
