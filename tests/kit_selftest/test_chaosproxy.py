"""Each fault of the proxy, in front of a server that sends back what it gets."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest

from tests.kit.chaosproxy import ChaosProxy

TEXT = bytes(range(256)) * 40


@pytest.fixture
async def proxy() -> AsyncIterator[ChaosProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    chaos = ChaosProxy(server.sockets[0].getsockname(), seed=1)
    # In a thread of its own: it does not need this loop.
    await asyncio.to_thread(chaos.start)
    yield chaos
    await asyncio.to_thread(chaos.stop)
    server.close()


async def say(proxy: ChaosProxy, text: bytes = TEXT) -> bytes:
    """What comes back until the connection ends; a reset, even of the connect, ends it early."""
    got = b""
    writer = None
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
            writer.write(text)
            writer.write_eof()
            while data := await reader.read(65536):
                got += data
    except (
        OSError,
        TimeoutError,
    ):  # a reset may come before write_eof: then the socket is not connected
        pass
    finally:
        if writer:
            writer.close()
    return got


def segments_with_data(connection: socket.socket) -> int:
    """So many have come: `tcpi_data_segs_in` of Linux's `struct tcp_info`."""
    (count,) = struct.unpack_from(
        "=I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 152
    )
    return int(count)


async def test_behaves_by_default(proxy: ChaosProxy) -> None:
    assert await say(proxy) == TEXT
    assert proxy.accepted == 1


@pytest.mark.parametrize("n", [0, 1, 255, len(TEXT)])
async def test_cuts_after_byte_n_once(proxy: ChaosProxy, n: int) -> None:
    proxy.down.cut_after = n
    assert await say(proxy) == TEXT[:n]
    assert await say(proxy) == TEXT


async def test_pieces_arrive_alone(proxy: ChaosProxy) -> None:
    proxy.down.chunk = 1
    proxy.down.rate = 100.0
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(b"abcdef")
    assert await reader.readexactly(6) == b"abcdef"
    # A reader who is held up finds several in one read: it is the system that has counted them.
    assert segments_with_data(writer.get_extra_info("socket")) == 6
    writer.close()


async def test_latency(proxy: ChaosProxy) -> None:
    proxy.up.latency = proxy.down.latency = 0.1
    start = time.monotonic()
    assert await say(proxy, b"x") == b"x"
    assert time.monotonic() - start >= 0.2


async def test_flips_one_bit(proxy: ChaosProxy) -> None:
    proxy.up.flip_at = 300
    got = await say(proxy)
    assert [i for i in range(len(TEXT)) if got[i] != TEXT[i]] == [300]
    assert (got[300] ^ TEXT[300]).bit_count() == 1


async def test_black_hole_and_hold(proxy: ChaosProxy) -> None:
    proxy.down.black_hole = True
    assert await say(proxy, b"lost") == b""
    proxy.clear()
    proxy.down.hold = True
    late = asyncio.create_task(say(proxy, b"late"))
    done, _ = await asyncio.wait([late], timeout=0.1)
    assert not done
    proxy.down.hold = False
    assert await late == b"late"


async def test_refuses_and_cuts(proxy: ChaosProxy) -> None:
    proxy.refuse = True
    assert await say(proxy) == b""
    proxy.clear()
    proxy.down.hold = True
    held = asyncio.create_task(say(proxy))
    while not proxy.connections:  # noqa: ASYNC110  # counted in the proxy's own thread
        await asyncio.sleep(0.01)
    assert proxy.cut() == 1
    assert await held == b""


async def test_target_is_gone() -> None:
    with ChaosProxy(("127.0.0.1", 1)) as proxy:
        assert await say(proxy) == b""
