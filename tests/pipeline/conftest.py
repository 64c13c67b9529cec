"""Stores of what upstreams log; one Spark session for all tests of a worker: it takes six seconds to start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import java
from tests.kit.fixtures import MakeMariaDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.stores import MakeLoggedStore


java.set_options()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(java.TIMEOUT_S))


@pytest.fixture
def make_logged_store(make_upstream: MakeMariaDB, tmp_path: Path) -> MakeLoggedStore:
    """make_logged_store(*statements, flags=(FULL,), **options) -> Path"""
    from tests.pipeline.stores import FULL, store_of_upstream

    def make(*statements: str, flags: Sequence[str] = (FULL,), **options: Any) -> Path:
        upstream = make_upstream(*flags, **options)
        upstream.script(*statements)
        return store_of_upstream(tmp_path / "store", upstream)

    return make


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
