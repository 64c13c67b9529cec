"""The end of a transaction: it becomes a group in the store, and the client gets its OK when the group is committed."""

from __future__ import annotations

from collections.abc import Iterator

from binlog_protocol.errors import ServerError
from binlog_protocol.errors.sql_errors import GtidOutOfOrder, UnknownXid
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import EngineWriter, Xid
from binlog_storage.errors import StorageError, XaStateError

from binlog_server.commits.publisher import Publisher
from binlog_server.semi_sync.commits import Commits
from binlog_server.sql.session_settings import ONCE_PER_GROUP
from binlog_server.sql_commit.client import CommitClient, not_written
from binlog_server.sql_commit.session_state import SessionState


class TransactionEnd:
    """Ends the transactions of one session. Methods that are generators yield while the store has no room."""

    def __init__(
        self,
        client: CommitClient,
        state: SessionState,
        publisher: Publisher,
        commits: Commits,
        engine: EngineWriter,
    ) -> None:
        self._client = client
        self._state = state
        self._publisher = publisher
        self._commits = commits
        self._engine = engine
        self._affected = 0
        self._leaves = False

    def commit_and_answer(
        self,
        *,
        affected_rows: int = 0,
        begin: bool = False,
        chain: bool = False,
        read_only: bool = False,
        leaves: bool = False,
    ) -> Iterator[None]:
        """Commit the open transaction, and answer.

        Args:
            affected_rows: for the OK packet.
            begin: begin the next transaction, with `read_only`.
            chain: begin the next transaction with the same access mode.
            read_only: the access mode for `begin`.
            leaves: close the connection after the answer.
        """
        state = self._state
        committed = state.open is not None and state.open.changes > 0
        read_only = read_only or (chain and state.reads_only)
        yield from self.append_open()
        state.begun = begin or chain
        state.read_only = read_only
        state.sql.next_read_only = None
        state.tell()
        if committed:
            state.prepare()
            self.answer_when_committed(affected_rows, leaves=leaves)
        else:
            self._client.committed(affected_rows, leaves=leaves)

    def append_open(self) -> Iterator[None]:
        """Append the open transaction to the store; one without changes is forgotten."""
        transaction = self._state.open
        if transaction is not None and transaction.changes:
            while not self._engine.has_room:
                yield
            self.append(transaction.events)
        elif transaction is not None:
            self._state.rollback()
        self._state.begun = False

    def append(self, transaction: Transaction, *, standalone: bool = False) -> None:
        """Append a transaction as one group. `standalone`: it is DDL, without BEGIN and COMMIT.

        Raises `ServerError` if it may not be committed; it is rolled back then.
        """
        state = self._state
        settings = state.settings
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
        except ServerError as error:
            state.rollback()
            if isinstance(error, GtidOutOfOrder):
                self._forget_number()
            raise
        state.open = None
        self._group_appended()

    def complete(self, xid: Xid, *, rolled_back: bool) -> None:
        """End a prepared XA transaction: append its group, or roll it back. Raises `ServerError`, `StorageError`."""
        settings = self._state.settings
        try:
            if rolled_back:
                self._engine.rollback_prepared(xid)
                return
            self._publisher.require_open(settings.domain_id)
            self._publisher.commit_prepared(
                xid,
                settings.origin,
                self._publisher.domain(settings.domain_id),
                seq_no=settings.seq_no,
                timestamp=settings.timestamp,
            )
        except XaStateError as error:  # another session has ended it meanwhile
            raise UnknownXid from error
        except GtidOutOfOrder:
            self._forget_number()
            raise
        self._group_appended()

    def _group_appended(self) -> None:
        self._state.sql.next_read_only = None
        self._forget_number()

    def _forget_number(self) -> None:
        """Forget gtid_seq_no: it was for one group only, also if that failed, so that the next does not fail, too."""
        for name in ONCE_PER_GROUP:
            self._state.sql.variables.pop(name, None)
        self._state.refresh()

    def answer_when_committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """Answer OK once all appended groups are as durable as `innodb_flush_log_at_trx_commit` demands."""
        self._affected = affected_rows
        self._leaves = leaves
        self._commits.on_commit(self.done)

    def done(self, error: StorageError | None) -> None:
        """The commit is done, or has failed with `error`: answer the client. Called on the loop."""
        if error is None:
            self._client.committed(self._affected, leaves=self._leaves)
        else:
            self._client.refused(not_written(error))
