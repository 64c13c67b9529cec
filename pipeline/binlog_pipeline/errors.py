"""Errors between a source and a DataFrame. Spark shows their text to its user: it says what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors that `binlog_pipeline` raises on purpose."""


class BadOption(PipelineError, ValueError):
    """An option with an unknown name, a missing one, or a value without sense."""


class SourceError(PipelineError):
    """The source cannot be read: it is not there, is no binlog, refuses, or is damaged."""


class DataLost(SourceError):
    """Wanted groups were purged, or the history is another one. Never skipped silently."""


class IncompleteImage(SourceError):
    """A row was logged without a column that may have another value than before."""


class SchemaChanged(PipelineError):
    """A table has got other columns than a query was started with; started anew it goes on."""


class IncompatibleSchema(PipelineError):
    """Rows of an older layout of a table cannot be made into rows of the layout asked for without loss."""


class NonRowChange(PipelineError):
    """A statement that changes rows is logged as text, or takes back rows that were logged before."""


class TargetChanged(PipelineError):
    """A commit was refused, as another writer of the target was faster. Begun anew, it goes on from there."""
