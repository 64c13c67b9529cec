"""Times in statements: a method for each of their rules in `grammar.lark`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from binlog_protocol.errors import SqlSyntaxError
from lark import Token, Transformer

from binlog_server.sql.statements import Moment
from binlog_server.sql.tokens import NEAR_CHARS, integer, unquote

_UNITS_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}

Span = tuple[int, int]  # months and seconds


class MomentBuilder(Transformer[Token, Any]):
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
    if unit in _UNITS_MONTHS:
        return count * _UNITS_MONTHS[unit], 0
    return 0, count * _UNITS_S[unit]


def shifted(moment: Moment, sign: int, span: Span) -> Moment:
    """The moment a span later, or earlier with a `sign` of -1."""
    months, seconds = span
    return replace(
        moment,
        plus_months=moment.plus_months + sign * months,
        plus_seconds=moment.plus_seconds + sign * seconds,
    )
