"""The SQL side of one connection: what it has set and may do, and what its last statement has told.

A statement in, a result out; no I/O of its own. What waits for a disk is given back as `Work`, `RowStream` or `Wait`,
for whoever owns the loop to run. Which statement does what is said in `sql.answers`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from binlog_protocol.connection.commands import Command
from binlog_protocol.errors import (
    PacketTooBig,
    PrivilegeRequired,
    ReadOnlyVariable,
    ServerError,
    SqlSyntaxError,
    UnknownSystemVariable,
)
from binlog_protocol.errors.sql_errors import UnknownColumn
from binlog_protocol.events.charsets import charset_of, decode_text
from binlog_storage.errors import StorageError

from binlog_server.accounts.privileges import suffices
from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql import events, maintenance
from binlog_server.sql.answers import answer, shows_state
from binlog_server.sql.functions import call
from binlog_server.sql.needed_privileges import OF_ONES_OWN, PRIVILEGES, subject
from binlog_server.sql.parser import parse
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statements import (
    ColumnName,
    Default,
    Expression,
    Function,
    HeldValue,
    Literal,
    Select,
    ShowDiagnostics,
    Statement,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.statements import Scope as VariableScope
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.variables import VARIABLES, Reach
from binlog_server.sql.view import (
    Diagnostic,
    Level,
    Result,
    Row,
    RowStream,
    ServerView,
    Shown,
    text_of,
)

DIAGNOSTICS_MAX = 64  # as max_error_count
DECODED_BYTES_MAX = 64 * 1024
"""Of the texts in other character sets than the client's that one statement reads: it is done on the loop."""


@dataclass(slots=True)
class SqlSession:
    """The SQL side of one connection: its variables, and what its statements give.

    `login` are the variables that the login has set, `in_transaction` and `database` for whoever commits to keep.
    `diagnostics` are those of the last statement that was not about them; `coordinates` how the session speaks of files
    and positions.
    """

    server: ServerView
    connection_id: int
    account: str
    current_user: str = ""  # name and host of the account that this is by login; empty: `account`
    user_variables: dict[str, HeldValue] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    variable_bytes: int = 0
    grants: frozenset[str] = frozenset()
    login: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)  # of SHOW STATUS, of this session alone
    in_transaction: bool = False
    next_read_only: bool | None = (
        None  # SET TRANSACTION READ ONLY or READ WRITE, until one has ended
    )
    database: bytes = b""  # in UTF-8
    diagnostics: list[Diagnostic] = field(default_factory=list)
    coordinates: Coordinates = AS_STORED
    _is_about_diagnostics: bool = False
    _texts: StateTexts | None = None  # that the statement shows
    _told: list[Diagnostic] = field(default_factory=list)  # of the statement before
    _decoded: dict[HeldValue, Value] = field(default_factory=dict)  # what the statement has read
    _decoded_bytes: int = 0

    def __post_init__(self) -> None:
        self.variables.update(self.login)

    def forget(self) -> None:
        """The session has ended: nothing that it was told is kept."""
        self.user_variables.clear()
        self.next_read_only = None
        self.variable_bytes = 0
        self._texts = None

    def reset(self) -> None:
        """As COM_RESET_CONNECTION: all variables of the session are forgotten."""
        self.user_variables.clear()
        self.next_read_only = None
        self.variables = dict(self.login)
        self.variable_bytes = 0
        self.diagnostics.clear()

    def may(self, *privileges: str) -> bool:
        """Whether what the account has suffices, where any of these is needed."""
        return suffices(self.grants, privileges)

    def require(self, *privileges: str) -> None:
        """Raises `PrivilegeRequired` (1227)."""
        if not self.may(*privileges):
            raise PrivilegeRequired(", ".join(privileges))

    def execute(self, text: str) -> Result:
        """The result, or None for OK. Raises `ServerError`."""
        self.begin()
        return self.run(lambda: parse(text))

    def begin(self) -> None:
        """A statement, whoever runs it: diagnostics are its own from now on."""
        self._told, self.diagnostics = self.diagnostics, []
        self._is_about_diagnostics = False
        self._texts = None

    def failed(self, error: ServerError) -> None:
        """The statement has ended so, whoever ran it: SHOW WARNINGS tells it."""
        self.diagnostics.append(Diagnostic(Level.ERROR, error.errno, error.message))
        del self.diagnostics[DIAGNOSTICS_MAX:]

    def warn(self, code: int, text: str) -> None:
        """SHOW WARNINGS tells it."""
        self.diagnostics.append(Diagnostic(Level.WARNING, code, text))

    def run(self, parsed: Callable[[], Statement]) -> Result:
        """As `execute`, of a statement that was begun, and that may have been parsed elsewhere."""
        try:
            statement = parsed()
            self._is_about_diagnostics = _asks_for_diagnostics(statement)
            if self._is_about_diagnostics:
                self.diagnostics = self._told
            self.require_for(statement)
            result = answer(self, statement)
        except StorageError as error:
            raise maintenance.server_error(error) from error
        finally:
            self._texts = None
            self._decoded.clear()
            self._decoded_bytes = 0
        if isinstance(result, RowStream):
            return RowStream(result.columns, _mapped(result.batches))
        return result

    def long_texts(self, statement: Statement) -> StateTexts | None:
        """What is to be made in a thread before `run` of that statement, which shows it. Raises `PrivilegeRequired`."""
        if not shows_state(statement):
            return None
        self.require_for(statement)
        texts = self._texts = self.server.state_texts()
        return None if texts.is_short or texts.is_made else texts

    @property
    def state_texts(self) -> StateTexts:
        """Of the state that the statement shows."""
        return self._texts or self.server.state_texts()

    @property
    def made_texts(self) -> StateTexts | None:
        """The same, where `long_texts` has looked for them."""
        return self._texts

    @property
    def shows_long_state(self) -> bool:
        """Whether what the statement shows has texts that take time to look into."""
        return self._texts is not None and not self._texts.is_short

    def require_for(self, statement: Statement | Command) -> None:
        """Raises `PrivilegeRequired` (1227). What is allowed of one's own is left to the statement."""
        key = subject(statement)
        if key not in OF_ONES_OWN:
            self.require(*PRIVILEGES[key])

    def require_no_upstream(self) -> None:
        """What the history is cannot be changed while it comes from elsewhere: 1198."""
        self.server.relay.require_stopped()

    @property
    def master_connection(self) -> str:
        """The connection that statements without a name mean."""
        return self.variables.get("default_master_connection", "")

    @property
    def warning_count(self) -> int:
        """Of the last statement, for its answer."""
        return 0 if self._is_about_diagnostics else len(self.diagnostics)

    @property
    def user(self) -> str:
        """The user's name, without the host."""
        return self.account.rpartition("@")[0]

    def value_of(self, expression: Expression) -> Value:
        """Raises `UnknownSystemVariable` (1193), `ReadOnlyVariable` (1238) for a scope that a variable does not have,
        `SqlSyntaxError` for a function that there is not, `PacketTooBig` (1153) beyond `DECODED_BYTES_MAX`."""
        match expression:
            case Literal(value):
                return value
            case UserVariable(name):
                return self._user_value(name)
            case SystemVariable(scope, name):
                text = self._system_value(scope, name)
                return VARIABLES[name].kind.selected(text)
            case Function(name, arguments):
                return call(self, name, [self.value_of(argument) for argument in arguments])
            case ColumnName(name):
                raise UnknownColumn(name, "SELECT")
            case Default():
                raise SqlSyntaxError("DEFAULT")

    def _user_value(self, name: str) -> Value:
        """A string comes in the client's character set, where that is UTF-8; else in the one that it has."""
        held = self.user_variables.get(name, _UNSET)
        value, collation = held
        if not isinstance(value, str) or value.isascii():
            return value
        client = self.variables.get("character_set_client", "utf8mb4")
        if charset_of(collation) in (client, "binary") or not client.startswith("utf8"):
            return value
        # One statement may name it 256 times.
        if held not in self._decoded:
            raw = value.encode("utf-8", "surrogateescape")
            self._decoded_bytes += len(raw)
            if self._decoded_bytes > DECODED_BYTES_MAX:
                raise PacketTooBig
            text = decode_text(raw, collation)
            self._decoded[held] = text if isinstance(text, str) else value
        return self._decoded[held]

    def global_value(self, name: str) -> str:
        """Of a system variable. Raises `UnknownSystemVariable` (1193)."""
        return self._system_value(VariableScope.GLOBAL, name)

    def system_variables(self, *, globally: bool) -> dict[str, Shown]:
        """What SHOW VARIABLES shows: of the server alone, or as the session has them."""
        shown: dict[str, Shown] = {}
        for name, variable in VARIABLES.items():
            if not globally or variable.reach is not Reach.SESSION_ONLY:
                value = variable.read(self)
                if value is not None:
                    shown[name] = value
        return shown if globally else {**shown, **self.variables}

    def clock(self) -> Clock:
        """What time it is for this session: SET timestamp and time_zone. Raises `UnknownTimeZone` (1298)."""
        timestamp = self.variables.get("timestamp", "")
        zone = self._system_value(VariableScope.SESSION, "time_zone")
        return Clock.of(timestamp, zone, time.time())

    def _system_value(self, scope: VariableScope, name: str) -> str:
        variable = VARIABLES.get(name)
        value = None if variable is None else variable.read(self)
        if variable is None or value is None:
            raise UnknownSystemVariable(name)
        if scope is VariableScope.GLOBAL and variable.reach is Reach.SESSION_ONLY:
            raise ReadOnlyVariable(name, "SESSION")
        if scope is VariableScope.SESSION and variable.reach is Reach.GLOBAL:
            raise ReadOnlyVariable(name, "GLOBAL")
        if scope is not VariableScope.GLOBAL and name in self.variables:
            return self.variables[name]
        return text_of(value)


def _mapped(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    try:
        yield from batches
    except StorageError as error:
        raise events.failed(error) from error


_UNSET = HeldValue(None)
_DIAGNOSTIC_COUNTS = ("warning_count", "error_count")


def _asks_for_diagnostics(statement: Statement) -> bool:
    """SHOW WARNINGS, SELECT @@warning_count."""
    return isinstance(statement, ShowDiagnostics) or (
        isinstance(statement, Select)
        and any(
            isinstance(item.expression, SystemVariable)
            and item.expression.name in _DIAGNOSTIC_COUNTS
            for item in statement.items
        )
    )
