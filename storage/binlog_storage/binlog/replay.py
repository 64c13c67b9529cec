"""The redo log, applied to the .ibb files up to its last whole mini-transaction.

1. Which file the first record belongs to follows from its parity and LSN and the headers of the last two files. The
   checkpoint says it as well; where the two differ, the log is not that of these files.
2. Each page that can need recovery has a record with offset 0 behind the checkpoint, which begins it anew: no page is
   read to be changed, so a torn one does no harm. A page that is not logged, and is missing, is made of zeros: its data
   belong to no group then.
3. From there the records have no gap: each goes on where the one before ended, or begins the same page anew, or the
   next page or file where the one before is full.
4. The binlog ends where the redo ends. Data behind that in the files were never durable: they are kept beside the files
   as `*.broken`, their GTIDs are logged, and they are overwritten by zeros. Later files are removed.

All of this is planned first, without a change (`plan_replay`): a start reads the planned files, and may still refuse
them. Only then the plan is carried out (`Replay.apply`). Each step can be repeated: a crash leaves the log as it was,
and the next start begins from its checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Sequence
from dataclasses import field

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.broken import keep_aside, put_aside
from binlog_storage.binlog.file_table import lengthen
from binlog_storage.binlog.page_store import write_pages
from binlog_storage.disk.disk import Disk, File, is_unwritten
from binlog_storage.errors import CorruptBinlog, CorruptRedo
from binlog_storage.ibb.chunk import CHUNK_DATA_MAX, Position
from binlog_storage.ibb.file_header import FIELDS_BYTES, FileHeader, header_page
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, ZERO_PAGE, check, is_sound, is_zero, seal
from binlog_storage.redo.format import (
    REDO_NAME,
    Cut,
    NewerRedo,
    RedoFormatError,
    RedoRecord,
    Tables,
    Unlogged,
    Write,
)
from binlog_storage.redo.log import RedoLog
from binlog_storage.redo.take_writes import take_writes
from binlog_storage.tables.rebuild import Rebuild

log = logging.getLogger(__name__)

_CHUNK = struct.Struct("<BH")  # header of a chunk: type, length
_BATCH_PAGES = 64
_EMPTY_PAGES = 64  # behind so many empty pages in a row, no data are expected

_ADVICE = (
    ". The store was not opened: restore it with its redo log from a copy; or start once with innodb_force_recovery=6 "
    "to go on with what the .ibb files hold, without the last commits"
)


def plan_replay(disk: Disk, redo: RedoLog, tables: Rebuild | None = None) -> Replay:
    """Plan the changes that the redo since the checkpoint makes to the files, and make the tables as it says.

    Nothing is changed on disk yet. Raises `CorruptRedo`, `CorruptBinlog`, `CorruptTables`, `DiskError`.
    """
    tables = tables or Rebuild()
    begin = redo.checkpoint.end
    pages = None if begin is None else _require_begin(disk, begin).pages
    follower = _Follower(begin, pages)
    count = 0
    from_lsn = redo.checkpoint.lsn  # of the pages: the tables may begin before it
    of_pages = False  # the one before: mostly the next one is of the same kind

    def take(window: bytes, at: int, stop: int, lsn: int, epoch: int) -> tuple[int, int]:
        taker = follower.take if of_pages else tables.take
        return taker(window, at, stop, lsn, epoch)

    try:
        for mtr in redo.replay(take):
            of_pages = mtr.lsn >= from_lsn and not mtr.is_of_tables
            if of_pages and not count:
                _require_match(disk, begin, mtr.lsn, next(mtr.records()))
            count += of_pages
            for record in mtr.records():
                if isinstance(record, Tables):
                    tables.apply(record.data, mtr.lsn, redo.reading_epoch)
                elif of_pages:
                    follower.apply(record, mtr.lsn)
    except NewerRedo as error:
        raise CorruptRedo(f"{REDO_NAME} holds {error}") from None
    except RedoFormatError as error:
        raise CorruptRedo(f"{REDO_NAME} holds {error}{_ADVICE}") from None
    tables.done(redo.lsn)
    files = {file.number: file for file in follower.files}
    replay = Replay(disk, redo, begin, files, follower.end, count)
    with contextlib.closing(replay):
        replay.check()
    return replay


def match_first(
    parity: int, page_no: int, offset: int, lsn: int, last: int, start_lsns: Sequence[int | None]
) -> int:
    """The file to which the first record of the redo belongs.

    Args:
        parity, page_no, offset, lsn: the fields of the record.
        last: the number of the last existing file.
        start_lsns: the LSNs in the headers of the last file and the two before it; None without a sound header.

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
    return FileHeader.parse(_read_page(disk, file_no, 0), file_no)


def _read_page(disk: Disk, file_no: int, page_no: int) -> bytes:
    with contextlib.closing(disk.open(file_name(file_no))) as file:
        return file.pread(PAGE_SIZE, page_no * PAGE_SIZE)


def _require_begin(disk: Disk, begin: Position) -> FileHeader:
    """The header of the file in which the redo begins."""
    if begin.file_no not in file_numbers(disk.names()):
        raise CorruptRedo(
            f"{file_name(begin.file_no)} is missing, where the binlog ended at the last checkpoint of {REDO_NAME}"
            f"{_ADVICE}"
        )
    header = _header(disk, begin.file_no)
    if header is None:
        raise CorruptBinlog(
            begin.file_no, 0, f"the header is empty, but the file holds data{_ADVICE}"
        )
    return header


@dataclass(slots=True)
class _PlannedFile:
    """A file that the redo writes to; it will have `pages` pages.

    fields: the fields of its header, if the redo begins the file.
    begins: for each logged page, the LSN of the mini-transaction that begins it.
    unlogged: pages that are not logged, and perhaps not durable in the file.
    """

    number: int
    pages: int
    fields: bytes | None = None
    begins: dict[int, int] = field(default_factory=dict)
    unlogged: list[Unlogged] = field(default_factory=list)
    is_cut: bool = False


class _Follower:
    """Follows the end of the binlog, record by record. It keeps the LSNs of the writes, not their data.

    Args:
        begin: the end at the checkpoint.
        pages: the pages of the file of `begin`, by its header. (Its length on disk may be lost in a crash; if the file
            was cut since, the redo has a record of that.)
    """

    def __init__(self, begin: Position | None, pages: int | None) -> None:
        self.files: list[_PlannedFile] = []
        self._page_no = -1
        self._at = PAGE_END
        self._begun = False  # whether a record has begun the current page
        if begin is not None and pages is not None:
            self.files.append(_PlannedFile(begin.file_no, pages))
            self._page_no, self._at = divmod(begin.offset, PAGE_SIZE)

    @property
    def end(self) -> Position | None:
        """The end of the binlog, in the page that is being filled; None if there is no data."""
        if not self.files:
            return None
        return Position(self._file_no, self._page_no * PAGE_SIZE + self._at)

    def apply(self, record: RedoRecord, lsn: int) -> None:
        """Move on by a record. Raises `CorruptRedo` if it does not follow the record before."""
        match record:
            case Write(parity, page_no, offset, data):
                if parity != self._file_no & 1:
                    self._next_file(record, lsn)
                elif page_no == self._page_no and offset == 0 and len(data) >= self._at:
                    self._begin(page_no, len(data), lsn)
                elif page_no == self._page_no and offset == self._at and self._begun:
                    self._at += len(data)
                elif page_no == self._page_no + 1 < self._pages and not offset and self._full:
                    self._begin(page_no, len(data), lsn)
                else:
                    raise self._missing(record, lsn)
            case Unlogged(parity, page_no, count, _, _, safe):
                next_page = self._page_no + 1 if self._full else self._page_no
                follows = page_no == next_page and (self._full or not self._at)
                if parity != self._file_no & 1 or not follows or page_no + count > self._pages:
                    raise self._missing(record, lsn)
                file = self.files[-1]
                file.unlogged = [old for old in file.unlogged if old.page_no + old.pages > safe]
                file.unlogged.append(record)
                self._page_no, self._at, self._begun = page_no + count - 1, PAGE_END, False
            case Cut(parity, pages):
                if parity != self._file_no & 1 or pages != self._page_no + 1 or not self._full:
                    raise self._missing(record, lsn)
                self.files[-1].pages, self.files[-1].is_cut = pages, True

    def take(self, window: bytes, at: int, stop: int, lsn: int, epoch: int) -> tuple[int, int]:
        """Move on by what only goes on with the page: see `take_writes` and `RedoReader.replay`."""
        if not self._begun or not self.files:
            return at, 0
        behind, self._at, durable = take_writes(
            window, at, stop, lsn, epoch, self._file_no & 1, self._page_no, self._at, None
        )
        return behind, durable

    @property
    def _file_no(self) -> int:
        return self.files[-1].number if self.files else -1

    @property
    def _pages(self) -> int:
        return self.files[-1].pages if self.files else 0

    @property
    def _full(self) -> bool:
        return self._at >= PAGE_END

    def _begin(self, page_no: int, size: int, lsn: int) -> None:
        self.files[-1].begins[page_no] = lsn
        self._page_no, self._at, self._begun = page_no, size, True

    def _missing(self, record: RedoRecord, lsn: int) -> CorruptRedo:
        return CorruptRedo(
            f"InnoDB: Missing recovery record in file_no={self._file_no} page_no={self._page_no} offset={self._at}: "
            f"at LSN {lsn} the redo log goes on with {str(record)[:120]}{_ADVICE}"
        )

    def _next_file(self, record: Write, lsn: int) -> None:
        at_end = not self.files or (self._full and self._page_no + 1 == self._pages)
        if record.page_no or record.offset or len(record.data) != FIELDS_BYTES or not at_end:
            raise self._missing(record, lsn)
        number = self._file_no + 1
        header = FileHeader.parse(header_page(record.data), number)
        assert header is not None
        self.files.append(_PlannedFile(number, header.pages, record.data))
        self._page_no, self._at, self._begun = 0, PAGE_END, True


@dataclass(eq=False)
class Replay:
    """The files as the redo makes them: first to be read as a plan, then to be made.

    It holds the LSN where each page is begun, not the pages.

    Attributes:
        end: the write position, in the page that was being filled; None if there is no data.
    """

    _disk: Disk
    _redo: RedoLog
    _begin: Position | None
    _files: dict[int, _PlannedFile]
    end: Position | None
    _count: int
    _reading: tuple[int, File] | None = (
        None  # the file of which pages were read last, and its number
    )

    def check(self) -> None:
        """Check the page of the checkpoint, unless the redo begins it anew. Raises `CorruptBinlog`."""
        end = self.end
        if end is None or end != self._begin or end.page_no in self._files[end.file_no].begins:
            return
        there = self._there(end.file_no, end.page_no)
        check(there, end.file_no, end.page_no)
        if end.in_page and is_zero(there):
            raise CorruptBinlog(*end.page_start, f"an empty page, but it was written{_ADVICE}")

    # --- the files as they will be ---

    def numbers(self, there: list[int]) -> list[int]:
        """Numbers of the planned files, ascending.

        Args:
            there: the numbers of the files that exist now.
        """
        if self._begin is None:
            return sorted(self._files)
        kept = [number for number in there if number < self._begin.file_no]
        return [*kept, *sorted(self._files)]

    def touches(self, file_no: int) -> bool:
        """Whether the redo decides the content of this file."""
        return self._begin is None or file_no >= self._begin.file_no

    def size(self, file_no: int) -> int | None:
        """Planned size in bytes of a file that the redo touches; None if there will be none."""
        file = self._files.get(file_no)
        return None if file is None else file.pages * PAGE_SIZE

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """A planned page of a file that the redo touches; None behind the file's end.

        The checksum of a page that comes from the file is not checked.
        """
        file = self._files.get(file_no)
        if file is None or self.end is None or page_no >= file.pages:
            return None
        lsn = file.begins.get(page_no)
        if lsn is not None:
            return self.logged_page(file, page_no, lsn)
        if page_no == 0 and file.fields is not None:
            return header_page(file.fields)
        for record in file.unlogged:
            if record.page_no <= page_no < record.page_no + record.pages:
                return _unlogged_page(record, page_no, self._there(file_no, page_no))
        if file_no == self.end.file_no and page_no > self.end.page_no:
            return ZERO_PAGE
        # The file will get its full length again: bytes behind its present end will be zeros.
        there = self._there(file_no, page_no).ljust(PAGE_SIZE, b"\0")
        if file_no == self.end.file_no and page_no == self.end.page_no and is_sound(there):
            return seal(bytearray(there[: self.end.in_page].ljust(PAGE_SIZE, b"\0")))
        return there

    def logged_page(self, file: _PlannedFile, page_no: int, lsn: int) -> bytes:
        """A page made of its redo alone, with its checksum."""
        page = bytearray(PAGE_SIZE)
        begun = False
        behind = 0
        parity = file.number & 1

        def take(window: bytes, at: int, stop: int, lsn: int, epoch: int) -> tuple[int, int]:
            nonlocal behind
            if not begun:
                return at, 0
            at, behind, durable = take_writes(
                window, at, stop, lsn, epoch, parity, page_no, behind, page
            )
            return at, durable

        for mtr in self._redo.mtrs_from(lsn, take):
            for record in mtr.records():
                place = (parity, page_no)
                if isinstance(record, Write) and (record.parity, record.page_no) == place:
                    if not record.offset:
                        page[:] = bytes(PAGE_SIZE)
                    behind = record.offset + len(record.data)
                    page[record.offset : behind] = record.data
                    begun = True
                elif begun and not isinstance(record, Tables):
                    return seal(page)
        return seal(page)

    def _there(self, file_no: int, page_no: int) -> bytes:
        if self._reading is None or self._reading[0] != file_no:
            self.close()
            if file_name(file_no) not in self._disk.names():
                return b""
            self._reading = file_no, self._disk.open(file_name(file_no))
        return self._reading[1].pread(PAGE_SIZE, page_no * PAGE_SIZE)

    def close(self) -> None:
        """Close the file of which pages were read last; the next one to be read opens it anew."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading[1].close()

    # --- made ---

    def apply(self) -> None:
        """Carry out the plan. Each step can be repeated. Raises `DiskError`."""
        self.close()
        if self._begin is None:
            _remove_all(self._disk)
        for file in self._files.values():
            with contextlib.closing(_Applier(self._disk, self, file)) as applier:
                if self.end is not None and file.number == self.end.file_no:
                    applier.end_at(self.end)
                else:
                    applier.end_file()
        if self._count:
            log.info(
                "InnoDB: Starting crash recovery from checkpoint LSN=%d; applied %d bytes of redo to the binlog",
                self._redo.checkpoint.lsn,
                self._redo.lsn - self._redo.checkpoint.lsn,
            )


def _unlogged_page(record: Unlogged, page_no: int, there: bytes) -> bytes:
    """An unlogged page as it is in the file; if it never came there, one with zeros for its data."""
    kind = record.first if page_no == record.page_no else record.then
    chunk = _CHUNK.pack(kind, CHUNK_DATA_MAX)
    if there.startswith(chunk) and len(there) == PAGE_SIZE and is_sound(there):
        return there
    return seal(bytearray(chunk.ljust(PAGE_SIZE, b"\0")))


def _remove_all(disk: Disk) -> None:
    """Remove all files: the checkpoint says that the store is empty, so a RESET MASTER was under way."""
    for number in file_numbers(disk.names()):
        disk.unlink(file_name(number))
    disk.fsync_dir()


class _Applier:
    """Writes one file as the redo says."""

    def __init__(self, disk: Disk, replay: Replay, planned: _PlannedFile) -> None:
        self._disk = disk
        self._replay = replay
        self._planned = planned
        self._batch: list[tuple[int, bytes]] = []
        name = file_name(planned.number)
        made = planned.fields is not None and name not in disk.names()
        self._file = disk.open(name, create=made)
        if planned.fields is not None:
            self._enter(planned.fields)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _enter(self, fields: bytes) -> None:
        """Begin a file that the redo begins, in the length of its header."""
        page = header_page(fields)
        header = FileHeader.parse(page, self._planned.number)
        assert header is not None
        size = header.pages * PAGE_SIZE
        if self._file.size() > size:
            self._file.truncate(size)
        elif self._file.size() < size:
            lengthen(self._file, self._planned.number, size)
        self._put(0, page)

    def _put(self, page_no: int, page: bytes) -> None:
        self._batch.append((page_no, page))
        if len(self._batch) >= _BATCH_PAGES:
            self._write_batch()

    def _write_batch(self) -> None:
        if self._batch:
            write_pages(self._file, self._batch)
            self._batch = []

    def _write_logged(self, end_page: int) -> None:
        """Write the logged pages in front of `end_page`."""
        for page_no, lsn in self._planned.begins.items():
            if page_no < end_page:
                self._put(page_no, self._replay.logged_page(self._planned, page_no, lsn))
        self._write_batch()

    def _write_unlogged(self) -> None:
        """Write all unlogged pages, also those in the file: their sync may have failed before the restart."""
        for record in self._planned.unlogged:
            for page_no in range(record.page_no, record.page_no + record.pages):
                there = self._file.pread(PAGE_SIZE, page_no * PAGE_SIZE)
                self._put(page_no, _unlogged_page(record, page_no, there))
        self._write_batch()

    def end_file(self) -> None:
        """Write all of a file that another follows, durably."""
        self._write_logged(self._planned.pages)
        if self._planned.is_cut:
            self._file.truncate(self._planned.pages * PAGE_SIZE)
        self._write_unlogged()
        self._file.fdatasync()

    def end_at(self, end: Position) -> None:
        """Write the last file up to the end of the redo, durably, and remove all data and files behind."""
        self._write_logged(end.page_no)
        if self._planned.is_cut:
            self._file.truncate(self._planned.pages * PAGE_SIZE)
        self._write_unlogged()
        self._write_last(end)
        self._resize()
        self._write_batch()
        self._file.fdatasync()
        for number in reversed(file_numbers(self._disk.names())):
            if number <= end.file_no:
                break
            self._drop_file(number)
        self._disk.fsync_dir()

    def _write_last(self, end: Position) -> None:
        """Write the partial page, and zeros over the pages behind it; other data there are kept aside first."""
        there = self._file.pread(PAGE_SIZE, end.page_no * PAGE_SIZE)
        sealed = self._replay.page(end.file_no, end.page_no)
        assert sealed is not None
        surplus = self._surplus(end.page_no + 1)
        torn = len(there) == PAGE_SIZE and not is_sound(there)
        beyond = not is_zero(there[end.in_page : PAGE_END])
        if surplus or (beyond and not torn):
            kept = b"".join(page for _, page in surplus)
            keep_aside(self._disk, end.file_no, end.page_no, end.in_page, there + kept)
        self._batch = [(number, ZERO_PAGE) for number, page in surplus if not is_zero(page)]
        # A page of the redo is written even if the file has it already: its sync may have failed before the restart,
        # and then the kernel shows a page that it will never write.
        if end.page_no in self._planned.begins or there != sealed:
            self._batch.insert(0, (end.page_no, sealed))

    def _surplus(self, number: int) -> list[tuple[int, bytes]]:
        """The pages from `number` on, up to the last that is not empty."""
        found: list[tuple[int, bytes]] = []
        last = 0
        while len(found) - last < _EMPTY_PAGES and number < self._planned.pages:
            if is_unwritten(self._file, number * PAGE_SIZE, _EMPTY_PAGES * PAGE_SIZE):
                break
            page = self._file.pread(PAGE_SIZE, number * PAGE_SIZE)
            if not page:
                break
            found.append((number, page))
            if not is_zero(page):
                last = len(found)
            number += 1
        return found[:last]

    def _resize(self) -> None:
        """Give the file its planned length, if it is shorter."""
        size = self._planned.pages * PAGE_SIZE
        if self._file.size() < size:
            lengthen(self._file, self._planned.number, size)

    def _drop_file(self, number: int) -> None:
        with contextlib.closing(self._disk.open(file_name(number))) as file:
            empty = is_zero(file.pread(2 * PAGE_SIZE, 0))
            whole = file.size() >= 2 * PAGE_SIZE and file.size() % PAGE_SIZE == 0
        if empty and whole and number == self._planned.number + 1:
            return  # made ahead
        if empty:
            self._disk.unlink(file_name(number))
        else:
            put_aside(self._disk, number)
