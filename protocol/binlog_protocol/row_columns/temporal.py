"""Columns of dates and times; `binlog_protocol/events/rows/temporal.py` has their bytes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.loops import ColumnReading, Reader
from binlog_protocol.row_columns.row_bytes import Bools, Field, Integers

_MICROSECONDS: Final = 1_000_000
_DAY_S: Final = 86_400
_YEAR_MAX: Final = 9999
_HOURS_MAX: Final = 838
_DATETIME_BIAS: Final = 1 << 39
# Days since 1970 of the first of each month, from January of the year 1 on; the last one closes December of 9999.
_FIRST_DAYS: Final[Integers] = (
    np.arange("0001-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
)


class Times(NamedTuple):
    """Numbers, and which of them stand for no date: the zero date, a zero month or day, the 30th of February.

    `none` is None if it is known that none of them does.
    """

    values: NDArray[np.int64] | NDArray[np.int32]
    none: Bools | None


DATES: Final = ColumnReading(Reader.DATES, np.int32)


def reading(reader: Reader, digits: int) -> ColumnReading:
    """Of DATETIMES, TIMESTAMPS, TIMES."""
    return ColumnReading(reader, np.int64, digits)


def dates(field: Field) -> Times:
    """DATE, in days since 1970."""
    if loops.HAS_C:
        return _read(field, DATES)
    packed = field.data.unsigned(field.at, 3)
    return _days(packed >> 9, packed >> 5 & 15, packed & 31)


def datetimes(field: Field, digits: int) -> Times:
    """DATETIME, in microseconds since 1970."""
    if loops.HAS_C:
        return _read(field, reading(Reader.DATETIMES, digits))
    size = (digits + 1) // 2
    words = field.data.big_endian(field.at, 5 + size)
    packed = (words >> np.uint64(8 * size)).view(np.int64) - _DATETIME_BIAS
    microsecond = _microseconds(field, words.view(np.int64), size)
    months = packed >> 22
    clock = packed & 0x1FFFF
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    year, month, day = months // 13, months % 13, packed >> 17 & 31
    field.refuse((packed < 0) | (year > _YEAR_MAX) | (hour > 23) | (minute > 59) | (second > 59))
    days, none = _days(year, month, day)
    seconds = days * _DAY_S + hour * 3600 + minute * 60 + second
    return Times(seconds * _MICROSECONDS + microsecond, none)


def timestamps(field: Field, digits: int) -> Times:
    """TIMESTAMP, in microseconds since 1970 in UTC; zero is no time."""
    if loops.HAS_C:
        return _read(field, reading(Reader.TIMESTAMPS, digits))
    size = (digits + 1) // 2
    number = field.data.big_endian(field.at, 4 + size).view(np.int64)
    values = (number >> 8 * size) * _MICROSECONDS + _microseconds(field, number, size)
    return Times(values, values == 0)


def times(field: Field, digits: int) -> Integers:
    """TIME, in microseconds."""
    if loops.HAS_C:
        return field.read(reading(Reader.TIMES, digits))[0]
    size = (digits + 1) // 2
    number = field.data.big_endian(field.at, 3 + size).view(np.int64) - (0x80 << 8 * (2 + size))
    magnitude = np.abs(number)
    clock = magnitude >> 8 * size
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    field.refuse((hour > _HOURS_MAX) | (minute > 59) | (second > 59))
    seconds = hour * 3600 + minute * 60 + second
    values = seconds * _MICROSECONDS + _microseconds(field, magnitude, size)
    signed: Integers = np.where(number < 0, -values, values)
    return signed


def _read(field: Field, how: ColumnReading) -> Times:
    """In C, where the least number there is stands for no date."""
    values, some_are_none = field.read(how)
    return Times(values, values == np.iinfo(values.dtype).min if some_are_none else None)


def _microseconds(field: Field, number: Integers, size: int) -> Integers:
    """The fraction in the last `size` bytes."""
    if not size:
        return np.zeros_like(number)
    fraction: Integers = (number & ((1 << 8 * size) - 1)) * 100 ** (3 - size)
    field.refuse(fraction >= _MICROSECONDS)
    return fraction


def _days(year: Integers, month: Integers, day: Integers) -> Times:
    sound: NDArray[Any] = (
        (year >= 1) & (year <= _YEAR_MAX) & (month >= 1) & (month <= 12) & (day >= 1)
    )
    months = np.where(sound, (year - 1) * 12 + month - 1, 0)
    days = _FIRST_DAYS[months] + day - 1
    sound &= days < _FIRST_DAYS[months + 1]
    return Times(days, ~sound)
