"""Targets that do not fit their streams: put back, of another history, too old."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from binlog_pipeline.errors import DataLost, PipelineError, SourceError
from binlog_pipeline.spark.streams import StreamTarget, state
from binlog_protocol.gtid import Gtid, SlavePosition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import failed_over
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


class Source:
    """What is asked of a source: how far it is, and whether a position is of its history."""

    def __init__(self) -> None:
        self.is_behind = False
        self.asked = 0

    def has_passed(self, position: SlavePosition) -> bool:
        self.asked += 1
        if self.is_behind:
            return False
        raise DataLost(f"'{position}' is of another history")


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


def test_a_target_of_another_history(tmp_path: Path, rng: random.Random) -> None:
    """Numbers tell what is passed over, and behind a failover they may be those of other changes."""
    history = History(rng)
    first, second, third = (history.batch(8) for _ in range(3))
    add(begun("delta", tmp_path), first)
    target = begun("delta", tmp_path, "another")
    source: Any = Source()
    target._source, target._is_joined = source, False  # type: ignore[misc]
    source.is_behind = True  # nobody knows yet
    add(target, second)
    source.is_behind = False
    with pytest.raises(DataLost, match="another history"):
        add(target, third)
    assert source.asked == 2


def test_a_stream_that_begins_behind_its_target(
    tmp_path: Path, rng: random.Random, recwarn: pytest.WarningsRecorder
) -> None:
    """As where the log in front was purged meanwhile."""
    batch = History(rng).batch(8)
    far = SlavePosition([Gtid(0, 1, 1 << 40)])
    target = begun("delta", tmp_path)
    target._require_reached(
        far, fail_on_data_loss=True
    )  # nothing is there: it begins where it is told to
    add(target, batch)
    target._require_reached(SlavePosition(), fail_on_data_loss=True)
    assert not recwarn.list
    with pytest.raises(DataLost, match="changes that lie between would be missing"):
        target._require_reached(far, fail_on_data_loss=True)
    target._require_reached(far, fail_on_data_loss=False)
    assert "failOnDataLoss=false" in str(recwarn.list[-1].message)


@pytest.mark.spark
@pytest.mark.any_version
def test_the_source_of_a_data_frame(
    spark: SparkSession, make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    """What a DataFrame reads is known of itself, and asked whether it goes on where the target is."""
    old, new = failed_over(tmp_path, make_upstream)
    target = tmp_path / "t"

    def run(store: Path, checkpoint: str, **options: str) -> None:
        changes = spark.readStream.format("binlog").options(
            view="changes", table="d.t", ops="c,u,d,t,x", **options
        )
        query = state(
            changes.load(str(store)).where("_op IS NOT NULL"),
            str(target),
            checkpoint=checkpoint,
            table="d.t",
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    run(old, f"{tmp_path}/c")
    assert [row["id"] for row in in_order(rows_of("parquet", target))] == [1, 2]
    for checkpoint in ("c", "another"):
        with pytest.raises(
            StreamingQueryException, match="has another history, as behind a failover"
        ):
            run(new, f"{tmp_path}/{checkpoint}")
    with pytest.raises(DataLost, match="changes that lie between would be missing"):
        run(new, f"{tmp_path}/third", startGtid="0-2-5")
    assert [row["id"] for row in in_order(rows_of("parquet", target))] == [1, 2]
    with pytest.raises(PipelineError, match=r"the checkpoint s3a://b/c: .*S3AFileSystem not found"):
        run(old, "s3a://b/c")  # Spark has no file system for it
