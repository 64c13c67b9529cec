"""Which groups of a source are wanted: by GTID, by time, by domain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.groups import Groups
from protocol.gtid import SlavePosition
from storage.planning import GtidRange, TimeRange


@dataclass(frozen=True, slots=True)
class Wanted:
    """All of it must hold. `domains` None is all of them."""

    gtids: GtidRange = field(default_factory=GtidRange)
    times: TimeRange = field(default_factory=TimeRange)
    domains: frozenset[int] | None = None

    def between(self, start: SlavePosition, stop: SlavePosition) -> Wanted:
        """The same, behind `start` and up to `stop`."""
        return Wanted(GtidRange(start, stop), self.times, self.domains)

    def some(self, groups: Groups) -> Groups:
        """Those that are wanted."""
        return groups.some(self.mask(groups))

    def mask(self, groups: Groups) -> NDArray[np.bool_]:
        """An element a group."""
        wanted = np.ones(len(groups), np.bool_)
        if self.times.first is not None:
            wanted &= groups.timestamp >= self.times.first
        if self.times.end is not None:
            wanted &= groups.timestamp < self.times.end
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
        """Behind which, and up to which number."""
        start, stop = self.gtids.start, self.gtids.stop
        seen = None if start is None else start.get(domain)
        last = None if stop is None else stop.get(domain)
        low = -1 if seen is None else seen.seq_no
        if stop is None:
            return low, np.iinfo(np.int64).max
        return low, -1 if last is None else last.seq_no
