"""The value of one column, by its type: see the table in the package."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events import numbers
from binlog_protocol.events.charsets import BINARY_COLLATION, UndecodedText
from binlog_protocol.events.column_type import INTEGER_SIZES, ColumnType
from binlog_protocol.events.rows import strings, temporal
from binlog_protocol.events.rows.strings import EnumIndex, Geometry, SetBits
from binlog_protocol.events.rows.temporal import ZeroDate
from binlog_protocol.events.table_map import Column, Kind
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

_Reader = Callable[[Column, Cursor], Value]


def read_value(column: Column, cursor: Cursor) -> Value:
    """The value that begins at the cursor, which is not NULL. Raises `ProtocolError`."""
    return _READERS[column.layout.type](column, cursor)


def _integer(column: Column, cursor: Cursor) -> int:
    return numbers.integer(cursor, column.layout.size, unsigned=bool(column.unsigned))


def _string(column: Column, cursor: Cursor) -> Value:
    raw = strings.length_prefixed(cursor, column.layout.size)
    if len(raw) > column.layout.size:
        raise ProtocolError(f"row event: {len(raw)} bytes in a column of {column.layout.size}")
    if column.collation == BINARY_COLLATION and column.type == ColumnType.STRING:
        raw = raw.ljust(column.layout.size, b"\0")
    special = _KINDS.get(column.kind)
    return strings.text(raw, column.collation) if special is None else special(raw)


def _compressed_string(column: Column, cursor: Cursor) -> Value:
    raw = strings.length_prefixed(cursor, column.layout.size)
    return strings.text(strings.decompressed(raw), column.collation)


def _blob(column: Column, cursor: Cursor) -> Value:
    return strings.text(strings.blob(cursor, column.layout.size), column.collation)


def _compressed_blob(column: Column, cursor: Cursor) -> Value:
    raw = strings.blob(cursor, column.layout.size)
    return strings.text(strings.decompressed(raw), column.collation)


def _null(column: Column, cursor: Cursor) -> None:
    return None


_KINDS: Final[dict[Kind, Callable[[bytes], Value]]] = {
    Kind.UUID: strings.uuid_value,
    Kind.INET4: strings.inet4,
    Kind.INET6: strings.inet6,
    Kind.VECTOR: strings.vector,
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
