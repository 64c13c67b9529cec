"""Events of groups that come in pieces, and their packets."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.groups.event_parts import EventPart, EventRun, event_parts
from binlog_protocol.wire import long_event, packets
from binlog_protocol.wire.event_frames import frame_event
from binlog_protocol.wire.long_event import LongEvent
from binlog_protocol.wire.semi_sync import STATUS_WITH_ACK
from hypothesis import given
from hypothesis import strategies as st

RUN, LONG = 100, 200
small_parts = partial(event_parts, run_bytes=RUN, long_bytes=LONG)

types = st.sampled_from([EventType.QUERY, EventType.ANNOTATE_ROWS, EventType.GTID])
events = st.builds(
    lambda type_, size: build_event(type_, (bytes(range(256)) * 4)[:size], server_id=1),
    types,
    st.one_of(st.integers(0, 60), st.integers(150, 1000)),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(borders)]


def whole_events(pieces: list[bytes]) -> list[bytes]:
    """All events, put together again; what parts say of themselves is checked."""
    found: list[bytes] = []
    begun: list[bytes] | None = None
    for part in small_parts(pieces):
        if isinstance(part, EventRun):
            assert begun is None
            found += split_events(part.data)
            continue
        assert part.first == (begun is None)
        begun = [*(begun or []), part.data]
        if part.last:
            found.append(b"".join(begun))
            assert part.length == len(found[-1])
            begun = None
    assert begun is None
    return found


@given(st.lists(events, max_size=12), st.lists(st.integers(0, 20_000), max_size=30))
def test_cut_anywhere(group: list[bytes], places: list[int]) -> None:
    assert whole_events(cut(b"".join(group), places)) == group


def test_byte_by_byte_only_long_events_come_in_parts() -> None:
    sizes = [0, 1, 80, LONG - 19, LONG - 18, 700, 5]
    group = [build_event(EventType.QUERY, bytes(size), server_id=1) for size in sizes]
    pieces = [bytes([byte]) for byte in b"".join(group)]
    assert whole_events(pieces) == group
    parts = [part for part in small_parts(pieces) if isinstance(part, EventPart)]
    assert {part.length for part in parts} == {len(event) for event in group if len(event) > LONG}
    assert max(len(part.data) for part in parts) <= LONG


@pytest.mark.parametrize("wanted_whole", [False, True])
def test_what_is_wanted_whole(wanted_whole: bool) -> None:
    event = build_event(EventType.ANNOTATE_ROWS, bytes(5000), server_id=1)
    pieces = cut(event, list(range(0, 5000, 7)))
    whole = {EventType.ANNOTATE_ROWS} if wanted_whole else {EventType.GTID}
    found = list(small_parts(pieces, whole=whole))
    assert (found == [EventRun(event)]) == wanted_whole
    assert b"".join(part.data for part in found) == event


def test_a_group_that_is_cut_short() -> None:
    group = [build_event(EventType.QUERY, bytes(size), server_id=1) for size in (10, 400, 30)]
    data = b"".join(group)
    borders = {0, len(group[0]), len(group[0] + group[1]), len(data)}
    for end in range(len(data) + 1):
        for pieces in ([data[:end]], cut(data[:end], list(range(0, end, 11)))):
            if end in borders:
                assert b"".join(whole_events(pieces)) == data[:end]
            else:
                with pytest.raises(ProtocolError, match="ends inside an event"):
                    list(small_parts(pieces))


@pytest.mark.parametrize("length", [0, 1, 18])
def test_impossible_lengths(length: int) -> None:
    event = bytearray(build_event(EventType.QUERY, bytes(30), server_id=1))
    event[9:13] = length.to_bytes(4, "little")
    with pytest.raises(ProtocolError, match="no possible length"):
        list(small_parts([bytes(event)]))


@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=10))
def test_any_bytes(data: bytes, places: list[int]) -> None:
    try:
        assert b"".join(whole_events(cut(data, places))) == data
    except ProtocolError:
        with pytest.raises(ProtocolError):
            list(split_events(data))


@pytest.mark.parametrize("size", [*range(45, 56), 99, 100, 101, 149, 150, 500])
@pytest.mark.parametrize("step", [1, 7, 50, 1000])
def test_packets_of_a_long_event(size: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a whole one, where the longest packet has 50 bytes."""
    for module in (long_event, packets):
        monkeypatch.setattr(module, "PACKET_PAYLOAD_MAX", 50)
    event = build_event(EventType.QUERY, bytes(size - 19), server_id=1)
    expected, next_sequence = frame_event(event, 250)
    framer = LongEvent(len(event))
    sequence, framed = 250, b""
    for at in range(0, len(event), step):
        frames = framer.frame(event[at : at + step])
        framed += frames.at_sequence(sequence)
        sequence = (sequence + frames.packets) % 256
    assert (framed, sequence) == (expected, next_sequence)


@pytest.mark.parametrize("size", [45, 46, 47, 48, 96, 97, 98, 200])
@pytest.mark.parametrize("step", [19, 50, 1000])
def test_a_long_event_is_to_be_acknowledged(
    size: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the last one of its group. The packets behind it begin at 1, those of it do not."""
    for module in (long_event, packets):
        monkeypatch.setattr(module, "PACKET_PAYLOAD_MAX", 50)
    event = build_event(EventType.QUERY, bytes(size - 19), server_id=1)
    expected, _ = frame_event(event, 250, STATUS_WITH_ACK)
    framer = LongEvent(len(event), semi_sync=True)
    sequence, framed, asked = 250, b"", []
    for at in range(0, len(event), step):
        frames = framer.frame(event[at : at + step])
        framed += frames.at_sequence(sequence)
        sequence = frames.sequence_after(sequence)
        asked.append(frames.ack_wanted)
    assert framed == expected
    assert asked == [False] * (len(asked) - 1) + [True]
    assert sequence == 1
