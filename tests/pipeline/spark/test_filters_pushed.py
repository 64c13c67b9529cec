"""What Spark pushes down reaches the plan: Spark's own objects, without a session."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.spark.filtering_reader import FilteringReader
from binlog_pipeline.views import open_view
from binlog_pipeline.views.changes_tables import TablesView
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tests.pipeline.logs import BEGIN, SMALL_FILES, any_log
from tests.pipeline.stores import make_store

LOG = any_log(random.Random(8), 500, step_s=700)
SEQ, DOMAIN = ("gtid", "seq"), ("gtid", "domain")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pushed") / "store", LOG, SMALL_FILES)


def reader(store: Path, **given: str) -> FilteringReader:
    options = SourceOptions.parse({"path": str(store), "partitionBytes": "64k", **given})
    view = open_view(options, open_source(options))
    return FilteringReader(options, view, view.schema.names)


def read(made: FilteringReader) -> list[dict[str, Any]]:
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.by_turns(2)
@pytest.mark.long
@pytest.mark.parametrize(
    "pushed",
    [
        [EqualTo(DOMAIN, 0), LessThan(SEQ, 30)],
        [EqualNullSafe(DOMAIN, 1), LessThanOrEqual(SEQ, 10)],
        [GreaterThan(SEQ, 500)],
        [GreaterThanOrEqual(SEQ, 500)],
        [In(SEQ, (20, 30)), IsNotNull(SEQ)],
        [GreaterThan(("ts",), datetime.fromtimestamp(BEGIN + 300_000, UTC))],
    ],
)  # fmt: skip
def test_fewer_parts_and_rows(store: Path, pushed: list[Filter]) -> None:
    everything, made = reader(store), reader(store)
    assert list(made.pushFilters(pushed)) == pushed  # Spark applies all of them again
    assert len(made.partitions()) < 0.7 * len(everything.partitions())
    assert 0 < len(read(made)) < 0.7 * len(read(everything))


def test_what_is_not_understood_changes_nothing(store: Path) -> None:
    everything, made = reader(store), reader(store)
    pushed = [Not(EqualTo(DOMAIN, 0)), IsNotNull(("ts",))]
    assert list(made.pushFilters(pushed)) == pushed
    assert read(made) == read(everything)


def test_tables(store: Path) -> None:
    made = reader(store, view="changes", tables="shop.*")
    list(made.pushFilters([EqualTo(("_table",), "orders")]))
    view = made._view
    assert isinstance(view, TablesView)
    assert [(p.database, p.table) for p in view.subscription.patterns] == [("shop", "orders")]


def test_nothing_is_sent_that_is_not_wanted(store: Path) -> None:
    made = reader(store)
    list(made.pushFilters([EqualTo(("type_name",), "XID"), EqualTo(("db",), "shop")]))
    assert read(made) == []
    made = reader(store)
    list(made.pushFilters([EqualTo(("type_name",), "XID")]))
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    assert all(isinstance(batch, pa.RecordBatch) and batch.num_rows for batch in batches)
    assert sum(batch.num_rows for batch in batches) == len(LOG)
