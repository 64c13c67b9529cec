"""A TCP connection of which the bytes are looked at where they came in: for streams that are to cost little.

An `asyncio.StreamReader` copies each byte three times before anybody sees it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Self

# Of a buffer, at first and at most. A full one makes the next one four times as large: where little comes little memory
# is needed, and large packets are put together from few parts.
BUFFER_BYTES = 1 << 18
BUFFER_BYTES_MAX = 1 << 22
HEADROOM_BYTES = 1 << 20


class ByteStream(asyncio.BufferedProtocol):
    """One connection, and one reader of it. Made by `connect`.

    What the peer sends waits in one buffer while the reader looks at another; while it is full nothing is read from the
    socket.
    """

    def __init__(self) -> None:
        self._view, self._other = _buffer(BUFFER_BYTES), _buffer(BUFFER_BYTES)
        self._filled = 0  # behind the headroom
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, host: str, port: int) -> Self:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        stream = cls()
        stream._transport, _ = await loop.create_connection(lambda: stream, host, port)
        return stream

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """From now on by TLS. Raises `ssl.SSLError`, `OSError`."""
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(
            self._transport, self, context, server_hostname=server_hostname
        )
        if transport is None:
            raise ConnectionError("closed during the TLS handshake")
        self._transport = transport

    async def read(self, before: bytes | memoryview = b"") -> memoryview:
        """What has come since the last call, behind a copy of `before`; waits for the first byte. At the end nothing.

        It stays as it is until the next call. Raises `OSError` for a broken connection.

        Args:
            before: at most `HEADROOM_BYTES`; may lie in what the call before has returned.
        """
        if not self._filled and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._filled and self._error is not None:
            raise self._error
        size, self._filled = self._filled, 0
        view, self._view, self._other = self._view, self._other, self._view
        wanted = min(4 * size, BUFFER_BYTES_MAX)
        if HEADROOM_BYTES + size == len(view) and HEADROOM_BYTES + wanted > len(self._view):
            self._view = _buffer(wanted)
        begin = HEADROOM_BYTES - len(before)
        view[begin:HEADROOM_BYTES] = before
        if self._paused and not self._ended:
            self._paused = False
            self._transport.resume_reading()
        return view[begin : HEADROOM_BYTES + size]

    def write(self, data: bytes) -> None:
        """Never waits."""
        self._transport.write(data)

    @property
    def is_closing(self) -> bool:
        """Nothing is sent any more."""
        return self._transport.is_closing()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """With TLS."""
        found: Any = self._transport.get_extra_info("ssl_object")
        assert found is None or isinstance(found, ssl.SSLObject)
        return found

    def close(self) -> None:
        """What was written is still sent."""
        self._transport.close()

    # --- what the loop says ---

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._view[HEADROOM_BYTES + self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._filled += nbytes
        if HEADROOM_BYTES + self._filled == len(self._view) and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`. The socket is closed."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._ended = True
        self._error = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _buffer(size: int) -> memoryview:
    return memoryview(bytearray(HEADROOM_BYTES + size))
