"""SQL text in tokens, as far as it takes to find names in a statement: no value is looked into.

What stands in executed comments (`/*! ... */`, `/*M! ... */`) counts as text of the statement, other comments do not.
No version is compared: a server takes the ! out of those that it did not execute before it logs a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

# What is quoted and does not end is a sign with all the rest, so that no place is looked at twice.
_STRING: Final = r"'(?:[^'\\]++|\\.|'')*+'"
_STRING_WITHOUT_ESCAPES: Final = r"'(?:[^']++|'')*+'"
_NAME: Final = r"`(?:[^`]++|``)*+`"
_DOUBLE: Final = r'"(?:[^"\\]++|\\.|"")*+"'
_DOUBLE_WITHOUT_ESCAPES: Final = r'"(?:[^"]++|"")*+"'
_PATTERN: Final = r"""
    \s+ | -- (?=\s|$) [^\n]* | \# [^\n]* | /\* (?! M?! ) .*? (?: \*/ | $ ) | /\* M?! \d* | \*/
    | (?P<quoted> {quoted} )
    | (?P<string> {string} )
    | (?P<word> [\w$]+ )
    | (?P<sign> ['"`] .* | . )
"""
_FLAGS: Final = re.DOTALL | re.VERBOSE


def _compiled(string: str, quoted: str) -> re.Pattern[str]:
    return re.compile(_PATTERN.format(string=string, quoted=quoted), _FLAGS)


# By whether a backslash escapes, and what stands in ".
_BY_MODE: Final[dict[tuple[bool, bool | None], re.Pattern[str]]] = {
    (True, None): _compiled(_STRING, f"{_NAME} | {_DOUBLE}"),
    (False, None): _compiled(_STRING_WITHOUT_ESCAPES, f"{_NAME} | {_DOUBLE_WITHOUT_ESCAPES}"),
    (True, True): _compiled(_STRING, f"{_NAME} | {_DOUBLE_WITHOUT_ESCAPES}"),
    (False, True): _compiled(_STRING_WITHOUT_ESCAPES, f"{_NAME} | {_DOUBLE_WITHOUT_ESCAPES}"),
    (True, False): _compiled(f"{_STRING} | {_DOUBLE}", _NAME),
    (False, False): _compiled(f"{_STRING_WITHOUT_ESCAPES} | {_DOUBLE_WITHOUT_ESCAPES}", _NAME),
}


class TokenKind(Enum):
    WORD = "word"  # a keyword, or a name without quotes
    QUOTED = "quoted"  # a name in ` or "; text in " where ANSI_QUOTES is off
    STRING = "string"
    SIGN = "sign"


class Token(NamedTuple):
    """`text` of a quoted name is the name; of a word or a string it is as it was written."""

    kind: TokenKind
    text: str

    @property
    def is_unended(self) -> bool:
        """Whether a quote that does not end begins here, and has taken the rest of the text."""
        return self.kind is TokenKind.SIGN and self.text[0] in "'\"`"


def tokens(
    sql: str, *, backslash_escapes: bool = True, ansi_quotes: bool | None = None
) -> Iterator[Token]:
    """All that is neither space nor comment. Never raises: a quote that does not end is a sign, with all behind it.

    Args:
        ansi_quotes: whether " stands around names; None if that does not matter: then they are taken for names.
    """
    pattern = _BY_MODE[backslash_escapes, ansi_quotes]
    for found in pattern.finditer(sql):
        group = found.lastgroup
        if group is None:
            continue
        text = found[0]
        if group == "quoted":
            quote = text[0]
            text = text[1:-1].replace(quote * 2, quote)
        yield Token(TokenKind(group), text)
