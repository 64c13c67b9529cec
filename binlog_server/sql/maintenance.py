"""PURGE, FLUSH and RESET MASTER. Each has a function that waits for a disk: it is called in a thread."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from binlog_protocol.errors import (
    EngineBinlogUnavailable,
    ServerError,
    UnknownServerError,
    UnknownTargetBinlog,
)
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
from lark import Token

from binlog_server.accounts.privileges import RELOAD
from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.sql.moments import Moment, MomentBuilder, not_a_time, seconds_of
from binlog_server.sql.statement import CHANGE_FILES, Family, Statement
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.tokens import integer, unquote
from binlog_server.sql.view import Diagnostic, Level, ServerView, Work

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

log = logging.getLogger(__name__)

PURGE_REASON = 1375  # ER_BINLOG_PURGE_PROHIBITED, as a note


@dataclass(frozen=True, slots=True)
class Purge(Statement):
    """PURGE BINARY LOGS: `to` a file, or `before` a time."""

    syntax = '"PURGE"i _binary_logs _purge_limit'
    needs = CHANGE_FILES

    to: str | None = None
    before: Moment | None = None

    @classmethod
    def built(cls, children: list[Any]) -> Purge:
        purge: Purge = children[0]
        return purge

    def answer(self, session: SqlSession) -> Work:
        server, told, clock = session.server, session.diagnostics, session.clock()
        who = f"connection {session.connection_id} ({session.account})"
        return Work(lambda: purge(server, self, told, clock, session.coordinates, who))


@dataclass(frozen=True, slots=True)
class FlushLogs(Statement):
    """FLUSH BINARY LOGS. `delete_domains` are the numbers of DELETE_DOMAIN_ID as written."""

    syntax = """
        "FLUSH"i _not_logged? "BINARY"i "LOGS"i [delete_domains]
        | "FLUSH"i _not_logged? "LOGS"i"""
    needs = (RELOAD,)
    commits = True

    delete_domains: tuple[str, ...] = ()

    @classmethod
    def built(cls, children: list[Any]) -> FlushLogs:
        return cls((children[0] if children else None) or ())

    def answer(self, session: SqlSession) -> Work:
        server, told = session.server, session.diagnostics
        return Work.patient("flush", lambda given_up: flush(server, self, told, given_up))


@dataclass(frozen=True, slots=True)
class FlushNothing(Statement):
    """FLUSH of a cache or log that this server does not have: answered with OK."""

    syntax = '"FLUSH"i _not_logged? ("STATUS"i | "HOSTS"i)'
    needs = (RELOAD,)
    commits = True

    def answer(self, session: SqlSession) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ResetMaster(Statement):
    """RESET MASTER; `to` is refused."""

    syntax = '"RESET"i "MASTER"i ["TO"i INTEGER]'
    needs = (RELOAD,)
    commits = True

    to: int | None = None

    @classmethod
    def built(cls, children: list[Any]) -> ResetMaster:
        return cls(None if children[0] is None else integer(children[0]))

    def answer(self, session: SqlSession) -> Work:
        if self.to is not None:
            raise EngineBinlogUnavailable("RESET MASTER TO")
        session.require_no_upstream()
        server = session.server
        return Work.patient(
            "reset", lambda given_up: reset(server, given_up), server.history_changed
        )


_RULES = """
_purge_limit: purge_to | purge_before
purge_to: "TO"i STRING
purge_before: "BEFORE"i moment
delete_domains: "DELETE_DOMAIN_ID"i "=" "(" [INTEGER ("," INTEGER)*] ")"
"""


class _Builder(MomentBuilder):
    def purge_to(self, children: list[Token]) -> Purge:
        return Purge(to=unquote(children[0]))

    def purge_before(self, children: list[Moment]) -> Purge:
        return Purge(before=children[0])

    def delete_domains(self, children: list[Token | None]) -> tuple[str, ...]:
        return tuple(str(token) for token in children if token is not None)


FAMILY = Family((Purge, FlushLogs, FlushNothing, ResetMaster), _RULES, _Builder)


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
