"""SET: of the session, of its user variables, and of the running server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from sys import getsizeof
from typing import TYPE_CHECKING

from binlog_protocol.errors import (
    ReadOnlyVariable,
    UnknownSystemVariable,
    WrongVariableValue,
)
from binlog_protocol.errors.replication_errors import WrongArguments
from binlog_protocol.errors.sql_errors import (
    GlobalVariable,
    GtidInsideTransaction,
    NotInSetStatement,
    OptionPreventsStatement,
    SessionVariable,
    SkippingInsideTransaction,
)
from binlog_protocol.errors.transaction_errors import TransactionInProgress
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import (
    collation_name,
    collation_numbered,
    default_collation,
)

from binlog_server.sql.session_settings import literal_collation
from binlog_server.sql.statement_kind import USER_VARIABLES_MAX
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
from binlog_server.sql.variables import VARIABLES, Reach, Variable
from binlog_server.sql.view import Result

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_SYSTEM_COLLATION = 33  # utf8mb3_general_ci: the collation of the server's own texts
_HISTORY = frozenset({"gtid_binlog_state", "gtid_slave_pos"})
_READ_ONLY = frozenset({"tx_read_only", "transaction_read_only"})


def set_variables(session: SqlSession, statement: SetVariables) -> Result:
    """SET: None when done, or the work that is left (SET GLOBAL may wait for a disk). Raises `ServerError`."""
    # All values are computed before the first is set: a statement that fails sets nothing.
    assignments = statement.assignments
    _require_one_history(assignments)
    values = [_assigned(session, assignment) for assignment in assignments]
    _check_room(session, assignments, values)
    later: Result = None
    for assignment, value in zip(assignments, values, strict=True):
        later = _assign(session, assignment, value) or later
        _assign_along(session, assignment.target.name)
    return later


def _require_one_history(assignments: Sequence[Assignment]) -> None:
    """Raises `WrongArguments` (1210) where a statement sets the history of the store twice: only one can be true."""
    names = [
        assignment.target.name
        for assignment in assignments
        if isinstance(assignment.target, SystemVariable) and assignment.target.name in _HISTORY
    ]
    if len(names) > 1:
        raise WrongArguments(f"SET: {' and '.join(names)} cannot be set by one statement")


def set_for_statement(
    session: SqlSession, statement: SetStatement, execute: Callable[[], Result]
) -> Result:
    """SET STATEMENT ... FOR: call `execute` with the variables set, then restore them.

    Raises `NotInSetStatement` (1971).
    """
    for assignment in statement.assignments:
        name = assignment.target.name
        variable = VARIABLES.get(name)
        if variable is not None and not variable.in_statement:
            raise NotInSetStatement(name)
        if variable is not None and variable.is_set_globally(VariableScope.SESSION):
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
    name, scope = target.name, target.scope
    variable = VARIABLES.get(name)
    if variable is None:
        raise UnknownSystemVariable(name)
    if variable.is_set_globally(scope):
        return _assigned_globally(session, variable, scope, value)
    settable = variable.set_session is not None
    if settable and variable.reach is Reach.SESSION_ONLY and scope is VariableScope.GLOBAL:
        raise SessionVariable(name)
    # Some variables that MariaDB can change while it runs are changed in the configuration file only here.
    if variable.set_session is None or scope is VariableScope.GLOBAL:
        raise ReadOnlyVariable(name)
    session.require(*variable.set_session)
    if session.in_transaction() and not variable.in_transaction:
        raise SkippingInsideTransaction if name == "skip_replication" else GtidInsideTransaction
    if scope is VariableScope.NEXT and session.in_transaction():
        raise TransactionInProgress
    if isinstance(value, Default):
        return None
    shown = variable.kind.given(name, session.value_of(value), session.warn)
    variable.check(session, shown)
    return shown


def _assigned_globally(
    session: SqlSession, variable: Variable, scope: VariableScope, value: Expression
) -> str:
    if scope is not VariableScope.GLOBAL:
        raise GlobalVariable(variable.name)
    session.require(*variable.set_global or ())
    if isinstance(value, Default):
        shown = variable.global_default(session)
    else:
        given = session.value_of(value)
        shown = variable.global_kind(session).given(variable.name, given, session.warn)
    variable.check(session, shown)
    return shown


def _check_room(
    session: SqlSession,
    assignments: Sequence[Assignment],
    values: Sequence[Value | HeldValue],
) -> None:
    names = {a.target.name for a in assignments if isinstance(a.target, UserVariable)}
    if len(names | session.user_variables.keys()) > USER_VARIABLES_MAX:
        raise WrongVariableValue("user variables", f"more than {USER_VARIABLES_MAX}")
    kept = [
        *((a.target.name, v) for a, v in zip(assignments, values, strict=True)),
        *session.user_variables.items(),
        *session.variables.items(),
    ]
    limit = session.server.config.max_session_mem_used
    # Counted in bytes of memory: one character beyond the BMP makes Python keep the whole text in 4-byte units.
    size = 0
    for name, given in kept:
        value = given.value if isinstance(given, HeldValue) else given
        size += getsizeof(name) + getsizeof(value)
    if size > limit:
        raise OptionPreventsStatement(f"--max-session-mem-used={limit}")
    session.variable_bytes = size


def _assign(session: SqlSession, assignment: Assignment, value: Value | HeldValue) -> Result:
    target = assignment.target
    if isinstance(target, UserVariable):
        assert isinstance(value, HeldValue)
        session.user_variables[target.name] = value
    elif VARIABLES[target.name].is_set_globally(target.scope):
        return VARIABLES[target.name].apply(session, str(value))
    elif target.scope is VariableScope.NEXT and target.name in _READ_ONLY:
        session.next_read_only = None if value is None else value == "ON"
    elif value is None:
        session.variables.pop(target.name, None)
    else:
        session.variables[target.name] = str(value)
    return None


def _assign_along(session: SqlSession, name: str) -> None:
    """Keep in step the connection's character set and its collation, and the two names of one variable."""
    variables = session.variables
    twin = VARIABLES[name].twin if name in VARIABLES else ""
    if twin and name in variables:
        variables[twin] = variables[name]
    elif twin:
        variables.pop(twin, None)
    if name == "timestamp" and variables.get(name) == "0.000000":
        del variables[name]  # as DEFAULT: the session has the machine's time again
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
