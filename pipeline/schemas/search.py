"""The newest table map of a table in a source: looked for from the end backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipeline.groups import Groups
from pipeline.sources.source import Source
from pipeline.wanted import Wanted
from protocol.event_group import split_events
from protocol.events.event_type import EventType
from protocol.events.header import TYPE_OFFSET
from protocol.events.table_map import TableMap
from protocol.gtid import Gtid, SlavePosition
from protocol.row_columns import event_runs
from storage.ibb.chunk import Position
from storage.planning import GtidRange

_SLICE_BYTES: Final = 4 << 20
_FIRST_GROUPS: Final = 1000
_GROWTH: Final = 10


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as the log describes it; `place` and `gtid` are of the group that does, the last one with that."""

    table: TableMap
    place: Position
    gtid: Gtid


def newest_table(
    source: Source, database: str, table: str, stop: SlavePosition | None, *, by_numbers: bool
) -> FoundTable | None:
    """The newest description up to `stop`, or at all.

    Args:
        by_numbers: ranges of GTIDs are asked for; else the source is cut small, and read from its last part on. A
            server reads each range from its beginning, a directory finds any part at once.
    """
    seeker = _Seeker(database, table)
    if by_numbers:
        return _by_numbers(source, seeker, stop)
    for part in reversed(source.slices(Wanted(GtidRange(stop=stop)), _SLICE_BYTES)):
        found = seeker.last(part.read())
        if found is not None:
            return found
    return None


def _by_numbers(source: Source, seeker: _Seeker, stop: SlavePosition | None) -> FoundTable | None:
    """Ranges of 1000 numbers a domain, then ten times that, and so on.

    A domain of few groups is soon read back to times long past. What is found there is the newest only if the other
    domains were read back to that place too.
    """
    earliest = source.earliest()
    end = source.latest() if stop is None else stop
    newest: FoundTable | None = None
    count = _FIRST_GROUPS
    while any(True for _ in end):
        begin = _back(end, earliest, count)
        first_places: dict[int, Position] = {}
        for part in source.slices(Wanted(GtidRange(begin, end)), _SLICE_BYTES):
            found = seeker.last(_noting(part.read(), first_places))
            if found is not None and (newest is None or found.place > newest.place):
                newest = found
        end = SlavePosition(g for g in begin if g.seq_no > _number(earliest, g.domain_id))
        if newest is not None and all(
            gtid.domain_id in first_places and first_places[gtid.domain_id] <= newest.place
            for gtid in end
        ):
            break
        count *= _GROWTH
    return newest


def _noting(groups: Iterable[Groups], first_places: dict[int, Position]) -> Iterator[Groups]:
    for some in groups:
        for i, domain in enumerate(some.domain.tolist()):
            if domain not in first_places:
                first_places[domain] = some.place(i)
        yield some


def _back(end: SlavePosition, earliest: SlavePosition, count: int) -> SlavePosition:
    """So many numbers before `end`, but no further than the beginning."""
    at = ((g, max(g.seq_no - count, _number(earliest, g.domain_id))) for g in end)
    return SlavePosition(Gtid(g.domain_id, g.server_id, number) for g, number in at if number > 0)


def _number(position: SlavePosition, domain: int) -> int:
    found = position.get(domain)
    return 0 if found is None else found.seq_no


class _Seeker:
    """Looks for the bytes that a table map with these names has, before anything is parsed."""

    def __init__(self, database: str, table: str) -> None:
        self._names: Final = (database, table)
        self._bytes: Final = b"".join(
            bytes((len(raw),)) + raw + b"\0"
            for raw in (name.encode("utf-8", "surrogateescape") for name in self._names)
        )

    def last(self, groups: Iterable[Groups]) -> FoundTable | None:
        found: FoundTable | None = None
        for some in groups:
            if some.large is not None:
                found = self._last_of(event_runs(some.pieces(0)), some, 0) or found
                continue
            for i in range(len(some) - 1, -1, -1):
                if self._bytes in some.payloads[i]:
                    here = self._last_of((some.payloads[i],), some, i)
                    if here is not None:
                        found = here
                        break
        return found

    def _last_of(self, runs: Iterable[bytes], groups: Groups, i: int) -> FoundTable | None:
        table = None
        for run in runs:
            if self._bytes not in run:
                continue
            for event in split_events(run):
                if event[TYPE_OFFSET] == EventType.TABLE_MAP and self._bytes in event:
                    parsed = TableMap.parse(event)
                    if (parsed.database, parsed.table) == self._names:
                        table = parsed
        if table is None:
            return None
        table = replace(table, table_id=0, flags=0)
        return FoundTable(table, groups.place(i), groups.gtid(i))
