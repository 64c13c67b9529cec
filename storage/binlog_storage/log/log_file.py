"""One file of a log, by its pages: its header, where its data end, and the GTID states in it.

Page 1 begins with the binlog state at the beginning of the file, pages that are multiples of the state interval with
what was logged since page 1; a record may have been left out. Pages with data are contiguous, so the last one is found
by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb import gtid_state
from binlog_storage.ibb.chunk import CONT, TYPE_MASK, Position, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.gtid_state import GtidStateRecord
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE
from binlog_storage.ibb.records import PageSource, RecordReader, parsed
from binlog_storage.log.group_reader import read_head


def read_header(pages: PageSource, file_no: int) -> FileHeader | None:
    """The header of a file; None if there is no such file, or its header was never written. Raises `CorruptBinlog`."""
    page = pages.page(file_no, 0)
    return None if page is None else FileHeader.parse(page, file_no)


# --- where the data end ---


def first_empty(pages: int, is_empty: Callable[[int], bool]) -> int:
    """The first empty page behind the header, of so many, by bisection; `pages` if there is none."""
    low, high = 0, pages
    while high - low > 1:
        middle = (low + high) // 2
        if is_empty(middle):
            high = middle
        else:
            low = middle
    return high


def used_pages(pages: PageSource, file_no: int, count: int) -> int:
    """Number of pages of `count` up to the last with data: what was made ahead behind it is zero."""
    return first_empty(count, lambda page_no: pages.page(file_no, page_no) in (None, ZERO_PAGE))


def first_record(pages: PageSource, page_start: Position, limit: Position) -> Position:
    """The first record behind the state record at `page_start`.

    Not the state record itself: it may stand between two chunks of another record, and a reader that begins with it
    would then meet the rest of that one. States say nothing new here, since no commit begins before what is returned.
    """
    for record in RecordReader(pages, page_start, limit, skip_partial=True):
        if record.type != RecordType.GTID_STATE:
            return record.start
    return limit


# --- states ---


def read_state_record(pages: PageSource, file_no: int, page_no: int) -> GtidStateRecord | None:
    """The state record at the start of a page; None if none stands there."""
    page = pages.page(file_no, page_no)
    if page is None or page[0] & (TYPE_MASK | CONT) != RecordType.GTID_STATE:
        return None
    place = Position(file_no, page_no * PAGE_SIZE)
    record = RecordReader(pages, place).next()
    assert record is not None
    return parsed(gtid_state.decode, record.data, place)


def read_state(pages: PageSource, file_no: int, page_no: int) -> list[Gtid] | None:
    """The entries of `read_state_record`."""
    record = read_state_record(pages, file_no, page_no)
    return None if record is None else record.entries


def base_state(pages: PageSource, file_no: int) -> BinlogState:
    """The binlog state at the beginning of a file. Raises `CorruptBinlog`, also if there is none."""
    entries = read_state(pages, file_no, 1)
    if entries is None:
        # Taken for an empty state it would come before every position, and groups would be passed over.
        raise _no_state(file_no)
    return BinlogState(entries)


def _no_state(file_no: int) -> CorruptBinlog:
    return CorruptBinlog(file_no, PAGE_SIZE, "no GTID state at the beginning of the file")


def base_state_from_outside(pages: PageSource, file_no: int) -> BinlogState:
    """The state of `base_state`; empty if the very first file has none, as another program may leave it."""
    if file_no == 0 and read_state(pages, 0, 1) is None:
        return BinlogState()
    return base_state(pages, file_no)


def states_back(
    pages: PageSource,
    file_no: int,
    last_page: int,
    interval: int,
    *,
    behind: int = 1,
    read: Callable[[PageSource, int, int], list[Gtid] | None] = read_state,
) -> Iterator[tuple[int, list[Gtid]]]:
    """The state records inside a file, from page `last_page` back, of pages behind `behind`.

    Each as its page, and what was logged since page 1.
    """
    for page_no in range(last_page - last_page % interval, behind, -interval) if interval else ():
        entries = read(pages, file_no, page_no)
        if entries is not None:
            yield page_no, entries


def grown(base: BinlogState, entries: list[Gtid]) -> BinlogState:
    """The state at a state record inside a file whose state at page 1 is `base`."""
    state = base.copy()
    state.overlay(entries)
    return state


def state_at(pages: PageSource, place: Position, interval: int) -> BinlogState:
    """The binlog state at a place: from the last state record before it, and the groups in between.

    Reads no more than `interval` pages (a file, if it is 0) and what lies out of band of the last groups in them.
    Raises `PositionPurged`, `CorruptBinlog`.
    """
    entries = read_state(pages, place.file_no, 1)
    if entries is None:
        if read_header(pages, place.file_no) is not None:
            raise _no_state(place.file_no)
        raise PositionPurged("the file of the position is gone")
    last = next(states_back(pages, place.file_no, place.page_no, interval), (1, []))
    page_no, since = last
    state = grown(BinlogState(entries), since)
    begin = Position(place.file_no, page_no * PAGE_SIZE)
    for record in RecordReader(pages, begin, place, skip_partial=True).commits():
        gtid = read_head(pages, record).gtid
        if gtid is not None:
            state.update(gtid)
    return state
