"""Opening a store: find the end of the data, cut a torn tail, rebuild the GTID state.

1. The last file that was entered is the current one: its header and page 1 are good. Files behind it are empty, made
   ahead; or hold a torn header or page 1, which were written together and never durable, and are put aside.
2. Its end is found by bisection: the first empty page. The pages around it are checked, as many as can have been on
   their way to the disk at a crash. A single bad page at the very end is a torn write; a bad or empty page in front of
   good ones is corruption, and so is a missing file: the store does not open.
3. The state at the last state record is read, and the records behind it. The walk begins further back if it saw no
   whole commit, so that a record which begins far back and never ends is found.
4. A record that never ends, or a torn page, is cut off. What is cut is kept beside the file as `*.broken`. Each step
   of a cut is durable before the next, from the end backwards: after a crash in between the next start goes on.

With a redo log the end need not be guessed: `replay` makes the files end where the redo does, and recovery only reads
the state there. A record that does not end then, or an end somewhere else, is corruption.

All of this is first planned, on the files as they will be (`Recovery.plan`, `PlannedPages`), so that a store that is
refused has not been changed. Then it is done (`Recovery.carry_out`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.broken import keep_aside, put_aside
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.planned_pages import PlannedPages
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.replay import Replay
from binlog_storage.disk.disk import Disk
from binlog_storage.errors import CorruptBinlog, StorageError, TruncatedRecord
from binlog_storage.ibb import xa
from binlog_storage.ibb.chunk import Position, RecordType, last_chunk
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, seal
from binlog_storage.ibb.records import PageSource, RecordReader, parsed
from binlog_storage.log.group_reader import read_head
from binlog_storage.log.log_file import grown, read_state, read_state_record, states_back
from binlog_storage.log.survey import ADVICE, UNSYNCED_PAGES_MAX, survey
from binlog_storage.log.whole_file import require_full

log = logging.getLogger(__name__)

_TAIL_PAGES = 192  # pages checked at the end of a directory that another program has left


@dataclass(slots=True)
class Recovered:
    """The writer's place after recovery: byte `at` of page `page_no`, whose bytes are `page`; and the state there."""

    header: FileHeader
    file_pages: int
    page_no: int
    at: int
    page: bytearray
    state: BinlogState
    since_page_one: BinlogState
    last_marker: bytes | None


@dataclass(slots=True)
class _Walk:
    """The findings of reading from one state record to the end.

    completed: an XA COMMIT whose commit record has not come.
    """

    begin: Position
    state: BinlogState
    since_page_one: BinlogState
    end: Position
    commits: int = 0
    last_marker: bytes | None = None
    torn: Position | None = None
    completed: Position | None = None

    @property
    def cut(self) -> Position | None:
        """Where the data are to end, if they do not end behind a whole step."""
        # XA COMMIT and the commit record are one step: without the latter the transaction is still prepared.
        return self.torn if self.completed is None else self.completed


class Recovery:
    """The plan of a start for the files, and the writer's place afterwards.

    Attributes:
        found: the writer's place; None if there is no data yet.
        planned: the files as they will be.
    """

    def __init__(self, disk: Disk, pages: PageStore, replay: Replay | None = None) -> None:
        self._disk = disk
        self._pages = pages
        self._replay = replay
        self.planned = PlannedPages(pages, replay)
        self.found: Recovered | None = None
        self._repairs: list[tuple[Position, int]] = []  # cuts, each with the last file at that time
        self._aside: list[int] = []

    def plan(self, prepared: PreparedTransactions, *, ours: bool = True) -> None:
        """Find the end of the data, and the repairs that are needed; change nothing. Raises `CorruptBinlog`.

        Args:
            prepared: gets the XA transactions that wait.
            ours: matters without a redo log: whether our flusher may have left these files in a crash.
        """
        pages = self.planned
        end = None if self._replay is None else self._replay.end
        if end is not None:
            _require_all(pages.numbers())
            current: int | None = end.file_no
            if read_state_record(pages, end.file_no, 1) is None:
                raise CorruptBinlog(end.file_no, PAGE_SIZE, f"no state record on page 1{ADVICE}")
        elif self._replay is not None:
            return
        else:
            current = self._current_file(UNSYNCED_PAGES_MAX if ours else _TAIL_PAGES)
            if current is not None and ours:
                self._tell_missing(current - 1)
        if current is None:
            return
        walk = _walk_to_end(pages, current)
        if end is not None:
            _require_end(walk, end)
        while walk.cut is not None:
            left = self._cut_at(walk.cut, current)
            if left is None:
                return
            current = left
            walk = _walk_to_end(pages, current)
        _replay_xa(pages, walk, prepared)
        self.found = _recovered(pages, walk, current)

    def carry_out(self) -> None:
        """Carry out the plan. Raises `DiskError`."""
        before = set(self._pages.files.numbers())
        if self._replay is not None:
            self._replay.apply()
        for file_no in self._aside:
            put_aside(self._disk, file_no)
        for cut, current in self._repairs:
            _cut(self._disk, cut, current)
        if self.found is not None:
            _restore_size(self._disk, self.found)
        for file_no in before | set(self._pages.files.numbers()):
            self._pages.forget(file_no)

    def _current_file(self, unsynced: int) -> int | None:
        """The last file that was entered; None if none was. All of its pages must be good.

        Args:
            unsynced: the number of pages that a crash may have left unsynced, at most.
        """
        numbers = self.planned.numbers()
        while numbers:
            found = survey(self._disk, numbers[-1], unsynced)
            if found.sound >= 2:
                break
            number = numbers.pop()
            if found.sound or found.torn:
                self._aside.append(number)
        _require_all(numbers)
        if self._aside:
            self.planned.end_at(Position(self._aside[-1], 0))
        if not numbers:
            return None
        if found.torn:
            return self._cut_at(Position(numbers[-1], found.sound * PAGE_SIZE), numbers[-1])
        return numbers[-1]

    def _tell_missing(self, file_no: int) -> None:
        """Warn of pages that a crash has left out of the file before the current one; no others were unsynced."""
        if file_no not in self.planned.numbers():
            return
        try:
            require_full(self.planned, file_no, UNSYNCED_PAGES_MAX)
        except StorageError as error:
            log.warning("InnoDB: %s: replicas that need what was in it get error 1236", error)

    def _cut_at(self, cut: Position, current: int) -> int | None:
        """Plan to cut off everything from `cut` on: it was never durable. Returns the current file after the cut."""
        self._repairs.append((cut, current))
        self.planned.end_at(cut)
        left = cut.file_no if cut.offset > PAGE_SIZE else cut.file_no - 1
        return left if left in self.planned.numbers() else None


def _recovered(pages: PlannedPages, walk: _Walk, current: int) -> Recovered:
    header = pages.header(current)
    assert header is not None
    # At a page's beginning, stand at the end of the page before, which is full: the next write enters the next page by
    # the rules.
    page_no = walk.end.page_no if walk.end.in_page else walk.end.page_no - 1
    page = bytearray(pages.page(current, page_no) or b"")
    page[PAGE_END:] = bytes(PAGE_SIZE - PAGE_END)
    return Recovered(
        header,
        max((pages.size(current) or 0) // PAGE_SIZE, header.pages),
        page_no,
        last_chunk(page).end,
        page,
        walk.state,
        walk.since_page_one,
        walk.last_marker,
    )


def _require_end(walk: _Walk, end: Position) -> None:
    if walk.cut is not None:
        raise CorruptBinlog(*walk.cut, f"a record that does not end{ADVICE}")
    if walk.end != end.next_record:
        raise CorruptBinlog(
            *walk.end,
            f"the data ends here, but by the redo log at {file_name(end.file_no)}:{end.offset}{ADVICE}",
        )


def _replay_xa(pages: PlannedPages, walk: _Walk, prepared: PreparedTransactions) -> None:
    """Find the XA transactions that wait: read from the file of the oldest on, or else from the walk's beginning."""
    record = read_state_record(pages, walk.begin.file_no, walk.begin.page_no)
    begin = walk.begin
    if record is not None and record.xa_ref is not None:
        # A transaction that was prepared in a purged file is completed: it would have held the file otherwise.
        begin = Position(max(record.xa_ref, pages.numbers()[0]), PAGE_SIZE)
    for found in RecordReader(pages, begin, lenient=True):
        prepared.replay(found)


def _require_all(numbers: list[int]) -> None:
    for before, number in itertools.pairwise(numbers):
        if number != before + 1:
            raise CorruptBinlog(
                number - 1, 0, f"the file is missing, but later ones are there{ADVICE}"
            )


def _walk_to_end(pages: PlannedPages, current: int) -> _Walk:
    first = walk = None
    for start, state, since_page_one in _state_records(pages, current):
        walk = _walk(pages, current, start, state, since_page_one, walk)
        first = first or walk
        if walk.commits:
            break
    assert first is not None
    assert walk is not None
    if walk.cut is None:
        # Only the last record has the state: an earlier one may have domains that were deleted since.
        walk.state, walk.since_page_one = first.state, first.since_page_one
    return walk


def _state_records(
    pages: PlannedPages, current: int
) -> Iterator[tuple[Position, BinlogState, BinlogState]]:
    """(place, state, state since page 1 of its file) of all state records, the last one first."""
    file_no = current
    while (header := pages.header(file_no)) is not None:
        entries = _whole_state(pages, file_no, 1)
        if entries is None and pages.has_data(file_no - 1):
            file_no -= 1
            continue
        full = BinlogState(entries or [])
        last_page = pages.used_pages(file_no) - 1
        for page_no, since in states_back(
            pages, file_no, last_page, header.state_interval_pages, read=_whole_state
        ):
            place = Position(file_no, page_no * PAGE_SIZE)
            yield place, grown(full, since), grown(BinlogState(), since)
        yield Position(file_no, PAGE_SIZE), full, BinlogState()
        file_no -= 1


def _whole_state(pages: PageSource, file_no: int, page_no: int) -> list[Gtid] | None:
    """The state record at a page; None if there is none, and for a torn one, which the walk then finds and cuts."""
    try:
        return read_state(pages, file_no, page_no)
    except TruncatedRecord:
        return None


def _walk(
    pages: PlannedPages,
    current: int,
    start: Position,
    state: BinlogState,
    since_page_one: BinlogState,
    behind: _Walk | None = None,
) -> _Walk:
    """Read to the end, or to where the walk `behind` has begun, which has met no commit.

    Nothing is read twice: the data of a large group without an end, as a rollback leaves it, have many state records.
    """
    limit = None if behind is None else behind.begin
    reader = RecordReader(pages, start, limit, skip_partial=True)
    walk = _Walk(start, state, since_page_one, start)
    file_no = start.file_no
    try:
        for record in reader:
            if record.type == RecordType.XA_COMPLETE:
                complete = parsed(xa.decode_complete, record.data, record.start)
                walk.completed = walk.completed if complete.rolled_back else record.start
            if record.type != RecordType.COMMIT:
                continue
            walk.completed = None
            if record.start.file_no != file_no:
                file_no = record.start.file_no
                since_page_one = walk.since_page_one = BinlogState()
            head = read_head(pages, record)
            walk.commits += 1
            walk.last_marker = head.data if head.gtid is None else None
            if head.gtid is not None:
                walk.state.update(head.gtid)
                since_page_one.update(head.gtid)
    except TruncatedRecord as torn:
        walk.torn = Position(torn.file_no, torn.offset)
    walk.end = reader.position
    if behind is not None:
        walk.end = behind.end
        walk.torn = walk.torn or behind.torn
        walk.completed = behind.completed or walk.completed
    if walk.end.file_no != file_no:  # the last commit began in an earlier file
        walk.since_page_one = BinlogState()
    return walk


def _cut(disk: Disk, cut: Position, current: int) -> None:
    """End the store at `cut`; everything behind is kept aside. `current` is the last file with data."""
    # Page 1 begins with the state of the file. A file without it is removed, and the data end in the one before.
    last = cut.file_no if cut.offset > PAGE_SIZE else cut.file_no - 1
    for file_no in range(current, last, -1):
        put_aside(disk, file_no)
    if last < cut.file_no:
        return
    with contextlib.closing(disk.open(file_name(cut.file_no))) as file:
        size = file.size()
        page_start = cut.page_no * PAGE_SIZE
        tail = file.pread(size - page_start, page_start).rstrip(b"\0")
        keep_aside(disk, cut.file_no, cut.page_no, cut.in_page, tail)
        # First the pages behind this one are cut off: a file is read to its physical end, and this page is needed as
        # long as they are there.
        file.truncate(page_start + PAGE_SIZE if cut.in_page else page_start)
        file.fdatasync()
        if cut.in_page:
            page = bytearray(PAGE_SIZE)
            page[: cut.in_page] = tail[: cut.in_page]
            file.pwrite(seal(page), page_start)
        file.truncate(size)
        file.fdatasync()


def _restore_size(disk: Disk, found: Recovered) -> None:
    """Give the current file the length in its header, if a crash left it shorter."""
    with contextlib.closing(disk.open(file_name(found.header.file_no))) as file:
        if file.size() < found.file_pages * PAGE_SIZE:
            file.truncate(found.file_pages * PAGE_SIZE)
            file.fdatasync()
