"""View transactions: a row for each group.

gtid, file, offset, ts      see `view.py`; ts is when the statement that committed began
events, bytes               how many there are, and how long they are together
inserts, updates, deletes   rows
tables                      what was changed: for each table its rows, and the bytes of its row events in the log
ddl, standalone             as the GTID event says it; a standalone group has one event behind that
xa                          prepared, commit or rollback of an XA transaction
xid                         the number of the transaction in its storage engine, if it has one
thread_id                   of the connection, where it is logged: by statements, and by servers from 11.8 on
large                       whether there are more than 4 MiB
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
from binlog_protocol.events.gtid import GtidFlags

from binlog_pipeline.groups import Groups
from binlog_pipeline.views.event_batches import event_batches, naming
from binlog_pipeline.views.totals import GroupTotals, TableTotals
from binlog_pipeline.views.view import PLACE, place_arrays

_TABLE: Final = pa.struct(
    [
        pa.field("db", pa.string()),
        pa.field("table", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
_TABLES: Final = pa.list_(pa.field("element", _TABLE))
TRANSACTIONS_SCHEMA: Final = pa.schema(
    [
        *PLACE,
        pa.field("events", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("inserts", pa.int64()),
        pa.field("updates", pa.int64()),
        pa.field("deletes", pa.int64()),
        pa.field("tables", _TABLES),
        pa.field("ddl", pa.bool_()),
        pa.field("standalone", pa.bool_()),
        pa.field("xa", pa.string()),
        pa.field("xid", pa.int64()),
        pa.field("thread_id", pa.int64()),
        pa.field("large", pa.bool_()),
    ]
)


class TransactionsView:
    """View `transactions`; see the module."""

    schema: Final = TRANSACTIONS_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        for some, batches in groupby(event_batches(groups), lambda batch: batch.groups):
            with naming(some):
                totals = reduce(GroupTotals.and_more, map(GroupTotals.of, batches))
            yield _rows(some, totals)


def _rows(groups: Groups, totals: GroupTotals) -> pa.RecordBatch:
    flags = groups.flags2
    arrays = [
        *place_arrays(groups),
        pa.array(totals.events.astype(np.int32)),
        pa.array(totals.bytes),
        *map(pa.array, totals.rows),
        _tables(totals.tables, len(groups)),
        pa.array((flags & GtidFlags.DDL) != 0),
        pa.array((flags & GtidFlags.STANDALONE) != 0),
        pa.array(totals.xa, pa.string()),
        pa.array(totals.xid.values, mask=~totals.xid.there),
        pa.array(totals.thread_id.values, mask=~totals.thread_id.there),
        pa.repeat(pa.scalar(groups.large is not None), len(groups)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TRANSACTIONS_SCHEMA)


def _tables(tables: TableTotals, count: int) -> pa.Array:
    values = pa.StructArray.from_arrays(
        [tables.databases, tables.tables, pa.array(tables.rows), pa.array(tables.bytes)],
        fields=list(_TABLE),
    )
    offsets = np.searchsorted(tables.group, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=_TABLES)
