"""The starts of things that lie one behind the other, each of a length that only it tells: events, rows.

Within one range nothing but a walk finds them. But there are many ranges (groups, row events), so one step is taken in
all of them at once; the few that are much longer than the others are ended one by one.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from binlog_protocol.row_columns.row_bytes import Damaged, Integers, RowBytes

# Below so many ranges a step of numpy costs more than plain Python.
FEW: Final = 12


class Hop(Protocol):
    """The step from the beginning of a thing to that of the next. It always goes forward, and looks at no end."""

    def hop(self, data: RowBytes, at: Integers) -> Integers:
        """The beginnings of the next things, in many ranges at once."""

    def hop_one(self, data: RowBytes, at: int) -> int:
        """The beginning of the next thing."""


def chain_starts(data: RowBytes, begins: Integers, ends: Integers, things: Hop) -> Integers:
    """All beginnings, ascending; the ranges ascend too. Raises `Damaged` if a range does not end with a thing."""
    found = [begins[:0]]
    at, end = begins, ends
    while True:
        if bool((at > end).any()):
            raise Damaged
        more = at < end
        at, end = at[more], end[more]
        if len(at) <= FEW:
            break
        found.append(at)
        at = things.hop(data, at)
    found += [
        _one_chain(data, *pair, things) for pair in zip(at.tolist(), end.tolist(), strict=True)
    ]
    starts = np.concatenate(found)
    starts.sort()
    return starts


def _one_chain(data: RowBytes, at: int, end: int, things: Hop) -> Integers:
    found = []
    while at < end:
        found.append(at)
        at = things.hop_one(data, at)
    if at > end:
        raise Damaged
    return np.array(found, np.int64)
