"""The SQL side of one connection: its variables, privileges, and the diagnostics of its last statement.

A statement in, a result out, without I/O. A statement that waits for a disk gives `Work`, `RowStream` or `Wait` back,
for the loop to run (`sql.runner`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    Command,
    InitDatabase,
    Ping,
    Query,
    Quit,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    StatisticsCommand,
    UnknownCommand,
)
from binlog_protocol.errors import (
    PacketTooBig,
    PrivilegeRequired,
    ReadOnlyVariable,
    ServerError,
    SqlSyntaxError,
    UnknownSystemVariable,
)
from binlog_protocol.errors.sql_errors import UnknownColumn
from binlog_protocol.errors.transaction_errors import LockOrActiveTransaction
from binlog_protocol.events.charsets import charset_of, decode_text
from binlog_storage.errors import StorageError

from binlog_server.accounts.privileges import RELOAD, REPLICATION_SLAVE, suffices
from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql import events, maintenance
from binlog_server.sql.account_sql import AccountSql
from binlog_server.sql.expressions import (
    ColumnName,
    Default,
    Expression,
    Function,
    HeldValue,
    Literal,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.functions import call
from binlog_server.sql.parser import parse
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statement import ANYBODY, Statement
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

DIAGNOSTICS_MAX = 64  # rows of SHOW WARNINGS; the default of MariaDB's max_error_count
DECODED_BYTES_MAX = 64 * 1024
"""Bytes of user variables that one statement may convert to the client's character set: this is done on the loop."""

NEEDED_FOR_COMMANDS: Mapping[type[Command], tuple[str, ...]] = {
    Query: ANYBODY,  # its statement says it
    InitDatabase: ANYBODY,
    Ping: ANYBODY,
    Quit: ANYBODY,
    ResetConnection: ANYBODY,
    SetOption: ANYBODY,
    StatisticsCommand: ANYBODY,
    UnknownCommand: ANYBODY,
    Refresh: (RELOAD,),
    RegisterSlave: (REPLICATION_SLAVE,),
    BinlogDump: (REPLICATION_SLAVE,),
    BinlogDumpGtid: (REPLICATION_SLAVE,),
}
"""The privileges of which any one will do."""


@dataclass(slots=True)
class SqlSession:
    """The SQL side of one connection: its variables, and the results of its statements.

    `login` are the variables that the login has set. `in_transaction` is the commit side's, which sets `database`, too.
    `diagnostics` are those of the last statement that was not about diagnostics. `coordinates` is the form in which the
    session shows files and positions.
    """

    server: ServerView
    connection_id: int
    account: str
    current_user: str = ""  # name@host of the account that the login matched; empty: `account`
    user_variables: dict[str, HeldValue] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    variable_bytes: int = 0
    grants: frozenset[str] = frozenset()
    login: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)  # the session's own rows of SHOW STATUS
    in_transaction: Callable[[], bool] = lambda: False
    next_read_only: bool | None = None  # SET TRANSACTION READ ONLY or READ WRITE
    is_to_commit: bool = False  # SET has turned autocommit on, which commits what is open
    database: bytes = b""  # in UTF-8
    diagnostics: list[Diagnostic] = field(default_factory=list)
    coordinates: Coordinates = AS_STORED
    accounts: AccountSql | None = (
        None  # the accounts of the server; a session of tests may be without
    )
    _is_about_diagnostics: bool = False
    _texts: StateTexts | None = None  # the binlog state that the running statement shows
    _told: list[Diagnostic] = field(default_factory=list)  # the previous statement's diagnostics
    _decoded: dict[HeldValue, Value] = field(default_factory=dict)  # converted by this statement
    _decoded_bytes: int = 0

    def __post_init__(self) -> None:
        self.variables.update(self.login)

    def forget(self) -> None:
        """Forget the user variables and what is meant for later statements: the session has ended."""
        self.user_variables.clear()
        self.next_read_only = None
        self.variable_bytes = 0
        self._texts = None

    def reset(self) -> None:
        """COM_RESET_CONNECTION: all variables are again as the login has set them."""
        self.user_variables.clear()
        self.next_read_only = None
        self.variables = dict(self.login)
        self.variable_bytes = 0
        self.diagnostics.clear()

    def may(self, *privileges: str) -> bool:
        """Whether the account may do what needs any one of these privileges."""
        return suffices(self.grants, privileges)

    def require(self, *privileges: str) -> None:
        """Raises `PrivilegeRequired` (1227) unless the account has any one of these privileges."""
        if not self.may(*privileges):
            raise PrivilegeRequired(", ".join(privileges))

    def execute(self, text: str) -> Result:
        """Parse and run a statement: the result, the work that is left, or None for OK. Raises `ServerError`."""
        self.begin()
        return self.run(lambda: parse(text))

    def begin(self) -> None:
        """A statement begins, here or on the commit side: from now on the diagnostics are its own."""
        self._told, self.diagnostics = self.diagnostics, []
        self._is_about_diagnostics = False
        self._texts = None

    def failed(self, error: ServerError) -> None:
        """The statement has ended with this error, here or on the commit side: SHOW WARNINGS shows it."""
        self.diagnostics.append(Diagnostic(Level.ERROR, error.errno, error.message))
        del self.diagnostics[DIAGNOSTICS_MAX:]

    def warn(self, code: int, text: str) -> None:
        """Add a warning to the diagnostics of the running statement."""
        self.diagnostics.append(Diagnostic(Level.WARNING, code, text))

    def run(self, parsed: Callable[[], Statement]) -> Result:
        """Run a statement after `begin`; as `execute`, with the parsing left to the caller.

        Args:
            parsed: gives the statement, or raises the `ServerError` of parsing it.
        """
        try:
            statement = parsed()
            self._is_about_diagnostics = statement.is_about_diagnostics
            if self._is_about_diagnostics:
                self.diagnostics = self._told
            self.require_for(statement)
            result = statement.answer(self)
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
        """The texts that a thread must make before `run` of this statement, which shows them; None if there are none.

        Raises `PrivilegeRequired` (1227).
        """
        if not statement.shows_state:
            return None
        self.require_for(statement)
        texts = self._texts = self.server.state_texts()
        return None if texts.is_short or texts.is_made else texts

    @property
    def state_texts(self) -> StateTexts:
        """The texts of the binlog state that the running statement shows."""
        return self._texts or self.server.state_texts()

    @property
    def made_texts(self) -> StateTexts | None:
        """The texts that `long_texts` has found for the running statement; None if it was not called."""
        return self._texts

    @property
    def shows_long_state(self) -> bool:
        """Whether the running statement shows a binlog state so long that searching its text takes milliseconds."""
        return self._texts is not None and not self._texts.is_short

    def require_for(self, statement: Statement | Command) -> None:
        """Raises `PrivilegeRequired` (1227) if the account may not do this at all.

        Statements that are free for one's own pass: they check by themselves whose connection it is.
        """
        if not isinstance(statement, Statement):
            self.require(*NEEDED_FOR_COMMANDS[type(statement)])
        elif not statement.is_free_for_ones_own:
            self.require(*statement.needs)

    def require_no_transaction(self) -> None:
        """Raises 1192 within a transaction."""
        if self.in_transaction():
            raise LockOrActiveTransaction

    def require_no_upstream(self) -> None:
        """Raises 1198 while an upstream is followed: the history cannot be SET while groups come in."""
        self.server.relay.require_stopped()

    @property
    def master_connection(self) -> str:
        """The upstream's connection that statements without a name mean: `default_master_connection`."""
        return self.variables.get("default_master_connection", "")

    @property
    def warning_count(self) -> int:
        """The number of warnings in the answer to the last statement."""
        return 0 if self._is_about_diagnostics else len(self.diagnostics)

    @property
    def user(self) -> str:
        """The user's name, without the host."""
        return self.account.rpartition("@")[0]

    def value_of(self, expression: Expression) -> Value:
        """The value of a constant, variable or function.

        Raises `UnknownSystemVariable` (1193), `ReadOnlyVariable` (1238) for a scope that a variable does not have,
        `SqlSyntaxError` (1064) for an unknown function, `PacketTooBig` (1153) beyond `DECODED_BYTES_MAX`.
        """
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
        """The value of a user variable. A string is converted to the client's character set if that is a UTF-8."""
        held = self.user_variables.get(name, _UNSET)
        value, collation = held
        if not isinstance(value, str) or value.isascii():
            return value
        client = self.variables.get("character_set_client", "utf8mb4")
        if charset_of(collation) in (client, "binary") or not client.startswith("utf8"):
            return value
        # Kept, because one statement may name the variable 256 times.
        if held not in self._decoded:
            raw = value.encode("utf-8", "surrogateescape")
            self._decoded_bytes += len(raw)
            if self._decoded_bytes > DECODED_BYTES_MAX:
                raise PacketTooBig
            text = decode_text(raw, collation)
            self._decoded[held] = text if isinstance(text, str) else value
        return self._decoded[held]

    def global_value(self, name: str) -> str:
        """The global value of a system variable. Raises `UnknownSystemVariable` (1193)."""
        return self._system_value(Scope.GLOBAL, name)

    def system_variables(self, *, globally: bool) -> dict[str, Shown]:
        """The values that SHOW GLOBAL VARIABLES (`globally`) or SHOW SESSION VARIABLES shows, by name."""
        shown: dict[str, Shown] = {}
        for name, variable in VARIABLES.items():
            if not globally or variable.reach is not Reach.SESSION_ONLY:
                value = variable.read(self)
                if value is not None:
                    shown[name] = value
        return shown if globally else {**shown, **self.variables}

    def clock(self) -> Clock:
        """The session's time: that of SET timestamp, or now, in its time_zone. Raises `UnknownTimeZone` (1298)."""
        timestamp = self.variables.get("timestamp", "")
        zone = self._system_value(Scope.SESSION, "time_zone")
        return Clock.of(timestamp, zone, time.time())

    def _system_value(self, scope: Scope, name: str) -> str:
        variable = VARIABLES.get(name)
        value = None if variable is None else variable.read(self)
        if variable is None or value is None:
            raise UnknownSystemVariable(name)
        if scope is Scope.GLOBAL and variable.reach is Reach.SESSION_ONLY:
            raise ReadOnlyVariable(name, "SESSION")
        if scope is Scope.SESSION and variable.reach is Reach.GLOBAL:
            raise ReadOnlyVariable(name, "GLOBAL")
        if scope is not Scope.GLOBAL and name in self.variables:
            return self.variables[name]
        return text_of(value)


def _mapped(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    try:
        yield from batches
    except StorageError as error:
        raise events.failed(error) from error


_UNSET = HeldValue(None)
