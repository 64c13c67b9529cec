"""Generated columns: their values, computed from the other columns of a row.

VIRTUAL ones have their bytes in the row, as STORED ones: rows lie in memory, and row events of MariaDB have both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.events.rows import Value
from binlog_protocol.tables.definition import Generation

from binlog_server.queries.terms import Asker
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
