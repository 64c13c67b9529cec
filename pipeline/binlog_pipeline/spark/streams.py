"""Streams of changes into targets, each change once: a batch that Spark gives again is passed over by its GTIDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.local_path import local_path
from pyspark.sql.types import StructType

from binlog_pipeline.errors import BadOption
from binlog_pipeline.tables.chunks import chunks
from binlog_pipeline.tables.sinks import open_sink
from binlog_pipeline.tables.watermark import position_behind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NEEDED: Final = ("_gtid", "_order_key")


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
        target: a folder that this process, the driver, can write.
        table: what the target is called in itself; not the name of the source's table unless given.
        keys: instead of the primary key.
        sink: parquet, delta, or changes, which only gathers the rows.
        trigger: as of `DataStreamWriter.trigger`, such as {"availableNow": True}.

    A batch is folded by the driver, which must have memory for its rows: `maxBytesPerTrigger` says how much that is.
    Raises `BadOption`.
    """
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
    if not chosen and "_key" in names:
        chosen = StructType.fieldNames(changes.schema["_key"].dataType)  # type: ignore[arg-type]
    path = local_path(target)
    name = table or path.name

    def keep(batch: DataFrame, _number: int) -> None:
        rows: pa.Table = batch.toArrow()
        if not len(rows):
            return
        rows = rows.sort_by("_order_key")
        with open_sink(sink, path, name, chosen, SlavePosition(), pause_s=0.0) as kept:
            start = kept.position
            for part, position in chunks(rows.to_batches(), start, split_groups=kept.takes_parts):
                kept.add(part, position)
            kept.flush(position_behind(rows, start))

    writer = changes.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()
