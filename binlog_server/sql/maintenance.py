"""PURGE, FLUSH and RESET MASTER. Each has a function that waits for a disk: it is called in a thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    BinlogFileInUse,
    BinlogHasReaders,
    BinlogHasTransactions,
    BinlogNotEmpty,
    BinlogStateUnreadable,
    EngineBinlogUnavailable,
    ErrorOnWrite,
    GtidDomainAbsent,
    GtidDomainInUse,
    GtidDomainTooLarge,
    NoRoomOnDisk,
    NotSupportedYet,
    NoUniqueLogFile,
    PurgeProhibited,
    ServerError,
    UnknownServerError,
    UnknownTargetBinlog,
)
from binlog_protocol.gtid import U32_MAX, BinlogState, SlavePosition
from binlog_storage.classic.directory import NUMBER_MAX
from binlog_storage.classic.store import ClassicEngine
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

from binlog_server.accounts.privileges import RELOAD, SHUTDOWN
from binlog_server.dumps.coordinates import Coordinates
from binlog_server.sql.moments import Moment, MomentBuilder, not_a_time, seconds_of
from binlog_server.sql.statement import CHANGE_FILES, Family, Statement
from binlog_server.sql.status_variables import flush_status
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.tokens import integer, unquote
from binlog_server.sql.view import Deed, Diagnostics, ServerView, Work
from binlog_server.store.backups import SessionBackup

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession


@dataclass(frozen=True, slots=True)
class Purge(Statement):
    """PURGE BINARY LOGS: `to` a file, or `before` a time."""

    syntax = '"PURGE"i _binary_logs _purge_limit'
    needs = CHANGE_FILES
    changes_store = True

    to: str | None = None
    before: Moment | None = None

    @classmethod
    def built(cls, children: list[Any]) -> Purge:
        purge: Purge = children[0]
        return purge

    @property
    def counted_as(self) -> str:
        return "purge" if self.to is not None else "purge_before_date"

    def answer(self, session: SqlSession) -> Work:
        server, told, clock = session.server, session.diagnostics, session.clock()
        return Work.patient(
            "purge",
            lambda given_up: purge(
                server, self, told, clock, session.coordinates, given_up, session.backup
            ),
        )


@dataclass(frozen=True, slots=True)
class FlushLogs(Statement):
    """FLUSH BINARY LOGS. `delete_domains` are the numbers of DELETE_DOMAIN_ID as written."""

    syntax = """
        "FLUSH"i _not_logged? "BINARY"i "LOGS"i [delete_domains]
        | "FLUSH"i _not_logged? "LOGS"i"""
    needs = (RELOAD,)
    changes_store = True
    com = "flush"
    commits = True

    delete_domains: tuple[str, ...] = ()

    @classmethod
    def built(cls, children: list[Any]) -> FlushLogs:
        return cls((children[0] if children else None) or ())

    def answer(self, session: SqlSession) -> Work:
        server, told = session.server, session.diagnostics
        return Work.patient(
            "flush", lambda given_up: flush(server, self, told, given_up, session.backup)
        )


@dataclass(frozen=True, slots=True)
class FlushNothing(Statement):
    """FLUSH of caches and logs that this server does not have: answered with OK. And of STATUS; True: GLOBAL."""

    syntax = """
        "FLUSH"i _not_logged? (_nothing ("," _nothing)* | "HOSTS"i)
        | "RESET"i "QUERY"i "CACHE"i"""
    needs = (RELOAD,)
    com = "flush"
    commits = True

    status: tuple[bool, ...] = ()

    @classmethod
    def built(cls, children: list[Any]) -> FlushNothing:
        return cls(tuple(children))

    def answer(self, session: SqlSession) -> None:
        for globally in self.status:
            flush_status(session, globally=globally)


@dataclass(frozen=True, slots=True)
class FlushTables(Statement):
    """FLUSH TABLES: nothing to do. WITH READ LOCK gives a warning: here it does not stop the binlog from growing."""

    syntax = """
        "FLUSH"i _not_logged? ("TABLES"i | "TABLE"i) [read_lock]
        | "FLUSH"i _not_logged? ("TABLES"i | "TABLE"i) _table ("," _table)* [read_lock | for_export]"""
    needs = (RELOAD,)
    com = "flush"
    commits = True

    read_lock: bool

    @classmethod
    def built(cls, children: list[Any]) -> FlushTables:
        return cls(children[-1] is True)

    def answer(self, session: SqlSession) -> None:
        if self.read_lock:
            session.backup.require_inactive()
            session.warn(NotSupportedYet("READ LOCK: commits and the upstream go on"))


@dataclass(frozen=True, slots=True)
class FlushSsl(Statement):
    """FLUSH SSL: the certificate's files are read again, for connections from now on."""

    syntax = '"FLUSH"i _not_logged? "SSL"i'
    needs = (RELOAD,)
    com = "flush"
    commits = True

    def answer(self, session: SqlSession) -> Work | None:
        server = session.server
        if not server.config.ssl or not server.config.ssl_cert:
            return None  # the self-signed one stays: clients may have seen it
        made: list[Callable[[], None]] = []

        def make() -> None:
            try:
                made.append(server.renewed_tls())
            except ValueError as error:
                raise UnknownServerError(f"Failed to refresh SSL, error: {error}") from None

        def use() -> None:
            for put_to_use in made:
                put_to_use()

        return Work(make, use)


@dataclass(frozen=True, slots=True)
class ReloadConfiguration(Statement):
    """RELOAD CONFIGURATION, which MariaDB has not: the file is read again, as by SIGHUP.

    A warning for each option that has changed there and needs a restart. Its `Deed` raises `UnknownServerError` where
    the file is wrong: then nothing has changed.
    """

    syntax = '"RELOAD"i "CONFIGURATION"i'
    needs = (RELOAD,)
    commits = True
    uses_tables = (
        True  # not so; but it tells by warnings, and older ones would be taken for its own
    )

    def answer(self, session: SqlSession) -> Deed:
        server, told = session.server, session.diagnostics

        async def run() -> None:
            for refused in await server.reload_configuration():
                told.warn(refused)

        return Deed(run)


@dataclass(frozen=True, slots=True)
class ShutDown(Statement):
    """SHUTDOWN [WAIT FOR ALL {SLAVES | REPLICAS}]: the process ends in order, as by SIGTERM."""

    syntax = '"SHUTDOWN"i ["WAIT"i "FOR"i "ALL"i SLAVES]'
    needs = (SHUTDOWN,)
    com = "shutdown"

    waits: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> ShutDown:
        return cls(children[0] is not None)

    def answer(self, session: SqlSession) -> None:
        end = session.server.end_process
        if end is None:
            raise NotSupportedYet("SHUTDOWN: this server is a part of a program, which ends it")
        end(self.waits)


@dataclass(frozen=True, slots=True)
class ResetMaster(Statement):
    """RESET MASTER; `to` is the number of the new first file, of traditional ones."""

    syntax = '"RESET"i "MASTER"i ["TO"i INTEGER]'
    needs = (RELOAD,)
    changes_store = True
    com = "reset"
    commits = True

    to: int | None = None

    @classmethod
    def built(cls, children: list[Any]) -> ResetMaster:
        return cls(None if children[0] is None else integer(children[0]))

    def answer(self, session: SqlSession) -> Work:
        server, to = session.server, self.to or 0
        if self.to is not None:
            if not isinstance(server.engine, ClassicEngine):
                raise EngineBinlogUnavailable("RESET MASTER TO")
            if to > NUMBER_MAX:
                raise NoUniqueLogFile(str(session.server.engine.file_name(to)).rpartition(".")[0])
        session.require_no_upstream()
        return Work.patient(
            "reset",
            lambda given_up: reset(server, given_up, number=to, own=session.backup),
            server.history_changed,
        )


@dataclass(frozen=True, slots=True)
class ConvertBinlog(Statement):
    """ALTER BINLOG CONVERT TO: go on in a new store of the other format, in the directory `target`.

    `log_bin` is the base name of traditional files.
    """

    syntax = '"ALTER"i "BINLOG"i "CONVERT"i "TO"i STRING ["LOG_BIN"i STRING]'
    needs = ("SUPER",)
    changes_store = True
    commits = True

    target: str
    log_bin: str | None = None

    @classmethod
    def built(cls, children: list[Any]) -> ConvertBinlog:
        target, log_bin = children
        return cls(unquote(target), None if log_bin is None else unquote(log_bin))

    def answer(self, session: SqlSession) -> Work:
        server, target = session.server, path_of(self.target)
        return Work.patient(
            "convert", lambda given_up: server.convert(target, self.log_bin, given_up)
        )


def path_of(text: str) -> Path:
    """A path in a statement. Raises `UnknownServerError` for what no path is."""
    if not text or "\0" in text:
        raise UnknownServerError("a directory has a name, without zero bytes")
    return Path(text)


_RULES = """
_nothing: flush_session | flush_global | "USER_RESOURCES"i | "THREADS"i
        | ("ENGINE"i | "ERROR"i | "GENERAL"i | "SLOW"i | "RELAY"i) "LOGS"i | "QUERY"i "CACHE"i | "DES_KEY_FILE"i
        | "CLIENT_STATISTICS"i | "USER_STATISTICS"i | "INDEX_STATISTICS"i | "TABLE_STATISTICS"i
_table: (NAME | QUOTED_NAME) ("." (NAME | QUOTED_NAME))?
read_lock: "WITH"i "READ"i "LOCK"i
for_export: "FOR"i "EXPORT"i
flush_session: "SESSION"i? "STATUS"i
flush_global: "GLOBAL"i "STATUS"i
_purge_limit: purge_to | purge_before
purge_to: "TO"i STRING
purge_before: "BEFORE"i moment
delete_domains: "DELETE_DOMAIN_ID"i "=" "(" [INTEGER ("," INTEGER)*] ")"
"""


class _Builder(MomentBuilder):
    def read_lock(self, _: list[Token]) -> bool:
        return True

    def for_export(self, _: list[Token]) -> bool:
        return False

    def flush_session(self, _: list[Token]) -> bool:
        return False

    def flush_global(self, _: list[Token]) -> bool:
        return True

    def purge_to(self, children: list[Token]) -> Purge:
        return Purge(to=unquote(children[0]))

    def purge_before(self, children: list[Moment]) -> Purge:
        return Purge(before=children[0])

    def delete_domains(self, children: list[Token | None]) -> tuple[str, ...]:
        return tuple(str(token) for token in children if token is not None)


FAMILY = Family(
    (
        *(Purge, FlushLogs, FlushNothing, FlushTables, FlushSsl, ReloadConfiguration, ShutDown),
        *(ResetMaster, ConvertBinlog),
    ),
    _RULES,
    _Builder,
)


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
    diagnostics: Diagnostics,
    clock: Clock,
    coordinates: Coordinates,
    given_up: Callable[[], bool] = lambda: False,
    own: SessionBackup | None = None,
) -> None:
    """PURGE BINARY LOGS: delete the files that the statement names and nothing holds.

    Args:
        given_up: whether the statement's client has gone or was killed: the wait for a backup then ends.
        own: of the session that has said it; also below.

    Raises `UnknownTargetBinlog` (1373), and `BinlogFileInUse` (1378) with the reason as a note.
    """
    with view.backups.changing(given_up, own):
        _purge(view, statement, diagnostics, clock, coordinates)


def _purge(
    view: ServerView,
    statement: Purge,
    diagnostics: Diagnostics,
    clock: Clock,
    coordinates: Coordinates,
) -> None:
    view.refresh_holds()
    try:
        if statement.to is not None:
            plan = view.engine.purge_to(coordinates.number(statement.to))
            _told(plan, diagnostics, coordinates)
            return
        assert statement.before is not None
        seconds = seconds_of(statement.before, clock)
        if seconds is None:  # and nothing is deleted, as in MariaDB
            diagnostics.warn(not_a_time(statement.before, clock))
        else:
            plan = view.engine.purge_before(seconds)
            _told(plan, diagnostics, coordinates, error=not plan.reached_the_active_file)
    finally:
        view.refresh_holds()  # the purge may have moved the store's beginning


def _told(
    plan: PurgePlan,
    diagnostics: Diagnostics,
    coordinates: Coordinates,
    *,
    error: bool = True,
) -> None:
    if plan.kept is not None:
        name = coordinates.name(plan.kept)
        text = f"Binary log '{name}' is not purged because {plan.why}"
        diagnostics.note(PurgeProhibited(text))
        if error:
            raise BinlogFileInUse()


def flush(
    view: ServerView,
    statement: FlushLogs,
    diagnostics: Diagnostics,
    given_up: Callable[[], bool],
    own: SessionBackup | None = None,
) -> None:
    """FLUSH BINARY LOGS: begin a new file, and take the given domains out of the binlog state.

    Raises `GtidDomainInUse` or `GtidDomainTooLarge` (1076), and `BinlogStateUnreadable` (4250) with the damaged
    place as a warning.

    Args:
        given_up: whether the statement's client has gone or was killed: the wait for room or a backup then ends.
    """
    domains = []
    for text in statement.delete_domains:
        if int(text[:20]) > U32_MAX:
            raise GtidDomainTooLarge(text[:20])
        domains.append(int(text))
    if domains:  # an import goes on at the place that the binlog state tells
        view.publisher.require_whole()
    known = set(view.engine.binlog_state().domains())
    for domain in sorted(set(domains) - known):
        diagnostics.warn(GtidDomainAbsent(domain))
    try:
        with view.backups.changing(given_up, own):
            view.engine.flush(domains, given_up)
    except DomainInUse as error:
        raise GtidDomainInUse(error.domain_id) from error
    except CorruptBinlog as error:
        diagnostics.warn(UnknownServerError(str(error)))
        raise BinlogStateUnreadable() from error


def reset(
    view: ServerView,
    given_up: Callable[[], bool],
    state: BinlogState | None = None,
    *,
    only_if_empty: bool = False,
    number: int = 0,
    own: SessionBackup | None = None,
) -> None:
    """RESET MASTER: delete all files and begin the binlog anew.

    Args:
        given_up: whether the statement's client has gone or was killed: the wait for room then ends.
        state: the binlog state to begin with; None is the empty one.
        only_if_empty: raise `BinlogNotEmpty` (1956) if any GTID was logged.
        number: see `ClassicEngine.reset`.

    Raises `BinlogHasReaders` (4243), `BinlogHasTransactions` (4244), and 1290 while an archive is imported.
    """
    view.publisher.require_whole()
    try:
        with view.backups.changing(given_up, own):
            if number and isinstance(view.engine, ClassicEngine):
                view.engine.reset(state, given_up, only_if_empty=only_if_empty, number=number)
            else:
                view.engine.reset(state, given_up, only_if_empty=only_if_empty)
    finally:
        view.look_at_begin()


def set_binlog_state(view: ServerView, text: str, given_up: Callable[[], bool]) -> None:
    """SET GLOBAL gtid_binlog_state. Raises `BinlogNotEmpty` (1956), `BadGtidList` (1941)."""
    if len(view.engine.binlog_state()):  # as MariaDB says before it reads the list
        raise BinlogNotEmpty()
    _begin_at(view, "gtid_binlog_state", BinlogState.parse(text), given_up)


def set_slave_position(view: ServerView, text: str, given_up: Callable[[], bool]) -> None:
    """SET GLOBAL gtid_slave_pos: the history of an empty store begins at this position, and following upstreams, too.

    Raises `BinlogNotEmpty` (1956), `BadGtidList` (1941), `DuplicateGtidDomain` (1943), `BinlogHasReaders` (4243).
    """
    position = SlavePosition.parse(text)
    if view.engine.binlog_state().position() == position:
        return
    _begin_at(view, "gtid_slave_pos", BinlogState(position), given_up)


def _begin_at(
    view: ServerView, variable: str, state: BinlogState, given_up: Callable[[], bool]
) -> None:
    try:
        reset(view, given_up, state, only_if_empty=True)
    except BinlogInUse as error:  # in words of a RESET MASTER, which nobody has said
        told = str(error).replace("RESET MASTER", f"SET GLOBAL {variable}", 1)
        raise BinlogHasReaders(told) from None
