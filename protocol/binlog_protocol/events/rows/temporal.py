"""Dates and times in row events, in the three formats that MariaDB has had.

======================  ============================================================================
DATE (10, 14)           3 bytes LE: day 5 bits, month 4, year 15
TIME2 (19)              3 bytes BE + fraction; 0x800000 + hour 10 bits, minute 6, second 6
DATETIME2 (18)          5 bytes BE + fraction; 2^39 + (year * 13 + month) 17 bits, day 5, hour 5,
                        minute 6, second 6
TIMESTAMP2 (17)         4 bytes BE + fraction: seconds since 1970 in UTC
fraction                (digits + 1) / 2 bytes BE, in 1/100, 1/10000 or 1/1000000 of a second. In a
                        TIME2 it is part of the same signed number
TIME (11)               3 bytes LE, signed: hhhmmss in decimal
DATETIME (12)           8 bytes LE: yyyymmddhhmmss in decimal
TIMESTAMP (7)           4 bytes LE: seconds since 1970 in UTC
11, 12, 7 with digits   MariaDB 5.3 style. The precision is not in the log (10.11 and 11.8 checked), so
                        it must be given. BE, bytes for 1..6 digits: TIME 4 4 5 5 5 6, DATETIME
                        6 6 7 7 7 8, TIMESTAMP 4 + 1 1 2 2 3 3. TIME and DATETIME are one mixed-radix
                        number in units of the last digit; in a TIME 839 hours are zero
======================  ============================================================================

11, 12 and 7 come from tables made with mysql56_temporal_format=OFF, or by servers older than 10.1.
"""

from __future__ import annotations

import datetime
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.values import Cursor

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECONDS: Final = 1_000_000
_TIME2_SIZE: Final = 3
_DATETIME2_SIZE: Final = 5
_TIMESTAMP_SIZE: Final = 4
_OLD_TIME_SIZES: Final = (3, 4, 4, 5, 5, 5, 6)
_OLD_DATETIME_SIZES: Final = (8, 6, 6, 7, 7, 7, 8)
_OLD_FRACTION_SIZES: Final = (0, 1, 1, 2, 2, 3, 3)
_OLD_TIME_ZERO_S: Final = 839 * 3600
_HOURS_MAX: Final = 838
_UNITS: Final = (
    1_000_000,
    100_000,
    10_000,
    1000,
    100,
    10,
    1,
)  # microseconds, by digits after the second
_PARTS: Final = tuple(reversed(_UNITS))  # of a second, likewise


@dataclass(frozen=True, slots=True)
class ZeroDate:
    """A date or date with time that is none: the zero date, a zero month or day, the 30th of February."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0


ZERO_TIMESTAMP: Final = ZeroDate(0, 0, 0)


def date(cursor: Cursor) -> datetime.date | ZeroDate:
    packed = cursor.integer(3)
    year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return ZeroDate(year, month, day)


def time2(cursor: Cursor, digits: int) -> datetime.timedelta:
    size = (digits + 1) // 2
    zero = 0x80 << 8 * (_TIME2_SIZE + size - 1)
    number = int.from_bytes(cursor.take(_TIME2_SIZE + size), "big") - zero
    clock, fraction = divmod(abs(number), 1 << 8 * size)
    return _timedelta(
        number < 0, clock >> 12, clock >> 6 & 63, clock & 63, _microseconds(fraction, size)
    )


def datetime2(cursor: Cursor, digits: int) -> datetime.datetime | ZeroDate:
    packed = int.from_bytes(cursor.take(_DATETIME2_SIZE), "big") - (1 << 39)
    if packed < 0:
        raise ProtocolError("row event: a DATETIME below zero")
    microsecond = _fraction(cursor, (digits + 1) // 2)
    year, month = divmod(packed >> 22, 13)
    clock = packed & 0x1FFFF
    return _datetime(
        year, month, packed >> 17 & 31, clock >> 12, clock >> 6 & 63, clock & 63, microsecond
    )


def timestamp2(cursor: Cursor, digits: int) -> datetime.datetime | ZeroDate:
    seconds = int.from_bytes(cursor.take(_TIMESTAMP_SIZE), "big")
    return _timestamp(seconds, _fraction(cursor, (digits + 1) // 2))


def old_size(type_: ColumnType, digits: int | None) -> int:
    """Bytes of an old TIME, DATETIME or TIMESTAMP; `digits` as for `old_time`."""
    if type_ == ColumnType.TIMESTAMP:
        return _TIMESTAMP_SIZE + _OLD_FRACTION_SIZES[digits or 0]
    return (_OLD_TIME_SIZES if type_ == ColumnType.TIME else _OLD_DATETIME_SIZES)[digits or 0]


def old_time(cursor: Cursor, digits: int | None) -> datetime.timedelta:
    """`digits` after the second, None or 0 for the oldest format."""
    if not digits:
        number = int.from_bytes(cursor.take(_OLD_TIME_SIZES[0]), "little", signed=True)
        clock = abs(number)
        return _timedelta(number < 0, clock // 10000, clock // 100 % 100, clock % 100, 0)
    unit = 10 ** (6 - digits)
    number = int.from_bytes(cursor.take(_OLD_TIME_SIZES[digits]), "big")
    microseconds = number * unit - _OLD_TIME_ZERO_S * _MICROSECONDS
    return _checked_time(datetime.timedelta(microseconds=microseconds))


def old_datetime(cursor: Cursor, digits: int | None) -> datetime.datetime | ZeroDate:
    """`digits` as for `old_time`."""
    if not digits:
        number = cursor.integer(_OLD_DATETIME_SIZES[0])
        day, clock = divmod(number, 1_000_000)
        return _datetime(
            day // 10000,
            day // 100 % 100,
            day % 100,
            clock // 10000,
            clock // 100 % 100,
            clock % 100,
            0,
        )
    number = int.from_bytes(cursor.take(_OLD_DATETIME_SIZES[digits]), "big") * 10 ** (6 - digits)
    number, microsecond = divmod(number, _MICROSECONDS)
    number, second = divmod(number, 60)
    number, minute = divmod(number, 60)
    number, hour = divmod(number, 24)
    number, day = divmod(number, 32)
    year, month = divmod(number, 13)
    return _datetime(year, month, day, hour, minute, second, microsecond)


def old_timestamp(cursor: Cursor, digits: int | None) -> datetime.datetime | ZeroDate:
    """`digits` as for `old_time`."""
    if not digits:
        return _timestamp(cursor.integer(_TIMESTAMP_SIZE), 0)
    seconds = int.from_bytes(cursor.take(_TIMESTAMP_SIZE), "big")
    fraction = int.from_bytes(cursor.take(_OLD_FRACTION_SIZES[digits]), "big") * 10 ** (6 - digits)
    if fraction >= _MICROSECONDS:
        raise ProtocolError(f"row event: a fraction of {fraction} microseconds")
    return _timestamp(seconds, fraction)


def _fraction(cursor: Cursor, size: int) -> int:
    return _microseconds(int.from_bytes(cursor.take(size), "big"), size)


def _microseconds(fraction: int, size: int) -> int:
    microseconds = int(fraction * 100 ** (3 - size))
    if microseconds >= _MICROSECONDS:
        raise ProtocolError(f"row event: a fraction of {microseconds} microseconds")
    return microseconds


def _timestamp(seconds: int, microsecond: int) -> datetime.datetime | ZeroDate:
    if seconds == 0 == microsecond:
        return ZERO_TIMESTAMP
    return _EPOCH + datetime.timedelta(seconds=seconds, microseconds=microsecond)


def _datetime(
    year: int, month: int, day: int, hour: int, minute: int, second: int, microsecond: int
) -> datetime.datetime | ZeroDate:
    if year > 9999 or month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        raise ProtocolError(
            f"row event: a DATETIME of {year}-{month}-{day} {hour}:{minute}:{second}"
        )
    try:
        return datetime.datetime(year, month, day, hour, minute, second, microsecond)
    except ValueError:
        return ZeroDate(year, month, day, hour, minute, second, microsecond)


def _timedelta(
    negative: bool, hours: int, minutes: int, seconds: int, microseconds: int
) -> datetime.timedelta:
    if minutes > 59 or seconds > 59:
        raise ProtocolError(f"row event: a TIME of {hours}:{minutes}:{seconds}")
    value = datetime.timedelta(
        hours=hours, minutes=minutes, seconds=seconds, microseconds=microseconds
    )
    return _checked_time(-value if negative else value)


def _checked_time(value: datetime.timedelta) -> datetime.timedelta:
    if abs(value) >= datetime.timedelta(hours=_HOURS_MAX + 1):
        raise ProtocolError(f"row event: a TIME of {value}")
    return value


# --- the same values into bytes: each raises `BadValue` for one that its column does not hold, or not exactly ---


def date_bytes(value: datetime.date | ZeroDate) -> bytes:
    if isinstance(value, datetime.datetime):
        raise BadValue(f"{value!r} in a DATE")
    _check_day(value)
    return (value.year << 9 | value.month << 5 | value.day).to_bytes(3, "little")


def time2_bytes(value: datetime.timedelta, digits: int) -> bytes:
    size = (digits + 1) // 2
    negative, hours, minutes, seconds, microsecond = _clock(value)
    number = (hours << 12 | minutes << 6 | seconds) << 8 * size
    number |= _fraction_number(microsecond, digits)
    zero = 0x80 << 8 * (_TIME2_SIZE + size - 1)
    return (zero - number if negative else zero + number).to_bytes(_TIME2_SIZE + size, "big")


def datetime2_bytes(value: datetime.datetime | ZeroDate, digits: int) -> bytes:
    _check_moment(value)
    day = (value.year * 13 + value.month) << 22 | value.day << 17
    clock = value.hour << 12 | value.minute << 6 | value.second
    whole = (day | clock) + (1 << 39)
    return whole.to_bytes(_DATETIME2_SIZE, "big") + _fraction_bytes(value.microsecond, digits)


def timestamp2_bytes(value: datetime.datetime | ZeroDate, digits: int) -> bytes:
    seconds, microsecond = _since_epoch(value)
    return seconds.to_bytes(_TIMESTAMP_SIZE, "big") + _fraction_bytes(microsecond, digits)


def old_time_bytes(value: datetime.timedelta, digits: int | None) -> bytes:
    """`digits` as for `old_time`."""
    negative, hours, minutes, seconds, microsecond = _clock(value)
    if not digits:
        _in_units(microsecond, 0)
        number = hours * 10000 + minutes * 100 + seconds
        return (-number if negative else number).to_bytes(_OLD_TIME_SIZES[0], "little", signed=True)
    clock = (hours * 60 + minutes) * 60 + seconds
    number = clock * _PARTS[digits] + _in_units(microsecond, digits)
    zero = _OLD_TIME_ZERO_S * _PARTS[digits]
    return (zero - number if negative else zero + number).to_bytes(_OLD_TIME_SIZES[digits], "big")


def old_datetime_bytes(value: datetime.datetime | ZeroDate, digits: int | None) -> bytes:
    """`digits` as for `old_time`."""
    _check_moment(value)
    fraction = _in_units(value.microsecond, digits or 0)
    if not digits:
        day = (value.year * 100 + value.month) * 100 + value.day
        clock = (value.hour * 100 + value.minute) * 100 + value.second
        return (day * 1_000_000 + clock).to_bytes(_OLD_DATETIME_SIZES[0], "little")
    number = ((value.year * 13 + value.month) * 32 + value.day) * 24 + value.hour
    number = ((number * 60 + value.minute) * 60 + value.second) * _PARTS[digits] + fraction
    return number.to_bytes(_OLD_DATETIME_SIZES[digits], "big")


def old_timestamp_bytes(value: datetime.datetime | ZeroDate, digits: int | None) -> bytes:
    """`digits` as for `old_time`."""
    seconds, microsecond = _since_epoch(value)
    fraction = _in_units(microsecond, digits or 0)
    if not digits:
        return seconds.to_bytes(_TIMESTAMP_SIZE, "little")
    return seconds.to_bytes(_TIMESTAMP_SIZE, "big") + fraction.to_bytes(
        _OLD_FRACTION_SIZES[digits], "big"
    )


def _in_units(microsecond: int, digits: int) -> int:
    """In units of the last digit after the second."""
    units, lost = divmod(microsecond, _UNITS[digits])
    if lost:
        raise BadValue(f"{microsecond} microseconds in a column with {digits} digits for them")
    return units


def _fraction_number(microsecond: int, digits: int) -> int:
    """In the units of the bytes: an odd number of digits is logged as the next even one."""
    _in_units(microsecond, digits)
    number: int = microsecond // 100 ** (3 - (digits + 1) // 2)
    return number


def _fraction_bytes(microsecond: int, digits: int) -> bytes:
    return _fraction_number(microsecond, digits).to_bytes((digits + 1) // 2, "big")


def _check_day(value: datetime.date | ZeroDate) -> None:
    if not (0 <= value.year <= 9999 and 0 <= value.month <= 12 and 0 <= value.day <= 31):
        raise BadValue(f"{value!r}: no date")


def _check_moment(value: datetime.datetime | ZeroDate) -> None:
    _check_day(value)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise BadValue(f"{value!r} in a DATETIME, which has no time zone")
        return
    is_clock = 0 <= value.hour <= 23 and 0 <= value.minute <= 59 and 0 <= value.second <= 59
    if not (is_clock and 0 <= value.microsecond < _MICROSECONDS):
        raise BadValue(f"{value!r}: no time of day")


def _since_epoch(value: datetime.datetime | ZeroDate) -> tuple[int, int]:
    """Seconds and microseconds; the zero timestamp is no seconds at all."""
    if isinstance(value, ZeroDate):
        if value != ZERO_TIMESTAMP:
            raise BadValue(f"{value!r} in a TIMESTAMP")
        return 0, 0
    if value.tzinfo is None:
        raise BadValue(f"{value!r} in a TIMESTAMP: its time zone is not said")
    seconds = (value - _EPOCH) // datetime.timedelta(seconds=1)
    if not 0 <= seconds < 1 << 8 * _TIMESTAMP_SIZE or value == _EPOCH:
        raise BadValue(f"{value!r} in a TIMESTAMP")
    return seconds, value.microsecond


def _clock(value: datetime.timedelta) -> tuple[bool, int, int, int, int]:
    """Whether it is negative; hours, minutes, seconds, microseconds."""
    if abs(value) >= datetime.timedelta(hours=_HOURS_MAX + 1):
        raise BadValue(f"{value!r} in a TIME")
    whole, rest = divmod(abs(value), datetime.timedelta(seconds=1))
    minutes, seconds = divmod(whole, 60)
    return value < datetime.timedelta(), minutes // 60, minutes % 60, seconds, rest.microseconds
