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
    tables     each record of rows in the redo log; the snapshot of the tables, and that it goes with that log

The two passes read everything, so the directory should not be written meanwhile. Memory does not grow with the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import gtid_of
from binlog_protocol.events.header import TYPE_OFFSET, split_pieces
from binlog_protocol.groups.group_check import GroupCheck
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import (
    CorruptBinlog,
    TruncatedRecord,
)
from binlog_storage.ibb import commit, oob, xa
from binlog_storage.ibb.chunk import END_OF_DATA, Position, Record, RecordType
from binlog_storage.ibb.file_header import VERSION_MINOR, FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, check, is_zero
from binlog_storage.ibb.records import BEGINNING, RecordReader
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.log.group_reader import group_pieces
from binlog_storage.log.log_file import grown, read_state
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.pending_redo import PendingRedo, lost_end, published
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.verify.beside import facts_fault, tables_fault

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

    @property
    def file(self) -> str:
        """Its name."""
        return file_name(self.file_no)

    @property
    def page(self) -> int:
        """Number of the page in the file."""
        return self.offset // PAGE_SIZE

    def __str__(self) -> str:
        mark = "" if self.severity is Severity.ERROR else "warning: "
        return f"{self.file} page {self.page} offset {self.offset}: {mark}{self.reason}"


Tell = Callable[[int, int, str], None]
"""File number, offset in it, what is wrong there."""
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
        # Both passes read all bytes that were ever written, and count the others as if they had.
        self._total = 2 * sum(map(self._pages.size, self._pages.numbers))
        self._done = 0

    def run(self) -> VerifyTotals:
        """Raises `DiskError` only; what is wrong with the data is reported."""
        with self._pages:
            self._facts()
            self._redo_log()
            self._tables()
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

    def _facts(self) -> None:
        """Check the facts that the store keeps about itself."""
        first = Position(self._pages.numbers[0], 0)
        fault = facts_fault(self._disk, self._redo)
        if fault:
            self._tell(Severity.ERROR, *first, fault)
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

    def _tables(self) -> None:
        """Check the rows: their records in the redo log, and the snapshot."""
        end = self._redo.end or Position(self._pages.numbers[0], 0)
        fault = tables_fault(self._disk, self._redo)
        if fault:
            self._tell(Severity.ERROR, *end, fault)

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
            elif not size:
                self._named_only(number)
        else:
            self._header(number, size)
        told = 0
        for page_no in self._pages.written_pages(number):
            page = self._pages.raw_page(number, page_no)
            if page != ZERO_PAGE:
                try:
                    check(page, number, page_no)
                except CorruptBinlog as error:
                    self._error(error.file_no, error.offset, error.reason)
            if page_no - told >= _PROGRESS_PAGES:
                self._progress((page_no - told) * PAGE_SIZE)
                told = page_no
        self._progress(size - told * PAGE_SIZE)

    def _named_only(self, number: int) -> None:
        """A newest file without a length: the redo log knows whether it ever had one."""
        end = self._redo.end
        if end is not None and end.file_no >= number:
            self._require_pages(number, 0)
        elif end is None:
            self._warning(
                number,
                0,
                "the file has no length: its server ended while it made the file, or its content was lost",
            )

    def _require_pages(self, number: int, size: int) -> None:
        if size < 2 * PAGE_SIZE:
            self._error(number, 0, f"the file has {size // PAGE_SIZE} pages, less than two")

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
        self._require_pages(number, size)
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


class RecordPass:
    """The second pass: records, the groups in them, and the states between them, from the oldest file on. One run."""

    def __init__(
        self, pages: OfflinePages, error: Tell, warning: Tell, progress: Callable[[int], None]
    ) -> None:
        """`progress` is told the bytes passed since it was last called."""
        self._pages = pages
        self._error = error
        self._warning = warning
        self._progress = progress
        self._states = StateCheck(pages, error, warning)
        self._reported = 0
        self.groups = 0
        self._end = BEGINNING

    def run(self) -> Position:
        """Returns where the data end."""
        numbers = [n for n in self._pages.numbers if not self._pages.is_empty(n)]
        if not numbers:
            return BEGINNING
        self._end = Position(numbers[0], PAGE_SIZE)
        place: Position | None = self._end
        while place is not None:
            place = self._walk(RecordReader(self._pages, place, skip_partial=True), numbers)
        self._states.check_before(None)
        return self._end

    def _walk(self, reader: RecordReader, numbers: list[int]) -> Position | None:
        """Check records up to the next damage or the end; returns where to continue."""
        try:
            for record in reader:
                self._record(record)
            self._end = reader.position
            return self._behind_end(reader.position, numbers)
        except TruncatedRecord as error:
            self._end = Position(error.file_no, error.offset)
            here = error.file_no, error.offset
            torn = "as a crash leaves it; the server cuts it off when it opens the store"
            self._error(*here, f"the data end inside this record, {torn}")
            damaged = Position(reader.position.file_no, 1 << 62)
        except CorruptBinlog as error:
            self._error(error.file_no, error.offset, error.reason)
            damaged = max(Position(error.file_no, error.offset), reader.position)
        self._states.forget()
        return self._next_data(damaged, numbers)

    def _behind_end(self, end: Position, numbers: list[int]) -> Position | None:
        """The data of the last file end at `end`: nothing may follow."""
        page = self._pages.page(end.file_no, end.page_no)
        if page is not None and not is_zero(page[end.in_page : -4]):
            self._error(*end, "bytes that are not zero behind the end of the data")
        following = self._next_data(end, numbers)
        if following is not None and following.file_no == end.file_no:
            self._error(
                *end, f"the data end here, but page {following.page_no} of the file holds some"
            )
            self._states.forget()
        return following

    def _next_data(self, damaged: Position, numbers: list[int]) -> Position | None:
        """The first page behind the one of `damaged` that holds data and is sound."""
        file_no = damaged.file_no
        while file_no <= numbers[-1]:
            if file_no in numbers:
                first = damaged.page_no + 1 if file_no == damaged.file_no else 1
                for page_no in self._pages.written_pages(file_no, max(1, first)):
                    try:
                        page = self._pages.page(file_no, page_no)
                    except CorruptBinlog:
                        continue
                    if page is not None and page != ZERO_PAGE and page[0] != END_OF_DATA:
                        return Position(file_no, page_no * PAGE_SIZE)
            file_no += 1
        return None

    def _record(self, record: Record) -> None:
        self._passed(record.end)
        self._states.check_before(record.start)
        self._cut_file(record)
        if record.type == RecordType.COMMIT:
            self._commit(record)
        elif record.type == RecordType.OOB_DATA:
            self._node(record)
        elif record.type in (RecordType.XA_PREPARE, RecordType.XA_COMPLETE):
            self._xa(record)

    def _passed(self, end: Position) -> None:
        done = sum(self._pages.size(n) for n in self._pages.numbers if n < end.file_no) + end.offset
        if done - self._reported >= 1 << 20:
            self._progress(done - self._reported)
            self._reported = done

    def _cut_file(self, record: Record) -> None:
        """A file that FLUSH made shorter ends in a record of its own: none goes on in the next file."""
        file_no = record.start.file_no
        if record.end.file_no == file_no:
            return
        header = self._header(file_no)
        size = self._pages.size(file_no)
        if header is not None and size < header * PAGE_SIZE:
            self._error(
                *record.start,
                f"this record goes on in {file_name(file_no + 1)}, but {size // PAGE_SIZE} of the {header} pages "
                "of its file are left: a part is missing",
            )

    def _header(self, file_no: int) -> int | None:
        """Number of pages that the header of a file names."""
        try:
            header = self._pages.header(file_no)
        except CorruptBinlog:
            return None
        return None if header is None else header.pages

    def _node(self, record: Record) -> None:
        try:
            node = oob.decode(record.data)
        except ValueError as error:
            self._error(*record.start, str(error))
            return
        for link in (node.left, node.right):
            if link != oob.NULL and link >= record.start:
                self._error(
                    *record.start,
                    f"out-of-band reference to ({link.file_no}, {link.offset}) does not point back",
                )

    def _xa(self, record: Record) -> None:
        try:
            if record.type == RecordType.XA_COMPLETE:
                xa.decode_complete(record.data)
                return
            reference = xa.decode_prepare(record.data).oob
            if reference is not None:
                # Its list is walked as that of the commit record that is to come.
                commit_like = record._replace(data=commit.encode(b"", reference))
                for _ in group_pieces(self._pages, commit_like):
                    pass
        except CorruptBinlog as error:
            # Purged: then it was completed long ago, or its file would have been kept.
            if error.file_no >= self._pages.numbers[0]:
                self._error(error.file_no, error.offset, error.reason)
        except ValueError as error:
            self._error(*record.start, str(error))

    # --- groups ---

    def _commit(self, record: Record) -> None:
        try:
            lists = commit.decode(record.data).lists
            nodes = _Counted(group_pieces(self._pages, record))
            first, reason = _check_group(nodes, two_lists=len(lists) > 1)
        except (CorruptBinlog, ValueError) as error:
            if isinstance(error, CorruptBinlog) and error.file_no < self._pages.numbers[0]:
                self._warning(
                    *record.start,
                    f"the group's data began in {file_name(error.file_no)}, which was purged: no replica can get it",
                )
            elif isinstance(error, CorruptBinlog):
                self._error(error.file_no, error.offset, error.reason)
            else:
                self._error(*record.start, str(error))
            self._states.forget()
            self.groups += 1
            return
        if first is None or first[TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION:  # a start marker
            self.groups += 1
        if reason:
            self._error(*record.start, reason)
        if first is not None and first[TYPE_OFFSET] == EventType.GTID:
            try:
                self._states.logged(gtid_of(first), record.start)
            except ProtocolError:  # too short for one, as `reason` says
                self._states.forget()
        told = sum(reference.nodes for reference in lists)
        if not reason and lists and told != nodes.count - 1:
            self._warning(
                *record.start,
                f"the commit record counts {told} out-of-band nodes, there are {nodes.count - 1}",
            )
        self._references(record, lists)

    def _references(self, record: Record, lists: tuple[commit.OobList, ...]) -> None:
        """The header must not promise purge that no group of its file needs an older file."""
        try:
            header = self._pages.header(record.start.file_no)
        except CorruptBinlog:
            return
        if header is None or not lists:
            return
        promised = header.refers_to
        lowest = min(reference.last.file_no for reference in lists)
        if lowest < promised:
            self._error(
                *record.start,
                f"the group refers to {file_name(lowest)}, but the header says to none before {promised}",
            )


@dataclass(eq=False)
class _Counted:
    """Counts the pieces that an iterator has given."""

    _pieces: Iterator[bytes]
    count: int = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.count += 1
        return piece


def _check_group(pieces: Iterator[bytes], *, two_lists: bool) -> tuple[bytes | None, str]:
    """The first event of a group, and what is wrong with the group, "" for nothing."""
    check = GroupCheck(two_ends=two_lists)
    try:
        for event in split_pieces(pieces):
            check.add(event)
        check.finish()
    except ProtocolError as error:
        return check.first, str(error)
    return check.first, ""


class StateCheck:
    """GTID state records against the groups before them. Told of every group in order, and asked to check before each.

    A state record at a page start holds exactly the groups whose commit record begins before that page: in full at page
    1, as the difference to page 1 behind it. Two departures are no damage: a domain may have been deleted between files
    (FLUSH BINARY LOGS DELETE_DOMAIN_ID), and MariaDB continues a file after a restart with an empty difference.
    """

    def __init__(self, pages: OfflinePages, error: Tell, warning: Tell) -> None:
        self._pages = pages
        self._error = error
        self._warning = warning
        self._places = self._all_places()
        self._next = next(self._places, None)
        self._seen = BinlogState()
        # The first file begins with what purged files held, or with what RESET MASTER was told; after damage groups
        # may be missing.
        self._known = False
        self._base: BinlogState | None = None

    def forget(self) -> None:
        """Groups may be missing from here on: wait for the next full state."""
        self._known = False

    def logged(self, gtid: Gtid, place: Position) -> None:
        """A group was met."""
        before = self._seen.get(gtid.domain_id, gtid.server_id)
        if before is not None and gtid.seq_no <= before:
            self._warning(
                *place,
                f"GTID {gtid} comes after {gtid.domain_id}-{gtid.server_id}-{before}: not ascending",
            )
        self._seen.update(gtid)

    def check_before(self, place: Position | None) -> None:
        """All state records before `place`, or up to the end, that were not checked yet."""
        while self._next is not None and (place is None or self._next < place):
            self._check(self._next)
            self._next = next(self._places, None)

    def _all_places(self) -> Iterator[Position]:
        for number in self._pages.numbers:
            interval = 0
            try:
                header = self._pages.header(number)
                if header is None:
                    continue
                interval = header.state_interval_pages
            except CorruptBinlog:
                pass  # told by the first pass
            pages = self._pages.size(number) // PAGE_SIZE
            yield Position(number, PAGE_SIZE)
            for page_no in range(interval, pages, interval) if interval else ():
                if page_no > 1 and self._pages.next_written(number, page_no) == page_no:
                    yield Position(number, page_no * PAGE_SIZE)

    def _check(self, place: Position) -> None:
        try:
            entries = read_state(self._pages, place.file_no, place.page_no)
        except CorruptBinlog as error:
            # Bad pages and chunks are told by the walk; only what it passes over is new.
            if not self._is_bad_page(place):
                self._error(error.file_no, error.offset, error.reason)
            entries = None
        if place.offset == PAGE_SIZE:
            self._base = None if entries is None else BinlogState(entries)
            if entries is not None:
                self._full(place, BinlogState(entries))
        elif entries is not None and self._known:
            self._difference(place, entries)

    def _is_bad_page(self, place: Position) -> bool:
        try:
            self._pages.page(place.file_no, place.page_no)
        except CorruptBinlog:
            return True
        return False

    def _full(self, place: Position, state: BinlogState) -> None:
        if self._known:
            deleted = [d for d in self._seen.domains() if state.last(d) is None]
            kept = BinlogState(g for g in self._seen.entries() if g.domain_id not in deleted)
            # What MariaDB writes at the very start instead of the one GTID that comes: nothing.
            if kept != state:
                self._error(
                    *place,
                    f"the state is {_shown(state)}, the groups before it give {_shown(kept)}",
                )
        self._seen = state.copy()
        self._known = True

    def _difference(self, place: Position, entries: list[Gtid]) -> None:
        for gtid in entries:
            if self._seen.get(gtid.domain_id, gtid.server_id) != gtid.seq_no:
                there = self._seen.get(gtid.domain_id, gtid.server_id)
                self._error(
                    *place, f"the state has {gtid}, but the groups before it end at {there}"
                )
                return
        whole = grown(self._base or BinlogState(), entries)
        missing = [
            g for g in self._seen.entries() if whole.get(g.domain_id, g.server_id) != g.seq_no
        ]
        if missing and self._base is not None:
            self._warning(
                *place, f"the state lacks {missing[0]}, which was logged before it in this file"
            )


def _shown(state: BinlogState) -> str:
    text = str(state) or "empty"
    return text if len(text) <= 200 else text[:200] + ".."
