"""A source cut into slices, and a task done for each of them by workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from binlog_storage.console.progress import Progress

from binlog_pipeline.jobs.workers import Engine, open_workers
from binlog_pipeline.sources.opening import require_end
from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.tasks import Result
from binlog_pipeline.wanted import Wanted

_PARTITION_BYTES: Final = 64 << 20
_PARTITION_BYTES_MIN: Final = 4 << 20
_SLICES_A_WORKER: Final = 4


def over_slices(
    task: Callable[[Slice], Result],
    source: LogSource,
    wanted: Wanted,
    engine: Engine | None,
    label: str,
) -> list[Result]:
    """The results of a task for all slices, in the order of the log. Raises `PipelineError`, `StorageError`.

    `label`: of the progress.
    """
    engine = engine or Engine()
    require_end(source, wanted.gtids.stop)
    slices, size = _cut(source, wanted, engine.count)
    found: dict[int, Result] = {}
    with (
        open_workers(engine, size) as workers,
        Progress(label) as progress,
    ):
        for number, result in workers.map(task, slices):
            found[number] = result
            progress.show(len(found), len(slices), lambda: f"{len(found)} of {len(slices)} slices")
    return [found[number] for number in range(len(slices))]


def _cut(source: LogSource, wanted: Wanted, workers: int) -> tuple[Sequence[Slice], int]:
    """The slices, and about how many bytes they are at the most.

    They have 64 MiB each, or less where that keeps all workers busy to the end.
    """
    slices = source.slices(wanted, _PARTITION_BYTES)
    size = len(slices) * _PARTITION_BYTES
    enough = workers * _SLICES_A_WORKER
    if 0 < len(slices) < enough and workers > 1:
        slices = source.slices(wanted, max(size // enough, _PARTITION_BYTES_MIN))
    return slices, size
