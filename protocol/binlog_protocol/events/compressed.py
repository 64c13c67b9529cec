"""Compressed events: QUERY_COMPRESSED (165) and row events 166..168, made by `log_bin_compress`.

======  ============================================================================================
bytes   of the compressed part
======  ============================================================================================
0       0x80 | n (n = 1..4; 0x80 is zlib, the one algorithm there is)
1..n    length of the plain part, big endian
..      zlib data, with header and checksum
======  ============================================================================================

What comes before is plain: of a query up to the 00 behind the database name, of row events the table id, the flags,
the number of columns and the bitmaps.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    FLAGS_OFFSET,
    HEADER_SIZE,
    TYPE_OFFSET,
    EventHeader,
    build_event,
    parse_whole,
)
from binlog_protocol.events.query import QueryHead
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.values import Cursor

_PLAIN_TYPES: Final[dict[int, EventType]] = {
    EventType.QUERY_COMPRESSED: EventType.QUERY,
    EventType.WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
}
COMPRESSED_TYPES: Final = frozenset(_PLAIN_TYPES)
_COMPRESSED_OF: Final = {int(plain): EventType(type_) for type_, plain in _PLAIN_TYPES.items()}

_ALGORITHM_MASK: Final = 0xF8
_ZLIB: Final = 0x80
_LENGTH_BYTES: Final = 0x07
_LENGTH_BYTES_MAX: Final = 4
_RATIO_MAX: Final = (
    1100  # deflate reaches 1032; what announces more is not believed, and no memory is given to it
)
_RATIO_SLACK: Final = 1024
_ROWS_FIXED_SIZE: Final = 8
_SLICE_BYTES: Final = 1 << 18
_INPUT_BYTES: Final = 1 << 14

assert FLAGS_OFFSET + 2 == HEADER_SIZE


def inflate(data: bytes, length: int, limit: int, *, raw_deflate: bool = False) -> bytes:
    """`data` uncompressed, exactly `length` bytes, and no more memory than that. Raises `ProtocolError`."""
    _require_possible(len(data), length, limit)
    stream = zlib.decompressobj(-zlib.MAX_WBITS if raw_deflate else zlib.MAX_WBITS)
    try:
        # One byte more than announced shows what is too long; 0 would mean no limit.
        plain = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise _broken(error, data) from None
    if len(plain) != length or not stream.eof:
        raise _too_long(len(plain), length)
    return plain


def _slices(data: memoryview, length: int) -> Iterator[bytes]:
    """The result of `inflate` in slices of `_SLICE_BYTES` at most, to bound memory. Raises `ProtocolError`."""
    stream = zlib.decompressobj()
    given = 0
    # What is not consumed is copied: it must not be all the rest each time.
    for at in range(0, len(data), _INPUT_BYTES):
        rest: bytes | memoryview = data[at : at + _INPUT_BYTES]
        while not stream.eof:
            try:
                plain = stream.decompress(rest, _SLICE_BYTES)
            except zlib.error as error:
                raise _broken(error, data) from None
            rest = stream.unconsumed_tail
            given += len(plain)
            if given > length:
                raise _too_long(given, length)
            if plain:
                yield plain
            if not rest and len(plain) < _SLICE_BYTES:
                break
    if given != length or not stream.eof:
        raise _too_long(given, length)


def _broken(error: zlib.error, data: bytes | memoryview) -> ProtocolError:
    return ProtocolError(f"compressed data: {error}; they begin {bytes(data[:16]).hex(' ')}")


def _too_long(given: int, length: int) -> ProtocolError:
    return ProtocolError(f"compressed data give {given} bytes or more where {length} are announced")


def _require_possible(size: int, length: int, limit: int) -> None:
    if length > min(limit, size * _RATIO_MAX + _RATIO_SLACK):
        raise ProtocolError(f"{size} bytes of compressed data say that they stand for {length}")


class CompressedPart(NamedTuple):
    """The parts of a compressed event: its plain head ends at `begin`, the zlib data begin at `data`.

    length: that the plain part is said to have, which is possible for so much data.
    """

    begin: int
    data: int
    length: int

    @classmethod
    def find(cls, event: bytes, limit: int = EVENT_BYTES_MAX) -> CompressedPart:
        """The parts of an event of one of `COMPRESSED_TYPES`, without uncompressing it. Raises `ProtocolError`."""
        cursor = Cursor(event, f"compressed event of type {event[TYPE_OFFSET]}", HEADER_SIZE)
        _skip_head(event[TYPE_OFFSET], cursor)
        begin = cursor.position
        first = cursor.integer(1)
        length_bytes = first & _LENGTH_BYTES
        if first & _ALGORITHM_MASK != _ZLIB or not 1 <= length_bytes <= _LENGTH_BYTES_MAX:
            raise ProtocolError(f"compressed event: its data begin with {first:#04x}")
        length = int.from_bytes(cursor.take(length_bytes), "big")
        _require_possible(cursor.remaining, length, limit)
        return cls(begin, cursor.position, length)


def _skip_head(compressed_type: int, cursor: Cursor) -> None:
    if compressed_type == EventType.QUERY_COMPRESSED:
        QueryHead.take(cursor)
        return
    cursor.skip(_ROWS_FIXED_SIZE)
    bitmap = (cursor.lenenc_int() + 7) // 8
    is_update = compressed_type == EventType.UPDATE_ROWS_COMPRESSED_V1
    cursor.skip(2 * bitmap if is_update else bitmap)


def compressed(event: bytes) -> bytes:
    """The compressed event that stands for a QUERY or row event without checksum; any other event as it is.

    Raises `ProtocolError`.
    """
    header = parse_whole(event)
    type_ = _COMPRESSED_OF.get(header.type)
    if type_ is None:
        return event
    cursor = Cursor(event, f"event of type {header.type}", HEADER_SIZE)
    _skip_head(type_, cursor)
    begin = cursor.position
    plain = cursor.rest()
    size = max(1, (len(plain).bit_length() + 7) // 8)
    head = bytes((_ZLIB | size,)) + len(plain).to_bytes(size, "big")
    return _rebuilt(header, type_, event[HEADER_SIZE:begin] + head + zlib.compress(plain))


def uncompressed(event: bytes, limit: int = EVENT_BYTES_MAX) -> bytes:
    """The plain event that an event without checksum stands for; any other event as it is.

    The result has up to `limit` bytes of uncompressed data. Raises `ProtocolError`.
    """
    header = parse_whole(event)
    plain_type = _PLAIN_TYPES.get(header.type)
    if plain_type is None:
        return event
    part = CompressedPart.find(event, limit)
    plain = inflate(event[part.data :], part.length, limit)
    return _rebuilt(header, plain_type, event[HEADER_SIZE : part.begin] + plain)


class UncompressedSlices(NamedTuple):
    """The plain event for a compressed one, without having it in memory.

    begin: a plain event with the beginning of the uncompressed data, up to 256 KiB; all of them if they are no more.
    rest: what follows; raises `ProtocolError` where the data are broken, or not of the announced length.
    """

    begin: bytes
    rest: Iterator[bytes]


def uncompressed_slices(event: bytes) -> UncompressedSlices:
    """The slices of an event of one of `COMPRESSED_TYPES`, without checksum. Raises `ProtocolError`."""
    header = parse_whole(event)
    part = CompressedPart.find(event)
    slices = _slices(memoryview(event)[part.data :], part.length)
    first = next(slices, b"")
    if len(first) == part.length:
        first += b"".join(slices)  # nothing, but it tells whether the end is right
    body = event[HEADER_SIZE : part.begin] + first
    return UncompressedSlices(_rebuilt(header, _PLAIN_TYPES[header.type], body), slices)


def plain_begin(event: bytes) -> bytes:
    """Any event without checksum; of a compressed one a plain event with the beginning of its data, up to 256 KiB.

    For callers that need no more: compressed data may stand for a thousand times as much. Raises `ProtocolError`.
    """
    return uncompressed_slices(event).begin if event[TYPE_OFFSET] in COMPRESSED_TYPES else event


def _rebuilt(header: EventHeader, type_: EventType, body: bytes) -> bytes:
    return build_event(
        type_,
        body,
        server_id=header.server_id,
        timestamp=header.timestamp,
        end_position=header.end_position,
        flags=header.flags,
    )
