"""One stream of groups: the same whatever comes together, and however little of a group may be held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from binlog_protocol.connection.client import StreamEnded
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.checksum import ChecksumAlgorithm, append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidFlags
from binlog_protocol.events.header import EventHeader, split_events
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.groups.event_group import EventGroup, GroupTooLarge, Incident, StartMarker
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import (
    EventReceived,
    GroupPart,
    GroupStream,
    Item,
    StreamEvent,
)
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.semi_sync import ReplicaPlace
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conversation import all_streams
from tests.protocol.groups.test_event_group import initial_algorithm
from tests.protocol.groups.test_group_runs import (
    Found,
    groups_of,
    needs_c,
    stream,
    streaming,
    take_in,
    transaction,
)

CRC32 = int(ChecksumAlgorithm.CRC32)
INCIDENT = IncidentEvent("lost", 1).build()
START = FormatDescription("11.8.6-MariaDB-log", 1, created=1).build()
EVENTS = [
    *transaction(1),
    *transaction(2, 3000),
    INCIDENT,
    *transaction(3)[:2],
    START,
    *transaction(3, 50, 2),
    RotateEvent.fake("f.000002", 1).build(),
    *transaction(4),
    *transaction(5),
]


def items_of(groups: GroupStream, *, runs: bool = True) -> Iterator[Item]:
    while (item := groups.next(runs=runs)) is not None:
        yield item


def whole(items: Iterator[Item]) -> Found:
    """With the parts of each group put together again, and those gone that a start has ended."""
    found: Found = []
    parts: list[bytes | bytearray] = []
    for item in items:
        match item:
            case GroupRun():
                assert not parts
                found += groups_of(item)
            case GroupPart(_, events):
                parts += events
            case EventGroup(gtid, payload, count):
                head = next(split_events(payload))
                joined = head + b"".join(parts) + payload[len(head) :]
                found.append(EventGroup(gtid, joined, count))
                parts = []
            case StartMarker():
                found.append(item)
                parts = []
            case Incident():
                found.append(item)
            case StreamEnded():
                found.append(repr(item))
    return found


@given(
    st.lists(st.integers(1, 2000), max_size=8),
    st.integers(1, 4000),
    st.integers(1, 500),
    st.booleans(),
)
def test_however_it_comes(sizes: list[int], large: int, piece: int, runs: bool) -> None:
    data = stream(EVENTS, 0)
    expected = take_in([data], 0, runs=False)[0]
    connection = streaming()
    groups = GroupStream(connection, 0, large_bytes=large, piece_bytes=piece)

    def items() -> Iterator[Item]:
        rest = data
        for size in [*sizes, len(data)]:
            connection.receive_data(rest[:size])
            rest = rest[size:]
            yield from items_of(groups, runs=runs)

    assert whole(items()) == expected
    assert groups.unfinished is None


@pytest.mark.parametrize("large", [1, 1 << 20])
def test_recorded_streams(large: int) -> None:
    """Of real servers, all at once and event by event."""
    for name, events in all_streams():
        packets = [frame_packet(b"\0" + e, (n + 1) & 0xFF)[0] for n, e in enumerate(events)]
        algorithm = initial_algorithm(events)
        expected, _ = take_in([b"".join(packets)], algorithm, runs=False)
        for pieces in ([b"".join(packets)], packets):
            connection = streaming()
            groups = GroupStream(connection, algorithm, large_bytes=large, piece_bytes=1)
            found: list[Item] = []
            for data in pieces:
                connection.receive_data(data)
                found += items_of(groups)
            assert whole(iter(found)) == expected, name


@pytest.mark.parametrize("large", [1, 1000, 1 << 20])
@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_events_that_are_the_readers_own(algorithm: int, large: int) -> None:
    """They are changed in place of copied; what comes out is the same."""
    for name, events in all_streams():
        if initial_algorithm(events) != algorithm:
            continue
        own = [cast(bytes, bytearray(event)) for event in events]
        places = [ReplicaPlace(), ReplicaPlace()]
        found = [
            whole(
                items_of(GroupStream(Listed(given), algorithm, large_bytes=large, place=place)),
            )
            for given, place in zip((events, own), places, strict=True)
        ]
        assert found[0] == found[1], name
        assert places[0].ack == places[1].ack


def test_a_large_event_is_in_no_whole_group() -> None:
    """It would be copied into it: it comes as a part, though it is the last one of its group."""
    begin, _, _ = transaction(1, 100)
    alone = bytearray(begin)
    alone[FLAGS2_OFFSET] |= GtidFlags.STANDALONE
    statement = QueryEvent(b"CREATE TABLE t -- " + b"x" * 5000, 1).build()
    first, part, last = items_of(
        GroupStream(Listed([bytes(alone), statement]), 0, large_bytes=1000)
    )
    assert isinstance(first, StreamEvent)
    assert isinstance(part, GroupPart)
    assert part.events == [statement]
    assert isinstance(last, EventGroup)
    assert (last.payload, last.event_count) == (bytes(alone), 2)


def test_a_part_is_as_large_as_was_asked_for() -> None:
    begin, row, _ = transaction(1, 100)
    groups = GroupStream(Listed([begin, *[row] * 40]), 0, large_bytes=1000, piece_bytes=300)
    parts = [b"".join(item.events) for item in items_of(groups) if isinstance(item, GroupPart)]
    sizes = [len(begin) + len(part) for part in parts]
    assert 1000 <= sizes[0] < 1000 + len(row)
    assert len(sizes) > 5
    assert all(300 <= size < 300 + len(row) for size in sizes[1:])


def test_a_group_that_is_too_large_is_so_in_parts_as_well() -> None:
    connection = streaming()
    connection.receive_data(stream(transaction(1, 3000), 0))
    groups = GroupStream(connection, 0, group_bytes_max=2000, large_bytes=100, piece_bytes=100)
    with pytest.raises(GroupTooLarge, match="raise max_event_group_size"):
        list(items_of(groups, runs=False))


def test_what_is_no_group_is_shown_as_it_was_sent() -> None:
    plain = RotateEvent.fake("f.000002", 1).build()
    rotate = append_checksum(plain)
    connection = streaming()
    connection.receive_data(frame_packet(b"\0" + rotate, 1)[0] + stream(transaction(1), CRC32, 2))
    groups = GroupStream(connection, CRC32)
    assert not groups.received
    first, *_ = list(items_of(groups, runs=False))
    assert groups.received
    assert isinstance(first, StreamEvent)
    assert (first.type, first.sent, first.event) == (EventType.ROTATE, rotate, plain)


@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_where_a_group_lay(algorithm: int) -> None:
    """What was sent behind its GTID event, the checksums too; in parts or by events."""
    events = transaction(1, 3000)
    sizes = [len(e) + (4 if algorithm else 0) for e in events]
    data = stream(events, algorithm)
    for cut in (0, len(data) // 2, len(data) - 3):
        connection = streaming()
        groups = GroupStream(connection, algorithm)
        found: list[Item] = []
        for piece in (data[:cut], data[cut:]):
            connection.receive_data(piece)
            found += items_of(groups, runs=False)
        assert isinstance(found[-1], EventGroup)
        ends = [EventHeader.parse(event).end_position for event in events]
        assert groups.span == (ends[0], sum(sizes[1:]), ends[-1])


@needs_c
def test_runs_only_if_asked_for() -> None:
    data = stream(transaction(1) + transaction(2), 0)
    for runs in (True, False):
        connection = streaming()
        connection.receive_data(data)
        items = list(items_of(GroupStream(connection, 0), runs=runs))
        assert any(isinstance(item, GroupRun) for item in items) is runs


@pytest.mark.parametrize("ack_each", [0, 4])
def test_who_acknowledges_is_told(ack_each: int) -> None:
    connection = streaming(semi_sync=True)
    connection.receive_data(stream(transaction(1) + transaction(2), 0, ack_each=ack_each))
    groups = GroupStream(connection, 0)
    list(items_of(groups))
    assert groups.ack_wanted is bool(ack_each)


def test_what_ends_a_stream() -> None:
    connection = streaming()
    connection.receive_data(frame_packet(b"\xfe\0\0\2\0", 1)[0])
    assert list(items_of(GroupStream(connection, 0))) == [StreamEnded()]
    connection = streaming()
    connection.receive_data(frame_packet(b"\xff\xd4\x04#HY000gone", 1)[0])
    with pytest.raises(RemoteError, match="gone"):
        GroupStream(connection, 0).next()


class Listed:
    """A source that is no connection."""

    def __init__(self, events: list[bytes]) -> None:
        self._events = iter(events)

    def take_run(self, checksum_algorithm: int) -> None:
        return None

    def take_part(self, checksum_algorithm: int) -> None:
        return None

    def take_event(self) -> EventReceived | None:
        event = next(self._events, None)
        return None if event is None else EventReceived(event)


def test_any_source_will_do() -> None:
    found = whole(items_of(GroupStream(Listed(EVENTS), 0, large_bytes=1, piece_bytes=1)))
    assert found == take_in([stream(EVENTS, 0)], 0, runs=False)[0]
    assert [g.gtid for g in found if isinstance(g, EventGroup)][-1] == Gtid(0, 1, 5)
