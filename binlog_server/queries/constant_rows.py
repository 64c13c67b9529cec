"""Constants in rows, of the VALUES of an INSERT, and in long lists, of IN, which are read where they stand in the text.

A tree of sqlglot takes 1 KiB for each value, and a token 250 bytes: a list as long as a text may be would take 400 MB.
So the rows in which there are only constants are cut out of the text before anything else reads it:

    head VALUES row , row , row , rest  ->  head VALUES row rest

    head    {INSERT | REPLACE} [modifiers] [INTO] [name .] name [ ( name, ... ) ]
    row     ( constant , ... )
    constant    [_binary] 'text' or "text", 0x..., NULL, DEFAULT, [-] digits [. digits] [e digits] that fit any number

Of a list behind IN the first constants stay, so many that a result column is named as ever, and the lines of the rest:

    IN ( constant , constant , ... )  ->  IN ( constant )

What is no row of this form, and all behind it, stays in the text; of rows alone the last one does. So whatever is wrong
with a statement is found by those who have always found it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later, repeated
from binlog_protocol.dataclass import dataclass

_BLANK: Final = r"[ \t\n\v\f\r]"
_NAME: Final = r"(?:[\w$]++|`[^`]++`)"
_MORE_NAMES: Final = repeated(rf", {_BLANK}*+ {_NAME} {_BLANK}*+ ")
_HEAD: Final = compiled_later(
    rf"""
    {_BLANK}*+ (?:INSERT|REPLACE) {_BLANK}+
    (?: (?:LOW_PRIORITY|HIGH_PRIORITY|DELAYED|QUICK|IGNORE) {_BLANK}+ )*
    (?: INTO {_BLANK}+ )?
    {_NAME} {_BLANK}*+ (?: \. {_BLANK}*+ {_NAME} {_BLANK}*+ )?
    (?: \( {_BLANK}*+ {_NAME} {_BLANK}*+ {_MORE_NAMES} \) {_BLANK}*+ )?
    \b VALUES? {_BLANK}*+ (?=\()
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPENING: Final = compiled_later(rf"{_BLANK}*+\(")
_CONSTANT: Final = compiled_later(
    rf"""
    {_BLANK}*+
    (?: (?P<introducer>_binary {_BLANK}*+)? (?P<text> '(?:[^'\\]++|\\.|'')*+' | "(?:[^"\\]++|\\.|"")*+" )
      | (?P<minus>-)? {_BLANK}*+ (?P<number> [0-9]{{1,18}}+ (?:\.[0-9]{{1,18}}+)? (?:[eE][-+]?[0-9]{{1,2}}+)? )
      | 0[x] (?P<hex> [0-9a-f]++ )
      | (?P<word> NULL | DEFAULT )
    )
    {_BLANK}*+ (?P<end>[,)])
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_COMMA: Final = compiled_later(rf"{_BLANK}*+,{_BLANK}*+(?=\()")


class Constant(NamedTuple):
    """A value as it is written: one of `text` in its quotes, digits of a number, hexadecimal digits, a word."""

    introducer: str | None
    text: str | None
    minus: str | None
    number: str | None
    hex: str | None
    word: str | None


@dataclass(frozen=True, slots=True)
class ConstantRows:
    """The rows that were cut out. `starts`: the offset of each in `text`; `widths`: how many constants it has."""

    text: str
    starts: array[int]
    widths: array[int]

    @property
    def held(self) -> int:
        """Bytes of memory beside the text's."""
        return (self.starts.itemsize + self.widths.itemsize) * len(self.starts)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[list[Constant]]:
        match = _CONSTANT.match
        for at in self.starts:
            row: list[Constant] = []
            end = ","
            while end == ",":
                found = match(self.text, at)
                assert found is not None, "it was read before"
                *said, end = found.groups()
                row.append(Constant(*said))
                at = found.end()
            yield row


def cut_out(text: str) -> tuple[str, ConstantRows | None]:
    """The text without such rows, and these; None if nothing was cut out."""
    head = _HEAD.match(text)
    if head is None:
        return text, None
    starts, widths = array("Q"), array("Q")
    begin = last = at = head.end()
    while (opening := _OPENING.match(text, at)) is not None:
        width = _width(text, opening.end())
        if width is None:
            break
        starts.append(opening.end())
        widths.append(width[0])
        last, at = at, width[1]
        comma = _COMMA.match(text, at)
        if comma is None:
            at = last  # it stays: VALUES needs one
            starts.pop()
            widths.pop()
            break
        at = comma.end()
    if not starts:
        return text, None
    return text[:begin] + text[at:], ConstantRows(text, starts, widths)


def _width(text: str, at: int) -> tuple[int, int] | None:
    """How many constants a row has, and the offset behind it; None if there is something else in it."""
    count, end = 0, ","
    while end == ",":
        found = _CONSTANT.match(text, at)
        if found is None:
            return None
        count, at, end = count + 1, found.end(), found["end"]
    return count, at


LIST_CHARS_MIN: Final = 512
"""Characters of a list of IN, from which on it is cut: more than the name of a column has."""
_IN: Final = compiled_later(
    rf"""'(?:[^'\\]++|\\.|'')*+'?|"(?:[^"\\]++|\\.|"")*+"?|`[^`]*+`?|(?<![\w$.@`])IN{_BLANK}*+(?P<list>\()""",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ConstantLists:
    """What was cut out of lists of IN, by the offsets of their opening parentheses in the text that was left."""

    found: dict[int, list[Constant]]

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return _CONSTANT_BYTES * sum(map(len, self.found.values()))


_CONSTANT_BYTES: Final = 512  # with the term that is made of it
LISTED_MAX: Final = 1 << 16
"""Constants of all lists of a statement that are cut out: a bound for the time and the memory that they take."""
NO_LISTS: Final = ConstantLists({})


def cut_lists(text: str) -> tuple[str, ConstantLists]:
    """The text without the further constants of long lists of IN, and these."""
    if len(text) <= LIST_CHARS_MIN:
        return text, NO_LISTS
    parts: list[str] = []
    lists: dict[int, list[Constant]] = {}
    behind = size = count = 0  # of the text, up to which it is in `parts`, and how much these are
    for begun in _IN.finditer(text):
        opening = begun.start("list")
        if opening < behind:
            continue
        cut = _listed(text, opening + 1)
        if cut is None:
            continue
        start, end, constants = cut
        count += len(constants)
        if count > LISTED_MAX:
            break  # it is too long where it stands
        lists[size + opening - behind] = constants
        kept = text[behind:start] + "\n" * text.count("\n", start, end)
        parts.append(kept)
        size += len(kept)
        behind = end
    return ("".join([*parts, text[behind:]]) if lists else text), ConstantLists(lists)


def _listed(text: str, at: int) -> tuple[int, int, list[Constant]] | None:
    """Where what is cut of a list of constants begins and ends, and the constants; None if nothing is cut."""
    begin, start, constants = at, 0, []
    while (found := _CONSTANT.match(text, at)) is not None:
        *said, end = found.groups()
        constant = Constant(*said)
        if constant.word is not None and constant.word.upper() == "DEFAULT":
            return None
        if start:
            constants.append(constant)
        elif end == "," and found.end() - begin > LIST_CHARS_MIN:
            start = found.end() - 1
        at = found.end()
        if end == ")":
            return (start, at - 1, constants) if constants else None
    return None
