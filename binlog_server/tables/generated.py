"""Generated columns, and defaults that are expressions: their values, computed from the other columns of a row.

VIRTUAL ones have their bytes in the row, as STORED ones: rows lie in memory, and row events of MariaDB have both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import (
    ColumnWithoutDefault,
    FunctionNotAllowed,
    InvalidDefault,
    NotSupportedYet,
    ServerError,
)
from binlog_protocol.events.rows import Value
from binlog_protocol.tables.definition import Generation, StoredTable

from binlog_server.queries.terms import Asker
from binlog_server.queries.types import Type
from binlog_server.tables.cells import Cells
from binlog_server.tables.held import HeldTable
from binlog_server.tables.rows import Shown

if TYPE_CHECKING:
    from binlog_server.queries.running import Checks


class Generated:
    """Computes the generated columns of a table. `numbers`: which these are, in their order."""

    def __init__(self, table: HeldTable, session: Asker, cells: Cells, shown: Shown) -> None:
        columns = table.definition.columns
        self.numbers: Final = tuple(
            number for number, one in enumerate(columns) if one.generation is not Generation.NONE
        )
        self._table: Final = table
        self._cells: Final = cells
        self._shown: Final = shown
        self._bound: Checks | None = None
        if self.numbers:
            from binlog_server.queries.binding import bind_checks  # with sqlglot

            said = [(columns[number].name, columns[number].expression) for number in self.numbers]
            self._bound = bind_checks(said, table.declared, session)

    @property
    def kinds(self) -> list[Type]:
        """The types of their expressions."""
        return [] if self._bound is None else [term.kind for _, term in self._bound.terms]

    def values(self, shown: list[Any], row: int) -> Iterator[tuple[int, Value]]:
        """Their numbers and values, of a row with these values, as expressions have them; each sees those in front of
        it. Raises `ServerError`."""
        if self._bound is None:
            return
        self._bound.current[0] = shown
        for number, (_, term) in zip(self.numbers, self._bound.terms, strict=True):
            value = self._cells.value(number, term.value(), term.kind, row)
            shown[number] = None if value is None else self._shown.columns[number](value)
            yield number, value

    def filled(self, raw: Sequence[bytes | None], row: int) -> list[bytes | None]:
        """The parts of a row, with theirs computed anew."""
        made = list(raw)
        if self._bound is not None:
            shown = self._shown.row(self._table.format.joined(made))
            for number, value in self.values(shown, row):
                made[number] = self._table.format.value(number, value)
        return made


class Defaults:
    """Computes the defaults of a table that are expressions.

    numbers: of the columns that have such.
    fixed: those of them that are the same for all rows of a statement: a row has them before it is given values.
    """

    def __init__(self, table: HeldTable, session: Asker, cells: Cells, shown: Shown) -> None:
        columns = table.definition.columns
        self.numbers: Final = tuple(
            number for number, one in enumerate(columns) if one.is_default_computed
        )
        self.fixed: Final = frozenset(
            number for number in self.numbers if is_fixed(columns[number].default or "")
        )
        self._cells: Final = cells
        self._shown: Final = shown
        self._bound: Checks | None = None
        if self.numbers:
            from binlog_server.queries.binding import bind_checks  # with sqlglot

            said = [
                (columns[number].name, columns[number].default or "") for number in self.numbers
            ]
            self._bound = bind_checks(said, table.declared, session, "DEFAULT")

    def value(self, number: int, shown: Sequence[Any], row: int) -> Value:
        """The default of one of them, in a row with these values, as expressions have them. Raises `ServerError`."""
        assert self._bound is not None
        self._bound.current[0] = shown
        _, term = self._bound.terms[self.numbers.index(number)]
        return self._cells.value(number, term.value(), term.kind, row)

    def values(
        self, wanted: Container[int], shown: list[Any], row: int
    ) -> Iterator[tuple[int, Value]]:
        """The numbers and values of the wanted ones, in a row with these values, in their order: each sees those in
        front of it. Raises `ServerError`."""
        for number in self.numbers:
            if number in wanted:
                value = self.value(number, shown, row)
                shown[number] = None if value is None else self._shown.columns[number](value)
                yield number, value


def default_of(table: HeldTable, session: Asker, number: int) -> Callable[[Sequence[Any]], Any]:
    """What gives the default of a column, in a row with these values, as expressions have them. Raises
    `ColumnWithoutDefault` (1364)."""
    column = table.definition.columns[number]
    if column.default is None or column.generation is not Generation.NONE:
        raise ColumnWithoutDefault(column.name)
    shown = Shown(table, session.local)
    cells = Cells(table.definition, session, session.is_strict)
    defaults = Defaults(table, session, cells, shown)

    def value(row: Sequence[Any]) -> Any:
        is_computed = number in defaults.numbers
        found = defaults.value(number, row, 1) if is_computed else cells.default(number, 1)
        return None if found is None else shown.columns[number](found)

    return value


def require_one_kind_of_address(table: StoredTable) -> None:
    """Raises `NotSupportedYet` (1235) for an expression over an INET4 and an INET6: a 10.11 refuses what an 11.8 does
    with both."""
    columns = {one.name.replace("`", "``"): one.type.name for one in table.columns}
    if not {"inet4", "inet6"} <= set(columns.values()):
        return
    said = [text for _, text in table.checks]
    for column in table.columns:
        said += [column.expression, (column.default or "") * column.is_default_computed]
    for text in said:
        named = {columns.get(found[1]) for found in _COLUMN.finditer(text)}
        if {"inet4", "inet6"} <= named:
            raise NotSupportedYet(
                "INET4 beside INET6 in a definition, which replicas of 10.11 refuse"
            )


def require_generated(table: HeldTable, session: Asker) -> None:
    """Raises `ServerError` for generated columns that MariaDB refuses: 4078, 4079 for operands and values of types
    that do not go together, 1901 for what it would keep, and hangs on sql_mode."""
    definition, declared = table.definition, table.declared
    cells = Cells(definition, session)
    generated = Generated(table, session, cells, Shown(table, session.local))
    keyed = {part.column for key in definition.keys for part in key.parts}
    for number, kind in zip(generated.numbers, generated.kinds, strict=True):
        column = definition.columns[number]
        cells.require_assignable(number, kind)
        if column.generation is Generation.STORED or number in keyed:
            from binlog_server.queries.binding import kinds_in  # with sqlglot
            from binlog_server.queries.mode_dependence import mode_needed
            from binlog_server.queries.printing import GENERATED, kept_tree

            tree = kept_tree(column.expression)
            kinds = kinds_in(tree, column.expression, declared, session)
            if mode_needed(tree, kinds, column) is not None:
                raise FunctionNotAllowed(column.expression, GENERATED, column.name)


def require_defaults(table: HeldTable, session: Asker) -> None:
    """Raises `InvalidDefault` (1067) for a constant expression that its column does not hold, and `ServerError` for
    what cannot be computed."""
    columns = table.definition.columns
    shown = Shown(table, session.local)
    defaults = Defaults(table, session, Cells(table.definition, session), shown)
    for number in defaults.numbers:
        said = columns[number].default or ""
        if is_fixed(said) and not functions_in(said) & _OF_TIME:
            try:
                defaults.value(number, [None] * len(columns), 1)
            except ServerError:
                raise InvalidDefault(columns[number].name) from None


def default_functions(table: StoredTable) -> frozenset[str]:
    """The functions that the defaults of a table call, in upper case."""
    found: set[str] = set()
    for column in table.columns:
        if column.is_default_computed:
            found |= functions_in(column.default or "")
    return frozenset(found)


def is_fixed(default: str) -> bool:
    """Whether a default that is an expression is the same for all rows of a statement."""
    return "`" not in default and not functions_in(default) & CHANGING


def functions_in(text: str) -> set[str]:
    """The functions of a printed expression."""
    return {found[1].upper() for found in _CALL.finditer(text) if found[1]}


_COLUMN: Final = compiled_later(r"'(?:[^'\\]|\\.)*+'|`((?:[^`]|``)+)`", re.DOTALL)
_CALL: Final = compiled_later(r"'(?:[^'\\]|\\.)*+'|`(?:[^`]|``)+`|(\w+)\(", re.DOTALL)
CHANGING: Final = frozenset(
    {
        *(
            "UUID",
            "RAND",
            "CONNECTION_ID",
            "USER",
            "SESSION_USER",
            "CURRENT_USER",
            "DATABASE",
            "SYSDATE",
        )
    }
)
"""Functions of DEFAULT that a replica, which is told the time, may compute otherwise."""
_OF_TIME: Final = frozenset(
    {
        *(
            "CURRENT_TIMESTAMP",
            "CURDATE",
            "CURTIME",
            "LOCALTIMESTAMP",
            "UTC_DATE",
            "UTC_TIME",
            "UTC_TIMESTAMP",
            "UNIX_TIMESTAMP",
        )
    }
)
