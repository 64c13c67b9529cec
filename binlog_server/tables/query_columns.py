"""Columns of CREATE TABLE ... SELECT: of what a query gives.

A column of a table here is as it is there, but for keys, CHECKs and AUTO_INCREMENT; one that is computed is what 11.8
declares for the type of the expression. Texts without a collation of their own have that of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from binlog_protocol.errors import NotSupportedYet
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.collation_names import NUMBERS, collation_numbered
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.definition import Generation, StoredColumn, StoredTable
from binlog_protocol.tables.sql_type import SqlType

from binlog_server.queries import types
from binlog_server.queries.running import Output, Plan, SelectPlan
from binlog_server.queries.terms import UNKNOWN
from binlog_server.queries.types import Type, ValueForm
from binlog_server.tables.generated import is_fixed

_VARCHAR_MAX: Final = 512  # characters of what is computed; a longer one is a TEXT
_OF_SYSTEM: Final = NUMBERS["utf8mb3_general_ci"]  # texts of the server's own tables and functions
_UTF8MB4_BYTES: Final = 4
_NOT_FIXED: Final = 31  # decimals of a DOUBLE that has none of its own
_BLOBS: Final = ((1 << 8, "tiny"), (1 << 16, ""), (1 << 24, "medium"))
_TIMES: Final = {ValueForm.DATE: "date", ValueForm.TIME: "time", ValueForm.DATETIME: "datetime"}
_STRINGS: Final = (ValueForm.TEXT, ValueForm.BYTES)
_WIRE_INTEGERS: Final = {
    ColumnType.TINY: "tinyint",
    ColumnType.SHORT: "smallint",
    ColumnType.INT24: "mediumint",
    ColumnType.LONG: "int",
    ColumnType.LONGLONG: "bigint",
}
_NATIVE: Final = types.NATIVE


def columns_of(plan: Plan, tables: Iterable[StoredTable], collation: str) -> list[StoredColumn]:
    """The columns of a query's result.

    Args:
        tables: those here that it reads.
        collation: `collation_connection`.

    Raises `NotSupportedYet` (1235), and what a column's definition is refused with.
    """
    known = {
        (table.database, table.name, column.name): column
        for table in tables
        for column in table.columns
    }
    found = []
    for output in plan.outputs:
        said = output.kind.column
        key = (
            ("", "", "") if said is None else (said.schema, said.original_table, said.original_name)
        )
        column = known.get(key)
        if column is not None:
            found.append(_copied(column, output))
        else:
            kind = output.kind
            is_called = said is None and output.term.constant is UNKNOWN
            if kind.form in _STRINGS and is_called and isinstance(plan, SelectPlan):
                kind = replace(kind, may_be_null=True)  # so MariaDB declares functions of texts
            found.append(_computed(output.name, kind, collation))
    return found


def _copied(column: StoredColumn, output: Output) -> StoredColumn:
    nullable = output.kind.may_be_null
    default = column.default
    if column.is_default_computed and not is_fixed(column.default or ""):
        default = None
    if column.is_auto_increment:
        default = "0"
    elif default is None and nullable:
        default = "NULL"
    return replace(
        column,
        name=output.name,
        nullable=nullable,
        default=default,
        generation=Generation.NONE,
        expression="",
        is_auto_increment=False,
    )


def _computed(name: str, kind: Type, collation: str) -> StoredColumn:
    made = _TYPES[kind.form](kind)
    number = BINARY_COLLATION
    if made.is_text:
        number = kind.collation
        if number == types.MIXED:
            raise NotSupportedYet(f"the column {name} of texts of several collations: say COLLATE")
        if not number:
            is_of_server = kind.column is not None and kind.column.schema
            number = _OF_SYSTEM if is_of_server else collation_numbered(collation) or 0
    null = "NULL" if kind.may_be_null else None
    return StoredColumn(name, made, nullable=kind.may_be_null, collation=number, default=null)


def _integer(kind: Type) -> SqlType:
    if kind.code == types.YEAR:
        return SqlType.of("year", (4,))
    column = kind.wire("")
    if column.type == ColumnType.BIT:
        return SqlType.of("bit", (column.length,))
    if column.type not in _WIRE_INTEGERS:
        raise NotSupportedYet("a column of this expression: CAST it")
    return SqlType.of(
        _WIRE_INTEGERS[ColumnType(column.type)], (column.length,), unsigned=kind.unsigned
    )


def _double(kind: Type) -> SqlType:
    if kind.wire("").type == ColumnType.FLOAT:
        return SqlType.of("float")
    numbers = () if kind.decimals >= _NOT_FIXED else (kind.length, kind.decimals)
    return SqlType.of("double", numbers)


def _text(kind: Type) -> SqlType:
    if kind.code in _NATIVE:
        return SqlType.of(_NATIVE[kind.code])
    if kind.code == types.LABEL:
        raise NotSupportedYet("a column of an ENUM or SET that is computed: CAST it AS CHAR")
    if kind.length <= _VARCHAR_MAX:
        return SqlType.of("varchar" if kind.length else "char", (kind.length,))
    return SqlType.of(_blob(kind.length * _UTF8MB4_BYTES) + "text")


def _bytes(kind: Type) -> SqlType:
    if kind.length <= _VARCHAR_MAX:
        return SqlType.of("varbinary" if kind.length else "binary", (kind.length,))
    return SqlType.of(_blob(kind.length) + "blob")


def _blob(size: int) -> str:
    return next((word for most, word in _BLOBS if size < most), "long")


def _moment(kind: Type) -> SqlType:
    name = "timestamp" if kind.wire("").type == ColumnType.TIMESTAMP else _TIMES[kind.form]
    return SqlType.of(name, (kind.decimals,) if kind.decimals else ())


_TYPES: Final[dict[ValueForm, Callable[[Type], SqlType]]] = {
    ValueForm.NULL: lambda kind: SqlType.of("binary", (0,)),
    ValueForm.INT: _integer,
    ValueForm.DECIMAL: lambda kind: SqlType.of(
        "decimal", (kind.digits, kind.decimals), unsigned=kind.unsigned
    ),
    ValueForm.DOUBLE: _double,
    ValueForm.TEXT: _text,
    ValueForm.BYTES: _bytes,
    **dict.fromkeys(_TIMES, _moment),
}
