"""Binlog changes as DataFrames, in batch and live, and without Spark as Arrow batches.

    import binlog_pipeline
    spark = binlog_pipeline.session("local[2]")
    spark.read.format("binlog").option("view", "transactions").load("/var/lib/binlog-server").show()

Importing this imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binlog_pipeline.schemas.seed_writing import write_seed
    from binlog_pipeline.spark.session import live_session, register, session
    from binlog_pipeline.spark.streams import state

__all__ = ["live_session", "register", "session", "state", "write_seed"]
_MODULES = {
    "live_session": "spark.session",
    "register": "spark.session",
    "session": "spark.session",
    "state": "spark.streams",
    "write_seed": "schemas.seed_writing",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"binlog_pipeline.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'binlog_pipeline' has no attribute {name!r}")
