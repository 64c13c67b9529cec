"""The compressed protocol of a session: the layer between a transport (the socket's, or TLS on it) and the session.

    transport  <-->  CompressionLayer (a protocol to it)  <-->  session (which sees a transport)

Small pieces are compressed at once, larger ones in a thread, so that one client's large answer delays nobody. Bytes
that wait for the thread count as written and not taken: they pause the session as a full socket does.

Replicas that follow the tail get the same frames, so each frame is compressed once (`Compressor`).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from binlog_protocol.errors import ProtocolError
from binlog_protocol.wire.compressed import CompressedPacket, CompressedReader, compressed, framed

from binlog_server.connections.tls import Above
from binlog_server.loop.shielded import shielded
from binlog_server.loop.turn import Turn
from binlog_server.process.allocation import untouched

# Bytes that are compressed or uncompressed on the loop: this takes 0.1 ms. Larger pieces go to a thread.
_AT_ONCE_BYTES = 32 * 1024
_PIECE_BYTES = 64 * 1024  # of a packet's content, handed over at once
_STEP_BYTES = 1 << 20  # one job of a thread: some milliseconds
_SHARED_BYTES = 16 << 20  # frames that are kept, with their compressed form

_Key = tuple[int, int]


class Compressor:
    """The threads that compress, of one server and event loop, and a cache of compressed frames.

    Frames are cached if they are a bytearray: `EventFrames` hands the same one to every replica, and nobody changes it.
    """

    def __init__(self, shared_bytes: int = _SHARED_BYTES) -> None:
        self._threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="compression")
        self._shared_bytes = shared_bytes
        self._bytes = 0
        # Keys are ids of frames. The frames are kept, too, so that no other object gets the same id.
        self._made: OrderedDict[_Key, tuple[bytearray, list[CompressedPacket]]] = OrderedDict()
        self._being_made: dict[_Key, asyncio.Task[list[CompressedPacket]]] = {}
        self.hits = 0
        self.misses = 0  # steps that were not in the cache, nor under way

    def at_once(self, data: bytes | bytearray) -> list[CompressedPacket]:
        """Compress short data on the loop."""
        key = (id(data), 0)
        parts = self._kept(key)
        if parts is None:
            self.misses += 1
            parts = compressed(data)
            self._keep(key, data, parts)
        return parts

    async def step(self, data: bytes | bytearray, start: int) -> list[CompressedPacket]:
        """Compress `_STEP_BYTES` of the data from `start` on, or the rest, in a thread."""
        key = (id(data), start)
        parts = self._kept(key)
        if parts is not None:
            return parts
        making = self._being_made.get(key)
        if making is not None:
            self.hits += 1
        else:
            self.misses += 1
            # A task of its own, because the replica that asked first may leave while others wait.
            making = asyncio.get_running_loop().create_task(self._make(key, data, start))
            self._being_made[key] = making
        return await shielded(making)

    async def payload(self, part: CompressedPacket) -> bytes:
        """Uncompress a large packet in a thread. Raises `ProtocolError`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, part.payload)

    def close(self) -> None:
        """End the threads; to be called when no session is left."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _make(self, key: _Key, data: bytes | bytearray, start: int) -> list[CompressedPacket]:
        try:
            piece = memoryview(data)[start : start + _STEP_BYTES]
            loop = asyncio.get_running_loop()
            parts = await loop.run_in_executor(self._threads, compressed, piece)
            self._keep(key, data, parts)
            return parts
        finally:
            del self._being_made[key]

    def _kept(self, key: _Key) -> list[CompressedPacket] | None:
        found = self._made.get(key)
        if found is None:
            return None
        self.hits += 1
        self._made.move_to_end(key)
        return found[1]

    def _keep(self, key: _Key, data: bytes | bytearray, parts: list[CompressedPacket]) -> None:
        if not isinstance(data, bytearray) or len(data) > self._shared_bytes // 2:
            return
        if key not in self._made:
            self._made[key] = data, parts
            self._bytes += _memory(data, parts)
        while self._bytes > self._shared_bytes:
            self._bytes -= _memory(*self._made.popitem(last=False)[1])


def _memory(data: bytearray, parts: list[CompressedPacket]) -> int:
    return len(data) + sum(len(part.body) for part in parts)


class CompressedSession(Above, Protocol):
    """The session above a layer."""

    def holds_more(self) -> None:
        """The layer holds more or fewer bytes than before: `held` has their number."""

    def compression_failed(self, error: ProtocolError) -> None:
        """The peer broke the framing: answer with the error, and close the connection."""


class CompressionLayer(asyncio.Protocol, asyncio.Transport):
    """The protocol of a transport, and the transport of a session.

    Made after the login; `start` takes the bytes that have come behind it.

    Args:
        begins: gives whether bytes that come now may begin a request, so that the answer is numbered behind it; not in
            a dump.
        payload_bytes_max: the limit for one packet of the client, uncompressed.
        write_buffer_bytes: the bytes that may wait to be compressed before the session is paused.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        session: CompressedSession,
        compressor: Compressor,
        begins: Callable[[], bool],
        *,
        payload_bytes_max: int,
        write_buffer_bytes: int,
    ) -> None:
        asyncio.Transport.__init__(self)
        self._transport = transport
        self._session = session
        self._compressor = compressor
        self._begins = begins
        self._reader = CompressedReader(payload_bytes_max, restarts=True, allocate=untouched)
        self._seq = 0
        self._reading = True  # the session has not paused reading
        self._feeding = False
        self._inflating: asyncio.Task[None] | None = None
        self._pieces: Iterator[bytes] = iter(())  # of the packet that is being handed over
        self._inflated = 0  # bytes of that packet, or of the one that a thread uncompresses
        self._resting = False  # until the next round of the loop
        self._queue: deque[bytes | bytearray] = deque()  # data to compress, in order
        self._queued = 0  # bytes in the queue
        self._write_buffer_bytes = write_buffer_bytes
        self._packing: asyncio.Task[None] | None = None
        self._below_full = False
        self._full = False  # as the session was told
        self._closing = False

    def start(self, received: bytes) -> None:
        """Take over the transport, with the bytes that it has received already, and read from it.

        It may be paused by the session, whose turn ended at the login: see `TlsLayer.start`.
        """
        self._transport.set_protocol(self)
        self._transport.resume_reading()
        self._take(received)
        asyncio.get_running_loop().call_soon(self._feed)

    # --- asyncio.Protocol ---

    def data_received(self, data: bytes) -> None:
        self._take(data)
        self._feed()
        self._session.holds_more()

    @property
    def held(self) -> int:
        """Bytes in memory: those received, and those of the packet that is being uncompressed or handed over."""
        return self._reader.buffered + self._inflated

    def give_up(self) -> None:
        """Drop the bytes that were received."""
        self._reader.discard()

    def eof_received(self) -> None:
        """None: the transport then closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_packing()
        if self._inflating is not None:
            self._inflating.cancel()
        self._session.connection_lost(exc)

    def pause_writing(self) -> None:
        self._below_full = True
        self._tell()

    def resume_writing(self) -> None:
        self._below_full = False
        self._tell()

    # --- what comes ---

    def _take(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            self._reader.feed(data)
        except ProtocolError as error:
            self._fail(error)

    def _feed(self) -> None:
        """Hand received packets to the session, for one turn, while the session reads."""
        if self._feeding or self._resting or self._inflating is not None:
            return
        self._feeding = True
        turn = Turn()
        try:
            while self._reading and not self.is_closing():
                if turn.is_over:
                    self._rest()
                    return
                piece = next(self._pieces, None)
                if piece is not None:
                    self._begin_answer()
                    self._session.data_received(piece)
                    continue
                part = self._reader.next_part()
                self._inflated = 0 if part is None else max(part.size, len(part.body))
                if part is None:
                    return
                # The larger of both sizes counts: 16 MB of empty zlib blocks give nothing, and take time.
                if part.size and self._inflated > _AT_ONCE_BYTES:
                    self._transport.pause_reading()
                    loop = asyncio.get_running_loop()
                    self._inflating = loop.create_task(self._inflate(part))
                    return
                self._pieces = _pieces(part.payload())
        except ProtocolError as error:
            self._fail(error)
        finally:
            self._feeding = False

    async def _inflate(self, part: CompressedPacket) -> None:
        try:
            payload = await self._compressor.payload(part)
        except ProtocolError as error:
            self._fail(error)
            return
        self._inflating = None
        self._pieces = _pieces(payload)
        self._read_below()
        self._feed()

    def _rest(self) -> None:
        self._resting = True
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._read_below()
        self._feed()

    def _read_below(self) -> None:
        """Go on reading, unless the session has paused, the layer rests, or a thread uncompresses."""
        if (
            self._reading
            and not self._resting
            and self._inflating is None
            and not self.is_closing()
        ):
            self._transport.resume_reading()

    def _fail(self, error: ProtocolError) -> None:
        self._begin_answer()
        self._session.compression_failed(error)

    def _begin_answer(self) -> None:
        """The next bytes written may be an answer: number them behind the request."""
        if self._begins():
            self._seq = self._reader.next_seq

    # --- asyncio.Transport: what is written ---

    def write(self, data: Any) -> None:
        if self.is_closing() or not data:
            return
        if self._packing is None and len(data) <= _AT_ONCE_BYTES:
            self._send(self._compressor.at_once(data))
            return
        self._queue.append(data)
        self._queued += len(data)
        if self._packing is None:
            self._packing = asyncio.get_running_loop().create_task(self._pack())
        self._tell()

    async def _pack(self) -> None:
        while self._queue:
            data = self._queue[0]
            for start in range(0, len(data), _STEP_BYTES):
                self._send(await self._compressor.step(data, start))
                self._queued -= min(_STEP_BYTES, len(data) - start)
                self._tell()
            self._queue.popleft()
        self._packing = None
        if self._closing:
            self._transport.close()

    def _send(self, parts: list[CompressedPacket]) -> None:
        data, self._seq = framed(parts, self._seq)
        self._transport.write(data)

    def _tell(self) -> None:
        """Tell the session to pause writing, or to go on, if that has changed."""
        full = self._below_full or self._queued > self._write_buffer_bytes
        if full != self._full:
            self._full = full
            if full:
                self._session.pause_writing()
            else:
                self._session.resume_writing()

    def _stop_packing(self) -> None:
        if self._packing is not None:
            self._packing.cancel()
            self._packing = None
        self._queue.clear()
        self._queued = 0

    # --- asyncio.Transport: the rest ---

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._write_buffer_bytes = high
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._queued + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._read_below()
            asyncio.get_running_loop().call_soon(self._feed)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        """When what was written is compressed and sent."""
        self._closing = True
        if self._packing is None:
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._stop_packing()
        self._transport.abort()


def _pieces(payload: bytes) -> Iterator[bytes]:
    if len(payload) <= _PIECE_BYTES:
        return iter((payload,))
    view = memoryview(payload)
    starts = range(0, len(view), _PIECE_BYTES)
    return (bytes(view[start : start + _PIECE_BYTES]) for start in starts)
