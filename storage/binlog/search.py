"""Where to start reading for a replica's position: by file, then by state record inside the file.

A state S *is before* a position Q if everything in S is in what Q has seen (`BinlogState.is_before`). The newest file
whose page-1 state is before Q is taken, then the last state record in it that still is; a state record inside a file
holds the difference to page 1. From there the groups are skipped one by one, by GTID. (MariaDB: `innodb_binlog.cc`,
gtid_search.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.gtid import BinlogState, Gtid, SlavePosition
from storage.errors import CorruptBinlog, PositionPurged
from storage.ibb import gtid_state
from storage.ibb.chunk import CONT, TYPE_MASK, Position, RecordType
from storage.ibb.page import PAGE_SIZE
from storage.ibb.records import PageSource, RecordReader


class FileShape(NamedTuple):
    """Pages between state records (0 for none), and pages in the file."""

    interval: int
    pages: int


def read_state(pages: PageSource, file_no: int, page_no: int) -> list[Gtid] | None:
    """The entries of the state record at the start of a page; None if none stands there."""
    page = pages.page(file_no, page_no)
    if page is None or page[0] & (TYPE_MASK | CONT) != RecordType.GTID_STATE:
        return None
    place = Position(file_no, page_no * PAGE_SIZE)
    record = RecordReader(pages, place).next()
    assert record is not None
    try:
        return gtid_state.decode(record.data).entries
    except ValueError as error:
        raise CorruptBinlog(*place, str(error), record.data) from None


def find_start(
    pages: PageSource, shapes: Mapping[int, FileShape], position: SlavePosition, limit: Position
) -> tuple[Position, BinlogState]:
    """The place to read from, always the beginning of a record or `limit`, and the state there.

    Args:
        shapes: the files there are.
        limit: the durable end; nothing behind it is looked at.

    Raises `PositionPurged`.
    """
    for file_no in sorted(shapes, reverse=True):
        if Position(file_no, PAGE_SIZE) >= limit:
            continue
        state = BinlogState()
        state.overlay(read_state(pages, file_no, 1) or [])
        if state.is_before(position):
            page_no, state = _bisect(pages, file_no, shapes[file_no], state, position, limit)
            return _first_record(pages, Position(file_no, page_no * PAGE_SIZE), limit), state
    raise PositionPurged


def _bisect(
    pages: PageSource,
    file_no: int,
    shape: FileShape,
    page_one: BinlogState,
    position: SlavePosition,
    limit: Position,
) -> tuple[int, BinlogState]:
    """(page, state there) of the last state record in the file that is before `position`, page 1 if none is."""
    best = 1, page_one
    interval = shape.interval
    if not interval:
        return best
    last_page = shape.pages - 1
    if limit.file_no == file_no:
        last_page = (limit.offset - 1) // PAGE_SIZE
    low, high = (
        0,
        last_page // interval + 1,
    )  # in intervals: low is before the position, high is not
    while high - low > 1:
        middle = probe = (low + high) // 2
        entries = None
        while probe > low and (entries := read_state(pages, file_no, probe * interval)) is None:
            probe -= 1  # a record was left out here
        if entries is None:
            high = middle
            continue
        state = page_one.copy()
        state.overlay(entries)
        if state.is_before(position):
            best = probe * interval, state
            low = middle
        else:
            high = probe
    return best


def _first_record(pages: PageSource, page_start: Position, limit: Position) -> Position:
    """The first record behind the state record at `page_start`.

    Not the state record itself: it may stand between two chunks of another record, and a reader that begins with it
    would then meet the rest of that one. States say nothing new here, since no commit begins before what is returned.
    """
    reader = RecordReader(pages, page_start, limit, skip_partial=True)
    while (record := reader.next()) is not None:
        if record.type != RecordType.GTID_STATE:
            return record.start
    return limit
