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
import codecs
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import ServerError, SqlSyntaxError, UnknownServerError
from binlog_protocol.errors.limit_errors import TooLongIdentifier
from binlog_protocol.errors.sql_errors import (
    GtidOutOfOrder,
    InvalidXaArguments,
    NoSuchSavepoint,
    NotSupportedYet,
    OutsideXa,
    UnknownXid,
    WrongDatabaseName,
)
from binlog_protocol.errors.transaction_errors import ReadOnlyTransaction
from binlog_protocol.events.charsets import decode_text
from binlog_protocol.events.collation_names import default_collation
from binlog_protocol.events.statement_context import UserVarEvent
from binlog_protocol.groups.statement_group import QuickGroup
from binlog_protocol.sql.plain import plain
from binlog_protocol.wire.results import (
    STATUS_ANSI_QUOTES,
    STATUS_AUTOCOMMIT,
    STATUS_IN_TRANS,
    STATUS_IN_TRANS_READONLY,
    STATUS_NO_BACKSLASH_ESCAPES,
)
from binlog_storage.binlog.transaction import Savepoint, Transaction
from binlog_storage.errors import StorageError, XaStateError

from binlog_server.commits.publisher import Domain, Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.loop.defects import internal_error
from binlog_server.loop.turn import Turn
from binlog_server.semi_sync.commits import Commits
from binlog_server.sql.session_settings import (
    ONCE_PER_GROUP,
    ONCE_PER_STATEMENT,
    Settings,
    settings_of,
)
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import (
    Classified,
    Kind,
    is_stored_program,
    scan_steps,
    unquoted_name,
)
from binlog_server.sql.view import Diagnostic, Level
from binlog_server.sql_commit.client import CommitClient, not_written
from binlog_server.sql_commit.xid import xid_of

# Beginnings of statements that are surely DML; any other statement goes the long way.
QUICK_WORDS: Final = frozenset(
    {b"INSERT ", b"UPDATE ", b"DELETE ", b"insert ", b"update ", b"delete "}
)
PIECE_BYTES: Final = 256 * 1024  # of a large statement; after each piece the loop serves others
SAVEPOINT_NAME_BYTES_MAX: Final = 256  # 64 characters of up to 4 bytes
SAVEPOINTS_MAX: Final = 10_000  # in one transaction, with the released ones: each takes memory
_DECODED_BYTES: Final = 16 * 1024  # in one step: half a millisecond
_BYTE_STEPS: Final = 1024  # the same, byte by byte
_DATABASE_CHARS_MAX: Final = 64
# MariaDB's warning if no engine has snapshots; here there are no tables to read.
_NO_SNAPSHOT: Final = Diagnostic(
    Level.WARNING,
    UnknownServerError.errno,
    "This MariaDB server does not support any consistent-read capable storage engine",
)
# Character sets in which an ASCII byte may be the second byte of a character: such texts are scanned as UTF-8.
_AMBIGUOUS: Final = {"big5": "big5", "gbk": "gbk", "sjis": "shift_jis", "cp932": "cp932"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """The values that `SessionTransaction.quick` needs, computed once for many statements."""

    domain: Domain
    group: QuickGroup
    server_id: int


class SessionTransaction:
    """The transaction of one session, open or yet to come. Call `close` when the client has gone.

    Its state is in `_open`, `_begun` and `_read_only`. All that follows from it, and from the session's variables, is
    computed by `_tell` and `refresh`: nothing else is to be kept in step. Methods that are generators yield where the
    store has no room, or where the loop should serve others first.
    """

    def __init__(
        self,
        client: CommitClient,
        machine: ServerConnection,
        sql: SqlSession,
        publisher: Publisher,
        commits: Commits,
        room: AppendRoom,
        *,
        server_id: int,
        domain_id: int,
    ) -> None:
        self._client = client
        self._machine = machine
        self._sql = sql
        self._publisher = publisher
        self._commits = commits
        self._room = room
        self._engine = room.engine
        self._server_id = server_id
        self._domain_id = domain_id
        self._open: OpenTransaction | None = None
        self._begun = False  # after BEGIN, up to the transaction's end
        self._read_only = False  # whether it was begun READ ONLY
        self._settings: Settings  # for the next statement
        self._prepared: Prepared | None = (
            None  # None unless the next statement may go the quick way
        )
        self._task: asyncio.Task[None] | None = None  # of the running statement, once it waits
        self._turn = Turn()
        self._go_on: Callable[[], None] | None = None  # in the place of the answer OK to a commit
        # The answer that is due: affected rows, and whether the connection closes; None: the one of `quick`.
        self._due: tuple[int, bool] | None = None
        sql.in_transaction = self._in_transaction
        self.refresh()

    # --- from the session ---

    def quick(self, data: bytes) -> bool:
        """Commit a DML statement that is a transaction by itself, without the long way.

        False if it is not sure that `data` is one whole packet with such a statement: then nothing has happened.

        Args:
            data: bytes from the client; behind the packet's head (5 bytes) they begin with one of `QUICK_WORDS`.
        """
        prepared = self._prepared
        if (
            prepared is None
            or not self._publisher.accepts
            or not self._engine.has_room
            or data[-1] <= 32
            or data.find(b";", 5) >= 0
            or data.find(b"@", 5) >= 0
            or data.find(b"*", 5) >= 0  # perhaps a comment
            or prepared.domain.foreign
        ):
            return False
        text = self._machine.take_query(data)
        if text is None:
            return False
        if self._sql.diagnostics:
            self._sql.begin()
        try:
            self._publisher.commit_quickly(
                prepared.domain, prepared.group, prepared.server_id, text
            )
        except ServerError as error:
            self._client.refused(error)
            return True
        except StorageError as error:
            self._client.refused(not_written(error))
            return True
        self._due = None
        self._commits.on_commit(self._done)
        return True

    def execute(self, statement: Classified) -> None:
        """Run a statement of any kind but OTHER; the client gets its answer now or later.

        Raises `ServerError`: 1064, 1227, 1235, 1290, 1305, 1792, ...
        """
        self._run(self._steps(statement))

    def for_grammars(self, text: str) -> str:
        """A statement's text as the grammars must read it, where the session's sql_mode reads strings otherwise."""
        settings = self._settings
        return plain(
            text,
            backslash_escapes=settings.backslash_escapes,
            ansi_quotes=settings.ansi_quotes,
        )

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
        if self._sql.is_to_commit and self._open is not None:
            self._run(self._commit())
            return True
        if self._sql.is_to_commit:
            self._ended()
        return False

    def commit_first(self, go_on: Callable[[], None]) -> bool:
        """Commit the open transaction in front of a statement that does so, and call `go_on` when that is done.

        False if there is nothing to commit: the transaction is over, and `go_on` is not called. Raises `ServerError`.
        """
        if self._open is None or not self._open.changes:
            self._rollback()
            return False
        self._run(self._commit(go_on=go_on))
        return True

    def use(self, name: bytes) -> None:
        """Set the default database; `name` is in the client's character set. Raises `WrongDatabaseName` (1102)."""
        text = decode_text(name, default_collation(self._settings.charset))
        if not isinstance(text, str):
            text = name.decode("utf-8", "replace")
        if not 0 < len(text) <= _DATABASE_CHARS_MAX or "\0" in text or text.endswith(" "):
            raise WrongDatabaseName(text[:_DATABASE_CHARS_MAX])
        self._sql.database = text.encode()
        self.refresh()

    @property
    def waits_for_replicas(self) -> bool:
        """Whether the client's commit is durable, and waits for semi-sync alone."""
        return self._commits.waits_for_replicas(self._done)

    def interrupt(self) -> None:
        """KILL QUERY: a commit that waits for replicas alone is answered OK, as by MariaDB: it is committed."""
        self._commits.give_up(self._done)

    def close(self) -> None:
        """The client has gone: roll back the open transaction, and stop the running statement."""
        self._commits.give_up(self._done, has_gone=True)
        if self._task is not None:
            self._task.cancel()
        self._rollback()

    def reset(self) -> None:
        """COM_RESET_CONNECTION: roll back the open transaction, and take the session's variables as they are now."""
        self._rollback()
        self.refresh()

    # --- its state ---

    def _in_transaction(self) -> bool:
        return self._begun or self._open is not None

    @property
    def _autocommit(self) -> bool:
        """Whether a statement outside of BEGIN is a transaction by itself."""
        return self._sql.variables.get("autocommit") != "OFF"

    @property
    def _reads_only(self) -> bool:
        """Whether the open transaction, or without one the next statement, is read-only."""
        if self._begun:
            return self._read_only
        return self._open is None and self._next_reads_only

    @property
    def _next_reads_only(self) -> bool:
        """Whether a transaction is read-only that is begun without READ ONLY or READ WRITE."""
        said = self._sql.next_read_only
        return self._session_reads_only if said is None else said

    @property
    def _session_reads_only(self) -> bool:
        """Whether SET SESSION TRANSACTION READ ONLY holds."""
        return self._sql.variables.get("tx_read_only") == "ON"

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
        self._prepared = None

    def _opened(self) -> OpenTransaction:
        """The open transaction, begun now if there is none."""
        if self._open is None:
            self._open = OpenTransaction(self._publisher.begin())
            self._tell()
        return self._open

    def _ended(self, *, begun: bool = False, read_only: bool = False) -> None:
        """The transaction is over. `begun`: the next one is begun, with `read_only`."""
        self._open = None
        self._begun = begun
        self._read_only = read_only
        self._sql.next_read_only = None
        self._sql.is_to_commit = False
        self._tell()

    def _rollback(self, *, chain: bool = False) -> None:
        """Forget the open transaction. `chain`: begin another with the same access mode."""
        read_only = chain and self._reads_only
        if self._open is not None:
            self._open.events.rollback()
        self._ended(begun=chain, read_only=read_only)

    def _prepare(self) -> None:
        """Let the next statement go the quick way, if the state allows it."""
        settings = self._settings
        if (
            self._prepared is None
            and self._machine.status == STATUS_AUTOCOMMIT  # the flags in the quick answer
            and self._sql.may(*Kind.DML.needs)
            and not self._reads_only
            and not settings.seq_no
            and not settings.context
            and settings.timestamp is None
        ):
            domain = self._publisher.domain(settings.domain_id)
            if domain.own:
                group = QuickGroup(domain.id, settings.origin)
                self._prepared = Prepared(domain, group, settings.origin.server_id)

    # --- running a statement ---

    def _run(self, steps: Iterator[None]) -> None:
        """Run all steps of a statement: now, and from the first wait on in a task.

        Raises `ServerError` for an error before the first wait; the client gets a later one as its answer.
        """
        self._turn = Turn()
        try:
            for _ in steps:
                self._client.hold(held=True)
                self._task = asyncio.get_running_loop().create_task(self._run_slowly(steps))
                return
        except StorageError as error:
            self._rollback()
            raise not_written(error) from error
        except ServerError:
            raise
        except Exception:  # a defect: the statement may be half written
            self._rollback()
            raise

    async def _run_slowly(self, steps: Iterator[None]) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                await self._room.wait(to_spill=self._is_large)
                self._turn = Turn()
                if next(steps, steps) is steps:
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
                yield

    def _until_room(self) -> Iterator[None]:
        while not self._engine.has_room:
            yield

    # --- the statements ---

    def _steps(self, statement: Classified) -> Iterator[None]:
        """The steps of a statement, the client's answer included. Raises `ServerError`, `StorageError`."""
        kind = statement.kind
        if kind is Kind.DML:
            yield from self._change(statement)
        elif kind is Kind.DDL:
            yield from self._define(statement)
        elif kind is Kind.NOTHING:
            self._client.committed(0)
        elif kind is Kind.COMMIT:
            yield from self._commit(chain=statement.chain, leaves=statement.release)
        elif kind is Kind.BEGIN:
            if statement.snapshot:
                self._sql.diagnostics.append(_NO_SNAPSHOT)
            read_only = statement.read_only or (not statement.read_write and self._next_reads_only)
            yield from self._commit(begin=True, read_only=read_only)
        elif kind in (Kind.LOCK_TABLES, Kind.UNLOCK_TABLES):
            self._sql.require(*kind.needs)
            yield from self._commit()
        elif kind is Kind.ROLLBACK:
            self._rollback(chain=statement.chain)
            self._client.committed(0, leaves=statement.release)
        elif kind in (Kind.XA_COMMIT, Kind.XA_ROLLBACK):
            yield from self._complete(statement)
        elif kind is Kind.USE:
            self.use(statement.name)
            self._client.committed(0)
        else:
            self._savepoint(kind, statement.name)
            self._client.committed(0)

    def _change(self, statement: Classified) -> Iterator[None]:
        settings = self._check(statement.kind)
        if self._reads_only:
            raise ReadOnlyTransaction
        text, names = yield from self._in_turns(logged_text(statement.text, settings))
        transaction = self._opened()
        yield from self._write(transaction.events, text, names)
        transaction.changes += 1
        if self._begun or not self._autocommit:
            self._client.committed(1)
        else:
            yield from self._commit(affected_rows=1)

    def _define(self, statement: Classified) -> Iterator[None]:
        settings = self._check(statement.kind)
        if self._session_reads_only:  # not the transaction's own: DDL ends it
            raise ReadOnlyTransaction
        words = statement.words
        is_program = is_stored_program(statement.text)
        looking = logged_text(statement.text, settings, is_program=is_program)
        logged, names = yield from self._in_turns(looking)
        # Of DDL only CREATE TABLE ... SELECT reads user variables; elsewhere @ stands in front of a host.
        if words[0] != "CREATE" or "TABLE" not in words:
            names = []
        yield from self._append_open()
        yield from self._write(self._opened().events, logged, names)
        yield from self._until_room()
        self._append(standalone=True)
        self._answer_when_committed(0)

    def _complete(self, statement: Classified) -> Iterator[None]:
        """XA COMMIT, XA ROLLBACK of a transaction that is prepared in the binlog."""
        kind, settings = statement.kind, self._settings
        self._sql.require(*kind.needs)
        xid, one_phase = xid_of(statement.name)
        if self._in_transaction():
            raise OutsideXa
        if one_phase:
            raise InvalidXaArguments
        if xid not in self._engine.prepared():
            raise UnknownXid
        if kind is Kind.XA_COMMIT:
            self._publisher.require_open(settings.domain_id)
        yield from self._until_room()
        try:
            if kind is Kind.XA_ROLLBACK:
                self._engine.rollback_prepared(xid)
            else:
                self._publisher.require_open(settings.domain_id)
                self._publisher.commit_prepared(
                    xid,
                    settings.origin,
                    self._publisher.domain(settings.domain_id),
                    seq_no=settings.seq_no,
                    timestamp=settings.timestamp,
                )
                self._appended()
        except XaStateError as error:  # another session has ended it meanwhile
            raise UnknownXid from error
        except GtidOutOfOrder:
            self._forget(ONCE_PER_GROUP)
            raise
        self._answer_when_committed(0)

    def _savepoint(self, kind: Kind, name: bytes) -> None:
        """SAVEPOINT, ROLLBACK TO, RELEASE. Raises `NoSuchSavepoint` (1305), `NotSupportedYet` (1235)."""
        if kind is Kind.SAVEPOINT:
            if self._begun or not self._autocommit:  # without a transaction it has no effect
                self._opened().savepoint(name)
        elif self._open is None:
            raise _no_such_savepoint(name)
        elif kind is Kind.ROLLBACK_TO:
            self._open.rollback_to(name)
        else:
            self._open.release(name)

    def _check(self, kind: Kind) -> Settings:
        self._sql.require(*kind.needs)
        self._publisher.require_open(self._settings.domain_id)
        return self._settings

    def _write(
        self, transaction: Transaction, text: bytes | bytearray, names: list[bytes]
    ) -> Iterator[None]:
        """Write a statement's events. `names`: its user variables."""
        settings = self._settings
        variables = [self._user_variable(name) for name in names]
        now = self._publisher.now() if settings.timestamp is None else settings.timestamp
        context = settings.context_events(variables, now)
        self._forget(ONCE_PER_STATEMENT)
        # A piece is no larger than the room that `has_room` promises: a full cache is spilled.
        piece = min(PIECE_BYTES, self._engine.cache_bytes // 2)
        for data in (context + settings.origin.statement_head(len(text), now), text):
            view = memoryview(data)
            for start in range(0, len(view), piece):
                while not self._has_room:
                    yield
                transaction.write(bytes(view[start : start + piece]))
                if len(view) > PIECE_BYTES:
                    yield

    @property
    def _has_room(self) -> bool:
        engine = self._engine
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
        affected_rows: int = 0,
        begin: bool = False,
        chain: bool = False,
        read_only: bool = False,
        leaves: bool = False,
        go_on: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        """Commit the open transaction, and answer.

        Args:
            affected_rows: for the OK packet.
            begin: begin the next transaction, with `read_only`.
            chain: begin the next transaction with the same access mode.
            read_only: the access mode for `begin`.
            leaves: close the connection after the answer.
            go_on: called in the place of the answer OK.
        """
        read_only = read_only or (chain and self._reads_only)
        appended = yield from self._append_open()
        self._ended(begun=begin or chain, read_only=read_only)
        if appended:
            self._answer_when_committed(affected_rows, leaves=leaves, go_on=go_on)
        else:
            self._client.committed(affected_rows, leaves=leaves)

    def _append_open(self) -> Generator[None, None, bool]:
        """Append the open transaction to the store, if there is one. One without changes is forgotten: False."""
        if self._open is None or not self._open.changes:
            self._rollback()
            return False
        yield from self._until_room()
        self._append()
        return True

    def _append(self, *, standalone: bool = False) -> None:
        """Append the open transaction as one group. `standalone`: it is DDL, without BEGIN and COMMIT.

        Raises `ServerError` if it may not be committed; it is rolled back then.
        """
        assert self._open is not None
        settings = self._settings
        try:
            self._publisher.require_open(settings.domain_id)
            self._publisher.commit(
                self._open.events,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
                standalone=standalone,
            )
        except ServerError as error:
            self._rollback()
            if isinstance(error, GtidOutOfOrder):
                self._forget(ONCE_PER_GROUP)
            raise
        self._appended()

    def _appended(self) -> None:
        # gtid_seq_no is for one group only, also if that failed with it: the next would fail, too.
        self._ended()
        self._forget(ONCE_PER_GROUP)

    def _answer_when_committed(
        self, affected_rows: int, *, leaves: bool = False, go_on: Callable[[], None] | None = None
    ) -> None:
        """Answer OK once all appended groups are as durable as `innodb_flush_log_at_trx_commit` demands.

        `go_on` is called in the place of that answer.
        """
        self._prepare()
        self._due = affected_rows, leaves
        self._go_on = go_on
        self._commits.on_commit(self._done)

    def _done(self, error: StorageError | None) -> None:
        """The commit is done, or has failed with `error`: answer the client. Called on the loop."""
        go_on, self._go_on = self._go_on, None
        if error is not None:
            self._client.refused(not_written(error))
        elif go_on is not None:
            go_on()
        elif self._due is None:
            self._client.committed_quickly()
        else:
            affected_rows, leaves = self._due
            self._client.committed(affected_rows, leaves=leaves)


class OpenTransaction:
    """An open transaction. `events` will be committed; `changes` is the number of statements: with 0 nothing is."""

    def __init__(self, events: Transaction) -> None:
        self.events = events
        self.changes = 0
        self._savepoints: dict[bytes, tuple[Savepoint, int]] = {}
        self._set = 0

    def savepoint(self, name: bytes) -> None:
        """SAVEPOINT; it replaces an older one of the same name.

        Raises `TooLongIdentifier` (1059), and `NotSupportedYet` (1235) beyond `SAVEPOINTS_MAX`.
        """
        if len(name) > SAVEPOINT_NAME_BYTES_MAX:
            raise TooLongIdentifier(name.decode("utf-8", "replace"))
        if self._set >= SAVEPOINTS_MAX:
            raise NotSupportedYet(f"more than {SAVEPOINTS_MAX} savepoints in a transaction")
        self._set += 1
        self._savepoints.pop(name.lower(), None)
        self._savepoints[name.lower()] = self.events.savepoint(), self.changes

    def rollback_to(self, name: bytes) -> None:
        """ROLLBACK TO. Raises `NoSuchSavepoint` (1305)."""
        savepoint, self.changes = self._savepoints[self._last(name)]
        self.events.rollback_to(savepoint)

    def release(self, name: bytes) -> None:
        """RELEASE SAVEPOINT. Raises `NoSuchSavepoint` (1305)."""
        del self._savepoints[self._last(name)]

    def _last(self, name: bytes) -> bytes:
        """The key of a savepoint, made the last one: those that were set later are dropped."""
        key = name.lower()
        if key not in self._savepoints:
            raise _no_such_savepoint(name)
        names = list(self._savepoints)
        for later in names[names.index(key) + 1 :]:
            del self._savepoints[later]
        return key


def _no_such_savepoint(name: bytes) -> NoSuchSavepoint:
    return NoSuchSavepoint(name.decode("utf-8", "replace"))


def logged_text(
    text: bytes, settings: Settings, *, is_program: bool = False
) -> Generator[None, None, tuple[bytes | bytearray, list[bytes]]]:
    """The statement as it is logged, and the names of its user variables; in steps that only take time.

    An executable comment that was skipped for its version is logged as a plain comment: a newer replica would
    execute it. Raises `SqlSyntaxError` (1064) for two statements in one text, unless it `is_program`: a procedure,
    function, trigger or event, with statements in its body.
    """
    # A search for one byte runs at memory's speed; for two ("/*") it holds the loop for 10 ms in 16 MB.
    if b";" not in text and b"@" not in text and b"*" not in text:
        return text, []
    codec = _AMBIGUOUS.get(settings.charset)
    looked_at = (yield from _as_utf8(text, codec)) if codec else text
    found = yield from scan_steps(
        looked_at, backslash_escapes=settings.backslash_escapes, is_program=is_program
    )
    if found.second is not None:
        near = looked_at[found.second : found.second + 80].decode("utf-8", "replace")
        raise SqlSyntaxError(near.strip())
    logged: bytes | bytearray = text
    if found.edits:
        edits = (yield from _in_charset(found.edits, text, codec)) if codec else found.edits
        logged = text if isinstance(text, bytearray) else bytearray(text)
        for at, byte in edits.items():
            logged[at] = byte
    return logged, sorted({unquoted_name(name) for name in found.variables})


def _as_utf8(text: bytes, codec: str) -> Generator[None, None, bytes]:
    decoded = bytearray()
    for utf8 in _decoded(text, codec, _DECODED_BYTES):
        decoded += utf8
        yield
    return bytes(decoded)


def _in_charset(
    edits: Mapping[int, int], text: bytes, codec: str
) -> Generator[None, None, dict[int, int]]:
    """The edits of `_as_utf8(text, codec)`, whose offsets are those in `text`. All are of ASCII characters."""
    wanted = iter(sorted(edits))
    sought = next(wanted, None)
    found: dict[int, int] = {}
    end = 0  # in UTF-8, behind the byte at `at`
    for at, utf8 in enumerate(_decoded(text, codec, 1)):
        end += len(utf8)
        if end - 1 == sought:  # an ASCII character comes out when its byte goes in
            found[at] = edits[sought]
            sought = next(wanted, None)
            if sought is None:
                break
        if not at % _BYTE_STEPS:
            yield
    return found


def _decoded(text: bytes, codec: str, size: int) -> Iterator[bytes]:
    """Decode the text in pieces of `size` bytes to UTF-8; what is no character becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        yield decoder.decode(piece, start + size >= len(text)).encode("utf-8", "replace")
