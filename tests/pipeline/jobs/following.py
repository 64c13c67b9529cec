"""Keeps a target up to date by a stream until it is killed, or with `once` until it has what was there.

python following.py STORE TABLE TARGET CHECKPOINT SINK forever|once
"""

import sys
from functools import partial

import binlog_pipeline
import pytest
from binlog_pipeline.spark import batch_rows, streams
from binlog_pipeline.tables import merging
from binlog_pipeline.tables.chunks import chunks


def main(store: str, table: str, target: str, checkpoint: str, sink: str, how: str) -> None:
    patched = pytest.MonkeyPatch()
    # Executors write tables of a few rows, too.
    patched.setattr(merging, "_WORTH_SENDING", 0)
    # The driver takes 200 KiB of a job at most: larger batches come in pieces, larger transactions in parts.
    patched.setattr(batch_rows, "_SMALL", 20_000)
    patched.setattr(batch_rows, "_PIECE", 100_000)
    patched.setattr(streams, "chunks", partial(chunks, rows=1500))
    limits = {"spark__driver__memory": "1g", "spark__driver__maxResultSize": "200k"}
    spark = binlog_pipeline.live_session("local[2]", **limits)
    spark.sparkContext.setLogLevel("ERROR")
    changes = (
        spark.readStream.format("binlog")
        .options(view="changes", table=table, ops="c,u,d,t,x", maxTransactionsPerTrigger="200")
        .load(store)
    )
    once = {"availableNow": True} if how == "once" else {"processingTime": "0 seconds"}
    query = binlog_pipeline.state(
        changes, target, checkpoint=checkpoint, table=table, sink=sink, trigger=once
    )
    print("running", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
