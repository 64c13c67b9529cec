"""A file for `schemaSeed` from the DDL statements of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.ddl_catalog import DdlCatalog
from binlog_pipeline.schemas.ddl_history import apply
from binlog_pipeline.schemas.ddl_tables import TableLayout
from binlog_pipeline.schemas.logged_statements import LoggedStatement, ddl_in
from binlog_pipeline.schemas.seed_writing import write_tables
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table that is in the file.

    layouts: how many of it; hidden: how many of them are taken for a newer one where the log has no names.
    columns: of the newest; unknown_charsets: those of them whose character set is not known.
    """

    name: str
    layouts: int
    hidden: int
    columns: int
    unknown_charsets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DdlSeed:
    """The tables that were written; `unknown` are those left out, with the reason."""

    known: tuple[KnownTable, ...]
    unknown: tuple[tuple[str, str], ...]


def slice_statements(part: Slice) -> list[tuple[Gtid, LoggedStatement]]:
    """The task of a worker: the DDL statements of a slice, in the order of the log."""
    return [
        (groups.gtid(i), statement) for groups in part.read() for i, statement in ddl_in(groups)
    ]


def ddl_catalog(options: SourceOptions, engine: Engine | None = None) -> DdlCatalog:
    """The tables as the statements of a range leave them. Raises `PipelineError`, `StorageError`."""
    catalog = DdlCatalog()
    source = open_source(options)
    for found in over_slices(slice_statements, source, options.wanted, engine, "schema"):
        for gtid, statement in found:
            apply(catalog, statement, str(gtid))
    return catalog


def write_ddl_seed(options: SourceOptions, path: Path, engine: Engine | None = None) -> DdlSeed:
    """Write the file for `options.tables`, all for none; no file if no table is known.

    Raises `PipelineError`, `StorageError`, OSError.
    """
    wanted = Subscription.parse(options.tables)
    catalog = ddl_catalog(options, engine)
    entries: list[dict[str, Any]] = []
    known: list[KnownTable] = []
    for name, past in catalog.known():
        if wanted.has(*name):
            entries += [since.layout.entry(name, since.gtid) for since in past]
            known.append(_known(str(name), [since.layout for since in past]))
    if entries:
        write_tables(path, entries)
    unknown = [(str(name), why) for name, why in catalog.unknown.items() if wanted.has(*name)]
    told = [*(name for name, _ in catalog.known()), *catalog.unknown]
    for pattern in options.tables:
        one = Subscription.parse([pattern])
        if not any(one.has(*name) for name in told):
            unknown.append((pattern, "no statement is about it"))
    return DdlSeed(tuple(known), tuple(sorted(unknown)))


def _known(name: str, layouts: list[TableLayout]) -> KnownTable:
    """The description of a table for people; its layouts, the newest first."""
    hidden = sum(
        any(one.may_be_taken_for(newer) for newer in layouts[:i]) for i, one in enumerate(layouts)
    )
    newest = layouts[0]
    unknown = tuple(newest.unknown_charsets)
    return KnownTable(name, len(layouts), hidden, len(newest.logged_columns), unknown)
