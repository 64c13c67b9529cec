"""Runs of groups, beside the way that takes one event after the other: the same groups, or the same error."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from binlog_protocol.connection.client import (
    CLIENT_TRANSITIONS,
    ClientConnection,
    ClientState,
    ErrorReceived,
    EventReceived,
    StreamEnded,
)
from binlog_protocol.connection.machine import Machine
from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_protocol.events.checksum import ChecksumAlgorithm, append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import build_event
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups import group_runs
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    Incident,
    StartMarker,
)
from binlog_protocol.groups.group_runs import HAS_C, GroupRun
from binlog_protocol.groups.group_stream import GroupStream
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.semi_sync import STATUS, STATUS_WITH_ACK, Ack, ReplicaPlace
from hypothesis import example, given
from hypothesis import strategies as st

from tests.protocol.groups.test_event_group import GROUPS
from tests.protocol.replica_position import ReplicaPosition as ModelPosition
from tests.protocol.sample_events import row_body

needs_c = pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
CRC32 = int(ChecksumAlgorithm.CRC32)

Found = list[EventGroup | StartMarker | Incident | str]


def gtid(seq_no: int, server_id: int = 1, domain_id: int = 0) -> bytes:
    return GtidEvent(Gtid(domain_id, server_id, seq_no), 0x0C, timestamp=1000 + seq_no).build()


def transaction(seq_no: int, size: int = 30, server_id: int = 1, domain_id: int = 0) -> list[bytes]:
    rows = build_event(
        EventType.WRITE_ROWS_V1, row_body(size), server_id=server_id, end_position=777
    )
    return [gtid(seq_no, server_id, domain_id), rows, XidEvent(seq_no, server_id).build()]


def stream(
    events: list[bytes], algorithm: int, seq: int = 1, *, ack_each: int | None = None
) -> bytes:
    """As a master sends them; with semi-sync if it is said which events are to be acknowledged, 0 for none."""
    data = b""
    for number, event in enumerate(events, 1):
        if algorithm:
            event = append_checksum(event)
        status, ack_wanted = b"\0", False
        if ack_each is not None:
            ack_wanted = bool(ack_each) and number % ack_each == 0
            status = STATUS_WITH_ACK if ack_wanted else STATUS
        frame, seq = frame_packet(status + event, seq)
        if ack_wanted:
            seq = 1
        data += frame
    return data


def streaming(*, semi_sync: bool = False) -> ClientConnection:
    """A connection on which the dump command has just been sent."""
    connection = ClientConnection("u", "p")
    connection.semi_sync = semi_sync
    connection._machine = Machine(CLIENT_TRANSITIONS, ClientState.READY)
    connection.binlog_dump(1)
    return connection


def take_in(pieces: list[bytes], algorithm: int, *, runs: bool) -> tuple[Found, int]:
    """What is found in a stream that comes in pieces, the error at the end as text, and how many came in runs."""
    return take_in_place(pieces, algorithm, runs=runs)[:2]


def take_in_place(
    pieces: list[bytes], algorithm: int, *, runs: bool, semi_sync: bool = False
) -> tuple[Found, int, Ack, bool]:
    """The same, what a replica would acknowledge, and whether that was asked for.

    `runs`: as all do who read a stream; else event by event, which is the plain twin.
    """
    connection = streaming(semi_sync=semi_sync)
    if not runs:
        return take_plainly(connection, pieces, algorithm)
    place = ReplicaPlace()
    groups = GroupStream(connection, algorithm, large_bytes=1 << 30, place=place)
    found: Found = []
    in_runs = 0
    try:
        for piece in pieces:
            connection.lend_data(memoryview(bytes(connection.untaken) + piece))
            while (item := groups.next()) is not None:
                match item:
                    case GroupRun():
                        found += groups_of(item)
                        in_runs += len(item)
                    case EventGroup() | StartMarker() | Incident():
                        found.append(item)
                    case StreamEnded():
                        found.append(repr(item))
    except RemoteError as error:
        found.append(repr(ErrorReceived(error)))
    except ProtocolError as error:
        found.append(str(error))
    return found, in_runs, place.ack, groups.ack_wanted


def take_plainly(
    connection: ClientConnection, pieces: list[bytes], algorithm: int
) -> tuple[Found, int, Ack, bool]:
    """One event after the other, without the stream of groups."""
    assembler, place = EventGroupAssembler(algorithm), ReplicaPlace()
    ack_wanted = False
    found: Found = []
    try:
        for piece in pieces:
            connection.receive_data(piece)
            while (event := connection.next_event()) is not None:
                if not isinstance(event, EventReceived):
                    found.append(repr(event))
                    continue
                ack_wanted |= event.ack_wanted
                algorithm = assembler.checksum_algorithm
                whole = assembler.feed(event.event)
                place.feed(event.event, algorithm)
                if whole is not None:
                    found.append(whole)
    except ProtocolError as error:
        found.append(str(error))
    return found, 0, place.ack, ack_wanted


def groups_of(run: GroupRun) -> list[EventGroup]:
    found = []
    for index in range(len(run)):
        payload = run.payload(index)
        assembler = EventGroupAssembler()
        position = 0
        while True:
            length = int.from_bytes(payload[position + 9 : position + 13], "little")
            whole = assembler.feed(payload[position : position + length])
            position += length
            if whole is not None:
                break
        assert position == len(payload)
        assert isinstance(whole, EventGroup)
        assert whole.gtid == run.gtid(index)
        found.append(whole)
    assert run.last == found[-1].gtid
    assert run.timestamp == int.from_bytes(found[-1].payload[:4], "little")
    return found


@needs_c
@pytest.mark.parametrize("algorithm", [0, CRC32])
@pytest.mark.parametrize("name", GROUPS)
def test_each_kind_of_group(name: str, algorithm: int) -> None:
    data = stream(GROUPS[name] + transaction(2), algorithm)
    slow, none = take_in([data], algorithm, runs=False)
    fast, in_runs = take_in([data], algorithm, runs=True)
    assert fast == slow
    assert (none, in_runs) == (0, 2)


@needs_c
@pytest.mark.parametrize("algorithm", [0, CRC32])
def test_byte_by_byte(algorithm: int) -> None:
    data = stream(transaction(1) + transaction(2) + transaction(3), algorithm)
    slow, _ = take_in([data], algorithm, runs=False)
    pieces = [data[n : n + 1] for n in range(len(data))]
    assert take_in(pieces, algorithm, runs=True)[0] == slow
    for cut in range(len(data)):
        assert take_in([data[:cut], data[cut:]], algorithm, runs=True)[0] == slow


# name: what stands between two good groups of a run
BREAKS = {
    "another domain": transaction(2, domain_id=7),
    "another server": transaction(2, server_id=2),
    "a number again": transaction(1),
    "a heartbeat": [HeartbeatEvent("f.1", 99, 1).build()],
    "a rotation": [RotateEvent.fake("f.2", 1).build()],
    "a format description": [FormatDescription.artificial("11.8.6", 1).build()],
    "artificial in a group": [
        gtid(2),
        build_event(EventType.GTID_LIST, bytes(6), server_id=1, flags=0x20),
        XidEvent(1, 1).build(),
    ],
    "a large event": transaction(2, 1 << 24),
    "an unknown event": [gtid(2), build_event(200, b"x", server_id=1), XidEvent(1, 1).build()],
}


@needs_c
@pytest.mark.parametrize("name", BREAKS)
def test_what_ends_a_run(name: str) -> None:
    events = transaction(1) + BREAKS[name] + transaction(3)
    data = stream(events, 0)
    slow, _ = take_in([data], 0, runs=False)
    fast, in_runs = take_in([data], 0, runs=True)
    assert fast == slow
    assert in_runs >= 2
    assert len(slow) >= 2


# name: (events, what the error says)
WRONG = {
    "an event outside a group": ([XidEvent(1, 1).build()], "outside a group"),
    "a group in a group": ([gtid(2), gtid(3)], "inside the unfinished group"),
    "an incident": ([gtid(2), IncidentEvent("lost", 1).build()], "incident inside"),
    "a short GTID": ([build_event(EventType.GTID, bytes(18), server_id=1)], "GTID event with"),
    "a QUERY too short": (
        [gtid(2), build_event(EventType.QUERY, bytes(12), server_id=1)],
        "QUERY event is cut short",
    ),
    "a QUERY that begins behind its end": (
        [gtid(2), build_event(EventType.QUERY, b"\xff" * 20, server_id=1)],
        "cut short",
    ),
}


@needs_c
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_by_the_other_way(name: str) -> None:
    events, text = WRONG[name]
    data = stream(transaction(1) + events + transaction(9), 0)
    fast, in_runs = take_in([data], 0, runs=True)
    assert fast == take_in([data], 0, runs=False)[0]
    assert in_runs == 1
    assert isinstance(fast[-1], str)
    assert text in fast[-1]


@needs_c
def test_every_byte_damaged() -> None:
    """Of a stream with checksums: what comes out is what the other way gives, always."""
    data = stream(transaction(1, 8) + GROUPS["transaction of statements"], CRC32)
    rng = Random(7)
    for at in range(len(data)):
        for value in {data[at] ^ 1, data[at] ^ 0x80, rng.randrange(256)}:
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            fast, _ = take_in([damaged], CRC32, runs=True)
            assert fast == take_in([damaged], CRC32, runs=False)[0], (at, value)


@needs_c
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 400), st.integers(1, 2), st.integers(0, 1)),
        max_size=30,
    ),
    st.sampled_from([0, CRC32]),
    st.lists(st.integers(0, 8000), max_size=6),
)
@example([(1, 0, 1, 0), (1, 0, 1, 0)], CRC32, [])
def test_any_history_in_any_pieces(
    groups: list[tuple[int, int, int, int]], algorithm: int, cuts: list[int]
) -> None:
    events = [
        event
        for seq_no, size, server_id, domain_id in groups
        for event in transaction(seq_no, size, server_id, domain_id)
    ]
    data = stream(events, algorithm, 1)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(ends)]
    assert take_in(pieces, algorithm, runs=True)[0] == take_in([data], algorithm, runs=False)[0]


@needs_c
@given(st.binary(max_size=300), st.sampled_from([0, CRC32]), st.integers(0, 255))
def test_any_bytes(data: bytes, algorithm: int, seq: int) -> None:
    assert take_in([data], algorithm, runs=True)[0] == take_in([data], algorithm, runs=False)[0]
    taken = group_runs.take_run(bytearray(data), 0, len(data), seq, algorithm, False)
    assert taken is None or 0 < taken[0] <= len(data)


@needs_c
def test_a_wrong_sequence_number() -> None:
    good, bad = stream(transaction(1), 0), stream(transaction(2), 0, seq=5)
    fast, in_runs = take_in([good + bad], 0, runs=True)
    assert fast == take_in([good + bad], 0, runs=False)[0]
    assert in_runs == 1
    assert "sequence number 5, not 4" in str(fast[-1])


@needs_c
@pytest.mark.parametrize("algorithm", [0, CRC32])
def test_end_positions_are_those_of_the_last_events(algorithm: int) -> None:
    events = [event for n in (1, 2) for event in transaction(n)]
    ends = [100, 200, 300, 400, 500, 0xFFFFFFFF]
    placed = [
        event[:13] + end.to_bytes(4, "little") + event[17:]
        for event, end in zip(events, ends, strict=True)
    ]
    data = bytearray(stream(placed, algorithm))
    taken = group_runs.take_run(data, 0, len(data), 1, algorithm, False)
    assert taken is not None
    assert taken[2].end_positions.tolist() == [300, 0xFFFFFFFF]


@needs_c
def test_numbers_of_packets_wrap() -> None:
    events = [event for n in range(1, 201) for event in transaction(n)]
    found, in_runs = take_in([stream(events, CRC32)], CRC32, runs=True)
    assert (len(found), in_runs) == (200, 200)


@needs_c
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 2)), min_size=1, max_size=12),
    st.sampled_from([0, CRC32]),
    st.integers(0, 7),
    st.lists(st.integers(0, 4000), max_size=6),
)
def test_semi_sync_counts_alike_whichever_way(
    sizes: list[tuple[int, int]], algorithm: int, ack_each: int, cuts: list[int]
) -> None:
    """Groups, the position to be acknowledged, and whether it is wanted."""
    events = [RotateEvent.fake("m-bin.000007", 1, 1000).build()]
    for seq_no, (size, domain_id) in enumerate(sizes, 1):
        events += transaction(seq_no, size, 1, domain_id)
    data = stream(events, algorithm, ack_each=ack_each)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(ends)]
    fast = take_in_place(pieces, algorithm, runs=True, semi_sync=True)
    slow = take_in_place([data], algorithm, runs=False, semi_sync=True)
    assert (fast[0], *fast[2:]) == (slow[0], *slow[2:])
    assert len(fast[0]) == len(sizes)
    counted = ModelPosition(checksum=bool(algorithm))
    for event in [*events[:1], FormatDescription.artificial("11.8.6", 1).build(), *events[1:]]:
        counted.feed(event)
    assert fast[2] == Ack(counted.file, counted.position)
    assert fast[3] == (bool(ack_each) and len(events) >= ack_each)


@needs_c
def test_semi_sync_is_as_fast_a_way() -> None:
    events = [event for n in range(1, 201) for event in transaction(n)]
    for ack_each in (0, 3, 30):
        found = take_in_place(
            [stream(events, CRC32, ack_each=ack_each)], CRC32, runs=True, semi_sync=True
        )
        assert (len(found[0]), found[1]) == (200, 200)


@pytest.mark.parametrize("runs", [False, True])
def test_a_stream_without_the_semi_sync_header(runs: bool) -> None:
    found = take_in_place([stream(transaction(1), 0)], 0, runs=runs, semi_sync=True)
    assert "without the semi-sync header: 00" in str(found[0][-1])


@needs_c
@given(st.binary(max_size=300), st.sampled_from([0, CRC32]), st.integers(0, 255))
def test_any_bytes_with_semi_sync(data: bytes, algorithm: int, seq: int) -> None:
    fast = take_in_place([data], algorithm, runs=True, semi_sync=True)
    assert fast[0] == take_in_place([data], algorithm, runs=False, semi_sync=True)[0]
    taken = group_runs.take_run(bytearray(data), 0, len(data), seq, algorithm, True)
    assert taken is None or 0 < taken[0] <= len(data)


def test_nothing_in_the_middle_of_a_large_payload() -> None:
    connection = streaming()
    connection.receive_data(stream(transaction(1, 1 << 24), 0)[: (1 << 24) + 100])
    while connection.next_event() is not None:
        pass
    assert connection.take_run(0) is None


def test_a_run_is_made_of_what_is_one() -> None:
    run = GroupRun.of([b"one", b"three"], [Gtid(1, 2, 3), Gtid(1, 2, 9)], 5)
    assert len(run) == 2
    assert [run.payload(0), run.payload(1)] == [b"one", b"three"]
    assert (run.gtid(0), run.last) == (Gtid(1, 2, 3), Gtid(1, 2, 9))
    for gtids in ([Gtid(1, 2, 3), Gtid(2, 2, 4)], [Gtid(1, 2, 3), Gtid(1, 2, 3)]):
        with pytest.raises(ValueError, match="not one run"):
            GroupRun.of([b"a", b"b"], gtids)


def test_statements_end_groups_only_as_what_they_are() -> None:
    """COMMIT in another database, or with a blank behind it."""
    texts = [b"COMMIT ", b"commit", b"COMMITS", b"ROLLBACK"]
    events = [gtid(1), *(QueryEvent(t, 1, b"db", b"\7\0\0").build() for t in texts)]
    data = stream(events + transaction(2), 0)
    found, _ = take_in([data], 0, runs=True)
    assert found == take_in([data], 0, runs=False)[0]
    assert [g.event_count for g in found if isinstance(g, EventGroup)] == [5, 3]


@needs_c
def test_checksums_of_all_lengths() -> None:
    """By multiplication, by tables, and both; one wrong bit is seen."""
    for size in (*range(300), 4095, 4096, 4097, 65_536 + 7):
        data = bytearray(stream(transaction(1, size), CRC32))
        found = group_runs.take_run(data, 0, len(data), 1, CRC32, False)
        assert found is not None, size
        assert found[0] == len(data)
        data[len(data) // 2] ^= 0x10
        assert group_runs.take_run(data, 0, len(data), 1, CRC32, False) is None, size
