"""A source cut into slices for workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlog_pipeline.sources.source import LogSource, Slice
from binlog_pipeline.wanted import Wanted

_PARTITION_BYTES: Final = 64 << 20
_PARTITION_BYTES_MIN: Final = 4 << 20
_SLICES_A_WORKER: Final = 4


def cut(source: LogSource, wanted: Wanted, workers: int) -> tuple[Sequence[Slice], int]:
    """The slices, and about how many bytes they are at the most.

    They have 64 MiB each, or less where that keeps all workers busy to the end. Raises `PipelineError`.
    """
    slices = source.slices(wanted, _PARTITION_BYTES)
    size = len(slices) * _PARTITION_BYTES
    enough = workers * _SLICES_A_WORKER
    if 0 < len(slices) < enough and workers > 1:
        slices = source.slices(wanted, max(size // enough, _PARTITION_BYTES_MIN))
    return slices, size
