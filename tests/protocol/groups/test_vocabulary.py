"""Every number that a type may have, and every stored event cut anywhere: what is taken can be read later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.info import event_info
from binlog_protocol.event_text.json_form import JsonForm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import FLAG_IGNORABLE, split_events
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler, Incident, ends_group
from binlog_protocol.groups.group_check import check_groups, checked_pieces
from binlog_protocol.groups.group_content import GroupContent
from binlog_protocol.groups.vocabulary import (
    C_TABLE,
    CHECKS,
    NEWER_FROM,
    ROLES,
    VOCABULARY,
    EventRefused,
    Role,
    check_event,
    is_sound,
    type_name,
)
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.groups.test_group_runs import needs_c, stream, take_in
from tests.protocol.sample_events import SAMPLES, cut, event

T = EventType
BEGIN = GtidEvent(Gtid(0, 1, 1), 0x0C).build()
AFTER = [GtidEvent(Gtid(0, 1, 2), 0x0C).build(), XidEvent(2, 1).build()]
COMMIT = XidEvent(1, 1).build()
STORED = {Role.PREFIX, Role.QUERY, Role.COMMIT, Role.OTHER}

# What becomes of each: said a second time, by number, as a person would check it against the manual.
SKIPPED = {3, 4, 27, 161, 163, 164}
REFUSED = {
    *(0, 1, 6, 7, 8, 10, 12),  # before MySQL 5.0
    *(20, 21, 22),  # before row events were ready
    *range(28, 38),  # MySQL 5.6 and 5.7
    *range(39, 160),  # MySQL 8, and what is not known of it
    *(169, 170, 171),  # numbers that nobody uses
}


def outcome(type_: int) -> str:
    """Of an event in the middle of a group."""
    assembler = EventGroupAssembler()
    assembler.feed(BEGIN)
    sample = SAMPLES[EventType(type_)][0] if type_ in SAMPLES else event(type_, bytes(40))
    try:
        whole = assembler.feed(sample)
        if whole is None:
            whole = assembler.feed(COMMIT)
    except EventRefused as error:
        return f"refused: {error}"
    assert isinstance(whole, EventGroup)
    return "stored" if whole.payload.count(sample[19:]) else "skipped"


def test_every_number() -> None:
    for type_ in range(256):
        role = ROLES[type_]
        if type_ in REFUSED:
            expected = (
                f"refused: an event of type {type_name(type_)}, {VOCABULARY[type_].whose}: "
                "no MariaDB with GTIDs writes it"
            )
        elif type_ in SKIPPED:
            expected = "skipped"
        else:
            expected = "stored"
        if role in (Role.GTID, Role.FORMAT, Role.INCIDENT):
            assert type_ in (T.GTID, T.FORMAT_DESCRIPTION, T.INCIDENT)
            continue
        assert outcome(type_) == expected, type_
        assert (role is Role.REFUSED) is (type_ in REFUSED)
        assert (role is Role.DROPPED) is (expected == "skipped")
        assert (role in STORED) is (expected == "stored")
        assert (VOCABULARY[type_].whose != "") is (type_ in REFUSED)
        # C takes what is stored, and nothing else.
        assert (C_TABLE[type_] & 7 < 4) is (expected == "stored")


def test_types_of_a_newer_server_pass() -> None:
    assert NEWER_FROM == 173
    assert {ROLES[t] for t in range(NEWER_FROM, 256)} == {Role.OTHER}
    assert {CHECKS[t] for t in range(NEWER_FROM, 256)} == {None}


def test_what_may_be_left_out_is() -> None:
    for type_ in sorted(REFUSED):
        ignorable = event(type_, bytes(40), FLAG_IGNORABLE)
        assembler = EventGroupAssembler()
        assert assembler.feed(ignorable) is None
        for item in (BEGIN, ignorable):
            assert assembler.feed(item) is None
        group = assembler.feed(COMMIT)
        assert isinstance(group, EventGroup)
        assert list(split_events(group.payload)) == [BEGIN, COMMIT], type_


def test_what_is_refused_is_no_part_of_a_stored_group() -> None:
    for type_ in sorted(REFUSED):
        with pytest.raises(EventRefused, match="no MariaDB with GTIDs writes it"):
            check_event(event(type_))


def groups(sample: bytes) -> Iterator[list[bytes]]:
    """Groups with the event, in a transaction and by itself, as far as that may be."""
    if sample[4] == T.GTID:
        yield [sample, COMMIT]
        return
    yield [BEGIN, sample, COMMIT]
    yield [GtidEvent(Gtid(0, 1, 1), 0x01).build(), sample, AFTER[1]]


def taken(events: list[bytes]) -> list[EventGroup]:
    """The groups that are taken: the same, and with the same error, whichever way."""
    data = stream(events + AFTER, 0)
    slow, _ = take_in([data], 0, runs=False)
    fast, _ = take_in([data], 0, runs=True)
    assert fast == slow
    parts = take_in([data[: len(data) // 2], data[len(data) // 2 :]], 0, runs=True)[0]
    assert parts == slow
    return [found for found in slow if isinstance(found, EventGroup)]


def read_all(group: EventGroup) -> None:
    """As verify, a dump, SHOW BINLOG EVENTS and the proof of a relay do. Raises `ProtocolError`."""
    content = GroupContent()
    for number, item in enumerate(split_events(group.payload)):
        check_event(item)
        if number:
            ends_group(item, standalone=group.is_standalone)
        event_info(item)
        content.add(item)
    content.finish()
    list(JsonForm(Choice()).group(split_events(group.payload)))


ALL_SAMPLES = [(T(s[4]), n, s) for samples in SAMPLES.values() for n, s in enumerate(samples)]


@needs_c
@pytest.mark.parametrize(("type_", "number", "sample"), ALL_SAMPLES)
def test_sound_events_are_taken_by_both(type_: EventType, number: int, sample: bytes) -> None:
    check_event(sample)
    for events in groups(sample):
        (group, *_) = taken(events)
        read_all(group)
        _, in_runs = take_in([stream(events, 0)], 0, runs=True)
        is_decimal = type_ is T.USER_VAR and number == 4
        if type_ is not T.XID and type_ is not T.XA_PREPARE_LOG:
            assert in_runs == (0 if is_decimal else 1)


@pytest.mark.by_turns(4)
@needs_c
@pytest.mark.parametrize(("type_", "number", "sample"), ALL_SAMPLES)
def test_cut_anywhere(type_: EventType, number: int, sample: bytes) -> None:
    """Fields that are announced and not there: refused at the door, or no field of the event ends there."""
    refused = 0
    for size in range(19, len(sample)):
        for events in groups(cut(sample, size)):
            found = taken(events)
            refused += not found
            for group in found:
                read_all(group)
    assert refused or type_ is T.ANNOTATE_ROWS


@needs_c
@given(st.sampled_from([s for _, _, s in ALL_SAMPLES]), st.data())
def test_damaged_anyhow(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(17, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFE, 0xFF]))
    for events in groups(bytes(damaged)):
        for group in taken(events):
            read_all(group)


@needs_c
@given(st.sampled_from([s for _, _, s in ALL_SAMPLES]), st.data())
def test_what_c_finds_sound_is(sample: bytes, data: st.DataObject) -> None:
    body = bytearray(sample[19:])
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = event(sample[4], bytes(body[: data.draw(st.integers(0, len(body)))]))
    check = CHECKS[sample[4]]
    try:
        if check is not None:
            check(damaged)
        sound = True
    except ProtocolError:
        sound = False
    found = is_sound(damaged, C_TABLE)
    # C leaves decimals to Python.
    assert found == sound or (sample[4] == T.USER_VAR and sound)


def test_every_stored_type_has_a_sample() -> None:
    stored = {T(t) for t in range(NEWER_FROM) if ROLES[t] in STORED | {Role.GTID}}
    assert stored == set(SAMPLES)


def test_a_gtid_event_without_the_fields_that_its_flags_announce() -> None:
    """A master once sent GROUP_COMMIT_ID with six bytes behind it: that was stored, and no longer readable."""
    bad = event(T.GTID, (7).to_bytes(8, "little") + bytes(4) + b"\x02" + bytes(6))
    assert taken([BEGIN, COMMIT, bad, COMMIT])[0].gtid == Gtid(0, 1, 1)
    with pytest.raises(ProtocolError, match="cut short"):
        EventGroupAssembler().feed(bad)


@pytest.mark.parametrize(
    ("version", "size"),
    [(b"5.5.62-log", 27), (b"5.1.73-log", 27), (b"5.2.14-MariaDB-log", 155), (b"5.6.0-m4", 32)],
)
def test_format_descriptions_from_before_checksums(version: bytes, size: int) -> None:
    """They end with the lengths: what would be the algorithm is one of those."""
    body = b"\4\0" + version.ljust(50, b"\0") + bytes(4) + b"\x13" + bytes(range(size))
    found = FormatDescription.parse(event(T.FORMAT_DESCRIPTION, body))
    assert found.server_version == version.decode()
    assert found.checksum_algorithm == 0
    assert found.post_header_lengths == bytes(range(size))


def test_incidents_tell_what_they_are() -> None:
    found = EventGroupAssembler().feed(IncidentEvent("", 1, number=9).build())
    assert isinstance(found, Incident)
    assert str(found.event) == "The incident number 9 occurred on the master. Message: <none>"


def test_groups_that_come_whole_are_looked_at_as_well() -> None:
    """Of another store, or of an archive: by C where they are plain, and one by one."""
    first, second = b"".join([BEGIN, SAMPLES[T.QUERY][0], COMMIT]), b"".join(AFTER)
    decimal = b"".join([BEGIN, SAMPLES[T.USER_VAR][4], COMMIT])
    marker = FormatDescription("11.8.6-MariaDB", 1, created=5).for_store().build()
    groups = [first, second, marker, decimal, second]
    ends = list(accumulate(map(len, groups)))
    check_groups(b"".join(groups), ends)
    check_groups(bytearray(first), [len(first)])
    cut_gtid = event(T.GTID, bytes(12) + b"\x02" + bytes(6))
    for bad, why in (
        (cut_gtid + COMMIT, "GTID event is cut short"),
        (BEGIN + event(T.XID, b"short") + COMMIT, "is no XID event"),
        (BEGIN, "has no end"),
        (BEGIN + BEGIN + COMMIT, "a GTID event inside the group of another"),
        (BEGIN + event(T.ROTATE, bytes(9)) + COMMIT, "ROTATE (4) inside a group"),
        (BEGIN + event(T.MYSQL_GTID) + COMMIT, "MYSQL_GTID (33), MySQL's"),
        (COMMIT, "a group begins with an event of type XID (16)"),
    ):
        with pytest.raises(ProtocolError, match=re.escape(why)):
            check_groups(first + bad + second, list(accumulate(map(len, (first, bad, second)))))
        pieces = [bad[at : at + 7] for at in range(0, len(bad), 7)]
        with pytest.raises(ProtocolError, match=re.escape(why)):
            list(checked_pieces(pieces))
    assert b"".join(checked_pieces(first[at : at + 5] for at in range(0, len(first), 5))) == first
