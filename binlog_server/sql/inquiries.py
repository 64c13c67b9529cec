"""Questions that the grammars do not take: SELECT of expressions, and over the tables of `little_tables`.

    text --(thread)--> tree --(loop)--> what it needs of the server --(thread)--> rows --(loop)--> answer

Up to the tree, and to the values of a SET, a statement is `Unfinished`.

The first question imports what reads and computes it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    DifferentColumns,
    EngineBinlogUnavailable,
    NoRows,
    NotSupportedYet,
    ServerError,
    SqlSyntaxError,
    TooManyRows,
)
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import collation_numbered
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import TokenKind, tokens
from binlog_protocol.wire.results import Column
from binlog_protocol.wire.results import Value as WireValue

from binlog_server.queries.terms import (
    DEFAULT_MODES,
    TEXT_CHARS_MAX,
    Asker,
    Budget,
    LockCalls,
    MustWait,
)
from binlog_server.queries.types import QUOTIENT_DIGITS, Type, ValueForm, of_column
from binlog_server.queries.values import Single, as_text
from binlog_server.sql import assignments, little_tables
from binlog_server.sql.assignments import Assignment, SetVariables
from binlog_server.sql.expressions import (
    Function,
    Given,
    HeldValue,
    Literal,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.functions import call
from binlog_server.sql.question_plans import explained
from binlog_server.sql.selects import SelectItem, column_of
from binlog_server.sql.session_settings import (
    client_charset,
    decoded_statement,
    is_utf8,
    kept_text,
    literal_collation,
)
from binlog_server.sql.state_texts import STATE_VARIABLES
from binlog_server.sql.statement import ANYBODY, Statement
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.values import time_zone
from binlog_server.sql.view import (
    Computed,
    Result,
    ResultSet,
    Row,
    Unfinished,
    text_bytes,
)
from binlog_server.tables.generated import default_functions, default_of
from binlog_server.tables.held import HeldDefinition
from binlog_server.tables.paths import path_of
from binlog_server.tables.rows import HeldRows, Reading

if TYPE_CHECKING:
    from binlog_protocol.tables.definition import StoredTable

    from binlog_server.queries.binding import GivenTable
    from binlog_server.queries.parsing import Question
    from binlog_server.queries.running import Output, Plan
    from binlog_server.sql.sql_session import SqlSession

_SCOPES: Final = {"": Scope.DEFAULT, "GLOBAL": Scope.GLOBAL, "SESSION": Scope.SESSION}
# Functions without arguments that the server answers: `functions.call` has their values.
_OF_THE_SERVER: Final = frozenset(
    {
        *("CONNECTION_ID", "CURRENT_ROLE", "CURRENT_USER", "DATABASE", "SCHEMA", "SESSION_USER"),
        *("SYSTEM_USER", "USER", "UUID", "VERSION", "FOUND_ROWS", "ROW_COUNT"),
    }
)
_NO_LIMIT: Final = 2**64 - 1
_WAITS_MAX: Final = 64  # of one statement: after each it is run again
_OF_POSITIONS: Final = frozenset({"BINLOG_GTID_POS", "MASTER_POS_WAIT"})
Parameter = tuple[Type, Any]
Tables = Mapping[tuple[str | None, str], "GivenTable"]
NO_TABLES: Final[Tables] = {}


@dataclass(frozen=True, slots=True)
class Inquiry(Statement):
    """A question: its text, and what a thread has read in it."""

    syntax = ""
    needs = ANYBODY
    com = "select"

    text: str
    refusal: SqlSyntaxError | None = None  # of the grammar that did not take it
    question: Question | None = None
    parameters: tuple[Parameter, ...] = ()
    gives_rows: bool = True  # DO gives none
    explains: bool = False  # EXPLAIN of it: its tables in the place of its rows

    def _read(self) -> Inquiry:
        """Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235)."""
        from binlog_server.queries.parsing import question

        try:
            return replace(self, question=question(plain(self.text)))
        except SqlSyntaxError as error:
            # Of the two the one that came further.
            if self.refusal is not None and len(self.refusal.near) < len(error.near):
                raise self.refusal from None
            raise

    @property
    def shows_state(self) -> bool:
        question = self.question
        return question is not None and (
            any(name in STATE_VARIABLES for _, name in question.system_variables)
            or any(name.upper() in little_tables.STATE for _, name in question.tables)
        )

    @property
    def forgets_warnings(self) -> bool:
        return self.question is None or bool(self.question.tables)

    def answer(self, session: SqlSession) -> Computed | Unfinished:
        """Its rows. On the loop; raises `ServerError` for tables and variables that there are not."""
        return self._unread() or self._look(session, is_run=True)

    def described(self, session: SqlSession) -> Result:
        """Its columns, without rows: for a statement that is prepared."""
        return self._unread() or self._look(session, is_run=False)

    def _unread(self) -> Unfinished | None:
        """What is left while its text is not read."""
        return Unfinished(self._read) if self.question is None else None

    def given(self, parameters: Sequence[Given]) -> Inquiry:
        """See `Statement`."""
        return replace(self, parameters=tuple(map(_of_parameter, parameters)))

    def _look(self, session: SqlSession, given: Tables = NO_TABLES, *, is_run: bool) -> Computed:
        question = self.question
        assert question is not None
        asker = asker_of(session, question, self.parameters)
        reading: list[Reading] = []  # one for all tables here, if there are any
        tables = tables_of(session, question, asker, reading, given, is_run=is_run)
        if question.locks and any(isinstance(one, HeldRows) for one in tables.values()):
            from binlog_server.queries.parsing import refused_lock

            raise refused_lock()
        stored: list[int] = []  # how many rows went INTO variables
        runs: list[Asker] = []  # behind a wait for a lock the statement is run again

        def run() -> ResultSet:
            from binlog_server.queries.binding import bind

            if len(runs) > _WAITS_MAX:
                raise NotSupportedYet("waiting for so many locks in one statement")
            asker.budget.begin()
            asking = asker.again()
            runs.append(asking)
            plan = bind(question, asking, lambda schema, name: tables[schema, name])
            if self.explains:
                return explained(question, tables)
            if any(isinstance(one, HeldRows) and one.path.is_ordered for one in tables.values()):
                plan.order = []  # they come so
            if question.into:
                stored[:] = [_stored(plan, question.into, asking, is_run=is_run)]
                return result_of(plan.outputs, (), asker.budget)
            found = result_of(plan.outputs, plan.run() if is_run else (), asker.budget)
            return replace(found, found=plan.total if plan.is_counted else None)

        async def wait(wait: MustWait) -> None:
            got = await session.server.user_locks.wait(
                session.connection_id, wait.name, wait.seconds
            )
            asker.lock_calls.given.append(None if got is None else int(got))

        return Computed(
            session.user,
            _closing(reading, run),
            asker.budget.cancel,
            lambda: runs[-1].sleeps_s,
            lambda: keep_of_question(session, runs[-1]),
            lambda: question.held + asker.budget.made,
            _timeout(session),
            wait,
            self.gives_rows and not question.into,
            lambda: sum(stored),
        )

    @property
    def held(self) -> int:
        return 0 if self.question is None else self.question.held


def _stored(plan: Plan, names: Sequence[str], asker: Asker, *, is_run: bool) -> int:
    """Put the only row of a question into user variables. Returns how many rows there are.

    Raises `DifferentColumns` (1222), `TooManyRows` (1172).
    """
    if len(plan.outputs) != len(names):
        raise DifferentColumns()
    rows = list(itertools.islice(plan.run(), 2)) if is_run else []
    if len(rows) > 1:
        raise TooManyRows()
    if is_run and not rows:
        asker.warn(NoRows())
    for row in rows:
        for name, output, value in zip(names, plan.outputs, row, strict=True):
            asker.assigned[name] = (output.kind.computed(), value)
    return len(rows)


def _closing(reading: Sequence[Reading], run: Callable[[], ResultSet]) -> Callable[[], ResultSet]:
    """The same; what it has read of tables here is closed then."""

    def closed() -> ResultSet:
        try:
            return run()
        finally:
            for one in reading:
                one.close()

    return closed


def tables_of(
    session: SqlSession,
    question: Question,
    asker: Asker,
    reading: list[Reading],
    given: Tables = NO_TABLES,
    *,
    changed: tuple[str | None, str] | None = None,
    is_run: bool = True,
) -> Tables:
    """By schema and name as the question spells them; each table is made once, in however many ways it is spelled.

    Args:
        reading: gets what reads the tables that are here, if none is in it and there are such.
        changed: the table that the question changes: who may do that need not have the right to read it.
        is_run: False where it is only prepared, which begins no transaction.
    """
    from binlog_server.queries.parsing import said_of, sole_condition, wished_order

    found = dict(given)
    made: dict[tuple[str, str], GivenTable] = {}
    for schema, name in question.tables - given.keys():
        if schema is None and name.lower() == "dual":
            continue
        is_read = (schema, name) != changed
        definition = little_tables.definition(session, schema, name, "SELECT", is_read=is_read)
        key = definition.schema, definition.name
        if key in made:
            pass
        elif isinstance(definition, HeldDefinition):
            if not reading:
                reading.append(session.reading(is_run))
            said = said_of(question, sole_condition(question), asker)
            wish = None if changed is not None else wished_order(question)
            path = path_of(definition.table, said, wish)
            made[key] = HeldRows(definition.table, reading[0], asker, default_of, path)
            if changed is not None or "DEFAULT" in question.functions:
                know_defaults(session, asker, definition.table.definition)
        else:
            made[key] = little_tables.table(session, definition)
        found[schema, name] = made[key]
    return found


@dataclass(frozen=True, slots=True)
class SetComputed(Statement):
    """SET with values that the grammar does not take: they are computed as those of a SELECT, then SET.

    `assigned` has an assignment for each; those with `Default` in the place of a value get it from `question`.
    """

    syntax = ""
    needs = ANYBODY
    com = "set_option"

    text: str
    parsed: Callable[[str], SetVariables]  # by the grammar
    refusal: ServerError  # its error for the text
    assigned: tuple[Assignment | SystemVariable | UserVariable, ...] = ()
    question: Question | None = None
    parameters: tuple[Parameter, ...] = ()

    def given(self, parameters: Sequence[Given]) -> SetComputed:
        """See `Statement`."""
        return replace(self, parameters=tuple(map(_of_parameter, parameters)))

    def _read(self) -> SetComputed:
        """Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235)."""
        try:
            return self._split()
        except SqlSyntaxError:
            raise self.refusal from None

    def _split(self) -> SetComputed:
        from binlog_server.queries.parsing import question

        assigned: list[Assignment | SystemVariable | UserVariable] = []
        asked: list[str] = []
        for target, value in _pieces(self.text):
            try:
                assigned += self.parsed(f"SET {target}{value}").assignments
            except SqlSyntaxError:
                if not value or value.removeprefix("=").strip().upper() == "DEFAULT":
                    raise  # DEFAULT is no value: of a user variable there is none
                (found,) = self.parsed(f"SET {target} = NULL").assignments
                assigned.append(found.target)
                asked.append(value.removeprefix("="))
        read = question(f"SELECT {', '.join(asked)}")
        return replace(self, assigned=tuple(assigned), question=read)

    def described(self, session: SqlSession) -> Unfinished | None:
        """No columns, and 1064 for what makes no sense."""
        return Unfinished(self._read) if self.question is None else None

    def answer(self, session: SqlSession) -> Unfinished:
        """The SET of the values. On the loop; raises `ServerError` for variables that there are not."""
        question = self.question
        if question is None:
            return Unfinished(self._read)
        asker = asker_of(session, question, self.parameters)

        def compute() -> Statement:
            from binlog_server.queries.binding import bind

            asker.budget.begin(_SET_PROCESSOR_S)
            plan = bind(question, asker, _no_table)
            try:
                (row,) = plan.run()
            except MustWait:
                raise NotSupportedYet("SET of GET_LOCK() that has to wait: SELECT it") from None
            if asker.sleeps_s:
                raise NotSupportedYet("SET of SLEEP()")
            values = iter(row)
            made = [
                one
                if isinstance(one, Assignment)
                else Assignment(one, Literal(_given(next(values), asker.client)))
                for one in self.assigned
            ]
            aside = [
                Assignment(UserVariable(name), Literal(_given(value, asker.client)))
                for name, (_, value) in asker.assigned.items()
            ]
            return SetVariables((*aside, *made), tuple(asker.warnings))

        return Unfinished(compute, asker.budget.cancel)


def _no_table(schema: str | None, name: str) -> GivenTable:
    raise NotSupportedYet(f"SET of what {name} has: SELECT it first")


_SET_PROCESSOR_S: Final = 0.5
_SCOPE: Final = compiled_later(r"\s*(GLOBAL|SESSION|LOCAL)\b", re.IGNORECASE)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """The assignments of a SET as text: the target with its scope, and `=` with the value.

    What has no `=` is all target.
    """
    found = [
        token
        for token in tokens(text, ansi_quotes=False, is_logged=False)
        if not token.is_semicolon
    ]
    depth, start, at, scope = 0, found[0].end, -1, ""
    for token, following in itertools.zip_longest(found[1:], found[2:]):
        is_sign = token.kind is TokenKind.SIGN
        depth += (token.text == "(") - (token.text == ")") if is_sign else 0
        if is_sign and depth == 0 and token.text == "=" and at < 0:
            at = token.end - 1
        is_end = is_sign and depth == 0 and token.text == ","
        if is_end or following is None:
            end = token.end - is_end
            target, value = (text[start:end], "") if at < 0 else (text[start:at], text[at:end])
            said = _SCOPE.match(target)
            scope = said[1] if said is not None else scope
            is_bare = said is None and value and not target.lstrip().startswith("@")
            yield (f"{scope} " if is_bare else "") + target.rstrip().removesuffix(":"), value
            start, at = token.end, -1


def _given(value: Any, charset: str) -> Value:
    """A computed value as SET takes it from a statement in a character set."""
    if isinstance(value, bytes):
        said = decoded_statement(value, charset)
        return value.decode("utf-8", "surrogateescape") if said is None else said
    if isinstance(value, float):
        return Decimal(repr(value))
    return value if value is None or isinstance(value, int | str | Decimal) else str(value)


def set_by_values(
    text: str, refusal: SqlSyntaxError, parsed: Callable[[str], SetVariables]
) -> SetComputed | None:
    """The SET that a text may be, if its beginning is one's. `parsed`: what the grammar makes of a SET."""
    text = plain(text)
    return SetComputed(text, parsed, refusal) if _SET.match(text) else None


_SET: Final = compiled_later(
    r"\s*SET\b(?!\s+(?:STATEMENT|TRANSACTION|PASSWORD|ROLE|DEFAULT)\b)", re.IGNORECASE
)
_SELECT: Final = compiled_later(r"[\s(]*(?:SELECT|WITH)\b", re.IGNORECASE)
_EXPLAIN: Final = compiled_later(
    r"\s*(?:EXPLAIN|DESCRIBE|DESC)\s+(?=[\s(]*(?:SELECT|WITH)\b)", re.IGNORECASE
)
_DO: Final = compiled_later(r"\s*DO\b", re.IGNORECASE)


def inquired(text: str, refusal: SqlSyntaxError) -> Inquiry | None:
    """The question that a text may be, if its beginning is one's."""
    text = plain(text)
    if _SELECT.match(text):
        return Inquiry(text, refusal)
    found = _EXPLAIN.match(text)
    if found:
        return Inquiry(text[found.end() :], refusal, explains=True)
    found = _DO.match(text)
    return Inquiry("SELECT" + text[found.end() :], refusal, gives_rows=False) if found else None


def result_of(
    outputs: Sequence[Output], rows: Iterable[Sequence[Any]], budget: Budget | None = None
) -> ResultSet:
    """The result with these columns. `budget`: texts are counted, which stand in many rows once so far."""
    kinds = [output.kind for output in outputs]
    sent: list[Row] = []
    for row in rows:
        sent.append(_sent(row, kinds))
        if budget is not None:
            budget.make(text_bytes(sent[-1]))
    return ResultSet(_wide_enough([o.kind.wire(o.name) for o in outputs], sent), sent)


def _sent(row: Sequence[Any], kinds: Sequence[Type]) -> list[WireValue]:
    return [
        as_text(value, kind)
        if (isinstance(value, Decimal | float) and not _is_whole_float(value, kind))
        or (value is not None and kind.padded_to)
        else value
        for value, kind in zip(row, kinds, strict=True)
    ]


def _is_whole_float(value: object, kind: Type) -> bool:
    """Whether it is a FLOAT as it was stored: the six digits of its text are not all of it in the binary protocol."""
    column = kind.column
    return isinstance(value, Single) and column is not None and column.decimals == _NOT_FIXED


_NOT_FIXED: Final = 31


def _wide_enough(columns: list[Column], rows: Sequence[Row]) -> list[Column]:
    """With a BIGINT for each INT that has a larger value: in the binary protocol it would have no room."""
    found = list(columns)
    for at, column in enumerate(columns):
        if column.type == ColumnType.LONG and any(
            isinstance(value := row[at], int) and not -(1 << 31) <= value < 1 << 32 for row in rows
        ):
            found[at] = replace(column, type=ColumnType.LONGLONG)
    return found


def _timeout(session: SqlSession) -> float | None:
    """max_statement_time in seconds; None for ever."""
    seconds = float(session.variables.get("max_statement_time") or 0)
    return seconds or None


def plain_asker(session: SqlSession) -> Asker:
    """The time of a session, and nothing else."""
    clock = session.clock()
    return Asker(clock.now, clock.local, clock.seconds, in_zone, modes=modes_of(session))


def defining_asker(session: SqlSession) -> Asker:
    """The same, and what functions say that may stand in a DEFAULT."""
    database = session.database.decode("utf-8", "replace")
    functions = functions_of(session, _OF_THE_SERVER)
    return replace(plain_asker(session), database=database, functions=functions)


def modes_of(session: SqlSession) -> frozenset[str]:
    """The session's sql_mode."""
    said = session.variables.get("sql_mode")
    return DEFAULT_MODES if said is None else frozenset(said.upper().split(","))


def asker_of(session: SqlSession, question: Question, parameters: tuple[Parameter, ...]) -> Asker:
    """What the question needs of its session, as it is now."""
    clock = session.clock()
    for name in question.functions & _OF_POSITIONS:
        raise EngineBinlogUnavailable(f"{name}()")
    client = client_charset(session.variables)
    said_in = charset_of(collation_numbered(session.variables.get("collation_connection", "")) or 0)
    said_in = "" if said_in is None or is_utf8(said_in) else said_in
    return Asker(
        now=clock.now,
        local=clock.local,
        seconds=clock.seconds,
        in_zone=in_zone,
        database=session.database.decode("utf-8", "replace"),
        functions=functions_of(session, question.functions),
        system_variables={
            (scope, name): _known(session, SystemVariable(_SCOPES[scope], name))
            for scope, name in question.system_variables
        },
        user_variables={
            name: _of_charset(
                _known(session, UserVariable(name)),
                charset_of(session.user_variables[name].collation) or "",
            )
            for name in question.user_variables & session.user_variables.keys()
        },
        parameters=tuple(_of_charset(one, said_in) for one in parameters),
        select_limit=_select_limit(session),
        last_insert_id=int(session.variables.get("last_insert_id", 0)),
        collation=session.variables.get("collation_connection", "utf8mb4_general_ci"),
        client="utf8mb4" if is_utf8(client) else client,
        said_in=said_in,
        concat_bytes=min(
            int(session.variables.get("group_concat_max_len", TEXT_CHARS_MAX)), TEXT_CHARS_MAX
        ),
        lock_calls=LockCalls(session.locks),
        is_safe=session.variables.get("sql_safe_updates") == "ON",
        names_in=session.variables.get("lc_time_names", "en_US"),
        week_mode=int(session.variables.get("default_week_format", 0)),
        quotient_digits=int(session.variables.get("div_precision_increment", QUOTIENT_DIGITS)),
        modes=modes_of(session),
    )


def know_defaults(session: SqlSession, asker: Asker, table: StoredTable) -> None:
    """Give it what the defaults of a table need of the server."""
    asker.functions = {**asker.functions, **functions_of(session, default_functions(table))}


def functions_of(session: SqlSession, names: Collection[str]) -> dict[str, Parameter]:
    """Those of the functions that the server answers, with their values."""
    return {
        name: _known(session, Function(name, ())) for name in _OF_THE_SERVER.intersection(names)
    }


def _select_limit(session: SqlSession) -> int | None:
    """sql_select_limit; None without one."""
    limit = int(session.variables.get("sql_select_limit", _NO_LIMIT))
    return None if limit >= _NO_LIMIT else limit


def in_zone(name: str) -> Clock | None:
    """The times of a zone, by a name or offset as `time_zone` takes it; None if there is none."""
    try:
        return Clock.of("", time_zone(name), 0)
    except ServerError:  # 1298
        return None


def _known(session: SqlSession, expression: Function | SystemVariable | UserVariable) -> Parameter:
    """Type and value of what the server knows. Raises as `SqlSession.value_of`."""
    value: Value
    if isinstance(expression, Function):
        value = call(session, expression.name, ())
    else:
        value = session.value_of(expression)
    column: Column = column_of(SelectItem("", expression), value)
    kind = replace(of_column(column), column=None)
    return kind, value


def _of_parameter(given: Given) -> Parameter:
    kind = replace(of_column(column_of(SelectItem("", given), given.value)), column=None)
    value: Any = given.value
    if value is not None and kind.form is ValueForm.DOUBLE:
        value = float(value)
    elif isinstance(value, str) and kind.form is ValueForm.BYTES:
        value = value.encode("utf-8", "surrogateescape")
    return kind, value


def _of_charset(known: Parameter, charset: str) -> Parameter:
    """A text whose bytes are those of a character set."""
    kind, value = known
    if kind.form is not ValueForm.TEXT or not charset or is_utf8(charset):
        return known
    return replace(kind, said_in=charset), value


def keep_of_question(session: SqlSession, asker: Asker) -> None:
    """What the question leaves behind in its session."""
    held = {}
    for name, (_, value) in asker.assigned.items():
        kept = str(value) if isinstance(value, float) else value
        if isinstance(kept, bytes):
            kept = kept.decode("utf-8", "surrogateescape")
        elif isinstance(kept, str):
            kept = kept_text(kept, session.variables)
        held[name] = HeldValue(kept, literal_collation(str(kept), session.variables))
    if held:
        assignments.hold(session, held)
    if asker.new_insert_id is not None:
        session.variables["last_insert_id"] = session.variables["identity"] = str(
            asker.new_insert_id
        )
        session.variables_changed()
    for warning in asker.warnings:
        if any(warning is note for note in asker.notes):
            session.diagnostics.note(warning)
        else:
            session.warn(warning)
