"""SQL text in tokens: the only place that knows strings, names in quotes and comments. No value is looked into.

Comments are those of MariaDB 11.8.9:

====================================  ==================================================================
``/* ... */``, ``-- ...``, ``# ...``  a comment
``/*! ... */``, ``/*M! ... */``       text of the statement
``/*!50712 ... */``                   the same up to version 11.8.9 (110809), which has five digits or six;
                                      but ``/*!50700`` to ``/*!99999`` are meant for MySQL, and comments
``/*!999999 ... */``                  a comment; one ``/* ... */`` may stand in it
====================================  ==================================================================

The first ``*/`` ends all that ``/*!`` has begun. One that ends nothing is text, so is a ``/*`` without an end.

In a log no version is compared: a server takes the ! out of those that it did not execute before it logs a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later, repeated

_FOR_MYSQL: Final = r"(?:50[7-9][0-9]{2}|5[1-9][0-9]{3}|[6-9][0-9]{4})"
_NEWER: Final = r"(?:1108[1-9][0-9]|11(?:09|[1-9][0-9])[0-9]{2}|1[2-9][0-9]{4}|[2-9][0-9]{5})"
NOT_EXECUTED: Final = rf"/\*(?:!(?:0{_FOR_MYSQL}|{_FOR_MYSQL}(?![0-9]))|M?!{_NEWER})"
_LINE: Final = r"--(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*"

# Sources for patterns with DOTALL, with or without VERBOSE, of text or of bytes; to be tried in this order.
_INNER: Final = repeated(r"[^*]|\*(?!/)")
SKIPPED: Final = NOT_EXECUTED + repeated(rf"[^*/]|\*(?!/)|/(?!\*)|/\*{_INNER}\*/") + r"\*/"
COMMENT: Final = rf"/\*(?!M?!).*?\*/|{_LINE}"
UNENDED_COMMENT: Final = rf"(?:{NOT_EXECUTED}|/\*(?!M?!)).*"
BEGIN: Final = r"/\*M?!(?:[0-9]{5,6})?+"
END: Final = r"\*/"

# By the quote and by whether a backslash escapes. What does not end is none of these.
STRING: Final = {True: r"'(?:[^'\\]++|\\.|'')*+'", False: r"'(?:[^']++|'')*+'"}
DOUBLE: Final = {True: r'"(?:[^"\\]++|\\.|"")*+"', False: r'"(?:[^"]++|"")*+"'}
NAME: Final = r"`(?:[^`]++|``)*+`"
# A string; or the rest of the text, if the string has no end: so that no character is read twice.
STRING_OR_REST: Final = rf"{STRING[True]}|{DOUBLE[True]}|['\"].*"

# Between two words, whatever version is meant.
GAP: Final = rf"{COMMENT}|/\*(?!M?!).*|/\*M?!\d*|\*/"
_SENT_GAP: Final = (
    rf"{SKIPPED}|{COMMENT}|(?P<sign_unended>{UNENDED_COMMENT})|(?P<begin>{BEGIN})|(?P<end>{END})"
)
# Letters, digits, _ and $, and all beyond ASCII; said by what is not in it, which `re` compiles in a tenth of the time.
_WORD: Final = r"[^\x00-\x23\x25-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]+"
_PATTERN: Final = r"""
    \s+ | {gap}
    | (?P<quoted> {quoted} )
    | (?P<string> {string} )
    | (?P<word> {word} )
    | (?P<sign> ['"`] .* | . )
"""


def _compiled(gap: str, string: str, quoted: str) -> re.Pattern[str]:
    # What is quoted and does not end is a sign with all the rest, so that no place is looked at twice.
    return re.compile(
        _PATTERN.format(gap=gap, string=string, quoted=quoted, word=_WORD),
        re.DOTALL | re.VERBOSE | re.ASCII,
    )


@cache  # most of the twelve are never asked for: they are not compiled at import
def _pattern(is_logged: bool, escapes: bool, names: bool | None) -> re.Pattern[str]:
    """The pattern for two modes: a backslash escapes; text in " is a name (None: one with a string's escapes)."""
    gap = GAP if is_logged else _SENT_GAP
    string, double = STRING[escapes], DOUBLE[escapes]
    if names is None:
        return _compiled(gap, string, f"{NAME} | {double}")
    if names:
        return _compiled(gap, string, f"{NAME} | {DOUBLE[False]}")
    return _compiled(gap, f"{string} | {double}", NAME)


class TokenKind(Enum):
    WORD = "word"  # a keyword, or a name without quotes
    QUOTED = "quoted"  # a name in ` or "; text in " where ANSI_QUOTES is off
    STRING = "string"
    SIGN = "sign"


class Token(NamedTuple):
    """`text` of a quoted name is the name; of a word or a string it is as it was written. `end` is behind it."""

    kind: TokenKind
    text: str
    end: int = 0

    @property
    def is_semicolon(self) -> bool:
        """Whether it is the sign between two statements: `;` in quotes is a name."""
        return self.kind is TokenKind.SIGN and self.text == ";"

    @property
    def is_unended(self) -> bool:
        """Whether a quote that does not end begins here, and has taken the rest of the text."""
        return self.kind is TokenKind.SIGN and self.text[0] in "'\"`"


def tokens(
    sql: str,
    *,
    backslash_escapes: bool = True,
    ansi_quotes: bool | None = None,
    is_logged: bool = True,
) -> Iterator[Token]:
    """All that is neither space nor comment. Never raises: a quote that does not end is a sign, with all behind it.

    Args:
        ansi_quotes: whether " stands around names; None if that does not matter: then they are taken for names.
        is_logged: the text stood in a log. Of one that a client has sent versions are compared, and what has no end
            or no beginning of a comment is a sign.
    """
    pattern = _pattern(is_logged, backslash_escapes, ansi_quotes)
    within = ""  # what has begun a part that is executed
    for found in pattern.finditer(sql):
        group = found.lastgroup
        if group is None:
            continue
        text = found[0]
        if group == "begin":
            within = text
            continue
        if group == "end" and within:
            within = ""
            continue
        if group == "quoted":
            quote = text[0]
            text = text[1:-1].replace(quote * 2, quote)
        yield Token(_KINDS[group], text, found.end())
    if within:
        yield Token(TokenKind.SIGN, within, len(sql))


_KINDS: Final = {
    **{kind.value: kind for kind in TokenKind},
    "end": TokenKind.SIGN,
    "sign_unended": TokenKind.SIGN,
}


# A word behind blanks, as nearly all statements begin; and what may be a comment between two words.
_NEXT_WORD: Final = compiled_later(rf"\s*({_WORD})", re.ASCII)
_NEXT_GAP: Final = compiled_later(r"\s*[-#/]", re.ASCII)


def first_words(sql: str, most: int = 8) -> list[str]:
    """The words that a client's statement begins with, in upper case, up to what is none."""
    found: list[str] = []
    at = 0
    while len(found) < most and (match := _NEXT_WORD.match(sql, at)):
        found.append(match[1].upper())
        at = match.end()
    if len(found) == most or not _NEXT_GAP.match(sql, at):
        return found
    found.clear()
    for token in tokens(sql, is_logged=False):
        if token.kind is not TokenKind.WORD or len(found) == most:
            break
        found.append(token.text.upper())
    return found
