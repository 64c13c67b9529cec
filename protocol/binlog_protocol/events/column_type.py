"""Column types: the type byte of a table map, and what the metadata behind it says.

=================================  ======================  ===================================================
types                              metadata bytes          meaning
=================================  ======================  ===================================================
1 2 3 8 9 (integers), 13 YEAR      none                    width by type
4 FLOAT, 5 DOUBLE                  1                       bytes of a value
7 10 11 12 14 (old temporals)      none                    with mysql56_temporal_format=OFF; see `temporal.py`
15 VARCHAR                         2                       largest length in bytes
16 BIT                             1 + 1                   bits in the last byte, whole bytes
17 18 19 TIMESTAMP DATETIME TIME   1                       digits after the second
140 BLOB, 141 VARCHAR COMPRESSED   1, 2                    as 252 and 15, the header byte counted
246 DECIMAL                        1 + 1                   digits, digits after the point
247 ENUM, 248 SET                  1 + 1                   as 254 has them (not written by MariaDB in this form)
249..252 BLOB, TEXT, JSON          1                       bytes of the length before a value
253 VARCHAR, VARBINARY             1 + 1                   as 254 has them; of tables that MySQL before 5.0 made
254 CHAR, BINARY, ENUM, SET        1 + 1                   see below
255 GEOMETRY                       1                       bytes of the length before a value
=================================  ======================  ===================================================

254: the first byte is the real type (254, 247 or 248; of 253 always that) and the second the length in bytes. A CHAR
may be longer than 255 bytes: bits 4 and 5 of the first byte are then bits 8 and 9 of the length, inverted (all real
types have both set). An ENUM or SET has the size of a value there. UUID, INET4 and INET6 are logged as BINARY, VECTOR
as VARBINARY, JSON as LONGTEXT.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.values import Cursor


class ColumnType(IntEnum):
    """The types of columns, in table maps and on the wire, where parameters have them, too.

    The 254 of a table map is resolved to what it stands for.
    """

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


INTEGER_SIZES: Final = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}
# What the signedness bits of the optional metadata count.
NUMERIC_TYPES: Final = frozenset(
    {*INTEGER_SIZES, ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.YEAR, ColumnType.NEWDECIMAL}
)
BLOB_TYPES: Final = frozenset(
    {
        ColumnType.TINY_BLOB,
        ColumnType.MEDIUM_BLOB,
        ColumnType.LONG_BLOB,
        ColumnType.BLOB,
        ColumnType.BLOB_COMPRESSED,
    }
)
# What the character sets of the optional metadata count: geometry too, ENUM and SET not.
CHARACTER_TYPES: Final = BLOB_TYPES | {
    ColumnType.VARCHAR,
    ColumnType.VARCHAR_COMPRESSED,
    ColumnType.VAR_STRING,
    ColumnType.STRING,
    ColumnType.GEOMETRY,
}

_REAL_TYPE_BITS: Final = 0x30
_DECIMAL_DIGITS_MAX: Final = 65
_DECIMAL_SCALE_MAX: Final = 38
_FRACTION_DIGITS_MAX: Final = 6
_BLOB_LENGTH_BYTES_MAX: Final = 4
_BIT_BYTES_MAX: Final = 8


class ColumnLayout(NamedTuple):
    """The layout of the values of a column.

    `size`: bytes of a value, or the largest length in bytes, or, for BLOB and GEOMETRY, bytes of the length before a
    value. `digits`: of a DECIMAL, and of what follows the second; bits of a BIT. `scale`: of a DECIMAL.
    """

    type: ColumnType
    size: int = 0
    digits: int = 0
    scale: int = 0


def parse_layout(type_byte: int, cursor: Cursor) -> ColumnLayout:
    """Take the metadata of one column; raises `ProtocolError` for a type that cannot be read."""
    try:
        type_ = ColumnType(type_byte)
    except ValueError:
        raise ProtocolError(
            f"table map: column type {type_byte} is not one that MariaDB logs"
        ) from None
    size = INTEGER_SIZES.get(type_)
    if size is not None:
        return ColumnLayout(type_, size)
    if type_ in _WITHOUT_METADATA:
        return ColumnLayout(type_, _WITHOUT_METADATA[type_])
    if type_ in (ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED):
        return ColumnLayout(type_, cursor.integer(2))
    if type_ in BLOB_TYPES or type_ == ColumnType.GEOMETRY:
        return ColumnLayout(type_, _checked(cursor.integer(1), 1, _BLOB_LENGTH_BYTES_MAX, type_))
    if type_ in (ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2):
        return ColumnLayout(type_, 0, _checked(cursor.integer(1), 0, _FRACTION_DIGITS_MAX, type_))
    first, second = (cursor.integer(1), 0) if type_ in _REAL_SIZES else cursor.take(2)
    if type_ in _REAL_SIZES:
        return ColumnLayout(type_, _checked(first, _REAL_SIZES[type_], _REAL_SIZES[type_], type_))
    if type_ == ColumnType.NEWDECIMAL:
        digits = _checked(first, 1, _DECIMAL_DIGITS_MAX, type_)
        return ColumnLayout(
            type_, 0, digits, _checked(second, 0, min(digits, _DECIMAL_SCALE_MAX), type_)
        )
    if type_ == ColumnType.BIT:
        bits = _checked(second * 8 + _checked(first, 0, 7, type_), 1, _BIT_BYTES_MAX * 8, type_)
        return ColumnLayout(type_, (bits + 7) // 8, bits)
    return _string_layout(type_, first, second)


def layout_bytes(layout: ColumnLayout) -> tuple[int, bytes]:
    """The type byte of a table map and the metadata behind it: what `parse_layout` reads."""
    type_, size, digits, scale = layout
    if type_ in INTEGER_SIZES or type_ in _WITHOUT_METADATA:
        return type_, b""
    if type_ in (ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED):
        return type_, size.to_bytes(2, "little")
    if type_ in (ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2):
        return type_, bytes((digits,))
    if type_ == ColumnType.NEWDECIMAL:
        return type_, bytes((digits, scale))
    if type_ == ColumnType.BIT:
        return type_, bytes((digits % 8, digits // 8))
    if type_ in (ColumnType.ENUM, ColumnType.SET):
        return ColumnType.STRING, bytes((type_, size))
    if type_ in _STRINGS:
        return type_, bytes((type_ ^ (size >> 4 & _REAL_TYPE_BITS), size & 0xFF))
    return type_, bytes((size,))


_WITHOUT_METADATA: Final = {
    ColumnType.NULL: 0,
    ColumnType.YEAR: 1,
    ColumnType.DATE: 3,
    ColumnType.NEWDATE: 3,
    ColumnType.TIMESTAMP: 4,
    ColumnType.TIME: 3,
    ColumnType.DATETIME: 8,
}
_REAL_SIZES: Final = {ColumnType.FLOAT: 4, ColumnType.DOUBLE: 8}
_SET_SIZES: Final = (1, 2, 3, 4, 8)
_STRINGS: Final = (ColumnType.STRING, ColumnType.VAR_STRING)


def _string_layout(type_: ColumnType, first: int, second: int) -> ColumnLayout:
    """STRING, and what hides behind it."""
    real, length = first, second
    if type_ in _STRINGS and first & _REAL_TYPE_BITS != _REAL_TYPE_BITS:
        length |= ((first & _REAL_TYPE_BITS) ^ _REAL_TYPE_BITS) << 4
        real = first | _REAL_TYPE_BITS
    if real == ColumnType.ENUM:
        return ColumnLayout(ColumnType.ENUM, _checked(length, 1, 2, ColumnType.ENUM))
    if real == ColumnType.SET and length in _SET_SIZES:
        return ColumnLayout(ColumnType.SET, length)
    if real == type_ and type_ in _STRINGS:
        return ColumnLayout(type_, length)
    raise ProtocolError(
        f"table map: metadata {first:#04x} {second:#04x} of a column of type {type_}"
    )


def _checked(value: int, low: int, high: int, type_: ColumnType) -> int:
    if not low <= value <= high:
        raise ProtocolError(f"table map: metadata {value} of a column of type {type_.name}")
    return value
