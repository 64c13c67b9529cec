"""Tables for tests, and how to say their columns shortly."""

from __future__ import annotations

from typing import Any

from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.table_map import KeyPart
from binlog_protocol.tables.definition import (
    PRIMARY,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
)
from binlog_protocol.tables.sql_type import SqlType

LATIN1, UTF8MB4 = 8, 45


def col(name: str, type_: str, collation: int | None = None, **more: Any) -> StoredColumn:
    """A column of a type as information_schema prints it; text is utf8mb4_general_ci unless said."""
    parsed = SqlType.parse(type_)
    default = UTF8MB4 if parsed.is_text else BINARY_COLLATION
    return StoredColumn(name, parsed, collation=collation or default, **more)


def key(*parts: int | tuple[int, int], name: str = PRIMARY) -> StoredKey:
    """PRIMARY, or a UNIQUE one of that name."""
    made = tuple(KeyPart(p, 0) if isinstance(p, int) else KeyPart(*p) for p in parts)
    return StoredKey(name, KeyKind.PRIMARY if name == PRIMARY else KeyKind.UNIQUE, made)


def table(*columns: StoredColumn, keys: tuple[StoredKey, ...] = (), **more: Any) -> StoredTable:
    return StoredTable("shop", "orders", columns, keys, **more)


ORDERS = table(
    col("id", "int(10) unsigned", nullable=False, is_auto_increment=True),
    col("who", "varchar(20)", default="'nobody'"),
    col("price", "decimal(10,2)", nullable=False, default="0.00"),
    col("state", "enum('new','paid','it''s \\\\ gone')", LATIN1),
    col("note", "text", is_invisible=True, comment="what the customer said"),
    col(
        "changed", "timestamp(3)", default="current_timestamp(3)", on_update="current_timestamp(3)"
    ),
    keys=(key(0), key(1, (4, 10), name="u")),
    comment="orders",
    checks=(("c", "`price` >= 0"),),
)
