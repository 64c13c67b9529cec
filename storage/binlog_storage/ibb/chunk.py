"""Chunks: what a page is made of, and how a record is cut into them.

    offset  size  field
    0       1     type: bits 0-5 record type, bit 6 LAST, bit 7 CONT
    1       2     length of the data, little-endian, 1..16377
    3       n     data

The first chunk of a record has CONT clear, all others have it set; the final one has LAST set. A chunk never crosses
a page, and a record is cut only where its page is full. With fewer than 4 bytes left a page is filled with 0xFF. A
type byte 0 is the end of the data. Between two chunks of a record whole GTID_STATE and DUMMY chunks may stand,
nothing else. (MariaDB: `storage/innobase/fsp/fsp_binlog.cc`.)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE


class RecordType(IntEnum):
    """Types 7..62 are unknown and skipped by readers."""

    COMMIT = 1
    GTID_STATE = 2
    OOB_DATA = 3
    DUMMY = 4
    XA_PREPARE = 5
    XA_COMPLETE = 6


LAST = 0x40
CONT = 0x80
TYPE_MASK = 0x3F
FILLER = 0xFF
END_OF_DATA = 0x00
CHUNK_HEADER = 3
CHUNK_MIN = CHUNK_HEADER + 1
CHUNK_DATA_MAX = PAGE_END - CHUNK_HEADER
LAST_CHUNK_START = (
    PAGE_END - CHUNK_MIN
)  # a chunk may begin here, with one byte of data, and no later

assert CHUNK_DATA_MAX == 16377
assert LAST_CHUNK_START == 16376
assert LAST | CONT | TYPE_MASK == FILLER  # which is why type 63 cannot be used


class Position(NamedTuple):
    """A place in the store: byte `offset` of the first chunk of a record in file `file_no`.

    Internal to the store: the only public address of a group is its GTID.
    """

    file_no: int
    offset: int

    @property
    def page_no(self) -> int:
        """Page of the file in which it lies."""
        return self.offset // PAGE_SIZE

    @property
    def page_start(self) -> Position:
        """The start of the position's page."""
        return Position(self.file_no, self.offset - self.offset % PAGE_SIZE)

    @property
    def in_page(self) -> int:
        """Offset inside that page."""
        return self.offset % PAGE_SIZE

    @property
    def next_record(self) -> Position:
        """The start of the next record, if the data end here: behind a full page that is the next page."""
        if self.in_page > LAST_CHUNK_START:
            return Position(self.file_no, (self.page_no + 1) * PAGE_SIZE)
        return self


position_of: Final[Callable[[tuple[int, int]], Position]] = partial(tuple.__new__, Position)
"""The position of a pair, in one call of C where `Position` itself takes one of Python more: for each commit."""


class Record(NamedTuple):
    """One whole record: where its first chunk begins, where the next record may begin, and its data."""

    type: int
    start: Position
    end: Position
    data: bytes


class LastChunk(NamedTuple):
    """The last chunk of a page: offset behind it, and its record type. 0 and 0 if there is none."""

    end: int
    type: int


def last_chunk(page: bytes | bytearray) -> LastChunk:
    """The last chunk of a sound page."""
    at, kind = 0, 0
    while at <= LAST_CHUNK_START and page[at] not in (END_OF_DATA, FILLER):
        kind = page[at] & TYPE_MASK
        at += CHUNK_HEADER + (page[at + 1] | page[at + 2] << 8)
    return LastChunk(at, kind)


def end_inside(page: bytes | bytearray) -> int | None:
    """The offset at which the data end inside of a sound page; None if it is full, as all but the last one must be."""
    end = last_chunk(page).end
    return end if end <= LAST_CHUNK_START and page[end] == END_OF_DATA else None
