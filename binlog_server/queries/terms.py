"""A term: an expression that is ready to be computed; and what all terms of one statement share.

Terms are called, they get nothing: the rows that they read stand in the scopes that they were bound to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final, NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    AllowedPacketOverflowed,
    DivisionByZero,
    InvalidCharacterString,
    NotSupportedYet,
    QueryInterrupted,
    ServerError,
    StatementTimeout,
    TruncatedValue,
    UnknownServerError,
)
from binlog_protocol.events.charsets import charset_of

from binlog_server.queries import values
from binlog_server.queries.types import LABEL, QUOTIENT_DIGITS, Type, ValueForm, is_said, moment
from binlog_server.queries.types import settled as settled_type
from binlog_server.queries.types import text as text_of

TEXT_CHARS_MAX: Final = 1 << 20
"""Characters of one value, at most."""
MADE_BYTES_MAX: Final = 16 << 20
"""Bytes of all rows and texts that one statement makes, at most."""
PROCESSOR_S: Final = 2.0
"""Processor time of one statement, at most; less if max_statement_time says so."""
_TICKS: Final = 256  # rows between two looks at the clock
_LOOK_BYTES: Final = 1 << 18  # of texts made or gone through between two looks at the clock
_LITTLE: Final = 64  # characters of a text that is not counted
UNKNOWN: Final = object()


class TextTooLong(Exception):
    """A text that is to be made would have more than `TEXT_CHARS_MAX` characters; see `Asker.bounded`."""


@dataclass(slots=True)
class Term:
    """An expression: its type, and how its value is computed.

    `constant` is the value, if the statement says it; `UNKNOWN` elsewhere.
    """

    kind: Type
    value: Callable[[], Any]
    constant: Any = UNKNOWN


def constant(kind: Type, value: Any) -> Term:
    """A term that the statement says."""
    return Term(kind, lambda: value, value)


def settled(term: Term) -> Term:
    """An expression that gives the value of another one: see `types.settled`."""
    kind = settled_type(term.kind)
    if kind is term.kind:
        return term
    return Term(kind, lambda: values.converted(term.value(), term.kind, kind))


DEFAULT_MODES: Final = frozenset(
    (
        "STRICT_TRANS_TABLES",
        "ERROR_FOR_DIVISION_BY_ZERO",
        "NO_AUTO_CREATE_USER",
        "NO_ENGINE_SUBSTITUTION",
    )
)
"""sql_mode of 10.11 and 11.8."""
STRICT_MODES: Final = frozenset(("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"))
"""With one of them in sql_mode, a value that a column cannot hold is an error."""


class Budget:
    """What one statement may take: processor time and memory. `cancel` may be called by another thread."""

    def __init__(self) -> None:
        self.begin()
        self._ticks = 0
        self.made = 0
        """Bytes that were made so far, about."""
        self._passed = 0  # bytes since the last look at the clock
        self._cancelled = Event()

    def begin(self, seconds: float = PROCESSOR_S) -> None:
        """The statement begins now, in this thread."""
        self._ends = time.thread_time() + seconds

    def cancel(self) -> None:
        """End the statement soon: `QueryInterrupted` (1317)."""
        self._cancelled.set()

    def tick(self) -> None:
        """A row more is looked at. Raises `StatementTimeout` (1969), `QueryInterrupted` (1317)."""
        self._ticks += 1
        if self._ticks % _TICKS == 0:
            self.look()

    def look(self) -> None:
        """Look at the clock, and let other threads go on. Raises as `tick`."""
        if self._cancelled.is_set():
            raise QueryInterrupted()
        if time.thread_time() > self._ends:
            raise StatementTimeout()
        time.sleep(0)

    def left(self) -> float:
        """Seconds of processor time, more than none. Raises as `tick`."""
        self.look()
        return max(0.001, self._ends - time.thread_time())

    def make(self, size: int) -> None:
        """So many bytes are made. Raises 1105 beyond `MADE_BYTES_MAX`, and as `tick`."""
        self.made += size
        if self.made > MADE_BYTES_MAX:
            raise UnknownServerError(
                f"A question may make {MADE_BYTES_MAX} bytes of rows and texts; ask for less"
            )
        self.go_through(size)

    def make_while(self, size: int) -> None:
        """So many bytes are made, and gone when the call that makes them returns. Raises as `make`."""
        self.make(size)
        self.made -= size

    def go_through(self, size: int) -> None:
        """So many characters are looked at, which takes time, however few rows there are. Raises as `tick`."""
        self._passed += size
        if self._passed > _LOOK_BYTES:
            self._passed = 0
            self.look()

    def make_text(self, characters: int) -> None:
        """A text of that length is to be made. Raises `TextTooLong`, and as `make`."""
        if characters > TEXT_CHARS_MAX:
            raise TextTooLong
        if characters > _LITTLE:
            self.make(characters)


class Locks(Protocol):
    """The locks of GET_LOCK, as one session sees them."""

    def take(self, name: str) -> bool:
        """Whether the session has it now."""

    @property
    def number(self) -> int:
        """The session's connection."""

    def release(self, name: str) -> int | None:
        """Give it back once: 1, or 0 if it is another's, None if nobody has it."""

    def release_all(self) -> int:
        """How often they had been taken."""

    def owner(self, name: str) -> int | None:
        """The connection that has it."""


@dataclass(slots=True)
class LockCalls:
    """The calls of GET_LOCK and its kin of one statement, with what they gave.

    Who would have to wait ends the statement, which is run again when the wait is over: what was called before is not
    called again.
    """

    locks: Locks | None = None
    given: list[Any] = field(default_factory=list)
    at: int = 0

    def call(self, what: Callable[[Locks], Any]) -> Any:
        """The value of the next call."""
        assert self.locks is not None
        if self.at == len(self.given):
            self.given.append(what(self.locks))
        self.at += 1
        return self.given[self.at - 1]


@dataclass(slots=True)
class Said:
    """What the conditions of a statement say of a column: the values that it may have, or bounds, both included."""

    values: list[int | str] | None = None
    low: int | str | None = None
    high: int | str | None = None


class Wish(NamedTuple):
    """The order that a statement wants: columns by their names in lower case."""

    columns: Sequence[str]
    is_down: bool


class LockWish(NamedTuple):
    """What a SELECT says of the rows that it locks. `seconds`: of WAIT n; 0 is NOWAIT."""

    is_shared: bool
    seconds: int | None = None
    skips: bool = False


class MustWait(Exception):
    """GET_LOCK has to wait: the lock's name, and for how long (None is for ever)."""

    def __init__(self, name: str, seconds: float | None) -> None:
        super().__init__(name, seconds)
        self.name = name
        self.seconds = seconds


class Zone(Protocol):
    """The times of a time zone."""

    def local(self, seconds: float) -> datetime:
        """Its date and time, from seconds since 1970. Raises `OverflowError`, `ValueError` out of range."""

    def seconds(self, local: datetime) -> float:
        """The other way. Raises as `local`."""


@dataclass(slots=True)
class Asker:
    """What a statement sees of its session: values taken before it runs, and what it leaves behind.

    Attributes:
        now: the statement's time, as the session's `local` and `utc` show it.
        local: from seconds since 1970 to the session's date and time.
        seconds: the other way.
        in_zone: the times of the zone of a name or offset; None if there is none.
        functions: values of functions without arguments that the server answers, by name in upper case.
        system_variables: by `(scope, name)`; the scope is "", "GLOBAL" or "SESSION", the name in lower case.
        user_variables: by name in lower case.
        parameters: values for the question marks.
        assigned: user variables that the statement has set, with their values.
        sleeps_s: seconds that the answer is to wait.
        select_limit: rows of a result without LIMIT; None for all.
        last_insert_id: LAST_INSERT_ID().
        collation: of the statement's own texts.
        client: the character set in which the statement came.
        said_in: that of its texts, where it is no UTF-8 (character_set_connection).
        concat_bytes: of a GROUP_CONCAT, at most.
        new_insert_id: what LAST_INSERT_ID(x) has set; None if nothing.
        warnings: of the statement.
        modes: sql_mode.
        notes: those of them that are notes.
        errors: numbers of those that are errors in this statement.
        rand_state: of RAND() without a number, where replicas are to get the same; two seeds.
        has_too_long: a text would have been too long, and is NULL or was cut.
        is_safe: sql_safe_updates: rows are changed by a key, or by LIMIT.
        names_in: lc_time_names.
        week_mode: of WEEK() without one (default_week_format).
        quotient_digits: those that a quotient or a mean has more (div_precision_increment).
    """

    now: float
    local: Callable[[float], datetime]
    seconds: Callable[[datetime], float]
    in_zone: Callable[[str], Zone | None]
    database: str = ""
    functions: Mapping[str, tuple[Type, Any]] = field(default_factory=dict)
    system_variables: Mapping[tuple[str, str], tuple[Type, Any]] = field(default_factory=dict)
    user_variables: dict[str, tuple[Type, Any]] = field(default_factory=dict)
    parameters: tuple[tuple[Type, Any], ...] = ()
    assigned: dict[str, tuple[Type, Any]] = field(default_factory=dict)
    sleeps_s: float = 0.0
    warnings: list[ServerError] = field(default_factory=list)
    notes: list[ServerError] = field(default_factory=list)
    errors: frozenset[int] = frozenset()
    budget: Budget = field(default_factory=Budget)
    select_limit: int | None = None
    last_insert_id: int = 0
    collation: str = "utf8mb4_general_ci"
    client: str = "utf8mb4"
    said_in: str = ""
    concat_bytes: int = 1 << 20
    new_insert_id: int | None = None
    lock_calls: LockCalls = field(default_factory=LockCalls)
    modes: frozenset[str] = DEFAULT_MODES
    rand_state: list[int] | None = None
    has_too_long: bool = False
    is_safe: bool = False
    names_in: str = "en_US"
    week_mode: int = 0
    quotient_digits: int = QUOTIENT_DIGITS

    def again(self) -> Asker:
        """The same for another run of the statement: what the one before has set is forgotten."""
        self.lock_calls.at = 0
        return replace(
            self,
            user_variables=dict(self.user_variables),
            assigned={},
            sleeps_s=0.0,
            warnings=[],
            notes=[],
        )

    def bounded(self, function: str, term: Term) -> Term:
        """A function that gives NULL, and a warning, where its text would be too long."""
        compute = term.value

        def value() -> Any:
            try:
                return compute()
            except TextTooLong:
                self.has_too_long = True
                self.warn(AllowedPacketOverflowed(function, TEXT_CHARS_MAX))
                return None

        return Term(term.kind, value, term.constant)

    def require_quotient_digits(self) -> None:
        """Raises 1235 where a quotient would have another number of digits than it gets here."""
        if self.quotient_digits != QUOTIENT_DIGITS:
            raise NotSupportedYet(
                f"quotients and means with div_precision_increment={self.quotient_digits}"
            )

    def warn(self, error: ServerError) -> None:
        """Add a warning; MariaDB keeps 64 of them. Raises it if it is an error in this statement."""
        if error.kind is DivisionByZero and "ERROR_FOR_DIVISION_BY_ZERO" not in self.modes:
            return
        if error.errno in self.errors:
            raise error
        if len(self.warnings) < _WARNINGS_MAX:
            self.warnings.append(error)

    def note(self, error: ServerError) -> None:
        """Add a note."""
        if len(self.warnings) < _WARNINGS_MAX:
            self.warnings.append(error)
            self.notes.append(error)

    @property
    def is_strict(self) -> bool:
        """Whether a value that a column cannot hold is an error."""
        return not self.modes.isdisjoint(STRICT_MODES)

    def local_now(self) -> datetime:
        """NOW(6)."""
        return self.local(self.now)

    def utc_now(self) -> datetime:
        """UTC_TIMESTAMP(6)."""
        return datetime.fromtimestamp(self.now, UTC).replace(tzinfo=None)


_WARNINGS_MAX: Final = 64


def spelled(term: Term, beside: Type) -> Term:
    """Bytes that the statement says as x'41', 0x41 or b'1', beside a text of a column: they are one of its collation.

    Raises `InvalidCharacterString` (1300).
    """
    is_bytes = is_said(term.kind) and isinstance(term.constant, bytes)
    is_of_column = beside.form is ValueForm.TEXT and (
        beside.column is not None or beside.collation > 0
    )
    if not is_bytes or not is_of_column:
        return term
    try:
        text = term.constant.decode("utf-8")
    except UnicodeDecodeError as error:
        charset = charset_of(beside.collation) if beside.collation > 0 else "utf8mb4"
        raise InvalidCharacterString(
            charset, term.constant[error.start :][:6].hex().upper()
        ) from None
    return constant(text_of(len(text)), text)


def watched(term: Term, session: Asker, kind: str) -> Term:
    """The term where a number is wanted: a text that is none gives a warning. `kind`: INTEGER, DECIMAL or DOUBLE."""
    if term.kind.form is not ValueForm.TEXT or term.kind.code == LABEL:
        return term
    return _told(term, session, kind, values.is_integer if kind == "INTEGER" else values.is_number)


def watched_test(term: Term, session: Asker) -> Term:
    """The term where true or false is wanted, as `watched`."""
    return watched(term, session, "DOUBLE" if term.kind.column is None else "BOOLEAN")


def watched_moment(term: Term, session: Asker, beside: ValueForm) -> Term:
    """The term that is compared with a date or time: a text that is none gives a warning, and so for a number."""
    if term.kind.form is not ValueForm.TEXT or term.kind.code == LABEL:
        return term
    is_right = values.is_time if beside is ValueForm.TIME else values.is_moment
    return _told(term, session, beside.name.lower(), is_right)


def dated(term: Term, beside: Type, session: Asker) -> Term:
    """The term in the place of a date: a TIME is that time of today."""
    convert = dating(term.kind, beside, session)
    if convert is None:
        return term
    kind = moment(ValueForm.DATETIME, term.kind.decimals).nullable(term.kind.may_be_null)
    return Term(kind, lambda: convert(term.value()))


def dating(kind: Type, beside: Type, session: Asker) -> Callable[[Any], Any] | None:
    """What makes values of `dated`; None where nothing is to be made."""
    if kind.form is not ValueForm.TIME or beside.form not in (ValueForm.DATE, ValueForm.DATETIME):
        return None

    def convert(value: Any) -> Any:
        at = None if value is None else values.time_on(value, session.local_now())
        return None if at is None else values.datetime_text(at, kind.decimals)

    return convert


def _told(term: Term, session: Asker, kind: str, is_right: Callable[[str], bool]) -> Term:
    """The term with a warning for each value that is not right; for a constant with one."""
    is_due = True

    def value() -> Any:
        nonlocal is_due
        found = term.value()
        if found is not None and is_due and not is_right(found):
            is_due = term.constant is UNKNOWN
            session.warn(TruncatedValue(kind, found[:_SHOWN_CHARS]))
        return found

    return Term(term.kind, value, term.constant)


_SHOWN_CHARS: Final = 128
