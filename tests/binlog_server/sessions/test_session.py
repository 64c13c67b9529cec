"""One client on one socket: login, commands, and what is not allowed."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from typing import Any, Final

import pytest
from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    FieldList,
    InitDatabase,
    Ping,
    ProcessInfo,
    Query,
    Quit,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    StatisticsCommand,
)
from binlog_protocol.connection.handshake import LoginRequest
from binlog_protocol.errors import RemoteError
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.packets import PacketReader, frame_packet
from binlog_protocol.wire.results import Column

from binlog_server.accounts.users import Account
from binlog_server.connections import channel as channel_module
from binlog_server.connections.channel import ANSWER_BUFFER_BYTES
from binlog_server.process.logs import FORMATS, JsonFormatter, TextFormatter
from binlog_server.sessions import conversation as conversation_module
from binlog_server.sessions.host import new_salt
from tests.binlog_server.lab import PASSWORD, ROOT, USER, Client, Lab, Replica, until
from tests.binlog_server.transport import Held


@pytest.mark.parametrize(("user", "password"), [(USER, PASSWORD), ("open", "")])
@pytest.mark.parametrize("switched", [False, True])
async def test_login(lab: Lab, user: str, password: str, switched: bool) -> None:
    client = await lab.connect()
    if not switched:
        answer = await client.log_in(user, password)
    else:
        request = await client.log_in(user, plugin="client_ed25519")
        assert request.startswith(b"\xfemysql_native_password\0")
        salt = request[len(b"\xfemysql_native_password\0") : -1]
        answer = await switch(client, salt, password)
    assert answer[:1] == b"\0"
    # The client, and the account that it was taken for.
    assert await client.query("SELECT USER(), CURRENT_USER(), CURRENT_USER") == [
        [f"{user}@127.0.0.1", f"{user}@%", f"{user}@%"]
    ]


async def switch(client: Client, salt: bytes, password: str) -> bytes:
    client.send(frame_packet(native_password_scramble(password, salt), 3)[0])
    return await client.answer()


DENIED = [
    (USER, "wrong", "YES"),
    (USER, "", "NO"),
    ("nobody", PASSWORD, "YES"),
    ("nobody", "", "NO"),
    ("open", "something", "YES"),
    ("", "", "NO"),
]


@pytest.mark.parametrize(("user", "password", "using"), DENIED)
async def test_login_denied(
    lab: Lab, caplog: pytest.LogCaptureFixture, user: str, password: str, using: str
) -> None:
    caplog.set_level(logging.INFO)
    client = await lab.connect()
    client.seen.clear()
    payload = await client.log_in(user, password)
    assert payload == (
        b"\xff\x15\x04#28000"
        + f"Access denied for user '{user}'@'127.0.0.1' (using password: {using})".encode()
    )
    assert await client.closed()
    assert len([r for r in caplog.records if "refused" in r.message]) == 1
    if password:
        assert password not in caplog.text


async def test_wrong_answer_to_the_switch(lab: Lab) -> None:
    client = await lab.connect()
    await client.log_in(USER, plugin="client_ed25519")
    client.send(frame_packet(b"x" * 20, 3)[0])
    assert (await client.error())[0] == 1045
    assert await client.closed()


def test_salts_differ_and_have_no_nul() -> None:
    salts = {new_salt() for _ in range(100)}
    assert len(salts) == 100
    assert all(len(salt) == 20 and 0 not in salt for salt in salts)


BEFORE_LOGIN = {
    "a query": frame_packet(Query("SELECT 1").build(), 0)[0],
    "a dump": frame_packet(BinlogDump(5).build(), 1)[0],
    "a packet of 16 MB": b"\xff\xff\xff\x01" + b"x" * 100,
    "a packet of 1 MB": b"\x00\x00\x10\x01",
    "garbage": bytes(range(256)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "TLS": bytes.fromhex("160301020001"),
    "an empty packet": b"\0\0\0\1",
    "the protocol of 3.23": frame_packet(b"\x05\x24\x00\x00\x00repl\0", 1)[0],
    "login and command together": None,
}


@pytest.mark.parametrize("what", BEFORE_LOGIN)
async def test_before_login(lab: Lab, caplog: pytest.LogCaptureFixture, what: str) -> None:
    """A clear error or a closed socket, one line in the log, and the server goes on."""
    client = await lab.connect()
    data = BEFORE_LOGIN[what]
    if data is None:
        wrong = LoginRequest("nobody", b"x" * 20).build()
        data = frame_packet(wrong, 1)[0] + frame_packet(Query("SELECT 1").build(), 0)[0]
    client.send(data)
    payload = await client.packet()
    assert payload is None or payload[:1] == b"\xff"
    assert await client.closed()
    lines = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.levelname for r in lines] == ["WARNING"]
    assert "Traceback" not in caplog.text
    assert await (await lab.client()).query("SELECT 1") == [["1"]]


async def test_announced_packet_is_not_buffered(lab: Lab) -> None:
    held = Held(lab.server)
    held.receive(b"\xff\xff\xff\x01" + b"x" * 200_000)
    assert held.transport.closing
    assert held.session._machine._reader.buffered == 0
    held.receive(b"x" * 200_000)
    assert held.session._machine._reader.buffered == 0
    held.end()


async def test_small_packets_before_login_are_not_collected(lab: Lab) -> None:
    held = Held(lab.server)
    login = LoginRequest(USER, b"x", plugin="other").build()
    held.receive(frame_packet(login, 1)[0])
    for _ in range(1000):
        held.receive(b"\x00\x40\x00\x03" + b"x" * 100)
        assert held.session._machine._reader.buffered < 40_000
        if held.transport.closing:
            break
    assert held.transport.closing
    held.end()


async def test_half_a_login_is_not_waited_for() -> None:
    async with Lab(connect_timeout=2) as lab:
        client = await lab.connect()
        client.send(b"\x50\0\0\1" + b"x" * 10)
        assert await client.closed()
        assert len(lab.server.connections) == 0


async def test_connect_timeout_ends_with_the_login(lab: Lab) -> None:
    held = Held(lab.server)
    timer = held.session._login_timer
    assert timer is not None
    assert not timer.cancelled()
    held.log_in()
    assert timer.cancelled()
    held.end()


COMMANDS = {
    "ping": (Ping().build(), b"\0\0\0\2\0\0\0"),
    "init db": (InitDatabase("mysql").build(), b"\0\0\0\2\0\0\0"),
    "set option": (SetOption(0).build(), b"\xfe\0\0\2\0"),
    "reset": (ResetConnection().build(), b"\0\0\0\2\0\0\0"),
    "register": (RegisterSlave(5, "host", port=3306).build(), b"\0\0\0\2\0\0\0"),
    "unknown": (b"\xaa", b"\xff\x17\x04#08S01Unknown command"),
    "change user cut short": (b"\x11x", b"\xff\x17\x04#08S01Unknown command"),
    "dump cut short": (b"\x12\0\0", b"\xff\x2b\x07#HY000Malformed communication packet"),
    "register cut short": (
        b"\x15\0\0",
        b"\xff\x51\x04#HY000Wrong parameters to function register_slave",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_commands(lab: Lab, name: str) -> None:
    command, expected = COMMANDS[name]
    client = await lab.client()
    assert await client.ask(command) == expected
    assert await client.query("SELECT 1") == [["1"]]


async def test_refresh_is_a_flush() -> None:
    admin = Account(PASSWORD, frozenset({"RELOAD"}))
    async with Lab(users={USER: admin}) as lab:
        client = await lab.client()
        assert await client.ask(Refresh(7).build()) == b"\0\0\0\2\0\0\0"


async def test_statistics(lab: Lab) -> None:
    client = await lab.client()
    assert (await client.ask(StatisticsCommand().build())).startswith(b"Uptime: ")


async def test_process_info_is_the_process_list(lab: Lab) -> None:
    client = await lab.client()
    columns = await client.ask(ProcessInfo().build())
    assert columns == b"\x09"


async def test_fields_are_those_that_a_select_would_have(lab: Lab) -> None:
    """In the session's character set, and of the names that are asked for."""
    client = await lab.client()
    await client.query("USE information_schema")
    await client.query("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci")
    names, lengths = [], []
    packet = await client.ask(FieldList("ENGINES", "S%").build())
    while packet[:1] != b"\xfe":
        column = Column.parse(packet)
        names.append(column.name)
        lengths.append(column.length)
        packet = await client.answer()
    assert (names, lengths) == (["SUPPORT", "SAVEPOINTS"], [32, 12])


async def test_quit_closes(lab: Lab) -> None:
    client = await lab.client()
    client.command(Quit().build())
    assert await client.closed()
    await until(lambda: len(lab.server.connections) == 0)


async def test_an_empty_packet_is_an_unknown_command(lab: Lab) -> None:
    client = await lab.client()
    client.send(b"\0\0\0\0")
    assert await client.error() == (1047, "Unknown command")
    await client.query("SELECT 1")


async def test_wrong_sequence_number(lab: Lab) -> None:
    client = await lab.client()
    client.send(frame_packet(Ping().build(), 5)[0])
    assert await client.error() == (1156, "Got packets out of order")
    assert await client.closed()


async def test_command_beyond_max_allowed_packet(lab: Lab) -> None:
    client = await lab.client()
    client.send(b"\xff\xff\xff\0" + b"x" * 0xFFFFFF + b"\xff\xff\xff\1")
    assert await client.error() == (1153, "Got a packet bigger than 'max_allowed_packet' bytes")
    assert await client.closed()


@pytest.mark.parametrize("start", [b"insert into t values ('", b"select 1 /*"])
async def test_number_of_the_error_to_a_command_that_is_too_large(start: bytes) -> None:
    """One more than that of the packet, as of each answer. The largest command is one byte smaller than the limit."""
    async with Lab(max_allowed_packet=2000) as lab:
        client = await lab.client()
        largest = Query("x").build()[:1] + start.ljust(1998, b"x")
        assert (await client.ask(largest))[1:3] != (1153).to_bytes(2, "little")
        client.seen.clear()
        client.command(largest + b"x")
        assert (await client.error())[0] == 1153
        assert [packet.seq for packet in client.seen] == [1]
        assert await client.closed()


async def test_long_statement_is_refused(lab: Lab) -> None:
    client = await lab.client()
    for begin, number in (("SELECT", "1235"), ("SHUTDOWN", "1064")):
        with pytest.raises(RemoteError, match=number):
            await client.query(f"{begin} '" + "x" * (1 << 20) + "'")
    assert await client.query("SELECT 1") == [["1"]]


async def test_pipelined_commands_are_answered_in_order(lab: Lab) -> None:
    client = await lab.client()
    client.send(b"".join(frame_packet(Query(f"SELECT {n}").build(), 0)[0] for n in range(50)))
    answers = []
    for _ in range(50):
        packets = [await client.answer() for _ in range(5)]
        answers.append(int(packets[3][1:]))
    assert answers == list(range(50))


class Hasty:
    """A client in a thread, that says the next thing as soon as it is answered."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        transport: Any = client.writer.transport
        transport.pause_reading()
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.settimeout(30)
        self._packets = PacketReader(1 << 20)
        self._rng = rng
        self.inserted = 0

    def talk(self) -> None:
        """What it says comes whole, in two pieces, or with the next one behind it."""
        for _ in range(300):
            asked = self._rng.choices(["insert", "select", "ping"], [20, 1, 1], k=1)
            if self._rng.random() < 0.05:
                asked += self._rng.choices(["insert", "select"], k=2)
            data = b"".join(frame_packet(SAID[what], 0)[0] for what in asked)
            at = self._rng.choice([0, 0, 0, 3, 7, len(data) - 1])
            for part in (data[:at], data[at:]):
                self._socket.sendall(part)
            for what in asked:
                answers = [self._packet() for _ in range(5 if what == "select" else 1)]
                assert (answers[3] == b"\x017") if what == "select" else answers[0][0] == 0, what
                self.inserted += what == "insert"
        self._socket.close()

    def _packet(self) -> bytes:
        while (packet := self._packets.next_packet()) is None:
            self._packets.feed(self._socket.recv(1 << 16))
        return bytes(packet.payload)


SAID: Final = {
    "insert": Query("INSERT INTO t VALUES (1)").build(),
    "select": Query("SELECT 7").build(),
    "ping": b"\x0e",
}


async def test_a_client_that_goes_on_at_once(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served without a turn of the loop, for a while: in order, and nothing of what it says is lost."""
    monkeypatch.setattr(channel_module, "_SOON_S", 0.01)
    monkeypatch.setattr(conversation_module, "_AT_ONCE_S", 10.0)
    read: list[bytes | None] = []
    read_soon = channel_module.Channel.read_soon

    def spied(channel: channel_module.Channel) -> bytes | None:
        read.append(read_soon(channel))
        return read[-1]

    monkeypatch.setattr(channel_module.Channel, "read_soon", spied)
    async with Lab(users=ROOT) as lab:
        client = await lab.root()
        lab.server.syncer._sync_s = 0.0
        hasty = Hasty(client, rng)
        await asyncio.to_thread(hasty.talk)
        assert sum(data is not None for data in read) > 20
        (last,) = lab.engine.binlog_state().entries()
        assert last.seq_no == hasty.inserted
        other = await lab.root()
        read.clear()
        assert await other.query("INSERT INTO t VALUES (2)") == []
        assert not read, "there are two"


async def test_bytes_that_come_one_by_one(lab: Lab) -> None:
    held = Held(lab.server)
    held.log_in()
    for byte in frame_packet(Query("SELECT 7").build(), 0)[0]:
        assert held.packets() == []
        held.receive(bytes((byte,)))
    assert [p.payload for p in held.packets()][3] == b"\x017"
    held.end()


async def test_bytes_that_are_no_utf8(lab: Lab) -> None:
    held = Held(lab.server)
    held.log_in()
    held.ask(
        Query("SET NAMES utf8mb4").build()
    )  # in latin1, with which it logs in, they are two letters
    answer = held.ask(b"\x03SELECT '\xff\xfe'")
    assert answer[0] == b"\1"
    assert b"\x02??" in answer[1]
    assert answer[3] == b"\2\xff\xfe"
    assert held.ask(b"\x03\xff")[0].startswith(b"\xff\x28\x04")
    held.end()


MYSQL_SET = (1).to_bytes(8, "little") + bytes(16) + (1).to_bytes(8, "little") + bytes(16)


async def test_dump_gtid_with_mariadb_text(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    client = await lab.client()
    position = SlavePosition.parse("0-1-1")
    client.command(BinlogDumpGtid(50, 2, gtid_list=str(position)).build())
    replica = Replica(client)
    await replica.opening()
    assert (await replica.event())[4] == 163
    assert await replica.groups(1) == "0-1-2"


async def test_dump_gtid_with_a_mysql_set(lab: Lab) -> None:
    client = await lab.client()
    head = BinlogDumpGtid(50).build()[:-4]
    client.command(head + len(MYSQL_SET).to_bytes(4, "little") + MYSQL_SET)
    errno, text = await client.error()
    assert errno == 1236
    assert "MySQL GTID set" in text


MANY_GTIDS = ",".join(f"{domain}-1-1234567890" for domain in range(1000))  # 16,889 bytes
REFUSED_DUMPS = {
    "no position": ({}, 4246),
    "no capability": ({"slave_connect_state": "''"}, 1236),
    "old capability": ({"slave_connect_state": "''", "mariadb_slave_capability": "3"}, 1236),
    "malformed position": (
        {"slave_connect_state": "'0-1'", "mariadb_slave_capability": "4"},
        1941,
    ),
    "two of a domain": (
        {"slave_connect_state": "'0-1-2,0-1-3'", "mariadb_slave_capability": "4"},
        1943,
    ),
    "malformed until": (
        {
            "slave_connect_state": "''",
            "mariadb_slave_capability": "4",
            "slave_until_gtid": "'x'",
        },
        1941,
    ),
    "too long a position": (  # a replica stops at this error alone
        {"slave_connect_state": f"'{MANY_GTIDS}'", "mariadb_slave_capability": "4"},
        1236,
    ),
    "too long an until": (
        {
            "slave_connect_state": "''",
            "mariadb_slave_capability": "4",
            "slave_until_gtid": f"'{MANY_GTIDS}'",
        },
        1236,
    ),
    "NULL is no position": ({"slave_connect_state": "NULL"}, 4246),
}


@pytest.mark.parametrize("name", REFUSED_DUMPS)
async def test_refused_dumps(lab: Lab, name: str) -> None:
    variables, errno = REFUSED_DUMPS[name]
    client = await lab.client()
    for variable, value in variables.items():
        await client.query(f"SET @{variable}={value}")
    client.command(BinlogDump(5, file="binlog.000001", position=400).build())
    assert (await client.error())[0] == errno
    assert await client.closed()


async def test_max_connections() -> None:
    async with Lab(max_connections=10, users={**ROOT, USER: PASSWORD}) as lab:
        clients = [await lab.client() for _ in range(10)]
        one_more = await lab.connect()
        assert await one_more.log_in() == b"\xff\x10\x04#08004Too many connections"
        assert await one_more.closed()
        (await lab.root()).close()  # who is to mend it gets in
        clients[0].close()
        await until(lambda: len(lab.server.connections) == 9)
        assert await (await lab.client()).query("SELECT 1") == [["1"]]


async def test_client_that_does_not_read_is_paused(lab: Lab) -> None:
    """Both the commands that have come and those that would come wait; all are answered in the end."""
    held = Held(lab.server)
    held.log_in()
    text = "x" * 60_000
    await held.ask_long(Query(f"SET @a='{text}'").build())
    held.transport.take()
    count = 200
    held.session.data_received(frame_packet(Query("SELECT @a").build(), 0)[0] * count)
    assert not held.transport.reading
    await until(lambda: held.transport.held > ANSWER_BUFFER_BYTES)
    answered = 0
    while answered < count:
        assert held.transport.held < ANSWER_BUFFER_BYTES + 2 * len(text)
        answered += sum(len(packet.payload) > len(text) for packet in held.packets())
        held.transport.take()
        await asyncio.sleep(0)
    assert answered == count
    await until(lambda: held.transport.reading)
    held.end()


async def test_bad_packet_behind_a_pause_is_told(lab: Lab) -> None:
    held = Held(lab.server)
    held.log_in()
    await held.ask_long(Query(f"SET @a='{'x' * 60_000}'").build())
    bad = frame_packet(Ping().build(), 9)[0]
    held.session.data_received(frame_packet(Query("SELECT @a").build(), 0)[0] * 12 + bad)
    assert not held.transport.closing
    while not held.transport.closing:
        held.transport.take()
        await asyncio.sleep(0)
    assert held.packets()[-1].payload[:3] == b"\xff\x84\x04"
    held.end()


async def test_kill(lab: Lab) -> None:
    victim, admin = await lab.client(), await lab.client()
    ((number,),) = await victim.query("SELECT CONNECTION_ID()")
    assert await admin.query(f"KILL QUERY {number}") == []
    assert await victim.query("SELECT 1") == [["1"]]
    assert await admin.query(f"KILL {number}") == []
    assert await victim.closed()
    with pytest.raises(RemoteError, match=f"1094 .*Unknown thread id: {number}"):
        await admin.query(f"KILL {number}")
    assert await admin.query("SELECT 1") == [["1"]]


async def test_processlist_and_slave_hosts(lab: Lab) -> None:
    client, waiting = await lab.client(), await lab.connect()
    await client.ask(RegisterSlave(77, "the-host", port=3307).build())
    assert await client.query("SHOW SLAVE HOSTS") == [["77", "the-host", "3307", "1"]]
    rows = await client.query("SHOW FULL PROCESSLIST")
    assert [row[1] for row in rows] == [USER]  # without PROCESS one sees one's own
    waiting.close()
    await until(lambda: len(lab.server.connections) == 1)
    assert len(await client.query("SHOW PROCESSLIST")) == 1


async def test_processlist_shows_what_runs(lab: Lab) -> None:
    client, other = await lab.client(), await lab.client()
    await client.query("USE shop")
    long = f"SHOW /* {'x' * 200} */ PROCESSLIST"
    (mine, its) = await client.query(long)
    assert mine[3:5] == ["shop", "Query"]
    assert mine[6:8] == ["starting", long[:100]]
    assert its[3:5] == [None, "Sleep"]
    assert its[6:8] == ["", None]
    full = "SHOW FULL /* password 'secret' */ PROCESSLIST"
    (mine, _) = await client.query(full)
    assert mine[7] == "SHOW FULL /* pas..."
    ((_, *its), mine) = await other.query("SHOW PROCESSLIST")
    assert its[3] == "Sleep", "its statement is over"


async def test_reset_forgets_the_position(lab: Lab) -> None:
    client = await lab.client()
    await client.query("SET @slave_connect_state='', @mariadb_slave_capability=4")
    await client.ask(ResetConnection().build())
    client.command(BinlogDump(5).build())
    assert (await client.error())[0] == 4246


@pytest.mark.parametrize("log_format", FORMATS)
async def test_a_line_of_the_log_is_one_line(
    lab: Lab, caplog: pytest.LogCaptureFixture, log_format: str
) -> None:
    client = await lab.connect()
    await client.log_in("x\n2026-01-01 ERROR forged\x1b[31m", "wrong")
    assert await client.closed()
    formatter = TextFormatter() if log_format == "text" else JsonFormatter()
    texts = [formatter.format(record) for record in caplog.records]
    assert any("forged" in text for text in texts)
    assert all(text.isprintable() for text in texts), texts


@pytest.mark.parametrize(
    "sql",
    [
        "PURGE BINARY LOGS BEFORE '2000-01-01'",
        "FLUSH BINARY LOGS",
        "SET GLOBAL max_connections=100, @a=1",
        "SET STATEMENT max_statement_time=9 FOR FLUSH TABLES",
        "CREATE BINLOG LEASE etl FOR 1 HOUR",
        "STOP SLAVE",
        "KILL 4711",
        "RESET MASTER",
    ],
)
async def test_the_log_tells_who_changes_the_server(
    sql: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Lab(users=ROOT) as lab:
        client = await lab.root()
        client.command(Query(sql).build())
        await client.answer()
        (connection,) = lab.server.connections
        assert f"connection 1 from {connection.address} (root): {sql}" in caplog.text


async def test_of_accounts_it_tells_no_password_and_of_looks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Lab(users=ROOT) as lab:
        client = await lab.root()
        for sql in (
            "CREATE USER ann IDENTIFIED BY 'geheim'",
            "SELECT @@max_connections",
            "SHOW BINARY LOGS",
            "SET @a=1, max_statement_time=3",
            "EXPLAIN PURGE",
            "INSERT INTO t VALUES (1)",
        ):
            client.command(Query(sql).build())
            await client.answer()
    told = [r.getMessage() for r in caplog.records if "(root)" in r.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("(root): CREATE USER: 'ann'@'%'")
    assert "geheim" not in caplog.text
