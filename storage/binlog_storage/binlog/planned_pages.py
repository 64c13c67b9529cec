"""The files as a start is going to make them, to be read before it changes anything.

Pages from the redo replace those in the files, and a cut hides all pages behind it. So a start can read all that it
needs, and still refuse the store with every byte as it was found.
"""

from __future__ import annotations

from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.replay import Replay
from binlog_storage.disk.disk import is_unwritten
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, check, is_zero, seal
from binlog_storage.ibb.records import PageSource
from binlog_storage.log.log_file import first_empty, read_header


class PlannedPages(PageSource):
    """A `PageSource` of the planned files. Not thread-safe.

    Args:
        pages: the files as they are now.
        replay: the changes from the redo log; None without a log.
    """

    def __init__(self, pages: PageStore, replay: Replay | None = None) -> None:
        self._pages = pages
        self._replay = replay
        self._last = 1 << 62
        self._cut: Position | None = None

    def end_at(self, cut: Position) -> None:
        """Plan a cut: nothing is left from there on. A cut at page 1 removes the whole file: it would have no state."""
        has_file = cut.offset > PAGE_SIZE
        self._last = cut.file_no if has_file else cut.file_no - 1
        self._cut = cut if has_file else None

    def numbers(self) -> list[int]:
        """Numbers of the files, ascending, those made ahead included."""
        there = self._pages.files.numbers()
        numbers = there if self._replay is None else self._replay.numbers(there)
        return [number for number in numbers if number <= self._last]

    def size(self, file_no: int) -> int | None:
        """Size of a file in bytes; None if there is none."""
        if file_no > self._last:
            return None
        if self._replay is not None and self._replay.touches(file_no):
            return self._replay.size(file_no)
        return self._pages.files.size(file_no)

    def header(self, file_no: int) -> FileHeader | None:
        """Header of a file; None if there is no such file, or its header was never written. Raises `CorruptBinlog`."""
        if file_no > self._last:
            return None
        if self._replay is None or not self._replay.touches(file_no):
            return self._pages.header(file_no)
        return read_header(self, file_no)

    def has_data(self, file_no: int) -> bool:
        """See `PageSource`."""
        return self.header(file_no) is not None

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """See `PageSource`. Raises `CorruptBinlog` for a page whose checksum is wrong."""
        if file_no > self._last:
            return None
        cut = self._cut
        if cut is not None and file_no == cut.file_no and (page_no + 1) * PAGE_SIZE > cut.offset:
            return self._cut_page(cut, page_no)
        if self._replay is None or not self._replay.touches(file_no):
            return self._pages.page(file_no, page_no)
        page = self._replay.page(file_no, page_no)
        if page is not None:
            check(page, file_no, page_no)
        return page

    def _cut_page(self, cut: Position, page_no: int) -> bytes | None:
        if page_no == cut.page_no and cut.in_page:
            page = self._pages.page(cut.file_no, page_no)
            assert page is not None
            return seal(bytearray(page[: cut.in_page].ljust(PAGE_SIZE, b"\0")))
        size = self._pages.files.size(cut.file_no) or 0
        return ZERO_PAGE if (page_no + 1) * PAGE_SIZE <= size else None

    def used_pages(self, file_no: int) -> int:
        """The number of pages in front of the first empty one."""
        return first_empty(
            (self.size(file_no) or 0) // PAGE_SIZE, lambda page_no: self._is_empty(file_no, page_no)
        )

    def _is_empty(self, file_no: int, page_no: int) -> bool:
        """Whether a page is all zeros. Its checksum is not checked: the search may jump to pages that nobody needs."""
        cut = self._cut
        if cut is not None and file_no == cut.file_no and page_no >= cut.page_no:
            return page_no > cut.page_no or not cut.in_page
        if self._replay is not None and self._replay.touches(file_no):
            return is_zero(self._replay.page(file_no, page_no) or b"")
        with self._pages.files.use(file_no) as file:
            start = page_no * PAGE_SIZE
            if file is None or is_unwritten(file, start, PAGE_SIZE):
                return True
            return is_zero(file.pread(PAGE_SIZE, start))
