"""The columns that a table had, from the first row change in a source to the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.gtid import Gtid
from binlog_protocol.row_columns import event_runs

from binlog_pipeline.groups import Groups
from binlog_pipeline.jobs.cutting import cut
from binlog_pipeline.jobs.progress import Progress
from binlog_pipeline.jobs.workers import Engine, open_workers
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.columns import table_fields
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.views.changes_opening import column_options_of

_NAMES_AT: Final = HEADER_SIZE + 8  # of a table map, behind table id and flags
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
        names = b"".join(
            bytes((len(raw),)) + raw + b"\0"
            for raw in (n.encode("utf-8", "surrogateescape") for n in (self.database, self.name))
        )
        for groups in part.read():
            for i, data in _with(names, groups):
                for event in _table_maps(data, names):
                    body = event[HEADER_SIZE + _ID_SIZE :]
                    table = known.get(body)
                    if table is None:
                        table = replace(TableMap.parse(event), table_id=0, flags=0)
                        known[body] = table
                    gtid = groups.gtid(i)
                    one = LoggedLayout(table, gtid, gtid, int(groups.timestamp[i]))
                    _append(found, one)
        return found


def table_history(options: SourceOptions, engine: Engine | None = None) -> list[LoggedLayout]:
    """The layouts that `options.table` had, in the order of the log. Raises `PipelineError`, `StorageError`."""
    engine = engine or Engine()
    database, name = options.table.split(".")
    seed = Seed.read(options.schema_seed)
    slices, size = cut(open_source(options), options.wanted, engine.count)
    parts: dict[int, list[LoggedLayout]] = {}
    with (
        open_workers(engine, size) as workers,
        Progress(len(slices), "schema", "slice") as progress,
    ):
        for number, part in workers.map(FindLayouts(database, name), slices):
            parts[number] = part
            progress.add()
    found: list[LoggedLayout] = []
    for number in range(len(slices)):
        for one in parts[number]:
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


def _with(names: bytes, groups: Groups) -> Iterator[tuple[int, bytes]]:
    """Groups, or pieces of a large one, that have these bytes."""
    if groups.large is not None:
        for run in event_runs(groups.pieces(0)):
            if names in run:
                yield 0, run
        return
    for i, payload in enumerate(groups.payloads):
        if names in payload:
            yield i, payload


def _table_maps(data: bytes, names: bytes) -> Iterator[bytes]:
    """The same bytes in a value of a row are no table map: its header is looked at."""
    at = data.find(names)
    while at >= 0:
        begin = at - _NAMES_AT
        if begin >= 0 and data[begin + TYPE_OFFSET] == EventType.TABLE_MAP:
            length_at = begin + LENGTH_OFFSET
            length = int.from_bytes(data[length_at : length_at + 4], "little")
            if _NAMES_AT + len(names) < length <= len(data) - begin:
                yield data[begin : begin + length]
                at = begin + length - 1
        at = data.find(names, at + 1)
