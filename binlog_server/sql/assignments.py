"""SET: of the session, of its user variables, and of the running server."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, Self

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CollationMismatch,
    FormatInsideTransaction,
    GlobalVariable,
    GtidInsideTransaction,
    InvalidRole,
    LoggingInsideTransaction,
    NoDefault,
    NotInSetStatement,
    OptionPreventsStatement,
    ReadOnlyVariable,
    ServerError,
    SessionReadOnly,
    SessionVariable,
    SkippingInsideTransaction,
    SqlSyntaxError,
    TransactionInProgress,
    UnknownSystemVariable,
    WrongArguments,
    WrongVariableValue,
    require_chars,
)
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    default_collation,
)
from binlog_protocol.wire.binary_rows import BLOBS

from binlog_server.accounts.account import NAME_CHARS_MAX
from binlog_server.sql.expressions import (
    USER_VARIABLES_MAX,
    ColumnName,
    Default,
    Expression,
    ExpressionBuilder,
    Function,
    Given,
    HeldValue,
    Literal,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
    constant_named,
    names_variable,
)
from binlog_server.sql.functions import is_called
from binlog_server.sql.recorded_variables import Reach
from binlog_server.sql.session_settings import kept_text, literal_collation
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, Family, Statement
from binlog_server.sql.tokens import as_written, exact_number, name_of
from binlog_server.sql.variables import VARIABLES, Variable
from binlog_server.sql.view import Result, Unfinished, text_of

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

_SYSTEM_COLLATION = 33  # utf8mb3_general_ci: the collation of the server's own texts
_HISTORY = frozenset({"gtid_binlog_state", "gtid_slave_pos"})
# Words that are values of system variables, although they are reserved elsewhere in the grammar.
_NO_VALUES = frozenset({"ON", "DEFAULT"})
_IN_TRANSACTION = {
    "binlog_format": FormatInsideTransaction,
    "skip_replication": SkippingInsideTransaction,
    "sql_log_bin": LoggingInsideTransaction,
}
_ISOLATION = frozenset({"tx_isolation", "transaction_isolation"})
_READ_ONLY = frozenset({"tx_read_only", "transaction_read_only"})
_OF_DRIVERS: Final = compiled_later(
    r"SET (?:NAMES (?P<charset>(?!DEFAULT$)[a-z][a-z0-9]*)|AUTOCOMMIT ?= ?(?P<switch>[01]))",
    re.IGNORECASE | re.ASCII,
)


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
    com = "set_option"

    assignments: tuple[Assignment, ...]
    warnings: tuple[ServerError, ...] = ()  # of computing the values

    @classmethod
    def built(cls, children: list[Any]) -> SetVariables:
        return cls(
            tuple(a for child in children for a in (child if isinstance(child, list) else [child]))
        )

    @property
    def is_logged(self) -> bool:
        targets = (a.target for a in self.assignments)
        return any(isinstance(t, SystemVariable) and t.scope is Scope.GLOBAL for t in targets)

    @property
    def shows_state(self) -> bool:
        return any(names_variable(a.value, STATE_VARIABLES) for a in self.assignments)

    @property
    def leaves_settings(self) -> bool:
        """Whether no setting of the session can be another one behind it: it sets user variables alone, to what has no
        function in it, as LAST_INSERT_ID(5)."""
        return all(
            isinstance(a.target, UserVariable) and isinstance(a.value, (Literal, SystemVariable))
            for a in self.assignments
        )

    def answer(self, session: SqlSession) -> Result:
        """None when done, or the work that is left (SET GLOBAL may wait for a disk)."""
        # All values are computed before the first is set: a statement that fails sets nothing.
        assignments = self.assignments
        for warning in self.warnings:
            session.warn(warning)
        _require_one_history(assignments)
        values = [_assigned(session, assignment) for assignment in assignments]
        _check_room(session, assignments, values)
        later: Result = None
        for assignment, value in zip(assignments, values, strict=True):
            later = _assign(session, assignment, value) or later
            _assign_along(session, assignment.target)
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
    def counted_as(self) -> str:
        return self.statement.counted_as

    @property
    def is_logged(self) -> bool:
        return self.statement.is_logged

    @property
    def shows_state(self) -> bool:
        return SetVariables(self.assignments).shows_state or self.statement.shows_state

    @property
    def is_about_diagnostics(self) -> bool:
        return self.statement.is_about_diagnostics

    @property
    def forgets_warnings(self) -> bool:
        return self.statement.forgets_warnings

    def described(self, session: SqlSession) -> Result:
        session.require_for(self.statement)
        with self.applied(session):
            return self._around(self.statement.described(session))

    def given(self, parameters: Sequence[Given]) -> SetStatement | None:
        inner = self.statement.given(parameters)
        return None if inner is None else replace(self, statement=inner)

    def answer(self, session: SqlSession) -> Result:
        session.require_for(self.statement)
        with self.applied(session):
            return self._around(self.statement.answer(session))

    def _around(self, result: Result) -> Result:
        """What is left to be read of the statement, with the assignments in front of it."""
        if not isinstance(result, Unfinished):
            return result
        return replace(result, run=lambda: replace(self, statement=result.run()))

    @contextlib.contextmanager
    def applied(self, session: SqlSession) -> Iterator[None]:
        """The time in which the assignments hold. Raises as `answer`."""
        for assignment in self.assignments:
            name = assignment.target.name
            variable = VARIABLES.get(name)
            if variable is not None and not variable.in_statement:
                raise NotInSetStatement(name)
            if variable is not None and variable.is_set_globally(Scope.SESSION):
                raise GlobalVariable(name)
        before, changed = dict(session.variables), dict(session.changed)
        try:
            SetVariables(self.assignments).answer(session)
            yield
        finally:
            session.variables.clear()
            session.variables.update(before)
            session.changed = changed


@dataclass(frozen=True, slots=True)
class SetRole(Statement):
    """SET ROLE: NONE is what there is. Its answer is `InvalidRole` (1959) for a role.

    Raises 1470 for a name that no role can have.
    """

    syntax = '"SET"i "ROLE"i _role'
    needs = ANYBODY
    com = "set_option"

    role: str

    @classmethod
    def built(cls, children: list[Any]) -> Self:
        role = as_written(children[0])
        require_chars(role, "user name", NAME_CHARS_MAX)
        return cls(role)

    def answer(self, session: SqlSession) -> None:
        if self.role.upper() != "NONE":
            raise InvalidRole(self.role)


class SetDefaultRole(SetRole):
    """SET DEFAULT ROLE: unlike SET ROLE it is a change of an account, and so commits."""

    __slots__ = ()
    syntax = '"SET"i "DEFAULT"i "ROLE"i _role ["FOR"i _role_of]'
    commits = True

    def answer(self, session: SqlSession) -> None:
        session.require_writing()
        super().answer(session)


def set_by_driver(text: str) -> SetVariables | None:
    """What the grammar makes of a SET that drivers say behind each login: the first one of a server need not wait until
    grammars are loaded. None for any other text.
    """
    found = _OF_DRIVERS.fullmatch(text)
    if found is None:
        return None
    if found["switch"]:
        target = SystemVariable(Scope.DEFAULT, "autocommit")
        return SetVariables((Assignment(target, Literal(int(found["switch"]))),))
    return SetVariables(tuple(_names(Literal(found["charset"].lower()))))


def _require_one_history(assignments: Sequence[Assignment]) -> None:
    """Raises `WrongArguments` (1210) where a statement sets the history of the store twice: only one can be true."""
    names = [
        assignment.target.name
        for assignment in assignments
        if isinstance(assignment.target, SystemVariable) and assignment.target.name in _HISTORY
    ]
    if len(names) > 1:
        raise WrongArguments(f"SET: {' and '.join(names)} cannot be set by one statement")


def held_value(session: SqlSession, expression: Expression) -> HeldValue:
    """The value of an expression, with the collation of a string."""
    if isinstance(expression, UserVariable):
        return session.user_variables.get(expression.name, HeldValue(None))
    found = session.value_of(expression)
    if isinstance(expression, SystemVariable) and isinstance(found, Decimal):
        found = exact_number(f"{found:f}".rstrip("0").rstrip("."))
    is_made = isinstance(expression, Function) and bool(expression.arguments)  # CONCAT of these
    if isinstance(found, str) and not (isinstance(expression, Literal) or is_made):
        return HeldValue(found, _SYSTEM_COLLATION)
    is_blob = isinstance(expression, Given) and expression.type in BLOBS
    if isinstance(found, str) and not is_blob:
        found = kept_text(found, session.variables)
    return HeldValue(found, literal_collation(str(found), session.variables))


def _assigned(session: SqlSession, assignment: Assignment) -> Value | HeldValue:
    target, value = assignment.target, assignment.value
    if not isinstance(target, SystemVariable):
        return held_value(session, value)
    name, scope = target.name, target.scope
    variable = VARIABLES.get(name)
    if variable is None:
        raise UnknownSystemVariable(name)
    if variable.is_set_globally(scope):
        return _assigned_globally(session, variable, scope, value)
    if variable.reach is Reach.SESSION_ONLY and variable.set_session is None:
        raise ReadOnlyVariable(name)
    if scope is Scope.GLOBAL and variable.reach is Reach.SESSION_ONLY:
        raise SessionVariable(name)
    # Some variables that MariaDB can change while it runs are changed in the configuration file only here.
    is_fixed = variable.set_global is None and variable.set_session is None
    if is_fixed or scope is Scope.GLOBAL:
        raise ReadOnlyVariable(name)
    if variable.set_session is None:
        raise SessionReadOnly(name)
    session.require(*variable.set_session)
    if session.in_transaction() and not variable.in_transaction:
        raise _IN_TRANSACTION.get(name, GtidInsideTransaction)()
    if scope is Scope.NEXT and session.in_transaction():
        raise TransactionInProgress()
    if isinstance(value, Default):
        if not variable.has_default:
            raise NoDefault(name)
        if variable.is_session_read_only:
            raise SessionReadOnly(name)
        _warn_of(session, variable)
        return variable.session_default(session)
    _warn_of(session, variable)
    now = text_of(variable.read_here(session) or "")
    shown = variable.kind.given(name, session.value_of(value), session, now)
    if variable.is_session_read_only:
        raise SessionReadOnly(name)
    variable.check(session, shown)
    return shown


def _assigned_globally(
    session: SqlSession, variable: Variable, scope: Scope, value: Expression
) -> str:
    if scope is not Scope.GLOBAL:
        raise GlobalVariable(variable.name)
    session.require(*variable.set_global or ())
    _warn_of(session, variable)
    if isinstance(value, Default):
        shown = variable.global_default(session)
    else:
        given = session.value_of(value)
        now = text_of(variable.read(session) or "")
        shown = variable.global_kind(session).given(variable.name, given, session, now)
    variable.check_global(session, shown)
    return shown


def _warn_of(session: SqlSession, variable: Variable) -> None:
    """Say what MariaDB says with every SET of some variables: that they will go."""
    if variable.warning is not None:
        session.warn(variable.warning)


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


def hold(session: SqlSession, held: Mapping[str, HeldValue]) -> None:
    """Set user variables, as SET does. Raises as it: 1231 for too many, 1290 for too much memory."""
    assigned = [Assignment(UserVariable(name), Default()) for name in held]
    _check_room(session, assigned, list(held.values()))
    session.user_variables.update(held)


def _assign(session: SqlSession, assignment: Assignment, value: Value | HeldValue) -> Result:
    target = assignment.target
    if isinstance(target, UserVariable):
        assert isinstance(value, HeldValue)
        session.user_variables[target.name] = value
    elif VARIABLES[target.name].is_set_globally(target.scope):
        return VARIABLES[target.name].apply(session, str(value))
    elif VARIABLES[target.name].stays_in(session):
        pass
    elif target.scope is Scope.NEXT and target.name in _ISOLATION:
        # The variable is the session's, and shows what comes behind the next transaction.
        session.isolation = VARIABLES[target.name].default if value is None else str(value)
    elif target.scope is Scope.NEXT and target.name in _READ_ONLY:
        session.next_read_only = None if value is None else value == "ON"
    else:
        session.assigned.append(target.name)
        if target.name in _READ_ONLY:  # it holds for the next transaction, too
            session.next_read_only = None
        was = session.variables.pop(target.name, None)
        if target.name in _ISOLATION:  # the open transaction keeps its own
            of_open = session.isolation or was or VARIABLES[target.name].default
            session.isolation = of_open if session.in_transaction() else None
        if value is not None:
            session.variables[target.name] = str(value)
        session.changed[target.name] = None
        if target.name == "autocommit" and was == "OFF" and value in (None, "ON"):
            session.is_to_commit = True
    return None


# Names of a character set and of its collation: SET of one sets the other.
_CHARSETS = {
    "character_set_connection": "collation_connection",
    "character_set_database": "collation_database",
    "character_set_server": "collation_server",
}
_COLLATIONS = {collation: charset for charset, collation in _CHARSETS.items()}


def _assign_along(session: SqlSession, target: UserVariable | SystemVariable) -> None:
    """Keep in step a character set and its collation, and the two names of one variable."""
    variable = VARIABLES.get(target.name) if isinstance(target, SystemVariable) else None
    if variable is None or not isinstance(target, SystemVariable):
        return
    name, variables = target.name, session.variables
    if variable.is_set_globally(target.scope):
        variables = session.server.kept_variables
    elif variable.twin and name in variables:
        variables[variable.twin] = variables[name]
    elif variable.twin:
        variables.pop(variable.twin, None)
    if name == "timestamp" and variables.get(name) == "0.000000":
        del variables[name]  # as DEFAULT: the session has the machine's time again
    other = _COLLATIONS.get(name) or _CHARSETS.get(name)
    if other is not None and name not in variables:
        variables.pop(other, None)
    elif name in _COLLATIONS:
        number = collation_numbered(variables[name])
        charset = None if number is None else charset_of(number)
        variables[_COLLATIONS[name]] = charset or "utf8mb4"
    elif name in _CHARSETS:
        variables[_CHARSETS[name]] = collation_name(default_collation(variables[name]))


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

_role: NAME | QUOTED_NAME | STRING
_role_of: _role ["@" _role]
for_statement: NAME _BECOMES value
_BECOMES: "=" | ":="
DEFAULT: "DEFAULT"i
LEVEL: /READ\s+(UNCOMMITTED|COMMITTED)\b|REPEATABLE\s+READ\b|SERIALIZABLE\b/i
ACCESS: /(ONLY|WRITE)\b/i
"""


class _Builder(ExpressionBuilder):
    _scope = (
        Scope.DEFAULT
    )  # the last one of the statement: SET GLOBAL a=1, b=2 sets two global values

    def assign_user(self, children: list[Any]) -> Assignment:
        name, value = children
        _require_known(value)
        if isinstance(value, ColumnName) and value.name.upper() in _NO_VALUES:
            raise SqlSyntaxError(value.name)
        return Assignment(UserVariable(name_of(name)), constant_named(value, "SET"))

    def assign_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        _require_known(value)
        self._scope = scope or self._scope
        return Assignment(SystemVariable(self._scope, name_of(name)), value)

    def assign_at_system(self, children: list[Any]) -> Assignment:
        scope, name, value = children
        _require_known(value)
        variable = VARIABLES.get(name_of(name))
        if scope is None and variable is not None and variable.twin:  # those of transactions
            scope = Scope.NEXT
        return Assignment(SystemVariable(scope or Scope.DEFAULT, name_of(name)), value)

    def names(self, children: list[Any]) -> list[Assignment]:
        charset, collation = children
        found = _names(_charset(charset))
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
            # By the names that are not deprecated: the others follow them.
            if words[-1] in ("ONLY", "WRITE"):
                name, value = "transaction_read_only", Literal(int(words[-1] == "ONLY"))
            else:
                name, value = "transaction_isolation", Literal("-".join(words))
            assignments.append(Assignment(SystemVariable(scope or Scope.NEXT, name), value))
        return assignments

    def for_statement(self, children: list[Any]) -> Assignment:
        name, value = children
        return _session(name_of(name), value)


FAMILY = Family((SetVariables, SetStatement, SetRole, SetDefaultRole), _RULES, _Builder)


def _require_known(value: Expression) -> None:
    """Raises `SqlSyntaxError` for a function of which only `queries` knows, so that it is computed there."""
    if isinstance(value, Function) and not is_called(value.name, len(value.arguments)):
        raise SqlSyntaxError(f"{value.name}(")


def _charset(name: Token) -> Literal | Default:
    return Default() if name.type == "DEFAULT" else Literal(name_of(name))


def _names(charset: Expression) -> list[Assignment]:
    names = ["client", "connection", "results"]
    return [_session(f"character_set_{name}", charset) for name in names]


def _session(name: str, value: Expression) -> Assignment:
    return Assignment(SystemVariable(Scope.SESSION, name), value)


def _check_collation(charset: str, collation: str) -> None:
    """Raises `CollationMismatch` (1253). An unknown name is not its job: the assignment finds it."""
    number = collation_numbered(collation)
    known = charset_named(charset)
    if number is not None and known is not None and charset_of(number) != known:
        raise CollationMismatch(collation, charset)
