"""Bytes of a connection where they came in: all of them, in order, and never more than the buffer holds."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from binlog_protocol.wire.gathered import GatheredPayload

from binlog_server.connections.certificate import self_signed
from binlog_server.relay.byte_stream import (
    BEHIND_BYTES,
    BUFFER_BYTES,
    BUFFER_BYTES_MAX,
    HEADROOM_BYTES,
    ByteStream,
)
from tests.binlog_server.lab import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[ByteStream]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    stream = await ByteStream.connect("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield stream
    finally:
        stream.close()
        server.close()


async def rest(stream: ByteStream) -> bytes:
    found = bytearray()
    while data := await stream.read(60):
        found += data
    return bytes(found)


async def test_everything_comes_in_order_to_a_slow_reader() -> None:
    sent = bytes(range(251)) * (2 * BUFFER_BYTES_MAX // 251)
    drained = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16
        )
        writer.write(sent)
        await writer.drain()
        drained.set()
        writer.close()

    async with connected(serve) as stream:
        await until(lambda: len(stream.get_buffer(-1)) == 0)  # full: nothing more is read
        assert not drained.is_set()
        assert await rest(stream) == sent


async def test_the_buffer_grows_where_much_comes() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(8 * BUFFER_BYTES_MAX))

    sizes = []
    async with connected(serve) as stream:
        for _ in range(5):
            await until(lambda: not len(stream.get_buffer(-1)))
            sizes.append(len(await stream.read(60)))
    assert sizes == [BUFFER_BYTES, 4 * BUFFER_BYTES, *[BUFFER_BYTES_MAX] * 3]


async def test_what_came_before_stands_in_front() -> None:
    """Also if it lies in what was read last: that stays until the next read."""
    sent = random.Random(1).randbytes(3 * BUFFER_BYTES_MAX)

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    found = bytearray()
    rest = memoryview(b"")
    async with connected(serve) as stream:
        for size in itertools.cycle((0, 1, 70_000, HEADROOM_BYTES)):
            data = await stream.read(60, rest)
            assert data[: len(rest)] == rest
            if len(data) == len(rest):
                break
            taken = max(0, len(data) - size)
            found += data[:taken]
            rest = data[taken:]
    assert bytes(found + rest) == sent


@pytest.mark.parametrize("tls", [False, True])
async def test_large_payloads_are_received_where_they_stay(tmp_path: Path, *, tls: bool) -> None:
    """Nothing of them goes through the buffer but what has come with the bytes in front."""
    payloads = [random.Random(n).randbytes(size) for n, size in enumerate((9, 3 << 20, 5, 1 << 20))]
    (tmp_path / "both.pem").write_bytes(b"".join(self_signed()))
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(tmp_path / "both.pem")
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    here.check_hostname, here.verify_mode = False, ssl.CERT_NONE

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for payload in payloads:
            writer.write(payload)
            await asyncio.sleep(0.02)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=there if tls else None)
    stream = await ByteStream.connect("127.0.0.1", server.sockets[0].getsockname()[1])
    if tls:
        await stream.start_tls(here, "there")
    waiting = memoryview(b"")
    for payload in payloads:
        place = GatheredPayload(len(payload), bytearray)
        if not waiting:
            waiting = await stream.read(60)
        waiting = waiting[place.take(waiting) :]
        if place.left and not stream.has_unread:
            assert await stream.read_into(place, 60)
        while place.left:
            waiting = await stream.read(60)
            waiting = waiting[place.take(waiting) :]
        assert place.payload == payload
        del place.payload[:1]  # nobody holds a view of it
        assert len(waiting) <= BUFFER_BYTES
    assert not waiting
    assert not await stream.read_into(GatheredPayload(7, bytearray), 60)
    stream.close()
    server.close()


async def test_a_payload_that_comes_slowly_is_waited_for_and_one_that_stops_is_not() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _part in range(8):
            await wanted.acquire()
            writer.write(bytes(100_000))
        await wanted.acquire()
        writer.write(bytes(200_000))

    wanted = asyncio.Semaphore(0)
    async with connected(serve) as stream:
        place = GatheredPayload(1_000_000, bytearray)
        reading = asyncio.ensure_future(stream.read_into(place, 60))
        await until(lambda: stream._waiter is not None)
        for left in range(900_000, 100_000, -100_000):
            due = stream._due
            await until(lambda due=due: asyncio.get_running_loop().time() > due - 60)  # type: ignore[misc]
            wanted.release()
            await until(lambda left=left: place.left == left)  # type: ignore[misc]
            assert stream._due > due, "some of it has come: the end of the wait is later"
        stream._due = 0.0
        stream._look()
        with pytest.raises(TimeoutError):
            await reading
        assert place.left == 200_000  # and nothing of it is lost
        wanted.release()
        assert await stream.read_into(place, 60)
        assert len(stream.get_buffer(-1)) == BEHIND_BYTES  # there may be another one


async def test_a_payload_of_a_connection_that_breaks_raises() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(1000))
        await writer.drain()
        own = writer.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with connected(serve) as stream:
        with pytest.raises(ConnectionResetError):
            await stream.read_into(GatheredPayload(10_000, bytearray), 60)


async def test_it_is_asked_again_and_again() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())

    async with connected(serve) as stream:
        for word in (b"one", b"two"):
            stream.write(word)
            assert bytes(await stream.read(60)) == word.upper()
        assert stream.tls is None
        assert not stream.is_closing


async def test_what_came_before_the_end_is_read() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"the last words")
        writer.close()

    async with connected(serve) as stream:
        await until(lambda: stream.is_closing)
        assert await rest(stream) == b"the last words"
        assert await rest(stream) == b""


async def test_a_broken_connection_is_an_error() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        linger = b"\x01\0\0\0\0\0\0\0"  # on, 0 seconds: closed by RST
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with connected(serve) as stream:
        with pytest.raises(ConnectionError):
            await rest(stream)


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))

    async with connected(serve) as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.read(60)
        stream.write(b"here")
        assert bytes(await stream.read(60)) == b"here"


async def test_nothing_stays_of_a_connection_with_tls(tmp_path: Path) -> None:
    """Not even until garbage is looked for, which may take minutes: each has two buffers and a context."""
    (tmp_path / "both.pem").write_bytes(b"".join(self_signed()))
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(tmp_path / "both.pem")
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    here.check_hostname, here.verify_mode = False, ssl.CERT_NONE

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=there)
    gc.disable()
    try:
        stream = await ByteStream.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        await stream.start_tls(here, "there")
        assert bytes(await stream.read(60)) == b"hello"
        stream.close()
        assert len(stream.get_buffer(-1)) < BUFFER_BYTES  # while the peer has not answered, either
        assert not await stream.read(60)
        gone = weakref.ref(stream)
        del stream
        await until(lambda: gone() is None)
    finally:
        gc.enable()
        server.close()
