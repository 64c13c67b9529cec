"""What is written past the loop: in order with all else, and nothing of it lost where the socket takes a part."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from binlog_server.connections.channel import _UNKNOWN, Channel
from tests.binlog_server.lab import until, within


class Serving(asyncio.Protocol):
    channel: Channel | None = None
    lost = False

    def __init__(self, *, is_stream: bool) -> None:
        self.is_stream = is_stream
        self.got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        machine = cast(Any, None)
        self.channel = Channel(
            cast(asyncio.Transport, transport), machine, cast(Any, str), lambda: None
        )
        if self.is_stream:
            self.channel.stream()

    def data_received(self, data: bytes) -> None:
        self.got += data

    def take(self) -> bytearray:
        """What the transport has read since."""
        taken, self.got = self.got, bytearray()
        return taken

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@asynccontextmanager
async def streaming(
    *, is_stream: bool = True
) -> AsyncIterator[tuple[Serving, Channel, asyncio.StreamReader, Any]]:
    serving = Serving(is_stream=is_stream)
    server = await asyncio.get_running_loop().create_server(lambda: serving, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await until(lambda: serving.channel is not None)
    assert serving.channel is not None
    yield serving, serving.channel, reader, writer
    writer.close()
    server.close()


@pytest.mark.parametrize("is_stream", [True, False])
async def test_all_in_order_whatever_the_socket_takes(rng: random.Random, is_stream: bool) -> None:
    async with streaming(is_stream=is_stream) as (_, channel, reader, _writer):
        sent = bytearray()

        def some(size: int) -> bytearray:
            data = bytearray(rng.randbytes(size))
            write = rng.choice([channel.write, channel.write_now, channel.write_now])
            write(data)
            sent.extend(data)
            return data

        while not channel.untaken:  # nobody reads
            some(rng.randrange(1, 1 << 17))
        for _ in range(30):
            some(rng.randrange(1, 1 << 14))
        got = bytearray()
        while len(got) < len(sent):
            got += await within(reader.read(1 << 16))
            if rng.random() < 0.3 and len(sent) < 20 << 20:
                some(rng.randrange(1, 1 << 12))
        assert channel._fd not in (None, _UNKNOWN), "this is uvloop's own transport"
        assert got == sent
        assert channel.traffic.sent == len(sent)


async def test_nothing_is_written_behind_the_end() -> None:
    """The number of a closed socket may be another's by then."""
    async with streaming() as (serving, channel, reader, _):
        channel.write_now(bytearray(b"before"))
        channel.abort()
        channel.write_now(bytearray(b"behind"))
        await until(lambda: serving.lost)
        channel.write_now(bytearray(b"behind"))
        assert await within(reader.read()) == b"before"


async def test_a_peer_that_is_gone_is_met_as_by_any_write() -> None:
    async with streaming() as (serving, channel, _, writer):
        writer.transport.abort()
        while not serving.lost:
            channel.write_now(bytearray(1 << 16))
            await asyncio.sleep(0)
        assert channel.is_closing


async def test_what_comes_soon_is_read_past_the_transport(rng: random.Random) -> None:
    """In order with what the transport reads, whatever is read by whom; the end is the transport's."""
    async with streaming() as (serving, channel, _, writer):
        assert channel.read_soon() is None, "nothing comes"
        peer = writer.transport.get_extra_info("socket").fileno()
        sent, got = bytearray(), bytearray()
        for _ in range(200):
            data = rng.randbytes(rng.randrange(1, 100))
            os.write(peer, data)
            sent += data
            if rng.random() < 0.5:
                got += serving.take() + (channel.read_soon() or b"")
            else:
                await asyncio.sleep(0)
        await until(lambda: len(got) + len(serving.got) == len(sent))
        assert got + serving.take() == sent
        channel.hold(held=True)
        os.write(peer, b"later")
        assert channel.read_soon() is None, "nothing may be read"
        channel.hold(held=False)
        await until(lambda: serving.got == b"later")
        writer.close()
        await until(lambda: channel.read_soon() is None and serving.lost)
        assert channel.read_soon() is None


async def test_nothing_is_read_past_another_transport() -> None:
    """A layer of TLS or compression, or before it is known that there is none."""
    async with streaming(is_stream=False) as (_, channel, _reader, writer):
        os.write(writer.transport.get_extra_info("socket").fileno(), b"data")
        assert channel.read_soon() is None
