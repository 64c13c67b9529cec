"""SET: of the session, of its user variables, and of the running server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from binlog_protocol.errors import (
    EngineBinlogUnavailable,
    ReadOnlyVariable,
    UnknownServerError,
    UnknownSystemVariable,
    WrongVariableValue,
)
from binlog_protocol.errors.sql_errors import (
    GlobalVariable,
    GtidInsideTransaction,
    NotInSetStatement,
    NotInTransaction,
    OptionPreventsStatement,
    SessionVariable,
)
from binlog_protocol.errors.transaction_errors import TransactionInProgress
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import (
    collation_name,
    collation_numbered,
    default_collation,
)

from binlog_server.engine_limits import AFTER_SYNC, SEMI_SYNC_WAIT_POINT
from binlog_server.sql import global_variables, maintenance
from binlog_server.sql.global_variables import GLOBALS, SKIP_COUNTER
from binlog_server.sql.needed_privileges import ANYBODY
from binlog_server.sql.statements import (
    Assignment,
    Default,
    Expression,
    HeldValue,
    Literal,
    SetStatement,
    SetVariables,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.statements import Scope as VariableScope
from binlog_server.sql.tokens import exact_number
from binlog_server.sql.values import as_shown
from binlog_server.sql.variables import (
    ALIASES,
    NOT_IN_SET_STATEMENT,
    NOT_IN_TRANSACTION,
    RESTRICTED,
    SESSION_ONLY,
    SESSION_SETTABLE,
)
from binlog_server.sql.view import Diagnostic, Level, Result, Work
from binlog_server.sql_commit.settings import literal_collation
from binlog_server.sql_commit.statement_kind import USER_VARIABLES_MAX

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_SYSTEM_COLLATION = 33  # utf8mb3_general_ci: of what the server itself says
_READ_ONLY = frozenset({"tx_read_only", "transaction_read_only"})
# They say what the history is, or which groups belong to it: not while groups come in.
_OF_THE_HISTORY = frozenset({"gtid_binlog_state", "gtid_ignore_duplicates", "gtid_slave_pos"})
# In the engine style, in the classic style.
_CHECKSUM_STAYS = (
    "an engine binlog has no checksums of events",
    "positions depend on it, so it can be changed in the configuration file only",
)


def set_variables(session: SqlSession, statement: SetVariables) -> Result:
    """SET: the rest of the work, if there is some. Raises `ServerError`."""
    # All values are found before the first is set: a statement that fails sets nothing.
    assignments = statement.assignments
    values = [_assigned(session, assignment) for assignment in assignments]
    _check_room(session, assignments, values)
    later: Result = None
    for assignment, value in zip(assignments, values, strict=True):
        later = _assign(session, assignment, value) or later
        _assign_along(session, assignment.target.name)
    return later


def set_for_statement(
    session: SqlSession, statement: SetStatement, execute: Callable[[], Result]
) -> Result:
    """SET STATEMENT ... FOR: afterwards the variables are as before. Raises `NotInSetStatement` (1971)."""
    for assignment in statement.assignments:
        name = assignment.target.name
        if name in NOT_IN_SET_STATEMENT:
            raise NotInSetStatement(name)
        if name in GLOBALS and not GLOBALS[name].also_session:
            raise GlobalVariable(name)
    before = dict(session.variables)
    try:
        set_variables(session, SetVariables(statement.assignments))
        return execute()
    finally:
        session.variables.clear()
        session.variables.update(before)


def _held(session: SqlSession, expression: Expression) -> HeldValue:
    if isinstance(expression, UserVariable):
        return session.user_variables.get(expression.name, HeldValue(None))
    found = session.value_of(expression)
    if isinstance(expression, SystemVariable) and isinstance(found, Decimal):
        found = exact_number(f"{found:f}".rstrip("0").rstrip("."))
    if isinstance(found, str) and not isinstance(expression, Literal):
        return HeldValue(found, _SYSTEM_COLLATION)
    return HeldValue(found, literal_collation(str(found), session.variables))


def _assigned(session: SqlSession, assignment: Assignment) -> Value | HeldValue:
    target, value = assignment.target, assignment.value
    if not isinstance(target, SystemVariable):
        return _held(session, value)
    name = target.name
    if (
        name not in SESSION_SETTABLE
        and name not in GLOBALS
        and name not in session.server.global_variables()
    ):
        raise UnknownSystemVariable(name)
    if name in GLOBALS and (target.scope is VariableScope.GLOBAL or not GLOBALS[name].also_session):
        return _assigned_globally(session, target, value)
    if name in SESSION_ONLY and target.scope is VariableScope.GLOBAL:
        raise SessionVariable(name)
    # What MariaDB could change while it runs is for the configuration here.
    if name not in SESSION_SETTABLE or target.scope is VariableScope.GLOBAL:
        raise ReadOnlyVariable(name)
    session.require(*RESTRICTED.get(name, ANYBODY))
    if name in NOT_IN_TRANSACTION and session.in_transaction:
        raise GtidInsideTransaction
    if target.scope is VariableScope.NEXT and session.in_transaction:
        raise TransactionInProgress
    if isinstance(value, Default):
        return None
    shown = as_shown(session.value_of(value), name, session.diagnostics)
    if name == "gtid_seq_no":
        variables = session.variables
        session.server.require_in_order(
            int(shown), variables.get("gtid_domain_id"), variables.get("server_id")
        )
    return shown


def _assigned_globally(session: SqlSession, target: SystemVariable, value: Expression) -> str:
    name = target.name
    if target.scope is not VariableScope.GLOBAL:
        raise GlobalVariable(name)
    session.require(*GLOBALS[name].privileges)
    if name == "gtid_binlog_state" and session.in_transaction:
        raise NotInTransaction
    if name in _OF_THE_HISTORY:
        session.require_no_upstream()
    if isinstance(value, Default):
        return session.server.default_of(name)
    if name == SKIP_COUNTER:
        return _skip_count(session, value)
    lowest = session.server.engine.max_binlog_size_min if name == "max_binlog_size" else None
    shown = global_variables.as_shown(name, session.value_of(value), session.diagnostics, lowest)
    if name == SEMI_SYNC_WAIT_POINT and shown == AFTER_SYNC:
        # As by MariaDB with an engine binlog: what is in the binlog is committed.
        raise EngineBinlogUnavailable(f"{name}={shown}")
    if name == "binlog_checksum" and shown != session.global_value(name):
        # As by MariaDB with an engine binlog. In the classic style positions depend on it.
        text = f"{name} stays {session.global_value(name)}: {_CHECKSUM_STAYS[session.coordinates.classic]}"
        session.diagnostics.append(Diagnostic(Level.WARNING, UnknownServerError.errno, text))
    return shown


def _skip_count(session: SqlSession, value: Expression) -> str:
    count = global_variables.as_shown(SKIP_COUNTER, session.value_of(value), session.diagnostics)
    session.server.relay.require_skippable(session.master_connection, int(count))
    return count


def _check_room(
    session: SqlSession,
    assignments: Sequence[Assignment],
    values: Sequence[Value | HeldValue],
) -> None:
    names = {a.target.name for a in assignments if isinstance(a.target, UserVariable)}
    if len(names | session.user_variables.keys()) > USER_VARIABLES_MAX:
        raise WrongVariableValue("user variables", f"more than {USER_VARIABLES_MAX}")
    texts = [
        *((a.target.name, v) for a, v in zip(assignments, values, strict=True)),
        *session.user_variables.items(),
        *session.variables.items(),
    ]
    limit = session.server.max_session_mem_used
    size = 0
    for name, given in texts:
        value = given.value if isinstance(given, HeldValue) else given
        size += len(name) + len(value) if isinstance(value, str) else 0
    if size > limit:
        raise OptionPreventsStatement(f"--max-session-mem-used={limit}")
    session.variable_bytes = size


def _assign(session: SqlSession, assignment: Assignment, value: Value | HeldValue) -> Result:
    target = assignment.target
    if isinstance(target, UserVariable):
        assert isinstance(value, HeldValue)
        session.user_variables[target.name] = value
    elif target.name in GLOBALS and (
        target.scope is VariableScope.GLOBAL or not GLOBALS[target.name].also_session
    ):
        return _assign_globally(session, target.name, str(value))
    elif target.scope is VariableScope.NEXT and target.name in _READ_ONLY:
        session.next_read_only = None if value is None else value == "ON"
    elif value is None:
        session.variables.pop(target.name, None)
    else:
        session.variables[target.name] = str(value)
    return None


def _assign_globally(session: SqlSession, name: str, value: str) -> Result:
    server = session.server
    if name == "gtid_slave_pos":
        return Work(lambda: maintenance.set_slave_position(server, value), server.history_changed)
    if name == "gtid_binlog_state":
        return Work(lambda: maintenance.set_binlog_state(server, value), server.history_changed)
    if name == SKIP_COUNTER:
        server.relay.skip(session.master_connection, int(value))
        return None
    server.set_global(name, value)
    return None


def _assign_along(session: SqlSession, name: str) -> None:
    """The connection's character set and its collation go together, and the two names of one variable."""
    variables = session.variables
    if name in ALIASES:
        if name in variables:
            variables[ALIASES[name]] = variables[name]
        else:
            variables.pop(ALIASES[name], None)
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
