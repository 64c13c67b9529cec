"""Every metric of the server, in one table, and as a registry of prometheus-client, which writes the formats.

Names end in the unit, counters in `_total`. Nothing is counted for metrics alone but plain integers: all of it is
state that is there anyway. `docs/metrics.md` has the same table for people; a test holds them equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from binlog_storage.disk.durations import Durations
from binlog_storage.errors import StorageError
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from binlog_server.metrics.connection_metrics import CLIENTS, REPLICAS, UPSTREAMS
from binlog_server.metrics.health import what_is_missing
from binlog_server.metrics.metric import COUNTER, GAUGE, HISTOGRAM, PREFIX, Labelled, Metric, gauge
from binlog_server.metrics.observed import Look
from binlog_server.metrics.store_metrics import STORE


def _info(look: Look) -> Labelled:
    config = look.server.config
    return [((version("binlog-server"), config.server_version, str(config.server_id)), 1)]


METRICS: Final = (
    Metric(
        PREFIX + "info",
        GAUGE,
        "Always 1; versions and server_id are in the labels",
        ("version", "server_version", "server_id"),
        _info,
    ),
    gauge(
        "ready",
        "1 if /readyz says ok",
        lambda look: not what_is_missing(look.server),
    ),
    gauge(
        "store_failed",
        "1 after a failure of the disk: the store accepts nothing more until it is repaired and restarted",
        lambda look: look.server.syncer.failure is not None,
    ),
    *STORE,
    *CLIENTS,
    *REPLICAS,
    *UPSTREAMS,
)


class ServerCollector(Collector):
    """Collects the metrics of one look at the server."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._look)


def values(look: Look) -> dict[str, list[dict[str, Any]]]:
    """All metrics but histograms by name, without the prefix: the labels and the value of each series."""
    return {
        metric.name.removeprefix(PREFIX): [
            {
                "labels": dict(zip(metric.labels, map(_text, labels), strict=True)),
                "value": float(value),
            }
            for labels, value in _read(metric, look)
            if value is not None and not isinstance(value, Durations)
        ]
        for metric in METRICS
        if metric.type != HISTOGRAM
    }


def _read(metric: Metric, look: Look) -> Labelled:
    """Nothing where the store cannot be asked: that it has failed is told by others, which are wanted then."""
    try:
        return list(metric.read(look))
    except StorageError:
        return []


def _family(metric: Metric, look: Look) -> Family:
    # A dict: Prometheus throws a scrape away that has the same series twice.
    found = {tuple(map(_text, labels)): value for labels, value in _read(metric, look)}
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
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # prometheus_client compares versions, which may be no numbers
        encode, content_type = choose_encoder("")
    return encode(registry(look)), content_type
