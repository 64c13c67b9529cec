"""SELECT without a table: one row, in columns of the types that MariaDB gives them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.target import seconds_of, utc_text
from binlog_protocol.errors import (
    NotSupportedYet,
    QueryInterrupted,
    SqlSyntaxError,
    TooManyColumns,
    UnknownServerError,
    WrongArguments,
    WrongParameterCount,
)
from binlog_protocol.events.collation_names import charset_named
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.binary_rows import BLOBS, DECIMALS, TIMES
from binlog_protocol.wire.results import DECIMALS_OF_TEXT, FLAG_UNSIGNED, Column
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.errors import WaitGivenUp

from binlog_server.settings.option_kinds import Decimals, Number, OptionKind, Switch
from binlog_server.sql import classic_places, places
from binlog_server.sql.expressions import (
    ColumnName,
    Expression,
    ExpressionBuilder,
    Function,
    Given,
    Literal,
    SystemVariable,
    Truth,
    UserVariable,
    Value,
    constant_named,
    names_variable,
)
from binlog_server.sql.functions import function_column, is_answered, waits_for
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, Family, Statement
from binlog_server.sql.tokens import NEAR_CHARS, as_written, integer
from binlog_server.sql.variables import VARIABLES, is_traditional
from binlog_server.sql.view import Result, ResultSet, Row, Work

if TYPE_CHECKING:
    from lark.tree import Meta

    from binlog_server.sql.sql_session import SqlSession

# Words that begin something else: DATE '2024-02-29', and a SELECT of nothing.
_NO_COLUMNS = frozenset({"DATE", "TIME", "TIMESTAMP", "FROM"})
ROW_CHARS_MAX = 1 << 20  # a limit, because a short statement may name a long variable many times
COLUMNS_MAX = 256
_GTIDS_CHARS = 65535
_DIAGNOSTIC_COUNTS = frozenset({"warning_count", "error_count"})
_INT_CHARS = 9  # a constant with more digits is a BIGINT
_BIGINT_CHARS = 21
_DECIMALS_SHOWN = 6
_NOT_FIXED = 31  # of a DOUBLE
_NUMBER_CHARS: Mapping[int, int] = {
    ColumnType.TINY: 4,
    ColumnType.SHORT: 6,
    ColumnType.LONG: 11,
    ColumnType.FLOAT: 23,
    ColumnType.DOUBLE: 23,
}
_TIME_CHARS: Mapping[int, int] = {
    ColumnType.DATE: 10,
    ColumnType.TIME: 23,
    ColumnType.DATETIME: 19,
    ColumnType.TIMESTAMP: 19,
}
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
    com = "select"
    only_looks = True

    items: tuple[SelectItem, ...]
    limit: int | None

    @classmethod
    def built(cls, children: list[Any]) -> Select:
        *items, limit = children
        for item in items:
            match item.expression:
                case Function(name, arguments) if not is_answered(name, len(arguments)):
                    raise SqlSyntaxError(item.label[:NEAR_CHARS])
                case ColumnName(name) if name.upper() in _NO_COLUMNS:
                    raise SqlSyntaxError(name)
            if item.label.upper() == "FROM":
                raise SqlSyntaxError("")
        without_table = (SelectItem(i.label, constant_named(i.expression, "SELECT")) for i in items)
        return cls(tuple(without_table), None if limit is None else integer(limit))

    @property
    def is_about_diagnostics(self) -> bool:
        return any(names_variable(item.expression, _DIAGNOSTIC_COUNTS) for item in self.items)

    @property
    def shows_state(self) -> bool:
        return any(names_variable(item.expression, STATE_VARIABLES) for item in self.items)

    def answer(self, session: SqlSession) -> Result:
        """The row; a `Wait` where the SELECT is one function that waits, `Work` for BINLOG_GTID_POS and BINLOG_GTID_AT.

        Raises 1105 beyond `ROW_CHARS_MAX`, `TooManyColumns` (1117), and the errors of `SqlSession.value_of`.
        """
        match self.items:
            case (SelectItem(label, Function("BINLOG_GTID_POS", (file, position))),) if (
                session.coordinates.has_event_positions or session.server.tables.has_any
            ):
                return _gtid_position(session, file, position, label)
            case (SelectItem(label, Function("BINLOG_GTID_AT", (moment,))),):
                return _gtid_at(session, moment, label)
            case (SelectItem(label, Function("MASTER_POS_WAIT", arguments)),) if is_traditional(
                session
            ):
                return _master_pos_wait(session, [session.value_of(a) for a in arguments], label)
            case (SelectItem(label, Function(name, arguments)),) if waiting := waits_for(name):
                return waiting([session.value_of(a) for a in arguments], label)
        if len(self.items) > COLUMNS_MAX:
            raise TooManyColumns()
        values = [session.value_of(item.expression) for item in self.items]
        if sum(len(value) for value in values if isinstance(value, str)) > ROW_CHARS_MAX:
            raise UnknownServerError(f"a row of more than {ROW_CHARS_MAX} characters")
        columns = [column_of(item, value) for item, value in zip(self.items, values, strict=True)]
        row = [f"{value:f}" if isinstance(value, Decimal) else value for value in values]
        is_empty = self.limit == 0 or (
            self.limit is None and session.variables.get("sql_select_limit") == "0"
        )
        rows: list[Row] = [] if is_empty else [row]
        return ResultSet(columns, rows)


def _gtid_position(session: SqlSession, file: Expression, position: Expression, label: str) -> Work:
    """BINLOG_GTID_POS: work for a thread, because it reads the store."""
    place = session.value_of(file), session.value_of(position)
    engine, kept = session.server.engine, session.snapshot
    style, end = classic_places.style_for(session), engine.durable_end

    def run() -> ResultSet:
        if isinstance(engine, ClassicEngine):
            found = classic_places.file_gtid_position(engine, *place)
        elif style is None:
            found = places.stored_gtid_position(engine, end, kept, *place)
        else:
            found = classic_places.gtid_position(engine, style, *place)
        return ResultSet([Column.text(label, _GTIDS_CHARS, null=True)], [(found,)])

    return Work(run)


def _gtid_at(session: SqlSession, moment: Expression, label: str) -> Work | ResultSet:
    """BINLOG_GTID_AT: the GTID position in front of the first group of that time or later. It reads the binlog once, so
    it is not for everybody.

    NULL, with a warning, if the binlog of that time was purged. Raises 1210 for what is no time, and 1227.
    """
    session.require("BINLOG MONITOR")
    column = Column.text(label, _GTIDS_CHARS, null=True)
    value = session.value_of(moment)
    if value is None:
        return ResultSet([column], [(None,)])
    try:
        time = seconds_of(str(value).strip(), session.clock().zone)
    except ValueError as error:
        raise WrongArguments(f"BINLOG_GTID_AT: {error}") from None
    server, warn, given_up = session.server, session.warn, threading.Event()

    def run() -> ResultSet:
        try:
            found = server.time_places.times.find(server.engine, time, given_up.is_set)
        except WaitGivenUp:
            raise QueryInterrupted() from None
        if not found.is_certain:
            warn(UnknownServerError(f"the binlog of {utc_text(time)} has been purged"))
        text = str(found.before.position()) if found.is_certain else None
        return ResultSet([column], [(text,)])

    return Work(run, line="binlog_gtid_at", give_up=given_up.set)


def _master_pos_wait(session: SqlSession, arguments: list[Value], label: str) -> ResultSet:
    """MASTER_POS_WAIT: NULL where no such upstream is followed, as in MariaDB. Raises 1235 for one that is."""
    if not 2 <= len(arguments) <= 4:
        raise WrongParameterCount("MASTER_POS_WAIT")
    name = str(arguments[3] if len(arguments) == 4 else session.master_connection)
    if any(c.name == name for c in session.server.relay.connections):
        raise NotSupportedYet(
            "MASTER_POS_WAIT: an upstream is followed by GTID, use MASTER_GTID_WAIT"
        )
    return ResultSet(
        [Column.binary(label, ColumnType.LONGLONG, _BIGINT_CHARS, null=True)], [(None,)]
    )


def column_of(item: SelectItem, value: Value) -> Column:
    """The result column for a value, with the type and length that MariaDB gives it."""
    label = item.label
    match item.expression:
        case SystemVariable(_, name):
            return _variable_column(label, VARIABLES[name].kind, value)
        case UserVariable():
            return _user_variable_column(label, value)
        case Function(name):
            return function_column(name, label, value)
        case Truth():
            return Column.binary(label, ColumnType.LONG, len("FALSE"))
        case Given(type=kind, unsigned=unsigned):
            return _given_column(label, kind, value, unsigned=unsigned)
    match value:  # the expression is a constant
        case None:
            return Column.binary(label, ColumnType.NULL, 0, null=True)
        case Decimal():
            return Column.decimal(label, value)
        case str():
            return Column.text(label, len(value))
    length = len(str(value))
    if value > _I64_MAX:
        return Column.bigint(label, length)
    return Column.binary(
        label, ColumnType.LONG if length <= _INT_CHARS else ColumnType.LONGLONG, length
    )


def _given_column(label: str, kind: int, value: Value, *, unsigned: bool) -> Column:
    """The column of a parameter: of the type in which its value was sent."""
    if value is None:
        return Column.binary(label, kind, 0, null=True)
    if isinstance(value, Decimal) and kind in DECIMALS:
        return replace(Column.decimal(label, value), type=kind)
    if kind in TIMES:
        decimals = _DECIMALS_SHOWN if "." in str(value) else 0
        return Column.binary(label, kind, _TIME_CHARS[kind], decimals)
    if kind in BLOBS:
        length = len(str(value).encode("utf-8", "surrogateescape"))
        return Column.binary(label, kind, length, DECIMALS_OF_TEXT)
    if isinstance(value, str):
        kind = ColumnType.STRING if kind == ColumnType.STRING else ColumnType.VAR_STRING
        return Column.text(label, len(value), kind=kind)
    column = Column.binary(label, kind, _NUMBER_CHARS.get(kind, _BIGINT_CHARS))
    if isinstance(value, Decimal):
        return replace(column, decimals=_NOT_FIXED)
    return replace(column, flags=column.flags | FLAG_UNSIGNED) if unsigned else column


def _variable_column(label: str, kind: OptionKind, value: Value) -> Column:
    match kind:
        case Decimals():
            return Column.binary(
                label, ColumnType.DOUBLE, _BIGINT_CHARS, _DECIMALS_SHOWN, null=True
            )
        case Switch():
            return Column.binary(label, ColumnType.LONGLONG, 1, null=True)
        case Number(is_signed=True):
            return Column.binary(label, ColumnType.LONGLONG, _BIGINT_CHARS, null=True)
        case Number():
            return Column.bigint(label, _BIGINT_CHARS, null=True)
    return Column.text(label, len(str(value or "")), null=True)


def _user_variable_column(label: str, value: Value) -> Column:
    match value:
        case None:
            return Column.binary(
                label, ColumnType.LONG_BLOB, _BLOB_CHARS, DECIMALS_OF_TEXT, null=True
            )
        case Decimal():
            return Column.binary(
                label, ColumnType.NEWDECIMAL, _DECIMAL_CHARS, _DECIMAL_SCALE, null=True
            )
        case str():
            return Column.text(label, _BLOB_CHARS, kind=ColumnType.LONG_BLOB, null=True)
    return Column.binary(label, ColumnType.LONGLONG, len(str(_I64_MAX)) + 1, null=True)


class _Builder(ExpressionBuilder):
    placed = ("item",)

    def item(self, meta: Meta, children: list[Any]) -> SelectItem:
        expression, alias = children
        if alias is None:
            match expression:
                case Given():
                    return SelectItem("?", expression)
                case Literal(str(text)) | ColumnName(text):
                    return SelectItem(text, expression)
            return SelectItem(self.text[meta.start_pos : meta.end_pos], expression)
        if isinstance(expression, ColumnName) and charset_named(expression.name.removeprefix("_")):
            raise SqlSyntaxError(expression.name)  # _latin1'...' is a text, which `queries` reads
        return SelectItem(as_written(alias), expression)


_RULES = r"""
_FROM_DUAL.1: /FROM\s+DUAL\b/i
_NO_CACHE.1: /SQL_NO_CACHE\b/i
"""
FAMILY = Family((Select,), _RULES, _Builder)
