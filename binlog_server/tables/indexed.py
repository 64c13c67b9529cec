"""A row and its entries in the indexes of its table, which are changed together.

The row itself is the first, so who has its lock has the entries, too. A unique value that another transaction has
taken, or given up, and not committed is waited for, as its entry is a row of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from binlog_protocol.errors import BadValue, UnknownServerError
from binlog_protocol.tables.definition import StoredKey
from binlog_protocol.tables.row_format import Values
from binlog_storage.errors import DuplicateKey
from binlog_storage.tables.locks import Mode

from binlog_server.tables.held import HeldTable

if TYPE_CHECKING:
    from binlog_storage.tables.store import TableTransaction


class Row(NamedTuple):
    """A row: its bytes, its primary key, the bytes of its values."""

    raw: bytes
    key: bytes
    values: Values


def row_of(table: HeldTable, raw: bytes) -> Row:
    """The row of these bytes. Raises 1105 for text that is none."""
    values = table.format.split(raw)
    try:
        return Row(raw, table.format.key(values, table.key), values)
    except BadValue as error:
        raise UnknownServerError(str(error)) from None


class KeyTaken(Exception):
    """Another row has the same values in a unique key: its primary key. It is locked; nothing of the row is changed."""

    def __init__(self, key: StoredKey, primary: bytes) -> None:
        super().__init__(key.name)
        self.key = key
        self.primary = primary


def insert_row(trx: TableTransaction, table: HeldTable, row: Row, mode: Mode = Mode.SHARED) -> None:
    """Insert a row. Raises `KeyTaken`, with that lock of the other row, and `StorageError`."""
    mark = trx.savepoint()
    try:
        _insert(trx, table, row, mode)
    except KeyTaken:
        trx.rollback_to(mark)
        raise


def _insert(trx: TableTransaction, table: HeldTable, row: Row, mode: Mode) -> None:
    try:
        trx.insert(table.number, row.key, row.raw, mode)
    except DuplicateKey:
        raise KeyTaken(table.key, row.key) from None
    _add_entries(trx, table, row, mode)


def _add_entries(
    trx: TableTransaction, table: HeldTable, row: Row, mode: Mode, before: Row | None = None
) -> None:
    for index in table.indexes:
        entry = table.entry(index, row.values, row.key)
        if before is not None:
            old = table.entry(index, before.values, before.key)
            if old == entry:
                trx.put(index.number, entry, row.key)
                continue
            trx.delete(index.number, old)
        try:
            trx.insert(index.number, entry, row.key, mode)
        except DuplicateKey:
            taken = trx.lock(index.number, entry, mode)
            assert taken is not None
            raise KeyTaken(index.key, taken) from None


def update_row(
    trx: TableTransaction, table: HeldTable, before: Row, after: Row, mode: Mode = Mode.SHARED
) -> bool:
    """Put a row in the place of another. Returns whether it was there; if not, nothing is changed. Raises as
    `insert_row`."""
    mark = trx.savepoint()
    try:
        if after.key == before.key:
            found = trx.put(table.number, after.key, after.raw)
        else:
            found = trx.delete(table.number, before.key)
        if found != before.raw:
            trx.rollback_to(mark)
            return False
        if after.key != before.key:
            try:
                trx.insert(table.number, after.key, after.raw, mode)
            except DuplicateKey:
                raise KeyTaken(table.key, after.key) from None
        _add_entries(trx, table, after, mode, before)
    except KeyTaken:
        trx.rollback_to(mark)
        raise
    return True


def delete_row(trx: TableTransaction, table: HeldTable, row: Row) -> bool:
    """Delete a row. Returns as `update_row`."""
    mark = trx.savepoint()
    if trx.delete(table.number, row.key) != row.raw:
        trx.rollback_to(mark)
        return False
    for index in table.indexes:
        trx.delete(index.number, table.entry(index, row.values, row.key))
    return True
