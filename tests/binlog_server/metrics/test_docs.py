"""docs/metrics.md has every metric as the table of the code has it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from binlog_server.metrics.collector import METRICS, ServerCollector, registry
from binlog_server.metrics.metric import COUNTER, PREFIX
from binlog_server.metrics.observed import Look
from binlog_server.metrics.standstill import KINDS
from binlog_server.sql.status_variables import status_variables

from ..lab import Lab

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
UNITS = ("bytes", "seconds")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_table() -> None:
    rows = [line for line in section("The metrics").splitlines() if line.startswith("| `")]
    found = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    told = [row[:5] for row in found]
    assert told == [
        [
            f"`{metric.name.removeprefix(PREFIX)}`",
            metric.type,
            ", ".join(f"`{label}`" for label in metric.labels),
            next((u for u in UNITS if metric.name.removesuffix("_total").endswith(f"_{u}")), ""),
            metric.help,
        ]
        for metric in METRICS
    ]


def test_what_can_stand_still() -> None:
    rows = [line for line in section("The endpoint").splitlines() if line.startswith("| `")]
    words = [
        word.strip("`") for row in rows for word in row.split(" | ")[0].strip("| ").split(", ")
    ]
    assert set(words) - {"/metrics", "/healthz", "/readyz", "what"} == set(KINDS)


def test_names() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(PREFIX + "[a-z][a-z_]*[a-z]", metric.name)
        assert metric.name.endswith("_total") == (metric.type == COUNTER), metric.name


async def test_the_registry_is_the_table_and_the_library(lab: Lab) -> None:
    look = Look(lab.server)
    alone = CollectorRegistry()
    alone.register(ServerCollector(look))
    families = list(alone.collect())
    assert [(f.name, f.type, f.documentation) for f in families] == [
        (metric.name.removesuffix("_total"), metric.type, metric.help) for metric in METRICS
    ]
    labels = {metric.name.removesuffix("_total"): set(metric.labels) for metric in METRICS}
    for family in families:
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels[family.name]
    others = {f.name for f in registry(look).collect()} - {f.name for f in families}
    for name in others:
        assert f"`{name}" in PAGE or name.startswith("python_gc_"), name


def test_examples_name_what_exists() -> None:
    series = {metric.name for metric in METRICS}
    series |= {f"{PREFIX}fsync_seconds_{part}" for part in ("bucket", "sum", "count")}
    assert set(re.findall(PREFIX + r"[a-z_]*[a-z]", PAGE)) <= series


async def test_status_variables(lab: Lab) -> None:
    table = section("The same by SQL")
    named = {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([A-Z]\w+)`", row.split(" | ")[0])
    }
    assert len(named) > 20
    assert named <= status_variables(lab.server).keys()
    metrics = {metric.name for metric in METRICS} | {PREFIX + "fsync_seconds_count"}
    mentioned = re.findall(r"`([a-z_]+)(?:\{[^`]*\})?`", table)
    assert {PREFIX + name for name in mentioned} <= metrics
