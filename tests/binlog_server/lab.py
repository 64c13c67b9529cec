"""A server of these tests: the real one, on a store in memory, on a port of the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest.mock import patch

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import BinlogDump, Query, RegisterSlave
from binlog_protocol.connection.handshake import Greeting, LoginRequest
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet
from binlog_protocol.wire.results import parse_column_count, parse_error, parse_row
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import BinlogEngine
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.app.app import Server
from binlog_server.sessions import session
from binlog_server.settings.config import Config
from binlog_server.store.store_directory import StoreDirectory
from tests.protocol.statement_groups import transaction_group

USER, PASSWORD = "repl", "secret"
REPLICA_AND_WATCHER = frozenset({"REPLICATION SLAVE", "BINLOG MONITOR", "SLAVE MONITOR"})
ROOT = {"root": Account("pw", frozenset({ALL_PRIVILEGES}))}
"""An account that may do everything, for the `users` of a `Lab`."""
WITH_ROOT = {**ROOT, USER: Account(PASSWORD, REPLICA_AND_WATCHER)}
DEADLINE_S = 30.0
"""Nothing is to take so long: a bound for what hangs, on a machine that is busy with other things."""
STORE = StoreOptions(
    max_binlog_size=1 << 20, innodb_log_file_size=2 << 20
)  # files are made in full size, in memory, too

T = TypeVar("T")


async def within(awaitable: Awaitable[T], seconds: float = DEADLINE_S) -> T:
    """The result; a test that would hang fails instead."""
    async with asyncio.timeout(seconds):
        return await awaitable


async def until(true: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    """Give others their turn until `true()`."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - of conditions that nobody tells
            await asyncio.sleep(0)


class ShortTurn:
    """In the place of a session's `Turn`: over before it begins, so that the session rests for a round, once."""

    rested = 0

    @property
    def is_over(self) -> bool:
        ShortTurn.rested += 1
        return ShortTurn.rested == 1


@contextlib.contextmanager
def next_turn_over() -> Iterator[None]:
    """The next turn of a session ends before it begins, as it may on a machine that has much to do."""
    ShortTurn.rested = 0
    with patch.object(session, "Turn", ShortTurn):
        yield
    assert ShortTurn.rested > 1, "there was no turn after it"


def transaction(gtid: Gtid, text: str = "INSERT INTO t VALUES (1)") -> bytes:
    """A small group in normal form."""
    return transaction_group(
        gtid, [text], xid=gtid.seq_no, database="test", timestamp=1_700_000_000
    )


def gtids(text: str) -> list[Gtid]:
    return [Gtid.parse(part) for part in text.split(",")] if text else []


def fill(engine: BinlogEngine, history: Iterable[Gtid]) -> None:
    """A small group for each, durable."""
    for gtid in history:
        engine.append(transaction(gtid), gtid)
    engine.sync()


class MemoryDirectory(StoreDirectory):
    """A directory that is ours, without a file."""

    def __init__(
        self, engine: BinlogEngine | None = None, options: StoreOptions | None = None
    ) -> None:
        self.path = Path("/nowhere")
        self.disk = MemoryDisk()
        self.memory_engine = engine or IbbEngine(self.disk, options or STORE)
        made = self.memory_engine
        if isinstance(made, IbbEngine) or (isinstance(made, ClassicEngine) and made.has_tables):
            self.state, self.table_engine = made.facts, made
        else:
            self.state, self.table_engine = StateStore(self.disk), None
        self.engine = self.memory_engine

    def start(self) -> None:
        """What is done in the background is done by tests, if at all."""


class Lab:
    """`async with Lab() as lab`: started, and stopped in the end."""

    def __init__(
        self,
        engine: BinlogEngine | None = None,
        *,
        store: StoreOptions | None = None,
        **options: Any,
    ) -> None:
        values: dict[str, Any] = {
            "binlog_directory": Path("/nowhere"),
            "listen_port": 0,
            "users": {USER: WITH_ROOT[USER], "open": ""},
            **options,
        }
        self.directory = MemoryDirectory(engine, store)
        self.directory.path = values["binlog_directory"]
        self.server = Server(Config(**values), self.directory)
        self.engine: BinlogEngine = self.directory.memory_engine
        self._clients: list[Client] = []
        self._stopped = False

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self, *, clients_stay: bool = False) -> None:
        """As SIGTERM. Clients that a test left open are closed first, or have to hear of it."""
        if not self._stopped:
            self._stopped = True
            for client in self._clients:
                if not clients_stay:
                    client.close()
            await within(self.server.stop())

    async def connect(self) -> Client:
        """A socket, the greeting read."""
        client = await Client.connect(self.server.port)
        self._clients.append(client)
        return client

    async def client(self, user: str = USER, password: str = PASSWORD) -> Client:
        """Logged in. A refusal is raised as `RemoteError`."""
        client = await self.connect()
        answer = await client.log_in(user, password)
        if answer[:1] == b"\xff":
            raise parse_error(answer)
        assert answer[:1] == b"\0", answer
        return client

    async def root(self) -> Client:
        """Logged in as `root`, see `ROOT`."""
        return await self.client("root", "pw")

    async def replica(self, position: str = "", **wanted: Any) -> Replica:
        """In its dump; see `Replica.start`."""
        replica = Replica(await self.client())
        await replica.start(position, **wanted)
        return replica

    def publish(self, history: str | Iterable[Gtid]) -> None:
        fill(self.engine, gtids(history) if isinstance(history, str) else history)


class Client:
    """A client that says what it is told to, and shows the packets that come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.packets = PacketReader(EVENT_BYTES_MAX)
        self.greeting: Greeting
        self.seen: list[Packet] = []

    @classmethod
    async def connect(cls, port: int) -> Self:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        payload = await client.packet()
        if payload is not None and payload[:1] == b"\x0a":
            client.greeting = Greeting.parse(payload)
        return client

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def packet(self) -> bytes | None:
        """The payload of the next packet; None when the server has closed."""
        while (packet := self.packets.next_packet()) is None:
            try:
                data = await within(self.reader.read(1 << 18))
            except ConnectionError:
                return None
            if not data:
                return None
            self.packets.feed(data)
        self.seen.append(packet)
        return packet.payload

    async def answer(self) -> bytes:
        """The next packet, which must come."""
        payload = await self.packet()
        assert payload is not None, "the server has closed the connection"
        return payload

    async def log_in(
        self, user: str = USER, password: str = PASSWORD, plugin: str | None = None
    ) -> bytes:
        """The answer to the login; with `plugin`, that of a client that prefers another one."""
        request = LoginRequest(user, native_password_scramble(password, self.greeting.salt))
        if plugin is not None:
            request = LoginRequest(user, b"something else", plugin=plugin)
        self.send(frame_packet(request.build(), 1)[0])
        return await self.answer()

    def command(self, payload: bytes) -> None:
        self.send(frame_packet(payload, 0)[0])

    async def ask(self, payload: bytes) -> bytes:
        """The first packet of the answer to a command."""
        self.command(payload)
        return await self.answer()

    async def query(self, sql: str) -> list[list[str | None]]:
        """The rows; none for OK. An ERR packet is raised as `RemoteError`."""
        payload = await self.ask(Query(sql).build())
        if payload[:1] == b"\xff":
            raise parse_error(payload)
        if payload[:1] == b"\0":
            return []
        count = parse_column_count(payload)
        for _ in range(count + 1):
            await self.answer()
        rows = []
        while (payload := await self.answer())[:1] != b"\xfe":
            rows.append(parse_row(payload, count))
        return rows

    async def error(self) -> tuple[int, str]:
        """Number and text of the ERR packet that comes next."""
        payload = await self.answer()
        assert payload[:1] == b"\xff", payload[:40]
        error = parse_error(payload)
        return error.errno, error.message

    async def closed(self) -> bool:
        """Whether nothing more comes, and the server has closed."""
        return await self.packet() is None

    def close(self) -> None:
        self.writer.close()


class Replica:
    """A client in its dump."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(
        self,
        position: str = "",
        *,
        flags: int = 2,
        server_id: int = 100,
        registered: bool = True,
        **variables: str | int,
    ) -> None:
        """`variables` are set as user variables beside those that every replica sets."""
        for name, value in {
            "mariadb_slave_capability": 4,
            "slave_connect_state": position,
            **variables,
        }.items():
            shown = value if isinstance(value, int) else f"'{value}'"
            await self.client.query(f"SET @{name}={shown}")
        if registered:
            assert (await self.client.ask(RegisterSlave(server_id).build()))[:1] == b"\0"
        self.client.seen.clear()
        self.client.command(BinlogDump(server_id, flags).build())

    async def event(self) -> bytes:
        payload = await self.client.answer()
        assert payload[:1] == b"\0", payload[:200]
        return payload[1:]

    async def opening(self) -> list[bytes]:
        """The ROTATE and the format description."""
        events = [await self.event(), await self.event()]
        assert [event[4] for event in events] == [4, 15]
        return events

    async def group(self) -> Gtid:
        """The GTID of the next group of one statement and an XID, all of it read."""
        event = await self.event()
        assert event[4] == 162, event[4]
        seq_no, domain_id = struct.unpack_from("<QI", event, 19)
        while (event := await self.event())[4] != 16:
            pass
        return Gtid(domain_id, int.from_bytes(event[5:9], "little"), seq_no)

    async def groups(self, count: int) -> str:
        """As text, in the order of arrival."""
        return ",".join([str(await self.group()) for _ in range(count)])

    async def ended(self) -> bool:
        """EOF comes next, and then nothing."""
        payload = await self.client.answer()
        return payload[:1] == b"\xfe" and len(payload) < 9 and await self.client.closed()

    async def refused(self) -> tuple[int, str]:
        """The error, after which the connection is closed."""
        error = await self.client.error()
        assert await self.client.closed()
        return error
