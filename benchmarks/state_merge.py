"""Changes folded into a Delta table: by our executors, by deltalake in one process, and by a plain job of Spark.

Delta's jar is on Maven alone, so the plain job does what a MERGE of Delta's by Spark does, without its log: it takes
the last change of each key, finds the files that have one of these keys by a join, and writes the rows of these
files anew with those of now. It may read the changes from Parquet files, in which they already are.

Changes are spread over all keys, so that each file has some, or are of the newest rows alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_pipeline.tables.delta import DeltaState
from binlog_pipeline.tables.sinks import open_sink
from binlog_pipeline.tasks import HERE, Workers
from binlog_protocol.gtid import Gtid, SlavePosition

from benchmarks.registry import BenchmarkError, progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE: Final = "bench.orders"
_COLUMNS: Final = pa.struct(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.decimal128(12, 2)), ("n", pa.int32())]
)
_GTID: Final = pa.struct([(name, pa.int64()) for name in ("domain", "server", "seq")])
_CHANGES: Final = pa.schema(
    [
        ("_op", pa.string()),
        ("_gtid", _GTID),
        ("_order_key", pa.binary()),
        ("_key", pa.struct([("id", pa.int64())])),
        ("_present", pa.binary()),
        ("before", _COLUMNS),
        ("after", _COLUMNS),
    ]
)
_RECENT: Final = 100
"""One in so many rows is new."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Times:
    """Seconds by the clock, and of processors: of this process and all that it has started."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def take(self, work: Callable[..., object], *arguments: object) -> None:
        before, began = _processor_s(), time.perf_counter()
        work(*arguments)
        self.clock.append(round(time.perf_counter() - began, 3))
        self.processor.append(round(_processor_s() - before, 2))


def state_rows(folder: Path, rows: int, changes: int, repetitions: int) -> dict[str, Any]:
    """Changes a second, and how much longer the plain job takes; of changes over all keys, and of the newest rows."""
    from binlog_pipeline.spark.session import session
    from binlog_pipeline.spark.task_workers import SparkWorkers

    by_workers, here = folder / "state-workers", folder / "state-here"
    with open_sink("delta", by_workers, _TABLE, ["id"], SlavePosition()) as kept:
        assert isinstance(kept, DeltaState)
        kept.load(_rows(np.arange(rows), 0), SlavePosition([Gtid(0, 1, 1)]))
    shutil.copytree(by_workers, here)
    progress(f"a table of {rows:,} rows, {len([*by_workers.glob('*.parquet')])} files")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = session(
        "local[2]",
        spark__local__dir=str(folder),
        spark__driver__memory="4g",
        spark__sql__shuffle__partitions="4",
    )
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[str, Any] = {}
    rng = np.random.default_rng(1)
    number = 1
    try:
        for name, least in (("all", 0), ("recent", rows - rows // _RECENT)):
            times = {way: _Times() for way in ("workers", "here", "spark")}
            for _ in range(
                repetitions + 1
            ):  # the first one is not counted: executors load what they need
                number += 1
                batch = _batch(rng, rows, least, changes, number)
                position = SlavePosition([Gtid(0, 1, number)])
                files = _files(by_workers)
                out = folder / "state-spark"
                times["spark"].take(_plain_merge, spark, files, batch, out)
                times["workers"].take(_add, by_workers, batch, position, SparkWorkers(spark))
                times["here"].take(_add, here, batch, position, HERE)
                _require_same(by_workers, here, files, out)
                shutil.rmtree(out)
                said = {way: one.clock[-1] for way, one in times.items()}
                progress(f"{changes:,} changes, {name}: {said} s")
            found[name] = _summed(times, changes)
    finally:
        spark.stop()
    shutil.rmtree(by_workers)
    shutil.rmtree(here)
    return found


def _summed(times: dict[str, _Times], changes: int) -> dict[str, Any]:
    clock = {way: median(one.clock[1:]) for way, one in times.items()}
    processor = {way: median(one.processor[1:]) for way, one in times.items()}
    return {
        "rows_s": {way: round(changes / seconds) for way, seconds in clock.items()},
        "vs_spark": round(clock["spark"] / clock["workers"], 2),
        "processor_vs_spark": round(processor["spark"] / processor["workers"], 2),
        "seconds": {way: one.clock for way, one in times.items()},
        "processor_seconds": {way: one.processor for way, one in times.items()},
    }


def _rows(ids: np.ndarray[Any, Any], version: int) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    names = [f"customer {id_ % 9973} of version {version}" for id_ in ids.tolist()]
    amounts = (
        pa.array(ids % 1_000_000, pa.int64()).cast(pa.decimal128(21, 2)).cast(_COLUMNS[2].type)
    )
    values = [numbers, pa.array(names), amounts, pa.array(np.full(len(ids), version), pa.int32())]
    return pa.table(values, names=[one.name for one in _COLUMNS])


def _batch(rng: np.random.Generator, rows: int, least: int, count: int, number: int) -> pa.Table:
    """Changes of rows from `least` on: of eight six are UPDATE, one is DELETE, one INSERT behind all others."""
    kinds = rng.choice([*"uuuuuudc"], count)
    ids = rng.integers(least, rows, count)
    is_new = kinds == "c"
    ids[is_new] = rows * number + np.arange(is_new.sum())
    # A row that is gone is inserted again by what would update it.
    image = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in _rows(ids, number).columns], fields=[*_COLUMNS]
    )
    nothing = pa.nulls(count, _COLUMNS)
    is_gone = pa.array(kinds == "d")
    keys = [n.to_bytes(24, "big") for n in range(count)]
    gtid = {"domain": 0, "server": 1, "seq": number}
    columns = [
        pa.array(kinds.tolist()),
        pa.array([gtid] * count, _GTID),
        pa.array(keys, pa.binary()),
        pa.StructArray.from_arrays([pa.array(ids)], names=["id"]),
        pa.nulls(count, pa.binary()),
        pa.compute.if_else(pa.array(~is_new), image, nothing),
        pa.compute.if_else(is_gone, nothing, image),
    ]
    return pa.Table.from_arrays(columns, schema=_CHANGES)


def _add(target: Path, batch: pa.Table, position: SlavePosition, workers: Workers) -> None:
    with open_sink("delta", target, _TABLE, ["id"], SlavePosition(), workers=workers) as kept:
        kept.add(batch, position)


def _files(target: Path) -> list[str]:
    import deltalake

    return sorted(
        str(target / uri.rsplit("/", 1)[-1])
        for uri in deltalake.DeltaTable(str(target)).file_uris()
    )


def _plain_merge(spark: SparkSession, files: list[str], batch: pa.Table, out: Path) -> None:
    """The rows of all files that have a key of the batch, as they are behind it, in `out`."""
    from pyspark.sql import functions as f

    source = out.with_suffix(".parquet")
    pq.write_table(batch, source)
    changes = spark.read.parquet(str(source))
    last: DataFrame = (
        changes.groupBy(f.coalesce("after.id", "before.id").alias("id"))
        .agg(f.max_by(f.struct("_op", "after"), "_order_key").alias("now"))
        .persist()
    )
    table = spark.read.parquet(*files)
    keyed = table.select("id", f.input_file_name().alias("file"))
    touched = [
        row.file for row in keyed.join(last, "id", "left_semi").select("file").distinct().collect()
    ]
    now = last.where("now._op != 'd'").select("now.after.*")
    kept = now
    if touched:
        kept = spark.read.parquet(*touched).join(last, "id", "left_anti").unionByName(now)
    kept.write.parquet(str(out), compression="snappy")
    last.unpersist()
    source.unlink()


def _require_same(by_workers: Path, here: Path, files: list[str], out: Path) -> None:
    """Raises `BenchmarkError` if the ways have made tables of other rows."""
    import deltalake

    counts = {
        name: deltalake.DeltaTable(str(path)).to_pyarrow_dataset().count_rows()
        for name, path in (("workers", by_workers), ("here", here))
    }
    new = sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet"))
    left = {*files} & {*_files(by_workers)}
    if {*files} - left:  # what the plain job has read, if it has found the same files
        counts["spark"] = new + sum(pq.read_metadata(path).num_rows for path in left)
    if len({*counts.values()}) > 1:
        raise BenchmarkError(f"the tables have other rows: {counts}")


def _processor_s() -> float:
    """Seconds of processors of this process and all below it, those included that have ended."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.name)] = int(fields[1])
            seconds[int(path.name)] = sum(map(int, fields[11:15])) / _TICKS
    total = 0.0
    for process, its in seconds.items():
        one = process
        while one not in (os.getpid(), 0, 1):
            one = parents.get(one, 0)
        total += its if one == os.getpid() else 0.0
    return total
