from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events import checksum
from binlog_protocol.events.checksum import (
    ChecksumAlgorithm,
    EventChecksumError,
    append_checksum,
    normal_form,
    strip_checksum,
    verify_checksum,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, XaId, gtid_of
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import EventHeader, build_event
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.query import QueryEvent, query_ends_group
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conversation import (
    BINLOGS,
    all_streams,
    binlog_events,
    binlog_names,
    checksum_algorithm,
)

BUILDERS: dict[EventType, type[Any]] = {
    EventType.QUERY: QueryEvent,
    EventType.ROTATE: RotateEvent,
    EventType.XID: XidEvent,
    EventType.XA_PREPARE_LOG: XaPrepareEvent,
    EventType.GTID: GtidEvent,
    EventType.GTID_LIST: GtidList,
    EventType.HEARTBEAT: HeartbeatEvent,
}

# Real events of 10.11.19, without checksum, as the bodies of a recorded opening sequence.
FAKE_ROTATE = "00000000040100000027000000000000002000" + "0400000000000000" + b"m-bin.000001".hex()
EMPTY_LIST = "7b2b006ba301000000190000001d0100000000" + "000000000000"
FAKE_LIST = (
    "00000000a3010000002700000023030000" + "2000" + "01000000" + "00000000010000000300000000000000"
)


def assert_rebuilds(event: bytes) -> None:
    builder = BUILDERS.get(EventType(event[4]))
    if builder is not None:
        assert builder.parse(event).build() == event


@pytest.mark.parametrize("name", binlog_names())
def test_binlog_files_rebuild_byte_by_byte(name: str) -> None:
    events = binlog_events(name)
    algorithm = checksum_algorithm(events)
    for event in events:
        if event[4] == EventType.FORMAT_DESCRIPTION:
            description = FormatDescription.parse(event)
            assert with_in_use_as_in(description.build(), event) == event
        else:
            plain = strip_checksum(event, algorithm)
            assert_rebuilds(plain)
            assert (append_checksum(plain) if algorithm else plain) == event


def with_in_use_as_in(built: bytes, event: bytes) -> bytes:
    """A file in use keeps the checksum that it has with the flag clear."""
    if not event[17] & 1:
        return built
    closed = bytearray(event)
    closed[17] &= 0xFE
    assert append_checksum(strip_checksum(bytes(closed), 1)) == closed
    return event


def test_streams_rebuild_byte_by_byte() -> None:
    streams = all_streams()
    assert len(streams) > 25
    for name, events in streams:
        algorithm = 1 if "checksum-none" not in name else 0
        for event in events:
            if event[4] == EventType.FORMAT_DESCRIPTION:
                description = FormatDescription.parse(event)
                algorithm = description.checksum_algorithm
                # With algorithm NONE a real master leaves the checksum of this event as it was.
                assert description.build()[:-4] == event[:-4]
                assert description.build() == event or not algorithm
            elif event[4] != EventType.ROTATE:
                plain = strip_checksum(event, algorithm)
                assert_rebuilds(plain)
                assert (append_checksum(plain) if algorithm else plain) == event


def test_opening_events() -> None:
    rotate = RotateEvent.fake("m-bin.000001", 1)
    assert rotate.build().hex() == FAKE_ROTATE
    assert append_checksum(rotate.build())[-4:].hex() == "2ce4d00c"
    empty = GtidList((), 1, timestamp=0x6B002B7B, end_position=285)
    assert empty.build().hex() == EMPTY_LIST
    fake = GtidList.fake([Gtid(0, 1, 3)], 1, end_position=0x323)
    assert fake.build().hex() == FAKE_LIST
    heartbeat = HeartbeatEvent("m-bin.000001", 0x323, 1)
    assert append_checksum(heartbeat.build())[-4:].hex() == "71738c8f"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(1, 0x10000001), (2, 0x20000001)],
)
def test_gtid_list_flags(flags: int, expected: int) -> None:
    event = GtidList.fake([Gtid(0, 1, 3)], 1, flags=flags).build()
    assert int.from_bytes(event[19:23], "little") == expected
    assert GtidList.parse(event).flags == flags


@pytest.mark.parametrize("position", [0, 1, 0xFFFFFFFF, 0x100000000, 2**64 - 1])
def test_heartbeat_positions(position: int) -> None:
    event = HeartbeatEvent("binlog-000000.ibb", position, 7).build()
    assert HeartbeatEvent.parse(event) == HeartbeatEvent("binlog-000000.ibb", position, 7)
    in_header = 0 < position <= 0xFFFFFFFF
    assert EventHeader.parse(event).end_position == (position if in_header else 0)


def test_heartbeat_needs_a_name() -> None:
    with pytest.raises(ValueError):
        HeartbeatEvent("", 4, 1).build()
    with pytest.raises(ProtocolError):
        HeartbeatEvent.parse(build_event(27, b"", server_id=1, end_position=4))
    with pytest.raises(ProtocolError):
        HeartbeatEvent.parse(build_event(27, bytes(8), server_id=1))


# Bodies as 10.11 and 11.8 write them.
GTID_BODIES = [
    ("01000000000000000000000029000000000000", {"flags2": 0x29}),
    ("01000000000000000000000029100600000000", {"flags2": 0x29, "thread_id": 6}),
    ("0300000000000000000000000c000000000000", {"flags2": 0x0C}),
    ("0300000000000000000000000e1400000000000000", {"flags2": 0x0E, "commit_id": 20}),
    (
        "0300000000000000050000004c070000000602" + b"gtrid1bq".hex() + "01ff",
        {"flags2": 0x4C, "xa_id": XaId(7, b"gtrid1", b"bq"), "extra_engines": 0xFF},
    ),
    (
        "0300000000000000050000004c070000000602" + b"gtrid1bq".hex() + "11ff07000000",
        {"xa_id": XaId(7, b"gtrid1", b"bq"), "extra_engines": 0xFF, "thread_id": 7},
    ),
    (
        "0300000000000000050000008d070000000602" + b"gtrid1bq".hex(),
        {"flags2": 0x8D, "xa_id": XaId(7, b"gtrid1", b"bq")},
    ),
    ("03000000000000000000000029020000000000", {"flags_extra": 2}),
    (
        "04000000000000000000000029040300000000000000",
        {"flags_extra": 4, "start_alter_seq_no": 3},
    ),
    (
        "0400000000000000000000000c200300000000000000aabb",
        {"flags_extra": 0x20, "unknown_tail": bytes.fromhex("0300000000000000aabb")},
    ),
]


@pytest.mark.parametrize(("body", "fields"), GTID_BODIES)
def test_gtid_bodies(body: str, fields: dict[str, object]) -> None:
    event = build_event(EventType.GTID, bytes.fromhex(body), server_id=9, flags=8)
    parsed = GtidEvent.parse(event)
    for name, value in fields.items():
        assert getattr(parsed, name) == value
    assert parsed.build() == event
    assert parsed.gtid.server_id == 9
    assert gtid_of(event) == parsed.gtid
    assert parsed.is_standalone is bool(parsed.flags2 & 1)


def test_gtid_flags_follow_from_fields() -> None:
    event = GtidEvent(Gtid(1, 2, 3), commit_id=5, thread_id=7, extra_engines=1)
    again = GtidEvent.parse(event.build())
    assert (again.flags2, again.flags_extra) == (0x02, 0x11)
    assert (again.commit_id, again.thread_id, again.extra_engines) == (5, 7, 1)
    with pytest.raises(ValueError):
        GtidEvent(Gtid(1, 2, 3), xa_id=XaId(1, b"a", b"b")).build()
    with pytest.raises(ValueError):
        GtidEvent(Gtid(1, 2, 3), start_alter_seq_no=4).build()


@given(
    st.builds(
        Gtid, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
    ),
    st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)
def test_gtid_event_round_trip(gtid: Gtid, commit_id: int | None, thread_id: int | None) -> None:
    event = GtidEvent(gtid, 0x0C, commit_id=commit_id, thread_id=thread_id).build()
    again = GtidEvent.parse(event)
    assert (again.gtid, again.commit_id, again.thread_id) == (gtid, commit_id, thread_id)
    assert again.build() == event


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (b"COMMIT", True),
        (b"ROLLBACK", True),
        (b"commit", False),
        (b"COMMIT ", False),
        (b"COMMITX", False),
        (b"ROLLBACK TO sp", False),
        (b"", False),
        (b"INSERT INTO t VALUES ('COMMIT')", False),
    ],
)
def test_query_that_ends_a_group(text: bytes, ends: bool) -> None:
    query = QueryEvent(text, 1, b"d1", b"\x00\x00\x00\x00\x00")
    assert query.ends_group is ends
    assert query_ends_group(query.build()) is ends


def test_query_with_impossible_offsets() -> None:
    event = bytearray(QueryEvent(b"COMMIT", 1).build())
    event[19 + 11] = 0xFF
    with pytest.raises(ProtocolError):
        query_ends_group(bytes(event))
    with pytest.raises(ProtocolError):
        query_ends_group(bytes(event[:32]))


def test_format_description_for_the_store() -> None:
    for name in ("1011-stmt", "118-crashed-in-use"):
        event = binlog_events(name)[0]
        description = FormatDescription.parse(event)
        assert description.created
        stored = description.for_store()
        assert len(stored.build()) == 252
        again = FormatDescription.parse(stored.build())
        assert again == stored
        assert (again.created, again.server_version) == (
            description.created,
            description.server_version,
        )
        assert (again.checksum_algorithm, again.end_position, again.flags) == (0, 0, 0)


def test_stored_start_marker_of_a_real_store() -> None:
    """The bytes that MariaDB's own reader took from an .ibb file."""
    event = (BINLOGS / "start-marker-118.event").read_bytes()
    verify_checksum(event)
    description = FormatDescription.parse(event)
    assert description.created
    assert description.for_store() == description
    assert description.build() == event


def test_artificial_format_description() -> None:
    event = FormatDescription.artificial("12.3.1-MariaDB", 3).build()
    assert EventHeader.parse(event) == (0, 15, 3, 252, 0, 0x20)
    parsed = FormatDescription.parse(event)
    assert (parsed.created, parsed.checksum_algorithm) == (0, ChecksumAlgorithm.NONE)


def test_format_description_of_more_event_types() -> None:
    description = FormatDescription("12.3.1-MariaDB", 3, post_header_lengths=bytes(172))
    assert FormatDescription.parse(description.build()) == description


def test_format_description_refused() -> None:
    good = FormatDescription("11.8.6-MariaDB", 1).build()
    for offset in (19, 75, 76 + 171):
        broken = bytearray(strip_checksum(good, 1))
        broken[offset] = 77
        with pytest.raises(ProtocolError):
            FormatDescription.parse(append_checksum(bytes(broken)))
    broken = bytearray(FormatDescription("11.8.6-MariaDB", 1, checksum_algorithm=1).build())
    broken[30] ^= 1
    with pytest.raises(EventChecksumError):
        FormatDescription.parse(bytes(broken))
    with pytest.raises(ValueError):
        FormatDescription("x" * 51, 1).build()


@given(st.binary(max_size=100), st.integers(0, 10_000))
def test_checksum_round_trip(body: bytes, end_position: int) -> None:
    event = build_event(EventType.XID, body, server_id=1, end_position=end_position)
    summed = append_checksum(event)
    verify_checksum(summed)
    assert strip_checksum(summed, ChecksumAlgorithm.CRC32) == event
    assert strip_checksum(event, ChecksumAlgorithm.NONE) == event
    assert normal_form(summed, ChecksumAlgorithm.CRC32) == event[:13] + bytes(4) + event[17:]
    assert normal_form(event, ChecksumAlgorithm.NONE) == event[:13] + bytes(4) + event[17:]


@given(st.binary(max_size=60), st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(body: bytes, where: int, change: int) -> None:
    summed = bytearray(append_checksum(build_event(EventType.XID, body, server_id=1)))
    summed[where % len(summed)] ^= change
    with pytest.raises(EventChecksumError):
        verify_checksum(bytes(summed))


@pytest.mark.parametrize("text", ["crc32", "CRC32", "Crc32"])
def test_checksum_variable(text: str) -> None:
    assert ChecksumAlgorithm.from_variable(text) is ChecksumAlgorithm.CRC32


def test_unknown_checksum_variable() -> None:
    with pytest.raises(ProtocolError):
        ChecksumAlgorithm.from_variable("SHA1")


@pytest.mark.parametrize("before", [0, 1, 0xFFFFFFFF, zlib.crc32(b"before")])
def test_the_checksum_is_that_of_zlib(before: int) -> None:
    """Of each length around the steps of its twin in C (4, 8, 16, 64 bytes, a block), from any address."""
    data = memoryview(random.Random(7).randbytes(40_000))
    for length in [*range(200), 16_383, 16_384, 16_385, 16_448, 32_767, 32_768, 39_000]:
        for at in (0, 1, 7, 16):
            piece = data[at : at + length]
            assert checksum.crc32(piece, before) == zlib.crc32(piece, before)
            assert checksum.crc32(bytes(piece)) == zlib.crc32(piece)
