"""Statements as values. `grammar.lark` has their syntax."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import NamedTuple

from binlog_server.sql.replication_statements import ReplicationStatement
from binlog_server.sql.row_filter import EVERYTHING, Test


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
class SelectSchema:
    """A SELECT of columns of an information_schema table, in lower case, under any conditions."""

    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """LIMIT: rows to leave out first, then rows to give; `None` is all."""

    offset: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class ShowVariables:
    """SHOW VARIABLES, or SHOW STATUS when `status`."""

    status: bool
    filter: Test = EVERYTHING
    scope: Scope = Scope.DEFAULT


class Show(Enum):
    """The SHOW statements without arguments."""

    MASTER_STATUS = auto()
    ALL_SLAVES_STATUS = auto()
    BINARY_LOGS = auto()
    SLAVE_HOSTS = auto()
    PROCESSLIST = auto()
    FULL_PROCESSLIST = auto()
    ENGINES = auto()
    PRIVILEGES = auto()
    BINLOG_REPLICAS = auto()
    BINLOG_LEASES = auto()


@dataclass(frozen=True, slots=True)
class XaRecover:
    """XA RECOVER; `format` as written: RAW, or SQL for names that can be pasted."""

    format: str = "RAW"


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
class SetStatement:
    """SET STATEMENT ... FOR: the assignments hold for `statement` alone."""

    assignments: tuple[Assignment, ...]
    statement: Statement


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL of a connection, or of the query it runs."""

    connection_id: Expression
    query_only: bool = False


@dataclass(frozen=True, slots=True)
class KillUser:
    """KILL USER: all connections of a user, from one host or (None) from anywhere."""

    user: str
    host: str | None = None
    query_only: bool = False


@dataclass(frozen=True, slots=True)
class KillQueryId:
    """KILL QUERY ID: refused, as no query here has a number."""

    query_id: int


@dataclass(frozen=True, slots=True)
class ShowSlaveStatus:
    """SHOW SLAVE STATUS, of the connection with that name."""

    connection: str = ""


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """SHOW DATABASES; `pattern` stands in the name of the column, as MariaDB has it."""

    filter: Test = EVERYTHING
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES."""


@dataclass(frozen=True, slots=True)
class ShowDiagnostics:
    """SHOW WARNINGS, or SHOW ERRORS when `errors_only`; how many there are when `count`."""

    errors_only: bool = False
    count: bool = False
    limit: Limit = Limit()


@dataclass(frozen=True, slots=True)
class ShowBinlogEvents:
    """SHOW BINLOG EVENTS; `file` None is the oldest, `start` a position in the file, in the session's coordinates."""

    file: str | None = None
    start: int = 0
    limit: Limit = Limit()


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: `base`, shifted by months and then by seconds.

    `base` is a text or a number as in MariaDB, seconds since 1970 when `unix`, None for now. `today` is the midnight
    before now. `for_all`: now is the machine's time, whatever the session's `timestamp` is.
    """

    base: str | int | None = None
    unix: bool = False
    today: bool = False
    for_all: bool = False
    plus_months: int = 0
    plus_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Purge:
    """PURGE BINARY LOGS: `to` a file, or `before` a time."""

    to: str | None = None
    before: Moment | None = None


@dataclass(frozen=True, slots=True)
class ExplainPurge:
    """EXPLAIN PURGE; without `purge` it is about the purge by age and size limits."""

    purge: Purge | None = None


@dataclass(frozen=True, slots=True)
class ExplainGtid:
    """EXPLAIN GTID: what became of the group with one GTID."""

    gtid: str


@dataclass(frozen=True, slots=True)
class FlushLogs:
    """FLUSH BINARY LOGS. `delete_domains` are the numbers of DELETE_DOMAIN_ID as written."""

    delete_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlushNothing:
    """FLUSH of a cache or log that this server does not have: answered with OK."""


@dataclass(frozen=True, slots=True)
class FlushTables:
    """FLUSH TABLES, or FLUSH TABLES WITH READ LOCK."""

    read_lock: bool


@dataclass(frozen=True, slots=True)
class ResetMaster:
    """RESET MASTER; `to` is refused."""

    to: int | None = None


@dataclass(frozen=True, slots=True)
class CreateLease:
    """CREATE BINLOG LEASE. Without `gtid` it holds all files; without limits it holds until it is dropped."""

    name: str
    replace: bool = False
    gtid: str | None = None
    until: Moment | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AlterLease:
    """ALTER BINLOG LEASE; a field that is None changes nothing."""

    name: str
    gtid: str | None = None
    until: Moment | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DropLease:
    """DROP BINLOG LEASE."""

    name: str
    if_exists: bool = False


Statement = (
    Select
    | SelectSchema
    | ShowVariables
    | ShowDatabases
    | ShowTables
    | ShowDiagnostics
    | ShowBinlogEvents
    | Show
    | ShowSlaveStatus
    | XaRecover
    | ReplicationStatement
    | SetVariables
    | SetStatement
    | Kill
    | KillUser
    | KillQueryId
    | Purge
    | FlushLogs
    | FlushNothing
    | FlushTables
    | ResetMaster
    | ExplainPurge
    | ExplainGtid
    | CreateLease
    | AlterLease
    | DropLease
)
