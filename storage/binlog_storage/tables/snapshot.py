"""The snapshot file, `binlog-server.tables`: all rows, read while others change them, and chains of transactions.

    header   16 magic, 16 uuid of the store, u64 LSN and u32 epoch from which on the log is needed, u32 number,
             u32 CRC-32C of all that
    blocks   u32 size, u32 CRC-32C, records:
             'R' u32 table, u32 sizes of key and row, both
             'T' u64 transaction, u32 its last node, u8 state, u8 engines, u8 1 if there is an XID, that as in `ibb.xa`
             'N' u32 node, u32 table, u32 sizes of key and row before (0xffffffff: none), both: of the transaction in
                 front, the newest first
             'E' u64 LSN behind the last change that may be in it, u64 next transaction, u64 rows: the last record

docs/internals/tables.md has the steps of making one, and what a crash leaves. All numbers are little-endian.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import google_crc32c

from binlog_storage.disk.disk import Disk, File, replaced
from binlog_storage.disk.read_only_disk import ReadableDisk, ReadableFile
from binlog_storage.errors import CorruptRedo, CorruptTables
from binlog_storage.ibb.xa import Xid, decode_xid
from binlog_storage.redo.format import TablesFrom
from binlog_storage.tables.records import NO_ROW, State
from binlog_storage.tables.rows import (
    NODE_RECORD,
    UNLOGGED,
    AnyNode,
    Listing,
    Memory,
    Table,
    Trx,
    Version,
    nodes_from,
)
from binlog_storage.tables.take_records import ROW, find_nodes, take_nodes, take_rows

TABLES_NAME: Final = "binlog-server.tables"
STEP_ROWS: Final = 256  # read at once, under the latch

_MAGIC: Final = b"binlog rows 1\r\n\0"
_HEADER: Final = struct.Struct("<16s16sQII")
_BLOCK: Final = struct.Struct("<II")
_TRX: Final = struct.Struct("<cQIBBB")
_END: Final = struct.Struct("<cQQQ")
_CRC: Final = struct.Struct("<I")
_BLOCK_BYTES: Final = 64 << 10

_ADVICE: Final = (
    ". The store was not opened and nothing was changed: restore the store with this file and its redo log from a "
    "copy"
)


class OpenTrx(NamedTuple):
    """A transaction as it was when the snapshot began. Its nodes never change."""

    id: int
    no: int
    state: State
    engines: int
    xid: Xid | None
    top: AnyNode | None

    @classmethod
    def of(cls, trx: Trx) -> OpenTrx:
        """As it is now."""
        return cls(trx.id, trx.no, trx.state, trx.engines, trx.xid, trx.top)


class Begin(NamedTuple):
    """The moment at which a snapshot begins."""

    uuid: bytes
    tables: TablesFrom
    open: list[OpenTrx]


class _Writer:
    def __init__(self, file: File, begin: Begin) -> None:
        lsn, epoch, number = begin.tables
        head = _HEADER.pack(_MAGIC, begin.uuid, lsn, epoch, number)
        head += _CRC.pack(google_crc32c.value(head))
        file.pwrite(head, 0)
        self._file = file
        self._at = len(head)
        self._parts: list[bytes] = []
        self._size = 0

    def put(self, *parts: bytes) -> None:
        self._parts += parts
        self._size += sum(map(len, parts))
        if self._size >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        body = b"".join(self._parts)
        block = _BLOCK.pack(len(body), google_crc32c.value(body)) + body
        self._file.pwrite(block, self._at)
        self._file.start_writing(len(block), self._at)
        self._at += len(block)
        self._parts, self._size = [], 0


def write(
    disk: Disk,
    begin: Begin,
    memory: Memory,
    latch: threading.Lock,
    end: Callable[[], tuple[int, int]],
    pause: Callable[[], None] = lambda: None,
) -> int:
    """Write a snapshot, and let it take the place of the one before. Returns its rows. Raises `DiskError`.

    Args:
        end: called behind the last row: makes the log durable, and gives the LSN up to which it is, and the number of
            the next transaction.
        pause: called between two steps, without the latch.
    """
    rows = 0
    with replaced(disk, TABLES_NAME) as file:
        writer = _Writer(file, begin)
        with latch:
            tables = [(n, table) for n, table in memory.tables.items() if not n & UNLOGGED]
        for number, table in tables:
            for body, count in _packed_steps(number, table, latch):
                writer.put(body)
                rows += count
                pause()
            # What was packed before and is not now is among these, perhaps once more.
            for found in _steps(table, latch):
                for key, version in found:
                    if version is not None and version.row is not None:
                        writer.put(
                            ROW.pack(b"R", number, len(key), len(version.row)), key, version.row
                        )
                        rows += 1
                pause()
        for trx in begin.open:
            _write_trx(writer, trx)
        lsn, next_trx = end()
        writer.put(_END.pack(b"E", lsn, next_trx, rows))
        writer.flush()
    return rows


def _steps(table: Table, latch: threading.Lock) -> Iterator[list[tuple[bytes, Version | None]]]:
    """The rows that are objects. What comes or changes later is in the log."""
    with latch:
        listing = Listing(table)
    try:
        while True:
            with latch:
                found = [(key, table.rows.get(key)) for key in listing.step(STEP_ROWS)]
            if not found:
                return
            yield found
    finally:
        with latch:
            listing.close()


def _packed_steps(number: int, table: Table, latch: threading.Lock) -> Iterator[tuple[bytes, int]]:
    """The rows that are no objects, as records."""
    packed = table.packed
    if packed is None:
        return
    for at in range(0, packed.places, STEP_ROWS):
        with latch:
            found = packed.records(number, at, STEP_ROWS)
        yield found


def _write_trx(writer: _Writer, trx: OpenTrx) -> None:
    xid = b"" if trx.xid is None else trx.xid.encode()
    writer.put(_TRX.pack(b"T", trx.id, trx.no, trx.state, trx.engines, trx.xid is not None), xid)
    for node in nodes_from(trx.top):
        if node.table & UNLOGGED:
            continue
        size = NO_ROW if node.before is None else len(node.before)
        head = NODE_RECORD.pack(b"N", node.no, node.table, len(node.key), size)
        writer.put(head, node.key, node.before or b"")


def with_uuid(head: bytes, uuid: bytes) -> bytes:
    """The first bytes of a snapshot, for a copy of its redo log with another uuid. Raises `CorruptTables`."""
    _require_head(head)
    magic, _, lsn, epoch, number = _HEADER.unpack_from(head)
    fields = _HEADER.pack(magic, uuid, lsn, epoch, number)
    fields += _CRC.pack(google_crc32c.value(fields))
    return fields + head[len(fields) :]


def _require_head(head: bytes) -> None:
    """Raises `CorruptTables`."""
    if head[:16] != _MAGIC:
        raise CorruptTables(
            f"{TABLES_NAME} does not begin as one does, but with {head[:16]!r}{_ADVICE}"
        )
    if _CRC.unpack_from(head, _HEADER.size)[0] != google_crc32c.value(head[: _HEADER.size]):
        raise CorruptTables(f"the checksum of the header of {TABLES_NAME} is wrong{_ADVICE}")


class SnapshotFacts(NamedTuple):
    """What a snapshot says of itself.

    uuid: of the redo log. end: the LSN up to which it may have changes.
    """

    uuid: bytes
    begin: TablesFrom
    end: int
    next_trx: int
    rows: int

    def require_fits(self, uuid: bytes, told: TablesFrom | None) -> None:
        """Raise `CorruptTables` unless it goes with a redo log. `told`: what its last checkpoint says of the tables."""
        if self.uuid != uuid:
            raise CorruptTables(f"{TABLES_NAME} is that of another store{_ADVICE}")
        if told is not None and told.snapshot > self.begin.snapshot:
            raise CorruptTables(
                f"{TABLES_NAME} is an older copy: it is number {self.begin.snapshot}, and the redo log goes on behind "
                f"number {told.snapshot}{_ADVICE}"
            )

    def require_whole(self, end: int) -> None:
        """Raise `CorruptRedo` if the redo log ends in front of what it has. `end`: the LSN at which it ends."""
        if end < self.end:
            raise CorruptRedo(
                f"the redo log ends at LSN {end}, but {TABLES_NAME} holds what was durable up to LSN {self.end}: the "
                "log is an older copy, or the disk lost what it had confirmed. The store was not opened and nothing "
                "was changed: restore it from a copy"
            )


class Loaded(NamedTuple):
    """A snapshot in memory, and its transactions by number."""

    facts: SnapshotFacts
    memory: Memory
    open: dict[int, Trx]


def is_there(disk: ReadableDisk, told: TablesFrom | None = None) -> bool:
    """Whether there is a snapshot. Raises `CorruptTables` if there is none, and the redo log goes on behind one."""
    if TABLES_NAME in disk.names():
        return True
    if told is not None and told.snapshot:
        raise CorruptTables(
            f"{TABLES_NAME} is missing, which has the tables up to LSN {told.lsn}{_ADVICE}"
        )
    return False


def load(disk: ReadableDisk) -> Loaded:
    """Read the snapshot. Raises `CorruptTables`, `DiskError`."""
    memory = Memory()
    found = _walk(disk, memory.tables)
    for trx, nodes in found.chains:
        for body, places in reversed(nodes):
            take_nodes(body, places, trx, memory.tables, Table)
    return Loaded(found.facts, memory, {trx.id: trx for trx, _ in found.chains})


def look(disk: ReadableDisk) -> SnapshotFacts:
    """Read the snapshot as a whole, and keep nothing of it. Raises `CorruptTables`, `DiskError`."""
    return _walk(disk, None).facts


class _Found(NamedTuple):
    """What a snapshot has, but for its rows: its transactions, each with the blocks of its nodes and their places."""

    facts: SnapshotFacts
    chains: list[tuple[Trx, list[tuple[bytes, bytes]]]]


def _walk(disk: ReadableDisk, tables: dict[int, Table] | None) -> _Found:
    """All records. The rows are taken into these tables; None: nothing is kept."""
    with contextlib.closing(disk.open(TABLES_NAME)) as file:
        try:
            return _walk_file(file, tables)
        except (struct.error, ValueError, LookupError) as error:
            raise CorruptTables(f"{TABLES_NAME} is damaged: {error}{_ADVICE}") from None


def _walk_file(file: ReadableFile, tables: dict[int, Table] | None) -> _Found:
    head = file.pread(_HEADER.size + _CRC.size, 0)
    _require_head(head)
    _, uuid, lsn, epoch, number = _HEADER.unpack_from(head)
    rows = 0
    chains: list[tuple[Trx, list[tuple[bytes, bytes]]]] = []
    for body in _blocks(file, len(head)):
        at = 0
        while at < len(body):
            kind = body[at : at + 1]
            if kind == b"R":
                at, count = take_rows(body, at, tables, Table)
                rows += count
            elif kind == b"T":
                _, trx_id, last, state, engines, named = _TRX.unpack_from(body, at)
                at += _TRX.size
                trx = Trx(trx_id)
                trx.no, trx.state, trx.engines = last, State(state), engines
                if named:
                    trx.xid, at = decode_xid(body, at)
                chains.append((trx, []))
            elif kind == b"N" and chains:
                at, places = find_nodes(body, at)
                if tables is not None:
                    chains[-1][1].append((body, places))
            elif kind == b"E":
                _, end, next_trx, count = _END.unpack_from(body, at)
                if count != rows:
                    raise ValueError(f"it has {rows} rows, and should have {count}")
                facts = SnapshotFacts(uuid, TablesFrom(lsn, epoch, number), end, next_trx, rows)
                return _Found(facts, chains)
            else:
                raise ValueError(f"a record of unknown kind {kind!r}")
    raise ValueError("it ends before its last record")


def _blocks(file: ReadableFile, at: int) -> Iterator[bytes]:
    left = file.size() - at
    while left:
        size, crc = _BLOCK.unpack(file.pread(_BLOCK.size, at))
        if size > left:
            raise ValueError(f"a block of {size} bytes at offset {at} goes beyond its end")
        body = file.pread(size, at + _BLOCK.size)
        if google_crc32c.value(body) != crc:
            raise ValueError(f"the checksum of the block at offset {at} is wrong")
        yield body
        at += _BLOCK.size + size
        left -= _BLOCK.size + size
