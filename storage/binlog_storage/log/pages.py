"""Pages of .ibb files without a server: read, checked, and forgotten again.

A server may go on writing meanwhile: the page it is filling can be met half written, so one that does not check is read
again a few times before it counts as damaged. `OfflinePages` has the files that were there when the folder was opened;
those that come later are not looked at. `LogPages` follows a store as it grows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Self

from binlog_storage.disk.read_only_disk import OpenFiles, ReadableDisk
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.file_header import FileHeader, no_data
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE, check, is_sound, is_zero, sound_run
from binlog_storage.ibb.records import PageSource

_READ_AHEAD_PAGES: Final = 16
_CACHE_PAGES: Final = 512
_TRIES: Final = 10
_RETRY_S: Final = 0.01


class OutsidePages(PageSource, ABC):
    """A `PageSource` of what another process may be writing. One owner; `close` it."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk: Final = disk
        self._files: Final = OpenFiles(disk)
        self._cache: Final[OrderedDict[tuple[int, int], bytes]] = OrderedDict()
        self._damaged: Final[set[tuple[int, int]]] = set()

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def header(self, file_no: int) -> FileHeader | None:
        """The header of a file; None if it is not there, or was made ahead. Raises `CorruptBinlog`."""

    @abstractmethod
    def _fetch(self, file_no: int, page_no: int) -> bytes:
        """The page and some behind it, unchecked; nothing behind the end of the file."""

    @abstractmethod
    def _is_written(self, file_no: int, page_no: int) -> bool:
        """Whether a server may be writing this page now: no other can be met half written."""

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
        data = self._fetch(file_no, page_no)
        if not data:
            return None
        # Behind the page itself, zero pages and what does not check may be being written: asked again when needed.
        pages = sound_run(data) or [self._settled(file_no, page_no, data[:PAGE_SIZE])]
        for number, page in enumerate(pages, page_no):
            self._cache[file_no, number] = page
            if len(self._cache) > _CACHE_PAGES:
                self._cache.popitem(last=False)
        return pages[0]

    def _settled(self, file_no: int, page_no: int, page: bytes) -> bytes:
        """A page that is empty, or was met half written, or is damaged. Raises `CorruptBinlog`."""
        key = (file_no, page_no)
        patient = key not in self._damaged and self._is_written(file_no, page_no)
        for _ in range(_TRIES if patient else 0):
            if is_sound(page):
                break
            time.sleep(_RETRY_S)
            page = self._read(file_no, page_no, 1) or page
        if not is_sound(page):
            self._damaged.add(key)  # what stays wrong is damage
        check(page, file_no, page_no)
        return page

    def _read(self, file_no: int, page_no: int, count: int) -> bytes:
        """Whole pages."""
        data = self._files.get(file_no).pread(count * PAGE_SIZE, page_no * PAGE_SIZE)
        whole = len(data) - len(data) % PAGE_SIZE
        return data if whole == len(data) else data[:whole]


class OfflinePages(OutsidePages):
    """The files that are there now."""

    def __init__(self, disk: ReadableDisk) -> None:
        super().__init__(disk)
        self.numbers: Final = file_numbers(disk.names())
        """All files, those made ahead included, ascending."""
        self._headers: Final[dict[int, FileHeader | None]] = {}
        # Looked at once, from the newest: what gets its header later is not part of this.
        try:
            self._empty: Final = {n for n in reversed(self.numbers) if self._is_empty(n)}
        except BaseException:
            self.close()
            raise
        # After that: a file with a header has all of its length, one that is just being made may have none yet.
        self._sizes: Final = {n: disk.size(file_name(n)) for n in self.numbers}
        self.newest: Final = max(set(self.numbers) - self._empty, default=-1)
        """The newest file with data, -1 for none."""

    def is_empty(self, file_no: int) -> bool:
        """Whether the file holds nothing, as one that was made ahead. One that is damaged is not empty."""
        return file_no in self._empty

    def size(self, file_no: int) -> int:
        """Size in bytes when the directory was opened."""
        return self._sizes[file_no]

    def header(self, file_no: int) -> FileHeader | None:
        """The header of a file; None if it is not there any more, or was made ahead. Raises `CorruptBinlog`."""
        missing = file_no not in self._sizes
        if missing or file_no in self._empty:
            if self.numbers and self.numbers[0] <= file_no < self.newest:
                raise no_data(file_no, missing=missing)
            return None
        if file_no not in self._headers:
            page = self.page(file_no, 0)
            if page is None:
                raise CorruptBinlog(file_no, 0, "the file ends inside its header page")
            self._headers[file_no] = FileHeader.parse(page, file_no)
        return self._headers[file_no]

    def _fetch(self, file_no: int, page_no: int) -> bytes:
        if file_no not in self._sizes or file_no in self._empty:
            return b""
        return self._read(file_no, page_no, _READ_AHEAD_PAGES - page_no % _READ_AHEAD_PAGES)

    def _is_written(self, file_no: int, page_no: int) -> bool:
        return file_no == self.newest

    def raw_page(self, file_no: int, page_no: int) -> bytes:
        """The bytes of a page on disk, unchecked; fewer at the end of the file."""
        return self._files.get(file_no).pread(PAGE_SIZE, page_no * PAGE_SIZE)

    def next_written(self, file_no: int, page_no: int) -> int:
        """The first page from `page_no` on that may hold anything. Those in front of it are zeros, and are not read."""
        return self._files.get(file_no).next_data(page_no * PAGE_SIZE) // PAGE_SIZE

    def written_pages(self, file_no: int, first: int = 0) -> Iterator[int]:
        """The numbers of all whole pages from `first` on that may hold anything."""
        pages = self.size(file_no) // PAGE_SIZE
        while (first := self.next_written(file_no, first)) < pages:
            yield first
            first += 1

    def _is_empty(self, file_no: int) -> bool:
        first = b""
        for _ in range(_TRIES):
            first = self.raw_page(file_no, 0)
            if first:
                break
            time.sleep(_RETRY_S)  # a server makes a file in two steps: its name, then its length
        # Without a length, the newest of several was being made when its server was killed.
        named_only = not first and self.numbers[0] < file_no == self.numbers[-1]
        return named_only or (bool(first) and is_zero(first))
