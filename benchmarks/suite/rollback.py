"""A start after a kill in one large transaction on tables: beside the same rows committed, and undone before it opens.

The stores are killed, and opened again and again, each time as the crash has left them.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import table_store
from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, Result, progress
from benchmarks.store_process import LOG_FILE_SIZE

ROWS: Final = 1_000_000
ROUNDS: Final = 3
WAYS: Final = ("committed", "background", "synchronous")


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    with work_directory(options.directory) as path:
        machine = facts(path)
        stores: dict[str, dict[str, int]] = {}
        for name in ("committed", "open"):
            stores[name] = table_store.fill(
                path / name, options.rows, options.log_file_size, commit=name == "committed"
            )
            progress(f"{options.rows:,} rows changed, {name}: {stores[name]}")
        rounds: list[dict[str, dict[str, float]]] = []
        for _ in range(options.rounds):
            rounds.append({way: _opened(path, way, options.log_file_size) for way in WAYS})
            progress(
                ", ".join(f"{way} {found['open_s']:.3f} s" for way, found in rounds[-1].items())
            )
    opens = {way: median(one[way]["open_s"] for one in rounds) for way in WAYS}
    return {
        "startup_factor": round(opens["background"] / opens["committed"], 3),
        "sync_factor": round(opens["synchronous"] / opens["background"], 3),
        "open_s": {way: round(seconds, 3) for way, seconds in opens.items()},
        "undo_s": round(median(one["background"]["undo_s"] for one in rounds), 3),
        "rows": options.rows,
        "row_bytes": table_store.ROW_BYTES,
        "innodb_log_file_size": options.log_file_size,
        "stores": stores,
        "rounds": rounds,
        "machine": machine,
    }


def _opened(path: Path, way: str, log_file_size: int) -> dict[str, float]:
    """Open a copy of what the crash has left."""
    left = path / ("committed" if way == "committed" else "open")
    with work_directory(path) as here:
        shutil.copytree(left, here / "store")
        return table_store.opened(
            here / "store",
            log_file_size,
            synchronous=way == "synchronous",
            undo=way == "background",
        )


def table(result: Result) -> str:
    """See `Benchmark`."""
    opens: dict[str, Any] = result["open_s"]
    return "\n".join(
        (
            f"{result['rows']:,} rows changed in one transaction, killed",
            f"committed before: open in {opens['committed']:.3f} s",
            f"not committed: open in {opens['background']:.3f} s, undone {result['undo_s']:.3f} s later",
            f"not committed, undone before it opens: {opens['synchronous']:.3f} s",
            f"startup_factor {result['startup_factor']:.2f}, sync_factor {result['sync_factor']:.2f}",
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--rows", type=int, default=ROWS, help="changed; default 1,000,000")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default 3")
    parser.add_argument(
        "--log-file-size",
        type=int,
        default=LOG_FILE_SIZE,
        help="innodb_log_file_size; default 96 MiB",
    )
    parser.add_argument("--directory", type=Path, help="for the stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="rollback",
    summary="start-up after a kill in a transaction of 1,000,000 changed rows: startup_factor, sync_factor",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
