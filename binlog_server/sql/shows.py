"""SHOW of the server and of the session, and XA RECOVER, in MariaDB's columns. Other families have their own SHOW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors.sql_errors import UnknownXaFormat
from binlog_protocol.wire.results import (
    CHARSET_BINARY,
    FLAG_BINARY,
    FLAG_NOT_NULL,
    TYPE_DOUBLE,
    TYPE_LONG,
    TYPE_LONGLONG,
    TYPE_MEDIUM_BLOB,
    Column,
    Value,
)
from lark import Token

from binlog_server.accounts.privileges import SINGLE, USAGE
from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.sql import places
from binlog_server.sql.expressions import NO_LIMIT, Limit, Scope
from binlog_server.sql.filter_builder import FilterBuilder
from binlog_server.sql.row_filter import (
    EVERYTHING,
    Condition,
    Test,
    filtered,
    is_about,
    is_long,
    may_hold,
)
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, LOOK, Family, Statement
from binlog_server.sql.status_variables import status_variables
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Level, Result, ResultSet, Row, Shown, Work, text_of

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_BYTES: Final = FLAG_NOT_NULL | FLAG_BINARY
_VARIABLE_COLUMNS: Final = ("variable_name", "value")
_LOOK_AT_REPLICAS: Final = ("SUPER", "BINLOG MONITOR", "REPLICATION MASTER ADMIN")
_INFO_CHARS: Final = 100  # characters of a statement in SHOW PROCESSLIST without FULL
_PRIVILEGES: Final[Mapping[str, str]] = {
    "RELOAD": "To use FLUSH, RESET MASTER and RESET SLAVE",
    "PROCESS": "To see the connections of others in SHOW PROCESSLIST",
    "SUPER": "To do most of what the others are for, as in MariaDB 10.11",
    "REPLICATION SLAVE": "To replicate from this server",
    "BINLOG MONITOR": "To see the state of the binlog and its files",
    "CREATE USER": "To make, change and drop accounts",
    "BINLOG ADMIN": "To purge binary logs and to set variables of the binlog",
    "BINLOG REPLAY": "To commit SQL under any GTID; and all but CREATE USER and REPLICATION SLAVE",
    "CONNECTION ADMIN": "To kill connections of others and to set how many there may be",
    "READ_ONLY ADMIN": "To set read_only",
    "REPLICATION SLAVE ADMIN": "To use CHANGE MASTER, START SLAVE and STOP SLAVE",
    "REPLICATION MASTER ADMIN": "To see the replicas and to set semi-sync",
    "SLAVE MONITOR": "To use SHOW SLAVE STATUS",
}
assert set(_PRIVILEGES) == set(SINGLE)


@dataclass(frozen=True, slots=True)
class ShowVariables(Statement):
    """SHOW VARIABLES, or SHOW STATUS when `status`."""

    syntax = '"SHOW"i [scope] of_status [filter]'
    needs = ANYBODY

    status: bool
    filter: Test = EVERYTHING
    scope: Scope = Scope.DEFAULT

    @classmethod
    def built(cls, children: list[Any]) -> ShowVariables:
        scope, status, test = children
        return cls(status, test or EVERYTHING, scope or Scope.DEFAULT)

    @property
    def shows_state(self) -> bool:
        test = self.filter
        return not self.status and (
            is_long(test)
            or any(may_hold(test, _VARIABLE_COLUMNS, (name,)) for name in STATE_VARIABLES)
        )

    def answer(self, session: SqlSession) -> Result:
        shown: dict[str, Shown]
        if self.status:
            shown = {
                **status_variables(session.server),
                **session.status,
                **places.snapshot(session.server, session.coordinates),
            }
        else:
            shown = session.system_variables(globally=self.scope is Scope.GLOBAL)
        test = self.filter
        # A filter that takes milliseconds over all variables, or reads a long text, is run in a thread.
        if is_long(test) or (
            session.shows_long_state and not is_about(test, _VARIABLE_COLUMNS[:1])
        ):
            return Work(lambda: _variables(shown, test))
        return _variables(shown, test)


def _variables(shown: Mapping[str, Shown], test: Test) -> ResultSet:
    """A value that is costly to make is made only if its row may be in the result."""
    names = (name for name in sorted(shown) if may_hold(test, _VARIABLE_COLUMNS, (name,)))
    rows = filtered([(name, text_of(shown[name])) for name in names], _VARIABLE_COLUMNS, test)
    columns = [Column.text("Variable_name", 64), Column.text("Value", 4096)]
    return ResultSet([column.of_table() for column in columns], rows)


@dataclass(frozen=True, slots=True)
class ShowDatabases(Statement):
    """SHOW DATABASES: information_schema, the only one here. `pattern` stands in the name of the column, as MariaDB
    has it."""

    syntax = '"SHOW"i ("DATABASES"i | "SCHEMAS"i) [filter]'
    needs = ANYBODY

    filter: Test = EVERYTHING
    pattern: str | None = None

    @classmethod
    def built(cls, children: list[Any]) -> ShowDatabases:
        test = children[0] or EVERYTHING
        match test:
            case Condition("", _, (pattern,)):
                return cls(test, str(pattern))
        return cls(test)

    def answer(self, session: SqlSession) -> ResultSet:
        name = "Database" if self.pattern is None else f"Database ({self.pattern})"
        label = name.encode("utf-8", "replace").decode()
        rows = filtered([("information_schema",)], ("database",), self.filter)
        return ResultSet([Column.text(label, 64).of_table()], rows)


@dataclass(frozen=True, slots=True)
class ShowDiagnostics(Statement):
    """SHOW WARNINGS, or SHOW ERRORS when `errors_only`; how many there are when `count`."""

    syntax = '"SHOW"i diagnostics [limit] | "SHOW"i counted'
    needs = ANYBODY

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

    syntax = '"SHOW"i ("MASTER"i | "BINLOG"i) "STATUS"i'
    needs = LOOK

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

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [Column.text("Log_name"), Column.bigint("File_size")]
        return ResultSet(columns, places.files(session.server, session.coordinates))


@dataclass(frozen=True, slots=True)
class ShowSlaveHosts(Statement):
    """SHOW SLAVE HOSTS."""

    syntax = '"SHOW"i ("SLAVE"i | "REPLICA"i) "HOSTS"i'
    needs = _LOOK_AT_REPLICAS

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
    needs = _LOOK_AT_REPLICAS

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
    needs = ("PROCESS",)
    is_free_for_ones_own = True

    full: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> ShowProcesslist:
        return cls(bool(children[0]))

    def answer(self, session: SqlSession) -> ResultSet:
        server = session.server
        full_chars = 3 * server.config.max_allowed_packet
        columns = [
            Column.binary("Id", TYPE_LONGLONG, 11),
            Column.text("User", 128),
            Column.text("Host", 64),
            Column.text("db", 64, null=True),
            Column.text("Command", 16),
            Column.binary("Time", TYPE_LONG, 7),
            Column.text("State", 30, null=True),
            Column.text("Info", full_chars, kind=TYPE_MEDIUM_BLOB, null=True)
            if self.full
            else Column.text("Info", _INFO_CHARS, null=True),
            Column.binary("Progress", TYPE_DOUBLE, 7, 3),
        ]
        at = [column.name for column in columns].index("Info")
        if session.may(*self.needs):
            upstreams = (c.process for c in server.relay.connections if c.runs)
            found = [*upstreams, *server.connections.processlist(None)]
        else:
            found = list(server.connections.processlist(session.user))
        rows = [[*row[:at], self._shown(row[at]), *row[at + 1 :]] for row in found]
        return ResultSet(columns, list(rows))

    def _shown(self, info: Value) -> Value:
        return info if self.full or not isinstance(info, str) else info[:_INFO_CHARS]


@dataclass(frozen=True, slots=True)
class ShowEngines(Statement):
    """SHOW ENGINES."""

    syntax = '"SHOW"i "STORAGE"i? "ENGINES"i'
    needs = ANYBODY

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Engine", 64),
            Column.text("Support", 8),
            Column.text("Comment", 160),
            Column.text("Transactions", 3, null=True),
            Column.text("XA", 3, null=True),
            Column.text("Savepoints", 3, null=True),
        ]
        comment = "The binlog in its files (binlog_storage_engine); there are no tables"
        columns = [column.of_table() for column in columns]
        return ResultSet(columns, [("InnoDB", "DEFAULT", comment, "YES", "NO", "YES")])


@dataclass(frozen=True, slots=True)
class ShowPrivileges(Statement):
    """SHOW PRIVILEGES: the privileges that can be granted here, and the use of each."""

    syntax = '"SHOW"i "PRIVILEGES"i'
    needs = ANYBODY

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
    """XA RECOVER: the prepared transactions that wait in the binlog for XA COMMIT or XA ROLLBACK.

    `format` as written: RAW, or SQL for names that can be pasted. Its answer raises `UnknownXaFormat` (1791).
    """

    syntax = '"XA"i "RECOVER"i ["FORMAT"i "=" STRING]'
    needs = ANYBODY

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
            *(Column.binary(name, TYPE_LONGLONG, 11) for name in numbers),
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
            for xid in session.server.engine.prepared()
        ]
        return ResultSet(columns, rows)


_RULES = """
!of_status: "VARIABLES"i | "STATUS"i
!full: "FULL"i
!diagnostics: "WARNINGS"i | "ERRORS"i
counted: "COUNT"i "(" "*" ")" diagnostics
"""


class _Builder(FilterBuilder):
    def of_status(self, children: list[Token]) -> bool:
        return children[0].upper() == "STATUS"

    def full(self, _: list[Token]) -> bool:
        return True

    def diagnostics(self, children: list[Token]) -> bool:
        return children[0].upper() == "ERRORS"

    def counted(self, children: list[bool]) -> ShowDiagnostics:
        return ShowDiagnostics(children[0], count=True)


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
        XaRecover,
    ),
    _RULES,
    _Builder,
    (("XA", "RECOVER"),),
)
