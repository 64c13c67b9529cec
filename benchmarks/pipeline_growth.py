"""The cost of jobs by processor time: with size, with processes, with many files.

By the clock two busy processors say little of any of it. What a process takes of its processor is nearly the same
whatever runs beside it, and how long a job takes is that of the slowest of its processes, and what is done before and
behind them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.export import ExportSlice
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.views.changes_opening import column_options_of

from benchmarks import sparse_store
from benchmarks.registry import progress

_FILE_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 64 << 20
_OPTIONS: Final = {"tables": "*.*"}


@dataclass(frozen=True, slots=True)
class TimedSlice:
    """The task: the export of one slice; its process, and the seconds that it took of a processor."""

    task: ExportSlice

    def __call__(self, part: Slice) -> tuple[int, float]:
        began = time.process_time()
        self.task(part)
        return os.getpid(), time.process_time() - began


def exported_s(store: Path, staging: Path, workers: int, share: float = 1.0) -> float:
    """Seconds of processor of the export of the first part of a store: here, and of the worker that has the most."""
    began = time.process_time()
    options = SourceOptions.parse({"path": str(store), **_OPTIONS})
    source = open_source(options)
    task = ExportSlice(
        str(staging),
        "struct",
        Subscription.parse(options.tables),
        Seed.read(options.schema_seed),
        column_options_of(options),
        True,
    )
    end = source.latest()
    for gtid in end:
        end = end.with_gtid(gtid._replace(seq_no=max(1, int(gtid.seq_no * share))))
    wanted = options.wanted.between(source.earliest(), end)
    done = over_slices(TimedSlice(task), source, wanted, Engine("local", workers), "export")
    here = time.process_time() - began
    shutil.rmtree(staging)
    others: dict[int, float] = {}
    for process, seconds in done:
        if process != os.getpid():
            others[process] = others.get(process, 0.0) + seconds
    return here + max(others.values(), default=0.0)


def scaling(store: Path, folder: Path, repetitions: int) -> dict[str, Any]:
    """How much shorter an export is by two processes than by one."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for workers, found in seconds.items():
            found.append(exported_s(store, folder / f"scaling-{workers}", workers))
            progress(f"export by {workers}: {found[-1]:.2f} s of processor")
    one, two = (median(found) for found in seconds.values())
    return {"ratio": round(one / two, 3), "seconds": {str(n): s for n, s in seconds.items()}}


def cost(store: Path, folder: Path, sizes: Sequence[float], repetitions: int) -> dict[str, Any]:
    """Seconds of processor for parts of a store, the largest of `sizes` being all of it.

    worst: how far the cost of a byte is from that of the smallest part at the most, in percent.
    """
    seconds: dict[float, list[float]] = {size: [] for size in sizes}
    for _ in range(repetitions):
        for size, found in seconds.items():
            found.append(exported_s(store, folder / f"cost-{size}", 1, size / max(sizes)))
            progress(f"export of {size:g} GiB of {max(sizes):g}: {found[-1]:.2f} s of processor")
    each = {size: median(found) / size for size, found in seconds.items()}
    first = each[min(sizes)]
    return {
        "worst": round(100 * max(abs(one / first - 1) for one in each.values()), 1),
        "seconds": {f"{size:g}": [round(s, 3) for s in found] for size, found in seconds.items()},
    }


def planned_s(folder: Path, files: int) -> float:
    """Seconds of processor from the opening of a directory of so many small files to its slices; the best of three."""
    store = folder / "small-files"
    sparse_store.make(store, files, _FILE_BYTES, sparse_store.GROUP_BYTES)
    found = []
    for _ in range(3):
        began = time.process_time()
        options = SourceOptions.parse({"path": str(store), **_OPTIONS})
        source = open_source(options)
        wanted = options.wanted.between(source.earliest(), source.latest())
        source.slices(wanted, _SLICE_BYTES)
        found.append(time.process_time() - began)
    shutil.rmtree(store)
    return min(found)
