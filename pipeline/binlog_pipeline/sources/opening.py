"""Which source the options mean, and where a stream of it begins."""

from __future__ import annotations

from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.archive import is_archive

from binlog_pipeline.errors import BadOption
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.server import ServerSource
from binlog_pipeline.sources.source import LogSource


def open_source(options: SourceOptions) -> LogSource:
    """The source that the options name; nothing is opened yet. Raises `BadOption`."""
    if options.kind == "server":
        return ServerSource(ServerAddress.of(options), options.fail_on_data_loss)
    if len(options.all_paths) > 1:
        raise BadOption("one directory or archive is read at a time")
    path = options.all_paths[0]
    if options.kind == "archive" or (options.source == "auto" and is_archive(path)):
        return ArchiveSource(path, options.fail_on_data_loss)
    return DirectorySource(path, options.fail_on_data_loss)


def first_position(options: SourceOptions, source: LogSource) -> SlavePosition:
    """Where a stream without a checkpoint begins. Raises as the source."""
    if options.start_gtid is not None:
        return options.start_gtid
    match options.starting_position:
        case "earliest":
            return source.earliest()
        case "latest":
            return source.latest()
        case text:
            return SlavePosition.parse(text)


def require_end(source: LogSource, stop: SlavePosition | None) -> None:
    """Whether the end of a range that is read once is of the log's history, where that has come so far.

    It is read up to a number, which another history has as well. Raises `DataLost`.
    """
    known = {gtid.domain_id for gtid in source.latest()} if stop else set()
    if named := [gtid for gtid in stop or () if gtid.domain_id in known]:
        source.has_passed(SlavePosition(named))
