"""Names of databases and tables, as they lie in events: many at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.row_columns import DamagedGroup
from binlog_protocol.row_columns.arrays import ranges
from binlog_protocol.row_columns.row_bytes import RowBytes

from binlog_pipeline.groups import Integers
from binlog_pipeline.views.event_batches import EventBatch

# In a table map: behind table id and flags come length, name and a zero, of the database and of the table.
_MAP_NAMES_AT: Final = HEADER_SIZE + 8
# In a query event: the length of the database name, that of the status variables, and those.
_QUERY_DATABASE_SIZE_AT: Final = HEADER_SIZE + 8
_QUERY_STATUS_SIZE_AT: Final = HEADER_SIZE + 11
_QUERY_STATUS_AT: Final = HEADER_SIZE + 13
QUERY_TYPES: Final = np.zeros(256, np.bool_)
QUERY_TYPES[[EventType.QUERY, EventType.QUERY_COMPRESSED]] = True


class TableNames:
    """The tables of a batch: `number` of each event is an index into `databases` and `tables`, -1 without one."""

    def __init__(self, batch: EventBatch) -> None:
        data = batch.data
        has = batch.map_at >= 0
        places, numbers = np.unique(batch.map_at[has], return_inverse=True)
        self.number: Integers = np.full(len(batch), -1, np.int64)
        self.number[has] = numbers
        self.databases, behind = _name(data, places + _MAP_NAMES_AT)  # sound: the rows were counted
        self.tables, _ = _name(data, behind)


def table_codes(databases: pa.Array, tables: pa.Array) -> Integers:
    """Numbers for pairs of names: the same number for the same pair only."""
    names = pc.binary_join_element_wise(databases, tables, "\0").dictionary_encode()
    codes: Integers = names.indices.to_numpy().astype(np.int64)
    return codes


def query_databases(batch: EventBatch, which: Integers) -> pa.Array:
    """The default databases of those events, which are queries; empty where there was none. Raises `DamagedGroup`."""
    data, begin = batch.data, batch.events.begin[which]
    size = data.unsigned(begin + _QUERY_DATABASE_SIZE_AT, 1)
    at = begin + _QUERY_STATUS_AT + data.unsigned(begin + _QUERY_STATUS_SIZE_AT, 2)
    beyond = at + size >= batch.events.end[which]
    if beyond.any():
        event = which[int(np.argmax(beyond))]
        raise DamagedGroup(
            "query event: the name of its database goes beyond its end",
            int(batch.events.group[event]),
            int(batch.events.number[event]),
        )
    return _texts(data, at, size)


def _name(data: RowBytes, at: Integers) -> tuple[pa.Array, Integers]:
    """Names behind the bytes that tell their lengths, and the places behind the zeros that end them."""
    size = data.unsigned(at, 1)
    return _texts(data, at + 1, size), at + 2 + size


def _texts(data: RowBytes, at: Integers, size: Integers) -> pa.Array:
    """Bytes as text; U+FFFD for what is no UTF-8."""
    found = ranges(data, at, at + size)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        names = [name.decode("utf-8", "replace") for name in found.to_pylist()]
        return pa.array(names, pa.string())
