"""The privileges that each statement and each command needs, with those that need none.

Names and meanings are MariaDB's; docs/rights.md shows this table beside MariaDB's own, with the reason for each
difference. The privileges for SET stand with the variables: `variables.VARIABLES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
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

from binlog_server.accounts.privileges import (
    BINLOG_REPLAY,
    CREATE_USER,
    RELOAD,
    REPLICATION_SLAVE,
)
from binlog_server.sql.account_statements import Kind as AccountKind
from binlog_server.sql.replication_statements import (
    ChangeMaster,
    ResetSlave,
    StartAllSlaves,
    StartSlave,
    StopAllSlaves,
    StopSlave,
)
from binlog_server.sql.statement_kind import Kind as CommitKind
from binlog_server.sql.statements import (
    AlterLease,
    CreateLease,
    DropLease,
    ExplainGtid,
    ExplainPurge,
    FlushLogs,
    FlushNothing,
    FlushTables,
    Kill,
    KillQueryId,
    KillUser,
    Purge,
    ResetMaster,
    Select,
    SelectSchema,
    SetStatement,
    SetVariables,
    Show,
    ShowBinlogEvents,
    ShowDatabases,
    ShowDiagnostics,
    ShowSlaveStatus,
    ShowTables,
    ShowVariables,
    XaRecover,
)

Subject = type | Show | AccountKind | CommitKind
"""A statement or command in these tables: its type, or the enum member where one type has many statements."""

ANYBODY: tuple[str, ...] = ()
_LOOK = ("SUPER", "BINLOG MONITOR")
_LOOK_AT_FILES = (*_LOOK, "BINLOG ADMIN")
_LOOK_AT_REPLICAS = (*_LOOK, "REPLICATION MASTER ADMIN")
_LOOK_AT_UPSTREAM = ("SUPER", "SLAVE MONITOR")
_FOLLOW = ("SUPER", "REPLICATION SLAVE ADMIN")
_PURGE = ("SUPER", "BINLOG ADMIN")
_KILL = ("SUPER", "CONNECTION ADMIN")

# Any one of a row's privileges will do; for ALL PRIVILEGES and BINLOG REPLAY see `accounts.privileges.suffices`.
PRIVILEGES: Mapping[Subject, tuple[str, ...]] = {
    # Looking
    Select: ANYBODY,
    SelectSchema: ANYBODY,
    ShowVariables: ANYBODY,
    ShowDatabases: ANYBODY,
    ShowTables: ANYBODY,
    ShowDiagnostics: ANYBODY,
    Show.ENGINES: ANYBODY,
    Show.PRIVILEGES: ANYBODY,
    Show.MASTER_STATUS: _LOOK,
    Show.BINARY_LOGS: _LOOK,
    ShowBinlogEvents: ("BINLOG MONITOR",),
    ExplainPurge: _LOOK_AT_FILES,
    ExplainGtid: _LOOK_AT_FILES,
    Show.BINLOG_LEASES: _LOOK_AT_FILES,
    Show.BINLOG_REPLICAS: _LOOK_AT_REPLICAS,
    Show.SLAVE_HOSTS: _LOOK_AT_REPLICAS,
    Show.ALL_SLAVES_STATUS: _LOOK_AT_UPSTREAM,
    ShowSlaveStatus: _LOOK_AT_UPSTREAM,
    XaRecover: ANYBODY,
    Show.PROCESSLIST: ("PROCESS",),
    Show.FULL_PROCESSLIST: ("PROCESS",),
    # Files
    Purge: _PURGE,
    FlushLogs: (RELOAD,),
    FlushNothing: (RELOAD,),
    FlushTables: (RELOAD,),
    ResetMaster: (RELOAD,),
    CreateLease: _PURGE,
    AlterLease: _PURGE,
    DropLease: _PURGE,
    # Connections
    Kill: _KILL,
    KillUser: _KILL,
    KillQueryId: ANYBODY,
    # Upstreams
    **dict.fromkeys((ChangeMaster, StartSlave, StopSlave, StartAllSlaves, StopAllSlaves), _FOLLOW),
    ResetSlave: (RELOAD,),
    # Variables: as each of them says; and as the statement behind FOR
    SetVariables: ANYBODY,
    SetStatement: ANYBODY,
    # Accounts
    **dict.fromkeys(AccountKind, (CREATE_USER,)),
    AccountKind.FLUSH: (RELOAD,),
    # What is committed
    **dict.fromkeys((CommitKind.DML, CommitKind.DDL, CommitKind.LOCK_TABLES), (BINLOG_REPLAY,)),
    **dict.fromkeys((CommitKind.XA_COMMIT, CommitKind.XA_ROLLBACK), _PURGE),
    CommitKind.BEGIN: ANYBODY,
    CommitKind.COMMIT: ANYBODY,
    CommitKind.ROLLBACK: ANYBODY,
    CommitKind.SAVEPOINT: ANYBODY,
    CommitKind.ROLLBACK_TO: ANYBODY,
    CommitKind.RELEASE_SAVEPOINT: ANYBODY,
    CommitKind.USE: ANYBODY,
    CommitKind.UNLOCK_TABLES: ANYBODY,
    CommitKind.NOTHING: ANYBODY,
    CommitKind.OTHER: ANYBODY,  # the parsed statement is looked up by itself
    # Commands
    Query: ANYBODY,  # its statement is looked up by itself
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

# Statements that need no privilege for one's own connections and one's own account. Only the statement knows whose they
# are, so it checks the privileges itself, and for those of others only.
OF_ONES_OWN: frozenset[Subject] = frozenset(
    {
        Show.PROCESSLIST,
        Show.FULL_PROCESSLIST,
        Kill,
        KillUser,
        AccountKind.SET_PASSWORD,
        AccountKind.SHOW_GRANTS,
        AccountKind.SHOW_CREATE,
    }
)


def subject(statement: object) -> Subject:
    """The key of a statement or command in these tables."""
    return statement if isinstance(statement, Show) else type(statement)
