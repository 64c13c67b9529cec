"""A session that is sent anything, in each of its states: an answer or the end, soon and bounded; never a bug.

Input is chance, and conversations with a few bytes changed. A bug would be an exception out of `data_received`, a task
that failed, or a line of the log with a traceback. Statements of half a megabyte that would take hours if they were
not linear have the time of a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest
from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    InitDatabase,
    Ping,
    Query,
    RegisterSlave,
)
from binlog_protocol.connection.handshake import (
    REPLICA_CAPABILITIES,
    Capability,
    Greeting,
    LoginRequest,
    TlsRequest,
)
from binlog_protocol.wire.compressed import compressed, framed
from binlog_protocol.wire.packets import frame_packet

from binlog_server.accounts.users import Account
from binlog_server.app.app import Server
from tests.binlog_server.lab import PASSWORD, USER, Lab, until
from tests.binlog_server.tls_client import client_context
from tests.binlog_server.transport import Held

ROUNDS = 150
MEMORY_MAX = 32 << 20  # of one session, whatever it is sent

COMMANDS = [
    Query("SELECT 1").build(),
    Query("SHOW VARIABLES LIKE 'server_id'").build(),
    Query("SET @mariadb_slave_capability=4, @slave_connect_state='0-1-1'").build(),
    Query("INSERT INTO t VALUES (1)").build(),
    Query("BEGIN").build(),
    Query("CREATE USER a IDENTIFIED BY 'x'").build(),
    Query("SHOW BINLOG EVENTS").build(),
    Query("CHANGE MASTER TO MASTER_HOST='h'").build(),
    RegisterSlave(5, "host", port=3306).build(),
    InitDatabase("d").build(),
    Ping().build(),
    BinlogDump(5, 2).build(),
    BinlogDumpGtid(50, 2, gtid_list="0-1-1").build(),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, dropped or doubled, or nothing at all."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = chance.randbytes(1)
            case 1:
                del changed[at : at + chance.randrange(1, 20)]
            case 2:
                changed[at:at] = changed[at : at + 20]
            case _:
                changed[at:at] = chance.randbytes(chance.randrange(1, 20))
    return bytes(changed)


def packets(chance: random.Random) -> bytes:
    """Some commands, sent together."""
    chosen = (chance.choice(COMMANDS) for _ in range(chance.randrange(1, 5)))
    return b"".join(frame_packet(payload, 0)[0] for payload in chosen)


def before_login(held: Held, chance: random.Random) -> bytes:
    login = LoginRequest(USER, chance.randbytes(20), database=chance.choice([None, "d"]))
    return frame_packet(login.build(), 1)[0]


def switching(held: Held, chance: random.Random) -> bytes:
    login = LoginRequest(USER, b"x", plugin="something")
    held.receive(frame_packet(login.build(), 1)[0])
    return frame_packet(chance.randbytes(20), 3)[0]


def tls_handshake(held: Held, chance: random.Random) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    held.receive(frame_packet(TlsRequest().build(), 1)[0])
    return outgoing.read()


def ready(held: Held, chance: random.Random) -> bytes:
    held.log_in()
    return packets(chance)


def dumping(held: Held, chance: random.Random) -> bytes:
    held.log_in()
    held.ask(COMMANDS[2])
    held.receive(frame_packet(BinlogDump(5, 2).build(), 0)[0])
    return packets(chance)


def in_compressed_packets(held: Held, chance: random.Random) -> bytes:
    (greeting,) = held.packets()
    salt = Greeting.parse(greeting.payload).salt
    login = LoginRequest(
        USER,
        native_password_scramble(PASSWORD, salt),
        capabilities=REPLICA_CAPABILITIES | Capability.COMPRESS,
    )
    held.receive(frame_packet(login.build(), 1)[0])
    inside = packets(chance)
    if chance.random() < 0.5:
        inside = mutated(inside, chance)
    return framed(compressed(inside), 0)[0]


STATES: list[Callable[[Held, random.Random], bytes]] = [
    before_login,
    switching,
    tls_handshake,
    ready,
    dumping,
    in_compressed_packets,
]


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Server]:
    """With one account that may do everything. Any task that fails is a bug, and any error in the log."""
    # Not the lines about clients: they quote what xdist cannot send to its master.
    caplog.set_level(logging.ERROR, "binlog_server")
    bugs: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
    users = {USER: Account(PASSWORD, frozenset({"ALL PRIVILEGES"}))}
    async with Lab(users=users, max_connect_errors=10**6) as lab:
        lab.publish("0-1-1,0-1-2")
        yield lab.server
    assert not bugs
    assert not caplog.records


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_anything_in_each_state(
    state: Callable[[Held, random.Random], bytes], server: Server, rng: random.Random
) -> None:
    for _ in range(ROUNDS):
        held = Held(server)
        data = state(held, rng)
        data = mutated(data, rng) if rng.random() < 0.8 else rng.randbytes(rng.randrange(300))
        step = rng.choice([1, 7, 100, 10_000])
        for start in range(0, len(data), step):
            held.transport.protocol.data_received(data[start : start + step])
        await asyncio.sleep(0)
        held.transport.take()
        assert held.session._machine.buffered < 1 << 20
        held.transport.protocol.connection_lost(None)
        await asyncio.sleep(0)
    assert len(server.connections) == 0
    held = Held(server)
    held.log_in()
    assert held.ask(Query("SELECT 1").build())[-2] == b"\x011"
    held.end()


N = 500_000
STATEMENTS = {
    "parentheses": "SELECT " + "(" * N,
    "pairs of parentheses": "SELECT " + "(" * N + "1" + ")" * N,
    "parentheses in SET": "SET @a=" + "(" * N,
    "parentheses that are committed": "INSERT INTO t VALUES " + "(" * N,
    "a string without end": "SELECT '" + "x" * N,
    "backslashes": "SELECT '" + "\\" * N,
    "quotes": "SELECT " + "'" * (N + 1),
    "quotes of all kinds": "SELECT " + "'\"`" * (N // 3),
    "quotes that are committed": "INSERT INTO t VALUES ('" + "\\'" * N,
    "comments that begin": "/*" * N,
    "a comment without end": "/*" + "*" * N,
    "empty comments": "/**/" * N,
    "versions in comments": "/*!50000 " * N,
    "comments to the end of the line": "-- x\n#\n" * N,
    "comments that are committed": "INSERT INTO t VALUES " + "/*" * N,
    "blanks": " " * N + "x",
    "blanks behind a word": "BEGIN" + " " * N + "x",
    "blanks between words": "SET" + " " * N + "PASSWORD" + " " * N,
    "semicolons": ";" * N + "x",
    "assignments": "SET @a=1" + ",@a=1" * N,
    "passwords": "SET PASSWORD = PASSWORD('" * N,
    "accounts": "CREATE USER " + "a@b," * N,
    "secrets": "IDENTIFIED BY " * N,
    "masters": "CHANGE MASTER TO " + "MASTER_PASSWORD='" * N,
    "conditions": "SHOW VARIABLES WHERE " + "Variable_name='a' OR " * N,
    "conditions within conditions": "SHOW VARIABLES WHERE " + "(" * N,
    "negations": "SHOW VARIABLES WHERE " + "NOT " * N,
    "statements in statements": "SET STATEMENT a=1 FOR " * N,
    "blocks": "BEGIN NOT ATOMIC " * N,
    "digits": "KILL " + "9" * N,
    "a long name": "USE `" + "x" * N,
    "percent signs": "SHOW VARIABLES LIKE '" + "%" * 60_000 + "x'",
    "percent signs and letters": "SHOW VARIABLES LIKE '" + "%a" * 30_000 + "'",
    "backslashes in a pattern": "SHOW VARIABLES LIKE '" + "\\\\%" * 20_000 + "'",
    "domains": "SET @slave_connect_state='" + ",".join(f"{n}-1-1" for n in range(N // 8)) + "'",
    "bytes of no charset": "SELECT '" + "\udcff" * N + "'",
    "NUL": "\0" * N + "x",
}


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("what", STATEMENTS)
async def test_statements_take_linear_time(what: str, server: Server) -> None:
    held = Held(server)
    held.log_in()
    held.transport.written.clear()
    text = STATEMENTS[what].encode("utf-8", "surrogateescape")
    held.receive(frame_packet(Query(text).build(), 0)[0])
    await until(lambda: bool(held.transport.written), 30)
    held.end()


@pytest.mark.parametrize("count", [1000, 100_000])
async def test_huge_gtid_lists_in_a_dump_request(count: int, server: Server) -> None:
    """By text, as MariaDB's clients never send it, and as a set of MySQL's."""
    text = ",".join(f"{n}-1-1" for n in range(count)).encode()
    sets = count.to_bytes(8, "little") + (bytes(16) + bytes(8)) * count
    for body in (text, sets, (2**60).to_bytes(8, "little") + bytes(1000)):
        held = Held(server)
        held.log_in()
        command = BinlogDumpGtid(50, 2, gtid_list="").build()
        head = command[: 1 + 2 + 4 + 4 + 8]
        payload = head + len(body).to_bytes(4, "little") + body
        held.receive(frame_packet(payload, 0)[0])
        await asyncio.sleep(0)
        held.end()
    assert len(server.connections) == 0


async def test_memory_of_one_session_is_bounded(server: Server, rng: random.Random) -> None:
    """Sixty-four megabytes of anything, in the states before and behind the login, of which little may stay."""
    chunk = rng.randbytes(1 << 16)
    for state in (before_login, ready, dumping, in_compressed_packets):
        held = Held(server)
        state(held, rng)
        held.transport.written.clear()
        tracemalloc.start()
        try:
            for _ in range(1024):
                held.transport.protocol.data_received(b"\xf0\xff\x0e\0" + chunk)
            assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
        finally:
            tracemalloc.stop()
        held.end()
