"""Event groups in, row changes as Arrow columns out.

The decoder splits many groups into events at once, sorts the row events by the shape of their rows, and turns each
shape into columns when it is asked for. A table map is read once, however often it is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import numpy as np

from protocol.errors import ProtocolError
from protocol.event_group import split_events
from protocol.events.compressed import uncompressed
from protocol.events.event_type import EventType
from protocol.events.header import HEADER_SIZE, TYPE_OFFSET
from protocol.events.rows import ROWS_TYPES, RowsEvent
from protocol.events.table_map import TableMap
from protocol.row_columns.changes import Changes, Gathered, arrow_columns
from protocol.row_columns.event_walk import Events, walk_events
from protocol.row_columns.options import ColumnOptions
from protocol.row_columns.row_bytes import Damaged, RowBytes
from protocol.wire.values import lenenc_int

Prepare = Callable[[TableMap], TableMap | None]
"""What is known of a table beyond the log (`TableMap.with_columns`); None if its rows are not wanted."""

_TABLE_ID_SIZE: Final = 6
_HEAD_AT: Final = (
    HEADER_SIZE + 8
)  # of a row event: number of columns and bitmaps, behind table id and flags
_KNOWN_MAX: Final = 1024
_GATHERED_BYTES_MAX: Final = 1 << 29  # of one shape: offsets into it have 32 bits
_WANTED: Final = np.zeros(256, np.bool_)
_WANTED[[EventType.TABLE_MAP, *ROWS_TYPES]] = True
_PLAIN_ROWS: Final = frozenset(
    map(int, (EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1))
)


class _Table:
    """A table whose rows are wanted, as it is described at one time."""

    def __init__(self, table: TableMap, options: ColumnOptions) -> None:
        self.table: Final = table
        self.columns: Final = arrow_columns(table, options)
        bitmap = (len(table.columns) + 7) // 8
        head = len(lenenc_int(len(table.columns))) + bitmap
        self.head_ends: Final = {
            int(EventType.WRITE_ROWS_V1): _HEAD_AT + head,
            int(EventType.UPDATE_ROWS_V1): _HEAD_AT + head + bitmap,
            int(EventType.DELETE_ROWS_V1): _HEAD_AT + head,
        }
        self.shapes: Final[dict[tuple[int, bytes], Gathered]] = {}


class RowDecoder:
    """Gathers row events and gives their rows as columns. One owner.

    After an error nothing more can be got from it.
    """

    def __init__(
        self, options: ColumnOptions | None = None, prepare: Prepare | None = None
    ) -> None:
        self._options = options or ColumnOptions()
        self._prepare = prepare or (lambda table: table)
        self._known: dict[bytes, _Table | None] = {}  # by the body of the table map
        self._tables: dict[TableMap, _Table] = {}  # by all of it but the table id
        self._full: list[Changes] = []
        # Of the group at hand, which may go on with the next call.
        self._group = -1
        self._events_before = 0
        self._maps: dict[bytes, _Table | None] = {}

    def add(self, groups: Sequence[bytes], first: int = 0) -> None:
        """Groups in normal form, or pieces of them with whole events; numbered from `first` on.

        What has the number of the last one goes on with it. Raises `ProtocolError`.
        """
        if not groups:
            return
        data = RowBytes(b"".join(groups))
        ends = np.fromiter(accumulate(map(len, groups)), np.int64, len(groups))
        begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        try:
            events = walk_events(data, begins, ends)
        except Damaged:
            raise _explanation(groups, first) from None
        if first != self._group:
            self._begin(first)
        events.number[events.group == 0] += self._events_before
        self._gather(data.raw, events, first)
        last = len(groups) - 1
        if self._group != first + last:
            self._begin(first + last)
        self._events_before += int(np.count_nonzero(events.group == last))

    @property
    def gathered_bytes(self) -> int:
        """Bytes of row images that wait to be taken."""
        return sum(shape.size for table in self._tables.values() for shape in table.shapes.values())

    def take(self, at_least: int = 0) -> list[Changes]:
        """The changes of the shapes that have so many bytes. Raises `ProtocolError`, `UnrepresentableValue`."""
        found, self._full = self._full, []
        for table in self._tables.values():
            found += [s.take() for s in table.shapes.values() if s and s.size >= at_least]
        return found

    def _begin(self, group: int) -> None:
        """Table ids mean something only inside a group."""
        self._group = group
        self._events_before = 0
        self._maps = {}

    def _gather(self, raw: bytes, events: Events, first: int) -> None:
        wanted = np.flatnonzero(_WANTED[events.type])
        for type_, at, end, group, number in zip(
            *(column[wanted].tolist() for column in events), strict=True
        ):
            if first + group != self._group:
                self._begin(first + group)
            try:
                if type_ == EventType.TABLE_MAP:
                    self._table_map(raw, at, end)
                else:
                    self._rows(raw, type_, at, end, number)
            except ProtocolError as error:
                raise ProtocolError(f"{error} (group {self._group}, event {number})") from None

    def _table_map(self, raw: bytes, at: int, end: int) -> None:
        at += HEADER_SIZE
        body = raw[at:end]
        try:
            table = self._known[body]
        except KeyError:
            table = self._learn(raw[at - HEADER_SIZE : end])
            self._known[body] = table
        self._maps[body[:_TABLE_ID_SIZE]] = table

    def _learn(self, event: bytes) -> _Table | None:
        parsed = replace(TableMap.parse(event), table_id=0, flags=0)
        if len(self._known) >= _KNOWN_MAX:
            self._full += self.take()
            self._known.clear()
            self._tables.clear()
        if parsed not in self._tables:
            prepared = self._prepare(parsed)
            if prepared is None:
                return None
            self._tables[parsed] = _Table(prepared, self._options)
        return self._tables[parsed]

    def _rows(self, raw: bytes, type_: int, at: int, end: int, number: int) -> None:
        id_at = at + HEADER_SIZE
        table_id = raw[id_at : id_at + _TABLE_ID_SIZE]
        try:
            table = self._maps[table_id]
        except KeyError:
            shown = int.from_bytes(table_id, "little")
            raise ProtocolError(f"row event for table {shown}, without a table map") from None
        if table is None:
            return
        if type_ not in _PLAIN_ROWS:
            raw = uncompressed(raw[at:end])
            at, end = 0, len(raw)
            type_ = raw[TYPE_OFFSET]
        # Of version 2 events this is too short or wrong: the first of a shape is read by the plain parser.
        rows_at = at + table.head_ends.get(type_, HEADER_SIZE)
        key = type_, raw[at + _HEAD_AT : rows_at]
        shape = table.shapes.get(key)
        if shape is None:
            parsed = replace(RowsEvent.parse(raw[at:end]), table_id=0)
            if parsed.width != len(table.table.columns):
                raise ProtocolError(
                    f"row event with {parsed.width} columns, but {table.table.database}.{table.table.table} "
                    f"has {len(table.table.columns)}"
                )
            if rows_at + len(parsed.body) != end:
                raise ProtocolError(
                    "row event: the number of its columns is not in its shortest form"
                )
            shape = table.shapes[key] = Gathered(table.table, table.columns, parsed)
        if rows_at > end:
            raise ProtocolError(f"row event of {end - at} bytes is cut short in its bitmaps")
        if shape.size + end - rows_at > _GATHERED_BYTES_MAX and shape.size:
            self._full.append(shape.take())
        shape.add(raw[rows_at:end], self._group, number)


def _explanation(groups: Sequence[bytes], first: int) -> ProtocolError:
    """What is wrong with groups that do not split into events."""
    for number, group in enumerate(groups, first):
        try:
            for _ in split_events(group):
                pass
        except ProtocolError as error:
            return ProtocolError(f"{error} (group {number})")
    return ProtocolError(f"groups {first} to {first + len(groups) - 1} do not split into events")
