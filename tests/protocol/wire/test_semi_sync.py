"""Semi-sync, byte by byte: acknowledgements, positions, and conversations of real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import EventHeader, build_event
from binlog_protocol.wire.event_frames import event_frames
from binlog_protocol.wire.packets import PacketReader, frame_packet
from binlog_protocol.wire.semi_sync import (
    ACK_BYTES_MAX,
    FLAG_OFFSET,
    STATUS,
    STATUS_WITH_ACK,
    STILL,
    Ack,
    PositionStep,
    ReplicaPlace,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.pair import ConnectionPair

CAPTURES = Path(__file__).parents[2] / "binlog_server" / "captures"
RECORDED = ["1011-10-semisync", "118-10-semisync"]
U32 = st.integers(0, 2**32 - 1)
STEPS = st.builds(
    PositionStep.of,
    st.sampled_from([2, 5, 15, 16, 27, 30, 160, 162, 163, 164]),
    st.integers(19, 1 << 20),
    U32,
)


def packets(name: str) -> Iterator[tuple[bool, int, bytes]]:
    """From whom (True: the replica), sequence number, payload."""
    readers = {direction: PacketReader(1 << 24) for direction in ("C>S", "S>C")}
    for line in (CAPTURES / f"{name}.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "x" not in record or record["c"] != 1:
            continue
        reader = readers[record["d"]]
        reader.feed(bytes.fromhex(record["x"]))
        while (packet := reader.next_packet()) is not None:
            yield record["d"] == "C>S", packet.seq, packet.payload


@pytest.mark.parametrize("name", RECORDED)
def test_we_count_as_a_real_replica_does(name: str) -> None:
    """The position in each acknowledgement is what we count up to the event that asked for it."""
    place, wanted, acks = ReplicaPlace(), [], []
    dumping_began, restarts = False, 0
    expected_seq: int | None = None
    for from_replica, seq, payload in packets(name):
        if from_replica:
            ack = Ack.parse(payload)
            dumping_began |= payload[:1] == b"\x12"
            if ack is not None and dumping_began:
                assert seq == 0
                assert ack.build() == frame_packet(payload, 0)[0]
                acks.append(ack)
        elif dumping_began and payload[:2] == STATUS[:2]:
            if expected_seq is not None:
                assert seq == expected_seq
                restarts += 1
            # The description has its own checksum in any case; of others only the name of a ROTATE depends on it.
            place.feed(payload[len(STATUS) :], int(ChecksumAlgorithm.CRC32))
            expected_seq = None
            if payload[: len(STATUS)] == STATUS_WITH_ACK:
                wanted.append(place.ack)
                expected_seq = 1
    assert acks
    assert acks == wanted[: len(acks)]


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100),
    st.integers(0, 2**64 - 1),
)
def test_an_ack_is_read_back(name: str, position: int) -> None:
    packet = Ack(name, position).build()
    assert packet[3] == 0
    assert Ack.parse(packet[4:]) == Ack(name, position)


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x0e"])
def test_what_is_no_ack(payload: bytes) -> None:
    assert Ack.parse(payload) is None


@pytest.mark.parametrize("payload", [b"\xef", b"\xef" + bytes(8), b"\xef" + bytes(ACK_BYTES_MAX)])
def test_acks_that_are_cut_off_or_too_long(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="an acknowledgement of"):
        Ack.parse(payload)


@given(st.lists(STEPS, max_size=20), st.integers(4, 2**40), st.integers(0, 20))
def test_steps_one_by_one_or_together(steps: list[PositionStep], start: int, cut: int) -> None:
    one_by_one = start
    for step in steps:
        one_by_one = step.moved(one_by_one)
    first = second = STILL
    for step in steps[:cut]:
        first = first.then(step)
    for step in steps[cut:]:
        second = second.then(step)
    assert first.then(second).moved(start) == one_by_one == second.moved(first.moved(start))


@given(st.lists(st.tuples(st.sampled_from(list(EventType)), st.integers(0, 400), U32), max_size=30))
def test_frames_know_their_step(parts: list[tuple[EventType, int, int]]) -> None:
    parts = [part for part in parts if part[0] != EventType.ROTATE]
    events = [build_event(t, bytes(n), server_id=1, end_position=end) for t, n, end in parts]
    frames = event_frames([b"".join(events)], annotate=True, semi_sync=True)
    place = ReplicaPlace()
    for event in events:
        place.feed(event)
    assert frames.step.moved(4) == place.position
    assert frames.ack_wanted == bool(events)
    reader = PacketReader(1 << 20)
    reader.feed(frames.at_sequence(7))
    found = list(iter(reader.next_packet, None))
    assert [packet.payload[3:] for packet in found] == events
    assert [packet.payload[FLAG_OFFSET] for packet in found] == [0] * len(events[1:]) + [1] * bool(
        events
    )
    assert frames.sequence_after(7) == (1 if events else 7)


def test_an_event_of_several_packets_asks_in_its_first() -> None:
    event = build_event(EventType.QUERY, bytes((1 << 24) + 50), server_id=1)  # two packets
    small = build_event(EventType.GTID, bytes(19), server_id=1)
    frames = event_frames([small + event], annotate=True, semi_sync=True)
    assert frames.packets == 3
    assert frames.step.moved(4) == 4 + len(small) + len(event)
    reader = PacketReader(1 << 26)
    reader.feed(frames.at_sequence(1))
    assert [p.payload[:3] for p in iter(reader.next_packet, None)] == [STATUS, STATUS_WITH_ACK]


def dumping() -> ServerConnection:
    pair = ConnectionPair()
    pair.log_in()
    pair.to_server(pair.client.binlog_dump(2))
    pair.server.start_dump()
    return pair.server


def semi_sync_dump() -> ServerConnection:
    server = dumping()
    server.start_semi_sync()
    return server


def test_acks_are_read_byte_by_byte() -> None:
    server = semi_sync_dump()
    acks = [Ack("a.000001", n) for n in range(3)]
    ping = frame_packet(b"\x0e", 0)[0]
    found = []
    for byte in b"".join(ack.build() + ping for ack in acks):
        server.receive_data(bytes((byte,)))
        found += server.take_acks(100)[0]
    assert found == acks


def test_without_semi_sync_nothing_is_read() -> None:
    server = dumping()
    server.receive_data(Ack("a", 1).build())
    assert server.take_acks(100) == ([], False)
    assert server.buffered == 0


def test_packets_too_large_for_an_ack_close() -> None:
    server = semi_sync_dump()
    with pytest.raises(ProtocolError):
        server.receive_data(frame_packet(bytes(ACK_BYTES_MAX + 1), 0)[0])
    assert server.is_closed


@given(st.binary(max_size=600))
def test_any_bytes_from_a_replica(data: bytes) -> None:
    server = semi_sync_dump()
    try:
        server.receive_data(data)
        server.take_acks(100)
    except ProtocolError:
        assert server.is_closed


def test_our_own_events_have_the_header() -> None:
    server = semi_sync_dump()
    event = build_event(EventType.HEARTBEAT, b"x", server_id=1)
    assert server.dump_event(event)[4:] == STATUS + event
    assert EventHeader.parse(event).type == EventType.HEARTBEAT
