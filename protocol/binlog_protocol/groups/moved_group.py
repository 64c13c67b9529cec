"""A group under a later number, at another time: for a history that is told again.

All its events keep their bytes but for the sequence number of the GTID event, the one that it refers to (there, and in
the status variables of the ALTER that it ends), and the seconds in each header. XIDs stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, EventHeader, split_events
from binlog_protocol.events.query import STATUS_VARIABLES_OFFSET, QueryHead
from binlog_protocol.events.status_variables import start_alter_seq_no_at
from binlog_protocol.gtid import U32_MAX, U64_MAX
from binlog_protocol.values import Cursor

_SECONDS_SIZE = 4  # the first field of an event
_QUERIES = (EventType.QUERY, EventType.QUERY_COMPRESSED)


def seconds_of(payload: bytes) -> int:
    """When the group was logged: of its first event, in seconds since 1970."""
    return EventHeader.parse(payload).timestamp


def moved_group(payload: bytes, by: int, at: int | None = None) -> bytes:
    """A group in normal form, its sequence number larger by so much. Raises `ProtocolError` where it does not fit.

    at: seconds since 1970 of all its events; None: as they were.
    """
    return b"".join(_moved(payload, by, at))


def _moved(payload: bytes, by: int, at: int | None) -> Iterator[bytes]:
    events = split_events(payload)
    first = GtidEvent.parse(next(events))
    seq_no = first.gtid.seq_no + by
    if not 0 < seq_no <= U64_MAX:
        raise ProtocolError(f"group {first.gtid} cannot be moved by {by}")
    altered = first.start_alter_seq_no
    moved = replace(
        first,
        gtid=first.gtid._replace(seq_no=seq_no),
        start_alter_seq_no=None if altered is None else altered + by,
    )
    for event in (moved.build(), *events):
        if altered is not None and event[TYPE_OFFSET] in _QUERIES:
            event = _with_alter(event, altered + by)
        yield (
            event
            if at is None
            else (at & U32_MAX).to_bytes(_SECONDS_SIZE, "little") + event[_SECONDS_SIZE:]
        )


def _with_alter(event: bytes, seq_no: int) -> bytes:
    head = QueryHead.take(Cursor(event, "QUERY event", HEADER_SIZE))
    at = start_alter_seq_no_at(head.status_variables)
    if at is None:
        return event
    at += STATUS_VARIABLES_OFFSET
    return event[:at] + seq_no.to_bytes(8, "little") + event[at + 8 :]
