"""Times in statements: as values, the methods for their rules in `grammar.lark`, and which second is meant."""

from __future__ import annotations

import calendar
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import IncorrectMoment, ServerError, SqlSyntaxError, TimeOverflow

from binlog_server.queries.moments import MONTHS, SECONDS, months_later
from binlog_server.sql.statement import Rules
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.tokens import NEAR_CHARS, integer, unquote

if TYPE_CHECKING:
    from lark import Token

_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_FIRST_SECOND = calendar.timegm((1, 1, 1, 0, 0, 0))  # the earliest time that a shift may give
_LAST_SECOND = calendar.timegm((_LAST_YEAR, 12, 31, 23, 59, 59))

_TIME_TEXT = compiled_later(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]*)?)?)?\s*"
)
_TIME_DIGITS = compiled_later(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2}))?")

Span = tuple[int, int]  # months and seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: `base`, shifted by months and then by seconds.

    `base` is a text or a number as in MariaDB, seconds since 1970 when `unix`, None for now. `today` is the midnight
    before now. `for_all`: now is the machine's time, whatever the session's `timestamp` is.
    """

    base: str | int | None = None
    unix: bool = False
    today: bool = False
    for_all: bool = False
    plus_months: int = 0
    plus_seconds: int = 0


class MomentBuilder(Rules):
    """Parse trees of times to a `Moment`."""

    def moment_text(self, children: list[Token]) -> Moment:
        return Moment(unquote(children[0]))

    def moment_number(self, children: list[Token]) -> Moment:
        return Moment(integer(children[0]))

    def moment_unix(self, children: list[Token]) -> Moment:
        return Moment(integer(children[0]), unix=True)

    def moment_now(self, _: list[Token]) -> Moment:
        return Moment()

    def moment_today(self, _: list[Token]) -> Moment:
        return Moment(today=True)

    def span(self, children: list[Token]) -> Span:
        number, unit = children
        text = unquote(number) if number.type == "STRING" else str(number)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise SqlSyntaxError(text[:NEAR_CHARS])
        return span_of(text, unit)

    def moment_shifted(self, children: list[Any]) -> Moment:
        moment, sign, span = children
        return shifted(moment, -1 if sign == "-" else 1, span)

    def moment_function(self, children: list[Any]) -> Moment:
        function, moment, span = children
        return shifted(moment, -1 if "SUB" in function.upper() else 1, span)


def span_of(number: str, unit: str) -> Span:
    """An INTERVAL as months and seconds. Raises `SqlSyntaxError` for a number of more than 64 bits."""
    count, unit = integer(number), unit.upper()
    if unit in MONTHS:
        return count * MONTHS[unit], 0
    return 0, count * int(SECONDS[unit])


def shifted(moment: Moment, sign: int, span: Span) -> Moment:
    """The moment a span later, or earlier with a `sign` of -1."""
    months, seconds = span
    return replace(
        moment,
        plus_months=moment.plus_months + sign * months,
        plus_seconds=moment.plus_seconds + sign * seconds,
    )


def seconds_of(moment: Moment, clock: Clock) -> float | None:
    """A moment of the session's time zone as seconds since 1970; None if it is no time."""
    base = _base_of(moment, clock)
    if base is None:
        return None
    try:
        base = months_later(base, moment.plus_months)
        seconds = clock.seconds(base + timedelta(seconds=moment.plus_seconds))
    except (OverflowError, ValueError):
        return None
    return seconds if _FIRST_SECOND <= seconds <= _LAST_SECOND else None


def _base_of(moment: Moment, clock: Clock) -> datetime | None:
    """A moment before its shift, in the session's zone, where months and days are added; None if it is no time."""
    try:
        if moment.today:
            return clock.local(clock.now).replace(hour=0, minute=0, second=0, microsecond=0)
        if moment.base is None:
            return clock.local(time.time() if moment.for_all else clock.now).replace(microsecond=0)
        if moment.unix:
            return clock.local(int(moment.base))
        text = str(moment.base)
        match = _TIME_TEXT.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
        if match is None:
            return None
        base = datetime(*(int(part or 0) for part in match.groups()))  # type: ignore[arg-type]
    except (OverflowError, ValueError, OSError):
        return None
    return base if base.year >= _FIRST_YEAR else None


def not_a_time(moment: Moment, clock: Clock) -> ServerError:
    """The warning about a moment that `seconds_of` gives None for: its text is no time, or its shift leads too far."""
    if _base_of(moment, clock) is not None:
        return TimeOverflow("datetime")
    return IncorrectMoment("datetime", str(moment.base)[:64])
