"""Spark as the workers of a job: one task an item, results by a DataFrame. See `binlog_pipeline/tasks.py`.

Only DataFrames are used, so a session of Spark Connect does as well. What a task calls must be installed where it runs.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from binlog_protocol.dataclass import dataclass
from pyspark.sql import SparkSession

from binlog_pipeline.spark.batch_reader import freeze
from binlog_pipeline.spark.session import end, is_connect, session
from binlog_pipeline.tasks import Item, Result, Workers, attempt, outcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast

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
        end(spark)


class SparkWorkers:
    """Workers that are tasks of a Spark session; see `Workers`."""

    def __init__(self, spark: SparkSession, count: int = 1) -> None:
        self._spark: Final = spark
        self.count: Final = count

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        if not items:
            return
        count = len(items)
        numbers = self._spark.range(0, count, 1, count)
        with _sent(self._spark, pickle.dumps(task), [*map(pickle.dumps, items)]) as sent:

            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        task, pickled = sent.value
                        yield _done(number, task, pickled[number])

            results = numbers.mapInArrow(work, _RESULTS).collect()
        for number, result in results:
            yield number, outcome(pickle.loads(result))


@dataclass(frozen=True, slots=True)
class _Sent:
    """A pickled task and its pickled items, as a part of the function."""

    value: tuple[bytes, list[bytes]]


@contextmanager
def _sent(
    spark: SparkSession, task: bytes, items: list[bytes]
) -> Iterator[_Sent | Broadcast[tuple[bytes, list[bytes]]]]:
    """These for all executors, until the job is done.

    They may hold a batch of changes: an executor gets them once. Spark does that by itself, too, with a large function,
    but leaves a file of it on the driver's disk as long as the session lives.
    """
    if is_connect(spark):
        yield _Sent((task, items))
        return
    made = spark.sparkContext.broadcast((task, items))
    try:
        yield made
    finally:
        made.destroy()


def _done(number: int, task: bytes, item: bytes) -> pa.RecordBatch:
    """Run a pickled task in a task of Spark; its number and pickled result."""
    import pyarrow as pa

    freeze()
    result = pickle.dumps(attempt(pickle.loads(task), pickle.loads(item)))
    columns = [pa.array([number], pa.int64()), pa.array([result], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["item", "result"])
