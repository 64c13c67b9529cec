"""What clients have asked for: the counters of SHOW STATUS that each session has, and all of them together."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping


class StatementCounts:
    """The counters of one session, by their names in SHOW STATUS. On the loop only.

    Attributes:
        own: those of the session.
        everybody: the sums over all sessions, those that have ended too; shared by them.
        quick: statements of the hot path by their first word as it was sent, or by the names of all their counters
            behind `Com_`; `fold` adds them to the others.
        since: when they began, by the monotonic clock.
    """

    __slots__ = ("everybody", "own", "quick", "since")

    def __init__(self, everybody: Counter[str] | None = None) -> None:
        self.everybody: Counter[str] = Counter() if everybody is None else everybody
        self.own: Counter[str] = Counter()
        self.quick: defaultdict[bytes, int] = defaultdict(int)
        self.since = time.monotonic()

    def count(self, name: str, by: int = 1) -> None:
        """Something has happened."""
        self.own[name] += by
        self.everybody[name] += by

    def command(self, name: str, by: int = 1) -> None:
        """A statement is executed; `name` is that of its counter behind `Com_`, empty if there is none."""
        if name:
            self.count(f"Com_{name}", by)

    def fold(self) -> Mapping[str, int]:
        """The session's counters, with nothing left in `quick`."""
        if self.quick:
            for words, number in self.quick.items():
                for word in words.decode().split():
                    self.command(word.lower(), number)
                self.count("Questions", number)
                self.count("Queries", number)
            self.quick.clear()
        return self.own

    def forget(self) -> None:
        """FLUSH STATUS: the session begins anew, the sums stay."""
        self.fold()
        self.own.clear()
        self.since = time.monotonic()
