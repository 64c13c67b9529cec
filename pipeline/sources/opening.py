"""Which source the options mean."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import BadOption
from pipeline.options import SourceOptions
from pipeline.sources.archive import ArchiveSource
from pipeline.sources.directory import DirectorySource
from pipeline.sources.dump.address import ServerAddress
from pipeline.sources.server import ServerSource
from pipeline.sources.source import Source
from storage.archive.archive import is_archive


def open_source(options: SourceOptions) -> Source:
    """Nothing is opened yet. Raises `BadOption`."""
    if options.kind == "server":
        return ServerSource(ServerAddress.of(options), options.fail_on_data_loss)
    if len(options.all_paths) > 1:
        raise BadOption("one directory or archive is read at a time")
    path = options.all_paths[0]
    if options.kind == "archive" or (options.source == "auto" and is_archive(Path(path))):
        return ArchiveSource(path, options.fail_on_data_loss)
    return DirectorySource(path, options.fail_on_data_loss)
