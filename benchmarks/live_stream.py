"""How long it takes from an INSERT on a server to Spark's `foreachBatch`.

    python -m benchmarks.live_stream HOST PORT USER TABLE POSITION CHECKPOINT

reads what is behind a GTID position. Prints "running" when the query was started, goes on until standard input is
closed, and prints milliseconds, one number for each row: from the time in its column `at`, which the server set when it
was inserted, to the moment at which `foreachBatch` had it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import binlog_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(host: str, port: str, user: str, table: str, position: str, checkpoint: str) -> None:
    spark = binlog_pipeline.live_session("local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    latencies: list[float] = []
    batches = 0

    def receive(batch: DataFrame, _number: int) -> None:
        nonlocal batches
        rows = batch.select("after.at").toArrow()
        now = time.time()
        batches += 1
        seconds = (value.as_py().timestamp() for value in rows.column(0))
        latencies.extend(round(1000 * (now - at), 3) for at in seconds)

    stream = (
        spark.readStream.format("binlog")
        .options(
            host=host,
            port=port,
            user=user,
            view="changes",
            table=table,
            columns="at",
            startingPosition=position,
        )
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(receive).option("checkpointLocation", checkpoint).start()
    )
    print(json.dumps("running"), flush=True)
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    spark.stop()
    print(json.dumps({"latencies_ms": latencies, "batches": batches}))


if __name__ == "__main__":
    main(*sys.argv[1:])
