"""Text, bytes and what is kept in them, in row events.

=====================  =============================================================================
CHAR, BINARY           length in one byte, or two when the column has more than 255 bytes; padding
                       (spaces; zeros of a BINARY) is left out
VARCHAR, VARBINARY     the same
BLOB, TEXT, JSON       length in 1 to 4 bytes
ENUM                   number of the label from 1 on, in 1 or 2 bytes LE; 0 is the error value ""
SET                    one bit a label, least first, in 1, 2, 3, 4 or 8 bytes LE
GEOMETRY               length in 4 bytes; SRID u32 LE, WKB
COMPRESSED column      empty for ""; else a header byte and data. 0: the data are the value. 0x8N:
                       N & 7 bytes of the plain length, BE, then zlib data, without zlib header and
                       checksum if N & 8
UUID, INET4, INET6     as BINARY(16), (4), (16), most significant byte first
VECTOR                 as VARBINARY: 4-byte floats, LE
=====================  =============================================================================
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    UndecodedText,
    decode_text,
    encode_text,
)
from binlog_protocol.events.compressed import inflate
from binlog_protocol.events.numbers import float4_bytes
from binlog_protocol.events.table_map import Label
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.values import Cursor

_SHORT_MAX: Final = 255
_SRID_SIZE: Final = 4
_FLOAT_SIZE: Final = 4
_UUID_SIZE: Final = 16
_INET6_SIZE: Final = 16
_ALGORITHM_MASK: Final = 0xF0
_ZLIB: Final = 0x80
_RAW_DEFLATE: Final = 0x08
_LENGTH_BYTES: Final = 0x07
_COMPRESSION_THRESHOLD: Final = 100  # bytes: column_compression_threshold

Text = str | bytes | UndecodedText


@dataclass(frozen=True, slots=True)
class EnumIndex:
    """A value of an ENUM whose labels are not known; they count from 1, 0 is the error value."""

    index: int


@dataclass(frozen=True, slots=True)
class SetBits:
    """A value of a SET whose labels are not known: bit 0 is the first label."""

    bits: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """A geometry; SRID 0 is none. Without any WKB: what INSERT IGNORE makes of a value that is missing."""

    srid: int
    wkb: bytes


class Inet6(ipaddress.IPv6Address):
    """An IPv6 address; as text it is written as MariaDB does it, whatever Python's own way is.

    The longest run of zeros is left out, the first of several, one alone too; behind 96 or 80 bits of zeros, and
    `ffff`, come four decimal numbers (asked from 10.11 and 11.8).
    """

    def __str__(self) -> str:
        words = struct.unpack(">8H", self.packed)
        begin, size = _longest_zeros(words)
        shown = [f"{word:x}" for word in words]
        if begin == 0 and (size == 6 or (size == 5 and words[5] == 0xFFFF)):
            shown[6:] = [".".join(map(str, self.packed[12:]))]
        if size == 0:
            return ":".join(shown)
        return ":".join(shown[:begin]) + "::" + ":".join(shown[begin + size :])


def _longest_zeros(words: tuple[int, ...]) -> tuple[int, int]:
    """The longest run of words that are 0: its index, and its number of words."""
    best, best_size, size = 0, 0, 0
    for at, word in enumerate(words):
        size = 0 if word else size + 1
        if size > best_size:
            best, best_size = at - size + 1, size
    return best, best_size


def length_prefixed(cursor: Cursor, size_max: int) -> bytes:
    """A string whose column has up to `size_max` bytes."""
    return cursor.take(cursor.integer(1 if size_max <= _SHORT_MAX else 2))


def blob(cursor: Cursor, length_bytes: int) -> bytes:
    return cursor.take(cursor.integer(length_bytes))


def text(raw: bytes, collation: int | None) -> Text:
    """The value of a string column: text by its collation, bytes if that is binary or not known."""
    if collation is None or collation == BINARY_COLLATION:
        return raw
    return decode_text(raw, collation)


def enum(cursor: Cursor, size: int, labels: tuple[Label, ...] | None) -> Label | EnumIndex:
    index = cursor.integer(size)
    if labels is None:
        return EnumIndex(index)
    if index > len(labels):
        raise ProtocolError(f"row event: label {index} of an ENUM with {len(labels)}")
    return labels[index - 1] if index else no_label(labels)


def set_(cursor: Cursor, size: int, labels: tuple[Label, ...] | None) -> str | bytes | SetBits:
    bits = cursor.integer(size)
    if labels is None:
        return SetBits(bits)
    if bits >> len(labels):
        raise ProtocolError(f"row event: bits {bits:#x} of a SET with {len(labels)} labels")
    members = [label for i, label in enumerate(labels) if bits >> i & 1]
    if any(isinstance(member, UndecodedText) for member in members):
        return SetBits(bits)
    return joined(members, no_label(labels))


def no_label(labels: Sequence[Label]) -> str | bytes:
    """The value of an ENUM for the error value, and of a SET without members."""
    return b"" if any(isinstance(label, bytes) for label in labels) else ""


def joined(members: Sequence[Label], empty: str | bytes) -> str | bytes:
    """Members of a SET with commas between, as a server gives them: all of them text, or all of them bytes."""
    if isinstance(empty, bytes):
        return b",".join(member for member in members if isinstance(member, bytes))
    return ",".join(member for member in members if isinstance(member, str))


def geometry(raw: bytes) -> Geometry:
    if 0 < len(raw) < _SRID_SIZE:
        raise ProtocolError(f"row event: a geometry of {len(raw)} bytes")
    return Geometry(int.from_bytes(raw[:_SRID_SIZE], "little"), raw[_SRID_SIZE:])


def decompressed(raw: bytes) -> bytes:
    """The value of a COMPRESSED column."""
    if not raw:
        return raw
    header = raw[0]
    if header == 0:
        return raw[1:]
    data_at = 1 + (header & _LENGTH_BYTES)
    if header & _ALGORITHM_MASK != _ZLIB or len(raw) <= data_at:
        raise ProtocolError(
            f"row event: a compressed value of {len(raw)} bytes begins with {header:#04x}"
        )
    length = int.from_bytes(raw[1:data_at], "big")
    return inflate(raw[data_at:], length, EVENT_BYTES_MAX, raw_deflate=bool(header & _RAW_DEFLATE))


def uuid_value(raw: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=_padded(raw, _UUID_SIZE))


def inet4(raw: bytes) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(_padded(raw, 4))


def inet6(raw: bytes) -> Inet6:
    return Inet6(_padded(raw, _INET6_SIZE))


def vector(raw: bytes) -> tuple[float, ...]:
    if len(raw) % _FLOAT_SIZE:
        raise ProtocolError(f"row event: a vector of {len(raw)} bytes")
    return struct.unpack(f"<{len(raw) // _FLOAT_SIZE}f", raw)


def _padded(raw: bytes, size: int) -> bytes:
    if len(raw) > size:
        raise ProtocolError(f"row event: {len(raw)} bytes where {size} are the most")
    return raw.ljust(size, b"\0")


# --- the same values into bytes: each raises `BadValue` for one that its column does not hold ---


def length_prefixed_bytes(raw: bytes, size_max: int) -> bytes:
    if len(raw) > size_max:
        raise BadValue(f"{len(raw)} bytes in a column of {size_max}")
    return len(raw).to_bytes(1 if size_max <= _SHORT_MAX else 2, "little") + raw


def blob_bytes(raw: bytes, length_bytes: int) -> bytes:
    try:
        return len(raw).to_bytes(length_bytes, "little") + raw
    except OverflowError:
        raise BadValue(f"{len(raw)} bytes, whose length has {length_bytes}") from None


def text_bytes(value: object, collation: int | None) -> bytes:
    """The bytes of a string column: text by its collation, bytes if that is binary or not known."""
    if isinstance(value, UndecodedText):
        return value.raw
    if isinstance(value, bytes) and collation in (None, BINARY_COLLATION):
        return value
    if isinstance(value, str) and collation not in (None, BINARY_COLLATION):
        assert collation is not None
        return encode_text(value, collation)
    raise BadValue(f"{type(value).__name__} in a column of collation {collation}")


def enum_bytes(value: object, size: int, labels: tuple[Label, ...] | None) -> bytes:
    """`value` as `enum` gives it; an `EnumIndex` always is one."""
    if isinstance(value, EnumIndex):
        index = value.index
    elif labels is not None and value in labels:
        index = labels.index(value) + 1
    elif labels is not None and value == no_label(labels):
        index = 0
    else:
        raise BadValue(f"{value!r} is no label of the ENUM")
    if not 0 <= index <= (1 << 8 * size) - 1 or (labels is not None and index > len(labels)):
        raise BadValue(f"label {index} of an ENUM with {len(labels or ())}")
    return index.to_bytes(size, "little")


def set_bytes(value: object, size: int, labels: tuple[Label, ...] | None) -> bytes:
    """`value` as `set_` gives it; a `SetBits` always is one."""
    if isinstance(value, SetBits):
        bits = value.bits
    elif labels is None or not isinstance(value, str | bytes):
        raise BadValue(f"{value!r} in a SET")
    else:
        bits = 0
        members: list[str] | list[bytes] = (
            value.split(",") if isinstance(value, str) else value.split(b",")
        )
        for member in members if value else ():
            if member not in labels:
                raise BadValue(f"{member!r} is no label of the SET")
            bits |= 1 << labels.index(member)
    if bits < 0 or bits >> (8 * size if labels is None else len(labels)):
        raise BadValue(f"bits {bits:#x} of a SET with {len(labels or ())} labels")
    return bits.to_bytes(size, "little")


def geometry_bytes(value: Geometry) -> bytes:
    if not value.wkb and not value.srid:
        return b""
    return value.srid.to_bytes(_SRID_SIZE, "little") + value.wkb


def compressed(plain: bytes) -> bytes:
    """A value of a COMPRESSED column, shorter if it pays: what `decompressed` reads, and a server would log."""
    if not plain:
        return plain
    if len(plain) >= _COMPRESSION_THRESHOLD:
        size = (len(plain).bit_length() + 7) // 8
        stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        data = stream.compress(plain) + stream.flush()
        if 1 + size + len(data) < 1 + len(plain):
            return bytes((_ZLIB | _RAW_DEFLATE | size,)) + len(plain).to_bytes(size, "big") + data
    return b"\0" + plain


def vector_bytes(value: tuple[float, ...]) -> bytes:
    return b"".join(map(float4_bytes, value))
