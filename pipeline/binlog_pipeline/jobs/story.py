"""The story of a table that is kept, chapter by chapter: stretches of the log in which it has one name and one layout.

Where the log has no names of columns, a seed is given, only some columns are wanted, or changes are kept instead of the
table, there is one chapter, and a statement that changes what rows are is told among the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.table_map import KeyPart, TableColumn
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.asked import described, encoded
from binlog_pipeline.schemas.columns import is_named
from binlog_pipeline.schemas.ddl_columns import lower
from binlog_pipeline.schemas.evolution import require_logged
from binlog_pipeline.schemas.lineage import (
    PlacedDdl,
    TableStretch,
    TableTurn,
    charsets_before,
    lineage,
    numbered_before,
    placed_ddl,
)
from binlog_pipeline.schemas.row_effects import row_effect
from binlog_pipeline.schemas.search import FoundTable, newest_table
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.table_names import parsed_table, table_text
from binlog_pipeline.tables.facts import kept_by_others
from binlog_pipeline.tables.rewriting import Rewriting
from binlog_pipeline.tables.sinks import KeptTable, TableSink
from binlog_pipeline.telling import doubted
from binlog_pipeline.views.changes import ChangesView
from binlog_pipeline.views.changes_opening import column_options_of, table_of, view_of_table

_COMPUTED: Final = "a column of the table may be computed of one that changes"
_IMAGES: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class Chapter:
    """One stretch, and how it is read.

    found: the table as rows of the stretch have it; of a stretch without rows as it was before.
    has_rows: whether there are rows of the table in the stretch.
    keys: the columns that tell rows apart in it; none if that is not known.
    is_alone: whether it is the only one as statements may not be followed.
    is_of_another: whether that is so as the name has gone to a table that was there before.
    """

    stretch: TableStretch
    view: ChangesView
    found: FoundTable
    has_rows: bool
    keys: Sequence[str]
    is_alone: bool
    is_of_another: bool = False

    def batches(self, groups: Iterable[Groups], kept: TableSink) -> Iterator[pa.RecordBatch]:
        """The changes; statements alone if there are no rows."""
        for batch in self.view.batches(groups):
            if self.has_rows or not isinstance(kept, KeptTable):
                yield batch
            else:
                yield _bare(batch, kept)

    def enter(
        self, kept: KeptTable, options: SourceOptions, before: Mapping[str, TableColumn]
    ) -> Mapping[str, TableColumn]:
        """Bring the table that is kept behind the turn; its columns then, as far as table maps tell them.

        Raises `BadOption`, `NonRowChange`.

        Args:
            before: what the chapter in front of it gave.
        """
        if self.is_alone:
            if self.keys and [*kept.keys] != [*self.keys]:
                raise kept_by_others(
                    "the target", options.table, kept.keys, options.table, self.keys
                )
            return {}
        turn = self.stretch.turn
        if self.stretch.is_begun and not kept.is_new:
            kept.begin_anew(self.keys)
        columns = {column.name or "": column for column in self.found.table.columns}
        behind = before
        if turn is not None and turn.alteration is not None:
            behind = _turn(kept, turn, before, columns if self.has_rows else {}, options)
        self._require_logged(kept)
        kept.name(table_text(self.stretch.name))
        if self.has_rows and self.keys:
            kept.find_by(self.keys)
        elif self.has_rows and not kept.keys:
            raise SourceError(
                f"{self.stretch.name} has no primary key, and rows came behind '{self.stretch.start}': name "
                "unique columns that are NOT NULL by --keys, or keep the table as it was before (--at-gtid)"
            )
        if self.has_rows or (turn is None and {*columns} == {*kept.columns.names}):
            return columns
        return behind

    def _require_logged(self, kept: KeptTable) -> None:
        """Raises `NonRowChange` if columns came or went without a statement in the log since what is kept."""
        if self.has_rows and kept.has_rows and self.view.evolution.keeps_columns:
            names = [field.name for field in self.view.evolution.fields]
            where = f"those behind '{self.stretch.start}'"
            require_logged(self.stretch.name, names, kept.columns.names, where)


def _bare(batch: pa.RecordBatch, kept: KeptTable) -> pa.RecordBatch:
    """Statements with the columns that are kept, whatever the log had when rows of the table came last."""
    fields = [*kept.columns] or [pa.field(key, pa.string()) for key in kept.keys]
    nothing = pa.nulls(len(batch), pa.struct(fields))
    names = [name for name in batch.schema.names if name != "_key"]
    arrays = [nothing if name in _IMAGES else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _turn(
    kept: KeptTable,
    turn: TableTurn,
    before: Mapping[str, TableColumn],
    logged: Mapping[str, TableColumn],
    options: SourceOptions,
) -> Mapping[str, TableColumn]:
    """Rewrite what is kept; its columns behind it, as far as they are known. Raises `NonRowChange`.

    Args:
        before, logged: its columns in rows in front of it and behind it; none if there are no rows.
    """
    assert turn.alteration is not None
    placed = turn.placed
    gtid, sql = str(placed.gtid), placed.said.sql
    facts = kept.facts
    given = facts.given.seen(before).behind(turn.alteration, turn.of_database).seen(logged)
    unknown = replace(
        facts, is_defined=False, is_plain=False, computed=(), defaulted=(), sources=()
    )
    unknown = replace(unknown, charset=given.charset, taken=given.taken)
    if not kept.columns.names:
        kept.forget_columns(unknown)
        return {}
    try:
        made = Rewriting.of(
            turn.alteration,
            placed,
            kept.columns.names,
            before,
            column_options_of(options),
            given.charset or None,
            is_empty=not kept.has_rows,
        )
        if kept.has_rows and made.converts_values and not facts.is_plain:
            raise NotUnderstood(_COMPUTED)
        doubt = ""
        if turn.effect is not None and turn.effect.op == "a" and turn.effect.doubt:
            doubt = doubted(gtid, sql, turn.effect.doubt)
        behind = facts.rewritten(made.names, made.defaulted, doubt, given)
        behind = replace(behind, described=_described_behind(facts.described, made))
        kept.rewrite(made, placed.behind, behind)
        return made.columns
    except NotUnderstood as error:
        if kept.has_rows:
            why = doubted(gtid, sql, str(error))
            kept.doubt_all(why, unknown, goes_on=options.non_row == "skip")
        else:
            kept.forget_columns(unknown)
        return {}


def _described_behind(text: str, made: Rewriting) -> str:
    """The description of the table behind an ALTER TABLE; empty if not all of its columns are known."""
    if not text or {*made.columns} != {*made.names.values(), *made.columns}:
        return ""
    was = described(text)
    columns = tuple(made.columns.values())
    names = [column.name for column in columns]
    key = made.key or tuple(
        made.names.get(was.columns[part.column].name or "", "") for part in was.primary_key or ()
    )
    if not {*key} <= {*names}:
        return ""
    parts = tuple(KeyPart(names.index(name), 0) for name in key) or None
    return encoded(replace(was, columns=columns, primary_key=parts))


def story_of(
    options: SourceOptions,
    source: LogSource,
    kept: TableSink,
    start: SlavePosition,
    end: SlavePosition,
    keys: list[str],
) -> list[Chapter]:
    """The chapters of the table from one position to another, at least one.

    Args:
        keys: the names that columns have at the end which tell rows apart; the primary key without any.
    """
    stretches: list[TableStretch] = []
    if isinstance(kept, KeptTable) and not options.columns and not options.schema_seed:
        ddl = _ddl_of(options, source, start, end)
        stretches = lineage(parsed_table(options.table), start, end, ddl) or []
        found = _followed(options, source, kept, start, stretches, ddl, keys)
        if found:
            return found
    newest = _described(options, source, kept, start) or table_of(options, source)
    view = view_of_table(options, newest)
    whole = TableStretch(parsed_table(options.table), start, end)
    chosen = keys or primary_key(view.schema)
    is_other = isinstance(kept, KeptTable) and not kept.is_new and _is_other(stretches, kept)
    return [Chapter(whole, view, newest, True, chosen, is_alone=True, is_of_another=is_other)]


def is_begun(
    options: SourceOptions, source: LogSource, begin: SlavePosition, end: SlavePosition
) -> bool:
    """Whether the log has all of the table that has the name at the end, from its CREATE TABLE on."""
    ddl = _ddl_of(options, source, begin, end)
    stretches = lineage(parsed_table(options.table), begin, end, ddl)
    return stretches is not None and stretches[0].is_begun


def _ddl_of(
    options: SourceOptions, source: LogSource, start: SlavePosition, end: SlavePosition
) -> list[PlacedDdl]:
    slices = source.slices(options.wanted.between(start, end), options.partition_bytes)
    stream = (groups for part in slices for groups in part.read())
    return [*placed_ddl(stream, start)]


def _is_other(stretches: Sequence[TableStretch], kept: KeptTable) -> bool:
    """Whether the table was there before what is read, under another name than the one that is kept."""
    if not stretches or stretches[0].is_begun:
        return False
    return stretches[0].name != parsed_table(kept.logged_as)


def _followed(
    options: SourceOptions,
    source: LogSource,
    kept: KeptTable,
    start: SlavePosition,
    stretches: Sequence[TableStretch],
    ddl: Sequence[PlacedDdl],
    keys: list[str],
) -> list[Chapter] | None:
    """The chapters, if the table can be followed."""
    if not stretches:
        return None
    first = stretches[0]
    if _is_other(stretches, kept) and (not kept.is_new or options.start_gtid is not None):
        return None
    if none_since := _described(options, source, kept, start):
        founds: list[FoundTable | None] = [none_since] * len(stretches)
    else:
        founds = [_found(options, source, one) for one in stretches]
        if not first.is_begun:
            founds[0] = _described(options, source, kept, start, first.stop) or founds[0]
    known = [found for found in founds if found is not None]
    if not known or not all(is_named(found.table) for found in known):
        return None
    numbered = numbered_before(ddl, first.start)
    charsets = charsets_before(ddl, first.start)
    chapters: list[Chapter] = []
    names = _names_back(keys, stretches)
    is_by_others = bool(kept.keys) and names[0] != [*kept.keys]
    if keys and not kept.is_new and not first.is_begun and is_by_others:
        raise kept_by_others("the target", options.table, kept.keys, options.table, names[0])
    for number, (one, found) in enumerate(zip(stretches, founds, strict=True)):
        has_rows = found is not None and _is_behind(found.gtid, one.start)
        others = (one for one in (*founds[number:], *founds[::-1]) if one is not None)
        meant = next(others) if found is None else found
        named = replace(meant.table, database=one.name.database, table=one.name.table)
        meant = replace(meant, table=named)
        view = view_of_table(replace(options, table=table_text(one.name)), meant)
        view = replace(view, numbered=numbered, charsets=charsets)
        if options.non_row != "skip" and not _is_told_of(one, ddl):
            view = replace(view, evolution=replace(view.evolution, keeps_columns=True))
        chosen = names[number] or (primary_key(view.schema) if has_rows else [])
        chapters.append(Chapter(one, view, meant, has_rows, chosen, is_alone=False))
    # Of a table that is made anew, and has no row yet, those of the one before stand for what it will have.
    of_any = next((one.keys for one in chapters if one.keys), primary_key(chapters[0].view.schema))
    return [replace(chapters[0], keys=chapters[0].keys or of_any), *chapters[1:]]


def _is_told_of(one: TableStretch, ddl: Sequence[PlacedDdl]) -> bool:
    """Whether a statement in the stretch, but for its CREATE TABLE, has an effect on the table: it tells of it itself,
    or empties the table."""
    told = [
        placed
        for placed in ddl
        if _is_behind(placed.gtid, one.start)
        and not _is_behind(placed.gtid, one.stop)
        and row_effect(placed.said, one.name) is not None
    ]
    return len(told) > one.is_begun


def _found(options: SourceOptions, source: LogSource, one: TableStretch) -> FoundTable | None:
    """The table as the log has it last in a stretch, or before it."""
    try:
        return table_of(replace(options, table=table_text(one.name), end_gtid=one.stop), source)
    except BadOption:
        return None


def _described(
    options: SourceOptions,
    source: LogSource,
    kept: TableSink,
    start: SlavePosition,
    stop: SlavePosition | None = None,
) -> FoundTable | None:
    """The table as a server has described it, if the log has no row of it from there on; None to look into the log."""
    if not isinstance(kept, KeptTable) or not kept.facts.described:
        return None
    database, table = parsed_table(options.table if stop is None else kept.logged_as)
    end = options.end_gtid if stop is None else stop
    if newest_table(source, (database, table), end, by_numbers=source.is_growing, start=start):
        return None
    domain = next((gtid.domain_id for gtid in start), 0)
    return FoundTable(described(kept.facts.described), Position(0, 0), Gtid(domain, 0, 0))


def _is_behind(gtid: Gtid, start: SlavePosition) -> bool:
    last = start.get(gtid.domain_id)
    return last is None or gtid.seq_no > last.seq_no


def _names_back(keys: list[str], stretches: Sequence[TableStretch]) -> list[list[str]]:
    """The names of these columns in each stretch, by those that they have in the last one."""
    found = [keys]
    for one in reversed(stretches[1:]):
        turn = one.turn
        if turn is not None and turn.alteration is not None:
            renamed = {lower(new): old for old, new, _ in turn.alteration.renamed}
            renamed |= {
                lower(change.definition.name): change.old
                for change in turn.alteration.changes
                if change.old is not None
            }
            keys = [renamed.get(lower(key), key) for key in keys]
        found.append(keys)
    return found[::-1]


def primary_key(schema: pa.Schema) -> list[str]:
    """The names of the columns of `_key`; none if the schema has no `_key`."""
    if "_key" not in schema.names:
        return []
    return [field.name for field in schema.field("_key").type]
