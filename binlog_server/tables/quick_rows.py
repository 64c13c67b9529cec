"""Changes of one row that need no thread: an INSERT of values, an UPDATE or DELETE by the primary key.

    INSERT [INTO] t [(column, ...)] VALUES (item, ...)
    UPDATE t SET column = item, ... WHERE column = item AND ...
    DELETE FROM t WHERE column = item AND ...

An item is ?, an integer, a string, NULL, DEFAULT. The conditions are those of the whole primary key, of integers.

Such a statement is read once, for a table, and run in microseconds, as often as it is executed. It has no errors of its
own: whatever is not as plain as that raises `NotQuick`, and nothing has happened; then `changes.py` sees the statement.
Where this is quick, it does to the byte what is done there: a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue, ServerError
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.rows import ChangeKind, Value, value_size
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import TokenKind, tokens
from binlog_protocol.tables.definition import Generation, KeyKind, StoredColumn

from binlog_server.queries import types, values
from binlog_server.queries.terms import Asker
from binlog_server.tables.cells import Cells
from binlog_server.tables.held import HeldTable, HeldTables, RowPair

TEXT_CHARS_MAX: Final = 4096
"""Of a statement: reading it holds the loop."""
_INTEGER_BYTES: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TIMES: Final = ("date", "time", "datetime", "timestamp")
_U64_END: Final = 1 << 64
_I64_MIN: Final = -(1 << 63)
_I64_MAX: Final = (1 << 63) - 1

T = TypeVar("T")
Given = int | str | None
"""A value of a statement: an integer, text, or NULL."""
Write = Callable[["Run", Given], bytes | None]


class NotQuick(Exception):
    """The long way has to see it; nothing was done."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value as a statement says it. `parameter`: the number of its question mark, which gives it."""

    value: Given = None
    parameter: int | None = None
    is_default: bool = False


_DEFAULT: Final = Item(is_default=True)


@dataclass(slots=True)
class Run:
    """One execution: the parameters, and what is asked of the session, if something is.

    numbers: auto_increment_increment and auto_increment_offset.
    matched, generated, insert_id: see `Outcome`; a run that gives a change has affected that one row.
    """

    given: Sequence[Given]
    session: Callable[[], Asker]
    tables: HeldTables
    numbers: tuple[int, int] = (1, 1)
    zero_is_a_value: bool = False
    matched: int = 0
    generated: int = 0
    insert_id: int = 0
    _cells: Cells | None = None

    def cells(self, table: HeldTable) -> Cells:
        """What converts the values that are not plain."""
        if self._cells is None:
            session = self.session()
            self._cells = Cells(table.definition, session, session.is_strict)
        return self._cells


@dataclass(slots=True)
class QuickChange:
    """A statement that was read for a table."""

    kind: ChangeKind
    table: HeldTable
    database: str  # the default one when it was read
    parameters: int
    reads: bool  # it has a condition, and needs SELECT
    columns: list[tuple[int, Item, Write]]  # to be set, in their order
    key: list[tuple[int, Item, Write]]  # what the condition says, in the order of the key
    generated: Item | None  # of the AUTO_INCREMENT column of an INSERT
    allowed: frozenset[str] | None = None  # privileges with which it was allowed last
    verb: str = field(init=False)
    """INSERT, UPDATE or DELETE, which is the privilege, too."""

    def __post_init__(self) -> None:
        self.verb = self.kind.name

    def run(self, run: Run) -> RowPair | None:
        """The change; None if there is nothing to change. Raises `NotQuick`."""
        if self.kind is ChangeKind.INSERT:
            return self._insert(run)
        table, store = self.table, run.tables.store
        key = self._found_key(run)
        before, is_committed = store.settled(table.number, key)
        if before is None and (is_committed or store.get(table.number, key) is None):
            return None
        if before is None or not is_committed:
            raise NotQuick  # somebody is changing it
        run.matched = 1
        if self.kind is ChangeKind.DELETE:
            return RowPair(key, before, None)
        raw = list(table.format.split(before))
        for column, item, write in self.columns:
            raw[column] = self._bytes(run, column, item, write)
        after = table.format.joined(raw)
        return None if after == before else RowPair(key, before, after)

    def _insert(self, run: Run) -> RowPair:
        table = self.table
        raw: list[bytes | None] = [
            None if item is self.generated else self._bytes(run, column, item, write)
            for column, item, write in self.columns
        ]
        if self.generated is not None:
            self._number(run, raw, self.generated)
        try:
            key = table.format.key(tuple(raw), table.key)
        except BadValue:
            raise NotQuick from None
        return RowPair(key, None, table.format.joined(raw))

    def _number(self, run: Run, raw: list[bytes | None], item: Item) -> None:
        """Fill the AUTO_INCREMENT column. What is taken is not given back, so that comes last."""
        table = self.table
        column = table.definition.auto_increment
        assert column is not None
        value = None if item.is_default else self._given(run, item)
        if value is None or (value == 0 and not run.zero_is_a_value):
            number = run.tables.next_numbers(table, 1, *run.numbers)
            run.generated = run.insert_id = number
        elif isinstance(value, int):
            number = value
            run.insert_id = value & values.U64_MAX
        else:
            raise NotQuick
        raw[column] = self.columns[column][2](run, number)
        if number > 0 and not run.generated:
            run.tables.note_number(table, number)

    def _found_key(self, run: Run) -> bytes:
        table = self.table
        raw: list[bytes | None] = [None] * len(table.definition.columns)
        for column, item, write in self.key:
            value = self._given(run, item)
            if value is None:
                raise NotQuick
            raw[column] = write(run, value)
        return table.format.key(tuple(raw), table.key)

    def _bytes(self, run: Run, column: int, item: Item, write: Write) -> bytes | None:
        if item.is_default:
            return self._default(run, column)
        return write(run, item.value if item.parameter is None else run.given[item.parameter])

    def _default(self, run: Run, column: int) -> bytes | None:
        cells = run.cells(self.table)
        try:
            raw = self.table.format.value(column, cells.default(column, 1))
        except (ServerError, BadValue):
            raise NotQuick from None
        if cells.session.warnings:
            raise NotQuick
        return raw

    @staticmethod
    def _given(run: Run, item: Item) -> Given:
        return item.value if item.parameter is None else run.given[item.parameter]


def quick_change(text: str, database: str, tables: HeldTables) -> QuickChange:
    """Read a statement, in the default sql_mode, without comments. Raises `NotQuick`."""
    if len(text) > TEXT_CHARS_MAX:
        raise NotQuick
    reader = _Reader(
        list(tokens(text, ansi_quotes=False, is_logged=False)),
        database,
    )
    try:
        return reader.statement(tables)
    except NotUnderstood:
        raise NotQuick from None


class _Reader(TokenReader):
    """Reads one statement."""

    parameters = 0

    def statement(self, tables: HeldTables) -> QuickChange:
        verb = self.word()
        self.at += 1
        if verb == "INSERT":
            self.accept("INTO")
        elif verb == "DELETE":
            if not self.accept("FROM"):
                raise NotQuick
        elif verb != "UPDATE":
            raise NotQuick
        name = self.name()
        table = tables.find(*name)
        if table is None or not _is_plain(table):
            raise NotQuick
        made = self._insert(table) if verb == "INSERT" else self._by_key(table, verb)
        if not self.is_at_end():
            raise NotQuick
        made.parameters = self.parameters
        return made

    def _insert(self, table: HeldTable) -> QuickChange:
        columns = list(range(len(table.definition.columns)))
        if self.sign("("):
            columns = self._listed(lambda: self._column(table))
        if not self.accept("VALUES") or not self.sign("("):
            raise NotQuick
        given = self._listed(self._item)
        if len(given) != len(columns) or len(set(columns)) != len(columns):
            raise NotQuick
        items = dict(zip(columns, given, strict=True))
        auto = table.definition.auto_increment
        made = [
            (i, items.get(i, _DEFAULT), _writer(table, i))
            for i in range(len(table.definition.columns))
        ]
        generated = None
        if auto is not None:
            # An item of its own, which is told from the others by its identity.
            said = made[auto][1]
            generated = Item(said.value, said.parameter, said.is_default)
            made[auto] = auto, generated, made[auto][2]
        return QuickChange(ChangeKind.INSERT, table, self.database, 0, False, made, [], generated)

    def _listed(self, one: Callable[[], T]) -> list[T]:
        """What stands in brackets, the first of which is gone over."""
        found = [one()]
        while not self.sign(")"):
            self.expect(",")
            found.append(one())
        return found

    def _by_key(self, table: HeldTable, verb: str) -> QuickChange:
        changed: dict[int, Item] = {}
        in_key = [part.column for part in table.key.parts]
        columns = table.definition.columns
        if verb == "UPDATE":
            if not self.accept("SET") or any(c.on_update is not None for c in columns):
                raise NotQuick
            while True:
                column = self._column(table)
                self.expect("=")
                if column in changed or column in in_key or columns[column].is_auto_increment:
                    raise NotQuick
                changed[column] = self._item()
                if not self.sign(","):
                    break
        if not self.accept("WHERE"):
            raise NotQuick
        said: dict[int, Item] = {}
        while True:
            column = self._column(table)
            self.expect("=")
            item = self._item()
            if column in said or item.is_default or columns[column].type.name not in _INTEGER_BYTES:
                raise NotQuick
            said[column] = item
            if not self.accept("AND"):
                break
        if said.keys() != set(in_key):
            raise NotQuick
        return QuickChange(
            ChangeKind[verb],
            table,
            self.database,
            0,
            True,
            [(i, item, _writer(table, i)) for i, item in changed.items()],
            [(i, said[i], _writer(table, i)) for i in in_key],
            None,
        )

    def _column(self, table: HeldTable) -> int:
        number = table.definition.column_number(self.identifier())
        if number is None:
            raise NotQuick
        return number

    def _item(self) -> Item:
        if self.sign("?"):
            self.parameters += 1
            return Item(parameter=self.parameters - 1)
        token = self.token()
        if token is None:
            raise NotQuick
        if token.kind is TokenKind.STRING:
            text = token.text
            if text[0] != "'" or "\\" in text:
                raise NotQuick
            self.at += 1
            return Item(text[1:-1].replace("''", "'"))
        if self.accept("NULL"):
            return Item()
        if self.accept("DEFAULT"):
            return _DEFAULT
        is_negative = self.sign("-")
        digits = self.word()
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS_MAX:
            raise NotQuick
        self.at += 1
        number = -int(digits) if is_negative else int(digits)
        if not _I64_MIN <= number < _U64_END:
            raise NotQuick
        return Item(number)


_DIGITS_MAX: Final = 20


def _is_plain(table: HeldTable) -> bool:
    """Whether its rows are all there is to a change of it: no other unique key, nothing computed, one engine."""
    definition = table.definition
    return (
        table.logged.is_transactional
        and definition.engine.lower() == "innodb"
        and not definition.checks
        and all(key.kind is not KeyKind.UNIQUE for key in definition.keys)
        and not any(part.prefix for part in table.key.parts)
        and not any(
            column.generation is not Generation.NONE
            or column.is_invisible
            or column.is_default_computed
            for column in definition.columns
        )
    )


# --- values ---


def _writer(table: HeldTable, number: int) -> Write:
    """What makes the bytes of a column's value, or raises `NotQuick`."""
    column = table.definition.columns[number]
    if column.type.name in _INTEGER_BYTES:
        return _integers(column)
    collation = charset_of(column.collation)
    if column.type.is_text and column.type.labels is None and collation in ("utf8mb4", "utf8mb3"):
        return _texts(table, number, column, is_short=collation == "utf8mb3")
    return _others(table, number)


def _integers(column: StoredColumn) -> Write:
    size, is_signed = _INTEGER_BYTES[column.type.name], not column.type.unsigned
    low = -(1 << 8 * size - 1) if is_signed else 0
    high = (1 << 8 * size - is_signed) - 1
    nullable = column.nullable

    def write(_: Run, value: Given) -> bytes | None:
        if type(value) is int and low <= value <= high:
            return value.to_bytes(size, "little", signed=is_signed)
        if value is None and nullable:
            return None
        raise NotQuick

    return write


def _texts(table: HeldTable, number: int, column: StoredColumn, *, is_short: bool) -> Write:
    sizes = value_size(table.format.columns[number])
    most = column.characters
    is_padded = column.type.name == "char"
    nullable = column.nullable
    bytes_end = 1 << 8 * sizes.length

    def write(_: Run, value: Given) -> bytes | None:
        if type(value) is not str:
            if value is None and nullable:
                return None
            raise NotQuick
        text = value.rstrip(" ") if is_padded else value
        if (most is not None and len(text) > most) or (is_short and text and max(text) > "\uffff"):
            raise NotQuick
        raw = text.encode()
        if len(raw) >= bytes_end:
            raise NotQuick
        return len(raw).to_bytes(sizes.length, "little") + raw

    return write


def _others(table: HeldTable, number: int) -> Write:
    def write(run: Run, value: Given) -> bytes | None:
        if value is None:
            kind = types.NULL
        elif isinstance(value, str):
            kind = types.text(len(value))
        else:
            kind = types.integer(len(str(value)), unsigned=value > _I64_MAX, signed=value < 0)
        cells = run.cells(table)
        try:
            made: Value = cells.value(number, value, kind, 1)
            raw = table.format.value(number, made)
        except (ServerError, BadValue):
            raise NotQuick from None
        if cells.session.warnings:
            raise NotQuick
        return raw

    return write
