"""The pipeline: rows into columns, all tables into Parquet with and without Spark, pages, live latency, memory.

The rows are those of the benchmark `rows`. `spark_vs_local` is how much longer the export of a store to typed Parquet
takes on local[2] than by two processes without Spark; the session is started before. `live_p95_ms` is from INSERTs that
arrive open-loop at a mariadbd to `foreachBatch`. `worker_mib_4gib` is the most memory of a process that reads a
transaction of 4 GiB as rows. `scaling`, `cost_worst_percent` and `plan_files_s` are of processor time
(`pipeline_growth.py`). `state_rows_s` is of changes folded into a large Delta table by executors (`state_merge.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.log_pages import LogPages

from benchmarks import pipeline_growth, row_decoding, state_merge
from benchmarks.arrivals import percentile
from benchmarks.big_stores import groups_of, one_transaction, repeated
from benchmarks.child import ROOT, Child
from benchmarks.machine import facts, work_directory
from benchmarks.masters import DirectoryMariaDB
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from benchmarks.row_decoding import BULK, OLTP, measure
from binlog_server.testing import rundir
from binlog_server.testing.install import Install

GIB: Final = 1 << 30
_WORKERS: Final = 2
_NARROW: Final = b"\x05bench\0\x06narrow\0"  # as a table map names it
_LIVE_FLAGS: Final = (
    "--log-bin=bench-bin", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--binlog-format=ROW",
    "--binlog-row-metadata=FULL",
)  # fmt: skip
_LIVE_SETUP: Final = (
    "CREATE DATABASE bench",
    "CREATE TABLE bench.live (id BIGINT AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP(6) NOT NULL, note VARCHAR(40))",
    "INSERT INTO bench.live (at, note) VALUES (SYSDATE(6), 'the first one tells the columns')",
)
_LIVE_INSERT: Final = (
    "INSERT INTO bench.live (at, note) VALUES (SYSDATE(6), 'a note of some length')"
)


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = Install.system()
    if install is None:
        raise BenchmarkError("there is no mariadbd here: `make setup` installs it")
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        numbers = measure(stack, install, path, options)
        bulk = groups_of(path / BULK)
        groups = [*bulk, *groups_of(path / OLTP)]
        store = path / "store"
        repeated(store, groups, options.store_bytes)
        progress(f"a store of {options.store_bytes >> 20} MiB")
        pages = _pages(store)
        exports = _exports(path, store, options.repetitions)
        scaling = pipeline_growth.scaling(store, path, options.repetitions)
        growing = path / "growing"
        largest_part = max(options.cost_gib)
        repeated(growing, groups, int(largest_part * GIB))
        cost = pipeline_growth.cost(growing, path, options.cost_gib, options.repetitions)
        planned = pipeline_growth.planned_s(path, options.plan_files)
        folded = state_merge.state_rows(
            path, options.state_rows, options.state_changes, options.repetitions
        )
        live = _live(stack, install, path, options)
        largest = max((group for group in bulk if _NARROW in group), key=len)
        big = path / "big"
        written = one_transaction(big, largest, options.transaction_bytes)
        progress(f"a transaction of {written >> 20} MiB")
        memory = _memory(big)
        return {
            **numbers,
            "spark_vs_local": exports["spark_vs_local"],
            "page_crc_gib_s": pages,
            "live_p95_ms": live["p95_ms"],
            "scaling": scaling["ratio"],
            "cost_worst_percent": cost["worst"],
            "plan_files_s": round(planned, 3),
            "state_rows_s": folded["all"]["rows_s"]["workers"],
            "state_vs_spark": folded["all"]["vs_spark"],
            "worker_mib_4gib": memory["mib"],
            "export": exports,
            "scaling_by": scaling,
            "cost": cost,
            "state": folded,
            "live": live,
            "worker": memory,
            "store_bytes": options.store_bytes,
            "transaction_bytes": written,
            "machine": facts(path),
        }


# --- pages ---


@dataclass(frozen=True, slots=True)
class CheckPages:
    """The task: read and check pages; when it began, when it was done, and how many there were."""

    directory: str

    def __call__(self, part: tuple[int, int, int]) -> tuple[float, float, int]:
        file_no, first, end = part
        with LogPages(ReadOnlyDisk(Path(self.directory))) as pages:
            began = time.monotonic()
            count = sum(pages.page(file_no, n) is not None for n in range(first, end))
            return began, time.monotonic(), count


def _pages(store: Path) -> float:
    """GiB/s, by two processes; the best of three, as the others meet pages that are not in memory yet."""
    from binlog_pipeline.jobs.workers import LocalWorkers

    parts = []
    with LogPages(ReadOnlyDisk(store)) as pages:
        for file_no in pages.files():
            header = pages.header(file_no)
            assert header is not None
            half = header.pages // 2
            parts += [(file_no, 0, half), (file_no, half, header.pages)]
    rates = []
    for _ in range(3):
        done = [result for _, result in LocalWorkers(_WORKERS).map(CheckPages(str(store)), parts)]
        seconds = max(end for _, end, _ in done) - min(begin for begin, _, _ in done)
        rates.append(sum(count for _, _, count in done) * PAGE_SIZE / GIB / seconds)
    return round(max(rates), 2)


# --- all tables into Parquet ---


def _exports(path: Path, store: Path, repetitions: int) -> dict[str, Any]:
    """Seconds of both engines, by turns."""
    import binlog_pipeline
    from binlog_pipeline.jobs.export import export
    from binlog_pipeline.jobs.workers import Engine
    from binlog_pipeline.options import SourceOptions

    options = SourceOptions.parse({"path": str(store)})
    small = SourceOptions.parse({"path": str(path / OLTP)})
    seconds: dict[str, list[float]] = {"spark": [], "local": []}
    rows = 0
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = binlog_pipeline.session(f"local[{_WORKERS}]", spark__local__dir=str(path))
    spark.sparkContext.setLogLevel("ERROR")
    try:
        export(small, path / "warm", engine=Engine("spark", _WORKERS))
        for number in range(repetitions):
            for name, times in seconds.items():
                target = path / f"export-{name}-{number}"
                began = time.perf_counter()
                rows = export(options, target, engine=Engine(name, _WORKERS)).rows
                times.append(time.perf_counter() - began)
                subprocess.run(["rm", "-rf", str(target)], check=True)
                progress(f"{name}: {rows:,} rows to Parquet in {times[-1]:.2f} s")
    finally:
        spark.stop()
    local, by_spark = median(seconds["local"]), median(seconds["spark"])
    return {
        "spark_vs_local": round(by_spark / local, 3),
        "rows": rows,
        "rows_s": {"spark": round(rows / by_spark), "local": round(rows / local)},
        "seconds": {name: [round(s, 3) for s in times] for name, times in seconds.items()},
    }


# --- live ---


def _live(
    stack: contextlib.ExitStack, install: Install, path: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Milliseconds from INSERT to foreachBatch, once it is warm."""
    rate, warm_s = options.live_rate, options.live_warm_seconds
    server = DirectoryMariaDB(install, path / "live", 2, [*_LIVE_FLAGS, f"--tmpdir={path}"])
    stack.callback(server.discard)
    server.start()
    server.script(*_LIVE_SETUP)
    position, checkpoint = server.gtid_binlog_pos, str(path / "checkpoint")
    arguments = [server.host, str(server.port), "root", "bench.live", position, checkpoint]
    with Child("benchmarks.live_stream", *arguments) as stream:
        stream.line()
        writing = ["--port", str(server.port), "--rate", str(rate), "--connections", "16"]
        with Child("benchmarks.arrivals", *writing, "--sql", _LIVE_INSERT) as writer:
            writer.line()
            time.sleep(warm_s + options.live_seconds)
            times = writer.finish()
        received = stream.finish()
    latencies = received["latencies_ms"]
    if len(latencies) != len(times):
        raise BenchmarkError(f"{len(times)} rows were inserted, {len(latencies)} came")
    measured = latencies[int(warm_s * rate) :]
    return {
        "p50_ms": percentile(measured, 50),
        "p95_ms": percentile(measured, 95),
        "max_ms": max(measured),
        "rows": len(measured),
        "batches": received["batches"],
        "rate": rate,
    }


def _memory(directory: Path) -> dict[str, Any]:
    """The memory of a process that reads the store in `directory`."""
    argv = [sys.executable, "-m", "benchmarks.worker_memory", str(directory), "bench.narrow"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"reading the large transaction: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(result: Result) -> str:
    """See `Benchmark`."""
    shown = {
        "bulk rows/s, one core": f"{result['bulk_rows_s']:,}",
        "one-row transactions/s, one core": f"{result['oltp_transactions_s']:,}",
        **{key: value for key, value in result.items() if "_vs_" in key},
        "export rows/s": result["export"]["rows_s"],
        "page_crc_gib_s": result["page_crc_gib_s"],
        "live p50, p95 ms": f"{result['live']['p50_ms']}, {result['live_p95_ms']}",
        "worker_mib_4gib": result["worker_mib_4gib"],
        "two processes by one": result["scaling"],
        "cost of a byte, worst percent": result["cost_worst_percent"],
        "plan_files_s": result["plan_files_s"],
        "changes/s into a Delta table": result["state_rows_s"],
    }
    return "\n".join(f"{name:36} {value}" for name, value in shown.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    row_decoding.add_arguments(parser)
    parser.add_argument("--store-bytes", type=int, default=GIB, help="of the export; default 1 GiB")
    parser.add_argument(
        "--cost-gib",
        type=_sizes,
        default=(1.0, 2.0, 4.0, 8.0),
        metavar="N,...",
        help="GiB of a store whose exports are compared; default 1,2,4,8",
    )
    parser.add_argument(
        "--plan-files", type=int, default=2000, help="small files of a store; default 2000"
    )
    parser.add_argument(
        "--state-rows", type=int, default=10_000_000, help="of the Delta table; default 10 million"
    )
    parser.add_argument(
        "--state-changes", type=int, default=250_000, help="folded at a time; default 250,000"
    )
    parser.add_argument("--transaction-bytes", type=int, default=4 * GIB, help="default 4 GiB")
    parser.add_argument("--live-rate", type=float, default=2000.0, help="INSERTs a second")
    parser.add_argument(
        "--live-warm-seconds",
        type=float,
        default=60.0,
        help="INSERTs before those that are measured, while the JVM compiles what it runs; default 60",
    )
    parser.add_argument("--live-seconds", type=float, default=30.0, help="default 30")


def _sizes(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.split(","))


BENCHMARK: Final = Benchmark(
    name="spark",
    summary="the pipeline: *_vs_mariadb_binlog, *_vs_pmr, spark_vs_local, page_crc_gib_s, live_p95_ms, "
    "worker_mib_4gib, scaling, cost_worst_percent, plan_files_s, state_rows_s, state_vs_spark",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
