"""Metrics as values, and short ways to write one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_storage.disk.durations import Durations

from binlog_server.metrics.observed import Look

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
PREFIX: Final = "binlog_server_"

Value = float | Durations | None  # None is left out: there is nothing to tell
Labelled = Iterable[tuple[Sequence[str], Value]]  # values of the labels, and the value


@dataclass(frozen=True, slots=True)
class Metric:
    """`read` gives a value for each set of label values."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Look], Labelled]


def one(name: str, kind: str, help_: str, read: Callable[[Look], float | None]) -> Metric:
    """Without labels. `name` without the prefix."""
    return Metric(PREFIX + name, kind, help_, (), lambda look: [((), read(look))])


def counter(name: str, help_: str, read: Callable[[Look], float]) -> Metric:
    """A metric that only grows, from 0 at the start."""
    return one(name, COUNTER, help_, read)


def gauge(name: str, help_: str, read: Callable[[Look], float | None]) -> Metric:
    """A metric that goes up and down."""
    return one(name, GAUGE, help_, read)


def status(name: str, kind: str, help_: str, variable: str) -> Metric:
    """A metric from the store's variable of SHOW GLOBAL STATUS. An engine that does not count has none."""
    return one(name, kind, help_, lambda look: look.counters.get(variable))
