from __future__ import annotations

import random

import pytest
from binlog_protocol.errors import PacketTooLarge, ProtocolError
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire import packets
from binlog_protocol.wire.gathered import GATHERED_BYTES_MIN
from binlog_protocol.wire.packets import (
    LARGE_BYTES,
    Packet,
    PacketReader,
    frame_packet,
    frame_packets,
)
from hypothesis import given
from hypothesis import strategies as st


def drain(reader: PacketReader) -> list[bytes]:
    payloads = []
    while (packet := reader.next_packet()) is not None:
        payloads.append(packet.payload)
    return payloads


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.integers(0, 255),
    st.lists(st.integers(1, 400), min_size=1, max_size=50),
)
def test_any_chunking(payloads: list[bytes], seq: int, chunk_sizes: list[int]) -> None:
    data, next_seq = frame_packets(payloads, seq)
    assert next_seq == (seq + len(payloads)) % 256
    reader = PacketReader(1000)
    found = []
    position = 0
    for size in chunk_sizes * (len(data) // sum(chunk_sizes) + 1):
        reader.feed(data[position : position + size])
        position += size
        found += drain(reader)
    assert found == payloads
    assert reader.buffered == 0


class Lender:
    """Gives bytes to a reader in two places by turns; what was in the place before is overwritten."""

    def __init__(self, reader: PacketReader) -> None:
        self._reader = reader
        self._before = bytearray()

    def lend(self, data: bytes) -> None:
        place = bytearray(self._reader.untaken) + data
        self._before[:] = b"\xee" * len(self._before)
        self._before = place
        self._reader.lend(memoryview(place))

    def feed(self, data: bytes) -> None:
        self._reader.feed(data)
        self._before[:] = b"\xee" * len(self._before)


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.tuples(st.integers(1, 400), st.booleans()), min_size=1, max_size=50),
)
def test_any_chunking_where_the_bytes_came_in(
    payloads: list[bytes], chunks: list[tuple[int, bool]]
) -> None:
    data, _ = frame_packets(payloads, 0)
    reader = PacketReader(1000)
    lender = Lender(reader)
    found = []
    position = 0
    while position < len(data):
        for size, is_lent in chunks:
            (lender.lend if is_lent else lender.feed)(data[position : position + size])
            position += size
            found += drain(reader)
    assert found == payloads
    assert reader.buffered == len(reader.untaken) == 0


def test_lent_bytes_are_bounded_as_others() -> None:
    reader = PacketReader(10)
    with pytest.raises(PacketTooLarge):
        reader.lend(memoryview(b"\x0b\x00\x00\x00"))
    reader = PacketReader(10)
    reader.lend(memoryview(b"\x01\x00\x00\x00x" * 4))
    with pytest.raises(ProtocolError, match="ahead of the answers"):
        reader.lend(memoryview(b"\x01\x00\x00\x00x" * 5))


def test_continuations_where_the_bytes_came_in() -> None:
    payload = bytes(2 * PACKET_PAYLOAD_MAX)
    data, next_seq = frame_packet(payload, 255)
    reader = PacketReader(len(payload))
    lender = Lender(reader)
    found = None
    for start in range(0, len(data), 5_000_000):
        lender.lend(data[start : start + 5_000_000])
        found = found or reader.next_packet()
    assert found == (255, payload, next_seq)


def test_byte_by_byte_and_with_a_tail() -> None:
    frame, next_seq = frame_packet(b"hello", 7)
    reader = PacketReader(100)
    for byte in frame[:-1]:
        reader.feed(bytes((byte,)))
        assert reader.next_packet() is None
    reader.feed(frame[-1:] + b"\x05\x00")
    packet = reader.next_packet()
    assert packet == (7, b"hello", next_seq)
    assert reader.next_packet() is None
    assert reader.buffered == 2


@pytest.mark.parametrize(
    ("length", "frames"),
    [
        (0, 1),
        (PACKET_PAYLOAD_MAX - 1, 1),
        (PACKET_PAYLOAD_MAX, 2),
        (PACKET_PAYLOAD_MAX + 1, 2),
        (2 * PACKET_PAYLOAD_MAX, 3),
    ],
)
def test_continuations(length: int, frames: int) -> None:
    payload = bytes(length)
    data, next_seq = frame_packet(payload, 255)
    assert next_seq == (255 + frames) % 256
    assert len(data) == length + 4 * frames
    reader = PacketReader(length)
    for start in range(0, len(data), 1_000_000):
        reader.feed(data[start : start + 1_000_000])
        assert reader.buffered <= length + 4 * frames
    assert reader.next_packet() == (255, payload, next_seq)


def test_continuation_out_of_order() -> None:
    data = bytearray(frame_packet(bytes(PACKET_PAYLOAD_MAX + 5), 0)[0])
    data[4 + PACKET_PAYLOAD_MAX + 3] = 2
    reader = PacketReader(1 << 25)
    reader.feed(data)
    with pytest.raises(ProtocolError, match="sequence number 2, not 1") as caught:
        reader.next_packet()
    assert caught.value.answer is not None
    assert caught.value.answer.errno == 1156


def test_too_large_is_seen_from_the_header_alone() -> None:
    reader = PacketReader(1000)
    reader.feed(b"\xe8\x03")
    reader.feed(b"\x00\x00")
    assert reader.next_packet() is None
    reader = PacketReader(1000)
    reader.feed(b"\xe9\x03\x00")
    with pytest.raises(PacketTooLarge) as caught:
        reader.feed(b"\x00")
    assert caught.value.answer is not None
    assert caught.value.answer.errno == 1153


def test_too_large_counts_continuations() -> None:
    reader = PacketReader(PACKET_PAYLOAD_MAX + 10)
    reader.feed(b"\xff\xff\xff\x00" + bytes(PACKET_PAYLOAD_MAX))
    reader.feed(b"\x0b\x00\x00\x01")
    with pytest.raises(PacketTooLarge):
        reader.next_packet()


def test_second_packet_too_large() -> None:
    reader = PacketReader(10)
    reader.feed(b"\x01\x00\x00\x00x\x0b\x00\x00\x00")
    assert drain_one(reader) == b"x"
    with pytest.raises(PacketTooLarge):
        reader.next_packet()


def drain_one(reader: PacketReader) -> bytes:
    packet = reader.next_packet()
    assert packet is not None
    return packet.payload


def test_the_limit_may_be_raised() -> None:
    reader = PacketReader(10)
    reader.payload_bytes_max = 20
    reader.feed(frame_packet(bytes(20), 0)[0])
    assert drain_one(reader) == bytes(20)


def test_a_peer_that_sends_ahead_is_stopped() -> None:
    reader = PacketReader(1000)
    packet = frame_packet(b"x", 0)[0]
    while reader.buffered <= 1000 + 4:
        reader.feed(packet)
    with pytest.raises(ProtocolError, match="ahead"):
        reader.feed(packet)
    assert reader.buffered <= 1000 + 4 + 5


def test_many_small_packets_in_one_feed() -> None:
    count = 200_000
    reader = PacketReader(100)
    reader.feed(frame_packet(b"abc", 0)[0] * count)
    assert len(drain(reader)) == count


@pytest.mark.parametrize("size", [1, 5, 70_000, 262_144, 300_000, 1_000_000, 10_000_000])
def test_large_payloads_are_gathered(size: int) -> None:
    """The same packets, however they are cut; large ones are the receiver's own."""
    least = GATHERED_BYTES_MIN
    lengths = [3, least - 1, least, 0, 4 * least + 1, least + 7, 1, 9 * least]
    if size < 1000:  # one after the other
        lengths = [least, 2]
    payloads = [bytes((n + 1,)) * length for n, length in enumerate(lengths)]
    data = memoryview(b"".join(frame_packet(payload, 0)[0] for payload in payloads))
    asked: list[int] = []

    def allocate(length: int) -> bytearray:
        asked.append(length)
        return bytearray(b"\xee") * length

    reader = PacketReader(1 << 24, allocate=allocate)
    found: list[bytes] = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        came = min(start + size, len(data))
        assert reader.buffered == came - sum(len(one) + 4 for one in found)
        found += drain(reader)
    assert found == payloads
    assert reader.buffered == 0
    if size < least:
        assert all(isinstance(p, bytearray) == (len(p) >= least) for p in found)
        assert max(asked) == max(lengths)


@pytest.mark.parametrize("size", [100_000, 300_000, 1_000_000, 4_000_000])
@pytest.mark.parametrize("way", ["lend", "feed", "by turns"])
def test_large_payloads_are_gathered_where_bytes_are_lent(size: int, way: str) -> None:
    least = GATHERED_BYTES_MIN
    lengths = [3, least, 1, least - 1, 5 * least, 0, PACKET_PAYLOAD_MAX + 5, 9, 2 * least]
    payloads = [bytes((n + 1,)) * length for n, length in enumerate(lengths)]
    data, _ = frame_packets(payloads, 0)
    reader = PacketReader(1 << 25, allocate=bytearray)
    lender = Lender(reader)
    found: list[bytes] = []
    for number, start in enumerate(range(0, len(data), size)):
        is_lent = way == "lend" or (way == "by turns" and number % 3 == 0)
        (lender.lend if is_lent else lender.feed)(data[start : start + size])
        found += drain(reader)
        assert len(reader.untaken) < least
    assert found == payloads
    assert reader.buffered == 0
    assert all(isinstance(p, bytearray) == (len(p) >= least) for p in found)


@pytest.mark.parametrize("size", [1000, 100_000, 300_000, 4_000_000])
def test_large_payloads_are_received_where_they_stay(size: int) -> None:
    """As `Lender`, but what belongs to a large payload is put there by who receives it."""
    least = GATHERED_BYTES_MIN
    lengths = [3, least, 1, least - 1, 5 * least, 0, PACKET_PAYLOAD_MAX + 5, 9, 2 * least]
    payloads = [bytes((n + 1,)) * length for n, length in enumerate(lengths)]
    data, _ = frame_packets(payloads, 0)
    reader = PacketReader(1 << 25, allocate=bytearray)
    lender = Lender(reader)
    found: list[bytes] = []
    at = direct = 0
    while at < len(data):
        coming = reader.gathering
        if coming is None:
            lender.lend(data[at : at + min(size, 50_000)])
            at += min(size, 50_000)
        else:
            assert not reader.untaken
            with coming.rest() as place:
                came = min(size, len(place), len(data) - at)
                assert min(coming.left, 500_000) <= len(place) <= coming.left
                place[:came] = data[at : at + came]
            coming.came(came)
            at, direct = at + came, direct + came
            assert coming.is_whole == (coming.left == 0) == (reader.gathering is None)
        found += drain(reader)
    assert found == payloads
    assert reader.buffered == 0
    assert direct > 0.9 * len(data)
    assert all(isinstance(p, bytearray) == (len(p) >= least) for p in found)


def test_what_is_large_is_told_before_it_is_taken() -> None:
    """So that a thread can take it."""
    reader = PacketReader(1 << 26, allocate=bytearray)
    for length, is_large in ((LARGE_BYTES, False), (LARGE_BYTES + 1, True), (1 << 25, True)):
        data, _ = frame_packet(bytes(length), 0)
        reader.feed(data[:100])
        assert reader.next_packet() is None
        for start in range(100, len(data), 1 << 20):
            reader.feed(data[start : start + (1 << 20)])
            if not reader.holds_large:
                assert not is_large or reader.buffered < length
                if is_large:
                    assert reader.next_packet() is None
        while not (packet := reader.next_packet()):
            assert reader.holds_large
        assert len(packet.payload) == length
        assert not reader.holds_large


def test_a_continued_payload_is_gathered() -> None:
    payload = bytes(range(256)) * (PACKET_PAYLOAD_MAX // 128)
    data = memoryview(frame_packet(payload, 9)[0])
    reader = PacketReader(len(payload), allocate=bytearray)
    for start in range(0, len(data), 1_000_000):
        assert reader.next_packet() is None
        reader.feed(data[start : start + 1_000_000])
    packet = reader.next_packet()
    assert packet is not None
    assert (packet.seq, packet.payload) == (9, payload)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_gathered_payload_may_end_with_an_empty_packet(frames: int) -> None:
    payload = bytes(range(255)) * (frames * PACKET_PAYLOAD_MAX // 255)
    assert len(payload) == frames * PACKET_PAYLOAD_MAX
    data, next_seq = frame_packet(payload, 0)
    reader = PacketReader(len(payload), allocate=bytearray)
    for start in range(0, len(data), 1_000_000):
        reader.feed(data[start : start + 1_000_000])
    assert reader.next_packet() == (0, payload, next_seq)
    assert reader.buffered == 0


def test_memory_is_taken_by_what_came() -> None:
    """Not by what a header says; and no part of it is moved but a quarter."""
    length = PACKET_PAYLOAD_MAX - 1
    asked: list[int] = []

    def allocate(size: int) -> bytearray:
        asked.append(size)
        return bytearray(size)

    reader = PacketReader(length, allocate=allocate)
    came = 0
    reader.feed(length.to_bytes(3, "little") + b"\0")
    while came < length:
        part = min(50_000, length - came)
        reader.feed(bytes(part))
        came += part
        assert reader.buffered == came + 4
        assert asked[-1] <= 4 * max(came, 65_536)
    assert len(asked) == 4
    assert asked[-2] * 4 <= asked[-1] == length
    reader.discard()
    assert reader.buffered == 0
    assert reader.next_packet() is None


@pytest.mark.parametrize("seed", range(40))
def test_any_payloads_in_any_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With packets of 4 KB at most, so that each length comes: whole multiples, and payloads of many packets."""
    most = 4095
    rng = random.Random(seed)
    monkeypatch.setattr(packets, "PACKET_PAYLOAD_MAX", most)
    monkeypatch.setattr(packets, "GATHERED_BYTES_MIN", rng.choice([64, 500, 2000]))
    monkeypatch.setattr(packets, "_SLICE_BYTES", rng.choice([16, 1000, 5000]))
    sent: list[Packet] = []
    data = b""
    seq = rng.randrange(256)
    for _ in range(12):
        length = max(0, rng.randrange(5) * most + rng.choice([-1, 0, 0, 1, rng.randrange(most)]))
        payload = rng.randbytes(length)
        framed, behind = frame_packet(payload, seq)
        sent.append(Packet(seq, payload, behind))
        data, seq = data + framed, behind
    reader = PacketReader(6 * most, allocate=rng.choice([None, bytearray]))
    found: list[Packet] = []
    at = 0
    while at < len(data):
        piece = data[at : at + rng.choice([1, 3, 4, 5, 300, most, 3 * most])]
        gathering = reader.gathering
        if gathering is not None and rng.random() < 0.5:
            with gathering.rest() as place:
                piece = piece[: len(place)]
                place[: len(piece)] = piece
            gathering.came(len(piece))
        elif rng.random() < 0.5:
            with reader.untaken as untaken:
                lent = bytes(untaken) + piece
            reader.lend(memoryview(lent))
        else:
            reader.feed(piece)
        at += len(piece)
        while (packet := reader.next_packet()) is not None:
            found.append(packet)
    assert found == sent
    assert reader.buffered == 0
