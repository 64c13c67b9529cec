"""View files: a row for each part of the log, as its source tells of it without reading it.

    file                    number of the file
    first_page, end_page    pages from the one up to the other; null of an archive
    bytes                   how long it is; in a directory whole pages
    state_before            GTID binlog state in front of it
    state_behind            and behind it
    min_ts, max_ts          of a directory the times of the first group in it and of the first behind it, as far as
                            there are any: others in it may be earlier or later. Of an archive those of all its groups
    groups                  how many; null of a directory

A part of a directory goes from one record of the GTID state to the next, 2 MiB unless the server was told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import BadOption
from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.source import ListedSource, LogPart, LogSource
from binlog_pipeline.views.view import TIME
from binlog_pipeline.wanted import Wanted

FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("first_page", pa.int64()),
        pa.field("end_page", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("state_before", pa.string()),
        pa.field("state_behind", pa.string()),
        pa.field("min_ts", TIME),
        pa.field("max_ts", TIME),
        pa.field("groups", pa.int64()),
    ]
)
_SECOND: Final = 1_000_000
_TIMES: Final = (6, 7)


class FilesView:
    """See the module. It has no rows of groups: who reads it asks `files_slice` first."""

    schema: Final = FILES_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        return iter(())


@dataclass(frozen=True, slots=True)
class FilesSlice:
    """The one slice of view `files`: it has rows, and no groups."""

    parts: tuple[LogPart, ...]

    def read(self) -> Iterator[Groups]:
        return iter(())

    def rows(self) -> pa.RecordBatch:
        columns = [list(column) for column in zip(*self.parts, strict=True)] or [[]] * len(
            FILES_SCHEMA
        )
        for i in _TIMES:
            columns[i] = [None if s is None else s * _SECOND for s in columns[i]]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, FILES_SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=FILES_SCHEMA)


def files_slice(source: LogSource, wanted: Wanted) -> FilesSlice:
    """The slice of view `files`. Raises `BadOption` for a source that has no files."""
    if not isinstance(source, ListedSource):
        raise BadOption(f"{source.name} has no files to be looked at: choose another view")
    return FilesSlice(tuple(source.parts(wanted)))
