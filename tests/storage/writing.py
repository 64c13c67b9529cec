"""A `LogWriter` alone, on a disk in memory, without an engine around it."""

from __future__ import annotations

from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.engine.references import References
from binlog_storage.ibb.chunk import RecordType
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, is_sound
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import vectors
from tests.storage.sizes import small

PAGES = 4
SMALL = small(PAGES)


class NoRedo:
    """A redo log that keeps nothing; `lsn` is what headers get as their start LSN."""

    @property
    def lsn(self) -> int:
        return 0

    @property
    def epoch(self) -> int:
        return 1

    def append(self, *records: bytes) -> int:
        return self.lsn

    def append_made(self, mtr: bytes) -> int:
        return self.lsn


class Writing:
    """A `LogWriter` on its own disk, and the files it made."""

    def __init__(self, options: StoreOptions = SMALL, redo: NoRedo | None = None) -> None:
        self.disk = MemoryDisk()
        self.pages = PageStore(self.disk, 64)
        self.references = References()
        self.redo = redo or NoRedo()
        self.writer = LogWriter(self.pages, options, self.redo, self.references)

    def flush(self) -> None:
        """Everything to the files, the partial page too."""
        self.writer.end_mtr()
        files = set()
        while batch := self.pages.ready(self.redo.lsn + 1, 1000):
            self.pages.write(batch)
            self.pages.written(batch)
            files.add(batch[0].key[0])
        tail = self.writer.tail_taken()
        self.pages.write([tail])
        for file_no in sorted({*files, tail.key[0]}):
            self.pages.sync_file(file_no)

    def page(self, file_no: int, page_no: int) -> bytes:
        self.flush()
        page = vectors.file_bytes(self.disk, file_name(file_no))
        page = page[page_no * PAGE_SIZE : (page_no + 1) * PAGE_SIZE]
        assert is_sound(page)
        return page

    def fill_to(self, left: int, page_no: int) -> None:
        """Write commits until `left` bytes are free on page `page_no` of this file."""
        while self.writer.page_no < page_no:
            free = PAGE_END - self.writer._at
            # all of this page, and a byte or so of the next
            self.writer.write(RecordType.COMMIT, b"f" * (free if free > 3 else 1))
        free = PAGE_END - self.writer._at
        assert free - left > 3
        self.writer.write(RecordType.COMMIT, b"f" * (free - left - 3))
        assert PAGE_END - self.writer._at == left
