"""Writes to one page that come one behind the other in the redo log, taken at once: a loop of recovery.

It exists in C, too (`_speedups.c`), and is used where it was built; a test holds the two equal. Whatever is not plain
is left to who reads the log mini-transaction by mini-transaction: what begins a page, goes on in another one, or holds
records of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import google_crc32c

from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.format import (
    CRC,
    FLUSHED,
    KIND_FLUSHED,
    KIND_WRITE,
    MTR_HEAD,
    MTR_MAGIC,
    MTR_OVERHEAD,
    WRITE_HEAD,
)

_NOTE_BYTES: Final = MTR_OVERHEAD + FLUSHED.size


def take_writes_plainly(
    window: bytes,
    at: int,
    stop: int,
    lsn: int,
    epoch: int,
    parity: int,
    page_no: int,
    offset: int,
    page: bytearray | None,
) -> tuple[int, int, int]:
    """Take mini-transactions that only go on with a page, and notes between them, up to the first other one.

    Args:
        window: a part of the log; `at` and `stop` are offsets in it.
        lsn, epoch: of what lies at `at`.
        parity, page_no: of the page; `offset` is the place in it where it goes on, behind its beginning.
        page: gets what is written; None: nobody wants it.

    Returns the offset in the window behind the last one, the offset in the page behind it, and the highest LSN that a
    note says was durable, 0 without notes.
    """
    told = 0
    kind = KIND_WRITE | parity
    while stop - at >= _NOTE_BYTES:
        magic, its_epoch, its_lsn, size = MTR_HEAD.unpack_from(window, at)
        if magic != MTR_MAGIC or its_epoch != epoch or its_lsn != lsn:
            break
        if not _NOTE_BYTES <= size <= stop - at:
            break
        begin, end = at + MTR_HEAD.size, at + size - CRC.size
        is_note = window[begin] == KIND_FLUSHED and size == _NOTE_BYTES
        behind = offset if is_note else _behind(window, begin, end, kind, page_no, offset)
        if behind is None or CRC.unpack_from(window, end)[0] != google_crc32c.value(window[at:end]):
            break
        if is_note:
            told = max(told, FLUSHED.unpack_from(window, begin)[1])
        elif page is not None:
            _write(window, begin, end, page)
        at, lsn, offset = at + size, lsn + size, behind
    return at, offset, told


def _behind(window: bytes, at: int, end: int, kind: int, page_no: int, offset: int) -> int | None:
    """The offset in the page behind these records; None if one of them is another one than such a write."""
    while at < end:
        if end - at < WRITE_HEAD.size:
            return None
        its_kind, its_page, its_offset, size = WRITE_HEAD.unpack_from(window, at)
        if (its_kind, its_page, its_offset) != (kind, page_no, offset):
            return None
        at += WRITE_HEAD.size + size
        offset += size
        if not size or at > end or offset > PAGE_SIZE:
            return None
    return offset


def _write(window: bytes, at: int, end: int, page: bytearray) -> None:
    while at < end:
        _, _, offset, size = WRITE_HEAD.unpack_from(window, at)
        at += WRITE_HEAD.size
        page[offset : offset + size] = window[at : at + size]
        at += size


TakeWrites = Callable[
    [bytes, int, int, int, int, int, int, int, bytearray | None], tuple[int, int, int]
]
take_writes: TakeWrites = take_writes_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    take_writes = _speedups.take_writes
