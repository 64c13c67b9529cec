"""Changes of one shape as rows of a view: converted columns, the key, what was logged."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.rows import ChangeKind
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns import Changes

from binlog_pipeline.schemas.conversion import bitmap
from binlog_pipeline.schemas.evolution import Evolution, TableForm
from binlog_pipeline.schemas.row_effects import RowEffect
from binlog_pipeline.views.changes_gathering import Heads
from binlog_pipeline.views.changes_order import Places

OPS: Final = {ChangeKind.INSERT: "c", ChangeKind.UPDATE: "u", ChangeKind.DELETE: "d"}


@dataclass(frozen=True, slots=True)
class Rows:
    """Changes of one kind, whose columns are those of the view. `present` as in `_present`.

    before_present: the same of `before`.
    effect: of the statement that is in the place of a change.
    """

    op: str
    places: Places
    schema_id: int | None = None
    before: list[pa.Array] | None = None
    after: list[pa.Array] | None = None
    key: list[pa.Array] | None = None
    present: bytes | None = None
    before_present: bytes | None = None
    effect: RowEffect | None = None

    def __len__(self) -> int:
        return len(self.places)


class RowMaker:
    """Makes the rows of one table. Keeps the forms of layouts that it has met. One owner.

    with_statements: whether the statements that bring columns are told among the rows. Then a row of before is whole
        without them; else whoever reads it could not tell that they were not there from a NULL.
    """

    def __init__(self, evolution: Evolution, *, with_statements: bool) -> None:
        self._evolution: Final = evolution
        self._with_absent: Final = with_statements
        self._settled: Final[dict[TableMap, TableForm]] = {}

    def make(self, changes: Changes, heads: Heads) -> Rows:
        """Raises `SchemaChanged`, `IncompatibleSchema`."""
        form = self._form(changes, heads)
        before, after = changes.before, changes.after
        logged = changes.after_present if after is not None else changes.before_present
        present = partial(form.columns.present, with_absent=self._with_absent)
        return Rows(
            OPS[changes.kind],
            Places.of(changes, heads),
            form.schema_id,
            None if before is None else form.columns.columns(before),
            None if after is None else form.columns.columns(after),
            _key(form, changes),
            present(logged),
            None if before is None else present(changes.before_present),
        )

    def _form(self, changes: Changes, heads: Heads) -> TableForm:
        table = changes.table
        form = self._settled.get(table)
        if form is None:
            index = self._first_newer(changes, heads)
            form = self._evolution.form(table, heads.place(index), heads.gtid(index))
            if self._evolution.is_settled(table):
                self._settled[table] = form
        return form

    def _first_newer(self, changes: Changes, heads: Heads) -> int:
        """The first group behind what the view was opened with; the first of all if none is."""
        groups = changes.group - heads.first
        file, offset = self._evolution.found.place
        files = heads.file[groups]
        newer = (files > file) | ((files == file) & (heads.offset[groups] > offset))
        return int(groups[np.argmax(newer)])


def logged_columns(changes: Changes) -> bytes | None:
    """`_present` of the layout that the table had then; see `bitmap`."""
    logged = {*(changes.before_present if changes.after is None else changes.after_present)}
    return bitmap([number in logged for number in range(len(changes.table.columns))])


def _key(form: TableForm, changes: Changes) -> list[pa.Array]:
    """The key behind the change; columns that its image lacks did not change."""
    before, after = changes.before, changes.after
    if after is None:
        assert before is not None
        return form.key.columns(before)
    found = form.key.columns(after)
    if before is None:
        return found
    old = form.key.columns(before)
    sources = form.key.sources
    return [
        new if number in changes.after_present else was
        for number, new, was in zip(sources, found, old, strict=True)
    ]
