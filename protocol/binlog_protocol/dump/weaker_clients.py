"""Stored groups for clients that understand less: by their capability, and by the request for annotations.

`SET @mariadb_slave_capability` says what a client understands. A master gives one that understands less:

==================  =====================================  ==========  ======================
capability          GTID                                   GTID_LIST   ANNOTATE_ROWS not asked for
==================  =====================================  ==========  ======================
0 nothing said      standalone: dummy; otherwise BEGIN     dummy       dummy
1 ANNOTATE          the same                               dummy       as it is
2 TOLERATE_HOLES    standalone: left out; otherwise BEGIN  left out    left out
3 CHECKPOINT        the same                               left out    left out
4 GTID              as it is                               as it is    left out
==================  =====================================  ==========  ======================

A replacement has the length, the timestamp and the server_id of what it stands for, so positions stay as they are. A
dummy is a QUERY with a comment for its text; where there is no room for a QUERY, a USER_VAR without a value.
As recorded from MariaDB 10.11 and 11.8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidFlags
from binlog_protocol.events.header import (
    FLAG_SUPPRESS_USE,
    HEADER_SIZE,
    TYPE_OFFSET,
    EventHeader,
    build_event,
    is_marked,
    split_events,
)

Event = bytes | memoryview


class SlaveCapability(IntEnum):
    """`@mariadb_slave_capability`. Each includes those before it."""

    NONE = 0
    ANNOTATE = 1
    TOLERATE_HOLES = 2
    CHECKPOINT = 3
    GTID = 4


_GTID: Final = int(EventType.GTID)
_GTID_LIST: Final = int(EventType.GTID_LIST)
_ANNOTATE_ROWS: Final = int(EventType.ANNOTATE_ROWS)
_STANDALONE: Final = int(GtidFlags.STANDALONE)

_LENGTH: Final = struct.Struct("<I")
# thread id u32, execution time u32, length of the database u8, error u16, length of the status variables u16.
_QUERY_HEAD: Final = struct.Struct("<IIBHH")
_NO_DATABASE: Final = b"\0"
_QUERY_MIN: Final = _QUERY_HEAD.size + len(_NO_DATABASE)
assert _QUERY_MIN == 14
# Readers of status variables stop at a code that they do not know; MariaDB has given out none near it.
_UNKNOWN_STATUS_VARIABLE: Final = b"\xff"
# length of the name u32, name, whether the value is NULL u8
_USER_VAR_MIN: Final = 5


def client_events(
    payload: bytes,
    *,
    annotate: bool = True,
    skip_marked: bool = False,
    capability: int = SlaveCapability.GTID,
) -> list[Event]:
    """The events of a group in normal form, as the client understands them; views of the payload where they are as
    they were.

    Args:
        annotate: the client asked for ANNOTATE_ROWS events.
        skip_marked: the client wants no events that were logged with @@skip_replication=1.

    Raises `ProtocolError` where a length is impossible.
    """
    events: Iterator[Event] = split_events(memoryview(payload))
    if skip_marked:
        events = (event for event in events if not is_marked(event))
    if annotate and capability >= SlaveCapability.GTID:
        return list(events)
    kept = (understood(event, capability, annotate=annotate) for event in events)
    return [event for event in kept if event is not None]


def understood(event: Event, capability: int, *, annotate: bool) -> Event | None:
    """An event without checksum, or what stands for it; None if it is left out. Raises `ProtocolError`."""
    type_ = event[TYPE_OFFSET]
    if type_ == _ANNOTATE_ROWS:
        if annotate or capability == SlaveCapability.ANNOTATE:
            return event
        return _dummy(event) if capability == SlaveCapability.NONE else None
    if capability >= SlaveCapability.GTID:
        return event
    if type_ == _GTID:
        if len(event) <= FLAGS2_OFFSET:
            raise ProtocolError(f"GTID event of {len(event)} bytes")
        if not event[FLAGS2_OFFSET] & _STANDALONE:
            return _begin(event)
        return None if capability >= SlaveCapability.TOLERATE_HOLES else _dummy(event)
    if type_ == _GTID_LIST:
        return None if capability >= SlaveCapability.TOLERATE_HOLES else _dummy(event)
    return event


def replaced_types(capability: int, *, annotate: bool) -> frozenset[int]:
    """The types of events in whose place the client may get others: those that `understood` is to see whole."""
    if capability >= SlaveCapability.GTID:
        return frozenset()
    if annotate or capability != SlaveCapability.NONE:
        return frozenset({_GTID, _GTID_LIST})
    return frozenset({_GTID, _GTID_LIST, _ANNOTATE_ROWS})


def _dummy(event: Event) -> bytes | None:
    """Something without an effect, of the same length; None where there is no room for anything."""
    room = len(event) - HEADER_SIZE
    if room >= _QUERY_MIN:
        text = f"# Dummy event replacing event type {event[TYPE_OFFSET]} that slave cannot handle."
        text_room = room - _QUERY_MIN
        body = bytes(_QUERY_MIN) + text.encode()[:text_room].ljust(text_room)
        return _in_place_of(event, EventType.QUERY, body)
    if room > _USER_VAR_MIN:
        name = b"!" * (room - _USER_VAR_MIN)
        body = _LENGTH.pack(len(name)) + name + b"\1"
        return _in_place_of(event, EventType.USER_VAR, body)
    return None


def _begin(event: Event) -> bytes:
    """BEGIN in place of a GTID event. What a GTID is longer than the shortest becomes padding."""
    text = b"BEGIN"
    spare = len(event) - HEADER_SIZE - _QUERY_MIN - len(text)
    if spare < 0:
        raise ProtocolError(f"GTID event of {len(event)} bytes")
    head = _QUERY_HEAD.pack(0, 0, 0, 0, spare)
    body = head + _UNKNOWN_STATUS_VARIABLE * spare + _NO_DATABASE + text
    return _in_place_of(event, EventType.QUERY, body)


def _in_place_of(event: Event, type_: EventType, body: bytes) -> bytes:
    header = EventHeader.parse(bytes(event[:HEADER_SIZE]))
    return build_event(
        type_,
        body,
        server_id=header.server_id,
        timestamp=header.timestamp,
        end_position=header.end_position,
        flags=FLAG_SUPPRESS_USE,
    )
