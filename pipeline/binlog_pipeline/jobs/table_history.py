"""The columns that a table had, from the first row change in a source to the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.gtid import Gtid

from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.columns import table_fields
from binlog_pipeline.schemas.search import map_names, table_maps, without_id
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.table_names import parsed_table
from binlog_pipeline.views.changes_opening import column_options_of

_ID_SIZE: Final = 6


@dataclass(frozen=True, slots=True)
class LoggedLayout:
    """A table as it was described from one group to another, with none in between that says otherwise."""

    table: TableMap
    first: Gtid
    last: Gtid
    timestamp: int
    """The time of `first`, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class FindLayouts:
    """The task: layouts of a table in a slice, in the order of the log."""

    database: str
    name: str

    def __call__(self, part: Slice) -> list[LoggedLayout]:
        found: list[LoggedLayout] = []
        known: dict[bytes, TableMap] = {}
        names = map_names(self.database, self.name)
        for groups in part.read():
            for i, event in table_maps(groups, names):
                body = event[HEADER_SIZE + _ID_SIZE :]
                if body not in known:
                    known[body] = without_id(event)
                gtid = groups.gtid(i)
                _append(found, LoggedLayout(known[body], gtid, gtid, int(groups.timestamp[i])))
        return found


def table_history(options: SourceOptions, engine: Engine | None = None) -> list[LoggedLayout]:
    """The layouts that `options.table` had, in the order of the log. Raises `PipelineError`, `StorageError`."""
    task = FindLayouts(*parsed_table(options.table))
    seed = Seed.read(options.schema_seed)
    found: list[LoggedLayout] = []
    for part in over_slices(task, open_source(options), options.wanted, engine, "schema"):
        for one in part:
            _append(found, replace(one, table=seed.applied(one.table)))
    return found


def layout_columns(layout: LoggedLayout, options: SourceOptions) -> dict[str, str]:
    """The names of the columns of a layout, and the Arrow types of their values."""
    fields = table_fields(layout.table, column_options_of(options))
    return {field.name: str(field.type) for field in fields}


def _append(found: list[LoggedLayout], one: LoggedLayout) -> None:
    if found and found[-1].table == one.table:
        found[-1] = replace(found[-1], last=one.last)
    else:
        found.append(one)
