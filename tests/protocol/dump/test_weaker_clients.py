"""What clients of each capability get: beside the recorded bytes of a real master."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from binlog_protocol.dump.classic_positions import sealed
from binlog_protocol.dump.weaker_clients import SlaveCapability, client_events, understood
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import normal_form, verify_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, XaId
from binlog_protocol.events.header import EventHeader, build_event
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.groups.stored_group import without_skipped
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[1] / "data" / "capability_rewrites.txt"
# What a binlog server does not send: ROTATE is made for each client, checkpoints are of the upstream.
NOT_OURS = {EventType.ROTATE, EventType.BINLOG_CHECKPOINT}
DUMMY_OF_CHECKPOINT = bytes.fromhex("44010000")  # its end position in the recording
ANNOTATE = build_event(
    EventType.ANNOTATE_ROWS, b"INSERT INTO d1.t VALUES(1)", server_id=1, timestamp=0x6B002B7C
)


def recorded(capability: int) -> list[bytes]:
    lines = (line.split() for line in RECORDED.read_text().splitlines() if line[0] != "#")
    events = [bytes.fromhex(text) for number, text in lines if int(number) == capability]
    return [e for e in events if e[4] not in NOT_OURS and e[13:17] != DUMMY_OF_CHECKPOINT]


@pytest.mark.parametrize("capability", [0, 2])
def test_the_recorded_bytes(capability: int) -> None:
    plain = [normal_form(event, 1) for event in recorded(4)]
    gtid_of_rows = max(at for at, event in enumerate(plain) if event[4] == EventType.GTID)
    plain.insert(gtid_of_rows + 1, ANNOTATE)
    expected = recorded(capability)
    got = client_events(b"".join(plain), annotate=False, capability=capability)
    ends = [EventHeader.parse(event).end_position for event in expected]
    assert len(got) == len(ends)
    ours = sealed(got, ends, checksum=True)
    assert ours == b"".join(expected)


@pytest.mark.parametrize(
    ("capability", "annotate", "types"),
    [
        (0, False, [2, 2, 2]),
        (0, True, [2, 160, 2]),
        (1, False, [2, 160, 2]),
        (1, True, [2, 160, 2]),
        (2, False, [2, 2]),
        (2, True, [2, 160, 2]),
        (3, False, [2, 2]),
        (4, False, [162, 2]),
        (4, True, [162, 160, 2]),
        (5, True, [162, 160, 2]),
    ],
)
def test_a_transaction(capability: int, annotate: bool, types: list[int]) -> None:
    query = QueryEvent(b"COMMIT", 1).build()
    group = GtidEvent(Gtid(0, 1, 7)).build() + ANNOTATE + query
    got = client_events(group, annotate=annotate, capability=capability)
    assert [event[4] for event in got] == types
    assert bytes(got[-1]) == query
    if capability < SlaveCapability.GTID:
        assert QueryEvent.parse(bytes(got[0])).text == b"BEGIN"


@pytest.mark.parametrize("capability", [0, 1, 2, 3])
def test_a_statement_that_stands_alone(capability: int) -> None:
    query = QueryEvent(b"CREATE TABLE t (a INT)", 1).build()
    got = client_events(GtidEvent(Gtid(0, 1, 7), 1).build() + query, capability=capability)
    if capability < SlaveCapability.TOLERATE_HOLES:
        assert QueryEvent.parse(bytes(got.pop(0))).text == b"# Dum"
    assert [bytes(event) for event in got] == [query]


@pytest.mark.parametrize(
    "event",
    [
        GtidEvent(Gtid(0, 1, 7), commit_id=5),
        GtidEvent(Gtid(0, 1, 7), 0x80, xa_id=XaId(1, b"g", b"")),
        GtidEvent(Gtid(0, 1, 7), 0x40, xa_id=XaId(1, b"gtrid" * 12, b"bqual")),
    ],
)
def test_longer_gtid_events_become_a_begin_of_their_length(event: GtidEvent) -> None:
    made = event.build()
    (got,) = client_events(made, capability=2)
    assert len(got) == len(made)
    assert QueryEvent.parse(bytes(got)).text == b"BEGIN"


@given(st.integers(0, 60))
def test_a_dummy_has_the_length_of_what_it_stands_for(size: int) -> None:
    event = build_event(EventType.ANNOTATE_ROWS, bytes(size), server_id=9, timestamp=8)
    got = understood(event, SlaveCapability.NONE, annotate=False)
    if size < 6:
        assert got is None
        return
    assert got is not None
    assert len(got) == len(event)
    header = EventHeader.parse(bytes(got))
    assert (header.timestamp, header.server_id, header.flags) == (8, 9, 8)
    if size < 14:
        assert header.type == EventType.USER_VAR
        assert int.from_bytes(got[19:23], "little") == size - 5
        assert got[-1] == 1, "the value is NULL"
    else:
        assert QueryEvent.parse(bytes(got)).text.startswith(b"# Dummy event rep"[: size - 14])


def test_what_is_left_as_it_is_is_not_copied() -> None:
    group = GtidEvent(Gtid(0, 1, 7)).build() + build_event(23, bytes(1 << 20), server_id=1)
    for event in client_events(group):
        assert isinstance(event, memoryview)
        assert event.obj is group


def test_marked_events() -> None:
    kept = build_event(2, b"a", server_id=1)
    marked = build_event(2, b"b", server_id=1, flags=0x8000)
    got = client_events(kept + marked, skip_marked=True)
    assert b"".join(got) == kept == without_skipped(kept + marked)


@given(st.binary(max_size=80), st.integers(0, 4), st.booleans(), st.booleans())
def test_any_bytes(data: bytes, capability: int, annotate: bool, skip: bool) -> None:
    with contextlib.suppress(ProtocolError):
        client_events(data, annotate=annotate, skip_marked=skip, capability=capability)


@pytest.mark.parametrize("capability", [0, 1, 2, 3, 4])
def test_damaged_groups(capability: int) -> None:
    """One byte of a group changed: an error, or events with sound checksums."""
    random = Random(capability)
    group = b"".join(
        (
            GtidEvent(Gtid(0, 1, 7), commit_id=3).build(),
            ANNOTATE,
            build_event(19, bytes(30), server_id=1),
            QueryEvent(b"COMMIT", 1).build(),
        )
    )
    for _ in range(2000):
        damaged = bytearray(group)
        damaged[random.randrange(len(group))] = random.randrange(256)
        try:
            events = client_events(bytes(damaged), annotate=False, capability=capability)
            out = sealed(events, [0] * len(events), checksum=True)
        except ProtocolError:
            continue
        at = 0
        while at < len(out):
            length = EventHeader.parse(out, at).length
            verify_checksum(out[at : at + length])
            at += length
