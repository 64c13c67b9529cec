"""Opening a store: find the end of the data, cut a torn tail, rebuild the GTID state.

1. The last file that was entered is the current one; empty files behind it were made ahead.
2. All its pages are checked. The first empty one ends the data. A single bad page at the very end is a torn write; a
   bad or empty page in front of good ones is corruption, and the store does not open.
3. The state at the last state record is read, and the records behind it. The walk begins further back if it saw no
   whole commit, so that a record which begins far back and never ends is found.
4. A record that never ends, or a torn page, is cut off. What is cut is kept beside the file as `*.broken`.

Until there is a redo log this is all the protection there is: a power cut in the middle of a page write can damage
the last page, with groups in it that were durable. After a mere crash of the process nothing durable is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.gtid import BinlogState
from protocol.stored_group import group_gtid, is_start_marker
from storage.binlog.file_names import file_name
from storage.binlog.group_reader import group_head
from storage.binlog.page_store import PageStore
from storage.binlog.search import read_state
from storage.disk import Disk
from storage.errors import CorruptBinlog, TruncatedRecord
from storage.ibb.chunk import (
    CHUNK_HEADER,
    END_OF_DATA,
    FILLER,
    LAST_CHUNK_START,
    Position,
    RecordType,
)
from storage.ibb.file_header import FileHeader
from storage.ibb.page import PAGE_END, PAGE_SIZE, ZERO_PAGE, is_sound, seal
from storage.ibb.records import RecordReader

log = logging.getLogger(__name__)

_SLICE_PAGES = 64
_ADVICE = (
    ". The store was not opened and nothing was changed: restore this file from a copy, or move it and all later "
    "files away to go on from the last group before it"
)


@dataclass(slots=True)
class Recovered:
    """Where and with what a writer goes on: byte `at` of page `page_no`, whose bytes are `page`."""

    header: FileHeader
    file_pages: int
    page_no: int
    at: int
    page: bytearray
    state: BinlogState
    since_page_one: BinlogState
    last_marker: bytes | None


@dataclass(slots=True)
class _Walk:
    """What reading from one state record to the end saw."""

    state: BinlogState
    since_page_one: BinlogState
    end: Position
    commits: int = 0
    last_marker: bytes | None = None
    cut: Position | None = None


def recover(disk: Disk, pages: PageStore) -> Recovered | None:
    """Find the end of the data, and repair it; None if there is none yet. Raises `CorruptBinlog`."""
    numbers = pages.file_numbers()
    while numbers and not _was_entered(pages, numbers[-1]):
        numbers.pop()
    if not numbers:
        return None
    current = numbers[-1]
    _cut_torn_page(disk, pages, current)
    walk = _walk_to_end(pages, current)
    if walk.cut is not None:
        _cut(disk, pages, walk.cut, current)
        current = walk.cut.file_no
        walk = _walk_to_end(pages, current)
    header = pages.header(current)
    assert header is not None
    file_pages = _restore_size(disk, pages, header)
    # At a page start the page before is full: stand there, so that the next write enters the next page by the rules.
    page_no = walk.end.page_no if walk.end.in_page else walk.end.page_no - 1
    page = bytearray(pages.page(current, page_no) or b"")
    page[PAGE_END:] = bytes(PAGE_SIZE - PAGE_END)
    return Recovered(
        header,
        file_pages,
        page_no,
        _filled(page),
        page,
        walk.state,
        walk.since_page_one,
        walk.last_marker,
    )


def _was_entered(pages: PageStore, file_no: int) -> bool:
    """A file counts once its header and page 1 are there: they are written together."""
    if not pages.has_data(file_no):
        return False
    first = pages.page(file_no, 1)
    return first is not None and first != ZERO_PAGE


def _filled(page: bytearray) -> int:
    """Offset behind the last chunk of a page."""
    at = 0
    while at <= LAST_CHUNK_START and page[at] not in (END_OF_DATA, FILLER):
        at += CHUNK_HEADER + (page[at + 1] | page[at + 2] << 8)
    return at


def _walk_to_end(pages: PageStore, current: int) -> _Walk:
    walk = None
    for start, state, since_page_one in _state_records(pages, current):
        walk = _walk(pages, current, start, state, since_page_one)
        if walk.commits:
            break
    assert walk is not None
    return walk


def _state_records(
    pages: PageStore, current: int
) -> Iterator[tuple[Position, BinlogState, BinlogState]]:
    """(place, state, state since page 1 of its file) of all state records, the last one first."""
    file_no = current
    while (header := pages.header(file_no)) is not None:
        full = BinlogState()
        full.overlay(read_state(pages, file_no, 1) or [])
        interval = header.state_interval_pages
        last_page = (pages.file_size(file_no) or 0) // PAGE_SIZE - 1
        page_no = last_page - last_page % interval if interval else 1
        while page_no > 1:
            entries = read_state(pages, file_no, page_no)
            if entries is not None:
                state, since_page_one = full.copy(), BinlogState()
                state.overlay(entries)
                since_page_one.overlay(entries)
                yield Position(file_no, page_no * PAGE_SIZE), state, since_page_one
            page_no -= interval
        yield Position(file_no, PAGE_SIZE), full, BinlogState()
        file_no -= 1


def _walk(
    pages: PageStore, current: int, start: Position, state: BinlogState, since_page_one: BinlogState
) -> _Walk:
    reader = RecordReader(pages, start, skip_partial=True)
    walk = _Walk(state, since_page_one, start)
    file_no = start.file_no
    try:
        while (record := reader.next()) is not None:
            if record.type != RecordType.COMMIT:
                continue
            reader.stop_skipping()
            if record.start.file_no != file_no:
                file_no = record.start.file_no
                since_page_one = walk.since_page_one = BinlogState()
            head = group_head(pages, record)
            gtid = group_gtid(head)
            walk.commits += 1
            walk.last_marker = head if is_start_marker(head) else None
            if gtid is not None:
                walk.state.update(gtid)
                since_page_one.update(gtid)
    except TruncatedRecord as torn:
        walk.cut = Position(torn.file_no, torn.offset)
    walk.end = reader.position
    if walk.end.file_no != file_no:  # the last commit began in the file before
        walk.since_page_one = BinlogState()
    return walk


def _cut_torn_page(disk: Disk, pages: PageStore, file_no: int) -> None:
    """Check every page of the current file; cut a bad one at its very end."""
    file = disk.open(file_name(file_no))
    try:
        size = file.size()
        torn: int | None = None
        empty: int | None = None
        for first in range(0, size, _SLICE_PAGES * PAGE_SIZE):
            data = file.pread(_SLICE_PAGES * PAGE_SIZE, first)
            for at in range(0, len(data), PAGE_SIZE):
                page = data[at : at + PAGE_SIZE]
                if page == ZERO_PAGE or not any(page):
                    empty = first + at if empty is None else empty
                    continue
                for bad, reason in (
                    (torn, "Page corruption (invalid crc32 checksum)"),
                    (empty, "an empty page"),
                ):
                    if bad is not None:
                        raise CorruptBinlog(
                            file_no, bad, f"{reason}, but later pages hold data{_ADVICE}"
                        )
                if len(page) < PAGE_SIZE or not is_sound(page):
                    torn = first + at
    finally:
        file.close()
    if torn is not None:
        _cut(disk, pages, Position(file_no, torn), file_no)


def _cut(disk: Disk, pages: PageStore, cut: Position, current: int) -> None:
    """Everything from `cut` on was never durable: keep it aside, and make the store end there."""
    for file_no in range(current, cut.file_no, -1):
        pages.forget(file_no)
        disk.rename(file_name(file_no), _broken_name(disk, file_no))
        log.warning(
            "kept aside: %s, which holds only the rest of a group that was never complete",
            file_name(file_no),
        )
    pages.forget(cut.file_no)
    file = disk.open(file_name(cut.file_no))
    try:
        size = file.size()
        page_start = cut.page_no * PAGE_SIZE
        tail = file.pread(size - page_start, page_start).rstrip(b"\0")
        kept = _broken_name(disk, cut.file_no)
        copy = disk.open(kept, create=True)
        try:
            copy.pwrite(tail, 0)
            copy.fdatasync()
        finally:
            copy.close()
        page = bytearray(PAGE_SIZE)
        page[: cut.in_page] = tail[: cut.in_page]
        file.truncate(
            page_start
        )  # first: a crash here leaves a shorter file, which is read to its physical end
        if cut.in_page:
            file.pwrite(seal(page), page_start)
        file.fdatasync()
        file.truncate(size)
        file.fdatasync()
    finally:
        file.close()
    disk.fsync_dir()
    log.warning(
        "cut a torn tail: %d bytes from offset %d of %s, never complete; kept in %s",
        len(tail) - cut.in_page,
        cut.offset,
        file_name(cut.file_no),
        kept,
    )


def _broken_name(disk: Disk, file_no: int) -> str:
    """A free name: an earlier repair's copy is never overwritten."""
    names = set(disk.names())
    name = base = f"{file_name(file_no)}.broken"
    count = 1
    while name in names:
        count += 1
        name = f"{base}.{count}"
    return name


def _restore_size(disk: Disk, pages: PageStore, header: FileHeader) -> int:
    """Pages of the current file, extended to what its header says if a crash left it shorter."""
    size = pages.file_size(header.file_no) or 0
    wanted = header.pages * PAGE_SIZE
    if size < wanted:
        file = disk.open(file_name(header.file_no))
        try:
            file.truncate(wanted)
            file.fdatasync()
        finally:
            file.close()
        size = wanted
    return size // PAGE_SIZE
