"""The changes of the redo log that come one behind the other, applied at once: the loop of recovery.

It exists in C, too (`_speedups.c`), and is used where it was built; a test holds the two equal. Whatever is not plain
is left to `Rebuild.apply`: the first change of a transaction, or in a table; any other record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import google_crc32c

from binlog_storage.redo.format import (
    CRC,
    KIND_TABLES,
    MTR_HEAD,
    MTR_MAGIC,
    MTR_OVERHEAD,
    TABLES_HEAD,
)
from binlog_storage.tables.records import CHANGE, CHANGE_BYTES, KIND_CHANGE, NO_ROW
from binlog_storage.tables.rows import COMMITTED, Node, Table, Trx, Version, version_below

_LEAST: Final = MTR_OVERHEAD + TABLES_HEAD.size + CHANGE_BYTES
_FRAME: Final = MTR_OVERHEAD + TABLES_HEAD.size


def take_changes_plainly(
    window: bytes,
    at: int,
    stop: int,
    lsn: int,
    epoch: int,
    unfinished: Mapping[int, Trx],
    tables: Mapping[int, Table],
    committed: Trx = COMMITTED,
) -> tuple[int, int]:
    """Apply mini-transactions, each of them one change, up to the first that is not plain.

    Args:
        window: a part of the log; `at` and `stop` are offsets in it.
        lsn, epoch: of what lies at `at`.
        unfinished, tables: transactions and tables that are known, by number.

    Returns the offset behind the last one, and their number.
    """
    count = 0
    while stop - at >= _LEAST:
        magic, its_epoch, its_lsn, size = MTR_HEAD.unpack_from(window, at)
        if magic != MTR_MAGIC or its_epoch != epoch or its_lsn != lsn or not size <= stop - at:
            break
        kind, size_of_tables = TABLES_HEAD.unpack_from(window, at + MTR_HEAD.size)
        change = CHANGE.unpack_from(window, at + MTR_HEAD.size + TABLES_HEAD.size)
        what, trx_id, no, below, table, key_size, before_size, after_size = change
        begin = at + MTR_HEAD.size + TABLES_HEAD.size + CHANGE_BYTES
        end_of_key = begin + key_size
        end_of_before = end_of_key + (0 if before_size == NO_ROW else before_size)
        end = end_of_before + (0 if after_size == NO_ROW else after_size)
        if (
            kind != KIND_TABLES
            or what != KIND_CHANGE
            or size != _FRAME + size_of_tables
            or end + CRC.size != at + size
            or CRC.unpack_from(window, end)[0] != google_crc32c.value(window[at:end])
        ):
            break
        trx, place = unfinished.get(trx_id), tables.get(table)
        if trx is None or place is None or table not in trx.tables:
            break
        if no <= trx.no or below != (0 if trx.top is None else trx.top.no):
            break
        key = window[begin:end_of_key]
        now = place.rows.get(key)
        before = None if before_size == NO_ROW else window[end_of_key:end_of_before]
        after = None if after_size == NO_ROW else window[end_of_before:end]
        trx.top = Node(no, trx.top, table, key, before)
        trx.no = no
        trx.count += 1
        below_it = version_below(trx, now, before, committed)
        place.rows[key] = Version(after, trx, below_it)
        at += size
        lsn += size
        count += 1
    return at, count


TakeChanges = Callable[
    [bytes, int, int, int, int, dict[int, Trx], dict[int, Table], Trx], tuple[int, int]
]
take_changes: TakeChanges = take_changes_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    take_changes = _speedups.take_changes
