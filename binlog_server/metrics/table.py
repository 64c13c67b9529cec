"""Every metric of the server, in one table: name, type, labels, what it means, and where it is read.

Names end in the unit, counters in `_total`. Nothing is counted for metrics alone but plain integers: all of it is
state that is there anyway. `docs/metrics.md` has the same table for people; a test holds them equal.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from binlog_server.metrics.connection_metrics import CLIENTS, REPLICAS, UPSTREAMS
from binlog_server.metrics.health import what_is_missing
from binlog_server.metrics.metric import GAUGE, PREFIX, Labelled, Metric, gauge
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
