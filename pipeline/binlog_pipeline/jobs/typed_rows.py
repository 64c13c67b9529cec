"""Changes as rows of a file: where they come from, and the columns of their table.

    layout struct    _op, _gtid, _ts, _order, _present, before, after
    layout flat      _op, _gtid, _ts, _order, _present, and the columns: as they are now; of a DELETE, as they were

_gtid, _ts and _order are those of view `changes`. _op is c, u or d (INSERT, UPDATE, DELETE). _present is null if all
columns were logged, else a bitmap of those that were, least bit first; of `after`, or of `before` for a DELETE.
`before` of an INSERT and `after` of a DELETE are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa
from binlog_protocol.events.rows import ChangeKind
from binlog_protocol.row_columns import Changes

from binlog_pipeline.errors import BadOption
from binlog_pipeline.schemas.columns import spark_type
from binlog_pipeline.views.changes_order import PLACE_FIELDS, Places

Layout = Literal["struct", "flat"]

_PLACE_COLUMNS: Final = 3  # `_order_key` is `_order` in other words
OPS: Final = {ChangeKind.INSERT: "c", ChangeKind.UPDATE: "u", ChangeKind.DELETE: "d"}
_HEAD: Final = [
    pa.field("_op", pa.string()),
    *PLACE_FIELDS[:_PLACE_COLUMNS],
    pa.field("_present", pa.binary()),
]


def image_schema(changes: Changes) -> pa.Schema:
    """The schema of row images: the table's columns, with types that Spark has."""
    image = changes.before if changes.after is None else changes.after
    assert image is not None
    return pa.schema([pa.field(f.name, spark_type(f.type)) for f in image.schema])


def row_schema(image: pa.Schema, layout: Layout) -> pa.Schema:
    """The schema of the rows that `typed_rows` makes. Raises `BadOption`."""
    if layout == "flat":
        clash = {field.name for field in _HEAD} & set(image.names)
        if clash:
            raise BadOption(f"a table has a column {min(clash)}, as layout flat has: use struct")
        return pa.schema([*_HEAD, *image])
    both = pa.struct(list(image))
    return pa.schema([*_HEAD, pa.field("before", both), pa.field("after", both)])


def typed_rows(
    changes: Changes, places: Places, schema: pa.Schema, layout: Layout
) -> pa.RecordBatch:
    """Rows of a file, in the order of the log; `places` are the places of the changes in it."""
    count = len(changes)
    columns = [
        pa.repeat(pa.scalar(OPS[changes.kind]), count),
        *places.columns()[:_PLACE_COLUMNS],
        _present(changes),
    ]
    if layout == "flat":
        image = changes.before if changes.after is None else changes.after
        assert image is not None
        columns += image.columns
    else:
        kind = schema.field("after").type
        columns += [_struct(image, kind, count) for image in (changes.before, changes.after)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _struct(image: pa.RecordBatch | None, kind: pa.DataType, count: int) -> pa.Array:
    if image is None:
        return pa.nulls(count, kind)
    return pa.StructArray.from_arrays(image.columns, fields=list(kind))


def _present(changes: Changes) -> pa.Array:
    present = changes.before_present if changes.after is None else changes.after_present
    width = len(changes.table.columns)
    if len(present) == width:
        return pa.nulls(len(changes), pa.binary())
    return pa.repeat(pa.scalar(bitmap(present, width), pa.binary()), len(changes))


def bitmap(numbers: Sequence[int], width: int) -> bytes:
    """One bit for each column, the least first, 1 for True."""
    return sum(1 << i for i in numbers).to_bytes((width + 7) // 8, "little")
