"""The redo log file, `binlog-server.redo`, to the byte. Pure: no I/O. docs/internals/redo-format.md has it in prose.

    block 0      header, written once when the file is made
    block 1, 2   checkpoints, written by turns: the sound one with the higher number holds
    block 3..    a ring: the byte with LSN n lies at n % capacity. Blocks have 4096 bytes.

Header
    0    16   magic
    16   16   uuid of the store
    32   8    capacity of the ring, bytes
    40   4    CRC-32C of bytes 0..39

Checkpoint
    0    8    magic
    8    8    number, 1 for the first; even ones lie in block 2, odd ones in block 1
    16   4    epoch: one more at each opening of the store
    20   4    1 if there is a place in the binlog; 0: the store was empty, files found are what RESET MASTER left
    24   8    LSN at which recovery begins to read
    32   8    file number, and
    40   8    offset in it, at which the binlog ended then
    48   4    CRC-32C of bytes 0..47
A store with tables has the magic `redo ck2` instead, and another end:
    48   8    LSN at which the tables begin to read; the ring in front of the lower of the two is free
    56   4    epoch there
    60   4    number of the snapshot of that LSN, 0 for none: tables begin empty
    64   4    CRC-32C of bytes 0..63

Mini-transaction: all or nothing. It may wrap around the end of the ring anywhere.
    0    4    magic
    4    4    epoch in which it was written: what an earlier one left behind is not of this log
    8    8    LSN at which it begins
    16   4    size of all of it
    20   n    records
    -4   4    CRC-32C of everything before

Record: one byte, whose high half is the kind and whose lowest bit is that of the file number, then
    0x10 WRITE    u32 page, u16 offset in it, u16 size, bytes: what a page of an .ibb file gets. An offset of 0 begins
                  the page anew. Of a header page only the 64 bytes of its fields are logged.
    0x20 CUT      u32 pages: the file ends behind that many
    0x30 FLUSHED  u64 LSN: all before it was durable when this was written
    0x40 UNLOGGED u32 page, u32 pages, u8 first, u8 then, u32 safe: so many whole pages whose bytes are not logged, of
                  out-of-band data: each a chunk that fills it, the type byte of the first one and of the others. They
                  are durable in their file before anything that refers to them is logged; if they are not there,
                  nothing does. In front of page `safe` of the file they were when this was written.
    0x50 TABLES   u32 size, bytes: records of tables (`binlog_storage.tables.records`). They stand at the end of a
                  mini-transaction: one that begins with this kind holds nothing else
    0x60 BEGUN    u32 epoch: the log goes on in the epoch of this mini-transaction; so far it was that one. Only in a
                  store with tables, where the log is not empty at an opening
    0x70 PLACED   u64 file number, u64 offset: the log goes on here only if the traditional binlog beside it reaches up
                  to there; else it ends in front of this mini-transaction
All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c
from binlog_protocol.dataclass import dataclass

from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE

REDO_NAME = "binlog-server.redo"
BLOCK = 4096
RING_AT = 3 * BLOCK
CHECKPOINT_AT = (2 * BLOCK, BLOCK)  # by the lowest bit of its number

_FILE_MAGIC = b"binlog redo 1\r\n\0"
_CHECKPOINT_MAGIC = b"redo ckp"
_TABLES_MAGIC = b"redo ck2"
MTR_MAGIC = b"\xb1\x06mt"
_FAMILIES = (_FILE_MAGIC[:12], _CHECKPOINT_MAGIC[:7])  # magics of newer versions begin so, too
_NEWER_BYTES_MAX = 512  # of a header or checkpoint of theirs

_HEADER = struct.Struct("<16s16sQ")
_CHECKPOINT = struct.Struct("<8sQIIQQQ")
_TABLES_FROM = struct.Struct("<QII")
MTR_HEAD = struct.Struct("<4sIQI")
WRITE_HEAD = struct.Struct("<BIHH")
CUT = struct.Struct("<BI")
FLUSHED = struct.Struct("<BQ")
UNLOGGED = struct.Struct("<BIIBBI")
TABLES_HEAD = struct.Struct("<BI")
BEGUN = struct.Struct("<BI")
PLACED = struct.Struct("<BQQ")
CRC = struct.Struct("<I")

KIND_WRITE = 0x10
KIND_CUT = 0x20
KIND_FLUSHED = 0x30
KIND_UNLOGGED = 0x40
KIND_TABLES = 0x50
KIND_BEGUN = 0x60
KIND_PLACED = 0x70
_KIND = 0xF0
_PARITY = 0x0F

MTR_OVERHEAD = MTR_HEAD.size + CRC.size

assert len(_FILE_MAGIC) == 16
assert _HEADER.size == 40
assert _CHECKPOINT.size == 48
assert MTR_OVERHEAD == 24
assert WRITE_HEAD.size == 9


class RedoFormatError(ValueError):
    """Bytes that no writer of this version makes."""


class NewerRedo(RedoFormatError):
    """Sound bytes of a form that is not known here: a newer version has made them."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: a newer version of binlog-server has written it. The store was not opened and nothing was "
            "changed: start that version, or a copy of the store from before it"
        )


def _with_crc(body: bytes) -> bytes:
    return body + CRC.pack(google_crc32c.value(body))


def _sound(block: bytes, size: int) -> bool:
    if len(block) < size + CRC.size:
        return False
    (crc,) = CRC.unpack_from(block, size)
    return bool(crc == google_crc32c.value(block[:size]))


def is_of_newer(block: bytes) -> bool:
    """Whether a block that is neither a header nor a checkpoint of this version is a sound one of a newer version."""
    return block.startswith(_FAMILIES) and any(
        _sound(block, size) for size in range(_HEADER.size, _NEWER_BYTES_MAX, CRC.size)
    )


@dataclass(frozen=True, slots=True)
class LogHeader:
    """See the module. `uuid` has 16 bytes, `capacity` is in bytes."""

    uuid: bytes
    capacity: int

    def build(self) -> bytes:
        """The header as one block."""
        return _with_crc(_HEADER.pack(_FILE_MAGIC, self.uuid, self.capacity)).ljust(BLOCK, b"\0")

    @classmethod
    def parse(cls, block: bytes) -> LogHeader:
        """Raises `RedoFormatError`."""
        if block[: len(_FILE_MAGIC)] != _FILE_MAGIC:
            if is_of_newer(block):
                raise NewerRedo(f"a header {block[:16]!r}")
            raise RedoFormatError(f"it does not begin as a redo log does, but with {block[:16]!r}")
        if not _sound(block, _HEADER.size):
            raise RedoFormatError("the checksum of its header is wrong")
        _, uuid, capacity = _HEADER.unpack_from(block)
        return cls(uuid, capacity)


class TablesFrom(NamedTuple):
    """Where the tables begin to read the log: an LSN, the epoch there, and the number of the snapshot of that LSN."""

    lsn: int
    epoch: int
    snapshot: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """See the module. `lsn` and `end` are the binlog's: `end` is None for an empty store. `tables` is None without."""

    number: int
    epoch: int
    lsn: int
    end: Position | None
    tables: TablesFrom | None = None

    @property
    def begin(self) -> tuple[int, int]:
        """The LSN from which on the log is needed, and the epoch there."""
        if self.tables is not None and self.tables.lsn < self.lsn:
            return self.tables.lsn, self.tables.epoch
        return self.lsn, self.epoch

    @property
    def at(self) -> int:
        """Offset of its block in the file."""
        return CHECKPOINT_AT[self.number & 1]

    def build(self) -> bytes:
        """The checkpoint as one block."""
        placed = self.end is not None
        file_no, offset = self.end or (0, 0)
        magic = _CHECKPOINT_MAGIC if self.tables is None else _TABLES_MAGIC
        body = _CHECKPOINT.pack(magic, self.number, self.epoch, placed, self.lsn, file_no, offset)
        if self.tables is not None:
            body += _TABLES_FROM.pack(*self.tables)
        return _with_crc(body).ljust(BLOCK, b"\0")

    @classmethod
    def parse(cls, block: bytes) -> Checkpoint | None:
        """The checkpoint in a block; None unless it is whole and sound."""
        magic = block[: len(_CHECKPOINT_MAGIC)]
        size = _CHECKPOINT.size + (_TABLES_FROM.size if magic == _TABLES_MAGIC else 0)
        if magic not in (_CHECKPOINT_MAGIC, _TABLES_MAGIC) or not _sound(block, size):
            return None
        _, number, epoch, placed, lsn, file_no, offset = _CHECKPOINT.unpack_from(block)
        tables = None
        if magic == _TABLES_MAGIC:
            tables = TablesFrom(*_TABLES_FROM.unpack_from(block, _CHECKPOINT.size))
        return cls(number, epoch, lsn, Position(file_no, offset) if placed else None, tables)


class Write(NamedTuple):
    """`data` at `offset` of a page of the file whose number is even or odd as `parity` is."""

    parity: int
    page_no: int
    offset: int
    data: bytes


class Cut(NamedTuple):
    """The file ends behind `pages`."""

    parity: int
    pages: int


class Flushed(NamedTuple):
    """Everything before `lsn` was durable when this was written."""

    lsn: int


class Unlogged(NamedTuple):
    """`pages` whole ones that are not logged, from `page_no` on: see the module."""

    parity: int
    page_no: int
    pages: int
    first: int
    then: int
    safe: int


class Tables(NamedTuple):
    """Records of tables."""

    data: bytes


class Begun(NamedTuple):
    """Another epoch goes on behind this one."""

    epoch: int


class Placed(NamedTuple):
    """What follows is behind this place of a traditional binlog."""

    place: Position


RedoRecord = Write | Cut | Flushed | Unlogged | Tables | Begun | Placed


def placed_record(place: Position) -> bytes:
    """The record with which a mini-transaction is behind a place of a traditional binlog."""
    return PLACED.pack(KIND_PLACED, *place)


def tables_record(data: bytes) -> bytes:
    """Records of tables as one record of a mini-transaction."""
    return TABLES_HEAD.pack(KIND_TABLES, len(data)) + data


class MiniTransaction(NamedTuple):
    """One of the log: from `lsn` up to `end`, where the next begins. `body` holds its records."""

    lsn: int
    end: int
    body: bytes

    def records(self) -> Iterator[RedoRecord]:
        """Raises `RedoFormatError`."""
        return parse_records(self.body)

    @property
    def is_note(self) -> bool:
        """Whether it is about the log itself."""
        return self.body[0] & _KIND in (KIND_FLUSHED, KIND_BEGUN)

    @property
    def place(self) -> Position | None:
        """The place of a traditional binlog that it is behind; None without one."""
        if self.body[0] & _KIND != KIND_PLACED:
            return None
        return Position(*PLACED.unpack_from(self.body)[1:])

    @property
    def is_of_tables(self) -> bool:
        """Whether it holds nothing but records of tables."""
        return self.body[0] & _KIND == KIND_TABLES


def build_mtr(epoch: int, lsn: int, body: bytes) -> bytes:
    """The bytes of a mini-transaction."""
    data = MTR_HEAD.pack(MTR_MAGIC, epoch, lsn, len(body) + MTR_OVERHEAD) + body
    return data + CRC.pack(google_crc32c.value(data))


def frame_mtr(epoch: int, lsn: int, records: Sequence[bytes]) -> Iterator[bytes]:
    """The same in pieces: large records are not copied."""
    size = sum(map(len, records)) + MTR_OVERHEAD
    head = MTR_HEAD.pack(MTR_MAGIC, epoch, lsn, size)
    crc = google_crc32c.value(head)
    yield head
    for record in records:
        crc = google_crc32c.extend(crc, record)
        yield record
    yield CRC.pack(crc)


def parse_records(body: bytes) -> Iterator[RedoRecord]:
    """The records of a mini-transaction, in order. Raises `RedoFormatError`."""
    at = 0
    while at < len(body):
        kind, parity = body[at] & _KIND, body[at] & _PARITY
        try:
            if kind == KIND_WRITE:
                _, page_no, offset, size = WRITE_HEAD.unpack_from(body, at)
                at += WRITE_HEAD.size
                if not size or offset + size > PAGE_SIZE or at + size > len(body):
                    raise RedoFormatError(
                        f"a write of {size} bytes at offset {offset} of page {page_no}"
                    )
                yield Write(parity, page_no, offset, body[at : at + size])
                at += size
            elif kind == KIND_CUT:
                _, pages = CUT.unpack_from(body, at)
                yield Cut(parity, pages)
                at += CUT.size
            elif kind == KIND_FLUSHED:
                _, lsn = FLUSHED.unpack_from(body, at)
                yield Flushed(lsn)
                at += FLUSHED.size
            elif kind == KIND_UNLOGGED:
                _, page_no, count, first, then, safe = UNLOGGED.unpack_from(body, at)
                if not count:
                    raise RedoFormatError(f"no pages from page {page_no} on")
                yield Unlogged(parity, page_no, count, first, then, safe)
                at += UNLOGGED.size
            elif kind == KIND_TABLES:
                _, size = TABLES_HEAD.unpack_from(body, at)
                at += TABLES_HEAD.size
                if at + size != len(body):
                    raise RedoFormatError(
                        f"{size} bytes of tables, where there is room for {len(body) - at}"
                    )
                yield Tables(body[at : at + size])
                at += size
            elif kind == KIND_BEGUN:
                _, epoch = BEGUN.unpack_from(body, at)
                yield Begun(epoch)
                at += BEGUN.size
            elif kind == KIND_PLACED:
                yield Placed(Position(*PLACED.unpack_from(body, at)[1:]))
                at += PLACED.size
            else:
                raise NewerRedo(f"a record of unknown kind 0x{body[at]:02x}")
        except struct.error:
            raise RedoFormatError("a record ends outside its mini-transaction") from None
