"""Histories by chance: groups as a master logs them, and what whoever has applied them holds.

    history = random_history(7, groups=100)
    history.groups       the groups, in their order: each has events, a GTID, and words for it
    history.changes      the rows of its row events, in their order
    history.tables       the rows that are there at the end
    history.checksums    CHECKSUM TABLE of each

A history begins with a database for each of its domains, `random0` and `random1`, which replaces the one that is there:
it may follow whatever was logged. Domains share no table, for a replica applies them side by side.
"""

from __future__ import annotations

import random
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.column_type import BLOB_TYPES
from binlog_protocol.events.compressed import compressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import FLAG_SUPPRESS_USE, TYPE_OFFSET
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import Value
from binlog_protocol.events.statement_context import (
    IntvarEvent,
    IntvarKind,
    RandEvent,
    UserVarEvent,
)
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import KeyPart, RowMetadata
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.groups.moved_group import moved_group
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import U32_MAX, Gtid
from binlog_protocol.tables.definition import (
    PRIMARY,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
    json_check,
)
from binlog_protocol.tables.row_format import CHECKSUM_MODULUS, RowFormat
from binlog_protocol.tables.row_group import (
    LoggedTable,
    RowGroup,
    RowImage,
    RowLogging,
    RowStatement,
    TableChange,
)
from binlog_protocol.tables.sql_type import SqlType

from binlog_server.tables.definitions import column_text, create_text, quoted_name
from binlog_server.testing.random_columns import (
    UTF8MB4,
    Chance,
    RandomColumn,
    kinds_named,
    one_in,
    pick,
)

ENGINES: Final = ("InnoDB", "MyISAM", "Aria")
FORMATS: Final = ("ROW", "MIXED")
_BEGIN_S: Final = (
    1_700_000_000  # when the first group was logged: the same bytes for a seed at any time
)
_TABLES_MAX: Final = 5  # of a domain
_COLUMNS_MAX: Final = 8
_MANY_ROWS: Final = 300
_LARGEST_MAX: Final = 1 << 24
_PIECE_BYTES: Final = 16
_RAND_MAX: Final = 0x3FFFFFFF
_WIDER: Final = ("tinyint", "smallint", "mediumint", "int")
_BIGINT: Final = (20,)  # its width as it is printed
_TEXT_BYTES: Final = {1: 0xFF, 2: 0xFFFF}


@dataclass(frozen=True)
class Shape:
    """What may be in a history. Names are those of MariaDB's variables; None: now this, now that.

    groups: how many, behind a CREATE DATABASE and a CREATE TABLE of each domain; XA and ALTER in two phases are two.
    types: of columns, by name (`"int"`, `"json"`); none: all.
    largest: bytes of the largest value.
    binlog_format: MIXED has statements, too, on tables called `notes`.
    """

    groups: int = 50
    domains: Sequence[int] = (0, 1)
    server_ids: Sequence[int] = (1, 2)
    types: Sequence[str] = ()
    engines: Sequence[str] = ENGINES
    largest: int = 65_536
    binlog_format: str = "ROW"
    binlog_row_image: str | None = None
    binlog_row_metadata: str | None = None
    log_bin_compress: bool | None = None
    binlog_alter_two_phase: bool | None = None
    database: str = "random"

    def __post_init__(self) -> None:
        """Raises `BadValue`."""
        kinds_named(self.types)
        if self.groups < 0 or not 0 < self.largest <= _LARGEST_MAX:
            raise BadValue(f"groups {self.groups}, largest {self.largest} (1 to {_LARGEST_MAX})")
        for name, given in (("domains", self.domains), ("server_ids", self.server_ids)):
            if not given or any(not 0 <= one <= U32_MAX for one in given):
                raise BadValue(f"{name}: {given}")
        if len(set(self.domains)) != len(self.domains) or 0 in self.server_ids:
            raise BadValue(
                f"domains {self.domains} once each, server_ids {self.server_ids} without 0"
            )
        if not self.engines or set(self.engines) - set(ENGINES):
            raise BadValue(f"engines: {self.engines}; there are {', '.join(ENGINES)}")
        for name, allowed in (
            ("binlog_format", FORMATS),
            ("binlog_row_image", (None, *RowImage.__members__)),
            ("binlog_row_metadata", (None, *RowMetadata.__members__)),
        ):
            if getattr(self, name) not in allowed:
                raise BadValue(f"{name}: {getattr(self, name)!r} is none of {allowed}")


class HistoryGroup(NamedTuple):
    """A group in normal form, and what it does in words."""

    payload: bytes
    gtid: Gtid
    says: str


class HistoryChange(NamedTuple):
    """A row of a row event, whole whatever the event has of it. `was_undone`: by XA ROLLBACK."""

    gtid: Gtid
    table: str
    before: Mapping[str, Value] | None
    after: Mapping[str, Value] | None
    was_undone: bool = False


@dataclass(frozen=True)
class RandomHistory:
    """See above. Tables are called `database.table`; their rows stand in the order of `id`."""

    groups: tuple[HistoryGroup, ...]
    changes: tuple[HistoryChange, ...]
    tables: Mapping[str, list[dict[str, Value]]]
    checksums: Mapping[str, int]

    def __repr__(self) -> str:
        lines = "".join(f"\n  {group.gtid} {group.says}" for group in self.groups)
        return f"<{len(self.groups)} groups{lines}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis: it would print the fields of a dataclass, all bytes of all events."""
        printer.text(repr(self))

    @property
    def gtid_binlog_pos(self) -> str:
        """The position behind it, of its domains."""
        last = {group.gtid.domain_id: group.gtid for group in self.groups}
        return ",".join(str(gtid) for _, gtid in sorted(last.items()))

    def behind(self, last: Mapping[int, int]) -> RandomHistory:
        """The same with numbers that follow these last ones of its domains."""
        by = {
            domain: max(0, last.get(domain, 0) + 1 - first)
            for domain, first in self._first_numbers().items()
        }

        def moved(gtid: Gtid) -> Gtid:
            return gtid._replace(seq_no=gtid.seq_no + by[gtid.domain_id])

        return replace(
            self,
            groups=tuple(
                HistoryGroup(
                    moved_group(one.payload, by[one.gtid.domain_id]), moved(one.gtid), one.says
                )
                for one in self.groups
            ),
            changes=tuple(one._replace(gtid=moved(one.gtid)) for one in self.changes),
        )

    def _first_numbers(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for group in self.groups:
            found.setdefault(group.gtid.domain_id, group.gtid.seq_no)
        return found


class SeededChance:
    """The same numbers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


def random_history(seed: int | Chance, **shape: Any) -> RandomHistory:
    """A history of this `Shape`; the same for the same seed. Raises `BadValue`."""
    chance = SeededChance(seed) if isinstance(seed, int) else seed
    return _Maker(chance, Shape(**shape)).history()


class _Table:
    """A table as it is: its definition, and its rows by `id`."""

    def __init__(
        self, definition: StoredTable, number: int, kinds: dict[str, RandomColumn]
    ) -> None:
        """`kinds`: of its columns but `id`; one that has become wider gets the values that it had."""
        self.kinds = kinds
        self.rows: dict[int, tuple[Value, ...]] = {}
        self.next_id = 1
        self.define(definition, number)

    def define(self, definition: StoredTable, number: int) -> None:
        """Another definition; the rows stay, and are the caller's to fit."""
        self.definition = definition
        self.format = RowFormat(definition)
        self.logged = LoggedTable(
            self.format, number, is_transactional=definition.engine == ENGINES[0]
        )

    @property
    def name(self) -> str:
        return f"{self.definition.database}.{self.definition.name}"

    @property
    def sql(self) -> str:
        return f"{quoted_name(self.definition.database)}.{quoted_name(self.definition.name)}"

    def normal(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """As they are read again: a CHAR without spaces at its end."""
        return self.format.values(self.format.row(tuple(values)))

    def named(self, values: Sequence[Value] | None) -> dict[str, Value] | None:
        if values is None:
            return None
        return dict(zip((column.name for column in self.definition.columns), values, strict=True))

    def bytes_of(self, values: Sequence[Value] | None) -> bytes | None:
        return None if values is None else self.format.row(values)

    @property
    def checksum(self) -> int:
        split, row = self.format.split, self.format.row
        return (
            sum(self.format.checksum(split(row(one))) for one in self.rows.values())
            % CHECKSUM_MODULUS
        )


@dataclass
class _Domain:
    id: int
    database: str
    seq_no: int = 0
    tables: dict[str, _Table] = field(default_factory=dict)
    notes: _Table | None = None
    made: int = 0
    """Tables and columns that were given a name."""
    commit_id: int = 0
    together: set[str] = field(default_factory=set)
    """Tables that groups under this commit id have changed: they went on at one moment."""


class _Change(NamedTuple):
    table: _Table
    before: tuple[Value, ...] | None
    after: tuple[Value, ...] | None


class _Maker:
    """Makes one history."""

    def __init__(self, chance: Chance, shape: Shape) -> None:
        self.chance, self.shape = chance, shape
        self.kinds = kinds_named(shape.types)
        self.now = _BEGIN_S
        self.groups: list[HistoryGroup] = []
        self.changes: list[HistoryChange] = []
        self.table_id = 0
        self.xids = 0
        self.domains = [_Domain(one, f"{shape.database}{one}") for one in shape.domains]
        self.actions = [
            *([self._transaction] * 8), self._create, self._add_column, self._large, self._untransactional,
            self._drop_column, self._modify, self._rename_column, self._index, self._rename, self._truncate,
            self._drop, self._create_select, self._xa, self._xa,
        ]  # fmt: skip
        if shape.binlog_format == "MIXED":
            self.actions += [self._statements] * 5 + [self._load_data]

    def history(self) -> RandomHistory:
        for domain in self.domains:
            self._begin(domain)
        for _ in range(self.shape.groups):
            pick(self.chance, self.actions)(pick(self.chance, self.domains))
        tables = [
            table
            for domain in self.domains
            for table in (*domain.tables.values(), *filter(None, (domain.notes,)))
        ]
        held: dict[str, list[dict[str, Value]]] = {}
        for table in tables:
            ordered = sorted(table.rows.items())
            held[table.name] = [table.named(values) or {} for _, values in ordered]
        return RandomHistory(
            tuple(self.groups),
            tuple(self.changes),
            held,
            {one.name: one.checksum for one in tables},
        )

    # --- what all groups have ---

    def _origin(self) -> Origin:
        return Origin(pick(self.chance, self.shape.server_ids), thread_id=self.chance.number(1, 99))

    def _next(self, domain: _Domain, origin: Origin) -> Gtid:
        self.now += self.chance.number(0, 3)
        domain.seq_no += 1 + (self.chance.number(1, 1000) if one_in(self.chance, 20) else 0)
        return Gtid(domain.id, origin.server_id, domain.seq_no)

    def _add(self, gtid: Gtid, events: Iterable[bytes], says: str) -> None:
        is_compressed = self.shape.log_bin_compress
        if is_compressed is None:
            is_compressed = one_in(self.chance, 3)
        if is_compressed:
            events = [self._compressed(event) for event in events]
        self.groups.append(HistoryGroup(b"".join(events), gtid, says))

    def _compressed(self, event: bytes) -> bytes:
        """A statement that ends a group must be told without unpacking it."""
        is_query = event[TYPE_OFFSET] == EventType.QUERY
        if is_query and QueryEvent.parse(event).text.startswith((b"COMMIT", b"XA ", b"SAVEPOINT")):
            return event
        return compressed(event)

    def _ddl(self, domain: _Domain, text: str) -> None:
        """A statement that commits by itself."""
        self._end_run(domain)
        origin = self._origin()
        gtid = self._next(domain, origin)
        self._add(
            gtid,
            (origin.standalone_head(gtid, self.now), origin.statement(text.encode(), self.now)),
            text,
        )

    @staticmethod
    def _end_run(domain: _Domain) -> None:
        domain.together = set()

    # --- tables ---

    def _begin(self, domain: _Domain) -> None:
        name = quoted_name(domain.database)
        options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        self._ddl(domain, f"CREATE OR REPLACE DATABASE {name} {options}")
        if self.shape.binlog_format == "MIXED":
            columns = (
                _column("id", "int(11)", nullable=False, is_auto_increment=True),
                _column("a", "varchar(100)"),
                _column("n", "double"),
            )
            table = StoredTable(domain.database, "notes", columns, (_primary(0),), UTF8MB4)
            domain.notes = _Table(table, self._table_id(), {})
            self._ddl(domain, create_text(table, database=True))
        self._create(domain)

    def _new_table(self, domain: _Domain, engines: Sequence[str]) -> _Table:
        engine = pick(self.chance, engines)
        columns, checks, kinds = [_column("id", "int(11)", nullable=False)], [], {}
        for _ in range(self.chance.number(1, _COLUMNS_MAX)):
            kind = self._kind(engine)
            # A TIMESTAMP that is NOT NULL has a default of its own.
            nullable = kind.type.name == "timestamp" or not one_in(self.chance, 3)
            column = kind.column(self._name(domain, "c"), nullable=nullable)
            columns.append(column)
            kinds[column.name] = kind
            if kind.is_json:
                checks.append(json_check(column.name))
        definition = StoredTable(
            domain.database, self._name(domain, "t"), tuple(columns), (_primary(0),), UTF8MB4, engine,
            checks=tuple(checks),
        )  # fmt: skip
        table = domain.tables[definition.name] = _Table(definition, self._table_id(), kinds)
        return table

    def _table_id(self) -> int:
        self.table_id += 1
        return self.table_id

    def _name(self, domain: _Domain, letter: str) -> str:
        domain.made += 1
        odd = pick(self.chance, (None, None, None, None, None, None, "`", " ", "ä"))
        return f"{letter}{domain.made}" if odd is None else f"{letter}{odd}{domain.made}"

    def _kind(self, engine: str) -> RandomColumn:
        kind = pick(self.chance, self.kinds)
        if kind.has_own_checksum and engine != ENGINES[0]:
            return next((one for one in self.kinds if not one.has_own_checksum), kind)
        return kind

    def _create(self, domain: _Domain) -> None:
        if len(domain.tables) >= _TABLES_MAX:
            self._transaction(domain)
            return
        table = self._new_table(domain, self.shape.engines)
        self._ddl(domain, create_text(table.definition, database=True))

    def _some(self, domain: _Domain, *, is_transactional: bool | None = None) -> _Table | None:
        found = [
            table
            for table in domain.tables.values()
            if is_transactional in (None, table.logged.is_transactional)
        ]
        return pick(self.chance, found) if found else None

    def _drop(self, domain: _Domain) -> None:
        table = self._some(domain)
        if table is None or len(domain.tables) < 2:
            self._create(domain)
            return
        del domain.tables[table.definition.name]
        self._ddl(domain, f"DROP TABLE {table.sql}")

    def _truncate(self, domain: _Domain) -> None:
        table = self._some(domain)
        if table is not None:
            table.rows.clear()
            self._ddl(domain, f"TRUNCATE TABLE {table.sql}")

    def _rename(self, domain: _Domain) -> None:
        table = self._some(domain)
        if table is None:
            return
        old = table.sql
        del domain.tables[table.definition.name]
        table.define(replace(table.definition, name=self._name(domain, "t")), self._table_id())
        domain.tables[table.definition.name] = table
        self._ddl(domain, f"RENAME TABLE {old} TO {table.sql}")

    # --- ALTER TABLE ---

    def _alter(self, domain: _Domain, table: _Table, definition: StoredTable, text: str) -> None:
        """Rows must fit the new definition."""
        statement = f"ALTER TABLE {table.sql} {text}"
        table.define(definition, self._table_id())
        in_two = self.shape.binlog_alter_two_phase
        if not (one_in(self.chance, 4) if in_two is None else in_two):
            self._ddl(domain, statement)
            return
        self._end_run(domain)
        origin = self._origin()
        first = self._next(domain, origin)
        for gtid, flag, begun in (
            (first, GtidExtraFlags.START_ALTER, None),
            (None, GtidExtraFlags.COMMIT_ALTER, first.seq_no),
        ):
            this = gtid or self._next(domain, origin)
            flags2 = GtidFlags.STANDALONE | GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL
            head = GtidEvent(
                this,
                int(flags2),
                flags_extra=int(flag),
                start_alter_seq_no=begun,
                timestamp=self.now,
            )
            variables = StatusVariables(
                sql_mode=0,
                charset=(UTF8MB4,) * 3,
                alter_flags=int(flag),
                start_alter_seq_no=begun or 0,
            )
            told = replace(origin, status_variables=variables.build())
            events = (head.build(), told.statement(statement.encode(), self.now))
            self._add(this, events, f"{flag.name}: {statement}")

    def _add_column(self, domain: _Domain) -> None:
        table = self._some(domain)
        if table is None or len(table.definition.columns) > 2 * _COLUMNS_MAX:
            self._transaction(domain)
            return
        old = table.definition
        kind = self._kind(old.engine)
        column = kind.column(self._name(domain, "c"), nullable=True)
        table.kinds[column.name] = kind
        is_first = one_in(self.chance, 3)
        columns = (column, *old.columns) if is_first else (*old.columns, column)
        checks = (*old.checks, *((json_check(column.name),) if kind.is_json else ()))
        new = replace(
            old,
            columns=columns,
            checks=checks,
            keys=_moved_keys(old.keys, 1) if is_first else old.keys,
        )
        text = f"ADD COLUMN {column_text(column, new)}" + " FIRST" * is_first
        self._alter(domain, table, new, text)
        for number, row in table.rows.items():
            table.rows[number] = (None, *row) if is_first else (*row, None)

    def _column_of(self, table: _Table) -> int | None:
        """One that is not `id`, and in no key."""
        keyed = {part.column for key in table.definition.keys for part in key.parts}
        free = [i for i in range(len(table.definition.columns)) if i not in keyed]
        return pick(self.chance, free) if free else None

    def _drop_column(self, domain: _Domain) -> None:
        table = self._some(domain)
        at = None if table is None else self._column_of(table)
        if table is None or at is None or len(table.definition.columns) < 3:
            self._add_column(domain)
            return
        old = table.definition
        name = old.columns[at].name
        keys = tuple(
            replace(
                key,
                parts=tuple(
                    part._replace(column=part.column - (part.column > at)) for part in key.parts
                ),
            )
            for key in old.keys
        )
        new = replace(
            old,
            columns=old.columns[:at] + old.columns[at + 1 :],
            keys=keys,
            checks=tuple(check for check in old.checks if check[0] != name),
        )
        self._alter(domain, table, new, f"DROP COLUMN {quoted_name(name)}")
        for number, row in table.rows.items():
            table.rows[number] = row[:at] + row[at + 1 :]

    def _modify(self, domain: _Domain) -> None:
        """A column becomes wider; what it holds stays."""
        table = self._some(domain)
        found = None if table is None else self._wider(table)
        if table is None or found is None:
            self._transaction(domain)
            return
        at, column = found
        columns = list(table.definition.columns)
        columns[at] = column
        new = replace(table.definition, columns=tuple(columns))
        self._alter(domain, table, new, f"MODIFY COLUMN {column_text(column, new)}")

    def _wider(self, table: _Table) -> tuple[int, StoredColumn] | None:
        for at, column in enumerate(table.definition.columns):
            type_ = column.type
            if column.name == "id" or type_.compressed:
                continue
            if type_.name in _WIDER and any(kind.name == "bigint" for kind in self.kinds):
                return at, replace(column, type=replace(type_, name="bigint", numbers=_BIGINT))
            if type_.name in ("varchar", "varbinary") and type_.numbers[0] < 200:
                return at, replace(column, type=replace(type_, numbers=(type_.numbers[0] + 60,)))
        return None

    def _rename_column(self, domain: _Domain) -> None:
        table = self._some(domain)
        at = None if table is None else self._column_of(table)
        if table is None or at is None or table.definition.is_json(table.definition.columns[at]):
            self._transaction(domain)
            return
        columns = list(table.definition.columns)
        old = columns[at]
        columns[at] = replace(old, name=self._name(domain, "c"))
        table.kinds[columns[at].name] = table.kinds.pop(old.name)
        text = f"RENAME COLUMN {quoted_name(old.name)} TO {quoted_name(columns[at].name)}"
        self._alter(domain, table, replace(table.definition, columns=tuple(columns)), text)

    def _index(self, domain: _Domain) -> None:
        """A key more, or one less."""
        table = self._some(domain)
        if table is None:
            return
        old = table.definition
        plain = [key for key in old.keys if key.kind is KeyKind.PLAIN]
        if plain:
            keys = tuple(key for key in old.keys if key is not plain[0])
            self._alter(
                domain, table, replace(old, keys=keys), f"DROP KEY {quoted_name(plain[0].name)}"
            )
            return
        at = old.column_number("id")
        assert at is not None, "each table has one"
        key = StoredKey(self._name(domain, "k"), KeyKind.PLAIN, (KeyPart(at, 0),))
        self._alter(
            domain,
            table,
            replace(old, keys=(*old.keys, key)),
            f"ADD KEY {quoted_name(key.name)} (`id`)",
        )

    # --- rows ---

    def _row(self, table: _Table, number: int) -> tuple[Value, ...]:
        found: list[Value] = []
        for column in table.definition.columns:
            if column.name == "id":
                found.append(number)
            elif column.nullable and one_in(self.chance, 5):
                found.append(None)
            else:
                found.append(table.kinds[column.name].value(self.chance))
        return table.normal(found)

    def _insert(self, table: _Table) -> _Change:
        number = table.next_id
        table.next_id += 1
        table.rows[number] = self._row(table, number)
        return _Change(table, None, table.rows[number])

    def _change(self, table: _Table) -> _Change:
        what = self.chance.number(0, 2) if table.rows else 0
        if what == 0:
            return self._insert(table)
        number = pick(self.chance, list(table.rows))
        before = table.rows.pop(number)
        if what == 2:
            return _Change(table, before, None)
        # What has not changed is not logged.
        new = number if not one_in(self.chance, 5) else table.next_id
        after = self._row(table, new)
        if after == before or new != number:
            new, table.next_id = table.next_id, table.next_id + 1
            at = table.definition.column_number("id")
            assert at is not None, "each table has one"
            after = (*after[:at], new, *after[at + 1 :])
        table.rows[new] = after
        return _Change(table, before, after)

    def _statement(self, tables: Sequence[_Table]) -> list[_Change]:
        return [self._change(table) for table in tables for _ in range(self.chance.number(1, 3))]

    def _logging(self) -> RowLogging:
        image, metadata = self.shape.binlog_row_image, self.shape.binlog_row_metadata
        return RowLogging(
            RowImage[image] if image else pick(self.chance, list(RowImage)),
            RowMetadata[metadata]
            if metadata
            else pick(self.chance, (RowMetadata.FULL, RowMetadata.MINIMAL, RowMetadata.NO_LOG)),
        )

    def _row_events(
        self, changes: Sequence[_Change], origin: Origin, logging: RowLogging
    ) -> Iterator[bytes]:
        logged = [
            TableChange(
                one.table.logged, one.table.bytes_of(one.before), one.table.bytes_of(one.after)
            )
            for one in changes
        ]
        text = b"" if one_in(self.chance, 3) else _words(changes).encode("utf-8", "replace")
        return RowStatement.of(logged, text, self.now).events(origin, logging)

    def _note(self, gtid: Gtid, changes: Iterable[_Change], *, was_undone: bool = False) -> None:
        for table, before, after in changes:
            self.changes.append(
                HistoryChange(gtid, table.name, table.named(before), table.named(after), was_undone)
            )

    def _transaction(self, domain: _Domain) -> None:
        """One or several statements, each on one or two tables."""
        table = self._some(domain, is_transactional=True)
        if table is None:
            self._untransactional(domain)
            return
        statements = []
        for _ in range(self.chance.number(1, 3)):
            other = self._some(domain, is_transactional=True)
            tables = [table] if other is None or one_in(self.chance, 2) else [other]
            if other is not table and other is not None and one_in(self.chance, 3):
                tables = [table, other]
            statements.append(self._statement(tables))
        self._log(domain, statements)

    def _log(self, domain: _Domain, statements: Sequence[Sequence[_Change]]) -> None:
        origin = self._origin()
        gtid = self._next(domain, origin)
        changes = [one for statement in statements for one in statement]
        logging = self._logging()
        group = RowGroup(
            origin, gtid, _SOME, xid=self._xid(), commit_id=self._commit_id(domain, changes),
            flags=int(GtidFlags.WAITED) * one_in(self.chance, 10), is_parallel=not one_in(self.chance, 10),
            timestamp=self.now, logging=logging,
        )  # fmt: skip
        first, last = group.events()
        events = [first]
        for statement in statements:
            if one_in(self.chance, 8):
                events.append(origin.statement(b"SAVEPOINT `s`", self.now))
            events += self._row_events(statement, origin, logging)
        self._add(gtid, [*events, last], _words(changes))
        self._note(gtid, changes)

    def _xid(self) -> int:
        self.xids += 1
        return self.xids

    def _commit_id(self, domain: _Domain, changes: Sequence[_Change]) -> int | None:
        """The same for groups that share no table, as if they had been committed at one moment."""
        names = {one.table.name for one in changes}
        if one_in(self.chance, 2):
            self._end_run(domain)
            return None
        if not domain.together or domain.together & names:
            domain.commit_id = self._xid()
            domain.together = set()
        domain.together |= names
        return domain.commit_id

    def _untransactional(self, domain: _Domain) -> None:
        """A statement on a table without transactions."""
        table = self._some(domain, is_transactional=False)
        if table is None:
            if self._some(domain, is_transactional=True) is None:
                self._create(domain)
            else:
                self._transaction(domain)
            return
        self._end_run(domain)
        origin = self._origin()
        gtid = self._next(domain, origin)
        changes = self._statement([table])
        events = self._row_events(changes, origin, self._logging())
        begin, end = origin.begin_untransactional(gtid, self.now), origin.direct_end(self.now)
        self._add(gtid, [begin, *events, end], _words(changes))
        self._note(gtid, changes)

    def _create_select(self, domain: _Domain) -> None:
        """A table with its rows."""
        if len(domain.tables) >= _TABLES_MAX or ENGINES[0] not in self.shape.engines:
            self._create(domain)
            return
        self._end_run(domain)
        table = self._new_table(domain, ENGINES[:1])
        changes = [self._insert(table) for _ in range(self.chance.number(1, 4))]
        origin = self._origin()
        gtid = self._next(domain, origin)
        text = create_text(table.definition, database=True)
        events = [
            origin.begin_with_rows(gtid, self.now, is_direct=False),
            origin.statement(text.encode(), self.now),
            *self._row_events(changes, origin, self._logging()),
            origin.commit(self._xid(), self.now),
        ]
        self._add(gtid, events, f"{text} ... SELECT: {_words(changes)}")
        self._note(gtid, changes)

    def _large(self, domain: _Domain) -> None:
        """A large value where there is a column for it, or else many rows."""
        table = self._some(domain, is_transactional=True)
        if table is None:
            self._untransactional(domain)
            return
        change = self._insert(table)
        changes = [change]
        number = table.next_id - 1
        at = self._blob_of(table)
        row = table.rows[number]
        if at is not None:
            length = table.definition.columns[at].layout.size
            size = self.chance.number(
                1, min(self.shape.largest, _TEXT_BYTES.get(length, self.shape.largest))
            )
            value: Value = (
                "x" * size if table.definition.columns[at].type.is_text else b"\0x" * (size // 2)
            )
            row = table.rows[number] = table.normal((*row[:at], value, *row[at + 1 :]))
            changes = [_Change(table, None, row)]
        else:
            at_id = table.definition.column_number("id")
            assert at_id is not None, "each table has one"
            for _ in range(self.chance.number(1, _MANY_ROWS)):
                number, table.next_id = table.next_id, table.next_id + 1
                table.rows[number] = (*row[:at_id], number, *row[at_id + 1 :])
                changes.append(_Change(table, None, table.rows[number]))
        self._log(domain, [changes])

    def _blob_of(self, table: _Table) -> int | None:
        for at, column in enumerate(table.definition.columns):
            is_plain = not column.type.compressed and not table.definition.is_json(column)
            if is_plain and column.type.is_long and column.layout.type in BLOB_TYPES:
                return at
        return None

    def _xa(self, domain: _Domain) -> None:
        """Prepared in one group, committed or rolled back in the next one of its domain."""
        table = self._some(domain, is_transactional=True)
        if table is None:
            self._untransactional(domain)
            return
        self._end_run(domain)
        was_undone = one_in(self.chance, 3)
        old = dict(table.rows)
        changes = self._statement([table])
        if was_undone:
            table.rows = old
        origin = self._origin()
        xa_id = XaId(1, b"%d-%d" % (domain.id, self._xid()), b"b" * self.chance.number(0, 3))
        gtid = self._next(domain, origin)
        flags2 = GtidFlags.TRANSACTIONAL | GtidFlags.ALLOW_PARALLEL
        prepared = GtidEvent(
            gtid,
            int(flags2 | GtidFlags.PREPARED_XA),
            None,
            xa_id,
            extra_engines=0,
            timestamp=self.now,
        )
        events = [
            prepared.build(),
            *self._row_events(changes, origin, self._logging()),
            _unnamed(origin, f"XA END {xa_id.sql}", self.now),
            XaPrepareEvent(xa_id, origin.server_id, timestamp=self.now).build(),
        ]
        self._add(gtid, events, f"XA PREPARE: {_words(changes)}")
        self._note(gtid, changes, was_undone=was_undone)
        gtid = self._next(domain, origin)
        flags2 |= GtidFlags.STANDALONE | GtidFlags.COMPLETED_XA
        ended = GtidEvent(gtid, int(flags2), None, xa_id, timestamp=self.now)
        text = f"XA {'ROLLBACK' if was_undone else 'COMMIT'} {xa_id.sql}"
        self._add(gtid, [ended.build(), _unnamed(origin, text, self.now)], text)

    # --- statements ---

    def _statements(self, domain: _Domain) -> None:
        """A transaction of statements on `notes`, with what each of them needs to know."""
        table = domain.notes
        assert table is not None, "of MIXED"
        self._end_run(domain)
        origin = self._origin()
        gtid = self._next(domain, origin)
        events, said = [origin.begin(gtid, self.now)], []
        kinds = [
            self._literal,
            self._variable,
            self._random,
            self._last_id,
            self._update,
            self._delete,
        ]
        for _ in range(self.chance.number(1, 3)):
            context, text = pick(self.chance, kinds)(table, origin)
            statement = text.format(table=table.sql)
            events += [*context, origin.statement(statement.encode(), self.now)]
            said.append(statement)
        self._add(gtid, [*events, origin.commit(self._xid(), self.now)], "; ".join(said))

    def _note_row(self, table: _Table, origin: Origin, a: str | None, n: float | None) -> bytes:
        """A row that numbers itself; returns the event that says how."""
        number = table.next_id + (self.chance.number(1, 9) if one_in(self.chance, 4) else 0)
        table.next_id = number + 1
        table.rows[number] = (number, a, n)
        event = IntvarEvent(IntvarKind.INSERT_ID, number)
        return event.build(server_id=origin.server_id, timestamp=self.now)

    def _literal(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        value = pick(self.chance, ("a", "", "é", "😀"))
        return [
            self._note_row(table, origin, value, None)
        ], f"INSERT INTO {{table}} (a) VALUES ('{value}')"

    def _variable(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        value = pick(self.chance, ("a", None, "it's", "テ"))
        event = UserVarEvent(b"v", None if value is None else value.encode(), UTF8MB4)
        context = [
            self._note_row(table, origin, value, None),
            event.build(server_id=origin.server_id, timestamp=self.now),
        ]
        return context, "INSERT INTO {table} (a) VALUES (@v)"

    def _random(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        seed1, seed2 = (self.chance.number(0, _RAND_MAX - 1) for _ in range(2))
        value = (seed1 * 3 + seed2) % _RAND_MAX / _RAND_MAX
        context = [
            self._note_row(table, origin, None, value),
            RandEvent(seed1, seed2).build(server_id=origin.server_id, timestamp=self.now),
        ]
        return context, "INSERT INTO {table} (n) VALUES (RAND())"

    def _last_id(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        last = self.chance.number(0, 1 << 40)
        event = IntvarEvent(IntvarKind.LAST_INSERT_ID, last)
        context = [
            event.build(server_id=origin.server_id, timestamp=self.now),
            self._note_row(table, origin, None, float(last)),
        ]
        return context, "INSERT INTO {table} (n) VALUES (LAST_INSERT_ID())"

    def _update(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        text = pick(self.chance, ("u", "v"))
        for number, (_, _, n) in list(table.rows.items()):
            table.rows[number] = (number, text, n)
        return [], f"UPDATE {{table}} SET a = '{text}'"

    def _delete(self, table: _Table, origin: Origin) -> tuple[list[bytes], str]:
        number = pick(self.chance, list(table.rows) or [0])
        table.rows.pop(number, None)
        return [], f"DELETE FROM {{table}} WHERE id = {number}"

    def _load_data(self, domain: _Domain) -> None:
        """LOAD DATA: the file in pieces, then the statement."""
        table = domain.notes
        assert table is not None, "of MIXED"
        self._end_run(domain)
        origin = self._origin()
        gtid = self._next(domain, origin)
        lines = []
        for _ in range(self.chance.number(1, 4)):
            number, table.next_id = table.next_id, table.next_id + 1
            table.rows[number] = (number, f"line {number}", None)
            lines.append(f"{number}\tline {number}\n")
        content = "".join(lines).encode()
        begin, file, end = (
            "LOAD DATA ",
            "INFILE 'notes.txt'",
            f" INTO TABLE {table.sql} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' (id, a)",
        )
        query = QueryEvent(
            (begin + file + end).encode(), origin.server_id, domain.database.encode(), origin.status_variables,
            thread_id=origin.thread_id, timestamp=self.now,
        )  # fmt: skip
        file_id = self._xid()  # a replica has files of several groups at a time
        pieces = [
            LoadPiece(file_id, content[at : at + _PIECE_BYTES]).build(
                server_id=origin.server_id, timestamp=self.now, is_first=not at
            )
            for at in range(0, len(content), _PIECE_BYTES)
        ]
        # What stands behind LOAD DATA up to the end of INTO is the replica's to say.
        loads = ExecuteLoadQuery(query, file_id, len(begin) - 1, len(begin + file + " INTO"), 0)
        events = [
            origin.begin(gtid, self.now),
            *pieces,
            loads.build(),
            origin.commit(self._xid(), self.now),
        ]
        self._add(gtid, events, begin + file + end)


_SOME: Final = (RowStatement((), ()),)  # in the place of statements that are built one by one


def _unnamed(origin: Origin, text: str, now: int) -> bytes:
    """A statement for which the replica needs no database."""
    told = replace(origin, header_flags=FLAG_SUPPRESS_USE)
    return told.statement(text.encode(), now)


def _column(name: str, type_: str, **more: Any) -> StoredColumn:
    parsed = SqlType.parse(type_)
    return StoredColumn(
        name, parsed, collation=UTF8MB4 if parsed.is_text else BINARY_COLLATION, **more
    )


def _primary(column: int) -> StoredKey:
    return StoredKey(PRIMARY, KeyKind.PRIMARY, (KeyPart(column, 0),))


def _moved_keys(keys: Iterable[StoredKey], by: int) -> tuple[StoredKey, ...]:
    return tuple(
        replace(key, parts=tuple(part._replace(column=part.column + by) for part in key.parts))
        for key in keys
    )


def _words(changes: Sequence[_Change]) -> str:
    """In short."""
    said = []
    for table, before, after in changes[:5]:
        verb = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
        row = table.named(after if after is not None else before)
        said.append(f"{verb} {table.sql} {reprlib.repr(row)}")
    return "; ".join(said) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
