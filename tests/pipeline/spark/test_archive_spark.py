"""Archiving by tasks of Spark, and reading an archive with Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource

from tests.pipeline.archives import grow, log_of, payloads, rows, run
from tests.storage.groups import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_tasks_of_spark_write_it(spark: SparkSession, tmp_path: Path) -> None:
    made = history(random.Random(2), 400, size_max=50_000)
    grow(tmp_path / "store", made)
    source = DirectorySource(str(tmp_path / "store"))
    done = run(source, tmp_path / "archive", engine=Engine("spark"))
    assert done.parts > 3
    archived = ArchiveSource(str(tmp_path / "archive"))
    assert log_of(archived) == payloads(made)
    assert {path.name for path in (tmp_path / "archive").iterdir() if path.name[0] == "."} == set()
    assert run(source, tmp_path / "archive", engine=Engine("spark")).parts == 0

    # The view raw of both is the same; and the files by themselves are such a table.
    everything = [row[3] for row in rows(source)]
    for frame in (
        spark.read.format("binlog").option("view", "raw").load(archived.path),
        spark.read.parquet(archived.path).where("gtid.domain is not null"),
    ):
        found = frame.orderBy("file", "offset", "part").select("data").collect()
        assert [bytes(row.data) for row in found] == everything

    # Behind the end there is no slice, for which Spark makes a partition of its own.
    end = str(archived.latest())
    behind = spark.read.format("binlog").options(view="raw", startGtid=end).load(archived.path)
    assert behind.collect() == []
