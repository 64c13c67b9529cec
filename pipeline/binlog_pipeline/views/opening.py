"""Which view the options mean."""

from __future__ import annotations

from binlog_pipeline.errors import BadOption
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.views.changes_opening import open_changes
from binlog_pipeline.views.ddl import DdlView
from binlog_pipeline.views.events import EventsView
from binlog_pipeline.views.files import FilesView
from binlog_pipeline.views.raw import RawView
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.views.view import View


def open_view(options: SourceOptions, source: LogSource) -> View:
    """The view that the options name; the columns of view changes depend on the source. Raises `PipelineError`."""
    if options.view == "events":
        return EventsView()
    if options.view == "transactions":
        return TransactionsView()
    if options.view == "files":
        return FilesView()
    if options.view == "raw":
        return RawView()
    if options.view == "ddl":
        return DdlView()
    if options.view == "changes":
        return open_changes(options, source)
    raise BadOption(f"view {options.view} does not exist")
