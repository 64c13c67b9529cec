"""A table as a running server describes it: what its log would say of it, and how its rows are asked for."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_numbered,
    default_collation,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.table_map import ColumnKind, KeyPart, RowMetadata, TableMap
from binlog_protocol.sql.token_reader import TableName
from binlog_protocol.tables.definition import logged_column
from binlog_protocol.tables.sql_type import SqlType

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.schemas.seed_writing import printed_type

Ask = Callable[[str], list[list[str | None]]]
"""Sends a query, and gives its rows."""

_ROW_TIMES: Final = ("row_start", "row_end")
_ROW_START: Final = "ROW START"
_SYSTEM: Final = ("information_schema", "performance_schema", "sys", "mysql")
_VERSIONED: Final = "SYSTEM VERSIONED"


@dataclass(frozen=True, slots=True)
class AskedTable:
    """The description of one table.

    created: the CREATE TABLE that the server shows.
    types: of the columns, in their order. is_versioned: rows of the past are in the log as well.
    by_transactions: it is versioned by transaction ids; what changes it is logged as text then, whatever
        `binlog_format` is.
    engine: the storage engine.
    """

    name: TableName
    map: TableMap
    types: tuple[SqlType, ...]
    created: str
    is_versioned: bool
    by_transactions: bool
    engine: str

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name or "" for column in self.map.columns]


def asked_table(ask: Ask, name: TableName) -> AskedTable:
    """Raises `BadOption` for a table that is not there, `SourceError` for one whose rows nobody can name here."""
    where = f"TABLE_SCHEMA = {_text(name.database)} AND TABLE_NAME = {_text(name.table)}"
    kinds = ask(
        f"SELECT TABLE_TYPE, ENGINE, TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE {where}"
    )
    is_shown = kinds and kinds[0][0] in ("BASE TABLE", _VERSIONED)
    if not is_shown or TableName(kinds[0][2] or "", kinds[0][3] or "") != name:
        # In another case a server may show it, but its log has the name as it is.
        raise BadOption(f"the server has no table {name}, or shows none to this account")
    is_versioned = kinds[0][0] == _VERSIONED
    columns = []
    by_transactions = False
    for column, type_, collation, nullable, computed in ask(
        "SELECT COLUMN_NAME, HEX(COLUMN_TYPE), COLLATION_NAME, IS_NULLABLE, GENERATION_EXPRESSION "
        f"FROM information_schema.COLUMNS WHERE {where} ORDER BY ORDINAL_POSITION"
    ):
        try:
            sql_type = SqlType.parse(printed_type(type_ or ""))
            number = _collation(f"{name}.{column}", collation)
            logged = logged_column(column or "", sql_type, number, nullable=nullable == "YES")
        except ValueError as error:
            raise SourceError(f"{name}.{column}: {error}") from None
        if sql_type.labels is not None and logged.labels is None:
            raise SourceError(f"{name}.{column}: what its labels are, the server does not say")
        columns.append((sql_type, logged))
        by_transactions |= computed == _ROW_START and logged.type == ColumnType.LONGLONG
    keys = [
        key or ""
        for (key,) in ask(
            f"SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE {where} "
            "AND CONSTRAINT_NAME = 'PRIMARY' ORDER BY ORDINAL_POSITION"
        )
    ]
    created = ask(f"SHOW CREATE TABLE {quoted(name.database)}.{quoted(name.table)}")[0][1] or ""
    names = [logged.name or "" for _, logged in columns]
    if is_versioned and not {*_ROW_TIMES} & {*names} and "GENERATED ALWAYS AS ROW" not in created:
        for one in _ROW_TIMES:
            made = SqlType.parse("timestamp(6)")
            columns.append((made, logged_column(one, made, BINARY_COLLATION, nullable=False)))
            names.append(one)
        if keys and _ROW_TIMES[1] not in keys:
            keys.append(_ROW_TIMES[1])
    parts = tuple(KeyPart(names.index(key), 0) for key in keys) or None
    logged_columns = tuple(replace(logged, kind=ColumnKind.AS_LOGGED) for _, logged in columns)
    table = TableMap(0, 0, name.database, name.table, logged_columns, parts)
    types = tuple(type_ for type_, _ in columns)
    engine = kinds[0][1] or ""
    return AskedTable(name, table, types, created, is_versioned, by_transactions, engine)


def asked_names(ask: Ask) -> list[TableName]:
    """All tables that the server shows, but those of its own."""
    found = ask(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "
        f"WHERE TABLE_TYPE IN ('BASE TABLE', '{_VERSIONED}') ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )
    return [TableName(a or "", b or "") for a, b in found if (a or "").lower() not in _SYSTEM]


def quoted(name: str) -> str:
    """A name in a statement."""
    return f"`{name.replace('`', '``')}`"


def encoded(table: TableMap) -> str:
    """The description as text, for `Facts.described`; empty if the log would not say all of it."""
    try:
        event = table.build(0, RowMetadata.FULL)
    except (BadValue, ValueError, TypeError, AssertionError):
        return ""
    return base64.b64encode(event).decode()


def described(text: str) -> TableMap:
    """The description of which `encoded` made text."""
    return TableMap.parse(base64.b64decode(text))


def _text(name: str) -> str:
    return f"_utf8mb3 X'{name.encode('utf-8', 'surrogateescape').hex()}'"


def _collation(column: str, name: str | None) -> int:
    """The number of a collation, or of another one of its character set: values do not depend on the order."""
    if name is None:
        return BINARY_COLLATION
    found = collation_numbered(name)
    if found is not None:
        return found
    charset = charset_named(name.partition("_")[0])
    if charset is None:
        raise SourceError(f"{column}: collation {name} is not known here")
    return default_collation(charset)
