"""An example of everything that a client can say, and of each variable that can be set.

`{victim}` stands for the number of somebody else's connection, `victim` for the name of that account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    ChangeUser,
    Command,
    Debug,
    FieldList,
    InitDatabase,
    Ping,
    ProcessInfo,
    ProcessKill,
    Query,
    Quit,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    ShutdownCommand,
    StatisticsCommand,
    StmtBulkExecute,
    StmtClose,
    StmtExecute,
    StmtFetch,
    StmtPrepare,
    StmtReset,
    StmtSendLongData,
    UnknownCommand,
    parse_command,
)

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.assignments import SetVariables
from binlog_server.sql.parser import BEYOND, MAIN, parse
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.sql_session import NEEDED_FOR_COMMANDS
from binlog_server.sql.statement import ANYBODY, Statement
from binlog_server.sql.statement_kind import Kind as CommitKind
from binlog_server.sql.statement_kind import classify
from binlog_server.sql.table_shows import ShowWhere
from binlog_server.sql.variables import VARIABLES, Variable

VICTIM: Final = "victim"
Subject = type[Statement] | type[Command] | CommitKind
"""What has a right of its own."""


def needed_for(subject: Subject) -> tuple[str, ...]:
    """The privileges of which any one will do, as the server says."""
    if isinstance(subject, CommitKind):
        return subject.needs
    if issubclass(subject, Statement):
        return subject.needs
    return NEEDED_FOR_COMMANDS[subject]


def is_free_for_ones_own(subject: Subject) -> bool:
    """Whether it needs none for one's own connection or account."""
    return bool(getattr(subject, "is_free_for_ones_own", False))


HASH: Final = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"


@dataclass(frozen=True)
class Example:
    """`said`: SQL, or a command's packet with the name of the command. `own`: it is about what is the client's own.

    `only_here`: MariaDB takes it for something else.
    """

    said: str | bytes
    name: str = ""
    own: bool = False
    only_here: bool = False

    @property
    def shown(self) -> str:
        """On the page."""
        return self.name or str(self.said).replace("{victim}", "n")

    @property
    def sql(self) -> str:
        """Empty for a command."""
        return self.said.replace("{victim}", "1") if isinstance(self.said, str) else ""

    @property
    def subject(self) -> Subject:
        """What it is an example of, by the server's own parsers."""
        if isinstance(self.said, bytes):
            return type(parse_command(self.said))
        found = classify(self.sql.encode())
        if found.kind is not CommitKind.OTHER and found.grammar is not ACCOUNTS:
            return found.kind
        return type(parse(self.sql, found.grammar))

    @property
    def needed(self) -> tuple[str, ...]:
        """What the server's tables say of it."""
        return ANYBODY if self.own else needed_for(self.subject)


@dataclass(frozen=True)
class VariableExample(Example):
    """SET of a variable: the right is that of the variable."""

    variable: str = ""
    is_global: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        if self.is_global:
            return VARIABLES[self.variable].set_global or ANYBODY
        return VARIABLES[self.variable].set_session or ANYBODY


def is_on_the_page(variable: Variable, needs: tuple[str, ...] | None) -> bool:
    """Those that mean something here, or that decide on a group. All others are kept, and need what they need in
    11.8."""
    return needs is not None and (not variable.is_kept or BINLOG_REPLAY in needs)


SECTIONS: Final[Mapping[str, tuple[Example, ...]]] = {
    "Looking": (
        Example("SELECT @@port, CONNECTION_ID()"),
        Example("SELECT MASTER_GTID_WAIT('0-1-1', 0)"),
        Example("SELECT BINLOG_GTID_POS('binlog-000000.ibb', 4)"),
        Example("SELECT FILE_NAME FROM INFORMATION_SCHEMA.FILES"),
        Example("SHOW VARIABLES"),
        Example("SHOW STATUS"),
        Example("SHOW DATABASES"),
        Example("SHOW TABLES"),
        Example("CHECKSUM TABLE d.t"),
        Example("CHECK TABLE d.t"),
        Example("SHOW OPEN TABLES"),
        Example("SHOW CREATE DATABASE information_schema"),
        Example("SHOW ENGINE INNODB STATUS"),
        Example("SHOW WARNINGS"),
        Example("SHOW ENGINES"),
        Example("SHOW PRIVILEGES"),
        Example("HELP 'x'"),
        Example("SHOW PROCESSLIST", "SHOW PROCESSLIST: connections of others"),
        Example("SHOW FULL PROCESSLIST", "SHOW FULL PROCESSLIST: connections of others"),
        Example("SHOW MASTER STATUS"),
        Example("SHOW BINARY LOGS"),
        Example("SHOW BINLOG EVENTS"),
        Example("SHOW SLAVE HOSTS"),
        Example("SHOW BINLOG REPLICAS"),
        Example("SHOW BINLOG LEASES"),
        Example("SHOW SLAVE STATUS"),
        Example("SHOW ALL SLAVES STATUS"),
        Example("XA RECOVER"),
        Example("EXPLAIN PURGE"),
        Example("EXPLAIN GTID '0-1-1'", only_here=True),
    ),
    "Files": (
        Example("PURGE BINARY LOGS TO 'binlog-000000.ibb'"),
        Example("BACKUP SERVER"),
        Example("BACKUP STAGE START"),
        Example("BACKUP LOCK d.t"),
        Example("BACKUP UNLOCK"),
        Example("FLUSH BINARY LOGS"),
        Example("FLUSH STATUS"),
        Example("FLUSH SSL"),
        Example("RELOAD CONFIGURATION"),
        Example("SHUTDOWN"),
        Example("FLUSH TABLES"),
        Example("FLUSH TABLES WITH READ LOCK"),
        Example("RESET MASTER"),
        Example("CREATE BINLOG LEASE etl"),
        Example("ALTER BINLOG LEASE etl FOR 1 DAY"),
        Example("DROP BINLOG LEASE etl"),
        Example("ALTER BINLOG CONVERT TO 'x'"),
    ),
    "Faults": (
        Example("CREATE BINLOG FAULT f DO cut EVENT=9"),
        Example("SHOW BINLOG FAULTS"),
        Example("DROP BINLOG FAULT f"),
        Example("DROP ALL BINLOG FAULTS"),
    ),
    "Connections": (
        Example("KILL QUERY CONNECTION_ID()", own=True),
        Example("KILL {victim}", "KILL n, of others"),
        Example("KILL USER nobody", own=True, name="KILL USER, of one's own"),
        Example("KILL USER victim", "KILL USER name, of others"),
        Example("KILL QUERY ID 1"),
    ),
    "Upstreams": (
        Example("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1"),
        Example("START SLAVE"),
        Example("STOP SLAVE"),
        Example("START ALL SLAVES"),
        Example("STOP ALL SLAVES"),
        Example("RESET SLAVE"),
    ),
    "Accounts": (
        Example("SET PASSWORD = PASSWORD('x')", own=True),
        Example("SHOW GRANTS", own=True),
        Example("SHOW CREATE USER", own=True),
        Example(f"SET PASSWORD FOR {VICTIM} = PASSWORD('x')"),
        Example(f"SHOW GRANTS FOR {VICTIM}"),
        Example(f"SHOW CREATE USER {VICTIM}"),
        Example("CREATE USER another"),
        Example(f"ALTER USER {VICTIM} IDENTIFIED BY 'x'"),
        Example(f"GRANT RELOAD ON *.* TO {VICTIM}"),
        Example(f"REVOKE RELOAD ON *.* FROM {VICTIM}"),
        Example(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {VICTIM}"),
        Example(f"RENAME USER {VICTIM} TO other"),
        Example(f"DROP USER {VICTIM}"),
        Example("FLUSH PRIVILEGES"),
        Example("FLUSH HOSTS"),
    ),
    "What is committed": (
        Example("INSERT INTO test.t VALUES (1)"),
        Example("CREATE TABLE test.t (a INT)"),
        Example("LOCK TABLES test.t READ"),
        Example("UNLOCK TABLES"),
        Example("/* nothing */"),
        Example("BEGIN"),
        Example("COMMIT"),
        Example("ROLLBACK"),
        Example("SAVEPOINT a"),
        Example("ROLLBACK TO SAVEPOINT a"),
        Example("RELEASE SAVEPOINT a"),
        Example("XA COMMIT 'x'"),
        Example("XA ROLLBACK 'x'"),
        Example("USE test"),
        Example("PREPARE s FROM 'SELECT 1'"),
        Example("EXECUTE s"),
        Example("EXECUTE IMMEDIATE 'SELECT 1'"),
        Example("DEALLOCATE PREPARE s"),
    ),
    "SET GLOBAL": tuple(
        VariableExample(
            f"SET GLOBAL {name} = DEFAULT", f"GLOBAL {name}", variable=name, is_global=True
        )
        for name, variable in VARIABLES.items()
        if is_on_the_page(variable, variable.set_global)
    ),
    "SET of the session": (
        *(
            VariableExample(f"SET SESSION {name} = @@{name}", f"SESSION {name}", variable=name)
            for name, variable in VARIABLES.items()
            if is_on_the_page(variable, variable.set_session) and not variable.is_session_read_only
        ),
        Example("SET STATEMENT max_statement_time = 1 FOR SELECT 1"),
        Example("SET ROLE NONE"),
        Example("SET DEFAULT ROLE NONE"),
        Example("SET @x = 1 + 1"),
    ),
    "Commands": (
        Example(Ping().build(), "COM_PING"),
        Example(StatisticsCommand().build(), "COM_STATISTICS"),
        Example(ProcessInfo().build(), "COM_PROCESS_INFO"),
        Example(ResetConnection().build(), "COM_RESET_CONNECTION"),
        Example(SetOption(0).build(), "COM_SET_OPTION"),
        Example(InitDatabase("test").build(), "COM_INIT_DB"),
        Example(Refresh(1).build(), "COM_REFRESH"),
        Example(ShutdownCommand().build(), "COM_SHUTDOWN"),
        Example(RegisterSlave(77).build(), "COM_REGISTER_SLAVE"),
        Example(BinlogDump(77, 3).build(), "COM_BINLOG_DUMP"),
        Example(BinlogDumpGtid(77, 1).build(), "COM_BINLOG_DUMP_GTID"),
        Example(StmtPrepare(b"SELECT 1").build(), "COM_STMT_PREPARE"),
        Example(StmtExecute(1).build(), "COM_STMT_EXECUTE"),
        Example(StmtBulkExecute(1, 0).build(), "COM_STMT_BULK_EXECUTE"),
        Example(StmtFetch(1, 1).build(), "COM_STMT_FETCH"),
        Example(StmtReset(1).build(), "COM_STMT_RESET"),
        Example(FieldList("none").build(), "COM_FIELD_LIST"),
        Example(ProcessKill(99999).build(), "COM_PROCESS_KILL"),
        Example(Debug().build(), "COM_DEBUG"),
    ),
}
EXAMPLES: Final = tuple(example for section in SECTIONS.values() for example in section)

# Of them there is nothing to show: they say what another one is, or that there is none.
WITHOUT_EXAMPLE: Final = frozenset(
    {
        *(CommitKind.OTHER, Query, Quit, UnknownCommand, ChangeUser, StmtClose, StmtSendLongData),
        ShowWhere,
        CommitKind.LOCKING_READ,  # a SELECT of a table here: tests of these have its rights
    }
)


def everything() -> frozenset[Subject]:
    """Whatever the server's parsers can find, but for what needs no example."""
    grammars = (MAIN, REPLICATION, ACCOUNTS)
    statements = [s for grammar in grammars for s in grammar.statements.values()]
    found = {*statements, *BEYOND, *CommitKind, *get_args(Command)}
    return frozenset(found - WITHOUT_EXAMPLE)


def variables_of(section: str) -> set[str]:
    """Those that have an example there."""
    return {e.variable for e in SECTIONS[section] if isinstance(e, VariableExample)}


assert SetVariables in {example.subject for example in EXAMPLES}
