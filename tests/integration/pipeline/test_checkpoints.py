"""Checkpoints of Spark in object stores, by connectors of Hadoop and of Google, configured as users do it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.spark_stores import KINDS, SparkStore, spark_store
from tests.pipeline.spark.test_stream_killed import follow_and_kill
from tests.pipeline.stores import FULL
from tests.pipeline.tables.lake import configure, place, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1500)]
KILLS = 8


@pytest.fixture(params=KINDS)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkStore]:
    with spark_store(request.param, tmp_path) as made:
        monkeypatch.setenv("SPARK_CONF_DIR", str(made.conf))
        configure(monkeypatch, tmp_path)
        yield made


@pytest.mark.any_version
def test_a_stream_goes_on(store: SparkStore, make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    """The command, run again and again: what is new comes, and nothing twice."""
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, a VARCHAR(9))"
    )
    source = f"mariadb://root@{upstream.host}:{upstream.port}"
    target = tmp_path / "orders"
    argv = [str(Path(sys.executable).with_name("binlog-spark")), "stream", "--from", source]
    argv += ["--to", str(target), "--checkpoint", f"{store.url}/checkpoint", "--available-now"]
    for number in range(3):
        upstream.script(
            f"INSERT INTO shop.orders VALUES ({number}, 'x')",
            f"UPDATE shop.orders SET a = 'y{number}' WHERE id = 0",
        )
        done = subprocess.run(
            [*argv, "--sink", "delta", "--table", "shop.orders"],
            check=False,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        rows = sorted(rows_of("delta", target).to_pylist(), key=lambda row: row["id"])
        assert rows == upstream.q("SELECT * FROM shop.orders ORDER BY id")


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_stream_that_is_killed(
    sink: str,
    store: SparkStore,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """Each change once."""
    upstream = make_upstream(FULL)
    server = binlog_server(upstream=upstream, directory=tmp_path / "store")
    target = place(sink, tmp_path / "target")
    follow_and_kill(sink, upstream, server, target, f"{store.url}/checkpoint", rng, KILLS)
