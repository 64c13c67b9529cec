"""A table kept as a Delta table, by the library deltalake: no JVM, no Spark package.

A batch is one commit of the Delta log, MERGE or, behind a TRUNCATE, an overwrite. Its metadata has the GTID position
(`binlog.position`), which says what is new, so a batch that comes twice counts once; and what is known of the table
(`binlog.complete`, `binlog.facts`: see `facts.py`). Before it, where the table's columns are others now, one commit
takes out those that were dropped, and gives the rest the types of now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.schemas.conversion import require_convertible, unfit
from binlog_pipeline.tables.effects import Effects, effects
from binlog_pipeline.tables.facts import Facts, refusal
from binlog_pipeline.tables.fold import fold, last_effects
from binlog_pipeline.tables.rewriting import Rewriting, new_keys
from binlog_pipeline.tables.watermark import behind

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_POSITION: Final = "binlog.position"
_COMPLETE: Final = "binlog.complete"
_FACTS: Final = "binlog.facts"
_LOGGED_AS: Final = "binlog.logged_as"
_REMOVES: Final = "__removes"
_PRESENT: Final = "__present_"


class DeltaState:
    """A target. One writer.

    Raises `BadOption` without deltalake, and for a target of another table.
    """

    takes_parts: Final = False

    def __init__(self, target: Path, table: str, keys: Sequence[str], begin: SlavePosition) -> None:
        try:
            import deltalake
        except ImportError:
            raise BadOption(
                "a Delta table needs the library deltalake: pip install '.[delta]'"
            ) from None
        self._delta: Final = deltalake
        self._target: Final = str(local_path(target))
        self._shown_name: Final = table
        self.keys = list(keys)
        self.logged_as = table
        self.position = begin
        self._facts = Facts()
        self._has_columns = True
        self._table: DeltaTable | None = None
        if deltalake.DeltaTable.is_deltatable(self._target):
            self._table = deltalake.DeltaTable(self._target)
            self.position = self._published(self._table)

    @property
    def is_new(self) -> bool:
        """Whether there is no table yet."""
        return self._table is None

    @property
    def columns(self) -> pa.Schema:
        """The columns that are kept; none as long as no row was there."""
        if self._table is None or not self._has_columns:
            return pa.schema([])
        return pa.schema(self._table.schema().to_arrow())

    @property
    def has_rows(self) -> bool:
        """Whether rows are kept."""
        return self._table is not None and bool(self._table.to_pyarrow_dataset().count_rows())

    @property
    def facts(self) -> Facts:
        return self._facts

    def name(self, logged_as: str) -> None:
        """What follows comes under that name."""
        self.logged_as = logged_as

    def begin_anew(self, keys: Sequence[str]) -> None:
        """What follows begins with the statement that makes the table."""
        self.keys = list(keys)
        self._has_columns = False

    def find_by(self, keys: Sequence[str]) -> None:
        """Rows are told apart by these columns from here on."""
        self.keys = list(keys)

    def rewrite(self, made: Rewriting, position: SlavePosition, facts: Facts) -> None:
        """Take the rows behind an ALTER TABLE, which stands in front of the position, in one commit.

        All are in memory. Raises `NotUnderstood`, and then all is as it was.
        """
        keys = new_keys(made, self.keys, has_rows=self.has_rows)
        rows = made.rows(read_delta(Path(self._target)))
        require_delta_types(rows.schema)
        self.keys, self._facts = keys, facts
        self._overwrite(rows, position)
        self.position = position

    def doubt_all(self, text: str, facts: Facts, *, goes_on: bool) -> None:
        """What the rows are is not known behind a statement; `goes_on` takes them as they are.

        Raises `NonRowChange`.
        """
        if not goes_on:
            raise refusal(self._shown_name, text, self.position, self._facts)
        self._facts = replace(facts, doubt=facts.doubt or text)

    def forget_columns(self, facts: Facts) -> None:
        """No row is there, and what its columns would be is not known."""
        self._facts = facts
        self._has_columns = False

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the table are in it, and none that may go."""
        return self._facts.is_complete

    @property
    def doubt(self) -> str:
        """The reason for which rows may be wrong or missing; empty for none."""
        return self._facts.whole_doubt

    def load(self, rows: pa.Table, position: SlavePosition) -> None:
        """A copy of the table as it was at that position, for a new target."""
        require_delta_types(rows.schema)
        self._facts = replace(self._facts, is_whole=True)
        self._overwrite(rows, position)
        self.position = position

    def take_over(
        self, rows: pa.Table, keys: Sequence[str], position: SlavePosition, facts: Facts
    ) -> None:
        """Publish these rows in the place of all that is there, in one commit."""
        require_delta_types(rows.schema)
        self.keys, self._facts, self._has_columns = list(keys), facts, True
        self._overwrite(rows, position)
        self.position = position

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        """Changes of the table up to the position, in one commit. Raises `PipelineError`, deltalake's errors."""
        assert position is not None
        changes = behind(changes, self.position)
        if not len(changes):
            return
        there = self.columns.names if self._table is not None else []
        found = effects(changes, self.keys, self._facts, there)
        if found.unknown:
            raise refusal(self._shown_name, found.unknown, self.position, self._facts)
        require_delta_types(found.rows.schema)
        is_anew = found.empties or not self._has_columns
        if not is_anew:
            self._take_schema(found.rows.schema)
        self._facts = found.facts  # only now: the commit above stands at the position of before
        self._has_columns = bool(there or len(found))
        if self._table is None or is_anew:
            self._overwrite(fold(found.rows.slice(0, 0), found, self.keys), position)
        else:
            self._merge(self._table, last_effects(found, self.keys), position)
        self.position = position

    def flush(self, position: SlavePosition) -> None:
        """A commit was made for each `add`."""

    def _published(self, table: DeltaTable) -> SlavePosition:
        for commit in table.history():
            if _POSITION in commit:
                name, keys = json.loads(commit.get("binlog.table", "[null, []]"))
                if name != self._shown_name or (self.keys and self.keys != keys):
                    raise BadOption(
                        f"{self._target} holds {name} by {', '.join(keys)}, not {self._shown_name} by "
                        f"{', '.join(self.keys)}"
                    )
                self.keys = keys
                self.logged_as = commit.get(_LOGGED_AS, name)
                facts = Facts.of(json.loads(commit[_FACTS])) if _FACTS in commit else Facts()
                is_whole = commit.get(_COMPLETE) == "true" or facts.is_whole
                self._facts = replace(facts, is_whole=is_whole)
                return SlavePosition.parse(commit[_POSITION])
        raise SourceError(f"{self._target} is a Delta table that this program has not written")

    def _commit(self, position: SlavePosition) -> CommitProperties:
        metadata = {
            _POSITION: str(position),
            "binlog.table": json.dumps([self._shown_name, self.keys]),
            _LOGGED_AS: self.logged_as,
            _COMPLETE: str(self.is_complete).lower(),
            _FACTS: json.dumps(self._facts.content()),
        }
        return self._delta.CommitProperties(custom_metadata=metadata)

    def _take_schema(self, schema: pa.Schema) -> None:
        """Take out columns that are dropped, whose values a new one of the name would have; convert those that changed.

        MERGE keeps the types that are there, so it would write what is cut to them. Raises `SourceError`, before
        anything is written, for values that are kept and are not the same in the new type.
        """
        if self._table is None:
            return
        then = pa.schema(self._table.schema().to_arrow())
        now = pa.schema(self._delta.Schema.from_arrow(schema).to_arrow())  # as Delta has its types
        kept = [column for column in then if column.name in now.names]
        changed = [column for column in kept if column.type != now.field(column.name).type]
        if len(kept) == len(then) and not changed:
            return
        data = self._table.to_pyarrow_dataset()
        if not data.count_rows():
            self._overwrite(schema.empty_table(), self.position)
            return
        require_convertible(self._shown_name, then, now)
        columns = {column.name: pc.field(column.name) for column in kept}
        for column in changed:
            name, type_ = column.name, now.field(column.name).type
            columns[name] = pc.field(name).cast(type_)
            try:
                for _ in data.scanner(columns={name: columns[name]}).to_batches():
                    pass
            except pa.ArrowException as error:
                where = f"column {name} of {self._shown_name}"
                raise unfit(where, column.type, type_, error) from None
        self._overwrite(data.scanner(columns=columns).to_reader(), self.position)

    def _overwrite(self, rows: pa.Table | pa.RecordBatchReader, position: SlavePosition) -> None:
        self._delta.write_deltalake(
            self._target,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=self._commit(position),
        )
        self._table = self._delta.DeltaTable(self._target)

    def _merge(self, table: DeltaTable, found: Effects, position: SlavePosition) -> None:
        names = found.rows.column_names
        source = found.rows.append_column(_REMOVES, pa.array(found.removes))
        inserted = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        updated = dict(inserted)
        if found.present is not None:
            for number, name in enumerate(names):
                flag = f"{_PRESENT}{number}"
                source = source.append_column(flag, pa.array(found.present[:, number]))
                if name not in self.keys:
                    column = _quoted(name)
                    updated[column] = f"CASE WHEN s.{flag} THEN s.{column} ELSE t.{column} END"
        match = " AND ".join(  # the brackets are needed: AND binds more there
            f"(s.{_quoted(k)} IS NOT DISTINCT FROM t.{_quoted(k)})" for k in self.keys
        )
        (
            table.merge(
                source,
                predicate=match,
                source_alias="s",
                target_alias="t",
                merge_schema=True,
                commit_properties=self._commit(position),
            )
            .when_matched_delete(predicate=f"s.{_REMOVES}")
            .when_matched_update(updates=updated, predicate=f"NOT s.{_REMOVES}")
            .when_not_matched_insert(updates=inserted, predicate=f"NOT s.{_REMOVES}")
            .execute()
        )


def read_delta(target: Path) -> pa.Table:
    """The table as it is now."""
    import deltalake

    return pa.table(deltalake.DeltaTable(str(local_path(target))).to_pyarrow_table())


def require_delta_types(schema: pa.Schema) -> None:
    """Raises `BadOption` for a column that Delta has no type for."""
    for column in schema:
        if pa.types.is_duration(column.type):
            raise BadOption(
                f"column {column.name} is a TIME, which Delta has no type for: say time=micros or time=string"
            )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
