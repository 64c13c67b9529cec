"""What a run into a target would do, for --dry-run: where it begins and ends, how much of the log it reads."""

from __future__ import annotations

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.sources.source import ListedSource, LogSource
from binlog_pipeline.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Outlook:
    """A run that was not made.

    is_new: the target is not there yet.
    begin, end: GTID positions; equal where there is nothing to do.
    bytes: of the log's parts that have what is wanted, at the most; None where the source does not tell.
    """

    is_new: bool
    begin: SlavePosition
    end: SlavePosition
    bytes: int | None


def outlook(
    source: LogSource, wanted: Wanted, begin: SlavePosition, end: SlavePosition, *, is_new: bool
) -> Outlook:
    """Of a run from `begin` to `end`. Raises `SourceError`, `DataLost`, `StorageError`."""
    size: int | None = 0
    if begin != end:
        size = None
        if isinstance(source, ListedSource):
            size = sum(part.bytes for part in source.parts(wanted.between(begin, end)))
    return Outlook(is_new, begin, end, size)
