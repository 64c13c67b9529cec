"""LIKE and WHERE of a SHOW: the condition as a value, and whether it holds for a row."""

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
    """Operators of a condition."""

    EQUAL = auto()
    LIKE = auto()
    IN = auto()
    LESS = auto()
    GREATER = auto()
    IS_NULL = auto()


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator values`. The column's name is in lower case; "" is the first column (LIKE).

    Texts are compared without case; a value that is an `int` is compared as a number.
    """

    column: str
    operator: Operator
    values: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND: the test holds if all parts hold."""

    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR: the test holds if any part holds."""

    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """NOT: the test holds if the part does not."""

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
    """Whether the test may hold for a row of which only the first values are known.

    Args:
        columns: all column names, in lower case.
        known: the values of the first columns.
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
    """Whether a test reads no columns but these and the first one."""
    return _columns_of(test) <= {"", *columns}


def is_long(test: Test) -> bool:
    """Whether a test takes milliseconds for a few hundred rows, so that it must run in a thread."""
    return _cost(test) > _AT_ONCE_COST


def _cost(test: Test) -> int:
    """The number of values that each row is compared with; a long value counts more."""
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
    """Below 0, 0 or above 0, as `text` is less than, equal to or greater than `wanted`."""
    if isinstance(wanted, int):
        number = _as_number(text)
        return (number > wanted) - (number < wanted)
    left, right = text.lower(), wanted.lower()
    return (left > right) - (left < right)


def _as_number(text: str) -> float:
    """The number that a text begins with, else 0: so MariaDB compares text with a number."""
    match = _NUMBER.match(text)
    return float(match[1]) if match else 0.0


_LIKE_PART = re.compile(r"\\(.)|(%)|(_)|[^\\%_]+|\\", re.DOTALL)

_NOWHERE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Piece:
    """The piece of a LIKE pattern between two %: a text, in which any character matches at the places `any_at`."""

    text: str
    any_at: frozenset[int]

    def matches(self, text: str, at: int) -> bool:
        """Whether the piece matches the text at this index."""
        if not self.any_at:
            return text.startswith(self.text, at)
        found = text[at : at + len(self.text)]
        return len(found) == len(self.text) and all(
            wanted == character or place in self.any_at
            for place, (wanted, character) in enumerate(zip(self.text, found, strict=True))
        )

    def find(self, text: str, at: int) -> int:
        """The end of the first match at or behind this index; -1 if there is none."""
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


@lru_cache(maxsize=8)  # a pattern serves all rows of an answer, and may be long
def _like_pieces(pattern: str) -> tuple[_Piece, ...]:
    """The pieces of a LIKE pattern: one more than it has %."""
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
    """SQL LIKE without case: % matches any text, _ any character; a backslash makes the next character a plain one.

    Each piece between two % is searched once, from the end of the piece before: the time grows with the length of the
    name, not with the number of %.
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
