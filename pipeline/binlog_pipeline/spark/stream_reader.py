"""Reading what comes, in micro-batches. The end of a batch is decided here, on the driver, before any of it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.gtid import SlavePosition
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.admission import BatchLimits, next_end
from binlog_pipeline.sources.opening import first_position, open_source
from binlog_pipeline.sources.source import Feed
from binlog_pipeline.spark.batch_reader import SlicePartition, read_slice
from binlog_pipeline.spark.offsets import from_offset, to_offset
from binlog_pipeline.views.view import View

if TYPE_CHECKING:
    import pyarrow as pa


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process of the driver and plans; copies of it read in the workers."""

    def __init__(self, options: SourceOptions, view: View, names: Sequence[str]) -> None:
        self._options = options
        self._view = view
        self._names = names
        self._source = open_source(options)
        self._feed: Feed | None = None
        self._target: SlavePosition | None = None
        self._first_start: SlavePosition | None = None
        self._known_end: Final = self._source.latest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None}

    def initialOffset(self) -> dict[str, Any]:
        return to_offset(first_position(self._options, self._source))

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._options.max_transactions_per_trigger
        return ReadMaxRows(count) if count else ReadMaxBytes(self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._source.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = from_offset(start)
        if self._feed is None:
            self._feed = self._source.feed()
            if position != self._options.start_gtid:  # a number that a user names need not exist
                self._source.has_passed(position)
        wait_s = 0.0 if self._target is not None else self._options.long_poll_ms / 1000
        end = next_end(
            self._feed,
            position,
            self._limits(limit),
            wait_s,
            self._view.barrier,
            self._target,
        )
        return start if end == position else to_offset(end)

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        match limit:
            case ReadAllAvailable():
                return BatchLimits()
            case ReadMaxBytes(max_bytes=size):
                return BatchLimits(bytes=size)
            case ReadMaxRows(max_rows=count):
                return BatchLimits(transactions=count, bytes=self._options.max_bytes_per_trigger)
        return BatchLimits(bytes=self._options.max_bytes_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any]:
        # Spark asks for it in each batch: not by a connection that is made for it.
        return to_offset((self._source if self._feed is None else self._feed).latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = from_offset(start), from_offset(end)
        if first == last:
            return []
        if self._first_start is None:
            self._first_start = first
        options = self._options
        wanted = options.wanted.between(first, last)
        # All of the first batch: only the first group of a batch may be DDL, and the first slices may have no group.
        # Not if it came when the columns were known already: runs before this one may have given rows with them.
        begins = first == self._first_start != self._known_end
        return [
            SlicePartition(part, begins=begins)
            for part in self._source.slices(wanted, options.partition_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        return read_slice(self._view, self._names, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: no resource is held for a batch."""

    def stop(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None
