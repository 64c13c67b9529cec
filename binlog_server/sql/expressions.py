"""Constants, variables and functions as values, and the methods for their rules in `grammar.lark`."""

from __future__ import annotations

import math
from collections.abc import Collection
from decimal import Decimal
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import SqlSyntaxError, UnknownColumn, WrongArguments
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.binary_rows import DECIMALS, Parameter

from binlog_server.sql.functions import BARE_ELSEWHERE, BARE_FUNCTIONS
from binlog_server.sql.statement import Rules
from binlog_server.sql.tokens import as_written, exact_number, integer, name_of, unquote

if TYPE_CHECKING:
    from lark import Token

USER_VARIABLES_MAX: Final = 256  # a session's, and so a statement's; a replica sets about ten
_I64_MIN, _U64_MAX = -(2**63), 2**64 - 1
_TRUTH: Final = {"FALSE": 0, "TRUE": 1}


class Scope(Enum):
    """The scope of a system variable: DEFAULT if the statement names none, NEXT for the next transaction only."""

    DEFAULT = auto()
    GLOBAL = auto()
    SESSION = auto()
    NEXT = auto()


Value = str | int | Decimal | None


class HeldValue(NamedTuple):
    """The value of a user variable. A string keeps the collation of its SET, whatever the session SETs later."""

    value: Value
    collation: int = 0


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `None` is NULL. A bare word, as in `SET x = ON`, is a string.

    An `int` has 64 bits at most; a longer number, or one with a point, is a `Decimal`.
    """

    value: Value


@dataclass(frozen=True, slots=True)
class Truth(Literal):
    """TRUE or FALSE: 1 or 0 in a column of another length."""


@dataclass(frozen=True, slots=True)
class Given(Literal):
    """A parameter of a prepared statement: its value, with the type in which the client has given it.

    At PREPARE it is NULL of type NULL.
    """

    type: int = ColumnType.NULL
    unsigned: bool = False

    @classmethod
    def of(cls, parameter: Parameter) -> Given:
        """Raises `WrongArguments` (1210) for a DOUBLE that is no number."""
        given = parameter.value
        value: Value
        if isinstance(given, float):
            if not math.isfinite(given):
                raise WrongArguments("mysqld_stmt_execute")
            value = Decimal(repr(given))
        elif isinstance(given, str) and parameter.type in DECIMALS:
            value = Decimal(given)
        elif isinstance(given, (bytes, bytearray, memoryview)):
            value = bytes(given).decode("utf-8", "surrogateescape")
        else:
            value = given
        return cls(value, parameter.type, parameter.unsigned)


@dataclass(frozen=True, slots=True)
class UserVariable:
    """`@name`, name in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class SystemVariable:
    """`@@scope.name`, name in lower case."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """`NAME(arguments)`, name in upper case."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A bare name in a SELECT."""

    name: str


@dataclass(frozen=True, slots=True)
class Default:
    """The word DEFAULT on the right side of a SET."""


Expression = Literal | UserVariable | SystemVariable | Function | ColumnName | Default


@dataclass(frozen=True, slots=True)
class Limit:
    """LIMIT: rows to leave out first, then rows to give; `None` is all."""

    offset: int = 0
    count: int | None = None


NO_LIMIT: Final = Limit()


class ExpressionBuilder(Rules):
    """Parse trees of expressions to values."""

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

    def parameter(self, children: list[Given]) -> Given:
        return children[0]

    def bare(self, children: list[Token]) -> ColumnName:
        return ColumnName(as_written(children[0]))

    def word(self, children: list[Token]) -> Literal:
        word = children[0]
        if word.type == "NAME" and word.upper() in _TRUTH:
            return Truth(_TRUTH[word.upper()])
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

    def limit_count(self, children: list[Token | Given]) -> Limit:
        return Limit(0, _count(children[0]))

    def limit_from(self, children: list[Token | Given]) -> Limit:
        return Limit(_count(children[0]), _count(children[1]))

    def limit_offset(self, children: list[Token | Given]) -> Limit:
        return Limit(_count(children[1]), _count(children[0]))


def _count(value: Token | Given) -> int:
    """The number in a LIMIT; a parameter may have any value, of which MariaDB takes the number."""
    if isinstance(value, str):
        return integer(value)
    number = value.value
    return max(0, int(number)) if isinstance(number, (int, Decimal)) else 0


def constant_named(expression: Expression, place: str) -> Expression:
    """The constant or function that a bare name means where there is no table.

    Raises `UnknownColumn` (1054); `SqlSyntaxError` for a function that `queries` computes.
    """
    if not isinstance(expression, ColumnName):
        return expression
    match expression.name.upper():
        case word if word in _TRUTH:
            return Truth(_TRUTH[word])
        case word if word in BARE_FUNCTIONS:
            return Function(word, ())
        case word if word in BARE_ELSEWHERE:
            raise SqlSyntaxError(word)
    raise UnknownColumn(expression.name, place)


def names_variable(expression: Expression, names: Collection[str]) -> bool:
    """Whether an expression, or an argument in it, is a system variable with one of these names."""
    match expression:
        case SystemVariable(_, name):
            return name in names
        case Function(_, arguments):
            return any(names_variable(argument, names) for argument in arguments)
    return False
