"""Date arithmetic and formats: INTERVAL, DATE_FORMAT, EXTRACT, TIMESTAMPDIFF."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar

from binlog_protocol.errors import TimeOverflow

from binlog_server.queries import types, values
from binlog_server.queries.plain import Plain
from binlog_server.queries.terms import Asker, Term
from binlog_server.queries.types import Type, ValueForm

MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
SECONDS: Final = {
    "MICROSECOND": Decimal("0.000001"),
    "SECOND": Decimal(1),
    "MINUTE": Decimal(60),
    "HOUR": Decimal(3600),
    "DAY": Decimal(86400),
    "WEEK": Decimal(604800),
}
UNITS: Final = frozenset(MONTHS) | frozenset(SECONDS)
_DAY_UNITS: Final = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_OF_DATES_ALONE: Final = frozenset({"WEEK", *MONTHS})  # a TIME is not moved by these
DECIMALS_MAX: Final = 6  # of a time
_SECONDS_MAX: Final = Decimal(86400 * 366 * 10_000)


def week(at: datetime, mode: int) -> tuple[int, int]:
    """Year and week of WEEK() and its kin.

    Args:
        mode: 1 weeks begin on Monday; 2 there is no week 0, but the last one of the year before; 4 the first week is
            the first whole one, and not the first with four days (without 1 it is the other way round).
    """
    is_monday_first, has_no_zero = bool(mode & 1), bool(mode & 2)
    is_whole = bool(mode & 4) is is_monday_first
    year, day = at.year, at.toordinal()
    first = date(year, 1, 1)
    begin = first.toordinal()
    weekday = first.weekday() if is_monday_first else first.isoweekday() % 7

    def begins_later(weekday: int) -> bool:
        return weekday != 0 if is_whole else weekday >= 4

    if at.month == 1 and at.day <= 7 - weekday and begins_later(weekday):
        if not has_no_zero:
            return year, 0
        year -= 1
        days = 366 if calendar.isleap(year) else 365
        begin -= days
        weekday = (weekday + 53 * 7 - days) % 7
    days = day - (begin + 7 - weekday if begins_later(weekday) else begin - weekday)
    if has_no_zero and days >= 52 * 7:
        weekday = (weekday + (366 if calendar.isleap(year) else 365)) % 7
        if not begins_later(weekday):
            return year + 1, 1
    return year, days // 7 + 1


def _ordinal(day: int) -> str:
    suffix = "th" if 10 <= day % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


_MARKS: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda at: f"{at.year:04d}",
    "y": lambda at: f"{at.year % 100:02d}",
    "m": lambda at: f"{at.month:02d}",
    "c": lambda at: str(at.month),
    "M": lambda at: calendar.month_name[at.month],
    "b": lambda at: calendar.month_abbr[at.month],
    "d": lambda at: f"{at.day:02d}",
    "e": lambda at: str(at.day),
    "j": lambda at: f"{at.timetuple().tm_yday:03d}",
    "H": lambda at: f"{at.hour:02d}",
    "k": lambda at: str(at.hour),
    "h": lambda at: f"{(at.hour + 11) % 12 + 1:02d}",
    "I": lambda at: f"{(at.hour + 11) % 12 + 1:02d}",
    "l": lambda at: str((at.hour + 11) % 12 + 1),
    "i": lambda at: f"{at.minute:02d}",
    "s": lambda at: f"{at.second:02d}",
    "S": lambda at: f"{at.second:02d}",
    "f": lambda at: f"{at.microsecond:06d}",
    "p": lambda at: "AM" if at.hour < 12 else "PM",
    "T": lambda at: f"{at.hour:02d}:{at.minute:02d}:{at.second:02d}",
    "r": lambda at: (
        f"{(at.hour + 11) % 12 + 1:02d}:{at.minute:02d}:{at.second:02d} "
        + ("AM" if at.hour < 12 else "PM")
    ),
    "W": lambda at: calendar.day_name[at.weekday()],
    "a": lambda at: calendar.day_abbr[at.weekday()],
    "w": lambda at: str(at.isoweekday() % 7),
    "D": lambda at: _ordinal(at.day),
    "U": lambda at: f"{week(at, 0)[1]:02d}",
    "u": lambda at: f"{week(at, 1)[1]:02d}",
    "V": lambda at: f"{week(at, 2)[1]:02d}",
    "v": lambda at: f"{week(at, 3)[1]:02d}",
    "X": lambda at: f"{week(at, 2)[0]:04d}",
    "x": lambda at: f"{week(at, 3)[0]:04d}",
    "%": lambda at: "%",
}


def shifted_by(at: Term, amount: Type, unit: str, sign: int, session: Asker) -> Plain:
    """`at + INTERVAL amount unit`; minus with a `sign` of -1. NULL for what is no time, and out of range, which is
    a warning."""
    source = at.kind
    kind = _shifted_kind(at, amount, unit)

    def time_moved(value: str, count: Decimal) -> str | None:
        span = values.time_in(value)
        if span is None:
            return None
        moved = None if unit in _OF_DATES_ALONE else _moved(span, count * sign, unit)
        if moved is None or abs(moved) >= values.TIME_END:
            raise OverflowError
        return values.time_text(moved, kind.decimals)

    def run(value: Any, count: Decimal) -> str | None:
        if source.form is ValueForm.TIME:
            try:
                return time_moved(value, count)
            except (ValueError, OverflowError):
                session.warn(TimeOverflow("time"))
                return None
        begin = values.as_moment(value, source)
        if begin is None:
            return None
        try:
            if unit in MONTHS:
                whole = int(values.rounded(count * sign, 0))
                moved = months_later(begin, max(-200_000, min(whole, 200_000)) * MONTHS[unit])
            else:
                moved = _moved(begin, count * sign, unit)
        except (ValueError, OverflowError):
            session.warn(TimeOverflow("datetime"))
            return None
        is_short = (
            kind.form is ValueForm.TEXT
            and len(values.as_text(value, source)) <= 10
            and unit in _DAY_UNITS
        )
        if kind.form is ValueForm.DATE or is_short:
            return values.date_text(moved)
        return values.datetime_text(moved, kind.decimals)

    return Plain("xe", lambda kinds: kind, run, gives_null=True)


def _shifted_kind(at: Term, amount: Type, unit: str) -> Type:
    source = at.kind
    decimals = _decimals_of_amount(amount, unit)
    if source.form is ValueForm.DATE and unit in _DAY_UNITS:
        return types.moment(ValueForm.DATE)
    if source.form is ValueForm.TIME and unit not in _OF_DATES_ALONE:
        return types.moment(ValueForm.TIME, max(source.decimals, decimals))
    if source.is_time:
        return types.moment(ValueForm.DATETIME, max(source.decimals, decimals))
    decimals = max(decimals_as_moment(at), decimals)
    return types.text(19 + bool(decimals) + decimals, decimals=decimals)


def _decimals_of_amount(amount: Type, unit: str) -> int:
    if unit != "SECOND" or amount.form is ValueForm.INT:
        return DECIMALS_MAX if unit == "MICROSECOND" else 0
    has_its_own = amount.form is ValueForm.DECIMAL or amount.is_time
    return min(amount.decimals, DECIMALS_MAX) if has_its_own else DECIMALS_MAX


def is_free_text(term: Term) -> bool:
    """Whether it is a text or bytes, and none of an ENUM or SET, nor x'31'."""
    is_text = term.kind.form in (ValueForm.TEXT, ValueForm.BYTES)
    return is_text and term.kind.code not in (types.LABEL, types.HEX)


def decimals_as_moment(term: Term) -> int:
    """The decimals of a value that is taken for a date or time: of a text those that the statement says, or all."""
    if term.kind.form not in (ValueForm.TEXT, ValueForm.BYTES):
        is_exact = term.kind.form is not ValueForm.DOUBLE
        return min(term.kind.scale, DECIMALS_MAX) if is_exact else DECIMALS_MAX
    if not is_free_text(term):
        return 0
    if not isinstance(term.constant, str) or not values.is_time(term.constant):
        return DECIMALS_MAX
    fraction = term.constant.strip().partition(".")[2]
    return min(len(fraction), DECIMALS_MAX)


_At = TypeVar("_At", datetime, timedelta)


def _moved(at: _At, amount: Decimal, unit: str) -> _At:
    if unit != "SECOND":
        amount = values.rounded(amount, 0)
    seconds = amount * SECONDS[unit]
    if abs(seconds) > _SECONDS_MAX:
        raise ValueError(unit)
    return at + timedelta(seconds=int(seconds), microseconds=int(seconds % 1 * 1_000_000))


def months_later(at: datetime, months: int) -> datetime:
    """The 31st becomes the last day of a shorter month. Raises ValueError outside of the years 1 to 9999."""
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    return at.replace(year, month + 1, min(at.day, calendar.monthrange(year, month + 1)[1]))


def formatted(at: datetime, pattern: str) -> str:
    """DATE_FORMAT."""
    return re.sub(r"%(.)", lambda found: _mark(found[1], at), pattern[:PATTERN_CHARS_MAX])


PATTERN_CHARS_MAX: Final = 4096


def _mark(letter: str, at: datetime) -> str:
    shown = _MARKS.get(letter)
    return letter if shown is None else shown(at)


def difference(unit: str, first: datetime, last: datetime) -> int:
    """TIMESTAMPDIFF: whole units from the one to the other."""
    if unit in MONTHS:
        if last < first:
            return -difference(unit, last, first)
        return _whole_months(first, last) // MONTHS[unit]
    micro = (last - first) // timedelta(microseconds=1)
    size = int(SECONDS[unit] * 1_000_000)
    return abs(micro) // size * (1 if micro >= 0 else -1)


def _whole_months(first: datetime, last: datetime) -> int:
    months = (last.year - first.year) * 12 + last.month - first.month
    rest_first = (first.day, first.time())
    return months - ((last.day, last.time()) < rest_first)


PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "YEAR": lambda at: at.year,
    "QUARTER": lambda at: (at.month + 2) // 3,
    "MONTH": lambda at: at.month,
    "DAY": lambda at: at.day,
    "HOUR": lambda at: at.hour,
    "MINUTE": lambda at: at.minute,
    "SECOND": lambda at: at.second,
    "MICROSECOND": lambda at: at.microsecond,
}
"""The parts of a time, by the units of EXTRACT."""
