"""Values of rows as Debezium's connector for MariaDB writes them in JSON, by its documentation.

==========================  ==========================================================================
column                      JSON
==========================  ==========================================================================
integers, YEAR              number; BIGINT UNSIGNED as it is, which Debezium's `long` would make negative
FLOAT, DOUBLE               number
DECIMAL                     by `DecimalHandling`: text, number, or base64 of the unscaled integer
BIT(1), BIT(n)              true or false; base64, lowest byte first
text, JSON, ENUM, SET       text
BINARY, BLOB                base64
DATE                        days since 1970-01-01
DATETIME(0..3), (4..6)      milliseconds, microseconds since 1970-01-01 00:00:00, as if it were UTC
TIMESTAMP                   text with Z: 2026-11-29T02:00:00.50Z, with the digits of the column
TIME                        microseconds
GEOMETRY                    {"wkb": base64, "srid": number or null}
UUID, INET4, INET6, VECTOR  base64: the log does not say that they are more than BINARY and BLOB
not logged                  `UNAVAILABLE`
==========================  ==========================================================================

What none of these can be, a zero date or bytes that are no text of their character set, is up to `Invalid`.
"""

from __future__ import annotations

import base64
import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.literals import json_value
from binlog_protocol.events.charsets import UndecodedText
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.rows import EnumIndex, Geometry, SetBits, Value, ZeroDate
from binlog_protocol.events.table_map import TableColumn

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Stands for a value that the log does not have (binlog_row_image is not FULL)."""

_DAY_0: Final = datetime.date(1970, 1, 1)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_TIMESTAMPS: Final = (ColumnType.TIMESTAMP, ColumnType.TIMESTAMP2)
_MILLISECOND_DIGITS: Final = 3


class DecimalHandling(StrEnum):
    """Debezium's `decimal.handling.mode`."""

    STRING = "string"
    DOUBLE = "double"
    PRECISE = "precise"


class Invalid(StrEnum):
    """What becomes of a value that has no form: the stream ends, it is null, or it is a text."""

    FAIL = "fail"
    NULL = "null"
    TEXT = "text"


def debezium_value(
    value: Value, column: TableColumn, decimals: DecimalHandling, invalid: Invalid
) -> object:
    """Raises `ProtocolError` for an invalid value, with `Invalid.FAIL`."""
    if isinstance(value, (ZeroDate, UndecodedText)):
        return _invalid(value, column, invalid)
    if isinstance(value, (EnumIndex, SetBits)):
        raise ProtocolError(
            "the log has no labels of its ENUM or SET columns: SET GLOBAL binlog_row_metadata=FULL at the server"
        )
    if isinstance(value, Decimal):
        return _decimal(value, column, decimals)
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, Geometry):
        return {"wkb": _base64(value.wkb), "srid": value.srid or None}
    if isinstance(value, datetime.datetime):
        return _moment(value, column)
    if isinstance(value, datetime.date):
        return (value - _DAY_0).days
    if isinstance(value, datetime.timedelta):
        return value // _MICROSECOND
    if isinstance(value, int) and column.type == ColumnType.BIT:
        return _bits(value, column.layout.digits)
    return json_value(value, column)


def _invalid(value: ZeroDate | UndecodedText, column: TableColumn, invalid: Invalid) -> str | None:
    if invalid is Invalid.NULL:
        return None
    if isinstance(value, UndecodedText):
        text = value.raw.decode("utf-8", "backslashreplace")
    else:
        text = str(json_value(value, column))
    if invalid is Invalid.TEXT:
        return text
    kind = "date" if isinstance(value, ZeroDate) else "text of its character set"
    raise ProtocolError(
        f"{text[:64]!r} is no valid {kind}: --invalid-values null or text goes on with it"
    )


def _decimal(value: Decimal, column: TableColumn, decimals: DecimalHandling) -> str | float:
    if decimals is DecimalHandling.DOUBLE:
        return float(value)
    if decimals is DecimalHandling.STRING:
        return format(value, "f")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent)
    unscaled = -unscaled if sign else unscaled
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _base64(unscaled.to_bytes(size, "big", signed=True))


def _moment(value: datetime.datetime, column: TableColumn) -> int | str:
    plain = value.replace(tzinfo=None)
    if column.type in _TIMESTAMPS:
        return f"{json_value(value, column)}Z".replace(" ", "T")
    microseconds = (plain - _EPOCH) // _MICROSECOND
    digits = column.layout.digits if column.type == ColumnType.DATETIME2 else column.fraction_digits
    return microseconds if (digits or 0) > _MILLISECOND_DIGITS else microseconds // 1000


def _bits(value: int, digits: int) -> bool | str:
    return bool(value) if digits == 1 else _base64(value.to_bytes((digits + 7) // 8, "little"))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
