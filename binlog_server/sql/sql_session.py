"""The SQL side of one connection: its variables, privileges, and the diagnostics of its last statement.

A statement in, a result out, without I/O. A statement that waits for a disk gives `Work`, `RowStream` or `Wait` back,
for the loop to run (`sql.runner`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, get_args

from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    Command,
    Debug,
    Refresh,
    RegisterSlave,
    ShutdownCommand,
)
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    LockOrActiveTransaction,
    NotSupportedYet,
    PrivilegeRequired,
    ReadOnlyTransaction,
    ServerError,
    SqlSyntaxError,
    UnknownColumn,
    UnknownServerError,
    UnknownSystemVariable,
    VariableOfScope,
)
from binlog_protocol.events.charsets import charset_of, decode_text
from binlog_protocol.gtid import Gtid
from binlog_storage.errors import StorageError

from binlog_server.accounts.privileges import (
    ALL_PRIVILEGES,
    RELOAD,
    REPLICATION_SLAVE,
    SHUTDOWN,
    suffices,
)
from binlog_server.connections.channel import Traffic
from binlog_server.connections.statement_counts import StatementCounts
from binlog_server.connections.tmp_space import SessionTmpSpace
from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql import events, maintenance
from binlog_server.sql.account_statements import AccountSql
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
from binlog_server.sql.places import Snapshot
from binlog_server.sql.recorded_variables import Reach
from binlog_server.sql.session_settings import is_utf8
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statement import ANYBODY, LOOK_AT_OTHERS, Statement
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.user_locks import SessionLocks
from binlog_server.sql.variables import VARIABLES, inherited
from binlog_server.sql.view import (
    Answer,
    Diagnostics,
    Result,
    Row,
    RowStream,
    ServerView,
    Shown,
    Unfinished,
    text_of,
)
from binlog_server.store.backups import SessionBackup
from binlog_server.tables.rows import Reading
from binlog_server.tables.temporary import TemporaryTables

if TYPE_CHECKING:
    from binlog_server.tables.held import HeldTable

DECODED_BYTES_MAX = 64 * 1024
"""Bytes of user variables that one statement may convert to the client's character set: this is done on the loop."""

NEEDED_FOR_COMMANDS: Final[Mapping[type[Command], tuple[str, ...]]] = {
    # A query's statement says by itself what it needs; COM_PROCESS_KILL looks whose connection it is, as KILL does.
    **dict.fromkeys(get_args(Command), ANYBODY),
    Debug: ("SUPER",),
    Refresh: (RELOAD,),
    ShutdownCommand: (SHUTDOWN,),
    **dict.fromkeys((RegisterSlave, BinlogDump, BinlogDumpGtid), (REPLICATION_SLAVE,)),
}
"""The privileges of which any one will do."""


_MAY_CREATE: Final = frozenset({"CREATE", ALL_PRIVILEGES})


def _nothing_to_read(_: bool) -> Reading:
    raise NotSupportedYet("SELECT of tables, without a transaction")


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
    status: Mapping[str, str] = field(default_factory=dict)  # of its connection, in SHOW STATUS
    counts: StatementCounts = field(default_factory=StatementCounts)
    traffic: Traffic = field(default_factory=Traffic)
    in_transaction: Callable[[], bool] = lambda: False
    has_locked_tables: Callable[[], bool] = lambda: False  # LOCK TABLES holds
    # What a SELECT of tables that are here reads, and its transaction keeps; False: one that is only prepared, or CHECK
    # TABLE, for which nothing is kept.
    reading: Callable[[bool], Reading] = _nothing_to_read
    # To be called when a statement that is no SET has SET some.
    variables_changed: Callable[[], None] = lambda: None
    locks: SessionLocks = field(init=False)
    backup: SessionBackup = field(init=False)
    tmp_space: SessionTmpSpace = field(init=False)
    temporary: TemporaryTables = field(init=False)  # its CREATE TEMPORARY TABLEs
    last_gtid: Gtid | None = None  # of the last group that the session has committed
    found_rows: int = 1  # of the last result, without its LIMIT if the statement asks for that
    row_count: int = 0  # that the statement before has changed; -1 behind a result or an error
    changed_rows: int = 0  # the same of the running one
    snapshot: Snapshot | None = (
        None  # of the open transaction, if it was begun WITH CONSISTENT SNAPSHOT
    )
    next_read_only: bool | None = None  # SET TRANSACTION READ ONLY or READ WRITE
    # Of the open transaction, or else of the next, where it is not that of `variables`.
    isolation: str | None = None
    # The session variables that the running statement has SET, in its order, for session tracking.
    assigned: list[str] = field(default_factory=list)
    is_to_commit: bool = False  # SET has turned autocommit on, which commits what is open
    database: bytes = b""  # in UTF-8
    # The names of variables that were SET, and "" for the database, since `sessions.state_changes` looked.
    # No set: an empty one takes 216 bytes in each session.
    changed: dict[str, None] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    coordinates: Coordinates = AS_STORED
    version: str = ""  # that the account's sessions see; empty: the server's
    program: str = ""  # as the client calls itself
    accounts: AccountSql | None = (
        None  # the accounts of the server; a session of tests may be without
    )
    _is_about_diagnostics: bool = False
    _is_counted: bool = False
    _texts: StateTexts | None = None  # the binlog state that the running statement shows
    _told: Diagnostics = field(default_factory=Diagnostics)  # those that SHOW WARNINGS would show
    _forgets_warnings: bool = True  # the running statement uses tables, as far as is known
    _decoded: dict[HeldValue, Value] = field(default_factory=dict)  # converted by this statement
    _decoded_bytes: int = 0

    def __post_init__(self) -> None:
        self.locks = SessionLocks(self.server.user_locks, self.connection_id)
        self.backup = SessionBackup(self.server.backups, self.server.engine)
        self.tmp_space = self.server.tmp_space.session(self.connection_id, self._tmp_space_limit)
        self.temporary = TemporaryTables(self.server.tables)
        self.variables.update({**inherited(self.server), **self.login})

    def _tmp_space_limit(self) -> int:
        return int(
            self.variables.get("max_tmp_session_space_usage")
            or self.server.config.max_tmp_session_space_usage
        )

    def forget(self) -> None:
        """Forget the user variables and what is meant for later statements: the session has ended."""
        self.locks.close()
        self.backup.close()
        self.temporary.close()
        self.user_variables.clear()
        self.next_read_only = self.isolation = None
        self.variable_bytes = 0
        self._texts = None

    def reset(self) -> None:
        """COM_RESET_CONNECTION: all variables are again as a login would set them now."""
        self.locks.release_all()
        self.temporary.close()
        self.backup.lock = ""
        self.backup.end()
        self.user_variables.clear()
        self.next_read_only = self.isolation = None
        self.last_gtid = None
        self.found_rows, self.changed_rows = 1, 0
        self.variables = {**inherited(self.server), **self.login}
        self.variable_bytes = 0
        self._told, self.diagnostics = Diagnostics(), Diagnostics()
        self.changed.clear()

    def may(self, *privileges: str) -> bool:
        """Whether the account may do what needs any one of these privileges."""
        return suffices(self.grants, privileges)

    def find_table(self, database: str, name: str) -> HeldTable | None:
        """The table that is here, as this session sees it: its temporary one, or else the one of all."""
        return self.temporary.find(database, name) or self.server.tables.find(database, name)

    @property
    def makes_databases(self) -> bool:
        """Whether its CREATE DATABASE makes one here: then what it changes is logged as rows, and it sends no text."""
        return self.server.config.local_tables and not self.grants.isdisjoint(_MAY_CREATE)

    def require(self, *privileges: str) -> None:
        """Raises `PrivilegeRequired` (1227) unless the account has any one of these privileges."""
        if not self.may(*privileges):
            raise PrivilegeRequired(", ".join(privileges))

    def execute(self, text: str) -> Answer:
        """Parse and run a statement: the result, the work that is left, or None for OK. Raises `ServerError`.

        What a thread reads and computes of a statement elsewhere is done at once.
        """
        self.begin()
        result = self.run(lambda: parse(text))
        while isinstance(result, Unfinished):
            result = self.run(result.run)
        return result

    def begin(self) -> None:
        """A statement begins, here or on the commit side: from now on the diagnostics are its own.

        One that used no tables and had nothing to tell leaves those before it, as in MariaDB: COMMIT, or what a driver
        asks, between an INSERT and SHOW WARNINGS.
        """
        if self.diagnostics or self._forgets_warnings:
            self._told = self.diagnostics
        self.diagnostics, self._forgets_warnings = Diagnostics(), True
        self.row_count, self.changed_rows = self.changed_rows, 0
        self._is_about_diagnostics = self._is_counted = False
        self._texts = None
        self.assigned.clear()

    def use_no_tables(self) -> None:
        """The running statement, which is of the commit side, uses none: see `begin`."""
        self._forgets_warnings = False

    def failed(self, error: ServerError) -> None:
        """The statement has ended with this error, here or on the commit side: SHOW WARNINGS shows it."""
        self.diagnostics.failed(error)
        self.changed_rows = -1

    def answered(self, rows: int) -> None:
        """The statement ends with a result of so many rows."""
        self.found_rows, self.changed_rows = rows, -1

    def warn(self, told: ServerError) -> None:
        """Add a warning to the diagnostics of the running statement."""
        self.diagnostics.warn(told)

    @property
    def is_strict(self) -> bool:
        """Whether SET of a number beyond its limits is an error."""
        return "STRICT_ALL_TABLES" in self.variables.get("sql_mode", "").split(",")

    @property
    def server_version(self) -> str:
        """The version that the server says it has."""
        return self.version or self.server.config.server_version

    def describe(self, statement: Statement) -> Result:
        """What `Statement.described` gives, as `run`."""
        return self._run(lambda: statement, lambda found: found.described(self), is_run=False)

    def run(self, parsed: Callable[[], Statement]) -> Result:
        """Run a statement after `begin`; as `execute`, with the parsing left to the caller, who runs what it gives
        where it is `Unfinished`.

        Args:
            parsed: gives the statement, or raises the `ServerError` of parsing it.
        """
        return self._run(parsed, lambda statement: statement.answer(self))

    def _run(
        self,
        parsed: Callable[[], Statement],
        answer: Callable[[Statement], Result],
        *,
        is_run: bool = True,
    ) -> Result:
        try:
            statement = parsed()
            self._is_about_diagnostics = statement.is_about_diagnostics
            self._forgets_warnings = statement.forgets_warnings
            if self._is_about_diagnostics:
                self.diagnostics = self._told
            if is_run and not self._is_counted:
                self._is_counted = True  # also if the rest of it is run in its place
                self.counts.command(statement.counted_as)
            self.require_for(statement)
            result = answer(statement)
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

    def require_for(self, statement: Statement | Command) -> None:
        """Raises `PrivilegeRequired` (1227) if the account may not do this at all; 1290 if nobody may: the
        store is served as it lies.

        Statements that are free for one's own pass: they check by themselves whose connection it is.
        """
        if not isinstance(statement, Statement):
            self.require(*NEEDED_FOR_COMMANDS[type(statement)])
        elif not statement.is_free_for_ones_own:
            self.require(*statement.needs)
        if isinstance(statement, Statement) and statement.changes_store:
            self.server.publisher.require_writable()

    @property
    def reads_only(self) -> bool:
        """Whether SET SESSION TRANSACTION READ ONLY holds."""
        return self.variables.get("tx_read_only") == "ON"

    def require_writing(self) -> None:
        """For changes of accounts and LOCK TABLES ... WRITE. Raises 1792 where the session only reads."""
        if self.reads_only:
            raise ReadOnlyTransaction()

    def require_no_transaction(self) -> None:
        """Raises 1192 within a transaction."""
        if self.in_transaction():
            raise LockOrActiveTransaction()

    def require_no_locked_tables(self) -> None:
        """Raises 1192 while LOCK TABLES holds."""
        if self.has_locked_tables():
            raise LockOrActiveTransaction()

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

        Raises `UnknownSystemVariable` (1193), `VariableOfScope` (1238) for a scope that a variable does not have,
        `SqlSyntaxError` (1064) for an unknown function, 1105 beyond `DECODED_BYTES_MAX`.
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
        """The value of a user variable: a string is the text that its bytes are in its character set."""
        held = self.user_variables.get(name, _UNSET)
        value, collation = held
        if not isinstance(value, str) or value.isascii():
            return value
        if is_utf8(charset_of(collation) or "binary"):
            return value
        # Kept, because one statement may name the variable 256 times.
        if held not in self._decoded:
            raw = value.encode("utf-8", "surrogateescape")
            self._decoded_bytes += len(raw)
            if self._decoded_bytes > DECODED_BYTES_MAX:
                raise UnknownServerError(
                    f"user variables of more than {DECODED_BYTES_MAX} bytes in another character set"
                )
            text = decode_text(raw, collation)
            self._decoded[held] = text if isinstance(text, str) else value
        return self._decoded[held]

    def global_value(self, name: str) -> str:
        """The global value of a system variable. Raises `UnknownSystemVariable` (1193)."""
        return self._system_value(Scope.GLOBAL, name)

    def shown_value(self, name: str) -> str | None:
        """The session's value of a variable, as SHOW VARIABLES prints it; None if there is no such variable."""
        try:
            return self._system_value(Scope.DEFAULT, name)
        except ServerError:
            return None

    def system_variables(self, *, globally: bool) -> dict[str, Shown]:
        """The values that SHOW GLOBAL VARIABLES (`globally`) or SHOW SESSION VARIABLES shows, by name."""
        shown: dict[str, Shown] = {}
        for variable in VARIABLES.values():
            if variable.is_shown and (not globally or variable.reach is not Reach.SESSION_ONLY):
                value = variable.read(self) if globally else variable.read_here(self)
                if value is not None:
                    shown[variable.shown] = value
        return shown

    def processes(self) -> list[Row]:
        """The rows of SHOW FULL PROCESSLIST: those that this session may see, and upstreams that are followed."""
        connections = self.server.connections
        if not self.may(*LOOK_AT_OTHERS):
            return list(connections.processlist(self.user))
        upstreams = (c.process for c in self.server.relay.connections if c.runs)
        return [*upstreams, *connections.processlist(None)]

    def clock(self) -> Clock:
        """The session's time: that of SET timestamp, or now, in its time_zone. Raises `UnknownTimeZone` (1298)."""
        timestamp = self.variables.get("timestamp", "")
        zone = self._system_value(Scope.SESSION, "time_zone")
        return Clock.of(timestamp, zone, time.time())

    def _system_value(self, scope: Scope, name: str) -> str:
        variable = VARIABLES.get(name)
        if variable is None:
            raise UnknownSystemVariable(name)
        is_global = scope is Scope.GLOBAL
        value = variable.read(self) if is_global else variable.read_here(self)
        if value is None:
            raise UnknownSystemVariable(name)
        if is_global and variable.reach is Reach.SESSION_ONLY:
            raise VariableOfScope(name, "SESSION")
        if scope is Scope.SESSION and variable.reach is Reach.GLOBAL:
            raise VariableOfScope(name, "GLOBAL")
        return text_of(value)


def _mapped(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    try:
        yield from batches
    except StorageError as error:
        raise events.failed(error) from error


_UNSET = HeldValue(None)
