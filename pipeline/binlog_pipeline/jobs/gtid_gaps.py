"""Numbers of GTIDs that are not there, domain by domain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from binlog_protocol.gtid import Gtid

from binlog_pipeline.groups import Integers

_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers between two groups that follow each other in a domain; `missing` is negative where they go back."""

    before: Gtid
    behind: Gtid

    @property
    def missing(self) -> int:
        ahead = self.behind.seq_no - self.before.seq_no
        return ahead - 1 if ahead > 0 else ahead


@dataclass(slots=True)
class DomainNumbers:
    """The groups of one domain, in the order of the log.

    missing: how many numbers there are between the first and the last that no group has.
    gaps: the first thousand places where numbers are missing or go back; gap_count has all.
    """

    first: Gtid
    last: Gtid
    count: int = 0
    missing: int = 0
    gap_count: int = 0
    gaps: list[Gap] = field(default_factory=list)

    @classmethod
    def of(cls, domain: int, servers: Integers, numbers: Integers) -> DomainNumbers:
        """The numbers of consecutive groups of a domain; at least one."""

        def gtid(i: int) -> Gtid:
            return Gtid(domain, int(servers[i]), int(numbers[i]))

        made = cls(gtid(0), gtid(len(numbers) - 1), len(numbers))
        steps = np.diff(numbers)
        for i in np.flatnonzero(steps != 1).tolist():
            made._note(Gap(gtid(i), gtid(i + 1)))
        return made

    def merge(self, following: DomainNumbers) -> None:
        """Add the numbers that follow in the log."""
        if following.first.seq_no != self.last.seq_no + 1:
            self._note(Gap(self.last, following.first))
        self.last = following.last
        self.count += following.count
        self.missing += following.missing
        self.gap_count += following.gap_count
        self.gaps += following.gaps[: _KEPT - len(self.gaps)]

    def _note(self, gap: Gap) -> None:
        self.gap_count += 1
        self.missing += max(gap.missing, 0)
        if len(self.gaps) < _KEPT:
            self.gaps.append(gap)
