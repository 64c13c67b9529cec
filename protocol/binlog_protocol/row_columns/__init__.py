"""Rows of row events as Arrow columns: many events at once, no Python object for a value.

    chains.py, event_walk.py   where events and rows begin, in many groups or events at once
    table_links.py             which table map a row event belongs to
    repeats.py                 events that are like an earlier one
    image.py                   where rows begin, and the values of each column lie in many of them
    loops.py                   all these loops in C, where they were built
    numbers, temporal, texts   the values of a column, by its type
    column.py                  which Arrow type a column becomes
    decoder.py, changes.py     groups in, `Changes` or `RowCounts` out
    result_rows.py             rows of a SELECT as the same columns

docs/rows.md has the table of types. Needs pyarrow and numpy (the extra `spark`), so nothing of the server imports this
package. Damaged bytes are an error: the vector code only sees that something is wrong, the plain decoder
(`binlog_protocol/events/rows`) then says what.
"""

from binlog_protocol.row_columns.changes import Changes, RowCounts, arrow_schema, column_names
from binlog_protocol.row_columns.decoder import Prepare, RowCounter, RowDecoder, event_runs
from binlog_protocol.row_columns.event_walk import Events, walk_groups
from binlog_protocol.row_columns.options import ColumnOptions, UnrepresentableValue
from binlog_protocol.row_columns.row_bytes import DamagedGroup
from binlog_protocol.row_columns.table_links import table_maps_of

__all__ = [
    "Changes",
    "ColumnOptions",
    "DamagedGroup",
    "Events",
    "Prepare",
    "RowCounter",
    "RowCounts",
    "RowDecoder",
    "UnrepresentableValue",
    "arrow_schema",
    "column_names",
    "event_runs",
    "table_maps_of",
    "walk_groups",
]
