"""SELECT without a table: the row, and columns of the types that MariaDB gives them."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from binlog_protocol.errors import PacketTooBig
from binlog_protocol.errors.limit_errors import TooManyColumns
from binlog_protocol.wire.results import (
    CHARSET_BINARY,
    CHARSET_UTF8,
    FLAG_BINARY,
    TYPE_MEDIUM_BLOB,
    Column,
)

from binlog_server.option_kinds import Decimals
from binlog_server.sql.functions import TIMES, waits_for
from binlog_server.sql.statements import (
    Expression,
    Function,
    Literal,
    Select,
    SelectItem,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Result, ResultSet, Row

ROW_CHARS_MAX = 1 << 20  # a short statement may name a long variable often
COLUMNS_MAX = 256
_TYPE_DOUBLE, _TYPE_NULL, _TYPE_DATETIME = 5, 6, 12
_SMALL_DIGITS = 9  # a constant of more is a BIGINT
_DECIMALS_SHOWN = 6
_TEXT_BYTES = 2**24 - 1  # of a MEDIUMBLOB


class Finder(Protocol):
    """Who knows the values: the session."""

    def value_of(self, expression: Expression) -> Value:
        """Raises `ServerError`."""


def select(finder: Finder, statement: Select) -> Result:
    """One row; or a function by itself that waits. Raises `PacketTooBig` (1153), `TooManyColumns` (1117)."""
    match statement.items:
        case (SelectItem(label, Function(name, arguments)),) if waiting := waits_for(name):
            return waiting([finder.value_of(a) for a in arguments], printable(label))
    if len(statement.items) > COLUMNS_MAX:
        raise TooManyColumns
    values = [finder.value_of(item.expression) for item in statement.items]
    if sum(len(value) for value in values if isinstance(value, str)) > ROW_CHARS_MAX:
        raise PacketTooBig
    columns = [_column(item, value) for item, value in zip(statement.items, values, strict=True)]
    row = [f"{value:f}" if isinstance(value, Decimal) else value for value in values]
    rows: list[Row] = [] if statement.limit == 0 else [row]
    return ResultSet(columns, rows)


def _column(item: SelectItem, value: Value) -> Column:
    label = printable(item.label)
    match item.expression:
        case SystemVariable(_, name) if isinstance(VARIABLES[name].kind, Decimals):
            return Column(label, _TYPE_DOUBLE, CHARSET_BINARY, 22, FLAG_BINARY, _DECIMALS_SHOWN)
        case _ if isinstance(value, Decimal):
            return Column.decimal(label, value)
        case Literal(None):
            return Column(label, _TYPE_NULL, CHARSET_BINARY, 0, FLAG_BINARY)
        case Literal(int(number)) if len(str(abs(number))) <= _SMALL_DIGITS:
            return Column.integer(label)
        case UserVariable() if not isinstance(value, int):
            text = Column.text(label, _TEXT_BYTES)
            return Column(
                label, TYPE_MEDIUM_BLOB, CHARSET_UTF8, text.length, decimals=text.decimals
            )
        case Function(name) if name in TIMES:
            return Column(label, _TYPE_DATETIME, CHARSET_BINARY, 19, FLAG_BINARY)
    return Column.bigint(label) if isinstance(value, int) else Column.text(label)


def printable(label: str) -> str:
    """A column name; bytes in the statement that were not UTF-8 become question marks."""
    return label.encode("utf-8", "replace").decode()
