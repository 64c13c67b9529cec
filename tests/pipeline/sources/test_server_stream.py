"""A stream of Spark from a running server: batch after batch, and on from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.fixtures import MakeMariaDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.replica
@pytest.mark.timeout(180)  # a session starts, and batches have their price on a busy machine
def test_available_now_from_a_server(
    spark: SparkSession, make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream()
    password = tmp_path / "password"
    password.write_text(upstream.account.password)
    options = {
        "view": "raw",
        "host": upstream.host,
        "port": str(upstream.port),
        "user": upstream.account.user,
        "passwordFile": str(password),
        "maxTransactionsPerTrigger": "40",
    }
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> int:
        """How many batches it took."""
        query = (
            spark.readStream.format("binlog")
            .options(**options)
            .load()
            .select("gtid", "part", "is_last")
            .writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)
        assert not query.isActive
        assert query.exception() is None
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b LONGBLOB)",
        *("INSERT INTO d.t VALUES (1, '')",) * 50,
        "INSERT INTO d.t VALUES (2, REPEAT('x', 6000000))",
    )
    assert run() == 3  # the large one by itself
    upstream.script(*("INSERT INTO d.t VALUES (3, '')",) * 10)
    assert run() == 1
    rows = spark.read.parquet(out).collect()
    assert sorted(row.gtid.seq for row in rows if row.is_last) == list(range(1, 64))
    assert sorted(row.part for row in rows if row.gtid.seq == 53) == list(range(6))
