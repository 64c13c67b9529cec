"""What tables write into the redo log, to the byte: records one behind the other in a TABLES record. Pure.

    1 CHANGE   u64 transaction, u32 node, u32 node below (0: none), u32 table, u32 sizes of key, row before, row after;
               these three. A size of 0xffffffff: there is no such row
    2 UNDONE   u64 transaction, u32 node: all nodes above this one are undone (0: all)
    3 STATE    u64 transaction, u8 state, u8 engines; if it is PREPARED, the XID as in `binlog_storage.ibb.xa`
    4 END      u64 transaction, u8 1: committed, 0: rolled back

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from binlog_storage.errors import CorruptTables
from binlog_storage.ibb.xa import Xid, decode_xid

NO_ROW: Final = 0xFFFFFFFF
CHANGE: Final = struct.Struct("<BQIIIIII")
_UNDONE: Final = struct.Struct("<BQI")
_STATE: Final = struct.Struct("<BQBB")
_END: Final = struct.Struct("<BQB")
KIND_CHANGE: Final = 1
_UNDO, _SET_STATE, _ENDED = 2, 3, 4

CHANGE_BYTES: Final = CHANGE.size
SMALL_BYTES: Final = 256  # no record but CHANGE is larger


class State(IntEnum):
    """The state of an unfinished transaction."""

    ACTIVE = 1
    PREPARED = 2


class ChangedRow(NamedTuple):
    """A row was changed: see the module. A row of None is none."""

    trx: int
    no: int
    below: int
    table: int
    key: bytes
    before: bytes | None
    after: bytes | None


class Undone(NamedTuple):
    """The nodes of a transaction above `top` are undone."""

    trx: int
    top: int


class SetState(NamedTuple):
    """A transaction is in another state; `xid` if it is prepared."""

    trx: int
    state: State
    engines: int = 1
    xid: Xid | None = None


class End(NamedTuple):
    """A transaction has ended."""

    trx: int
    committed: bool


def encode_change(
    trx: int, no: int, below: int, table: int, key: bytes, before: bytes | None, after: bytes | None
) -> bytes:
    """A CHANGE record."""
    head = CHANGE.pack(
        KIND_CHANGE,
        trx,
        no,
        below,
        table,
        len(key),
        NO_ROW if before is None else len(before),
        NO_ROW if after is None else len(after),
    )
    return b"".join((head, key, before or b"", after or b""))


def encode_undone(trx: int, top: int) -> bytes:
    """An UNDONE record."""
    return _UNDONE.pack(_UNDO, trx, top)


def encode_state(record: SetState) -> bytes:
    """A STATE record."""
    head = _STATE.pack(_SET_STATE, record.trx, record.state, record.engines)
    return head if record.xid is None else head + record.xid.encode()


def is_commit(record: bytes) -> bool:
    """Whether these are the END of a transaction that commits, and nothing else."""
    return record[0] == _ENDED and record[-1] == 1


def encode_end(trx: int, *, committed: bool) -> bytes:
    """An END record."""
    return _END.pack(_ENDED, trx, committed)


def parse(data: bytes) -> Iterator[ChangedRow | Undone | SetState | End]:
    """The records, in order. Raises `CorruptTables`."""
    at = 0
    size = len(data)
    try:
        while at < size:
            kind = data[at]
            if kind == KIND_CHANGE:
                _, trx, no, below, table, key_size, before_size, after_size = CHANGE.unpack_from(
                    data, at
                )
                at += CHANGE_BYTES
                key = data[at : at + key_size]
                at += key_size
                before = after = None
                if before_size != NO_ROW:
                    before = data[at : at + before_size]
                    at += before_size
                if after_size != NO_ROW:
                    after = data[at : at + after_size]
                    at += after_size
                if at > size:
                    raise CorruptTables("a change ends outside its mini-transaction")
                yield ChangedRow(trx, no, below, table, key, before, after)
            elif kind == _UNDO:
                yield Undone(*_UNDONE.unpack_from(data, at)[1:])
                at += _UNDONE.size
            elif kind == _SET_STATE:
                _, trx, state, engines = _STATE.unpack_from(data, at)
                at += _STATE.size
                xid = None
                if state == State.PREPARED:
                    xid, at = decode_xid(data, at)
                yield SetState(trx, State(state), engines, xid)
            elif kind == _ENDED:
                _, trx, committed = _END.unpack_from(data, at)
                yield End(trx, bool(committed))
                at += _END.size
            else:
                raise CorruptTables(f"a record of unknown kind 0x{kind:02x}")
    except (struct.error, ValueError) as error:
        raise CorruptTables(f"a record of tables that is no record: {error}") from None
