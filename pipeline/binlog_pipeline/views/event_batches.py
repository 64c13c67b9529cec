"""Groups as events, many at a time: where each lies, which table it is about, and how many rows it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.row_columns import (
    DamagedGroup,
    Events,
    RowCounter,
    event_runs,
    table_maps_of,
    walk_groups,
)
from binlog_protocol.row_columns.row_bytes import RowBytes

from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups, Integers

_RUN_BYTES: Final = 4 << 20  # of a large group at once
_TABLE_ID: Final = slice(HEADER_SIZE, HEADER_SIZE + 6)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of some groups, or of a piece of a large one. An element an event, in the order of the log.

    events: `group` is an index into `groups`, `number` counts the events of a group.
    map_at: where in `data` the table map of a row event begins, its own of a table map; -1 of other events.
    rows: of row events; 0 of others.
    """

    groups: Groups
    data: RowBytes
    events: Events
    map_at: Integers
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)


def event_batches(groups: Iterable[Groups]) -> Iterator[EventBatch]:
    """All events of the groups; of a large group some MiB at a time. Raises `SourceError` for damaged ones."""
    counter = RowCounter()
    first = 0
    for some in groups:
        if some.large is None:
            with naming(some, first):
                batch = _batch(some, counter, first)
            yield batch
        else:
            pieces = _pieces(some, counter, first)
            while True:
                with naming(some, first):
                    piece = next(pieces, None)
                if piece is None:
                    break
                yield piece
        first += len(some)


@contextmanager
def naming(groups: Groups, first: int = 0) -> Iterator[None]:
    """Raise errors with the GTID of the group: decoders count groups, from `first` on. Raises `SourceError`."""
    try:
        yield
    except ProtocolError as error:
        index = error.group - first if isinstance(error, DamagedGroup) else 0
        raise SourceError(
            f"group {groups.gtid(index)}: {error}; the log is damaged there, or of a kind unknown here"
        ) from None


def _batch(groups: Groups, counter: RowCounter, first: int) -> EventBatch:
    data, events = walk_groups(groups.payloads, first)
    map_at = _places(events, table_maps_of(data, events))
    counter.add_events(data, events, len(groups), first)
    return EventBatch(groups, data, events, map_at, _counted(counter, events, first, 0))


def _pieces(group: Groups, counter: RowCounter, number: int) -> Iterator[EventBatch]:
    """The table maps of earlier pieces are put in front of a piece, and left out of what is said of it."""
    maps: dict[bytes, bytes] = {}
    before = 0
    for run in event_runs(group.pieces(0), _RUN_BYTES):
        carried = b"".join(maps.values())
        data, events = walk_groups([carried + run], number)
        map_at = _places(events, table_maps_of(data, events))
        skipped = len(maps)
        events = events.some(np.arange(skipped, len(events.type)))
        events.number[:] -= skipped
        counter.add_events(data, events, 1, number)
        rows = _counted(counter, events, number, before)
        for i in np.flatnonzero(events.type == EventType.TABLE_MAP).tolist():
            event = data.raw[events.begin[i] : events.end[i]]
            maps.pop(event[_TABLE_ID], None)
            maps[event[_TABLE_ID]] = event
        events.number[:] += before
        before += len(events.type)
        yield EventBatch(group, data, events, map_at[skipped:], rows)


def _places(events: Events, maps: Integers) -> Integers:
    return np.where(maps < 0, maps, events.begin[maps])


def _counted(counter: RowCounter, events: Events, first: int, before: int) -> Integers:
    """Rows of each event; the counter has numbered the groups from `first` on, and the events from `before` on."""
    rows = np.zeros(len(events.type), np.int64)
    for counts in counter.take():
        begins = np.searchsorted(events.group, counts.group - first)
        rows[begins + counts.event - before] = counts.rows
    return rows
