"""SHOW of the server and of the session, and XA RECOVER, in MariaDB's columns. Other families have their own SHOW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import UnknownXaFormat
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.results import CHARSET_BINARY, FLAG_BINARY, FLAG_NOT_NULL, Column, Value

from binlog_server.accounts.privileges import SINGLE, USAGE
from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.queries.like import like_matches
from binlog_server.sql import places
from binlog_server.sql.expressions import NO_LIMIT, Limit, Scope
from binlog_server.sql.little_tables import VISIBLE, engines, held_databases
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import (
    ANYBODY,
    LOOK,
    LOOK_AT_OTHERS,
    LOOK_AT_REPLICAS,
    Family,
    Rules,
    Statement,
)
from binlog_server.sql.status_variables import shown_status
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Level, Result, ResultSet, Row, Shown, Work, text_of

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

_BYTES: Final = FLAG_NOT_NULL | FLAG_BINARY
_PATTERN_CHARS_AT_ONCE: Final = 1024
_INFO_CHARS: Final = 100  # characters of a statement in SHOW PROCESSLIST without FULL
_PRIVILEGES: Final[Mapping[str, str]] = {
    "SELECT": "To read rows of tables that are here",
    "INSERT": "To insert rows into tables that are here",
    "UPDATE": "To change rows of tables that are here",
    "DELETE": "To delete rows of tables that are here",
    "CREATE": "To create databases and tables here",
    "DROP": "To drop and to empty databases and tables that are here",
    "RELOAD": "To use FLUSH, RESET MASTER, RESET SLAVE and RELOAD CONFIGURATION",
    "SHUTDOWN": "To end the server",
    "PROCESS": "To see the connections of others in SHOW PROCESSLIST",
    "INDEX": "To add and to drop keys of tables that are here",
    "ALTER": "To alter and to rename tables that are here",
    "SUPER": "To do most of what the others are for, as in MariaDB 10.11",
    "CREATE TEMPORARY TABLES": "To make temporary tables in databases that are here",
    "REPLICATION SLAVE": "To replicate from this server",
    "BINLOG MONITOR": "To see the state of the binlog and its files",
    "CREATE USER": "To make, change and drop accounts",
    "BINLOG ADMIN": "To purge binary logs and to set variables of the binlog",
    "BINLOG REPLAY": "To commit SQL under any GTID; and all but CREATE USER, REPLICATION SLAVE, SHUTDOWN and "
    "BINLOG FAULT",
    "BINLOG FAULT": "To use CREATE BINLOG FAULT, on a server for tests",
    "CONNECTION ADMIN": "To kill connections of others and to set how many there may be",
    "READ_ONLY ADMIN": "To set read_only",
    "REPLICATION SLAVE ADMIN": "To use CHANGE MASTER, START SLAVE and STOP SLAVE",
    "REPLICATION MASTER ADMIN": "To see the replicas and to set semi-sync",
    "SLAVE MONITOR": "To use SHOW SLAVE STATUS",
}
assert set(_PRIVILEGES) == set(SINGLE)


class Filterable(Statement):
    """A SHOW that may have a WHERE: see `table_shows.ShowWhere`."""

    __slots__ = ()
    uses_tables = True

    def shown(self, session: SqlSession) -> ResultSet:
        """What it shows; values that are costly to make are made when they are read. By any thread."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ShowVariables(Filterable):
    """SHOW VARIABLES, or SHOW STATUS when `status`; `pattern` is that of LIKE."""

    syntax = '"SHOW"i [scope] of_status [like]'
    needs = ANYBODY
    only_looks = True

    status: bool
    pattern: str = "%"
    scope: Scope = Scope.DEFAULT

    @classmethod
    def built(cls, children: list[Any]) -> ShowVariables:
        scope, status, pattern = children
        return cls(status, "%" if pattern is None else pattern, scope or Scope.DEFAULT)

    @property
    def counted_as(self) -> str:
        return "show_status" if self.status else "show_variables"

    @property
    def shows_state(self) -> bool:
        return not self.status and (
            self._is_long or any(like_matches(self.pattern, name) for name in STATE_VARIABLES)
        )

    @property
    def _is_long(self) -> bool:
        """Whether to look through all variables takes milliseconds, so that a thread does it."""
        return len(self.pattern) > _PATTERN_CHARS_AT_ONCE

    def answer(self, session: SqlSession) -> Result:
        shown = self.shown(session)

        def matching() -> ResultSet:
            rows = [tuple(row) for row in shown.rows if like_matches(self.pattern, str(row[0]))]
            return ResultSet(shown.columns, list(rows))

        return Work(matching) if self._is_long else matching()

    def shown(self, session: SqlSession) -> ResultSet:
        found: Mapping[str, Shown]
        if self.status:
            found = shown_status(session, globally=self.scope is Scope.GLOBAL)
            table = "SESSION_STATUS"
        else:
            found = session.system_variables(globally=self.scope is Scope.GLOBAL)
            table = "SESSION_VARIABLES"
        columns = [
            Column.text("Variable_name", 64).of_table(table, "VARIABLE_NAME"),
            Column.text("Value", 4096).of_table(table, "VARIABLE_VALUE"),
        ]
        return ResultSet(
            columns, [_VariableRow(name, found[name]) for name in sorted(found, key=str.lower)]
        )


class _VariableRow(Sequence[Any]):
    """The name of a variable, and its value, which may be costly to make."""

    def __init__(self, name: str, value: Shown) -> None:
        self._name, self._value = name, value

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: Any) -> Any:
        if at > 1:
            raise IndexError(at)
        return text_of(self._value) if at else self._name


@dataclass(frozen=True, slots=True)
class ShowDatabases(Filterable):
    """SHOW DATABASES: those that can be asked. `pattern` stands in the name of the column, as MariaDB
    has it."""

    syntax = '"SHOW"i ("DATABASES"i | "SCHEMAS"i) [like]'
    needs = ANYBODY
    com = "show_databases"
    only_looks = True

    pattern: str | None = None

    def answer(self, session: SqlSession) -> ResultSet:
        return self.shown(session)

    def shown(self, session: SqlSession) -> ResultSet:
        label = "Database" if self.pattern is None else f"Database ({self.pattern})"
        pattern = "%" if self.pattern is None else self.pattern
        rows: list[Row] = [
            (name,)
            for name in sorted((*VISIBLE, *held_databases(session)))
            if like_matches(pattern, name)
        ]
        return ResultSet([Column.text(label, 64).of_table("SCHEMATA", "SCHEMA_NAME")], rows)


@dataclass(frozen=True, slots=True)
class ShowDiagnostics(Statement):
    """SHOW WARNINGS, or SHOW ERRORS when `errors_only`; how many there are when `count`."""

    syntax = '"SHOW"i diagnostics [limit] | "SHOW"i counted'
    needs = ANYBODY
    only_looks = True

    errors_only: bool = False
    count: bool = False
    limit: Limit = NO_LIMIT

    @classmethod
    def built(cls, children: list[Any]) -> ShowDiagnostics:
        if isinstance(children[0], ShowDiagnostics):  # SHOW COUNT(*)
            return children[0]
        errors_only, limit = children
        return cls(errors_only, limit=limit or NO_LIMIT)

    @property
    def is_about_diagnostics(self) -> bool:
        return True

    @property
    def counted_as(self) -> str:
        if self.count:
            return "select"
        return "show_errors" if self.errors_only else "show_warnings"

    def answer(self, session: SqlSession) -> ResultSet:
        told = session.diagnostics
        wanted = [d for d in told if not self.errors_only or d.level == Level.ERROR]
        if self.count:
            name = "error_count" if self.errors_only else "warning_count"
            return ResultSet([Column.bigint(f"@@session.{name}", 21, null=True)], [(len(wanted),)])
        columns = [Column.text("Level", 7), Column.integer("Code", 4), Column.text("Message", 512)]
        limit = self.limit
        count = len(wanted) if limit.count is None else limit.count
        rows: list[Row] = list(wanted[limit.offset : limit.offset + count])
        return ResultSet(columns, rows)


@dataclass(frozen=True, slots=True)
class ShowMasterStatus(Statement):
    """SHOW MASTER STATUS."""

    syntax = '"SHOW"i ("MASTER"i | "BINLOG"i | "BINARY"i "LOG"i) "STATUS"i'
    needs = LOOK
    com = "show_binlog_status"
    only_looks = True

    @property
    def shows_state(self) -> bool:
        return True

    def answer(self, session: SqlSession) -> ResultSet:
        file, position = places.next_write(session.server, session.coordinates)
        columns = [
            Column.text("File", 512),
            Column.bigint("Position"),
            Column.text("Binlog_Do_DB"),
            Column.text("Binlog_Ignore_DB"),
            Column.text("Gtid_Binlog_Pos", 4096),
        ]
        return ResultSet(columns, [(file, position, "", "", session.state_texts.position)])


@dataclass(frozen=True, slots=True)
class ShowBinaryLogs(Statement):
    """SHOW BINARY LOGS."""

    syntax = '"SHOW"i ("BINARY"i | "MASTER"i) "LOGS"i'
    needs = LOOK
    com = "show_binlogs"
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [Column.text("Log_name"), Column.bigint("File_size")]
        return ResultSet(columns, places.files(session.server, session.coordinates))


@dataclass(frozen=True, slots=True)
class ShowSlaveHosts(Statement):
    """SHOW SLAVE HOSTS."""

    syntax = '"SHOW"i ("SLAVE"i | "REPLICA"i) "HOSTS"i'
    needs = LOOK_AT_REPLICAS
    com = "show_slave_hosts"
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.integer("Server_id"),
            Column.text("Host", 20),
            Column.integer("Port", 7),
            Column.integer("Master_id"),
        ]
        server = session.server
        return ResultSet(columns, list(server.connections.slave_hosts(server.config.server_id)))


@dataclass(frozen=True, slots=True)
class ShowBinlogReplicas(Statement):
    """SHOW BINLOG REPLICAS."""

    syntax = '"SHOW"i "BINLOG"i "REPLICAS"i'
    needs = LOOK_AT_REPLICAS
    only_looks = True

    def answer(self, session: SqlSession) -> Work:
        columns = [
            Column.bigint("Connection_id"),
            Column.integer("Server_id"),
            Column.text("Host"),
            Column.text("User"),
            Column.text("Sent_gtid", null=True),
            Column.text("Durable_gtid", null=True),
            Column.text("Acknowledged_gtid", null=True),
            Column.bigint("Gap_bytes", null=True),
            Column.bigint("Gap_ms", null=True),
            Column.text("State"),
        ]
        rows = ReplicaRows(session.server.engine, list(session.server.connections))
        return Work(lambda: ResultSet(columns, list(rows)))


@dataclass(frozen=True, slots=True)
class ShowProcesslist(Statement):
    """SHOW PROCESSLIST, or SHOW FULL PROCESSLIST when `full`."""

    syntax = '"SHOW"i [full] "PROCESSLIST"i'
    needs = LOOK_AT_OTHERS
    com = "show_processlist"
    only_looks = True
    is_free_for_ones_own = True

    full: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> ShowProcesslist:
        return cls(bool(children[0]))

    def answer(self, session: SqlSession) -> ResultSet:
        full_chars = 3 * session.server.config.max_allowed_packet
        columns = [
            Column.binary("Id", ColumnType.LONGLONG, 11),
            Column.text("User", 128),
            Column.text("Host", 64),
            Column.text("db", 64, null=True),
            Column.text("Command", 16),
            Column.binary("Time", ColumnType.LONG, 7),
            Column.text("State", 30, null=True),
            Column.text("Info", full_chars, kind=ColumnType.LONG_BLOB, null=True)
            if self.full
            else Column.text("Info", _INFO_CHARS, null=True),
            Column.binary("Progress", ColumnType.DOUBLE, 7, 3),
        ]
        at = [column.name for column in columns].index("Info")
        rows: list[Row] = [
            [*row[:at], self._shown(row[at]), *row[at + 1 :]] for row in session.processes()
        ]
        return ResultSet(columns, rows)

    def _shown(self, info: Value) -> Value:
        return info if self.full or not isinstance(info, str) else info[:_INFO_CHARS]


@dataclass(frozen=True, slots=True)
class ShowEngines(Statement):
    """SHOW ENGINES."""

    syntax = '"SHOW"i "STORAGE"i? "ENGINES"i'
    needs = ANYBODY
    com = "show_storage_engines"
    only_looks = True
    uses_tables = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Engine", 64),
            Column.text("Support", 8),
            Column.text("Comment", 160),
            Column.text("Transactions", 3, null=True),
            Column.text("XA", 3, null=True),
            Column.text("Savepoints", 3, null=True),
        ]
        columns = [column.of_table("ENGINES", column.name.upper()) for column in columns]
        return ResultSet(columns, [*engines(session.server.config)])


@dataclass(frozen=True, slots=True)
class ShowPrivileges(Statement):
    """SHOW PRIVILEGES: the privileges that can be granted here, and the use of each."""

    syntax = '"SHOW"i "PRIVILEGES"i'
    needs = ANYBODY
    com = "show_privileges"
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Privilege", 10),
            Column.text("Context", 15),
            Column.text("Comment", 64),
        ]
        meanings = {**_PRIVILEGES, USAGE: "To log in, and nothing else"}
        rows = [(name.capitalize(), "Server Admin", what) for name, what in meanings.items()]
        return ResultSet(columns, list(rows))


@dataclass(frozen=True, slots=True)
class XaRecover(Statement):
    """XA RECOVER: the prepared transactions that wait for XA COMMIT or XA ROLLBACK.

    `format` as written: RAW, or SQL for names that can be pasted. Its answer raises `UnknownXaFormat` (1791).
    """

    syntax = '"XA"i "RECOVER"i ["FORMAT"i "=" STRING]'
    needs = ANYBODY
    com = "xa_recover"
    only_looks = True

    format: str = "RAW"

    @classmethod
    def built(cls, children: list[Any]) -> XaRecover:
        return cls() if children[0] is None else cls(unquote(children[0]))

    def answer(self, session: SqlSession) -> ResultSet:
        style = self.format.upper()
        if style not in ("RAW", "SQL"):
            raise UnknownXaFormat(self.format)
        numbers = ("formatID", "gtrid_length", "bqual_length")
        columns = [
            *(Column.binary(name, ColumnType.LONGLONG, 11) for name in numbers),
            Column.text("data", 285)
            if style == "SQL"
            else replace(Column.text("data"), charset=CHARSET_BINARY, length=128, flags=_BYTES),
        ]
        rows: list[Row] = [
            (
                xid.format_id,
                len(xid.gtrid),
                len(xid.bqual),
                xid.sql() if style == "SQL" else xid.gtrid + xid.bqual,
            )
            for xid in session.server.xa.prepared()
        ]
        return ResultSet(columns, rows)


_RULES = """
// What stands behind a WHERE is read by `table_shows`.
like: "LIKE"i STRING
!of_status: "VARIABLES"i | "STATUS"i
!full: "FULL"i
!diagnostics: "WARNINGS"i | "ERRORS"i
counted: "COUNT"i "(" "*" ")" diagnostics
"""


class _Builder(Rules):
    def like(self, children: list[Token]) -> str:
        return unquote(children[0])

    def of_status(self, children: list[Token]) -> bool:
        return children[0].upper() == "STATUS"

    def full(self, _: list[Token]) -> bool:
        return True

    def diagnostics(self, children: list[Token]) -> bool:
        return children[0].upper() == "ERRORS"

    def counted(self, children: list[bool]) -> ShowDiagnostics:
        return ShowDiagnostics(children[0], count=True)


@dataclass(frozen=True, slots=True)
class Help(Statement):
    """HELP: no topic is known, as in a MariaDB without its help tables; docs/sql.md has them."""

    syntax = '"HELP"i (NAME | QUOTED_NAME | STRING)'
    needs = ANYBODY
    com = "help"
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        return ResultSet([Column.text("name", 64), Column.text("is_it_category", 1)], [])

    @classmethod
    def built(cls, children: list[Any]) -> Help:
        return cls()


FAMILY = Family(
    (
        ShowVariables,
        ShowDatabases,
        ShowDiagnostics,
        ShowMasterStatus,
        ShowBinaryLogs,
        ShowSlaveHosts,
        ShowBinlogReplicas,
        ShowProcesslist,
        ShowEngines,
        ShowPrivileges,
        Help,
        XaRecover,
    ),
    _RULES,
    _Builder,
    (("XA", "RECOVER"),),
)
