"""Which view the options mean."""

from __future__ import annotations

from pipeline.errors import BadOption
from pipeline.options import SourceOptions
from pipeline.sources.source import Source
from pipeline.views.changes_opening import open_changes
from pipeline.views.ddl import DdlView
from pipeline.views.events import EventsView
from pipeline.views.files import FilesView
from pipeline.views.raw import RawView
from pipeline.views.transactions import TransactionsView
from pipeline.views.view import View


def open_view(options: SourceOptions, source: Source) -> View:
    """For a view whose columns depend on the source that is looked at. Raises `PipelineError`."""
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
