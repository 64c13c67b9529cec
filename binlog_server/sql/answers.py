"""The answer to each statement: which function makes it, and whether at once, in a thread or on the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from binlog_protocol.errors import EngineBinlogUnavailable
from binlog_protocol.errors.sql_errors import UnknownQueryId
from binlog_protocol.wire.results import Column

from binlog_server.dumps.frame_style import FrameStyle
from binlog_server.sql import (
    classic_places,
    events,
    explain,
    kills,
    maintenance,
    no_tables,
    places,
    shows,
    slave_status,
)
from binlog_server.sql.assignments import set_for_statement, set_variables
from binlog_server.sql.needed_privileges import PRIVILEGES
from binlog_server.sql.replication_sql import replicate
from binlog_server.sql.replication_statements import (
    ChangeMaster,
    ResetSlave,
    StartAllSlaves,
    StartSlave,
    StopAllSlaves,
    StopSlave,
)
from binlog_server.sql.row_filter import is_about, is_long, may_hold
from binlog_server.sql.selects import printable, select
from binlog_server.sql.shows import VARIABLE_COLUMNS
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statements import (
    AlterLease,
    CreateLease,
    DropLease,
    ExplainGtid,
    ExplainPurge,
    Expression,
    FlushLogs,
    FlushNothing,
    FlushTables,
    Function,
    Kill,
    KillQueryId,
    KillUser,
    Purge,
    ResetMaster,
    Select,
    SelectItem,
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
    Statement,
    SystemVariable,
    XaRecover,
)
from binlog_server.sql.statements import Scope as VariableScope
from binlog_server.sql.status_variables import status_variables
from binlog_server.sql.view import Result, ResultSet, Shown, Work

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_GTIDS_CHARS = 65535


def answer(session: SqlSession, statement: Statement) -> Result:
    """A statement's result, or the work that is left to do for it. Raises `ServerError`, `StorageError`."""
    match statement:
        case Select((SelectItem(label, Function("BINLOG_GTID_POS", (_, _)) as function),)) if (
            style := _classic_style(session)
        ):
            return _gtid_position(session, style, function, label)
        case Select():
            return select(session, statement)
        case SetVariables():
            return set_variables(session, statement)
        case SetStatement(_, inner):
            session.require_for(inner)
            return set_for_statement(session, statement, lambda: answer(session, inner))
        case (
            ShowVariables()
            | ShowDatabases()
            | ShowDiagnostics()
            | ShowBinlogEvents()
            | ShowSlaveStatus()
            | Show()
        ):
            return _show(session, statement)
        case Kill():
            kills.kill(session, statement)
            return None
        case KillUser():
            kills.kill_user(session, statement)
            return None
        case KillQueryId(query_id):
            raise UnknownQueryId(query_id)
        case SelectSchema():
            return no_tables.select(statement)
        case ShowTables():
            return no_tables.show()
        case XaRecover():
            return shows.prepared(session.server, statement)
        case FlushTables():
            no_tables.flush(statement, session.diagnostics)
            return None
        case (
            ChangeMaster()
            | StartSlave()
            | StopSlave()
            | StartAllSlaves()
            | StopAllSlaves()
            | ResetSlave()
        ):
            return replicate(session, statement)
    return _maintain(session, statement)


def shows_state(statement: Statement) -> bool:
    """Whether the answer needs `StateTexts`: the binlog state or position as text."""
    match statement:
        case Select(items):
            return any(_names_state(item.expression) for item in items)
        case SetVariables(assignments):
            return any(_names_state(assignment.value) for assignment in assignments)
        case SetStatement(assignments, inner):
            return any(_names_state(a.value) for a in assignments) or shows_state(inner)
        case ShowVariables(status, test):
            return not status and (
                is_long(test)
                or any(may_hold(test, VARIABLE_COLUMNS, (name,)) for name in STATE_VARIABLES)
            )
        case ShowSlaveStatus() | Show.ALL_SLAVES_STATUS | Show.MASTER_STATUS:
            return True
    return False


def _names_state(expression: Expression) -> bool:
    match expression:
        case SystemVariable(_, name):
            return name in STATE_VARIABLES
        case Function(_, arguments):
            return any(map(_names_state, arguments))
    return False


def _maintain(session: SqlSession, statement: Statement) -> Result:
    """Statements that wait for a disk: work for a thread."""
    server, told = session.server, session.diagnostics
    clock = session.clock()  # read now: SET STATEMENT ends before the thread begins
    match statement:
        case Purge():
            who = f"connection {session.connection_id} ({session.account})"
            return Work(
                lambda: maintenance.purge(server, statement, told, clock, session.coordinates, who)
            )
        case FlushLogs():
            return Work.patient(
                "flush", lambda given_up: maintenance.flush(server, statement, told, given_up)
            )
        case ExplainPurge():
            return Work(
                lambda: explain.explain_purge(server, statement, told, clock, session.coordinates)
            )
        case ExplainGtid():
            return Work(lambda: explain.explain_gtid(server, statement))
        case AlterLease():
            return Work(lambda: maintenance.alter_lease(server, statement, told, clock))
        case CreateLease():
            return Work(lambda: maintenance.create_lease(server, statement, clock))
        case DropLease():
            return Work(lambda: maintenance.drop_lease(server, statement, told))
        case ResetMaster(to):
            if to is not None:
                raise EngineBinlogUnavailable("RESET MASTER TO")
            session.require_no_upstream()
            return Work.patient(
                "reset",
                lambda given_up: maintenance.reset(server, given_up),
                server.history_changed,
            )
    assert isinstance(statement, FlushNothing)
    return None


def _show(
    session: SqlSession,
    statement: ShowVariables
    | ShowDatabases
    | ShowDiagnostics
    | ShowBinlogEvents
    | ShowSlaveStatus
    | Show,
) -> Result:
    match statement:
        case ShowVariables():
            return _show_variables(session, statement)
        case ShowDatabases():
            return shows.databases(statement)
        case ShowDiagnostics():
            return shows.diagnostics(statement, session.diagnostics)
        case ShowBinlogEvents():
            return events.show(session.server.engine, statement, _classic_style(session))
        case ShowSlaveStatus(connection):
            name = connection or session.master_connection
            return slave_status.one(name, _slave_rows(session))
        case Show.ALL_SLAVES_STATUS:
            return slave_status.every(_slave_rows(session))
    everybody = session.may(*PRIVILEGES[Show.PROCESSLIST])
    return shows.show(
        session.server,
        statement,
        user=None if everybody else session.user,
        coordinates=session.coordinates,
        texts=session.state_texts if statement is Show.MASTER_STATUS else None,
    )


def _show_variables(session: SqlSession, statement: ShowVariables) -> Result:
    shown: dict[str, Shown]
    if statement.status:
        shown = {
            **status_variables(session.server),
            **session.status,
            **places.snapshot(session.server, session.coordinates),
        }
    else:
        globally = statement.scope is VariableScope.GLOBAL
        shown = session.system_variables(globally=globally)
    test = statement.filter
    # A filter that takes milliseconds over all variables, or reads a long text, is run in a thread.
    if is_long(test) or (session.shows_long_state and not is_about(test, VARIABLE_COLUMNS[:1])):
        return Work(lambda: shows.variables(shown, test))
    return shows.variables(shown, test)


def _slave_rows(session: SqlSession) -> slave_status.SlaveRows:
    return slave_status.slave_rows(session.server, session.state_texts)


def _classic_style(session: SqlSession) -> FrameStyle | None:
    """The style that gives events their positions in this session; None in the engine style, which has none."""
    if not session.coordinates.classic:
        return None
    return classic_places.style_of(session.server.config.binlog_checksum)


def _gtid_position(session: SqlSession, style: FrameStyle, function: Function, label: str) -> Work:
    """BINLOG_GTID_POS: work for a thread, because it reads the store."""
    file, position = (session.value_of(argument) for argument in function.arguments)
    engine = session.server.engine

    def run() -> ResultSet:
        found = classic_places.gtid_position(engine, style, file, position)
        return ResultSet([Column.text(printable(label), _GTIDS_CHARS, null=True)], [(found,)])

    return Work(run)
