"""Binlog changes as DataFrames, in batch and live, and without Spark as Arrow batches.

    import pipeline
    spark = pipeline.session("local[2]")
    spark.read.format("binlog").option("view", "transactions").load("/var/lib/binlog-server").show()

Importing this imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.spark.session import register, session

__all__ = ["register", "session"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pipeline.spark import session as module

        return getattr(module, name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
