"""Commits the statements of one client: statements become a transaction, a transaction becomes a group in the store.

    no transaction open    a DML statement is a transaction by itself
    BEGIN, autocommit=0    statements are collected up to COMMIT; ROLLBACK forgets them
    DDL                    commits the open transaction, then itself

The client gets its OK when the group is committed as `innodb_flush_log_at_trx_commit` says, never before.

A statement runs at once as far as it can. If the store has no room, or after each piece of a large statement, the rest
runs in a task, and nothing more is read from the client meanwhile (back-pressure).

`session_state` has the open transaction, `statement_runner` runs a statement, `transaction_end` commits. This module
has the short way past them, which most statements take.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import ServerError
from binlog_protocol.sql.plain import plain
from binlog_storage.errors import StorageError

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Committed
from binlog_server.semi_sync.commits import Commits
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import Kind, classify
from binlog_server.sql_commit.client import CommitClient, not_written
from binlog_server.sql_commit.session_state import SessionState
from binlog_server.sql_commit.statement_runner import StatementRunner
from binlog_server.sql_commit.transaction_end import TransactionEnd

__all__ = ["QUICK_WORDS", "Committer"]

# Beginnings of statements that are surely DML; any other statement goes the long way.
QUICK_WORDS: Final = frozenset(
    {b"INSERT ", b"UPDATE ", b"DELETE ", b"insert ", b"update ", b"delete "}
)


class Committer:
    """Commits for one session. Call `close` when the client has gone."""

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
        self._publisher = publisher
        self._commits = commits
        self._engine = room.engine
        self._state = SessionState(
            machine, sql, publisher, server_id=server_id, domain_id=domain_id
        )
        self._end = TransactionEnd(client, self._state, publisher, commits, room.engine)
        self._runner = StatementRunner(client, self._state, self._end, publisher, room)

    @property
    def _waiting(self) -> tuple[Committed, Committed]:
        """The two functions that are called when a commit is done."""
        return self._quickly_done, self._end.done

    def quick(self, data: bytes) -> bool:
        """Commit a DML statement that is a transaction by itself, without the long way.

        False if it is not sure that `data` is one whole packet with such a statement: then nothing has happened.

        Args:
            data: bytes from the client; behind the packet's head (5 bytes) they begin with one of `QUICK_WORDS`.
        """
        prepared = self._state.prepared
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
        if self._state.sql.diagnostics:
            self._state.sql.begin()
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
        self._commits.on_commit(self._quickly_done)
        return True

    def _quickly_done(self, error: StorageError | None) -> None:
        if error is None:
            self._client.committed_quickly()
        else:
            self._client.refused(not_written(error))

    def execute(self, text: bytes) -> bool:
        """Run a statement; the client gets its answer now or later. False if the statement commits nothing (OTHER).

        Raises `ServerError`: 1064, 1227, 1235, 1290, 1305, 1792, ...
        """
        statement = classify(text)
        if statement.kind is Kind.OTHER:
            return False
        self._runner.run(self._runner.steps(statement))
        return True

    def for_grammars(self, text: str) -> str:
        """A statement's text as the grammars must read it, where the session's sql_mode reads strings otherwise."""
        settings = self._state.settings
        return plain(
            text,
            backslash_escapes=settings.backslash_escapes,
            ansi_quotes=settings.ansi_quotes,
        )

    def settle(self) -> bool:
        """To be called after SET: if it has set autocommit to ON, the open transaction is committed.

        True if the client gets its answer from that commit.
        """
        state = self._state
        state.refresh()
        if state.autocommit and not state.begun and state.open is not None:
            self._runner.run(self._end.commit_and_answer())
            return True
        return False

    def use(self, name: bytes) -> None:
        """Set the default database; `name` is in the client's character set. Raises `WrongDatabaseName` (1102)."""
        self._runner.use(name)

    @property
    def waits_for_replicas(self) -> bool:
        """Whether the client's commit is durable, and waits for semi-sync alone."""
        return any(map(self._commits.waits_for_replicas, self._waiting))

    def interrupt(self) -> None:
        """KILL QUERY: a commit that waits for replicas alone is answered OK, as by MariaDB: it is committed."""
        for committed in self._waiting:
            self._commits.give_up(committed)

    def close(self) -> None:
        """The client has gone: roll back the open transaction, and stop the running statement."""
        for committed in self._waiting:
            self._commits.give_up(committed, has_gone=True)
        self._runner.cancel()
        self._state.rollback()

    def reset(self) -> None:
        """COM_RESET_CONNECTION: roll back the open transaction, and take the session's variables as they are now."""
        self._state.rollback()
        self._state.refresh()
