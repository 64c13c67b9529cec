"""Pages of the files of a store that another process may be writing, up to an end that it has published.

Files are opened as they are needed, so this is cheap to make. What lies before the end is never written again, but the
page in which it lies may be: that is read anew when the end moves, and again if it is met half written.

Pages that are asked for one behind the other are read ahead, twice as many each time; single ones are not.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import CorruptBinlog, FileMissing, PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_header import FileHeader, no_data
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE
from binlog_storage.log.pages import OutsidePages

_READ_AHEAD_PAGES: Final = 64
_RUNS_MAX: Final = 8


class LogPages(OutsidePages):
    """The files as they grow, up to an end.

    Args:
        end: groups that end there or before may be read; None: everything, and nobody is writing.
    """

    def __init__(self, disk: ReadableDisk, end: Position | None = None) -> None:
        super().__init__(disk)
        self._end = end
        self._headers: dict[int, FileHeader] = {}
        # By the page that comes next, how many were read before it.
        self._runs: OrderedDict[tuple[int, int], int] = OrderedDict()

    @property
    def end(self) -> Position | None:
        """The end up to which pages may be read."""
        return self._end

    def move_end(self, end: Position) -> None:
        """Move the end forward: the server has published more."""
        before, self._end = self._end, end
        if before is not None:
            place = before.file_no, before.offset // PAGE_SIZE
            for key in [key for key in self._cache if key >= place]:
                del self._cache[key]
        self._damaged.clear()

    def files(self) -> list[int]:
        """Numbers of the files that have data, ascending. Raises `DiskError`, `CorruptBinlog`."""
        numbers = file_numbers(self._disk.names())
        if self._end is not None:
            return [n for n in numbers if Position(n, PAGE_SIZE) < self._end]
        while numbers and not self.has_data(numbers[-1]):
            numbers.pop()  # made ahead
        return numbers

    def header(self, file_no: int) -> FileHeader | None:
        """The header of a file; None if it is not there or was made ahead. Raises `CorruptBinlog`."""
        found = self._headers.get(file_no)
        if found is None:
            page = self.page(file_no, 0)
            found = None if page is None or page == ZERO_PAGE else FileHeader.parse(page, file_no)
            if found is not None:
                if self.page(file_no, 1) is None:
                    raise CorruptBinlog(file_no, PAGE_SIZE, "the file ends behind its header page")
                self._headers[file_no] = found
            elif self._is_in_use(file_no):
                raise no_data(file_no, missing=False)
        return found

    def _is_in_use(self, file_no: int) -> bool:
        """Whether a file must have data: it was published, or a later one has some."""
        if self._end is not None:
            return self._was_entered(file_no)
        later = (n for n in reversed(file_numbers(self._disk.names())) if n > file_no)
        return any(self.page(number, 0) not in (None, ZERO_PAGE) for number in later)

    def _fetch(self, file_no: int, page_no: int) -> bytes:
        """Raises `PositionPurged` for a file that has gone meanwhile."""
        count = self._count(file_no, page_no)
        data = self._read(file_no, page_no, count)
        was_told = page_no > 0 and self._was_told(file_no, page_no)
        is_used = was_told or (not page_no and self._was_entered(file_no))
        if is_used and (not data or data.startswith(ZERO_PAGE)):
            # Opened while it was empty, a file may have been made anew since: in another length, by a later start.
            self._files.forget(file_no)
            data = self._read(file_no, page_no, count)
        if was_told and (not data or data.startswith(ZERO_PAGE)):
            raise CorruptBinlog(
                file_no, page_no * PAGE_SIZE, "the data end here, but more was published"
            )
        return data

    def _was_entered(self, file_no: int) -> bool:
        """Whether groups of the file, or of a later one, were published."""
        return self._end is not None and Position(file_no, PAGE_SIZE) < self._end

    def _was_told(self, file_no: int, page_no: int) -> bool:
        """Whether a page lies before the published end, so that it must hold data."""
        end = self._end
        return end is not None and end.file_no == file_no and page_no * PAGE_SIZE < end.offset

    def _is_written(self, file_no: int, page_no: int) -> bool:
        """Whether the server may be writing this page now."""
        end = self._end
        return end is not None and (file_no, page_no) >= (end.file_no, end.offset // PAGE_SIZE)

    def _count(self, file_no: int, page_no: int) -> int:
        """Number of pages to read at once from this page on."""
        count = min(2 * self._runs.pop((file_no, page_no), 0) or 1, _READ_AHEAD_PAGES)
        self._runs[file_no, page_no + count] = count
        if len(self._runs) > _RUNS_MAX:
            self._runs.popitem(last=False)
        return count

    def _read(self, file_no: int, page_no: int, count: int) -> bytes:
        """Pages of a file; nothing behind the last one. Raises `PositionPurged` for a file that has gone by a purge."""
        try:
            return super()._read(file_no, page_no, count)
        except FileMissing:
            numbers = file_numbers(self._disk.names())
            if numbers and file_no < numbers[0]:
                raise PositionPurged(f"{file_name(file_no)} was purged meanwhile") from None
            if self._was_entered(file_no) or (numbers and file_no < numbers[-1]):
                raise no_data(file_no, missing=True) from None
            return b""
