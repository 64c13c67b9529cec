"""Groups of row changes, in normal form: what a master with tables logs (`groups/statement_group.py`: of statements).

    a statement     ANNOTATE_ROWS, a TABLE_MAP for each of its tables, row events; the last one has STMT_END
    TRANSACTION     GTID, statements, XID
    AFTER_DIRECT    the same of a transaction that changed tables without transactions, too: not TRANSACTIONAL
    DIRECT          GTID, one statement on tables without transactions, QUERY `COMMIT`: logged when the statement ends,
                    whatever becomes of the transaction around it

A statement that changes tables of both kinds is two in one: first the part without transactions. Alone it is one
TRANSACTION; inside BEGIN each part goes into its group (`Part`).

A row event goes on while the table, the kind of change and the columns present are the same, and it has no more than
`event_size_max` bytes; a single row may have more. As 10.11 and 11.8 log it: `tests/integration/rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.events.column_type import BLOB_TYPES, ColumnType
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidEvent, GtidFlags
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAG_SUPPRESS_USE,
    HEADER_SIZE,
    LENGTH_OFFSET,
    build_event,
)
from binlog_protocol.events.rows import ChangeKind, RowsEvent, RowsFlags
from binlog_protocol.events.rows.rows_event import image_bytes
from binlog_protocol.events.table_map import RowMetadata
from binlog_protocol.groups.statement_group import NO_ENGINE, Origin
from binlog_protocol.gtid import Gtid
from binlog_protocol.tables.row_format import RowFormat

EVENT_SIZE_MAX: Final = 8192  # binlog_row_event_max_size
_LARGE: Final = BLOB_TYPES | {ColumnType.GEOMETRY}


class RowImage(Enum):
    """binlog_row_image: which columns are logged."""

    FULL = "FULL"
    MINIMAL = "MINIMAL"
    NOBLOB = "NOBLOB"
    FULL_NODUP = "FULL_NODUP"


@dataclass(frozen=True, slots=True)
class RowLogging:
    """How a session logs rows. `conditions`: `RowsFlags` of its rows but STMT_END."""

    image: RowImage = RowImage.FULL
    metadata: RowMetadata = RowMetadata.FULL
    conditions: int = 0
    event_size_max: int = EVENT_SIZE_MAX


class LoggedTable:
    """A table that rows are logged of. `table_id`: any number that no other table of a statement has."""

    def __init__(
        self,
        row_format: RowFormat,
        table_id: int,
        *,
        has_triggers: bool = False,
        is_transactional: bool = True,
    ) -> None:
        self.format: Final = row_format
        self.map: Final = row_format.definition.table_map(table_id, has_triggers=has_triggers)
        self.is_transactional: Final = is_transactional
        key = self.map.primary_key
        self.key: Final = None if key is None else sum({1 << part.column for part in key})
        self.large: Final = sum(
            1 << i for i, column in enumerate(row_format.columns) if column.type in _LARGE
        )


class TableChange(NamedTuple):
    """A changed row, as `RowFormat.row` makes them. An INSERT has no `before`, a DELETE no `after`.

    columns: bitmap of those that the statement names: given values by an INSERT, assigned by an UPDATE. None: all of an
    INSERT, those that differ of an UPDATE. Only images other than FULL ask for it.
    """

    table: LoggedTable
    before: bytes | None
    after: bytes | None
    columns: int | None = None

    @property
    def kind(self) -> ChangeKind:
        if self.before is None:
            return ChangeKind.INSERT
        return ChangeKind.DELETE if self.after is None else ChangeKind.UPDATE


class Part(Enum):
    """The part of a statement's changes that is logged."""

    ALL = auto()
    DIRECT = auto()
    TRANSACTIONAL = auto()


@dataclass(frozen=True, slots=True)
class RowStatement:
    """The changes of one statement in their order, and its text; without text it is not annotated.

    `changes` is gone through once for each kind of tables: those of a large statement need not lie in memory. `tables`:
    those that are changed, in the order of their maps.
    """

    changes: Iterable[TableChange]
    tables: Sequence[LoggedTable]
    text: bytes = b""
    timestamp: int = 0

    @classmethod
    def of(
        cls, changes: Sequence[TableChange], text: bytes = b"", timestamp: int = 0
    ) -> RowStatement:
        """With the tables of the changes, in the order in which they come."""
        tables = {change.table.map.table_id: change.table for change in changes}
        return cls(changes, tuple(tables.values()), text, timestamp)

    def events(self, origin: Origin, logging: RowLogging, part: Part = Part.ALL) -> Iterator[bytes]:
        """Its events; none if there is no table of that part."""
        parts = [
            [table for table in self.tables if table.is_transactional is is_transactional]
            for is_transactional in (False, True)
            if part is Part.ALL or is_transactional is (part is Part.TRANSACTIONAL)
        ]
        if self.text and any(parts):
            yield build_event(
                EventType.ANNOTATE_ROWS,
                self.text,
                server_id=origin.server_id,
                timestamp=self.timestamp,
                flags=origin.header_flags,
            )
        for tables in parts:
            if tables:
                yield from self._of_tables(tables, origin, logging)

    def _of_tables(
        self, tables: Sequence[LoggedTable], origin: Origin, logging: RowLogging
    ) -> Iterator[bytes]:
        for table in tables:
            yield table.map.build(
                origin.server_id,
                logging.metadata,
                timestamp=self.timestamp,
                header_flags=origin.header_flags,
            )
        made = _RowEvents(origin, logging, self.timestamp)
        is_transactional = tables[0].is_transactional
        for change in self.changes:
            if change.table.is_transactional is is_transactional:
                yield from made.add(change)
        yield made.end()


class _RowEvents:
    """Gathers rows into events."""

    def __init__(self, origin: Origin, logging: RowLogging, timestamp: int) -> None:
        self._origin: Final = origin
        self._logging: Final = logging
        self._timestamp: Final = timestamp
        self._event: RowsEvent | None = None
        self._rows: list[bytes] = []
        self._size = 0

    def add(self, change: TableChange) -> Iterator[bytes]:
        """The event that is full before it."""
        table, kind = change.table, change.kind
        present, present_after = _present(change, self._logging.image)
        row = b"".join(_images(change, present, present_after))
        event = RowsEvent(
            kind,
            table.map.table_id,
            self._logging.conditions,
            len(table.map.columns),
            present,
            present_after,
            b"",
        )
        if self._event != event or self._size + len(row) > self._logging.event_size_max:
            if self._event is not None:
                yield self._built(0)
            self._event, self._rows, self._size = event, [], len(event.head_bytes())
        self._rows.append(row)
        self._size += len(row)

    def end(self) -> bytes:
        """The last event of the statement."""
        return self._built(RowsFlags.STMT_END)

    def _built(self, flag: int) -> bytes:
        if self._event is None:
            raise BadValue("a statement that changed no row is not logged")
        event = replace(self._event, flags=self._event.flags | flag, body=b"".join(self._rows))
        return event.build(
            self._origin.server_id,
            timestamp=self._timestamp,
            header_flags=self._origin.header_flags,
        )


def _present(change: TableChange, image: RowImage) -> tuple[int, int]:
    """Bitmaps of the columns in the image of an INSERT or DELETE, or in both of an UPDATE."""
    table, kind = change.table, change.kind
    every = table.format.present
    if image is RowImage.FULL or (image is RowImage.FULL_NODUP and kind is not ChangeKind.UPDATE):
        return every, every
    named = change.columns
    if named is None:
        named = every if kind is not ChangeKind.UPDATE else _changed(change)
    if image is RowImage.FULL_NODUP:
        return every, named
    if kind is ChangeKind.INSERT:
        found = named if image is RowImage.MINIMAL else every & ~(table.large & ~named)
        return found, found
    before = every
    if table.key is not None:
        before = table.key if image is RowImage.MINIMAL else every & ~table.large | table.key
    if kind is ChangeKind.DELETE:
        return before, before
    after = named if image is RowImage.MINIMAL else every & ~(table.large & ~named)
    return before, after


def _changed(change: TableChange) -> int:
    assert change.before is not None
    assert change.after is not None
    split = change.table.format.split
    pairs = zip(split(change.before), split(change.after), strict=True)
    return sum(1 << i for i, (old, new) in enumerate(pairs) if old != new)


def _images(change: TableChange, present: int, present_after: int) -> Iterator[bytes]:
    row_format = change.table.format
    is_update = change.kind is ChangeKind.UPDATE
    bitmaps = (present, present_after if is_update else present)
    for row, bitmap in zip((change.before, change.after), bitmaps, strict=True):
        if row is not None:
            yield (
                row if bitmap == row_format.present else image_bytes(row_format.split(row), bitmap)
            )


class GroupKind(Enum):
    """The kinds of groups of rows: see above."""

    TRANSACTION = auto()
    AFTER_DIRECT = auto()
    DIRECT = auto()


_FLAGS: Final = {
    GroupKind.TRANSACTION: GtidFlags.TRANSACTIONAL | GtidFlags.ALLOW_PARALLEL,
    GroupKind.AFTER_DIRECT: GtidFlags.ALLOW_PARALLEL,
    GroupKind.DIRECT: GtidFlags.ALLOW_PARALLEL,
}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A group of row changes.

    xid: number in the event that ends it; a replica only asks whether it is there. Not of a DIRECT one.
    commit_id: the same for groups that were all complete, with their locks held, at one moment; None for one alone.
    flags: more of flags2 (`GtidFlags.WAITED`); `is_parallel` False is @@skip_parallel_replication.
    timestamp: of GTID and end, in seconds since 1970.
    """

    origin: Origin
    gtid: Gtid
    statements: Sequence[RowStatement]
    kind: GroupKind = GroupKind.TRANSACTION
    xid: int = 0
    commit_id: int | None = None
    flags: int = 0
    is_parallel: bool = True
    timestamp: int = 0
    logging: RowLogging = field(default_factory=RowLogging)
    part: Part = Part.ALL

    def events(self) -> Iterator[bytes]:
        """The events one by one. Raises `BadValue` for a group that changes nothing: none is logged."""
        if not self.statements:
            raise BadValue("a transaction that changed no row is not logged")
        yield self._gtid(_FLAGS[self.kind])
        for statement in self.statements:
            yield from statement.events(self.origin, self.logging, self.part)
        if self.kind is GroupKind.DIRECT:
            yield self._commit_query()
        else:
            yield self.origin.commit(self.xid, self.timestamp)

    def build(self) -> bytes:
        """The group as one payload."""
        return b"".join(self.events())

    def create_select(self, create: bytes, *, is_empty: bool) -> Iterator[bytes]:
        """The group of CREATE TABLE .. SELECT: the statement that creates the table, and the rows as a transaction.

        create: the CREATE TABLE written out. is_empty: no row was selected, `statements` are not looked at.
        """
        flags = GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL
        yield self._gtid(flags, extra_engines=NO_ENGINE if is_empty else None)
        yield self.origin.statement(create, self.timestamp)
        if is_empty:
            yield self._commit_query()
            return
        for statement in self.statements:
            yield from statement.events(self.origin, self.logging, self.part)
        yield self.origin.commit(self.xid, self.timestamp)

    def _gtid(self, flags: int, extra_engines: int | None = None) -> bytes:
        if not self.is_parallel:
            flags &= ~GtidFlags.ALLOW_PARALLEL
        return GtidEvent(
            self.gtid,
            flags | self.flags,
            self.commit_id,
            extra_engines=extra_engines,
            timestamp=self.timestamp,
            header_flags=FLAG_SUPPRESS_USE | self.origin.header_flags,
        ).build()

    def _commit_query(self) -> bytes:
        return self.origin.direct_end(self.timestamp)


class QuickRows:
    """Builds the groups of transactions that change one row: the hot path.

    `build` gives the bytes of a `RowGroup` with one statement of one change, the sequence number as xid. All that does
    not change is put together once.

    Args:
        logging: with a FULL image.
    """

    __slots__ = ("_alone", "_annotated", "_commit", "_map", "_row_head", "_rows", "_shared", "kind")

    def __init__(
        self,
        domain_id: int,
        origin: Origin,
        logging: RowLogging,
        table: LoggedTable,
        kind: ChangeKind,
    ) -> None:
        self.kind: Final = kind
        empty = TableChange(
            table,
            None if kind is ChangeKind.INSERT else b"",
            None if kind is ChangeKind.DELETE else b"",
        )
        annotated, table_map, rows = RowStatement((empty,), (table,), b"?").events(origin, logging)
        gtid = Gtid(domain_id, origin.server_id, 0)
        alone, shared = (
            next(RowGroup(origin, gtid, (_NOTHING,), commit_id=each).events()) for each in (None, 0)
        )
        # Each without its timestamp; what varies stands between these.
        self._alone: Final = alone[4:_SEQ_NO_AT], alone[_DOMAIN_AT:]
        self._shared: Final = shared[4:_SEQ_NO_AT], shared[_DOMAIN_AT:_COMMIT_ID_AT]
        self._annotated: Final = (
            annotated[4:LENGTH_OFFSET],
            annotated[END_POSITION_OFFSET:HEADER_SIZE],
        )
        self._map: Final = table_map[4:]
        self._rows: Final = rows[4:LENGTH_OFFSET], rows[END_POSITION_OFFSET:]
        self._row_head: Final = len(rows)
        self._commit: Final = origin.commit(0, 0)[4:HEADER_SIZE]

    def build(
        self, seq_no: int, timestamp: int, text: bytes, images: bytes, commit_id: int | None = None
    ) -> bytes:
        """Build the group. `images`: of the row, before and after the change, as far as there is one."""
        at = timestamp.to_bytes(4, "little")
        number = seq_no.to_bytes(8, "little")
        if commit_id is None:
            gtid, rest = self._alone
            shared = b""
        else:
            gtid, rest = self._shared
            shared = commit_id.to_bytes(8, "little")
        annotated, annotated_rest = self._annotated
        rows, rows_rest = self._rows
        return b"".join(
            (
                at,
                gtid,
                number,
                rest,
                shared,
                at,
                annotated,
                (HEADER_SIZE + len(text)).to_bytes(4, "little"),
                annotated_rest,
                text,
                at,
                self._map,
                at,
                rows,
                (self._row_head + len(images)).to_bytes(4, "little"),
                rows_rest,
                images,
                at,
                self._commit,
                number,
            )
        )


_NOTHING: Final = RowStatement((), ())
_SEQ_NO_AT: Final = HEADER_SIZE  # in a GTID event
_DOMAIN_AT: Final = _SEQ_NO_AT + 8
_COMMIT_ID_AT: Final = FLAGS2_OFFSET + 1
