"""A TCP connection of which the bytes are looked at where they came in: for streams that are to cost little.

An `asyncio.StreamReader` copies each byte three times before anybody sees it.

Here is the border at which a connection that is gone becomes a `ConnectionError`, whatever the loop's transports say of
it: uvloop's raise `RuntimeError` for each call behind a loss, which may come at any time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from binlog_protocol.wire.gathered import GatheredPayload

from binlog_server.loop.apart import apart
from binlog_server.loop.earliest_call import EarliestCall

# Of a buffer, at first and at most. A full one makes the next one four times as large: where little comes little memory
# is needed, and large packets are put together from few parts.
BUFFER_BYTES = 1 << 18
BUFFER_BYTES_MAX = 1 << 22
HEADROOM_BYTES = 1 << 20
# Of what comes behind a large payload, at first: there may be another one, whose bytes are received where they stay.
BEHIND_BYTES: Final = 1 << 14
AT_ONCE_BYTES_MAX: Final = 1 << 14  # for `taker`: where more comes, a turn of the loop is nothing
_DROPPED_BYTES: Final = 1 << 14  # of what comes behind a close, at a time
SHUTDOWN_S: Final = 3.0  # for a peer to answer that TLS ends
CLOSED: Final = "the server has closed the connection"


class ByteStream(asyncio.BufferedProtocol):
    """One connection, and one reader of it. Made by `connect`.

    What the peer sends waits in one buffer while the reader looks at another; while it is full nothing is read from the
    socket.
    """

    def __init__(self) -> None:
        self._view, self._other = _buffer(BUFFER_BYTES), _buffer(BUFFER_BYTES)
        self._filled = 0  # behind the headroom
        self._room = BUFFER_BYTES  # that is filled at most
        self._payload: GatheredPayload | None = None  # to which what comes belongs
        self._paused = False
        self._ended = self._closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        # One timer for all waits: it looks again when it fires, for bytes come a thousand times as often.
        self._timer = EarliestCall()
        self._due = 0.0  # the end of the wait
        self._timeout_s = 0.0
        self._transport: asyncio.Transport | None = None  # while the connection is there
        self.taker: Callable[[], bool] | None = None
        """Asked first when few bytes come for who waits in `ready`. True: it has taken them, and the wait goes on.
        False: the wait is over, whether or not it has taken them."""

    @classmethod
    async def connect(cls, host: str, port: int) -> Self:
        """Connect to the first address that accepts. Raises `OSError`, `socket.gaierror` for an unknown host."""
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for address in await _addresses(host, port):
            try:
                transport, stream = await loop.create_connection(cls, address, port)
            except OSError as error:
                failure = error
            else:
                stream._transport = transport
                return stream
        raise failure or _unknown(host)

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """Start TLS. Raises `ssl.SSLError`, `OSError`."""
        loop = asyncio.get_running_loop()
        with self._while_open():
            transport = await loop.start_tls(
                self._open,
                self,
                context,
                server_hostname=server_hostname,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        if transport is None or self._ended:
            raise ConnectionError("closed during the TLS handshake")
        self._transport = transport

    async def read(self, timeout_s: float, before: bytes | memoryview = b"") -> memoryview:
        """The bytes since the last call, behind a copy of `before`; waits for the first byte. At the end nothing.

        It stays as it is until the next call. Raises `OSError` for a broken connection, `TimeoutError` if no byte comes
        for `timeout_s` seconds.

        Args:
            before: at most `HEADROOM_BYTES`; may lie in what the call before has returned.
        """
        await self.ready(timeout_s)
        return self.take(before)

    async def ready(self, timeout_s: float) -> None:
        """Wait until bytes are there for `take`, or no more come, or `taker` says so. Raises as `read`."""
        if not self._filled:
            await self._wait(timeout_s)
        if not self._filled and self._error is not None:
            raise self._error

    def take(self, before: bytes | memoryview = b"") -> memoryview:
        """What `read` returns, of what is there."""
        if self._closed:
            return memoryview(bytes(before))
        size, self._filled = self._filled, 0
        view, self._view, self._other = self._view, self._other, self._view
        if size == self._room:
            self._room = min(4 * size, BUFFER_BYTES_MAX)
        if HEADROOM_BYTES + self._room > len(self._view):
            self._view = _buffer(self._room)
        begin = HEADROOM_BYTES - len(before)
        view[begin:HEADROOM_BYTES] = before
        if self._paused and not self._ended:
            self._paused = False
            with suppress(ConnectionError), self._while_open():
                self._open.resume_reading()
        return view[begin : HEADROOM_BYTES + size]

    async def read_into(self, payload: GatheredPayload, timeout_s: float) -> bool:
        """Receive what comes where it belongs, until the payload is whole; nothing may be unread. False at the end.

        Bytes that have come are in the payload, however this ends. Raises as `read`.
        """
        self._payload = payload
        try:
            await self._wait(timeout_s)
        finally:
            self._payload = None
        if not payload.is_whole and self._error is not None:
            raise self._error
        return payload.is_whole

    async def _wait(self, timeout_s: float) -> None:
        """Wait until what is wanted has come, or nothing more comes. Raises `TimeoutError`."""
        if self._ended:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._timeout_s, self._due = timeout_s, loop.time() + timeout_s
        self._timer.by(self._due, self._look)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def write(self, data: bytes) -> None:
        """Never waits. Raises `ConnectionError` if nothing is sent any more."""
        with self._while_open():
            self._open.write(data)

    @property
    def is_closing(self) -> bool:
        """Whether no more bytes can be sent."""
        return self._ended or self._open.is_closing()

    @property
    def has_unread(self) -> bool:
        """Whether something has come that was not read yet."""
        return bool(self._filled)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS object of the connection; None without TLS."""
        found: Any = self._transport and self._transport.get_extra_info("ssl_object")
        assert found is None or isinstance(found, ssl.SSLObject)
        return found

    def _look(self) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if self._waiter.get_loop().time() < self._due:
            self._timer.by(self._due, self._look)
        else:
            self._waiter.set_exception(TimeoutError())

    def close(self) -> None:
        """Close the connection after sending the bytes that were written. What came and was not read is dropped.

        TLS keeps this object until the peer has answered, which one that is broken never does: it has no buffers then.
        """
        self._timer.cancel()  # it would keep the buffers
        self._closed = self._ended = True
        self._filled = 0
        self._view = self._other = memoryview(b"")
        self._wake()
        if self._transport is not None:
            self._transport.close()

    # --- what the loop says ---

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        if self._closed:  # TLS decrypts what comes on the way to its end
            return memoryview(bytearray(_DROPPED_BYTES))
        if self._payload is not None:
            return self._payload.rest()
        return self._view[HEADROOM_BYTES + self._filled : HEADROOM_BYTES + self._room]

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if self._closed:
            return
        if self._payload is not None:
            self._came(self._payload, nbytes)
            return
        self._filled += nbytes
        if self._filled == self._room and not self._paused:
            self._paused = True
            self._open.pause_reading()
        waiter = self._waiter
        if (
            self.taker is not None
            and waiter is not None
            and not waiter.done()
            and self._filled <= AT_ONCE_BYTES_MAX
            and self.taker()
        ):
            self._due = waiter.get_loop().time() + self._timeout_s
        else:
            self._wake()

    def _came(self, payload: GatheredPayload, size: int) -> None:
        payload.came(size)
        if payload.is_whole:
            self._payload, self._room = None, BEHIND_BYTES
            self._wake()
        elif self._waiter is not None:
            self._due = self._waiter.get_loop().time() + self._timeout_s

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`. The socket is closed."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._ended = True
        if exc is not None and not isinstance(exc, OSError):
            exc = ConnectionError(f"the connection is lost: {exc!r}")
        self._error = exc
        self._timer.cancel()  # it would keep the buffers
        self._transport = None  # which leads back here with TLS: a circle would stay for minutes
        self._wake()

    @property
    def _open(self) -> asyncio.Transport:
        if self._transport is None:
            raise ConnectionError(CLOSED)
        return self._transport

    @contextmanager
    def _while_open(self) -> Iterator[None]:
        """Around what a transport does only while its connection is there."""
        if self.is_closing:
            raise ConnectionError(CLOSED)
        try:
            yield
        except RuntimeError as error:
            raise ConnectionError(f"{CLOSED}: {error}") from error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _buffer(size: int) -> memoryview:
    return memoryview(bytearray(HEADROOM_BYTES + size))


async def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, as numbers. Raises `socket.gaierror`."""

    def ask(flags: int = 0) -> list[str]:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        except ValueError:  # no name at all, as with an empty part
            raise _unknown(host) from None
        return list(dict.fromkeys(_number(address) for *_, address in found))

    try:
        return ask(socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await apart(("address", host, port), ask)


def _number(address: tuple[Any, ...]) -> str:
    """The address in an entry of `getaddrinfo`; the interface of a link-local address is part of it."""
    number: str = address[0]
    scope = address[3] if len(address) > 3 else 0
    return f"{number}%{scope}" if scope and "%" not in number else number


def _unknown(host: str) -> socket.gaierror:
    return socket.gaierror(socket.EAI_NONAME, f"{host!r} is not known")
