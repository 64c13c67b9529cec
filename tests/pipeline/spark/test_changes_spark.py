"""View changes through a Spark session: every type, every layout, and a stream across changes of the schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk

from binlog_server.testing.mariadb import MariaDB
from tests.integration.rows.test_values import SESSION, create, insert, raw_connection, tables
from tests.integration.rows.type_cases import cases_of
from tests.integration.rows.upstream_rows import groups_after
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, SMALL_FILES, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import table_of
from tests.storage.groups import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"zeroDate": "string", "time": "micros", "unsignedBigint": "string", "bit1": "boolean"},
    {"setLabels": "array", "badText": "binary", "time": "string", "unsignedBigint": "string"},
)


def frame(spark: SparkSession, store: Path, **options: str) -> DataFrame:
    return spark.read.format("binlog").options(view="changes", **options).load(str(store))


@pytest.mark.by_turns(2)
@pytest.mark.each_version
def test_every_type(
    spark: SparkSession, backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    """What Spark has is what the view gives, and its schema comes back as it went."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    upstream = make_upstream(FULL)
    cases = cases_of(backend.version)
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE DATABASE d")
        for table, some in tables(cases):
            cursor.execute(create(table, some))
            insert(cursor, table, some)
    store = store_of_upstream(tmp_path / "store", upstream)
    for n, (table, _) in enumerate(tables(cases)):
        for choice in CHOICES:
            want = table_of(store, table=table, **choice)
            assert to_arrow_schema(from_arrow_schema(want.schema), timezone="UTC") == want.schema
            if choice is CHOICES[n % len(CHOICES)]:
                have = frame(spark, store, table=table, **choice).toArrow()
                assert have.num_rows == want.num_rows > 0
                assert in_utc(have).equals(in_utc(want)), table


def in_utc(table: pa.Table) -> pa.Table:
    """With the names that Arrow may differ in: Spark gives times in the zone of the session."""
    return table.cast(table.schema)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("layout", ["struct", "flat", "cdf", "debezium", "tables"])
def test_every_layout(spark: SparkSession, make_logged_store: MakeLoggedStore, layout: str) -> None:
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, t TIME(3), s SET('a','b'))",
        "INSERT INTO d.t VALUES (1, '10:00:00.5', 'a'), (2, NULL, 'a,b')",
        "UPDATE d.t SET s = ''",
        "DELETE FROM d.t WHERE id = 1",
    )
    options = {"tables": "d.*"} if layout == "tables" else {"table": "d.t", "layout": layout}
    have = frame(spark, store, **options).toArrow()
    assert in_utc(have).equals(in_utc(table_of(store, **options)))
    assert have.num_rows == (7 if layout == "cdf" else 5)


def test_only_some_columns(spark: SparkSession, make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(FULL)
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
    upstream.script("INSERT INTO d.t VALUES (1, 10), (2, 20)")
    store = store_of_upstream(tmp_path / "store", upstream)
    reader = spark.read.format("binlog").options(view="changes", table="d.t", layout="flat")
    found = reader.schema("id INT, _op STRING").load(str(store))
    assert [tuple(row) for row in found.collect()] == [(1, "c"), (2, "c")]


class Streaming:
    """A store that grows with what a server logs, and queries over a table of it with one checkpoint."""

    def __init__(self, spark: SparkSession, upstream: MariaDB, directory: Path) -> None:
        self._spark = spark
        self._upstream = upstream
        self._store = directory / "store"
        self._checkpoint = directory / "checkpoint"
        self._logged = ""
        self._store.mkdir()
        self._engine = IbbEngine(OsDisk(self._store), SMALL_FILES)
        self.rows: list[dict[str, Any]] = []

    def log(self, *statements: str) -> None:
        self._upstream.script(*statements)
        for group in groups_after(self._upstream, self._logged):
            self._engine.append(group.payload, group.gtid)
        settle(self._engine)
        self._logged = self._upstream.gtid_binlog_pos

    def started(self, **trigger: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("binlog").options(view="changes", table="d.t")
        changes = reader.option("longPollMs", "50").load(str(self._store))
        writer = changes.writeStream.foreachBatch(self._take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self._checkpoint)).start()

    def _take(self, batch: DataFrame, number: int) -> None:
        self.rows += [row.asDict(recursive=True)["after"] for row in batch.collect()]

    def close(self) -> None:
        for query in self._spark.streams.active:
            query.stop()
        self._engine.close()


@pytest.fixture
def streaming(
    spark: SparkSession, make_upstream: MakeMariaDB, tmp_path: Path
) -> Iterator[Streaming]:
    made = Streaming(spark, make_upstream(FULL, server_id=1), tmp_path)
    yield made
    made.close()


def test_a_stream_goes_on_behind_each_change_of_the_schema(streaming: Streaming) -> None:
    """Started anew each time that it ends, it gives each row once, with the columns of its time."""
    from pyspark.errors import StreamingQueryException

    streaming.log("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    streaming.log("INSERT INTO d.t VALUES (1)", "INSERT INTO d.t VALUES (2)")
    rows: list[dict[str, Any]] = [{"id": 1}, {"id": 2}]
    for alter, values, row in (
        ("ADD a INT", "(3, 30)", {"id": 3, "a": 30}),
        ("DROP a, ADD b INT", "(4, 40)", {"id": 4, "b": 40}),
    ):
        query = streaming.started(processingTime="0 seconds")
        query.processAllAvailable()
        assert streaming.rows == rows
        streaming.log(f"ALTER TABLE d.t {alter}", f"INSERT INTO d.t VALUES {values}")
        with pytest.raises(StreamingQueryException, match=r"SchemaChanged.*restart the query"):
            query.awaitTermination(240)
        assert streaming.rows == rows
        rows.append(row)
    for _ in range(2):
        streaming.started(availableNow=True).awaitTermination(240)
        assert streaming.rows == rows
    # The columns look the same behind it, so only the statement that the batch begins with says it.
    query = streaming.started(processingTime="0 seconds")
    query.processAllAvailable()
    streaming.log("ALTER TABLE d.t DROP b, ADD b INT", "INSERT INTO d.t VALUES (5, 50)")
    with pytest.raises(StreamingQueryException, match=r"column b of d\.t may not be"):
        query.awaitTermination(240)
    assert streaming.rows == rows
    rows.append({"id": 5, "b": 50})
    for _ in range(2):
        streaming.started(availableNow=True).awaitTermination(240)
        assert streaming.rows == rows
