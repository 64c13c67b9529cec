"""The .ibb store: `BinlogEngine` over a directory of .ibb files.

How a group gets in, and what a crash between the steps leaves:

1. `append`, under the append lock: the group becomes chunks on pages in memory, the state learns its GTID. A crash
   forgets it.
2. `sync`, under the sync lock: all pages since the last sync, the partial last one included, are written and synced. A
   crash in between leaves some of them; `recovery` cuts what is not whole.
3. The durable mark moves to what step 2 has written. A crash keeps the group from here on.
4. Listeners wake; only now can a reader see the group.

Locks, in this order: sync lock, append lock. Readers take neither.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from protocol.event_group import split_events
from protocol.gtid import BinlogState, Gtid, SlavePosition
from storage.binlog import search
from storage.binlog.batch_reader import read_batch
from storage.binlog.file_keeper import FileKeeper
from storage.binlog.file_names import file_name
from storage.binlog.log_writer import LogWriter
from storage.binlog.open_group import GroupContext, OpenGroup
from storage.binlog.options import StoreOptions
from storage.binlog.page_store import PageKey, PageStore
from storage.binlog.prepared import PreparedTransactions
from storage.binlog.purge import PurgePlan
from storage.binlog.recovery import recover
from storage.binlog.references import Hold, Reason, References
from storage.binlog.search import FileShape
from storage.disk import Disk
from storage.engine import BinlogFile, GroupBatch, StartPoint
from storage.errors import (
    DiskError,
    DomainInUse,
    PositionPurged,
    StorageError,
    StoreFailed,
)
from storage.ibb import commit, xa
from storage.ibb.chunk import Position, RecordType
from storage.ibb.page import PAGE_SIZE
from storage.ibb.xa import XaComplete, XaPrepare, Xid
from storage.state import StateStore

log = logging.getLogger(__name__)

BREAKS_KEY = "binlog/state_breaks"  # files before which the state did not only grow


class IbbEngine:
    """See `storage.engine.BinlogEngine`. Every method may be called from any thread.

    Args:
        facts: where the store keeps what a search needs to know beside the files; without it a search looks at every
            file.
        background: make files ahead and purge in a thread of our own; without it, `keeper.caretaker.step` does it.
        clock: seconds since 1970, for purge by age.
        wait_for_room: waits that many seconds when the disk is full; by default until `close` at the latest.
    """

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions | None = None,
        *,
        facts: StateStore | None = None,
        background: bool = False,
        clock: Callable[[], float] = time.time,
        wait_for_room: Callable[[float], object] | None = None,
    ) -> None:
        """Open the store in `disk`, or begin one. Raises `CorruptBinlog`, `DiskError`."""
        self._options = options or StoreOptions()
        self._disk = disk
        self._facts = facts
        self._append_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._failure: StorageError | None = None
        self.references = References()
        cache_pages = self._options.page_cache_bytes // PAGE_SIZE
        self._pages = PageStore(disk, cache_pages, wait=wait_for_room)
        self._writer = LogWriter(self._pages, self._options, self.references)
        self._prepared = PreparedTransactions(self.references)
        self._last_marker: bytes | None = None
        self._shapes: dict[int, FileShape] = {}
        found = recover(disk, self._pages, self._prepared)
        if found is None:
            self._writer.start_new(0)
            if facts is not None:
                facts.set(BREAKS_KEY, [])
            log.info("Starting a new binlog from file number 0.")
        else:
            self._pages.files.note_purged()
            self._writer.resume(found)
            self._last_marker = found.last_marker
            end = self._writer.end
            log.info("Continuing binlog number %d from position %d.", end.file_no, end.offset)
        self._groups = GroupContext(
            self._writer,
            self._append_lock,
            self.references,
            self._options.piece_bytes,
            self._require_sound,
            self._committed,
            self._prepare,
        )
        self._durable_end = Position(0, PAGE_SIZE) if found is None else self._writer.end
        self.keeper = FileKeeper(
            self._pages.files,
            self._pages,
            self.references,
            self._options,
            written_end=lambda: self.written_end,
            durable_end=lambda: self._durable_end,
            clock=clock,
        )
        self._write_and_sync()  # a new store has a durable first header before anything else happens
        if background:
            self.keeper.caretaker.start()

    # --- writing ---

    @property
    def cache_bytes(self) -> int:
        """See `BinlogEngine`."""
        return self._groups.piece_bytes

    def append(self, payload: bytes, gtid: Gtid | None) -> Position:
        """See `BinlogEngine`."""
        if len(payload) <= self._groups.piece_bytes:
            with self._append_lock:
                self._require_sound()
                self._writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
                self._last_marker = payload if gtid is None else None
                return self._writer.end
        assert gtid is not None
        # Only the GTID event goes into the commit record: readers take the list behind the payload.
        gtid_event = next(split_events(payload))
        group = self.begin()
        group.spill(memoryview(payload)[len(gtid_event) :])
        return group.commit(gtid_event, gtid)

    def begin(self) -> OpenGroup:
        """See `BinlogEngine`."""
        return OpenGroup(self._groups)

    def sync(self) -> None:
        """See `BinlogEngine`."""
        wanted = self.written_end
        with self._sync_lock:
            if self._durable_end >= wanted and self._failure is None:
                return  # whoever held the lock before us has done our work too
            self._write_and_sync()
        self._wake()

    def _wake(self) -> None:
        for wake in list(self._listeners):
            wake()

    def _write_and_sync(self) -> None:
        with self._append_lock:
            taken = self._take()
        self._write(*taken)

    def _take(self) -> tuple[Position, list[tuple[PageKey, bytes]], set[int]]:
        """Under the append lock: the end of what is to be written, its pages, and the breaks it makes."""
        self._require_sound()
        breaks, self._writer.breaks = self._writer.breaks, set()
        return self._writer.end, self._pages.take(), breaks

    def _write(self, end: Position, pages: list[tuple[PageKey, bytes]], breaks: set[int]) -> None:
        """Under the sync lock."""
        try:
            self._note_breaks(breaks)
            self._pages.write_out(pages)
        except DiskError as error:
            # What reached the disk is unknown, and the kernel may have forgotten the error by the next fsync.
            self._failure = error
            log.error("the binlog accepts nothing more: %s; what is durable is still served", error)
            raise
        entered, self._durable_end = end.file_no != self._durable_end.file_no, end
        if entered:
            self.keeper.caretaker.poke()

    def _note_breaks(self, breaks: set[int]) -> None:
        """Before the files are: a search that does not know of a break would go wrong."""
        if self._facts is None or not breaks:
            return
        known = self._facts.get(BREAKS_KEY)
        if known is not None and not breaks <= set(known):
            first = self._pages.files.numbers()[0]
            self._facts.set(BREAKS_KEY, sorted(n for n in breaks | set(known) if n > first))

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise StoreFailed(
                f"the binlog accepts nothing more after an earlier failure: {self._failure}"
            )

    def _committed(self) -> None:
        self._last_marker = None

    # --- XA ---

    def prepared(self) -> list[Xid]:
        """See `BinlogEngine`."""
        with self._append_lock:
            return self._prepared.xids()

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `BinlogEngine`."""
        with self._append_lock:
            prepare = self._complete(xid, rolled_back=False)
            # Next to each other: recovery takes back a completion whose commit did not get to the disk.
            lists = [] if prepare.oob is None else [prepare.oob]
            self._writer.write(RecordType.COMMIT, commit.encode(gtid_event, *lists), gtid)
            self._prepared.discard(xid)
            self._last_marker = None
            return self._writer.end

    def rollback_prepared(self, xid: Xid) -> Position:
        """See `BinlogEngine`."""
        with self._append_lock:
            self._complete(xid, rolled_back=True)
            self._prepared.discard(xid)
            return self._writer.end

    def _complete(self, xid: Xid, *, rolled_back: bool) -> XaPrepare:
        """Under the append lock."""
        self._require_sound()
        prepare = self._prepared.get(xid)
        complete = xa.encode_complete(XaComplete(xid, rolled_back))
        self._writer.write(RecordType.XA_COMPLETE, complete)
        return prepare

    def _prepare(self, prepare: XaPrepare) -> Position:
        """Under the append lock."""
        self._prepared.require_free(prepare.xid)
        # Before the record: a state record in the middle of it already tells of this transaction.
        self._prepared.add(prepare, self._writer.end.file_no)
        self._writer.write(RecordType.XA_PREPARE, xa.encode_prepare(prepare))
        return self._writer.end

    # --- files ---

    def flush(self, delete_domains: Iterable[int] = ()) -> None:
        """See `BinlogEngine`."""
        domains = set(delete_domains)
        with self._sync_lock:
            with self._append_lock:
                self._require_sound()
                for domain in sorted(domains):
                    self._require_unused(domain)
                entries = self._writer.state.entries()
                kept = [gtid for gtid in entries if gtid.domain_id not in domains]
                if len(kept) < len(entries):
                    self._writer.forget_state(BinlogState(kept))
                self._writer.flush()
            self._write_and_sync()
        self._wake()

    def _require_unused(self, domain: int) -> None:
        """Nothing of the domain may be in an existing file: its state is the same as where the first one begins."""
        first = self._pages.files.numbers()[0]
        then = BinlogState(search.read_state(self._pages, first, 1) or [])
        if _of_domain(then, domain) != _of_domain(self._writer.state, domain):
            raise DomainInUse(
                f"domain {domain} cannot be deleted: existing binlog files hold groups of it; purge them first"
            )

    def reset(self, state: BinlogState | None = None) -> None:
        """See `BinlogEngine`."""
        with self._sync_lock, self.keeper.working:
            with self._append_lock:
                self._require_sound()
                self.references.refuse_reset()
                # A transaction that is complete in memory only would be prepared again after a crash, its data gone.
                self._write(*self._take())
                for file_no in self._pages.files.numbers():
                    self._pages.files.remove(file_no)
                self._pages.restart()
                self._shapes.clear()
                self._writer.forget_state(BinlogState(state.entries() if state is not None else []))
                self._last_marker = None
                self._writer.start_new(0)
                self._durable_end = Position(0, PAGE_SIZE)
                if self._facts is not None:
                    self._writer.breaks = set()
                    self._facts.set(BREAKS_KEY, [])
            self._write_and_sync()
        self.keeper.caretaker.poke()
        self._wake()

    def purge_to(self, name: str) -> PurgePlan:
        """See `BinlogEngine`."""
        return self.keeper.purge_to(name)

    def purge_before(self, seconds: float) -> PurgePlan:
        """See `BinlogEngine`."""
        return self.keeper.purge_before(seconds)

    def hold(self, name: str, start: Position | None = None, *, dump: bool = False) -> Hold:
        """See `BinlogEngine`."""
        file_no = self._pages.files.numbers()[0] if start is None else start.file_no
        return self.references.hold(Reason.DUMP if dump else Reason.NAMED, name, file_no)

    # --- what there is ---

    def write_log(self) -> None:
        """See `BinlogEngine`."""

    @property
    def has_room(self) -> bool:
        """See `BinlogEngine`."""
        return True

    def wait_for_room(self, timeout: float | None = None) -> bool:
        """See `BinlogEngine`."""
        return True

    def counters(self) -> Mapping[str, int]:
        """See `BinlogEngine`."""
        return {}

    @property
    def durable_end(self) -> Position:
        """See `BinlogEngine`."""
        return self._durable_end

    @property
    def written_end(self) -> Position:
        """See `BinlogEngine`."""
        with self._append_lock:
            return self._writer.end

    @property
    def last_marker(self) -> bytes | None:
        """See `BinlogEngine`."""
        return self._last_marker

    def binlog_state(self) -> BinlogState:
        """See `BinlogEngine`."""
        with self._append_lock:
            return self._writer.state.copy()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `BinlogEngine`."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def files(self) -> list[BinlogFile]:
        """See `BinlogEngine`."""
        sizes = ((n, self._pages.files.size(n)) for n in self._pages.files.numbers())
        return [BinlogFile(file_name(n), size) for n, size in sizes if size is not None]

    def status(self) -> tuple[str, int]:
        """See `BinlogEngine`."""
        end = self.written_end
        return file_name(end.file_no), end.offset

    # --- reading ---

    def find_start(self, position: SlavePosition) -> StartPoint:
        """See `BinlogEngine`."""
        while True:
            files = self._pages.files.numbers()
            breaks = None if self._facts is None else self._facts.get(BREAKS_KEY)
            pages = self._pages.probing()
            try:
                found = search.find_start(
                    pages, files, self._shape, position, self._durable_end, breaks
                )
                return StartPoint(*found)
            except PositionPurged:
                if self._pages.files.numbers() == files:
                    raise  # and else a purge was under way: what is left may do

    def read(self, start: Position) -> GroupBatch:
        """See `BinlogEngine`."""
        return read_batch(self._pages, start, self._durable_end)

    def is_recent(self, start: Position) -> bool:
        """See `BinlogEngine`."""
        return self._pages.is_recent(start.file_no, start.page_no)

    def _shape(self, file_no: int) -> FileShape:
        shape = self._shapes.get(file_no)
        if shape is None:
            header = self._pages.header(file_no)
            size = self._pages.files.size(file_no)
            if header is None or size is None:
                raise PositionPurged(f"{file_name(file_no)} has gone")
            shape = self._shapes[file_no] = FileShape(
                header.state_interval_pages, size // PAGE_SIZE
            )
        return shape

    # --- the end ---

    def close(self) -> None:
        """See `BinlogEngine`."""
        self._pages.files.stop_waiting()
        self.keeper.caretaker.stop()
        try:
            if self._failure is None:
                with contextlib.suppress(StoreFailed):  # another thread's sync failed meanwhile
                    self.sync()
        finally:
            self._pages.close()
            self._disk.close()


def _of_domain(state: BinlogState, domain: int) -> list[Gtid]:
    return [gtid for gtid in state.entries() if gtid.domain_id == domain]
