"""Targets of streams that were put back while their checkpoint went on: without a session of Spark."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.spark.streams import StreamTarget
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.pipeline.tables.changes import History, in_order
from tests.pipeline.tables.lake import rows_of

TABLE: Final = "shop.orders"
COLUMNS: Final = ("_gtid", "_order_key", "_statement")


class Changes:
    """Stands for a stream of Spark, and for its writer."""

    schema = StructType(
        [
            *(StructField(name, StringType()) for name in COLUMNS),
            StructField("_key", StructType([StructField("id", LongType())])),
        ]
    )

    @property
    def writeStream(self) -> Changes:
        return self

    def foreachBatch(self, _: object) -> Changes:
        return self

    def option(self, *_: object) -> Changes:
        return self

    def start(self) -> Any:
        return None


def begun(sink: str, folder: Path, checkpoint: str = "checkpoint") -> StreamTarget:
    """The target of a stream that was started."""
    (folder / checkpoint).mkdir(exist_ok=True)
    changes: Any = Changes()
    found = StreamTarget(changes, str(folder / "t"), table=TABLE, keys=(), sink=sink)
    found.start(changes, str(folder / checkpoint), None)
    return found


def add(target: StreamTarget, batch: pa.Table) -> None:
    """As for a micro-batch."""
    from binlog_pipeline.tasks import HERE

    target._add(iter(batch.to_batches()), HERE)


@pytest.mark.parametrize("sink", ["parquet", "delta"])
@pytest.mark.parametrize("way", ["put back", "removed", "while it runs"])
def test_what_is_between_is_not_lost(
    sink: str, way: str, tmp_path: Path, rng: random.Random
) -> None:
    history = History(rng)
    first, second, third = (history.batch(8) for _ in range(3))
    target = begun(sink, tmp_path)
    add(target, first)
    shutil.copytree(tmp_path / "t", tmp_path / "old")
    add(target, second)
    if way != "while it runs":
        target = begun(sink, tmp_path)
    shutil.rmtree(tmp_path / "t")
    if way == "removed":
        shutil.rmtree(tmp_path / "old")
    else:
        (tmp_path / "old").rename(tmp_path / "t")
    with pytest.raises(SourceError, match="state of it was put there, or it was removed"):
        add(target, third)
    another = begun(sink, tmp_path, "another")
    for batch in (first, second, third):
        add(another, batch)
    assert in_order(rows_of(sink, tmp_path / "t")) == history.table()


def test_a_stream_that_goes_on(tmp_path: Path, rng: random.Random) -> None:
    """A batch that is given again, and a target that another one has brought further."""
    history = History(rng)
    first, second, third = (history.batch(8) for _ in range(3))
    add(begun("delta", tmp_path), first)
    add(begun("delta", tmp_path), first)
    add(begun("delta", tmp_path, "another"), second)
    add(begun("delta", tmp_path), second)
    add(begun("delta", tmp_path), third)
    assert in_order(rows_of("delta", tmp_path / "t")) == history.table()
