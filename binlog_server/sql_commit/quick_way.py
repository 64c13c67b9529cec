"""The quick way of a change that is a transaction by itself: without steps, in the call that brings its bytes.

What it needs of the session is computed once for many statements, and forgotten when anything of it changes. A
statement that is not as plain as that goes the long way (`session_transaction`), and ends up as the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.events.rows import ChangeKind
from binlog_protocol.groups.statement_group import Origin, QuickGroup
from binlog_protocol.tables.row_group import QuickRows, RowLogging
from binlog_protocol.wire.plain_changes import STATEMENT_AT
from binlog_protocol.wire.results import STATUS_AUTOCOMMIT
from binlog_storage.errors import StorageError

from binlog_server.commits.commit_ids import Writes
from binlog_server.commits.publisher import Domain, Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.sql.inquiries import plain_asker
from binlog_server.sql.secrets_in_sql import SHOWN_CHARS
from binlog_server.sql.session_settings import Settings
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import Kind
from binlog_server.sql_commit.client import (
    INSERTED,
    ROW_UPDATED,
    Answer,
    CommitClient,
    not_written,
)
from binlog_server.sql_commit.held_statements import auto_increment_of, may_be_here, row_logging
from binlog_server.sql_commit.logged_text import Template
from binlog_server.tables.changes import Outcome
from binlog_server.tables.held import HeldDatabase, HeldTable, HeldTables, RowPair
from binlog_server.tables.quick_rows import (
    TEXT_CHARS_MAX,
    Given,
    NotQuick,
    QuickChange,
    Run,
    quick_change,
)

_QUICK_GROUPS_MAX: Final = 64


class StatusHolder(Protocol):
    """The machine of a connection, of which a transaction needs little."""

    status: int

    @property
    def counts_found(self) -> bool:
        """See `ServerConnection`."""

    def take_plain(self, data: bytes) -> bytes | None:
        """See `ServerConnection.take_plain`."""

    def is_whole(self, data: bytes) -> bool:
        """See `ServerConnection`."""

    def take_whole(self, data: bytes) -> None:
        """See `ServerConnection`."""


class QuickSession(Protocol):
    """What the quick way asks of the session's transaction, and tells it."""

    def settings_now(self) -> Settings:
        """The settings of the next statement."""

    @property
    def database(self) -> str:
        """The default database."""

    @property
    def is_free(self) -> bool:
        """Whether there is neither an open transaction nor LOCK TABLES of tables here."""

    @property
    def reads_only(self) -> bool:
        """Whether the next statement may only read."""

    @property
    def logs_rows(self) -> bool:
        """Whether changes of tables here are logged as rows."""

    @property
    def makes_databases(self) -> bool:
        """Whether the session sends no text for databases that are elsewhere."""

    def note_generated(self, number: int) -> None:
        """LAST_INSERT_ID() is the first number that AUTO_INCREMENT gave."""

    def answer(self, answer: Answer) -> None:
        """Answer OK now."""

    def committed_quickly(self, domain: Domain, answer: Answer | None) -> None:
        """A group was appended, the last one of `domain`: answer OK when it is durable. None: as to an INSERT."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The values that `QuickWay.take` needs, computed once for many statements."""

    domain: Domain
    group: QuickGroup
    server_id: int


@dataclass(slots=True)
class QuickStatement:
    """A prepared change of one row of a table here, read for that table.

    pieces: see `Template.plain_pieces`. shown: what is said of it while it runs. counted: the names of its counters.
    session, databases: for which it was found to be ready last.
    """

    change: QuickChange
    template: Template
    pieces: list[bytes]
    shown: bytes
    counted: bytes
    session: PreparedRows | None = None
    databases: Mapping[str, HeldDatabase] | None = None


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The same for a change of one row: how the session logs rows, and numbers them."""

    domain: Domain
    origin: Origin
    logging: RowLogging
    numbers: tuple[int, int]
    zero_is_a_value: bool
    _groups: dict[tuple[HeldTable, str], QuickRows] = field(default_factory=dict)

    def group(self, change: QuickChange) -> QuickRows:
        """What builds the groups of a statement."""
        key = change.table, change.verb
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) >= _QUICK_GROUPS_MAX:
                self._groups.clear()
            found = self._groups[key] = QuickRows(
                self.domain.id, self.origin, self.logging, change.table.logged, change.kind
            )
        return found


class QuickWay:
    """The quick way of one session. `forget` is to be called when anything of the session has changed."""

    def __init__(
        self,
        session: QuickSession,
        client: CommitClient,
        machine: StatusHolder,
        sql: SqlSession,
        publisher: Publisher,
        room: AppendRoom,
        tables: HeldTables,
    ) -> None:
        self._session = session
        self._client = client
        self._machine = machine
        self._sql = sql
        self._publisher = publisher
        self._room = room
        self._tables = tables
        self._asks = lambda: plain_asker(sql)
        self._prepared: Prepared | None = None  # None unless the next statement may go this way
        self._prepared_rows: PreparedRows | None = None  # the same, once it is asked for

    def forget(self) -> None:
        """The session's state has changed: what was computed of it holds no longer."""
        self._prepared = self._prepared_rows = None

    def take(self, data: bytes) -> bool:
        """Commit a DML statement that is a transaction by itself, without the long way.

        False if it has to go that way: then nothing has happened.

        Args:
            data: bytes from the client, which are a plain change (`is_plain_change`).
        """
        prepared = self._prepared
        if self._tables.databases and may_be_here(self._tables, data, self._session.database):
            return self._take_text_of_rows(data)
        if (
            prepared is None
            or not self._publisher.accepts
            or not self._room.engine.has_room
            or prepared.domain.foreign
        ):
            return False
        text = self._machine.take_plain(data)
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
        self._session.committed_quickly(prepared.domain, None)
        return True

    def _take_text_of_rows(self, data: bytes) -> bool:
        if self._for_rows() is None:
            return False
        text = data[STATEMENT_AT:]
        change = self._change(text)
        if change is None or change.parameters:
            return False
        return self.take_rows(change, (), text, data)

    def _change(self, text: bytes | bytearray) -> QuickChange | None:
        """A statement on a table here that `take_rows` may take; None if it is none of these."""
        settings = self._session.settings_now()
        if (
            not self._tables.databases
            or self._sql.temporary
            or len(text) > TEXT_CHARS_MAX
            or not settings.is_plain
            or not settings.backslash_escapes
            or settings.ansi_quotes
        ):
            return None
        try:
            return quick_change(text.decode(), self._session.database, self._tables)
        except (NotQuick, UnicodeDecodeError):
            return None

    def ready(self, text: bytes, template: Template) -> QuickStatement | None:
        """A prepared statement for `take_rows`; None if it is no change of one row of a table here."""
        pieces = template.plain_pieces()
        if pieces is None or template.variables or not template.fits(self._session.settings_now()):
            return None
        change = self._change(text)
        if change is None or change.parameters != len(template.places):
            return None
        counted = f"stmt_execute {change.verb.lower()}".encode()
        return QuickStatement(change, template, pieces, bytes(text[: SHOWN_CHARS + 1]), counted)

    def is_ready(self, statement: QuickStatement) -> bool:
        """Whether it would be read so again: its table is the same, and so is what the session says."""
        if self._sql.temporary:
            return False
        databases, session = self._tables.databases, self._prepared_rows
        if (
            session is not None
            and session is statement.session
            and databases is statement.databases
        ):
            return True  # each of these is another object once anything in it changes
        settings, table = self._session.settings_now(), statement.change.table
        if (
            self._tables.find(table.database, table.name) is not table
            or statement.change.database != self._session.database
            or not statement.template.fits(settings)
            or not settings.is_plain
            or not settings.backslash_escapes
            or settings.ansi_quotes
        ):
            return False
        statement.session, statement.databases = session, databases
        return True

    def take_rows(
        self, change: QuickChange, given: Sequence[Given], text: bytes, data: bytes
    ) -> bool:
        """Change a row by a statement that is a transaction by itself, and commit that, without the long way.

        Args:
            change: read just now, or ready still.
            given: the parameters.
            text: the statement as it is logged.
            data: the packet that has brought it.

        False if it is not as plain as that: then nothing has happened.
        """
        rows, sql = self._prepared_rows or self._for_rows(), self._sql
        if (
            rows is None
            or not self._publisher.accepts
            or not self._room.engine.has_room
            or rows.domain.foreign
            or not (change.allowed is sql.grants or self._allows(change))
            or not self._machine.is_whole(data)
        ):
            return False
        run = Run(given, self._asks, self._tables, rows.numbers, rows.zero_is_a_value)
        try:
            changed = change.run(run)
            if changed is not None and not self._commit_row(rows, change, changed, text):
                return False
        except NotQuick:
            return False
        except (ServerError, StorageError) as error:
            self._machine.take_whole(data)
            self._client.refused(error if isinstance(error, ServerError) else not_written(error))
            return True
        self._machine.take_whole(data)
        if sql.diagnostics:
            sql.begin()
        if changed is None:
            info = Outcome(matched=run.matched).info(change.verb, 0)
            found = run.matched if self._machine.counts_found else 0
            self._session.answer(Answer(found, info=info))
            return True
        answer = ROW_UPDATED if change.kind is ChangeKind.UPDATE else INSERTED
        if run.generated:
            self._session.note_generated(run.generated)
        if run.insert_id:
            answer = Answer(1, insert_id=run.insert_id)
        self._session.committed_quickly(rows.domain, answer)
        return True

    def _allows(self, change: QuickChange) -> bool:
        sql = self._sql
        if not sql.may(change.verb) or (change.reads and not sql.may("SELECT")):
            return False
        change.allowed = sql.grants
        return True

    def _commit_row(
        self, rows: PreparedRows, change: QuickChange, changed: RowPair, text: bytes
    ) -> bool:
        tables, number = self._tables, change.table.number
        key, before, after = changed
        return self._publisher.commit_change(
            rows.domain,
            rows.group(change),
            rows.origin.server_id,
            text,
            (before or b"") + (after or b""),
            tables.append_of(number, changed),
            Writes({(number, key)}, tables.next_sync),
        )

    def _for_rows(self) -> PreparedRows | None:
        """See `prepare`; computed when it is asked for, and valid as long as the session's state is."""
        settings = self._session.settings_now()
        if (
            self._prepared_rows is None
            and self._machine.status == STATUS_AUTOCOMMIT
            and self._session.is_free
            and not self._sql.backup.is_active
            and not self._session.reads_only
            and self._sql.isolation is None
            and not settings.seq_no
            and settings.timestamp is None
            and settings.is_logged
            and self._session.logs_rows
            and "insert_id" not in self._sql.variables
        ):
            domain = self._publisher.domain(settings.domain_id)
            if domain.own:
                variables = self._sql.variables
                modes = variables.get("sql_mode", "").split(",")
                self._prepared_rows = PreparedRows(
                    domain,
                    settings.origin,
                    row_logging(variables),
                    auto_increment_of(variables),
                    "NO_AUTO_VALUE_ON_ZERO" in modes,
                )
        return self._prepared_rows

    def prepare(self) -> None:
        """Let the next statement go the quick way, if the state allows it."""
        settings = self._session.settings_now()
        if (
            self._prepared is None
            and not self._session.makes_databases
            and self._machine.status == STATUS_AUTOCOMMIT  # the flags in the quick answer
            and self._sql.may(*Kind.DML.needs)
            and not self._sql.backup.is_active
            and not self._session.reads_only
            and self._sql.isolation is None
            and not settings.seq_no
            and not settings.context
            and settings.timestamp is None
            and settings.is_logged
        ):
            domain = self._publisher.domain(settings.domain_id)
            if domain.own:
                group = QuickGroup(domain.id, settings.origin)
                self._prepared = Prepared(domain, group, settings.origin.server_id)
