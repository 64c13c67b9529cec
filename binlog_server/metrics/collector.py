"""The table of metrics as a registry of prometheus-client, which writes the formats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from binlog_storage.disk.durations import Durations
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from binlog_server.metrics.metric import COUNTER, HISTOGRAM, Metric
from binlog_server.metrics.observed import Look
from binlog_server.metrics.table import METRICS


class ServerCollector(Collector):
    """Collects the metrics of one look at the server."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._look)


def _family(metric: Metric, look: Look) -> Family:
    # A dict: Prometheus throws a scrape away that has the same series twice.
    found = {tuple(map(_text, labels)): value for labels, value in metric.read(look)}
    values = [(labels, value) for labels, value in found.items() if value is not None]
    if metric.type == HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in values:
            assert isinstance(value, Durations)
            histogram.add_metric(labels, _buckets(value), value.total_s)
        return histogram
    kind = CounterMetricFamily if metric.type == COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        assert not isinstance(value, Durations)
        family.add_metric(labels, value)
    return family


def _text(label: str) -> str:
    """Names that clients gave may hold what is no UTF-8: nobody's scrape fails for it."""
    return label.encode("utf-8", "backslashreplace").decode()


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    return [("+Inf" if math.isinf(b) else str(b), n) for b, n in durations.cumulative()]


def registry(look: Look) -> CollectorRegistry:
    """Our metrics, and those of the process and of Python."""
    found = CollectorRegistry()
    found.register(ServerCollector(look))
    ProcessCollector(registry=found)
    PlatformCollector(registry=found)
    GCCollector(registry=found)
    return found


def render(look: Look, accept: str) -> tuple[bytes, str]:
    """The body in the format that the Accept header asks for, and its content type. To be called in a thread."""
    encode, content_type = choose_encoder(accept)
    return encode(registry(look)), content_type
