"""Positions of the classic style, beside how a replica counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from binlog_protocol.dump.classic_positions import (
    OVERTAKEN,
    event_ends,
    event_lengths,
    overtaken_ends,
    position_of,
    sealed,
)
from binlog_protocol.events.checksum import normal_form, verify_checksum
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import EventHeader, build_event, split_events
from binlog_protocol.events.rotate import RotateEvent
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.replica_position import ReplicaPosition

bodies = st.lists(st.binary(max_size=60), min_size=1, max_size=6)


def made(body_list: list[bytes]) -> list[bytes]:
    return [build_event(2, body, server_id=1) for body in body_list]


def at_position(position: int, *, checksum: bool) -> ReplicaPosition:
    replica = ReplicaPosition(checksum=checksum)
    replica.feed(RotateEvent.fake("binlog.000001", 1, position).build())
    replica.feed(FormatDescription("11.8.0-MariaDB", 1).build())
    return replica


@given(bodies, st.integers(0, 3000), st.integers(0, 500), st.booleans())
def test_a_replica_is_where_the_group_ends(
    body_list: list[bytes], gap: int, behind: int, checksum: bool
) -> None:
    """Wherever it was before the group, if it was not beyond its first event."""
    events = made(body_list)
    lengths = event_lengths(events, checksum=checksum)
    end = 40_000 + gap + sum(lengths)
    ends = event_ends(lengths, end)
    replica = at_position(40_000 + gap - behind, checksum=checksum)
    for event, wanted in zip(split_sealed(events, ends, checksum=checksum), ends, strict=True):
        replica.feed(event)
        assert replica.position == wanted
    assert replica.position == end


@given(bodies, st.integers(0, 100), st.booleans())
def test_an_overtaken_group_is_beyond_every_file(
    body_list: list[bytes], end: int, checksum: bool
) -> None:
    events = made(body_list)
    lengths = event_lengths(events, checksum=checksum)
    ends = overtaken_ends(lengths, end)
    assert ends[-1] == end
    replica = at_position(4, checksum=checksum)
    *others, last = split_sealed(events, ends, checksum=checksum)
    for event in others:
        replica.feed(event)
        assert replica.position > OVERTAKEN
    assert EventHeader.parse(last).end_position == end


@given(bodies, st.booleans())
def test_sealed_events_are_the_same_but_for_position_and_checksum(
    body_list: list[bytes], checksum: bool
) -> None:
    events = made(body_list)
    ends = event_ends(event_lengths(events, checksum=checksum), 70_000)
    out = sealed(events, ends, checksum=checksum)
    assert len(out) == sum(event_lengths(events, checksum=checksum))
    found = list(split_events(out))
    assert [EventHeader.parse(event).end_position for event in found] == ends
    assert [normal_form(event, int(checksum)) for event in found] == events
    assert all(b - a == len(event) for (a, b), event in zip(pairwise(ends), found[1:], strict=True))


@pytest.mark.parametrize("checksum", [True, False])
def test_a_start_marker_says_whether_there_are_checksums(checksum: bool) -> None:
    stored = FormatDescription("10.11.19-MariaDB", 1, created=77, timestamp=78).for_store().build()
    sent = FormatDescription.parse(sealed([stored], [9999], checksum=checksum))
    assert sent.checksum_algorithm == int(checksum)
    assert (sent.created, sent.end_position) == (77, 0), "it has no position, so nobody counts it"
    verify_checksum(sealed([stored], [9999], checksum=checksum))


def test_positions_of_the_largest_file_end_before_those_that_are_overtaken() -> None:
    assert position_of(1 << 30) == OVERTAKEN < 1 << 32


def split_sealed(events: list[bytes], ends: list[int], *, checksum: bool) -> list[bytes]:
    """What goes out, as a replica counts it: without checksums, lengths as they were."""
    out = []
    for event in split_events(sealed(events, ends, checksum=checksum)):
        header = EventHeader.parse(event)
        end = header.end_position
        plain = normal_form(event, int(checksum))
        out.append(plain[:13] + end.to_bytes(4, "little") + plain[17:])
    return out
