"""Rows by their values: in order, and told apart. What is made for that counts against a `Budget`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from binlog_server.queries import values
from binlog_server.queries.terms import Budget, Term

Pair = tuple[Any, Sequence[Any]]
_RUN: Final = 2000  # that one call of C sorts: a millisecond, in which no other thread runs
_LITTLE: Final = 64  # characters of a text that is not counted


def marked(row: Sequence[Any], keys: Sequence[Callable[[Any], Any]]) -> tuple[Any, ...]:
    """What tells a row from others: equal for rows that are, as texts are without case. `keys`: `values.sort_key`."""
    return tuple(
        [None if value is None else key(value) for value, key in zip(row, keys, strict=True)]
    )


def long_texts(mark: Sequence[Any]) -> int:
    """Bytes of the long texts in a mark, which are its own: to be counted where it is kept."""
    return sum(
        [len(part) for part in mark if isinstance(part, str | bytes) and len(part) > _LITTLE]
    )


def ordered(pairs: list[Pair], order: Sequence[tuple[Term, bool]], budget: Budget) -> list[Pair]:
    """Things in the order of the values that each has for the terms of `order`; True is from the last to the first.

    Raises as `Budget.make`.
    """
    for at in range(len(order) - 1, -1, -1):
        term, is_down = order[at]
        pairs = _ordered(pairs, at, values.sort_key(term.kind), budget, is_down=is_down)
    return pairs


def _ordered(
    pairs: list[Pair], at: int, key: Callable[[Any], Any], budget: Budget, *, is_down: bool
) -> list[Pair]:
    """In runs that are merged then, so that no call of C is long."""
    keyed = []
    made = 0
    for pair in pairs:
        budget.tick()
        value = pair[1][at]
        wanted = (False, 0) if value is None else (True, key(value))
        size = long_texts(wanted)
        budget.make(size)
        made += size
        keyed.append((wanted, pair))
    runs = [
        sorted(keyed[start : start + _RUN], key=_first, reverse=is_down)
        for start in range(0, len(keyed), _RUN)
    ]
    found = []
    for _, pair in heapq.merge(*runs, key=_first, reverse=is_down):
        budget.tick()
        found.append(pair)
    budget.made -= made
    return found


_first: Final = itemgetter(0)
