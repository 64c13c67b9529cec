"""Tokens of the grammars to values: names, texts, numbers."""

from __future__ import annotations

import re
from typing import Final

from lark import Token
from lark.lexer import PatternRE, PatternStr, TerminalDef

from protocol.errors import SqlSyntaxError

NEAR_CHARS: Final = 80  # as much as MariaDB quotes of the place of a syntax error
U64_DIGITS: Final = 20
_KEY_WORD = 1
# Of a statement that is parsed. Nothing a binlog server understands is longer.
STATEMENT_CHARS_MAX: Final = 64 * 1024
# Without what its strings hold: parsing takes 10 to 20 us for each of these.
CODE_CHARS_MAX: Final = 4 * 1024
# What is longer is parsed in a thread, so that nobody else waits for it: this takes 3 ms at worst.
LOOP_CHARS_MAX: Final = 128

# A string, or the rest of the text if it is not ended: so that no place is looked at twice.
_STRING: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)|"(?:[^"\\]|\\.|"")*+(?:"|\\?\Z)""", re.DOTALL
)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def is_too_long(text: str) -> bool:
    """Whether a statement is none for the grammars."""
    return len(text) > CODE_CHARS_MAX and (
        len(text) > STATEMENT_CHARS_MAX or len(_STRING.sub("''", text)) > CODE_CHARS_MAX
    )


def unquote(token: str) -> str:
    """The text of a quoted string or name."""
    quote, body = token[0], token[1:-1]
    if quote == "`":
        return body
    body = body.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), body, flags=re.DOTALL)


def integer(token: str) -> int:
    """A number that takes no long time to convert. Raises `SqlSyntaxError`."""
    if len(token) > U64_DIGITS:
        raise SqlSyntaxError(token[:NEAR_CHARS])
    return int(token)


def as_written(token: Token) -> str:
    """A name, quoted or not, in the case that it has."""
    return str(token) if token.type == "NAME" else unquote(token)


def name_of(token: Token) -> str:
    """A name of which the case does not matter: in lower case."""
    return as_written(token).lower()


def whole_words(terminal: TerminalDef) -> None:
    """For `Lark(edit_terminals=)`: a key word ends where the word ends; REPLICA is no beginning of REPLICAS."""
    pattern = terminal.pattern
    if isinstance(pattern, PatternStr) and re.fullmatch(r"\w+", pattern.value):
        terminal.pattern = PatternRE(rf"{pattern.value}(?![a-zA-Z0-9_$])", pattern.flags)
        terminal.priority = _KEY_WORD  # before names
