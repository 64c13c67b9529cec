"""What the server says of itself is so: formats, checksums, engines, snapshots."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from binlog_protocol.connection.commands import InitDatabase, Query
from binlog_protocol.errors import RemoteError

from binlog_server.accounts.replica_policy import ReplicaPolicy, StreamStyle
from binlog_server.accounts.users import Account
from tests.binlog_server.lab import Client, Lab, until

EVERYTHING = frozenset({"ALL PRIVILEGES"})
CLASSIC = ReplicaPolicy(StreamStyle.CLASSIC)
USERS = {
    "root": Account("pw", EVERYTHING),
    "old": Account("pw", EVERYTHING, CLASSIC),
    "nobody": Account("pw", frozenset({"USAGE"})),
}


async def warnings_of(client: Client, sql: str) -> int:
    """As the OK packet counts them: behind two small numbers and the status."""
    answer = await client.ask(Query(sql).build())
    assert answer[:1] == b"\0", answer
    return int.from_bytes(answer[5:7], "little")


async def test_binlog_format_with_tables() -> None:
    """ROW for who works with tables here, and for who follows; not for who sends text for others."""
    users = {**USERS, "replay": Account("pw", frozenset({"BINLOG REPLAY"}))}
    async with Lab(users=users, local_tables=True) as lab:
        for user, said in (("root", "ROW"), ("nobody", "ROW"), ("replay", "STATEMENT")):
            client = await lab.client(user, "pw")
            assert await client.query("SELECT @@binlog_format") == [[said]]
        root = await lab.root()
        assert await warnings_of(root, "SET SESSION binlog_format = 'ROW'") == 0
        assert await warnings_of(root, "SET SESSION binlog_format = 'STATEMENT'") == 0
        assert await root.query("SELECT @@binlog_format, @@GLOBAL.binlog_format") == [
            ["STATEMENT", "ROW"]
        ]
        assert await warnings_of(root, "SET GLOBAL binlog_format = 'MIXED'") == 1
        await root.query("SET SESSION binlog_format = DEFAULT")
        assert await root.query("SELECT @@binlog_format, @@GLOBAL.binlog_format") == [["ROW"] * 2]
        client = await lab.client("replay", "pw")
        assert await warnings_of(client, "SET SESSION binlog_format = 'ROW'") == 1
        client = await lab.client("nobody", "pw")
        with pytest.raises(RemoteError, match="BINLOG ADMIN"):
            await client.query("SET SESSION binlog_format = 'STATEMENT'")


@pytest.mark.parametrize(
    ("options", "history", "said"),
    [
        ({}, "", "STATEMENT"),
        ({"server_id": 1}, "0-1-1", "STATEMENT"),
        ({"server_id": 1}, "0-1-1,5-2-1", "MIXED"),
        ({"server_id": 1, "read_only": True}, "5-2-1", "ROW"),
        ({"server_id": 1, "local_tables": True}, "0-1-1,5-2-1", "ROW"),
    ],
)
async def test_binlog_format(options: dict[str, Any], history: str, said: str) -> None:
    """What is committed here are statements; what comes from others may be rows, and is told as such where there is
    nothing else."""
    async with Lab(users=USERS, **options) as lab:
        lab.publish(history)
        client = await lab.root()
        assert await client.query("SELECT @@GLOBAL.binlog_format, @@binlog_format") == [[said] * 2]
        assert await client.query("SHOW VARIABLES LIKE 'binlog_format'") == [
            ["binlog_format", said]
        ]


async def test_engines() -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        ((_, _, _, transactions, xa, savepoints),) = await client.query("SHOW ENGINES")
        assert (transactions, xa, savepoints) == ("YES", "YES", "YES")
        await client.query("XA START 'x'")


@pytest.mark.parametrize(
    "sql",
    [
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */",
        "start transaction read only, with consistent snapshot",
    ],
)
async def test_there_are_no_snapshots(sql: str) -> None:
    """MariaDB's warning of a server without an engine that has them; programs go on behind it."""
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        assert await warnings_of(client, sql) == 1
        ((level, code, text),) = await client.query("SHOW WARNINGS")
        assert (level, code) == ("Warning", "1105")
        assert text is not None
        assert "consistent-read capable" in text
        assert await warnings_of(client, "START TRANSACTION") == 0
        assert len(await client.query("SHOW WARNINGS")) == 1, "it uses no tables"


@pytest.mark.parametrize(
    ("user", "kept", "other", "why"),
    [
        ("root", "NONE", "CRC32", "no checksums of events"),
        ("old", "CRC32", "NONE", "positions depend on it"),
    ],
)
async def test_binlog_checksum_stays(user: str, kept: str, other: str, why: str) -> None:
    """As in MariaDB with an engine binlog it may be set, and stays; here a warning says so."""
    async with Lab(users=USERS, binlog_checksum="CRC32") as lab:
        client = await lab.client(user, "pw")
        for value, warned in ((kept, 0), (f"'{kept}'", 0), (other, 1), ("DEFAULT", 0)):
            assert await warnings_of(client, f"SET GLOBAL binlog_checksum = {value}") == warned
            if warned:
                ((_, code, text),) = await client.query("SHOW WARNINGS")
                assert code == "1105"
                assert text is not None
                assert text.startswith(f"binlog_checksum stays {kept}: ")
                assert why in text
            assert await client.query("SELECT @@GLOBAL.binlog_checksum") == [[kept]]
        for sql, number in (
            ("SET GLOBAL binlog_checksum = 'MD5'", 1231),
            ("SET SESSION binlog_checksum = NONE", 1229),
        ):
            with pytest.raises(RemoteError, match=str(number)):
                await client.query(sql)
        nobody = await lab.client("nobody", "pw")
        with pytest.raises(RemoteError, match="1227"):
            await nobody.query("SET GLOBAL binlog_checksum = NONE")


async def test_warnings_are_those_of_the_last_statement() -> None:
    """Also where that one was committed."""
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        assert await warnings_of(client, "SET GLOBAL max_connections = 1") == 1
        assert await warnings_of(client, "CREATE TABLE test.t (a INT)") == 0
        assert await client.query("SHOW WARNINGS") == []


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("", 1065),
        (" ; ", 1065),
        ("DROP USER nosuch", 1396),
        ("GRANT RELOAD ON *.* TO nosuch", 1133),
        (f"CREATE USER '{'x' * 129}'", 1470),
        (f"DROP USER u@'{'x' * 256}'", 1470),
        ("SHOW GRANTS FOR nosuch", 1141),
        ("GRANT", 1064),
        ("XA END 'x'", 1399),
        ("CALL p()", 1235),
        ("ROLLBACK TO x", 1305),
        ("INSERT INTO t VALUES (1); SELECT 2", 1064),
        ("SELECT @@nosuch", 1193),
        ("KILL 999999", 1094),
        ("PURGE BINARY LOGS TO 'x'", 1373),
        ("USE `a `", 1102),
        ("SHOW BINLOG EVENTS IN 'x'", 1220),
    ],
)
async def test_each_error_is_the_warning_of_its_statement(sql: str, number: int) -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        with pytest.raises(RemoteError, match="1193"):
            await client.query("SELECT @@before")
        with pytest.raises(RemoteError, match=str(number)):
            await client.query(sql)
        assert [row[:2] for row in await client.query("SHOW WARNINGS")] == [["Error", str(number)]]
        assert await client.query("SELECT @@error_count") == [["1"]]


@pytest.mark.parametrize("sql", ["FLUSH PRIVILEGES", "COMMIT", "INSERT INTO test.t VALUES (1)"])
async def test_success_forgets_what_was_told(sql: str) -> None:
    """If it uses tables, as in a live 11.8. Twice: the second INSERT goes the quick way."""
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        for _ in range(2):
            with pytest.raises(RemoteError, match="1193"):
                await client.query("SELECT @@before")
            await client.query(sql)
            kept = await client.query("SHOW WARNINGS")
            assert [row[1] for row in kept] == ([] if sql.startswith("INSERT") else ["1193"])


async def test_errors_of_other_commands_are_told() -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        assert await warnings_of(client, "SET GLOBAL max_connections = 1") == 1
        client.command(InitDatabase("").build())
        assert (await client.error())[0] == 1046
        assert [row[1] for row in await client.query("SHOW WARNINGS")] == ["1046"]


async def test_who_runs_and_what_for() -> None:
    async with Lab(users=USERS) as lab:
        client, waiting = await lab.root(), await lab.root()
        running = "SHOW STATUS LIKE 'Threads_running'"
        assert await client.query(running) == [["Threads_running", "1"]]
        wait = asyncio.ensure_future(waiting.query("SELECT MASTER_GTID_WAIT('9-9-9', 60)"))
        await until(lambda: len([c for c in lab.server.connections if c.command == "Query"]) == 1)
        states = [row[6] for row in await client.query("SHOW PROCESSLIST")]
        assert "Waiting in MASTER_GTID_WAIT() (primary waiter)" in states
        assert await client.query(running) == [["Threads_running", "2"]]
        wait.cancel()


async def test_what_mariadb_refuses_or_takes() -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        with pytest.raises(RemoteError, match="1221"):
            await client.query("CREATE OR REPLACE USER IF NOT EXISTS a")
        assert await warnings_of(client, "SET CHARACTER SET DEFAULT") == 0
        assert await warnings_of(client, "SET CHARSET latin1, CHARACTER SET DEFAULT") == 0
        assert await client.query("SELECT @@character_set_client") == [["utf8mb4"]]
