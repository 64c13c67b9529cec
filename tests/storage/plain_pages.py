"""Pages in a dictionary: the least that a `RecordReader` can read from, and a builder of pages by hand."""

from __future__ import annotations

from binlog_storage.ibb.chunk import CONT, LAST
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE
from binlog_storage.ibb.records import PageSource

Key = tuple[int, int]


class PlainPages(PageSource):
    """A `PageSource`. Pages that are not given are empty up to `file_pages`; a file exists if it has any page."""

    def __init__(self, pages: dict[Key, bytes], file_pages: int = 4) -> None:
        self._pages = {key: data + bytes(PAGE_SIZE - len(data)) for key, data in pages.items()}
        self._file_pages = file_pages

    def page(self, file_no: int, page_no: int) -> bytes | None:
        if not self.has_data(file_no) or page_no >= self._file_pages:
            return None
        return self._pages.get((file_no, page_no), ZERO_PAGE)

    def has_data(self, file_no: int) -> bool:
        return any(file == file_no for file, _ in self._pages)


def chunk(kind: int, data: bytes, *, first: bool = True, last: bool = True) -> bytes:
    """The bytes of one chunk."""
    flags = kind | (0 if first else CONT) | (LAST if last else 0)
    return bytes([flags]) + len(data).to_bytes(2, "little") + data
