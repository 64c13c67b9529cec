"""Records of the snapshot that come one behind the other, taken into memory at once: the loops of a start.

They exist in C, too (`_speedups.c`), and are used where that was built; a test holds the two equal. A body is a block
of the snapshot, whose checksum was found right; `snapshot.py` has the layout of records.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Final

from binlog_storage.tables.records import NO_ROW
from binlog_storage.tables.rows import COMMITTED, NODE_RECORD, Node, Table, Trx, Version

ROW: Final = struct.Struct("<cIII")


def take_rows_plainly(
    body: bytes,
    at: int,
    tables: dict[int, Table] | None,
    table_type: type[Table] = Table,
) -> tuple[int, int]:
    """Take rows into their tables, up to a record of another kind.

    Args:
        at: the offset at which to begin.
        tables: by number, new ones are made; None: the rows are only counted.

    Returns the offset behind the last row, and their number. Raises `ValueError` for a row that ends outside.
    """
    count = 0
    while body[at : at + 1] == b"R":
        if len(body) - at < ROW.size:
            raise ValueError("a record ends outside its block")
        _, table, key_size, size = ROW.unpack_from(body, at)
        begin = at + ROW.size
        end = begin + key_size + size
        if end > len(body):
            raise ValueError("a record ends outside its block")
        if tables is not None:
            place = tables.get(table)
            if place is None:
                place = tables[table] = table_type()
            key = body[begin : begin + key_size]
            place.rows[key] = Version(body[begin + key_size : end], COMMITTED, None)
        at = end
        count += 1
    return at, count


def find_nodes_plainly(body: bytes, at: int) -> tuple[int, bytes]:
    """Find where nodes begin, up to a record of another kind.

    Returns the offset behind the last one, and the places: numbers of 4 bytes, in the order of this machine. Raises
    `ValueError` for a node that ends outside.
    """
    places = array("I")
    while body[at : at + 1] == b"N":
        if len(body) - at < NODE_RECORD.size:
            raise ValueError("a record ends outside its block")
        _, _, _, key_size, size = NODE_RECORD.unpack_from(body, at)
        end = at + NODE_RECORD.size + key_size + (0 if size == NO_ROW else size)
        if end > len(body):
            raise ValueError("a record ends outside its block")
        places.append(at)
        at = end
    return at, places.tobytes()


def take_nodes_plainly(
    body: bytes,
    places: bytes,
    trx: Trx,
    tables: dict[int, Table],
    table_type: type[Table] = Table,
) -> None:
    """Put nodes on a transaction's chain, and give it its versions of their rows. The last place is the oldest node.

    Args:
        places: from `find_nodes` of this body.
        tables: by number, with their rows; new ones are made.
    """
    known = array("I")
    known.frombytes(places)
    for at in reversed(known):
        _, no, table, key_size, size = NODE_RECORD.unpack_from(body, at)
        begin = at + NODE_RECORD.size
        key = body[begin : begin + key_size]
        behind = begin + key_size
        before = None if size == NO_ROW else body[behind : behind + size]
        place = tables.get(table)
        if place is None:
            place = tables[table] = table_type()
        rows = place.rows
        trx.top = Node(no, trx.top, table, key, before)
        trx.count += 1
        trx.tables.add(table)
        now = rows.get(key)
        if now is not None and now.trx is trx:  # it has changed that row before
            now.prev = Version(before, trx, now.prev)
        else:
            below = None if before is None else Version(before, COMMITTED, None)
            if now is None:
                rows[key] = Version(None, trx, below)
            else:  # nobody else has seen it yet
                now.trx, now.prev = trx, below


TakeRows = Callable[[bytes, int, dict[int, Table] | None, type[Table]], tuple[int, int]]
TakeNodes = Callable[[bytes, bytes, Trx, dict[int, Table], type[Table]], None]
take_rows: TakeRows = take_rows_plainly
find_nodes: Callable[[bytes, int], tuple[int, bytes]] = find_nodes_plainly
take_nodes: TakeNodes = take_nodes_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    take_rows = _speedups.take_rows
    find_nodes = _speedups.find_nodes
    take_nodes = _speedups.take_nodes
