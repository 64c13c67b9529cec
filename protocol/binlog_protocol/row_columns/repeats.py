"""Events that are like an earlier one: table maps with the same bytes, row events of such maps with the same bitmaps.

To sort row events one of each kind is looked at, and the others go the same way. The loop in C finds nearly all; its
twin only groups that have a table map and one row event, as transactions of one row are logged.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.events.rows import ROWS_TYPES
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.event_walk import Events
from binlog_protocol.row_columns.row_bytes import WORD_SIZE, Bools, Integers, RowBytes, Words

EVENTS_MIN: Final = 64  # below, looking at each is faster
_MAP_BYTES_MAX: Final = 512  # comparing longer ones is slower than looking them up
_ID_MASK: Final = np.uint64((1 << 48) - 1)
_WIDTH_AT: Final = HEADER_SIZE + 8  # the number of columns, then one or two bitmaps of them
_WIDTH_MAX: Final = 250  # in one byte
_UPDATES: Final = (
    int(EventType.UPDATE_ROWS_V1),
    int(EventType.UPDATE_ROWS_COMPRESSED_V1),
    int(EventType.UPDATE_ROWS),
)
_BITMAPS: Final = np.zeros(256, np.int64)
_BITMAPS[list(ROWS_TYPES)] = 1
_BITMAPS[list(_UPDATES)] = 2
_KIND_OF_MAPS: Final = 1
_KINDS_OF_ROWS: Final = {
    int(EventType.WRITE_ROWS_V1): 2,
    int(EventType.UPDATE_ROWS_V1): 3,
    int(EventType.DELETE_ROWS_V1): 2,
}
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


# Of the loop in C: table maps, and row events by the number of their bitmaps.
KINDS: Final = bytes(
    _KIND_OF_MAPS if type_ == EventType.TABLE_MAP else _KINDS_OF_ROWS.get(type_, 0)
    for type_ in range(256)
)


def likes(data: RowBytes, events: Events) -> tuple[Bools, Integers]:
    """Which events must be looked at, and for each the first one that is like it, or itself.

    The events are table maps and row events alone. Whoever looks at one in front of which the table map of its group
    was not looked at has it from an earlier call, or there is none.
    """
    count = len(events.type)
    looked_at, like = np.ones(count, np.bool_), np.arange(count)
    if loops.HAS_C and count:
        places = (events.type, events.begin, events.end, events.group)
        loops.find_likes(data.raw, *places, KINDS, looked_at, like)
    elif count >= EVENTS_MIN:
        rows, firsts = repeated(data, events)
        looked_at[rows] = looked_at[rows - 1] = False
        like[rows] = firsts
    return looked_at, like


def repeated(data: RowBytes, events: Events) -> tuple[Integers, Integers]:
    """Row events that are like an earlier one, and that one, by their indexes.

    The events are table maps and row events alone. Nothing is said of the first group and of the last, which may go on
    elsewhere.
    """
    rows = _pairs(data, events)
    maps = rows - 1
    at = events.begin[maps] + HEADER_SIZE
    size = events.end[maps] - at
    few = size <= _MAP_BYTES_MAX
    rows, at, size = rows[few], at[few], size[few]
    if not len(rows):
        return rows, rows
    head = _head(data, events, rows)
    columns = (data.words(at), size.view(np.uint64), head, events.type[rows].astype(np.uint64))
    with np.errstate(over="ignore"):
        hashed = sum(c * np.uint64(f) for c, f in zip(columns, _FACTORS, strict=True))
    _, first, kind = np.unique(hashed, return_index=True, return_inverse=True)
    like = first[kind]
    same: Bools = like != np.arange(len(rows))
    for column in columns:
        same &= column == column[like]
    same[same] = _are_equal(data, at[same], at[like[same]], size[same])
    return rows[same], rows[like[same]]


def _pairs(data: RowBytes, events: Events) -> Integers:
    """The row events of groups that have a table map and a row event of that table, and nothing else."""
    group = events.group
    new = np.flatnonzero(group[1:] != group[:-1]) + 1
    counts = np.diff(new)  # of the groups between the first and the last
    rows = new[:-1][counts == 2] + 1
    maps = rows - 1
    right = (events.type[maps] == EventType.TABLE_MAP) & (_BITMAPS[events.type[rows]] > 0)
    rows, maps = rows[right], maps[right]
    ids = data.words(events.begin[rows] + HEADER_SIZE) & _ID_MASK
    right = ids == data.words(events.begin[maps] + HEADER_SIZE) & _ID_MASK
    rows = rows[right]
    size = _head_size(data, events, rows)
    right = (size <= WORD_SIZE) & (events.begin[rows] + _WIDTH_AT + size <= events.end[rows])
    found: Integers = rows[right]
    return found


def _head_size(data: RowBytes, events: Events, rows: Integers) -> Integers:
    """Bytes of the number of columns and of the bitmaps; more than a word where that is not in one byte."""
    width = data.unsigned(events.begin[rows] + _WIDTH_AT, 1)
    size = 1 + (width + 7) // 8 * _BITMAPS[events.type[rows]]
    found: Integers = np.where(width <= _WIDTH_MAX, size, WORD_SIZE + 1)
    return found


def _head(data: RowBytes, events: Events, rows: Integers) -> Words:
    """Number of columns and bitmaps, in a word."""
    words = data.words(events.begin[rows] + _WIDTH_AT)
    unused = (8 * (WORD_SIZE - _head_size(data, events, rows))).astype(np.uint64)
    return words << unused


def _are_equal(data: RowBytes, at: Integers, other: Integers, size: Integers) -> Bools:
    """Whether so many bytes, a word or more, are the same at two places."""
    equal = np.ones(len(at), np.bool_)
    for step in range(0, int(size.max(initial=0)), WORD_SIZE):
        offset = np.minimum(step, size - WORD_SIZE)
        equal &= data.words(at + offset) == data.words(other + offset)
    return equal
