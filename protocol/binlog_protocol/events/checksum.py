"""Event checksums, and the normal form in which events are stored.

With `binlog_checksum=CRC32` an event ends in four bytes: the zlib CRC-32 of all bytes before.
The normal form of an event has no checksum, the length that goes with that, and end_position 0.
Two events are "the same bytes" when their normal forms are.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Final, Protocol, cast

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAG_IN_USE,
    FLAGS_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    TYPE_OFFSET,
    split_events,
)


class Crc32(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, before: int = 0, /) -> int:
        """The checksum of data behind those of which `before` is the checksum."""


crc32: Crc32 = zlib.crc32
"""The checksum of events, as zlib has it. Its twin in C takes a third of the time of zlib 1.2.13."""
try:
    from binlog_protocol.events import _group_runs
except ImportError:
    HAS_C = False
else:
    HAS_C = True
    crc32 = _group_runs.crc32

CHECKSUM_SIZE: Final = 4
_U32: Final = 0xFFFFFFFF

# The CRC-32 of any bytes followed by their own CRC-32, little endian: one pass and no slice.
_CRC_RESIDUE: Final = 0x2144DF1C
assert crc32(b"any" + crc32(b"any").to_bytes(4, "little")) == _CRC_RESIDUE

_CRC: Final = struct.Struct("<I")
assert _CRC.size == CHECKSUM_SIZE
_LENGTH_AND_END: Final = struct.Struct("<II")
assert LENGTH_OFFSET + _LENGTH_AND_END.size == FLAGS_OFFSET
assert END_POSITION_OFFSET == LENGTH_OFFSET + 4


class ChecksumAlgorithm(IntEnum):
    """The algorithm byte of a format description; NONE is false."""

    NONE = 0
    CRC32 = 1

    @classmethod
    def from_variable(cls, text: str) -> ChecksumAlgorithm:
        """`@@global.binlog_checksum` as text, in any case; raises `ProtocolError`."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ProtocolError(f"unknown checksum algorithm {text!r}") from None


class EventChecksumError(ProtocolError):
    """The checksum of an event does not match its bytes."""


def append_checksum(event: bytes) -> bytes:
    """The event with its length raised by four and its CRC-32 at the end."""
    length = len(event) + CHECKSUM_SIZE
    summed = event[:LENGTH_OFFSET] + _CRC.pack(length) + event[END_POSITION_OFFSET:]
    return summed + _CRC.pack(crc32(summed))


def verify_checksum(event: bytes | bytearray) -> None:
    """Raises `EventChecksumError` when the last four bytes are not the CRC-32 of the others.

    A format description is summed as if its file were closed: the IN_USE flag counts as clear.
    """
    if len(event) < HEADER_SIZE + CHECKSUM_SIZE:
        raise EventChecksumError(f"event of {len(event)} bytes has no room for a checksum")
    if crc32(event) == _CRC_RESIDUE:
        return
    summed = event[:-CHECKSUM_SIZE]
    (expected,) = _CRC.unpack_from(event, len(summed))
    if event[TYPE_OFFSET] == EventType.FORMAT_DESCRIPTION and event[FLAGS_OFFSET] & FLAG_IN_USE:
        closed = bytearray(summed)
        closed[FLAGS_OFFSET] &= ~FLAG_IN_USE & 0xFF
        if crc32(closed) == expected:
            return
    raise EventChecksumError(
        f"event of type {event[4]}, {len(event)} bytes: CRC-32 is {crc32(summed):08x}, "
        f"the event says {expected:08x}; it begins {event[:24].hex()}"
    )


def strip_checksum(event: bytes, algorithm: int) -> bytes:
    """The event without its checksum, which is verified; raises `EventChecksumError`."""
    if not algorithm:
        return event
    verify_checksum(event)
    length = len(event) - CHECKSUM_SIZE
    return event[:LENGTH_OFFSET] + _CRC.pack(length) + event[END_POSITION_OFFSET:length]


def normal_form(event: bytes | bytearray, algorithm: int) -> bytes:
    """The event as it is stored: checksum verified and removed, end_position 0.

    `event` is one whole event whose length field has been checked; a bytearray is changed itself, so that what is large
    is not copied. Raises `EventChecksumError`.
    """
    if isinstance(event, bytearray):
        if algorithm:
            verify_checksum(event)
            del event[-CHECKSUM_SIZE:]
        event[LENGTH_OFFSET:FLAGS_OFFSET] = _LENGTH_AND_END.pack(len(event), 0)
        return cast(bytes, event)
    length = len(event)
    if algorithm:
        verify_checksum(event)
        length -= CHECKSUM_SIZE
    return event[:LENGTH_OFFSET] + _LENGTH_AND_END.pack(length, 0) + event[FLAGS_OFFSET:length]


def laid_out(event: bytes, begin: int | None, algorithm: int) -> bytes:
    """An event in normal form as it lies in a binlog file from offset `begin` on; None for 0 as its end."""
    length = len(event) + (CHECKSUM_SIZE if algorithm else 0)
    end = 0 if begin is None else begin + length & _U32
    data = event[:LENGTH_OFFSET] + _LENGTH_AND_END.pack(length, end) + event[FLAGS_OFFSET:]
    return data + _CRC.pack(crc32(data)) if algorithm else data


def laid_out_plainly(payload: bytes, begin: int, algorithm: int) -> bytes:
    """All events of a payload in normal form, one behind the other, as `laid_out`. Raises `ProtocolError`."""
    data = bytearray()
    for event in split_events(payload):
        data += laid_out(event, begin + len(data), algorithm)
    return bytes(data)


def laid_out_events(payload: bytes, begin: int, algorithm: int) -> bytes:
    """The same; in C where there is C."""
    made = _group_runs.lay_out(payload, begin, algorithm) if HAS_C else None
    return laid_out_plainly(payload, begin, algorithm) if made is None else made
