"""The status page: HTML of a status and a history, made here, so that it is whole without scripts.

One script, in the page, replaces its middle by what `/live` sends; without scripts the page asks again by itself.
Nothing is loaded from elsewhere, and nothing could be: `POLICY` says so to the browser. All text of others is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from binlog_server.metrics.history import PLOTS, Plot
from binlog_server.metrics.status import LATE_S

_WIDTH, _HEIGHT = 320, 80  # of a plot
_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")

_SCRIPT: Final = """
const main = document.querySelector("main"), live = document.querySelector("#live");
const source = new EventSource("live");
source.onmessage = (event) => { main.innerHTML = event.data; live.textContent = "live"; live.className = "good"; };
source.onerror = () => { live.textContent = "no answer"; live.className = "bad"; };
"""
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --late: #9a6700; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --late: #d29922; --bad: #ff7b72; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 0 1rem 2rem; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.5rem 0 .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; }
td { overflow-wrap: break-word; min-width: 3.5rem; max-width: 40rem; }
.whole { white-space: nowrap; }
.good { color: var(--good); } .late { color: var(--late); } .bad { color: var(--bad); font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .8rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: .4rem; padding: .5rem; }
figcaption { display: flex; justify-content: space-between; }
svg { width: 100%; height: 5rem; display: block; }
polyline { fill: none; stroke: currentColor; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
ul { padding-left: 1.2rem; margin: .3rem 0; }
@media (max-width: 40rem) {
  thead { display: none; } tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0; }
  td, td.number { display: flex; gap: .8rem; text-align: left; border: 0; padding: .1rem 0; }
  td:empty { display: none; }
  td::before { content: attr(data-title); flex: 0 0 7rem; opacity: .7; }
  td > * { min-width: 0; overflow-wrap: anywhere; }
  .whole { white-space: normal; }
}
"""


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; connect-src 'self'; script-src 'sha256-{_hash(_SCRIPT)}'; "
    f"style-src 'sha256-{_hash(_STYLE)}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""
REFRESH_S: Final = 10  # without scripts


def page(status: Mapping[str, Any], history: Mapping[str, Any]) -> str:
    """The whole page."""
    server = status["server"]
    title = f"binlog-server {server['server_id']}"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>
<style>{_STYLE}</style></head>
<body><header><h1>{escape(title)}</h1><span>{escape(server["server_version"])}</span><span id="live"></span></header>
<main>{middle(status, history)}</main>
<footer><p>The same as JSON: <a href="api/status">api/status</a>, described in
<a href="api/openapi.json">api/openapi.json</a>. <a href="metrics">metrics</a></p></footer>
<script>{_SCRIPT}</script></body></html>
"""


def middle(status: Mapping[str, Any], history: Mapping[str, Any]) -> str:
    """What changes of it."""
    return "\n".join(
        (
            _of_the_server(status),
            _table("upstreams", "Upstreams", _UPSTREAMS, status["upstreams"]),
            _table("replicas", "Replicas", _REPLICAS, status["replicas"]),
            _plots(history),
            _table("files", "Files", _FILES, status["files"][::-1], _left_out(status)),
            _table("leases", "Leases", _LEASES, status["leases"]),
            _table("archives", "Archive", _ARCHIVES, status["archives"]),
            _table("errors", "Last warnings and errors", _ERRORS, status["errors"]),
        )
    )


def _of_the_server(status: Mapping[str, Any]) -> str:
    server = status["server"]
    state = "ready" if not server["missing"] else "not ready"
    damages = (f"damage: {line}" for line in status["scrub"]["damages"])
    missing = "".join(f"<li>{escape(line)}</li>" for line in (*server["missing"], *damages))
    free = server["disk_free_bytes"]
    return (
        f'<p id="server"><strong class="{server["health"]}">{state}</strong>, at '
        f"<code>{escape(server['gtid_binlog_pos']) or 'no GTID'}</code>, up {_duration(server['uptime_s'])}"
        f"{'' if free is None else f', {_size(free)} free on the disk'}; {_when(status['at'])}</p>"
        + (f'<ul class="bad">{missing}</ul>' if missing else "")
    )


def _left_out(status: Mapping[str, Any]) -> str:
    left = status["files_left_out"]
    return f"<p>{left} older ones are not shown: EXPLAIN PURGE has all.</p>" if left else ""


Cell = Callable[[Mapping[str, Any]], str]
"""What a row has in a column, as HTML."""


def _text(name: str) -> Cell:
    return lambda row: escape("" if row[name] is None else str(row[name]))


def _number(name: str, shown: Callable[[float], str]) -> Cell:
    return lambda row: "" if row[name] is None else shown(row[name])


def _size(value: float) -> str:
    return f"{_short(value, 1024)}B"


def _short(value: float, step: int = 1000) -> str:
    """With three digits and the unit's letter."""
    power = 0
    while abs(value) >= step and power < len(_UNITS) - 1:
        value /= step
        power += 1
    digits = 0 if (not power and value == int(value)) or value >= 100 else 2 if value < 10 else 1
    return f"{value:.{digits}f} {_UNITS[power]}".rstrip() + (
        " " if step == 1024 and not power else ""
    )


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds != whole else f"{whole} s"
    days, rest = divmod(whole, 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return (
        f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"
    )


def _when(seconds: float) -> str:
    if not seconds:
        return "never"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def _by_health(name: str) -> Cell:
    return lambda row: f'<span class="{row["health"]}">{_text(name)(row)}</span>'


def _held(row: Mapping[str, Any]) -> str:
    held = "<br>".join(map(escape, row["held_by"]))
    return held and f"<span>{held}</span>"


def _whole(name: str) -> Cell:
    """A name or a GTID position: lines do not end at the hyphens in it."""

    def cell(row: Mapping[str, Any]) -> str:
        parts = (f'<span class="whole">{escape(part)}</span>' for part in row[name].split(","))
        return f"<span>{','.join(parts)}</span>"

    return lambda row: cell(row) if row[name] else ""


def _state_of_replica(row: Mapping[str, Any]) -> str:
    late, unread = row["seconds_unacknowledged"] or 0, row["seconds_unread"] or 0
    if max(late, unread) < LATE_S:
        return _by_health("state")(row)
    if late >= unread:
        text = f"has not acknowledged what is {_duration(int(late))} old"
    else:
        text = f"has read nothing for {_duration(int(unread))}"
    return f'<span class="{row["health"]}">{text}</span>'


Columns = Sequence[tuple[str, Cell, bool]]
"""Title, cell, and whether it is a number."""
_UPSTREAMS: Final[Columns] = (
    ("Name", _text("connection"), False),
    ("Server", _text("address"), False),
    ("Version", _text("version"), False),
    ("State", _by_health("state"), False),
    ("Behind", _number("seconds_behind", _duration), True),
    ("Last heard", _number("last_heard", _when), False),
    ("Error", _text("error"), False),
)
_REPLICAS: Final[Columns] = (
    ("server_id", _text("server_id"), True),
    ("Account", _text("account"), False),
    ("Address", _text("address"), False),
    ("State", _state_of_replica, False),
    ("Behind", _number("seconds_behind", _duration), True),
    ("Bytes", _number("bytes_behind", _size), True),
    ("Sent", _whole("sent"), False),
    ("Acknowledged", _whole("acknowledged"), False),
)
_FILES: Final[Columns] = (
    ("Name", _whole("name"), False),
    ("Size", _number("bytes", _size), True),
    ("Last write", _number("last_write", _when), False),
    ("To go", lambda row: "yes" if row["wanted"] else "", False),
    ("Held back by", _held, False),
)
_LEASES: Final[Columns] = (
    ("Name", _text("name"), False),
    ("Position", _whole("position"), False),
    ("Holds", _number("bytes", _size), True),
    ("Until", _number("until", _when), False),
)
_ARCHIVES: Final[Columns] = (
    ("Archive", _by_health("where"), False),
    ("Position", _whole("position"), False),
    ("Parts", _text("parts"), True),
    ("Groups", _number("groups", _short), True),
    ("Size", _number("bytes", _size), True),
    ("Replicas", _text("replicas"), True),
    ("Problem", _text("problem"), False),
)
_ERRORS: Final[Columns] = (
    ("At", _number("at", _when), False),
    ("Level", _text("level"), False),
    ("Message", _text("text"), False),
)


def _table(
    name: str, title: str, columns: Columns, rows: Iterable[Mapping[str, Any]], below: str = ""
) -> str:
    kinds = [' class="number"' if number else "" for _, _, number in columns]
    head = "".join(f"<th{kind}>{escape(c[0])}</th>" for c, kind in zip(columns, kinds, strict=True))
    # On a phone a row is a list of titles and values (_STYLE).
    kinds = [f'{kind} data-title="{escape(c[0])}"' for c, kind in zip(columns, kinds, strict=True)]
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{c[1](row)}</td>" for c, kind in zip(columns, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    shown = (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        if body
        else "<p>none</p>"
    )
    return f'<section id="{name}"><h2>{escape(title)}</h2><div class="wide">{shown}</div>{below}</section>'


def _plots(history: Mapping[str, Any]) -> str:
    drawn = "".join(_plot(name, plot, history["series"][name]) for name, plot in PLOTS.items())
    return f'<section id="history"><h2>The last hour</h2><div class="plots">{drawn}</div></section>'


def _plot(name: str, plot: Plot, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    shown = f"{_short(known[-1])}{plot.unit}" if known else "nothing yet"
    most = max(known, default=0.0)
    step = _WIDTH / max(1, len(values) - 1)
    lines: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            lines.append([])  # a gap
        else:
            y = _HEIGHT - 2 - (_HEIGHT - 4) * (value / most if most else 0)
            lines[-1].append(f"{index * step:.1f},{y:.1f}")
    drawn = "".join(f'<polyline points="{" ".join(line)}"/>' for line in lines if line)
    return (
        f'<figure id="plot-{name}"><figcaption><span>{escape(plot.title)}</span><strong>{shown}</strong></figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(plot.title)}, at most {_short(most)}{plot.unit}">{drawn}</svg></figure>'
    )
