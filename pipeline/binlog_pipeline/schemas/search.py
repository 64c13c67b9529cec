"""The newest table map of a table in a source: looked for from the end backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.groups.event_group import split_events
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.row_columns import event_runs
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.wanted import Wanted

_SLICE_BYTES: Final = 4 << 20
_FIRST_GROUPS: Final = 1000
_GROWTH: Final = 10


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as the log describes it; `place` and `gtid` are of the last group that does."""

    table: TableMap
    place: Position
    gtid: Gtid


def newest_table(
    source: LogSource,
    names: tuple[str, str] | None,
    stop: SlavePosition | None,
    *,
    by_numbers: bool,
) -> FoundTable | None:
    """The newest description up to `stop`, or at all.

    Args:
        names: database and table; None for any.
        by_numbers: ranges of GTIDs are asked for, 1000 numbers of each domain, then ten times that, and so on, so that
            neither a server sends, nor a long log is planned, further back than needed. Else all is planned at once.
    """
    end = source.latest() if stop is None and by_numbers else stop
    search = _Search(_Seeker(names))
    if not by_numbers or end is None:
        search.read(source, GtidRange(stop=end), SlavePosition())
        return search.newest
    earliest = source.earliest()
    count = _FIRST_GROUPS
    while any(True for _ in end):
        begin = _back(end, earliest, count)
        before = SlavePosition(g for g in begin if g.seq_no > _number(earliest, g.domain_id))
        if search.read(source, GtidRange(begin, end), before):
            break
        end = before
        count *= _GROWTH
    return search.newest


class _Search:
    """The search for the newest table map, over the ranges read so far."""

    def __init__(self, seeker: _Seeker) -> None:
        self.newest: FoundTable | None = None
        self._seeker: Final = seeker
        self._first_places: Final[dict[int, Position]] = {}

    def read(self, source: LogSource, wanted: GtidRange, before: SlavePosition) -> bool:
        """Goes through a range from its last part on, until what was found is the newest.

        A range reaches back further in a domain of few groups than in others. So what is found is the newest only if
        of all domains that go on `before` the range something was read that lies before it: numbers ascend.
        """
        for part in reversed(source.slices(Wanted(wanted), _SLICE_BYTES)):
            found = self._seeker.last(self._noted(part.read()))
            if found is not None and (self.newest is None or found.place > self.newest.place):
                self.newest = found
            if self.newest is not None and self._is_behind_none(before, self.newest.place):
                return True
        return False

    def _is_behind_none(self, before: SlavePosition, place: Position) -> bool:
        firsts = self._first_places
        return all(d in firsts and firsts[d] <= place for d in (g.domain_id for g in before))

    def _noted(self, groups: Iterable[Groups]) -> Iterator[Groups]:
        firsts = self._first_places
        for some in groups:
            for domain in np.unique(some.domain).tolist():
                place = some.place(int(np.argmax(some.domain == domain)))
                firsts[domain] = min(place, firsts.get(domain, place))
            yield some


def _back(end: SlavePosition, earliest: SlavePosition, count: int) -> SlavePosition:
    """The position `count` numbers before `end`, but no further back than the beginning."""
    at = ((g, max(g.seq_no - count, _number(earliest, g.domain_id))) for g in end)
    return SlavePosition(Gtid(g.domain_id, g.server_id, number) for g, number in at if number > 0)


def _number(position: SlavePosition, domain: int) -> int:
    found = position.get(domain)
    return 0 if found is None else found.seq_no


class _Seeker:
    """Looks for the bytes that a table map with these names has, before anything is parsed."""

    def __init__(self, names: tuple[str, str] | None) -> None:
        self._names: Final = names
        self._bytes: Final = b"".join(
            bytes((len(raw),)) + raw + b"\0"
            for raw in (name.encode("utf-8", "surrogateescape") for name in names or ())
        )

    def last(self, groups: Iterable[Groups]) -> FoundTable | None:
        found: FoundTable | None = None
        for some in groups:
            if some.large is not None:
                found = self._in_group(event_runs(some.pieces(0)), some, 0) or found
                continue
            for i in range(len(some) - 1, -1, -1):
                if self._bytes in some.payloads[i]:
                    here = self._in_group((some.payloads[i],), some, i)
                    if here is not None:
                        found = here
                        break
        return found

    def _in_group(self, runs: Iterable[bytes], groups: Groups, i: int) -> FoundTable | None:
        """The first will do: no group has rows of a table before and behind a change of its columns."""
        for run in runs:
            if self._bytes not in run:
                continue
            for event in split_events(run):
                if event[TYPE_OFFSET] == EventType.TABLE_MAP and self._bytes in event:
                    table = TableMap.parse(event)
                    if self._names in (None, (table.database, table.table)):
                        known = replace(table, table_id=0, flags=0)
                        return FoundTable(known, groups.place(i), groups.gtid(i))
        return None
