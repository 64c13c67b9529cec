"""All tables of a source as typed Parquet files, in one pass.

Each worker decodes its slice once and writes a file for each table that it meets, below OUT/_staging. When all are
done, the files are moved to OUT/DATABASE/TABLE/schema=N, and then one manifest says that they count. What a run that
was killed has left is not in the manifest: the next run removes it, and does the same again. So each row is there once.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.row_columns import ColumnOptions, RowDecoder
from binlog_protocol.sql.statements import TableName
from binlog_storage.disk.durable_files import sync_folder
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, DataLost, SourceError
from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.manifest import (
    MANIFEST,
    MOVES,
    ExportedFile,
    ExportedStatement,
    ExportManifest,
)
from binlog_pipeline.jobs.outlook import Outlook, outlook
from binlog_pipeline.jobs.typed_files import Layout, TypedFiles, WrittenFile
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.row_effects import OF_SEQUENCE
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.tables.lock import LOCK, sole_writer
from binlog_pipeline.telling import readable
from binlog_pipeline.views.changes_gathering import GatheredRows, gathered
from binlog_pipeline.views.changes_opening import column_options_of
from binlog_pipeline.views.changes_statements import (
    column_moves,
    refuse_non_row,
    row_statements,
)
from binlog_pipeline.views.prepared import PREPARED, ROLLED_BACK, XaStep, XaSteps
from binlog_pipeline.wanted import unreached

_STAGING: Final = "_staging"
_GATHER_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """The GTID position behind a run of an export, and the files, rows and bytes that it has added."""

    position: SlavePosition
    files: int
    rows: int
    bytes: int
    unknown: tuple[ExportedStatement, ...] = ()
    """Statements behind which the rows of a table are not those that were logged."""


@dataclass(frozen=True, slots=True)
class SliceExport:
    """Files, statements and steps of XA transactions of one slice; tables of which the log has no names of columns."""

    files: list[WrittenFile]
    statements: list[ExportedStatement]
    xa: list[XaStep]
    unnamed: set[TableName]


@dataclass(frozen=True, slots=True)
class ExportSlice:
    """The task: the files of one slice, below `staging`, which all workers see under that name."""

    staging: str
    layout: Layout
    wanted: Subscription
    seed: Seed
    columns: ColumnOptions
    is_strict: bool
    """Whether statements that change rows without logging them are refused."""

    def __call__(self, part: Slice) -> SliceExport:
        directory = Path(self.staging) / uuid.uuid4().hex
        directory.mkdir(parents=True)
        files = TypedFiles(directory, self.layout)
        unnamed: set[TableName] = set()
        decoder = RowDecoder(
            self.columns, lambda table: self.seed.of_wanted(table, self.wanted, unnamed)
        )
        statements: list[ExportedStatement] = []
        steps = XaSteps()
        xa: list[XaStep] = []
        for some in gathered(part.read(), decoder, _GATHER_BYTES, with_statements=True):
            if self.is_strict:
                refuse_non_row(some, self.wanted)
            statements += self._statements(some)
            xa += steps.of(some)
            files.add(some)
        return SliceExport(files.close(), statements, xa, unnamed)

    def _statements(self, some: GatheredRows) -> list[ExportedStatement]:
        told = [
            (placed, name, effect.op, effect.doubt)
            for placed, name, effect in row_statements(some, self.wanted)
        ]
        told += [
            (placed, name, MOVES, " ".join(sorted(moved)))
            for placed, name, moved in column_moves(some, self.wanted)
        ]
        told.sort(key=lambda one: (one[0].group, one[0].event))
        return [
            _exported(some.gtid(placed), name, op, placed.statement.sql, why)
            for placed, name, op, why in told
        ]


def _exported(gtid: Gtid, name: TableName, op: str, sql: str, why: str) -> ExportedStatement:
    return ExportedStatement(
        str(gtid), readable(name.database), readable(name.table), op, readable(sql), why
    )


def export(
    options: SourceOptions,
    target: Path,
    *,
    layout: Layout = "struct",
    engine: Engine | None = None,
) -> Exported:
    """Add to `target` what `options` mean and it has not. Raises `PipelineError`, `StorageError`, OSError.

    Args:
        options: the source; `tables`, ranges, and types of columns. A second run needs the same, but for the end.
    """
    target = local_path(target)
    source = open_source(options)
    # Asked first: a source that cannot be read leaves no empty target.
    earliest = None if target.exists() else source.earliest()
    with sole_writer(target, f"another export into {target} is running"):
        settings = _settings(options, layout)
        manifest = ExportManifest.read(target)
        if manifest is None:
            begin = options.start_gtid or (source.earliest() if earliest is None else earliest)
            manifest = ExportManifest(source.name, settings, begin=str(begin), position=str(begin))
            _begin(target, manifest)
        _check(manifest, settings, options.start_gtid, target)
        _clean(target, manifest)
        start = manifest.slave_position
        source.has_passed(start)
        end = _end(source, start, options.end_gtid)
        if end == start:
            return Exported(start, 0, 0, 0)
        staging = target / _STAGING
        task = ExportSlice(
            str(staging.absolute()),
            layout,
            Subscription.parse(options.tables),
            Seed.read(options.schema_seed),
            column_options_of(options),
            options.non_row == "fail",
        )
        wanted = options.wanted.between(start, end)
        try:
            slices = over_slices(task, source, wanted, engine, "export")
            return _publish(target, manifest, slices, end)
        finally:
            # Of an export that has failed nothing stays that somebody would read without its manifest.
            published = ExportManifest.read(target)
            if published is not None:
                _clean(target, published)


def would_export(options: SourceOptions, target: Path, *, layout: Layout = "struct") -> Outlook:
    """What `export` would do. Nothing is made, not even a lock. Raises as `export`."""
    target = local_path(target)
    source = open_source(options)
    manifest = ExportManifest.read(target)
    if manifest is None:
        _require_empty(target)
        begin = options.start_gtid or source.earliest()
    else:
        _check(manifest, _settings(options, layout), options.start_gtid, target)
        begin = manifest.slave_position
        source.has_passed(begin)
    end = _end(source, begin, options.end_gtid)
    return outlook(source, options.wanted, begin, end, is_new=manifest is None)


def _publish(
    target: Path, manifest: ExportManifest, slices: Sequence[SliceExport], end: SlavePosition
) -> Exported:
    """Files where they belong, then the manifest."""
    manifest.runs += 1
    manifest.position = str(end)
    folders: set[Path] = set()
    all_files = [file for one in slices for file in one.files]
    unnamed = {name for one in slices for name in one.unnamed}
    statements = [statement for one in slices for statement in one.statements]
    manifest.statements += statements
    statements += _judged(manifest, [step for one in slices for step in one.xa])
    for number, file in enumerate(all_files):
        schema = manifest.schema_of(file)
        name = f"part-{manifest.runs:05}-{number:06}.parquet"
        folder = target / schema.folder
        folder.mkdir(parents=True, exist_ok=True)
        Path(file.path).rename(folder / name)
        folders |= {folder, *list(folder.parents)[: len(Path(schema.folder).parts)]}
        schema.files.append(ExportedFile(name, file.rows, file.bytes, file.first, file.last))
        schema.is_unnamed |= TableName(file.database, file.table) in unnamed
    statements += manifest.mixing()
    for folder in folders:
        sync_folder(folder)
    manifest.write(target)
    rows, size = sum(file.rows for file in all_files), sum(file.bytes for file in all_files)
    unknown = tuple(one for one in statements if one.op == "x" and one.why != OF_SEQUENCE)
    return Exported(end, len(all_files), rows, size, unknown)


def _judged(manifest: ExportManifest, steps: Sequence[XaStep]) -> list[ExportedStatement]:
    """Statements for the manifest from XA transactions that are rolled back, or only prepared.

    One that was prepared in front of all that was exported has no rows in it.
    """
    added: list[ExportedStatement] = []
    for step in steps:
        prepared = f"XA PREPARE {step.xid}"
        if step.kind == PREPARED:
            why = "only prepared: its rows may be taken back"
            added += [
                _exported(step.gtid, name, "x", prepared, why) for name in sorted(step.tables)
            ]
            continue
        had = [one for one in (*manifest.statements, *added) if one.sql == prepared]
        manifest.statements = [one for one in manifest.statements if one.sql != prepared]
        added = [one for one in added if one.sql != prepared]
        if step.kind == ROLLED_BACK:
            sql = step.placed.statement.sql
            for one in had:
                name = TableName(one.database, one.table)
                why = f"takes back the rows of {one.gtid}"
                added.append(_exported(step.gtid, name, "x", sql, why))
    manifest.statements += added
    return added


def _end(source: LogSource, start: SlavePosition, wanted: SlavePosition | None) -> SlavePosition:
    """Up to where there is something, and it is wanted; not before `start`. Raises `DataLost`."""
    if wanted is not None:
        source.has_passed(wanted)
    latest = source.latest()
    for gtid in unreached(start, latest):
        raise DataLost(
            f"{source.name} ends at '{latest}', and {gtid} was exported before: it is another source, or has begun "
            "anew; export into another directory"
        )
    end = start
    for last in latest:
        stop = last if wanted is None else wanted.get(last.domain_id)
        known = start.get(last.domain_id)
        if stop is None or (known is not None and stop.seq_no <= known.seq_no):
            continue
        end = end.with_gtid(min(stop, last, key=lambda gtid: gtid.seq_no))
    return end


def _settings(options: SourceOptions, layout: Layout) -> dict[str, Any]:
    """The settings that all runs into a directory have in common."""
    domains = options.domains
    return {
        "layout": layout,
        "tables": list(options.tables),
        "domains": None if domains is None else sorted(domains),
        "start_time": options.start_time,
        "end_time": options.end_time,
        "columns": asdict(column_options_of(options)),
    }


def _begin(target: Path, manifest: ExportManifest) -> None:
    """Begin an empty directory with a manifest: files that are removed later are then ours. Raises `BadOption`."""
    _require_empty(target)
    manifest.write(target)


def _require_empty(target: Path) -> None:
    """Or not there at all. Raises `BadOption`."""
    there = {path.name for path in target.iterdir()} if target.exists() else set()
    others = there - {LOCK, f"{MANIFEST}.new"}
    if others:
        raise BadOption(
            f"{target} has {min(others)}, but no {MANIFEST}: export into a directory that is empty, or new"
        )


def _check(
    manifest: ExportManifest, settings: dict[str, Any], start: SlavePosition | None, target: Path
) -> None:
    """Whether this run may go on behind the others. Raises `BadOption`, `SourceError`."""
    if start is not None and start != SlavePosition.parse(manifest.begin):
        raise BadOption(
            f"{target} begins behind '{manifest.begin}': leave --start-gtid out to go on behind "
            f"'{manifest.position}', or export into another directory"
        )
    for name, value in manifest.settings.items():
        if settings.get(name) != value:
            raise BadOption(
                f"{target} was exported with {name} {value}, now {settings.get(name)} is wanted: say the same, or "
                "export into another directory"
            )
    missing = next((name for name in manifest.files if not (target / name).is_file()), None)
    if missing is not None:
        raise SourceError(
            f"{target / missing} is in the manifest, but is missing: restore it, or export into another directory"
        )


def _clean(target: Path, manifest: ExportManifest) -> None:
    """Without what a run that was killed has left."""
    shutil.rmtree(target / _STAGING, ignore_errors=True)
    known = manifest.files
    for path in target.glob("*/*/schema=*/part-*.parquet"):
        if str(path.relative_to(target)) not in known:
            path.unlink()
