"""Tokens of the grammars to values: names, texts, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import NotSupportedYet
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import DOUBLE, STRING
from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.lexer import PatternRE, PatternStr, TerminalDef

NEAR_CHARS: Final = 80  # characters that MariaDB quotes from the place of a syntax error
U64_DIGITS: Final = 20
_KEY_WORD = 1
# Characters of a statement that is parsed. No statement that this server understands is longer.
STATEMENT_CHARS_MAX: Final = 64 * 1024
# Characters without those inside of strings: parsing takes 10 to 20 us for each.
CODE_CHARS_MAX: Final = 4 * 1024
# A longer statement is parsed in a thread, so that the loop does not wait; this much takes 3 ms at worst.
LOOP_CHARS_MAX: Final = 128

# A string, or the rest of the text if the string has no end: so that no character is read twice.
_STRING: Final = re.compile(rf"{STRING[True]}|{DOUBLE[True]}|['\"].*", re.DOTALL)
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
_DECIMAL_DIGITS_MAX: Final = 65
_DECIMAL_SCALE_MAX: Final = 38


def is_too_long(text: str) -> bool:
    """Whether a statement is too long for the grammars, and so a syntax error."""
    return len(text) > CODE_CHARS_MAX and (
        len(text) > STATEMENT_CHARS_MAX or len(_STRING.sub("''", text)) > CODE_CHARS_MAX
    )


def read(
    text: str,
    grammar: Callable[[], Lark],
    builder: Callable[[str], Transformer[Token, Any]],
    *,
    quotes_strings: bool = False,
) -> Any:
    """Parse a statement: the value that the builder makes of the grammar's tree.

    Args:
        grammar: gives the grammar.
        builder: makes a builder from the text that the grammar reads (the statement, prepared for it).
        quotes_strings: whether a syntax error may quote strings of the statement; not if one may be a password.

    Raises `SqlSyntaxError` (1064), and the `ServerError` that a method of the builder raises.
    """
    if is_too_long(text):
        raise SqlSyntaxError(text[:NEAR_CHARS] if quotes_strings else "")
    text = plain(text)
    try:
        tree = grammar().parse(text)
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            at = len(text)
        # Searched from the beginning, so that the end of a string is not taken for text.
        shown = text if quotes_strings else _STRING.sub(lambda found: "?" * len(found[0]), text)
        raise SqlSyntaxError(shown[at : at + NEAR_CHARS], text.count("\n", 0, at) + 1) from None
    try:
        return builder(text).transform(tree)
    except VisitError as error:  # lark wraps what a method of the builder raises
        raise error.orig_exc from None
    except RecursionError:  # conditions nested too deep
        raise SqlSyntaxError(text[:NEAR_CHARS] if quotes_strings else "") from None


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
    if len(whole) + len(part) > _DECIMAL_DIGITS_MAX or len(part) > _DECIMAL_SCALE_MAX:
        raise NotSupportedYet(
            f"a number of more than {_DECIMAL_DIGITS_MAX} digits, or {_DECIMAL_SCALE_MAX} behind the point"
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


def whole_words(terminal: TerminalDef) -> None:
    """For `Lark(edit_terminals=)`: a key word matches whole words only, so that REPLICA does not match in REPLICAS."""
    pattern = terminal.pattern
    if isinstance(pattern, PatternStr) and re.fullmatch(r"\w+", pattern.value):
        terminal.pattern = PatternRE(rf"{pattern.value}(?![a-zA-Z0-9_$])", pattern.flags)
        terminal.priority = _KEY_WORD  # above that of names
