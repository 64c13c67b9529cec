"""Which source the options mean."""

from __future__ import annotations

from pipeline.errors import BadOption
from pipeline.options import SourceOptions
from pipeline.sources.directory import DirectorySource
from pipeline.sources.source import Source


def open_source(options: SourceOptions) -> Source:
    """Nothing is opened yet. Raises `BadOption`."""
    if len(options.all_paths) > 1:
        raise BadOption("one directory or archive is read at a time")
    return DirectorySource(options.all_paths[0])
