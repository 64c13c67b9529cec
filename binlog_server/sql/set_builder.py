"""SET in all its forms: a method for each of its rules in `grammar.lark`."""

from __future__ import annotations

from typing import Any

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import CollationMismatch
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import charset_named, collation_numbered
from lark import Token, Transformer

from binlog_server.sql.statements import (
    Assignment,
    Default,
    Expression,
    Literal,
    Scope,
    SetStatement,
    SetVariables,
    Statement,
    SystemVariable,
)
from binlog_server.sql.tokens import name_of
from binlog_server.sql.variables import VARIABLES


class SetBuilder(Transformer[Token, Any]):
    """Parse trees of SET to assignments."""

    def set(self, children: list[Any]) -> SetVariables:
        return SetVariables(
            tuple(a for child in children for a in (child if isinstance(child, list) else [child]))
        )

    def assign_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        return Assignment(SystemVariable(scope or Scope.DEFAULT, name_of(name)), value)

    def assign_at_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        variable = VARIABLES.get(name_of(name))
        if scope is None and variable is not None and variable.twin:  # those of transactions
            scope = Scope.NEXT
        return Assignment(SystemVariable(scope or Scope.DEFAULT, name_of(name)), value)

    def names(self, children: list[Any]) -> list[Assignment]:
        charset, collation = children
        value = _charset(charset)
        names = ["client", "connection", "results"]
        found = [_session(f"character_set_{name}", value) for name in names]
        if collation is not None:
            if charset.type != "DEFAULT":
                _check_collation(name_of(charset), name_of(collation))
            found.append(_session("collation_connection", Literal(name_of(collation))))
        return found

    def character_set(self, children: list[Any]) -> list[Assignment]:
        # The connection gets the database's character set. There is no database, so it is the default.
        value = _charset(children[0])
        return [
            _session("character_set_client", value),
            _session("character_set_results", value),
            _session("character_set_connection", Default()),
        ]

    def set_transaction(self, children: list[Any]) -> SetVariables:
        scope, *characteristics = children
        if len({token.type for token in characteristics}) < len(characteristics):
            raise SqlSyntaxError(characteristics[-1])  # only one of each kind is allowed
        assignments = []
        for words in (token.upper().split() for token in characteristics):
            if words[-1] in ("ONLY", "WRITE"):
                names = ("tx_read_only", "transaction_read_only")
                value = Literal(int(words[-1] == "ONLY"))
            else:
                names = ("tx_isolation", "transaction_isolation")
                value = Literal("-".join(words))
            assignments += [
                Assignment(SystemVariable(scope or Scope.NEXT, name), value) for name in names
            ]
        return SetVariables(tuple(assignments))

    def for_statement(self, children: list[Any]) -> Assignment:
        name, value = children
        return _session(name_of(name), value)

    def set_statement(self, children: list[Any]) -> SetStatement:
        *assignments, statement = children
        inner: Statement = statement
        if isinstance(inner, SetVariables):  # its settings would be undone at once
            raise SqlSyntaxError("SET")
        return SetStatement(tuple(assignments), inner)


def _charset(name: Token) -> Literal | Default:
    return Default() if name.type == "DEFAULT" else Literal(name_of(name))


def _session(name: str, value: Expression) -> Assignment:
    return Assignment(SystemVariable(Scope.SESSION, name), value)


def _check_collation(charset: str, collation: str) -> None:
    """Raises `CollationMismatch` (1253). An unknown name is not its job: the assignment finds it."""
    number = collation_numbered(collation)
    known = charset_named(charset)
    if number is not None and known is not None and charset_of(number) != known:
        raise CollationMismatch(collation, charset)
