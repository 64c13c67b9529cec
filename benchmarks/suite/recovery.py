"""How long a start takes: after a SIGKILL with a full redo log, and in a store of 10 MB and of 10 GB.

Each start is in a fresh process, with nothing of the store in the page cache. Its modules are loaded before the clock
starts; `serve_s` and `startup_serve_s` are the whole of `binlog-server serve`, from the command to the first login.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from binlog_storage.binlog.options import StoreOptions

from benchmarks import sparse_store, store_process
from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from binlog_server.testing import rundir
from tests.kit.server import BinlogServer

REPETITIONS: Final = 3
STARTS: Final = 7
FILE_BYTES: Final = 1 << 30
WRITTEN_BYTES: Final = 10_000_000  # in the last file, of either store: so its end is alike
CLOSED_FILES: Final = {"10MB": 0, "10GB": 10}  # before the last one


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        machine = facts(path)
        recoveries = [_recovery(path, options.log_file_size) for _ in range(options.repetitions)]
        starts = _startup(path, options.starts)
    startup = {name: median(found["open_s"]) for name, found in starts.items()}
    small, large = startup.values()
    return {
        "recovery_s": round(median(r["open_s"] for r in recoveries), 3),
        "redo_bytes": min(r["redo_bytes"] for r in recoveries),
        "startup_s": {name: round(value, 5) for name, value in startup.items()},
        "startup_ratio": round(large / small, 3),
        "serve_s": round(median(r["serve_s"] for r in recoveries), 3),
        "startup_serve_s": {name: round(found["serve_s"], 3) for name, found in starts.items()},
        "innodb_log_file_size": options.log_file_size,
        "recoveries": [
            {key: round(value, 4) for key, value in recovery.items()} for recovery in recoveries
        ],
        "starts_s": {
            name: [round(value, 5) for value in found["open_s"]] for name, found in starts.items()
        },
        "machine": machine,
    }


def _recovery(path: Path, log_file_size: int) -> dict[str, float]:
    """Two stores that were killed: one is opened by itself, one by the server."""
    with work_directory(path) as here:
        found = store_process.fill(here / "store", log_file_size)
        options = store_process.server_options(log_file_size=log_file_size)
        seconds = store_process.open_s(here / "store", options)
    progress(f"{found['redo_bytes']:,} bytes of redo: opened in {seconds:.3f} s")
    with work_directory(path) as here:
        store_process.fill(here / "store", log_file_size)
        serve = _serve_s(here / "store", options)
    progress(f"by the whole server: {serve:.3f} s")
    return {**found, "open_s": seconds, "serve_s": serve}


def _startup(path: Path, count: int) -> dict[str, dict[str, Any]]:
    """Times of opening stores, by turns, so that a disturbance of the machine hits both."""
    options = store_process.server_options(FILE_BYTES)
    with work_directory(path) as here:
        for name, closed in CLOSED_FILES.items():
            sparse_store.make(here / name, closed, FILE_BYTES, WRITTEN_BYTES)
        found: dict[str, dict[str, Any]] = {name: {"open_s": []} for name in CLOSED_FILES}
        for _ in range(count):
            for name in CLOSED_FILES:
                found[name]["open_s"].append(store_process.open_s(here / name, options))
        for name in CLOSED_FILES:
            serve = [_serve_s(here / name, options) for _ in range(REPETITIONS)]
            found[name]["serve_s"] = median(serve)
            progress(f"a store of {name}: {median(found[name]['open_s']) * 1000:.2f} ms")
        return found


def _serve_s(directory: Path, options: StoreOptions) -> float:
    """Seconds from the command to the first login, to 0.02 s. Raises `BenchmarkError`."""
    store_process.forget_pages(directory)
    server = BinlogServer(
        directory=directory,
        max_binlog_size=options.max_binlog_size,
        innodb_log_file_size=options.innodb_log_file_size,
    )
    try:
        start = time.perf_counter()
        server.start(timeout=120)
        took = time.perf_counter() - start
        server.stop()
    except RuntimeError as error:
        raise BenchmarkError(str(error)) from None
    finally:
        server.discard()
    return took


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"killed with {result['redo_bytes']:,} bytes of redo: open again in {result['recovery_s']:.3f} s, "
        f"serving in {result['serve_s']:.3f} s",
        *(
            f"a store of {name}: open in {seconds * 1000:.2f} ms, serving in "
            f"{result['startup_serve_s'][name]:.3f} s"
            for name, seconds in result["startup_s"].items()
        ),
        f"ratio {result['startup_ratio']:.2f}",
    ]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument(
        "--repetitions", type=int, default=REPETITIONS, help="of the recovery; default 3"
    )
    parser.add_argument("--starts", type=int, default=STARTS, help="of each size; default 7")
    parser.add_argument(
        "--log-file-size",
        type=int,
        default=store_process.LOG_FILE_SIZE,
        help="innodb_log_file_size of the recovery; default 96 MiB",
    )
    parser.add_argument("--directory", type=Path, help="for the stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="recovery",
    summary="start-up after a kill with a full redo log, and with 10 MB and 10 GB: recovery_s, startup_s",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
