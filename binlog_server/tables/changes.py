"""INSERT, REPLACE, UPDATE and DELETE of a table here: a plan becomes changes of rows, each made as it is told.

Rows are found as they are committed now, with the changes of the own transaction; a row that another transaction has
changed and not committed is looked at as it was, as InnoDB does it in READ COMMITTED. A row for which the conditions
hold is changed, which waits for its lock; if it is another one then, the conditions are asked again.

A row of an INSERT that has a value of a unique key that another row has is an error; with IGNORE a warning; with
ON DUPLICATE KEY UPDATE the other row is updated. REPLACE deletes the other row, and tries again; if the key is the last
one that a row is looked at for, it is updated in one step (so do real servers, and so it is logged). A number that
AUTO_INCREMENT gave for a row that was not inserted goes to the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    AllowedPacketOverflowed,
    AutoIncrementUsedUp,
    CheckFailed,
    ColumnNotNull,
    ColumnTwice,
    CutValue,
    DivisionByZero,
    DuplicateEntry,
    GeneratedValueIgnored,
    ServerError,
    TruncatedValue,
)
from binlog_protocol.events.rows import Value
from binlog_protocol.tables.definition import StoredKey
from binlog_protocol.tables.row_format import CHECKSUM_MODULUS
from binlog_protocol.tables.row_group import TableChange
from binlog_storage.errors import LockWaitTimeout
from binlog_storage.tables.locks import Mode

from binlog_server.queries import values
from binlog_server.queries.running import ChangePlan, Checks
from binlog_server.queries.terms import Asker, LockWish, Term, constant
from binlog_server.queries.types import Type
from binlog_server.tables.cells import Cells, entry_text, implicit_default
from binlog_server.tables.generated import Defaults, Generated
from binlog_server.tables.held import HeldTable, HeldTables
from binlog_server.tables.indexed import (
    KeyTaken,
    Row,
    delete_row,
    insert_row,
    row_of,
    update_row,
)
from binlog_server.tables.paths import ALL_ROWS, Path
from binlog_server.tables.rows import Newest, Reading, Shown

if TYPE_CHECKING:
    from binlog_storage.tables.store import ReadView, TableTransaction

_ROW_BYTES: Final = 128
_INTEGER_BYTES: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_NUMBERS_MAX: Final = 65535  # of AUTO_INCREMENT that are taken at once for rows of a SELECT
STRICT: Final = frozenset(
    kind.errno for kind in (TruncatedValue, DivisionByZero, AllowedPacketOverflowed, CutValue)
)
"""What is a warning in a question, and an error where rows are changed; but with IGNORE."""
_Found = tuple[bytes, bytes]


class NotReplayed(Exception):
    """A replica that gets the statement's text might not do the same."""


@dataclass(slots=True)
class Outcome:
    """What a statement has done: for the OK packet.

    Attributes:
        records: rows that an INSERT was given; `is_list` if these are more than one, or of a SELECT.
        duplicates: of them, those that met another row.
        generated: the first number that AUTO_INCREMENT gave to a row that is there.
        insert_id: that, or what LAST_INSERT_ID(x) has set, or the number of the last row.
        is_logged: a row has changed.
        unchanged: rows that an INSERT met and that its ON DUPLICATE KEY UPDATE left as they were.
        counts_found: the client wants the number of rows that were met, changed or not (CLIENT_FOUND_ROWS).
        units: of each run of the statement its `generated` and `told`, where they are wanted.
    """

    affected: int = 0
    matched: int = 0
    records: int = 0
    duplicates: int = 0
    is_list: bool = False
    generated: int = 0
    insert_id: int = 0
    is_logged: bool = False
    unchanged: int = 0
    counts_found: bool = False
    units: list[tuple[int, int]] | None = None

    def told(self, verb: str) -> int:
        """The number of rows in the OK packet."""
        if not self.counts_found:
            return self.affected
        return self.matched if verb == "UPDATE" else self.affected + self.unchanged

    def add(self, other: Outcome, verb: str) -> None:
        """The same statement has run once more."""
        if self.units is not None:
            other.counts_found = self.counts_found
            self.units.append((other.generated, other.told(verb)))
        self.affected += other.affected
        self.matched += other.matched
        self.unchanged += other.unchanged
        self.records += other.records
        self.duplicates += other.duplicates
        self.is_list = self.is_list or other.is_list or self.records > 1
        self.generated = self.generated or other.generated
        self.insert_id = self.insert_id or other.insert_id

    def info(self, verb: str, warnings: int) -> bytes:
        """The text in the OK packet."""
        if self.is_list:
            counts = self.records, self.duplicates, warnings
            return b"Records: %d  Duplicates: %d  Warnings: %d" % counts
        if verb == "UPDATE":
            counts = self.matched, self.affected, warnings
            return b"Rows matched: %d  Changed: %d  Warnings: %d" % counts
        return b""


@dataclass(slots=True)
class Changer:
    """One statement on one table.

    numbers: auto_increment_increment and auto_increment_offset.
    zero_is_a_value: sql_mode NO_AUTO_VALUE_ON_ZERO.
    modifiers, lock: see `Question`.
    since: the view behind which no row may have changed that the statement looks at (1020); None: any may have.
    insert_id: what SET INSERT_ID says: the first number that AUTO_INCREMENT gives; 0 if nothing. `takes_insert_id`: one
        was given.
    is_text: its text is to be logged, so a replica must give the same numbers when it is told `first_number`, the first
        that AUTO_INCREMENT gave. Raises `NotReplayed` where that is not sure.
    """

    tables: HeldTables
    table: HeldTable
    trx: TableTransaction
    plan: ChangePlan
    session: Asker
    path: Path = ALL_ROWS
    numbers: tuple[int, int] = (1, 1)
    zero_is_a_value: bool = False
    modifiers: frozenset[str] = frozenset()
    lock: LockWish | None = None
    since: ReadView | None = None
    is_text: bool = False
    first_number: int | None = None
    checks: Checks | None = None
    insert_id: int = 0
    takes_insert_id: bool = False
    outcome: Outcome = field(default_factory=Outcome)
    returned: list[Sequence[Any]] = field(default_factory=list)
    _unused: list[int] = field(default_factory=list)  # numbers of rows that were not inserted
    _rows_of_query: int = 0
    _number: int | None = None  # what AUTO_INCREMENT gave to the row that is being inserted
    _cells: Cells = field(init=False)
    _shown: Shown = field(init=False)
    _newest: Newest = field(init=False)
    _computed: Generated = field(init=False)
    _defaults: Defaults = field(init=False)

    def __post_init__(self) -> None:
        is_strict = self.session.is_strict and not self._ignores
        self._cells = Cells(self.table.definition, self.session, is_strict)
        self._shown = Shown(self.table, self.session.local)
        self._computed = Generated(self.table, self.session, self._cells, self._shown)
        self._defaults = Defaults(self.table, self.session, self._cells, self._shown)
        self._newest = Newest(self.trx, self.since if self.table.is_transactional else None)

    # --- INSERT ---

    def inserted(self) -> Iterator[TableChange]:
        """Insert the rows of the plan. Raises `ServerError`, `StorageError`."""
        plan, table = self.plan, self.table
        if len(set(plan.columns)) < len(plan.columns):
            twice = next(c for i, c in enumerate(plan.columns) if c in plan.columns[:i])
            raise ColumnTwice(table.definition.columns[twice].name)
        is_replacing, outcome = "REPLACE" in self.modifiers, self.outcome
        if plan.query is not None:
            kinds = [output.kind for output in plan.query.outputs]
            self._check_once([*zip(plan.columns, kinds, strict=True), *self._assigned_kinds()])
        elif self._cells.is_strict:
            for column, kind in self._assigned_kinds():
                self._cells.check(column, kind)
        generate = self._generator()
        unnamed = self._unnamed()
        outcome.is_list = plan.query is not None or len(plan.rows) > 1
        for number, terms in enumerate(self._given_rows(), 1):
            self.session.budget.tick()
            outcome.records += 1
            self._number = None
            self._forgive_behind_the_first()
            row = self._new_row(terms, number, generate, unnamed)
            if row is None:
                self._give_back()
                outcome.records -= 1
                continue
            self._newest.require_unchanged(table, row.key)
            if is_replacing:
                changes = self._replace(row)
            elif plan.changed is not None:
                changes = self._insert_or_update(row, number)
            else:
                changes = self._insert(row)
            for change in changes:
                if change.after is not None:
                    self._inserted(change.after)
                yield change
        if not outcome.affected:
            outcome.insert_id = self.session.new_insert_id or 0

    def _new_row(
        self,
        terms: Sequence[Term | None],
        number: int,
        generate: Iterator[int],
        unnamed: dict[int, Value],
    ) -> Row | None:
        """A row to insert; None if IGNORE passes over it, as a CHECK does not want it."""
        try:
            made = self._new_values(terms, number, generate, unnamed)
        except ServerError as error:
            self._pass_check(error)
            return None
        row = row_of(self.table, self.table.format.row(made))
        return row if self._passes(row.raw) else None

    def _forgive_behind_the_first(self) -> None:
        """A row of a table without transactions is there, and stays: from then on values that do not fit are warnings,
        but with STRICT_ALL_TABLES."""
        if (
            self.outcome.affected
            and not self.table.is_transactional
            and "STRICT_ALL_TABLES" not in self.session.modes
        ):
            self._cells = replace(self._cells, is_strict=False)

    def _assigned_kinds(self) -> Iterator[tuple[int, Type]]:
        plan = self.plan
        columns = plan.changed if plan.changed is not None else plan.columns
        assigned = plan.assigned or [None] * len(columns)
        for column, term in zip(columns, assigned, strict=True):
            if term is not None:
                yield column, term.kind

    def _check_once(self, given: Iterable[tuple[int, Type]]) -> None:
        """4078 in front of all rows, as no value of these types is taken; of generated columns none counts."""
        for column, kind in given:
            if column not in self._computed.numbers:
                self._cells.check(column, kind)
        self._cells = replace(self._cells, is_checked=True)

    def _given_rows(self) -> Iterator[Sequence[Term | None]]:
        """A term for each column, of each row. What a SELECT gives is there before the first row is changed."""
        query = self.plan.query
        if query is None:
            yield from self.plan.rows
            return
        kinds = [output.kind for output in query.outputs]
        rows = query.run()
        self._rows_of_query = len(rows)
        for row in rows:
            yield [constant(kind, value) for kind, value in zip(kinds, row, strict=True)]

    def _inserted(self, raw: bytes) -> None:
        """A row is there, as an INSERT has left it: count it, for LAST_INSERT_ID() and RETURNING."""
        outcome, auto = self.outcome, self.table.definition.auto_increment
        if self._number is not None:
            outcome.generated = outcome.generated or self._number
            if self.takes_insert_id:
                self.tables.note_number(self.table, self._number, self.trx)
            self._number = None
        if auto is not None:
            at = self.table.format.split(raw)[auto]
            value = 0 if at is None else self.table.format.decoded(auto, at)
            if self.plan.query is not None and self.plan.changed is not None:
                value = 0
            new = self.session.new_insert_id
            outcome.insert_id = outcome.generated or new or int(str(value)) & values.U64_MAX
        self._return(raw)

    def _return(self, raw: bytes) -> None:
        """A row of RETURNING."""
        outputs = self.plan.returning
        if outputs is not None:
            self.session.budget.make(_ROW_BYTES * (1 + len(outputs)))
            self.plan.current[0] = self._shown.row(raw)
            self.returned.append([output.term.value() for output in outputs])

    def _give_back(self) -> None:
        """The row is not inserted: its number goes to the next one."""
        if self._number is not None:
            self._unused.append(self._number)
            self._number = None

    def _insert(self, row: Row) -> Iterator[TableChange]:
        outcome = self.outcome
        try:
            insert_row(self.trx, self.table, row)
        except KeyTaken as taken:
            self._pass(self._duplicate(row, taken.key))
            self._give_back()
            outcome.duplicates += 1
            return
        outcome.affected += 1
        yield TableChange(self.table.logged, None, row.raw, self._columns)

    def _pass(self, error: ServerError) -> None:
        """What IGNORE makes a warning. Raises the error without it."""
        if not self._ignores:
            raise error
        self.session.warn(error)

    def _pass_check(self, error: ServerError) -> None:
        """A value is none that its column's own CHECK wants: a warning with IGNORE. Raises any other error."""
        if error.kind is not CheckFailed:
            raise error
        self._pass(error)

    def _passes(self, raw: bytes) -> bool:
        """Whether a row is as its CHECKs want it. Raises `CheckFailed` (4025) if not, but with IGNORE."""
        if self.checks is None:
            return True
        try:
            require_checks(self.table, self.checks, self._shown.row(raw))
        except ServerError as error:
            self._pass(error)
            return False
        return True

    @property
    def _ignores(self) -> bool:
        return "IGNORE" in self.modifiers

    def _replace(self, row: Row) -> Iterator[TableChange]:
        table, trx, outcome = self.table, self.trx, self.outcome
        last = (table.indexes[-1].key if table.indexes else table.key).name
        while True:
            try:
                insert_row(trx, table, row, Mode.EXCLUSIVE)
            except KeyTaken as taken:
                other = self._locked(taken.primary)
                if other is None:
                    continue
                before = row_of(table, other)
                if taken.key.name != last:
                    delete_row(trx, table, before)
                    outcome.affected += 1
                    outcome.duplicates += 1
                    yield TableChange(table.logged, before.raw, None)
                    continue
                outcome.affected += 1
                if before.raw == row.raw:
                    self._inserted(row.raw)
                    return
                update_row(trx, table, before, row, Mode.EXCLUSIVE)
                outcome.affected += 1
                outcome.duplicates += 1
                yield TableChange(table.logged, before.raw, row.raw)
                return
            outcome.affected += 1
            yield TableChange(table.logged, None, row.raw, self._columns)
            return

    def _insert_or_update(self, row: Row, number: int) -> Iterator[TableChange]:
        table, trx, plan, outcome = self.table, self.trx, self.plan, self.outcome
        while True:
            try:
                insert_row(trx, table, row, Mode.EXCLUSIVE)
            except KeyTaken as taken:
                other = self._locked(taken.primary)
            else:
                outcome.affected += 1
                yield TableChange(table.logged, None, row.raw, self._columns)
                return
            if other is not None:
                break
        self._give_back()
        assert plan.changed is not None
        plan.proposed[0] = self._shown.row(row.raw)
        plan.current[0] = self._shown.row(other)
        try:
            assigned = self._assigned(other, plan.changed, number)
        except ServerError as error:
            self._pass_check(error)
            outcome.duplicates += 1
            return
        before, after = row_of(table, other), row_of(table, assigned)
        if after.raw == other:
            outcome.matched += 1
            outcome.unchanged += 1
            outcome.duplicates += self._ignores
            self._return(other)
            return
        if not self._passes(after.raw):
            outcome.duplicates += 1
            return
        try:
            update_row(trx, table, before, after, Mode.EXCLUSIVE)
        except KeyTaken as taken:
            self._pass(self._duplicate(after, taken.key))
            outcome.duplicates += 1
            return
        outcome.affected += 2
        outcome.duplicates += not self._ignores
        outcome.matched += 1
        yield TableChange(table.logged, other, after.raw, _bits(plan.changed))

    @property
    def _columns(self) -> int:
        return _bits(self.plan.columns)

    def _unnamed(self) -> dict[int, Value]:
        """The defaults of the columns that an INSERT does not name."""
        definition = self.table.definition
        missing = set(range(len(definition.columns))).difference(self.plan.columns)
        missing.discard(-1 if definition.auto_increment is None else definition.auto_increment)
        missing.difference_update(self._defaults.numbers)
        assigned = self.plan.changed or ()  # by ON DUPLICATE KEY UPDATE, if a row is there
        return {
            column: self._cells.default(column, 1, is_needed=column not in assigned)
            for column in sorted(missing)
        }

    def _new_values(
        self,
        terms: Sequence[Term | None],
        row: int,
        generate: Iterator[int],
        unnamed: dict[int, Value],
    ) -> list[Value]:
        definition, cells = self.table.definition, self._cells
        auto = definition.auto_increment
        made = unnamed.copy()
        is_seen = self.plan.reads_itself or bool(self._defaults.numbers)
        if is_seen:
            self.plan.current[0] = self._empty_row()
        for column, term in zip(self.plan.columns, terms, strict=True):
            if term is None and column in self._defaults.numbers:
                made[column] = self._defaults.value(column, self.plan.current[0], row)
                self._show(column, made[column])
            if term is None:
                continue
            given = self._given(term)
            if column in self._computed.numbers:
                self._ignore(column, given)
                continue
            if column == auto and given is None:
                continue
            if given is None and len(self.plan.rows) == 1:
                self._require_nullable(column)
            value = cells.value(column, given, term.kind, row)
            if column == auto and value == 0 and not self.zero_is_a_value:
                continue
            made[column] = value
            if is_seen:
                self._show(column, value)
            if column == auto:
                self._note(value)
        found: list[Value] = []
        for column in range(len(definition.columns)):
            if column in made:
                found.append(made[column])
            elif column == auto:
                found.append(self._generated(generate, row))
            elif column in self._defaults.numbers:
                found.append(None)
            else:
                found.append(cells.default(column, row))
        if self._computed.numbers or self._defaults.numbers:
            shown = [
                None if value is None else self._shown.columns[column](value)
                for column, value in enumerate(found)
            ]
            missing = set(self._defaults.numbers).difference(made)
            for column, value in self._defaults.values(missing, shown, row):
                found[column] = value
            for column, value in self._computed.values(shown, row):
                found[column] = value
        return found

    def _ignore(self, column: int, given: Any) -> None:
        """The value for a generated column, which is none. Raises `GeneratedValueIgnored` (1906)."""
        if given is not None:
            definition = self.table.definition
            self._cells.unfit(
                GeneratedValueIgnored(definition.columns[column].name, definition.name)
            )

    def _require_nullable(self, column: int) -> None:
        """NULL of an INSERT of one row is an error, strict or not, but in a TIMESTAMP. Raises 1048."""
        definition = self.table.definition.columns[column]
        is_time = definition.type.name == "timestamp"
        if not definition.nullable and not self._ignores and not is_time:
            raise ColumnNotNull(definition.name)

    def _empty_row(self) -> list[Any]:
        """What a row has before it is given values: its defaults, as far as they are the same for all rows."""
        found: list[Any] = []
        told = len(self.session.warnings), len(self.session.notes)
        for i, column in enumerate(self.table.definition.columns):
            value: Value = None
            if i in self._defaults.fixed:
                value = self._defaults.value(i, (), 1)
            elif column.default is not None and i not in self._defaults.numbers:
                value = self._cells.default(i, 1)
            if value is None and not column.nullable:
                value = implicit_default(column)
            found.append(None if value is None else self._shown.columns[i](value))
        del (
            self.session.warnings[told[0] :],
            self.session.notes[told[1] :],
        )  # of what it may not get
        return found

    def _generated(self, generate: Iterator[int], row: int) -> int:
        number = self._unused.pop(0) if self._unused else next(generate)
        definition = self.table.definition
        auto = definition.auto_increment
        assert auto is not None
        column = definition.columns[auto]
        bits = 8 * _INTEGER_BYTES.get(column.type.name, 8) - (not column.type.unsigned)
        if number >= 1 << bits:
            raise AutoIncrementUsedUp(column.name, row)
        self._number = number
        if self.first_number is None:
            self.first_number = number
        return number

    def _generator(self) -> Iterator[int]:
        """Numbers for AUTO_INCREMENT: in a row, where no row of the statement brings its own."""
        step, offset = self.numbers
        auto = self.table.definition.auto_increment
        plan = self.plan
        at = plan.columns.index(auto) if auto in plan.columns else None
        given = () if at is None else (terms[at] for terms in plan.rows)
        all_generated = all(term is None or term.constant is None for term in given)
        count = max(1, len(plan.rows)) if all_generated else 1
        if self.is_text:  # all at once: others may take numbers, too, while they wait for the table
            if offset > step:
                raise NotReplayed
            count = max(1, len(plan.rows), self._rows_of_query)
        while self.insert_id:
            self.takes_insert_id = True
            number = self.insert_id  # the counter goes on behind it once the row is there
            self.insert_id = _number_behind(number, step, offset)
            yield number
        while True:
            first = self.tables.next_numbers(self.table, count, step, offset, self.trx)
            for i in range(count):
                yield first + i * step
            if plan.query is not None:  # nobody knows how many there will be
                count = min(2 * count, _NUMBERS_MAX)

    def _note(self, value: Value) -> None:
        if self.is_text and self.first_number is not None:
            raise NotReplayed  # MariaDB goes on behind this number
        if isinstance(value, int | float) and value > 0:
            self.tables.note_number(self.table, int(value), self.trx)
            if self.takes_insert_id and value >= self.insert_id:
                self.insert_id = _number_behind(int(value), *self.numbers)

    # --- UPDATE ---

    def updated(self) -> Iterator[TableChange]:
        """Update the rows for which the plan's conditions hold. Raises as `inserted`."""
        assigned = {*self.plan.columns, *self._on_update(self.plan.columns)}
        self._check_once(self._assigned_kinds())
        in_key = {part.column for part in self.table.key.parts} | self.path.columns
        for key, row in self._found(bool(in_key.intersection(assigned))):
            change = self._update_one(key, row)
            if change is not None:
                yield change
        self.outcome.insert_id = self.session.new_insert_id or 0

    def _update_one(self, key: bytes, row: bytes | None) -> TableChange | None:
        """The change of a row for which the conditions hold; None if it stays as it is, or they do not any longer."""
        table, trx = self.table, self.trx
        while row is not None:
            self.plan.current[0] = self._shown.row(row)
            try:
                assigned = self._assigned(row, self.plan.columns, self.outcome.matched + 1)
            except ServerError as error:
                self._pass_check(error)
                return None
            after = row_of(table, assigned)
            if after.key != key:
                self._newest.require_unchanged(table, after.key)
            if after.raw == row:
                now = self._locked_if_it_holds(
                    key
                )  # its lock is kept, as of one that becomes another
                if now == row:
                    self.outcome.matched += 1
                    return None
                row = now
                continue
            if not self._passes(after.raw):
                return None
            try:
                is_done = update_row(trx, table, row_of(table, row), after)
            except KeyTaken as taken:
                if not self._ignores:
                    raise self._duplicate(after, taken.key) from None
                self.outcome.matched += 1  # without a warning, as in MariaDB
                return None
            if is_done:
                self.outcome.matched += 1
                self.outcome.affected += 1
                return TableChange(table.logged, row, after.raw, self._named())
            row = self._locked_if_it_holds(key)
        return None

    def _named(self) -> int:
        return _bits({*self.plan.columns, *self._on_update(self.plan.columns)})

    def _on_update(self, assigned: Collection[int]) -> list[int]:
        columns = self.table.definition.columns
        return [
            i
            for i, column in enumerate(columns)
            if column.on_update is not None and i not in assigned
        ]

    def _assigned(self, row: bytes, columns: Sequence[int], number: int) -> bytes:
        """The row behind the assignments, which are made from the left: each sees those before it."""
        table, plan = self.table, self.plan
        raw = list(table.format.split(row))
        for column, term in zip(columns, plan.assigned, strict=True):
            if column in self._computed.numbers:
                self._ignore(column, None if term is None else self._given(term))
                continue
            if term is None and column in self._defaults.numbers:
                value = self._defaults.value(column, plan.current[0], number)
            elif term is None:
                value = self._cells.default(column, number)
            else:
                value = self._cells.value(column, self._given(term), term.kind, number)
            if column == table.definition.auto_increment:
                self._note(value)
            self._set(raw, column, value)
        if tuple(raw) != table.format.split(row):
            for column in self._on_update(columns):
                self._set(raw, column, self._cells.on_update(column))
            raw = self._computed.filled(raw, number)
        return table.format.changed(row, raw)

    def _set(self, raw: list[bytes | None], column: int, value: Value) -> None:
        raw[column] = self.table.format.value(column, value)
        self._show(column, value)

    def _show(self, column: int, value: Value) -> None:
        """A column of the row that is being made has this value."""
        current = self.plan.current[0]
        assert isinstance(current, list)
        current[column] = None if value is None else self._shown.columns[column](value)

    # --- DELETE ---

    def deleted(self) -> Iterator[TableChange]:
        """Delete the rows for which the plan's conditions hold. Raises as `inserted`."""
        table, trx = self.table, self.trx
        for key, found in self._found(False):
            row: bytes | None = found
            while row is not None:
                if delete_row(trx, table, row_of(table, row)):
                    self.outcome.affected += 1
                    self.outcome.matched += 1
                    self._return(row)
                    yield TableChange(table.logged, row, None)
                    break
                row = self._locked_if_it_holds(key)

    # --- SELECT ... FOR UPDATE ---

    def selected(self) -> Iterator[TableChange]:
        """Lock the rows for which the conditions hold, as they are then; changes none. Raises as `inserted`."""
        plan, lock = self.plan, self.lock
        assert lock is not None
        mode = Mode.SHARED if lock.is_shared else Mode.EXCLUSIVE
        waits = lock.seconds != 0 and not lock.skips
        found: Iterable[_Found] = self._matching()
        if plan.order and not self.path.is_ordered:
            found = self._in_order(iter(found))
        for key, looked_at in found:
            if plan.limit is not None and self.outcome.matched >= plan.limit:
                return
            row: bytes | None = looked_at
            while row is not None:
                if (
                    lock.skips
                ):  # rows are skipped; DDL that has the table, or waits for it, is waited for
                    self.trx.lock(self.table.number, None, Mode.SHARED)
                try:
                    now = self.trx.lock(self.table.number, key, mode, waits=waits)
                except LockWaitTimeout:
                    if lock.skips:
                        break
                    raise
                self._newest.require_unchanged(self.table, key)
                if now == row:
                    self.outcome.matched += 1
                    self._return(row)
                    break
                row = now if now is not None and plan.holds(self._shown.row(now)) else None
        yield from ()

    # --- finding rows ---

    def _found(self, moves: bool) -> Iterable[_Found]:
        """The rows for which the conditions hold now. `moves`: the statement changes keys, so all are found first."""
        plan = self.plan
        found = self._matching()
        if plan.order and self.path.is_ordered and plan.limit is not None:
            return self._kept(_first(found, plan.limit))
        if plan.order:
            found = iter(self._in_order(found))
        elif moves:
            found = iter(self._kept(found))
        return found if plan.limit is None else _first(found, plan.limit)

    def _locked(self, key: bytes) -> bytes | None:
        """The newest row of a key, locked."""
        row = self.trx.lock(self.table.number, key)
        self._newest.require_unchanged(self.table, key)
        return row

    def _locked_if_it_holds(self, key: bytes) -> bytes | None:
        """The same, of a row that has become another one; None if the conditions do not hold for it."""
        row = self._locked(key)
        return row if row is not None and self.plan.holds(self._shown.row(row)) else None

    def _matching(self) -> Iterator[_Found]:
        for key, row in self.path.rows(self.table, self._newest):
            self.session.budget.tick()
            if self.plan.holds(self._shown.row(row)):
                yield key, row

    def _kept(self, found: Iterator[_Found]) -> list[_Found]:
        kept = []
        for key, row in found:
            self.session.budget.make(_ROW_BYTES + len(key))
            kept.append((key, row))
        return kept

    def _in_order(self, found: Iterator[_Found]) -> list[_Found]:
        order = self.plan.order
        keyed: list[tuple[_Found, list[Any]]] = []
        for one in found:
            self.session.budget.make(_ROW_BYTES + len(one[0]))
            keyed.append((one, [term.value() for term, _ in order]))
        for at in range(len(order) - 1, -1, -1):
            term, is_down = order[at]
            of = values.sort_key(term.kind)
            keyed.sort(
                key=lambda pair: (False, 0) if pair[1][at] is None else (True, of(pair[1][at])),
                reverse=is_down,
            )
        return [one for one, _ in keyed]

    # --- rows and errors ---

    def _given(self, term: Term) -> Any:
        return term.value()

    def _duplicate(self, row: Row, key: StoredKey) -> ServerError:
        """1062 for a row that has the key of another one."""
        return duplicate(self.table, self._shown, row.raw, key)


def require_checks(table: HeldTable, checks: Checks, row: Sequence[Any]) -> None:
    """Raises `CheckFailed` (4025) for a row for which one is false."""
    failed = checks.failed(row)
    if failed is not None:
        definition = table.definition
        is_of_column = any(column.name == failed for column in definition.columns)
        name = f"{definition.name}.{failed}" if is_of_column else failed
        raise CheckFailed(name, definition.database, definition.name)


def checks_of(table: HeldTable, session: Asker) -> Checks | None:
    """The CHECKs of a table, bound to rows of it; None without any. In a thread: they are parsed."""
    checks = table.definition.own_checks
    if not checks:
        return None
    from binlog_server.queries.binding import bind_checks  # with sqlglot

    return bind_checks(checks, table.declared, session)


def duplicate(table: HeldTable, shown: Shown, raw: bytes, key: StoredKey) -> ServerError:
    """1062 for a row of a table that has the key of another one."""
    row, kinds = shown.row(raw), table.declared.columns
    parts = [(row[part.column], kinds[part.column], part.prefix) for part in key.parts]
    return DuplicateEntry(entry_text(parts), key.name)


def _number_behind(number: int, step: int, offset: int) -> int:
    """The next one behind a number that `offset` and some steps give."""
    offset = 0 if offset > step else offset
    return (number + step - offset) // step * step + offset


def _bits(columns: Iterable[int]) -> int:
    """A bitmap of columns."""
    return sum(1 << column for column in set(columns))


def _first(found: Iterable[_Found], count: int) -> Iterator[_Found]:
    for number, one in enumerate(found):
        if number >= count:
            return
        yield one


def is_intact(table: HeldTable, reading: Reading) -> bool:
    """Whether each row stands under its key, and the unique keys have an entry for each, and no others."""
    count, entries = 0, dict.fromkeys((index.number for index in table.indexes), 0)
    for key, raw in reading.scan(table):
        count += 1
        split = table.format.split(raw)
        if table.format.key(split, table.key) != key:
            return False
        for index in table.indexes:
            if reading.one(table, index.number, table.entry(index, split, key)) != key:
                return False
    for number in entries:
        entries[number] = sum(1 for _ in reading.some(table, number, b"", None, is_down=False))
    return all(found == count for found in entries.values())


def checksum(table: HeldTable, rows: Iterable[bytes]) -> int:
    """CHECKSUM TABLE of these rows."""
    split, of = table.format.split, table.format.checksum
    return sum(of(split(row)) for row in rows) % CHECKSUM_MODULUS
