"""Statements about tables that are here: which these are, and what they do in a thread.

A database is here once CREATE DATABASE has made it here (`local_tables`); every statement on one of its tables is then
executed here, and logged as what it did. A database that is not here has no tables here: text about it is committed as
ever. A statement that is about both is refused (1235).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CannotReopenTable,
    ChangeWithoutKey,
    DatabaseAccessDenied,
    DatabaseExists,
    DelayedNotSupported,
    DuplicateEntry,
    DuplicateIndex,
    LockDeadlock,
    LockWaitExceeded,
    NoDatabaseSelected,
    NoSuchDatabase,
    NoSuchTable,
    NotSupportedYet,
    NotUniqueTable,
    QueryInterrupted,
    ServerError,
    SqlSyntaxError,
    TableAccessDenied,
    TableExists,
    TableFull,
    TableNotLocked,
    TableNotLockedForWrite,
    TableUsedTwice,
    UnknownDatabase,
    UnknownTable,
)
from binlog_protocol.events.rows import RowsFlags
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.token_reader import NotUnderstood, TableName, TokenReader
from binlog_protocol.sql.tokens import TokenKind, tokens
from binlog_protocol.tables.definition import StoredColumn, StoredTable, require_text
from binlog_protocol.tables.row_group import RowLogging, RowStatement, TableChange
from binlog_storage import errors as storage_errors
from binlog_storage.tables.locks import Mode
from binlog_storage.tables.store import LockBusy

from binlog_server.queries.catalog import SCHEMAS
from binlog_server.queries.terms import STRICT_MODES
from binlog_server.sql.inquiries import (
    Tables,
    asker_of,
    defining_asker,
    functions_of,
    result_of,
    tables_of,
)
from binlog_server.sql.statement_kind import HEAD_BYTES_MAX
from binlog_server.sql.table_shows import done_rows, failed_rows
from binlog_server.tables import held
from binlog_server.tables.alteration import AlteredTable, CopiedRows, read_alteration
from binlog_server.tables.cells import normal_default, require_on_update
from binlog_server.tables.changes import (
    STRICT,
    Changer,
    NotReplayed,
    Outcome,
    checks_of,
    duplicate,
    require_checks,
)
from binlog_server.tables.definitions import (
    ENGINE,
    SQLITE,
    Creation,
    CreationOfQuery,
    Database,
    TableHead,
    TableLike,
    create_database_text,
    create_text,
    create_verb,
    quoted_name,
    read_database,
    read_head,
    read_like,
    read_table,
    reader_of,
)
from binlog_server.tables.generated import (
    CHANGING,
    require_defaults,
    require_generated,
    require_one_kind_of_address,
)
from binlog_server.tables.held import HeldTable, HeldTables
from binlog_server.tables.indexed import KeyTaken, insert_row, row_of
from binlog_server.tables.paths import Path, path_of
from binlog_server.tables.query_columns import columns_of
from binlog_server.tables.rows import HeldRows, Reading, Shown

if TYPE_CHECKING:
    from binlog_protocol.groups.statement_group import Origin
    from binlog_storage.binlog.transaction import Savepoint, Transaction
    from binlog_storage.tables.store import LockWait, ReadView, TableTransaction

    from binlog_server.queries.binding import GivenTable
    from binlog_server.queries.parsing import Question
    from binlog_server.queries.running import ChangePlan, Checks
    from binlog_server.queries.terms import Asker
    from binlog_server.sql.sql_session import SqlSession
    from binlog_server.sql.view import ResultSet, Row
    from binlog_server.sql_commit.text_form import TextForm

T = TypeVar("T")
MAY_WAIT: Final = frozenset({"SLEEP", "GET_LOCK", "RELEASE_LOCK", "RELEASE_ALL_LOCKS"})
_CONDITIONS: Final = {
    "foreign_key_checks": RowsFlags.NO_FOREIGN_KEY_CHECKS,
    "unique_checks": RowsFlags.RELAXED_UNIQUE_CHECKS,
    "check_constraint_checks": RowsFlags.NO_CHECK_CONSTRAINT_CHECKS,
}
CHANGE_PROCESSOR_S: Final = 30.0
"""Processor time of an INSERT, UPDATE or DELETE, at most."""
_HEAD_TOKENS: Final = 400
_LISTED_TOKENS: Final = 4000  # of a list of tables: some milliseconds
_LISTING: Final = frozenset(("DROP", "RENAME", "ANALYZE", "OPTIMIZE", "REPAIR"))
_DDL_CHARS_MAX: Final = 1 << 20  # each word of it takes some 400 bytes while it is read
_SEARCHED_BYTES: Final = 4 << 20  # some milliseconds
_SELECT: Final = compiled_later(rb"\s*SELECT\b", re.IGNORECASE)
_LOCKING_BYTES: Final = 100
_LOCKING: Final = compiled_later(
    rb"\b(?:FOR\s+UPDATE|LOCK\s+IN\s+SHARE\s+MODE)(?:\s+(?:NOWAIT|SKIP\s+LOCKED|WAIT\s+\d+))?[\s;]*$",
    re.IGNORECASE,
)
_MODIFIERS: Final = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE")
_BEHIND_DELETE: Final = frozenset(("WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", ""))
UPKEEP: Final = ("ANALYZE", "OPTIMIZE", "REPAIR")
_WAYS_OF_UPKEEP: Final = ("QUICK", "EXTENDED", "USE_FRM", "FORCE", "NOWAIT")
_OF_ACCOUNTS: Final = frozenset(("GRANT", "REVOKE", "SET", "USER", "ROLE"))
GENERATED: Final = " /* generated by server */"


# --- which statements ---


@dataclass(frozen=True, slots=True)
class Target:
    """The table of an INSERT, UPDATE or DELETE. `is_alone`: no other one can be changed by it."""

    verb: str
    table: TableName
    is_alone: bool


class DdlKind(Enum):
    """What DDL is about, as far as it is known here."""

    CREATE_DATABASE = auto()
    DROP_DATABASE = auto()
    CREATE_TABLE = auto()
    DROP_TABLE = auto()
    TRUNCATE = auto()
    ALTER_TABLE = auto()
    RENAME_TABLE = auto()
    INDEX = auto()  # CREATE INDEX, DROP INDEX
    UPKEEP = auto()  # ANALYZE TABLE, OPTIMIZE TABLE, REPAIR TABLE
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Ddl:
    """DDL by its first words: the names that it is about."""

    kind: DdlKind
    names: Sequence[TableName] = ()
    if_exists: bool = False
    words: str = ""
    is_logged: bool = True  # False: NO_WRITE_TO_BINLOG, LOCAL
    is_long: bool = False  # only its beginning was read
    is_temporary: bool = False  # CREATE TEMPORARY, DROP TEMPORARY

    @property
    def databases(self) -> set[str]:
        """Those of the names."""
        return {name.database for name in self.names}


def may_be_here(tables: HeldTables, text: bytes | bytearray, database: str) -> bool:
    """Whether a statement may be about a database that is here; if not, it surely is not.

    It is asked on the loop: a long text is not searched for many names, as it may be about any of them.
    """
    names = tables.databases
    if database in names or len(names) * len(text) > _SEARCHED_BYTES:
        return True
    return any(quoted_name(name)[1:-1].encode() in text for name in names)


def _reader(
    text: bytes | bytearray,
    database: str,
    plain_text: Callable[[str], str],
    most: int = _HEAD_TOKENS,
) -> TokenReader:
    head = bytes(text[:HEAD_BYTES_MAX]).decode("utf-8", "replace")
    try:
        head = plain_text(head)
    except SqlSyntaxError:  # cut within a string
        head = plain(head)
    found = itertools.islice(tokens(head, ansi_quotes=False, is_logged=False), most)
    return TokenReader(list(found), database)


def target_of(
    text: bytes | bytearray, database: str, plain_text: Callable[[str], str]
) -> Target | None:
    """The table that DML changes; None if that cannot be told."""
    reader = _reader(text, database, plain_text)
    verb = reader.word()
    reader.at += 1
    try:
        while any(reader.accept(word) for word in _MODIFIERS):
            pass
        if verb in ("INSERT", "REPLACE"):
            reader.accept("INTO")
            return Target(verb, reader.name(), is_alone=True)
        if verb == "UPDATE":
            name = reader.name()
            if reader.word() not in ("SET", "") and not reader.is_at_end():
                reader.accept("AS")
                if reader.word() != "SET":
                    reader.identifier()
            return Target(verb, name, is_alone=reader.word() == "SET")
        if verb == "SELECT":
            while not reader.is_at_end() and reader.word() != "FROM":
                reader.skip_one()
            return Target(verb, reader.name(), is_alone=True) if reader.accept("FROM") else None
        if verb == "DELETE" and reader.accept("FROM"):
            name = reader.name()
            is_alone = not reader.is_sign(",") and reader.word() in _BEHIND_DELETE
            return Target(verb, name, is_alone=is_alone and not reader.is_sign("."))
    except NotUnderstood:
        pass
    return None


def is_locking_read(text: bytes | bytearray) -> bool:
    """Whether a statement is a SELECT that ends as one with locks does."""
    return _SELECT.match(text) is not None and _LOCKING.search(text[-_LOCKING_BYTES:]) is not None


def ddl_of(text: bytes | bytearray, database: str, plain_text: Callable[[str], str]) -> Ddl:
    """What DDL is about."""
    reader = _reader(text, database, plain_text)
    if len(reader.tokens) == _HEAD_TOKENS and reader.word() in _LISTING:
        reader = _reader(text, database, plain_text, _LISTED_TOKENS)
    words = " ".join(
        token.text.upper() for token in reader.tokens[:2] if token.kind is TokenKind.WORD
    )
    try:
        return _ddl(reader, words)
    except NotUnderstood:
        is_long = len(reader.tokens) == _LISTED_TOKENS or len(text) >= HEAD_BYTES_MAX
        return Ddl(DdlKind.OTHER, words=words, is_long=is_long)


def _ddl(reader: TokenReader, words: str) -> Ddl:
    verb = reader.word()
    reader.at += 1
    if verb in UPKEEP:
        return _upkeep(reader, words)
    if verb == "TRUNCATE":
        reader.accept("TABLE")
        return Ddl(DdlKind.TRUNCATE, [reader.name()], words=words)
    if verb == "ALTER":
        return _alter(reader, words)
    if verb == "RENAME" and (reader.accept("TABLE") or reader.accept("TABLES")):
        return _renames(reader, words)
    if verb == "CREATE":
        reader.accept("OR", "REPLACE")
    is_temporary = verb in ("CREATE", "DROP") and reader.accept("TEMPORARY")
    if verb in ("CREATE", "DROP") and (table := _table_of_index(reader)) is not None:
        return Ddl(DdlKind.INDEX, [table], words=words)
    is_database = reader.accept("DATABASE") or reader.accept("SCHEMA")
    is_table = not is_database and (reader.accept("TABLE") or reader.accept("TABLES"))
    if verb not in ("CREATE", "DROP") or not (is_database or is_table):
        return Ddl(DdlKind.OTHER, words=words)
    if_exists = reader.accept("IF", "EXISTS")
    reader.accept("IF", "NOT", "EXISTS")
    if is_database:
        kind = DdlKind.CREATE_DATABASE if verb == "CREATE" else DdlKind.DROP_DATABASE
        name = TableName(reader.identifier(), "")
        if kind is DdlKind.DROP_DATABASE:
            _require_end(reader)
        return Ddl(kind, [name], if_exists, words)
    names = [reader.name()]
    if verb == "CREATE":
        return Ddl(DdlKind.CREATE_TABLE, names, words=words, is_temporary=is_temporary)
    while reader.sign(","):
        names.append(reader.name())
    if not reader.accept("RESTRICT"):
        reader.accept("CASCADE")
    _require_end(reader)
    return Ddl(DdlKind.DROP_TABLE, names, if_exists, words, is_temporary=is_temporary)


def _alter(reader: TokenReader, words: str) -> Ddl:
    reader.accept("ONLINE")
    reader.accept("IGNORE")
    if not reader.accept("TABLE"):
        return Ddl(DdlKind.OTHER, words=words)
    if_exists = reader.accept("IF", "EXISTS")
    return Ddl(DdlKind.ALTER_TABLE, [reader.name()], if_exists, words)


def _upkeep(reader: TokenReader, words: str) -> Ddl:
    """ANALYZE TABLE, OPTIMIZE TABLE, REPAIR TABLE."""
    is_logged = not (reader.accept("NO_WRITE_TO_BINLOG") or reader.accept("LOCAL"))
    if not (reader.accept("TABLE") or reader.accept("TABLES")):
        return Ddl(DdlKind.OTHER, words=words)
    names = [reader.name()]
    while reader.sign(","):
        names.append(reader.name())
    while any(reader.accept(word) for word in _WAYS_OF_UPKEEP):
        pass
    if reader.accept("WAIT"):
        reader.at += 1
    _require_end(reader)
    return Ddl(DdlKind.UPKEEP, names, words=words, is_logged=is_logged)


def _renames(reader: TokenReader, words: str) -> Ddl:
    """The names of RENAME TABLE, in pairs."""
    if_exists = reader.accept("IF", "EXISTS")
    names: list[TableName] = []
    while True:
        names.append(reader.name())
        if not reader.accept("TO"):
            raise NotUnderstood(reader.shown())
        names.append(reader.name())
        if not reader.sign(","):
            _require_end(reader)
            return Ddl(DdlKind.RENAME_TABLE, names, if_exists, words)


def _table_of_index(reader: TokenReader) -> TableName | None:
    """The table of CREATE INDEX and DROP INDEX; None if it is neither."""
    at = reader.at
    reader.accept("UNIQUE")
    if not reader.accept("INDEX"):
        reader.at = at
        return None
    reader.skip_to("ON")
    return reader.name()


def _require_end(reader: TokenReader) -> None:
    while reader.sign(";"):
        pass
    if not reader.is_at_end():
        raise NotUnderstood(reader.shown())


_LOCK_WORDS: Final = ("LOW_PRIORITY", "CONCURRENT", "LOCAL")


def wished_locks(
    text: bytes | bytearray, database: str, plain_text: Callable[[str], str]
) -> dict[TableName, bool]:
    """The tables of LOCK TABLES, and which of them are to be written. Raises `SqlSyntaxError` (1064),
    `NotUniqueTable` (1066)."""
    reader = reader_of(plain_text(bytes(text).decode("utf-8", "replace")), database)
    reader.at += 2
    found: dict[TableName, bool] = {}
    aliases: set[tuple[str, str]] = set()
    try:
        while True:
            name = reader.name()
            alias = name.table
            if reader.accept("AS") or reader.word() not in ("READ", "WRITE", *_LOCK_WORDS):
                alias = reader.identifier()
            if (name.database, alias) in aliases:
                raise NotUniqueTable(alias)
            aliases.add((name.database, alias))
            reader.accept("LOW_PRIORITY")
            writes = reader.accept("WRITE")
            if not writes and not reader.accept("READ"):
                raise NotUnderstood(reader.shown())
            _ = reader.accept("CONCURRENT") if writes else reader.accept("LOCAL")
            found[name] = writes or found.get(name, False)
            if not reader.sign(","):
                break
        if reader.accept("WAIT"):
            reader.at += 1
        else:
            reader.accept("NOWAIT")
        _require_end(reader)
    except NotUnderstood as error:
        raise SqlSyntaxError(str(error)) from None
    return found


def mentions(
    tables: HeldTables, text: bytes | bytearray, database: str, plain_text: Callable[[str], str]
) -> bool:
    """Whether other DDL than is known here names a database that is here, or leaves it to the default one."""
    reader = _reader(text, database, plain_text)
    words = {token.text.upper() for token in reader.tokens[:2] if token.kind is TokenKind.WORD}
    if words & _OF_ACCOUNTS:
        return False
    qualified = [
        name.text
        for name, dot in itertools.pairwise(reader.tokens)
        if dot.kind is TokenKind.SIGN and dot.text == "." and name.kind is not TokenKind.SIGN
    ]
    bare = [
        name.text
        for word, name in itertools.pairwise(reader.tokens)
        if word.text.upper() in ("DATABASE", "SCHEMA")
    ]
    if any(name in tables.databases for name in (*qualified, *bare)):
        return True
    return not qualified and database in tables.databases


# --- rows, in a thread ---


@dataclass(slots=True)
class ChangeJob:
    """An INSERT, UPDATE or DELETE of a table here, with all that a thread needs. `text` is what is annotated.

    given: its tables, by schema and name as they are written.
    since, insert_id, takes_insert_id: see `Changer`.
    room: the most bytes of memory that the table may have, if it is a temporary one.
    returned: the rows of RETURNING, behind `run`.
    """

    tables: HeldTables
    table: HeldTable
    question: Question
    asker: Asker
    reading: Reading
    trx: TableTransaction
    events: Transaction
    origin: Origin
    text: bytes
    timestamp: int
    logging: RowLogging
    given: Tables
    numbers: tuple[int, int] = (1, 1)
    zero_is_a_value: bool = False
    since: ReadView | None = None
    insert_id: int = 0
    takes_insert_id: bool = False
    room: int = 0
    returned: ResultSet | None = None
    failure: ServerError | None = (
        None  # behind which what was done stays, as its table has no transactions
    )
    text_form: TextForm | None = None  # of what is logged in the place of rows
    needs_rows: bool = False  # a run has found that its text would not do
    _in_events: Savepoint = field(init=False)
    _in_rows: int = 0

    def run(self) -> Outcome | LockWait | None:
        """Make the changes and write their events; all or nothing. Or what is to be waited for, before `again`; or
        nothing: a table has been altered or dropped since it was looked up, which is to be done once more; or it
        `needs_rows`.

        Raises `ServerError`, `StorageError`.
        """
        self._in_events, self._in_rows = self.events.savepoint(), self.trx.savepoint()
        try:
            self.asker.budget.begin(CHANGE_PROCESSOR_S)
            for table in self._locked:
                self.trx.lock(table.number, None)
            # Who has changed a row has a share of the table's lock: the definition stays as it is now.
            outcome = self._run() if self._are_current(*self._locked) else None
            if outcome is None or not self._are_current(self.table):
                self._undo()
                return None
            self.events.release(self._in_events)
            return outcome
        except LockBusy as busy:
            return busy.wait
        except NotReplayed:
            self._undo()
            self.needs_rows = True
            return None
        except BaseException as error:
            self._undo()
            if isinstance(error, storage_errors.UnknownTable) and not self._are_current(
                self.table, *self._locked
            ):
                return None
            known = _as_server_error(error, self.table)
            if known is not None:
                raise known from error
            raise
        finally:
            self.reading.close()

    @property
    def _locked(self) -> Sequence[HeldTable]:
        return () if self.text_form is None else self.text_form.locked

    def _are_current(self, *tables: HeldTable) -> bool:
        return all(self.tables.is_current(table) for table in tables)

    def waited(self, wait: LockWait) -> None:
        """The wait is over: undo what was done of the statement, so that it can be run anew. Raises as `run`."""
        try:
            wait.result()
        except storage_errors.StorageError as error:
            raise _as_server_error(error, self.table) or error from error
        finally:
            self._undo()

    def _checks(self) -> Checks | None:
        if self.logging.conditions & RowsFlags.NO_CHECK_CONSTRAINT_CHECKS:
            return None
        return checks_of(self.table, self.asker)

    def _undo(self) -> None:
        self.events.rollback_to(self._in_events)
        self.events.release(self._in_events)
        if not self.trx.ended:
            self.trx.rollback_to(self._in_rows)

    def _run(self) -> Outcome:
        from binlog_server.queries.binding import bind_change
        from binlog_server.queries.parsing import said_of, wished_order

        modifiers = self.question.modifiers
        is_strict = self.asker.is_strict and "IGNORE" not in modifiers
        is_strict = is_strict and self.question.tree.key != "delete"  # which puts no value anywhere
        self.asker.errors = STRICT if is_strict else frozenset()
        if self.text_form is not None and self.text_form.seeds is not None:
            self.asker.rand_state = list(self.text_form.seeds)
        plan = bind_change(self.question, self.asker, lambda schema, name: self.given[schema, name])
        said = said_of(self.question, plan.where, self.asker)
        path = path_of(self.table, said, wished_order(self.question))
        if self.asker.is_safe:
            _require_safe(self.question.tree.key, plan, path)
        changer = Changer(
            self.tables,
            self.table,
            self.trx,
            plan,
            self.asker,
            path,
            self.numbers,
            self.zero_is_a_value,
            modifiers,
            self.question.lock,
            self.since,
            is_text=self.text_form is not None,
            insert_id=self.insert_id,
            checks=self._checks() if self.question.tree.key in ("insert", "update") else None,
        )
        made = {
            "insert": changer.inserted,
            "update": changer.updated,
            "delete": changer.deleted,
            "select": changer.selected,
        }
        changes = made[self.question.tree.key]()
        if self.table.is_temporary:
            changes = self._while_there_is_room(changes)
        if not self.table.is_transactional:
            changes = self._up_to_failure(changes)
        try:
            for event in self._events(changer, changes):
                self.events.write(event)
                changer.outcome.is_logged = True
        finally:
            self.takes_insert_id = changer.takes_insert_id
        if plan.returning is not None:
            self.returned = result_of(plan.returning, changer.returned)
        return changer.outcome

    def _events(self, changer: Changer, changes: Iterator[TableChange]) -> Iterator[bytes]:
        """What is logged of the changes, which are made meanwhile."""
        if self.table.is_temporary:
            for _ in changes:
                pass
            return
        first = next(changes, None)
        if self.text_form is None:
            if first is not None:
                logged = RowStatement(
                    itertools.chain((first,), changes),
                    (self.table.logged,),
                    self.text,
                    self.timestamp,
                )
                yield from logged.events(self.origin, self.logging)
            return
        for _ in changes:
            pass
        if self.asker.has_too_long:  # NULL here, where a replica may have more room
            raise NotReplayed
        failure = self.failure
        if failure is not None:
            if first is None:
                return
            # A replica goes through the rows of VALUES in this order; through those of a table perhaps in another.
            if failure.kind is not DuplicateEntry or not changer.plan.rows:
                raise NotReplayed
        yield from self.text_form.events(
            self.text,
            self.timestamp,
            changer.first_number,
            0 if failure is None else failure.errno,
        )

    def _while_there_is_room(self, changes: Iterator[TableChange]) -> Iterator[TableChange]:
        """Changes of a temporary table. Raises `TableFull` (1114)."""
        for change in changes:
            if self.tables.temporary_bytes(self.table) > self.room:
                raise TableFull(self.table.name)
            yield change

    def _up_to_failure(self, changes: Iterator[TableChange]) -> Iterator[TableChange]:
        try:
            yield from changes
        except ServerError as error:
            self.failure = error


def _require_safe(verb: str, plan: ChangePlan, path: Path) -> None:
    """Raises `ChangeWithoutKey` (1175) for what sql_safe_updates refuses."""
    if verb not in ("update", "delete"):
        return
    has_limit = plan.limit is not None and (verb == "update" or plan.where is not None)
    if path.takes_all and not has_limit:
        raise ChangeWithoutKey()


def _as_server_error(error: BaseException, table: HeldTable | None) -> ServerError | None:
    """The client's error for what the store raises about locks and tables; None for any other."""
    match error:
        case storage_errors.LockWaitTimeout():
            return LockWaitExceeded()
        case storage_errors.Deadlock():
            return LockDeadlock()
        case storage_errors.WaitGivenUp():
            return QueryInterrupted()
        case storage_errors.UnknownTable() if table is not None:
            return NoSuchTable(table.database, table.name)
    return None


class RowSide:
    """The rows of a session's open transaction, and the view that it reads by."""

    def __init__(self, tables: HeldTables, locks: LockedTables | None = None) -> None:
        self._tables = tables
        self.trx: Final[TableTransaction] = tables.store.begin(None if locks is None else locks.trx)
        self.trx.blocks = False
        self.view: ReadView | None = None
        self.is_used = False  # a statement has changed rows, perhaps
        self.cancel: Callable[[], None] | None = None  # ends the statement that runs in a thread
        self._working = threading.Lock()

    def alone(self, call: Callable[[], T]) -> Callable[[], T]:
        """The call behind any other that works with it, in a thread."""

        def called() -> T:
            with self._working:
                return call()

        return called

    def give_up(self) -> None:
        """End what runs or waits."""
        if self.cancel is not None:
            self.cancel()
        self.trx.give_up()

    def kept_view(self) -> ReadView:
        """The view of REPEATABLE READ, taken with the first look."""
        if self.view is None:
            self.view = self._tables.store.view()
        return self.view

    def ended(self) -> None:
        """The transaction is over: its view is not needed any longer."""
        view, self.view = self.view, None
        if view is not None:
            view.close()

    def roll_back(self) -> None:
        """Undo everything; in a thread, if it `is_used`."""
        self.ended()
        self.trx.rollback()


@dataclass(frozen=True, slots=True)
class LockedTables:
    """What LOCK TABLES of a session holds: the transaction that has the locks, and which tables may be written."""

    trx: TableTransaction
    may_write: Mapping[TableName, bool]

    def require_write(self, name: TableName) -> None:
        """Raises `TableNotLocked` (1100), `TableNotLockedForWrite` (1099)."""
        if name not in self.may_write:
            raise TableNotLocked(name.table)
        if not self.may_write[name]:
            raise TableNotLockedForWrite(name.table)


# --- definitions, in a thread ---


@dataclass(slots=True)
class DdlJob:
    """DDL about what is here. `run` does it in a transaction, in a thread; then `text` is logged, and `done` called.

    A job that has nothing to do has no `text`. `missing` is error 1051 behind what was done.
    asker: of a job that computes values, whose time is that of the logged statement.
    info: the text in the OK packet; `rows` are sent in its place.
    selected: what CREATE TABLE ... SELECT inserts.
    """

    tables: HeldTables
    work: Callable[[DdlJob, TableTransaction], None]
    text: str = ""
    affected: int = 0
    notes: list[ServerError] = field(default_factory=list)
    missing: ServerError | None = None
    done: Callable[[], None] = lambda: None
    asker: Asker | None = None
    info: bytes = b""
    rows: ResultSet | None = None
    selected: SelectedRows | None = None

    def run(self, trx: TableTransaction) -> LockWait | None:
        """Do it, or tell what is to be waited for, before `waited`. Raises `ServerError`, `StorageError`; the
        transaction is to be rolled back then."""
        try:
            if self.asker is not None:
                self.asker.budget.begin(math.inf)
                self.asker.warnings.clear()
                self.asker.notes.clear()
            self.notes.clear()
            self.tables.prepare_names()
            self.work(self, trx)
        except LockBusy as busy:
            return busy.wait
        except Exception as error:
            known = _as_server_error(error, None)
            if known is not None:
                raise known from error
            raise
        return None

    @staticmethod
    def waited(trx: TableTransaction, wait: LockWait) -> None:
        """The wait is over: undo what was done, so that it can be run anew. Raises as `run`."""
        try:
            wait.result()
        except storage_errors.StorageError as error:
            raise _as_server_error(error, None) or error from error
        trx.rollback_to(0)

    def note(self, error: ServerError) -> None:
        """It is no error, as the statement says IF."""
        self.notes.append(error)


def create_database(tables: HeldTables, database: Database, *, if_not_exists: bool) -> DdlJob:
    """CREATE DATABASE."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        try:
            if database.name.lower() in SCHEMAS:
                raise storage_errors.DuplicateKey(database.name)
            held.add_database(trx, database)
        except storage_errors.DuplicateKey:
            exists = DatabaseExists(database.name)
            if not if_not_exists:
                raise exists from None
            job.note(exists)
            return
        job.text, job.affected = create_database_text(database), 1
        job.done = lambda: tables.created(database)

    return DdlJob(tables, work)


def drop_database(tables: HeldTables, name: str, *, if_exists: bool) -> DdlJob:
    """DROP DATABASE."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        if trx.lock(held.NAMES, held.database_key(name)) is None:
            unknown = NoSuchDatabase(name)
            if not if_exists:
                raise unknown
            job.note(unknown)
            return
        prefix = held.table_key(name, "")
        names = []
        for key, _ in trx.scan(held.NAMES, prefix):
            if not key.startswith(prefix):
                break
            names.append(TableName(name, key.removeprefix(prefix).decode()))
        found = [table for one in names if (table := _locked(tables, trx, one)) is not None]
        for table in found:
            held.remove_table(trx, table)
        trx.delete(held.NAMES, held.database_key(name))
        job.text, job.affected = f"DROP DATABASE {quoted_name(name)}", len(found)
        job.done = lambda: tables.database_dropped(name)

    return DdlJob(tables, work)


def create_table(tables: HeldTables, wanted: Creation) -> DdlJob:
    """CREATE TABLE in a database that is here."""
    table = wanted.table

    def work(job: DdlJob, trx: TableTransaction) -> None:
        name = TableName(table.database, table.name)
        if not _lock_new(job, trx, name, wanted.if_not_exists, wanted.replaces):
            return
        made = tables.new_table(table, trx)
        held.add_table(trx, made)
        if wanted.first_number > 1:
            tables.note_number(made, wanted.first_number - 1, trx)
        for at, key in enumerate(table.keys):
            if any((key.kind, key.parts) == (other.kind, other.parts) for other in table.keys[:at]):
                job.note(DuplicateIndex(key.name))
        job.text = create_text(
            table, database=True, next_number=wanted.first_number, replaces=wanted.replaces
        )
        job.done = lambda: tables.created(made)

    return DdlJob(tables, work)


@dataclass(slots=True)
class SelectedRows:
    """The rows of CREATE TABLE ... SELECT.

    asker, reading, given: as `look` has found them; the tables by schema and name as they are written.
    table, columns: what was made, and the names of the columns that get the rows.
    has_rows: there are any.
    """

    wanted: CreationOfQuery
    question: Question
    asker: Asker | None = None
    reading: Reading | None = None
    given: dict[tuple[str | None, str], GivenTable] = field(default_factory=dict)
    table: HeldTable | None = None
    columns: Sequence[str] = ()
    has_rows: bool = False
    is_temporary: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether the group ends as one of tables without transactions: MariaDB logs one without rows so, too."""
        return not self.has_rows or (self.table is not None and not self.table.is_transactional)

    def look(self, session: SqlSession, tables: HeldTables, trx: TableTransaction) -> Asker:
        """Take what the query needs of the server, on the loop. Raises `ServerError`."""
        self.close()
        if waits := self.question.functions & MAY_WAIT:
            raise NotSupportedYet(f"{min(waits)}() in a statement that holds locks of rows")
        self.asker = asker = asker_of(session, self.question, ())
        asker.functions = {**functions_of(session, CHANGING), **asker.functions}  # of DEFAULT
        self.reading = Reading(tables.store, trx)
        self.given = dict(tables_of(session, self.question, asker, [self.reading]))
        if self.wanted.replaces and any(
            (one.database, one.name) == self.wanted.name and one.is_temporary == self.is_temporary
            for one in self._held
        ):
            if self.is_temporary:
                raise CannotReopenTable(self.wanted.name.table)
            raise TableUsedTwice(self.wanted.name.table, "CREATE")
        return asker

    @property
    def _held(self) -> list[HeldTable]:
        return [one.table for one in self.given.values() if isinstance(one, HeldRows)]

    def close(self) -> None:
        """No more reading."""
        if self.reading is not None:
            self.reading.close()

    def make(self, tables: HeldTables, asker: Asker, trx: TableTransaction) -> HeldTable:
        """The table, by the types of what is selected. Raises `ServerError`."""
        from binlog_server.queries.binding import bind

        asker.budget.begin(CHANGE_PROCESSOR_S)
        plan = bind(self.question, asker.again(), lambda schema, name: self.given[schema, name])
        read = [table.definition for table in self._held]
        made, self.columns = self.wanted.table(columns_of(plan, read, asker.collation))
        _require_computable(made, asker)
        if self.is_temporary:
            self.table = tables.new_temporary(made)
            return self.table
        if made.engine == SQLITE:
            raise NotSupportedYet(f"CREATE TABLE ... SELECT with ENGINE={SQLITE}")
        self.table = tables.new_table(made, trx)
        return self.table

    def insertion(self) -> Question:
        """The INSERT of the rows, parsed."""
        from binlog_server.queries.parsing import change

        verb = "REPLACE" if "REPLACE" in self.wanted.modifiers else "INSERT"
        ignore = "IGNORE " * ("IGNORE" in self.wanted.modifiers)
        names = ",".join(map(quoted_name, self.columns))
        target = f"{verb} {ignore}INTO {_quoted(self.wanted.name)} ({names})"
        return change(f"{target} {self.wanted.query}")


def create_of_query(tables: HeldTables, selected: SelectedRows) -> DdlJob:
    """CREATE TABLE ... SELECT: the table; its rows are inserted behind that, in the same transaction."""
    wanted = selected.wanted

    def work(job: DdlJob, trx: TableTransaction) -> None:
        if not _lock_new(job, trx, wanted.name, wanted.if_not_exists, wanted.replaces):
            return
        assert job.asker is not None
        made = selected.make(tables, job.asker, trx)
        held.add_table(trx, made)
        first = wanted.options.first_number
        if first > 1:
            tables.note_number(made, first - 1, trx)
        job.text = create_text(
            made.definition, database=True, next_number=first, replaces=wanted.replaces
        )
        job.done = lambda: tables.created(made)

    return DdlJob(tables, work, selected=selected)


def create_like(tables: HeldTables, wanted: TableLike) -> DdlJob:
    """CREATE TABLE ... LIKE in a database that is here. It is logged as such: replicas have that table, too."""
    name, source = wanted.name, wanted.source
    if name == source:
        raise NotUniqueTable(name.table)

    def work(job: DdlJob, trx: TableTransaction) -> None:
        if not _lock_new(job, trx, name, wanted.if_not_exists, wanted.replaces):
            return
        like = _locked(tables, trx, source, Mode.SHARED)
        if like is None:
            raise NoSuchTable(source.database, source.table)
        definition = replace(like.definition, database=name.database, name=name.table)
        made = tables.new_table(definition, trx)
        held.add_table(trx, made)
        verb = create_verb(replaces=wanted.replaces)
        job.text = f"{verb} {_quoted(name)} LIKE {_quoted(source)}"
        job.done = lambda: tables.created(made)

    return DdlJob(tables, work)


def _lock_new(
    job: DdlJob, trx: TableTransaction, name: TableName, if_not_exists: bool, replaces: bool
) -> bool:
    """Lock a name that a table is to get, which takes the place of another one if it `replaces`. False: there is one,
    and that will do. Raises `UnknownDatabase` (1049), `TableExists` (1050)."""
    if trx.lock(held.NAMES, held.database_key(name.database), Mode.SHARED) is None:
        raise UnknownDatabase(name.database)
    old = _locked(job.tables, trx, name)
    if old is None:
        return True
    if replaces:
        held.remove_table(trx, old)
        return True
    exists = TableExists(name.table)
    if not if_not_exists:
        raise exists
    job.note(exists)
    return False


def keep_up(tables: HeldTables, ddl: Ddl) -> DdlJob:
    """ANALYZE TABLE, OPTIMIZE TABLE, REPAIR TABLE: there is nothing to be done here; replicas do it."""
    verb = ddl.words.partition(" ")[0].lower()

    def work(job: DdlJob, trx: TableTransaction) -> None:
        rows: list[Row] = []
        for name in ddl.names:
            table, shown = _locked(tables, trx, name, Mode.SHARED), str(name)
            if table is None:
                rows += failed_rows(shown, verb, NoSuchTable(name.database, name.table))
                continue
            if verb == "optimize" and table.is_transactional:
                rows.append((shown, verb, "note", _RECREATED))
            is_old = (
                verb != "repair"
                and not table.is_transactional
                and next(trx.scan(table.number), None) is None
            )
            rows.append((shown, verb, "status", "Table is already up to date" if is_old else "OK"))
        job.rows = done_rows(rows)
        if ddl.is_logged:
            job.text = f"{verb.upper()} TABLE {','.join(map(_quoted, ddl.names))}"

    return DdlJob(tables, work)


_RECREATED: Final = "Table does not support optimize, doing recreate + analyze instead"


def lock_tables(tables: HeldTables, names: Sequence[TableName]) -> DdlJob:
    """LOCK TABLES: their rows and definitions are for that transaction alone, and for those that it is the patron of.

    READ is as WRITE: it keeps out who changes rows, and nobody else needs a lock.
    """

    def work(job: DdlJob, trx: TableTransaction) -> None:
        for name in sorted(names):  # in one order, so that two do not wait for each other
            table = _locked(tables, trx, name)
            if table is None:
                raise NoSuchTable(name.database, name.table)
            trx.lock(table.number, None)

    return DdlJob(tables, work)


def drop_tables(tables: HeldTables, names: Sequence[TableName], *, if_exists: bool) -> DdlJob:
    """DROP TABLE of tables in databases that are here: those that there are, and 1051 for the others."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        gone: list[HeldTable] = []
        missing: list[TableName] = []
        for name in names:
            table = _locked(tables, trx, name)
            if table is None:
                missing.append(name)
            else:
                held.remove_table(trx, table)
                gone.append(table)
        unknown = UnknownTable(",".join(map(str, missing))) if missing else None
        if unknown is not None and not if_exists:
            if not gone:
                raise unknown
            job.missing = unknown
        elif unknown is not None:
            job.note(unknown)
        logged = names if if_exists else [name for name in names if name not in missing]
        listed = ",".join(f"{quoted_name(n.database)}.{quoted_name(n.table)}" for n in logged)
        job.text = f"DROP TABLE {'IF EXISTS ' * if_exists}{listed}{GENERATED}"
        job.done = lambda: tables.dropped(gone)

    return DdlJob(tables, work)


def alter_table(
    tables: HeldTables,
    name: TableName,
    read: Callable[[StoredTable], AlteredTable],
    asker: Asker,
    *,
    if_exists: bool,
) -> DdlJob:
    """ALTER TABLE of a table that is here: another definition of its rows, or another table of what they become."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        old = _locked(tables, trx, name)
        if old is None:
            missing = NoSuchTable(name.database, name.table)
            if not if_exists:
                raise missing
            job.note(missing)
            return
        made = read(old.definition)
        for note in made.notes:
            job.note(note)
        new_name = TableName(made.table.database, made.table.name)
        if not made.text or (new_name == name and made.is_rename):
            job.info = b"" if made.clauses or made.is_about_keys else _copied(0, job)
            return
        if new_name != name:
            _lock_free(trx, new_name)
        trx.lock(old.number, None)
        count = 0
        if made.keeps_rows:
            new = HeldTable(old.number, made.table)
            if made.has_new_checks:
                _require_all(new, trx.scan(old.number), asker)
            held.redefine_table(trx, old, new)
            if new.definition.auto_increment != old.definition.auto_increment:
                _count_on(tables, new, trx.scan(new.number), trx)
        elif trx.has_patron:  # a new table takes its place, which nobody has locked
            raise NotSupportedYet("ALTER TABLE that makes rows anew, under LOCK TABLES")
        elif old.definition.engine == SQLITE:
            raise NotSupportedYet(f"ALTER TABLE that makes rows of ENGINE={SQLITE} anew")
        else:
            new = tables.new_table(made.table, trx)
            those = trx.scan(old.number)
            held.remove_table(trx, old)
            held.add_table(trx, new)
            count = _convert(trx, CopiedRows(old, new, made.sources, asker), those)
            if new.definition.auto_increment is not None:
                if old.definition.auto_increment is not None:
                    tables.note_number(new, tables.peek_number(old) - 1, trx)
                _count_on(tables, new, trx.scan(new.number), trx)
        if made.first_number is not None and made.first_number > 1:
            tables.note_number(new, made.first_number - 1, trx)
        job.affected = count if made.copies else 0
        job.info = b"" if made.is_rename else _copied(job.affected, job)
        job.text = made.text
        job.done = lambda: tables.renamed([(old, new)])

    return DdlJob(tables, work, asker=asker)


def _copied(records: int, job: DdlJob) -> bytes:
    warnings = len(job.notes) + (0 if job.asker is None else len(job.asker.warnings))
    return b"Records: %d  Duplicates: 0  Warnings: %d" % (records, warnings)


def _require_all(table: HeldTable, rows: Iterator[tuple[bytes, bytes]], asker: Asker) -> None:
    """Raises `CheckFailed` (4025) if a CHECK of the table is false for one of the rows."""
    checks, shown = checks_of(table, asker), Shown(table, asker.local)
    if checks is not None:
        for _, raw in rows:
            asker.budget.tick()
            require_checks(table, checks, shown.row(raw))


def _convert(
    trx: TableTransaction, conversion: CopiedRows, those: Iterator[tuple[bytes, bytes]]
) -> int:
    """Insert the rows of a table into the one that it becomes. Returns how many. Raises `ServerError`."""
    new, count = conversion.new, 0
    checks, shown = checks_of(new, conversion.asker), Shown(new, conversion.asker.local)
    for raw in conversion.rows(those):
        count += 1
        if checks is not None:
            require_checks(new, checks, shown.row(raw))
        try:
            insert_row(trx, new, row_of(new, raw))
        except KeyTaken as taken:
            raise duplicate(new, Shown(new, conversion.asker.local), raw, taken.key) from None
    return count


def _count_on(
    tables: HeldTables,
    table: HeldTable,
    rows: Iterator[tuple[bytes, bytes]],
    trx: TableTransaction,
) -> None:
    """Give the next AUTO_INCREMENT a number behind those of all rows."""
    auto = table.definition.auto_increment
    if auto is None:
        return
    used = 0
    for _, raw in rows:
        part = table.format.split(raw)[auto]
        number = None if part is None else table.format.decoded(auto, part)
        if isinstance(number, int | float):
            used = max(used, int(number))
    tables.note_number(table, used, trx)


def _lock_free(trx: TableTransaction, name: TableName) -> None:
    """Lock a name that a table is to get. Raises `UnknownDatabase` (1049), `TableExists` (1050)."""
    if trx.lock(held.NAMES, held.database_key(name.database), Mode.SHARED) is None:
        raise UnknownDatabase(name.database)
    if trx.lock(held.NAMES, held.table_key(name.database, name.table)) is not None:
        raise TableExists(name.table)


def rename_tables(tables: HeldTables, names: Sequence[TableName], *, if_exists: bool) -> DdlJob:
    """RENAME TABLE of tables that are here, one behind the other. `names`: in pairs."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        now: dict[TableName, HeldTable] = {}  # what has a new name already
        moved: dict[int, tuple[HeldTable, HeldTable]] = {}
        said: list[str] = []
        for name, new_name in zip(names[::2], names[1::2], strict=True):
            table = now.pop(name, None) or _locked(tables, trx, name)
            if table is None:
                missing = NoSuchTable(name.database, name.table)
                if not if_exists:
                    raise missing
                job.note(missing)
                continue
            _lock_free(trx, new_name)
            definition = replace(table.definition, database=new_name.database, name=new_name.table)
            new = now[new_name] = HeldTable(table.number, definition)
            held.redefine_table(trx, table, new)
            first = moved.get(table.number)
            moved[table.number] = (table if first is None else first[0], new)
            said.append(f"{_quoted(name)} TO {_quoted(new_name)}")
        if said:
            job.text = f"RENAME TABLE {', '.join(said)}"
            job.done = lambda: tables.renamed(moved.values())

    return DdlJob(tables, work)


def _quoted(name: TableName) -> str:
    return f"{quoted_name(name.database)}.{quoted_name(name.table)}"


def truncate(tables: HeldTables, name: TableName) -> DdlJob:
    """TRUNCATE of a table that is here: another one takes its place."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        table = _locked(tables, trx, name)
        if table is None:
            raise NoSuchTable(name.database, name.table)
        made = tables.new_table(table.definition, trx)
        held.remove_table(trx, table)
        held.add_table(trx, made)
        job.text = f"TRUNCATE TABLE {quoted_name(name.database)}.{quoted_name(name.table)}"
        job.done = lambda: tables.created(made)

    return DdlJob(tables, work)


def _locked(
    tables: HeldTables, trx: TableTransaction, name: TableName, mode: Mode = Mode.EXCLUSIVE
) -> HeldTable | None:
    """The table of that name, which nobody else can drop from now on; None if there is none."""
    row = trx.lock(held.NAMES, held.table_key(name.database, name.table), mode)
    if row is None:
        return None
    number = int.from_bytes(row, "big")
    known = tables.find(name.database, name.table)
    if known is not None and known.number == number and tables.is_current(known):
        return known
    return tables.read(number)  # it is so since just now


# --- a session's part ---


def parsed_change(text: str, target: Target, hold: Callable[[int], None]) -> Question:
    """DML as it is parsed; in a thread. Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235).

    Args:
        hold: is told how many bytes that may take, if it is large.
    """
    from binlog_server.queries.binding import changed_table
    from binlog_server.queries.parsing import change, locking_read

    question = locking_read(text) if target.verb == "SELECT" else change(text, hold)
    if "DELAYED" in question.modifiers:
        raise DelayedNotSupported(target.table.table)
    database, name = changed_table(question)
    if name != target.table.table or database not in (None, target.table.database):
        raise NotSupportedYet(f"{target.verb} in this form")
    return question


def require_on(session: SqlSession, privilege: str, table: TableName) -> None:
    """Raises `TableAccessDenied` (1142)."""
    if not session.may(privilege):
        user, _, host = session.account.rpartition("@")
        raise TableAccessDenied(privilege, user, host, table.database, table.table)


def require_for_change(session: SqlSession, target: Target, question: Question) -> None:
    """The privileges of a change. Raises `TableAccessDenied` (1142)."""
    from binlog_server.queries.binding import reads_values

    tree, table = question.tree, target.table
    found = session.find_table(*table)
    if found is not None and found.is_temporary:
        return
    needs = ["INSERT", "DELETE"] if target.verb == "REPLACE" else [target.verb]
    needs += ["UPDATE"] if tree.args.get("conflict") is not None else []
    if (
        any(tree.args.get(part) is not None for part in ("where", "conflict", "returning"))
        or question.reads_changed
        or reads_values(question)
    ):
        needs.append("SELECT")
    for privilege in needs:
        require_on(session, privilege, table)


def row_logging(variables: Mapping[str, str]) -> RowLogging:
    """How a session logs rows: whole, with full metadata."""
    conditions = 0
    for name, flag in _CONDITIONS.items():
        if variables.get(name) == "OFF":
            conditions |= flag
    return RowLogging(conditions=conditions)


def auto_increment_of(variables: Mapping[str, str]) -> tuple[int, int]:
    """auto_increment_increment and auto_increment_offset."""
    names = ("auto_increment_increment", "auto_increment_offset")
    return int(variables.get(names[0]) or 1), int(variables.get(names[1]) or 1)


def lock_wait(wait: LockWait, seconds: float) -> Iterator[asyncio.Future[Any]]:
    """The steps of a statement that waits for a lock, for so many seconds."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def soon() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end)

    wait.when_over(soon)
    timer = loop.call_later(seconds, wait.time_out)
    try:
        while not over.done():
            yield over
    finally:
        timer.cancel()


def ddl_job(session: SqlSession, tables: HeldTables, ddl: Ddl, text: str) -> DdlJob:
    """The work of DDL about what is here; in a thread: the text may be long.

    Raises `ServerError`: 1044, 1064, 1142, 1235, 1300, and what MariaDB refuses.
    """
    _require_length(text)
    first = ddl.names[0]
    if ddl.kind in (DdlKind.CREATE_DATABASE, DdlKind.DROP_DATABASE):
        privilege = ddl.kind.name.partition("_")[0]
        if not session.may(privilege):
            user, _, host = session.account.rpartition("@")
            raise DatabaseAccessDenied(user, host, first.database)
        if ddl.kind is DdlKind.DROP_DATABASE:
            return drop_database(tables, first.database, if_exists=ddl.if_exists)
        database, if_not_exists = read_database(text)
        return create_database(tables, database, if_not_exists=if_not_exists)
    if ddl.kind is DdlKind.CREATE_TABLE:
        return _create_job(session, tables, first, text)
    if ddl.kind in (DdlKind.ALTER_TABLE, DdlKind.INDEX):
        return _alter_job(session, tables, ddl, text)
    if ddl.kind is DdlKind.RENAME_TABLE:
        for name, new_name in zip(ddl.names[::2], ddl.names[1::2], strict=True):
            _require_rename(session, name, new_name)
        return rename_tables(tables, ddl.names, if_exists=ddl.if_exists)
    if ddl.kind is DdlKind.UPKEEP:
        for name in ddl.names:
            require_on(session, "SELECT", name)
            require_on(session, "INSERT", name)
        return keep_up(tables, ddl)
    for name in ddl.names:
        require_on(session, "DROP", name)
    if ddl.kind is DdlKind.TRUNCATE:
        return truncate(tables, first)
    return drop_tables(tables, ddl.names, if_exists=ddl.if_exists)


def _require_length(text: str) -> None:
    """Raises 1235, 1300."""
    if len(text) > _DDL_CHARS_MAX:
        raise NotSupportedYet(f"DDL of more than {_DDL_CHARS_MAX} characters, of what is here")
    require_text(text)


def _create_job(session: SqlSession, tables: HeldTables, name: TableName, text: str) -> DdlJob:
    require_on(session, "CREATE", name)
    database = session.database.decode("utf-8", "replace")
    copied = read_like(text, database)
    if copied is not None:
        if copied.replaces:
            require_on(session, "DROP", name)
        if session.temporary.find(*copied.source) is not None:
            raise NotSupportedYet(
                "CREATE TABLE ... LIKE a temporary table: use CREATE TABLE ... SELECT"
            )
        require_on(session, "SELECT", copied.source)
        return create_like(tables, copied)
    asker = defining_asker(session)

    try:
        made = read_table(
            text,
            database,
            lambda name: _collation_of(tables, name),
            lambda column, literal: normal_default(column, literal, asker),
        )
    except ServerError as error:
        if isinstance(error, SqlSyntaxError) or tables.find(*name) is None:
            raise
        return _refused_job(tables, read_head(text, database), error)
    if isinstance(made, CreationOfQuery):
        from binlog_server.queries.parsing import question

        require_on(session, "INSERT", name)
        if made.replaces:
            require_on(session, "DROP", name)
        return create_of_query(tables, SelectedRows(made, question(made.query)))
    _require_computable(made.table, asker)
    if made.replaces:
        require_on(session, "DROP", name)
    return create_table(tables, made)


def _refused_job(tables: HeldTables, head: TableHead, error: ServerError) -> DdlJob:
    """Of a table that cannot be here, but if there is one of its name, that is told first."""

    def work(job: DdlJob, trx: TableTransaction) -> None:
        if head.replaces or _lock_new(job, trx, head.name, head.if_not_exists, False):
            raise error

    return DdlJob(tables, work)


@dataclass(frozen=True, slots=True)
class TemporaryCreation:
    """What CREATE TEMPORARY TABLE says. `table` is made, and is in no session yet; or `selected` is to make it."""

    name: TableName
    if_not_exists: bool
    replaces: bool
    table: HeldTable | None = None
    selected: SelectedRows | None = None


def create_temporary(session: SqlSession, tables: HeldTables, text: str) -> TemporaryCreation:
    """CREATE TEMPORARY TABLE; in a thread. Raises `ServerError` as `ddl_job`."""
    _require_length(text)
    database = session.database.decode("utf-8", "replace")
    copied = read_like(text, database)
    if copied is not None:
        source = session.find_table(*copied.source)
        if source is None:
            raise NoSuchTable(copied.source.database, copied.source.table)
        if not source.is_temporary:
            require_on(session, "SELECT", copied.source)
        name = copied.name
        definition = replace(source.definition, database=name.database, name=name.table)
        if definition.engine == SQLITE:
            definition = replace(definition, engine=ENGINE)
        made = tables.new_temporary(definition)
        return TemporaryCreation(name, copied.if_not_exists, copied.replaces, made)
    asker = defining_asker(session)
    said = read_table(
        text,
        database,
        lambda name: _collation_of(tables, name),
        lambda column, literal: normal_default(column, literal, asker),
    )
    if isinstance(said, CreationOfQuery):
        from binlog_server.queries.parsing import question

        selected = SelectedRows(said, question(said.query), is_temporary=True)
        return TemporaryCreation(said.name, said.if_not_exists, said.replaces, selected=selected)
    _require_computable(said.table, asker)
    made = tables.new_temporary(said.table)
    made.next_number = said.first_number
    name = TableName(made.database, made.name)
    return TemporaryCreation(name, said.if_not_exists, said.replaces, made)


def _collation_of(tables: HeldTables, database: str) -> int:
    if not database:
        raise NoDatabaseSelected()
    found = tables.databases.get(database)
    if found is None:
        raise UnknownDatabase(database)
    return found.database.collation


def _require_computable(made: StoredTable, asker: Asker) -> None:
    """Raises `ServerError`: 1067, 1294, and 1235 for what cannot be computed, so that it is not made."""
    for column in made.columns:
        require_on_update(column)
    table = HeldTable(0, made)
    require_one_kind_of_address(made)
    checks_of(table, asker)
    require_generated(table, asker)
    require_defaults(table, asker)


def _require_rename(session: SqlSession, name: TableName, new_name: TableName) -> None:
    for privilege, table in (
        ("ALTER", name),
        ("DROP", name),
        ("CREATE", new_name),
        ("INSERT", new_name),
    ):
        require_on(session, privilege, table)


def _alter_job(session: SqlSession, tables: HeldTables, ddl: Ddl, text: str) -> DdlJob:
    (name,) = ddl.names
    require_on(session, "INDEX" if ddl.kind is DdlKind.INDEX else "ALTER", name)
    asker = defining_asker(session)
    # What replicas compute anew must not depend on what their statement does not tell.
    asker = replace(asker, now=float(int(asker.now)), modes=asker.modes & STRICT_MODES)
    default = session.database.decode("utf-8", "replace")

    def normal(column: StoredColumn, literal: str) -> str:
        return normal_default(column, literal, asker)

    def read(old: StoredTable) -> AlteredTable:
        made = read_alteration(text, default, old, normal)
        _require_computable(made.table, asker)
        new_name = TableName(made.table.database, made.table.name)
        if new_name != name:
            _require_rename(session, name, new_name)
        return made

    return alter_table(tables, name, read, asker, if_exists=ddl.if_exists)
