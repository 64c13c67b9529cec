"""The compressed protocol: both ends, real servers' bytes, and what is no such thing."""

from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from pathlib import Path

import pytest
from binlog_protocol.connection.client import OkReceived
from binlog_protocol.connection.commands import Query
from binlog_protocol.errors import ProtocolError
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.compressed import (
    COMPRESSED_HEADER_SIZE,
    PART_BYTES_MAX,
    STORED_BYTES_MAX,
    CompressedPacket,
    CompressedReader,
    compressed,
    framed,
)
from binlog_protocol.wire.gathered import GATHERED_BYTES_MIN
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conversation import Conversation, conversations_in, packets
from tests.protocol.pair import ConnectionPair

CAPTURES = Path(__file__).parents[2] / "binlog_server" / "captures"


def frame(payload: bytes, seq: int = 0, size: int | None = None) -> bytes:
    """One compressed packet by hand; without `size` it is stored."""
    return (
        len(payload).to_bytes(3, "little")
        + bytes((seq,))
        + (size or 0).to_bytes(3, "little")
        + payload
    )


def deflated(payload: bytes, seq: int = 0) -> bytes:
    return frame(zlib.compress(payload), seq, len(payload))


def taken(reader: CompressedReader) -> list[bytes]:
    found = []
    while (part := reader.next_part()) is not None:
        found.append(part.payload())
    return found


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (0, []),
        (1, [0]),
        (STORED_BYTES_MAX, [0]),
        (STORED_BYTES_MAX + 1, [STORED_BYTES_MAX + 1]),
        (PART_BYTES_MAX, [PART_BYTES_MAX]),
        (PART_BYTES_MAX + 1, [PART_BYTES_MAX, 0]),
        (2 * PART_BYTES_MAX + 60, [PART_BYTES_MAX, PART_BYTES_MAX, 60]),
    ],
)
def test_what_is_compressed(size: int, sizes: list[int]) -> None:
    parts = compressed(b"a" * size)
    assert [part.size for part in parts] == sizes
    assert b"".join(part.payload() for part in parts) == b"a" * size


def test_what_would_grow_is_stored() -> None:
    dense = zlib.compress(bytes(range(256)) * 4)
    assert compressed(dense) == [CompressedPacket(dense, 0)]


def test_numbers_go_round() -> None:
    data, seq = framed([CompressedPacket(b"x", 0)] * 300, 200)
    assert seq == (200 + 300) % 256
    reader = CompressedReader(restarts=False)
    reader.next_seq = 200
    reader.feed(data)
    assert taken(reader) == [b"x"] * 300
    assert reader.next_seq == seq


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.builds(bytes.__mul__, st.binary(max_size=3), st.integers(0, 3000)),
        ),
        max_size=8,
    ),
    st.integers(0, 255),
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
)
def test_any_chunking(payloads: list[bytes], seq: int, sizes: list[int]) -> None:
    reader = CompressedReader(restarts=False)
    reader.next_seq = seq
    data, found = b"", b""
    for payload in payloads:
        more, seq = framed(compressed(payload), seq)
        data += more
    position = 0
    while position < len(data):
        for size in sizes:
            reader.feed(data[position : position + size])
            position += size
            found += b"".join(taken(reader))
    assert found == b"".join(payloads)
    assert (reader.buffered, reader.next_seq) == (0, seq)


def test_byte_by_byte() -> None:
    data = frame(b"short") + deflated(b"long" * 100, 1)
    reader = CompressedReader(restarts=True)
    found = []
    for byte in data:
        reader.feed(bytes((byte,)))
        found += [(part, reader.buffered) for part in taken(reader)]
    assert found == [(b"short", 0), (b"long" * 100, 0)]


BOMB = zlib.compress(bytes(PACKET_PAYLOAD_MAX))
BROKEN = {
    "a number that is not due": (frame(b"x", 3), 1156, "sequence number 3, not 0"),
    "a length beyond the limit": (b"\xff\xff\xff\0\0\0\0", 1153, "packet of 16777215 bytes"),
    "a size beyond the limit": (frame(b"x", 0, 70_001), 1153, "packet of 70001 bytes"),
    "no zlib stream": (frame(b"x" * 100, 0, 100), 1157, "compressed packet: "),
    "a stream cut short": (frame(zlib.compress(b"ab" * 99)[:-1], 0, 198), 1157, "99 bytes|198"),
    "a size too small": (frame(zlib.compress(b"ab" * 99), 0, 197), 1157, "197 are announced"),
    "a size too large": (frame(zlib.compress(b"ab" * 99), 0, 199), 1157, "199 are announced"),
    "a size that nothing reaches": (frame(b"x" * 10, 0, 60_000), 1157, "stand for 60000"),
    "a checksum that is wrong": (
        frame(zlib.compress(b"ab" * 99)[:-1] + b"x", 0, 198),
        1157,
        "incorrect data check",
    ),
    "a bomb that says to be small": (frame(BOMB, 0, 65_536), 1157, "65536 are announced"),
}


def feed_bytes(reader: CompressedReader, data: bytes) -> None:
    for byte in data:
        reader.feed(bytes((byte,)))
        taken(reader)


@pytest.mark.parametrize("what", BROKEN)
def test_broken(what: str) -> None:
    data, errno, text = BROKEN[what]
    reader = CompressedReader(70_000, restarts=True)
    with pytest.raises(ProtocolError, match=text) as raised:
        feed_bytes(reader, data)
    assert raised.value.answer is not None
    assert raised.value.answer.errno == errno


def test_a_bomb_takes_no_memory() -> None:
    reader = CompressedReader(1 << 20, restarts=True)
    tracemalloc.start()
    try:
        for size in (1, 1000, 1 << 20):
            reader.feed(frame(BOMB, 0, size))
            with pytest.raises(ProtocolError):
                taken(reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_who_sends_ahead_is_read_no_further() -> None:
    reader = CompressedReader(1000, restarts=True)
    reader.feed(frame(b"x" * 1000) + b"\1")
    with pytest.raises(ProtocolError, match="ahead"):
        reader.feed(b"x")
    assert reader.buffered == COMPRESSED_HEADER_SIZE + 1001


def test_requests_begin_at_0_and_answers_go_on() -> None:
    server = CompressedReader(restarts=True)
    for number, data in enumerate((frame(b"a", 0), frame(b"b", 1), frame(b"c", 0), frame(b"d", 1))):
        server.feed(data)
        assert len(taken(server)) == 1
        assert server.next_seq == number % 2 + 1
    client = CompressedReader(restarts=False)
    client.next_seq = 1
    client.feed(frame(b"a", 0))
    with pytest.raises(ProtocolError, match="number 0, not 1"):
        client.next_part()


@given(st.binary(max_size=400), st.integers(1, 60))
@settings(max_examples=300)
def test_chance(data: bytes, chunk: int) -> None:
    reader = CompressedReader(1000, restarts=True)
    with contextlib.suppress(ProtocolError):
        for start in range(0, len(data), chunk):
            reader.feed(data[start : start + chunk])
            assert all(len(payload) <= 1000 for payload in taken(reader))
    assert reader.buffered <= 1000 + COMPRESSED_HEADER_SIZE + chunk


@pytest.mark.long
@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), min_size=1, max_size=3),
)
@settings(max_examples=300)
def test_changed_packets(payloads: list[bytes], changes: list[tuple[int, int]]) -> None:
    """What is in a stream is never read wrong without a notice; what is stored has no checksum."""
    data = bytearray(framed([p for payload in payloads for p in compressed(payload * 9)], 0)[0])
    for where, change in changes:
        if data:
            data[where % len(data)] ^= change
    reader = CompressedReader(restarts=True)
    with contextlib.suppress(ProtocolError):
        reader.feed(data)
        taken(reader)


@pytest.mark.parametrize("name", ["1011-11-compressed", "118-11-compressed"])
def test_recorded(name: str) -> None:
    """Of real servers: what is inside, and that we would have numbered it as they did."""
    (conversation,) = conversations_in(CAPTURES / f"{name}.jsonl")
    requests = CompressedReader(restarts=True)
    answers = CompressedReader(restarts=False)
    sent = answered = b""
    for side, data in after_login(conversation):
        if side == "C>S":
            requests.feed(data)
            sent += b"".join(taken(requests))
            answers.next_seq = requests.next_seq
        else:
            answers.feed(data)
            answered += b"".join(taken(answers))
    assert (requests.buffered, answers.buffered) == (0, 0)
    commands = [packet.payload for packet in packets(sent)]
    assert commands[0] == Query("SELECT UNIX_TIMESTAMP()").build()
    assert [command[0] for command in commands[-2:]] == [0x15, 0x12]
    last = list(packets(answered))[-1].payload
    assert last[:1] == b"\0"
    assert last[5] == 27, "a heartbeat"


def after_login(conversation: Conversation) -> list[tuple[str, bytes]]:
    (_, greeting), (_, login), (_, ok), *rest = conversation.chunks
    assert greeting[4] == 10
    assert ok[4] == 0
    assert login[4] & 0x20
    return rest


def test_both_ends() -> None:
    """A client's machine and a server's, with all behind the login in compressed packets."""
    pair = ConnectionPair()
    pair.log_in()
    requests = CompressedReader(restarts=True)
    answers = CompressedReader(restarts=False)
    for text in ("SELECT 1", "SET @a='" + "x" * (PART_BYTES_MAX * 2) + "'"):
        data, answers.next_seq = framed(compressed(pair.client.query(text)), 0)
        requests.feed(data)
        received = b"".join(taken(requests))
        command = pair.to_server(received)
        assert command == Query(text)
        data, _ = framed(compressed(pair.server.send_ok(affected_rows=7)), requests.next_seq)
        answers.feed(data)
        (event,) = pair.to_client(b"".join(taken(answers)))
        assert isinstance(event, OkReceived)
        assert event.ok.affected_rows == 7


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
def test_large_packets_are_gathered(size: int) -> None:
    bodies = [b"a", b"b" * GATHERED_BYTES_MIN, b"", b"c" * 3_000_000, b"d" * 1_000_000, b"e"]
    data = b"".join(frame(body) for body in bodies)
    reader = CompressedReader(restarts=True)
    found: list[bytes] = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        came = min(start + size, len(data))
        assert reader.buffered == came - sum(
            len(body) + COMPRESSED_HEADER_SIZE for body in bodies[: len(found)]
        )
        found += taken(reader)
    assert found == bodies
    assert reader.buffered == 0
