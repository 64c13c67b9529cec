"""How long something took, counted by buckets: cheap enough for every fsync, and enough to tell the slow ones."""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import accumulate

# Upper bounds in seconds: an NVMe with power-loss protection is at the left, a disk that dies at the right.
BOUNDS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)


class _Measured:
    """See `Durations.measured`. A class, since it is entered for each sync: a generator takes three times as long."""

    __slots__ = ("_began", "_durations")

    def __init__(self, durations: Durations) -> None:
        self._durations = durations

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, kind: object, _: object, __: object) -> None:
        if kind is None:
            self._durations.add(time.perf_counter() - self._began)


class Durations:
    """Counted since the start. One thread at a time measures; any may read, and may miss the last one."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    @property
    def count(self) -> int:
        """How many."""
        return sum(self._counts)

    def measured(self) -> _Measured:
        """Count the time of the block, unless it fails."""
        return _Measured(self)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[tuple[float, int]]:
        """The number of calls up to each upper bound, the last one infinite."""
        return list(zip((*BOUNDS_S, float("inf")), accumulate(self._counts), strict=True))
