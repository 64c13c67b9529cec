"""The tables that there are at a point of a log, and the layouts that they had up to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.token_reader import ALL, NotUnderstood, TableName

from binlog_pipeline.schemas.ddl_tables import TableLayout

_NO_CREATE: Final = "its CREATE TABLE is not there"


@dataclass(frozen=True, slots=True)
class Since:
    """A layout, and the GTID of the statement that made it."""

    layout: TableLayout
    gtid: str


class DdlCatalog:
    """`unknown` says of tables why they are not known, `charsets` of databases what new tables get, None if unknown.

    A table that is gone is still told, with the layouts that it had. `temporary`: names that a session had for a table
    of its own, as far as the log says; whether it has them still is not known.
    """

    def __init__(self) -> None:
        self.unknown: Final[dict[TableName, str]] = {}
        self.charsets: Final[dict[str, str | None]] = {}
        self.temporary: Final[set[TableName]] = set()
        self._may_be_there: Final[set[TableName]] = set()  # of those that are not known
        self._layouts: Final[dict[TableName, TableLayout]] = {}
        self._past: Final[dict[TableName, list[Since]]] = {}

    def known(self) -> Iterator[tuple[TableName, list[Since]]]:
        """Tables with their layouts, the newest first."""
        for name in sorted(self._past):
            yield name, self._past[name][::-1]

    def layout(self, name: TableName) -> TableLayout:
        """The layout of a table at this point of the log. Raises `NotUnderstood` if it is not known."""
        found = self._layouts.get(name)
        if found is None:
            raise NotUnderstood(f"{name} is not known" if name in self.unknown else _NO_CREATE)
        return found

    def has(self, name: TableName) -> bool:
        """Whether the table is there and known."""
        return name in self._layouts

    def is_now(self, name: TableName, layout: TableLayout, gtid: str) -> None:
        """Note a layout that a statement has made or changed."""
        self.unknown.pop(name, None)
        self._may_be_there.discard(name)
        self._layouts[name] = layout
        past = self._past.setdefault(name, [])
        if not past or not past[-1].layout.same_columns(layout):
            past.append(Since(layout, gtid))

    def is_gone(self, name: TableName) -> None:
        """Remove a table that was dropped or got another name; all of a database for `*`."""
        for one in self._meant(name):
            self._layouts.pop(one, None)
        self._may_be_there.discard(name)
        if name.table == ALL:
            for one in [one for one in self._may_be_there if one.database == name.database]:
                self._may_be_there.discard(one)
            self.charsets.pop(name.database, None)

    def moved(self, old: TableName, new: TableName, gtid: str) -> None:
        """Note a RENAME TABLE. If a temporary table may have been renamed instead, neither name is known any more.

        No table takes the name of another: if there is one of the new name, ask `has` before.
        """
        try:
            if old in self.temporary or new in self._may_be_there:
                self.forget(old, f"{gtid}: RENAME TABLE of what may be a temporary table")
            layout = self.layout(old)
        except NotUnderstood as error:
            self.forget(new, f"{gtid}: {error}")
            self._may_be_there.discard(old)
            return
        self.is_gone(old)
        self.is_now(new, layout, gtid)

    def forget(self, name: TableName, why: str) -> None:
        """Note that a table is not known from here on, with the reason; all of a database for `*`."""
        for one in self._meant(name):
            self._layouts.pop(one, None)
            self._past.pop(one, None)
            self._may_be_there.add(one)
            self.unknown.setdefault(one, why)

    def forget_all(self, why: str) -> None:
        """No table is known from here on."""
        for name in [*self._past]:
            self.forget(name, why)

    def _meant(self, name: TableName) -> list[TableName]:
        if name.table != ALL:
            return [name]
        return [one for one in self._past if one.database == name.database]
