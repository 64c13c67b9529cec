from __future__ import annotations

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import EventChecksumError, append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, XaId
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import split_events
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    GroupTooLarge,
    Incident,
    StartMarker,
)
from binlog_protocol.gtid import BinlogState, Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conversation import all_streams, binlog_events, binlog_names
from tests.protocol.sample_events import SAMPLES, event, rows

ARTIFICIAL = 0x20
STANDALONE = 0x01
TRANSACTIONAL = 0x0C


def gtid(seq_no: int, flags2: int = TRANSACTIONAL, domain_id: int = 0) -> bytes:
    return GtidEvent(Gtid(domain_id, 1, seq_no), flags2).build()


def sample(type_: EventType, number: int = 0) -> bytes:
    return SAMPLES[type_][number]


XID = XidEvent(5, 1).build()
COMMIT = QueryEvent(b"COMMIT", 1).build()
ROLLBACK = QueryEvent(b"ROLLBACK", 1).build()
INSERT = QueryEvent(b"INSERT INTO t VALUES (1)", 1, b"d").build()
XA_END = QueryEvent(b"XA END X'61',X'',1", 1).build()
XA_PREPARE = XaPrepareEvent(XaId(1, b"a", b""), 1).build()
T = EventType

# Each row: the events of exactly one group, the last of which ends it.
GROUPS = {
    "transaction of rows": [
        gtid(1),
        sample(T.ANNOTATE_ROWS),
        sample(T.TABLE_MAP),
        sample(T.WRITE_ROWS_V1),
        XID,
    ],
    "transaction of statements": [gtid(1), sample(T.INTVAR), INSERT, INSERT, XID],
    "non-transactional rows": [
        gtid(1, 0x08),
        sample(T.TABLE_MAP),
        sample(T.UPDATE_ROWS_V1),
        COMMIT,
    ],
    "rolled back": [gtid(1, 0x08), INSERT, ROLLBACK],
    "standalone DDL": [gtid(1, 0x29), INSERT],
    "standalone COMMIT": [gtid(1, 0x29), COMMIT],
    "standalone with prefixes": [
        gtid(1, STANDALONE),
        sample(T.INTVAR),
        sample(T.RAND),
        sample(T.USER_VAR),
        INSERT,
    ],
    "standalone rows": [
        gtid(1, STANDALONE),
        sample(T.ANNOTATE_ROWS),
        sample(T.TABLE_MAP),
        sample(T.WRITE_ROWS_V1),
    ],
    "standalone of an unknown type": [gtid(1, STANDALONE), event(200)],
    "compressed commit does not end": [gtid(1), sample(T.QUERY_COMPRESSED), COMMIT],
    "XA prepare": [gtid(1, 0x4C), INSERT, XA_END, XA_PREPARE],
    "XA commit": [gtid(1, 0x8D), QueryEvent(b"XA COMMIT X'61',X'',1", 1).build()],
    "unknown types pass": [gtid(1), sample(T.PARTIAL_ROW_DATA), event(250), XID],
    "end of a transaction at once": [gtid(1), XID],
}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("algorithm", [0, 1])
def test_group_ends(name: str, algorithm: int) -> None:
    events = GROUPS[name]
    sent = [append_checksum(item) for item in events] if algorithm else events
    assembler = EventGroupAssembler(algorithm)
    for item in sent[:-1]:
        assert assembler.feed(item) is None
        assert assembler.unfinished == Gtid(0, 1, 1)
    group = assembler.feed(sent[-1])
    assert isinstance(group, EventGroup)
    assert group.gtid == Gtid(0, 1, 1)
    assert group.event_count == len(events)
    stored = list(split_events(group.payload))
    assert [item[:13] + item[17:] for item in stored] == [item[:13] + item[17:] for item in events]
    assert all(item[13:17] == bytes(4) for item in stored)
    assert group.flags2 == events[0][31]
    assert group.is_standalone is bool(events[0][31] & 1)
    assert group.flags2 == events[0][31]
    assert assembler.unfinished is None
    assert assembler.buffered == 0


DROPPED = {
    "fake rotate": RotateEvent.fake("m-bin.000002", 1).build(),
    "real rotate": RotateEvent("m-bin.000002", 1, timestamp=5).build(),
    "stop": event(T.STOP, b""),
    "real list": GtidList((Gtid(0, 1, 1),), 1).build(),
    "fake list": GtidList.fake([Gtid(0, 1, 1)], 1).build(),
    "checkpoint": event(T.BINLOG_CHECKPOINT),
    "heartbeat": HeartbeatEvent("m-bin.000002", 99, 1).build(),
    "encryption": event(T.START_ENCRYPTION, bytes(17)),
    "artificial query": event(T.QUERY, flags=ARTIFICIAL),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_outside_and_inside_a_group(name: str) -> None:
    assembler = EventGroupAssembler()
    assert assembler.feed(DROPPED[name]) is None
    assembler.feed(gtid(1, STANDALONE))
    assert assembler.feed(DROPPED[name]) is None
    group = assembler.feed(INSERT)
    assert isinstance(group, EventGroup)
    assert group.event_count == 2


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_events_are_checked(name: str) -> None:
    assembler = EventGroupAssembler(1)
    broken = bytearray(append_checksum(DROPPED[name]))
    broken[-1] ^= 1
    with pytest.raises(EventChecksumError):
        assembler.feed(bytes(broken))


def feed_all(assembler: EventGroupAssembler, events: list[bytes]) -> None:
    for item in events:
        assembler.feed(item)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([INSERT], "outside a group"),
        ([XID], "outside a group"),
        ([sample(T.TABLE_MAP)], "outside a group"),
        ([gtid(1), gtid(2)], "GTID 0-1-2 inside the unfinished group 0-1-1"),
        (
            [gtid(1), IncidentEvent("lost", 1).build()],
            "an incident inside the unfinished group 0-1-1",
        ),
        ([event(T.INCIDENT)], "incident event is cut short"),
        ([gtid(1), XID, INSERT], "outside a group"),
        ([gtid(1)[:-1]], "says that it has"),
        ([b""], "event of 0 bytes"),
        ([b"x" * 18], "event of 18 bytes"),
        ([event(T.GTID, b"short")], "GTID event with a body of 5 bytes"),
        ([event(T.GTID, bytes(19 + 65536))], "a GTID event of 65574 bytes; 65536 are the most"),
        ([gtid(1), event(T.QUERY, b"")], "QUERY event is cut short"),
    ],
)
def test_refused(events: list[bytes], message: str) -> None:
    assembler = EventGroupAssembler()
    with pytest.raises(ProtocolError, match=message):
        feed_all(assembler, events)


def test_an_incident_stands_between_groups() -> None:
    incident = IncidentEvent("error writing to the binary log", 1, timestamp=9).build()
    assembler = EventGroupAssembler(1)
    for item in (gtid(1), XID):
        assembler.feed(append_checksum(item))
    found = assembler.feed(append_checksum(incident))
    assert isinstance(found, Incident)
    assert found.payload == incident
    assert str(found.event) == (
        "The incident LOST_EVENTS occurred on the master. Message: error writing to the binary log"
    )
    assert assembler.feed(append_checksum(gtid(2))) is None
    assert isinstance(assembler.feed(append_checksum(XID)), EventGroup)


def test_group_limit_names_the_option() -> None:
    assembler = EventGroupAssembler(group_bytes_max=1000, limit_option="max_event_group_size")
    assembler.feed(gtid(1))
    with pytest.raises(GroupTooLarge, match="raise max_event_group_size"):
        feed_all(assembler, [rows(100)] * 100)
    assert assembler.buffered < 1200


def test_partial_group_is_discarded_on_disconnect() -> None:
    assembler = EventGroupAssembler()
    assembler.feed(gtid(1))
    assembler.feed(INSERT)
    assembler.discard_partial()
    assert assembler.buffered == 0
    assembler.feed(gtid(1))
    group = assembler.feed(XID)
    assert isinstance(group, EventGroup)
    assert group.event_count == 2


def test_checksum_follows_the_format_description() -> None:
    assembler = EventGroupAssembler(1)
    with pytest.raises(EventChecksumError):
        assembler.feed(RotateEvent.fake("m-bin.000001", 1).build())
    assembler.feed(append_checksum(RotateEvent.fake("m-bin.000001", 1).build()))
    assert assembler.feed(FormatDescription("11.8.6-MariaDB", 1).build()) is None
    assert assembler.checksum_algorithm == 0
    assembler.feed(gtid(1))
    assert assembler.feed(XID) is not None
    assembler.feed(FormatDescription("11.8.6-MariaDB", 1, checksum_algorithm=1).build())
    assembler.feed(append_checksum(gtid(2)))
    with pytest.raises(EventChecksumError):
        assembler.feed(XID)


def test_start_markers() -> None:
    assembler = EventGroupAssembler()
    description = FormatDescription("11.8.6-MariaDB", 1, created=77, end_position=256)
    assembler.feed(gtid(1))
    marker = assembler.feed(description.build())
    assert marker == StartMarker(description)
    assert isinstance(marker, StartMarker)
    assert marker.payload == description.for_store().build()
    assert len(marker.payload) == 252
    assert list(split_events(marker.payload)) == [marker.payload]
    assert assembler.unfinished is None
    artificial = FormatDescription("11.8.6-MariaDB", 1, created=77, flags=ARTIFICIAL)
    assert assembler.feed(artificial.build()) is None
    assert assembler.feed(FormatDescription("11.8.6-MariaDB", 1).build()) is None


@pytest.mark.parametrize("name", binlog_names())
def test_binlog_files_come_apart_into_groups(name: str) -> None:
    events = binlog_events(name)
    assembler = EventGroupAssembler()
    groups = [group for item in events if isinstance(group := assembler.feed(item), EventGroup)]
    assert len(groups) == sum(item[4] == EventType.GTID for item in events)
    assert assembler.unfinished is None
    for group in groups:
        again = EventGroupAssembler()
        *_, last = [again.feed(item) for item in split_events(group.payload)]
        assert last == group


def test_recorded_streams_come_apart_into_groups() -> None:
    seen = BinlogState()
    markers = 0
    for name, events in all_streams():
        assembler = EventGroupAssembler(initial_algorithm(events))
        for item in events:
            whole = assembler.feed(item)
            if isinstance(whole, EventGroup):
                seen.update(whole.gtid)
            elif isinstance(whole, StartMarker):
                markers += 1
        assert assembler.unfinished is None, name
    assert len(seen) >= 3
    assert markers


def initial_algorithm(events: list[bytes]) -> int:
    """What was negotiated shows in the length of the fake ROTATE."""
    first = events[0]
    if first[4] != EventType.ROTATE:
        return 0
    return 0 if first[19 + 8 :].rstrip(b"0123456789").endswith(b".") else 1


@pytest.mark.parametrize("cut", [1, 9, 12, 18, 19, 26])
def test_split_of_a_cut_payload(cut: int) -> None:
    with pytest.raises(ProtocolError):
        list(split_events(gtid(1) + XID[:cut]))


@pytest.mark.parametrize("length", [0, 1, 18, 28, 2**32 - 1])
def test_split_with_impossible_lengths(length: int) -> None:
    broken = XID[:9] + length.to_bytes(4, "little") + XID[13:]
    with pytest.raises(ProtocolError):
        list(split_events(gtid(1) + broken))


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_events(events: list[bytes]) -> None:
    assembler = EventGroupAssembler()
    for item in events:
        try:
            assembler.feed(item)
        except ProtocolError:
            return
