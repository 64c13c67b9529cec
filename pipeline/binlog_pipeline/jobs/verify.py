"""Everything of a source is read once: checksums, events, rows. Each slice that cannot be read is told of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.stats import LogStatistics, slice_statistics
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.tasks import TaskFailure, attempt
from binlog_pipeline.wanted import Wanted, unreached


@dataclass(slots=True)
class Verified:
    """Statistics of all that was read, and the slices that could not be read."""

    found: LogStatistics = field(default_factory=LogStatistics)
    damage: list[str] = field(default_factory=list)


def verify(options: SourceOptions, engine: Engine | None = None) -> Verified:
    """Check the groups that the options select. Raises `PipelineError`, `StorageError` if no plan can be made."""
    source, wanted = open_source(options), options.wanted
    earliest, latest = source.earliest(), source.latest()
    done = Verified()
    for (found,) in over_slices(_attempt, source, wanted, engine, "verify"):
        if isinstance(found, TaskFailure):
            done.damage.append(found.text)
        else:
            done.found.merge(found)
    if not done.damage and wanted == Wanted():
        done.damage += _unread(earliest, latest, done.found)
    return done


def _attempt(part: Slice) -> tuple[LogStatistics | TaskFailure]:
    """The task. Damage of one slice does not end the work on the others."""
    return (attempt(slice_statistics, part),)


def _unread(earliest: SlavePosition, latest: SlavePosition, found: LogStatistics) -> Iterator[str]:
    """Errors for GTIDs that the source says it has, and did not give."""
    for gtid in unreached(latest, earliest):
        numbers = found.domains.get(gtid.domain_id)
        if numbers is None or numbers.last.seq_no < gtid.seq_no:
            yield f"the source says that it ends at {gtid}, but that is not there"
