"""Delta and Iceberg tables in an object store (moto's server), by writers that are killed: each change once."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from binlog_pipeline.errors import TargetChanged
from binlog_pipeline.tables.lock import in_turns
from binlog_pipeline.tables.sinks import open_sink
from binlog_protocol.gtid import SlavePosition

from binlog_server.testing.waiting import until
from tests.kit.moto import moto_s3, variables
from tests.pipeline.spark.test_stream_killed import MERGING, ROOT, running
from tests.pipeline.tables.changes import History, Row, in_order
from tests.pipeline.tables.lake import configure, rows_of

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
TABLE, KEYS, START = "shop.orders", ["id"], SlavePosition()
TARGETS: Final = {"delta": "s3://bucket/lake/shop/orders", "iceberg": "iceberg://lake/shop/orders"}
BATCHES: Final = 20


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of writers."""
    with moto_s3(tmp_path) as port:
        said = variables(port)
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        warehouse = {
            "warehouse": "s3://bucket/warehouse",
            "s3__endpoint": said["AWS_ENDPOINT_URL"],
            "s3__region": "us-east-1",  # else it is asked for on the Internet
        }
        configure(monkeypatch, tmp_path, warehouse)
        yield {**said, "folder": str(tmp_path), **warehouse}


def story(seed: int) -> Iterator[tuple[pa.Table, SlavePosition, list[Row]]]:
    """Batches, each with the position and the table behind it."""
    history = History(random.Random(seed))
    for _ in range(BATCHES):
        batch = history.batch(6)
        yield batch, history.position, history.table()


def writing(sink: str, seed: int, environment: dict[str, str]) -> None:
    """All batches, from the first one on, whatever is there."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in environment.items():
            if name.startswith("AWS"):
                monkeypatch.setenv(name, value)
        names = ("warehouse", "s3__endpoint", "s3__region")
        more = {name: environment[name] for name in names}
        configure(monkeypatch, Path(environment["folder"]), more)
        for batch, position, _ in story(seed):

            def work(batch: pa.Table = batch, position: SlavePosition = position) -> None:
                with open_sink(sink, TARGETS[sink], TABLE, KEYS, START) as kept:
                    kept.add(batch, position)

            in_turns(work)


def position_of(sink: str) -> SlavePosition:
    with open_sink(sink, TARGETS[sink], TABLE, KEYS, START) as kept:
        return kept.position


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", TARGETS)
def test_each_change_once(sink: str, store: dict[str, str], rng: random.Random) -> None:
    """Writers in pairs, which know nothing of each other; both are killed again and again."""
    seed = rng.randrange(1 << 30)
    behind = {str(position): rows for _, position, rows in story(seed)}
    kills = 0
    while True:
        pair: list[Any] = [
            FORKS.Process(target=writing, args=(sink, seed, store)) for _ in range(2)
        ]
        before = position_of(sink)
        for one in pair:
            one.start()
        goal = rng.randint(1, 6)  # of commits, to be killed in the middle of the next one

        def is_time(
            pair: list[Any] = pair, before: SlavePosition = before, goal: int = goal
        ) -> bool:
            done = list(behind).index(str(position_of(sink))) if len(position_of(sink)) else -1
            first = list(behind).index(str(before)) if len(before) else -1
            return done - first >= goal or not any(one.is_alive() for one in pair)

        until(is_time, "commits", 120)
        for one in pair:
            one.kill()
            one.join()
        kills += 1
        position = str(position_of(sink))
        if position:
            assert in_order(rows_of(sink, TARGETS[sink])) == behind[position], f"{kills} kills"
        if position == list(behind)[-1]:
            break
    print(f"{kills} pairs of writers were killed")
    assert kills > 2


@pytest.mark.slow
@pytest.mark.parametrize("sink", TARGETS)
def test_two_writers(sink: str, store: dict[str, str], rng: random.Random) -> None:
    """No lock: the store takes one commit of two."""
    batches = [*story(rng.randrange(1 << 30))]
    first, second = batches[:2]

    def at_once() -> None:
        with open_sink(sink, TARGETS[sink], TABLE, KEYS, START) as slow:
            slow.add(first[0], first[1])
            with open_sink(sink, TARGETS[sink], TABLE, KEYS, START) as fast:
                fast.add(second[0], second[1])
            slow.add(second[0], second[1])

    with pytest.raises(TargetChanged):
        at_once()
    assert in_order(rows_of(sink, TARGETS[sink])) == second[2]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", TARGETS)
def test_executors_write_a_table_in_s3(
    sink: str, store: dict[str, str], rng: random.Random
) -> None:
    """A cluster of two workers: what they need to reach the store comes with each task."""
    seed, batches = rng.randrange(1 << 30), 6
    history = History(random.Random(seed))
    for _ in range(batches):
        history.batch(30)
    folder = Path(store["folder"])
    arguments = (sink, TARGETS[sink], str(seed), str(batches))
    cluster = {"SPARK_WORKER_DIR": str(folder / "work"), "PYTHONPATH": str(ROOT)}
    with running(MERGING, *arguments, **cluster) as job:
        assert job.stdout is not None
        assert len(job.stdout.readlines()) == batches
        assert job.wait(60) == 0
    assert in_order(rows_of(sink, TARGETS[sink])) == history.table()
