"""Totals of the events of a group: sums, and the few facts that one event tells about the transaction."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import plain_begin
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidExtraFlags, GtidFlags
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.row_columns import DamagedGroup
from binlog_protocol.row_columns.row_bytes import Bools

from binlog_pipeline.groups import Integers
from binlog_pipeline.views.event_batches import EventBatch
from binlog_pipeline.views.event_names import QUERY_TYPES, TableNames, table_codes

T = EventType
_INSERT: Final = (T.WRITE_ROWS_V1, T.WRITE_ROWS_COMPRESSED_V1)
_UPDATE: Final = (T.UPDATE_ROWS_V1, T.UPDATE_ROWS_COMPRESSED_V1)
_DELETE: Final = (T.DELETE_ROWS_V1, T.DELETE_ROWS_COMPRESSED_V1)
_COMMIT_ID_SIZE: Final = 8
_XA_SIZES_AT: Final = 4  # behind the format id: lengths of the two parts
_XA_FIXED_SIZE: Final = 6
_XA_WORDS_BYTES: Final = len("XA ROLLBACK")
_ALTER_END: Final = int(GtidExtraFlags.COMMIT_ALTER | GtidExtraFlags.ROLLBACK_ALTER)


@dataclass(frozen=True, slots=True)
class Known:
    """A number for each group, and whether it is known."""

    values: Integers
    there: Bools

    @classmethod
    def at(cls, count: int, which: Integers, values: Integers) -> Self:
        """The values for those groups of `count`; the first one holds where a group has several."""
        made = cls(np.zeros(count, np.int64), np.zeros(count, np.bool_))
        made.values[which[::-1]] = values[::-1]
        made.there[which] = True
        return made

    def or_else(self, other: Known) -> Known:
        """These values, and those of `other` for groups without one."""
        return Known(np.where(self.there, self.values, other.values), self.there | other.there)


@dataclass(frozen=True, slots=True)
class TableTotals:
    """An element for each table of each group that has rows in it, in the order in which they come."""

    group: Integers
    databases: pa.Array
    tables: pa.Array
    rows: Integers
    bytes: Integers

    @classmethod
    def of(cls, batch: EventBatch) -> Self:
        names = TableNames(batch)
        events = batch.events
        which = np.flatnonzero((names.number >= 0) & (events.type != T.TABLE_MAP))
        number = pa.array(names.number[which])
        return cls(
            events.group[which],
            names.databases.take(number),
            names.tables.take(number),
            batch.rows[which],
            (events.end - events.begin)[which],
        ).joined(table_codes(names.databases, names.tables)[names.number[which]])

    def joined(self, codes: Integers) -> Self:
        """Elements of the same group and table together. `codes` are numbers of tables."""
        keys = self.group * (int(codes.max(initial=0)) + 1) + codes
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)  # the groups ascend, so theirs is the order of what comes first
        picked = pa.array(first[order])
        return type(self)(
            self.group[first[order]],
            self.databases.take(picked),
            self.tables.take(picked),
            _sums(place, self.rows, len(first))[order],
            _sums(place, self.bytes, len(first))[order],
        )

    def and_more(self, other: TableTotals) -> TableTotals:
        """The sum with other totals of the same group."""
        databases = pa.concat_arrays([self.databases, other.databases])
        tables = pa.concat_arrays([self.tables, other.tables])
        return TableTotals(
            np.concatenate((self.group, other.group)),
            databases,
            tables,
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.bytes, other.bytes)),
        ).joined(table_codes(databases, tables))


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """An element a group. `rows` are those that were inserted, updated, deleted."""

    events: Integers
    bytes: Integers
    rows: tuple[Integers, Integers, Integers]
    tables: TableTotals
    xa: list[str | None]
    xid: Known
    thread_id: Known

    @classmethod
    def of(cls, batch: EventBatch) -> Self:
        """The totals of each group. Raises `DamagedGroup`."""
        events, count = batch.events, len(batch.groups)
        kinds = []
        for types in (_INSERT, _UPDATE, _DELETE):
            which = np.isin(events.type, types)
            kinds.append(_sums(events.group[which], batch.rows[which], count))
        inserts, updates, deletes = kinds
        return cls(
            np.bincount(events.group, minlength=count),
            _sums(events.group, events.end - events.begin, count),
            (inserts, updates, deletes),
            TableTotals.of(batch),
            _xa(batch),
            _xid(batch),
            _thread_id(batch),
        )

    def and_more(self, other: GroupTotals) -> GroupTotals:
        """The totals of one group together with those of its further events."""
        inserts, updates, deletes = (a + b for a, b in zip(self.rows, other.rows, strict=True))
        return GroupTotals(
            self.events + other.events,
            self.bytes + other.bytes,
            (inserts, updates, deletes),
            self.tables.and_more(other.tables),
            [a or b for a, b in zip(self.xa, other.xa, strict=True)],
            self.xid.or_else(other.xid),
            self.thread_id.or_else(other.thread_id),
        )


def _sums(groups: Integers, values: Integers, count: int) -> Integers:
    found = np.zeros(count, np.int64)
    np.add.at(found, groups, values)
    return found


def _xid(batch: EventBatch) -> Known:
    events = batch.events
    which = np.flatnonzero(events.type == T.XID)
    numbers = batch.data.words(events.begin[which] + HEADER_SIZE).view(np.int64)
    return Known.at(len(batch.groups), events.group[which], numbers)


def _thread_id(batch: EventBatch) -> Known:
    """The thread ids, by the GTID event or else by a statement."""
    events, data, count = batch.events, batch.data, len(batch.groups)
    queries = np.flatnonzero(QUERY_TYPES[events.type])
    by_query = data.unsigned(events.begin[queries] + HEADER_SIZE, 4)
    which = np.flatnonzero((events.type == T.GTID) & (events.number == 0))
    at, end = events.begin[which] + FLAGS2_OFFSET, events.end[which]
    flags = data.unsigned(at, 1)
    at = at + 1 + _COMMIT_ID_SIZE * ((flags & GtidFlags.GROUP_COMMIT_ID) != 0)
    sizes = data.unsigned(at + _XA_SIZES_AT, 1) + data.unsigned(at + _XA_SIZES_AT + 1, 1)
    has_xa = (flags & (GtidFlags.PREPARED_XA | GtidFlags.COMPLETED_XA)) != 0
    at = at + np.where(has_xa, _XA_FIXED_SIZE + sizes, 0)
    extra = np.where(at < end, data.unsigned(at, 1), 0)
    at = at + 1 + ((extra & GtidExtraFlags.MULTI_ENGINE) != 0) + 8 * ((extra & _ALTER_END) != 0)
    has = (extra & GtidExtraFlags.THREAD_ID != 0) & (at + 4 <= end)
    by_gtid = Known.at(count, events.group[which[has]], data.unsigned(at[has], 4))
    return by_gtid.or_else(Known.at(count, events.group[queries], by_query))


def _xa(batch: EventBatch) -> list[str | None]:
    """Few groups are any: they are looked at one by one."""
    found: list[str | None] = [None] * len(batch.groups)
    flags = batch.groups.flags2
    for i in np.flatnonzero(flags & GtidFlags.PREPARED_XA).tolist():
        found[i] = "prepared"
    for i in np.flatnonzero(flags & GtidFlags.COMPLETED_XA).tolist():
        found[i] = _xa_end(batch, i)
    return found


def _xa_end(batch: EventBatch, group: int) -> str | None:
    """The end of an XA transaction by its statement: commit or rollback; None for neither."""
    events = batch.events
    for i in np.flatnonzero((events.group == group) & QUERY_TYPES[events.type]).tolist():
        event = batch.data.raw[events.begin[i] : events.end[i]]
        try:
            text = QueryEvent.parse(plain_begin(event)).text[:_XA_WORDS_BYTES].upper()
        except ProtocolError as error:
            raise DamagedGroup(str(error), group, int(events.number[i])) from None
        for word in ("commit", "rollback"):
            if text.startswith(b"XA " + word.upper().encode()):
                return word
    return None
