"""Ranges of groups by GTID and by time, and their relation to the groups before and behind a GTID state."""

from __future__ import annotations

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

TIME_SLACK_S = 3600


@dataclass(frozen=True, slots=True)
class GtidRange:
    """Groups behind `start`, up to and with `stop`. None is no bound.

    Numbers are compared within a domain, whatever server they are of, as they ascend in a store; a GTID that was
    never logged is a bound as good as any. A domain that is not in `start` is wanted from its beginning, one that is
    not in `stop` is not wanted.
    """

    start: SlavePosition | None = None
    stop: SlavePosition | None = None

    def has(self, gtid: Gtid) -> bool:
        return not self._is_seen(gtid) and not self._is_beyond(gtid)

    def is_all_seen(self, state: BinlogState) -> bool:
        """Whether nothing that leads to this state is wanted."""
        return self.start is not None and all(map(self._is_seen, state.entries()))

    def is_reached(self, state: BinlogState) -> bool:
        """Whether nothing behind this state is wanted."""
        if self.stop is None:
            return False
        last = (state.last(gtid.domain_id) for gtid in self.stop)
        return all(
            found is not None and found.seq_no >= gtid.seq_no
            for found, gtid in zip(last, self.stop, strict=True)
        )

    def misses(self, oldest: BinlogState) -> Gtid | None:
        """A GTID that is wanted and in the state at the beginning of the store, so it is there no more."""
        if self.start is None:
            return None
        return next((gtid for gtid in oldest.entries() if self.has(gtid)), None)

    def _is_seen(self, gtid: Gtid) -> bool:
        seen = None if self.start is None else self.start.get(gtid.domain_id)
        return seen is not None and gtid.seq_no <= seen.seq_no

    def _is_beyond(self, gtid: Gtid) -> bool:
        if self.stop is None:
            return False
        last = self.stop.get(gtid.domain_id)
        return last is None or gtid.seq_no > last.seq_no


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Groups whose first event has a timestamp from `first` on and before `end`, in seconds since 1970.

    Such times are those of statements, so neighbours may be out of order; much so where an upstream was behind. A
    part of the store is passed over if the times looked up in it, one for each state record, are further than `slack`
    seconds outside; None passes nothing over.
    """

    first: int | None = None
    end: int | None = None
    slack: int | None = TIME_SLACK_S

    def has(self, timestamp: int) -> bool:
        return (self.first is None or timestamp >= self.first) and (
            self.end is None or timestamp < self.end
        )

    @property
    def is_bounded(self) -> bool:
        return self.first is not None or self.end is not None

    def and_also(self, other: TimeRange) -> TimeRange:
        """The times in both ranges; with the larger slack."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        ends = [end for end in (self.end, other.end) if end is not None]
        slacks = (self.slack, other.slack)
        return TimeRange(
            max(firsts, default=None),
            min(ends, default=None),
            None if None in slacks else max(slack or 0 for slack in slacks),
        )

    def may_have(self, earliest: int, latest: int) -> bool:
        """Whether a part with groups of these times is to be read."""
        if self.slack is None:
            return True
        before = self.first is not None and latest + self.slack < self.first
        behind = self.end is not None and earliest - self.slack >= self.end
        return not before and not behind
