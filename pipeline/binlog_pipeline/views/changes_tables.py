"""View changes of several tables: images as JSON objects, so that all have the same columns.

As in `changes.py`, but with `_db` and `_table`, and `_key`, `before` and `after` as strings (`json_rows.py`). Columns
that were not logged are not in the objects; `_present` counts the columns of the table as it was then. A `t` for a
database that was dropped has no `_table`. Rows keep the layout that they were logged with: nothing is converted. With x
in ops there is `_statement`, as in `changes.py`, also of XA transactions: one row for each of their tables. An `x`
without `_table` may be about all tables of `_db`: it is not known what it does, or it writes rows, in whichever
database, and is logged as text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.row_columns import Changes, ColumnOptions, RowDecoder, column_names
from binlog_protocol.sql.statements import ALL, TableName

from binlog_pipeline.groups import Groups
from binlog_pipeline.schemas.columns import key_names, schema_id, table_name
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import DdlBarrier, Subscription
from binlog_pipeline.sources.admission import Barrier
from binlog_pipeline.views.changes import in_order
from binlog_pipeline.views.changes_gathering import GatheredRows, Heads, gathered
from binlog_pipeline.views.changes_layouts import (
    OP,
    STATEMENT,
    Part,
    debezium_columns,
    debezium_schema,
    repeated,
    said,
)
from binlog_pipeline.views.changes_order import PLACE_FIELDS, Places
from binlog_pipeline.views.changes_rows import OPS, Rows, logged_columns
from binlog_pipeline.views.changes_statements import (
    emptied_tables,
    refuse_non_row,
    refuse_rollbacks,
    tell_elsewhere,
    told_of_tables,
    told_steps_of_tables,
)
from binlog_pipeline.views.json_rows import json_objects
from binlog_pipeline.views.prepared import XaStep, XaSteps

_STRUCT: Final = pa.schema(
    [
        OP,
        *PLACE_FIELDS,
        pa.field("_db", pa.string()),
        pa.field("_table", pa.string()),
        pa.field("_schema_id", pa.int64()),
        pa.field("_key", pa.string()),
        pa.field("_present", pa.binary()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
    ]
)
_WITH_STATEMENTS: Final = _STRUCT.append(pa.field("_statement", STATEMENT))
_DEBEZIUM: Final = debezium_schema(pa.string())
TABLE_LAYOUTS: Final = ("struct", "debezium")


@dataclass(frozen=True, slots=True)
class TablesView:
    """View `changes` of several tables; see the module. `layout` is one of `TABLE_LAYOUTS`."""

    subscription: Subscription
    seed: Seed
    column_options: ColumnOptions
    layout: str
    ops: frozenset[str]
    non_row: str
    batch_rows: int
    by_name: bool
    """Whether the log has names of columns at its end; tables whose maps have none are found as they come."""

    @property
    def schema(self) -> pa.Schema:
        if self.layout != "struct":
            return _DEBEZIUM
        return _WITH_STATEMENTS if "x" in self.ops else _STRUCT

    @property
    def barrier(self) -> Barrier:
        return DdlBarrier(self.subscription)

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        unnamed: set[TableName] = set()
        decoder = RowDecoder(
            self.column_options,
            lambda table: self.seed.of_wanted(table, self.subscription, unnamed),
        )
        with_statements = self.non_row == "fail" or bool({*"tx"} & self.ops)
        xa = XaSteps()
        touched: dict[str, bool] = {}
        prepared: dict[str, list[TableName]] = {}
        is_told = False
        for some in gathered(groups, decoder, with_statements=with_statements):
            steps = [*xa.of(some)]
            if self.non_row == "fail":
                refuse_non_row(some, self.subscription)
                refuse_rollbacks(steps, touched)
                if "x" not in self.ops:
                    is_told = is_told or tell_elsewhere(some, self.subscription)
            parts = chain(self._xa_parts(some, steps, prepared), self._parts(some, unnamed))
            yield from in_order(parts, self.batch_rows)

    def _xa_parts(
        self, some: GatheredRows, steps: list[XaStep], prepared: dict[str, list[TableName]]
    ) -> Iterator[Part]:
        if "x" in self.ops:
            for name, rows in told_steps_of_tables(some, steps, prepared):
                yield self._part(rows, name)

    def _parts(self, some: GatheredRows, unnamed: set[TableName]) -> Iterator[Part]:
        for name, rows in self._statements(some, unnamed):
            yield self._part(rows, name)
        for changes in some.changes:
            if OPS[changes.kind] in self.ops:
                yield self._part(_json_rows(changes, some.heads), table_name(changes.table))

    def _statements(
        self, some: GatheredRows, unnamed: set[TableName]
    ) -> Iterator[tuple[TableName, Rows]]:
        if "x" in self.ops:
            return told_of_tables(
                some,
                self.subscription,
                None if not self.by_name else unnamed,
                skips=self.non_row == "skip",
            )
        return emptied_tables(some, self.subscription) if "t" in self.ops else iter(())

    def _part(self, rows: Rows, name: TableName) -> Part:
        count = len(rows)
        before, after, key = (
            pa.nulls(count, pa.string()) if column is None else column[0]
            for column in (rows.before, rows.after, rows.key)
        )
        table = None if name.table == ALL else name.table
        if self.layout == "debezium":
            arrays = [before, after, *debezium_columns(rows, name.database, table)]
        else:
            arrays = [
                repeated(rows.op, pa.string(), count),
                *rows.places.columns(),
                repeated(name.database, pa.string(), count),
                repeated(table, pa.string(), count),
                repeated(rows.schema_id, pa.int64(), count),
                key,
                repeated(rows.present, pa.binary(), count),
                before,
                after,
            ]
            if "x" in self.ops:
                arrays.append(repeated(said(rows.effect), STATEMENT, count))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), rows.places


def _json_rows(changes: Changes, heads: Heads) -> Rows:
    """Images and key in one column of JSON each."""
    before, after = changes.before, changes.after
    return Rows(
        OPS[changes.kind],
        Places.of(changes, heads),
        schema_id(changes.table),
        None if before is None else [_objects(before, changes.before_present)],
        None if after is None else [_objects(after, changes.after_present)],
        _key(changes),
        logged_columns(changes),
    )


def _objects(image: pa.RecordBatch, present: Collection[int]) -> pa.Array:
    which = sorted(present)
    names = [image.schema.names[i] for i in which]
    return json_objects(names, [image.column(i) for i in which], len(image))


def _key(changes: Changes) -> list[pa.Array] | None:
    """The key behind the change, as JSON; None where the log does not tell it."""
    names = key_names(changes.table)
    if not names:
        return None
    numbers = column_names(changes.table)
    images = ((changes.after, changes.after_present), (changes.before, changes.before_present))
    columns = []
    for name in names:
        number = numbers.index(name)
        found = [image for image, present in images if image is not None and number in present]
        if not found:
            return None
        columns.append(found[0].column(number))
    return [json_objects(names, columns, len(changes))]
