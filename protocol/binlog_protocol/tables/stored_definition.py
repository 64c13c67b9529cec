"""A table's definition as bytes, for a log and for files of this server.

======  ============================================================================================
bytes   field (ln = length-encoded integer; texts are UTF-8 with their length, ln)
======  ============================================================================================
0       version of this format, 1
+text   database, table, engine, comment
+ln     collation
+ln     number of columns, then each: see below
+ln     number of keys, then each: kind u8, name, ln of parts, then ln column and ln prefix of each
+ln     number of CHECK constraints, then each: name, expression
======  ============================================================================================

A column:

======  ============================================================================================
text    name, name of the type
ln      how many numbers the type has, then each, ln
ln      how many labels, 1 more (0: it is neither ENUM nor SET), then each, text
ln      flags: 1 unsigned, 2 zerofill, 4 compressed, 8 nullable, 16 invisible, 32 AUTO_INCREMENT, 64 has
        a default, 128 has ON UPDATE, 256 virtual, 512 stored
ln      collation
text    comment; default, if it has one; ON UPDATE, if it has one; expression of a generated column
======  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import Final, TypeVar

from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.events.table_map import KeyPart
from binlog_protocol.tables.definition import (
    Generation,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
)
from binlog_protocol.tables.sql_type import SqlType
from binlog_protocol.values import Cursor, lenenc_bytes, lenenc_int

VERSION: Final = 1
_T = TypeVar("_T")


class _Flag(IntFlag):
    UNSIGNED = 1
    ZEROFILL = 2
    COMPRESSED = 4
    NULLABLE = 8
    INVISIBLE = 16
    AUTO_INCREMENT = 32
    DEFAULT = 64
    ON_UPDATE = 128
    VIRTUAL = 256
    STORED = 512


_ALL_FLAGS: Final = (1 << len(_Flag)) - 1


def definition_bytes(table: StoredTable) -> bytes:
    """The definition as `parse_definition` takes it."""
    parts = [bytes((VERSION,))]
    parts += map(_text, (table.database, table.name, table.engine, table.comment))
    parts += (lenenc_int(table.collation), lenenc_int(len(table.columns)))
    parts += map(_column_bytes, table.columns)
    parts.append(lenenc_int(len(table.keys)))
    for key in table.keys:
        parts += (bytes((key.kind,)), _text(key.name), lenenc_int(len(key.parts)))
        parts += (lenenc_int(number) for part in key.parts for number in part)
    parts.append(lenenc_int(len(table.checks)))
    parts += (_text(text) for check in table.checks for text in check)
    return b"".join(parts)


def _column_bytes(column: StoredColumn) -> bytes:
    type_ = column.type
    labels = type_.labels
    flags = (
        _Flag.UNSIGNED * type_.unsigned
        | _Flag.ZEROFILL * type_.zerofill
        | _Flag.COMPRESSED * type_.compressed
        | _Flag.NULLABLE * column.nullable
        | _Flag.INVISIBLE * column.is_invisible
        | _Flag.AUTO_INCREMENT * column.is_auto_increment
        | _Flag.DEFAULT * (column.default is not None)
        | _Flag.ON_UPDATE * (column.on_update is not None)
        | _Flag.VIRTUAL * (column.generation is Generation.VIRTUAL)
        | _Flag.STORED * (column.generation is Generation.STORED)
    )
    return b"".join(
        (
            _text(column.name),
            _text(type_.name),
            lenenc_int(len(type_.numbers)),
            *map(lenenc_int, type_.numbers),
            lenenc_int(0 if labels is None else len(labels) + 1),
            *map(_text, labels or ()),
            lenenc_int(flags),
            lenenc_int(column.collation),
            _text(column.comment),
            *(_text(text) for text in (column.default, column.on_update) if text is not None),
            *((_text(column.expression),) if column.generation else ()),
        )
    )


def _text(text: str) -> bytes:
    return lenenc_bytes(text.encode("utf-8", "surrogateescape"))


def parse_definition(raw: bytes) -> StoredTable:
    """The definition of the bytes. Raises `ProtocolError` for any others, and for one that no table can have."""
    cursor = Cursor(raw, "definition of a table")
    version = cursor.integer(1)
    if version != VERSION:
        raise ProtocolError(f"definition of a table: version {version}, {VERSION} is known")
    try:
        table = _table(cursor)
    except ServerError as error:
        raise ProtocolError(f"definition of a table: {error}") from None
    except ValueError as error:  # of a key that names no column of it
        raise ProtocolError(f"definition of a table: {error}") from None
    if cursor.remaining:
        raise ProtocolError(f"definition of a table: {cursor.remaining} bytes too many")
    return table


def _table(cursor: Cursor) -> StoredTable:
    database, name, engine, comment = (_take_text(cursor) for _ in range(4))
    collation = cursor.lenenc_int()
    columns = _several(cursor, _column)
    keys = _several(cursor, _key)
    checks = _several(cursor, lambda c: (_take_text(c), _take_text(c)))
    return StoredTable(database, name, columns, keys, collation, engine, comment, checks)


def _column(cursor: Cursor) -> StoredColumn:
    name, type_name = _take_text(cursor), _take_text(cursor)
    numbers = _several(cursor, Cursor.lenenc_int)
    labels = None
    count = cursor.lenenc_int()
    if count:
        labels = _counted(cursor, count - 1, _take_text)
    raw_flags = cursor.lenenc_int()
    if raw_flags & ~_ALL_FLAGS:
        raise ProtocolError(f"definition of a table: flags {raw_flags:#x} of column {name}")
    flags = _Flag(raw_flags)
    collation = cursor.lenenc_int()
    comment = _take_text(cursor)
    default = _take_text(cursor) if flags & _Flag.DEFAULT else None
    on_update = _take_text(cursor) if flags & _Flag.ON_UPDATE else None
    generation = Generation.NONE
    if flags & (_Flag.VIRTUAL | _Flag.STORED):
        generation = Generation.STORED if flags & _Flag.STORED else Generation.VIRTUAL
    return StoredColumn(
        name,
        SqlType.of(
            type_name,
            numbers,
            labels,
            unsigned=bool(flags & _Flag.UNSIGNED),
            zerofill=bool(flags & _Flag.ZEROFILL),
            compressed=bool(flags & _Flag.COMPRESSED),
        ),
        bool(flags & _Flag.NULLABLE),
        collation,
        default,
        on_update,
        generation,
        _take_text(cursor) if generation else "",
        bool(flags & _Flag.INVISIBLE),
        bool(flags & _Flag.AUTO_INCREMENT),
        comment,
    )


def _key(cursor: Cursor) -> StoredKey:
    kind = KeyKind(cursor.integer(1))
    name = _take_text(cursor)
    return StoredKey(
        name, kind, _several(cursor, lambda c: KeyPart(c.lenenc_int(), c.lenenc_int()))
    )


def _several(cursor: Cursor, read: Callable[[Cursor], _T]) -> tuple[_T, ...]:
    return _counted(cursor, cursor.lenenc_int(), read)


def _counted(cursor: Cursor, count: int, read: Callable[[Cursor], _T]) -> tuple[_T, ...]:
    if count > cursor.remaining:  # each has at least a byte
        raise ProtocolError(
            f"definition of a table: {count} of something in {cursor.remaining} bytes"
        )
    return tuple(read(cursor) for _ in range(count))


def _take_text(cursor: Cursor) -> str:
    return cursor.lenenc_bytes().decode("utf-8", "surrogateescape")
