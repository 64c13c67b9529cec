"""SELECT without a table: one row, in columns of the types that MariaDB gives them."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from binlog_protocol.errors import PacketTooBig
from binlog_protocol.errors.limit_errors import TooManyColumns
from binlog_protocol.wire.results import (
    DECIMALS_OF_TEXT,
    TYPE_DOUBLE,
    TYPE_LONG,
    TYPE_LONGLONG,
    TYPE_MEDIUM_BLOB,
    TYPE_NEW_DECIMAL,
    TYPE_NULL,
    Column,
)

from binlog_server.settings.option_kinds import Decimals, Kind, Number, Switch
from binlog_server.sql.functions import function_column, waits_for
from binlog_server.sql.statements import (
    Expression,
    Function,
    Select,
    SelectItem,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Result, ResultSet, Row

ROW_CHARS_MAX = 1 << 20  # a limit, because a short statement may name a long variable many times
COLUMNS_MAX = 256
_INT_CHARS = 9  # a constant with more digits is a BIGINT
_BIGINT_CHARS = 21
_DECIMALS_SHOWN = 6
_I64_MAX = 2**63 - 1
_BLOB_CHARS = 2**24 - 1  # the length of a MEDIUMBLOB
_DECIMAL_CHARS, _DECIMAL_SCALE = 83, 38  # for user variables: MariaDB declares the largest DECIMAL


class Finder(Protocol):
    """Finds the values of expressions: the session."""

    def value_of(self, expression: Expression) -> Value:
        """The value of a constant, variable or function. Raises `ServerError`."""


def select(finder: Finder, statement: Select) -> Result:
    """The row of a SELECT; a `Wait` where the SELECT is one function that waits.

    Raises `PacketTooBig` (1153), `TooManyColumns` (1117), and the errors of `Finder.value_of`.
    """
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
        case SystemVariable(_, name):
            return _variable_column(label, VARIABLES[name].kind, value)
        case UserVariable():
            return _user_variable_column(label, value)
        case Function(name):
            return function_column(name, label, value)
    match value:  # the expression is a constant
        case None:
            return Column.binary(label, TYPE_NULL, 0, null=True)
        case Decimal():
            return Column.decimal(label, value)
        case str():
            return Column.text(label, len(value))
    length = len(str(value))
    if value > _I64_MAX:
        return Column.bigint(label, length)
    return Column.binary(label, TYPE_LONG if length <= _INT_CHARS else TYPE_LONGLONG, length)


def _variable_column(label: str, kind: Kind, value: Value) -> Column:
    match kind:
        case Decimals():
            return Column.binary(label, TYPE_DOUBLE, _BIGINT_CHARS, _DECIMALS_SHOWN, null=True)
        case Switch():
            return Column.binary(label, TYPE_LONGLONG, 1, null=True)
        case Number(low) if low < 0:
            return Column.binary(label, TYPE_LONGLONG, _BIGINT_CHARS, null=True)
        case Number():
            return Column.bigint(label, _BIGINT_CHARS, null=True)
    return Column.text(label, len(str(value or "")), null=True)


def _user_variable_column(label: str, value: Value) -> Column:
    match value:
        case None:
            return Column.binary(label, TYPE_MEDIUM_BLOB, _BLOB_CHARS, DECIMALS_OF_TEXT, null=True)
        case Decimal():
            return Column.binary(label, TYPE_NEW_DECIMAL, _DECIMAL_CHARS, _DECIMAL_SCALE, null=True)
        case str():
            return Column.text(label, _BLOB_CHARS, kind=TYPE_MEDIUM_BLOB, null=True)
    return Column.binary(label, TYPE_LONGLONG, len(str(_I64_MAX)) + 1, null=True)


def printable(label: str) -> str:
    """A column name for the client; question marks stand for bytes of the statement that are not UTF-8."""
    return label.encode("utf-8", "replace").decode()
