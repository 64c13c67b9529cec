"""Redo applied to the .ibb files, as section 11 of the format says, up to the last whole mini-transaction.

1. Which file the first record belongs to follows from its parity and LSN and the headers of the last two files. The
   checkpoint says it as well; where the two differ, the log is not that of these files.
2. Each page that can need recovery has a record with offset 0 behind the checkpoint, which begins it anew: no page is
   read to be changed, so a torn one does no harm. Pages that are not logged are made of zeros where they are not there:
   then what they held belongs to no group.
3. From there the records have no gap: each goes on where the one before ended, or begins the same page anew, or the
   next page or file where the one before is full.
4. The binlog ends where the redo ended. What the files hold behind that was never durable: it is kept beside them as
   `*.broken`, its GTIDs are logged, and then it is made zeros. Later files go.

Each step can be done again: a crash during recovery leaves the log as it was, and the next start begins from its
checkpoint.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence

from storage.binlog.broken import keep_aside, put_aside
from storage.binlog.file_names import file_name, file_numbers
from storage.binlog.page_store import write_pages
from storage.disk import Disk, File
from storage.errors import CorruptBinlog, CorruptRedo
from storage.ibb.chunk import CHUNK_DATA_MAX, Position
from storage.ibb.file_header import FIELDS_BYTES, FileHeader, header_page
from storage.ibb.page import PAGE_END, PAGE_SIZE, ZERO_PAGE, check, is_sound, seal
from storage.redo.format import REDO_NAME, Cut, RedoFormatError, RedoRecord, Unlogged, Write
from storage.redo.log import RedoLog

log = logging.getLogger(__name__)

_CHUNK = struct.Struct("<BH")  # its header
_BATCH_PAGES = 64
_EMPTY_PAGES = 64  # so many in a row behind the end, and nothing follows

_ADVICE = (
    ". The store was not opened: restore it with its redo log from a copy; or start once with innodb_force_recovery=6 "
    "to go on with what the .ibb files hold, without the last commits"
)


def replay(disk: Disk, redo: RedoLog) -> Position | None:
    """Apply what was logged since the checkpoint, and make the files end there.

    Returns where the writer stood, in the page it was filling; None if there is no data. Raises `CorruptRedo`,
    `CorruptBinlog`, `DiskError`.
    """
    begin = redo.checkpoint.end
    if begin is None:
        _remove_all(disk)
    else:
        _require_files(disk, begin)
    applier = _Applier(disk, begin)
    count = 0
    try:
        for mtr in redo.replay():
            if not count:
                _require_match(disk, begin, mtr.lsn, next(mtr.records()))
            count += 1
            for record in mtr.records():
                applier.apply(record, mtr.lsn)
        end = applier.finish()
    except RedoFormatError as error:
        raise CorruptRedo(f"{REDO_NAME} holds {error}{_ADVICE}") from None
    finally:
        applier.close()
    if count:
        log.info(
            "InnoDB: Starting crash recovery from checkpoint LSN=%d; applied %d bytes of redo to the binlog",
            redo.checkpoint.lsn,
            redo.lsn - redo.checkpoint.lsn,
        )
    return end


def match_first(
    parity: int, page_no: int, offset: int, lsn: int, last: int, start_lsns: Sequence[int | None]
) -> int:
    """The file to which the first record of the redo belongs.

    Args:
        parity, page_no, offset, lsn: of the record.
        last: number of the last file there is.
        start_lsns: of the last file and the two before it, from their headers; None for a file without a sound header.

    Raises `CorruptRedo` if no file can be told.
    """
    own = start_lsns[0]
    begins_file = page_no == 0 and offset == 0
    if len(start_lsns) == 1:
        if own is None:
            raise CorruptRedo(f"{file_name(last)} is empty, and there is no other file{_ADVICE}")
        return last + (parity != last & 1 and lsn >= own and begins_file)
    before = start_lsns[1]
    if own is None and before is None:
        if len(start_lsns) == 2 or start_lsns[2] is None:
            raise CorruptRedo(
                f"Last 3 binlog tablespace files are all empty. Recovery is not possible{_ADVICE}"
            )
        return match_first(parity, page_no, offset, lsn, last - 1, start_lsns[1:])
    if own is None:
        assert before is not None
        fits = parity == last & 1 and lsn >= before and begins_file
    else:
        fits = parity == last & 1 and lsn >= own
    return last if fits else last - 1


def _require_match(disk: Disk, begin: Position | None, lsn: int, first: RedoRecord) -> None:
    if begin is None or not isinstance(first, Write):
        return
    numbers = file_numbers(disk.names())
    last = numbers[-1]
    start_lsns = [_start_lsn(disk, n) for n in (last, last - 1, last - 2) if n in numbers]
    found = match_first(first.parity, first.page_no, first.offset, lsn, last, start_lsns)
    expected = begin.file_no + (first.parity != begin.file_no & 1)
    # Further files are there only if the last checkpoint is torn, and this is the one before.
    if found != expected and last <= begin.file_no + 1:
        raise CorruptRedo(
            f"{REDO_NAME} is not that of these files: it goes on in {file_name(expected)}, but their headers say "
            f"{file_name(found)}{_ADVICE}"
        )


def _start_lsn(disk: Disk, file_no: int) -> int | None:
    try:
        header = _header(disk, file_no)
    except CorruptBinlog:
        return None
    return None if header is None else header.start_lsn


def _header(disk: Disk, file_no: int) -> FileHeader | None:
    file = disk.open(file_name(file_no))
    try:
        page = file.pread(PAGE_SIZE, 0)
    finally:
        file.close()
    return FileHeader.parse(page, file_no)


def _require_files(disk: Disk, begin: Position) -> None:
    if begin.file_no not in file_numbers(disk.names()):
        raise CorruptRedo(
            f"{file_name(begin.file_no)} is missing, where the binlog ended at the last checkpoint of {REDO_NAME}"
            f"{_ADVICE}"
        )
    if _header(disk, begin.file_no) is None:
        raise CorruptBinlog(
            begin.file_no, 0, f"the header is empty, but the file holds data{_ADVICE}"
        )


def _remove_all(disk: Disk) -> None:
    """A RESET MASTER was under way: the checkpoint says that the store is empty."""
    for number in file_numbers(disk.names()):
        disk.unlink(file_name(number))
    disk.fsync_dir()


class _Applier:
    """The end of the binlog, moved on record by record."""

    def __init__(self, disk: Disk, begin: Position | None) -> None:
        self._disk = disk
        self._file: File | None = None
        self._file_no = -1
        self._file_pages = 0
        self._page_no = -1
        self._at = PAGE_END
        self._page: bytearray | None = None  # None until a record has begun it
        self._batch: list[tuple[int, bytes]] = []
        self._unlogged: list[Unlogged] = []  # of this file, and perhaps not durable in it
        if begin is not None:
            self._file_no = begin.file_no
            self._page_no, self._at = divmod(begin.offset, PAGE_SIZE)
            self._file = disk.open(file_name(begin.file_no))
            # By its header: a length that was set just before may be lost. If the file was cut since, the redo says so.
            header = _header(disk, begin.file_no)
            assert header is not None
            self._file_pages = header.pages

    def apply(self, record: RedoRecord, lsn: int) -> None:
        """Raises `CorruptRedo` if it does not follow what came before."""
        match record:
            case Write(parity, page_no, offset, data):
                if parity != self._file_no & 1:
                    self._next_file(record, lsn)
                elif page_no == self._page_no and offset == 0 and len(data) >= self._at:
                    self._page = bytearray(PAGE_SIZE)
                    self._fill(data, 0)
                elif page_no == self._page_no and offset == self._at and self._page is not None:
                    self._fill(data, offset)
                elif page_no == self._page_no + 1 < self._file_pages and not offset and self._full:
                    self._page_done()
                    self._page_no = page_no
                    self._page = bytearray(PAGE_SIZE)
                    self._fill(data, 0)
                else:
                    raise self._missing(record, lsn)
            case Unlogged(parity, page_no, count, _, _, safe):
                next_page = self._page_no + 1 if self._full else self._page_no
                follows = page_no == next_page and (self._full or not self._at)
                if parity != self._file_no & 1 or not follows or page_no + count > self._file_pages:
                    raise self._missing(record, lsn)
                self._page_done()
                self._unlogged = [old for old in self._unlogged if old.page_no + old.pages > safe]
                self._unlogged.append(record)
                self._page_no, self._at = page_no + count - 1, PAGE_END
            case Cut(parity, pages):
                if parity != self._file_no & 1 or pages != self._page_no + 1 or not self._full:
                    raise self._missing(record, lsn)
                self._page_done()
                self._write_batch()
                assert self._file is not None
                self._file.truncate(pages * PAGE_SIZE)
                self._file_pages = pages

    @property
    def _full(self) -> bool:
        return self._at >= PAGE_END

    def _fill(self, data: bytes, offset: int) -> None:
        assert self._page is not None
        end = offset + len(data)
        self._page[offset:end] = data
        self._at = end

    def _missing(self, record: RedoRecord, lsn: int) -> CorruptRedo:
        return CorruptRedo(
            f"InnoDB: Missing recovery record in file_no={self._file_no} page_no={self._page_no} offset={self._at}: "
            f"at LSN {lsn} the redo log goes on with {str(record)[:120]}{_ADVICE}"
        )

    def _next_file(self, record: Write, lsn: int) -> None:
        at_end = self._file is None or (self._full and self._page_no + 1 == self._file_pages)
        if record.page_no or record.offset or len(record.data) != FIELDS_BYTES or not at_end:
            raise self._missing(record, lsn)
        self._end_file()
        number = self._file_no + 1
        page = header_page(record.data)
        header = FileHeader.parse(page, number)
        assert header is not None
        name = file_name(number)
        made = name not in self._disk.names()
        self._file = self._disk.open(name, create=made)
        size = header.pages * PAGE_SIZE
        if self._file.size() > size:
            self._file.truncate(size)
        elif self._file.size() < size:
            self._file.allocate(size)
        self._file_no, self._file_pages = number, header.pages
        self._page_no, self._at = 0, PAGE_END
        self._page = bytearray(page)

    def _page_done(self) -> None:
        if self._page is not None:
            self._batch.append((self._page_no, seal(self._page)))
            self._page = None
        if len(self._batch) >= _BATCH_PAGES:
            self._write_batch()

    def _write_batch(self) -> None:
        if self._batch:
            assert self._file is not None
            write_pages(self._file, self._batch)
            self._batch = []

    def _write_unlogged(self, file: File) -> None:
        """All of them, also those that are there: their sync may have failed before the restart."""
        self._write_batch()
        for record in self._unlogged:
            for number in range(record.pages):
                page_no = record.page_no + number
                there = file.pread(PAGE_SIZE, page_no * PAGE_SIZE)
                chunk = _CHUNK.pack(record.then if number else record.first, CHUNK_DATA_MAX)
                if not (there.startswith(chunk) and len(there) == PAGE_SIZE and is_sound(there)):
                    there = seal(bytearray(chunk.ljust(PAGE_SIZE, b"\0")))
                self._batch.append((page_no, there))
                if len(self._batch) >= _BATCH_PAGES:
                    self._write_batch()
        self._write_batch()
        self._unlogged = []

    def _end_file(self) -> None:
        """All of it is written: make it durable."""
        if self._file is not None:
            self._page_done()
            self._write_batch()
            self._write_unlogged(self._file)
            self._file.fdatasync()
            self._file.close()
            self._file = None

    def finish(self) -> Position | None:
        """The redo is at its end. Everything behind goes."""
        file = self._file
        if file is None:
            return None
        self._write_unlogged(file)
        self._write_last(file)
        self._resize(file)
        self._write_batch()
        file.fdatasync()
        for number in reversed(file_numbers(self._disk.names())):
            if number <= self._file_no:
                break
            self._drop_file(number)
        self._disk.fsync_dir()
        return Position(self._file_no, self._page_no * PAGE_SIZE + self._at)

    def _write_last(self, file: File) -> None:
        """The partial page, and zeros behind it; what stood there is kept aside first."""
        self._write_batch()
        there = file.pread(PAGE_SIZE, self._page_no * PAGE_SIZE)
        if self._page is None:  # as the checkpoint left it
            check(there, self._file_no, self._page_no)
            if self._at and not any(there):
                at = self._page_no * PAGE_SIZE
                raise CorruptBinlog(
                    self._file_no, at, f"an empty page, but it was written{_ADVICE}"
                )
            page = there[: self._at].ljust(PAGE_SIZE, b"\0")
        else:
            page = bytes(self._page)
        surplus = self._surplus(file)
        sealed = seal(bytearray(page))
        torn = len(there) == PAGE_SIZE and not is_sound(there)
        beyond = any(there[self._at : PAGE_END])
        if surplus or (beyond and not torn):
            kept = b"".join(page for _, page in surplus)
            keep_aside(self._disk, self._file_no, self._page_no, self._at, there + kept)
        self._batch = [(number, ZERO_PAGE) for number, page in surplus if any(page)]
        # A page of the redo is written even if it is there already: its sync may have failed before the restart, and
        # then the kernel shows what it will never write.
        if self._page is not None or there != sealed:
            self._batch.insert(0, (self._page_no, sealed))

    def _surplus(self, file: File) -> list[tuple[int, bytes]]:
        """Pages behind the end, up to the last that is not empty."""
        found: list[tuple[int, bytes]] = []
        last = 0
        number = self._page_no + 1
        while len(found) - last < _EMPTY_PAGES and number < self._file_pages:
            page = file.pread(PAGE_SIZE, number * PAGE_SIZE)
            if not page:
                break
            found.append((number, page))
            if page.strip(b"\0"):
                last = len(found)
            number += 1
        return found[:last]

    def _resize(self, file: File) -> None:
        """To the length that its header tells, unless it was cut there by the redo."""
        if file.size() < self._file_pages * PAGE_SIZE:
            file.allocate(self._file_pages * PAGE_SIZE)

    def _drop_file(self, number: int) -> None:
        file = self._disk.open(file_name(number))
        try:
            empty = not any(file.pread(2 * PAGE_SIZE, 0))
            whole = file.size() >= 2 * PAGE_SIZE and file.size() % PAGE_SIZE == 0
        finally:
            file.close()
        if empty and whole and number == self._file_no + 1:
            return  # made ahead; a start that is refused later must not have changed anything
        if empty:
            self._disk.unlink(file_name(number))
        else:
            put_aside(self._disk, number)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
