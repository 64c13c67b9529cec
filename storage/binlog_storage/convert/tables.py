"""The tables of one store into another one, which has them with the same numbers then: definitions, and rows.

What is there already is compared, and only what differs is changed: a copy that was interrupted is made again. Tables
of the store itself (facts) are left alone. Nobody else is there, so some hundred rows are one mini-transaction.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from binlog_storage.errors import NotAStore
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.facts import is_own
from binlog_storage.tables.records import CHANGE_BYTES, SMALL_BYTES, State
from binlog_storage.tables.rows import CATALOG, ELSEWHERE, table_key
from binlog_storage.tables.store import TableStore, TableTransaction

_BYTES_AT_ONCE: Final = 64 << 10
_ROWS_AT_ONCE: Final = 256

Rows = dict[tuple[int, bytes], bytes | None]
Remade = Callable[[], TableTransaction]


def require_convertible(source: TableStore, *, ended: bool = True) -> None:
    """Raise `NotAStore` for what `copy_tables` cannot take along.

    `ended`: transactions that are not prepared, too.
    """
    elsewhere = [number for number in user_tables(source) if number & ELSEWHERE]
    if elsewhere:
        raise NotAStore(
            f"{len(elsewhere)} table(s) have ENGINE=SQLITE, whose rows lie in a file of its own and are not converted: "
            "make them anew with ENGINE=InnoDB first"
        )
    if ended and (undone := sum(one.state != State.PREPARED for one in source.transactions())):
        raise NotAStore(
            f"{undone} transaction(s) of tables have not ended, or are being rolled back: start the server of this "
            "store, wait until Binlog_table_transactions_to_undo is 0, and stop it"
        )


def user_tables(tables: TableStore) -> dict[int, bytes]:
    """Definitions by number, but for those of facts."""
    return {number: row for number, row in tables.tables().items() if not is_own(number)}


def copy_tables(
    source: TableStore, target: TableStore, progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Returns the rows that were changed; durable with the next sync of the log. Nobody else uses either of them.

    `progress` is told them now and then; what it raises ends it.
    """
    wanted, there = user_tables(source), user_tables(target)
    for number in {*wanted, *there}:
        _put(target, {(CATALOG, table_key(number)): wanted.get(number)})
    changed = 0
    for number in sorted(wanted):
        batch: Rows = {}
        size = 0
        for key, row in _differences(source, target, number):
            batch[number, key] = row
            size += len(key) + len(row or b"")
            if size > _BYTES_AT_ONCE or len(batch) >= _ROWS_AT_ONCE:
                changed += _put(target, batch)
                progress(changed)
                batch, size = {}, 0
        changed += _put(target, batch)
    progress(changed)
    return changed


def _differences(
    source: TableStore, target: TableStore, number: int
) -> Iterator[tuple[bytes, bytes | None]]:
    """The keys whose rows differ, with those of the source."""
    if not target.memory.table(number):
        yield from source.scan(number)
        return
    both = heapq.merge(
        ((key, 0) for key in source.keys(number)), ((key, 1) for key in target.keys(number))
    )
    last = None
    for key, _ in both:
        if key != last:
            last, row = key, source.get(number, key)
            if row != target.get(number, key):
                yield key, row


def _put(target: TableStore, rows: Rows) -> int:
    changes = {place: row for place, row in rows.items() if target.newest(*place) != row}
    if not changes:
        return 0
    size = SMALL_BYTES
    for (table, key), row in changes.items():
        size += (
            2 * CHANGE_BYTES
            + 4 * len(key)
            + len(row or b"")
            + len(target.newest(table, key) or b"")
        )
    log = target.log
    with log.lock:
        log.admit(size)
        step = target.whole(changes)
        log.log_tables(step.record)
        step.done()
    return len(changes)


def first_difference(source: TableStore, target: TableStore) -> str:
    """Where the tables of two stores differ, in words; empty if they do not."""
    wanted, there = user_tables(source), user_tables(target)
    if differing := sorted(n for n in {*wanted, *there} if wanted.get(n) != there.get(n)):
        return f"table {differing[0]} has another definition, or is not in both"
    for number in sorted(wanted):
        for key, _ in _differences(source, target, number):
            return f"table {number} has another row of the key {key.hex()}"
    return ""


def prepared_changes(source: TableStore, target: TableStore) -> dict[Xid, Remade]:
    """By the name of each prepared transaction with rows: makes it again in the target, not prepared yet."""
    found: dict[Xid, Remade] = {}
    for xid, trx in source.prepared.items():
        rows = {(n.table, n.key): source.newest(n.table, n.key) for n in trx.chain()}
        found[xid] = partial(_remade, target, rows)
    return found


def _remade(target: TableStore, rows: Rows) -> TableTransaction:
    trx = target.begin()
    with contextlib.ExitStack() as undone:
        undone.callback(trx.rollback)
        for (table, key), row in rows.items():
            if row is None:
                trx.delete(table, key)
            else:
                trx.put(table, key, row)
        undone.pop_all()
    return trx
