"""Text to `Statement`, by the grammar in `grammar.lark`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from binlog_server.admin.statements import (
    Assignment,
    Default,
    Expression,
    Function,
    Kill,
    Literal,
    NameFilter,
    Scope,
    Select,
    SelectItem,
    SetVariables,
    Show,
    ShowVariables,
    Statement,
    SystemVariable,
    UserVariable,
)
from protocol.errors import SqlSyntaxError

STATEMENT_CHARS_MAX = 64 * 1024  # nothing a binlog server understands is longer
# Without what its strings hold: parsing is done on the event loop, and takes about 20 us for each of these.
CODE_CHARS_MAX = 4 * 1024
_NEAR_CHARS = 80  # as much as MariaDB quotes of the place of a syntax error

_U64_DIGITS = 20
# A string, or the rest of the text if it is not ended: so that no place is looked at twice.
_STRING = re.compile(
    r"""'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)|"(?:[^"\\]|\\.|"")*(?:"|\\?\Z)""", re.DOTALL
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def parse(text: str) -> Statement:
    """The statement in `text`. Raises `SqlSyntaxError` (1064)."""
    if len(text) > CODE_CHARS_MAX and (
        len(text) > STATEMENT_CHARS_MAX or len(_STRING.sub("''", text)) > CODE_CHARS_MAX
    ):
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            at = len(text)
        line = text.count("\n", 0, at) + 1
        raise SqlSyntaxError(text[at : at + _NEAR_CHARS], line) from None
    try:
        statement: Statement = _Builder(text).transform(tree)
    except VisitError as error:  # lark wraps what a method of the builder raises
        raise error.orig_exc from None
    return statement


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)


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
        raise SqlSyntaxError(token[:_NEAR_CHARS])
    return int(token)


def _name(token: Token) -> str:
    return (token if token.type == "NAME" else unquote(token)).lower()


def _session(name: str, value: Expression) -> Assignment:
    return Assignment(SystemVariable(Scope.SESSION, name), value)


def _scope(scope: Scope | None) -> Scope:
    return scope or Scope.DEFAULT


class _Builder(Transformer[Token, Any]):
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

    def like(self, children: list[Token]) -> NameFilter:
        return NameFilter(pattern=unquote(children[0]))

    def where_like(self, children: list[Token]) -> NameFilter:
        return NameFilter(pattern=unquote(children[1]))

    def one_of(self, children: list[Token]) -> NameFilter:
        return NameFilter(names=tuple(unquote(token).lower() for token in children[1:]))

    def show_variables(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(False, children[1] or NameFilter(), _scope(children[0]))

    def show_status(self, children: list[Any]) -> ShowVariables:
        return ShowVariables(True, children[1] or NameFilter(), _scope(children[0]))

    def show_master_status(self, _: list[Any]) -> Show:
        return Show.MASTER_STATUS

    def show_binary_logs(self, _: list[Any]) -> Show:
        return Show.BINARY_LOGS

    def show_slave_hosts(self, _: list[Any]) -> Show:
        return Show.SLAVE_HOSTS

    def show_processlist(self, _: list[Any]) -> Show:
        return Show.PROCESSLIST

    def show_warnings(self, _: list[Any]) -> Show:
        return Show.WARNINGS

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

    def kill(self, children: list[Any]) -> Kill:
        what, number = children
        return Kill(_integer(number), query_only=what == "QUERY")

    def kill_what(self, children: list[Token]) -> str:
        return children[0].upper()
