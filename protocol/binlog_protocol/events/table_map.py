"""TABLE_MAP (19): describes the table that the row events after it change.

======  ============================================================================================
bytes   field (offsets in the body)
======  ============================================================================================
0..5    table id: ties row events to this map, until the statement ends
6..7    flags
8       length of the database name, the name, 00
+1      length of the table name, the name, 00
+ln     number of columns, then one type byte each
+ln     bytes of metadata, then the metadata of each column (`column_type.py`)
+n      one bit a column, least first: may be NULL
..      optional metadata, with binlog_row_metadata=MINIMAL or FULL: type u8, length (ln), value
======  ============================================================================================

Optional metadata (ln = length-encoded integer):

====  =======  =====================================================================================
type  mode     value
====  =======  =====================================================================================
1     MINIMAL  one bit per numeric column (YEAR counts, BIT does not), highest first: unsigned
2     MINIMAL  collation of most character columns, then pairs (n-th character column, its collation)
3     MINIMAL  instead of 2: the collation of each character column
4     FULL     names: length and bytes each
5     FULL     for each SET column: number of members, then length and bytes each
6     FULL     the same for each ENUM column
7     MINIMAL  for each GEOMETRY column its type (0 GEOMETRY, 1 POINT, ...)
8     FULL     primary key: column numbers
9     FULL     instead of 8: pairs (column number, prefix length in characters or 0)
10    FULL     as 2, counting ENUM and SET columns
11    FULL     as 3, counting ENUM and SET columns
====  =======  =====================================================================================

GEOMETRY counts as a character column. The default, binlog_row_metadata=NO_LOG, has nothing of this: whether an integer
is signed and what character set a text has is then unknown. As seen on 10.11 and 11.8.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    UndecodedText,
    decode_text,
    encode_text,
    is_storable,
)
from binlog_protocol.events.column_type import (
    CHARACTER_TYPES,
    NUMERIC_TYPES,
    ColumnLayout,
    ColumnType,
    layout_bytes,
    parse_layout,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.values import Cursor, lenenc_bytes, lenenc_int

COLUMNS_MAX: Final = 4096  # of a MariaDB table
_UTF8: Final = 45
_HASH: Final = re.compile("DB_ROW_HASH_[1-9][0-9]*")


class RowMetadata(Enum):
    """binlog_row_metadata: how much of the optional metadata is logged."""

    NO_LOG = "NO_LOG"
    MINIMAL = "MINIMAL"
    FULL = "FULL"


class ColumnKind(IntEnum):
    """The kind of a column that is logged as a plainer one."""

    AS_LOGGED = 0
    UUID = 1
    INET4 = 2
    INET6 = 3
    VECTOR = 4


Label = str | bytes | UndecodedText
"""A label of an ENUM or SET: bytes if its character set is binary, undecoded if it is no text in that character set."""


class KeyPart(NamedTuple):
    """A column of the primary key; `prefix` in characters, 0 for the whole column."""

    column: int
    prefix: int


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. What is None was not logged: `with_columns` is the way to add it from elsewhere.

    `fraction_digits` is for columns of the MariaDB 5.3 temporal format, which log no precision: None takes them for
    columns without fraction.
    """

    layout: ColumnLayout
    nullable: bool
    name: str | None = None
    unsigned: bool | None = None
    collation: int | None = None
    labels: tuple[Label, ...] | None = None
    geometry_type: int | None = None
    fraction_digits: int | None = None
    kind: ColumnKind = ColumnKind.AS_LOGGED

    @property
    def type(self) -> ColumnType:
        return self.layout.type

    @property
    def may_be_hidden(self) -> bool:
        """Whether it looks like the column that a server makes for a UNIQUE key over TEXT or USING HASH."""
        is_named = _HASH.fullmatch(self.name or "") is not None
        is_number = self.type is ColumnType.LONGLONG and self.unsigned is True
        return is_named and is_number and self.nullable


class OptionalField(NamedTuple):
    """One of the optional metadata."""

    type: int
    value: bytes


class TableMapHead(NamedTuple):
    """A table map cut into its fields. What the columns are is not looked at: a newer server may have other types."""

    table_id: int
    flags: int
    database: str
    table: str
    types: bytes
    metadata: bytes
    nullable: bytes
    optional: tuple[OptionalField, ...]

    @classmethod
    def parse(cls, event: bytes) -> TableMapHead:
        """Read an event without checksum; raises `ProtocolError`."""
        parse_whole(event, EventType.TABLE_MAP)
        cursor = Cursor(event, "table map", HEADER_SIZE)
        table_id, flags = cursor.integer(6), cursor.integer(2)
        database, table = _name(cursor), _name(cursor)
        count = cursor.lenenc_int()
        if not 0 < count <= COLUMNS_MAX:
            raise ProtocolError(f"table map of {database}.{table}: {count} columns")
        types, metadata = cursor.take(count), cursor.lenenc_bytes()
        nullable = cursor.take((count + 7) // 8)
        optional = []
        while cursor.remaining:
            optional.append(OptionalField(cursor.integer(1), cursor.lenenc_bytes()))
        return cls(table_id, flags, database, table, types, metadata, nullable, tuple(optional))


@dataclass(frozen=True, slots=True)
class TableMap:
    """A TABLE_MAP event. Names are UTF-8; bytes that are not come as surrogates."""

    table_id: int
    flags: int
    database: str
    table: str
    columns: tuple[TableColumn, ...]
    primary_key: tuple[KeyPart, ...] | None = None

    @property
    def visible(self) -> TableMap:
        """The table without its hidden columns, which no statement can name: the hashes of such keys.

        They stand behind all others (as 10.11 and 11.8 log them), so those keep their numbers. The log does not say
        that they are hidden: a column of the same name and type that somebody made is taken for one, if it is the last.
        """
        count = self.visible_count
        return self if count == len(self.columns) else replace(self, columns=self.columns[:count])

    @property
    def visible_count(self) -> int:
        """The number of its columns that are not hidden."""
        count = len(self.columns)
        while count > 1 and self.columns[count - 1].may_be_hidden:
            count -= 1
        return count

    @classmethod
    def parse(cls, event: bytes) -> TableMap:
        """Read an event without checksum; raises `ProtocolError`."""
        head = TableMapHead.parse(event)
        database, table = head.database, head.table
        metadata = Cursor(head.metadata, "metadata of a table map")
        layouts = [parse_layout(type_, metadata) for type_ in head.types]
        if metadata.remaining:
            raise ProtocolError(
                f"table map of {database}.{table}: {metadata.remaining} bytes of metadata too many"
            )
        columns = [
            TableColumn(layout, bool(head.nullable[i // 8] >> i % 8 & 1))
            for i, layout in enumerate(layouts)
        ]
        primary_key = _Optional(columns).read(head.optional)
        return cls(head.table_id, head.flags, database, table, tuple(columns), primary_key)

    def build(
        self,
        server_id: int,
        metadata: RowMetadata = RowMetadata.NO_LOG,
        *,
        timestamp: int = 0,
        header_flags: int = 0,
    ) -> bytes:
        """The event without checksum, byte for byte as a server of 10.11 or 11.8 logs it.

        With metadata beyond NO_LOG all of it must be known: signs and collations, with FULL names and labels, too.
        Raises `BadValue` for a label that is none in its character set.
        """
        types, layouts = zip(*(layout_bytes(c.layout) for c in self.columns), strict=True)
        nullable = sum(1 << i for i, column in enumerate(self.columns) if column.nullable)
        body = [
            self.table_id.to_bytes(6, "little"),
            self.flags.to_bytes(2, "little"),
            _name_bytes(self.database),
            _name_bytes(self.table),
            lenenc_bytes(bytes(types)),
            lenenc_bytes(b"".join(layouts)),
            nullable.to_bytes((len(self.columns) + 7) // 8, "little"),
        ]
        if metadata is not RowMetadata.NO_LOG:
            is_full = metadata is RowMetadata.FULL
            for type_, value in _optional_fields(self.columns, self.primary_key, full=is_full):
                body += (bytes((type_,)), lenenc_bytes(value))
        return build_event(
            EventType.TABLE_MAP,
            b"".join(body),
            server_id=server_id,
            timestamp=timestamp,
            flags=header_flags,
        )

    def with_columns(self, columns: Sequence[TableColumn]) -> TableMap:
        """The same map with more known about its columns; their layouts must be the same."""
        if [c.layout for c in columns] != [c.layout for c in self.columns]:
            raise ValueError("the columns differ in more than what the log does not say")
        return replace(self, columns=tuple(columns))


def _name(cursor: Cursor) -> str:
    name = cursor.short_bytes()
    if cursor.integer(1):
        raise ProtocolError(f"table map: no NUL ends the name {name[:64]!r}")
    return name.decode("utf-8", "surrogateescape")


class _Optional:
    """Adds the optional metadata to columns, in place."""

    def __init__(self, columns: list[TableColumn]) -> None:
        self._columns = columns
        self._primary_key: tuple[KeyPart, ...] | None = None
        self._labels: dict[int, list[tuple[bytes, ...]]] = {}
        self._readers: Final[dict[int, Callable[[Cursor], None]]] = {
            1: self._signedness,
            2: lambda c: self._default_collation(c, self._numbers(CHARACTER_TYPES)),
            3: lambda c: self._each_collation(c, self._numbers(CHARACTER_TYPES)),
            4: self._names,
            5: lambda c: self._read_labels(c, ColumnType.SET),
            6: lambda c: self._read_labels(c, ColumnType.ENUM),
            7: self._geometry_types,
            8: lambda c: self._key(c, prefixes=False),
            9: lambda c: self._key(c, prefixes=True),
            10: lambda c: self._default_collation(c, self._numbers(_LABELLED)),
            11: lambda c: self._each_collation(c, self._numbers(_LABELLED)),
        }

    def read(self, fields: Iterable[OptionalField]) -> tuple[KeyPart, ...] | None:
        """All of them; fields of an unknown type are passed over. Returns the primary key."""
        for type_, value in fields:
            reader = self._readers.get(type_)
            if reader is not None:
                field = Cursor(value, f"optional metadata {type_} of a table map")
                reader(field)
                if field.remaining:
                    raise ProtocolError(
                        f"table map: {field.remaining} bytes too many in optional metadata {type_}"
                    )
        self._decode_labels()
        return self._primary_key

    def _numbers(self, types: frozenset[ColumnType]) -> list[int]:
        return [i for i, column in enumerate(self._columns) if column.type in types]

    def _signedness(self, cursor: Cursor) -> None:
        numbers = self._numbers(NUMERIC_TYPES)
        bits = cursor.take((len(numbers) + 7) // 8)
        for n, i in enumerate(numbers):
            self._columns[i] = replace(
                self._columns[i], unsigned=bool(bits[n // 8] << n % 8 & 0x80)
            )

    def _default_collation(self, cursor: Cursor, numbers: list[int]) -> None:
        default = cursor.lenenc_int()
        exceptions = {}
        while cursor.remaining:
            n = cursor.lenenc_int()
            if n >= len(numbers):
                raise ProtocolError(
                    f"table map: a collation for character column {n} of {len(numbers)}"
                )
            exceptions[n] = cursor.lenenc_int()
        for n, i in enumerate(numbers):
            self._columns[i] = replace(self._columns[i], collation=exceptions.get(n, default))

    def _each_collation(self, cursor: Cursor, numbers: list[int]) -> None:
        for i in numbers:
            self._columns[i] = replace(self._columns[i], collation=cursor.lenenc_int())

    def _names(self, cursor: Cursor) -> None:
        for i, column in enumerate(self._columns):
            name = cursor.lenenc_bytes().decode("utf-8", "surrogateescape")
            self._columns[i] = replace(column, name=name)

    def _read_labels(self, cursor: Cursor, type_: ColumnType) -> None:
        self._labels[type_] = [
            tuple(cursor.lenenc_bytes() for _ in range(_count(cursor)))
            for _ in self._numbers(frozenset((type_,)))
        ]

    def _geometry_types(self, cursor: Cursor) -> None:
        for i in self._numbers(frozenset((ColumnType.GEOMETRY,))):
            self._columns[i] = replace(self._columns[i], geometry_type=cursor.lenenc_int())

    def _key(self, cursor: Cursor, *, prefixes: bool) -> None:
        parts = []
        while cursor.remaining:
            column = cursor.lenenc_int()
            if column >= len(self._columns):
                raise ProtocolError(
                    f"table map: column {column} of {len(self._columns)} in the primary key"
                )
            parts.append(KeyPart(column, cursor.lenenc_int() if prefixes else 0))
        self._primary_key = tuple(parts)

    def _decode_labels(self) -> None:
        """Last: the character set may stand behind the labels."""
        for type_, labels in self._labels.items():
            for i, column_labels in zip(
                self._numbers(frozenset((ColumnType(type_),))), labels, strict=True
            ):
                column = self._columns[i]
                decoded = tuple(_decode_labels(column_labels, column.collation))
                self._columns[i] = replace(column, labels=decoded)


_LABELLED: Final = frozenset((ColumnType.ENUM, ColumnType.SET))


def _count(cursor: Cursor) -> int:
    count = cursor.lenenc_int()
    if count > cursor.remaining:  # each label has at least the byte of its length
        raise ProtocolError(f"table map: {count} labels in {cursor.remaining} bytes")
    return count


def _decode_labels(labels: tuple[bytes, ...], collation: int | None) -> Iterator[Label]:
    """The labels by their character set, so that no two that differ become the same."""
    known = collation or _UTF8
    for raw in labels:
        if known == BINARY_COLLATION:
            yield raw
            continue
        text = decode_text(raw, known)
        is_text = isinstance(text, str) and is_storable(text)
        yield text if is_text else UndecodedText(raw, known)


# --- the same into bytes ---


def _name_bytes(name: str) -> bytes:
    raw = name.encode("utf-8", "surrogateescape")
    return bytes((len(raw),)) + raw + b"\0"


def _optional_fields(
    columns: Sequence[TableColumn], primary_key: Sequence[KeyPart] | None, *, full: bool
) -> Iterator[OptionalField]:
    """In the order of the servers."""
    signs = [bool(c.unsigned) for c in columns if c.type in NUMERIC_TYPES]
    if signs:
        size = (len(signs) + 7) // 8
        bits = sum(1 << 8 * size - 1 - n for n, unsigned in enumerate(signs) if unsigned)
        yield OptionalField(1, bits.to_bytes(size, "big"))
    yield from _collation_field([c for c in columns if c.type in CHARACTER_TYPES], 2)
    geometries = [c for c in columns if c.type == ColumnType.GEOMETRY]
    if geometries:
        yield OptionalField(7, b"".join(lenenc_int(c.geometry_type or 0) for c in geometries))
    if not full:
        return
    names = ((c.name or "").encode("utf-8", "surrogateescape") for c in columns)
    yield OptionalField(4, b"".join(map(lenenc_bytes, names)))
    yield from _collation_field([c for c in columns if c.type in _LABELLED], 10)
    for field_type, type_ in ((5, ColumnType.SET), (6, ColumnType.ENUM)):
        labelled = [c for c in columns if c.type == type_]
        if labelled:
            yield OptionalField(field_type, b"".join(map(_labels_bytes, labelled)))
    if primary_key and any(part.prefix for part in primary_key):
        pairs = (lenenc_int(part.column) + lenenc_int(part.prefix) for part in primary_key)
        yield OptionalField(9, b"".join(pairs))
    elif primary_key:
        yield OptionalField(8, b"".join(lenenc_int(part.column) for part in primary_key))


def _collation_field(columns: Sequence[TableColumn], type_: int) -> Iterator[OptionalField]:
    """With a default for most of the columns, or (the type behind it) each by itself: the shorter one."""
    if not columns:
        return
    collations = [BINARY_COLLATION if c.collation is None else c.collation for c in columns]
    counted = Counter(collations)
    default = min(counted, key=lambda collation: (-counted[collation], collation))
    pairs = (
        lenenc_int(n) + lenenc_int(collation)
        for n, collation in enumerate(collations)
        if collation != default
    )
    short = lenenc_int(default) + b"".join(pairs)
    each = b"".join(map(lenenc_int, collations))
    yield (
        OptionalField(type_, short) if len(short) <= len(each) else OptionalField(type_ + 1, each)
    )


def _labels_bytes(column: TableColumn) -> bytes:
    raws = [label_bytes(label, column.collation) for label in column.labels or ()]
    return lenenc_int(len(raws)) + b"".join(map(lenenc_bytes, raws))


def label_bytes(label: Label, collation: int | None) -> bytes:
    """A label of an ENUM or SET as its character set has it. Raises `BadValue`."""
    if isinstance(label, str):
        return encode_text(label, collation or _UTF8)
    return label.raw if isinstance(label, UndecodedText) else label
