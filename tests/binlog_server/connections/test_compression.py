"""Sessions in the compressed protocol: that they are as others, that frames are compressed once, that limits hold."""

from __future__ import annotations

import asyncio
import gc
import random
import zlib

import pytest
from binlog_protocol.connection.commands import BinlogDump, Ping, Query
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.compressed import (
    PART_BYTES_MAX,
    CompressedPacket,
    CompressedReader,
    compressed,
    framed,
)
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import parse_error

from binlog_server.connections import compression
from binlog_server.connections.channel import WRITE_BUFFER_BYTES
from binlog_server.connections.compression import Compressor
from tests.binlog_server.compressed_client import CompressedClient, compressed_client
from tests.binlog_server.lab import Lab, Replica, next_turn_over, transaction, until

PING = frame_packet(Ping().build(), 0)[0]
both = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@both
async def test_answers_of_all_sizes(lab: Lab, tls: bool) -> None:
    client = await compressed_client(lab, tls=tls)
    assert await client.query("SELECT 1") == [["1"]]
    plain = await lab.client()
    names = [row[0] for row in await client.query("SHOW VARIABLES")]
    assert names == [row[0] for row in await plain.query("SHOW VARIABLES")]
    for size in (10, 40_000, 300_000, 3_000_000):
        command = Query("SET @a='" + "x" * size + "'").build()
        assert await client.ask(command) == await plain.ask(command)
    client.close()


@both
async def test_a_dump(lab: Lab, tls: bool) -> None:
    lab.publish("0-1-1,0-1-2")
    client = await compressed_client(lab, tls=tls)
    replica = Replica(client)
    await replica.start()
    await replica.opening()
    assert await replica.groups(2) == "0-1-1,0-1-2"
    client.send_raw(
        framed([CompressedPacket(PING, 0)], 0)[0]
    )  # as old clients do; nothing answers it
    for number in range(3, 40):
        lab.publish(f"0-1-{number}")
        assert await replica.groups(1) == f"0-1-{number}"
    client.close()


async def test_requests_byte_by_byte_and_many_at_once(lab: Lab) -> None:
    client = await compressed_client(lab)
    assert client.answers is not None
    for byte in framed(compressed(PING), 0)[0]:
        client.send_raw(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.answer())[:1] == b"\0"
    client.send(PING * 300)  # one compressed packet; the answers go on behind it
    for _ in range(300):
        assert (await client.answer())[:1] == b"\0"
    pieces = [CompressedPacket(PING[at : at + 1], 0) for at in range(len(PING))]
    request, client.answers.next_seq = framed(pieces, 0)
    client.send_raw(request)
    assert (await client.answer())[:1] == b"\0"
    client.close()


async def test_what_comes_together_with_the_login(lab: Lab) -> None:
    client = await CompressedClient.connect(lab.server.port)
    assert (await client.log_in(behind=PING))[:1] == b"\0"
    assert (await client.answer())[:1] == b"\0"
    client.close()


@both
async def test_a_turn_that_ends_at_the_login(lab: Lab, tls: bool) -> None:
    client = await CompressedClient.connect(lab.server.port)
    if tls:
        await client.upgrade()
    with next_turn_over():
        assert (await client.log_in())[:1] == b"\0"
    assert await client.query("SELECT 1") == [["1"]]
    with next_turn_over():
        assert await client.query("SELECT 1") == [["1"]]
    client.close()


async def test_a_refused_login_is_not_compressed(lab: Lab) -> None:
    client = await CompressedClient.connect(lab.server.port)
    assert parse_error(await client.log_in(password="wrong")).errno == 1045
    assert await client.closed()


BROKEN = {
    "no stream": (b"\x0a\0\0\0\x64\0\0" + b"x" * 10, 1157),
    "a wrong number": (framed([CompressedPacket(PING, 0)], 7)[0], 1156),
    "a false length": (
        (len(body := zlib.compress(bytes(90_000)))).to_bytes(3, "little")
        + b"\0"
        + (80_000).to_bytes(3, "little")
        + body,
        1157,
    ),
    "plain packets": (frame_packet(Query("SELECT " + "1" * 100).build(), 0)[0], 1153),
    "too large a command inside": (
        framed([CompressedPacket(b"\xff\xff\xff\0" + b"x" * 60, 0)], 0)[0],
        1153,
    ),
    "the same in what a thread takes apart": (
        framed(compressed(b"\xff\xff\xff\0" + bytes(100_000)), 0)[0],
        1153,
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_broken(what: str) -> None:
    """An error, also in the compressed protocol, and the end; nobody else notices."""
    bugs: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
    data, errno = BROKEN[what]
    async with Lab(max_allowed_packet=1 << 20) as lab:
        other = await lab.client()
        client = await compressed_client(lab)
        assert client.answers is not None
        client.answers.next_seq = data[3] + 1
        client.send_raw(data)
        assert (await client.error())[0] == errno
        assert await client.closed()
        assert await other.query("SELECT 1") == [["1"]]
        client.close()
        await until(lambda: len(lab.server.connections) == 1)
    gc.collect()
    assert not bugs


async def test_numbers_inside_are_not_looked_at(lab: Lab) -> None:
    """As MariaDB 10.11 and 11.8 do: those of the compressed packets count."""
    client = await compressed_client(lab)
    assert client.answers is not None
    for number in (5, 0, 255):
        data, client.answers.next_seq = framed(compressed(frame_packet(b"\x0e", number)[0]), 0)
        client.send_raw(data)
        assert (await client.packet() or b"")[:1] == b"\0"


async def history(lab: Lab, count: int, size: int) -> None:
    def make() -> None:
        chance = random.Random(5)
        for number in range(1, count + 1):
            gtid = Gtid(0, 1, number)
            text = chance.randbytes(size // 2).hex()  # becomes half as long
            lab.engine.append(transaction(gtid, f"INSERT INTO t VALUES ('{text}')"), gtid)
        lab.engine.sync()

    await asyncio.to_thread(make)  # which may wait for the disk


async def test_who_does_not_read_is_waited_for(lab: Lab) -> None:
    await history(lab, 200, 100_000)
    client = await compressed_client(lab)
    replica = Replica(client)
    await replica.start()
    (connection,) = lab.server.connections
    await until(lambda: connection.state == "Writing to net")
    transport = connection.ending._channel.transport  # type: ignore[attr-defined]
    assert transport.get_write_buffer_size() < WRITE_BUFFER_BYTES + (2 << 20)
    await replica.opening()
    assert (await replica.groups(200)).endswith("0-1-200")
    assert client.received < 0.7 * 200 * 100_000
    client.close()


async def test_frames_are_compressed_once(lab: Lab) -> None:
    replicas = []
    for number in range(8):
        replica = Replica(await compressed_client(lab))
        await replica.start(server_id=number + 10)
        await replica.opening()
        replicas.append(replica)
    compressor = lab.server.compressor
    misses = compressor.misses
    for number in range(1, 11):
        lab.publish(f"0-1-{number}")
        for replica in replicas:
            assert await replica.groups(1) == f"0-1-{number}"
    assert compressor.misses == misses + 10
    for replica in replicas:
        replica.client.close()


async def test_history_is_compressed_once_for_those_who_read_it_together(lab: Lab) -> None:
    """Large frames, in a thread: who comes while they are being made waits for the same ones."""
    await history(lab, 40, 100_000)
    clients = [await compressed_client(lab) for _ in range(6)]
    replicas = [Replica(client) for client in clients]
    for number, replica in enumerate(replicas):
        await replica.start(server_id=number + 10)

    async def all_of_it(replica: Replica) -> str:
        await replica.opening()
        return await replica.groups(40)

    found = await asyncio.gather(*(all_of_it(replica) for replica in replicas))
    assert set(found) == {",".join(f"0-1-{number}" for number in range(1, 41))}
    compressor = lab.server.compressor
    assert compressor.hits > 4 * compressor.misses / 6
    for client in clients:
        client.close()


async def test_what_is_shared_is_bounded() -> None:
    compressor = Compressor(shared_bytes=100_000)
    kept = [bytearray(random.Random(n).randbytes(10_000)) for n in range(30)]
    for data in kept:
        parts = compressor.at_once(data)
        assert b"".join(part.payload() for part in parts) == data
        assert compressor._bytes <= 100_000
        assert compressor.at_once(data) is parts
    large = bytearray(60_000)
    compressor.at_once(large)
    assert compressor.at_once(large) is not compressor.at_once(large)
    answer = bytes(10_000)
    assert compressor.at_once(answer) is not compressor.at_once(answer)
    assert await compressor.step(kept[-1], 0) is compressor.at_once(kept[-1])
    first, second = await asyncio.gather(*(compressor.step(large, 0) for _ in range(2)))
    assert first is second
    compressor.close()


async def test_a_slow_compression_delays_nobody_else(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in a thread; others are served meanwhile, and what was written later comes later."""
    held = asyncio.Event()
    loop = asyncio.get_running_loop()
    done = []

    def slow(data: memoryview) -> list[CompressedPacket]:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result()
        done.append(len(data))
        return compressed(data)

    client = await compressed_client(lab)
    monkeypatch.setattr(compression, "compressed", slow)
    monkeypatch.setattr(compression, "_AT_ONCE_BYTES", 0)
    other = await lab.client()
    client.send(PING)
    for _ in range(20):
        assert await other.query("SELECT 1") == [["1"]]
    assert not done
    held.set()
    assert (await client.answer())[:1] == b"\0"
    assert done
    client.close()


async def test_the_end_comes_behind_what_was_written(lab: Lab) -> None:
    """A dump that is not to wait: all groups and the EOF, although they are still to be compressed when it ends."""
    await history(lab, 3, 400_000)
    client = await compressed_client(lab)
    for name, value in (("mariadb_slave_capability", 4), ("slave_connect_state", "''")):
        await client.query(f"SET @{name}={value}")
    client.command(BinlogDump(0, flags=3).build())
    replica = Replica(client)
    await replica.opening()
    assert await replica.groups(3) == "0-1-1,0-1-2,0-1-3"
    assert await replica.ended()


async def test_a_lost_connection_stops_everything(lab: Lab) -> None:
    await history(lab, 50, 400_000)
    client = await compressed_client(lab)
    replica = Replica(client)
    await replica.start()
    await replica.opening()
    client.writer.transport.abort()
    await until(lambda: not len(lab.server.connections))


def test_one_packet_is_no_larger_than_a_client_expects() -> None:
    reader = CompressedReader(PART_BYTES_MAX, restarts=True)
    data, _ = framed(compressed(bytes(3 * PART_BYTES_MAX) + random.Random(1).randbytes(99)), 0)
    reader.feed(data)
    assert reader.next_part() is not None
