"""A summary of an .ibb file, from its ends: a few pages are read of a file of any size."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.errors import CorruptBinlog, TruncatedRecord
from binlog_storage.ibb.chunk import Position, Record
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.group_reader import read_head
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.log_file import used_pages


class FileState(Enum):
    CLOSED = "closed"  # it has a successor
    LAST = "last"  # being written, if a server runs
    EMPTY = "empty"  # made ahead
    DAMAGED = "damaged"


class GroupEnd(NamedTuple):
    """The first or last group of a file; its time is that of its GTID event, in seconds since 1970."""

    gtid: Gtid
    timestamp: int


class FileSummary(NamedTuple):
    """One file. `damage` says what was met on the way; `verify` looks everywhere."""

    name: str
    size: int
    state: FileState
    first: GroupEnd | None = None
    last: GroupEnd | None = None
    base_state: BinlogState | None = None
    damage: str = ""


def summarize(binlog: OfflineBinlog, file_no: int) -> FileSummary:
    """Never raises `CorruptBinlog`: it becomes the state of the file."""
    pages = binlog.pages
    name, size = file_name(file_no), pages.size(file_no)
    if pages.is_empty(file_no) and file_no > pages.newest:
        return FileSummary(name, size, FileState.EMPTY)
    try:
        pages.header(file_no)
        base = binlog.base_state(file_no)
        first = _first(binlog, file_no)
        last = _last(binlog, file_no) if first is not None else None
    except CorruptBinlog as error:
        return FileSummary(name, size, FileState.DAMAGED, damage=error.reason)
    state = FileState.LAST if file_no == pages.newest else FileState.CLOSED
    return FileSummary(name, size, state, first, last, base)


def _first(binlog: OfflineBinlog, file_no: int) -> GroupEnd | None:
    ends = (_group_end(binlog, record) for record in _commits(binlog, file_no, 1))
    return next((end for end in ends if end is not None), None)


def _last(binlog: OfflineBinlog, file_no: int) -> GroupEnd | None:
    """From the last page back, to the first page on which a group begins. No page is read for another one: behind the
    last group the data of a large one without an end may lie, as a rollback leaves it.
    """
    used = used_pages(binlog.pages, file_no, binlog.pages.size(file_no) // PAGE_SIZE)
    for page_no in range(used - 1, 0, -1):
        found = None
        try:
            for record in _commits(binlog, file_no, page_no, page_no + 1):
                found = _group_end(binlog, record) or found
        except TruncatedRecord:
            pass  # a torn tail, or a record whose end lies in a file that is not there
        if found is not None:
            return found
    return None


def _commits(
    binlog: OfflineBinlog, file_no: int, page_no: int, behind: int | None = None
) -> Iterator[Record]:
    """The commit records that begin on pages of a file: from one up to `behind`, or to the end of the file."""
    begin, limit = Position(file_no, page_no * PAGE_SIZE), Position(file_no + 1, PAGE_SIZE)
    if behind is not None:
        limit = Position(file_no, behind * PAGE_SIZE)
    return RecordReader(binlog.pages, begin, limit, lenient=True).commits()


def _group_end(binlog: OfflineBinlog, record: Record) -> GroupEnd | None:
    """The GTID and the time of a group; None for a start marker."""
    head = read_head(binlog.pages, record)
    return None if head.gtid is None else GroupEnd(head.gtid, head.timestamp)
