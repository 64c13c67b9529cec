"""Which table map a row event belongs to: the last one before it in its group that has the same table id."""

from __future__ import annotations

from typing import Final

import numpy as np

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.events.rows import ROWS_TYPES
from binlog_protocol.row_columns.event_walk import Events
from binlog_protocol.row_columns.row_bytes import Bools, Integers, RowBytes

_ID_SIZE: Final = 6
_IS_ROWS: Final = np.zeros(256, np.bool_)
_IS_ROWS[list(ROWS_TYPES)] = True
NONE: Final = -1


def table_maps_of(data: RowBytes, events: Events) -> Integers:
    """The index of each event's table map, for a map its own; -1 for other events, and where there is no map."""
    count = len(events.type)
    is_map = events.type == EventType.TABLE_MAP
    found = np.full(count, NONE, np.int64)
    which = np.flatnonzero(is_map | _IS_ROWS[events.type])
    if not len(which):
        return found
    ids = data.unsigned(events.begin[which] + HEADER_SIZE, _ID_SIZE)
    groups, maps = events.group[which], is_map[which]
    at = _last_map(maps)
    right = _is_same(at, ids, groups)
    if not right.all():  # several tables in one statement
        order = np.lexsort((ids, groups))  # stable: in the order of the log
        ids, groups = ids[order], groups[order]
        at = _last_map(maps[order])
        right = _is_same(at, ids, groups)
        which = which[order]
    found[which[right]] = which[at[right]]
    return found


def _last_map(is_map: Bools) -> Integers:
    """The index of the last map up to each element."""
    return np.maximum.accumulate(np.where(is_map, np.arange(len(is_map)), NONE))


def _is_same(at: Integers, ids: Integers, groups: Integers) -> Bools:
    same: Bools = (at != NONE) & (ids[at] == ids) & (groups[at] == groups)
    return same
