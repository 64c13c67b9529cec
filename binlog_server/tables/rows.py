"""Rows of tables here, for questions: as one view has them, by the path that conditions allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import RecordHasChanged, TableChanged
from binlog_storage.errors import UnknownTable
from binlog_storage.tables.rows import CATALOG, TEMPORARY, table_key

from binlog_server.queries.terms import Asker
from binlog_server.queries.types import Type
from binlog_server.tables.cells import shown
from binlog_server.tables.held import HeldTable
from binlog_server.tables.paths import ALL_ROWS, Entry, Path, Span

if TYPE_CHECKING:
    from binlog_storage.tables.store import ReadView, TableStore, TableTransaction


class Shown:
    """Makes the values of rows. `local`: the session's time, from seconds since 1970."""

    def __init__(self, table: HeldTable, local: Callable[[float], datetime]) -> None:
        self._format: Final = table.format
        self.columns: Final = [shown(column, local) for column in table.definition.columns]

    def row(self, raw: bytes) -> list[Any]:
        """The values of a row, as expressions have them."""
        decoded = self._format.decoded
        return [
            None if part is None else show(decoded(i, part))
            for i, (part, show) in enumerate(
                zip(self._format.split(raw), self.columns, strict=True)
            )
        ]


class Reading:
    """What one statement reads: all tables as one view has them, with the changes of its transaction.

    To be closed. `kept`: the view of the transaction, which stays. `since`: see `Newest`, of a statement that changes
    rows; its methods raise 1020, too, then.
    """

    def __init__(
        self,
        store: TableStore,
        trx: TableTransaction | None = None,
        kept: ReadView | None = None,
        *,
        since: ReadView | None = None,
    ) -> None:
        self._store = store
        self._trx = trx if trx is not None and not trx.ended else None
        self._kept = kept
        self._newest = None if since is None or self._trx is None else Newest(self._trx, since)
        self._own: ReadView | None = None

    def count(self, table: HeldTable) -> int:
        """About how many rows there are, without a look at any. Raises as `scan`."""
        try:
            return len(self._store.memory.table(table.number))
        except UnknownTable:
            raise TableChanged() from None

    @property
    def view(self) -> ReadView:
        """The view, taken with the first look."""
        if self._kept is not None:
            return self._kept
        if self._own is None:
            self._own = self._store.view()
        return self._own

    def _view_of(self, table: HeldTable) -> ReadView | None:
        """Rows without transactions are seen as they are now."""
        return self.view if table.is_transactional else None

    def close(self) -> None:
        """No more reading."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def scan(self, table: HeldTable) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows, in the order of keys. Raises `TableChanged` (1412) for a table that was dropped since the
        view was taken, or made."""
        if self._newest is not None and table.is_transactional:
            yield from self._newest.some(table, table.number, b"", None, is_down=False)
            return
        source = self._source_of(table.number)
        try:
            yield from source.scan(table.number, view=self._view_of(table))
        except UnknownTable:
            raise TableChanged() from None

    def _source_of(self, number: int) -> TableStore | TableTransaction:
        if (
            self._kept is not None
            and not number & TEMPORARY
            and self._store.get(CATALOG, table_key(number), self._kept) is None
        ):
            raise TableChanged()
        return self._store if self._trx is None else self._trx

    def one(self, table: HeldTable, number: int, key: bytes) -> bytes | None:
        """See `Keyed`; raises as `scan`."""
        if self._newest is not None and table.is_transactional:
            return self._newest.one(table, number, key)
        source = self._source_of(number)
        try:
            return source.get(number, key, self._view_of(table))
        except UnknownTable:
            raise TableChanged() from None

    def some(
        self, table: HeldTable, number: int, low: bytes, high: bytes | None, *, is_down: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `Keyed`; raises as `scan`."""
        if self._newest is not None and table.is_transactional:
            yield from self._newest.some(table, number, low, high, is_down=is_down)
            return
        source = self._source_of(number)
        try:
            view = self._view_of(table)
            yield from between(source, number, low, high, view, is_down=is_down)
        except UnknownTable:
            raise TableChanged() from None

    def entries(
        self, table: HeldTable, number: int, span: Span, *, is_down: bool
    ) -> Iterator[Entry]:
        """See `Keyed`; raises as `scan`."""
        trx = self._trx
        if (
            trx is None
            or self._newest is not None
            or not table.is_transactional
            or not trx.has_changed_rows_of(number)
        ):
            yield from _entries(self, table, number, span, is_down=is_down)
            return
        self._source_of(number)
        try:
            view = self.view
            low, high, is_point = span
            keys = (low,) if is_point else _keys_between(trx, number, low, high, is_down=is_down)
            for key in keys:
                own, hidden = trx.get(number, key, view), trx.hidden(number, key, view)
                entries = [] if own is None else [Entry(key, own)]
                if hidden is not None and hidden != own:
                    entries.append(Entry(key, hidden, is_hidden=True))
                yield from sorted(entries, reverse=is_down)
        except UnknownTable:
            raise TableChanged() from None


class Newest:
    """Rows as they are committed when they are looked at, with the changes of a transaction.

    since: the transaction's view, where no row may have changed behind it (`innodb_snapshot_isolation`): the methods
        then raise `RecordHasChanged` (1020). Entries of indexes may, as in InnoDB.
    """

    def __init__(self, trx: TableTransaction, since: ReadView | None = None) -> None:
        self._trx = trx
        self._since = since

    def require_unchanged(self, table: HeldTable, key: bytes) -> None:
        """Raises `RecordHasChanged` (1020) for a row that may not have changed."""
        if self._since is not None and self._trx.has_changed(table.number, key, self._since):
            raise RecordHasChanged(table.name)

    def one(self, table: HeldTable, number: int, key: bytes) -> bytes | None:
        """See `Keyed`."""
        if number == table.number:
            self.require_unchanged(table, key)
        return self._trx.get(number, key)

    def some(
        self, table: HeldTable, number: int, low: bytes, high: bytes | None, *, is_down: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `Keyed`."""
        if self._since is None or number != table.number:
            yield from between(self._trx, number, low, high, None, is_down=is_down)
            return
        for key in _keys_between(self._trx, number, low, high, is_down=is_down):
            self.require_unchanged(table, key)
            row = self._trx.get(number, key)
            if row is not None:
                yield key, row

    def entries(
        self, table: HeldTable, number: int, span: Span, *, is_down: bool
    ) -> Iterator[Entry]:
        """See `Keyed`: what is read here is of now, and hides nothing."""
        return _entries(self, table, number, span, is_down=is_down)


def _entries(
    source: Reading | Newest, table: HeldTable, number: int, span: Span, *, is_down: bool
) -> Iterator[Entry]:
    """Entries of an index where nothing is hidden."""
    low, high, is_point = span
    if not is_point:
        for key, primary in source.some(table, number, low, high, is_down=is_down):
            yield Entry(key, primary)
    elif (found := source.one(table, number, low)) is not None:
        yield Entry(low, found)


def _keys_between(
    trx: TableTransaction, number: int, low: bytes, high: bytes | None, *, is_down: bool
) -> Iterator[bytes]:
    """Keys from one on, in front of another."""
    for key in trx.keys_down(number, high) if is_down else trx.keys(number, low):
        if key < low or (high is not None and key >= high):
            return
        yield key


def between(
    source: TableStore | TableTransaction,
    number: int,
    low: bytes,
    high: bytes | None,
    view: ReadView | None,
    *,
    is_down: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of a table of the store from a key on, in front of another."""
    if is_down:
        for key, row in source.scan_down(number, high, view):
            if key < low:
                return
            yield key, row
        return
    for key, row in source.scan(number, low, view):
        if high is not None and key >= high:
            return
        yield key, row


@dataclass(slots=True)
class HeldRows:
    """A table of one question: its rows are read as they are asked for, each time anew. `defaults`: see `default`."""

    table: HeldTable
    reading: Reading
    session: Asker
    defaults: Callable[[HeldTable, Asker, int], Callable[[Sequence[Any]], Any]]
    path: Path = ALL_ROWS

    @property
    def name(self) -> str:
        """As it was created."""
        return self.table.name

    @property
    def is_view(self) -> bool:
        """A result column is named as the statement names it."""
        return False

    @property
    def columns(self) -> Sequence[Type]:
        """The types of its columns."""
        return self.table.declared.columns

    def default(self, number: int) -> Callable[[Sequence[Any]], Any]:
        """See `GivenTable`."""
        return self.defaults(self.table, self.session, number)

    def rows(self) -> _Rows:
        """Its rows."""
        return _Rows(self)


class _Rows(Sequence[Sequence[Any]]):
    def __init__(self, source: HeldRows) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Sequence[Any]]:
        source = self._source
        show = Shown(source.table, source.session.local)
        for raw in self._raw():
            yield show.row(raw)

    def _raw(self) -> Iterator[bytes]:
        source, budget = self._source, self._source.session.budget
        for _, row in source.path.rows(source.table, source.reading):
            budget.tick()
            yield row

    def __len__(self) -> int:
        return sum(1 for _ in self._raw())

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]
