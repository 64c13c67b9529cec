"""Commits what one client sends: statements become a transaction, a transaction becomes a group in the store.

    no transaction open    a DML statement is a transaction by itself
    BEGIN, autocommit=0    statements are collected up to COMMIT; ROLLBACK forgets them
    DDL                    commits what is open, then itself

The client gets its OK when the group is committed as `innodb_flush_log_at_trx_commit` says, never before.

A statement runs as far as it can at once. Where the store has no room, or a statement is so large that others should
have their turn, the rest runs in a task, and nothing more is read from the client meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, Protocol

from binlog_server.admin.answers import SqlSession
from binlog_server.publisher import Domain, Publisher
from binlog_server.room import Room
from binlog_server.sql_commit.open_transaction import OpenTransaction, no_such_savepoint
from binlog_server.sql_commit.settings import (
    ONCE_PER_GROUP,
    ONCE_PER_STATEMENT,
    Settings,
    settings_of,
)
from binlog_server.sql_commit.statement_kind import (
    Kind,
    Statement,
    classify,
    first_words,
    is_stored_program,
    scan,
    unquoted_name,
)
from binlog_server.syncer import Syncer
from binlog_server.users import BINLOG_REPLAY
from protocol.connection.server import ServerConnection
from protocol.errors import (
    ServerError,
    SqlSyntaxError,
)
from protocol.events.charsets import decode_text
from protocol.events.collation_names import default_collation
from protocol.events.statement_context import UserVarEvent
from protocol.sql_errors import (
    ErrorOnWrite,
    ReadOnlyTransaction,
    WrongDatabaseName,
)
from protocol.statement_group import QuickGroup
from protocol.wire.results import STATUS_AUTOCOMMIT, STATUS_IN_TRANS
from storage.binlog.transaction import Transaction
from storage.errors import StorageError

log = logging.getLogger(__name__)

# Beginnings of COM_QUERY packets whose statement is surely DML; what is none of them goes the long way.
QUICK_WORDS: Final = frozenset(
    {b"INSERT ", b"UPDATE ", b"DELETE ", b"insert ", b"update ", b"delete "}
)
PIECE_BYTES: Final = 256 * 1024  # of a large statement, between two turns of others
_DATABASE_CHARS_MAX: Final = 64
# In these a byte of ASCII may be the second half of a character: they are looked at as UTF-8.
_AMBIGUOUS: Final = {"big5": "big5", "gbk": "gbk", "sjis": "shift_jis", "cp932": "cp932"}


class Client(Protocol):
    """Who gets the answers. One answer to each statement."""

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """OK. `leaves`: the connection ends after it."""

    def committed_quickly(self) -> None:
        """OK to a statement of `Committer.quick`."""

    def refused(self, error: ServerError) -> None:
        """Not OK."""

    def hold(self, *, held: bool) -> None:
        """Read nothing more, or go on."""


class Committer:
    """For one session. `close` when the client has gone."""

    def __init__(
        self,
        client: Client,
        machine: ServerConnection,
        sql: SqlSession,
        publisher: Publisher,
        syncer: Syncer,
        room: Room,
        *,
        server_id: int,
        domain_id: int,
    ) -> None:
        self._client = client
        self._machine = machine
        self._sql = sql
        self._publisher = publisher
        self._syncer = syncer
        self._room = room
        self._engine = room.engine
        self._server_id = server_id
        self._domain_id = domain_id
        self._open: OpenTransaction | None = None
        self._begun = False  # by BEGIN
        self._read_only = False
        self._task: asyncio.Task[None] | None = None
        self._affected = 0
        self._leaves = False
        self._settings: Settings
        self._quick: tuple[Domain, QuickGroup, int] | None = None
        self.refresh()

    # --- the hot path ---

    def quick(self, data: bytes) -> bool:
        """Commit `data`, if it is one whole packet with one DML statement that is a transaction by itself.

        False if that is not sure: then nothing has happened. `data` begins with one of `QUICK_WORDS` behind its head.
        """
        prepared = self._quick
        if (
            prepared is None
            or not self._publisher.accepts
            or not self._engine.has_room
            or data[-1] <= 32
            or data.find(b";", 5) >= 0
            or data.find(b"@", 5) >= 0
            or prepared[0].foreign
        ):
            return False
        text = self._machine.take_query(data)
        if text is None:
            return False
        domain, group, server_id = prepared
        try:
            self._publisher.commit_quickly(domain, group, server_id, text)
        except StorageError as error:
            self._client.refused(_on_write(error))
            return True
        self._syncer.on_commit(self._quickly_done)
        return True

    def _quickly_done(self, error: StorageError | None) -> None:
        if error is None:
            self._client.committed_quickly()
        else:
            self._client.refused(_on_write(error))

    # --- all statements ---

    def execute(self, text: bytes) -> bool:
        """Run a statement; the client gets the answer now or later. False if it is not one for here.

        Raises `ServerError`: 1064, 1227, 1235, 1290, 1305, 1792, ...
        """
        statement = classify(text)
        if statement.kind is Kind.OTHER:
            return False
        self._run(self._steps(statement))
        return True

    def settle(self) -> bool:
        """After SET: with autocommit on again what is open is committed. True if the client's answer waits for that."""
        self.refresh()
        if self._autocommit and not self._begun and self._open is not None:
            self._run(self._commit_and_answer())
            return True
        return False

    def use(self, name: bytes) -> None:
        """The default database; `name` in the client's character set. Raises `WrongDatabaseName` (1102)."""
        text = decode_text(name, default_collation(self._settings.charset))
        if not isinstance(text, str):
            text = name.decode("utf-8", "replace")
        if not 0 < len(text) <= _DATABASE_CHARS_MAX or "\0" in text or text.endswith(" "):
            raise WrongDatabaseName(text[:_DATABASE_CHARS_MAX])
        self._sql.database = text.encode()
        self.refresh()

    def close(self) -> None:
        """The client has gone: what is open is rolled back."""
        if self._task is not None:
            self._task.cancel()
        self._rollback()

    def reset(self) -> None:
        """COM_RESET_CONNECTION."""
        self._rollback()
        self.refresh()

    # --- how a statement runs ---

    def _run(self, steps: Iterator[None]) -> None:
        try:
            for _ in steps:
                self._client.hold(held=True)
                self._task = asyncio.get_running_loop().create_task(self._run_slowly(steps))
                return
        except StorageError as error:
            self._rollback()
            raise _on_write(error) from error

    async def _run_slowly(self, steps: Iterator[None]) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                await self._room.wait(to_spill=self._is_large)
                if next(steps, steps) is steps:
                    return
        except ServerError as error:
            self._client.refused(error)
        except StorageError as error:
            self._rollback()
            self._client.refused(_on_write(error))
        finally:
            # The answer may have let the next statement begin, which may wait in its turn.
            if self._task is asyncio.current_task():
                self._task = None
                self._client.hold(held=False)

    def _steps(self, statement: Statement) -> Iterator[None]:
        """Yields where it should wait for room."""
        kind = statement.kind
        if kind is Kind.DML:
            yield from self._change(statement)
        elif kind is Kind.DDL:
            yield from self._define(statement)
        elif kind is Kind.COMMIT:
            yield from self._commit_and_answer(chain=statement.chain, leaves=statement.release)
        elif kind is Kind.BEGIN:
            yield from self._commit_and_answer(begin=True, read_only=statement.read_only)
        elif kind is Kind.LOCK_TABLES:
            self._sql.require(BINLOG_REPLAY)
            yield from self._commit_and_answer()
        elif kind is Kind.ROLLBACK:
            self._rollback(begin=statement.chain)
            self._client.committed(0, leaves=statement.release)
        elif kind is Kind.USE:
            self.use(statement.name)
            self._client.committed(0)
        else:
            self._savepoint(kind, statement.name)
            self._client.committed(0)

    def _change(self, statement: Statement) -> Iterator[None]:
        settings = self._check()
        if self._read_only:
            raise ReadOnlyTransaction
        variables = self._look_at(statement.text, settings)
        transaction = self._opened()
        yield from self._write(transaction.events, statement.text, variables)
        transaction.changes += 1
        if self._begun or not self._autocommit:
            self._told()
            self._client.committed(1)
        else:
            yield from self._commit_and_answer(affected_rows=1)

    def _define(self, statement: Statement) -> Iterator[None]:
        settings = self._check()
        text = statement.text
        # Only in CREATE TABLE ... SELECT a variable is asked for its value; elsewhere @ stands before a host.
        words = first_words(text)
        variables: list[UserVarEvent] = []
        if not is_stored_program(words):
            select = words[0] == "CREATE" and "TABLE" in words
            variables = self._look_at(text, settings, variables=select)
        yield from self._append_open()
        transaction = self._opened()
        yield from self._write(transaction.events, text, variables)
        self._append(transaction.events, standalone=True)
        self._answer_when_committed(0)

    def _check(self) -> Settings:
        self._sql.require(BINLOG_REPLAY)
        settings = self._settings
        self._publisher.require_open(settings.domain_id)
        return settings

    def _look_at(
        self, text: bytes, settings: Settings, *, variables: bool = True
    ) -> list[UserVarEvent]:
        """The user variables of a statement. Raises `SqlSyntaxError` (1064) for two statements in one text."""
        if b";" not in text and b"@" not in text:
            return []
        codec = _AMBIGUOUS.get(settings.charset)
        looked_at = text.decode(codec, "replace").encode() if codec else text
        found = scan(looked_at, backslash_escapes=settings.backslash_escapes)
        if found.second is not None:
            near = looked_at[found.second : found.second + 80].decode("utf-8", "replace")
            raise SqlSyntaxError(near.strip())
        names = {unquoted_name(name) for name in found.variables} if variables else ()
        return [self._user_variable(name, settings) for name in sorted(names)]

    def _user_variable(self, name: bytes, settings: Settings) -> UserVarEvent:
        value = self._sql.user_variables.get(name.decode("utf-8", "surrogateescape").lower())
        if isinstance(value, str):
            raw = value.encode("utf-8", "surrogateescape")
            return UserVarEvent(name, raw, settings.collation)
        return UserVarEvent(name, value, settings.collation)

    def _write(
        self, transaction: Transaction, text: bytes, variables: list[UserVarEvent]
    ) -> Iterator[None]:
        settings = self._settings
        now = self._publisher.now() if settings.timestamp is None else settings.timestamp
        context = settings.context_events(variables, now)
        for name in ONCE_PER_STATEMENT:
            if self._sql.variables.pop(name, None) is not None:
                self.refresh()
        if not (self._engine.has_room_to_spill if self._is_large else self._engine.has_room):
            yield
        transaction.write(context + settings.origin.statement_head(len(text), now))
        if len(text) <= PIECE_BYTES:
            transaction.write(text)
            return
        view = memoryview(text)
        for start in range(0, len(view), PIECE_BYTES):
            transaction.write(bytes(view[start : start + PIECE_BYTES]))
            yield

    @property
    def _is_large(self) -> bool:
        """Whether the open transaction is one that lets those of others pass."""
        return self._open is not None and self._open.events.is_large

    # --- the end of a transaction ---

    def _commit_and_answer(
        self,
        *,
        affected_rows: int = 0,
        begin: bool = False,
        chain: bool = False,
        read_only: bool = False,
        leaves: bool = False,
    ) -> Iterator[None]:
        committed = self._open is not None and self._open.changes > 0
        read_only = read_only or (chain and self._read_only)
        yield from self._append_open()
        self._begun = begin or chain
        self._read_only = read_only
        self._told()
        if committed:
            self._prepare_quick()
            self._answer_when_committed(affected_rows, leaves=leaves)
        else:
            self._client.committed(affected_rows, leaves=leaves)

    def _append_open(self) -> Iterator[None]:
        transaction = self._open
        if transaction is not None and transaction.changes:
            if not self._engine.has_room:
                yield
            self._append(transaction.events)
        elif transaction is not None:
            self._rollback()
        self._begun = False

    def _append(self, transaction: Transaction, *, standalone: bool = False) -> None:
        settings = self._settings
        try:
            self._publisher.require_open(settings.domain_id)
            self._publisher.commit(
                transaction,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
                standalone=standalone,
            )
        except ServerError:
            self._rollback()
            raise
        self._open = None
        for name in ONCE_PER_GROUP:
            self._sql.variables.pop(name, None)
        self.refresh()

    def _answer_when_committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        self._affected = affected_rows
        self._leaves = leaves
        self._syncer.on_commit(self._done)

    def _done(self, error: StorageError | None) -> None:
        if error is None:
            self._client.committed(self._affected, leaves=self._leaves)
        else:
            self._client.refused(_on_write(error))

    def _rollback(self, *, begin: bool = False) -> None:
        if self._open is not None:
            self._open.events.rollback()
        self._open = None
        self._begun = begin
        self._read_only = begin and self._read_only
        self._told()

    def _savepoint(self, kind: Kind, name: bytes) -> None:
        if kind is Kind.SAVEPOINT:
            if self._begun or not self._autocommit:  # elsewhere there is nothing to go back to
                self._opened().savepoint(name)
                self._told()
        elif self._open is None:
            raise no_such_savepoint(name)
        elif kind is Kind.ROLLBACK_TO:
            self._open.rollback_to(name)
        else:
            self._open.release(name)

    def _opened(self) -> OpenTransaction:
        if self._open is None:
            self._open = OpenTransaction(self._publisher.begin())
        return self._open

    # --- what is known of the session ---

    @property
    def _autocommit(self) -> bool:
        return self._sql.variables.get("autocommit") != "OFF"

    def refresh(self) -> None:
        """Variables, database or transaction have changed."""
        sql = self._sql
        self._settings = settings_of(
            sql.variables,
            server_id=self._server_id,
            domain_id=self._domain_id,
            thread_id=sql.connection_id,
            database=sql.database,
        )
        self._told()

    def _told(self) -> None:
        """Bring what depends on the state of the transaction up to date."""
        in_transaction = self._begun or self._open is not None
        self._sql.in_transaction = in_transaction
        status = STATUS_IN_TRANS if in_transaction else 0
        self._machine.status = status | (STATUS_AUTOCOMMIT if self._autocommit else 0)
        self._quick = None

    def _prepare_quick(self) -> None:
        """Make ready for `quick`, if the session's state allows it; after a transaction that went the long way."""
        settings = self._settings
        if (
            self._quick is None
            and self._autocommit
            and not self._sql.in_transaction
            and BINLOG_REPLAY in self._sql.grants
            and not settings.seq_no
            and not settings.context
            and settings.timestamp is None
        ):
            domain = self._publisher.domain(settings.domain_id)
            if domain.own:
                group = QuickGroup(domain.id, settings.origin)
                self._quick = domain, group, settings.origin.server_id


def _on_write(error: StorageError) -> ErrorOnWrite:
    return ErrorOnWrite(
        f"{error}. Nothing is committed any more; what is durable is still served. Repair the disk and restart"
    )
