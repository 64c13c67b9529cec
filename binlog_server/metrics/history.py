"""The last hour, in memory: what the plots of the status page and `/api/history` show.

A sample every ten seconds, of values of the table of metrics: how much was committed, received, sent since the sample
before, and how far the last one is behind.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from binlog_storage.disk.durations import Durations

from binlog_server.metrics.metric import PREFIX, Metric
from binlog_server.metrics.observed import Look

EVERY_S: Final = 10.0
SAMPLES: Final = 360


class Plot(NamedTuple):
    """What is kept of a metric: its growth in a second, or the largest value of its series."""

    metric: str
    title: str
    unit: str
    grows: bool


PLOTS: Final[Mapping[str, Plot]] = {
    "commits": Plot("commits_total", "Commits", "/s", grows=True),
    "written": Plot("binlog_written_bytes_total", "Binlog written", "B/s", grows=True),
    "sent": Plot("sent_bytes_total", "Sent to clients and replicas", "B/s", grows=True),
    "replica_lag": Plot("replica_lag_seconds", "Lag of the last replica", "s", grows=False),
    "replica_bytes": Plot("replica_lag_bytes", "Not sent to the last replica", "B", grows=False),
    "upstream_lag": Plot("upstream_lag_seconds", "Lag behind upstreams", "s", grows=False),
}


class History:
    """The samples of the last hour. `take` in one thread at a time; `told` in any.

    Args:
        metrics: the table of all metrics.
        clock: seconds since 1970. monotonic: seconds of a clock that is never set.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        by_name = {metric.name: metric for metric in metrics}
        self._metrics = {name: by_name[PREFIX + plot.metric] for name, plot in PLOTS.items()}
        self._clock, self._monotonic = clock, monotonic
        self._samples: deque[tuple[float, tuple[float | None, ...]]] = deque(maxlen=SAMPLES)
        self._lock = threading.Lock()
        self._before: tuple[float, dict[str, float]] | None = None

    def take(self, look: Look) -> None:
        """Take a sample. Raises `StorageError`."""
        now, seen = self._monotonic(), {}
        for name, metric in self._metrics.items():
            values = [v for _, v in metric.read(look) if v is not None]
            numbers = [v for v in values if not isinstance(v, Durations)]
            if numbers:
                seen[name] = float(sum(numbers) if PLOTS[name].grows else max(numbers))
        before, self._before = self._before, (now, seen)
        if before is not None and now > before[0]:
            row = tuple(_value(name, seen, before[1], now - before[0]) for name in PLOTS)
            with self._lock:
                self._samples.append((self._clock(), row))

    def told(self) -> dict[str, Any]:
        """`at`: seconds since 1970 of each sample; `series`: its values by the names of `PLOTS`, None for none."""
        with self._lock:
            samples = list(self._samples)
        return {
            "every_s": EVERY_S,
            "at": [at for at, _ in samples],
            "series": {
                name: [values[index] for _, values in samples] for index, name in enumerate(PLOTS)
            },
        }


def _value(
    name: str, seen: Mapping[str, float], before: Mapping[str, float], seconds: float
) -> float | None:
    if name not in seen:
        return None
    if not PLOTS[name].grows:
        return seen[name]
    # A counter that has begun anew, by ALTER BINLOG CONVERT, counts from 0.
    grown = seen[name] - before.get(name, 0.0)
    return (grown if grown >= 0 else seen[name]) / seconds
