"""Which groups of a source are wanted: by GTID, by time, by domain and server; and how far a position is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.log.ranges import GtidRange, TimeRange
from numpy.typing import NDArray

from binlog_pipeline.groups import Groups, Integers

_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Numbers:
    """A range of GTID numbers, `first` and `last` included; None is no bound."""

    first: int | None = None
    last: int | None = None

    def and_also(self, other: Numbers) -> Numbers:
        """The numbers in both ranges."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        lasts = [last for last in (self.last, other.last) if last is not None]
        return Numbers(max(firsts, default=None), min(lasts, default=None))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The groups that are wanted: all conditions must hold. None is no condition.

    gtids: what of these the source has no more is missed. Of `numbers` only what there is is wanted.
    hints: times of which no group outside is worth reading; but those that are read are not left out for it.
    numbers: of groups, whatever their domain.
    """

    gtids: GtidRange = field(default_factory=GtidRange)
    times: TimeRange = field(default_factory=TimeRange)
    domains: frozenset[int] | None = None
    servers: frozenset[int] | None = None
    numbers: Numbers = field(default_factory=Numbers)
    hints: TimeRange = field(default_factory=TimeRange)

    def between(self, start: SlavePosition, stop: SlavePosition) -> Wanted:
        """The same, behind `start` and up to `stop`."""
        return replace(self, gtids=GtidRange(start, stop))

    def some(self, groups: Groups) -> Groups:
        """The groups that are wanted."""
        return groups.some(self.mask(groups))

    def mask(self, groups: Groups) -> NDArray[np.bool_]:
        """Whether each group is wanted."""
        wanted = np.ones(len(groups), np.bool_)
        if self.times.first is not None:
            wanted &= groups.timestamp >= self.times.first
        if self.times.end is not None:
            wanted &= groups.timestamp < self.times.end
        if self.servers is not None:
            wanted &= np.isin(groups.server, _array(self.servers))
        if self.numbers.first is not None:
            wanted &= groups.seq >= self.numbers.first
        if self.numbers.last is not None:
            wanted &= groups.seq <= self.numbers.last
        if self.domains is not None or self.gtids != GtidRange():
            for domain in np.unique(groups.domain).tolist():
                here = groups.domain == domain
                if self.domains is not None and domain not in self.domains:
                    wanted &= ~here
                    continue
                low, high = self._numbers(domain)
                wanted &= ~here | ((groups.seq > low) & (groups.seq <= high))
        return wanted

    def _numbers(self, domain: int) -> tuple[int, int]:
        """The number behind which groups of a domain are wanted, and the last one wanted."""
        start, stop = self.gtids.start, self.gtids.stop
        seen = None if start is None else start.get(domain)
        last = None if stop is None else stop.get(domain)
        low = -1 if seen is None else seen.seq_no
        if stop is None:
            return low, _MAX
        return low, -1 if last is None else last.seq_no


def unreached(goal: Iterable[Gtid], position: SlavePosition) -> list[Gtid]:
    """The GTIDs of `goal` that the position has not come to, by their numbers in their domains."""
    return [
        gtid
        for gtid in goal
        if (seen := position.get(gtid.domain_id)) is None or seen.seq_no < gtid.seq_no
    ]


def _array(numbers: frozenset[int]) -> Integers:
    return np.array(sorted(number for number in numbers if 0 <= number <= _MAX), np.int64)
