from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.event_group import split_events
from protocol.events import EventType, build_event
from protocol.limits import PACKET_PAYLOAD_MAX
from protocol.wire.event_frames import EventFrames, event_frames, frame_event

EVENTS = st.builds(
    lambda type_, body: build_event(type_, body, server_id=1),
    st.sampled_from([2, 16, 19, 23, 160, 162]),
    st.one_of(st.binary(max_size=60), st.integers(990, 1020).map(bytes)),
)


def plain_frames(payloads: list[bytes], seq: int, *, annotate: bool) -> bytes:
    """The plain twin: one event after the other."""
    frames = b""
    for payload in payloads:
        for event in split_events(payload):
            if annotate or event[4] != EventType.ANNOTATE_ROWS:
                frame, seq = frame_event(event, seq)
                frames += frame
    return frames


@given(
    st.lists(st.lists(EVENTS, max_size=6), max_size=6),
    st.booleans(),
    st.lists(st.integers(0, 255), min_size=1, max_size=5),
)
def test_equals_the_plain_twin(groups: list[list[bytes]], annotate: bool, seqs: list[int]) -> None:
    payloads = [b"".join(events) for events in groups]
    frames = event_frames(payloads, annotate=annotate)
    assert frames.data == plain_frames(payloads, 0, annotate=annotate)
    for seq in seqs:
        assert frames.at_sequence(seq) == plain_frames(payloads, seq, annotate=annotate)
        assert frames.at_sequence(0) == frames.data
    assert frames.packets == len(frames.seq_offsets)
    assert frames.packets == sum(
        annotate or event[4] != 160 for events in groups for event in events
    )


def test_sequence_numbers_wrap() -> None:
    payload = build_event(16, bytes(8), server_id=1)
    frames = event_frames([payload] * 1000, annotate=True)
    data = frames.at_sequence(250)
    size = len(payload) + 5
    assert [data[i * size + 3] for i in range(1000)] == [(250 + i) % 256 for i in range(1000)]
    assert frames.at_sequence(250) is data


@pytest.mark.parametrize(
    "length",
    [1023, 1024, PACKET_PAYLOAD_MAX - 2, PACKET_PAYLOAD_MAX - 1, PACKET_PAYLOAD_MAX, 20_000_000],
)
def test_long_events(length: int) -> None:
    long = build_event(23, bytes(length - 19), server_id=1)
    short = build_event(16, bytes(8), server_id=1)
    payload = short + long + short
    frames = event_frames([payload], annotate=False)
    expected = plain_frames([payload], 0, annotate=False)
    assert frames.data == expected
    assert frames.packets == 3 + (length + 1) // PACKET_PAYLOAD_MAX
    assert frames.at_sequence(254) == plain_frames([payload], 254, annotate=False)


@pytest.mark.parametrize("length", [0, 1, 18, 28, 2**31, 2**32 - 1])
def test_impossible_lengths(length: int) -> None:
    event = build_event(16, bytes(8), server_id=1)
    broken = event[:9] + length.to_bytes(4, "little") + event[13:]
    with pytest.raises(ProtocolError, match="offset 27"):
        event_frames([event + broken], annotate=True)


@pytest.mark.parametrize("cut", range(1, 27))
def test_cut_payload(cut: int) -> None:
    event = build_event(16, bytes(8), server_id=1)
    with pytest.raises(ProtocolError):
        event_frames([event + event[:cut]], annotate=True)


def test_nothing() -> None:
    for payloads in ([], [b""]):
        frames = event_frames(payloads, annotate=False)
        assert isinstance(frames, EventFrames)
        assert frames.packets == 0
        assert frames.at_sequence(9) == b""
