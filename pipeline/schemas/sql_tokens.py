"""SQL text in tokens, as far as it takes to find names in a statement: no value is looked into.

What stands in executed comments (`/*! ... */`, `/*M! ... */`) counts as text of the statement, other comments do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

_STRING: Final = r"'(?:[^'\\]++|\\.|'')*+'"
_STRING_WITHOUT_ESCAPES: Final = r"'(?:[^']++|'')*+'"
_PATTERN: Final = r"""
    \s+ | -- (?=\s|$) [^\n]* | \# [^\n]* | /\* (?! M?! ) .*? (?: \*/ | $ ) | /\* M?! \d* | \*/
    | (?P<quoted> `(?:[^`]++|``)*+` | "(?:[^"\\]++|\\.|"")*+" )
    | (?P<string> {string} )
    | (?P<word> [\w$]+ )
    | (?P<sign> . )
"""
_FLAGS: Final = re.DOTALL | re.VERBOSE
_TOKENS: Final = re.compile(_PATTERN.format(string=_STRING), _FLAGS)
_TOKENS_WITHOUT_ESCAPES: Final = re.compile(_PATTERN.format(string=_STRING_WITHOUT_ESCAPES), _FLAGS)


class TokenKind(Enum):
    WORD = "word"  # a keyword, or a name without quotes
    QUOTED = "quoted"  # a name in ` or "; text in " where ANSI_QUOTES is off
    STRING = "string"
    SIGN = "sign"


class Token(NamedTuple):
    """`text` of a quoted name is the name; of a word it is as it was written."""

    kind: TokenKind
    text: str


def tokens(sql: str, *, backslash_escapes: bool = True) -> Iterator[Token]:
    """All that is neither space nor comment. Never raises: a quote that does not end is a sign."""
    pattern = _TOKENS if backslash_escapes else _TOKENS_WITHOUT_ESCAPES
    for found in pattern.finditer(sql):
        group = found.lastgroup
        if group is None:
            continue
        text = found[0]
        if group == "quoted":
            quote = text[0]
            text = text[1:-1].replace(quote * 2, quote)
        yield Token(TokenKind(group), text)
