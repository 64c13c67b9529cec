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
from typing import Final

from protocol.errors import ProtocolError
from protocol.events.event_type import EventType
from protocol.events.header import FLAGS_OFFSET, HEADER_SIZE, EventHeader, build_event, parse_whole
from protocol.limits import EVENT_BYTES_MAX
from protocol.wire.values import Cursor

_PLAIN_TYPES: Final[dict[int, EventType]] = {
    EventType.QUERY_COMPRESSED: EventType.QUERY,
    EventType.WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
}
COMPRESSED_TYPES: Final = frozenset(_PLAIN_TYPES)

_ALGORITHM_MASK: Final = 0xF8
_ZLIB: Final = 0x80
_LENGTH_BYTES: Final = 0x07
_LENGTH_BYTES_MAX: Final = 4
_RATIO_MAX: Final = (
    1100  # deflate reaches 1032; what announces more is not believed, and no memory is given to it
)
_RATIO_SLACK: Final = 1024
_QUERY_FIXED_SIZE: Final = 13
_ROWS_FIXED_SIZE: Final = 8

assert FLAGS_OFFSET + 2 == HEADER_SIZE


def inflate(data: bytes, length: int, limit: int, *, raw_deflate: bool = False) -> bytes:
    """`data` uncompressed, exactly `length` bytes, and no more memory than that. Raises `ProtocolError`."""
    if length > min(limit, len(data) * _RATIO_MAX + _RATIO_SLACK):
        raise ProtocolError(
            f"{len(data)} bytes of compressed data say that they stand for {length}"
        )
    stream = zlib.decompressobj(-zlib.MAX_WBITS if raw_deflate else zlib.MAX_WBITS)
    try:
        # One byte more than announced shows what is too long; 0 would mean no limit.
        plain = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise ProtocolError(f"compressed data: {error}; they begin {data[:16].hex(' ')}") from None
    if len(plain) != length or not stream.eof:
        raise ProtocolError(
            f"compressed data give {len(plain)} bytes or more where {length} are announced"
        )
    return plain


def uncompressed(event: bytes, limit: int = EVENT_BYTES_MAX) -> bytes:
    """The plain event that an event without checksum stands for; any other event as it is.

    The result has up to `limit` bytes of uncompressed data. Raises `ProtocolError`.
    """
    header = parse_whole(event)
    plain_type = _PLAIN_TYPES.get(header.type)
    if plain_type is None:
        return event
    cursor = Cursor(event, f"compressed event of type {header.type}", HEADER_SIZE)
    if plain_type == EventType.QUERY:
        fixed = cursor.take(_QUERY_FIXED_SIZE)
        cursor.skip(int.from_bytes(fixed[11:13], "little") + fixed[8] + 1)
    else:
        cursor.skip(_ROWS_FIXED_SIZE)
        bitmap = (cursor.lenenc_int() + 7) // 8
        cursor.skip(2 * bitmap if plain_type == EventType.UPDATE_ROWS_V1 else bitmap)
    plain_head = event[HEADER_SIZE : cursor.position]
    return _rebuilt(header, plain_type, plain_head + _plain_part(cursor, limit))


def _plain_part(cursor: Cursor, limit: int) -> bytes:
    first = cursor.integer(1)
    length_bytes = first & _LENGTH_BYTES
    if first & _ALGORITHM_MASK != _ZLIB or not 1 <= length_bytes <= _LENGTH_BYTES_MAX:
        raise ProtocolError(f"compressed event: its data begin with {first:#04x}")
    length = int.from_bytes(cursor.take(length_bytes), "big")
    return inflate(cursor.rest(), length, limit)


def _rebuilt(header: EventHeader, type_: EventType, body: bytes) -> bytes:
    return build_event(
        type_,
        body,
        server_id=header.server_id,
        timestamp=header.timestamp,
        end_position=header.end_position,
        flags=header.flags,
    )
