"""Rows of a SELECT as the columns that row events of the table give: the same values, of the same types.

A value comes as text, in a session prepared by `SESSION`, is written as a row event has it, and then read as one: so
there is one place where it becomes a value of Arrow.
"""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events import numbers
from binlog_protocol.events.column_type import BLOB_TYPES, INTEGER_SIZES, ColumnType
from binlog_protocol.events.rows import strings, temporal, value_size
from binlog_protocol.events.rows.temporal import ZeroDate
from binlog_protocol.events.table_map import TableColumn, TableMap
from binlog_protocol.row_columns.changes import arrow_columns
from binlog_protocol.row_columns.options import ColumnOptions
from binlog_protocol.row_columns.row_bytes import Damaged, Field, RowBytes
from binlog_protocol.tables.sql_type import SqlType

T = ColumnType
_Encoder = Callable[[bytes], bytes]
_BY_NUMBER: Final = (T.BIT, T.ENUM, T.SET)
_COMPRESSED: Final = (T.VARCHAR_COMPRESSED, T.BLOB_COMPRESSED)
_MICROSECOND_DIGITS: Final = 6
SESSION: Final = (
    "SET NAMES utf8mb4",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",  # what is not committed may never be logged
    "SET SESSION time_zone='+00:00', sql_mode='', character_set_results=NULL, sql_select_limit=DEFAULT, "
    "max_statement_time=0",
)
"""The statements that make a session give the values that `ResultColumns` takes."""


class ResultColumns:
    """The columns of one table.

    Args:
        table: as row events are described.
        types: what each column is, as information_schema prints it.
    """

    def __init__(
        self, table: TableMap, types: Sequence[SqlType], options: ColumnOptions | None = None
    ) -> None:
        self._columns: Final = arrow_columns(table, options or ColumnOptions())
        self._sizes: Final = [value_size(column).length for column in table.columns]
        self._encoders: Final = [
            _encoder(column, type_) for column, type_ in zip(table.columns, types, strict=True)
        ]
        self.schema: Final = pa.schema([pa.field(one.name, one.type) for one in self._columns])

    def batch(self, rows: Sequence[Sequence[bytes | None]]) -> pa.RecordBatch:
        """Rows as the server sent them. Raises `ProtocolError` for text of no value, `UnrepresentableValue`."""
        found = []
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        for values, column, size, encoder in zip(
            columns, self._columns, self._sizes, self._encoders, strict=True
        ):
            try:
                field = _field(values, size, encoder)
                found.append(column.values(field))
            except (ValueError, BadValue, ArithmeticError, Damaged) as error:
                raise ProtocolError(
                    f"column {column.name}: a value that cannot be: {error}"
                ) from None
        return pa.RecordBatch.from_arrays(found, schema=self.schema)


def selected(name: str, type_: SqlType) -> str:
    """The expression that a SELECT asks a column by."""
    quoted = f"`{name.replace('`', '``')}`"
    if type_.name in ("bit", "enum", "set"):
        return f"CAST({quoted} AS UNSIGNED)"
    if type_.name in ("float", "double"):  # in as many digits as it has; a FLOAT is shown with six
        return f"CAST({quoted} AS DOUBLE)"
    return quoted


def _field(values: Sequence[bytes | None], size: int, encoder: _Encoder) -> Field:
    encoded = [b"" if value is None else encoder(value) for value in values]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    at = np.cumsum(lengths) - lengths + size
    nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
    return Field(
        RowBytes(b"".join(encoded)),
        at,
        np.maximum(lengths - size, 0) if size else None,
        nulls if nulls.any() else None,
    )


def _encoder(column: TableColumn, type_: SqlType) -> _Encoder:
    """What makes the bytes of a row event of a value's text."""
    layout = column.layout
    kind, size, digits = layout.type, layout.size, layout.digits
    if kind in INTEGER_SIZES:
        unsigned = bool(column.unsigned)
        return lambda text: int(text).to_bytes(size, "little", signed=not unsigned)
    if kind in _BY_NUMBER:
        order = "big" if kind == T.BIT else "little"
        return lambda text: int(text).to_bytes(size, order)  # type: ignore[arg-type]
    if kind in _COMPRESSED:
        length = value_size(column).length
        return lambda text: strings.blob_bytes(b"\0" + text if text else b"", length)
    if kind in BLOB_TYPES or kind == T.GEOMETRY:
        return lambda text: strings.blob_bytes(text, size)
    if type_.name in _ADDRESSES:
        special = _ADDRESSES[type_.name]
        return lambda text: strings.length_prefixed_bytes(special(text), size)
    others: dict[ColumnType, _Encoder] = {
        T.FLOAT: lambda text: numbers.float4_bytes(float(text)),
        T.DOUBLE: lambda text: numbers.float8_bytes(float(text)),
        T.YEAR: lambda text: numbers.year_bytes(int(text)),
        T.NEWDECIMAL: lambda text: numbers.decimal_bytes(
            Decimal(text.decode("ascii")), digits, layout.scale
        ),
        T.DATE: lambda text: temporal.date_bytes(_date(text)),
        T.TIME2: lambda text: temporal.time2_bytes(_time(text), digits),
        T.DATETIME2: lambda text: temporal.datetime2_bytes(_moment(text), digits),
        T.TIMESTAMP2: lambda text: temporal.timestamp2_bytes(_instant(text), digits),
    }
    return others.get(kind, lambda text: strings.length_prefixed_bytes(text, size))


_ADDRESSES: Final[dict[str, _Encoder]] = {
    "uuid": lambda text: uuid.UUID(text.decode("ascii")).bytes,
    "inet4": lambda text: ipaddress.IPv4Address(text.decode("ascii")).packed,
    "inet6": lambda text: ipaddress.IPv6Address(text.decode("ascii")).packed,
}


def _date(text: bytes) -> datetime.date | ZeroDate:
    year, month, day = map(int, text.split(b"-"))
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return ZeroDate(year, month, day)


def _moment(text: bytes) -> datetime.datetime | ZeroDate:
    day, _, clock = text.partition(b" ")
    year, month, number = map(int, day.split(b"-"))
    hour, minute, rest = clock.split(b":")
    second, microsecond = _seconds(rest)
    parts = (year, month, number, int(hour), int(minute), second, microsecond)
    try:
        return datetime.datetime(*parts)
    except ValueError:
        return ZeroDate(*parts)


def _instant(text: bytes) -> datetime.datetime | ZeroDate:
    moment = _moment(text)
    return moment if isinstance(moment, ZeroDate) else moment.replace(tzinfo=datetime.UTC)


def _time(text: bytes) -> datetime.timedelta:
    is_negative = text.startswith(b"-")
    hours, minutes, rest = text.removeprefix(b"-").split(b":")
    second, microsecond = _seconds(rest)
    value = datetime.timedelta(
        hours=int(hours), minutes=int(minutes), seconds=second, microseconds=microsecond
    )
    return -value if is_negative else value


def _seconds(text: bytes) -> tuple[int, int]:
    """Seconds and microseconds."""
    whole, _, fraction = text.partition(b".")
    return int(whole), int(fraction.ljust(_MICROSECOND_DIGITS, b"0") or b"0")
