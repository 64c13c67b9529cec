"""Files of Delta and Iceberg tables that executors read and write, and the driver commits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import partial
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from binlog_pipeline.spark import batch_rows, streams
from binlog_pipeline.spark.streams import state
from binlog_pipeline.spark.task_workers import SparkWorkers
from binlog_pipeline.tables import delta, merging
from binlog_pipeline.tables.chunks import chunks
from binlog_pipeline.tables.delta_files import DeltaFiles
from binlog_pipeline.tables.iceberg_files import TableFiles
from binlog_pipeline.tables.sinks import open_sink
from binlog_protocol.gtid import SlavePosition

from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.tables.changes import History, in_order
from tests.pipeline.tables.lake import configure, place, rows_of
from tests.pipeline.tables.test_merging import partly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kit.fixtures import MakeMariaDB

pytestmark = pytest.mark.spark

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]
FORMATS = ("delta", "iceberg")
OF_FILES: Final[list[tuple[type, str, Callable[..., Any]]]] = [
    (kind, name, getattr(kind, name))
    for kind in (DeltaFiles, TableFiles)
    for name in ("read", "write")
]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few rows, whose files are not small, are worth a job."""
    configure(monkeypatch, tmp_path)
    monkeypatch.setattr(merging, "_WORTH_SENDING", 0)
    monkeypatch.setattr(merging, "_SMALL_ROWS", 6)


@pytest.fixture
def idle_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process of this test reads no data file, and writes none; but the first ones of a Delta table."""

    def refuse(*_: object) -> Any:
        raise AssertionError("the driver works on files")

    with monkeypatch.context() as patched:
        for kind, name, _ in OF_FILES:
            patched.setattr(kind, name, refuse)
        patched.setattr(delta.DeltaState, "_merge_here", refuse)
        yield


class Killed(BaseException):
    """As kill -9: no handler of an ordinary error runs."""


@pytest.mark.parametrize("sink", FORMATS)
def test_executors_write_and_the_driver_commits(
    sink: str,
    spark: SparkSession,
    tmp_path: Path,
    rng: random.Random,
    catalog: None,
    idle_driver: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver that is killed between the two has changed nothing, and its files are in no table."""
    from deltalake import DeltaTable
    from pyiceberg.catalog.sql import SqlCatalog

    history = History(rng)
    there, here = (place(sink, tmp_path / name) for name in ("there", "here"))

    def add(target: Path | str, **more: Any) -> None:
        with open_sink(sink, target, TABLE, KEYS, START, **more) as kept:
            kept.add(batch, history.position)

    for number in range(5):
        batch = history.batch(15)
        if number > 2:
            batch = partly(batch, rng)
        if number in (1, 3):
            before = in_order(rows_of(sink, there))
            with monkeypatch.context() as killing:
                killing.setattr(SqlCatalog, "commit_table", kill)
                killing.setattr(DeltaTable, "create_write_transaction", kill)
                with pytest.raises(Killed):
                    add(there, workers=SparkWorkers(spark))
            assert in_order(rows_of(sink, there)) == before
        add(there, workers=SparkWorkers(spark))
        with monkeypatch.context() as local:
            for kind, name, real in OF_FILES:
                local.setattr(kind, name, real)
            local.setattr(delta.DeltaState, "_merge_here", MERGE_HERE)
            add(here)
        found = in_order(rows_of(sink, there))
        assert found == in_order(rows_of(sink, here)), f"behind batch {number}"
        if number < 3:
            assert found == history.table()


MERGE_HERE: Final = delta.DeltaState._merge_here


def kill(*_: object, **__: object) -> Any:
    raise Killed


def test_nothing_of_a_job_stays_on_the_disk(spark: SparkSession) -> None:
    """A stream has a job for each batch, for months, and sends the batch with it."""
    task = partial(getitem, [b"x" * (2 << 20)])
    for _ in range(3):
        found = dict(SparkWorkers(spark).map(task, [0, 0]))
        assert {number: len(result) for number, result in found.items()} == {0: 2 << 20, 1: 2 << 20}
    local = spark.conf.get("spark.local.dir")
    assert local is not None
    left = [path for path in Path(local).rglob("*") if path.is_file()]
    assert not [path for path in left if path.stat().st_size >= 2 << 20]


@pytest.mark.any_version
@pytest.mark.parametrize("sink", FORMATS)
def test_a_stream_whose_executors_write(
    sink: str,
    spark: SparkSession,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    catalog: None,
    idle_driver: None,
) -> None:
    """Over more than one run, from the log to the table: the driver reads no data file, and merges none."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(20))",
        "INSERT INTO d.t SELECT seq, CONCAT('first ', seq) FROM d.seq_1_to_500",
    )
    target = str(place(sink, tmp_path / "t"))
    for run, statement in enumerate(
        (
            "UPDATE d.t SET a = 'x' WHERE id % 7 = 0",
            "DELETE FROM d.t WHERE id BETWEEN 100 AND 120",
            "UPDATE d.t SET id = id + 1000 WHERE id % 50 = 0",
        )
    ):
        upstream.script(statement)
        store = store_of_upstream(tmp_path / f"store{run}", upstream)
        options = {"view": "changes", "table": "d.t", "ops": "c,u,d,t,x"}
        changes = spark.readStream.format("binlog").options(**options).load(str(store))
        query = state(
            changes,
            target,
            checkpoint=str(tmp_path / f"checkpoint{run}"),
            table="d.t",
            sink=sink,
            trigger={"availableNow": True},
        )
        query.awaitTermination(120)
        assert query.exception() is None
        have = [tuple(row.values()) for row in in_order(rows_of(sink, target))]
        want = [tuple(row.values()) for row in upstream.q("SELECT id, a FROM d.t ORDER BY id")]
        assert have == want


def spied(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a function of a module returns from now on."""
    real, found = getattr(module, name), []

    def call(*arguments: Any) -> Any:
        found.append(real(*arguments))
        return found[-1]

    monkeypatch.setattr(module, name, call)
    return found


def jobs_of_queries(spark: SparkSession) -> dict[int, int]:
    """How many jobs each query of the session has; the results of all of them are in the driver's heap to its end."""
    listed = spark._jsparkSession.sharedState().statusStore().executionsList()
    some = [listed.apply(number) for number in range(listed.size())]
    return {one.executionId(): one.jobs().size() for one in some}


@pytest.mark.any_version
@pytest.mark.parametrize(
    ("sink", "is_mixed"), [("delta", True), ("iceberg", False), ("parquet", False)]
)
def test_a_batch_that_comes_in_pieces(
    sink: str,
    is_mixed: bool,
    spark: SparkSession,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    catalog: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From more than one partition, in transactions of more rows than a part; in another order than in the log, too."""
    monkeypatch.setattr(batch_rows, "_SMALL", 1000)
    monkeypatch.setattr(batch_rows, "_PIECE", 40_000)
    monkeypatch.setattr(streams, "chunks", partial(chunks, rows=150))
    was_in_order = spied(batch_rows, "_is_in_order", monkeypatch)
    before = max(jobs_of_queries(spark), default=-1)
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(200), b TIMESTAMP(6) NULL)",
        "INSERT INTO d.t SELECT seq, REPEAT('x', 200), FROM_UNIXTIME(seq) FROM d.seq_1_to_500",
        "UPDATE d.t SET id = id + 1000, a = REPEAT('y', 200) WHERE id % 3 = 0",
        "DELETE FROM d.t WHERE id % 7 = 0",
        "INSERT INTO d.t SELECT seq, REPEAT('z', 200), NULL FROM d.seq_2001_to_2300",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    options = {"view": "changes", "table": "d.t", "ops": "c,u,d,t,x", "partitionBytes": "64k"}
    changes = spark.readStream.format("binlog").options(**options).load(str(store))
    if is_mixed:
        changes = changes.repartition(3, "after.id")
    target = str(place(sink, tmp_path / "t"))
    query = state(
        changes,
        target,
        checkpoint=str(tmp_path / "checkpoint"),
        table="d.t",
        keys=["id"],
        sink=sink,
        trigger={"availableNow": True},
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert (False in was_in_order) == is_mixed
    assert was_in_order
    jobs = {number: count for number, count in jobs_of_queries(spark).items() if number > before}
    assert max(jobs.values()) < 5, jobs
    have = [tuple(row.values()) for row in in_order(rows_of(sink, target))]
    want = [
        (id_, a, None if b is None else b.replace(tzinfo=UTC))
        for id_, a, b in map(dict.values, upstream.q("SELECT id, a, b FROM d.t ORDER BY id"))
    ]
    assert have == want
