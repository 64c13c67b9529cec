"""Statistics as a picture: rates over time, sizes, the hottest tables, who writes. Needs matplotlib (extra `plot`)."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from binlog_storage.disk.durable_files import replace_file
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.jobs.amounts import Amount, Rates
from binlog_pipeline.jobs.stats import LogStatistics

_POINTS: Final = 600
_STEPS: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
_TABLES: Final = 12
_NAME_LENGTH: Final = 32
_LABELED: Final = 10  # sizes on the axis
_TICKS: Final = 5
_INCHES: Final = (14, 9)
_DPI: Final = 110
_COLORS: Final = {"transactions": "#1f5a99", "rows": "#2e8540", "bytes": "#b3541e"}
_QUIET: Final = "#8a8f98"
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px sans-serif;margin:2em auto;max-width:80em;color:#222}}img{{width:100%}}</style>
<h1>{title}</h1><p>{summary}</p><img alt="{title}" src="data:image/png;base64,{picture}">
</html>
"""


def write_plot(found: LogStatistics, source: str, path: Path) -> None:
    """Write a .png, or a .html with the picture in it. Raises OSError, and ModuleNotFoundError without matplotlib."""
    path = local_path(path)
    picture = _picture(found, source)
    if path.suffix.lower() == ".png":
        replace_file(path, picture)
        return
    page = _PAGE.format(
        title=html.escape(f"Binlog of {source}"),
        summary=html.escape(_summary(found)),
        picture=base64.b64encode(picture).decode(),
    )
    replace_file(path, page.encode("utf-8", "replace"))


def _picture(found: LogStatistics, source: str) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    figure.suptitle(f"Binlog of {source}\n{_summary(found)}", fontsize=12, fontweight="bold")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    upper, lower = halves
    axes = upper.subplots(3, 1, sharex=True)
    rates = _readable(found.rates)
    for (name, color), one in zip(_COLORS.items(), axes, strict=True):
        _draw_rate(one, rates, name, color)
    _format_times(axes[-1].xaxis)
    sizes, tables, writers = lower.subplots(1, 3, width_ratios=(1.2, 1.2, 0.6))
    _draw_sizes(sizes, found)
    hottest = sorted(found.tables.items(), key=lambda item: -item[1].rows)[:_TABLES]
    _draw_bars(tables, hottest, "rows", f"hottest of {_count(len(found.tables))} tables, by rows")
    names = [(f"server {server}", amount) for server, amount in found.writers.items()]
    most = sorted(names, key=lambda item: -item[1].transactions)[:_TABLES]
    _draw_bars(writers, most, "transactions", "writers, by transactions")
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _summary(found: LogStatistics) -> str:
    if not found.groups:
        return "no transactions"
    begin, end = min(found.rates.amounts), max(found.rates.amounts)
    times = " to ".join(f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}" for t in (begin, end))
    return f"{_count(found.groups)} transactions, {_count(found.rows)} rows, {_size(found.bytes)}; {times} UTC"


def _readable(rates: Rates) -> Rates:
    """The rates in the smallest step that gives a line and not a carpet."""
    times = rates.amounts or {0: Amount()}
    span = max(times) - min(times)
    step = next((step for step in _STEPS if span / step <= _POINTS), _STEPS[-1])
    return rates.by(step)


def _draw_rate(axes: Any, rates: Rates, name: str, color: str) -> None:
    series = list(rates.series())
    times = [datetime.fromtimestamp(begin, UTC) for begin, _ in series]
    values = [getattr(amount, name) / rates.step for _, amount in series]
    axes.fill_between(times, values, step="post", color=color, alpha=0.25, linewidth=0)
    axes.step(times, values, where="post", color=color, linewidth=1.2)
    highest = max(values, default=0) * 1.08 or 1
    axes.set_ylim(0, highest)
    axes.margins(x=0.01)
    if name == "bytes":
        axes.set_yticks(_even_sizes(highest))
    _format(axes.yaxis, _size if name == "bytes" else _count)
    axes.set_ylabel(f"{name}/s")
    _quiet(axes, grid="y")
    if name == "transactions":
        axes.set_title(f"rates, means of {_duration(rates.step)}", fontsize=10, loc="left")


def _draw_sizes(axes: Any, found: LogStatistics) -> None:
    buckets = found.sizes.buckets()
    axes.bar(range(len(buckets)), [count for _, count in buckets], color=_COLORS["transactions"])
    every = -(-len(buckets) // _LABELED) or 1
    places = range(0, len(buckets), every)
    axes.set_xticks(places, [_size(buckets[i][0]) for i in places], rotation=40, ha="right")
    if buckets:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    _format(axes.yaxis, _count)
    percentiles = ", ".join(f"p{p} {_size(found.sizes.percentile(p))}" for p in (50, 95, 99))
    axes.set_title(f"size of transactions (log scale)\n{percentiles}", fontsize=10, loc="left")
    _quiet(axes, grid="y")


def _draw_bars(axes: Any, items: Sequence[tuple[str, Amount]], name: str, title: str) -> None:
    names = [_short(label) for label, _ in items]
    values = [getattr(amount, name) for _, amount in items]
    places = range(len(items))
    drawn = axes.barh(places, values, color=_COLORS[name])
    axes.bar_label(drawn, [f" {_count(value)}" for value in values], fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.set_xlim(0, max(values, default=1) * 1.25 or 1)
    axes.set_ylim(max(len(items), 4) - 0.4, -0.6)
    _format(axes.xaxis, _count)
    axes.locator_params(axis="x", nbins=4)
    axes.set_title(title, fontsize=10, loc="left")
    _quiet(axes, grid="x")


def _format(axis: Any, text: Any) -> None:
    axis.set_major_formatter(lambda value, _: text(value))


def _format_times(axis: Any) -> None:
    from matplotlib import dates

    module: Any = dates
    locator = module.AutoDateLocator(tz=UTC)
    axis.set_major_locator(locator)
    axis.set_major_formatter(module.ConciseDateFormatter(locator, tz=UTC))


def _quiet(axes: Any, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=_QUIET, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _short(name: str) -> str:
    """A name cut in its middle, as long names mostly differ at their ends."""
    if len(name) <= _NAME_LENGTH:
        return name
    return f"{name[: _NAME_LENGTH // 3]}…{name[1 - _NAME_LENGTH * 2 // 3 :]}"


def _count(value: float) -> str:
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= least:
            number = value / (1e3 if unit == "k" else least)
            return f"{number:.3g} {unit}"
    return f"{value:.4g}"


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def _even_sizes(highest: float) -> list[int]:
    """Ticks at multiples of a power of two."""
    step = 1 << max(int(highest / _TICKS).bit_length(), 0)
    return list(range(0, int(highest) + 1, step))


def _duration(seconds: int) -> str:
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % length == 0:
            count = seconds // length
            return f"one {name}" if count == 1 else f"{count} {name}s"
    return f"{seconds} seconds"
