"""Runs one statement of a session: at once as far as it can; the rest, if it has to wait, in a task."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

from binlog_protocol.errors import ServerError, SqlSyntaxError, UnknownServerError
from binlog_protocol.errors.sql_errors import (
    InvalidXaArguments,
    OutsideXa,
    UnknownXid,
    WrongDatabaseName,
)
from binlog_protocol.errors.transaction_errors import ReadOnlyTransaction
from binlog_protocol.events.charsets import decode_text
from binlog_protocol.events.collation_names import default_collation
from binlog_protocol.events.statement_context import UserVarEvent
from binlog_protocol.sql.tokens import first_words
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.errors import StorageError

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.loop.defects import internal_error
from binlog_server.loop.turn import Turn
from binlog_server.sql.needed_privileges import PRIVILEGES
from binlog_server.sql.session_settings import ONCE_PER_STATEMENT, Settings
from binlog_server.sql.statement_kind import (
    HEAD_BYTES_MAX,
    Kind,
    Statement,
    is_stored_program,
    scan_steps,
    unquoted_name,
)
from binlog_server.sql.view import Diagnostic, Level
from binlog_server.sql_commit.client import CommitClient, not_written
from binlog_server.sql_commit.session_state import SessionState
from binlog_server.sql_commit.transaction_end import TransactionEnd
from binlog_server.sql_commit.xid import xid_of

PIECE_BYTES: Final = 256 * 1024  # of a large statement; after each piece the loop serves others
_DECODED_BYTES: Final = 16 * 1024  # in one step: half a millisecond
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


class StatementRunner:
    """Runs the statements of one session.

    Methods that are generators yield where the store has no room, or where the loop should serve others first.
    """

    def __init__(
        self,
        client: CommitClient,
        state: SessionState,
        end: TransactionEnd,
        publisher: Publisher,
        room: AppendRoom,
    ) -> None:
        self._client = client
        self._state = state
        self._end = end
        self._publisher = publisher
        self._room = room
        self._engine = room.engine
        self._task: asyncio.Task[None] | None = None
        self._turn = Turn()

    def run(self, steps: Iterator[None]) -> None:
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
            self._state.rollback()
            raise not_written(error) from error
        except ServerError:
            raise
        except Exception:  # a defect: the statement may be half written
            self._state.rollback()
            raise

    def cancel(self) -> None:
        """Stop the task of the running statement, if there is one: the client has gone."""
        if self._task is not None:
            self._task.cancel()

    async def _run_slowly(self, steps: Iterator[None]) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                await self._room.wait(to_spill=self._state.is_large)
                self._turn = Turn()
                if next(steps, steps) is steps:
                    return
        except ServerError as error:
            self._client.refused(error)
        except StorageError as error:
            self._state.rollback()
            self._client.refused(not_written(error))
        except Exception as error:  # noqa: BLE001 - logged there
            self._state.rollback()
            session = f"connection {self._state.sql.connection_id}"
            self._client.refused(internal_error(error, session))
        finally:
            # The answer may have let the next statement begin, with a task of its own.
            if self._task is asyncio.current_task():
                self._task = None
                self._client.hold(held=False)

    def steps(self, statement: Statement) -> Iterator[None]:
        """The steps of a statement, the client's answer included. Raises `ServerError`, `StorageError`."""
        state, end, kind = self._state, self._end, statement.kind
        if kind is Kind.DML:
            yield from self._change(statement)
        elif kind is Kind.DDL:
            yield from self._define(statement)
        elif kind is Kind.NOTHING:
            self._client.committed(0)
        elif kind is Kind.COMMIT:
            yield from end.commit_and_answer(chain=statement.chain, leaves=statement.release)
        elif kind is Kind.BEGIN:
            if statement.snapshot:
                state.sql.diagnostics.append(_NO_SNAPSHOT)
            read_only = statement.read_only or (not statement.read_write and state.next_reads_only)
            yield from end.commit_and_answer(begin=True, read_only=read_only)
        elif kind in (Kind.LOCK_TABLES, Kind.UNLOCK_TABLES):
            state.sql.require(*PRIVILEGES[kind])
            yield from end.commit_and_answer()
        elif kind is Kind.ROLLBACK:
            state.rollback(begin=statement.chain)
            self._client.committed(0, leaves=statement.release)
        elif kind in (Kind.XA_COMMIT, Kind.XA_ROLLBACK):
            yield from self._complete(statement)
        elif kind is Kind.USE:
            self.use(statement.name)
            self._client.committed(0)
        else:
            state.savepoint(kind, statement.name)
            self._client.committed(0)

    def use(self, name: bytes) -> None:
        """Set the default database; `name` is in the client's character set. Raises `WrongDatabaseName` (1102)."""
        text = decode_text(name, default_collation(self._state.settings.charset))
        if not isinstance(text, str):
            text = name.decode("utf-8", "replace")
        if not 0 < len(text) <= _DATABASE_CHARS_MAX or "\0" in text or text.endswith(" "):
            raise WrongDatabaseName(text[:_DATABASE_CHARS_MAX])
        self._state.sql.database = text.encode()
        self._state.refresh()

    def _change(self, statement: Statement) -> Iterator[None]:
        state = self._state
        settings = self._check(statement.kind)
        if state.reads_only:
            raise ReadOnlyTransaction
        text, variables = yield from self._look_at(statement.text, settings)
        transaction = state.opened()
        yield from self._write(transaction.events, text, variables)
        transaction.changes += 1
        if state.begun or not state.autocommit:
            state.tell()
            self._client.committed(1)
        else:
            yield from self._end.commit_and_answer(affected_rows=1)

    def _define(self, statement: Statement) -> Iterator[None]:
        settings = self._check(statement.kind)
        if self._state.session_reads_only:  # not the transaction's own: DDL ends it
            raise ReadOnlyTransaction
        text = statement.text
        logged: bytes | bytearray = text
        # Of DDL only CREATE TABLE ... SELECT reads user variables; elsewhere @ stands in front of a host.
        words = first_words(text[:HEAD_BYTES_MAX].decode("latin-1"))
        variables: list[UserVarEvent] = []
        if not is_stored_program(words):
            select = words[0] == "CREATE" and "TABLE" in words
            logged, variables = yield from self._look_at(text, settings, variables=select)
        yield from self._end.append_open()
        transaction = self._state.opened()
        yield from self._write(transaction.events, logged, variables)
        while not self._engine.has_room:
            yield
        self._end.append(transaction.events, standalone=True)
        self._end.answer_when_committed(0)

    def _complete(self, statement: Statement) -> Iterator[None]:
        """XA COMMIT, XA ROLLBACK of a transaction that is prepared in the binlog."""
        state, kind = self._state, statement.kind
        state.sql.require(*PRIVILEGES[kind])
        xid, one_phase = xid_of(statement.name)
        if state.sql.in_transaction:
            raise OutsideXa
        if one_phase:
            raise InvalidXaArguments
        if xid not in self._engine.prepared():
            raise UnknownXid
        if kind is Kind.XA_COMMIT:
            self._publisher.require_open(state.settings.domain_id)
        while not self._engine.has_room:
            yield
        self._end.complete(xid, rolled_back=kind is Kind.XA_ROLLBACK)
        self._end.answer_when_committed(0)

    def _check(self, kind: Kind) -> Settings:
        self._state.sql.require(*PRIVILEGES[kind])
        settings = self._state.settings
        self._publisher.require_open(settings.domain_id)
        return settings

    def _look_at(
        self, text: bytes, settings: Settings, *, variables: bool = True
    ) -> Generator[None, None, tuple[bytes | bytearray, list[UserVarEvent]]]:
        """The statement as it is logged, and its user variables.

        An executable comment that was skipped for its version is logged as a plain comment: a newer replica would
        execute it. Raises `SqlSyntaxError` (1064) for two statements in one text.
        """
        # A search for one byte runs at memory's speed; for two ("/*") it holds the loop for 10 ms in 16 MB.
        if b";" not in text and b"@" not in text and b"*" not in text:
            return text, []
        codec = _AMBIGUOUS.get(settings.charset)
        looked_at = (yield from self._in_turns(_as_utf8(text, codec))) if codec else text
        scanning = scan_steps(looked_at, backslash_escapes=settings.backslash_escapes)
        found = yield from self._in_turns(scanning)
        if found.second is not None:
            near = looked_at[found.second : found.second + 80].decode("utf-8", "replace")
            raise SqlSyntaxError(near.strip())
        names = {unquoted_name(name) for name in found.variables} if variables else ()
        logged: bytes | bytearray = text
        if found.edits and looked_at is text:
            logged = text if isinstance(text, bytearray) else bytearray(text)
            for at, byte in found.edits.items():
                logged[at] = byte
        return logged, [self._user_variable(name) for name in sorted(names)]

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

    def _user_variable(self, name: bytes) -> UserVarEvent:
        key = name.decode("utf-8", "surrogateescape").lower()
        value, collation = self._state.sql.user_variables.get(key, (None, 0))
        if isinstance(value, str):
            return UserVarEvent(name, value.encode("utf-8", "surrogateescape"), collation)
        return UserVarEvent(name, value, collation)

    def _write(
        self, transaction: Transaction, text: bytes | bytearray, variables: list[UserVarEvent]
    ) -> Iterator[None]:
        state = self._state
        settings = state.settings
        now = self._publisher.now() if settings.timestamp is None else settings.timestamp
        context = settings.context_events(variables, now)
        for name in ONCE_PER_STATEMENT:
            if state.sql.variables.pop(name, None) is not None:
                state.refresh()
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
        return engine.has_room_to_spill if self._state.is_large else engine.has_room


def _as_utf8(text: bytes, codec: str) -> Generator[None, None, bytes]:
    decoder = codecs.getincrementaldecoder(codec)("replace")
    decoded = bytearray()
    for start in range(0, len(text), _DECODED_BYTES):
        piece = text[start : start + _DECODED_BYTES]
        final = start + _DECODED_BYTES >= len(text)
        decoded += decoder.decode(piece, final).encode("utf-8", "replace")
        yield
    return bytes(decoded)
