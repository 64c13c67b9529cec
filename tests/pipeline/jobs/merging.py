"""Merges batches at random into a table by the executors of a cluster of two workers; a line for each batch.

python merging.py SINK TARGET SEED BATCHES
"""

import random
import sys
from typing import Any

import binlog_pipeline
import pytest
from binlog_pipeline.spark.task_workers import SparkWorkers
from binlog_pipeline.tables import delta, merging
from binlog_pipeline.tables.delta_files import DeltaFiles
from binlog_pipeline.tables.iceberg_files import TableFiles
from binlog_pipeline.tables.sinks import open_sink
from binlog_protocol.gtid import SlavePosition

from tests.pipeline.tables.changes import History


def refuse(*_: object) -> Any:
    raise AssertionError("the driver works on files")


def main(sink: str, target: str, seed: str, batches: str) -> None:
    patched = pytest.MonkeyPatch()
    for name, value in {"_WORTH_SENDING": 0, "_SMALL_ROWS": 20, "_SMALL_FILES": 4}.items():
        patched.setattr(merging, name, value)
    for name in ("read", "write"):
        patched.setattr(TableFiles, name, refuse)
        patched.setattr(DeltaFiles, name, refuse)
    patched.setattr(delta.DeltaState, "_merge_here", refuse)
    spark = binlog_pipeline.session("local-cluster[2,1,1024]", spark__driver__memory="1g")
    spark.sparkContext.setLogLevel("ERROR")
    workers = SparkWorkers(spark)
    history = History(random.Random(int(seed)))
    for number in range(int(batches)):
        batch = history.batch(30)
        with open_sink(
            sink, target, "shop.orders", ["id"], SlavePosition(), workers=workers
        ) as kept:
            if number % 2:  # in parts, as a large transaction
                kept.add(batch.slice(0, len(batch) // 2), None)
                batch = batch.slice(len(batch) // 2)
            kept.add(batch, history.position)
        print(number, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
