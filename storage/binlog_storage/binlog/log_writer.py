"""The writing end: records become chunks, chunks fill pages, pages fill files; append-only and in memory.

Nothing here waits for a disk. Finished pages and the growing tail lie in the `PageStore`, from which the flusher writes
them to the files. The writes to pages are also collected for the redo log; `end_mtr` makes them one mini-transaction.

On entering a page, before the chunk that caused it:
    page 1 of a file                    the full GTID state
    page p >= 2, p % interval == 0      the difference: what was logged since page 1 of this file
                                        (left out if no room would be left behind it in the file)
On leaving the last page of a file: the next file, with its header and page 1.
"""

from __future__ import annotations

from typing import Final, Protocol

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.fill_page import fill_pages, fill_record, fill_run, plain_commit
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.page_store import FullPages, PageKey, PageStore
from binlog_storage.binlog.recovery import Recovered
from binlog_storage.binlog.state_breaks import BREAKS_BYTES
from binlog_storage.engine.references import Reason, References
from binlog_storage.ibb import compressed_int, gtid_state
from binlog_storage.ibb.chunk import (
    CHUNK_DATA_MAX,
    CHUNK_HEADER,
    CHUNK_MIN,
    CONT,
    FILLER,
    LAST,
    Position,
    RecordType,
    position_of,
)
from binlog_storage.ibb.file_header import FIELDS_BYTES, FileHeader
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, seal
from binlog_storage.redo.format import (
    CUT,
    KIND_CUT,
    KIND_UNLOGGED,
    KIND_WRITE,
    MTR_OVERHEAD,
    UNLOGGED,
    WRITE_HEAD,
    tables_record,
)

_MANY_PAGES_BYTES = 3 * CHUNK_DATA_MAX  # a record from this size on fills whole pages at once
_GTID_BYTES_MAX = 3 * compressed_int.LENGTH_MAX
# The headers of the chunks and redo records of a page: its data, a filler, and the same again for a nested record.
_LOGGED_PAGE_BYTES = 4 * (WRITE_HEAD.size + CHUNK_MIN)

_Place = tuple[int, int]  # file and offset

LAST_RUNS_BYTES_MAX: Final = 1 << 16
"""What is more than this is a batch of work for a reader anyway, and is read where it lies."""

_NOWHERE: Final = (-1, 0)


class RedoSink(Protocol):
    """The redo log as the writer sees it: see `binlog_storage.redo.log.RedoLog`."""

    @property
    def lsn(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def append(self, *records: bytes) -> int:
        """Add a mini-transaction; returns the LSN behind it."""

    def append_made(self, mtr: bytes) -> int:
        """The same of one that was made for this epoch and LSN."""


class LastRuns:
    """The last groups that came as runs, as they came: for replicas at the tail no page is read again.

    They lie one behind the other between two places. One thread adds at a time; any may ask.

    A place of a binlog is never written twice, so two places tell what lies between them; but for those of a binlog
    that was reset, for which `forget` is.
    """

    def __init__(self) -> None:
        # Between which places, the runs, and how many of them: one object, which is replaced, so whoever asks meanwhile
        # has all of one or all of the other. The list only grows.
        self._now: tuple[_Place, _Place, list[GroupRun], int] = (_NOWHERE, _NOWHERE, [], 0)
        self._asked = False

    def add(self, begin: _Place, end: _Place, run: GroupRun) -> None:
        """All groups of a run were written from `begin` to `end`."""
        if end[1] - begin[1] > LAST_RUNS_BYTES_MAX:
            return
        first, last, runs, _ = self._now
        if begin != last or self._asked or end[1] - first[1] > LAST_RUNS_BYTES_MAX:
            first, runs, self._asked = begin, [], False
        runs.append(run)
        self._now = first, end, runs, len(runs)

    def between(self, start: Position, end: Position, bytes_max: int) -> list[bytes] | None:
        """All groups from one place to the other, if just those are here, and take no more than so many bytes there."""
        first, last, runs, count = self._now
        if start != first or end != last or end[1] - start[1] > bytes_max:
            return None
        self._asked = True  # the next reader comes from behind these
        if count == 1 and len(runs[0].ends) == 1:  # as nearly always at the tail: two calls less
            return [bytes(runs[0].payloads)]
        return [run.payload(index) for run in runs[:count] for index in range(len(run.ends))]

    def forget(self) -> None:
        """The binlog begins anew: the same places will hold something else."""
        self._now = _NOWHERE, _NOWHERE, [], 0


class LogWriter:
    """One writer of one store. Not thread-safe: the store's append lock is held around every call."""

    def __init__(
        self,
        pages: PageStore,
        options: StoreOptions,
        redo: RedoSink,
        references: References | None = None,
    ) -> None:
        self._pages = pages
        self._redo = redo
        self._mtr: list[bytes] = []
        self._tables: bytes | None = None
        self._log_whole_page = False  # the page is in its file already, with less in it
        self._state_bytes = 0  # upper bound of a full state record
        self._references = references or References()
        self.options = options  # for files that are entered from now on
        self.state = BinlogState()
        self._since_page_one = BinlogState()
        self._before_page_one = (
            BinlogState()
        )  # what that was for the file before, until it is forgotten
        self.file_no = 0  # of the file being written
        self.page_no = 0  # the page of it
        self._at = 0
        self._page = bytearray(PAGE_SIZE)
        self._file_pages = 0
        self._interval = 0
        self._sealed_bytes = 0  # in pages that were filled or left
        self.commits = 0  # commit records of groups: a start marker is none
        self.last_runs = LastRuns()
        self.unlogged_end: PageKey = (0, 0)
        """The page behind the last one that was not logged."""

    @property
    def bytes_left(self) -> int:
        """About how many bytes the current file has left; 0 if state records are larger than a page."""
        if self._state_bytes > PAGE_SIZE:
            return 0
        return (self._file_pages - self.page_no - 1) * PAGE_SIZE

    @property
    def stand(self) -> Position:
        """The write position. Unlike `end` it stays in the current page when that page is full."""
        return Position(self.file_no, self.page_no * PAGE_SIZE + self._at)

    @property
    def end(self) -> Position:
        """The place of the next chunk, unless a state record or a new file comes first."""
        if self._at > PAGE_END - CHUNK_MIN:
            return Position(self.file_no, (self.page_no + 1) * PAGE_SIZE)
        return position_of((self.file_no, self.page_no * PAGE_SIZE + self._at))

    @property
    def bytes_written(self) -> int:
        """Bytes written since the start: records, chunk headers and filler."""
        return self._sealed_bytes + self._at

    def forget_state(self, state: BinlogState) -> None:
        """Replace the binlog state. The next file begins with it, and is a state break."""
        self.state = state

    def start_new(self, file_no: int) -> None:
        """Enter a new file of that number."""
        self._sealed_bytes += self._at
        self.last_runs.forget()
        self._enter_file(file_no)

    def resume(self, found: Recovered) -> None:
        """Continue where recovery found the end."""
        self.state = found.state
        self._since_page_one = found.since_page_one
        self.file_no = found.header.file_no
        self.page_no = found.page_no
        self._at = found.at
        self._sealed_bytes = -found.at
        self._page = found.page
        self._file_pages = found.file_pages
        self._interval = found.header.state_interval_pages
        self._state_bytes = len(self._full_state()) + _GTID_BYTES_MAX
        self._log_whole_page = True
        self._pages.begin_tail(self.file_no, self.page_no, self._page)

    def tail_taken(self) -> FullPages:
        """A checkpoint has copied the partial page: the next write to it logs the whole page again."""
        self._log_whole_page = True
        return self._pages.sealed_tail()

    def breaks_by(self, gtid: Gtid, before: int = 0) -> set[int]:
        """The files that become state breaks when a record with this GTID is written: files whose first state is not a
        grown one of the file before.

        Args:
            before: bytes of another record that is written in front; then the set may have one file too many.
        """
        if not self.state.has(gtid):
            return set()
        following = self.file_no + 1
        at_end = PAGE_END - self._at < CHUNK_MIN and self.page_no + 1 >= self._file_pages
        if at_end or (before and self.may_leave_file(before)):
            return {following, following + 1}
        return {following}

    def end_mtr(self) -> int:
        """Make one mini-transaction of all writes since the last call. Returns the LSN behind it."""
        parts, self._mtr = self._mtr, []
        if self._tables is not None:
            parts.append(self._tables)
            self._tables = None
        return self._redo.append(*parts)

    def take_along(self, tables: bytes) -> None:
        """Let the mini-transaction that is open end with records of tables."""
        self._tables = tables_record(tables)

    def may_leave_file(self, size: int) -> bool:
        """Whether a record of `size` bytes might reach into the next file."""
        pages = size // CHUNK_DATA_MAX + 2
        states = pages // self._interval + 1 if self._interval else 1
        pages += states * (self._state_bytes // CHUNK_DATA_MAX + 1)
        return self.page_no + pages >= self._file_pages

    def redo_bytes(self, size: int) -> int:
        """Upper bound of the redo bytes for a record of `size` bytes."""
        pages = size // CHUNK_DATA_MAX + 4
        states = pages // self._interval + 2 if self._interval else 2
        written = size + states * self._state_bytes + 2 * PAGE_SIZE + BREAKS_BYTES
        return written + (pages + states) * _LOGGED_PAGE_BYTES + MTR_OVERHEAD

    def write(
        self,
        kind: RecordType,
        data: bytes | memoryview,
        gtid: Gtid | None = None,
        *,
        head: bytes = b"",
        logged: bool = True,
    ) -> Position:
        """Append one record; `gtid` enters the state with its first byte. Returns the position where it begins.

        Args:
            head: the first bytes of the record, in front of `data`.
            logged: if False, pages that this record fills alone are not in the redo (see `unlogged_end`).
        """
        self._make_room()
        start = Position(self.file_no, self.page_no * PAGE_SIZE + self._at)
        if gtid is not None:
            seq_no = self.state.get(gtid.domain_id, gtid.server_id)
            if seq_no is None:
                self._state_bytes += _GTID_BYTES_MAX
            self.state.update(gtid)
            self._since_page_one.update(gtid)
            self.commits += kind == RecordType.COMMIT
        if logged or not self._fill_record(kind, data, head):
            self._chunks(kind, data, head, logged=logged)
        return start

    def write_plain(self, payload: bytes, gtid: Gtid, tables: bytes = b"") -> int | None:
        """Write a commit record that fits on the page, as a mini-transaction: the fast way for nearly all groups.

        Returns the LSN behind it. None, and nothing is done, if the record does not fit, the page must be logged as a
        whole, or the GTID does not follow one of its domain and server: then `write` and `end_mtr` do it, more slowly.
        A test holds the two ways equal, byte by byte. `tables` are records of tables that go with it.
        """
        at = self._at
        end = at + CHUNK_HEADER + 1 + len(payload)
        if end > PAGE_END or self._log_whole_page or self._mtr:
            return None
        if not self.state.follow(gtid):
            return None
        self._since_page_one.update(gtid)
        redo = self._redo
        behind = tables_record(tables) if tables else b""
        kind = KIND_WRITE | self.file_no & 1
        mtr = plain_commit(
            self._page, at, payload, behind, kind, self.page_no, redo.epoch, redo.lsn
        )
        self._at = end
        self.commits += 1
        return redo.append_made(mtr)

    def write_run(self, run: GroupRun, index: int, pages: int) -> int:
        """Write the groups of a run from `index` on that end on this page or the next ones, as one mini-transaction.

        `pages` are filled at most. Returns the index of the first group that was not written; it is `index` where
        `write_plain` gives None, but for the end of the page, or where a state record or a file comes in between.
        """
        if self._log_whole_page or self._mtr:
            return index
        last = self.state.get(run.domain_id, run.server_id)
        if last is None or last >= run.seq_nos[index]:
            return index
        page_no, at, interval, redo = self.page_no, self._at, self._interval, self._redo
        more = min(pages, self._file_pages - 1 - page_no)
        if interval:
            more = min(more, interval - 1 - page_no % interval)
        filled = fill_run(
            self._page,
            at,
            run.payloads,
            run.ends,
            index,
            more,
            KIND_WRITE | self.file_no & 1,
            page_no,
            redo.epoch,
            redo.lsn,
        )
        if filled is None:
            return index
        full, page, self._at, done, mtr = filled
        gtid = run.gtid(done - 1)  # all have one domain and server, in order: the last is the state
        self.state.update(gtid)
        self._since_page_one.update(gtid)
        self.commits += done - index
        if full:
            self._before_page_one.clear()
            self._pages.add_some(self.file_no, page_no, full, redo.lsn)
            self._sealed_bytes += len(full) * PAGE_END
            self.page_no, self._page = page_no + len(full), page
            self._pages.begin_tail(self.file_no, self.page_no, page)
        if not index and done == len(run.ends):
            file_no = self.file_no
            begin = file_no, page_no * PAGE_SIZE + at
            self.last_runs.add(begin, (file_no, self.page_no * PAGE_SIZE + self._at), run)
        redo.append_made(mtr)
        return done

    def flush(self) -> None:
        """Go on in a new file. The current page is filled by a DUMMY record, and the file is cut behind that page.

        A file with a successor must have no zeros at its end: readers would stop there for good.
        """
        file_no = self.file_no
        if 0 < PAGE_END - self._at < CHUNK_MIN:
            # The page behind the filler is the last of the file then, and gets no state record (as in the vectors;
            # readers take it either way).
            self._file_pages = min(self._file_pages, self.page_no + 2)
        self._make_room()
        if self.file_no == file_no:
            self._chunks(RecordType.DUMMY, b"\xff" * (PAGE_END - CHUNK_HEADER - self._at))
            self._seal_page()
            self._mtr.append(CUT.pack(KIND_CUT | file_no & 1, self.page_no + 1))
            self._pages.cut_file(file_no, (self.page_no + 1) * PAGE_SIZE)
            self._enter_file(file_no + 1)

    def _chunks(
        self,
        kind: RecordType,
        data: bytes | memoryview,
        head: bytes = b"",
        *,
        nested: bool = False,
        logged: bool = True,
    ) -> None:
        if len(head) > PAGE_END - CHUNK_HEADER - self._at:
            head, data = b"", b"".join((head, data))  # rare: it copies the data
        size = len(data)
        done = 0
        flags = int(kind)
        while True:
            if not self._at and not head and size - done > _MANY_PAGES_BYTES:
                filled = self._whole_pages(data, done, flags, kind | CONT, logged=logged)
                if filled:
                    done += filled * CHUNK_DATA_MAX
                    flags = kind | CONT
                    self._make_room(nested=nested)
                    continue
            at = self._at
            take = min(PAGE_END - CHUNK_HEADER - at - len(head), size - done)
            if done + take == size:
                flags |= LAST
            page = self._page
            page[at] = flags
            page[at + 1] = (len(head) + take) & 0xFF
            page[at + 2] = (len(head) + take) >> 8
            begin = at + CHUNK_HEADER
            if head:
                page[begin : begin + len(head)] = head
                begin, head = begin + len(head), b""
            page[begin : begin + take] = data[done : done + take]
            self._at = begin + take
            self._log(at)
            done += take
            if done == size:
                return
            flags = kind | CONT
            self._make_room(nested=nested)

    def _fill_record(self, kind: RecordType, data: bytes | memoryview, head: bytes) -> bool:
        """Write a large record at once, as `_chunks` does without logging its whole pages: the hot path of a relay.

        False, and nothing is done, where a state record or a file comes in between, or it has few whole pages.
        """
        page_no, at, interval = self.page_no, self._at, self._interval
        room = PAGE_END - CHUNK_HEADER - at
        count = (len(head) + len(data) - room - 1) // CHUNK_DATA_MAX
        last = page_no + count + 1
        if (
            count * CHUNK_DATA_MAX < _MANY_PAGES_BYTES
            or not 0 < len(head) <= room
            or last >= self._file_pages
            or (interval and last // interval != page_no // interval)
        ):
            return False
        parity, then = self.file_no & 1, kind | CONT
        safe = self._pages.synced_pages(self.file_no)
        unlogged = UNLOGGED.pack(KIND_UNLOGGED | parity, page_no + 1, count, then, then, safe)
        begin = 0 if self._log_whole_page else at
        pages, page, end, redo = fill_record(
            self._page, at, head, data, kind, then, KIND_WRITE | parity, page_no, begin, unlogged
        )
        self._mtr.append(redo)
        self._log_whole_page = False
        self._before_page_one.clear()
        self._pages.add(self.file_no, page_no, pages, self._redo.lsn)
        self._sealed_bytes += (count + 1) * PAGE_END
        self.page_no, self._at, self._page = last, end, page
        self._pages.begin_tail(self.file_no, last, page)
        self.unlogged_end = (self.file_no, last)
        return True

    def _whole_pages(
        self,
        data: bytes | memoryview,
        done: int,
        first: int,
        then: int,
        *,
        logged: bool,
    ) -> int:
        """Fill the empty current page and those behind it, up to the next state record or file, or the data's end.

        Returns the number of pages, 0 if there would be fewer than two. The last page stays the current one, and is
        full.
        """
        page_no = self.page_no
        count = min((len(data) - done - 1) // CHUNK_DATA_MAX, self._file_pages - page_no)
        if self._interval:
            count = min(count, self._interval - page_no % self._interval)
        if count < 2:
            return 0
        parity = self.file_no & 1
        kind = KIND_WRITE | parity if logged else 0
        pages, last, redo = fill_pages(data, done, count, first, then, kind, page_no)
        if not logged:
            safe = self._pages.synced_pages(self.file_no)
            redo = UNLOGGED.pack(KIND_UNLOGGED | parity, page_no, count, first, then, safe)
            self.unlogged_end = (self.file_no, page_no + count)
        self._mtr.append(redo)
        self._log_whole_page = False
        self._page[:] = pages[:PAGE_SIZE]
        self._pages.add(self.file_no, page_no, pages, self._redo.lsn)
        self._sealed_bytes += (count - 1) * PAGE_END
        self.page_no, self._at, self._page = page_no + count - 1, PAGE_END, last
        self._pages.begin_tail(self.file_no, self.page_no, last)
        return count

    def _log(self, begin: int) -> None:
        """Collect the redo of the bytes of the page from `begin` on."""
        if self._log_whole_page:
            self._log_whole_page = False
            begin = 0
        kind = KIND_WRITE | self.file_no & 1
        self._mtr.append(WRITE_HEAD.pack(kind, self.page_no, begin, self._at - begin))
        self._mtr.append(bytes(memoryview(self._page)[begin : self._at]))

    def _make_room(self, *, nested: bool = False) -> None:
        """Move the write position to a place where a chunk can begin."""
        # In a loop, because the state record of a page that is entered may fill it.
        while (left := PAGE_END - self._at) < CHUNK_MIN:
            if left:
                at = self._at
                self._page[at:PAGE_END] = bytes((FILLER,)) * left
                self._at = PAGE_END
                self._log(at)
            self._seal_page()
            if self.page_no + 1 < self._file_pages:
                self._enter_page(self.page_no + 1, nested=nested)
            else:
                self._enter_file(self.file_no + 1)

    def _seal_page(self) -> None:
        self._pages.add(self.file_no, self.page_no, seal(self._page), self._redo.lsn)
        self._sealed_bytes += self._at

    def _enter_page(
        self, page_no: int, *, nested: bool = False, full_state: bytes | None = None
    ) -> None:
        self.page_no = page_no
        self._at = 0
        self._page = bytearray(PAGE_SIZE)
        self._log_whole_page = False
        self._pages.begin_tail(self.file_no, page_no, self._page)
        if not nested and page_no > 1:
            self._before_page_one.clear()
        if page_no == 1:
            # To drop the old state of many domains takes milliseconds, as writing them does: not both in one step.
            self._before_page_one, self._since_page_one = self._since_page_one, BinlogState()
            body = self._full_state() if full_state is None else full_state
            self._chunks(RecordType.GTID_STATE, body, nested=True)
        elif self._interval and page_no % self._interval == 0 and not nested:
            self._write_difference()

    def _enter_file(self, file_no: int) -> None:
        options = self.options
        self.file_no = file_no
        full_state = self._full_state()
        # A state that fills the file would lead to the next file, and its state, without end.
        self._file_pages = max(options.file_pages, 4 * self._pages_of(full_state))
        self._interval = options.state_interval_pages
        self._pages.add_file(file_no, self._file_pages * PAGE_SIZE)
        oob_ref = self._references.lowest(Reason.ACTIVE_TRANSACTION, Reason.PREPARED_XA)
        header = FileHeader(
            file_no=file_no,
            pages=self._file_pages,
            start_lsn=self._redo.lsn,
            state_interval_pages=self._interval,
            oob_ref=file_no if oob_ref is None else min(oob_ref, file_no),
            xa_ref=self._references.lowest(Reason.PREPARED_XA),
        )
        page = header.build()
        self._pages.add(file_no, 0, page, self._redo.lsn)
        self._mtr.append(WRITE_HEAD.pack(KIND_WRITE | file_no & 1, 0, 0, FIELDS_BYTES))
        self._mtr.append(page[:FIELDS_BYTES])
        self._state_bytes = len(full_state) + _GTID_BYTES_MAX
        self._enter_page(1, full_state=full_state)

    def _full_state(self) -> bytes:
        return gtid_state.encode(self.state, self._references.lowest(Reason.PREPARED_XA))

    @staticmethod
    def _pages_of(body: bytes) -> int:
        return -(-len(body) // CHUNK_DATA_MAX)

    def _write_difference(self) -> None:
        xa_ref = self._references.lowest(Reason.PREPARED_XA)
        body = gtid_state.encode(self._since_page_one, xa_ref)
        pages_needed = self._pages_of(body)
        # There must be room for data behind the record, and readers expect another record at the next interval.
        if self.page_no + pages_needed < self._file_pages and pages_needed <= self._interval:
            self._chunks(RecordType.GTID_STATE, body, nested=True)
