"""View events: a row for each event of the log.

file, offset, gtid  of its group, see `view.py`
event_no            number of the event in its group, from 0; 0 is the GTID event
ts                  of the event itself: when its statement began
type, type_name     number and name, as `SHOW BINLOG EVENTS` has them in capitals: WRITE_ROWS_V1
size                bytes, header included, in the log (a compressed event as it is)
flags               of the header
db, table           of table maps and row events; the default database of statements, if there was one
table_id            of table maps and row events
rows                of row events
large               whether its group has more than 4 MiB
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAGS_OFFSET, HEADER_SIZE
from binlog_protocol.row_columns.row_bytes import Bools

from binlog_pipeline.groups import Groups, Integers
from binlog_pipeline.views.event_batches import EventBatch, event_batches, naming
from binlog_pipeline.views.event_names import QUERY_TYPES, TableNames, query_databases
from binlog_pipeline.views.view import BATCH_ROWS, GTID, TIME, place_arrays

EVENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("gtid", GTID),
        pa.field("event_no", pa.int32()),
        pa.field("ts", TIME),
        pa.field("type", pa.int16()),
        pa.field("type_name", pa.string()),
        pa.field("size", pa.int32()),
        pa.field("flags", pa.int32()),
        pa.field("db", pa.string()),
        pa.field("table", pa.string()),
        pa.field("table_id", pa.int64()),
        pa.field("rows", pa.int32()),
        pa.field("large", pa.bool_()),
    ]
)
_TABLE_ID_SIZE: Final = 6
_NAMES: Final = {int(type_): type_.name for type_ in EventType}
_TYPE_NAMES: Final = pa.array([_NAMES.get(i, f"TYPE_{i}") for i in range(256)])


class EventsView:
    """View `events`; see the module."""

    schema: Final = EVENTS_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        for batch in event_batches(groups):
            with naming(batch.groups):
                rows = _rows(batch)
            for begin in range(0, len(batch), BATCH_ROWS):
                yield rows.slice(begin, BATCH_ROWS)


def _rows(batch: EventBatch) -> pa.RecordBatch:
    data, events = batch.data, batch.events
    has_table = batch.map_at >= 0
    is_rows = has_table & (events.type != EventType.TABLE_MAP)
    gtid, file, offset, _ = place_arrays(batch.groups, events.group)
    databases, tables = _names(batch)
    seconds = data.unsigned(events.begin, 4)
    table_id = data.unsigned(events.begin + HEADER_SIZE, _TABLE_ID_SIZE)
    arrays = [
        file,
        offset,
        gtid,
        pa.array(events.number.astype(np.int32)),
        pa.array(seconds * 1_000_000).view(TIME),
        pa.array(events.type.astype(np.int16)),
        _TYPE_NAMES.take(pa.array(events.type)),
        pa.array((events.end - events.begin).astype(np.int32)),
        pa.array(data.unsigned(events.begin + FLAGS_OFFSET, 2).astype(np.int32)),
        databases,
        tables,
        _some(table_id, has_table),
        _some(batch.rows.astype(np.int32), is_rows),
        pa.repeat(pa.scalar(batch.groups.large is not None), len(batch)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS_SCHEMA)


def _names(batch: EventBatch) -> tuple[pa.Array, pa.Array]:
    """Columns db and table."""
    names = TableNames(batch)
    queries = np.flatnonzero(QUERY_TYPES[batch.events.type])
    used = query_databases(batch, queries)
    number = names.number.copy()
    number[queries] = len(names.databases) + np.arange(len(queries))
    number[queries[pc.equal(used, "").to_numpy(zero_copy_only=False)]] = -1
    databases = pa.concat_arrays([names.databases, used])
    return databases.take(_some(number, number >= 0)), names.tables.take(
        _some(names.number, names.number >= 0)
    )


def _some(values: Integers, which: Bools) -> pa.Array:
    """Null where it is not so."""
    return pa.array(values, mask=~which)
