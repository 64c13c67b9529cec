"""A store with one large transaction on its tables, in processes of its own: made and killed, and opened.

    python -m benchmarks.table_store fill --directory D --rows N [--commit]    # then SIGKILL of itself
    python -m benchmarks.table_store open --directory D [--synchronous] [--undo]

Each prints one JSON value: what was written; seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from binlog_storage.binlog.options import UNDO_BACKGROUND, UNDO_SYNCHRONOUS, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import StorageError

from benchmarks.child import Child, run_json
from benchmarks.store_process import forget_pages

TABLE: Final = 1
ROW_BYTES: Final = 100
_AT_ONCE: Final = 1000  # rows of each transaction that fills the table
_POLL_S: Final = 0.01


def fill(directory: Path, rows: int, log_file_size: int, *, commit: bool) -> dict[str, int]:
    """Leave a killed store there: a table of so many rows, and a durable transaction that has changed them all."""
    arguments = ["fill", *_common(directory, log_file_size), "--rows", str(rows)]
    with Child("benchmarks.table_store", *arguments, *(["--commit"] if commit else [])) as child:
        found: dict[str, int] = child.line()
        child.wait_killed()
    return found


def opened(
    directory: Path, log_file_size: int, *, synchronous: bool = False, undo: bool = False
) -> dict[str, float]:
    """Open it in a fresh process, with nothing of it in memory.

    Returns `open_s`, and its part in `cpu_s`; with `undo` also `undo_s`, until the background has undone everything.
    """
    forget_pages(directory)
    more = [*(["--synchronous"] if synchronous else []), *(["--undo"] if undo else [])]
    found: dict[str, float] = run_json(
        "benchmarks.table_store", "open", *_common(directory, log_file_size), *more
    )
    return found


def _common(directory: Path, log_file_size: int) -> tuple[str, ...]:
    return "--directory", str(directory), "--log-file-size", str(log_file_size)


# -- the other process -----------------------------------------------------------------------------


def fill_and_die(directory: Path, rows: int, options: StoreOptions, *, commit: bool) -> None:
    engine = IbbEngine(OsDisk(directory), options, background=True)
    t = engine.tables.begin()
    t.create_table(TABLE, b"rows")
    for number in range(rows):
        t.put(TABLE, number.to_bytes(8), b"%0*d" % (ROW_BYTES, number))
        if number % _AT_ONCE == _AT_ONCE - 1:
            t.commit()
            t = engine.tables.begin()
    t.commit()
    began = time.perf_counter()
    t = engine.tables.begin()
    for number in range(rows):
        t.put(TABLE, number.to_bytes(8), b"%-*d" % (ROW_BYTES, number))
    if commit:
        t.commit()
    engine.sync()
    counters = engine.counters()
    found: dict[str, Any] = {
        "change_s": round(time.perf_counter() - began, 3),
        "redo_bytes": counters["Innodb_checkpoint_age"],
        "snapshots": counters["Binlog_table_snapshots"],
    }
    print(json.dumps(found), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def opening(directory: Path, options: StoreOptions, *, undo: bool) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.thread_time()
    engine = IbbEngine(OsDisk(directory), options, background=True)
    found = {"open_s": time.perf_counter() - start, "cpu_s": time.thread_time() - cpu}
    if undo:
        while engine.rows_to_undo:
            time.sleep(_POLL_S)
        found["undo_s"] = time.perf_counter() - start - found["open_s"]
    engine.close()
    return {name: round(value, 4) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_store")
    parser.add_argument("what", choices=("fill", "open"))
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--log-file-size", type=int, required=True)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("--synchronous", action="store_true")
    parser.add_argument("--undo", action="store_true")
    given = parser.parse_args()
    options = StoreOptions(
        innodb_log_file_size=given.log_file_size,
        undo_at_start=UNDO_SYNCHRONOUS if given.synchronous else UNDO_BACKGROUND,
    )
    try:
        if given.what == "fill":
            fill_and_die(given.directory, given.rows, options, commit=given.commit)
        else:
            print(json.dumps(opening(given.directory, options, undo=given.undo)))
    except StorageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
