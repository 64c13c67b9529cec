"""Table maps in groups, and the newest one of a table in a source: looked for from the end backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, split_events
from binlog_protocol.events.table_map import TableMap
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
_NAMES_AT: Final = HEADER_SIZE + 8  # of a table map, behind table id and flags


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
    start: SlavePosition | None = None,
) -> FoundTable | None:
    """The newest description up to `stop`, or at all.

    Args:
        start: no further back than behind this position; to the beginning for None.
        names: database and table; None for any.
        by_numbers: ranges of GTIDs are asked for, 1000 numbers of each domain, then ten times that, and so on, so that
            neither a server sends, nor a long log is planned, further back than needed. Else all is planned at once.
    """
    end = source.latest() if stop is None and by_numbers else stop
    search = _Search(map_names(*names) if names is not None else b"")
    if not by_numbers or end is None:
        search.read(source, GtidRange(start, end), SlavePosition())
        return search.newest
    earliest = source.earliest() if start is None else start
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

    def __init__(self, names: bytes) -> None:
        self.newest: FoundTable | None = None
        self._names: Final = names
        self._first_places: Final[dict[int, Position]] = {}

    def read(self, source: LogSource, wanted: GtidRange, before: SlavePosition) -> bool:
        """Goes through a range from its last part on, until what was found is the newest.

        A range reaches back further in a domain of few groups than in others. So what is found is the newest only if
        of all domains that go on `before` the range something was read that lies before it: numbers ascend.
        """
        for part in reversed(source.slices(Wanted(wanted), _SLICE_BYTES)):
            found = self._last(self._noted(part.read()))
            if found is not None and (self.newest is None or found.place > self.newest.place):
                self.newest = found
            if self.newest is not None and self._is_behind_none(before, self.newest.place):
                return True
        return False

    def _last(self, groups: Iterable[Groups]) -> FoundTable | None:
        found: FoundTable | None = None
        for some in groups:
            # The first of a group will do: none has rows of a table before and behind a change of its columns.
            newest = next(table_maps(some, self._names, newest_first=True), None)
            if newest is not None:
                i, event = newest
                found = FoundTable(without_id(event), some.place(i), some.gtid(i))
        return found

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


def map_names(database: str, table: str) -> bytes:
    """The names of a table as a table map has them."""
    names = [name.encode("utf-8", "surrogateescape") for name in (database, table)]
    return b"".join(bytes((len(name),)) + name + b"\0" for name in names)


def table_maps(
    groups: Groups, names: bytes, *, newest_first: bool = False
) -> Iterator[tuple[int, bytes]]:
    """The table maps with these names (see `map_names`; empty for any), each with the number of its group.

    The bytes are looked for before anything is parsed. `newest_first`: the groups; not what is in one of them.
    """
    which = [i for i, data in enumerate(groups.payloads) if names in data]
    if groups.large is not None:
        which = [0]
    for i in reversed(which) if newest_first else which:
        for run in (
            groups.payloads[i : i + 1] if groups.large is None else event_runs(groups.pieces(i))
        ):
            if names in run:
                for event in split_events(run):
                    if event[TYPE_OFFSET] == EventType.TABLE_MAP and event.startswith(
                        names, _NAMES_AT
                    ):
                        yield i, event


def without_id(event: bytes) -> TableMap:
    """A table map without what is the server's own: its number for the table, and flags."""
    return replace(TableMap.parse(event), table_id=0, flags=0)
