"""docs/replica-behaviour.md from the outcomes, and the outcomes from the page."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from binlog_server.faults.faults import FaultOrder
from tests.house import ROOT

from .corpus import SCENARIOS, SECTIONS, Scenario
from .replicas import COLUMNS, OURS, outcome, subject

PAGE: Final = ROOT / "docs/replica-behaviour.md"
COMMAND: Final = "python -m tests.integration.behaviour"
Outcomes = Mapping[str, Mapping[str, str]]
"""By column, then by what the scenario says."""

_HEAD: Final = f"""\
# What replicas do when their master misbehaves

Written by `{COMMAND}` from what replicas did, never by hand; a slow test holds page and replicas
equal, and every run of the tests tries some lines.

MariaDB 10.11 and 11.8 follow by GTID a master of [pytest.md](pytest.md), with row events that have checksums, serially
and in parallel (`slave_parallel_threads=4`, `optimistic`); so does a server of ours, as a relay. The master has logged
four rows, one in each group; the replica begins in front of all. What is wrong is wrong once, so that who comes again
gets the right thing, unless the last column says `TIMES=0`. `MASTER_CONNECT_RETRY=1`.

*Goes on* means that all rows arrive. *IO thread stops* means Slave_IO_Running: No with that Last_IO_Errno: nothing
happens until somebody says START SLAVE. Where the replicas of MariaDB do the same, the line says it once. The order for
the fault stands in the last column, as `CREATE BINLOG FAULT name` takes it ([test-master.md](test-master.md#faults));
`0-1-4` is the group of the second row. With semi-sync (`rpl_semi_sync_master_timeout` is 1000
ms, and 20000 where an acknowledgement is only late), and where the master loses its last group or
dies, the replica has the rows in front of that, and the fault takes hold of the stream that runs.

A group that is left out is lost without a word everywhere: no replica can know it, for numbers of a domain may have
gaps. A relay of ours connects again where a checksum is wrong or an answer is refused, as a network or a restart of the
master may be the cause, and stops where histories differ; MariaDB applies a second group of the same name.

A relay of ours does no worse: a test holds each line to that. It is an IO thread, and as MariaDB's it passes on what it
does not know inside a group, byte for byte: a replica behind it stops with 1594 there as it would in front of the
master, and a newer one goes on ([relay.md](relay.md#event-types)). Where groups of one server come in another order it
stops at once (1593, [relay.md](relay.md)). MariaDB without `gtid_strict_mode` goes on until it connects again, and then
stops with 1062: its position is that of the group that came last, so that the master sends the others once more.
"""


def measured() -> dict[str, dict[str, str]]:
    """All scenarios at all replicas."""
    found: dict[str, dict[str, str]] = {}
    for column in (*COLUMNS, OURS):
        with subject(column) as replica:
            found[column] = {}
            for says, scenario in SCENARIOS.items():
                found[column][says] = outcome(scenario, replica)
                print(f"{column}: {says}: {found[column][says]}", file=sys.stderr, flush=True)
    return found


def text(found: Outcomes) -> str:
    """The whole page."""
    lines = [_HEAD]
    for section, scenarios in SECTIONS.items():
        lines += [f"## {section}\n", "| | MariaDB | our relay | ordered by |", "|---|---|---|---|"]
        lines += [_line(scenario, found) for scenario in scenarios]
        lines.append("")
    return "\n".join(lines)


def _line(scenario: Scenario, found: Outcomes) -> str:
    theirs = {column: found[column][scenario.says] for column in COLUMNS}
    return f"| {scenario.says} | {_theirs(theirs)} | {found[OURS][scenario.says]} | {_order(scenario)} |"


def _theirs(of: Mapping[str, str]) -> str:
    kinds = dict.fromkeys(of.values())
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{' and '.join(c for c in of if of[c] == kind)}: {kind}" for kind in kinds)


def _order(scenario: Scenario) -> str:
    if scenario.faults:
        return "; ".join(f"`{FaultOrder.of(fault).text}`" for fault in scenario.faults)
    return "`make_binlog_master(server_id=77)`"


def lines_of(page: str) -> dict[str, list[str]]:
    """The cells of a page's lines, by what their scenarios say."""
    rows = (line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| "))
    return {row[0]: row for row in rows if row[0] not in ("", "MariaDB")}


def outcome_on(page: str, says: str, column: str) -> str:
    """What the page says."""
    _, theirs, ours, _ = lines_of(page)[says]
    if column == OURS:
        return ours
    for part in theirs.split("; "):
        of, colon, words = part.partition(": ")
        if colon and column in of.split(" and "):
            return words
    return theirs
