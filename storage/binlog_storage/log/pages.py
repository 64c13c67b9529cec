"""Pages of .ibb files without a server: read, checked, and forgotten again.

The files are those that had data when the folder was opened. A server may go on writing meanwhile: the page it is
filling can be met half written, so a page that does not check is read again a few times before it counts as damaged;
files that come later are not looked at.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from binlog_storage.disk.read_only_disk import OpenFiles, ReadableDisk
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.file_header import FileHeader, no_data
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, check, is_sound

READ_AHEAD_PAGES: Final = 16
_CACHE_PAGES: Final = 512
_TRIES: Final = 5
_RETRY_S: Final = 0.02


class OfflinePages:
    """A `PageSource`. One owner; `close` it."""

    def __init__(self, disk: ReadableDisk) -> None:
        self.numbers: Final = file_numbers(disk.names())
        """All files, those made ahead included, ascending."""
        self._files = OpenFiles(disk)
        self._headers: dict[int, FileHeader | None] = {}
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._damaged: set[tuple[int, int]] = set()
        # Looked at once, from the newest: what gets its header later is not part of this.
        try:
            self._empty: Final = {n for n in reversed(self.numbers) if self._is_empty(n)}
        except BaseException:
            self.close()
            raise
        # After that: a file with a header has all of its length, one that is just being made may have none yet.
        self._sizes: Final = {n: disk.size(file_name(n)) for n in self.numbers}
        self._newest: Final = max(set(self.numbers) - self._empty, default=-1)

    def close(self) -> None:
        self._files.close()

    @property
    def newest(self) -> int:
        """The newest file with data, -1 for none."""
        return self._newest

    def is_empty(self, file_no: int) -> bool:
        """Whether the file holds nothing, as one that was made ahead. One that is damaged is not empty."""
        return file_no in self._empty

    def size(self, file_no: int) -> int:
        """Size in bytes when the directory was opened."""
        return self._sizes[file_no]

    def header(self, file_no: int) -> FileHeader | None:
        """None for a file that is not there any more, or was made ahead. Raises `CorruptBinlog`."""
        missing = file_no not in self._sizes
        if missing or file_no in self._empty:
            if self.numbers and self.numbers[0] <= file_no < self._newest:
                raise no_data(file_no, missing=missing)
            return None
        if file_no not in self._headers:
            page = self.page(file_no, 0)
            if page is None:
                raise CorruptBinlog(file_no, 0, "the file ends inside its header page")
            self._headers[file_no] = FileHeader.parse(page, file_no)
        return self._headers[file_no]

    def has_data(self, file_no: int) -> bool:
        """See `PageSource`."""
        return self.header(file_no) is not None

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """See `PageSource`. Raises `CorruptBinlog` for a page whose checksum is wrong."""
        key = (file_no, page_no)
        page = self._cache.get(key)
        if page is not None:
            self._cache.move_to_end(key)
            return page
        if file_no not in self._sizes or file_no in self._empty:
            return None
        pages = self._read(file_no, page_no, READ_AHEAD_PAGES - page_no % READ_AHEAD_PAGES)
        if not pages:
            return None
        # Only the file that a server would be writing can hold a page half written; what stays wrong is damage.
        patient = file_no == self._newest and key not in self._damaged
        for _ in range(_TRIES if patient else 0):
            if is_sound(pages[0]):
                break
            time.sleep(_RETRY_S)
            pages = self._read(file_no, page_no, 1) or pages
        if not is_sound(pages[0]):
            self._damaged.add(key)
        check(pages[0], file_no, page_no)
        for number, page in enumerate(pages, page_no):
            # Zero pages and what does not check may be pages that are being written: asked again when needed.
            if number > page_no and (page == ZERO_PAGE or not is_sound(page)):
                break
            self._keep((file_no, number), page)
        return pages[0]

    def raw_page(self, file_no: int, page_no: int) -> bytes:
        """The bytes of a page on disk, unchecked; fewer at the end of the file."""
        return self._files.get(file_no).pread(PAGE_SIZE, page_no * PAGE_SIZE)

    def _read(self, file_no: int, page_no: int, count: int) -> list[bytes]:
        data = self._files.get(file_no).pread(count * PAGE_SIZE, page_no * PAGE_SIZE)
        return [data[at : at + PAGE_SIZE] for at in range(0, len(data) - PAGE_SIZE + 1, PAGE_SIZE)]

    def _keep(self, key: tuple[int, int], page: bytes) -> None:
        self._cache[key] = page
        if len(self._cache) > _CACHE_PAGES:
            self._cache.popitem(last=False)

    def _is_empty(self, file_no: int) -> bool:
        first = b""
        for _ in range(_TRIES):
            first = self.raw_page(file_no, 0)
            if first:
                break
            time.sleep(_RETRY_S)  # a server makes a file in two steps: its name, then its length
        return bool(first) and not any(first)
