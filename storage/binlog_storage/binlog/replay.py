"""The redo log, applied to the .ibb files up to its last whole mini-transaction.

1. Which file the first record belongs to follows from its parity and LSN and the headers of the last two files. The
   checkpoint says it as well; where the two differ, the log is not that of these files.
2. Each page that can need recovery has a record with offset 0 behind the checkpoint, which begins it anew: no page is
   read to be changed, so a torn one does no harm. Pages that are not logged are made of zeros where they are not there:
   then what they held belongs to no group.
3. From there the records have no gap: each goes on where the one before ended, or begins the same page anew, or the
   next page or file where the one before is full.
4. The binlog ends where the redo ended. What the files hold behind that was never durable: it is kept beside them as
   `*.broken`, its GTIDs are logged, and then it is made zeros. Later files go.

All of this is planned first, and nothing is changed by it (`plan_replay`): a start reads the files as they will be, and
may still refuse them. Only then they are made so (`Replay.apply`). Each step of that can be done again: a crash leaves
the log as it was, and the next start begins from its checkpoint.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from binlog_storage.binlog.broken import keep_aside, put_aside
from binlog_storage.binlog.page_store import write_pages
from binlog_storage.disk.disk import Disk
from binlog_storage.errors import CorruptBinlog, CorruptRedo
from binlog_storage.ibb.chunk import CHUNK_DATA_MAX, Position
from binlog_storage.ibb.file_header import FIELDS_BYTES, FileHeader, header_page
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, ZERO_PAGE, check, is_sound, seal
from binlog_storage.redo.format import REDO_NAME, Cut, RedoFormatError, RedoRecord, Unlogged, Write
from binlog_storage.redo.log import RedoLog

log = logging.getLogger(__name__)

_CHUNK = struct.Struct("<BH")  # its header
_BATCH_PAGES = 64
_EMPTY_PAGES = 64  # so many in a row behind the end, and nothing follows

_ADVICE = (
    ". The store was not opened: restore it with its redo log from a copy; or start once with innodb_force_recovery=6 "
    "to go on with what the .ibb files hold, without the last commits"
)


def plan_replay(disk: Disk, redo: RedoLog) -> Replay:
    """What the redo since the checkpoint makes of the files. Nothing is changed yet.

    Raises `CorruptRedo`, `CorruptBinlog`, `DiskError`.
    """
    begin = redo.checkpoint.end
    pages = None if begin is None else _require_begin(disk, begin).pages
    follower = _Follower(begin, pages)
    count = 0
    try:
        for mtr in redo.replay():
            if not count:
                _require_match(disk, begin, mtr.lsn, next(mtr.records()))
            count += 1
            for record in mtr.records():
                follower.apply(record, mtr.lsn)
    except RedoFormatError as error:
        raise CorruptRedo(f"{REDO_NAME} holds {error}{_ADVICE}") from None
    replay = Replay(disk, redo, begin, follower.files, follower.end, count)
    replay.check()
    return replay


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
    """One that the redo writes to, and `pages` long in the end.

    fields: of its header, if the redo begins it.
    begins: of each page that is logged, the LSN of the mini-transaction that begins it.
    unlogged: pages that are not, and perhaps are not durable in it.
    """

    number: int
    pages: int
    fields: bytes | None = None
    begins: dict[int, int] = field(default_factory=dict)
    unlogged: list[Unlogged] = field(default_factory=list)
    is_cut: bool = False


class _Follower:
    """The end of the binlog, moved on record by record; what they wrote is not kept, but where it stands in the log.

    Args:
        begin: where it was at the checkpoint, in a file of so many `pages`. By its header: a length that was set just
            before may be lost, and if the file was cut since, the redo says so.
    """

    def __init__(self, begin: Position | None, pages: int | None) -> None:
        self.files: list[_PlannedFile] = []
        self._page_no = -1
        self._at = PAGE_END
        self._begun = False  # by a record, this page
        if begin is not None and pages is not None:
            self.files.append(_PlannedFile(begin.file_no, pages))
            self._page_no, self._at = divmod(begin.offset, PAGE_SIZE)

    @property
    def end(self) -> Position | None:
        """In the page that is being filled; None if there is no data."""
        if not self.files:
            return None
        return Position(self._file_no, self._page_no * PAGE_SIZE + self._at)

    def apply(self, record: RedoRecord, lsn: int) -> None:
        """Raises `CorruptRedo` if it does not follow what came before."""
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


class Replay:
    """The files as the redo makes them: to be looked at first, and then to be made.

    It holds where in the log each page is begun, not the pages.

    Attributes:
        end: where the writer stood, in the page it was filling; None if there is no data.
    """

    def __init__(
        self,
        disk: Disk,
        redo: RedoLog,
        begin: Position | None,
        files: list[_PlannedFile],
        end: Position | None,
        count: int,
    ) -> None:
        self._disk = disk
        self._redo = redo
        self._begin = begin
        self._files = {file.number: file for file in files}
        self.end = end
        self._count = count

    def check(self) -> None:
        """Check the page of the checkpoint, unless the redo begins it anew. Raises `CorruptBinlog`."""
        end = self.end
        if end is None or end != self._begin or end.page_no in self._files[end.file_no].begins:
            return
        there = self._there(end.file_no, end.page_no)
        check(there, end.file_no, end.page_no)
        if end.in_page and not any(there):
            raise CorruptBinlog(*end.page_start, f"an empty page, but it was written{_ADVICE}")

    # --- the files as they will be ---

    def numbers(self, there: list[int]) -> list[int]:
        """Of the files, where these are there now."""
        if self._begin is None:
            return sorted(self._files)
        kept = [number for number in there if number < self._begin.file_no]
        return [*kept, *sorted(self._files)]

    def touches(self, file_no: int) -> bool:
        """Whether the redo has a say in what the file holds."""
        return self._begin is None or file_no >= self._begin.file_no

    def size(self, file_no: int) -> int | None:
        """Bytes of a file that it touches; None if there is none."""
        file = self._files.get(file_no)
        return None if file is None else file.pages * PAGE_SIZE

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """A page of a file that it touches, unchecked where it is read from there; None behind the end."""
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
        # The file gets its length back: what is behind its end now is zeros then.
        there = self._there(file_no, page_no).ljust(PAGE_SIZE, b"\0")
        if file_no == self.end.file_no and page_no == self.end.page_no and is_sound(there):
            return seal(bytearray(there[: self.end.in_page].ljust(PAGE_SIZE, b"\0")))
        return there

    def logged_page(self, file: _PlannedFile, page_no: int, lsn: int) -> bytes:
        """The page made of its redo alone, sealed."""
        page = bytearray(PAGE_SIZE)
        begun = False
        for mtr in self._redo.mtrs_from(lsn):
            for record in mtr.records():
                place = (file.number & 1, page_no)
                if isinstance(record, Write) and (record.parity, record.page_no) == place:
                    if not record.offset:
                        page[:] = bytes(PAGE_SIZE)
                    page[record.offset : record.offset + len(record.data)] = record.data
                    begun = True
                elif begun:
                    return seal(page)
        return seal(page)

    def _there(self, file_no: int, page_no: int) -> bytes:
        if file_name(file_no) not in self._disk.names():
            return b""
        file = self._disk.open(file_name(file_no))
        try:
            return file.pread(PAGE_SIZE, page_no * PAGE_SIZE)
        finally:
            file.close()

    # --- made ---

    def apply(self) -> None:
        """Make them so. Each step can be done again. Raises `DiskError`."""
        if self._begin is None:
            _remove_all(self._disk)
        for file in self._files.values():
            applier = _Applier(self._disk, self, file)
            try:
                if self.end is not None and file.number == self.end.file_no:
                    applier.end_at(self.end)
                else:
                    applier.end_file()
            finally:
                applier.close()
        if self._count:
            log.info(
                "InnoDB: Starting crash recovery from checkpoint LSN=%d; applied %d bytes of redo to the binlog",
                self._redo.checkpoint.lsn,
                self._redo.lsn - self._redo.checkpoint.lsn,
            )


def _unlogged_page(record: Unlogged, page_no: int, there: bytes) -> bytes:
    """As it is there; or with zeros for what it held, if it never came there."""
    kind = record.first if page_no == record.page_no else record.then
    chunk = _CHUNK.pack(kind, CHUNK_DATA_MAX)
    if there.startswith(chunk) and len(there) == PAGE_SIZE and is_sound(there):
        return there
    return seal(bytearray(chunk.ljust(PAGE_SIZE, b"\0")))


def _remove_all(disk: Disk) -> None:
    """A RESET MASTER was under way: the checkpoint says that the store is empty."""
    for number in file_numbers(disk.names()):
        disk.unlink(file_name(number))
    disk.fsync_dir()


class _Applier:
    """One file, made as the redo says."""

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
        """One that the redo begins, in the length with which it was made."""
        page = header_page(fields)
        header = FileHeader.parse(page, self._planned.number)
        assert header is not None
        size = header.pages * PAGE_SIZE
        if self._file.size() > size:
            self._file.truncate(size)
        elif self._file.size() < size:
            self._file.allocate(size)
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
        """Write the logged pages before that one."""
        for page_no, lsn in self._planned.begins.items():
            if page_no < end_page:
                self._put(page_no, self._replay.logged_page(self._planned, page_no, lsn))
        self._write_batch()

    def _write_unlogged(self) -> None:
        """All of them, also those that are there: their sync may have failed before the restart."""
        for record in self._planned.unlogged:
            for page_no in range(record.page_no, record.page_no + record.pages):
                there = self._file.pread(PAGE_SIZE, page_no * PAGE_SIZE)
                self._put(page_no, _unlogged_page(record, page_no, there))
        self._write_batch()

    def end_file(self) -> None:
        """The next file follows: all of it is written, and durable."""
        self._write_logged(self._planned.pages)
        if self._planned.is_cut:
            self._file.truncate(self._planned.pages * PAGE_SIZE)
        self._write_unlogged()
        self._file.fdatasync()

    def end_at(self, end: Position) -> None:
        """The redo is at its end. Everything behind goes."""
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
        """The partial page, and zeros behind it; what stood there is kept aside first."""
        there = self._file.pread(PAGE_SIZE, end.page_no * PAGE_SIZE)
        sealed = self._replay.page(end.file_no, end.page_no)
        assert sealed is not None
        surplus = self._surplus(end.page_no + 1)
        torn = len(there) == PAGE_SIZE and not is_sound(there)
        beyond = any(there[end.in_page : PAGE_END])
        if surplus or (beyond and not torn):
            kept = b"".join(page for _, page in surplus)
            keep_aside(self._disk, end.file_no, end.page_no, end.in_page, there + kept)
        self._batch = [(number, ZERO_PAGE) for number, page in surplus if any(page)]
        # A page of the redo is written even if it is there already: its sync may have failed before the restart, and
        # then the kernel shows what it will never write.
        if end.page_no in self._planned.begins or there != sealed:
            self._batch.insert(0, (end.page_no, sealed))

    def _surplus(self, number: int) -> list[tuple[int, bytes]]:
        """Pages behind the end, from that one on, up to the last that is not empty."""
        found: list[tuple[int, bytes]] = []
        last = 0
        while len(found) - last < _EMPTY_PAGES and number < self._planned.pages:
            page = self._file.pread(PAGE_SIZE, number * PAGE_SIZE)
            if not page:
                break
            found.append((number, page))
            if page.strip(b"\0"):
                last = len(found)
            number += 1
        return found[:last]

    def _resize(self) -> None:
        """To the length that its header tells, unless it was cut there by the redo."""
        if self._file.size() < self._planned.pages * PAGE_SIZE:
            self._file.allocate(self._planned.pages * PAGE_SIZE)

    def _drop_file(self, number: int) -> None:
        file = self._disk.open(file_name(number))
        try:
            empty = not any(file.pread(2 * PAGE_SIZE, 0))
            whole = file.size() >= 2 * PAGE_SIZE and file.size() % PAGE_SIZE == 0
        finally:
            file.close()
        if empty and whole and number == self._planned.number + 1:
            return  # made ahead
        if empty:
            self._disk.unlink(file_name(number))
        else:
            put_aside(self._disk, number)
