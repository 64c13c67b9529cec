"""The temporary tables of a session. They hide tables of the same names, nobody else sees them, and they end with the
session.

Their rows are in memory alone, and nothing of them is logged: `TableStore.make_temporary`. Locks, savepoints and
transactions are those of all tables. What they take of the memory is memory of the session
(`connections/session_memory.py`), and a part of what all sessions may have is the most of one (1114).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from binlog_server.tables.held import HeldTable, HeldTables


class TemporaryTables:
    """Those of one session, by name."""

    def __init__(self, tables: HeldTables) -> None:
        self._tables: Final = tables
        self._named: dict[tuple[str, str], HeldTable] = {}
        self.dropped_bytes = 0
        """Of tables that the open transaction has dropped: it knows how to undo what it did to their rows."""

    def __len__(self) -> int:
        return len(self._named)

    def __iter__(self) -> Iterator[HeldTable]:
        return iter(list(self._named.values()))

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self.dropped_bytes + sum(map(self._tables.temporary_bytes, self._named.values()))

    def find(self, database: str, name: str) -> HeldTable | None:
        """The temporary table of that name. One whose rows have gone, as the store is another one now, is forgotten."""
        found = self._named.get((database, name))
        if found is not None and not self._tables.is_current(found):
            del self._named[database, name]
            return None
        return found

    def add(self, table: HeldTable) -> None:
        """A table is there, in the place of one with the same name."""
        self.drop(self.find(table.database, table.name))
        self._named[table.database, table.name] = table

    def drop(self, table: HeldTable | None) -> None:
        """A table is gone; None is none."""
        if table is not None:
            del self._named[table.database, table.name]
            self.dropped_bytes += self._tables.temporary_bytes(table)
            self._tables.drop_temporary(table)

    def close(self) -> None:
        """All of them are gone."""
        for table in self:
            self.drop(table)
