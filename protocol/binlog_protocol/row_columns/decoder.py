"""Event groups in, row changes as Arrow columns out.

The decoder splits many groups into events at once, sorts the row events by the shape of their rows, and turns each
shape into columns when it is asked for. A table map is read once, however often it is logged. A counter does the same,
but only finds where rows begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

import numpy as np

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import COMPRESSED_TYPES, uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, whole_pieces
from binlog_protocol.events.rows import ROWS_TYPES, RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns import repeats
from binlog_protocol.row_columns.changes import Changes, GatheredImages, RowCounts, arrow_columns
from binlog_protocol.row_columns.column import without_values
from binlog_protocol.row_columns.event_walk import Events, walk_groups
from binlog_protocol.row_columns.options import ColumnOptions
from binlog_protocol.row_columns.row_bytes import DamagedGroup, Integers, RowBytes
from binlog_protocol.values import lenenc_int

Prepare = Callable[[TableMap], TableMap | None]
"""The table map with facts that the log lacks (`TableMap.with_columns`); None if the table's rows are not wanted."""
Picked = Callable[[TableMap], Collection[int]]
"""The numbers of the columns whose values are wanted; the others are null, and what they hold is not looked at."""

_TABLE_ID_SIZE: Final = 6
_HEAD_AT: Final = (
    HEADER_SIZE + 8
)  # of a row event: number of columns and bitmaps, behind table id and flags
_KNOWN_MAX: Final = 1024
_GATHERED_BYTES_MAX: Final = 1 << 29  # of one shape: offsets into it have 32 bits
_WANTED: Final = np.zeros(256, np.bool_)
_WANTED[[EventType.TABLE_MAP, *ROWS_TYPES]] = True
_COMPRESSED: Final = np.zeros(256, np.bool_)
_COMPRESSED[list(COMPRESSED_TYPES & ROWS_TYPES)] = True
_TABLE_MAP: Final = int(EventType.TABLE_MAP)
_NO_SHAPES: Final[tuple[int, dict[bytes, GatheredImages]]] = (0, {})  # of version 2 events


class _Table:
    """A table whose rows are wanted, as it is described at one time."""

    def __init__(
        self, table: TableMap, options: ColumnOptions, picked: Picked | None = None
    ) -> None:
        self._table: Final = table
        columns = arrow_columns(table, options)
        wanted = range(len(columns)) if picked is None else picked(table)
        visible = table.visible_count
        self._columns: Final = [
            column if i in wanted and i < visible else without_values(column)
            for i, column in enumerate(columns)
        ]
        bitmap = (len(table.columns) + 7) // 8
        head_end = _HEAD_AT + len(lenenc_int(len(table.columns))) + bitmap
        # By event type: where the images begin, and the shapes by the bitmaps before that.
        self.shapes: Final[dict[int, tuple[int, dict[bytes, GatheredImages]]]] = {
            int(EventType.WRITE_ROWS_V1): (head_end, {}),
            int(EventType.UPDATE_ROWS_V1): (head_end + bitmap, {}),
            int(EventType.DELETE_ROWS_V1): (head_end, {}),
        }

    def gathered(self) -> Iterator[GatheredImages]:
        for _, shapes in self.shapes.values():
            yield from shapes.values()

    def learn(self, event: bytes) -> GatheredImages:
        """The shape of a row event that none was like. Raises `ProtocolError`."""
        parsed = replace(RowsEvent.parse(event), table_id=0)
        table = self._table
        if parsed.width != len(table.columns):
            raise ProtocolError(
                f"row event with {parsed.width} columns, but {table.database}.{table.table} has "
                f"{len(table.columns)}"
            )
        head_end, shapes = self.shapes[event[TYPE_OFFSET]]
        if head_end + len(parsed.body) != len(event):
            raise ProtocolError("row event: the number of its columns is not in its shortest form")
        shape = shapes[event[_HEAD_AT:head_end]] = GatheredImages(
            table, self._columns, parsed, head_end
        )
        return shape


_NEW: Final = _Table(TableMap(0, 0, "", "", ()), ColumnOptions())  # stands for "not known yet"


_Taken = TypeVar("_Taken")


class _Gathering(Generic[_Taken]):
    """Gathers row events by shapes. One owner.

    After an error nothing more can be got from it.
    """

    def __init__(
        self,
        options: ColumnOptions | None = None,
        prepare: Prepare | None = None,
        picked: Picked | None = None,
    ) -> None:
        self._options = options or ColumnOptions()
        self._picked = picked
        self._prepare = prepare or (lambda table: table)
        self._known: dict[bytes, _Table | None] = {}  # by the body of the table map
        self._tables: dict[TableMap, _Table] = {}  # by all of it but the table id
        self._full: list[_Taken] = []
        # Of the group at hand, which may go on with the next call.
        self._group = -1
        self._events_before = 0
        self._maps: dict[bytes, _Table | None] = {}

    def add(self, groups: Sequence[bytes], first: int = 0) -> None:
        """Groups in normal form, or pieces of them with whole events; numbered from `first` on.

        What has the number of the last one goes on with it. Less than 2 GiB at once. Raises `ProtocolError`.
        """
        if groups:
            self.add_events(*walk_groups(groups, first), len(groups), first)

    def add_events(self, data: RowBytes, events: Events, count: int, first: int = 0) -> None:
        """The same for `count` groups, at least one, that `walk_groups` has split. They are not changed."""
        if first != self._group:
            self._begin(first)
            self._forget_tables()
        wanted = events.some(np.flatnonzero(_WANTED[events.type]))
        wanted.number[wanted.group == 0] += self._events_before
        wanted.group[:] += first
        self._gather(*_uncompressed(data, wanted))
        last = first + count - 1
        if self._group != last:
            self._begin(last)
        before = self._events_before if count == 1 else 0
        self._events_before = before + int(np.count_nonzero(events.group == count - 1))

    @property
    def gathered_bytes(self) -> int:
        """Bytes of row images that wait to be taken."""
        return sum(shape.size for table in self._tables.values() for shape in table.gathered())

    def take(self, at_least: int = 0) -> list[_Taken]:
        """The changes of shapes with so many bytes at least. Raises `ProtocolError`, `UnrepresentableValue`."""
        found, self._full = self._full, []
        for table in self._tables.values():
            found += [
                self._taken(shape)
                for shape in table.gathered()
                if shape.size >= at_least and not shape.is_empty
            ]
        return found

    def _taken(self, shape: GatheredImages) -> _Taken:
        """The changes gathered in a shape, which are then forgotten."""
        raise NotImplementedError

    def _begin(self, group: int) -> None:
        """Table ids mean something only inside a group."""
        self._group = group
        self._events_before = 0
        self._maps = {}

    def _forget_tables(self) -> None:
        """Forget the tables if there are many. Between groups only: a group's maps lead to its tables until it ends."""
        if len(self._known) >= _KNOWN_MAX:
            self._full = self.take()
            self._known.clear()
            self._tables.clear()

    def _gather(self, data: RowBytes, events: Events) -> None:
        """Sorts row events by their shapes. The only loop of Python over events: it is kept short."""
        raw = data.raw
        picked: dict[GatheredImages, int] = {}
        firsts, shapes_of = [], []  # of each shape one row event or some, and its number
        known, maps, current = self._known, self._maps, self._group
        looked_at, likes = repeats.likes(data, events)
        left = np.flatnonzero(looked_at)
        rows = zip(left.tolist(), *(column[left].tolist() for column in events[:4]), strict=True)
        for i, type_, at, end, group in rows:
            if group != current:
                current, maps = group, {}
            id_at = at + HEADER_SIZE
            table_id = raw[id_at : id_at + _TABLE_ID_SIZE]
            try:
                if type_ == _TABLE_MAP:
                    body = raw[id_at:end]
                    table = known.get(body, _NEW)
                    if table is _NEW:
                        table = known[body] = self._learn(raw[at:end])
                    maps[table_id] = table
                    continue
                table = maps.get(table_id, _NEW)
                if table is None:
                    continue
                if table is _NEW:
                    number = int.from_bytes(table_id, "little")
                    raise ProtocolError(f"row event for table {number}, without a table map")
                head_end, shapes = table.shapes.get(type_, _NO_SHAPES)
                shape = shapes.get(raw[at + _HEAD_AT : at + head_end])
                if shape is None or at + head_end > end:
                    shape = table.learn(raw[at:end])
            except ProtocolError as error:
                raise _placed(error, events, i) from None
            firsts.append(i)
            shapes_of.append(picked.setdefault(shape, len(picked)))
        self._group, self._maps = current, maps
        for shape, which in zip(
            picked, _sorted(likes, firsts, shapes_of, len(picked)), strict=True
        ):
            self._add(shape, data, events.some(which))

    def _add(self, shape: GatheredImages, data: RowBytes, events: Events) -> None:
        begins = events.begin + shape.head_end
        size, count = int((events.end - begins).sum()), len(begins)
        if shape.size + size > _GATHERED_BYTES_MAX and not shape.is_empty:
            self._full.append(self._taken(shape))
        if size > _GATHERED_BYTES_MAX and count > 1:  # compressed events may become that much
            self._add(shape, data, events.some(list(range(count // 2))))
            self._add(shape, data, events.some(list(range(count // 2, count))))
            return
        shape.add(data, begins, events.end, events.group, events.number)

    def _learn(self, event: bytes) -> _Table | None:
        parsed = replace(TableMap.parse(event), table_id=0, flags=0)
        if parsed not in self._tables:
            prepared = self._prepare(parsed)
            if prepared is None:
                return None
            self._tables[parsed] = _Table(prepared, self._options, self._picked)
        return self._tables[parsed]


class RowDecoder(_Gathering[Changes]):
    """Gives rows as columns."""

    def _taken(self, shape: GatheredImages) -> Changes:
        return shape.take()


class RowCounter(_Gathering[RowCounts]):
    """Counts the rows of each event, and looks at no value."""

    def _taken(self, shape: GatheredImages) -> RowCounts:
        return shape.count()


def _sorted(likes: Integers, firsts: list[int], shapes: list[int], count: int) -> list[Integers]:
    """The row events of each shape, by the shapes of those that were looked at."""
    kind = (
        np.int16 if count <= np.iinfo(np.int16).max else np.int64
    )  # short ones are sorted in one pass
    of_first = np.full(
        len(likes), count, kind
    )  # stands for none: a table map, a table that is not wanted
    of_first[firsts] = shapes
    found = of_first[likes]
    if count == 1:
        return [np.flatnonzero(found == 0)]
    order = np.argsort(found, kind="stable")
    return np.split(order, np.searchsorted(found[order], np.arange(1, count + 1)))[:count]


def event_runs(pieces: Iterable[bytes], at_least: int = 1 << 20) -> Iterator[bytes]:
    """A group that comes in pieces cut anywhere, in pieces with whole events, for `RowDecoder.add`.

    They have so many bytes, or a large event more. Raises `ProtocolError`.
    """
    return whole_pieces(pieces, at_least)


def _uncompressed(data: RowBytes, events: Events) -> tuple[RowBytes, Events]:
    """Compressed row events are replaced by plain ones, which stand behind all the others."""
    compressed = np.flatnonzero(_COMPRESSED[events.type]).tolist()
    if not compressed:
        return data, events
    plain = []
    at = data.size
    for i in compressed:
        try:
            event = uncompressed(data.raw[events.begin[i] : events.end[i]])
        except ProtocolError as error:
            raise _placed(error, events, i) from None
        events.type[i] = event[TYPE_OFFSET]
        events.begin[i] = at
        at += len(event)
        events.end[i] = at
        plain.append(event)
    return RowBytes(b"".join((data.raw[: data.size], *plain))), events


def _placed(error: ProtocolError, events: Events, i: int) -> DamagedGroup:
    return DamagedGroup(str(error), int(events.group[i]), int(events.number[i]))
