"""Everything of a source is read once: checksums, events, rows. Each slice that cannot be read is told of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.jobs.cutting import cut
from binlog_pipeline.jobs.progress import Progress
from binlog_pipeline.jobs.stats import LogStatistics, slice_statistics
from binlog_pipeline.jobs.workers import Engine, open_workers
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.tasks import TaskFailure, attempt
from binlog_pipeline.wanted import Wanted


@dataclass(slots=True)
class Verified:
    """Statistics of all that was read, and the slices that could not be read."""

    found: LogStatistics = field(default_factory=LogStatistics)
    damage: list[str] = field(default_factory=list)


def verify(options: SourceOptions, engine: Engine | None = None) -> Verified:
    """Check the groups that the options select. Raises `PipelineError`, `StorageError` if no plan can be made."""
    engine = engine or Engine()
    source, wanted = open_source(options), options.wanted
    earliest, latest = source.earliest(), source.latest()
    slices, size = cut(source, wanted, engine.count)
    parts: dict[int, LogStatistics | TaskFailure] = {}
    with (
        open_workers(engine, size) as workers,
        Progress(len(slices), "verify", "slice") as progress,
    ):
        for number, part in workers.map(_attempt, slices):
            (parts[number],) = part
            progress.add()
    done = Verified()
    for number in range(len(slices)):
        part_found = parts[number]
        if isinstance(part_found, TaskFailure):
            done.damage.append(part_found.text)
        else:
            done.found.merge(part_found)
    if not done.damage and wanted == Wanted():
        done.damage += _unread(earliest, latest, done.found)
    return done


def _attempt(part: Slice) -> tuple[LogStatistics | TaskFailure]:
    """The task. Damage of one slice does not end the work on the others."""
    return (attempt(slice_statistics, part),)


def _unread(earliest: SlavePosition, latest: SlavePosition, found: LogStatistics) -> Iterator[str]:
    """Errors for GTIDs that the source says it has, and did not give."""
    for gtid in latest:
        begun = earliest.get(gtid.domain_id)
        if begun is not None and begun.seq_no >= gtid.seq_no:
            continue
        numbers = found.domains.get(gtid.domain_id)
        if numbers is None or numbers.last.seq_no < gtid.seq_no:
            yield f"the source says that it ends at {gtid}, but that is not there"
