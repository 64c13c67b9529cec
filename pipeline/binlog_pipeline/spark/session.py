"""A Spark session with the settings that matter for this source, and making the source known to any session."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from binlog_pipeline.spark.data_source import BinlogDataSource, FilteringDataSource
from binlog_pipeline.spark.local_files import write_without_processes

_PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
_SETTINGS: Final = {
    # Short tasks: three times as many a second, together with `gc.freeze` in the reader.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark 4.3 asks for the size of the batch behind each row, and goes through all rows of it for a list that is in a
    # null struct, as `_statement` has them: with its own 10,000 rows that is most of the time of a large batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "binlog_pipeline.spark.worker_daemon",
    "spark.sql.timeType.enabled": "true",
}

# Where a job is a micro-batch of some hundred rows, what is around it counts.
_LIVE_SETTINGS: Final = {
    # Each job makes a block of memory of that size to send its task by: at Spark's own 4 MiB, too large for the regions
    # of the heap, the JVM began to look for garbage in all of it once a second.
    "spark__broadcast__blockSize": "128k",
    # Each job describes its plan for the UI, also where there is none, and the default does it at length.
    "spark__sql__ui__explainMode": "simple",
    # Of a query that ends, of which a batch has two, all that are remembered are sorted to forget the oldest one.
    "spark__sql__ui__retainedExecutions": "20",
}

# What writes a stream's offsets and commits, and where Spark keeps it: 4.1 and later, 4.0.
_RENAMES: Final = "spark.sql.streaming.checkpointFileManagerClass"
_RENAMERS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)

# Not spark.driver.extraJavaOptions: that would take the place of what a cluster's own files say.
_JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Make `spark.read.format("binlog")` work.

    push_filters: let Spark push filters down, for all sources of the session that are written in Python. Each `load`
    may be used by one query then: Spark (4.1 to 4.3) keeps what a query has pushed with the loaded table, and the next
    query, or the other side of a join, reads by the filters of the first.
    """
    if push_filters:
        spark.conf.set(_PUSH_DOWN, "true")
    spark.dataSource.register(FilteringDataSource if push_filters else BinlogDataSource)


def is_connect(one: SparkSession | DataFrame) -> bool:
    """Whether a session or a DataFrame is one of Spark Connect: it has no RDD and no broadcast."""
    return type(one).__module__.startswith("pyspark.sql.connect.")


def end_planners(spark: SparkSession) -> None:
    """End the Python processes that plan the reads of a session, which is stopped next.

    One that is idle prints a stack on the standard error of the program if it sees the session go first. The daemon
    that makes them is that of Spark, whatever `spark.python.daemon.module` says (4.3).
    """
    if is_connect(spark):
        return
    assert spark._jvm is not None
    for daemon in spark._jvm.java.lang.ProcessHandle.current().children().toArray():
        if " -m pyspark.daemon " in daemon.info().commandLine().orElse(""):
            for one in daemon.children().toArray():
                one.destroyForcibly()


def end(spark: SparkSession) -> None:
    """Stop a session and its planners; of one whose JVM has gone nothing is left to stop."""
    with contextlib.suppress(Py4JNetworkError, ConnectionError):
        end_planners(spark)
        spark.stop()


def session(master: str = "local[*]", **settings: str) -> SparkSession:
    """A session on `master` that has the source.

    Workers run this very Python, sockets are Unix-domain sockets, times are UTC, nothing listens outside this machine.
    `settings` are Spark's, with `__` for each dot: `spark__sql__shuffle__partitions="4"`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("binlog")
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    if not master.startswith("local"):
        # The standard error of executors elsewhere is not ours, and their Python may lack this package.
        local_only = {
            "spark.driver.bindAddress",
            "spark.driver.host",
            "spark.python.daemon.module",
        }
        chosen = {**{k: v for k, v in _SETTINGS.items() if k not in local_only}, **chosen}
    else:
        chosen = {**_SETTINGS, **chosen}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    _rename_cheaply(spark)
    return spark


def _rename_cheaply(spark: SparkSession) -> None:
    """Let checkpoints be renamed by Hadoop's FileSystem instead of its FileContext, unless somebody has chosen.

    On a local disk the latter starts five processes for each of a batch's two files (`chmod`, and `readlink` four
    times), the former two. Neither renames only if the name is free there: both look first. HDFS does, asked by either.
    """
    if is_connect(spark) or spark.conf.get(_RENAMES, "") or spark._jvm is None:
        return
    classes = spark._jvm.java.lang.ClassLoader.getSystemClassLoader()
    for name in _RENAMERS:
        if classes.getResource(name.replace(".", "/") + ".class") is not None:
            spark.conf.set(_RENAMES, name)
            return


class _Forks:
    """What a process that is forked here does first."""

    ignore_sigterm = False

    @classmethod
    def begin(cls) -> None:
        if cls.ignore_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a JVM that finds it so leaves it so


os.register_at_fork(after_in_child=_Forks.begin)


@contextlib.contextmanager
def deaf_jvm() -> Iterator[None]:
    """A JVM that is started in here does not hear SIGTERM, as none of PySpark hears SIGINT; it ends with this process.

    systemd and `timeout` tell each process of a group to end. The JVM would be gone at once, and the query be broken
    off by that.
    """
    _Forks.ignore_sigterm = True
    try:
        yield
    finally:
        _Forks.ignore_sigterm = False


def live_session(master: str = "local[*]", **settings: str) -> SparkSession:
    """As `session`, for streams whose batches are small and come one behind the other.

    The JVM, if this starts one, leaves its second compiler out: for minutes that takes as long as all that runs, and
    what it makes faster are loops over many rows. What somebody else says to the JVM counts more. And it writes local
    files without starting processes.
    """
    is_new = SparkContext._active_spark_context is None
    given = os.environ.get(_JVM_OPTIONS)
    os.environ[_JVM_OPTIONS] = f"{_ONE_COMPILER} {given or ''}"
    try:
        spark = session(master, **{**_LIVE_SETTINGS, **settings})
    finally:
        if given is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = given
    if is_new and not is_connect(spark):
        write_without_processes(spark._jvm, spark.sparkContext._jsc.hadoopConfiguration())
    return spark
