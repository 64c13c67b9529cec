"""A source through a view: what is read side by side, and the rows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.views.changes import ChangesView
from binlog_pipeline.views.files import FilesSlice, FilesView, files_slice
from binlog_pipeline.views.view import View
from binlog_pipeline.wanted import Wanted


def slices_of(
    view: View, source: LogSource, wanted: Wanted, partition_bytes: int
) -> Sequence[Slice]:
    """See `LogSource.slices`; of view files there is one. Raises as that does, and `BadOption`."""
    if isinstance(view, FilesView):
        return [files_slice(source, wanted)]
    return source.slices(wanted, partition_bytes)


def rows_of(view: View, part: Slice, *, begins: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a slice. Raises as `View.batches`, and `Slice.read`.

    Args:
        begins: whether nothing was read in front of it: no other slice, and no batch since a stream was started.
    """
    if isinstance(part, FilesSlice):
        return iter((part.rows(),))
    if isinstance(view, ChangesView):
        view = replace(view, begins=begins)
    return view.batches(part.read())
