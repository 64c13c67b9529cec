"""All conversations held, and what they say about a feature or a client: the cells of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from binlog_server.accounts.replica_policy import StreamStyle

from .features import CLIENT_SCENARIOS, CLIENTS, REPLICAS, Feature
from .fleet import SCRIPTS
from .live import Proof, proofs
from .outcome import STYLES, Outcome
from .perform import perform
from .recordings import recordings
from .replay import replay

ANY_VERSION = "any version"
AT_ONCE = 8  # conversations: more would only wait for each other
ENGINE, CLASSIC = StreamStyle.ENGINE, StreamStyle.CLASSIC


class Notes:
    """Footnotes, numbered as they come up."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f"({self._texts.index(text) + 1})"

    def lines(self) -> list[str]:
        return [f"{number}. {text}" for number, text in enumerate(self._texts, 1)]


@dataclass
class Cell:
    """`faults`: why it is not served; `remarks`: how it is."""

    live: list[Proof] = field(default_factory=list)
    lab: list[str] = field(default_factory=list)
    by_source: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, name: str, fault: str, remark: str = "") -> None:
        """A conversation, by its name."""
        if fault:
            self.faults.append(fault)
            return
        (self.lab if name in recordings() else self.by_source).append(name)
        if remark:
            self.remarks.append(remark)

    def text(self, notes: Notes) -> str:
        kinds = [("live", self.live), ("lab", self.lab), ("source", self.by_source)]
        if self.faults:  # all that belongs together has to work
            kinds = [("live", self.live), ("no", self.faults)]
        served = ", ".join(kind for kind, evidence in kinds if evidence)
        marks = [notes.mark(text) for text in dict.fromkeys([*self.faults, *self.remarks])]
        return " ".join([served or "-", *marks])


@dataclass
class Results:
    """What came of each conversation, by its name and the style of stream, and the live tests."""

    outcomes: dict[tuple[str, StreamStyle], Outcome]
    live: list[Proof]

    def cells(self, feature: Feature) -> dict[str, Cell]:
        """One for each kind of replica."""
        cells = {replica: Cell() for replica in REPLICAS}
        for name, recording in recordings().items():
            if recording.scenario in feature.scenarios:
                self._judge(cells[recording.version], name, feature)
        for name, script in SCRIPTS.items():
            if script.client in cells and feature.name in script.features:
                self._judge(cells[script.client], name, feature)
        for proof in self.live:
            if feature.name in proof.features and proof.client not in CLIENTS:
                for column in proof.versions if proof.client == "replica" else (proof.client,):
                    cells[column].live.append(proof)
        return cells

    def _judge(self, cell: Cell, name: str, feature: Feature) -> None:
        outcome = self.outcomes.get((name, feature.style))
        if outcome is None:
            cell.add(name, f"there is no {feature.style.value} style of stream")
        else:
            cell.add(name, outcome.fault or feature.lacks(outcome), feature.remark(outcome))

    def client_cells(self) -> dict[tuple[str, str], dict[str, Cell]]:
        """By client and what it does; then by the version of the client, for MariaDB's own."""
        found: dict[tuple[str, str], dict[str, Cell]] = {}

        def cell(client: str, what: str, version: str = ANY_VERSION) -> Cell:
            column = version if client.startswith("mariadb") else ANY_VERSION
            return found.setdefault((client, what), {}).setdefault(column, Cell())

        for name, recording in recordings().items():
            if recording.scenario in CLIENT_SCENARIOS:
                client, what = CLIENT_SCENARIOS[recording.scenario]
                self._judge_client(cell(client, what, recording.version), name)
        for name, script in SCRIPTS.items():
            if script.client in CLIENTS:
                self._judge_client(cell(script.client, ", ".join(script.features)), name)
        for proof in self.live:
            for what in proof.features if proof.client in CLIENTS else ():
                for version in proof.versions or (ANY_VERSION,):
                    cell(proof.client, what, version).live.append(proof)
        return dict(sorted(found.items(), key=lambda item: CLIENTS.index(item[0][0])))

    def _judge_client(self, cell: Cell, name: str) -> None:
        """In the style that serves it."""
        fault = self.outcomes[name, ENGINE].fault
        classic = self.outcomes.get((name, CLASSIC))
        if fault and classic is not None and not classic.fault:
            cell.add(name, "", "for accounts with the classic style of stream")
        else:
            cell.add(name, fault)


async def run() -> Results:
    """Hold all conversations, some at the same time: there are heartbeats to wait for."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def hold(held: Coroutine[None, None, Outcome]) -> Outcome:
        async with turns:
            return await held

    all_of_them = [replay(recording, s) for recording in recordings().values() for s in STYLES]
    all_of_them += [perform(script, s) for script in SCRIPTS.values() for s in STYLES]
    outcomes = await asyncio.gather(*map(hold, all_of_them))
    return Results({(outcome.name, outcome.style): outcome for outcome in outcomes}, proofs())
