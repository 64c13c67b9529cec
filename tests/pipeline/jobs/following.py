"""Keeps a target up to date by a stream until it is killed, or with `once` until it has what was there.

python following.py STORE TABLE TARGET CHECKPOINT SINK forever|once
"""

import sys

import binlog_pipeline
import pytest
from binlog_pipeline.tables import merging


def main(store: str, table: str, target: str, checkpoint: str, sink: str, how: str) -> None:
    # Executors write tables of a few rows, too.
    pytest.MonkeyPatch().setattr(merging, "_WORTH_SENDING", 0)
    spark = binlog_pipeline.session("local[2]", spark__driver__memory="1g")
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
