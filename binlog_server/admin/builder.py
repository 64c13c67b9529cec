"""A method for each rule of `grammar.lark`: from the tree of a statement to its value."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Transformer, v_args
from lark.tree import Meta

from binlog_server.admin.statements import (
    Assignment,
    Condition,
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
    Limit,
    Literal,
    Moment,
    Operator,
    Purge,
    ResetMaster,
    RowFilter,
    Scope,
    Select,
    SelectItem,
    SelectSchema,
    SetVariables,
    Show,
    ShowBinlogEvents,
    ShowDatabases,
    ShowDiagnostics,
    ShowTables,
    ShowVariables,
    Statement,
    SystemVariable,
    UserVariable,
)
from protocol.errors import SqlSyntaxError

NEAR_CHARS = 80  # as much as MariaDB quotes of the place of a syntax error
_U64_DIGITS = 20
# Behind the conditions of a SELECT: other rows than those of the table, or another place for them.
_OTHER_RESULT = re.compile(r"\b(?:UNION|EXCEPT|INTERSECT|INTO)\b", re.IGNORECASE)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_UNITS_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400}
_COMPARISONS = {
    "=": (Operator.EQUAL, False),
    "!=": (Operator.EQUAL, True),
    "<>": (Operator.EQUAL, True),
    "<": (Operator.LESS, False),
    ">": (Operator.GREATER, False),
}


def unquote(token: str) -> str:
    """The text of a quoted string or name."""
    quote, body = token[0], token[1:-1]
    if quote == "`":
        return body
    body = body.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), body, flags=re.DOTALL)


def _integer(token: str) -> int:
    """A number that takes no long time to convert."""
    if len(token) > _U64_DIGITS:
        raise SqlSyntaxError(token[:NEAR_CHARS])
    return int(token)


def _name(token: Token) -> str:
    return (token if token.type == "NAME" else unquote(token)).lower()


def _session(name: str, value: Expression) -> Assignment:
    return Assignment(SystemVariable(Scope.SESSION, name), value)


def _scope(scope: Scope | None) -> Scope:
    return scope or Scope.DEFAULT


def _as_written(token: Token) -> str:
    return str(token) if token.type == "NAME" else unquote(token)


def _text(token: Token) -> str:
    return unquote(token) if token.type == "STRING" else str(token)


def _seconds(number: Token, unit: Token) -> int:
    return _integer(number) * _UNITS_S[unit.upper()]


class Builder(Transformer[Token, Any]):
    """Tree to values; a method per rule or alias of the grammar."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def start(self, children: list[Any]) -> Statement:
        statement: Statement = children[0]
        return statement

    def select(self, children: list[Any]) -> Select:
        *items, limit = children
        return Select(tuple(items), None if limit is None else _integer(limit))

    def select_schema(self, children: list[Token]) -> SelectSchema:
        conditions = children.pop() if children[-1].type == "CONDITIONS" else ""
        if _OTHER_RESULT.search(conditions):
            raise SqlSyntaxError(conditions[:NEAR_CHARS])
        *columns, table = children
        return SelectSchema(table.lower(), tuple(map(_as_written, columns)))

    @v_args(meta=True)
    def item(self, meta: Meta, children: list[Any]) -> SelectItem:
        expression, alias = children
        if alias is None:
            return SelectItem(self._text[meta.start_pos : meta.end_pos], expression)
        return SelectItem(unquote(alias) if alias.type == "STRING" else str(alias), expression)

    def string(self, children: list[Token]) -> Literal:
        return Literal(unquote(children[0]))

    def integer(self, children: list[Token]) -> Literal:
        token = children[0]
        # Beyond 64 bits it is a DECIMAL, whose value is kept as text.
        return Literal(int(token) if len(token) <= _U64_DIGITS else str(token))

    def decimal(self, children: list[Token]) -> Literal:
        return Literal(str(children[0]))

    def null(self, _: list[Token]) -> Literal:
        return Literal(None)

    def word(self, children: list[Token]) -> Literal:
        return Literal(str(children[0]))

    def word_on(self, _: list[Token]) -> Literal:
        return Literal("ON")

    def default(self, _: list[Token]) -> Default:
        return Default()

    def user_variable(self, children: list[Token]) -> UserVariable:
        return UserVariable(_name(children[0]))

    def system_variable(self, children: list[Any]) -> SystemVariable:
        scope, name = children
        return SystemVariable(_scope(scope), _name(name))

    def scope(self, children: list[Token]) -> Scope:
        return Scope.GLOBAL if children[0].upper() == "GLOBAL" else Scope.SESSION

    def function(self, children: list[Any]) -> Function:
        name, *arguments = children
        given: tuple[Expression, ...] = tuple(a for a in arguments if a is not None)
        return Function(name.upper(), given)

    # Conditions

    def like(self, children: list[Token]) -> RowFilter:
        return RowFilter(((Condition("", Operator.LIKE, (unquote(children[0]),)),),))

    def where(self, children: list[tuple[Condition, ...]]) -> RowFilter:
        return RowFilter(tuple(children))

    def all_of(self, children: list[Condition]) -> tuple[Condition, ...]:
        return tuple(children)

    def compares(self, children: list[Token]) -> Condition:
        column, comparison, constant = children
        operator, negated = _COMPARISONS[comparison]
        return Condition(_name(column), operator, (_text(constant),), negated)

    def is_like(self, children: list[Any]) -> Condition:
        column, negated, pattern = children
        return Condition(
            _name(column), Operator.LIKE, (unquote(pattern),), negated=negated is not None
        )

    def is_in(self, children: list[Any]) -> Condition:
        column, negated, *constants = children
        return Condition(
            _name(column), Operator.IN, tuple(map(_text, constants)), negated=negated is not None
        )

    def limit_count(self, children: list[Token]) -> Limit:
        return Limit(0, _integer(children[0]))

    def limit_from(self, children: list[Token]) -> Limit:
        return Limit(_integer(children[0]), _integer(children[1]))

    def limit_offset(self, children: list[Token]) -> Limit:
        return Limit(_integer(children[1]), _integer(children[0]))

    # SHOW

    def show_variables(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(False, children[1] or RowFilter(), _scope(children[0]))

    def show_status(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(True, children[1] or RowFilter(), _scope(children[0]))

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

    def show_databases(self, children: list[RowFilter | None]) -> ShowDatabases:
        row_filter = children[0] or RowFilter()
        match row_filter.alternatives:
            case ((Condition("", _, (pattern,)),),):
                return ShowDatabases(row_filter, pattern)
        return ShowDatabases(row_filter)

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
            0 if start is None else _integer(start),
            limit or Limit(),
        )

    # SET

    def set(self, children: list[Any]) -> SetVariables:
        return SetVariables(
            tuple(a for child in children for a in (child if isinstance(child, list) else [child]))
        )

    def assign_user(self, children: list[Any]) -> Assignment:
        name, value = children
        return Assignment(UserVariable(_name(name)), value)

    def assign_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        return Assignment(SystemVariable(_scope(scope), _name(name)), value)

    def names(self, children: list[Any]) -> list[Assignment]:
        charset, collation = children
        value = Default() if charset.type == "DEFAULT" else Literal(_name(charset))
        names = ["client", "connection", "results"]
        found = [_session(f"character_set_{name}", value) for name in names]
        if collation is not None:
            found.append(_session("collation_connection", Literal(_name(collation))))
        return found

    def character_set(self, children: list[Any]) -> list[Assignment]:
        # The connection then has that of the database, of which there is none: the default.
        value = Literal(_name(children[0]))
        return [
            _session("character_set_client", value),
            _session("character_set_results", value),
            _session("character_set_connection", Default()),
        ]

    def set_transaction(self, children: list[Any]) -> SetVariables:
        scope, *characteristics = children
        assignments = []
        for words in (token.upper().split() for token in characteristics):
            if words[-1] in ("ONLY", "WRITE"):
                names, value = ("tx_read_only", "transaction_read_only"), str(words[-1] == "ONLY")
            else:
                names, value = ("tx_isolation", "transaction_isolation"), "-".join(words)
            assignments += [
                Assignment(SystemVariable(_scope(scope), name), Literal(value)) for name in names
            ]
        return SetVariables(tuple(assignments))

    def kill(self, children: list[Any]) -> Kill:
        what, number = children
        return Kill(_integer(number), query_only=what == "QUERY")

    def kill_what(self, children: list[Token]) -> str:
        return children[0].upper()

    # Files

    def purge(self, children: list[Purge]) -> Purge:
        return children[0]

    def purge_to(self, children: list[Token]) -> Purge:
        return Purge(to=unquote(children[0]))

    def purge_before(self, children: list[Moment]) -> Purge:
        return Purge(before=children[0])

    def moment_text(self, children: list[Token]) -> Moment:
        return Moment(unquote(children[0]))

    def moment_number(self, children: list[Token]) -> Moment:
        return Moment(_integer(children[0]))

    def moment_unix(self, children: list[Token]) -> Moment:
        return Moment(_integer(children[0]), unix=True)

    def moment_now(self, children: list[int | None]) -> Moment:
        return Moment(plus_seconds=children[0] or 0)

    def interval(self, children: list[Token]) -> int:
        sign, number, unit = children
        return _seconds(number, unit) * (-1 if sign == "-" else 1)

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
        return ResetMaster(None if number is None else _integer(number))

    def explain_purge(self, children: list[Purge]) -> ExplainPurge:
        return ExplainPurge(children[0] if children else None)

    def explain_gtid(self, children: list[Token]) -> ExplainGtid:
        return ExplainGtid(unquote(children[0]))

    # Leases

    def or_replace(self, children: list[Token]) -> bool:
        return bool(children)

    def if_exists(self, children: list[Token]) -> bool:
        return bool(children)

    def until(self, children: list[Moment]) -> Moment:
        return children[0]

    def for_seconds(self, children: list[Token]) -> Moment:
        return Moment(plus_seconds=_seconds(*children))

    def create_lease(self, children: list[Any]) -> CreateLease:
        replace, name, gtid, until, max_bytes = children
        return CreateLease(
            _as_written(name),
            replace,
            None if gtid is None else unquote(gtid),
            until,
            None if max_bytes is None else _integer(max_bytes),
        )

    def drop_lease(self, children: list[Any]) -> DropLease:
        if_exists, name = children
        return DropLease(_as_written(name), if_exists)
