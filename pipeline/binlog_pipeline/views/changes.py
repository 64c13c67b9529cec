"""View changes of one table: a row for each row that was inserted, updated or deleted.

    _op          c (INSERT), u (UPDATE), d (DELETE); with ops=c,u,d,t also t: a statement that leaves the table empty
                 (TRUNCATE, DROP TABLE, DROP DATABASE, CREATE OR REPLACE). With ops=c,u,d,t,x also x: a statement behind
                 which the rows of the table are not what the rows of the log say; a: one behind which they are, though
                 columns have come or gone; and t for CREATE TABLE: see `schemas/row_effects.py`
    _gtid        of the group
    _ts          when its statement began, UTC
    _order       place of the row in the log, see `changes_order.py`
    _order_key   the same as 24 bytes
    _schema_id   a number for the layout that the table had when the row was logged
    _key         the primary key as it is behind the change, of a d as it was; there is no such column if the log
                 names no key
    _present     bit i, least first, says that column i of `after` (of `before`, for a d) was logged; null: all were
    before       the columns as they were, null for c
    after        the columns as they are now, null for d
    _before_present, _statement   with ops=c,u,d,t,x: `_present` of `before`; and of t, a, x what the statement says

Rows come in the order of the log. The other layouts are in `changes_layouts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import chain

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.row_columns import RowDecoder, column_names
from binlog_protocol.sql.statements import TableName

from binlog_pipeline.groups import Groups
from binlog_pipeline.schemas.columns import table_name
from binlog_pipeline.schemas.default_charsets import DefaultCharsets
from binlog_pipeline.schemas.evolution import Evolution
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import DdlBarrier, Subscription
from binlog_pipeline.sources.admission import Barrier
from binlog_pipeline.views.changes_gathering import GatheredRows, gathered
from binlog_pipeline.views.changes_layouts import ChangesLayout, Part
from binlog_pipeline.views.changes_order import log_order
from binlog_pipeline.views.changes_rows import OPS, RowMaker, Rows
from binlog_pipeline.views.changes_statements import (
    MovedNumbers,
    ReusedNames,
    emptied_tables,
    refuse_non_row,
    refuse_rollbacks,
    tell_elsewhere,
    told_statements,
    told_steps,
)
from binlog_pipeline.views.prepared import XaStep, XaSteps


@dataclass(frozen=True, slots=True)
class ChangesView:
    """View `changes` of one table; see the module."""

    evolution: Evolution
    layout: ChangesLayout
    subscription: Subscription
    seed: Seed
    ops: frozenset[str]
    non_row: str
    batch_rows: int
    by_name: bool
    """Whether the log, not only a seed, has names of its columns."""
    begins: bool = True
    """Whether nothing was read in front of the groups; else an ALTER TABLE may stand between rows as the first."""
    numbered: set[TableName] = field(default_factory=set, compare=False)
    """See `told_statements`: of all slices that were read by this view."""
    charsets: DefaultCharsets = field(default_factory=DefaultCharsets, compare=False)
    """The same."""

    @property
    def schema(self) -> pa.Schema:
        return self.layout.schema

    @property
    def barrier(self) -> Barrier:
        return DdlBarrier(self.subscription)

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        maker = RowMaker(self.evolution, with_statements="x" in self.ops)
        decoder = RowDecoder(
            self.evolution.options,
            lambda table: self.seed.of_wanted(table, self.subscription),
            self.evolution.used,
        )
        with_statements = (
            self.non_row == "fail" or bool({*"tx"} & self.ops) or not self.evolution.believes_names
        )
        xa = XaSteps()
        touched: dict[str, bool] = {}
        left_out: set[str] = set()
        is_told = False
        found = self.evolution.found
        columns = {field.name.casefold() for field in self.evolution.fields}
        names = ReusedNames(self._name, columns, found.place, begins=self.begins)
        numbers = MovedNumbers(found, begins=self.begins)
        for some in gathered(groups, decoder, with_statements=with_statements):
            if not self.evolution.believes_names:
                names.refuse(some)
                if not self.by_name:
                    numbers.refuse(some)
            steps = [*xa.of(some)]
            if self.non_row == "fail":
                refuse_non_row(some, self.subscription)
                if "x" not in self.ops:
                    refuse_rollbacks(steps, touched)
                    is_told = is_told or tell_elsewhere(some, self.subscription)
            parts = chain(
                self._xa_parts(some, steps, left_out) if "x" in self.ops else (),
                self._parts(some, maker),
            )
            yield from in_order(parts, self.batch_rows)

    @property
    def _name(self) -> TableName:
        return table_name(self.evolution.found.table)

    def _xa_parts(
        self, some: GatheredRows, steps: Iterable[XaStep], left_out: set[str]
    ) -> Iterator[Part]:
        for rows in told_steps(some, steps, self._name, left_out, skips=self.non_row == "skip"):
            yield from self.layout.parts(rows)

    def _parts(self, some: GatheredRows, maker: RowMaker) -> Iterator[Part]:
        for rows in self._statements(some):
            yield from self.layout.parts(rows)
        for changes in some.changes:
            rows = maker.make(changes, some.heads)
            if OPS[changes.kind] in self.ops:
                yield from self.layout.parts(rows)

    def _statements(self, some: GatheredRows) -> Iterator[Rows]:
        if "x" in self.ops:
            yield from told_statements(
                some,
                self._name,
                column_names(self.evolution.found.table),
                self.numbered,
                self.charsets,
                by_name=self.by_name,
                skips=self.non_row == "skip",
            )
        elif "t" in self.ops:
            for _, rows in emptied_tables(some, self.subscription):
                yield rows


def in_order(parts: Iterable[Part], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of the parts in the order of the log, in batches of so many."""
    found = [(batch, places) for batch, places in parts if len(places)]
    if not found:
        return
    batch = found[0][0] if len(found) == 1 else pa.concat_batches([batch for batch, _ in found])
    order = log_order([places for _, places in found])
    if order is not None:
        batch = batch.take(pa.array(order))
    for begin in range(0, len(batch), batch_rows):
        yield batch.slice(begin, batch_rows)
