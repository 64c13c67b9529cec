"""Values of the binary protocol: rows of its result sets, and the parameters of COM_STMT_EXECUTE.

Row ::

    00 | NULL bitmap, (columns + 9) / 8 bytes, the first column at bit 2 | each value that is not NULL

Parameters of COM_STMT_EXECUTE; and of COM_STMT_BULK_EXECUTE, where the rest is repeated for each row ::

    NULL bitmap, (parameters + 7) / 8 bytes | types follow u8 | [type u8, unsigned 80 or 00] of each | each value
    [type u8, unsigned 80 or 00] of each, if the flags say so | (indicator u8 | value, with indicator 0) of each

=====================================  ===================================================================
type                                   value
=====================================  ===================================================================
1 TINY; 2 SHORT, 13 YEAR; 3 LONG,      1; 2; 4; 8 bytes, little endian
9 INT24; 8 LONGLONG
4 FLOAT; 5 DOUBLE                      4; 8 bytes
7 TIMESTAMP, 10 DATE, 12 DATETIME      length u8 (0, 4, 7, 11) | year u16, month, day | hour, minute, second
                                       | microseconds u32
11 TIME                                length u8 (0, 8, 12) | minus u8, days u32, hour, minute, second
                                       | microseconds u32
all others                             lenenc string; a DECIMAL as text, a BIT big endian
=====================================  ===================================================================
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.column_type import BLOB_TYPES, INTEGER_SIZES, ColumnType
from binlog_protocol.values import lenenc_bytes
from binlog_protocol.wire.results import Column, Row, Value

_OWN_SIZES: Final = {ColumnType.INT24: 4, ColumnType.YEAR: 2}  # other than in rows of the binlog
INTEGER_BYTES: Final = {int(kind): size for kind, size in (INTEGER_SIZES | _OWN_SIZES).items()}
_FLOATS: Final[Mapping[int, struct.Struct]] = {
    ColumnType.FLOAT: struct.Struct("<f"),
    ColumnType.DOUBLE: struct.Struct("<d"),
}
_DATES: Final = frozenset({ColumnType.TIMESTAMP, ColumnType.DATE, ColumnType.DATETIME})
DECIMALS: Final = frozenset({0, ColumnType.NEWDECIMAL})  # 0 is DECIMAL, from before MySQL 5.0
"""Types whose values are decimal numbers as text."""
TIMES: Final = frozenset({*_DATES, ColumnType.TIME})
"""Types whose values are dates and times."""
BLOBS: Final = (BLOB_TYPES | {ColumnType.BIT}) - {ColumnType.BLOB_COMPRESSED}
"""Types whose values are bytes, not text."""
UNSIGNED: Final = 0x80
"""Behind the type of a parameter: an integer is unsigned."""
# The other types that a parameter may have: strings.
_STRINGS: Final = BLOBS | {
    ColumnType.VARCHAR,
    ColumnType.ENUM,
    ColumnType.SET,
    ColumnType.VAR_STRING,
    ColumnType.STRING,
}

_DATE_FIXED: Final = struct.Struct("<HBB")
_CLOCK_FIXED: Final = struct.Struct("<BBB")
_MICROSECONDS: Final = struct.Struct("<I")
_TIME_FIXED: Final = struct.Struct("<BIBBB")
assert (_DATE_FIXED.size, _CLOCK_FIXED.size, _TIME_FIXED.size) == (4, 3, 8)
_DATE_TEXT: Final = compiled_later(
    r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII
)
_TIME_TEXT: Final = compiled_later(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_NUMBER: Final = compiled_later(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?)", re.ASCII)
_DECIMAL_CHARS_MAX: Final = 128  # a DECIMAL of MariaDB has 65 digits at most
_DECIMAL_EXPONENT_MAX: Final = 80
_LARGE_PART: Final = 1 << 16  # of a value in parts: what is below is copied at once
_HOURS_MAX: Final = 838  # of a TIME, with 59 minutes and 59 seconds
_YEAR_MAX: Final = 9999

Encode = Callable[[Value], bytes]


class BinaryRows:
    """Rows of one result set as payloads."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._encoders = [_encoder(column.type) for column in columns]
        self._null_bytes = (len(columns) + 9) // 8

    def payload(self, row: Row) -> bytes:
        """One row. Raises ValueError for a value that its column cannot have."""
        nulls = 0
        values = []
        for number, (encode, value) in enumerate(zip(self._encoders, row, strict=True), 2):
            if value is None:
                nulls |= 1 << number
            else:
                values.append(encode(value))
        return b"".join((b"\0", nulls.to_bytes(self._null_bytes, "little"), *values))


def _encoder(kind: int) -> Encode:
    if kind in INTEGER_BYTES:
        size = INTEGER_BYTES[kind]
        return lambda value: _integer(value, size)
    if kind in _FLOATS:
        pack = _FLOATS[kind].pack
        return lambda value: pack(value if isinstance(value, float) else float(_text(value)))
    if kind in _DATES:
        return _date_bytes
    return _time_bytes if kind == ColumnType.TIME else _string


def _integer(value: Value, size: int) -> bytes:
    number = int(_text(value)) if isinstance(value, (str, bytes)) else int(value or 0)
    bits = 8 * size
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise ValueError(f"{number} in a column of {size} bytes")
    return (number & ((1 << bits) - 1)).to_bytes(size, "little")


def _text(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _string(value: Value) -> bytes:
    if isinstance(value, bytes):
        return lenenc_bytes(value)
    return lenenc_bytes(_text(value).encode("utf-8", "surrogateescape"))


def _date_bytes(value: Value) -> bytes:
    found = _DATE_TEXT.fullmatch(_text(value))
    if found is None:
        raise ValueError(f"{value!r} in a column of dates")
    year, month, day, *clock = (int(part or 0) for part in found.groups()[:6])
    parts = _DATE_FIXED.pack(year, month, day)
    micros = _micros(found[7])
    if micros or any(clock):
        parts += _CLOCK_FIXED.pack(*clock)
    if micros:
        parts += _MICROSECONDS.pack(micros)
    return lenenc_bytes(parts if any(parts) else b"")


def _time_bytes(value: Value) -> bytes:
    found = _TIME_TEXT.fullmatch(_text(value))
    if found is None:
        raise ValueError(f"{value!r} in a column of times")
    sign, hours, minutes, seconds = found[1], int(found[2]), int(found[3]), int(found[4])
    micros = _micros(found[5])
    if not (hours or minutes or seconds or micros):
        return b"\0"
    parts = _TIME_FIXED.pack(sign == "-", hours // 24, hours % 24, minutes, seconds)
    return lenenc_bytes(parts + _MICROSECONDS.pack(micros) if micros else parts)


def _micros(fraction: str | None) -> int:
    return int(fraction.ljust(6, "0")) if fraction else 0


# --- parameters ---


class Indicator(IntEnum):
    """What stands for a value in a row of COM_STMT_BULK_EXECUTE."""

    VALUE = 0
    NULL = 1
    DEFAULT = 2
    IGNORE = 3


class Parameter(NamedTuple):
    """One parameter. Times are texts as MariaDB prints them; a DECIMAL is its digits.

    `value` of a string may be a view of the packet. It is the `Indicator` where that is DEFAULT or IGNORE.
    """

    type: int
    value: int | float | str | bytes | bytearray | memoryview | Indicator | None
    unsigned: bool = False
    charset: str = ""
    """The character set of a string, if it is not the client's."""


class LongData:
    """A value that comes in parts. Large ones are kept as they came: they are copied where the value is wanted."""

    def __init__(self) -> None:
        self._parts: list[bytearray | memoryview] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, part: bytes | memoryview) -> None:
        """The next part. Small ones are put together, so that the memory held is near `len`."""
        if len(part) >= _LARGE_PART:
            self._parts.append(memoryview(part))
        else:
            last = self._parts[-1] if self._parts else None
            if not isinstance(last, bytearray) or len(last) >= _LARGE_PART:
                last = bytearray()
                self._parts.append(last)
            last += part
        self._size += len(part)

    def joined(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


class TypesCutOff(ProtocolError):
    """A packet that says that it has the types of the parameters ends before they do."""


class Parameters:
    """The parameters of one packet, read one after the other: there may be 65,535, and of a bulk millions.

    Every method raises `ProtocolError` where the bytes run short or make no sense.
    """

    def __init__(self, body: bytes | bytearray | memoryview, count: int) -> None:
        """`body`: what stands behind the command's fixed part. `count`: the statement's parameters."""
        self._data = memoryview(body)
        self._count = count
        self._at = 0
        self._nulls: memoryview | None = None
        self.types = b""
        """Type and flag of each parameter: those of the packet, once they are read."""

    def read_head(self, types: bytes, long_data: Mapping[int, LongData]) -> None:
        """The head of COM_STMT_EXECUTE.

        Args:
            types: of the last EXECUTE, if this one has none; empty if there was none.
            long_data: values that came before, by number.
        """
        self._long_data = long_data
        if self._count:
            self._nulls = self._take((self._count + 7) // 8)
            self._read_types(types, follow=self._take(1)[0] == 1)

    def read_bulk_head(self, types: bytes, *, follow: bool) -> None:
        """The head of COM_STMT_BULK_EXECUTE. `follow`: its flags say that there are types."""
        self._long_data = {}
        self._read_types(types, follow=follow)

    def _read_types(self, types: bytes, *, follow: bool) -> None:
        if follow and len(self._data) - self._at < 2 * self._count:
            raise TypesCutOff("the types of the parameters are cut off")
        self.types = bytes(self._take(2 * self._count)) if follow else types
        if len(self.types) != 2 * self._count:
            raise ProtocolError("the types of the parameters are missing")

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left of the packet."""
        return self._at >= len(self._data)

    def row(self) -> Iterator[Parameter]:
        """The parameters of one execution, as many as the statement has. Of a bulk to be called for each row."""
        for number in range(self._count):
            kind, flags = self.types[2 * number], self.types[2 * number + 1]
            yield Parameter(kind, self._value(number, kind, flags), flags == UNSIGNED)

    def _value(
        self, number: int, kind: int, flags: int
    ) -> int | float | str | bytes | memoryview | Indicator | None:
        if number in self._long_data:
            if kind not in _STRINGS:
                raise ProtocolError(f"long data for a parameter of type {kind}")
            return self._long_data[number].joined()
        if self._nulls is None:
            indicator = self._take(1)[0]
            if indicator > Indicator.IGNORE:
                raise ProtocolError(f"indicator {indicator}")
            if indicator:
                return None if indicator == Indicator.NULL else Indicator(indicator)
        elif self._nulls[number >> 3] >> (number & 7) & 1:
            return None
        if kind in INTEGER_BYTES:
            value = self._take(INTEGER_BYTES[kind])
            return int.from_bytes(value, "little", signed=flags != UNSIGNED)
        if kind in _FLOATS:
            found: float = _FLOATS[kind].unpack(self._take(_FLOATS[kind].size))[0]
            return found
        if kind in _DATES:
            return self._date(kind)
        if kind == ColumnType.TIME:
            return self._time()
        if kind in DECIMALS:
            return _decimal(bytes(self._string()[: _DECIMAL_CHARS_MAX + 1]))
        if kind in _STRINGS:
            return self._string()
        raise ProtocolError(f"a parameter of type {kind}")

    def _date(self, kind: int) -> str:
        parts = self._take(self._take(1)[0])
        if len(parts) not in (0, 4, 7, 11):
            raise ProtocolError(f"a date of {len(parts)} bytes")
        year, month, day = _DATE_FIXED.unpack(parts[:4] or bytes(4))
        clock: tuple[int, int, int] = _CLOCK_FIXED.unpack(parts[4:7] or bytes(3))
        micros = _MICROSECONDS.unpack(parts[7:] or bytes(4))[0]
        # What is no date becomes the zero date, as in MariaDB.
        if year > _YEAR_MAX or month > 12 or day > 31 or _no_clock(*clock, micros):
            year, month, day, clock, micros = 0, 0, 0, (0, 0, 0), 0
        date = f"{year:04}-{month:02}-{day:02}"
        if kind == ColumnType.DATE:
            return date
        return f"{date} {_clock_text(*clock, micros)}"

    def _time(self) -> str:
        parts = self._take(self._take(1)[0])
        if len(parts) not in (0, 8, 12):
            raise ProtocolError(f"a time of {len(parts)} bytes")
        minus, days, hours, minutes, seconds = _TIME_FIXED.unpack(parts[:8] or bytes(8))
        micros = _MICROSECONDS.unpack(parts[8:] or bytes(4))[0]
        hours += 24 * days
        if _no_clock(0, minutes, seconds, micros):
            minus = hours = minutes = seconds = micros = 0
        elif hours > _HOURS_MAX:
            hours, minutes, seconds, micros = _HOURS_MAX, 59, 59, 0
        return "-" * bool(minus) + _clock_text(hours, minutes, seconds, micros)

    def _string(self) -> memoryview:
        size = self._take(1)[0]
        if size == 0xFC:
            size = int.from_bytes(self._take(2), "little")
        elif size == 0xFD:
            size = int.from_bytes(self._take(3), "little")
        elif size == 0xFE:
            size = int.from_bytes(self._take(8), "little")
        elif size > 0xFA:
            raise ProtocolError("a parameter without a length")
        return self._take(size)

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError(f"parameters are cut short: {size} bytes wanted at {self._at}")
        found = self._data[self._at : end]
        self._at = end
        return found


def _decimal(text: bytes) -> str:
    """The number that the text of a DECIMAL begins with, written plainly; 0 if it begins with none."""
    found = _NUMBER.match(text.decode("latin-1"))
    if found is None:
        return "0"
    number = Decimal(found[1])
    if len(text) > _DECIMAL_CHARS_MAX or abs(number.adjusted()) > _DECIMAL_EXPONENT_MAX:
        raise ProtocolError("a DECIMAL that is too long")
    return f"{number:f}"


def _no_clock(hours: int, minutes: int, seconds: int, micros: int) -> bool:
    return hours > 23 or minutes > 59 or seconds > 59 or micros > 999_999


def _clock_text(hours: int, minutes: int, seconds: int, micros: int) -> str:
    fraction = f".{micros:06}" if micros else ""
    return f"{hours:02}:{minutes:02}:{seconds:02}{fraction}"
