"""Everything that can be wrong in a directory of .ibb files, found and told, going on behind each damage.

    files      names without gaps; whole pages; header against name, size and neighbours; every page's checksum; only
               the newest files may be empty, and no file with a successor ends in zeros
    records    chunks, types and ends; out-of-band nodes and references, each walked from its commit record
    groups     split into events, begin with a GTID event, end where a group ends; GTIDs not going backwards (a
               warning: a server that is not strict may do that)
    states     each state record against the groups before it

    facts      the state of the store, which redo log is its own, and whether files were deleted by hand
    end        behind what was published as durable
    redo       the redo log itself; what is wrong in the files behind its last checkpoint is no damage, it has that, too

The two passes read everything, so the directory should not be written meanwhile. Memory does not grow with the store.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from binlog_storage.binlog.opening import REDO_KEY
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.disk.state import read_facts
from binlog_storage.errors import CorruptBinlog, StorageError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_header import VERSION_MINOR, FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, check
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.pending_redo import PendingRedo, lost_end, published
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.verify.verify_records import RecordPass

_MINOR_AT = 12
_PROGRESS_PAGES = 64


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


class Finding(NamedTuple):
    """One thing that is wrong, at a byte offset of a file."""

    severity: Severity
    file_no: int
    offset: int
    reason: str

    def __str__(self) -> str:
        mark = "" if self.severity is Severity.ERROR else "warning: "
        return f"{file_name(self.file_no)} page {self.offset // PAGE_SIZE} offset {self.offset}: {mark}{self.reason}"


Report = Callable[[Finding], None]
Progress = Callable[[int, int], None]
"""Bytes checked, bytes in all."""


class VerifyTotals(NamedTuple):
    """The totals of a verification: what was checked, and the findings."""

    files: int
    groups: int
    errors: int
    warnings: int


class Verifier:
    """One run over one directory."""

    def __init__(
        self, disk: ReadableDisk, report: Report, progress: Progress | None = None
    ) -> None:
        self._report_to = report
        self._progress_to = progress or (lambda done, total: None)
        self._told: set[tuple[int, int]] = set()
        self._counts = dict.fromkeys(Severity, 0)
        self._disk = disk
        self._redo = PendingRedo.of(disk)
        self._published = published(disk)
        self._pages = OfflinePages(disk)
        # Both passes read all bytes.
        self._total = 2 * sum(map(self._pages.size, self._pages.numbers))
        self._done = 0

    def run(self) -> VerifyTotals:
        """Raises `DiskError` only; what is wrong with the data is reported."""
        try:
            self._facts()
            self._redo_log()
            self._files()
            records = RecordPass(self._pages, self._error, self._warning, self._progress)
            end = records.run()
            lost = lost_end(self._disk, self._published, end)
            if lost:
                self._error(*end, lost)
            return VerifyTotals(
                len(self._pages.numbers),
                records.groups,
                self._counts[Severity.ERROR],
                self._counts[Severity.WARNING],
            )
        finally:
            self._pages.close()

    def _facts(self) -> None:
        """Check the facts that the store keeps about itself."""
        first = Position(self._pages.numbers[0], 0)
        try:
            known = read_facts(self._disk).get(REDO_KEY)
        except StorageError as error:
            self._tell(Severity.ERROR, *first, str(error))
            return
        if known is not None and self._redo.uuid is None and not self._redo.damage:
            self._tell(
                Severity.ERROR,
                *first,
                f"{REDO_NAME} is missing: the server does not open the store without it",
            )
        elif known is not None and self._redo.uuid not in (None, known):
            self._tell(Severity.ERROR, *first, f"{REDO_NAME} is that of another store")
        lost = lost_files_of(self._disk, self._pages.numbers)
        if lost:
            self._tell(Severity.ERROR, *first, lost)

    def _redo_log(self) -> None:
        redo = self._redo
        end = redo.end or Position(self._pages.numbers[0], 0)
        if redo.damage:
            self._tell(Severity.ERROR, *end, redo.damage)
        elif redo.count:
            self._warning(
                *end,
                f"{REDO_NAME} holds {redo.count} records from here on that are not in the files for good: the server "
                "applies them when it opens the store",
            )

    def _error(self, file_no: int, offset: int, reason: str) -> None:
        redo = self._redo
        if redo.count and redo.end is not None and (file_no, offset) >= redo.end.page_start:
            self._warning(file_no, offset, f"{reason} (the redo log has what belongs there)")
            return
        # The same damage is met by both passes: the first words for it are enough.
        if (file_no, offset) not in self._told:
            self._told.add((file_no, offset))
            self._tell(Severity.ERROR, file_no, offset, reason)

    def _warning(self, file_no: int, offset: int, reason: str) -> None:
        self._tell(Severity.WARNING, file_no, offset, reason)

    def _tell(self, severity: Severity, file_no: int, offset: int, reason: str) -> None:
        self._counts[severity] += 1
        self._report_to(Finding(severity, file_no, offset, reason))

    def _progress(self, count: int) -> None:
        self._done += count
        self._progress_to(min(self._done, self._total), self._total)

    # --- files ---

    def _files(self) -> None:
        previous: int | None = None
        for number in self._pages.numbers:
            if previous is not None and number != previous + 1:
                self._error(
                    previous + 1, 0, f"the file is missing, but there is {file_name(number)}"
                )
            previous = number
            self._file(number, self._pages.newest)

    def _file(self, number: int, newest: int) -> None:
        size = self._pages.size(number)
        if size % PAGE_SIZE:
            self._error(
                number, size - size % PAGE_SIZE, f"the file of {size} bytes ends inside a page"
            )
        if self._pages.is_empty(number):
            if number < newest:
                self._error(number, 0, f"the file is empty, but {file_name(newest)} is not")
        else:
            self._header(number, size)
        for page_no in range(size // PAGE_SIZE):
            page = self._pages.raw_page(number, page_no)
            if page != ZERO_PAGE:
                try:
                    check(page, number, page_no)
                except CorruptBinlog as error:
                    self._error(error.file_no, error.offset, error.reason)
            if page_no % _PROGRESS_PAGES == _PROGRESS_PAGES - 1:
                self._progress(_PROGRESS_PAGES * PAGE_SIZE)
        self._progress(size % (_PROGRESS_PAGES * PAGE_SIZE))

    def _header(self, number: int, size: int) -> None:
        page = self._pages.raw_page(number, 0)
        try:
            header = FileHeader.parse(page, number)
        except CorruptBinlog as error:
            self._error(error.file_no, error.offset, error.reason)
            return
        assert header is not None
        if size > header.pages * PAGE_SIZE:
            self._error(
                number,
                header.pages * PAGE_SIZE,
                f"the file of {size} bytes is longer than the {header.pages} pages that its header tells",
            )
        if size < 2 * PAGE_SIZE:
            self._error(number, 0, f"the file has {size // PAGE_SIZE} pages, less than two")
        minor = int.from_bytes(page[_MINOR_AT : _MINOR_AT + 4], "little")
        if minor != VERSION_MINOR:
            self._warning(
                number, _MINOR_AT, f"minor version {minor}, newer than what is known here"
            )
        if header.state_interval_pages == 0:
            self._error(number, 40, "GTID state interval 0: MariaDB cannot search this file")
        if header.oob_ref > number:
            self._error(
                number, 48, f"the header refers to file {header.oob_ref}, which comes later"
            )
        if header.xa_ref is not None and header.xa_ref > number:
            self._error(number, 56, f"the header refers to file {header.xa_ref}, which comes later")
