"""The state of a session that commits: its open transaction, and the settings for its next statement."""

from __future__ import annotations

from dataclasses import dataclass

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.groups.statement_group import QuickGroup
from binlog_protocol.wire.results import (
    STATUS_ANSI_QUOTES,
    STATUS_AUTOCOMMIT,
    STATUS_IN_TRANS,
    STATUS_IN_TRANS_READONLY,
    STATUS_NO_BACKSLASH_ESCAPES,
)

from binlog_server.commits.publisher import Domain, Publisher
from binlog_server.sql.needed_privileges import PRIVILEGES
from binlog_server.sql.session_settings import Settings, settings_of
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import Kind
from binlog_server.sql_commit.open_transaction import OpenTransaction, no_such_savepoint


@dataclass(frozen=True, slots=True)
class Prepared:
    """The values that `Committer.quick` needs, computed once for many statements."""

    domain: Domain
    group: QuickGroup
    server_id: int


class SessionState:
    """The state of one session. Call `refresh` after its variables or its database have changed.

    `begun` is True after BEGIN, up to the transaction's end; `read_only` tells whether it was begun READ ONLY.
    `prepared` is None unless the next statement may go the quick way.
    """

    def __init__(
        self,
        machine: ServerConnection,
        sql: SqlSession,
        publisher: Publisher,
        *,
        server_id: int,
        domain_id: int,
    ) -> None:
        self.sql = sql
        self.open: OpenTransaction | None = None
        self.begun = False
        self.read_only = False
        self.settings: Settings
        self.prepared: Prepared | None = None
        self._machine = machine
        self._publisher = publisher
        self._server_id = server_id
        self._domain_id = domain_id
        self.refresh()

    @property
    def autocommit(self) -> bool:
        """Whether a statement outside of BEGIN is a transaction by itself."""
        return self.sql.variables.get("autocommit") != "OFF"

    @property
    def reads_only(self) -> bool:
        """Whether the open transaction, or without one the next statement, is read-only."""
        if self.begun:
            return self.read_only
        return self.open is None and self.next_reads_only

    @property
    def next_reads_only(self) -> bool:
        """Whether a transaction is read-only that is begun without READ ONLY or READ WRITE."""
        said = self.sql.next_read_only
        return self.session_reads_only if said is None else said

    @property
    def session_reads_only(self) -> bool:
        """Whether SET SESSION TRANSACTION READ ONLY holds."""
        return self.sql.variables.get("tx_read_only") == "ON"

    @property
    def is_large(self) -> bool:
        """Whether the open transaction is large: it then waits for room to spill, and others pass it."""
        return self.open is not None and self.open.events.is_large

    def refresh(self) -> None:
        """Compute the settings anew: the session's variables or its database have changed."""
        sql = self.sql
        self.settings = settings_of(
            sql.variables,
            server_id=self._server_id,
            domain_id=self._domain_id,
            thread_id=sql.connection_id,
            database=sql.database,
        )
        self.tell()

    def tell(self) -> None:
        """Update the status flags of the client's OK packets and the SQL session: the transaction's state changed."""
        in_transaction = self.begun or self.open is not None
        self.sql.in_transaction = in_transaction
        status = STATUS_IN_TRANS if in_transaction else 0
        status |= STATUS_AUTOCOMMIT if self.autocommit else 0
        status |= STATUS_IN_TRANS_READONLY if self.begun and self.read_only else 0
        status |= 0 if self.settings.backslash_escapes else STATUS_NO_BACKSLASH_ESCAPES
        status |= STATUS_ANSI_QUOTES if self.settings.ansi_quotes else 0
        self._machine.status = status
        self.prepared = None

    def opened(self) -> OpenTransaction:
        """The open transaction, begun now if there is none."""
        if self.open is None:
            self.open = OpenTransaction(self._publisher.begin())
        return self.open

    def rollback(self, *, begin: bool = False) -> None:
        """Forget the open transaction. `begin`: begin another with the same access mode (ROLLBACK AND CHAIN)."""
        self.read_only = begin and self.reads_only
        if self.open is not None:
            self.open.events.rollback()
        self.open = None
        self.begun = begin
        self.sql.next_read_only = None
        self.tell()

    def savepoint(self, kind: Kind, name: bytes) -> None:
        """SAVEPOINT, ROLLBACK TO, RELEASE. Raises `NoSuchSavepoint` (1305), `NotSupportedYet` (1235)."""
        if kind is Kind.SAVEPOINT:
            if self.begun or not self.autocommit:  # without a transaction it has no effect
                self.opened().savepoint(name)
                self.tell()
        elif self.open is None:
            raise no_such_savepoint(name)
        elif kind is Kind.ROLLBACK_TO:
            self.open.rollback_to(name)
        else:
            self.open.release(name)

    def prepare(self) -> None:
        """Fill `prepared` if the state allows the quick way. To be called at the end of a transaction that could not
        take it."""
        settings = self.settings
        if (
            self.prepared is None
            and self._machine.status == STATUS_AUTOCOMMIT  # the flags in the quick answer
            and self.sql.may(*PRIVILEGES[Kind.DML])
            and not self.reads_only
            and not settings.seq_no
            and not settings.context
            and settings.timestamp is None
        ):
            domain = self._publisher.domain(settings.domain_id)
            if domain.own:
                group = QuickGroup(domain.id, settings.origin)
                self.prepared = Prepared(domain, group, settings.origin.server_id)
