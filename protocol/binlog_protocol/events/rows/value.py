"""The value of one column, by its type, from bytes and into them: see the table in the package."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events import numbers
from binlog_protocol.events.charsets import BINARY_COLLATION, UndecodedText, without_spaces
from binlog_protocol.events.column_type import BLOB_TYPES, INTEGER_SIZES, ColumnType
from binlog_protocol.events.rows import strings, temporal
from binlog_protocol.events.rows.strings import EnumIndex, Geometry, SetBits
from binlog_protocol.events.rows.temporal import ZeroDate
from binlog_protocol.events.table_map import ColumnKind, TableColumn
from binlog_protocol.values import Cursor

Value = (
    int
    | float
    | Decimal
    | str
    | bytes
    | datetime.date
    | datetime.datetime
    | datetime.timedelta
    | uuid.UUID
    | ipaddress.IPv4Address
    | ipaddress.IPv6Address
    | tuple[float, ...]
    | ZeroDate
    | UndecodedText
    | EnumIndex
    | SetBits
    | Geometry
    | None
)

_Reader = Callable[[TableColumn, Cursor], Value]


def read_value(column: TableColumn, cursor: Cursor) -> Value:
    """The value that begins at the cursor, which is not NULL. Raises `ProtocolError`."""
    return _READERS[column.layout.type](column, cursor)


def _integer(column: TableColumn, cursor: Cursor) -> int:
    return numbers.integer(cursor, column.layout.size, unsigned=bool(column.unsigned))


def _string(column: TableColumn, cursor: Cursor) -> Value:
    raw = strings.length_prefixed(cursor, column.layout.size)
    if len(raw) > column.layout.size:
        raise ProtocolError(f"row event: {len(raw)} bytes in a column of {column.layout.size}")
    if column.collation == BINARY_COLLATION and column.type == ColumnType.STRING:
        raw = raw.ljust(column.layout.size, b"\0")
    special = _KINDS.get(column.kind)
    return strings.text(raw, column.collation) if special is None else special(raw)


def _compressed_string(column: TableColumn, cursor: Cursor) -> Value:
    raw = strings.length_prefixed(cursor, column.layout.size)
    return strings.text(strings.decompressed(raw), column.collation)


def _blob(column: TableColumn, cursor: Cursor) -> Value:
    return strings.text(strings.blob(cursor, column.layout.size), column.collation)


def _compressed_blob(column: TableColumn, cursor: Cursor) -> Value:
    raw = strings.blob(cursor, column.layout.size)
    return strings.text(strings.decompressed(raw), column.collation)


def _null(column: TableColumn, cursor: Cursor) -> None:
    return None


_KINDS: Final[dict[ColumnKind, Callable[[bytes], Value]]] = {
    ColumnKind.UUID: strings.uuid_value,
    ColumnKind.INET4: strings.inet4,
    ColumnKind.INET6: strings.inet6,
    ColumnKind.VECTOR: strings.vector,
}

_READERS: Final[dict[ColumnType, _Reader]] = {
    **dict.fromkeys(INTEGER_SIZES, _integer),
    ColumnType.FLOAT: lambda column, cursor: numbers.float4(cursor),
    ColumnType.DOUBLE: lambda column, cursor: numbers.float8(cursor),
    ColumnType.YEAR: lambda column, cursor: numbers.year(cursor),
    ColumnType.BIT: lambda column, cursor: numbers.bit(
        cursor, column.layout.digits, column.layout.size
    ),
    ColumnType.NEWDECIMAL: lambda column, cursor: numbers.decimal(
        cursor, column.layout.digits, column.layout.scale
    ),
    ColumnType.NULL: _null,
    ColumnType.DATE: lambda column, cursor: temporal.date(cursor),
    ColumnType.NEWDATE: lambda column, cursor: temporal.date(cursor),
    ColumnType.TIME2: lambda column, cursor: temporal.time2(cursor, column.layout.digits),
    ColumnType.DATETIME2: lambda column, cursor: temporal.datetime2(cursor, column.layout.digits),
    ColumnType.TIMESTAMP2: lambda column, cursor: temporal.timestamp2(cursor, column.layout.digits),
    ColumnType.TIME: lambda column, cursor: temporal.old_time(cursor, column.fraction_digits),
    ColumnType.DATETIME: lambda column, cursor: temporal.old_datetime(
        cursor, column.fraction_digits
    ),
    ColumnType.TIMESTAMP: lambda column, cursor: temporal.old_timestamp(
        cursor, column.fraction_digits
    ),
    ColumnType.VARCHAR: _string,
    ColumnType.VAR_STRING: _string,
    ColumnType.STRING: _string,
    ColumnType.VARCHAR_COMPRESSED: _compressed_string,
    ColumnType.TINY_BLOB: _blob,
    ColumnType.MEDIUM_BLOB: _blob,
    ColumnType.LONG_BLOB: _blob,
    ColumnType.BLOB: _blob,
    ColumnType.BLOB_COMPRESSED: _compressed_blob,
    ColumnType.ENUM: lambda column, cursor: strings.enum(cursor, column.layout.size, column.labels),
    ColumnType.SET: lambda column, cursor: strings.set_(cursor, column.layout.size, column.labels),
    ColumnType.GEOMETRY: lambda column, cursor: strings.geometry(
        strings.blob(cursor, column.layout.size)
    ),
}
assert set(_READERS) == set(ColumnType)


# --- into bytes ---

_Writer = Callable[[TableColumn, Any], bytes]


def write_value(column: TableColumn, value: Value) -> bytes:
    """The bytes of a value that is not NULL, which `read_value` takes: the same values, none is converted.

    Raises `BadValue` for one that the column does not hold, or not exactly.
    """
    type_ = column.layout.type
    wanted = _KIND_TYPES.get(column.kind) or _PYTHON_TYPES.get(type_)
    if wanted is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
        raise BadValue(f"{type(value).__name__} in a column of type {type_.name}")
    return _WRITERS[type_](column, value)


def _string_bytes(column: TableColumn, value: Any) -> bytes:
    size = column.layout.size
    special = _KIND_BYTES.get(column.kind)
    raw = strings.text_bytes(value, column.collation) if special is None else special(value)
    if special is not None and len(raw) != size:
        raise BadValue(f"{len(raw)} bytes in a column of {size}")
    if column.type == ColumnType.STRING:
        if special is not None or column.collation == BINARY_COLLATION:
            raw = raw.rstrip(b"\0")
        elif column.collation is not None:
            raw = without_spaces(raw, column.collation)
    return strings.length_prefixed_bytes(raw, size)


def _compressed_string_bytes(column: TableColumn, value: Any) -> bytes:
    raw = strings.compressed(strings.text_bytes(value, column.collation))
    return strings.length_prefixed_bytes(raw, column.layout.size)


def _blob_bytes(column: TableColumn, value: Any) -> bytes:
    return strings.blob_bytes(strings.text_bytes(value, column.collation), column.layout.size)


def _compressed_blob_bytes(column: TableColumn, value: Any) -> bytes:
    raw = strings.compressed(strings.text_bytes(value, column.collation))
    return strings.blob_bytes(raw, column.layout.size)


_KIND_BYTES: Final[dict[ColumnKind, Callable[[Any], bytes]]] = {
    ColumnKind.UUID: lambda value: value.bytes,
    ColumnKind.INET4: lambda value: value.packed,
    ColumnKind.INET6: lambda value: value.packed,
    ColumnKind.VECTOR: strings.vector_bytes,
}
# Of types whose writers take only these; those of strings and labels look for themselves.
_PYTHON_TYPES: Final[dict[ColumnType, type | tuple[type, ...]]] = {
    **dict.fromkeys((*INTEGER_SIZES, ColumnType.YEAR, ColumnType.BIT), int),
    ColumnType.FLOAT: (float, int),
    ColumnType.DOUBLE: (float, int),
    ColumnType.NEWDECIMAL: Decimal,
    ColumnType.DATE: (datetime.date, ZeroDate),
    ColumnType.NEWDATE: (datetime.date, ZeroDate),
    **dict.fromkeys((ColumnType.TIME, ColumnType.TIME2), datetime.timedelta),
    **dict.fromkeys(
        (
            ColumnType.DATETIME,
            ColumnType.DATETIME2,
            ColumnType.TIMESTAMP,
            ColumnType.TIMESTAMP2,
        ),
        (datetime.datetime, ZeroDate),
    ),
    ColumnType.GEOMETRY: Geometry,
}
_KIND_TYPES: Final[dict[ColumnKind, type]] = {
    ColumnKind.UUID: uuid.UUID,
    ColumnKind.INET4: ipaddress.IPv4Address,
    ColumnKind.INET6: ipaddress.IPv6Address,
    ColumnKind.VECTOR: tuple,
}
_WRITERS: Final[dict[ColumnType, _Writer]] = {
    **dict.fromkeys(
        INTEGER_SIZES,
        lambda column, value: numbers.integer_bytes(
            value, column.layout.size, unsigned=bool(column.unsigned)
        ),
    ),
    ColumnType.FLOAT: lambda column, value: numbers.float4_bytes(value),
    ColumnType.DOUBLE: lambda column, value: numbers.float8_bytes(value),
    ColumnType.YEAR: lambda column, value: numbers.year_bytes(value),
    ColumnType.BIT: lambda column, value: numbers.bit_bytes(
        value, column.layout.digits, column.layout.size
    ),
    ColumnType.NEWDECIMAL: lambda column, value: numbers.decimal_bytes(
        value, column.layout.digits, column.layout.scale
    ),
    ColumnType.NULL: lambda column, value: b"",
    ColumnType.DATE: lambda column, value: temporal.date_bytes(value),
    ColumnType.NEWDATE: lambda column, value: temporal.date_bytes(value),
    ColumnType.TIME2: lambda column, value: temporal.time2_bytes(value, column.layout.digits),
    ColumnType.DATETIME2: lambda column, value: temporal.datetime2_bytes(
        value, column.layout.digits
    ),
    ColumnType.TIMESTAMP2: lambda column, value: temporal.timestamp2_bytes(
        value, column.layout.digits
    ),
    ColumnType.TIME: lambda column, value: temporal.old_time_bytes(value, column.fraction_digits),
    ColumnType.DATETIME: lambda column, value: temporal.old_datetime_bytes(
        value, column.fraction_digits
    ),
    ColumnType.TIMESTAMP: lambda column, value: temporal.old_timestamp_bytes(
        value, column.fraction_digits
    ),
    ColumnType.VARCHAR: _string_bytes,
    ColumnType.VAR_STRING: _string_bytes,
    ColumnType.STRING: _string_bytes,
    ColumnType.VARCHAR_COMPRESSED: _compressed_string_bytes,
    ColumnType.TINY_BLOB: _blob_bytes,
    ColumnType.MEDIUM_BLOB: _blob_bytes,
    ColumnType.LONG_BLOB: _blob_bytes,
    ColumnType.BLOB: _blob_bytes,
    ColumnType.BLOB_COMPRESSED: _compressed_blob_bytes,
    ColumnType.ENUM: lambda column, value: strings.enum_bytes(
        value, column.layout.size, column.labels
    ),
    ColumnType.SET: lambda column, value: strings.set_bytes(
        value, column.layout.size, column.labels
    ),
    ColumnType.GEOMETRY: lambda column, value: strings.blob_bytes(
        strings.geometry_bytes(value), column.layout.size
    ),
}
assert set(_WRITERS) == set(ColumnType)

# --- where a value ends ---

_SHORT_MAX: Final = 255
_FIXED_SIZES: Final = {
    **INTEGER_SIZES,
    ColumnType.FLOAT: 4,
    ColumnType.DOUBLE: 8,
    ColumnType.YEAR: 1,
    ColumnType.NULL: 0,
    ColumnType.DATE: 3,
    ColumnType.NEWDATE: 3,
}
_BEFORE_FRACTION: Final = {
    ColumnType.TIMESTAMP2: 4,
    ColumnType.DATETIME2: 5,
    ColumnType.TIME2: 3,
}
_OLD_TEMPORAL: Final = (ColumnType.TIME, ColumnType.DATETIME, ColumnType.TIMESTAMP)
_SIZE_IN_LAYOUT: Final = (ColumnType.BIT, ColumnType.ENUM, ColumnType.SET)


class ValueSize(NamedTuple):
    """Bytes of a value, or of the length before it (then the other is 0)."""

    fixed: int
    length: int


def value_size(column: TableColumn) -> ValueSize:
    layout = column.layout
    type_ = layout.type
    if type_ in _FIXED_SIZES:
        return ValueSize(_FIXED_SIZES[type_], 0)
    if type_ in _BEFORE_FRACTION:
        return ValueSize(_BEFORE_FRACTION[type_] + (layout.digits + 1) // 2, 0)
    if type_ == ColumnType.NEWDECIMAL:
        groups = numbers.decimal_groups(layout.digits, layout.scale)
        return ValueSize(sum(group.size for group in groups), 0)
    if type_ in _SIZE_IN_LAYOUT:
        return ValueSize(layout.size, 0)
    if type_ in _OLD_TEMPORAL:
        return ValueSize(temporal.old_size(type_, column.fraction_digits), 0)
    if type_ in BLOB_TYPES or type_ == ColumnType.GEOMETRY:
        return ValueSize(0, layout.size)
    return ValueSize(0, 1 if layout.size <= _SHORT_MAX else 2)
