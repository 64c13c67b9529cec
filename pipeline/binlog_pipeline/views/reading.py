"""A source through a view: which view the options mean, what is read side by side, and the rows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.views.changes import ChangesView
from binlog_pipeline.views.changes_opening import open_changes
from binlog_pipeline.views.ddl import DdlView
from binlog_pipeline.views.events import EventsView
from binlog_pipeline.views.files import FilesSlice, FilesView, files_slice
from binlog_pipeline.views.raw import RawView
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.views.view import View
from binlog_pipeline.wanted import Wanted

_VIEWS: Final[dict[str, Callable[[], View]]] = {
    "events": EventsView,
    "transactions": TransactionsView,
    "ddl": DdlView,
    "raw": RawView,
    "files": FilesView,
}


def open_view(options: SourceOptions, source: LogSource) -> View:
    """The view that the options name; the columns of view changes depend on the source. Raises `PipelineError`."""
    if options.view == "changes":
        return open_changes(options, source)
    return _VIEWS[options.view]()


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
