"""Redo logs of any size on a disk in memory, and what is in them."""

from __future__ import annotations

import threading

from binlog_storage.ibb.chunk import Position
from binlog_storage.redo import log as redo_log
from binlog_storage.redo.format import (
    CUT,
    KIND_CUT,
    KIND_UNLOGGED,
    KIND_WRITE,
    REDO_NAME,
    RING_AT,
    UNLOGGED,
    WRITE_HEAD,
)
from binlog_storage.redo.log import FIRST_LSN, RedoLog
from binlog_storage.testing.memory_disk import MemoryDisk

UUID = bytes(range(16))
END = Position(0, 16384)
BUFFER = 1 << 16


def opened(disk: MemoryDisk) -> RedoLog:
    return RedoLog(disk, threading.Lock(), BUFFER)


def new_log(disk: MemoryDisk, capacity: int = 2000, lsn: int = FIRST_LSN) -> RedoLog:
    """A log that was just made, ready for `append`."""
    redo_log.make(disk, uuid=UUID, size=RING_AT + capacity, epoch=0, lsn=lsn, end=END)
    log = opened(disk)
    assert list(log.replay()) == []
    log.begin(END)
    return log


def replayed(disk: MemoryDisk) -> list[bytes]:
    """The bodies that recovery would find."""
    log = opened(disk)
    found = [mtr.body for mtr in log.replay()]
    log.close()
    return found


def ring(disk: MemoryDisk) -> bytes:
    return disk.contents()[REDO_NAME][RING_AT:]


def patched(disk: MemoryDisk, at: int, data: bytes) -> MemoryDisk:
    """A copy of the disk with other bytes at offset `at` of the log."""
    contents = disk.contents()
    image = bytearray(contents[REDO_NAME])
    image[at : at + len(data)] = data
    return MemoryDisk({**contents, REDO_NAME: bytes(image)})


def flipped(disk: MemoryDisk, at: int) -> MemoryDisk:
    return patched(disk, at, bytes((disk.contents()[REDO_NAME][at] ^ 0x40,)))


def write(page_no: int, offset: int, data: bytes, parity: int = 0) -> bytes:
    """A WRITE record."""
    return WRITE_HEAD.pack(KIND_WRITE | parity, page_no, offset, len(data)) + data


def cut(pages: int, parity: int = 0) -> bytes:
    """A CUT record."""
    return CUT.pack(KIND_CUT | parity, pages)


def unlogged(page_no: int, pages: int, safe: int = 0, parity: int = 0) -> bytes:
    """An UNLOGGED record: the middle of something out of band."""
    return UNLOGGED.pack(KIND_UNLOGGED | parity, page_no, pages, 0x83, 0x83, safe)


def body(number: int, size: int = 20) -> bytes:
    """A record that no other number gives."""
    return write(number, 0, bytes((number % 251 + 1,)) * size)
