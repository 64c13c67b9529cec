"""A method for each rule of `grammar.lark`: from the tree of a statement to its value."""

from __future__ import annotations

import re
from typing import Any

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import UnknownColumn
from lark import Token, v_args
from lark.tree import Meta

from binlog_server.sql.filter_builder import FilterBuilder
from binlog_server.sql.functions import BARE_FUNCTIONS
from binlog_server.sql.moment_builder import MomentBuilder, shifted, span_of
from binlog_server.sql.row_filter import EVERYTHING, Condition, Test
from binlog_server.sql.set_builder import SetBuilder
from binlog_server.sql.statements import (
    AlterLease,
    Assignment,
    ColumnName,
    CreateLease,
    Default,
    DropLease,
    ExplainGtid,
    ExplainPurge,
    Expression,
    FlushLogs,
    FlushNothing,
    FlushTables,
    Function,
    Kill,
    KillQueryId,
    KillUser,
    Limit,
    Literal,
    Moment,
    Purge,
    ResetMaster,
    Scope,
    Select,
    SelectItem,
    SelectSchema,
    Show,
    ShowBinlogEvents,
    ShowDatabases,
    ShowDiagnostics,
    ShowSlaveStatus,
    ShowTables,
    ShowVariables,
    Statement,
    SystemVariable,
    UserVariable,
    XaRecover,
)
from binlog_server.sql.tokens import NEAR_CHARS, as_written, exact_number, integer, name_of, unquote

_I64_MIN, _U64_MAX = -(2**63), 2**64 - 1
# Words that are values of system variables, although they are reserved elsewhere in the grammar.
_NO_VALUES = frozenset({"ON", "DEFAULT"})
_TRUTH = {"FALSE": 0, "TRUE": 1}
# Clauses behind the conditions of a SELECT that ask for other rows than the table's, or for another place for them.
_OTHER_RESULT = re.compile(r"\b(?:UNION|EXCEPT|INTERSECT|INTO)\b", re.IGNORECASE)


class Builder(FilterBuilder, MomentBuilder, SetBuilder):
    """Parse trees to `Statement` values; a method per rule or alias of the grammar."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def start(self, children: list[Any]) -> Statement:
        statement: Statement = children[0]
        return statement

    def select(self, children: list[Any]) -> Select:
        *items, limit = children
        return Select(tuple(map(_without_table, items)), None if limit is None else integer(limit))

    def select_schema(self, children: list[Any]) -> SelectSchema:
        conditions = children.pop() if children[-1].type == "CONDITIONS" else ""
        if _OTHER_RESULT.search(conditions):
            raise SqlSyntaxError(conditions[:NEAR_CHARS])
        *items, table = children
        columns = []
        for item in items:
            if not isinstance(item.expression, ColumnName):
                raise SqlSyntaxError(item.label[:NEAR_CHARS])
            columns.append(item.label)
        return SelectSchema(table.lower(), tuple(columns))

    @v_args(meta=True)
    def item(self, meta: Meta, children: list[Any]) -> SelectItem:
        expression, alias = children
        if alias is None:
            match expression:
                case Literal(str(text)) | ColumnName(text):
                    return SelectItem(text, expression)
            return SelectItem(self._text[meta.start_pos : meta.end_pos], expression)
        return SelectItem(as_written(alias), expression)

    def string(self, children: list[Token]) -> Literal:
        return Literal("".join(map(unquote, children)))

    def integer(self, children: list[Token]) -> Literal:
        # An integer of more than 64 bits is a DECIMAL.
        number = exact_number(children[0])
        return Literal(int(number) if _I64_MIN <= number <= _U64_MAX else number)

    def decimal(self, children: list[Token]) -> Literal:
        return Literal(exact_number(children[0]))

    def null(self, _: list[Token]) -> Literal:
        return Literal(None)

    def assign_user(self, children: list[Any]) -> Assignment:
        name, value = children
        if isinstance(value, ColumnName) and value.name.upper() in _NO_VALUES:
            raise SqlSyntaxError(value.name)
        return Assignment(UserVariable(name_of(name)), _constant_named(value, "SET"))

    def bare(self, children: list[Token]) -> ColumnName:
        return ColumnName(as_written(children[0]))

    def word(self, children: list[Token]) -> Literal:
        word = children[0]
        if word.type == "NAME" and word.upper() in _TRUTH:
            return Literal(_TRUTH[word.upper()])
        return Literal(as_written(word))

    def word_on(self, _: list[Token]) -> Literal:
        return Literal("ON")

    def default(self, _: list[Token]) -> Default:
        return Default()

    def user_variable(self, children: list[Token]) -> UserVariable:
        return UserVariable(name_of(children[0]))

    def system_variable(self, children: list[Any]) -> SystemVariable:
        scope, name = children
        return SystemVariable(scope or Scope.DEFAULT, name_of(name))

    def scope(self, children: list[Token]) -> Scope:
        return Scope.GLOBAL if children[0].upper() == "GLOBAL" else Scope.SESSION

    def function(self, children: list[Any]) -> Function:
        name, *arguments = children
        given: tuple[Expression, ...] = tuple(a for a in arguments if a is not None)
        return Function(name.upper(), given)

    def limit_count(self, children: list[Token]) -> Limit:
        return Limit(0, integer(children[0]))

    def limit_from(self, children: list[Token]) -> Limit:
        return Limit(integer(children[0]), integer(children[1]))

    def limit_offset(self, children: list[Token]) -> Limit:
        return Limit(integer(children[1]), integer(children[0]))

    # SHOW

    def show_variables(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(False, children[1] or EVERYTHING, children[0] or Scope.DEFAULT)

    def show_status(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(True, children[1] or EVERYTHING, children[0] or Scope.DEFAULT)

    def show_master_status(self, _: list[Any]) -> Show:
        return Show.MASTER_STATUS

    def show_binary_logs(self, _: list[Any]) -> Show:
        return Show.BINARY_LOGS

    def show_slave_hosts(self, _: list[Any]) -> Show:
        return Show.SLAVE_HOSTS

    def show_processlist(self, _: list[Any]) -> Show:
        return Show.PROCESSLIST

    def show_full_processlist(self, _: list[Any]) -> Show:
        return Show.FULL_PROCESSLIST

    def show_engines(self, _: list[Any]) -> Show:
        return Show.ENGINES

    def show_binlog_replicas(self, _: list[Any]) -> Show:
        return Show.BINLOG_REPLICAS

    def show_binlog_leases(self, _: list[Any]) -> Show:
        return Show.BINLOG_LEASES

    def show_databases(self, children: list[Test | None]) -> ShowDatabases:
        test = children[0] or EVERYTHING
        match test:
            case Condition("", _, (pattern,)):
                return ShowDatabases(test, str(pattern))
        return ShowDatabases(test)

    def show_slave_status(self, children: list[Token | None]) -> ShowSlaveStatus:
        name = children[0]
        return ShowSlaveStatus("" if name is None else unquote(name))

    def show_all_slaves_status(self, _: list[Any]) -> Show:
        return Show.ALL_SLAVES_STATUS

    def show_privileges(self, _: list[Any]) -> Show:
        return Show.PRIVILEGES

    def show_tables(self, _: list[Any]) -> ShowTables:
        return ShowTables()

    def diagnostics(self, children: list[Token]) -> bool:
        return children[0].upper() == "ERRORS"

    def show_diagnostics(self, children: list[Any]) -> ShowDiagnostics:
        errors_only, limit = children
        return ShowDiagnostics(errors_only, limit=limit or Limit())

    def show_count(self, children: list[bool]) -> ShowDiagnostics:
        return ShowDiagnostics(children[0], count=True)

    def show_binlog_events(self, children: list[Any]) -> ShowBinlogEvents:
        file, start, limit = children
        return ShowBinlogEvents(
            None if file is None else unquote(file),
            0 if start is None else integer(start),
            limit or Limit(),
        )

    # KILL

    def kill_what(self, children: list[Token]) -> bool:
        return children[0].upper() == "QUERY"

    def kill(self, children: list[Any]) -> Kill:
        query_only, number = children
        return Kill(number, query_only=bool(query_only))

    def user_name(self, children: list[Token]) -> str:
        return as_written(children[0])

    def kill_user(self, children: list[Any]) -> KillUser:
        query_only, user, host = children
        return KillUser(user, None if host is None else host.lower(), query_only=bool(query_only))

    def kill_query_id(self, children: list[Token]) -> KillQueryId:
        return KillQueryId(integer(children[0]))

    # Files

    def purge(self, children: list[Purge]) -> Purge:
        return children[0]

    def purge_to(self, children: list[Token]) -> Purge:
        return Purge(to=unquote(children[0]))

    def purge_before(self, children: list[Moment]) -> Purge:
        return Purge(before=children[0])

    def flush_logs(self, children: list[tuple[str, ...] | None]) -> FlushLogs:
        return FlushLogs((children[0] if children else None) or ())

    def flush_nothing(self, _: list[Any]) -> FlushNothing:
        return FlushNothing()

    def flush_tables(self, children: list[bool | None]) -> FlushTables:
        return FlushTables(read_lock=bool(children[0]))

    def read_lock(self, _: list[Token]) -> bool:
        return True

    def delete_domains(self, children: list[Token | None]) -> tuple[str, ...]:
        return tuple(str(token) for token in children if token is not None)

    def reset(self, children: list[Token | None]) -> ResetMaster:
        number = children[0]
        return ResetMaster(None if number is None else integer(number))

    def explain_purge(self, children: list[Purge]) -> ExplainPurge:
        return ExplainPurge(children[0] if children else None)

    def explain_gtid(self, children: list[Token]) -> ExplainGtid:
        return ExplainGtid(unquote(children[0]))

    def xa_recover(self, children: list[Token | None]) -> XaRecover:
        return XaRecover() if children[0] is None else XaRecover(unquote(children[0]))

    # Leases

    def or_replace(self, children: list[Token]) -> bool:
        return bool(children)

    def if_exists(self, children: list[Token]) -> bool:
        return bool(children)

    def until(self, children: list[Moment]) -> Moment:
        return children[0]

    def lease_for(self, children: list[Token]) -> Moment:
        return shifted(Moment(for_all=True), 1, span_of(*children))

    def create_lease(self, children: list[Any]) -> CreateLease:
        replace, name, *terms = children
        return CreateLease(as_written(name), replace, *_lease_terms(*terms))

    def alter_lease(self, children: list[Any]) -> AlterLease:
        name, *terms = children
        return AlterLease(as_written(name), *_lease_terms(*terms))

    def drop_lease(self, children: list[Any]) -> DropLease:
        if_exists, name = children
        return DropLease(as_written(name), if_exists)


def _lease_terms(
    gtid: Token | None, until: Moment | None, max_bytes: Token | None
) -> tuple[str | None, Moment | None, int | None]:
    return (
        None if gtid is None else unquote(gtid),
        until,
        None if max_bytes is None else integer(max_bytes),
    )


def _without_table(item: SelectItem) -> SelectItem:
    """The item with a bare name replaced by the constant or function it names. Raises `UnknownColumn` (1054)."""
    return SelectItem(item.label, _constant_named(item.expression, "SELECT"))


def _constant_named(expression: Expression, place: str) -> Expression:
    """The constant or function that a bare name means where there is no table. Raises `UnknownColumn` (1054)."""
    if not isinstance(expression, ColumnName):
        return expression
    match expression.name.upper():
        case word if word in _TRUTH:
            return Literal(_TRUTH[word])
        case word if word in BARE_FUNCTIONS:
            return Function(word, ())
    raise UnknownColumn(expression.name, place)
