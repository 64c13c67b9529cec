"""A table as it is now, or was at a GTID or a time: changes of a source folded into a target. Without Spark.

What is there already is not read again: the target knows its GTID position. A run that was killed goes on where
something was published last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.gtid import SlavePosition
from binlog_storage.console.progress import Progress
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, PipelineError
from binlog_pipeline.groups import after
from binlog_pipeline.jobs.outlook import Outlook, outlook
from binlog_pipeline.jobs.story import Chapter, is_begun, story_of
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.tables.chunks import chunks
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.sinks import KeptTable, open_sink, published
from binlog_pipeline.targets import Target, target_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

OPS: Final = "c,u,d,t,x"
"""Operations that a state needs of view changes: also a table's emptying (t), and unknown changes of rows (x)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome of a run.

    is_complete: no row is missing and none is in doubt.
    doubt: what may be wrong; empty for nothing.
    """

    position: SlavePosition
    changes: int
    is_complete: bool
    doubt: str


def keep_state(
    options: SourceOptions,
    target: Target,
    *,
    keys: Sequence[str] = (),
    sink: str = "parquet",
    until: SlavePosition | None = None,
    copy: Path | None = None,
) -> Kept:
    """Bring the target of one table up to a position.

    Raises `NonRowChange` where the log does not say what the rows are, other `PipelineError`, `StorageError`, OSError.

    Args:
        options: the source, with view changes, layout struct and `OPS`; `start_gtid` is where a new target begins.
        keys: the primary key of the log, unless named.
        until: a position of the source; its end unless given.
        copy: a Parquet file, or a folder of them, with the rows of the table as they were at `start_gtid`.
    """
    target = target_path(target)
    source, begin, end = _run(options, until, copy)
    with open_sink(sink, target, options.table, (), begin) as kept:
        start = begin
        if len(kept.position):
            start = kept.position
            source.has_passed(start)
        _require_ahead(start, end, target)
        story = story_of(options, source, kept, start, end, list(keys))
        if story[0].is_of_another and is_begun(options, source, begin, end):
            assert isinstance(kept, KeptTable)
            if done_anew := _gathered_anew(options, kept, keys, merged(start, end)):
                return done_anew
        if isinstance(kept, KeptTable) and kept.is_new:
            kept.find_by(story[0].keys)
            if copy is not None:
                kept.load(_read_copy(copy), begin)
        count = 0
        columns: Mapping[str, TableColumn] = {}
        parts = [
            source.slices(
                options.wanted.between(one.stretch.start, one.stretch.stop), options.partition_bytes
            )
            for one in story
        ]
        done, total = 0, sum(map(len, parts))
        with Progress("state") as progress:
            for one, slices in zip(story, parts, strict=True):
                if isinstance(kept, KeptTable):
                    columns = one.enter(kept, options, columns)

                def batches(
                    one: Chapter = one, slices: Sequence[Slice] = slices
                ) -> Iterator[pa.RecordBatch]:
                    nonlocal done
                    for part in slices:
                        yield from one.batches(part.read(), kept)
                        done += 1
                        progress.show(done, total)

                for table, position in chunks(
                    batches(), one.stretch.start, split_groups=kept.takes_parts
                ):
                    kept.add(table, position)
                    count += len(table)
        kept.flush(merged(start, end))
        return Kept(kept.position, count, kept.is_complete, kept.doubt)


def _gathered_anew(
    options: SourceOptions, kept: KeptTable, keys: Sequence[str], end: SlavePosition
) -> Kept | None:
    """Go over to the table that got the name meanwhile: its rows, as the log has them from its CREATE TABLE on.

    So it is where pt-online-schema-change or gh-ost had begun before a run that ended before their RENAME TABLE: the
    target has no row of the new table. All of it is in memory. None if the log does not say what its rows are.
    """
    with tempfile.TemporaryDirectory(prefix="binlog-state-") as folder:
        beside = Path(folder) / "table"
        try:
            done = keep_state(options, beside, keys=keys, until=end)
        except PipelineError:  # the caller says that the rows are not known behind RENAME TABLE
            return None
        rows, manifest = read_state(beside)
    if not rows.column_names:
        return None
    kept.name(manifest.logged_as or options.table)
    kept.take_over(rows, manifest.keys, end, Facts.of(manifest.facts))
    return Kept(kept.position, done.changes, kept.is_complete, kept.doubt)


def would_keep(
    options: SourceOptions,
    target: Target,
    *,
    sink: str = "parquet",
    until: SlavePosition | None = None,
    copy: Path | None = None,
) -> Outlook:
    """What `keep_state` would do; the log is not read. Nothing is made, not even a lock. Raises as `keep_state`."""
    target = target_path(target)
    source, begin, end = _run(options, until, copy)
    found = published(sink, target, options.table)
    start = begin
    if found:
        start = found
        source.has_passed(start)
    _require_ahead(start, end, target)
    return outlook(source, options.wanted, start, merged(start, end), is_new=found is None)


def _run(
    options: SourceOptions, until: SlavePosition | None, copy: Path | None
) -> tuple[LogSource, SlavePosition, SlavePosition]:
    """The source, where a new target begins, and where a run ends. Raises `BadOption`, `SourceError`."""
    if "x" not in options.ops:
        raise BadOption(f"a state needs the option ops={OPS}")
    source = open_source(options)
    begin = options.start_gtid if options.start_gtid is not None else source.earliest()
    if copy is not None and options.start_gtid is None:
        raise BadOption("a copy of the table counts from a GTID position on: name it as the start")
    if until is None:
        return source, begin, source.latest()
    source.has_passed(until)  # else it may be the number of another group
    return source, begin, until


def position_at(source: LogSource, start: SlavePosition, time: int) -> SlavePosition:
    """The position in front of the first group behind `start` that began later than `time`, in seconds since 1970.

    So it is a place of the log: times may be out of order in it, commits are not.
    """
    position = start
    feed = source.feed()
    try:
        for groups in feed.after(start, 0.0):
            late = groups.timestamp > time
            if late.any():
                first = int(late.argmax())
                return after(position, groups.some(late.cumsum() == 0)) if first else position
            position = after(position, groups)
        return position
    finally:
        feed.close()


def merged(start: SlavePosition, end: SlavePosition) -> SlavePosition:
    """The position behind what leads from `start` to `end`: domains that are not in `end` stay as they were."""
    for gtid in end:
        start = start.with_gtid(gtid)
    return start


def _require_ahead(start: SlavePosition, end: SlavePosition, target: Target) -> None:
    for gtid in start:
        last = end.get(gtid.domain_id)
        if last is not None and last.seq_no < gtid.seq_no:
            raise PipelineError(
                f"{target} is at '{start}' already, which is behind '{end}': use another target to look back, or begin "
                "anew if the source has another history"
            )


def _read_copy(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(local_path(path))
