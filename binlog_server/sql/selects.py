"""SELECT without a table: one row, in columns of the types that MariaDB gives them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
from lark import v_args
from lark.tree import Meta

from binlog_server.dumps.frame_style import FrameStyle
from binlog_server.settings.option_kinds import Decimals, Kind, Number, Switch
from binlog_server.sql import classic_places
from binlog_server.sql.expressions import (
    ColumnName,
    Expression,
    ExpressionBuilder,
    Function,
    Literal,
    SystemVariable,
    UserVariable,
    Value,
    constant_named,
    names_variable,
)
from binlog_server.sql.functions import function_column, waits_for
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, Family, Statement
from binlog_server.sql.tokens import as_written, integer
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Result, ResultSet, Row, Work

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

ROW_CHARS_MAX = 1 << 20  # a limit, because a short statement may name a long variable many times
COLUMNS_MAX = 256
_GTIDS_CHARS = 65535
_DIAGNOSTIC_COUNTS = frozenset({"warning_count", "error_count"})
_INT_CHARS = 9  # a constant with more digits is a BIGINT
_BIGINT_CHARS = 21
_DECIMALS_SHOWN = 6
_I64_MAX = 2**63 - 1
_BLOB_CHARS = 2**24 - 1  # the length of a MEDIUMBLOB
_DECIMAL_CHARS, _DECIMAL_SCALE = 83, 38  # for user variables: MariaDB declares the largest DECIMAL


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One column: `label` is its alias, or its text as it stood in the statement."""

    label: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Select(Statement):
    """A SELECT without a table; `limit` of 0 gives no row."""

    syntax = '"SELECT"i _NO_CACHE? item ("," item)* _FROM_DUAL? ["LIMIT"i INTEGER]'
    needs = ANYBODY

    items: tuple[SelectItem, ...]
    limit: int | None

    @classmethod
    def built(cls, children: list[Any]) -> Select:
        *items, limit = children
        without_table = (SelectItem(i.label, constant_named(i.expression, "SELECT")) for i in items)
        return cls(tuple(without_table), None if limit is None else integer(limit))

    @property
    def is_about_diagnostics(self) -> bool:
        return any(names_variable(item.expression, _DIAGNOSTIC_COUNTS) for item in self.items)

    @property
    def shows_state(self) -> bool:
        return any(names_variable(item.expression, STATE_VARIABLES) for item in self.items)

    def answer(self, session: SqlSession) -> Result:
        """The row; a `Wait` where the SELECT is one function that waits, `Work` for BINLOG_GTID_POS.

        Raises `PacketTooBig` (1153), `TooManyColumns` (1117), and the errors of `SqlSession.value_of`.
        """
        match self.items:
            case (SelectItem(label, Function("BINLOG_GTID_POS", (file, position))),) if (
                style := classic_places.style_for(session)
            ):
                return _gtid_position(session, style, file, position, printable(label))
            case (SelectItem(label, Function(name, arguments)),) if waiting := waits_for(name):
                return waiting([session.value_of(a) for a in arguments], printable(label))
        if len(self.items) > COLUMNS_MAX:
            raise TooManyColumns
        values = [session.value_of(item.expression) for item in self.items]
        if sum(len(value) for value in values if isinstance(value, str)) > ROW_CHARS_MAX:
            raise PacketTooBig
        columns = [_column(item, value) for item, value in zip(self.items, values, strict=True)]
        row = [f"{value:f}" if isinstance(value, Decimal) else value for value in values]
        rows: list[Row] = [] if self.limit == 0 else [row]
        return ResultSet(columns, rows)


def _gtid_position(
    session: SqlSession, style: FrameStyle, file: Expression, position: Expression, label: str
) -> Work:
    """BINLOG_GTID_POS: work for a thread, because it reads the store."""
    place = session.value_of(file), session.value_of(position)
    engine = session.server.engine

    def run() -> ResultSet:
        found = classic_places.gtid_position(engine, style, *place)
        return ResultSet([Column.text(label, _GTIDS_CHARS, null=True)], [(found,)])

    return Work(run)


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


class _Builder(ExpressionBuilder):
    text: str

    @v_args(meta=True)
    def item(self, meta: Meta, children: list[Any]) -> SelectItem:
        expression, alias = children
        if alias is None:
            match expression:
                case Literal(str(text)) | ColumnName(text):
                    return SelectItem(text, expression)
            return SelectItem(self.text[meta.start_pos : meta.end_pos], expression)
        return SelectItem(as_written(alias), expression)


_RULES = r"""
_FROM_DUAL.1: /FROM\s+DUAL\b/i
_NO_CACHE.1: /SQL_NO_CACHE\b/i
"""
FAMILY = Family((Select,), _RULES, _Builder)
