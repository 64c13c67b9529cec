"""Spark as the workers of a job: one task an item, results by a DataFrame. See `binlog_pipeline/tasks.py`.

Only DataFrames are used, so a session of Spark Connect does as well. What a task calls must be installed where it runs.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from binlog_pipeline.spark.batch_reader import freeze
from binlog_pipeline.spark.session import session
from binlog_pipeline.tasks import Item, Result, Workers, attempt, outcome

if TYPE_CHECKING:
    import pyarrow as pa

_CONNECT: Final = "sc://"
_RESULTS: Final = "item long, result binary"


@contextmanager
def spark_workers(master: str, count: int) -> Iterator[Workers]:
    """A session for one job; one that there is already is used, and left as it is."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield SparkWorkers(active, count)
        return
    if master.startswith(_CONNECT):
        spark = SparkSession.builder.remote(master).getOrCreate()
    else:
        shown = "true" if sys.stderr.isatty() else "false"
        settings = {"spark__ui__showConsoleProgress": shown, "spark__log__level": "ERROR"}
        spark = session(master, **settings)
    try:
        yield SparkWorkers(spark, count)
    finally:
        spark.stop()


class SparkWorkers:
    """Workers that are tasks of a Spark session; see `Workers`."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self._spark: Final = spark
        self.count: Final = count

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        if not items:
            return
        count = len(items)
        pickled = [pickle.dumps((task, item)) for item in items]

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _done(number, pickled[number])

        numbers = self._spark.range(0, count, 1, count)
        for number, result in numbers.mapInArrow(work, _RESULTS).collect():
            yield number, outcome(pickle.loads(result))


def _done(number: int, pickled: bytes) -> pa.RecordBatch:
    """Run a pickled task in a task of Spark; its number and pickled result."""
    import pyarrow as pa

    freeze()
    task, item = pickle.loads(pickled)
    result = pickle.dumps(attempt(task, item))
    columns = [pa.array([number], pa.int64()), pa.array([result], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["item", "result"])
