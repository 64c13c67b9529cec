"""What a statement says, as values; `grammar.lark` says how it is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Scope(Enum):
    """Of a system variable; DEFAULT where the statement names none."""

    DEFAULT = auto()
    GLOBAL = auto()
    SESSION = auto()


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `None` is NULL. A bare word, as in `SET x = ON`, is a string."""

    value: str | int | None


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
class Default:
    """The word DEFAULT on the right side of a SET."""


Expression = Literal | UserVariable | SystemVariable | Function | Default


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One column: `label` is its alias, or its text as it stood in the statement."""

    label: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT without a table; `limit` of 0 gives no row."""

    items: tuple[SelectItem, ...]
    limit: int | None


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names to show: a LIKE pattern, or a list of names in lower case; neither is all."""

    pattern: str | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShowVariables:
    """SHOW VARIABLES, or SHOW STATUS when `status`."""

    status: bool
    filter: NameFilter
    scope: Scope = Scope.DEFAULT


class Show(Enum):
    """The SHOW statements without arguments."""

    MASTER_STATUS = auto()
    BINARY_LOGS = auto()
    SLAVE_HOSTS = auto()
    PROCESSLIST = auto()
    WARNINGS = auto()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `target = value` of a SET."""

    target: UserVariable | SystemVariable
    value: Expression


@dataclass(frozen=True, slots=True)
class SetVariables:
    """SET; SET NAMES is an assignment to character_set_client."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL of a connection, or of the query it runs."""

    connection_id: int
    query_only: bool


Statement = Select | ShowVariables | Show | SetVariables | Kill
