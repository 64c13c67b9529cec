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
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError

HEADER_SIZE: Final = 19
TYPE_OFFSET: Final = 4
LENGTH_OFFSET: Final = 9
END_POSITION_OFFSET: Final = 13
FLAGS_OFFSET: Final = 17

_HEADER: Final = struct.Struct("<IBIIIH")
assert _HEADER.size == HEADER_SIZE
assert struct.calcsize("<IBI") == LENGTH_OFFSET
assert struct.calcsize("<IBII") == END_POSITION_OFFSET
assert struct.calcsize("<IBIII") == FLAGS_OFFSET

FLAG_IN_USE: Final = 0x0001  # format description of a file that was not closed
FLAG_THREAD_SPECIFIC: Final = 0x0004
FLAG_SUPPRESS_USE: Final = 0x0008
FLAG_ARTIFICIAL: Final = 0x0020  # made for this connection, not read from a binlog
FLAG_IGNORABLE: Final = 0x0080
FLAG_SKIP_REPLICATION: Final = 0x8000


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


def parse_whole(event: bytes) -> EventHeader:
    """The header of an event that must be exactly `event`; raises `ProtocolError`."""
    header = EventHeader.parse(event)
    if header.length != len(event):
        raise ProtocolError(f"event of {len(event)} bytes says that it has {header.length}")
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


def with_end_position_zero(event: bytes) -> bytes:
    """The same event with end_position 0; a checksum in it is not renewed."""
    return event[:END_POSITION_OFFSET] + b"\0\0\0\0" + event[FLAGS_OFFSET:]
