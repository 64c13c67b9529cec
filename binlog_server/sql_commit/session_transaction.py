"""A session's transaction: statements of one client become a transaction, a transaction becomes a group in the store.

    no transaction open    a DML statement is a transaction by itself
    BEGIN, autocommit=0    statements are collected up to COMMIT; ROLLBACK forgets them
    DDL                    commits the open transaction, then itself

The client gets its OK when the group is committed as `innodb_flush_log_at_trx_commit` says, never before.

A statement runs at once as far as it can. If the store has no room, or after each piece of a large statement, the rest
runs in a task, and nothing more is read from the client meanwhile (back-pressure).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    DatabaseAccessDenied,
    GtidOutOfOrder,
    IncompleteRollback,
    InvalidXaArguments,
    LockDeadlock,
    NoDatabaseSelected,
    NoSuchTable,
    NotSupportedYet,
    OutsideXa,
    QueryInterrupted,
    ReadOnlyTransaction,
    RecordHasChanged,
    ServerError,
    SnapshotIgnored,
    TableChanged,
    TableExists,
    UnknownServerError,
    UnknownTable,
    UnknownXid,
    WrongDatabaseName,
    XaVictim,
)
from binlog_protocol.events.charsets import decode_text
from binlog_protocol.events.collation_names import default_collation
from binlog_protocol.events.statement_context import UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.groups.statement_group import own_variables
from binlog_protocol.gtid import Gtid
from binlog_protocol.sql.plain import plain
from binlog_protocol.wire.results import (
    STATUS_ANSI_QUOTES,
    STATUS_AUTOCOMMIT,
    STATUS_IN_TRANS,
    STATUS_IN_TRANS_READONLY,
    STATUS_NO_BACKSLASH_ESCAPES,
)
from binlog_storage.binlog.decision import Decision
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.errors import StorageError, WaitGivenUp, XaStateError
from binlog_storage.ibb.xa import Xid

from binlog_server.accounts.privileges import BINLOG_REPLAY, CREATE_TEMPORARY
from binlog_server.commits.commit_ids import ROWS_MAX, Writes
from binlog_server.commits.publisher import Domain, Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.loop.defects import internal_error
from binlog_server.loop.turn import Turn
from binlog_server.queries.terms import MADE_BYTES_MAX
from binlog_server.semi_sync.commits import Commits
from binlog_server.sql.assignments import SetStatement
from binlog_server.sql.inquiries import asker_of, keep_of_question, tables_of
from binlog_server.sql.little_tables import require_database
from binlog_server.sql.places import Snapshot
from binlog_server.sql.session_settings import (
    ONCE_PER_GROUP,
    ONCE_PER_STATEMENT,
    Settings,
    decoded_statement,
    require_read_alike,
    settings_of,
)
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement import CHANGE_FILES
from binlog_server.sql.statement_kind import (
    Classified,
    Kind,
    classify,
    is_stored_program,
)
from binlog_server.sql.view import ResultSet
from binlog_server.sql_commit.client import (
    INSERTED,
    ROW_UPDATED,
    Answer,
    CommitClient,
    not_written,
)
from binlog_server.sql_commit.held_statements import (
    MAY_WAIT,
    UPKEEP,
    ChangeJob,
    Ddl,
    DdlJob,
    DdlKind,
    LockedTables,
    RowSide,
    SelectedRows,
    Target,
    auto_increment_of,
    create_temporary,
    ddl_job,
    ddl_of,
    is_locking_read,
    lock_tables,
    lock_wait,
    may_be_here,
    mentions,
    parsed_change,
    require_for_change,
    require_on,
    row_logging,
    target_of,
    wished_locks,
)
from binlog_server.sql_commit.logged_text import Reading as LoggedReading
from binlog_server.sql_commit.logged_text import logged_text
from binlog_server.sql_commit.open_transaction import (
    Mark,
    OpenTransaction,
    RowThreads,
    no_such_savepoint,
)
from binlog_server.sql_commit.quick_way import QuickWay, StatusHolder
from binlog_server.sql_commit.text_form import ROW, text_form, whole_microseconds
from binlog_server.sql_commit.xa import Branch, SessionXa, XaBranches, XaState
from binlog_server.sql_commit.xid import xid_of
from binlog_server.tables.changes import Outcome
from binlog_server.tables.generated import default_of
from binlog_server.tables.held import HeldTable, HeldTables
from binlog_server.tables.rows import HeldRows, Reading

if TYPE_CHECKING:
    from binlog_protocol.sql.token_reader import TableName
    from binlog_storage.tables.store import ReadView

    from binlog_server.queries.parsing import Question
    from binlog_server.queries.terms import Asker
    from binlog_server.sql.inquiries import Tables

REPEATABLE_READ: Final = "REPEATABLE-READ"
READ_UNCOMMITTED: Final = "READ-UNCOMMITTED"
SERIALIZABLE: Final = "SERIALIZABLE"
_COMMITTING: Final = frozenset({Kind.DML, Kind.DDL, Kind.LOCK_TABLES, Kind.LOCKING_READ})
_NO_TABLES: Final = frozenset({"DATABASE", "SCHEMA", "USER", "ROLE"})  # what DDL may be about
PIECE_BYTES: Final = 256 * 1024  # of a large statement; after each piece the loop serves others
MAY_END_OTHERS: Final = (*CHANGE_FILES, BINLOG_REPLAY, "INSERT", "UPDATE", "DELETE")
"""Of these any one is needed to end a prepared XA transaction of another session: all who may have made one."""
TEMPORARY_MAX: Final = 1000  # temporary tables of a session
TEMPORARY_PART: Final = (
    4  # what they take of the memory is at most this part of what all sessions may have
)
_FULL_DISK_S: Final = 1.0  # a disk that keeps up makes room within milliseconds
_DATABASE_CHARS_MAX: Final = 64
# MariaDB's warning if no engine has snapshots; here there are no tables to read.
_NO_SNAPSHOT: Final = (
    "This MariaDB server does not support any consistent-read capable storage engine"
)
_UNLOGGED: Final = (
    "sql_log_bin is OFF: nothing was logged, and there are no tables here, so nothing was done"
)

_INSERT_IDS: Final = ("last_insert_id", "identity")  # variables that LAST_INSERT_ID() gives

T = TypeVar("T")
_Commit = Callable[[], Gtid]
Steps = Generator["asyncio.Future[Any] | None", None, None]
"""What a statement waits for, one after the other; None: for room in the store, or until the loop has served others."""


@dataclass(slots=True)
class RoomWait:
    """A statement waits for room in the store. `interruption`: done by KILL QUERY."""

    interruption: asyncio.Future[None]
    began: float


class SessionTransaction:
    """The transaction of one session, open or yet to come. Call `close` when the client has gone.

    Its state is in `_open`, `_begun` and `_read_only`. All that follows from it, and from the session's variables, is
    computed by `_tell` and `refresh`: nothing else is to be kept in step. Methods that are generators yield where the
    store has no room, or where the loop should serve others first.
    """

    def __init__(
        self,
        client: CommitClient,
        machine: StatusHolder,
        sql: SqlSession,
        publisher: Publisher,
        commits: Commits,
        room: AppendRoom,
        *,
        server_id: int,
        domain_id: int,
        tables: HeldTables,
        threads: Callable[[], RowThreads],
        xa: XaBranches,
    ) -> None:
        self._xa = SessionXa(xa)
        self._tables = tables
        self._threads = threads
        self._client = client
        self._machine = machine
        self._sql = sql
        self._publisher = publisher
        self._commits = commits
        self._room = room
        self._server_id = server_id
        self._domain_id = domain_id
        self._open: OpenTransaction | None = None
        self._around: OpenTransaction | None = None  # while `_open` is that of a direct statement
        self._begun = False  # after BEGIN, up to the transaction's end
        self._read_only = False  # whether it was begun READ ONLY
        self._has_locked = False  # LOCK TABLES holds
        self._locks: LockedTables | None = None  # of tables here
        self._settings: Settings  # for the next statement
        self._task: asyncio.Task[None] | None = None  # of the running statement, once it waits
        self._undoing: list[asyncio.Future[None]] = []  # see `_until_undone`
        self.held = 0
        """Bytes of a change of rows that is being read or computed, about."""
        self.next_units: list[tuple[int, int]] | None = None
        """Where the next change of a table here writes what each of its runs did: see `Outcome`."""
        self._room_wait: RoomWait | None = None
        self._turn = Turn()
        self._go_on: Callable[[], None] | None = None  # in the place of the answer OK to a commit
        self._due: Answer | None = (
            None  # the answer that is due; None: that of an INSERT by `quick_way`
        )
        self.quick_way = QuickWay(self, client, machine, sql, publisher, room, tables)
        sql.in_transaction = self._in_transaction
        sql.has_locked_tables = lambda: self._has_locked
        sql.variables_changed = self.refresh
        sql.reading = self._reading
        self.refresh()

    # --- from the session ---

    def note_generated(self, number: int) -> None:
        """LAST_INSERT_ID() is the first number that AUTO_INCREMENT gave."""
        self._sql.variables.update(dict.fromkeys(_INSERT_IDS, str(number)))
        self.refresh()

    def execute(
        self,
        statement: Classified,
        readings: Iterable[LoggedReading] | None = None,
        setting: SetStatement | None = None,
    ) -> None:
        """Run a statement of any kind but OTHER; the client gets its answer now or later.

        Args:
            readings: of a prepared statement what gives its text with the values of its parameters, one for each time
                that it is executed; None: the text is the statement's own.
            setting: the variables that are SET for this statement alone.

        Raises `ServerError`: 1064, 1227, 1235, 1290, 1305, 1792, ...
        """
        if not _uses_tables(statement):
            self._sql.use_no_tables()
        steps = self._steps(statement, readings)
        self._run(steps if setting is None else self._steps_under(setting, steps))

    def _steps_under(self, setting: SetStatement, steps: Steps) -> Steps:
        try:
            with setting.applied(self._sql):
                self.refresh()
                yield from steps
        finally:
            self.refresh()

    def require_for(self, statement: Classified) -> None:
        """Raise what a statement that is prepared would be refused with at once. Raises `ServerError`: 1046, 1142,
        1146, 1227, 1235."""
        if statement.kind is Kind.DML:
            target = self._target(statement)
            if target is not None and self._sql.temporary.find(*target.table) is None:
                for privilege in (
                    ("INSERT", "DELETE") if target.verb == "REPLACE" else (target.verb,)
                ):
                    require_on(self._sql, privilege, target.table)
                if self._tables.find(*target.table) is None:
                    raise NoSuchTable(target.table.database, target.table.table)
        elif statement.kind is Kind.DDL:
            self._ddl_here(statement)
        else:
            self._sql.require(*statement.kind.needs)

    def changes_here(self, statement: Classified) -> bool:
        """Whether a statement is DML of a table here. Raises as `require_for`."""
        is_dml = statement.kind is Kind.DML and self._may_be_here(statement)
        return is_dml and self._target(statement) is not None

    def classified(self, text: bytes) -> Classified:
        """A statement by its first words, and a SELECT that locks rows of a table here."""
        found = classify(text)
        may_lock = found.kind is Kind.OTHER and self._tables.has_any and is_locking_read(found.text)
        if may_lock and self._locked_table(found.text) is not None:
            return found._replace(kind=Kind.LOCKING_READ)
        return found

    def _locked_table(self, text: bytes) -> Target | None:
        target = target_of(text, self.database, self._plain)
        is_here = target is not None and target.table.database in self._tables.databases
        return target if is_here else None

    def settings_now(self) -> Settings:
        """The settings of the next statement."""
        return self._settings

    def said(self, text: bytes) -> str:
        """A statement that is answered here; what is no text in the client's character set, byte by byte."""
        decoded = decoded_statement(text, self._settings.charset)
        return text.decode("utf-8", "surrogateescape") if decoded is None else decoded

    def for_grammars(self, text: str) -> str:
        """A statement's text as the grammars must read it, where the session's sql_mode reads strings otherwise.

        Raises `NotSupportedYet` (1235) for words that the sql_mode gives another meaning, as || that is CONCAT.
        """
        read = self._plain(text)
        if self._settings.other_reading:
            require_read_alike(read, self._settings.other_reading)
        return read

    def refresh(self) -> None:
        """Compute the settings anew: the session's variables or its database have changed."""
        sql = self._sql
        self._settings = settings_of(
            sql.variables,
            server_id=self._server_id,
            domain_id=self._domain_id,
            thread_id=sql.connection_id,
            database=sql.database,
        )
        self._tell()

    def settle(self) -> bool:
        """When SET is done: if it has turned autocommit on, commit the transaction, also behind BEGIN.

        True if the client gets its answer from that commit.
        """
        if self._sql.is_to_commit and self._xa.branch is not None:
            self._sql.is_to_commit = False
            self._sql.variables["autocommit"] = "OFF"
            self.refresh()
            self._xa.require_none()
        if self._sql.is_to_commit and self._open is not None:
            self._run(self._with_its_undo(self._commit()))
            return True
        if self._sql.is_to_commit:
            self._ended()
        return False

    def commit_first(self, go_on: Callable[[], None]) -> bool:
        """Commit the open transaction in front of a statement that does so, and call `go_on` when that is done.

        False if there is nothing to commit: the transaction is over, and `go_on` is not called. Raises `ServerError`.
        """
        self._xa.require_none()
        opened = self._open
        if opened is None or not (opened.changes or opened.keeps or opened.may_have_locks):
            self._rollback()
            return False
        self._run(self._with_its_undo(self._commit(go_on=go_on)))
        return True

    def use(self, name: bytes) -> None:
        """Set the default database; `name` is in the client's character set. Raises `WrongDatabaseName` (1102),
        `DatabaseAccessDenied` (1044)."""
        if not name:
            raise NoDatabaseSelected()
        text = decode_text(name, default_collation(self._settings.charset))
        if not isinstance(text, str):
            text = name.decode("utf-8", "replace")
        if not 0 < len(text) <= _DATABASE_CHARS_MAX or "\0" in text or text.endswith(" "):
            raise WrongDatabaseName(text[:_DATABASE_CHARS_MAX])
        require_database(self._sql, text)
        self._sql.database = text.encode()
        self._sql.changed[""] = None
        self.refresh()

    @property
    def waits_for_a_disk(self) -> bool:
        """Whether its statement has waited so long for room that a disk must be full."""
        wait = self._room_wait
        return wait is not None and monotonic() - wait.began > _FULL_DISK_S

    @property
    def waits_for_replicas(self) -> bool:
        """Whether the client's commit is durable, and waits for semi-sync alone."""
        return self._commits.waits_for_replicas(self._done)

    def interrupt(self) -> None:
        """KILL QUERY: a commit that waits for replicas alone is answered OK, as by MariaDB: it is committed.

        A statement on rows ends with 1317; so does the wait for a lock, and for room in the store. A transaction that
        is spilled in a thread, and waits there for the disk, gives up with 1026.
        """
        self._commits.give_up(self._done)
        self._give_up_rows()
        if self._room_wait is not None and not self._room_wait.interruption.done():
            self._room_wait.interruption.set_result(None)
        if self._open is not None and not self._room.engine.has_room_to_spill:
            self._open.events.give_up()

    def _give_up_rows(self) -> None:
        if self._rows is not None:
            self._rows.give_up()

    def close(self) -> None:
        """The client has gone: roll back the open transaction, and stop the running statement."""
        self._commits.give_up(self._done, has_gone=True)
        self._give_up_rows()
        if self._task is not None:
            self._task.cancel()
        self._xa.leave()
        self._rollback()
        self._unlock()

    def reset(self) -> None:
        """COM_RESET_CONNECTION: roll back the open transaction, take the session's variables as they are now, and
        answer OK."""
        self._run(self._reset())

    def _reset(self) -> Steps:
        self._xa.leave()
        self._rollback()
        self._unlock()
        self.refresh()
        yield from self._until_undone()
        self._client.committed(0)

    # --- its state ---

    @property
    def is_free(self) -> bool:
        """See `QuickSession`."""
        return self._open is None and self._locks is None

    def _in_transaction(self) -> bool:
        return self._begun or (self._open is not None and self._open.has_begun)

    @property
    def _autocommit(self) -> bool:
        """Whether a statement outside of BEGIN is a transaction by itself."""
        return self._sql.variables.get("autocommit") != "OFF"

    @property
    def reads_only(self) -> bool:
        """Whether the open transaction, or without one the next statement, is read-only."""
        if self._begun:
            return self._read_only
        return self._open is None and self._next_reads_only

    @property
    def _next_reads_only(self) -> bool:
        """Whether a transaction is read-only that is begun without READ ONLY or READ WRITE."""
        said = self._sql.next_read_only
        return self._sql.reads_only if said is None else said

    @property
    def _is_large(self) -> bool:
        """Whether the open transaction is large: it then waits for room to spill, and others pass it."""
        return self._open is not None and self._open.events.is_large

    def _forget(self, names: tuple[str, ...]) -> None:
        """Forget variables that were SET for one statement, or one group, only."""
        if [name for name in names if self._sql.variables.pop(name, None) is not None]:
            self.refresh()

    def _tell(self) -> None:
        """Update the status flags of the client's OK packets: the transaction's state has changed."""
        settings = self._settings
        status = STATUS_IN_TRANS if self._in_transaction() else 0
        status |= STATUS_AUTOCOMMIT if self._autocommit else 0
        status |= STATUS_IN_TRANS_READONLY if self._begun and self._read_only else 0
        status |= 0 if settings.backslash_escapes else STATUS_NO_BACKSLASH_ESCAPES
        status |= STATUS_ANSI_QUOTES if settings.ansi_quotes else 0
        self._machine.status = status
        self.quick_way.forget()

    def _opened(self) -> OpenTransaction:
        """The open transaction, begun now if there is none."""
        if self._open is None:
            rows = self._new_rows() if self._tables.has_any else None
            self._open = self._new_transaction(rows)
            self._tell()
        elif not self._open.has_begun:
            self._open.has_begun = True
            self._tell()
        return self._open

    def _new_transaction(self, rows: RowSide | None) -> OpenTransaction:
        writer = None if rows is None else self._tables.writer_of(rows.trx)
        return OpenTransaction(self._publisher.begin(writer, self._sql.tmp_space), rows)

    def _new_rows(self) -> RowSide:
        return RowSide(self._tables, self._locks)

    @property
    def _lock_wait_s(self) -> float:
        """innodb_lock_wait_timeout, as it is when a wait begins."""
        said = self._sql.variables.get("innodb_lock_wait_timeout")
        return float(said or self._sql.server.config.innodb_lock_wait_timeout)

    def _opened_rows(self) -> RowSide | None:
        return self._opened().rows if self._tables.has_any else None

    @property
    def _rows(self) -> RowSide | None:
        """The rows of the open transaction."""
        return None if self._open is None else self._open.rows

    @property
    def _isolation(self) -> str:
        """Of the open transaction, or else of the next."""
        return self._sql.isolation or self._sql.variables.get(
            "transaction_isolation", REPEATABLE_READ
        )

    def _reading(self, is_kept: bool) -> Reading:
        """What a SELECT of tables here reads; `is_kept`: by the transaction, which it begins where autocommit is off.

        Raises `XaWrongState` (1399), `NotSupportedYet` (1235).
        """
        self._xa.require_active()
        if not is_kept:
            return Reading(self._tables.store)
        isolation = self._isolation
        is_within = self._begun or not self._autocommit
        if is_within and isolation == SERIALIZABLE:
            raise NotSupportedYet("SELECT in a SERIALIZABLE transaction, whose reads would lock")
        if not is_within:
            # It is a transaction by itself: the one that SET TRANSACTION was meant for.
            self._sql.next_read_only = self._sql.isolation = None
            return Reading(self._tables.store)
        rows = self._opened().rows
        if rows is None:
            return Reading(self._tables.store)
        kept = rows.kept_view() if isolation == REPEATABLE_READ else rows.view
        return Reading(self._tables.store, rows.trx, kept)

    def _ended(
        self, *, begun: bool = False, read_only: bool = False, isolation: str | None = None
    ) -> None:
        """The transaction is over, but one of XA, which has an end of its own. `begun`: the next one is begun, with
        `read_only`, and `isolation` if that is not the session's."""
        if self._open is not None and self._open.rows is not None:
            self._open.rows.ended()
        self._open = None
        self._sql.snapshot = None
        self._sql.temporary.dropped_bytes = 0
        begun = begun or self._xa.branch is not None
        self._begun = begun
        self._read_only = read_only
        self._sql.next_read_only = None
        self._sql.isolation = isolation
        self._sql.is_to_commit = False
        self._tell()

    def _rollback(self, *, chain: bool = False) -> None:
        """Forget the open transaction. `chain`: begin another with the same access mode and isolation.

        Rows are undone in a thread: `_until_undone` waits for that.
        """
        read_only = chain and self.reads_only
        isolation = self._sql.isolation if chain else None
        if not chain:
            self._xa.undone()
        if self._around is not None:
            self._roll_back(self._around)
            self._around = None
        if self._open is not None:
            self._roll_back(self._open)
        self._ended(begun=chain, read_only=read_only, isolation=isolation)

    def _roll_back(self, opened: OpenTransaction) -> None:
        undone = opened.roll_back(self._threads)
        if undone is not None:
            self._undoing.append(undone)

    def _until_undone(self) -> Generator[asyncio.Future[Any] | None, None, None]:
        """Until what was rolled back is undone. Waited for in front of the answer: behind that its locks are free, and
        its temporary space. Raises `StorageError`."""
        undoing, self._undoing = self._undoing, []
        for undone in undoing:
            if not undone.done():
                yield undone
        for undone in undoing:
            undone.result()

    def _with_its_undo(self, steps: Steps) -> Steps:
        """The steps of a statement; if it fails, its error comes behind what that has rolled back, unless there is no
        room for that."""
        try:
            yield from steps
        except (ServerError, StorageError) as error:
            if isinstance(error, StorageError):
                self._rollback()
            if self._room.engine.has_room:
                with contextlib.suppress(StorageError):
                    yield from self._until_undone()
            self._undoing.clear()
            raise

    # --- running a statement ---

    def _run(self, steps: Steps) -> None:
        """Run all steps of a statement: now, and from the first wait on in a task.

        Raises `ServerError` for an error before the first wait; the client gets a later one as its answer.
        """
        self._turn = Turn()
        try:
            for waiting in steps:
                self._client.hold(held=True)
                running = self._run_slowly(steps, waiting)
                self._task = asyncio.get_running_loop().create_task(running)
                return
        except StorageError as error:
            self._rollback()
            raise not_written(error) from error
        except ServerError:
            raise
        except Exception:  # a defect: the statement may be half written
            self._rollback()
            raise

    async def _run_slowly(self, steps: Steps, waiting: asyncio.Future[Any] | None) -> None:
        try:
            while True:
                goes_on = True
                if waiting is None:
                    await asyncio.sleep(0)
                    goes_on = self._has_room or await self._room_or_interruption()
                else:
                    await asyncio.wait((waiting,))  # the step gets its result, or its error
                self._turn = Turn()
                try:
                    waiting = next(steps) if goes_on else steps.throw(QueryInterrupted())
                except StopIteration:
                    return
        except ServerError as error:
            self._client.refused(error)
        except StorageError as error:
            self._rollback()
            self._client.refused(not_written(error))
        except Exception as error:  # noqa: BLE001 - logged there
            self._rollback()
            session = f"connection {self._sql.connection_id}"
            self._client.refused(internal_error(error, session))
        finally:
            # The answer may have let the next statement begin, with a task of its own.
            if self._task is asyncio.current_task():
                self._task = None
                self._client.hold(held=False)

    def _in_turns(self, steps: Generator[None, None, T]) -> Generator[None, None, T]:
        """Run steps that only take time: it yields whenever the turn is over. Returns their result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self._turn.is_over:
                yield None

    def _until_room(self) -> Steps:
        """Until there is room in the store. Raises `QueryInterrupted` (1317): the transaction is rolled back then."""
        try:
            while not self._room.engine.has_room:
                yield None
        except ServerError:
            self._rollback()
            raise

    async def _room_or_interruption(self) -> bool:
        """Wait for room; False if KILL QUERY has ended that."""
        room = asyncio.ensure_future(self._room.wait(to_spill=self._is_large))
        interruption = asyncio.get_running_loop().create_future()
        self._room_wait = RoomWait(interruption, monotonic())
        try:
            await asyncio.wait((room, interruption), return_when=asyncio.FIRST_COMPLETED)
            if room.done():
                room.result()
            return not interruption.done()
        finally:
            self._room_wait = None
            room.cancel()

    # --- the statements ---

    def _steps(self, statement: Classified, readings: Iterable[LoggedReading] | None) -> Steps:
        """The steps of a statement, the client's answer included. Raises `ServerError`, `StorageError`."""
        tables = self._tables
        while (gate := tables.gate(is_open=self._open is not None)) is not None:
            yield gate
        tables.at_work += 1
        try:
            yield from self._with_its_undo(self._steps_of(statement, readings))
        finally:
            tables.at_work -= 1

    def _steps_of(self, statement: Classified, readings: Iterable[LoggedReading] | None) -> Steps:
        kind = statement.kind
        if kind in _COMMITTING:
            self._sql.backup.require_inactive()
        if kind is Kind.DML:
            yield from self._change(statement, readings)
        elif kind is Kind.LOCKING_READ:
            self._xa.require_active()
            target = self._locked_table(statement.text)
            if target is None:  # it was dropped since it was prepared
                raise NotSupportedYet("SELECT with locks, of a table that is not here any longer")
            yield from self._change_here(statement, target, readings)
        elif kind is Kind.DDL:
            yield from self._define(statement, readings)
        elif kind is Kind.NOTHING:
            self._client.committed(0)
        elif kind is Kind.COMMIT:
            self._xa.require_none()
            chain, leaves = self._completion(statement)
            yield from self._commit(chain=chain, leaves=leaves)
        elif kind is Kind.BEGIN:
            self._xa.require_none()
            if statement.snapshot and not self._tables.has_any:
                self._sql.warn(UnknownServerError(_NO_SNAPSHOT))
            read_only = statement.read_only or (not statement.read_write and self._next_reads_only)
            yield from self._commit(begin=True, read_only=read_only, snapshot=statement.snapshot)
            self._unlock()
        elif kind is Kind.LOCK_TABLES:
            yield from self._lock_tables(statement)
        elif kind is Kind.UNLOCK_TABLES:
            # The locks of LOCK TABLES are there up to BEGIN; without them UNLOCK TABLES commits nothing.
            if self._has_locked and not self._begun:
                yield from self._commit()
            else:
                self._client.committed(0)
            self._unlock()
        elif kind is Kind.ROLLBACK:
            self._xa.require_none()
            chain, leaves = self._completion(statement)
            self._warn_of_what_stays()
            self._rollback(chain=chain)
            yield from self._until_undone()
            self._client.committed(0, leaves=leaves)
        elif kind is Kind.XA:
            yield from self._global(statement)
        elif kind is Kind.USE:
            self.use(statement.name)
            self._client.committed(0)
        else:
            undo = self._savepoint(kind, statement.name)
            if undo is not None:
                yield from self._in_rows_thread(undo)
            self._client.committed(0)

    def _completion(self, statement: Classified) -> tuple[bool, bool]:
        """Whether the end of a transaction begins another, and whether it ends the connection."""
        otherwise = self._sql.variables.get("completion_type")
        chain, release = statement.chain, statement.release
        return (
            otherwise == "CHAIN" and not release if chain is None else chain,
            otherwise == "RELEASE" and not chain if release is None else release,
        )

    def _warn_unlogged(self) -> None:
        """A change under sql_log_bin=0. Here there is nothing but the log, and so nothing was done."""
        self._sql.warn(UnknownServerError(_UNLOGGED))

    # --- tables that are here ---

    def _plain(self, text: str) -> str:
        """A text with the strings and names of the default sql_mode."""
        settings = self._settings
        return plain(
            text,
            backslash_escapes=settings.backslash_escapes,
            ansi_quotes=settings.ansi_quotes,
        )

    def _may_be_here(self, statement: Classified) -> bool:
        return self._tables.has_any and may_be_here(self._tables, statement.text, self.database)

    @property
    def database(self) -> str:
        return self._sql.database.decode("utf-8", "replace")

    def _mentions(self, statement: Classified) -> bool:
        return mentions(self._tables, statement.text, self.database, self._plain)

    def _target(self, statement: Classified) -> Target | None:
        """The table here that DML changes; None if it is text for other databases.

        Raises `ServerError`: 1046, 1146, 1227, 1235.
        """
        sends_text = not self.makes_databases
        if sends_text and not self._may_be_here(statement):
            self._sql.require(*statement.kind.needs)
            return None
        target = target_of(statement.inner_head, self.database, self._plain)
        if target is None or not target.is_alone:
            what = (
                f"{statement.words[0]} of several tables, or" if statement.words else "a statement"
            )
            raise NotSupportedYet(
                f"{what} in a form that is not known here, which may be about tables that are here: "
                "a statement changes one table, by values of others in subqueries"
            )
        if target.table.database not in self._tables.databases:
            if sends_text:
                self._sql.require(*statement.kind.needs)
                return None
            if not target.table.database:
                raise NoDatabaseSelected()
            raise NoSuchTable(target.table.database, target.table.table)
        return target

    def _in_rows_thread(
        self, call: Callable[[], T]
    ) -> Generator[asyncio.Future[Any] | None, None, T]:
        """The result of a call in a thread that works with the open transaction's rows."""
        rows = self._rows
        future = self._threads().in_row_thread(call if rows is None else rows.alone(call))
        # The client may go meanwhile: then nobody asks for the error.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not future.done():
            yield future
        return future.result()

    def _new_total(self) -> Outcome:
        units, self.next_units = self.next_units, None
        return Outcome(units=units, counts_found=self._machine.counts_found)

    def _change_here(
        self, statement: Classified, target: Target, readings: Iterable[LoggedReading] | None
    ) -> Steps:
        """DML of a table here. `readings`: as of `execute`."""
        settings, returned = self._settings, _Returned()
        if readings is None:
            readings = (logged_text(statement.text, settings, may_return_rows=True),)
        table = self._sql.find_table(*target.table)
        if table is not None and not table.is_transactional:
            yield from self._change_direct(statement, target, readings)
            return
        total = self._new_total()
        before = None if self._open is None else self._open.mark()
        try:
            for reading in readings:
                text, names = yield from self._in_turns(reading)
                found = yield from self._change_rows(statement, target, text, names, total)
                returned.add(found)
        except ServerError as error:
            yield from self._undo_rows(before, error)
            raise
        finally:
            if self._open is not None and before is not None:
                self._open.events.release(before.events)
        if total.generated:
            self.note_generated(total.generated)
        info = total.info(target.verb, self._sql.warning_count)
        answer = Answer(total.told(target.verb), False, total.insert_id, info, returned.rows)
        if self._begun or not self._autocommit:
            self.answer(answer)
        else:
            yield from self._commit(answer=answer)

    def _undo_rows(self, before: Mark | None, error: ServerError) -> Steps:
        """Undo a statement that has failed; the transaction, where that ends it."""
        if before is None or error.kind in (LockDeadlock, RecordHasChanged):
            is_begun = self._begun and error.kind not in (LockDeadlock, RecordHasChanged)
            self._rollback(chain=is_begun)
        elif self._open is not None:
            opened = self._open
            yield from self._in_rows_thread(lambda: opened.undo(before))

    def _change_direct(
        self, statement: Classified, target: Target, readings: Iterable[LoggedReading]
    ) -> Steps:
        """DML of a table without transactions: it is one by itself, whatever becomes of the open one.

        What it has done stays when it fails, and is logged then, too.
        """
        total, returned = self._new_total(), _Returned()
        failure: ServerError | None = None
        around, begun = self._open, self._begun
        self._around = around
        direct = self._open = self._new_transaction(self._new_rows())
        try:
            try:
                for reading in readings:
                    text, names = yield from self._in_turns(reading)
                    found = yield from self._change_rows(statement, target, text, names, total)
                    returned.add(found)
            except ServerError as error:
                failure = error
                if error.kind is LockDeadlock:  # it is undone already
                    direct.changes, direct.keeps, direct.leaves_rows = 0, False, False
            if direct.changes:
                yield from self._until_room()
                yield from self._append_direct(direct)
            elif direct.keeps:
                direct.events.rollback()
                yield from self._in_rows_thread(direct.commit_rows)
            else:
                self._roll_back(direct)
                yield from self._until_undone()
        finally:
            if self._open is direct:  # else all is rolled back: the client has gone
                self._open, self._around = around, None
                self._tell()
        if (direct.changes or direct.leaves_rows) and (begun or not self._autocommit):
            opened = self._opened()
            opened.leaves_rows, opened.has_direct = True, opened.has_direct or direct.changes > 0
        if failure is not None:
            if not direct.changes:
                raise failure
            # What it did stays, and the error is told no earlier than that is true.
            is_alone = not begun and self._autocommit
            refused = partial(self._refused_half_way, failure, warns=is_alone)
            self._answer_when_committed(Answer(), go_on=refused)
            return
        if total.generated:
            self._sql.variables.update(dict.fromkeys(_INSERT_IDS, str(total.generated)))
            self.refresh()
        info = total.info(target.verb, self._sql.warning_count)
        answer = Answer(total.told(target.verb), False, total.insert_id, info, returned.rows)
        if direct.changes:
            self._answer_when_committed(answer)
        else:
            self.answer(answer)

    def _refused_half_way(self, failure: ServerError, *, warns: bool) -> None:
        self._client.refused(failure)
        if warns:  # inside of a transaction its end does
            self._sql.warn(IncompleteRollback())

    def _append_direct(self, direct: OpenTransaction) -> Steps:
        """Append what a statement did to a table without transactions. Raises as `_append`."""
        settings = self._settings
        try:
            self._publisher.require_open(settings.domain_id)
            commit = partial(
                self._publisher.commit,
                direct.events,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
                is_direct=True,
            )
            turn = direct.events.turn()
            self._sql.last_gtid = yield from self._in_turn(turn, commit, direct.rows)
        except ServerError:
            self._roll_back(direct)
            raise
        finally:
            self._forget(ONCE_PER_GROUP)

    def _warn_of_what_stays(self, *, to_savepoint: bool = False) -> None:
        """ROLLBACK: tables without transactions stay as they are. To a savepoint an 11.8 warns of temporary tables that
        were made or dropped, too."""
        opened = self._open
        if opened is not None and (opened.leaves_rows or (to_savepoint and opened.leaves_tables)):
            self._sql.warn(IncompleteRollback())

    def _change_rows(
        self,
        statement: Classified,
        target: Target,
        text: bytes | bytearray,
        names: Sequence[bytes],
        total: Outcome,
    ) -> Generator[asyncio.Future[Any] | None, None, ResultSet | None]:
        """One execution of it; returns the rows of RETURNING. `names`: its user variables."""
        loop, is_over = asyncio.get_running_loop(), False

        def hold(size: int) -> None:
            if not is_over and size != self.held:
                self.held = size
                self._client.holds_more()

        def hold_soon(size: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(hold, size)

        def read() -> tuple[bytes, Question]:
            logged = bytes(text)
            return logged, parsed_change(self._spoken(statement, logged), target, hold_soon)

        try:
            logged, question = yield from self._in_rows_thread(read)
            hold(question.held)
            return (yield from self._change_read_rows(question, target, logged, names, total))
        finally:
            hold(0)
            is_over = True

    def _change_read_rows(
        self,
        question: Question,
        target: Target,
        logged: bytes,
        names: Sequence[bytes],
        total: Outcome,
    ) -> Generator[asyncio.Future[Any] | None, None, ResultSet | None]:
        needs_rows, lock = False, question.lock
        if (
            lock is not None
            and not lock.is_shared
            and self.reads_only
            and self._sql.temporary.find(*target.table) is None
        ):
            raise ReadOnlyTransaction()
        while True:
            opened = self._opened()
            rows = opened.rows
            if rows is None:  # the first database came while the transaction was open
                raise NotSupportedYet("tables in a transaction that is older than they are")
            job = self._job(question, target, logged, opened, rows)
            if not needs_rows:
                self._log_as_text(job, names)
            rows.is_used, rows.cancel = True, job.asker.budget.cancel
            try:
                found = yield from self._in_rows_thread(job.run)
            except ServerError:
                self._forget_insert_id(job)
                raise
            rows.cancel = None
            if isinstance(found, Outcome):
                self._forget_insert_id(job)
                break
            if found is None:
                needs_rows = needs_rows or job.needs_rows
                continue
            seconds = None if lock is None else lock.seconds
            yield from lock_wait(found, self._lock_wait_s if seconds is None else seconds)
            try:
                yield from self._in_rows_thread(partial(job.waited, found))
            except ServerError:
                self._forget_insert_id(job)
                raise
        opened.changes += found.is_logged
        if job.table.is_temporary:
            opened.keeps = True
            self._client.holds_more()
        opened.leaves_rows |= found.affected > 0 and not job.table.is_transactional
        total.add(found, target.verb)
        keep_of_question(self._sql, job.asker)
        if job.text_form is not None and found.is_logged:
            opened.has_text = True
            for reason in job.text_form.unsafe:
                self._sql.diagnostics.note(reason.note)
        if job.failure is not None:
            raise job.failure
        return job.returned

    def _forget_insert_id(self, job: ChangeJob) -> None:
        """SET INSERT_ID is for one statement: the first that takes a number."""
        if job.takes_insert_id:
            self._forget(("insert_id",))

    def _log_as_text(self, job: ChangeJob, names: Sequence[bytes]) -> None:
        """Log the text of a change where `binlog_format` says so. Raises `RowsOnlyTable` (1665)."""
        if self.logs_rows or self._xa.branch is not None:
            return
        is_alone = self._autocommit and not self._begun
        if not job.table.is_transactional:
            is_alone = self._around is None
        job.timestamp = int(job.asker.now)
        variables = [self._user_variable(name) for name in names]
        if any(isinstance(variable.value, Decimal) for variable in variables):
            return  # a replica may see other digits behind the point
        held = {one.table for one in job.given.values() if isinstance(one, HeldRows)}
        if any(table.is_temporary for table in {*held, job.table}):
            return  # replicas do not have it
        job.text_form = text_form(
            job.question,
            job.table,
            held - {job.table},
            job.asker,
            job.origin,
            variables,
            self._sql.variables,
            isolation=self._isolation,
            in_transaction=not is_alone,
            reads_schema=any(not isinstance(one, HeldRows) for one in job.given.values()),
        )

    @property
    def logs_rows(self) -> bool:
        return self._sql.variables.get("binlog_format", ROW) == ROW

    def _job(
        self,
        question: Question,
        target: Target,
        text: bytes,
        opened: OpenTransaction,
        rows: RowSide,
    ) -> ChangeJob:
        """Raises `ServerError`: 1142, 1146, 1235."""
        sql = self._sql
        table = sql.find_table(*target.table)
        require_for_change(sql, target, question)
        is_temporary = table is not None and table.is_temporary
        if self._locks is not None and target.verb != "SELECT" and not is_temporary:
            self._locks.require_write(target.table)
        if table is None:
            raise NoSuchTable(target.table.database, target.table.table)
        if is_temporary and self._xa.branch is not None:
            raise NotSupportedYet(
                "changes of temporary tables in XA, which may outlive the session"
            )
        from binlog_server.queries.binding import changed_table
        from binlog_server.queries.parsing import inserts_sole_select

        if waits := question.functions & MAY_WAIT:
            raise NotSupportedYet(f"{min(waits)}() in a statement that holds locks of rows")
        asker = whole_microseconds(asker_of(sql, question, ()))
        around = None if self._around is None else self._around.rows
        looking = around or rows
        since = self._unchanged_since(looking) if inserts_sole_select(question) else None
        reading = Reading(self._tables.store, looking.trx, since=since)
        others = tables_of(sql, question, asker, [reading], changed=changed_table(question))
        return self._change_job(question, table, asker, reading, others, text, opened, rows)

    def _change_job(
        self,
        question: Question,
        table: HeldTable,
        asker: Asker,
        reading: Reading,
        given: Tables,
        text: bytes,
        opened: OpenTransaction,
        rows: RowSide,
    ) -> ChangeJob:
        """`given`: see `ChangeJob`; `text` is what is annotated."""
        sql, settings = self._sql, self._settings
        now = self._publisher.now() if settings.timestamp is None else settings.timestamp
        modes = sql.variables.get("sql_mode", "").split(",")
        return ChangeJob(
            self._tables,
            table,
            question,
            asker,
            reading,
            rows.trx,
            opened.events,
            settings.origin,
            text,
            now,
            row_logging(sql.variables),
            given,
            auto_increment_of(sql.variables),
            "NO_AUTO_VALUE_ON_ZERO" in modes,
            self._unchanged_since(rows),
            int(sql.variables.get("insert_id", 0)),
            room=self._room_of(table) if table.is_temporary else 0,
        )

    def _room_of(self, table: HeldTable) -> int:
        """The most bytes of a temporary table: what the others of the session leave."""
        most = self._sql.server.config.session_memory_limit // TEMPORARY_PART
        return most - self._sql.temporary.held + self._tables.temporary_bytes(table)

    def _unchanged_since(self, rows: RowSide) -> ReadView | None:
        """The view behind which rows may not have changed that a statement is about to lock."""
        is_strict = self._sql.variables.get("innodb_snapshot_isolation") != "OFF"
        return rows.view if is_strict and self._isolation == REPEATABLE_READ else None

    def _spoken(self, statement: Classified, logged: bytes) -> str:
        """What the grammars read of a text as it is logged: behind its setting. Raises `ServerError`."""
        return self.for_grammars(self._decoded(logged[len(statement.setting) :]))

    def _decoded(self, text: bytes) -> str:
        """Raises `NotSupportedYet` (1235) for what is no text in the client's character set."""
        decoded = decoded_statement(text, self._settings.charset)
        if decoded is None:
            raise NotSupportedYet(f"a statement that is no text in {self._settings.charset}")
        return decoded

    def _ddl_here(self, statement: Classified) -> Ddl | None:
        """DDL about databases here; None if it is text for others. Raises `ServerError`: 1046, 1227, 1235."""
        sends_text = not self.makes_databases
        if sends_text and not self._may_be_here(statement):
            self._sql.require(*statement.kind.needs)
            _require_for_replicas(statement)
            return None
        ddl = ddl_of(statement.inner_head, self.database, self._plain)
        here = ddl.databases & self._tables.databases.keys()
        if ddl.kind is DdlKind.OTHER and (not sends_text or self._mentions(statement)):
            what = "of so many tables in one statement" if ddl.is_long else "of what is"
            raise NotSupportedYet(f"{ddl.words}, {what} in a database that is here")
        if sends_text and not here:
            self._sql.require(*statement.kind.needs)
            _require_for_replicas(statement)
            return None
        if sends_text and here != ddl.databases:
            raise NotSupportedYet(f"{ddl.words} in databases of which not all are here")
        if "" in ddl.databases:
            raise NoDatabaseSelected()
        return ddl

    @property
    def makes_databases(self) -> bool:
        """Whether CREATE DATABASE of this session makes one here: then it sends no text for others, either."""
        return self._sql.makes_databases

    def _define_here(
        self, statement: Classified, ddl: Ddl, readings: Iterable[LoggedReading] | None
    ) -> Steps:
        """DDL about what is here: a transaction of its own, behind the open one."""
        text: bytes | bytearray = statement.text
        for reading in readings or (logged_text(statement.text, self._settings),):
            text, _ = yield from self._in_turns(reading)
        last = self._sql.last_gtid
        yield from self._commit_in_front()
        job = yield from self._in_rows_thread(
            lambda: ddl_job(self._sql, self._tables, ddl, self._spoken(statement, bytes(text)))
        )
        if self._locks is not None:
            for name in ddl.names if ddl.kind is not DdlKind.UPKEEP else ():
                self._locks.require_write(name)
            if ddl.kind not in (DdlKind.ALTER_TABLE, DdlKind.UPKEEP):
                raise NotSupportedYet(f"{ddl.words} of a table that LOCK TABLES holds")
        rows = self._new_rows()
        opened = self._open = self._new_transaction(rows)
        rows.is_used = True
        if job.asker is not None:
            rows.cancel = job.asker.budget.cancel
        yield from self._run_job(job, rows)
        for note in job.notes:
            self._sql.diagnostics.note(note)
        selected = job.selected
        if job.text:
            of_database = ddl.names[0].database.encode()
            now = None if job.asker is None else int(job.asker.now)
            yield from self._write(
                opened.events, job.text.encode(), [], of_database=of_database, now=now, is_ddl=True
            )
        answer = Answer(job.affected, info=job.info, rows=job.rows)
        if job.text and selected is not None:
            answer = yield from self._insert_selected(selected, opened, bytes(text))
        elif job.asker is not None:
            keep_of_question(self._sql, job.asker)
        if not job.text:
            self._rollback()
            yield from self._until_undone()
            self._answer_behind(last, answer)
            return
        yield from self._until_room()
        yield from self._append(standalone=selected is None, of_table=selected, then=job.done)
        if ddl.kind is DdlKind.DROP_DATABASE and self.database == ddl.names[0].database:
            self._sql.database = b""
            self._sql.changed[""] = None
            self.refresh()
        missing = job.missing
        refuse = None if missing is None else lambda: self._client.refused(missing)
        self._answer_when_committed(answer, go_on=refuse)

    def _define_hidden(self, ddl: Ddl) -> Generator[asyncio.Future[Any] | None, None, Ddl | None]:
        """DDL of names of temporary tables, which hide others. Returns what is left of it, for these; None if
        nothing is."""
        temporary = self._sql.temporary
        own = [name for name in ddl.names if temporary.find(*name) is not None]
        if not own or ddl.kind is DdlKind.CREATE_TABLE:
            return ddl
        if ddl.kind not in (DdlKind.DROP_TABLE, DdlKind.TRUNCATE):
            raise NotSupportedYet(f"{ddl.words} of a temporary table: make it anew")
        last = self._sql.last_gtid
        yield from self._commit_in_front()
        for name in own:
            table = temporary.find(*name)
            if table is None:  # named twice
                continue
            if ddl.kind is DdlKind.TRUNCATE:
                temporary.add(self._tables.new_temporary(table.definition))
            else:
                temporary.drop(table)
        self._forget_dropped()
        left = [name for name in ddl.names if name not in own]
        if left:
            return replace(ddl, names=left)
        self._answer_behind(last, Answer())
        return None

    def _forget_dropped(self) -> None:
        """Nobody has the rows of dropped temporary tables, if no transaction is open."""
        if self._open is None:
            self._sql.temporary.dropped_bytes = 0

    def _drop_temporary(self, ddl: Ddl) -> None:
        """DROP TEMPORARY TABLE: it ends no transaction. Raises `UnknownTable` (1051) behind what it has dropped."""
        temporary, missing = self._sql.temporary, []
        for name in ddl.names:
            table = temporary.find(*name)
            if table is None:
                missing.append(name)
            temporary.drop(table)
        if self._begun and len(missing) < len(ddl.names):
            self._opened().leaves_tables = True
        self._forget_dropped()
        if missing and not ddl.if_exists:
            raise UnknownTable(",".join(map(str, missing)))
        for name in missing:
            self._sql.diagnostics.note(UnknownTable(str(name)))

    def _create_temporary(
        self, statement: Classified, ddl: Ddl, readings: Iterable[LoggedReading] | None
    ) -> Steps:
        """CREATE TEMPORARY TABLE, which ends no transaction. Rows of a SELECT are inserted as by a statement."""
        sql, temporary = self._sql, self._sql.temporary
        if not sql.may(CREATE_TEMPORARY):
            user, _, host = sql.account.rpartition("@")
            raise DatabaseAccessDenied(user, host, ddl.names[0].database)
        if len(temporary) >= TEMPORARY_MAX:
            raise NotSupportedYet(f"more than {TEMPORARY_MAX} temporary tables in a session")
        text: bytes | bytearray = statement.text
        for reading in readings or (logged_text(statement.text, self._settings),):
            text, _ = yield from self._in_turns(reading)
        made = yield from self._in_rows_thread(
            lambda: create_temporary(sql, self._tables, self._spoken(statement, bytes(text)))
        )
        table = made.table
        if temporary.find(*made.name) is not None and not made.replaces:
            if table is not None:
                self._tables.drop_temporary(table)
            exists = TableExists(made.name.table)
            if not made.if_not_exists:
                raise exists
            sql.diagnostics.note(exists)
            self._client.committed(0)
            return
        if made.selected is not None:
            yield from self._create_temporary_of(made.selected, bytes(text))
        else:
            assert table is not None
            temporary.add(table)
            self._client.committed(0)
        self._forget_dropped()
        if self._begun:
            self._opened().leaves_tables = True

    def _create_temporary_of(self, selected: SelectedRows, text: bytes) -> Steps:
        """CREATE TEMPORARY TABLE ... SELECT: its rows are a transaction of their own, as in MariaDB, which sees what
        the open one has changed."""
        around = self._around = self._open
        rows = self._new_rows()
        own = self._open = self._new_transaction(rows)
        rows.is_used = True
        looking = rows if around is None or around.rows is None else around.rows
        try:
            asker = selected.look(self._sql, self._tables, looking.trx)
            rows.cancel = asker.budget.cancel
            yield from self._in_rows_thread(lambda: selected.make(self._tables, asker, rows.trx))
            answer = yield from self._insert_rows(selected, own, text)
            own.events.rollback()
            yield from self._in_rows_thread(own.commit_rows)
        except BaseException:
            if selected.table is not None:
                self._tables.drop_temporary(selected.table)
            self._roll_back(own)
            raise
        finally:
            selected.close()
            if self._open is own:  # else all is rolled back: the client has gone
                self._open, self._around = around, None
                self._tell()
        assert selected.table is not None
        self._sql.temporary.add(selected.table)
        if own.leaves_rows and (self._begun or not self._autocommit):
            self._opened().leaves_rows = True
        self.answer(answer)

    def _insert_selected(
        self, selected: SelectedRows, opened: OpenTransaction, text: bytes
    ) -> Generator[asyncio.Future[Any] | None, None, Answer]:
        """Insert the rows of CREATE TABLE ... SELECT, behind the statement that makes the table."""
        try:
            answer = yield from self._insert_rows(selected, opened, text)
            if opened.events.is_large:
                yield from self._in_rows_thread(opened.events.settle)
        except BaseException:
            self._rollback()
            raise
        return answer

    def _insert_rows(
        self, selected: SelectedRows, opened: OpenTransaction, text: bytes
    ) -> Generator[asyncio.Future[Any] | None, None, Answer]:
        rows, asker, reading, table = opened.rows, selected.asker, selected.reading, selected.table
        assert rows is not None
        assert asker is not None
        assert reading is not None
        assert table is not None
        question = yield from self._in_rows_thread(selected.insertion)
        given = {(table.database, table.name): HeldRows(table, reading, asker, default_of)}
        job = self._change_job(
            question, table, asker, reading, selected.given | given, text, opened, rows
        )
        found = yield from self._in_rows_thread(job.run)
        if job.failure is not None:
            raise job.failure
        if not isinstance(found, Outcome):  # nobody else knows the table
            raise TableChanged()
        selected.has_rows = found.is_logged
        opened.leaves_rows = found.affected > 0 and not table.is_transactional
        self._forget_insert_id(job)
        keep_of_question(self._sql, asker)
        if found.generated:
            self.note_generated(found.generated)
        info = found.info("INSERT", self._sql.warning_count)
        return Answer(found.affected, insert_id=found.insert_id, info=info)

    def _run_job(self, job: DdlJob, rows: RowSide) -> Steps:
        """Do the work of a job in the open transaction, which is rolled back if it fails."""
        try:
            while True:
                if job.selected is not None:
                    job.asker = job.selected.look(self._sql, self._tables, rows.trx)
                    rows.cancel = job.asker.budget.cancel
                wait = yield from self._in_rows_thread(lambda: job.run(rows.trx))
                if wait is None:
                    return
                yield from lock_wait(wait, self._lock_wait_s)
                yield from self._in_rows_thread(partial(job.waited, rows.trx, wait))
        except BaseException:
            if job.selected is not None:
                job.selected.close()
            self._rollback()
            raise

    def _lock_tables(self, statement: Classified) -> Steps:
        """LOCK TABLES. Those here are held by a transaction of its own, up to `_unlock`."""
        self._xa.require_none()
        wished = self._wished_locks(statement)
        if not wished:
            self._sql.require(*statement.kind.needs)
            yield from self._commit()
            self._unlock()
            self._has_locked = True
            return
        for name in wished:
            require_on(self._sql, "SELECT", name)
        if any(wished.values()):
            self._sql.require_writing()
        last = self._sql.last_gtid
        yield from self._commit_in_front()
        self._unlock()
        rows = self._new_rows()
        opened = self._open = self._new_transaction(rows)
        rows.is_used = True
        yield from self._run_job(lock_tables(self._tables, list(wished)), rows)
        opened.events.rollback()
        self._ended()
        self._has_locked, self._locks = True, LockedTables(rows.trx, wished)
        self._answer_behind(last, Answer())

    def _wished_locks(self, statement: Classified) -> dict[TableName, bool]:
        """The tables here that LOCK TABLES is about; none if it is text for others. Raises `ServerError`: 1046,
        1064, 1066, 1235."""
        sends_text = not self.makes_databases
        if sends_text and not self._may_be_here(statement):
            return {}
        wished = wished_locks(statement.text, self.database, self._plain)
        here = {name for name in wished if name.database in self._tables.databases}
        own = {name for name in wished if self._sql.temporary.find(*name) is not None}
        wished = {name: writes for name, writes in wished.items() if name not in own}
        if sends_text and not here:
            return {}
        if sends_text and len(here) < len(wished):
            raise NotSupportedYet("LOCK TABLES of tables of which not all are here")
        if any(not name.database for name in wished):
            raise NoDatabaseSelected()
        return wished

    def _unlock(self) -> None:
        """UNLOCK TABLES, and what does the same."""
        locks, self._locks = self._locks, None
        self._has_locked = False
        if locks is not None:
            locks.trx.rollback()

    # --- text for tables that are elsewhere ---

    def _change(self, statement: Classified, readings: Iterable[LoggedReading] | None) -> Steps:
        self._xa.require_active()
        target = self._target(statement)
        settings = self._check()
        is_own = target is not None and self._sql.temporary.find(*target.table) is not None
        if self.reads_only and not is_own:
            raise ReadOnlyTransaction()
        if target is not None:
            if not settings.is_logged and not is_own:
                raise NotSupportedYet("sql_log_bin=OFF, for tables that are here")
            yield from self._change_here(statement, target, readings)
            return
        if not settings.is_logged:
            self._warn_unlogged()
            self._client.committed(0)
            return
        if readings is None:
            readings = (logged_text(statement.text, settings),)
        before = None if self._open is None else self._open.mark()
        rows, has_written = 0, False
        try:
            for reading in readings:
                text, names = yield from self._in_turns(reading)
                transaction, has_written = self._opened(), True
                yield from self._write(transaction.events, text, names)
                transaction.changes += 1
                transaction.has_text = True
                rows += 1
                if rows > 1 and self._turn.is_over:
                    yield None
        except ServerError:
            if has_written:  # a part, or rows of a bulk, which is executed as a whole or not at all
                self._undo(before)
            raise
        finally:
            if self._open is not None and before is not None:
                self._open.events.release(before.events)
        if self._begun or not self._autocommit:
            self._client.committed(rows)
        else:
            yield from self._commit(answer=Answer(rows))

    def _undo(self, before: Mark | None) -> None:
        """Forget what the running statement has written."""
        if self._open is None or before is None:
            self._rollback(chain=self._begun)
        else:
            self._open.undo(before)

    def _define(self, statement: Classified, readings: Iterable[LoggedReading] | None) -> Steps:
        last = self._sql.last_gtid
        try:
            yield from self._define_any(statement, readings)
        except ServerError as error:
            if self._sql.last_gtid is last:
                raise
            yield from self._until_undone()
            self._answer_when_committed(Answer(), go_on=partial(self._client.refused, error))

    def _answer_behind(self, last: Gtid | None, answer: Answer) -> None:
        """Answer OK; once the transaction is committed that was open in front of the statement, if one was.

        last: the session's last group before.
        """
        if self._sql.last_gtid is last:
            self.answer(answer)
        else:
            self._answer_when_committed(answer)

    def _define_any(self, statement: Classified, readings: Iterable[LoggedReading] | None) -> Steps:
        self._xa.require_none()
        ddl = self._ddl_here(statement)
        settings = self._check()
        if ddl is not None and ddl.is_temporary:
            if self.reads_only:
                raise ReadOnlyTransaction()
            if ddl.kind is DdlKind.DROP_TABLE:
                self._drop_temporary(ddl)
                self._client.committed(0)
            else:
                yield from self._create_temporary(statement, ddl, readings)
            return
        if ddl is not None and self._sql.temporary:
            left = yield from self._define_hidden(ddl)
            if left is None:
                return
            ddl = left
        if self._sql.reads_only:  # not the transaction's own: DDL ends it
            raise ReadOnlyTransaction()
        if ddl is not None:
            if not settings.is_logged:
                raise NotSupportedYet("sql_log_bin=OFF, for tables that are here")
            yield from self._define_here(statement, ddl, readings)
            return
        if not settings.is_logged:
            last = self._sql.last_gtid
            yield from self._commit_in_front()
            self._warn_unlogged()
            self._answer_behind(last, Answer())
            return
        words = statement.words
        if words[0] in UPKEEP and words[1] not in ("TABLE", "TABLES", "VIEW"):
            raise NotSupportedYet(f"{words[0]} {words[1]}: it is not for replicas")
        is_program = is_stored_program(statement.text)
        looking = logged_text(statement.text, settings, is_program=is_program)
        for reading in readings or ():
            looking = reading
        logged, names = yield from self._in_turns(looking)
        # Of DDL only CREATE TABLE ... SELECT reads user variables; elsewhere @ stands in front of a host.
        if words[0] != "CREATE" or "TABLE" not in words:
            names = []
        yield from self._commit_in_front()
        yield from self._write(self._opened().events, logged, names, is_ddl=True)
        yield from self._until_room()
        yield from self._append(standalone=True)
        self._answer_when_committed(Answer())

    # --- XA ---

    def _global(self, statement: Classified) -> Steps:
        """XA START, END, PREPARE, COMMIT, ROLLBACK."""
        verb, settings, xa = statement.words[0], self._settings, self._xa
        xid, said = xid_of(
            statement.name,
            verb,
            backslash_escapes=settings.backslash_escapes,
            ansi_quotes=settings.ansi_quotes,
        )
        match verb:
            case "START":
                xa.start(xid, said, is_outside=self._is_outside)
                self._begun, self._read_only = True, self._next_reads_only
                self._tell()
                self._client.committed(0)
            case "END":
                xa.stop(xid, said)
                self._client.committed(0)
            case "PREPARE":
                xa.to_prepare(xid)
                yield from self._prepare_xa()
            case _ if xa.branch is not None:
                yield from self._end_own(xid, commit=verb == "COMMIT", one_phase=bool(said))
            case _:
                if self._is_outside or not self._autocommit:
                    raise OutsideXa()
                if said:
                    raise InvalidXaArguments()
                self._xa.branches.require_left(xid)
                self._sql.require(*MAY_END_OTHERS)
                self._xa.branches.require_changes(xid)
                yield from self._complete(xid, commit=verb == "COMMIT")

    @property
    def _is_outside(self) -> bool:
        """Whether there is a transaction, or LOCK TABLES, that is none of XA."""
        return self._xa.branch is None and (self._in_transaction() or self._has_locked)

    def _prepare_xa(self) -> Steps:
        """XA PREPARE: the transaction is in the binlog, and its rows stay locked. One that fails is rolled back."""
        opened, branch = self._open, self._xa.branch
        assert branch is not None
        branch.has_direct = opened is not None and opened.has_direct
        branch.savepoints = frozenset() if opened is None else opened.savepoints()
        if opened is None or not opened.changes:
            if opened is not None:
                self._roll_back(opened)
                self._open = None
                yield from self._until_undone()
            branch.state, branch.is_empty = XaState.PREPARED, True
            self._client.committed(0)
            return
        settings = self._settings
        try:
            self._publisher.require_open(settings.domain_id)
            yield from self._until_room()
            now = self._publisher.now() if settings.timestamp is None else settings.timestamp
            yield from self._add(opened.events, settings.origin.prepared_end(now), is_limited=False)
            rows = opened.rows
            if rows is not None and rows.trx.is_elsewhere:
                yield from _to_its_end(self._prepare_by_two_phases(opened, rows, branch))
            elif opened.events.is_large:
                yield from _to_its_end(self._prepare_open(opened, branch))
            else:
                yield from self._prepare_at_once(opened, branch)
        except BaseException:
            self._xa.over()
            self._rollback()
            raise
        self._forget(ONCE_PER_GROUP)
        self._due, self._go_on = Answer(), None
        self._commits.on_record(self._done)

    def _prepare_at_once(self, opened: OpenTransaction, branch: Branch) -> Steps:
        """A small one, which no thread need do. Who is the first to meet a full disk waits behind it."""
        engine = self._room.engine
        while True:
            try:
                opened.events.prepare(branch.xid)
                break
            except WaitGivenUp:
                if engine.has_room:  # the store is being closed
                    raise
            yield from self._until_room()
        self._prepared_as(opened, branch)

    async def _prepare_open(
        self, opened: OpenTransaction, branch: Branch, engines: int = 1
    ) -> None:
        prepare, rows = partial(opened.events.prepare, branch.xid, engines), opened.rows
        if opened.events.is_large:
            await self._threads().in_row_thread(prepare if rows is None else rows.alone(prepare))
        else:
            prepare()
        self._prepared_as(opened, branch)

    def _prepared_as(self, opened: OpenTransaction, branch: Branch) -> None:
        branch.state = XaState.PREPARED
        if self._open is opened:  # or the client has gone
            self._open = None
            if opened.rows is not None:
                opened.rows.ended()

    async def _prepare_by_two_phases(
        self, opened: OpenTransaction, rows: RowSide, branch: Branch
    ) -> None:
        """As `_prepare_open`, of a transaction with rows that another engine keeps: prepared there, then here."""
        tables, in_thread = self._tables, self._threads().in_row_thread
        async with tables.line:
            decision = await in_thread(
                rows.alone(lambda: tables.begin_two_phase(rows.trx, is_xa=True))
            )
            try:
                if self._open is opened:  # or it was rolled back: the client has gone
                    await self._prepare_open(opened, branch, engines=2)
            finally:
                if branch.state is not XaState.PREPARED:
                    await in_thread(lambda: tables.finish_two_phase(decision))

    def _end_own(self, xid: Xid, *, commit: bool, one_phase: bool) -> Steps:
        """XA COMMIT, XA ROLLBACK of the session's own transaction."""
        try:
            branch = self._xa.to_end(xid, commit=commit, one_phase=one_phase)
        except ServerError as error:
            if error.kind is XaVictim:
                self._xa.over()
                self._ended()
            raise
        if branch.state is not XaState.PREPARED:
            self._xa.over()
            if commit:
                yield from self._commit()
                return
            self._warn_of_what_stays()
            self._rollback()
            yield from self._until_undone()
        elif branch.is_empty:
            if branch.has_direct and not commit:
                self._sql.warn(IncompleteRollback())
            self._xa.over()
            self._ended()
        else:
            yield from self._complete(xid, commit=commit)
            return
        self._client.committed(0)

    def _complete(self, xid: Xid, *, commit: bool) -> Steps:
        """Commit or roll back what is prepared in the binlog."""
        settings, tables, branch = self._settings, self._tables, self._xa.branch
        has_direct = branch is not None and branch.has_direct

        def append(decide: Callable[[Xid, bytes, Gtid], object] | None = None) -> _Commit:
            self._publisher.require_open(settings.domain_id)
            return partial(
                self._publisher.commit_prepared,
                xid,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
                is_transactional=not has_direct,
                append=decide,
            )

        async def append_by_two_phases() -> None:
            async with tables.line:
                decision = tables.completing_two_phase(xid)
                if decision is None:
                    raise XaStateError(f"the XID {xid} is not prepared")
                while not self._room.engine.has_room:
                    await self._room.wait()
                commit = append(partial(tables.decide_prepared, decision))
                self._sql.last_gtid = await self._turned(self._room.engine.turn_of(xid), commit)
                await self._threads().in_row_thread(lambda: tables.finish_two_phase(decision))

        self._publisher.require_writable()
        if commit:
            self._publisher.require_open(settings.domain_id)
        yield from self._until_room()
        try:
            if not commit:
                yield from self._in_rows_thread(lambda: self._room.engine.rollback_prepared(xid))
            elif tables.completing_two_phase(xid) is None:
                turn = self._room.engine.turn_of(xid)
                self._sql.last_gtid = yield from self._in_turn(turn, append())
            else:
                yield from _to_its_end(append_by_two_phases())
        except XaStateError as error:  # another session has ended it meanwhile
            raise UnknownXid() from error
        except ServerError as error:
            if error.kind is GtidOutOfOrder:
                self._forget(ONCE_PER_GROUP)
            raise
        self._xa.over()
        if commit:
            self._appended()
            self._answer_when_committed(Answer())
            return
        if has_direct:
            self._sql.warn(IncompleteRollback())
        self._ended()
        self._due, self._go_on = Answer(), None
        self._commits.on_record(self._done)

    def _savepoint(self, kind: Kind, name: bytes) -> Callable[[], None] | None:
        """SAVEPOINT, ROLLBACK TO, RELEASE. Raises `NoSuchSavepoint` (1305), `NotSupportedYet` (1235).

        What it returns undoes rows, in a thread.
        """
        if kind is Kind.SAVEPOINT:
            self._xa.require_active()
            if self._begun or not self._autocommit:  # without a transaction it has no effect
                has_begun = self._in_transaction()
                opened = self._opened()
                opened.has_begun = has_begun
                self._tell()
                opened.savepoint(name)
            return None
        if self._xa.has_savepoint(name):  # prepared: none can be rolled back to
            if kind is Kind.ROLLBACK_TO:
                self._xa.require_active()
            return None
        if self._open is None or not self._open.has_savepoint(name):
            raise no_such_savepoint(name)
        if kind is Kind.ROLLBACK_TO:
            self._xa.require_active()
            self._warn_of_what_stays(to_savepoint=True)
            return self._open.rollback_to(name)
        self._open.release(name)
        return None

    def _check(self) -> Settings:
        self._publisher.require_open(self._settings.domain_id)
        return self._settings

    def _write(
        self,
        transaction: Transaction,
        text: bytes | bytearray,
        names: list[bytes],
        *,
        of_database: bytes | None = None,
        now: int | None = None,
        is_ddl: bool = False,
    ) -> Steps:
        """Write a statement's events. Raises 41, 42 beyond the limits of temporary space; not if `is_ddl`.

        Args:
            names: its user variables.
            of_database: it is our text, and about that database.
            now: the statement's time, if it has one already.
        """
        settings = self._settings
        if of_database is not None:
            zone = StatusVariables.parse(settings.origin.status_variables).time_zone
            origin = replace(
                settings.origin, database=of_database, status_variables=own_variables(zone)
            )
            settings = replace(settings, origin=origin, context=())
        variables = [self._user_variable(name) for name in names]
        if now is None:
            now = self._publisher.now() if settings.timestamp is None else settings.timestamp
        context = settings.context_events(variables, now)
        if of_database is None:
            self._forget(ONCE_PER_STATEMENT)
        # A piece is no larger than the room that `has_room` promises: a full cache is spilled.
        piece = min(PIECE_BYTES, self._room.engine.cache_bytes // 2)
        for data in (context + settings.origin.statement_head(len(text), now), text):
            view = memoryview(data)
            for start in range(0, len(view), piece):
                while not self._has_room:
                    yield None
                yield from self._add(
                    transaction, bytes(view[start : start + piece]), is_limited=not is_ddl
                )
                if len(view) > PIECE_BYTES:
                    yield None

    def _add(self, transaction: Transaction, events: bytes, *, is_limited: bool) -> Steps:
        """Write events: at once where memory takes them, in a thread where a file does, or where rows are changed."""
        write = partial(transaction.write, events, is_limited=is_limited)
        needs_thread = self._room.engine.spills_to_files or self._rows is not None
        if needs_thread and transaction.spills(len(events)):
            yield from self._in_rows_thread(write)
        else:
            write()

    @property
    def _has_room(self) -> bool:
        engine = self._room.engine
        return engine.has_room_to_spill if self._is_large else engine.has_room

    def _user_variable(self, name: bytes) -> UserVarEvent:
        key = name.decode("utf-8", "surrogateescape").lower()
        value, collation = self._sql.user_variables.get(key, (None, 0))
        if isinstance(value, str):
            return UserVarEvent(name, value.encode("utf-8", "surrogateescape"), collation)
        return UserVarEvent(name, value, collation)

    # --- the commit ---

    def _commit(
        self,
        *,
        answer: Answer | None = None,
        begin: bool = False,
        chain: bool = False,
        read_only: bool = False,
        leaves: bool = False,
        snapshot: bool = False,
        go_on: Callable[[], None] | None = None,
    ) -> Steps:
        """Commit the open transaction, and answer.

        Args:
            answer: what OK says; by default that nothing was changed.
            begin: begin the next transaction, with `read_only`.
            chain: begin the next transaction with the same access mode and isolation.
            read_only: the access mode for `begin`.
            leaves: close the connection after the answer.
            snapshot: the next transaction reads tables here as they are now.
            go_on: called in the place of the answer OK.
        """
        read_only = read_only or (chain and self.reads_only)
        is_first = (
            begin and not self._in_transaction()
        )  # else SET TRANSACTION was for the one that ends
        isolation = self._sql.isolation if chain or is_first else None
        appended = yield from self._append_open()
        self._ended(begun=begin or chain, read_only=read_only, isolation=isolation)
        if snapshot and (rows := self._opened_rows()) is not None:
            self._take_snapshot(rows)
            appended = True  # what it shows is to be durable: a replica may be made of it
        answer = answer or Answer(leaves=leaves)
        if appended:
            self._answer_when_committed(answer, go_on=go_on)
        elif go_on is not None:
            go_on()
        else:
            self.answer(answer)

    def _take_snapshot(self, rows: RowSide) -> None:
        """WITH CONSISTENT SNAPSHOT: the rows, and where the binlog ended then."""
        view, place, state = self._tables.consistent_snapshot()
        self._sql.snapshot = Snapshot(place, str(state.position()))
        if self._isolation == REPEATABLE_READ:
            rows.view = view
        else:
            view.close()
        if self._isolation == READ_UNCOMMITTED:
            self._sql.warn(SnapshotIgnored())

    def answer(self, answer: Answer) -> None:
        self._client.committed(
            answer.affected_rows,
            leaves=answer.leaves,
            insert_id=answer.insert_id,
            info=answer.info,
            rows=answer.rows,
        )

    def committed_quickly(self, domain: Domain, answer: Answer | None) -> None:
        """See `QuickSession`."""
        self._sql.last_gtid = domain.last
        self._due = answer
        durable: Callable[[], object] | None = None
        if answer is None or answer is INSERTED:
            durable = self._client.answer_at_once
        elif answer is ROW_UPDATED:
            durable = partial(self._client.answer_at_once, is_update=True)
        if self._commits.commit(self._done, durable):
            self._done(None, now=True)

    def _commit_in_front(self) -> Generator[asyncio.Future[Any] | None, None, None]:
        """Commit the open transaction in front of a statement that ends it, and may wait long, fail or be killed: it
        becomes durable meanwhile.
        """
        if (yield from self._append_open()):
            self._commits.on_record(lambda _: None)

    def _append_open(self) -> Generator[asyncio.Future[Any] | None, None, bool]:
        """Append the open transaction to the store, if there is one. One without changes is forgotten: False."""
        if self._open is None or not self._open.changes:
            if self._open is not None and self._open.keeps:
                yield from self._in_rows_thread(self._open.commit_rows)
            self._rollback()
            yield from self._until_undone()
            return False
        yield from self._until_room()
        rows = self._open.rows
        if self._open.events.is_large:
            yield from self._in_rows_thread(self._open.events.settle)
            yield from self._until_room()
        if rows is None or not rows.trx.is_elsewhere:
            yield from self._append()
            return True
        yield from _to_its_end(self._append_by_two_phases(rows))
        return True

    async def _append_by_two_phases(self, rows: RowSide) -> None:
        """As `_append`, of a transaction with rows that another engine keeps: prepared there, then here, then there."""
        tables, opened, in_thread = self._tables, self._open, self._threads().in_row_thread
        async with tables.line:
            decision = await in_thread(rows.alone(lambda: tables.begin_two_phase(rows.trx)))
            try:
                while not self._room.engine.has_room:
                    await self._room.wait()
                if self._open is opened:  # or it was rolled back: the client has gone
                    for waiting in self._append(decision=decision):
                        assert waiting is not None
                        await asyncio.wait((waiting,))
            finally:
                await in_thread(lambda: tables.finish_two_phase(decision))

    def _append(
        self,
        *,
        standalone: bool = False,
        of_table: SelectedRows | None = None,
        decision: Decision | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> Steps:
        """Append the open transaction as one group. `standalone`: it is DDL, without BEGIN and COMMIT. `of_table`: it
        makes a table with these rows. `decision`: another engine has prepared a part of it. `then` is called behind it,
        also if the client has gone. There has to be room, without a step in between.

        Raises `ServerError` if it may not be committed; it is rolled back then.
        """
        opened, settings = self._open, self._settings
        assert opened is not None
        try:
            self._publisher.require_open(settings.domain_id)
            commit = partial(
                self._publisher.commit,
                opened.events,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
                standalone=standalone,
                with_rows=of_table is not None,
                is_direct=of_table is not None and of_table.is_direct,
                is_transactional=not opened.has_direct,
                decision=decision,
                writes=None if decision or of_table else self._writes(opened),
            )
            gtid = yield from self._in_turn(opened.events.turn(), commit, opened.rows, then)
        except ServerError as error:
            self._rollback()
            if error.kind is GtidOutOfOrder:
                self._forget(ONCE_PER_GROUP)
            raise
        if self._open is opened:  # or the client has gone
            self._sql.last_gtid = gtid
            self._appended()

    def _in_turn(
        self,
        turn: AbstractContextManager[None] | None,
        commit: _Commit,
        rows: RowSide | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> Generator[asyncio.Future[Any] | None, None, Gtid]:
        """Commit what takes long in a thread, in its turn: it goes on when the client has gone. Else at once."""
        if turn is None:
            gtid = commit()
            then()
            return gtid
        return (yield from _to_its_end(self._turned(turn, commit, rows, then)))

    async def _turned(
        self,
        turn: AbstractContextManager[None] | None,
        commit: _Commit,
        rows: RowSide | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> Gtid:
        if turn is None:
            return commit()
        with turn:
            in_thread = self._threads().in_commit_thread
            gtid = await in_thread(commit if rows is None else rows.alone(commit))
        then()
        self._commits.on_record(lambda _: None)  # made durable, whoever has gone
        return gtid

    def _writes(self, opened: OpenTransaction) -> Writes | None:
        if opened.rows is None or opened.has_text or opened.has_direct or opened.events.is_large:
            return None
        rows = opened.rows.trx.changed_rows(ROWS_MAX)
        return Writes(rows, self._tables.next_sync) if rows else None

    def _appended(self) -> None:
        # gtid_seq_no is for one group only, also if that failed with it: the next would fail, too.
        self._ended()
        self._forget(ONCE_PER_GROUP)

    def _answer_when_committed(
        self, answer: Answer, *, go_on: Callable[[], None] | None = None
    ) -> None:
        """Answer OK once all appended groups are as durable as `innodb_flush_log_at_trx_commit` demands.

        `go_on` is called in the place of that answer.
        """
        self.quick_way.prepare()
        self._due = answer
        self._go_on = go_on
        self._commits.on_commit(self._done)

    def _done(self, error: StorageError | None, *, now: bool = False) -> None:
        """The commit is done, or has failed with `error`: answer the client. Called on the loop. `now`: see there."""
        go_on, self._go_on = self._go_on, None
        if (
            error is not None and not self._client.has_answer
        ):  # what failed behind that is the store's
            self._client.refused(not_written(error))
        elif go_on is not None:
            go_on()
        elif self._due is None or self._due is INSERTED:
            self._client.committed_quickly(now=now)
        elif self._due is ROW_UPDATED:
            self._client.committed_quickly(is_update=True, now=now)
        else:
            self.answer(self._due)


class _Returned:
    """The rows of RETURNING: of a bulk those of all its statements, as MariaDB sends them."""

    def __init__(self) -> None:
        self.rows: ResultSet | None = None
        self._bytes = 0

    def add(self, found: ResultSet | None) -> None:
        """Raises 1105 beyond what a question may make."""
        if found is None:
            return
        if self.rows is None:
            self.rows = found
            return
        for row in found.rows:
            texts = sum(len(value) for value in row if isinstance(value, str | bytes))
            self._bytes += _RETURNED_BYTES * (1 + len(row)) + texts
        if self._bytes > MADE_BYTES_MAX:
            raise UnknownServerError(f"The rows of RETURNING take more than {MADE_BYTES_MAX} bytes")
        self.rows.rows.extend(found.rows)


_RETURNED_BYTES: Final = 64  # of memory, for a value and for a row, beside its texts


def _uses_tables(statement: Classified) -> bool:
    """Whether MariaDB opens tables for it, and so forgets the warnings before it."""
    if statement.kind is Kind.DDL:
        return _NO_TABLES.isdisjoint(statement.words[1:2])
    return statement.kind in _COMMITTING


def _to_its_end(
    work: Coroutine[Any, Any, T],
) -> Generator[asyncio.Future[Any] | None, None, T]:
    """Wait for what goes on when the client has gone."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody asks
    while not task.done():
        yield task
    return task.result()


def _require_for_replicas(statement: Classified) -> None:
    """Raises `NotSupportedYet` (1235) for DDL that is not for replicas."""
    words = list(statement.words)
    if words[1:2] == ["TEMPORARY"] or words[1:4] == ["OR", "REPLACE", "TEMPORARY"]:
        raise NotSupportedYet(
            "TEMPORARY: temporary tables end with a session that replicas do not know of"
        )
