"""A connection that we make: a socket with the client machine. For following an upstream, and for asking it things."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Self, cast

from binlog_protocol.connection.client import (
    ClientConnection,
    ClientState,
)
from binlog_protocol.connection.conversation import (
    Exchange,
    Receive,
    ResultT,
    Secure,
    Send,
    TlsProblem,
    TlsRefused,
    log_in,
    next_row,
    query,
    start_dump,
    start_rows,
)
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.groups.group_stream import GroupStream, Item
from binlog_protocol.wire.compressed import CompressedReader, compressed, framed

from binlog_server.loop.apart import apart
from binlog_server.loop.turn import Turn
from binlog_server.process.allocation import untouched
from binlog_server.relay.byte_stream import CLOSED, HEADROOM_BYTES, ByteStream
from binlog_server.upstreams.client_tls import TlsFailed, TlsOptions

NO_TLS = TlsOptions(enabled=False)
LARGE_BYTES = 1 << 18  # uncompressed in a thread, and handed over in such pieces
# From so many bytes on that are left of one packet they are received where they stay: a copy less.
DIRECT_BYTES_MIN = 1 << 21
TAKEN_BYTES_MAX = 1 << 20  # of uncompressed bytes, before anybody looks at them


class ClientLink:
    """One connection. Made by `connect`; one user at a time.

    Every wait for bytes ends with `TimeoutError` after `timeout_s` seconds; a closed socket is a `ConnectionError`.
    """

    def __init__(
        self,
        stream: ByteStream,
        machine: ClientConnection,
        timeout_s: float,
        host: str,
        tls: TlsOptions,
    ) -> None:
        self.machine = machine
        self.protection = ""
        """After the login, for the log: whether there is TLS, how it was verified, and whether all is compressed."""
        self._stream = stream
        self._lent = 0  # how often `receive_now` has handed over what had come
        self.timeout_s = timeout_s
        """May be changed: a stream with heartbeats is watched more closely than a login."""
        self._host = host
        self._tls = tls
        # From the login on, if compression was agreed on; and what is left of a packet that was taken apart.
        self._packed: CompressedReader | None = None
        self._pieces: Iterator[memoryview] = iter(())

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        user: str,
        password: str,
        timeout_s: float,
        tls: TlsOptions = NO_TLS,
        *,
        compress: bool = False,
    ) -> Self:
        """Open the socket; `log_in` comes next. `compress`: everything after it, if the server offers that."""
        async with asyncio.timeout(timeout_s):
            stream = await ByteStream.connect(host, port)
        machine = ClientConnection(user, password, compress=compress, allocate=untouched)
        return cls(stream, machine, timeout_s, host, tls)

    async def log_in(self) -> str:
        """Returns the version text of the greeting. Raises `RemoteError` when refused, `TlsFailed`."""
        try:
            protection = await self.drive(log_in(self.machine, self._tls.policy(self._host)))
        except TlsRefused as error:
            raise TlsFailed.of(error) from None
        self.protection = protection.value
        if self.machine.compressed:
            self._packed = CompressedReader(restarts=False, allocate=untouched)
            self.protection += ", compressed"
        assert self.machine.greeting is not None
        return self.machine.greeting.server_version

    @property
    def connection_id(self) -> int:
        """The number that the server has given to the connection, by its greeting; 0 before."""
        greeting = self.machine.greeting
        return 0 if greeting is None else greeting.connection_id

    async def query(self, sql: str) -> list[list[str | None]]:
        """The rows; none for a statement that gives no result set. Raises `RemoteError`."""
        return await self.drive(query(self.machine, sql))

    async def rows(self, sql: str) -> AsyncIterator[list[bytes | None]]:
        """The rows, one by one as they come: there may be any number of them. Raises `RemoteError`."""
        await self.drive(start_rows(self.machine, sql))
        while (row := await self.drive(next_row(self.machine))) is not None:
            yield row

    async def start_dump(self, handshake: ReplicaHandshake) -> None:
        """Say what a replica says; events follow. Raises as `ReplicaHandshake.answer`."""
        await self.drive(start_dump(self.machine, handshake))

    async def drive(self, exchange: Exchange[ResultT]) -> ResultT:
        """See `binlog_protocol.connection.conversation`."""
        answer: bytes | None = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as end:
                return cast(ResultT, end.value)
            answer = None
            match step:
                case Receive():
                    await self.receive()
                case Send(data):
                    self._send(data)
                case Secure(request):
                    answer = await self._secure(request)

    async def _secure(self, request: bytes) -> bytes:
        """Start TLS. Returns the server's certificate."""
        async with asyncio.timeout(self.timeout_s):
            context = await apart(self._tls, self._tls.context)
        if self._stream.has_unread:
            raise TlsRefused(TlsProblem.CLEAR)
        self._stream.write(request)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._stream.start_tls(context, self._host)
        except ssl.SSLError as error:
            raise TlsFailed.of(error) from None
        session = self._stream.tls
        certificate = (session.getpeercert(binary_form=True) if session else None) or b""
        self._tls.check_period(certificate, time.time())
        return certificate

    @property
    def unread(self) -> int:
        """Bytes that have come, and that no event has told of; of compressed packets, as they came."""
        return self.machine.unread + (self._packed.buffered if self._packed is not None else 0)

    async def receive(self) -> None:
        """Wait for bytes, and hand them to the machine, from which events and runs are taken."""
        if self._packed is None:
            coming = self.machine.gathering
            if (
                coming is not None
                and coming.left >= DIRECT_BYTES_MIN
                and not self._stream.has_unread
            ):
                if not await self._stream.read_into(coming, self.timeout_s):
                    raise ConnectionError(CLOSED)
                return
            lent = self._lent
            await self._stream.ready(self.timeout_s)
            if self._stream.has_unread or lent == self._lent:
                self._hand_over()
            return
        # What lies here in compressed packets may be a thousand times as much without: not all of it at once.
        turn, taken = Turn(), 0
        while taken <= TAKEN_BYTES_MAX and not turn.is_over:
            piece = next(self._pieces, None)
            if piece is not None:
                self.machine.receive_data(piece)
                taken += len(piece)
                continue
            part = self._packed.next_part()
            if part is None:
                if taken:
                    return
                self._packed.feed(await self._read())
                turn = Turn()
            elif max(part.size, len(part.body)) < LARGE_BYTES:
                self._pieces = iter((memoryview(part.payload()),))
            else:
                self._pieces = _pieces(await asyncio.to_thread(part.payload))
        await asyncio.sleep(0)

    def _hand_over(self) -> None:
        with self.machine.untaken as untaken:
            if len(untaken) <= HEADROOM_BYTES:
                self.machine.lend_data(self._taken(untaken))
                return
        self.machine.receive_data(self._taken())  # a part of a large packet

    def ask_first(self, taker: Callable[[], bool] | None) -> None:
        """Have `taker` called when few bytes have come for who waits in `receive`, in the call that brings them.

        It may `receive_now`. True: whoever waits goes on waiting; False: `receive` returns.
        """
        self._stream.taker = taker

    def receive_now(self) -> bool:
        """As `receive`, of what is there. For `ask_first`. False: only `receive` can do that."""
        if self._packed is not None:
            return False
        has_unread = self.machine.has_unread
        if has_unread and self.machine.gathering is not None:
            return False
        self._lent += 1  # also if it fails: nothing is left for `receive`
        if has_unread:
            self._hand_over()
        else:  # as nearly always: four calls less
            self.machine.lend_data(self._stream.take())
        return True

    async def next_item(self, stream: GroupStream, *, runs: bool = True) -> Item | None:
        """The next item of a stream of this machine, see `GroupStream.next`; large ones are taken in a thread."""
        if self.machine.holds_large:
            return await asyncio.to_thread(stream.next, runs=runs)
        return stream.next(runs=runs)

    async def _read(self) -> memoryview:
        await self._stream.ready(self.timeout_s)
        return self._taken()

    def _taken(self, before: bytes | memoryview = b"") -> memoryview:
        data = self._stream.take(before)
        if len(data) == len(before):
            raise ConnectionError(CLOSED)
        return data

    def _send(self, request: bytes) -> None:
        if self._packed is not None:
            request, self._packed.next_seq = framed(compressed(request), 0)
        self._stream.write(request)

    def acknowledge(self, packet: bytes) -> None:
        """Send an acknowledgement in a stream without compression; nothing if the socket is closed."""
        with suppress(ConnectionError):  # who reads will notice
            self._stream.write(packet)

    def quit(self) -> None:
        """Close it; where the server waits for a command, with a word: without one it writes a warning to its log."""
        if self.machine.state is ClientState.READY:
            with suppress(ConnectionError):
                self._send(self.machine.quit())
        self.close()

    def close(self) -> None:
        self._stream.close()


def _pieces(payload: bytes) -> Iterator[memoryview]:
    view = memoryview(payload)
    return (view[at : at + LARGE_BYTES] for at in range(0, len(view), LARGE_BYTES))
