"""The databases and tables that this server holds, by name; and the numbers that they have in the row store.

Three tables of the store are the server's own:

=======  ==========  =================================  ==============================================
number   table       key                                row
=======  ==========  =================================  ==============================================
0        the store's number of a table                  its definition (`stored_definition.py`)
1        names       database                           its collation, 2 bytes
1        names       database, 00, table                the number of the table, 4 bytes
2        counters    number of a table                  its next AUTO_INCREMENT, 8 bytes
2        counters    nothing                            the number of the next table, 4 bytes
n        a table     its primary key                    the row (`row_format.py`)
n + 1..  an index    a key, see `HeldTable.entry`       the primary key of its row
=======  ==========  =================================  ==============================================

A table has as many numbers as it has unique keys, and one; the others are those of their indexes, in the order of the
keys. (The last two rows: numbers from 1024 on.)

A name is locked by who creates or drops it, as any row. What is in memory here is what is committed; it is changed on
the loop, when the group of a statement is appended.

A counter is moved by a transaction of its own, before the rows that have its numbers: numbers of rows that are rolled
back are not given again, and a crash finds the counter no lower than any row.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet, ProtocolError
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.tables.definition import (
    Generation,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
)
from binlog_protocol.tables.row_format import RowFormat, Values
from binlog_protocol.tables.row_group import LoggedTable
from binlog_protocol.tables.stored_definition import definition_bytes, parse_definition
from binlog_storage.errors import WaitGivenUp
from binlog_storage.tables.rows import CATALOG, ELSEWHERE, TEMPORARY

from binlog_server.queries import types
from binlog_server.queries.catalog import ColumnDefinition, TableDefinition
from binlog_server.queries.types import Type
from binlog_server.tables.definitions import DIRECT_ENGINES, MEMORY, SQLITE, Database
from binlog_server.tables.keyless import NO_KEY, KeylessFormat

if TYPE_CHECKING:
    from binlog_protocol.gtid import BinlogState, Gtid
    from binlog_storage.binlog.decision import Decision
    from binlog_storage.binlog.stored_tables import TableEngine
    from binlog_storage.binlog.transaction import GroupSink
    from binlog_storage.engine import Position, Xid
    from binlog_storage.tables.store import (
        ReadView,
        TableStore,
        TableTransaction,
        TransactionFacts,
    )

NAMES: Final = 1
COUNTERS: Final = 2
FIRST_TABLE: Final = 1024
_OWN: Final = {NAMES: b"\0names", COUNTERS: b"\0counters"}
_NEXT_TABLE: Final = b""
_INDEX: Final = b"\0index"  # the definition of an index
_COLLATION_BYTES: Final = 2
_NUMBER_BYTES: Final = 4
_COUNTER_BYTES: Final = 8
_LOOK_S: Final = 0.2  # a wait for who counts looks so often whether it is to end
BASE_TABLE: Final = "BASE TABLE"
TEMPORARY_TABLE: Final = "TEMPORARY"
_NATIVE: Final = {name: code for code, name in types.NATIVE.items()}
_Move = Callable[[int], tuple[int, int]]


class RowPair(NamedTuple):
    """A row becomes another one; None: there is none."""

    key: bytes
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True)
class HeldDefinition(TableDefinition):
    """A table here as questions see it."""

    table: HeldTable = field(kw_only=True)

    @cached_property
    def columns(self) -> list[Type]:
        """The types of its columns; texts have their collations."""
        found = []
        for kind, column in zip(super().columns, self.table.definition.columns, strict=True):
            collation = column.collation if column.type.is_text else 0
            code = types.LABEL if column.type.labels is not None else kind.code
            code = _NATIVE.get(column.type.name, code)
            is_json = self.table.definition.is_json(column)
            kind = replace(kind, collation=collation, code=code, is_json=is_json)
            if kind.column is not None and (is_json or code in types.NATIVE):
                kind = replace(kind, column=kind.told(kind.column))
            found.append(kind)
        return found


class Index(NamedTuple):
    """The index of a unique key, and its number in the store."""

    number: int
    key: StoredKey


class HeldTable:
    """A table: its number in the store, its definition, and what is made of that once."""

    def __init__(self, number: int, definition: StoredTable) -> None:
        self.number: Final = number
        self.definition: Final = definition
        key = definition.primary_key
        self.format: Final = KeylessFormat(definition) if key is None else RowFormat(definition)
        self.is_transactional: Final = definition.engine not in (*DIRECT_ENGINES, MEMORY)
        self.logged: Final = LoggedTable(
            self.format, number, is_transactional=self.is_transactional
        )
        self.stored: Final = definition_bytes(definition)
        """Its definition as the store has it."""
        self.key: Final[StoredKey] = NO_KEY if key is None else key
        unique = (key for key in definition.keys if key.kind is KeyKind.UNIQUE)
        self.indexes: Final = tuple(Index(number + at, key) for at, key in enumerate(unique, 1))
        """Of its unique keys, in the order in which a row is looked at for duplicates."""
        self.next_number = 1  # for AUTO_INCREMENT, of a temporary one

    def entry(self, index: Index, values: Values, primary: bytes) -> bytes:
        """The key of a row in an index: that of the index, with the primary one behind it where NULL in it allows more
        than one row. So an index has all rows, in their order.

        Raises `BadValue`.
        """
        key = self.format.key(values, index.key)
        return key if self.format.is_unique(values, index.key) else key + primary

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def database(self) -> str:
        return self.definition.database

    @cached_property
    def declared(self) -> HeldDefinition:
        """Its declaration, for questions."""
        definitions = [
            ColumnDefinition(
                column.name,
                str(column.type),
                collation_name(column.collation) if column.type.is_text else "",
                column.nullable,
                column.default,
                self._key_of(i),
                _extra(column),
                in_keys=self._in_keys(i),
                comment=column.comment,
                expression=column.expression or None,
            )
            for i, column in enumerate(self.definition.columns)
        ]
        kind = TEMPORARY_TABLE if self.is_temporary else BASE_TABLE
        return HeldDefinition(
            self.database, self.name, kind, self.definition.engine, definitions, table=self
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether another engine keeps its rows."""
        return bool(self.number & ELSEWHERE)

    @property
    def is_temporary(self) -> bool:
        """Whether one session has it for itself: see `TemporaryTables`."""
        return bool(self.number & TEMPORARY)

    def _key_of(self, number: int) -> str:
        if any(part.column == number for part in self.key.parts):
            return "PRI"
        found = self._in_keys(number)
        return next((word for word in ("UNI", "MUL") if word in found), "")

    def _in_keys(self, number: int) -> frozenset[str]:
        """What a column is in keys but the primary one: the first of one (UNI alone, else MUL), any of one (PART)."""
        found = set()
        for key in self.definition.keys:
            if any(part.column == number for part in key.parts):
                found.add("PART")
            if key.kind is not KeyKind.PRIMARY and key.parts[0].column == number:
                found.add("UNI" if key.is_unique and len(key.parts) == 1 else "MUL")
        return frozenset(found)


def _extra(column: StoredColumn) -> str:
    if column.generation is not Generation.NONE:
        return f"{column.generation.name} GENERATED"
    words = ["auto_increment"] if column.is_auto_increment else []
    if column.on_update is not None:
        words.append(f"on update {column.on_update}")
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class HeldDatabase:
    """A database and its tables by name."""

    database: Database
    tables: Mapping[str, HeldTable] = field(default_factory=dict)


class HeldTables:
    """All of them. `databases` is replaced, never changed: who has it may go on with it in a thread."""

    def __init__(self, engine: TableEngine | None) -> None:
        """Read what is committed; without an engine there are none. Raises `ProtocolError` for what no server like
        this one has written."""
        self._engine = engine
        self.line = asyncio.Lock()
        """For commits by two phases: one at a time, in the order of the binlog."""
        self.databases: Mapping[str, HeldDatabase] = {}
        self._counting = threading.Lock()
        self._gate: asyncio.Future[None] | None = None
        self.at_work = 0
        """Statements that change or lock rows, or are about to."""
        if engine is not None:
            self._load()

    @property
    def store(self) -> TableStore:
        """The row store."""
        assert self._engine is not None
        return self._engine.tables

    def writer_of(self, trx: TableTransaction) -> GroupSink:
        """For the events of a transaction: their commit is its commit."""
        assert self._engine is not None
        return self._engine.writer_of(trx)

    def consistent_snapshot(self) -> tuple[ReadView, Position, BinlogState]:
        """All rows as they are committed now, and where the binlog ends, with its state there."""
        assert self._engine is not None
        return self._engine.consistent_snapshot()

    @property
    def next_sync(self) -> int:
        """See `TableEngine`."""
        assert self._engine is not None
        return self._engine.next_sync

    def append_of(self, table: int, change: RowPair) -> Callable[[bytes, Gtid, int], object]:
        """What commits a group with the change of one row; false if that cannot be done at once.

        Raises as `EngineWriter.append`.
        """
        assert self._engine is not None
        return partial(self._engine.append_change, table, *change)

    @contextlib.contextmanager
    def going_elsewhere(self) -> Iterator[None]:
        """Inside of the block new statements wait, but for those of transactions that are open. On the loop."""
        gate = self._gate = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._gate = None
            gate.set_result(None)

    def gate(self, *, is_open: bool) -> asyncio.Future[None] | None:
        """What a statement has to wait for before it begins. `is_open`: its transaction is."""
        if self._gate is None or (is_open and self._engine and not self._engine.tables.is_paused):
            return None
        return self._gate

    @property
    def has_any(self) -> bool:
        """Whether there is a database here; without one no statement is about tables here."""
        return bool(self.databases)

    def transactions(self) -> list[TransactionFacts]:
        """The transactions that have changed rows, and not ended."""
        return [] if self._engine is None else self._engine.tables.transactions()

    def find(self, database: str, name: str) -> HeldTable | None:
        """The table of that name."""
        found = self.databases.get(database)
        return None if found is None else found.tables.get(name)

    def read(self, number: int) -> HeldTable:
        """The table of a number, as it is in the store."""
        row = self.store.newest(CATALOG, number_key(number))
        if row is None:
            raise ProtocolError(f"table {number} has no definition")
        return HeldTable(number, parse_definition(row))

    def _load(self) -> None:
        with self.store.view() as view:
            numbered = self.store.tables(view)
            if NAMES not in numbered:
                return
            names = list(self.store.scan(NAMES, view=view))
        made: dict[str, HeldDatabase] = {}
        tables: dict[str, dict[str, HeldTable]] = {}
        for key, row in names:
            database, separator, _ = key.partition(b"\0")
            text = database.decode()
            if not separator:
                made[text] = HeldDatabase(Database(text, int.from_bytes(row, "big")))
                continue
            number = int.from_bytes(row, "big")
            definition = numbered.get(number)
            if definition is None:
                raise ProtocolError(
                    f"table {key!r} has the number {number}, which has no definition"
                )
            table = HeldTable(number, parse_definition(definition))
            tables.setdefault(text, {})[table.name] = table
        self.databases = {
            name: HeldDatabase(found.database, tables.get(name, {})) for name, found in made.items()
        }

    # --- what statements change, each in its transaction; in a thread ---

    def prepare_names(self) -> None:
        """Make the server's own tables, if this is the first database."""
        with self._counting:
            if self.store.get(CATALOG, number_key(NAMES)) is not None:
                return
            trx = self.store.begin()
            for number, definition in _OWN.items():
                trx.create_table(number, definition)
            trx.put(COUNTERS, _NEXT_TABLE, FIRST_TABLE.to_bytes(_NUMBER_BYTES, "big"))
            trx.commit()

    def new_table(self, definition: StoredTable, trx: TableTransaction) -> HeldTable:
        """A table with numbers that no other one has had; to be added in a transaction, see `add_table`."""
        count = 1 + sum(key.kind is KeyKind.UNIQUE for key in definition.keys)
        number = self._count(
            COUNTERS, _NEXT_TABLE, FIRST_TABLE, _NUMBER_BYTES, lambda now: (now, now + count), trx
        )
        if definition.engine == SQLITE:
            self._make_row_keeper()
            number |= ELSEWHERE
        return HeldTable(number, definition)

    def new_temporary(self, definition: StoredTable) -> HeldTable:
        """A table that is in memory alone, and has no name here. Raises `NotSupportedYet` (1235)."""
        if definition.engine == SQLITE:
            raise NotSupportedYet(f"a temporary table with ENGINE={SQLITE}, which keeps rows")
        count = 1 + sum(key.kind is KeyKind.UNIQUE for key in definition.keys)
        return HeldTable(self.store.make_temporary(count), definition)

    def drop_temporary(self, table: HeldTable) -> None:
        """Forget such a table and its rows."""
        self.store.drop_temporary(table.number, 1 + len(table.indexes))

    def temporary_bytes(self, table: HeldTable) -> int:
        """What the rows of such a table take of the memory."""
        return self.store.temporary_bytes(table.number, 1 + len(table.indexes))

    def _make_row_keeper(self) -> None:
        assert self._engine is not None
        if not self._engine.make_row_keeper():
            raise NotSupportedYet(f"ENGINE={SQLITE} in this store")

    def begin_two_phase(self, trx: TableTransaction, *, is_xa: bool = False) -> Decision:
        """See `TableEngine`."""
        assert self._engine is not None
        return self._engine.begin_two_phase(trx, is_xa=is_xa)

    def completing_two_phase(self, xid: Xid) -> Decision | None:
        """See `TableEngine`."""
        return None if self._engine is None else self._engine.completing_two_phase(xid)

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """See `TableEngine`."""
        assert self._engine is not None
        return self._engine.decide_prepared(decision, xid, gtid_event, gtid)

    def finish_two_phase(self, decision: Decision) -> None:
        """See `TableEngine`."""
        assert self._engine is not None
        self._engine.finish_two_phase(decision)

    def is_current(self, table: HeldTable) -> bool:
        """Whether a table is in the store as it is here. Behind its lock, so that it stays so."""
        if table.is_temporary:
            return self.store.has(table.number)
        row = self.store.newest(CATALOG, number_key(table.number))
        return row == table.stored

    def next_numbers(
        self,
        table: HeldTable,
        count: int,
        step: int = 1,
        offset: int = 1,
        trx: TableTransaction | None = None,
    ) -> int:
        """The first of so many numbers for AUTO_INCREMENT, which nobody else gets: the smallest that are `offset`
        and some steps, as auto_increment_increment and auto_increment_offset say. `trx`: for whom."""

        def move(now: int) -> tuple[int, int]:
            first = now if offset > step else now + (offset - now) % step
            return first, first + (count - 1) * step + 1

        return self._move_counter(table, move, trx)

    def peek_number(self, table: HeldTable) -> int:
        """The next number for AUTO_INCREMENT."""
        if table.is_temporary:
            return table.next_number
        row = self.store.newest(COUNTERS, number_key(table.number))
        return 1 if row is None else int.from_bytes(row, "big")

    def note_number(self, table: HeldTable, used: int, trx: TableTransaction | None = None) -> None:
        """A row has this number: the next one is higher. `trx`: that of the row."""
        if used >= self.peek_number(table):
            self._move_counter(table, lambda now: (now, max(now, used + 1)), trx)

    def _move_counter(self, table: HeldTable, move: _Move, trx: TableTransaction | None) -> int:
        if table.is_temporary:  # of one session, which does one thing at a time
            found, table.next_number = move(table.next_number)
            return found
        return self._count(COUNTERS, number_key(table.number), 1, _COUNTER_BYTES, move, trx)

    def _count(
        self,
        table: int,
        key: bytes,
        first: int,
        size: int,
        move: _Move,
        served: TableTransaction | None,
    ) -> int:
        own = self.store.begin()
        if served is not None:
            own.served = served
            served.begin_waiting()
        # Who counts may wait for room in the log; others must be able to give up behind that one.
        while not self._counting.acquire(timeout=_LOOK_S):
            if served is not None and served.is_given_up():
                raise WaitGivenUp("another one counts, and waits for room")
        try:
            row = self.store.newest(table, key)
            found, behind = move(first if row is None else int.from_bytes(row, "big"))
            own.put(table, key, min(behind, (1 << 8 * size) - 1).to_bytes(size, "big"))
            own.commit()
            return found
        except BaseException:
            own.rollback()  # else its locks stay for ever
            raise
        finally:
            self._counting.release()

    # --- what they have changed, when it is committed; on the loop ---

    def renamed(self, moved: Iterable[tuple[HeldTable, HeldTable]]) -> None:
        """Tables have become others: have other names, or other definitions."""
        pairs = list(moved)
        self.dropped([old for old, _ in pairs])
        for _, new in pairs:
            self.created(new)

    def created(self, what: Database | HeldTable) -> None:
        """A database or table is there."""
        if isinstance(what, Database):
            self.databases = {**self.databases, what.name: HeldDatabase(what)}
            return
        found = self.databases[what.database]
        tables = {**found.tables, what.name: what}
        ordered = {name: tables[name] for name in sorted(tables)}
        self.databases = {**self.databases, what.database: HeldDatabase(found.database, ordered)}

    def dropped(self, gone: Iterable[HeldTable]) -> None:
        """Tables are gone."""
        of_each: dict[str, list[HeldTable]] = {}
        for table in gone:
            of_each.setdefault(table.database, []).append(table)
        for name, those in of_each.items():
            found, ids = self.databases[name], {id(table) for table in those}
            left = {n: one for n, one in found.tables.items() if id(one) not in ids}
            self.databases = {**self.databases, name: HeldDatabase(found.database, left)}

    def database_dropped(self, name: str) -> None:
        """A database is gone, with all of its tables."""
        self.databases = {other: one for other, one in self.databases.items() if other != name}


def number_key(number: int) -> bytes:
    """The key of a table's counter."""
    return number.to_bytes(_NUMBER_BYTES, "big")


def database_key(name: str) -> bytes:
    """The key of a database's name."""
    return name.encode()


def table_key(database: str, name: str) -> bytes:
    """The key of a table's name."""
    return database.encode() + b"\0" + name.encode()


def add_database(trx: TableTransaction, database: Database) -> None:
    """Create a database in a transaction. Raises `DuplicateKey`."""
    row = database.collation.to_bytes(_COLLATION_BYTES, "big")
    trx.insert(NAMES, database_key(database.name), row)


def add_table(trx: TableTransaction, table: HeldTable) -> None:
    """Create a table in a transaction, its name locked already. Raises `DuplicateKey`."""
    trx.insert(NAMES, table_key(table.database, table.name), number_key(table.number))
    trx.create_table(table.number, definition_bytes(table.definition))
    for index in table.indexes:
        trx.create_table(index.number, _INDEX + number_key(table.number))


def redefine_table(trx: TableTransaction, old: HeldTable, new: HeldTable) -> None:
    """Give a table another definition for the same rows, and perhaps another name, which is locked already."""
    trx.lock(old.number, None)
    trx.put(CATALOG, number_key(old.number), definition_bytes(new.definition))
    if (old.database, old.name) != (new.database, new.name):
        trx.delete(NAMES, table_key(old.database, old.name))
        trx.insert(NAMES, table_key(new.database, new.name), number_key(new.number))


def remove_table(trx: TableTransaction, table: HeldTable) -> None:
    """Drop a table in a transaction; waits for all who have changed rows of it."""
    trx.drop_table(table.number)
    for index in table.indexes:
        trx.drop_table(index.number)
    trx.delete(NAMES, table_key(table.database, table.name))
