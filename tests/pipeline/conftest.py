"""One Spark session for all tests of a worker: it takes six seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of all JVMs that tests start. Each lives for seconds only: the second compiler, and a collector with threads of its
# own, take half of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

SPARK_TIMEOUT_S = 180
"""The first test of a worker waits for the session, too; on a busy machine that is most of a minute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    import binlog_pipeline

    folder = tmp_path_factory.mktemp("spark")
    made = binlog_pipeline.session(
        "local[2]",
        spark__sql__warehouse__dir=str(folder / "warehouse"),
        spark__local__dir=str(folder / "local"),
        spark__driver__memory="1g",
        spark__sql__shuffle__partitions="2",
    )
    yield made
    made.stop()
