"""Faults of a conversation, from the greeting to the dump; a connection without them is made as ever."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from binlog_protocol.connection.commands import (
    LAST_PREPARED,
    BinlogDump,
    InitDatabase,
    Ping,
    Query,
    RegisterSlave,
    StatisticsCommand,
    StmtExecute,
    StmtPrepare,
    StmtReset,
)
from binlog_protocol.connection.handshake import Capability, LoginRequest
from binlog_protocol.errors import RemoteError
from binlog_protocol.wire.packets import frame_packet

from binlog_server.faults.faults import COMMANDS, BadFault
from binlog_server.sessions.faulty_session import CODES, FaultySession, new_session
from tests.binlog_server.lab import ROOT, Client, Lab, Replica, until
from tests.binlog_server.tls_client import TlsClient

ERROR = {"do": "error", "errno": 1236, "message": "as ordered"}
SAID = (1236, "as ordered")


async def refusal(lab: Lab) -> tuple[int, str]:
    with pytest.raises(RemoteError) as error:
        await lab.client()
    return error.value.errno, error.value.message


def order(lab: Lab, **table: Any) -> None:
    lab.server.faults.add([table])


async def test_a_connection_without_faults_is_as_ever() -> None:
    async with Lab() as lab:
        order(lab, do="cut", gtid="0-1-1")
        assert type(new_session(lab.server)) is not FaultySession, "that is one of streams"
        order(lab, do="cut", on="login")
        assert type(new_session(lab.server)) is FaultySession


async def test_an_error_at_each_step() -> None:
    async with Lab() as lab:
        order(lab, **ERROR, on="connect")
        client = await lab.connect()
        assert client.seen[0].payload[:3] == b"\xff" + SAID[0].to_bytes(2, "little")
        assert await client.closed()

        order(lab, **ERROR, on="login", account="somebody else")
        order(lab, **ERROR, on="login")
        assert await refusal(lab) == SAID

        order(lab, **ERROR, statement="set @Slave_connect")
        order(lab, **ERROR, on="register", server_id=7)
        order(lab, **ERROR, on="dump")
        client = await lab.client()
        with pytest.raises(RemoteError, match="as ordered"):
            await client.query("SET @slave_connect_state=''")
        await client.query("SET @slave_connect_state=''")  # once is once, and the connection lives
        client.command(RegisterSlave(7).build())
        assert await client.error() == SAID
        client.command(BinlogDump(7).build())
        assert await client.error() == SAID
        assert [met for _, met in lab.server.faults.met()] == [1, 0, 1, 1, 1, 1]


async def test_cuts_and_delays() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1")
        for fault in ({"do": "delay", "seconds": 0.01}, {"do": "cut"}):
            order(lab, **fault, on="dump")
        order(lab, do="delay", on="connect", seconds=0.01)
        order(lab, do="delay", on="login", seconds=0.01)
        order(lab, do="delay", statement="SET @mariadb_slave_capability", seconds=0.01)
        replica = Replica(await lab.client())
        await replica.start()
        assert await replica.client.closed()
        assert all(met == 1 for _, met in lab.server.faults.met())
        again = await lab.replica()
        await again.opening()
        assert await again.groups(1) == "0-1-1"


async def test_who_goes_in_a_delay_leaves_nothing() -> None:
    async with Lab(connect_timeout=2) as lab:  # nobody reads meanwhile: it is the time that ends it
        order(lab, do="delay", on="login", seconds=3600)
        client = await lab.connect()
        client.send(frame_packet(LoginRequest("repl", b"").build(), 1)[0])
        await until(lambda: lab.server.faults.met() == [("delay", 1)])
        client.close()
        await until(lambda: not len(lab.server.connections))


async def test_a_delay_ends_when_it_is_dropped() -> None:
    async with Lab() as lab:
        order(lab, name="late", do="delay", on="login", seconds=3600)
        order(lab, **ERROR, on="login")  # it comes behind the delay
        client = await lab.connect()
        client.send(frame_packet(LoginRequest("repl", b"").build(), 1)[0])
        await until(lambda: lab.server.faults.met()[0] == ("delay", 1))
        lab.server.faults.drop("late")
        assert await client.error() == SAID

        lab.server.faults.clear()
        order(lab, name="late", do="delay", command="COM_PING", seconds=3600)
        client = await lab.client()
        client.command(Ping().build())
        await until(lambda: lab.server.faults.met() == [("delay", 1)])
        lab.server.faults.drop("late")
        assert (await client.answer())[0] == 0


async def test_what_is_cleared_in_a_delay_does_not_come_behind_it() -> None:
    async with Lab() as lab:
        order(lab, do="delay", seconds=0.1, command="COM_PING", times=0)
        order(lab, **ERROR, command="COM_PING")
        client, other = await lab.client(), await lab.client()
        for one in (client, other):
            one.command(Ping().build())
        answers = [await one.answer() for one in (client, other)]
        assert sorted(one[0] for one in answers) == [0, 0xFF], "once is once"
        assert lab.server.faults.met() == [("delay", 2), ("error", 1)]
        order(lab, **ERROR, command="COM_PING")
        client.command(Ping().build())
        await until(lambda: lab.server.faults.met()[0] == ("delay", 3))
        lab.server.faults.clear()
        assert (await client.answer())[0] == 0


async def test_what_a_greeting_claims() -> None:
    async with Lab() as lab:
        order(lab, do="claim", on="connect", version="10.2.44-MariaDB", without="ssl, Compress")
        client = await lab.connect()
        assert client.greeting.server_version.endswith("10.2.44-MariaDB")
        lacking = Capability.SSL | Capability.COMPRESS
        assert not client.greeting.capabilities & lacking
        other = await lab.connect()
        assert other.greeting.capabilities & lacking == lacking
        assert other.greeting.server_version.endswith(lab.server.config.server_version)


async def test_tls_breaks_in_the_handshake_and_in_a_stream() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1,0-1-2")
        order(lab, do="break_tls", on="tls")
        client = await TlsClient.connect(lab.server.port)
        with pytest.raises(ssl.SSLError):
            await client.upgrade()
        order(lab, do="break_tls", gtid="0-1-2")
        client = await (await TlsClient.connect(lab.server.port)).upgrade()
        await client.log_in()
        replica = Replica(client)
        await replica.start()
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"
        with pytest.raises(ssl.SSLError):
            await replica.event()
        assert [met for _, met in lab.server.faults.met()] == [1, 1]


async def test_out_of_band_is_behind_the_first_statement_that_was_written_so() -> None:
    async with Lab(users=ROOT, binlog_cache_size=4096) as lab:
        order(lab, **ERROR, on="out_of_band", times=0)
        client = await lab.client("root", "pw")
        small = "CREATE DATABASE before_it"
        await client.query(small)
        await client.query("BEGIN")
        await client.query(f"INSERT INTO no.t VALUES ('{'x' * 20_000}')")
        for sql in ("INSERT INTO no.t VALUES (2)", "COMMIT"):
            with pytest.raises(RemoteError, match="as ordered"):
                await client.query(sql)
        lab.server.faults.clear()
        await client.query("ROLLBACK")
        order(lab, **ERROR, on="out_of_band")
        await client.query("SELECT 1")
        assert lab.server.faults.met() == [("error", 0)], "nothing is out of band any more"


async def test_a_death_inside_a_transaction_leaves_it_on_the_disk() -> None:
    async with Lab(users=ROOT, binlog_cache_size=4096) as lab:
        durable: list[bool] = []

        def die() -> None:
            lsn = engine.counters()
            durable.append(lsn["Innodb_lsn_current"] == lsn["Innodb_lsn_flushed"])

        engine = lab.server.engine
        lab.server.faults.die = die
        order(lab, do="die", on="out_of_band", account="root")
        client = await lab.client("root", "pw")
        before = lab.server.engine.binlog_state().position()
        await client.query("BEGIN")
        await client.query(f"INSERT INTO no.t VALUES ('{'x' * 20_000}')")
        assert not durable
        client.command(Query(b"COMMIT").build())
        assert await client.closed()
        assert durable == [True]
        assert lab.server.engine.binlog_state().position() == before


async def test_an_error_at_commands() -> None:
    async with Lab() as lab:
        for command, payload in (
            ("COM_PING", Ping().build()),
            ("COM_STATISTICS", StatisticsCommand().build()),
            ("COM_INIT_DB", InitDatabase("shop").build()),
            ("COM_STMT_PREPARE", StmtPrepare(b"SELECT 1").build()),
            ("COM_STMT_EXECUTE", StmtExecute(1, 0, b"").build()),
            ("COM_STMT_RESET", StmtReset(1).build()),
            ("COM_QUERY", Query(b"SELECT 1").build()),
        ):
            order(lab, **ERROR, command=command, account="somebody else", name="other")
            order(lab, **ERROR, command=command, name="one")
            client = await lab.client()
            client.command(payload)
            assert await client.error() == SAID, command
            assert [met for _, met in lab.server.faults.met()] == [0, 1]
            assert (await client.ask(Ping().build()))[:1] == b"\0", "the conversation goes on"
            lab.server.faults.clear()


def test_every_command_that_may_be_named_is_known_by_its_class() -> None:
    assert set(CODES.values()) == set(COMMANDS.values())


async def test_behind_a_prepare_that_failed_there_is_no_last_statement() -> None:
    async with Lab(binlog_faults=True) as lab:
        client = await lab.client()
        await client.ask(StmtPrepare(b"SET @a = 1").build())
        order(lab, **ERROR, command="COM_STMT_PREPARE", connection=await number(client))
        client.command(StmtPrepare(b"SET @a = 2").build())
        client.command(StmtExecute(LAST_PREPARED, 0, b"\1\0\0\0").build())
        assert await client.error() == SAID
        assert (await client.error())[0] == 1243


async def test_a_fault_for_one_client_that_is_there() -> None:
    async with Lab(binlog_faults=True) as lab:
        lab.publish("0-1-1")
        replica, other = Replica(await lab.client()), await lab.client()
        mine = await number(replica.client)
        order(lab, **ERROR, statement="SELECT", connection=mine)
        order(lab, **ERROR, command="COM_PING", connection=mine)
        order(lab, do="cut", gtid="0-1-1", connection=mine)
        assert await other.query("SELECT 1") == [["1"]]
        assert (await other.ask(Ping().build()))[:1] == b"\0"
        with pytest.raises(RemoteError, match="as ordered"):
            await replica.client.query("SELECT 1")
        replica.client.command(Ping().build())
        assert await replica.client.error() == SAID
        await replica.start()
        await replica.opening()
        assert await replica.client.closed()
        assert [met for _, met in lab.server.faults.met()] == [1, 1, 1]


async def test_a_fault_for_a_client_that_is_not_there_is_refused() -> None:
    async with Lab(binlog_faults=True) as lab:
        with pytest.raises(BadFault, match="there is no 99"):
            order(lab, do="cut", gtid="0-1-1", connection=99)


async def test_who_is_there_has_the_faults_of_all() -> None:
    async with Lab(binlog_faults=True, users=ROOT) as lab:
        client = await lab.client("root", "pw")
        assert await client.query("SELECT 1") == [["1"]]
        order(lab, **ERROR, statement="SELECT 2")
        assert await client.query("SELECT 1") == [["1"]]
        with pytest.raises(RemoteError, match="as ordered"):
            await client.query("SELECT 2")
        order(lab, do="claim", on="connect", version="10.2.44-MariaDB")
        order(lab, do="cut", command="COM_QUERY", times=0)
        await client.query("SHOW BINLOG FAULTS")
        await client.query(" drop ALL binlog faults")  # else nobody could, any more
        assert await client.query("SELECT 2") == [["2"]]


async def number(client: Client) -> int:
    ((found,),) = await client.query("SELECT CONNECTION_ID()")
    return int(found or 0)
