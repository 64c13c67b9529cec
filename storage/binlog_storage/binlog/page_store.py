"""The pages of all files of a store: in memory until they are in their file, afterwards through a cache.

A page goes through: *tail* (being filled; one at a time) -> *FIFO* (full, sealed, to be written once) -> in its file
and in the cache. The partial tail goes to the file at checkpoints, and later again with more in it; readers are never
sent to the disk for it, or they might meet a write half done.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from binlog_storage.binlog.file_table import FileTable
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.durations import Durations
from binlog_storage.errors import CorruptBinlog, DiskError, PositionPurged
from binlog_storage.ibb.file_header import FileHeader, no_data
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, check, seal, sound_run
from binlog_storage.ibb.records import PageSource

READ_AHEAD_PAGES = 16
RECENT_PAGES = 16

PageKey = tuple[int, int]  # (file_no, page_no)
_first = attrgetter("key")
_NOWHERE: PageKey = (-1, -1)
_NEVER: PageKey = (1 << 64, 0)
_NONE: PageKey = (0, 0)


class FullPages(NamedTuple):
    """Consecutive full pages in the FIFO, usually one.

    They may be written to their file once the redo log is durable beyond `lsn`.

    key: file and page number of the first page.
    end: file and page number behind the last page.
    data: the bytes of all pages.
    """

    lsn: int
    key: PageKey
    end: PageKey
    data: bytes

    @property
    def page_count(self) -> int:
        """Number of pages."""
        return self.end[1] - self.key[1]


class PageStore(PageSource):
    """A `PageSource` over a directory, and the FIFO through which the writer's pages reach it.

    Thread contract: `page`, `header`, `has_data`, `is_recent` from any thread; the writer's methods under the store's
    append lock; those of the flusher by one thread at a time.
    """

    def __init__(self, disk: Disk, cache_pages: int, full: FullDisk | None = None) -> None:
        self._lock = threading.Lock()
        self.files = FileTable(disk, full or FullDisk())
        self._cache: OrderedDict[PageKey, bytes] = OrderedDict()  # the least recently used first
        self._cached_end = _NONE  # no page behind this one is in the cache
        self.cache_pages = max(cache_pages, 2 * READ_AHEAD_PAGES)  # its capacity
        self._unflushed: dict[PageKey, bytes] = {}
        self._unflushed_runs: list[FullPages] = []  # entries of several pages, ascending
        # All entries in order: in memory, and not in their file yet.
        self.fifo: deque[FullPages] = deque()
        self.waiting = 0  # pages in the FIFO
        self._new_files: dict[int, int] = {}  # file_no -> bytes; made when first written
        self._cuts: dict[
            int, int
        ] = {}  # file_no -> bytes to which it is cut once its pages are there
        self._tail_key = _NOWHERE
        self._tail = bytearray()
        self.written_end: PageKey = _NEVER  # full pages before this one are in their files for good
        self.synced_end: PageKey = _NONE  # pages before this one, written in this run, are durable
        self.pages_wanted = 0  # pages that readers have asked for
        self.pages_missed = 0  # those of them that were not in memory
        self.pages_read = 0  # pages read from disk, with read-ahead
        self.pages_written = 0
        self.fsyncs = Durations()

    # --- readers ---

    def page(self, file_no: int, page_no: int, *, ahead: bool = True) -> bytes | None:
        """See `PageSource`. Raises `CorruptBinlog` for a page whose checksum is wrong."""
        key = (file_no, page_no)
        with self._lock:
            self.pages_wanted += 1
            page = self._in_memory(key)
            if page is not None:
                return page
            self.pages_missed += 1
            written_end, cache = self.written_end, self._cache
            cut = self._cuts.get(file_no)
        if cut is not None and page_no * PAGE_SIZE >= cut:
            return None
        with self.files.use(file_no) as file:
            return None if file is None else self._read(file, key, written_end, cache, ahead=ahead)

    def run(self, file_no: int, page_no: int, count: int) -> list[bytes]:
        """See `PageSource`."""
        found: list[bytes] = []
        while len(found) < count:
            have = len(found)
            with self._lock:
                cache = self._cache
                for number in range(page_no + have, page_no + count):
                    key = (file_no, number)
                    page = cache.get(key)
                    if page is not None:
                        cache.move_to_end(key)  # the young one
                    elif (page := self._in_memory(key)) is None:
                        break
                    found.append(page)
                self.pages_wanted += len(found) - have
            if len(found) < count:
                missed = super().run(file_no, page_no + len(found), 1)
                if not missed:
                    break
                found += missed
        return found

    def _in_memory(self, key: PageKey) -> bytes | None:
        page = self._cache.pop(key, None)
        if page is not None:
            self._cache[key] = page  # to the young end
            return page
        return bytes(self._tail) if key == self._tail_key else self._unflushed_page(key)

    def _unflushed_page(self, key: PageKey) -> bytes | None:
        page = self._unflushed.get(key)
        if page is None and self._unflushed_runs:
            before = bisect.bisect_right(self._unflushed_runs, key, key=_first) - 1
            run = self._unflushed_runs[before]
            if before >= 0 and key < run.end:
                at = (key[1] - run.key[1]) * PAGE_SIZE
                return run.data[at : at + PAGE_SIZE]
        return page

    def probing(self) -> PageSource:
        """The same pages without read-ahead: for a search, which jumps."""
        return _Probing(self)

    def is_recent(self, file_no: int, page_no: int) -> bool:
        """Whether this page is so near the end that it is in memory, or at least in the system's page cache."""
        tail_file, tail_page = self._tail_key
        return file_no == tail_file and page_no > tail_page - RECENT_PAGES

    def header(self, file_no: int) -> FileHeader | None:
        """Header of a file; None if there is no such file or its header was never written.

        Raises `CorruptBinlog`, also if a file has no header that the writer has entered, or gone past.
        """
        with self._lock:
            page = self._unflushed.get((file_no, 0))
            tail = self._tail_key
        if page is not None:  # in memory; there may be no file yet
            return FileHeader.parse(page, file_no)
        # The writer may enter the file meanwhile: a page without a header is damage only if it was entered before.
        before = self.files.size(file_no)
        page = self.page(file_no, 0, ahead=False)
        size = self.files.size(file_no)
        if page is None and before and size:
            raise CorruptBinlog(file_no, 0, "the file ends inside its header page")
        header = None if page is None else FileHeader.parse(page, file_no)
        if header is None and 0 <= file_no <= min(tail, self._tail_key)[0]:
            raise no_data(file_no, missing=size is None)
        if header is not None and size is not None and size < 2 * PAGE_SIZE:
            raise CorruptBinlog(file_no, size, "the file ends behind its header page")
        return header

    def size(self, file_no: int) -> int | None:
        """Size of a file in bytes, also of one that is still to be made; None if there is none."""
        size = self._cuts.get(file_no) or self._new_files.get(file_no)
        return self.files.size(file_no) if size is None else size

    def numbers(self) -> list[int]:
        """File numbers, ascending, files that are not made yet included."""
        planned = list(self._new_files)  # first: one that is made meanwhile is among the files then
        return sorted({*planned, *self.files.numbers()})

    def first_number(self) -> int:
        """Number of the oldest file. Raises `PositionPurged` if there is none."""
        numbers = self.numbers()
        if not numbers:
            raise PositionPurged(
                "there is no binlog file: RESET MASTER is at work, or they were deleted by hand"
            )
        return numbers[0]

    def has_data(self, file_no: int) -> bool:
        """See `PageSource`."""
        return self.header(file_no) is not None

    @property
    def pages_cached(self) -> int:
        """Pages in the cache now."""
        return len(self._cache)

    def _read(
        self,
        file: File,
        key: PageKey,
        written_end: PageKey,
        cache: OrderedDict[PageKey, bytes],
        *,
        ahead: bool,
    ) -> bytes | None:
        file_no, first = key
        count = READ_AHEAD_PAGES - first % READ_AHEAD_PAGES if ahead else 1
        if written_end[0] == file_no:
            count = max(1, min(count, written_end[1] - first))
        data = file.pread(count * PAGE_SIZE, first * PAGE_SIZE)
        if not data:
            return None
        if len(data) < PAGE_SIZE:
            # Files are whole pages, and a torn one at the end counts as none. In front of another file it is damage:
            # the rest of a record is missing.
            if first and self.has_data(file_no + 1):
                at = first * PAGE_SIZE
                raise CorruptBinlog(file_no, at, "the file ends inside a page", data)
            return None
        # Read-ahead is a guess: a bad page that nobody asked for is no error, it is only not kept. Nor is an empty page
        # kept: it will be written, or cut off by FLUSH.
        pages = sound_run(data)
        wanted = pages[0] if pages else data[:PAGE_SIZE]
        if not pages:
            check(wanted, file_no, first)
        with self._lock:
            self.pages_read += -(-len(data) // PAGE_SIZE)
            if cache is not self._cache:
                return wanted  # the file was removed meanwhile, and another one has its number
            self._keep(file_no, first, pages)
        return wanted

    def _keep(self, file_no: int, first: int, pages: Sequence[bytes]) -> None:
        """Put pages of a file into the cache; but those of which there is a newer one in memory."""
        cache, pages_max, tail = self._cache, self.cache_pages, self._tail_key
        has_newer = bool(self._unflushed or self._unflushed_runs)
        for number, page in enumerate(pages, first):
            key = (file_no, number)
            if key in cache or key == tail:
                continue
            if has_newer and self._unflushed_page(key) is not None:
                continue
            if len(cache) >= pages_max:
                cache.popitem(last=False)
            cache[key] = page
        if pages:
            self._cached_end = max(self._cached_end, (file_no, first + len(pages) - 1))

    # --- the writer, under the store's append lock ---

    def begin_tail(self, file_no: int, page_no: int, page: bytearray) -> None:
        """Make `page` the tail, which the writer fills in place."""
        with self._lock:
            if self.written_end == _NEVER:
                self.written_end = self.fifo[0].key if self.fifo else (file_no, page_no)
            self._cache.pop((file_no, page_no), None)
            self._tail_key = (file_no, page_no)
            self._tail = page

    def sealed_tail(self) -> FullPages:
        """A copy of the tail with its checksum, as it would be written now."""
        file_no, page_no = self._tail_key
        return FullPages(-1, self._tail_key, (file_no, page_no + 1), seal(bytearray(self._tail)))

    def add(self, file_no: int, page_no: int, data: bytes, lsn: int) -> None:
        """Put full, sealed, consecutive pages into the FIFO, together. Their mini-transaction begins at `lsn`."""
        key, count = (file_no, page_no), len(data) // PAGE_SIZE
        if count == 1:
            self.add_some(file_no, page_no, (data,), lsn)
            return
        pages = FullPages(lsn, key, (file_no, page_no + count), data)
        with self._lock:
            if key <= self._cached_end:
                for number in range(page_no, page_no + count):
                    self._cache.pop((file_no, number), None)
            self._unflushed_runs.append(pages)
            self.fifo.append(pages)
            self.waiting += count

    def add_some(self, file_no: int, page_no: int, full: Sequence[bytes], lsn: int) -> None:
        """As `add`, each by itself: readers will want them soon, as they have what is committed."""
        with self._lock:
            for number, data in enumerate(full, page_no):
                key = (file_no, number)
                if key <= self._cached_end:
                    self._cache.pop(key, None)
                self._unflushed[key] = data
                self.fifo.append(FullPages(lsn, key, (file_no, number + 1), data))
            self.waiting += len(full)

    def add_file(self, file_no: int, size: int) -> None:
        """Plan a file of `size` zero bytes. It is made when its first page is written."""
        self._new_files[file_no] = size

    def cut_file(self, file_no: int, size: int) -> None:
        """End the file at `size` bytes; all of its pages were added."""
        self._cuts[file_no] = size

    def has_cuts_before(self, file_no: int) -> bool:
        """Whether an earlier file still waits for its cut by `cut_file`."""
        return any(number < file_no for number in list(self._cuts))

    # --- the flusher, one thread at a time ---

    def ready(self, durable_lsn: int, count: int) -> list[FullPages]:
        """The oldest pages of the FIFO that may be written, all of one file: up to `count`, or one larger entry."""
        found: list[FullPages] = []
        with self._lock:
            for pages in self.fifo:
                # Mini-transactions become durable as a whole: if the LSN behind its beginning is durable, all of it is.
                count -= pages.page_count
                if pages.lsn >= durable_lsn or (found and count < 0):
                    break
                if found and pages.key[0] != found[0].key[0]:
                    break
                found.append(pages)
        return found

    def write(self, pages: list[FullPages], *, hurry: bool = False) -> None:
        """Write pages of one file, which is made if it is not there. Not synced. Raises `NoRoom`, `DiskError`.

        Args:
            hurry: the pages are consecutive, and will be synced soon.
        """
        file_no = pages[0].key[0]
        size = self._new_files.get(file_no)
        if size is not None:
            self.files.make(file_no, size)
            del self._new_files[file_no]
        last = pages[-1]
        begin, end = pages[0].key[1], last.key[1] + last.page_count
        self.files.reserve(file_no, begin * PAGE_SIZE, end * PAGE_SIZE)
        with self._use(file_no) as file:
            self.files.note_unsynced(file_no, unsynced=True)
            write_pages(file, [(some.key[1], some.data) for some in pages])
            count = sum(some.page_count for some in pages)
            if hurry:
                file.start_writing(count * PAGE_SIZE, pages[0].key[1] * PAGE_SIZE)
        self.pages_written += count

    def written(self, pages: list[FullPages]) -> None:
        """Remove the oldest pages from the FIFO: they are in their file."""
        with self._lock:
            for some in pages:
                self.fifo.popleft()
                self.waiting -= some.page_count
                if some.page_count == 1:
                    del self._unflushed[some.key]
                    self._keep(*some.key, [some.data])
                else:  # not cached: a large group would drive out everything else
                    del self._unflushed_runs[0]
            self.written_end = pages[-1].end

    def synced_pages(self, file_no: int) -> int:
        """Lower bound of the durable pages of a file."""
        synced_file, page_no = self.synced_end
        return page_no if synced_file == file_no else 0

    def is_in_file(self, key: PageKey) -> bool:
        """Whether a page that was the tail has been filled, and written, since."""
        with self._lock:
            return key < self._tail_key and self._unflushed_page(key) is None

    def sync_file(self, file_no: int) -> None:
        """Sync a file, and truncate it to its planned end if it has one."""
        with self._use(file_no) as file:
            with self.fsyncs.measured():
                file.fdatasync()
            cut = self._cuts.get(file_no)
            last = self.fifo[0].key[0] if self.fifo else self._tail_key[0]
            if cut is not None and last > file_no:
                # Only after the DUMMY record of the last page: without it, a reader would stop there for good.
                file.truncate(cut)
                with self.fsyncs.measured():
                    file.fdatasync()
                del self._cuts[file_no]
            self.files.note_unsynced(file_no, unsynced=False)

    @contextlib.contextmanager
    def _use(self, file_no: int) -> Iterator[File]:
        with self.files.use(file_no) as file:
            if file is None:
                raise DiskError(
                    f"{file_name(file_no)} has gone from the directory while it was being written"
                )
            yield file

    # --- the owner ---

    def forget(self, file_no: int) -> None:
        """Close a file and drop its pages: it was changed or removed."""
        self.files.forget(file_no)
        with self._lock:
            for key in [key for key in self._cache if key[0] == file_no]:
                del self._cache[key]

    def restart(self) -> None:
        """RESET MASTER has removed all files: forget them."""
        self.files.restart()
        with self._lock:
            self._cache = OrderedDict()  # a new cache: reads under way put their pages into the old
            self._cached_end = _NONE
            self._unflushed.clear()
            self._unflushed_runs.clear()
            self.fifo.clear()
            self.waiting = 0
            self._new_files.clear()
            self._cuts.clear()
            self._tail_key = _NOWHERE
            self.written_end, self.synced_end = _NEVER, _NONE

    def close(self) -> None:
        """Close all files."""
        self.files.close()


class _Probing(PageSource):
    """See `PageStore.probing`."""

    def __init__(self, store: PageStore) -> None:
        self._store = store

    def page(self, file_no: int, page_no: int) -> bytes | None:
        return self._store.page(file_no, page_no, ahead=False)

    def has_data(self, file_no: int) -> bool:
        return self._store.has_data(file_no)


def write_pages(file: File, pages: list[tuple[int, bytes]]) -> None:
    """Write runs of pages, each with the number of its first page, ascending; neighbours in one write."""
    at = 0
    while at < len(pages):
        follows = pages[at][0]
        end = at
        while end < len(pages) and pages[end][0] == follows:
            follows += len(pages[end][1]) // PAGE_SIZE
            end += 1
        file.pwritev([data for _, data in pages[at:end]], pages[at][0] * PAGE_SIZE)
        at = end
