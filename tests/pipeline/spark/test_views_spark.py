"""Views, filters and errors of a directory as Spark has them. What filters leave out: test_filters_pushed.py."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.views.events import EventsView
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.wanted import Wanted
from binlog_storage.ibb.file_names import file_name

from tests.pipeline.logs import BEGIN, SMALL_FILES, any_log
from tests.pipeline.stores import make_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
LOG = any_log(random.Random(8), 500, step_s=700)
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("spark") / "store", LOG, SMALL_FILES)


def loaded(spark: SparkSession, store: Path, view: str, **options: str) -> DataFrame:
    return spark.read.format("binlog").options(view=view, **options).load(str(store))


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("view", ["events", "transactions"])
def test_the_same_rows_as_without_spark(spark: SparkSession, store: Path, view: str) -> None:
    made = EventsView() if view == "events" else TransactionsView()
    rows = [
        row
        for part in DirectorySource(str(store)).slices(Wanted(), 1 << 30)
        for batch in made.batches(part.read())
        for row in batch.drop_columns(["ts"]).to_pylist()
    ]
    key = "file", "offset", *(("event_no",) if view == "events" else ())
    found = loaded(spark, store, view, partitionBytes="200k").orderBy(*key).drop("ts").collect()
    assert [row.asDict(recursive=True) for row in found] == rows


def test_files(spark: SparkSession, store: Path) -> None:
    found = loaded(spark, store, "files").orderBy("file", "first_page").collect()
    assert found[0].state_before == ""
    assert len(found) > 20
    with pytest.raises(Exception, match=r"view files .* cannot be streamed"):
        spark.readStream.format("binlog").option("view", "files").load(
            str(store)
        ).writeStream.format("noop").start().processAllAvailable()


NEAR = datetime.fromtimestamp(BEGIN + 2 * 86_400, UTC)
FILTERS = [
    "gtid.seq between 100 and 120 and gtid.domain = 0",
    "gtid.server <=> 2 and gtid.seq in (3, 30, 300)",
    "db = 'shop' and ts >= timestamp'2023-11-17 00:00:00'",
    "ts < timestamp'2023-11-15 12:00:00.5' or gtid.domain = 7",
]  # fmt: skip


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("where", FILTERS)
def test_filters_change_nothing(spark: SparkSession, store: Path, where: str) -> None:
    events = loaded(spark, store, "events", partitionBytes="64k")
    found = events.where(where).orderBy("file", "offset", "event_no").collect()
    from binlog_pipeline import register

    register(spark, push_filters=True)
    try:
        pushed = loaded(spark, store, "events", partitionBytes="64k").where(where)
        assert found == pushed.orderBy("file", "offset", "event_no").collect()
    finally:
        spark.conf.unset(PUSH_DOWN)
        register(spark)


def test_a_table_that_is_loaded_once_is_queried_again(spark: SparkSession, store: Path) -> None:
    """With filters pushed down Spark would read by those of the query before, or of the other side."""
    events = loaded(spark, store, "events")
    everything = events.count()
    few = events.where("gtid.seq < 30")
    some = few.count()
    assert 0 < some < everything
    assert events.count() == everything
    assert few.union(events).count() == events.union(few).count() == everything + some


def test_what_is_wrong_reaches_the_user(spark: SparkSession, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", LOG, SMALL_FILES)
    with (store / file_name(2)).open("r+b") as file:
        file.seek(7 * 16384 + 100)
        file.write(b"broken")
    with pytest.raises(Exception, match=rf"(?s){store}: .*page 7 .*binlog-000002\.ibb.*verify"):
        loaded(spark, store, "events").count()
    (store / file_name(0)).unlink()
    with pytest.raises(Exception, match=rf"(?s){store}: .*store begins behind it.*failOnDataLoss"):
        loaded(spark, store, "events", startGtid="0-1-1").count()
