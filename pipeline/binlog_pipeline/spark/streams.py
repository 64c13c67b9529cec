"""Streams of changes into targets, each change once: a batch that Spark gives again is passed over by its GTIDs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.gtid import SlavePosition
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql.types import StructType

from binlog_pipeline.errors import BadOption, DataLost, PipelineError, SourceError
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import first_position, open_source
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.spark.batch_rows import ORDER, batch_rows
from binlog_pipeline.spark.data_source import BinlogDataSource
from binlog_pipeline.spark.failures import cause, told_in_short
from binlog_pipeline.spark.session import is_connect
from binlog_pipeline.spark.task_workers import SparkWorkers
from binlog_pipeline.tables.chunks import chunks
from binlog_pipeline.tables.landing import LandedDoubts
from binlog_pipeline.tables.lock import PATIENCE_S, in_turns
from binlog_pipeline.tables.sinks import TableSink, open_sink, published
from binlog_pipeline.tables.watermark import position_behind
from binlog_pipeline.targets import checkpoint_path, target_path
from binlog_pipeline.tasks import HERE, Workers
from binlog_pipeline.telling import tell
from binlog_pipeline.wanted import unreached

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_NEEDED: Final = ("_gtid", ORDER)
_NOTE: Final = "binlog_target.position"
"""In a checkpoint: the GTID position to which the stream has brought its target."""


def state(
    changes: DataFrame,
    target: str,
    *,
    checkpoint: str,
    table: str = "",
    keys: Sequence[str] = (),
    sink: str = "parquet",
    trigger: dict[str, Any] | None = None,
) -> StreamingQuery:
    """Keep `target` up to date by a stream of view changes. Starts the query.

    Args:
        changes: one table, layout struct, with `ops` "c,u,d,t,x", so that nothing is missed that is no row; for the
            sink `changes` any layout and tables that have `_gtid`.
        target: a folder that this process, the driver, can write, or a URL that `sink` has a use for.
        table: what the target is called in itself; not the name of the source's table unless given.
        keys: instead of the primary key.
        sink: parquet, delta, iceberg, or changes, which only gathers the rows.
        trigger: as of `DataStreamWriter.trigger`, such as {"availableNow": True}.

    A batch is folded by the driver, in parts, so that its memory does not grow with the batch, whatever size a
    transaction has; but with the sink `changes`, which keeps each transaction in one file. The files of Delta and
    Iceberg tables are read and written by executors; the driver commits what they have written.
    Raises `BadOption`, and as `StreamTarget.start`.
    """
    read = options_of(changes)
    kept = StreamTarget(changes, target, table=table, keys=keys, sink=sink, read=read)
    return kept.start(changes, checkpoint, trigger)


def options_of(changes: DataFrame) -> SourceOptions | None:
    """What a stream reads from source `binlog`; None if nothing tells (Spark Connect), or it reads several things."""
    if is_connect(changes):
        return None
    leaves = changes._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    streams = [
        leaf for leaf in found if leaf.isStreaming()
    ]  # others, as of a join, have no such name
    if [one.sourceName() for one in streams] != [BinlogDataSource.name()]:
        return None
    return SourceOptions.parse(dict(streams[0].extraOptions()))


def _is_new_checkpoint(spark: SparkSession, checkpoint: str) -> bool:
    """Whether no batch was ever planned with it. Raises `PipelineError` if its file system cannot be asked."""
    assert spark._jvm is not None
    notes = spark._jvm.org.apache.hadoop.fs.Path(checkpoint_path(checkpoint), "offsets")
    try:
        files = notes.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        there = files.listStatus(notes) if files.exists(notes) else ()
    except Py4JJavaError as error:
        raise PipelineError(f"the checkpoint {checkpoint}: {cause(str(error))}") from None
    return not any(one.getPath().getName().isdecimal() for one in there)


class StreamTarget:
    """The target in which a stream keeps its changes; arguments as of `state`. Raises `BadOption`."""

    def __init__(
        self,
        changes: DataFrame,
        target: str,
        *,
        table: str,
        keys: Sequence[str],
        sink: str,
        read: SourceOptions | None = None,
    ) -> None:
        """`read`: what the changes are, so that a target of which they are no continuation is noticed."""
        names = changes.schema.names
        missing = [name for name in _NEEDED if name not in names]
        if missing:
            raise BadOption(
                f"the stream has no column {', '.join(missing)}: use view changes, layout struct"
            )
        if sink != "changes" and "_statement" not in names:
            raise BadOption(
                "the stream does not tell of statements that change rows: read it with ops=c,u,d,t,x"
            )
        chosen = list(keys)
        if not chosen and sink != "changes" and "_key" in names:
            chosen = StructType.fieldNames(changes.schema["_key"].dataType)  # type: ignore[arg-type]
        self._sink: Final = sink
        self._path: Final = target_path(target)
        self._name: Final = table or self._own_name()
        self._keys: Final = chosen
        self._doubts: Final = LandedDoubts()
        self._told = ""
        self._reached = SlavePosition()
        self._note: Path | None = None
        self._read: Final = read
        self._source: Final[LogSource | None] = None if read is None else open_source(read)
        self._is_joined = read is None

    def _own_name(self) -> str:
        return "" if self._sink == "changes" else str(self._path).rsplit("/", 1)[-1]

    def _require_reached(self, begin: SlavePosition, *, fail_on_data_loss: bool) -> None:
        """Whether a stream that begins there, with a new checkpoint, has all that the target lacks.

        Raises `DataLost`.
        """
        position = published(self._sink, self._path, self._name)
        lacking = unreached(begin, position or SlavePosition())
        if not position or not lacking:
            return
        text = (
            f"{self._path} is at '{position}', and the stream begins behind {lacking[0]}: changes that lie between "
            "would be missing"
        )
        if fail_on_data_loss:
            raise DataLost(
                f"{text}; read from a source that reaches back to it (an archive), load the table again (binlog-spark "
                "load --again), or say failOnDataLoss=false to go on behind the gap"
            )
        tell(f"{text}; they are left out, as failOnDataLoss=false says")

    def _require_joined(self, position: SlavePosition) -> None:
        """Whether the target is of the history of the source, by numbers of which changes are passed over.

        Raises `DataLost`. Of a source that has not come so far it is not known yet.
        """
        if not self._is_joined and len(position):
            assert self._source is not None
            self._is_joined = self._source.has_passed(position)

    def opened(self, workers: Workers = HERE) -> AbstractContextManager[TableSink]:
        """The sink, open for writing: not while the query runs."""
        return open_sink(
            self._sink,
            self._path,
            self._name,
            self._keys,
            SlavePosition(),
            pause_s=0.0,
            doubts=self._doubts,
            patience_s=PATIENCE_S,  # the table may be loaded again meanwhile
            workers=workers,
        )

    def start(
        self, changes: DataFrame, checkpoint: str, trigger: dict[str, Any] | None
    ) -> StreamingQuery:
        """Start the query. How far it has brought the target is noted in the checkpoint, if that is of this machine.

        Raises `DataLost` if the checkpoint is new, and the stream begins behind the target; and as its source.
        """
        folder = checkpoint_path(checkpoint)
        if self._read is not None and _is_new_checkpoint(changes.sparkSession, checkpoint):
            assert self._source is not None
            self._require_reached(
                first_position(self._read, self._source),
                fail_on_data_loss=self._read.fail_on_data_loss,
            )
        if self._sink != "changes" and "://" not in folder:
            self._note = Path(folder) / _NOTE
            with contextlib.suppress(OSError, ValueError):
                self._reached = SlavePosition.parse(self._note.read_text())
        writer = changes.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start()

    def _keep(self, batch: DataFrame, _number: int) -> None:
        workers = SparkWorkers(batch.sparkSession)
        with told_in_short(), batch_rows(batch) as rows:
            if rows is not None:
                in_turns(lambda: self._add(rows(), workers))

    def _add(self, rows: Iterator[pa.RecordBatch], workers: Workers) -> None:
        with self.opened(workers) as kept:
            start = end = kept.position
            if lacking := unreached(self._reached, start):
                raise SourceError(
                    f"{self._path} is at '{start}', and this stream had brought it to '{self._reached}': an older "
                    f"state of it was put there, or it was removed. The changes up to {lacking[0]} are not read again "
                    "with this checkpoint: give a new one; what the target has is passed over then"
                )
            self._require_joined(start)
            for part, position in chunks(rows, start, split_groups=kept.takes_parts):
                kept.add(part, position)
                end = position_behind(part, end)
            kept.flush(end)
            self._noted(kept.position)
            if kept.doubt and kept.doubt != self._told:  # the stream may go on for months
                tell(f"{self._path} may not be right: {kept.doubt}")
            self._told = kept.doubt

    def _noted(self, position: SlavePosition) -> None:
        """Remember how far the target is. What is noted may be older than that, and is never newer."""
        if self._sink == "changes" or position == self._reached:
            return  # files that were gathered may be taken away
        self._reached = position
        if self._note is not None:
            # Not `replace_file`, which syncs, each batch: an older note, or an empty one, still is none that is newer.
            with contextlib.suppress(OSError):  # the folder may be Spark's alone
                staged = self._note.with_suffix(".new")
                staged.write_text(str(position))
                staged.replace(self._note)
