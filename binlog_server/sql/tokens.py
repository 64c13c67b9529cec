"""Tokens of the grammars to values: names, texts, numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from binlog_protocol.errors import NotSupportedYet, SqlSyntaxError

from binlog_server.queries.types import DECIMAL_DIGITS_MAX, DECIMAL_SCALE_MAX

if TYPE_CHECKING:
    from lark import Token

NEAR_CHARS: Final = 80  # characters that MariaDB quotes from the place of a syntax error
U64_DIGITS: Final = 20
_ESCAPES: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": r"\%",
    "_": r"\_",  # the backslash stays: LIKE reads it
}


def unquote(token: str) -> str:
    """The text of a quoted string or name."""
    quote, body = token[0], token[1:-1]
    if quote == "`":
        return body
    body = body.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), body, flags=re.DOTALL)


def exact_number(token: str) -> Decimal:
    """A number from digits, with or without a point. Raises `NotSupportedYet` (1235) beyond the digits of a DECIMAL."""
    # Made from its digits, because a decimal context would round it.
    whole, _, part = token.lstrip("+-").partition(".")
    whole = whole.lstrip("0")
    if len(whole) + len(part) > DECIMAL_DIGITS_MAX or len(part) > DECIMAL_SCALE_MAX:
        raise NotSupportedYet(
            f"a number of more than {DECIMAL_DIGITS_MAX} digits, or {DECIMAL_SCALE_MAX} behind the point"
        )
    digits = tuple(map(int, whole + part)) or (0,)
    return Decimal((int(token[0] == "-" and any(digits)), digits, -len(part)))


def integer(token: str) -> int:
    """An integer. Raises `SqlSyntaxError` (1064) if it has so many digits that converting them would take long."""
    if len(token) > U64_DIGITS:
        raise SqlSyntaxError(token[:NEAR_CHARS])
    return int(token)


def as_written(token: Token) -> str:
    """A name without its quotes, in the case in which it is written."""
    return str(token) if token.type == "NAME" else unquote(token)


def name_of(token: Token) -> str:
    """A name whose case does not matter, without its quotes and in lower case."""
    return as_written(token).lower()
