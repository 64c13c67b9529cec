"""SET: of the session, of its user variables, and of the running server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from binlog_protocol.errors import (
    ReadOnlyVariable,
    SqlSyntaxError,
    UnknownSystemVariable,
    WrongVariableValue,
)
from binlog_protocol.errors.replication_errors import WrongArguments
from binlog_protocol.errors.sql_errors import (
    CollationMismatch,
    GlobalVariable,
    GtidInsideTransaction,
    NoDefault,
    NotInSetStatement,
    OptionPreventsStatement,
    SessionVariable,
    SkippingInsideTransaction,
)
from binlog_protocol.errors.transaction_errors import TransactionInProgress
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    default_collation,
)
from lark import Token

from binlog_server.sql.expressions import (
    USER_VARIABLES_MAX,
    ColumnName,
    Default,
    Expression,
    ExpressionBuilder,
    HeldValue,
    Literal,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
    constant_named,
    names_variable,
)
from binlog_server.sql.session_settings import literal_collation
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, Family, Statement
from binlog_server.sql.tokens import exact_number, name_of
from binlog_server.sql.variables import VARIABLES, Reach, Variable
from binlog_server.sql.view import Result

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_SYSTEM_COLLATION = 33  # utf8mb3_general_ci: the collation of the server's own texts
_HISTORY = frozenset({"gtid_binlog_state", "gtid_slave_pos"})
# Words that are values of system variables, although they are reserved elsewhere in the grammar.
_NO_VALUES = frozenset({"ON", "DEFAULT"})
_READ_ONLY = frozenset({"tx_read_only", "transaction_read_only"})


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `target = value` of a SET."""

    target: UserVariable | SystemVariable
    value: Expression


@dataclass(frozen=True, slots=True)
class SetVariables(Statement):
    """SET; SET NAMES is an assignment to character_set_client. The privileges are those of the variables."""

    syntax = '"SET"i _assignment ("," _assignment)* | set_transaction'
    needs = ANYBODY

    assignments: tuple[Assignment, ...]

    @classmethod
    def built(cls, children: list[Any]) -> SetVariables:
        return cls(
            tuple(a for child in children for a in (child if isinstance(child, list) else [child]))
        )

    @property
    def shows_state(self) -> bool:
        return any(names_variable(a.value, STATE_VARIABLES) for a in self.assignments)

    def answer(self, session: SqlSession) -> Result:
        """None when done, or the work that is left (SET GLOBAL may wait for a disk)."""
        # All values are computed before the first is set: a statement that fails sets nothing.
        assignments = self.assignments
        _require_one_history(assignments)
        values = [_assigned(session, assignment) for assignment in assignments]
        _check_room(session, assignments, values)
        later: Result = None
        for assignment, value in zip(assignments, values, strict=True):
            later = _assign(session, assignment, value) or later
            _assign_along(session, assignment.target.name)
        return later


@dataclass(frozen=True, slots=True)
class SetStatement(Statement):
    """SET STATEMENT ... FOR: the assignments hold for `statement` alone, whose privileges it needs.

    Its answer raises `NotInSetStatement` (1971).
    """

    syntax = '"SET"i "STATEMENT"i for_statement ("," for_statement)* "FOR"i statement'
    needs = ANYBODY

    assignments: tuple[Assignment, ...]
    statement: Statement

    @classmethod
    def built(cls, children: list[Any]) -> SetStatement:
        *assignments, statement = children
        if isinstance(statement, SetVariables):  # its settings would be undone at once
            raise SqlSyntaxError("SET")
        return cls(tuple(assignments), statement)

    @property
    def shows_state(self) -> bool:
        return SetVariables(self.assignments).shows_state or self.statement.shows_state

    def answer(self, session: SqlSession) -> Result:
        session.require_for(self.statement)
        for assignment in self.assignments:
            name = assignment.target.name
            variable = VARIABLES.get(name)
            if variable is not None and not variable.in_statement:
                raise NotInSetStatement(name)
            if variable is not None and variable.is_set_globally(Scope.SESSION):
                raise GlobalVariable(name)
        before = dict(session.variables)
        try:
            SetVariables(self.assignments).answer(session)
            return self.statement.answer(session)
        finally:
            session.variables.clear()
            session.variables.update(before)


def _require_one_history(assignments: Sequence[Assignment]) -> None:
    """Raises `WrongArguments` (1210) where a statement sets the history of the store twice: only one can be true."""
    names = [
        assignment.target.name
        for assignment in assignments
        if isinstance(assignment.target, SystemVariable) and assignment.target.name in _HISTORY
    ]
    if len(names) > 1:
        raise WrongArguments(f"SET: {' and '.join(names)} cannot be set by one statement")


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
    if settable and variable.reach is Reach.SESSION_ONLY and scope is Scope.GLOBAL:
        raise SessionVariable(name)
    # Some variables that MariaDB can change while it runs are changed in the configuration file only here.
    if variable.set_session is None or scope is Scope.GLOBAL:
        raise ReadOnlyVariable(name)
    session.require(*variable.set_session)
    if session.in_transaction() and not variable.in_transaction:
        raise SkippingInsideTransaction if name == "skip_replication" else GtidInsideTransaction
    if scope is Scope.NEXT and session.in_transaction():
        raise TransactionInProgress
    if isinstance(value, Default):
        if not variable.has_default:
            raise NoDefault(name)
        return None
    shown = variable.kind.given(name, session.value_of(value), session.warn)
    variable.check(session, shown)
    return shown


def _assigned_globally(
    session: SqlSession, variable: Variable, scope: Scope, value: Expression
) -> str:
    if scope is not Scope.GLOBAL:
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
    elif target.scope is Scope.NEXT and target.name in _READ_ONLY:
        session.next_read_only = None if value is None else value == "ON"
    else:
        if target.name in _READ_ONLY:  # it holds for the next transaction, too
            session.next_read_only = None
        was = session.variables.pop(target.name, None)
        if value is not None:
            session.variables[target.name] = str(value)
        if target.name == "autocommit" and was == "OFF" and value in (None, "ON"):
            session.is_to_commit = True
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


_RULES = r"""
_assignment: assign_user | assign_system | names | character_set
assign_user: "@" (NAME | QUOTED_NAME | STRING) _BECOMES (expression | bare)
assign_system: [scope] NAME _BECOMES value
             | "@@" [scope "."] NAME _BECOMES value -> assign_at_system
names: "NAMES"i (NAME | STRING | DEFAULT) ["COLLATE"i (NAME | STRING)]
character_set: ("CHARACTER"i "SET"i | "CHARSET"i) (NAME | STRING | DEFAULT)
?value: expression
      | (NAME | QUOTED_NAME) -> word
      | "ON"i             -> word_on
      | DEFAULT           -> default

// SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE
set_transaction: "SET"i [scope] "TRANSACTION"i _characteristic ("," _characteristic)*
_characteristic: "ISOLATION"i "LEVEL"i LEVEL
               | "READ"i ACCESS

for_statement: NAME _BECOMES value
_BECOMES: "=" | ":="
DEFAULT: "DEFAULT"i
LEVEL: /READ\s+(UNCOMMITTED|COMMITTED)\b|REPEATABLE\s+READ\b|SERIALIZABLE\b/i
ACCESS: /(ONLY|WRITE)\b/i
"""


class _Builder(ExpressionBuilder):
    def assign_user(self, children: list[Any]) -> Assignment:
        name, value = children
        if isinstance(value, ColumnName) and value.name.upper() in _NO_VALUES:
            raise SqlSyntaxError(value.name)
        return Assignment(UserVariable(name_of(name)), constant_named(value, "SET"))

    def assign_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        return Assignment(SystemVariable(scope or Scope.DEFAULT, name_of(name)), value)

    def assign_at_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        variable = VARIABLES.get(name_of(name))
        if scope is None and variable is not None and variable.twin:  # those of transactions
            scope = Scope.NEXT
        return Assignment(SystemVariable(scope or Scope.DEFAULT, name_of(name)), value)

    def names(self, children: list[Any]) -> list[Assignment]:
        charset, collation = children
        value = _charset(charset)
        names = ["client", "connection", "results"]
        found = [_session(f"character_set_{name}", value) for name in names]
        if collation is not None:
            if charset.type != "DEFAULT":
                _check_collation(name_of(charset), name_of(collation))
            found.append(_session("collation_connection", Literal(name_of(collation))))
        return found

    def character_set(self, children: list[Any]) -> list[Assignment]:
        # The connection gets the database's character set. There is no database, so it is the default.
        value = _charset(children[0])
        return [
            _session("character_set_client", value),
            _session("character_set_results", value),
            _session("character_set_connection", Default()),
        ]

    def set_transaction(self, children: list[Any]) -> list[Assignment]:
        scope, *characteristics = children
        if len({token.type for token in characteristics}) < len(characteristics):
            raise SqlSyntaxError(characteristics[-1])  # only one of each kind is allowed
        assignments: list[Assignment] = []
        for words in (token.upper().split() for token in characteristics):
            if words[-1] in ("ONLY", "WRITE"):
                names = ("tx_read_only", "transaction_read_only")
                value = Literal(int(words[-1] == "ONLY"))
            else:
                names = ("tx_isolation", "transaction_isolation")
                value = Literal("-".join(words))
            assignments += [
                Assignment(SystemVariable(scope or Scope.NEXT, name), value) for name in names
            ]
        return assignments

    def for_statement(self, children: list[Any]) -> Assignment:
        name, value = children
        return _session(name_of(name), value)


FAMILY = Family((SetVariables, SetStatement), _RULES, _Builder)


def _charset(name: Token) -> Literal | Default:
    return Default() if name.type == "DEFAULT" else Literal(name_of(name))


def _session(name: str, value: Expression) -> Assignment:
    return Assignment(SystemVariable(Scope.SESSION, name), value)


def _check_collation(charset: str, collation: str) -> None:
    """Raises `CollationMismatch` (1253). An unknown name is not its job: the assignment finds it."""
    number = collation_numbered(collation)
    known = charset_named(charset)
    if number is not None and known is not None and charset_of(number) != known:
        raise CollationMismatch(collation, charset)
