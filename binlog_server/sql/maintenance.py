"""PURGE, FLUSH, RESET MASTER and the leases. Each is a function that waits for a disk: it is called in a thread."""

from __future__ import annotations

import calendar
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from binlog_protocol.errors import ServerError, UnknownServerError, UnknownTargetBinlog
from binlog_protocol.errors.sql_errors import (
    BinlogFileInUse,
    BinlogHasReaders,
    BinlogHasTransactions,
    BinlogNotEmpty,
    BinlogStateUnreadable,
    CannotDeleteDomain,
    ErrorOnWrite,
    NoRoomOnDisk,
)
from binlog_protocol.gtid import U32_MAX, BinlogState, SlavePosition
from binlog_storage.engine.purge import PurgePlan
from binlog_storage.errors import (
    BinlogHasGtids,
    BinlogInUse,
    BinlogInUseByTransaction,
    CorruptBinlog,
    DiskError,
    DiskFull,
    DomainInUse,
    StorageError,
    StoreFailed,
    UnknownBinlog,
)

from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql.statements import (
    AlterLease,
    CreateLease,
    DropLease,
    FlushLogs,
    Moment,
    Purge,
)
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.view import Diagnostic, Level, ServerView

log = logging.getLogger(__name__)

PURGE_REASON = 1375  # ER_BINLOG_PURGE_PROHIBITED, as a note
TRUNCATED_VALUE = 1292  # ER_TRUNCATED_WRONG_VALUE, as a warning
DATETIME_OVERFLOW = 1441  # ER_DATETIME_FUNCTION_OVERFLOW, as a warning
_OVERFLOW = "Datetime function: datetime field overflow"

_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_FIRST_SECOND = calendar.timegm((1, 1, 1, 0, 0, 0))  # the earliest time that a shift may give
_LAST_SECOND = calendar.timegm((_LAST_YEAR, 12, 31, 23, 59, 59))

_TIME_TEXT = re.compile(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]*)?)?)?\s*"
)
_TIME_DIGITS = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2}))?")


def server_error(error: StorageError) -> ServerError:
    """The client's error for an error of the store. All errors of the store that reach clients are mapped here."""
    match error:
        case UnknownBinlog():
            return UnknownTargetBinlog()
        case BinlogHasGtids():
            return BinlogNotEmpty()
        case BinlogInUse():
            return BinlogHasReaders(str(error))
        case BinlogInUseByTransaction():
            return BinlogHasTransactions(str(error))
        case DiskFull():
            return NoRoomOnDisk(str(error))
        case DiskError() | StoreFailed():
            return ErrorOnWrite(str(error))
    return UnknownServerError(str(error))


def seconds_of(moment: Moment, clock: Clock) -> float | None:
    """A moment of the session's time zone as seconds since 1970; None if it is no time."""
    base = _base_of(moment, clock)
    if base is None:
        return None
    try:
        if moment.plus_months:
            year, month = divmod(base.year * 12 + base.month - 1 + moment.plus_months, 12)
            # The 31st becomes the last day of a shorter month.
            day = min(base.day, calendar.monthrange(year, month + 1)[1])
            base = base.replace(year, month + 1, day)
        seconds = clock.seconds(base + timedelta(seconds=moment.plus_seconds))
    except (OverflowError, ValueError):
        return None
    return seconds if _FIRST_SECOND <= seconds <= _LAST_SECOND else None


def _base_of(moment: Moment, clock: Clock) -> datetime | None:
    """A moment before its shift, in the session's zone, where months and days are added; None if it is no time."""
    try:
        if moment.today:
            return clock.local(clock.now).replace(hour=0, minute=0, second=0, microsecond=0)
        if moment.base is None:
            return clock.local(time.time() if moment.for_all else clock.now).replace(microsecond=0)
        if moment.unix:
            return clock.local(int(moment.base))
        text = str(moment.base)
        match = _TIME_TEXT.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
        if match is None:
            return None
        base = datetime(*(int(part or 0) for part in match.groups()))  # type: ignore[arg-type]
    except (OverflowError, ValueError, OSError):
        return None
    return base if base.year >= _FIRST_YEAR else None


def not_a_time(moment: Moment, clock: Clock) -> Diagnostic:
    """The warning about a moment that `seconds_of` gives None for: its text is no time, or its shift leads too far."""
    if _base_of(moment, clock) is not None:
        return Diagnostic(Level.WARNING, DATETIME_OVERFLOW, _OVERFLOW)
    shown = str(moment.base)[:64]
    return Diagnostic(Level.WARNING, TRUNCATED_VALUE, f"Incorrect datetime value: '{shown}'")


def purge(
    view: ServerView,
    statement: Purge,
    diagnostics: list[Diagnostic],
    clock: Clock,
    coordinates: Coordinates = AS_STORED,
    who: str = "",
) -> None:
    """PURGE BINARY LOGS: delete the files that the statement names and nothing holds.

    Raises `UnknownTargetBinlog` (1373), and `BinlogFileInUse` (1378) with the reason as a note.

    Args:
        who: the account, for the log.
    """
    view.refresh_holds()
    try:
        _purge(view, statement, diagnostics, clock, coordinates, who)
    finally:
        view.refresh_holds()  # the purge may have moved the store's beginning


def _purge(
    view: ServerView,
    statement: Purge,
    diagnostics: list[Diagnostic],
    clock: Clock,
    coordinates: Coordinates,
    who: str,
) -> None:
    if statement.to is not None:
        plan = view.engine.purge_to(coordinates.number(statement.to))
        _told(plan, diagnostics, coordinates, who)
        return
    assert statement.before is not None
    seconds = seconds_of(statement.before, clock)
    if seconds is None:
        diagnostics.append(
            not_a_time(statement.before, clock)
        )  # and nothing is deleted, as in MariaDB
    else:
        plan = view.engine.purge_before(seconds)
        _told(plan, diagnostics, coordinates, who, error=not plan.reached_the_active_file)


def _told(
    plan: PurgePlan,
    diagnostics: list[Diagnostic],
    coordinates: Coordinates,
    who: str,
    *,
    error: bool = True,
) -> None:
    if plan.delete:
        log.info("%d binlog files were purged for %s", len(plan.delete), who)
    if plan.kept is not None:
        name = coordinates.name(plan.kept)
        text = f"Binary log '{name}' is not purged because {plan.why}"
        diagnostics.append(Diagnostic(Level.NOTE, PURGE_REASON, text))
        if error:
            raise BinlogFileInUse


def flush(
    view: ServerView,
    statement: FlushLogs,
    diagnostics: list[Diagnostic],
    given_up: Callable[[], bool],
) -> None:
    """FLUSH BINARY LOGS: begin a new file, and take the given domains out of the binlog state.

    Raises `CannotDeleteDomain` (1076), and `BinlogStateUnreadable` (4250) with the damaged place as a warning.

    Args:
        given_up: whether the statement's client has gone or was killed: the wait for room then ends.
    """
    domains = []
    for text in statement.delete_domains:
        if int(text[:20]) > U32_MAX:
            raise CannotDeleteDomain.too_large(text[:20])
        domains.append(int(text))
    if domains:  # an import goes on at the place that the binlog state tells
        view.publisher.require_whole()
    known = set(view.engine.binlog_state().domains())
    for domain in sorted(set(domains) - known):
        text = CannotDeleteDomain.absent(domain)
        diagnostics.append(Diagnostic(Level.WARNING, CannotDeleteDomain.errno, text))
    try:
        view.engine.flush(domains, given_up)
    except DomainInUse as error:
        raise CannotDeleteDomain.in_use(_domain_in(str(error), domains)) from error
    except CorruptBinlog as error:
        diagnostics.append(Diagnostic(Level.WARNING, UnknownServerError.errno, str(error)))
        raise BinlogStateUnreadable from error


def _domain_in(text: str, domains: list[int]) -> int:
    """The domain that the text of a `DomainInUse` names."""
    match = re.search(r"domain ([0-9]+)", text)
    return int(match[1]) if match else domains[0]


def reset(
    view: ServerView,
    given_up: Callable[[], bool],
    state: BinlogState | None = None,
    *,
    only_if_empty: bool = False,
) -> None:
    """RESET MASTER: delete all files and begin the binlog anew.

    Args:
        given_up: whether the statement's client has gone or was killed: the wait for room then ends.
        state: the binlog state to begin with; None is the empty one.
        only_if_empty: raise `BinlogNotEmpty` (1956) if any GTID was logged.

    Raises `BinlogHasReaders` (4243), `BinlogHasTransactions` (4244), and 1290 while an archive is imported.
    """
    view.publisher.require_whole()
    try:
        view.engine.reset(state, given_up, only_if_empty=only_if_empty)
    finally:
        view.look_at_begin()


def set_binlog_state(view: ServerView, text: str, given_up: Callable[[], bool]) -> None:
    """SET GLOBAL gtid_binlog_state. Raises `BinlogNotEmpty` (1956), `BadGtidList` (1941)."""
    if len(view.engine.binlog_state()):  # as MariaDB says before it reads the list
        raise BinlogNotEmpty
    reset(view, given_up, BinlogState.parse(text), only_if_empty=True)


def set_slave_position(view: ServerView, text: str, given_up: Callable[[], bool]) -> None:
    """SET GLOBAL gtid_slave_pos: the history of an empty store begins at this position, and following upstreams, too.

    Raises `BinlogNotEmpty` (1956), `BadGtidList` (1941), `DuplicateGtidDomain` (1943).
    """
    position = SlavePosition.parse(text)
    if view.engine.binlog_state().position() == position:
        return
    reset(view, given_up, BinlogState(position), only_if_empty=True)


def create_lease(view: ServerView, statement: CreateLease, clock: Clock) -> None:
    """CREATE BINLOG LEASE. Raises `ServerError`."""
    until = _end_of(statement, clock)
    view.leases.create(
        statement.name, statement.gtid, until, statement.max_bytes, or_replace=statement.replace
    )


def alter_lease(
    view: ServerView, statement: AlterLease, diagnostics: list[Diagnostic], clock: Clock
) -> None:
    """ALTER BINLOG LEASE; a warning tells if there is no room to write it down. Raises `ServerError`."""
    until, warn = _end_of(statement, clock), _no_room(diagnostics)
    view.leases.alter(statement.name, statement.gtid, until, statement.max_bytes, warn)


def _no_room(diagnostics: list[Diagnostic]) -> Callable[[str], None]:
    def warn(text: str) -> None:
        diagnostics.append(Diagnostic(Level.WARNING, NoRoomOnDisk.errno, text))

    return warn


def _end_of(statement: CreateLease | AlterLease, clock: Clock) -> float | None:
    if statement.until is None:
        return None
    until = seconds_of(statement.until, clock)
    if until is None:
        raise UnknownServerError(not_a_time(statement.until, clock).message)
    return until


def drop_lease(view: ServerView, statement: DropLease, diagnostics: list[Diagnostic]) -> None:
    """DROP BINLOG LEASE. Raises `UnknownServerError` (1105) if there is none, unless IF EXISTS."""
    dropped = view.leases.drop(statement.name, _no_room(diagnostics))
    if not dropped and not statement.if_exists:
        raise UnknownServerError(f"there is no lease '{statement.name}'")
