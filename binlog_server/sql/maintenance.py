"""PURGE, FLUSH, RESET MASTER and the leases: each is a function to be called in a thread."""

from __future__ import annotations

import calendar
import logging
import re
import time
from collections.abc import Callable

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
from binlog_storage.binlog.purge import PurgePlan
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
from binlog_storage.ibb.file_names import file_name

from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql.statements import (
    AlterLease,
    CreateLease,
    DropLease,
    FlushLogs,
    Moment,
    Purge,
)
from binlog_server.sql.view import Diagnostic, Level, ServerView

log = logging.getLogger(__name__)

PURGE_REASON = 1375  # ER_BINLOG_PURGE_PROHIBITED, as a note
TRUNCATED_VALUE = 1292  # ER_TRUNCATED_WRONG_VALUE, as a warning
DATETIME_OVERFLOW = 1441  # ER_DATETIME_FUNCTION_OVERFLOW, as a warning
_OVERFLOW = "Datetime function: datetime field overflow"

_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_FIRST_SECOND = calendar.timegm((1, 1, 1, 0, 0, 0))  # of what a shift may lead to
_LAST_SECOND = calendar.timegm((_LAST_YEAR, 12, 31, 23, 59, 59))
_DAY_S = 86400

_TIME_TEXT = re.compile(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]*)?)?)?\s*"
)
_TIME_DIGITS = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2}))?")


def server_error(error: StorageError) -> ServerError:
    """What a client hears of an error of the store: the one border between the two."""
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


def seconds_of(moment: Moment, now: float) -> float | None:
    """Seconds since 1970; times are UTC. None if it is no time."""
    base = _base_seconds(moment, now)
    if base is None:
        return None
    if moment.plus_months:
        year, month, day, *rest = time.gmtime(base)[:6]
        year, month = divmod(year * 12 + month - 1 + moment.plus_months, 12)
        if not 1 <= year <= _LAST_YEAR:
            return None
        day = min(day, calendar.monthrange(year, month + 1)[1])  # the 31st becomes the last
        base = calendar.timegm((year, month + 1, day, *rest))
    seconds = base + moment.plus_seconds
    return seconds if _FIRST_SECOND <= seconds <= _LAST_SECOND else None


def _base_seconds(moment: Moment, now: float) -> float | None:
    if moment.today:
        return now - now % _DAY_S
    if moment.base is None:
        return now
    if moment.unix:
        return float(moment.base) if int(moment.base) <= _LAST_SECOND else None
    text = str(moment.base)
    match = _TIME_TEXT.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    if not (
        year >= _FIRST_YEAR
        and 1 <= month <= 12
        and 1 <= day <= calendar.monthrange(year, month)[1]
        and hour < 24
        and minute < 60
        and second < 60
    ):
        return None
    return float(calendar.timegm((year, month, day, hour, minute, second)))


def not_a_time(moment: Moment) -> Diagnostic:
    """The warning about a moment that is none: it is no time, or was shifted to where there is none."""
    if _base_seconds(moment, 0) is not None:
        return Diagnostic(Level.WARNING, DATETIME_OVERFLOW, _OVERFLOW)
    shown = str(moment.base)[:64]
    return Diagnostic(Level.WARNING, TRUNCATED_VALUE, f"Incorrect datetime value: '{shown}'")


def purge(
    view: ServerView,
    statement: Purge,
    diagnostics: list[Diagnostic],
    coordinates: Coordinates = AS_STORED,
    who: str = "",
) -> None:
    """Delete what may go. Raises `UnknownTargetBinlog` (1373), `BinlogFileInUse` (1378) with the reason as a note."""
    view.refresh_holds()
    try:
        _purge(view, statement, diagnostics, coordinates, who)
    finally:
        view.refresh_holds()  # the store may begin elsewhere now


def _purge(
    view: ServerView,
    statement: Purge,
    diagnostics: list[Diagnostic],
    coordinates: Coordinates,
    who: str,
) -> None:
    if statement.to is not None:
        plan = view.engine.purge_to(coordinates.store_name(statement.to))
        _told(plan, diagnostics, coordinates, who)
        return
    assert statement.before is not None
    seconds = seconds_of(statement.before, time.time())
    if seconds is None:
        diagnostics.append(not_a_time(statement.before))  # and nothing is deleted, as in MariaDB
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
        name = coordinates.name(file_name(plan.kept))
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
    """Begin a new file. Raises `CannotDeleteDomain` (1076), `BinlogStateUnreadable` (4250): where, is a warning."""
    domains = []
    for text in statement.delete_domains:
        if int(text[:20]) > U32_MAX:
            raise CannotDeleteDomain.too_large(text[:20])
        domains.append(int(text))
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
    """The domain that a `DomainInUse` is about."""
    match = re.search(r"domain ([0-9]+)", text)
    return int(match[1]) if match else domains[0]


def reset(
    view: ServerView,
    given_up: Callable[[], bool],
    state: BinlogState | None = None,
    *,
    only_if_empty: bool = False,
) -> None:
    """Delete everything and begin anew. Raises `BinlogHasReaders` (4243), `BinlogHasTransactions` (4244).

    `only_if_empty`: `BinlogNotEmpty` (1956) if any GTID was logged.
    """
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
    """SET GLOBAL gtid_slave_pos: where following begins; in an empty store, whose history then begins there.

    Raises `BinlogNotEmpty` (1956), `BadGtidList` (1941), `DuplicateGtidDomain` (1943).
    """
    position = SlavePosition.parse(text)
    if view.engine.binlog_state().position() == position:
        return
    reset(view, given_up, BinlogState(position), only_if_empty=True)


def create_lease(view: ServerView, statement: CreateLease) -> None:
    """Raises `ServerError`."""
    until = _end_of(statement)
    view.leases.create(
        statement.name, statement.gtid, until, statement.max_bytes, or_replace=statement.replace
    )


def alter_lease(view: ServerView, statement: AlterLease, diagnostics: list[Diagnostic]) -> None:
    """Raises `ServerError`."""
    until, warn = _end_of(statement), _no_room(diagnostics)
    view.leases.alter(statement.name, statement.gtid, until, statement.max_bytes, warn)


def _no_room(diagnostics: list[Diagnostic]) -> Callable[[str], None]:
    def warn(text: str) -> None:
        diagnostics.append(Diagnostic(Level.WARNING, NoRoomOnDisk.errno, text))

    return warn


def _end_of(statement: CreateLease | AlterLease) -> float | None:
    if statement.until is None:
        return None
    until = seconds_of(statement.until, time.time())
    if until is None:
        raise UnknownServerError(not_a_time(statement.until).message)
    return until


def drop_lease(view: ServerView, statement: DropLease, diagnostics: list[Diagnostic]) -> None:
    """Raises `UnknownServerError`."""
    dropped = view.leases.drop(statement.name, _no_room(diagnostics))
    if not dropped and not statement.if_exists:
        raise UnknownServerError(f"there is no lease '{statement.name}'")
