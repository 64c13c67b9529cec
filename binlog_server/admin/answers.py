"""Executes a statement for one session: values in, a result out. No I/O of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from binlog_server.admin.parser import parse
from binlog_server.admin.statements import (
    Assignment,
    Default,
    Expression,
    Function,
    Kill,
    Literal,
    NameFilter,
    Select,
    SetVariables,
    Show,
    ShowVariables,
    SystemVariable,
    UserVariable,
)
from binlog_server.admin.statements import Scope as VariableScope
from binlog_server.admin.values import as_shown
from binlog_server.admin.variables import (
    BOOLEANS,
    GLOBAL_SETTABLE,
    NEED_RIGHT,
    NOT_IN_TRANSACTION,
    SESSION_SETTABLE,
    like_matches,
)
from binlog_server.users import BINLOG_REPLAY
from protocol.errors import (
    EngineBinlogUnavailable,
    PacketTooBig,
    PrivilegeRequired,
    ReadOnlyVariable,
    SqlSyntaxError,
    UnknownSystemVariable,
    WrongVariableValue,
)
from protocol.events.charsets import charset_of
from protocol.events.collation_names import (
    collation_name,
    collation_numbered,
    default_collation,
)
from protocol.sql_errors import (
    GlobalVariable,
    GtidInsideTransaction,
)
from protocol.wire.results import Column, Value

_U64_DIGITS = 20
USER_VARIABLES_MAX = 256  # a replica sets about ten
ROW_CHARS_MAX = 16 << 20  # as max_allowed_packet: a short statement may name a long variable often


class ServerView(Protocol):
    """What statements may see and do of the server."""

    def global_variables(self) -> Mapping[str, str]:
        """By name in lower case."""

    def status_variables(self) -> Mapping[str, str]:
        """By name as SHOW STATUS prints it."""

    def binlog_status(self) -> tuple[str, int, str]:
        """File, position of the next write, and `gtid_binlog_pos`."""

    def binary_logs(self) -> Iterable[tuple[str, int]]:
        """Name and size of each file."""

    def slave_hosts(self) -> Iterable[Sequence[Value]]:
        """Rows of SHOW SLAVE HOSTS."""

    def processlist(self) -> Iterable[Sequence[Value]]:
        """Rows of SHOW PROCESSLIST."""

    def kill(self, connection_id: int) -> None:
        """End a connection; `UnknownThread` if there is none."""

    def set_global(self, name: str, value: str) -> None:
        """One of `GLOBAL_SETTABLE`, the value as SHOW VARIABLES prints it."""


@dataclass(slots=True)
class ResultSet:
    """Columns, and rows of text values (None is NULL)."""

    columns: list[Column]
    rows: list[Sequence[Value]]


@dataclass(slots=True)
class SqlSession:
    """The SQL side of one connection: its variables, and what its statements give.

    `login` are the variables that the login has set, `in_transaction` and `database` for whoever commits to keep.
    """

    server: ServerView
    connection_id: int
    account: str
    user_variables: dict[str, str | int | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    grants: frozenset[str] = frozenset()
    login: Mapping[str, str] = field(default_factory=dict)
    in_transaction: bool = False
    database: bytes = b""  # in UTF-8

    def __post_init__(self) -> None:
        self.variables.update(self.login)

    def reset(self) -> None:
        """As COM_RESET_CONNECTION: all variables of the session are forgotten."""
        self.user_variables.clear()
        self.variables = dict(self.login)

    def require(self, privilege: str) -> None:
        """Raises `PrivilegeRequired` (1227)."""
        if privilege not in self.grants:
            raise PrivilegeRequired(privilege)

    def execute(self, text: str) -> ResultSet | None:
        """The result set, or None for OK. Raises `ServerError`."""
        match parse(text):
            case Select() as statement:
                return self._select(statement)
            case SetVariables(assignments):
                # All values are found before the first is set: a statement that fails sets nothing.
                values = [self._assigned(assignment) for assignment in assignments]
                self._check_room(assignments)
                for assignment, value in zip(assignments, values, strict=True):
                    self._assign(assignment, value)
                    self._assign_along(assignment.target.name)
                return None
            case ShowVariables() as shown:
                return self._show_variables(shown)
            case Kill(connection_id, query_only):
                if not query_only:  # nothing here runs long enough to be interrupted alone
                    self.server.kill(connection_id)
                return None
            case Show() as what:
                return _SHOWS[what](self.server)

    # SELECT

    def _select(self, statement: Select) -> ResultSet:
        values = [self._value(item.expression) for item in statement.items]
        if sum(len(value) for value in values if isinstance(value, str)) > ROW_CHARS_MAX:
            raise PacketTooBig
        labels = [_printable(item.label) for item in statement.items]
        columns = [
            Column.bigint(label) if isinstance(value, int) else Column.text(label)
            for label, value in zip(labels, values, strict=True)
        ]
        return ResultSet(columns, [] if statement.limit == 0 else [values])

    def _value(self, expression: Expression) -> str | int | None:
        match expression:
            case Literal(value):
                return value
            case UserVariable(name):
                return self.user_variables.get(name)
            case SystemVariable(scope, name):
                return _as_number(self._system_value(scope, name), name)
            case Function(name, arguments):
                return self._call(name, [self._value(argument) for argument in arguments])
            case Default():
                raise SqlSyntaxError("DEFAULT")

    def _system_value(self, scope: VariableScope, name: str) -> str:
        if scope is not VariableScope.GLOBAL and name in self.variables:
            return self.variables[name]
        try:
            return self.server.global_variables()[name]
        except KeyError:
            raise UnknownSystemVariable(name) from None

    def _call(self, name: str, arguments: list[str | int | None]) -> str | int | None:
        match name, arguments:
            case "UNIX_TIMESTAMP", []:
                return int(time.time())
            case "NOW" | "CURRENT_TIMESTAMP", []:
                return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            case "VERSION", []:
                return self._system_value(VariableScope.GLOBAL, "version")
            case "CONNECTION_ID", []:
                return self.connection_id
            case "USER" | "CURRENT_USER" | "SESSION_USER", []:
                return self.account
            case "DATABASE" | "SCHEMA", []:
                return self.database.decode("utf-8", "replace") or None
            case "UUID", []:
                return str(uuid.uuid1())
            case "BINLOG_GTID_POS", [_, _]:
                raise EngineBinlogUnavailable("BINLOG_GTID_POS()")
        raise SqlSyntaxError(f"{name}(")

    # SET

    def _assigned(self, assignment: Assignment) -> str | int | None:
        target, value = assignment.target, assignment.value
        if isinstance(target, SystemVariable):
            name = target.name
            if name not in SESSION_SETTABLE and name not in self.server.global_variables():
                raise UnknownSystemVariable(target.name)
            if name in GLOBAL_SETTABLE:
                if target.scope is not VariableScope.GLOBAL:
                    raise GlobalVariable(name)
                self.require(BINLOG_REPLAY)
            elif name not in SESSION_SETTABLE:
                raise ReadOnlyVariable(name)
            elif target.scope is VariableScope.GLOBAL:
                raise PrivilegeRequired("SUPER")
            if name in NEED_RIGHT:
                self.require(BINLOG_REPLAY)
            if name in NOT_IN_TRANSACTION and self.in_transaction:
                raise GtidInsideTransaction
            if isinstance(value, Default) and name not in GLOBAL_SETTABLE:
                return None
            return as_shown(self._value(value), name)
        return self._value(value)

    def _check_room(self, assignments: Sequence[Assignment]) -> None:
        names = {a.target.name for a in assignments if isinstance(a.target, UserVariable)}
        if len(names | self.user_variables.keys()) > USER_VARIABLES_MAX:
            raise WrongVariableValue("user variables", f"more than {USER_VARIABLES_MAX}")

    def _assign(self, assignment: Assignment, value: str | int | None) -> None:
        target = assignment.target
        if isinstance(target, UserVariable):
            self.user_variables[target.name] = value
        elif value is None:
            self.variables.pop(target.name, None)
        elif target.name in GLOBAL_SETTABLE:
            self.server.set_global(target.name, str(value))
        else:
            self.variables[target.name] = str(value)

    def _assign_along(self, name: str) -> None:
        """The connection's character set and its collation go together."""
        variables = self.variables
        if name == "collation_connection" and name in variables:
            number = collation_numbered(variables[name])
            charset = None if number is None else charset_of(number)
            variables["character_set_connection"] = charset or "utf8mb4"
        elif name == "character_set_connection" and name in variables:
            number = default_collation(variables[name])
            variables["collation_connection"] = collation_name(number)
        elif name in ("collation_connection", "character_set_connection"):
            variables.pop("collation_connection", None)
            variables.pop("character_set_connection", None)

    # SHOW

    def _show_variables(self, statement: ShowVariables) -> ResultSet:
        name_filter = statement.filter
        if statement.status:
            shown = dict(self.server.status_variables())
        else:
            shown = dict(self.server.global_variables())
            if statement.scope is not VariableScope.GLOBAL:
                shown |= self.variables
        rows: list[Sequence[Value]] = [
            (name, value) for name, value in sorted(shown.items()) if _wanted(name, name_filter)
        ]
        return ResultSet([Column.text("Variable_name", 64), Column.text("Value", 4096)], rows)


def _wanted(name: str, name_filter: NameFilter) -> bool:
    if name_filter.names is not None:
        return name.lower() in name_filter.names
    return name_filter.pattern is None or like_matches(name_filter.pattern, name)


def _as_number(value: str, name: str) -> str | int:
    """As SELECT @@name gives it: numbers and booleans are integers."""
    if name in BOOLEANS:
        return int(value == "ON")
    return int(value) if value.isdecimal() and len(value) <= _U64_DIGITS else value


def _printable(label: str) -> str:
    """A column name; bytes in the statement that were not UTF-8 become question marks."""
    return label.encode("utf-8", "replace").decode()


def _master_status(server: ServerView) -> ResultSet:
    file, position, gtid_binlog_pos = server.binlog_status()
    columns = [
        Column.text("File"),
        Column.bigint("Position"),
        Column.text("Binlog_Do_DB"),
        Column.text("Binlog_Ignore_DB"),
        Column.text("Gtid_Binlog_Pos"),
    ]
    return ResultSet(columns, [(file, position, "", "", gtid_binlog_pos)])


def _binary_logs(server: ServerView) -> ResultSet:
    return ResultSet(
        [Column.text("Log_name"), Column.bigint("File_size")], list(server.binary_logs())
    )


def _slave_hosts(server: ServerView) -> ResultSet:
    columns = [
        Column.integer("Server_id"),
        Column.text("Host"),
        Column.integer("Port"),
        Column.integer("Master_id"),
    ]
    return ResultSet(columns, list(server.slave_hosts()))


def _processlist(server: ServerView) -> ResultSet:
    columns = [
        Column.bigint("Id"),
        Column.text("User"),
        Column.text("Host"),
        Column.text("db"),
        Column.text("Command"),
        Column.integer("Time"),
        Column.text("State"),
        Column.text("Info"),
        Column.text("Progress"),
    ]
    return ResultSet(columns, list(server.processlist()))


def _warnings(_: ServerView) -> ResultSet:
    return ResultSet([Column.text("Level"), Column.integer("Code"), Column.text("Message")], [])


_SHOWS: Mapping[Show, Callable[[ServerView], ResultSet]] = {
    Show.MASTER_STATUS: _master_status,
    Show.BINARY_LOGS: _binary_logs,
    Show.SLAVE_HOSTS: _slave_hosts,
    Show.PROCESSLIST: _processlist,
    Show.WARNINGS: _warnings,
}
assert _SHOWS.keys() == set(Show)
