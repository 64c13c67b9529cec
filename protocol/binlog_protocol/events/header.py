"""The header that begins every replication event (binlog version 4).

======  ============  ==========================================================================
bytes   field         meaning
======  ============  ==========================================================================
0..3    timestamp     seconds since 1970, 0 in artificial events
4       type          `EventType`
5..8    server_id     of the server that wrote the event first
9..12   length        bytes of the event, header and checksum included
13..16  end_position  where the event ends in its file; 0 in many events of 11.8, always in 12.3
17..18  flags         see below
======  ============  ==========================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.limits import EVENT_BYTES_MAX

BytesT = TypeVar("BytesT", bytes, memoryview)

HEADER_SIZE: Final = 19
TYPE_OFFSET: Final = 4
LENGTH_OFFSET: Final = 9
END_POSITION_OFFSET: Final = 13
FLAGS_OFFSET: Final = 17

_HEADER: Final = struct.Struct("<IBIIIH")
assert _HEADER.size == HEADER_SIZE
_LENGTH: Final = struct.Struct("<I")
assert struct.calcsize("<IBI") == LENGTH_OFFSET
assert struct.calcsize("<IBII") == END_POSITION_OFFSET
assert struct.calcsize("<IBIII") == FLAGS_OFFSET

FLAG_IN_USE: Final = 0x0001  # format description of a file that was not closed
FLAG_THREAD_SPECIFIC: Final = 0x0004
FLAG_SUPPRESS_USE: Final = 0x0008
FLAG_ARTIFICIAL: Final = 0x0020  # made for this connection, not read from a binlog
FLAG_IGNORABLE: Final = 0x0080
FLAG_SKIP_REPLICATION: Final = 0x8000
_SKIP_HIGH: Final = FLAG_SKIP_REPLICATION >> 8


class EventHeader(NamedTuple):
    """The nineteen bytes before the body; `length` counts bytes of the whole event."""

    timestamp: int
    type: int
    server_id: int
    length: int
    end_position: int
    flags: int

    @classmethod
    def parse(cls, event: bytes, offset: int = 0) -> EventHeader:
        """Raises `ProtocolError` when there is no whole header or its length is impossible."""
        if len(event) - offset < HEADER_SIZE:
            raise ProtocolError(f"event header: {len(event) - offset} bytes of {HEADER_SIZE}")
        header = cls(*_HEADER.unpack_from(event, offset))
        if header.length < HEADER_SIZE:
            raise ProtocolError(f"event header: event length {header.length} at offset {offset}")
        return header

    def build(self) -> bytes:
        return _HEADER.pack(*self)

    @property
    def is_artificial(self) -> bool:
        return bool(self.flags & FLAG_ARTIFICIAL)


def event_time(event: bytes) -> int:
    """The timestamp of an event of which at least a header is there; nothing else of it is looked at."""
    return int.from_bytes(event[:TYPE_OFFSET], "little")


def parse_whole(event: bytes, type_: EventType | None = None) -> EventHeader:
    """The header of an event that must be exactly `event`, and of that type; raises `ProtocolError`."""
    header = EventHeader.parse(event)
    if header.length != len(event):
        raise ProtocolError(f"event of {len(event)} bytes says that it has {header.length}")
    if type_ is not None and header.type != type_:
        raise ProtocolError(
            f"event of type {header.type}, {len(event)} bytes, is no {type_.name} event"
        )
    return header


def build_event(
    type_: int,
    body: bytes,
    *,
    server_id: int,
    timestamp: int = 0,
    end_position: int = 0,
    flags: int = 0,
) -> bytes:
    """An event without checksum: the header and `body`."""
    length = HEADER_SIZE + len(body)
    return _HEADER.pack(timestamp, type_, server_id, length, end_position, flags) + body


def is_marked(event: bytes | memoryview) -> bool:
    """Whether an event, of which its header is enough, was logged with @@skip_replication=1."""
    return bool(event[FLAGS_OFFSET + 1] & _SKIP_HIGH)


def split_events(payload: BytesT) -> Iterator[BytesT]:
    """The events of a payload in normal form, one by one; of a view as views.

    Raises `ProtocolError` where a length is impossible.
    """
    position, end = 0, len(payload)
    unpack = _LENGTH.unpack_from
    while position < end:
        if end - position < HEADER_SIZE:
            raise ProtocolError(f"{end - position} bytes behind the last event of {end}")
        (length,) = unpack(payload, position + LENGTH_OFFSET)
        if length < HEADER_SIZE or position + length > end:
            raise ProtocolError(f"event length {length} at offset {position} of {end} bytes")
        yield payload[position : position + length]
        position += length


def split_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The events of a group in normal form that comes in pieces cut anywhere; holds one event and one piece.

    Raises `ProtocolError`.
    """
    held = bytearray()
    passed = 0
    for piece in pieces:
        held += piece
        at = 0
        while (length := _length(held, at, passed)) and at + length <= len(held):
            yield bytes(held[at : at + length])
            at += length
        del held[:at]
        passed += at
    if held:
        raise ProtocolError(_cut_event(held, passed))


def _cut_event(rest: bytearray, at: int) -> str:
    return f"a group ends inside an event: {len(rest)} bytes of it at offset {at}: {rest[:24].hex(' ')}"


def _length(held: bytearray, at: int, passed: int) -> int:
    """The length of the event that begins there; 0 while it cannot be told."""
    if len(held) - at < END_POSITION_OFFSET:
        return 0
    length = int.from_bytes(held[at + LENGTH_OFFSET : at + END_POSITION_OFFSET], "little")
    if not HEADER_SIZE <= length <= EVENT_BYTES_MAX:
        raise ProtocolError(
            f"event length {length} at offset {passed + at} of a group: {held[at : at + 24].hex(' ')}"
        )
    return length


def whole_pieces(pieces: Iterable[bytes], at_least: int) -> Iterator[bytes]:
    """What `joined_events` of `split_pieces` gives, without an object for each event. Raises `ProtocolError`."""
    held = bytearray()
    passed = at = 0
    for piece in pieces:
        held += piece
        while (length := _length(held, at, passed)) and at + length <= len(held):
            at += length
            if at >= at_least:
                yield bytes(memoryview(held)[:at])
                del held[:at]
                passed, at = passed + at, 0
    if at < len(held):
        raise ProtocolError(_cut_event(held[at:], passed + at))
    if held:
        yield bytes(held)


def joined_events(events: Iterable[bytes], at_least: int) -> Iterator[bytes]:
    """Events in pieces of whole ones, each of so many bytes, or a large event more; the last one may have less."""
    held: list[bytes] = []
    size = 0
    for event in events:
        held.append(event)
        size += len(event)
        if size >= at_least:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
