"""Which rows a SHOW gives: its LIKE or WHERE as a value, and whether it holds for a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from binlog_protocol.errors.sql_errors import UnknownColumn

from binlog_server.sql.view import Row

_CHARS_AT_ONCE = 256
_AT_ONCE_COST = 16
_NUMBER = re.compile(r"\s*([-+]?[0-9]{1,300}(?:\.[0-9]{0,300})?)")


class Operator(Enum):
    """Of a condition."""

    EQUAL = auto()
    LIKE = auto()
    IN = auto()
    LESS = auto()
    GREATER = auto()
    IS_NULL = auto()


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator values`. The column in lower case, "" for the first one (LIKE).

    A value is an `int` where the statement has a number: then numbers are compared, else texts without case.
    """

    column: str
    operator: Operator
    values: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND."""

    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR."""

    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    part: Test


Test = Condition | AllOf | AnyOf | Not
EVERYTHING = AllOf(())


def filtered(rows: Iterable[Row], columns: Sequence[str], test: Test) -> list[Row]:
    """The rows for which the test holds. Raises `UnknownColumn` (1054).

    Args:
        columns: their names, in lower case.
    """
    places = {"": 0, **{name: at for at, name in enumerate(columns)}}
    for name in _columns_of(test):
        if name not in places:
            raise UnknownColumn(name)
    return [row for row in rows if _holds(test, row, places)]


def may_hold(test: Test, columns: Sequence[str], known: Row) -> bool:
    """Whether the test may hold for a row that begins with those values.

    Args:
        columns: as those of `filtered`.
    """
    return True in _outcomes(test, known, {"": 0, **{c: at for at, c in enumerate(columns)}})


def _outcomes(test: Test, known: Row, places: dict[str, int]) -> frozenset[bool]:
    match test:
        case Not(part):
            return frozenset(not outcome for outcome in _outcomes(part, known, places))
        case AllOf(parts):
            found = [_outcomes(part, known, places) for part in parts]
            if any(True not in outcomes for outcomes in found):
                return _NEVER
            return _EITHER if any(False in outcomes for outcomes in found) else _ALWAYS
        case AnyOf(parts):
            found = [_outcomes(part, known, places) for part in parts]
            if any(False not in outcomes for outcomes in found):
                return _ALWAYS
            return _EITHER if any(True in outcomes for outcomes in found) else _NEVER
        case Condition(column):
            at = places.get(column, len(known))
            if at >= len(known):
                return _EITHER
            return _ALWAYS if _matches(test, known[at]) else _NEVER


_ALWAYS, _NEVER, _EITHER = frozenset({True}), frozenset({False}), frozenset({True, False})


def is_about(test: Test, columns: Sequence[str]) -> bool:
    """Whether it asks for nothing but these, and the first column."""
    return _columns_of(test) <= {"", *columns}


def is_long(test: Test) -> bool:
    """Whether it takes milliseconds to hold it against some hundred rows."""
    return _cost(test) > _AT_ONCE_COST


def _cost(test: Test) -> int:
    """How many values each row is compared with; a long one counts more."""
    match test:
        case Condition(values=values):
            return sum(1 + len(str(value)) // _CHARS_AT_ONCE for value in values) or 1
        case Not(part):
            return _cost(part)
        case AllOf(parts) | AnyOf(parts):
            return sum(map(_cost, parts))


def _columns_of(test: Test) -> set[str]:
    match test:
        case Condition(column):
            return {column}
        case Not(part):
            return _columns_of(part)
        case AllOf(parts) | AnyOf(parts):
            return set().union(*map(_columns_of, parts))


def _holds(test: Test, row: Row, places: dict[str, int]) -> bool:
    match test:
        case AllOf(parts):
            return all(_holds(part, row, places) for part in parts)
        case AnyOf(parts):
            return any(_holds(part, row, places) for part in parts)
        case Not(part):
            return not _holds(part, row, places)
        case Condition(column):
            return _matches(test, row[places[column]])


def _matches(condition: Condition, value: object) -> bool:
    text = "" if value is None else str(value)
    values = condition.values
    match condition.operator:
        case Operator.IS_NULL:
            return value is None
        case Operator.LIKE:
            return like_matches(str(values[0]), text)
        case Operator.LESS:
            return _order(text, values[0]) < 0
        case Operator.GREATER:
            return _order(text, values[0]) > 0
        case Operator.EQUAL | Operator.IN:
            return any(_order(text, wanted) == 0 for wanted in values)


def _order(text: str, wanted: str | int) -> int:
    """Below, at or above 0 as `text` is less than, like or greater than `wanted`."""
    if isinstance(wanted, int):
        number = _as_number(text)
        return (number > wanted) - (number < wanted)
    left, right = text.lower(), wanted.lower()
    return (left > right) - (left < right)


def _as_number(text: str) -> float:
    """As MariaDB compares text with a number: what it begins with, else 0."""
    match = _NUMBER.match(text)
    return float(match[1]) if match else 0.0


_LIKE_PART = re.compile(r"\\(.)|(%)|(_)|[^\\%_]+|\\", re.DOTALL)

_NOWHERE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Of a LIKE pattern, between two %: a text, in which any character will do at some places."""

    text: str
    any_at: frozenset[int]

    def matches(self, text: str, at: int) -> bool:
        """Whether it stands there."""
        if not self.any_at:
            return text.startswith(self.text, at)
        found = text[at : at + len(self.text)]
        return len(found) == len(self.text) and all(
            wanted == character or place in self.any_at
            for place, (wanted, character) in enumerate(zip(self.text, found, strict=True))
        )

    def find(self, text: str, at: int) -> int:
        """Where it ends, the first time from there on; -1 if it does not come."""
        if not self.any_at:
            found = text.find(self.text, at)
            return found if found < 0 else found + len(self.text)
        # A bit for each beginning of the piece that the text ends with so far: a step is three operations on a number,
        # however long the piece is.
        anything = sum(1 << place for place in self.any_at)
        fitting: dict[str, int] = {}
        for place, wanted in enumerate(self.text):
            if place not in self.any_at:
                fitting[wanted] = fitting.get(wanted, anything) | 1 << place
        whole, begun = 1 << len(self.text) - 1, 0
        for place in range(at, len(text)):
            begun = (begun << 1 | 1) & fitting.get(text[place], anything)
            if begun & whole:
                return place + 1
        return -1


@lru_cache(maxsize=8)  # the same for all rows of an answer; it may be as long as a statement
def _like_pieces(pattern: str) -> tuple[_Piece, ...]:
    """One more than there are %."""
    pieces: list[_Piece] = []
    texts: list[str] = []
    any_at: set[int] = set()
    length = 0
    for match in _LIKE_PART.finditer(pattern):
        if match[2]:
            pieces.append(_Piece("".join(texts), frozenset(any_at) if any_at else _NOWHERE))
            texts.clear()
            any_at.clear()
            length = 0
            continue
        text = (match[1] or match[0]).lower()
        if match[3]:
            any_at.add(length)
        texts.append(text)
        length += len(text)
    return *pieces, _Piece("".join(texts), frozenset(any_at) if any_at else _NOWHERE)


def like_matches(pattern: str, name: str) -> bool:
    """SQL LIKE without case: % any text, _ any character, backslash takes the next as it is.

    Each piece between two % is looked for once, from where the one before has ended.
    """
    pieces = _like_pieces(pattern)
    text = name.lower()
    if sum(len(piece.text) for piece in pieces) > len(text):
        return False
    first, *others = pieces
    if not first.matches(text, 0):
        return False
    at = len(first.text)
    if not others:
        return at == len(text)
    for piece in others[:-1]:
        at = piece.find(text, at)
        if at < 0:
            return False
    last = len(text) - len(others[-1].text)
    return at <= last and others[-1].matches(text, last)
