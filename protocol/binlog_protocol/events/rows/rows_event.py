"""Row events: WRITE (23), UPDATE (24) and DELETE (25), version 1; and 166..168, their compressed forms.

======  ============================================================================================
bytes   field (offsets in the body)
======  ============================================================================================
0..5    table id of the table map before
6..7    flags
8..     number of columns (length-encoded)
+n      one bit a column, least first: present in the images of this event (of an UPDATE: before)
+n      UPDATE only: present in the after-image
..      rows: one image, of an UPDATE two: one bit per present column, least first: is NULL; then
        the values of the others, by the metadata of the table map
======  ============================================================================================

binlog_row_image decides what is present: FULL all columns; MINIMAL the key before and what was given after; NOBLOB
blobs only where they changed. Version 2 (30..32, 169..171) is MySQL's; MariaDB never writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, IntFlag
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, build_event, parse_whole
from binlog_protocol.events.rows.value import Value, read_value
from binlog_protocol.events.table_map import COLUMNS_MAX, TableMap
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.values import Cursor, lenenc_int


class RowsFlags(IntFlag):
    """flags; the conditions are those of the session that wrote."""

    STMT_END = 0x01
    NO_FOREIGN_KEY_CHECKS = 0x02
    RELAXED_UNIQUE_CHECKS = 0x04
    COMPLETE_ROWS = 0x08
    NO_CHECK_CONSTRAINT_CHECKS = 0x80


class ChangeKind(Enum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Absent(Enum):
    """A column that is not in an image."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
Image = tuple[Value | Absent, ...]


class RowChange(NamedTuple):
    """One row. An INSERT has no `before`, a DELETE no `after`; images have all columns of the table."""

    before: Image | None
    after: Image | None


_KINDS: Final[dict[int, ChangeKind]] = {
    EventType.WRITE_ROWS_V1: ChangeKind.INSERT,
    EventType.UPDATE_ROWS_V1: ChangeKind.UPDATE,
    EventType.DELETE_ROWS_V1: ChangeKind.DELETE,
    EventType.WRITE_ROWS_COMPRESSED_V1: ChangeKind.INSERT,
    EventType.UPDATE_ROWS_COMPRESSED_V1: ChangeKind.UPDATE,
    EventType.DELETE_ROWS_COMPRESSED_V1: ChangeKind.DELETE,
}
_TYPES: Final = {
    ChangeKind.INSERT: EventType.WRITE_ROWS_V1,
    ChangeKind.UPDATE: EventType.UPDATE_ROWS_V1,
    ChangeKind.DELETE: EventType.DELETE_ROWS_V1,
}
_VERSION_2: Final = (
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
    EventType.WRITE_ROWS_COMPRESSED,
    EventType.UPDATE_ROWS_COMPRESSED,
    EventType.DELETE_ROWS_COMPRESSED,
)
ROWS_TYPES: Final = frozenset(map(int, (*_KINDS, *_VERSION_2)))


class RowsHead(NamedTuple):
    """The head of a row event, compressed or not; fields as in `RowsEvent`. `end`: the offset of the rows."""

    kind: ChangeKind
    table_id: int
    flags: int
    width: int
    present: int
    present_after: int
    end: int

    @classmethod
    def take(cls, event: bytes) -> RowsHead:
        """The head of an event without checksum. Raises `ProtocolError`."""
        kind = _KINDS.get(event[TYPE_OFFSET])
        if kind is None:
            raise ProtocolError(f"event of type {event[TYPE_OFFSET]} is no row event")
        cursor = Cursor(event, "row event", HEADER_SIZE)
        table_id, flags, width = cursor.integer(6), cursor.integer(2), cursor.lenenc_int()
        if not 0 < width <= COLUMNS_MAX:
            raise ProtocolError(f"row event with {width} columns")
        present = present_after = _bitmap(cursor, width)
        if kind is ChangeKind.UPDATE:
            present_after = _bitmap(cursor, width)
        return cls(kind, table_id, flags, width, present, present_after, cursor.position)


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """A row event, uncompressed; `present` (before, of an UPDATE) and `present_after` are bitmaps as integers."""

    kind: ChangeKind
    table_id: int
    flags: int
    width: int
    present: int
    present_after: int
    body: bytes

    @classmethod
    def parse(cls, event: bytes, limit: int = EVENT_BYTES_MAX) -> RowsEvent:
        """Read an event without checksum; `limit` bounds what a compressed one may become. Raises `ProtocolError`."""
        if parse_whole(event).type in _VERSION_2:
            raise ProtocolError(
                f"row event of type {event[TYPE_OFFSET]}: version 2, which MariaDB does not write"
            )
        event = uncompressed(event, limit)
        head = RowsHead.take(event)
        kind, table_id, flags, width, present, present_after, end = head
        return cls(kind, table_id, flags, width, present, present_after, event[end:])

    def build(self, server_id: int, *, timestamp: int = 0, header_flags: int = 0) -> bytes:
        """The event without checksum, version 1, not compressed."""
        return build_event(
            _TYPES[self.kind],
            self.head_bytes() + self.body,
            server_id=server_id,
            timestamp=timestamp,
            flags=header_flags,
        )

    def head_bytes(self) -> bytes:
        """The fields in front of the rows."""
        size = (self.width + 7) // 8
        bitmaps = (
            (self.present, self.present_after)
            if self.kind is ChangeKind.UPDATE
            else (self.present,)
        )
        return b"".join(
            (
                self.table_id.to_bytes(6, "little"),
                self.flags.to_bytes(2, "little"),
                lenenc_int(self.width),
                *(bitmap.to_bytes(size, "little") for bitmap in bitmaps),
            )
        )

    @property
    def ends_statement(self) -> bool:
        return bool(self.flags & RowsFlags.STMT_END)

    def rows(self, table_map: TableMap) -> Iterator[RowChange]:
        """The rows one by one. Raises `ProtocolError` where the bytes do not fit the table map."""
        if self.table_id != table_map.table_id or self.width != len(table_map.columns):
            raise ProtocolError(
                f"row event for table {self.table_id} with {self.width} columns, but the map is of table "
                f"{table_map.table_id} with {len(table_map.columns)}"
            )
        cursor = Cursor(self.body, f"row event of {table_map.database}.{table_map.table}")
        if not self.body and not self.present and not self.present_after:
            # An INSERT of nothing but defaults under binlog_row_image=MINIMAL: one row, as a replica takes it.
            yield self._row(table_map, cursor)
        while cursor.remaining:
            begin = cursor.position
            yield self._row(table_map, cursor)
            if cursor.position == begin:
                raise ProtocolError(
                    f"row event of {table_map.database}.{table_map.table}: a row without bytes"
                )

    def _row(self, table_map: TableMap, cursor: Cursor) -> RowChange:
        first = _image(table_map, self.present, cursor)
        if self.kind is ChangeKind.UPDATE:
            return RowChange(first, _image(table_map, self.present_after, cursor))
        return RowChange(None, first) if self.kind is ChangeKind.INSERT else RowChange(first, None)


def _bitmap(cursor: Cursor, width: int) -> int:
    return cursor.integer((width + 7) // 8) & (1 << width) - 1


def _image(table_map: TableMap, present: int, cursor: Cursor) -> Image:
    nulls = cursor.integer((present.bit_count() + 7) // 8)
    values: list[Value | Absent] = []
    for i, column in enumerate(table_map.columns):
        if not present >> i & 1:
            values.append(ABSENT)
            continue
        values.append(None if nulls & 1 else read_value(column, cursor))
        nulls >>= 1
    return tuple(values)


def image_bytes(values: Sequence[bytes | None], present: int) -> bytes:
    """An image of the columns in the bitmap `present`: of their values as bytes, None for NULL, one for each column."""
    nulls = count = 0
    found = []
    for i, value in enumerate(values):
        if present >> i & 1:
            if value is None:
                nulls |= 1 << count
            else:
                found.append(value)
            count += 1
    size = (count + 7) // 8
    nulls |= (1 << 8 * size) - (
        1 << count
    )  # the bits behind the last one are 1, as servers have them
    return nulls.to_bytes(size, "little") + b"".join(found)
