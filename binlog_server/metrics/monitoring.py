"""What a monitoring system is given: Prometheus' alert rules, and a Grafana dashboard of all metrics.

Both are made of tables: the rules of `ALERTS`, the dashboard of the table of metrics, a panel each. `binlog-server
monitoring` prints them; docs/metrics.md has the rules, and a test holds it equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from binlog_server.metrics.collector import METRICS
from binlog_server.metrics.connection_metrics import CLIENTS, REPLICAS, UPSTREAMS
from binlog_server.metrics.metric import COUNTER, HISTOGRAM, PREFIX, Metric
from binlog_server.metrics.store_metrics import STORE

JOB: Final = "binlog-server"
CRITICAL, WARNING = "critical", "warning"


class Alert(NamedTuple):
    """One rule. `lasts`: for how long the expression has to be true; `summary`: what is so, and what to do."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str


_REDO: Final = 'rate(binlog_server_fsync_seconds_bucket{file="redo"}[5m])'
ALERTS: Final = (
    Alert(
        "BinlogServerDown", f'up{{job="{JOB}"}} == 0', "5m", CRITICAL, "It does not answer /metrics"
    ),
    Alert(
        "BinlogServerNotReady",
        "binlog_server_ready == 0",
        "5m",
        CRITICAL,
        "/readyz and the status page say why",
    ),
    Alert(
        "BinlogStoreFailed",
        "binlog_server_store_failed == 1",
        "",
        CRITICAL,
        "The disk has failed: repair it, then restart. What is durable is still served",
    ),
    Alert(
        "BinlogDiskFull",
        "binlog_server_disk_free_bytes < 2 * 1073741824",
        "5m",
        CRITICAL,
        "Less room than two files of the default size: commits will wait. EXPLAIN PURGE says what holds files",
    ),
    Alert(
        "BinlogStandsStill",
        "max by (instance, what) (binlog_server_stalled_seconds) > 30",
        "1m",
        CRITICAL,
        "Something does not move: the label says what, /readyz why",
    ),
    Alert(
        "BinlogUpstreamStopped",
        "binlog_server_upstream_stopped == 1",
        "",
        CRITICAL,
        "Following has ended for good: SHOW SLAVE STATUS says why; mend it, then START SLAVE",
    ),
    Alert(
        "BinlogUpstreamSilent",
        "time() - binlog_server_upstream_last_heard_timestamp_seconds > 120",
        "",
        WARNING,
        "Nothing was heard of the upstream for two minutes, no heartbeat either",
    ),
    Alert(
        "BinlogReplicaLags",
        "binlog_server_replica_lag_seconds > 300 and delta(binlog_server_replica_lag_bytes[5m]) >= 0",
        "10m",
        WARNING,
        "A replica is behind, and does not catch up",
    ),
    Alert(
        "BinlogReplicaReadsNothing",
        "binlog_server_replica_unread_seconds > 60",
        "2m",
        WARNING,
        "A replica is connected and reads nothing: it is paused, its disk is full, or it hangs. All may look sent",
    ),
    Alert(
        "BinlogReplicaGone",
        "binlog_server_replicas < max_over_time(binlog_server_replicas[1d])",
        "15m",
        WARNING,
        "Fewer replicas than in the last day. Their slots keep their files for a time: SHOW BINLOG LEASES",
    ),
    Alert(
        "BinlogFsyncSlow",
        f"histogram_quantile(0.99, sum by (instance, le) ({_REDO})) > 0.05",
        "10m",
        WARNING,
        "One of a hundred commits waits more than 50 ms for the disk",
    ),
    Alert(
        "BinlogScrubDamage",
        "binlog_server_scrub_damages > 0",
        "",
        CRITICAL,
        "A file or a part of the archive is damaged: the log names each, docs/troubleshooting.md says what to do",
    ),
    Alert(
        "BinlogScrubLate",
        "time() - binlog_server_scrub_last_pass_timestamp_seconds > 15 * 86400",
        "1h",
        WARNING,
        "No pass of the scrub has ended for two intervals of a week: raise binlog_scrub_rate",
    ),
    Alert(
        "BinlogLoginsFail",
        "rate(binlog_server_failed_logins_total[5m]) > 1",
        "5m",
        WARNING,
        "Somebody guesses passwords, or has an old one: the log says who",
    ),
    Alert(
        "BinlogCertificateExpires",
        "binlog_server_tls_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        "1h",
        WARNING,
        "The certificate expires within two weeks: renew it, then FLUSH SSL",
    ),
)


def rule_groups() -> dict[str, Any]:
    """The rules as an object, for JSON."""
    return {
        "groups": [
            {
                "name": JOB,
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expression,
                        **({"for": alert.lasts} if alert.lasts else {}),
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary},
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }


def rules() -> str:
    """The rules as a file for `rule_files` of Prometheus."""
    lines = ["groups:", f"  - name: {JOB}", "    rules:"]
    for alert in ALERTS:
        lines += [f"      - alert: {alert.name}", f"        expr: {_quoted(alert.expression)}"]
        lines += [f"        for: {alert.lasts}"] if alert.lasts else []
        lines += [f"        labels: {{severity: {alert.severity}}}"]
        lines += [f"        annotations: {{summary: {_quoted(alert.summary)}}}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_COLUMNS, _WIDTH, _HEIGHT = 3, 8, 7  # of Grafana's 24 units
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_ONLY: Final = 'instance=~"$instance"'


def dashboard() -> str:
    """The dashboard as JSON, to be imported into Grafana."""
    own = [metric for metric in METRICS if metric not in {*STORE, *CLIENTS, *REPLICAS, *UPSTREAMS}]
    rooms = (
        ("Server", own),
        ("Replicas", REPLICAS),
        ("Upstreams", UPSTREAMS),
        ("Store", STORE),
        ("Clients", CLIENTS),
    )
    panels: list[dict[str, Any]] = []
    y = 0
    for title, metrics in rooms:
        panels.append({"type": "row", "title": title, "gridPos": _place(0, y, 24, 1), "panels": []})
        panels += _panels(metrics, y + 1)
        y += 1 + -(-len(metrics) // _COLUMNS) * _HEIGHT
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    found = {
        "uid": JOB,
        "title": JOB,
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": panels,
    }
    return json.dumps(found, indent=1) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus"}
    query = f"label_values({PREFIX}info, instance)"
    yield {
        "name": "instance",
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(metrics: Sequence[Metric], y: int) -> Iterable[dict[str, Any]]:
    for index, metric in enumerate(metrics):
        line, column = divmod(index, _COLUMNS)
        labels = ("instance", *metric.labels)
        yield {
            "type": "timeseries",
            "title": metric.name.removeprefix(PREFIX),
            "description": metric.help,
            "datasource": _SOURCE,
            "gridPos": _place(column * _WIDTH, y + line * _HEIGHT, _WIDTH, _HEIGHT),
            "fieldConfig": {"defaults": {"unit": _unit(metric)}, "overrides": []},
            "targets": [
                {
                    "refId": "A",
                    "datasource": _SOURCE,
                    "expr": expression(metric),
                    "legendFormat": " ".join(f"{{{{{label}}}}}" for label in labels),
                }
            ],
        }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def expression(metric: Metric) -> str:
    """What is drawn of a metric: its growth in a second, its value, or the 99th percentile."""
    if metric.type == COUNTER:
        return f"rate({metric.name}{{{_ONLY}}}[$__rate_interval])"
    if metric.type == HISTOGRAM:
        by = ", ".join(("instance", "le", *metric.labels))
        rate = f"rate({metric.name}_bucket{{{_ONLY}}}[$__rate_interval])"
        return f"histogram_quantile(0.99, sum by ({by}) ({rate}))"
    times = " * 1000" if metric.name.endswith("_timestamp_seconds") else ""
    return f"{metric.name}{{{_ONLY}}}{times}"


def _unit(metric: Metric) -> str:
    """Grafana's name of the unit."""
    name = metric.name.removesuffix("_total")
    if name.endswith("_timestamp_seconds"):
        return "dateTimeAsIso"  # in milliseconds: see `expression`
    if name.endswith("_bytes"):
        return "Bps" if metric.type == COUNTER else "bytes"
    if name.endswith("_seconds"):
        return "percentunit" if metric.type == COUNTER else "s"
    return "cps" if metric.type == COUNTER else "short"
