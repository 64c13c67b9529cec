"""The events of many groups: type and extent of each (`binlog_protocol/events/header.py` has the header)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET, split_events
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.arrays import OFFSET_MAX
from binlog_protocol.row_columns.chains import chain_starts
from binlog_protocol.row_columns.row_bytes import Damaged, DamagedGroup, Integers, RowBytes

_LENGTH_SIZE: Final = 4
_BYTES_AT_ONCE_MAX: Final = OFFSET_MAX
_BEYOND: Final = 1 << 40  # behind the end of anything: for a length that is none


class Events(NamedTuple):
    """One element an event. `group` counts the groups from 0, `number` the events of a group."""

    type: NDArray[np.uint8]
    begin: Integers
    end: Integers
    group: Integers
    number: Integers

    def some(self, which: Integers | list[int]) -> Events:
        """The events with these indexes; the columns are copied."""
        return Events(
            self.type[which],
            self.begin[which],
            self.end[which],
            self.group[which],
            self.number[which],
        )


class _EventHop:
    """See `Hop`."""

    def hop(self, data: RowBytes, at: Integers) -> Integers:
        lengths = data.unsigned(at + LENGTH_OFFSET, _LENGTH_SIZE)
        return at + np.where(lengths < HEADER_SIZE, _BEYOND, lengths)

    def hop_one(self, data: RowBytes, at: int) -> int:
        here = at + LENGTH_OFFSET
        length = int.from_bytes(data.raw[here : here + _LENGTH_SIZE], "little")
        return at + (_BEYOND if length < HEADER_SIZE else length)


def walk_events(data: RowBytes, ends: Integers) -> Events:
    """The events of groups that lie one behind the other. Raises `Damaged` for a group that does not split."""
    if loops.HAS_C:
        return _walked_in_c(data, ends)
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    starts = chain_starts(data, begins, ends, _EventHop())
    group = np.searchsorted(begins, starts, side="right") - 1
    first = np.searchsorted(starts, begins)
    return Events(
        data.unsigned(starts + TYPE_OFFSET, 1).astype(np.uint8),
        starts,
        starts + data.unsigned(starts + LENGTH_OFFSET, _LENGTH_SIZE),
        group,
        np.arange(len(starts)) - first[group],
    )


def _walked_in_c(data: RowBytes, ends: Integers) -> Events:
    count = loops.count_events(data.raw, ends)
    if count == loops.DAMAGED:
        raise Damaged
    events = Events(np.empty(count, np.uint8), *(np.empty(count, np.int64) for _ in range(4)))
    if not loops.fill_events(data.raw, ends, *events):
        raise Damaged
    return events


def walk_groups(groups: Sequence[bytes], first: int = 0) -> tuple[RowBytes, Events]:
    """The bytes of groups in normal form, or of pieces of them with whole events, and the events in them.

    Less than 2 GiB at once. Raises `DamagedGroup`, which counts the groups from `first` on.
    """
    data = RowBytes(b"".join(groups))
    if data.size > _BYTES_AT_ONCE_MAX:
        raise ValueError(f"{data.size} bytes of groups at once: {_BYTES_AT_ONCE_MAX} are the most")
    ends = np.cumsum(np.fromiter(map(len, groups), np.int64, len(groups)))
    try:
        return data, walk_events(data, ends)
    except Damaged:
        raise _explanation(groups, first) from None


def _explanation(groups: Sequence[bytes], first: int) -> ProtocolError:
    """The error for groups that do not split into events."""
    for number, group in enumerate(groups, first):
        try:
            for _ in split_events(group):
                pass
        except ProtocolError as error:
            return DamagedGroup(str(error), number)
    return ProtocolError(f"groups {first} to {first + len(groups) - 1} do not split into events")
