"""Values of rows as SQL literals, and as what JSON can hold.

======================  ==============================  ==============================================
value                   SQL                             JSON
======================  ==============================  ==============================================
int, float, str, NULL   as usual                        number, string, null
int of a BIT(n)         b'0101', n digits               number
Decimal                 1.50                            "1.50"
bytes                   X'00ff'                         {"base64": ..}
bytes, no collation     as text if it reads as UTF-8    as text if it reads as UTF-8, else base64
date, zero date         '2024-01-02'                    the same text
datetime, timedelta     with the digits of the column   the same text; a TIMESTAMP is in UTC
`EnumIndex`, `SetBits`  number                          number
`Geometry`              ST_GeomFromWKB(X'..', srid)     {"srid": .., "wkb": hex}
`UndecodedText`         X'..'                           {"base64": .., "collation": ..}
======================  ==============================  ==============================================
"""

from __future__ import annotations

import base64
import datetime
import struct
from decimal import Decimal
from typing import Final

from binlog_protocol.events.charsets import UndecodedText, decode_text
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.rows import EnumIndex, Geometry, SetBits, Value, ZeroDate
from binlog_protocol.events.table_map import TableColumn

JsonValue = None | int | float | str | list[float] | dict[str, str | int]

_ESCAPES: Final = str.maketrans(
    {"\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "'": "\\'", "\\": "\\\\"}
)
_FLOAT4: Final = struct.Struct("<f")
UTF8: Final = 45
"""The collation of statements that do not say theirs."""
_HOUR: Final = datetime.timedelta(hours=1)


def quoted(text: str) -> str:
    return f"'{text.translate(_ESCAPES)}'"


def hex_literal(raw: bytes) -> str:
    return f"X'{raw.hex()}'"


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_literal(value: Value, column: TableColumn) -> str:
    """The literal of a value, on one line; the plainest reading for unknown signedness or labels."""
    if value is None:
        return "NULL"
    if isinstance(value, int) and column.type == ColumnType.BIT:
        return f"b'{value:0{column.layout.digits}b}'"
    if isinstance(value, bytes):
        text = readable(value) if column.collation is None else None
        return hex_literal(value) if text is None else quoted(text)
    if isinstance(value, UndecodedText):
        return hex_literal(value.raw)
    if isinstance(value, Geometry) and not value.wkb:
        return "''"
    if isinstance(value, Geometry):
        return f"ST_GeomFromWKB({hex_literal(value.wkb)}, {value.srid})"
    plain = _plain(value, column)
    return (
        quoted(plain) if isinstance(plain, str) and not isinstance(value, Decimal) else str(plain)
    )


def json_value(value: Value, column: TableColumn) -> JsonValue:
    if value is None:
        return None
    if isinstance(value, bytes):
        text = readable(value) if column.collation is None else None
        return {"base64": _base64(value)} if text is None else text
    if isinstance(value, UndecodedText):
        return {"base64": _base64(value.raw), "collation": value.collation}
    if isinstance(value, Geometry):
        return {"srid": value.srid, "wkb": value.wkb.hex()}
    return _plain(value, column)


def _plain(value: Value, column: TableColumn) -> int | float | str | list[float]:
    """A number or a text, as both forms have it."""
    if isinstance(value, EnumIndex):
        return value.index
    if isinstance(value, SetBits):
        return value.bits
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and value - value != 0:
        return repr(value)  # infinite or no number: neither form has it, and no server stores it
    if isinstance(value, float):
        return _shortest(value) if column.type == ColumnType.FLOAT else value
    if isinstance(value, (datetime.datetime, ZeroDate, datetime.date)):
        return _date_text(value, column)
    if isinstance(value, datetime.timedelta):
        return _time_text(value, _digits(column))
    if isinstance(value, tuple):
        return [_shortest(number) for number in value]
    return value if isinstance(value, (int, str)) else str(value)


def _shortest(value: float) -> float:
    """The shortest decimal that a FLOAT reads back as the same."""
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if _same_float4(short, value):
            return short
    return float(f"{value:.9g}")


def _same_float4(one: float, other: float) -> bool:
    try:
        return _FLOAT4.pack(one) == _FLOAT4.pack(other)
    except OverflowError:  # rounded up beyond the largest
        return False


def _digits(column: TableColumn) -> int:
    if column.type in (ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2):
        return column.layout.digits
    return column.fraction_digits or 0


def _date_text(value: datetime.date | ZeroDate, column: TableColumn) -> str:
    day = f"{value.year:04}-{value.month:02}-{value.day:02}"
    if column.type in (ColumnType.DATE, ColumnType.NEWDATE):
        return day
    assert isinstance(value, (datetime.datetime, ZeroDate))
    clock = f"{value.hour:02}:{value.minute:02}:{value.second:02}"
    return f"{day} {clock}{_fraction(value.microsecond, _digits(column))}"


def _time_text(value: datetime.timedelta, digits: int) -> str:
    sign = "-" if value < datetime.timedelta() else ""
    hours, rest = divmod(abs(value), _HOUR)
    minutes, seconds = divmod(rest.seconds, 60)
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{_fraction(rest.microseconds, digits)}"


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06}"[: digits + 1] if digits else ""


def shown_text(raw: bytes, collation: int) -> str:
    """A text for people: bytes that do not decode are replaced."""
    text = decode_text(raw, collation)
    return raw.decode("utf-8", "replace") if isinstance(text, UndecodedText) else text


def readable(raw: bytes) -> str | None:
    """The text of bytes in UTF-8; None if they are none, or have control characters other than white space."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\t\n\r" for c in text) else None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
