"""Alert rules and the dashboard: of metrics that there are, and as Prometheus understands them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from binlog_server.cli import main
from binlog_server.metrics.collector import METRICS
from binlog_server.metrics.metric import HISTOGRAM
from binlog_server.metrics.monitoring import ALERTS, dashboard, expression, rules
from tests.kit.programs import program

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text("utf-8")
NAMES = {metric.name for metric in METRICS}


def named(text: str) -> set[str]:
    found = set(re.findall(r"binlog_server_\w+", text))
    return {re.sub("_bucket$", "", name) for name in found}


def test_alerts_are_about_metrics_that_there_are() -> None:
    for alert in ALERTS:
        assert named(alert.expression) <= NAMES, alert.name
        assert named(alert.expression) or alert.expression.startswith("up{")
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_the_page_has_the_rules() -> None:
    shown = PAGE.split("\n### Alerts\n")[1].split("\n### ")[0]
    block = [line[4:] for line in shown.splitlines() if line.startswith("    ")]
    assert "\n".join(block) + "\n" == rules(), "docs/metrics.md: binlog-server monitoring rules"


def test_the_dashboard_draws_each_metric_once() -> None:
    panels = [panel for panel in json.loads(dashboard())["panels"] if panel["type"] != "row"]
    assert [p["targets"][0]["expr"] for p in panels] == sorted(
        map(expression, METRICS), key=[p["targets"][0]["expr"] for p in panels].index
    )
    assert len(panels) == len(METRICS)
    assert {name for p in panels for name in named(p["targets"][0]["expr"])} == NAMES
    places = [tuple(p["gridPos"].values()) for p in json.loads(dashboard())["panels"]]
    assert len(set(places)) == len(places)
    assert all(x + w <= 24 for x, _, w, _ in places)
    assert any(metric.type == HISTOGRAM for metric in METRICS)


@pytest.mark.parametrize("what", ["rules", "dashboard"])
def test_the_command(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitoring", what]) == 0
    assert capsys.readouterr().out == {"rules": rules, "dashboard": dashboard}[what]()


# Series with which each alert is to fire after two hours, and with which it is not: a value each minute.
TRUE_AND_FALSE = {
    "BinlogServerDown": ('up{job="binlog-server"}', "0x130", "1x130"),
    "BinlogServerNotReady": ("binlog_server_ready", "0x130", "1x130"),
    "BinlogStoreFailed": ("binlog_server_store_failed", "1x130", "0x130"),
    "BinlogDiskFull": ("binlog_server_disk_free_bytes", "1000000000x130", "9000000000x130"),
    "BinlogStandsStill": ('binlog_server_stalled_seconds{what="disk"}', "0+60x130", "29x130"),
    "BinlogUpstreamStopped": ('binlog_server_upstream_stopped{upstream="a"}', "1x130", "0x130"),
    "BinlogUpstreamSilent": (
        "binlog_server_upstream_last_heard_timestamp_seconds",
        "0x130",
        "0+60x130",
    ),
    "BinlogReplicaLags": (
        'binlog_server_replica_lag_seconds{server_id="1"}',
        "301x130",
        "300x130",
    ),
    "BinlogReplicaReadsNothing": (
        'binlog_server_replica_unread_seconds{server_id="1"}',
        "61x130",
        "60x130",
    ),
    "BinlogReplicaGone": ("binlog_server_replicas", "2x60 1x70", "2x130"),
    "BinlogFsyncSlow": ("", "", ""),
    "BinlogScrubDamage": ('binlog_server_scrub_damages{kind="page"}', "1x130", "0x130"),
    "BinlogScrubLate": (
        "binlog_server_scrub_last_pass_timestamp_seconds",
        "-1300000x130",
        "-1200000x130",
    ),
    "BinlogLoginsFail": ("binlog_server_failed_logins_total", "0+61x130", "0+59x130"),
    "BinlogCertificateExpires": (
        "binlog_server_tls_certificate_expiry_timestamp_seconds",
        "1000000x130",
        "2000000x130",
    ),
}
_FSYNC = 'binlog_server_fsync_seconds_bucket{{file="redo", le="{}"}}'
BESIDE = {
    "BinlogReplicaLags": [('binlog_server_replica_lag_bytes{server_id="1"}', "0+5x130")],
}


def series(alert: str, fires: bool) -> list[dict[str, str]]:
    if alert == "BinlogFsyncSlow":
        fast = "0+1x130" if fires else "0+100x130"
        found = [(_FSYNC.format("0.01"), fast), (_FSYNC.format("0.1"), "0+100x130")]
        found.append((_FSYNC.format("+Inf"), "0+100x130"))
    else:
        name, true, false = TRUE_AND_FALSE[alert]
        found = [(name, true if fires else false), *BESIDE.get(alert, [])]
    return [{"series": name, "values": values} for name, values in found]


@pytest.mark.long
def test_prometheus_understands_them(tmp_path: Path) -> None:
    promtool = program("promtool")
    assert set(TRUE_AND_FALSE) == {alert.name for alert in ALERTS}
    (tmp_path / "rules.yml").write_text(rules())
    tests = []
    for alert in ALERTS:
        for fires in (True, False):
            query = f'count(ALERTS{{alertname="{alert.name}", alertstate="firing"}}) or vector(0)'
            expected = [{"labels": "{}", "value": int(fires)}]
            asked = {"expr": query, "eval_time": "2h", "exp_samples": expected}
            values = series(alert.name, fires)
            tests.append({"interval": "1m", "input_series": values, "promql_expr_test": [asked]})
    (tmp_path / "tests.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
