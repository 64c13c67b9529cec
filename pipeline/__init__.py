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
    from pipeline.spark.streams import state

__all__ = ["register", "session", "state"]
_MODULES = {"register": "session", "session": "session", "state": "streams"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"pipeline.spark.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
