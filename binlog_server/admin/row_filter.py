"""Which rows a SHOW gives: its LIKE or WHERE as a value, and whether it holds for a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from binlog_server.admin.view import Row
from protocol.sql_errors import UnknownColumn

_CHARS_AT_ONCE = 256
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


def cost(test: Test) -> int:
    """How many values each row is compared with; a long one counts more."""
    match test:
        case Condition(values=values):
            return sum(1 + len(str(value)) // _CHARS_AT_ONCE for value in values) or 1
        case Not(part):
            return cost(part)
        case AllOf(parts) | AnyOf(parts):
            return sum(map(cost, parts))


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


_LIKE_PART = re.compile(r"\\(.)|.", re.DOTALL)
# No character lowers to these: they are longer than one.
_ANY_TEXT = "any text"
_ANY_CHARACTER = "any character"
_WILD = {"%": _ANY_TEXT, "_": _ANY_CHARACTER}


@lru_cache(maxsize=8)  # the same for all rows of an answer; it may be as long as a statement
def _like_parts(pattern: str) -> tuple[str, ...]:
    """Characters, and what stands for others; % only once in a row."""
    parts: list[str] = []
    for match in _LIKE_PART.finditer(pattern):
        wild = None if match[1] else _WILD.get(match[0])
        if wild is not _ANY_TEXT or parts[-1:] != [_ANY_TEXT]:
            parts.append(wild or (match[1] or match[0]).lower())
    return tuple(parts)


def like_matches(pattern: str, name: str) -> bool:
    """SQL LIKE without case: % any text, _ any character, backslash takes the next as it is.

    In time pattern times name, whatever the pattern: after a mismatch only the last % takes one character more.
    """
    wanted = _like_parts(pattern)
    text = name.lower()
    at = in_text = 0
    last_any = resume = -1
    while in_text < len(text):
        part = wanted[at] if at < len(wanted) else None
        if part is _ANY_TEXT:
            last_any, resume = at, in_text
            at += 1
        elif part is not None and (part is _ANY_CHARACTER or part == text[in_text]):
            at += 1
            in_text += 1
        elif last_any >= 0:
            resume += 1
            at, in_text = last_any + 1, resume
        else:
            return False
    return all(part is _ANY_TEXT for part in wanted[at:])
