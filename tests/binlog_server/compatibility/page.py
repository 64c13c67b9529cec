"""The text of docs/compatibility.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from .answers import INTENDED
from .features import CLIENTS, FEATURES, REPLICAS, TRIED
from .fleet import SCRIPTS
from .live import ROOT, Proof
from .recordings import recordings
from .results import ANY_VERSION, Notes, Results, run

PAGE = ROOT / "docs" / "compatibility.md"
COMMAND = "python -m tests.binlog_server.compatibility"

_HEAD = f"""# Compatibility

Written by `{COMMAND}` from what ran, never by hand: change the tests, then run it again.

* **live**: a test with a real MariaDB or a real client, in CI. A test that fails stops CI.
* **lab**: what a real client said to a real master was said to this server, byte by byte, and the answers are such that
  the client goes on as it did there, to the end of the stream.
* **source**: the same with a conversation that was written down from the client's source code.
* **no**: not served; the client gets the error. **-**: nothing to test, or not tested.
"""


def text(results: Results) -> str:
    sections = (_replicas, _clients, _versions, _differences, _evidence)
    return "\n".join([_HEAD, *(line for make in sections for line in make(results))])


def write(path: Path = PAGE) -> None:
    path.write_text(text(asyncio.run(run())))


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _replicas(results: Results) -> list[str]:
    notes = Notes()
    rows = []
    for feature in FEATURES:
        cells = results.cells(feature).items()
        shown = (
            f"not in {version}" if version == feature.not_in else cell.text(notes)
            for version, cell in cells
        )
        rows.append([feature.title, *shown])
    return [
        "## Replicas",
        "",
        *_table(("feature", *REPLICAS), rows),
        "*any client*: one that speaks the replication protocol itself.",
        "",
        *notes.lines(),
        "",
    ]


def _clients(results: Results) -> list[str]:
    notes = Notes()
    columns = ("10.11", "11.8", ANY_VERSION)
    rows = []
    for (client, what), cells in results.client_cells().items():
        shown = (cells[column].text(notes) if column in cells else "-" for column in columns)
        rows.append([client, f"`{what}`" if what.startswith("-") else what, *shown])
    return [
        "## Other clients",
        "",
        *_table(("client", "what", *columns), rows),
        *notes.lines(),
        "",
    ]


def _versions(results: Results) -> list[str]:
    rows = ([t.program, t.version, t.recorded or "-"] for t in TRIED)
    return [
        "## Versions of clients",
        "",
        "Those of MariaDB's programs are the columns above. A live test runs the version that is said or a newer one; "
        "what *recorded* ones said to a real 11.8 is said to this server in CI.",
        "",
        *_table(("program", "live", "recorded"), rows),
    ]


def _differences(results: Results) -> list[str]:
    met = {statement for outcome in results.outcomes.values() for statement in outcome.intended}
    rows = [[f"`{i.statement}`", i.reason] for i in INTENDED if i.statement in met]
    return [
        "## Where answers differ from those of a master",
        "",
        "Of all answers in the lab only these are not the master's own, and no client minds.",
        "",
        *_table(("statement begins with", "why"), rows),
    ]


def _evidence(results: Results) -> list[str]:
    rows = []
    for feature in FEATURES:
        cells = list(results.cells(feature).values())
        lab = dict.fromkeys(name for cell in cells for name in (*cell.lab, *cell.by_source))
        tests = _links(proof for cell in cells for proof in cell.live)
        rows.append([feature.title, tests, ", ".join(lab) or "-"])
    for client in CLIENTS:
        tests = _links(proof for proof in results.live if proof.client == client)
        if tests != "-":
            rows.append([client, tests, "-"])
    return [
        "## Evidence",
        "",
        f"{len(recordings())} recorded connections and {len(SCRIPTS)} scripts.",
        "",
        *_table(("", "live tests", "conversations in the lab"), rows),
    ]


def _links(found: Iterable[Proof]) -> str:
    links = dict.fromkeys(f"[{proof.test}](../{proof.path})" for proof in found)
    return ", ".join(links) or "-"
