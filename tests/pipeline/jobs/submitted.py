"""For spark-submit: counts the transactions of a store, in batch and as a stream; prints one JSON object."""

import json
import sys

import binlog_pipeline
from binlog_pipeline.jobs.stats import statistics
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from pyspark.sql import SparkSession


def main(store: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    binlog_pipeline.register(spark)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    options = {"view": "raw", "partitionBytes": "16m"}
    groups = spark.read.format("binlog").options(**options).load(store)
    stream = spark.readStream.format("binlog").options(**options).load(store)
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/groups")
    )
    query.awaitTermination()
    found = {
        "batch": groups.count(),
        "job": statistics(SourceOptions.parse({"path": store}), Engine("spark", 2)).groups,
        "stream": spark.read.parquet(f"{folder}/groups").select("gtid").distinct().count(),
        "pipeline": binlog_pipeline.__file__,
        "kind": type(spark).__module__,
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
