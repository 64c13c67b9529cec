"""The .ibb store: `BinlogEngine` over a directory of .ibb files and a redo log.

The steps of a group into the store, and the effect of a crash between them:

1. `append`, under the append lock: the group becomes chunks on pages in memory, and a mini-transaction of the redo log
   in memory; the state learns its GTID. A crash forgets it.
2. `sync`: the redo log is written and synced (`Durability`). A crash before its end leaves whole mini-transactions, or
   none; from its end on it keeps the group.
3. The durable mark moves to the end that step 2 has synced. Listeners wake; only now can a reader see the group.
4. The `Flusher` writes full pages to the files, and all pages at checkpoints. Recovery does it again from the redo.

Locks, in this order: that of `reset`, the flusher's and the keeper's `working`, the redo log's, the append lock.
Readers take none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.binlog.appender import Appender, OpenGroup
from binlog_storage.binlog.backup import IbbBackup
from binlog_storage.binlog.bounds import Bounds
from binlog_storage.binlog.decision import Decision, xa_name
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.file_keeper import FileKeeper
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.joined_writer import JoinedWriter
from binlog_storage.binlog.late_writes import LateWrites
from binlog_storage.binlog.limits import largest_step
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.opening import open_log
from binlog_storage.binlog.options import (
    FILE_BYTES_MAX,
    PAGES_MIN,
    StoreOptions,
)
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.recovery import Recovered
from binlog_storage.binlog.room import Room
from binlog_storage.binlog.state_breaks import StateBreaks
from binlog_storage.binlog.stored_tables import StoredTables, TableEngine
from binlog_storage.binlog.two_phase import TwoPhase
from binlog_storage.binlog.worker import stalled_workers
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.durations import Durations
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import (
    LARGE_GROUP_BYTES,
    BinlogFile,
    GroupBatch,
    Located,
    PlacedBatch,
    Stalled,
    StartPoint,
)
from binlog_storage.engine.backup import BackupRequest
from binlog_storage.engine.late_opening import LateOpening
from binlog_storage.engine.purge import FileFate, PurgeHeld, PurgePlan
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.engine.soundness import final
from binlog_storage.errors import (
    BinlogHasGtids,
    CorruptBinlog,
    DiskError,
    DiskFull,
    DomainInUse,
    NoRoom,
    PositionPurged,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
)
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_number
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.ibb.xa import Xid
from binlog_storage.log import search
from binlog_storage.log.batch_reader import read_batch, read_placed_batch
from binlog_storage.log.first_file import FirstFile
from binlog_storage.log.group_reader import group_pieces
from binlog_storage.log.halves import behind_halves, refers_back
from binlog_storage.log.locate import locate
from binlog_storage.log.log_file import read_state, state_at
from binlog_storage.log.publication import Publication
from binlog_storage.log.search import FileShape
from binlog_storage.log.whole_file import require_full, require_whole
from binlog_storage.redo.format import TablesFrom
from binlog_storage.tables.facts import FactTables, binlog_begins
from binlog_storage.tables.participants import Participant, RowKeeper
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.store import ReadView, TableTransaction

log = logging.getLogger(__name__)

_FILES_LOOKED_AT = 256  # files of which a few pages are checked when the store is opened
_XIDS_LOGGED = 10


class IbbEngine:
    """See `binlog_storage.engine.BinlogEngine`, and there for each method that says nothing here.

    Every method may be called from any thread.

    Args:
        disk: the directory. With a `PatientDisk` a store can be opened while the disk is full: it is served, and
            nothing is appended until there is room.
        facts: the file that keeps facts beside the redo log; without it a search reads the state of every file.
        background: call `start` at once. Without `start`, the owner calls `step`.
        clock: gives seconds since 1970, for purge by age.
        wait_for_room: waits for room, its argument are seconds; by default a wait that `close` ends.
        participants: engines with logs of their own; what they have prepared is settled by the binlog.
        row_keeper: one more of them, which keeps the rows of tables whose numbers say so.

    Attributes:
        facts: what the server itself keeps, as rows of tables.
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
        participants: Sequence[Participant] = (),
        row_keeper: RowKeeper | None = None,
    ) -> None:
        """Open the store in `disk`, or begin one. Raises `CorruptBinlog`, `CorruptTables`, `DiskError`."""
        self.row_keeper = row_keeper
        self._options = options or StoreOptions()
        self.large_group_bytes = LARGE_GROUP_BYTES
        self._disk = disk
        self._file_facts = facts
        self._closing = False
        self._look: threading.Thread | None = None
        self._append_lock = threading.Lock()
        self._resetting = threading.Lock()
        self.references = References()
        cache_pages = self._options.page_cache_bytes // PAGE_SIZE
        self._opened_at = time.monotonic()
        self._full = FullDisk(wait_for_room)
        self._known = _Known()
        with contextlib.ExitStack() as opened:  # closes all that is open after any error
            if row_keeper is not None:
                opened.callback(row_keeper.close)
            self._pages = PageStore(disk, cache_pages, self._full)
            opened.callback(self._pages.close)
            self._prepared = PreparedTransactions(
                self.references,
                keep_committed=bool(participants) or (row_keeper is not None and row_keeper.exists),
            )
            self._redo, found, rebuilt = open_log(
                disk, self._pages, self._prepared, facts, self._options, self._append_lock
            )
            opened.callback(self._redo.close)
            self._make_parts(facts, clock, None if found is None else found.last_marker)
            self._make_tables(rebuilt, participants)
            opened.callback(self._flusher.close)
            if found is None:
                self._begin_new(BinlogState())
                self._has_begun()
                log.info("Starting a new binlog from file number 0.")
            else:
                self._go_on(found)
            self._late.opened()
            if (full := self._late.full) is not None:
                self._bounds.pause()
                log.error(
                    "InnoDB: %s. What there is is served; what opening has to write, and all commits, wait for room. "
                    "PURGE BINARY LOGS makes some",
                    full,
                )
            self._rows.settle()
            self.facts = FactTables(self.tables, facts, self._why_full)
            self._breaks.take_over(lambda: self._why_full() is not None)
            if row_keeper is not None:
                self._rows.load(row_keeper, self._redo.uuid)
            opened.pop_all()
        if background:
            self.start()

    def _make_tables(self, rebuilt: Rebuild, participants: Sequence[Participant]) -> None:
        """Make the parts that are about tables."""
        self._rows = StoredTables(
            self._disk,
            self._appender,
            PagesLog(self._append_lock, self._durability, self._bounds, self._flusher),
            rebuilt,
            self._options,
            lambda: self._two_phase.settle(),
            lambda: self._late.full is not None,
        )
        self.tables, self._snapshots = self._rows.store, self._rows.snapshots
        self._late.when_done = self._rows.undo_worker.poke
        self._room.snapshots = self._snapshots
        self._full.when_freed(self._snapshots.worker.poke)
        self._breaks.tables = self.tables
        self._appender.tables_logged = self._snapshots.logged
        self._flusher.checkpointed = self._snapshots.look
        self._appender.begins = lambda: binlog_begins(self.tables)
        self._two_phase = TwoPhase(
            self._appender,
            self._prepared,
            self.references,
            self.tables,
            participants,
            self.row_keeper,
            self._redo.uuid,
            self._revive,
        )

    def _why_full(self) -> DiskFull | None:
        """Why nobody should wait for room in the redo log; None if the disk has some."""
        return self._late.full or self._full.error

    def _revive(self, xid: Xid) -> None:
        """XA ROLLBACK, without the undo of rows."""
        self._appender.rollback_prepared(xid, self.tables.reviving(xid))

    def _make_parts(
        self, facts: StateStore | None, clock: Callable[[], float], last_marker: bytes | None
    ) -> None:
        """Make the parts, each from those before it. Opens nothing."""
        self._writer = LogWriter(self._pages, self._options, self._redo, self.references)
        self._durability = Durability(self._redo, self._writer)
        self.references.when_opened(self._durability.wake)
        self._bounds = Bounds(
            self._redo,
            self._pages,
            self._writer,
            self._durability,
            largest_step(self._options.piece_bytes),
        )
        opening = LateOpening(self._disk, self._durability)
        self._late = LateWrites(opening, self._pages.files, self._bounds, self._full)
        self._first_file = FirstFile(facts)
        self._breaks = StateBreaks(facts, self._pages.first_number)
        self.keeper = FileKeeper(
            self._pages,
            self._writer,
            self.references,
            self._options,
            self._late,
            self._first_file,
            self._full,
            clock,
        )
        self._flusher = Flusher(
            self._append_lock,
            self._durability,
            self._pages,
            self._writer,
            self._bounds,
            Publication(self._disk, self._redo.uuid),
            self._full,
            self.keeper.caretaker,
        )
        self._room = Room(
            self._append_lock, self._bounds, self._late, self.keeper.caretaker, self._flusher
        )
        self._appender = Appender(
            self._append_lock,
            self._writer,
            self._room,
            self._durability,
            self._prepared,
            self.references,
            self._breaks,
            self._options.piece_bytes,
            self._flusher,
            last_marker,
        )

    def _go_on(self, found: Recovered) -> None:
        """Set the writer to the end that recovery found."""
        self._pages.files.note_purged()
        self._first_file.opened(self._pages.files.numbers())
        self._writer.resume(found)
        end = self._durability.mark.end = self._writer.end
        self._flusher.began(self._writer.stand)
        log.info("Continuing binlog number %d from position %d.", end.file_no, end.offset)
        if waiting := self._prepared.xids():
            log.warning(
                "Found %d prepared XA transaction(s), which hold their files until XA COMMIT or XA ROLLBACK: %s",
                len(waiting),
                "; ".join(xid.sql() for xid in waiting[:_XIDS_LOGGED]),
            )

    def tell_damage(self) -> None:
        """Warn of damage in the first or last pages of the newest files; readers find any other.

        With background threads it runs in one of its own: many files must not make a start longer.
        """
        pages = self._pages.probing()
        current = self._writer.end.file_no
        for file_no in [n for n in self._pages.files.numbers() if n < current][-_FILES_LOOKED_AT:]:
            if self._closing:
                return
            try:
                self._pages.header(file_no)
                require_whole(pages, file_no)
                require_full(pages, file_no, 1)
            except TooManyOpenFiles:
                return
            except StorageError as error:
                log.warning("InnoDB: %s: replicas that need what was in it get error 1236", error)

    def start(self) -> None:
        """Start the background threads, which write pages, make files ahead and purge."""
        self.keeper.caretaker.start()
        self._flusher.worker.start()
        self._rows.start()
        self._look = threading.Thread(target=self.tell_damage, name="binlog-look", daemon=True)
        self._look.start()

    def _begin_new(self, state: BinlogState) -> None:
        """Begin the first file in memory. To be followed by `_has_begun`."""
        self._appender.start_anew(state)
        self._bounds.clean_file = -1  # no file has a checkpoint; the file made ahead is this one

    def _has_begun(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Make a checkpoint in the first file, so that a store always has a durable header."""
        self.checkpoint(given_up)
        self._first_file.moves_to(0)

    # --- writing ---

    @property
    def cache_bytes(self) -> int:
        return self._appender.piece_bytes

    @property
    def spills_to_files(self) -> bool:
        return False

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        return self._appender.append(payload, gtid, age)

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        return self._appender.append_run(run, index, age)

    def begin(self, *, bulk: bool = False) -> OpenGroup:
        return self._appender.begin(bulk=bulk)

    def prepared(self) -> list[Xid]:
        with self._append_lock:
            return self._prepared.xids()

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        decision = self.completing_two_phase(xid)
        if decision is None:
            return self._two_phase.commit_prepared(xid, gtid_event, gtid)
        end = self.decide_prepared(decision, xid, gtid_event, gtid)
        self.finish_two_phase(decision)
        return end

    def turn_of(self, xid: Xid) -> None:
        """See `EngineWriter`: the commit is one record."""

    def rollback_prepared(self, xid: Xid) -> Position:
        trx = self.tables.prepared.get(xid)
        self._two_phase.rollback_prepared(xid)
        if trx is not None:
            self.tables.roll_back(trx)
        return self.written_end

    # --- tables ---

    def writer_of(self, tables: TableTransaction) -> JoinedWriter:
        """See `TableEngine`."""
        return JoinedWriter(self._appender, tables)

    def append_change(
        self,
        table: int,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        payload: bytes,
        gtid: Gtid,
        age: int | None = None,
    ) -> Position | None:
        """See `TableEngine`."""
        return self._appender.append_change(
            self.tables, table, key, before, after, payload, gtid, age
        )

    @property
    def next_sync(self) -> int:
        """See `TableEngine`."""
        return self._redo.taken

    def append_together(
        self, commits: Sequence[tuple[bytes, Gtid, TableTransaction]]
    ) -> list[Position]:
        """Commit groups, each with its transaction of tables, so that none sees another: they may share a commit id.

        Raises `ValueError` for a group larger than `cache_bytes`.
        """
        return self._appender.append_together(commits)

    def make_row_keeper(self) -> bool:
        """See `TableEngine`."""
        if self.row_keeper is None:
            return False
        self.row_keeper.create(self._redo.uuid)
        return True

    def begin_two_phase(self, tables: TableTransaction, *, is_xa: bool = False) -> Decision:
        """See `TableEngine`."""
        assert self.row_keeper is not None
        part = self.row_keeper.part(tables.changes_elsewhere())
        name = xa_name(self._redo.uuid, tables.id) if is_xa else None
        decision = self._two_phase.begin((part,), name)
        tables.ready(prepared=True)
        return decision

    def completing_two_phase(self, xid: Xid) -> Decision | None:
        """See `TableEngine`."""
        return self._two_phase.completing(xid)

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """See `TableEngine`."""
        return self._two_phase.decide_prepared(decision, xid, gtid_event, gtid)

    def finish_two_phase(self, decision: Decision) -> None:
        """See `TableEngine`."""
        self._two_phase.finish(decision)

    def commit_two_phase(
        self, group: OpenGroup, gtid_event: bytes, gtid: Gtid, taking_part: Sequence[Participant]
    ) -> None:
        """See `TwoPhase.commit`."""
        self._two_phase.commit(group, gtid_event, gtid, taking_part)

    def prepare_two_phase(
        self, group: OpenGroup, xid: Xid, taking_part: Sequence[Participant]
    ) -> Position:
        """See `TwoPhase.prepare`. XA COMMIT and XA ROLLBACK are as ever, and reach these engines."""
        return self._two_phase.prepare(group, xid, taking_part)

    def consistent_snapshot(self) -> tuple[ReadView, Position, BinlogState]:
        """See `TableEngine`."""
        with self._append_lock:
            return self.tables.view(), self._writer.end, self._writer.state.copy()

    @property
    def rows_to_undo(self) -> int:
        """Changes of transactions found by the start that are not undone yet."""
        return self._rows.undoer.rows

    def write_log(self) -> None:
        self._durability.write_log()

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        self._durability.sync_log(durable)
        self._flusher.synced()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._durability.subscribe(wake)

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        self._durability.when_failed(failed)

    # --- room and background work ---

    @property
    def has_room(self) -> bool:
        return self._bounds.has_room

    @property
    def has_room_to_spill(self) -> bool:
        return self._bounds.has_room_to_spill

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        return self._room.wait(timeout, to_spill=to_spill)

    def never_wait_in(self, thread: int) -> None:
        self._room.never_wait_in(thread)

    def checkpoint(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Write everything appended so far to the files, and free the redo log.

        Raises `DiskError`, `StoreFailed`; `NoRoom` if `given_up` returns True.
        """
        self._late.require_written()
        try:
            self._flusher.checkpoint(given_up)
        except (NoRoom, TooManyOpenFiles):
            raise  # nothing was done; the first only behind `given_up`, and while the store is being closed
        except DiskError as error:
            self._durability.fail(error)
            raise final(error) from error.__cause__
        self._flusher.synced()

    def step(self) -> bool:
        """Do one round of the background work. Returns whether the flusher had anything to do."""
        did = self._flusher.step()
        self.keeper.caretaker.step()
        self._snapshots.worker.step()
        return self._rows.undo_step() or did

    # --- files ---

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        domains = set(delete_domains)
        begun = False
        while not begun:
            self.checkpoint(given_up)  # one in the current file allows the next to be entered
            with self._append_lock:
                self._require_unused(domains)
                begun = self._appender.next_file(domains)
            if not begun:
                self._room.relieve_tables()
        self.checkpoint(given_up)

    def _require_unused(self, domains: set[int]) -> None:
        """Raises `DomainInUse` if an existing file has groups of these domains: their state must be the same as at the
        beginning of the first file.

        Groups of a domain that is deleted already may still be in files.
        """
        state = self._writer.state
        known = [domain for domain in sorted(domains) if state.last(domain) is not None]
        if not known:
            return
        # The state with which the first file begins.
        entries = self._as_purge_leaves(lambda files: read_state(self._pages, files[0], 1))
        then = BinlogState(entries or ())
        for domain in known:
            if then.of_domain(domain) != state.of_domain(domain):
                raise DomainInUse(domain)

    @property
    def age(self) -> int:
        return self.references.age

    def begin_age(self, age: int) -> None:
        self.references.begin_at(age)

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
    ) -> None:
        self._late.require_written()
        with self._resetting:
            try:
                with self._flusher.working, self.keeper.working:
                    with self._append_lock:
                        self._durability.require_sound()
                        is_empty = not len(self._writer.state)
                        if only_if_empty and not is_empty:
                            raise BinlogHasGtids("there are GTIDs in the binlog")
                        self.references.close(is_empty=is_empty)
                        self._bounds.pause()  # no appends until the new file is there
                    try:
                        self._start_anew(BinlogState(state.entries() if state is not None else []))
                    finally:
                        self.references.open()  # before anybody appends
                try:
                    # This may wait for room, without holding up other work.
                    self._has_begun(given_up)
                except TooManyOpenFiles as error:  # the redo log has the new file
                    log.warning("%s: the store has begun anew; its first file is made later", error)
            finally:
                self._bounds.resume()
        self._durability.wake()

    def _start_anew(self, state: BinlogState) -> None:
        """Remove all files and begin anew. A crash at any step leaves the old store, or a new one."""
        files = self._pages.files.numbers()  # the last step that may need a descriptor
        try:
            self._durability.sync_log()
            self._redo.begin(None)  # from now on the old files do not count
            for file_no in files:
                self._pages.files.remove(file_no)
            self._pages.restart()
            self._flusher.restart()
            self._known = _Known()  # behind the last page of the old binlog
            self._begin_new(state)
        except DiskError as error:
            self._durability.fail(error)
            raise final(error) from error.__cause__
        except BaseException as error:
            # As Ctrl-C: memory holds a half of each binlog, and nothing of it may be written, by `close` either.
            self._durability.fail(StoreFailed(f"beginning anew was broken off by {error!r}"))
            raise

    def purge_to(self, file_no: int) -> PurgePlan:
        return self.keeper.purge_to(file_no)

    def purge_before(self, seconds: float) -> PurgePlan:
        return self.keeper.purge_before(seconds)

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        return self.keeper.explain(to, before)

    @property
    def max_binlog_size_min(self) -> int:
        """See `BinlogEngine`. Records of the size they have now must not need a third file."""
        return max(PAGES_MIN * PAGE_SIZE, 2 * self._appender.piece_bytes)

    def set_option(self, name: str, value: int) -> None:
        if name not in {field.name for field in dataclasses.fields(StoreOptions)}:
            return
        if name == "max_binlog_size" and value < self.max_binlog_size_min:
            raise ValueError(f"max_binlog_size must be at least {self.max_binlog_size_min} now")
        with self._append_lock:
            options = dataclasses.replace(self._options, **{name: value})
            self._options = self._writer.options = self.keeper.options = options
        self.keeper.caretaker.poke()

    def backup(self, wanted: BackupRequest) -> IbbBackup:
        """See `BackupEngine`."""
        self._late.require_written()
        return IbbBackup(
            wanted,
            self._disk,
            self._append_lock,
            self._pages,
            self._writer,
            self._durability,
            self._flusher,
            self._snapshots,
            self.references,
            self._full,
            self._file_facts,
            self.find_start,
            self.tables,
            self.row_keeper,
        )

    def groups_of_file(
        self, file_no: int | None = None, offset: int = 0
    ) -> Iterator[Iterator[bytes]]:
        age, known = self._in_one_age(lambda age: (age, self._file_no(file_no)))
        return self._groups_of_file(Position(known, offset), self.durable_end, age)

    def _groups_of_file(
        self, start: Position, durable_end: Position, age: int
    ) -> Iterator[Iterator[bytes]]:
        """Raises `BinlogBegunAnew` if the places are not of this `age` any more.

        A group belongs to the file in which its commit record begins; its out-of-band data may lie in earlier files,
        and the record may go on in the next one.
        """
        limit = min(durable_end, Position(start.file_no + 1, PAGE_SIZE))
        # No file has more pages: an offset farther behind its end is no place on a disk.
        page = min(max(1, start.offset // PAGE_SIZE), FILE_BYTES_MAX // PAGE_SIZE)
        first = Position(start.file_no, page * PAGE_SIZE)
        hold = self.references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", start.file_no, age)
        try:
            if first >= limit:
                return
            if not self._pages.has_data(start.file_no):
                raise PositionPurged("Could not find target log")
            # Offsets are looked up by pages: records that begin in the page before the offset are passed over.
            reader = RecordReader(self._pages, first, limit, skip_partial=True)
            for record in reader.commits():
                if record.start.file_no != start.file_no:
                    return
                if record.start >= start:
                    yield group_pieces(self._pages, record)
        finally:
            hold.release()

    def hold(
        self,
        name: str,
        start: Position | None = None,
        *,
        dump: bool = False,
        slot: bool = False,
        ended_by: str = "",
        holder: tuple[str, str] | None = None,
        wait: bool = True,
    ) -> Pin:
        return self.references.hold_for_reader(
            name,
            lambda: self._pages.first_number() if start is None else start.file_no,
            dump=dump,
            slot=slot,
            ended_by=ended_by,
            holder=holder,
            wait=wait,
        )

    def _file_no(self, file_no: int | None) -> int:
        return self._pages.first_number() if file_no is None else self.keeper.known(file_no)

    # --- what there is ---

    def counters(self) -> Mapping[str, int]:
        redo, pages = self._redo, self._pages
        with self._append_lock:
            bytes_written = self._writer.bytes_written
        return {
            "Binlog_bytes_written": bytes_written,
            "Binlog_commits": self._writer.commits,
            "Binlog_group_commits": redo.groups,
            "Innodb_buffer_pool_pages_data": pages.pages_cached,
            "Innodb_buffer_pool_pages_total": pages.cache_pages,
            "Innodb_buffer_pool_read_requests": pages.pages_wanted,
            "Innodb_buffer_pool_reads": pages.pages_missed,
            "Innodb_checkpoint_age": redo.lsn - redo.checkpoint_lsn,
            "Innodb_checkpoint_max_age": redo.capacity,
            "Innodb_data_fsyncs": redo.fsyncs.count + pages.fsyncs.count,
            "Innodb_data_written": redo.bytes_written + pages.pages_written * PAGE_SIZE,
            "Innodb_log_waits": self._room.redo_waits,
            "Innodb_lsn_current": redo.lsn,
            "Innodb_lsn_flushed": redo.durable_lsn,
            "Innodb_lsn_last_checkpoint": redo.checkpoint_lsn,
            "Innodb_os_log_fsyncs": redo.fsyncs.count,
            "Innodb_os_log_written": redo.bytes_written,
            "Binlog_checkpoints": self._flusher.checkpoints,
            "Binlog_pages_in_memory": pages.waiting,
            "Binlog_pages_read": pages.pages_read,
            "Binlog_pages_written": pages.pages_written,
            "Binlog_page_waits": self._room.page_waits,
            "Binlog_purged_bytes": self.keeper.bytes_purged,
            "Binlog_purged_files": self.keeper.files_purged,
            **self._rows.counters(),
        }

    def stalled(self) -> list[Stalled]:
        found: list[tuple[str, float, str]] = []
        if (full := self._late.full) is not None:
            found.append(("room", self._opened_at, f"nothing is written: {full}"))
        if (error := self._full.error) is not None:
            found.append(("room", self._full.since, str(error)))
        if self.age % 2:
            why = "RESET MASTER is at work: commits and dumps wait for its end"
            found.append(("reset", self.references.closed_at, why))
        if self._flusher.unpublished:
            since = self._flusher.unpublished_since
            found.append(("publication", since, self._flusher.unpublished))
        now = time.monotonic()
        return [
            *(Stalled(what, now - since, why) for what, since, why in found),
            *stalled_workers(self._flusher.worker, self.keeper.caretaker),
            *self._rows.stalled(),
        ]

    def purge_held(self) -> PurgeHeld | None:
        return self.keeper.held

    def fsync_times(self) -> Mapping[str, Durations]:
        return {"redo": self._redo.fsyncs, "binlog": self._pages.fsyncs}

    @property
    def durable_end(self) -> Position:
        return self._durability.mark.end

    @property
    def written_end(self) -> Position:
        with self._append_lock:
            return self._writer.end

    @property
    def last_marker(self) -> bytes | None:
        return self._appender.last_marker

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        with self._append_lock:
            state = self._writer.state
            return state.copy() if domain_id is None else state.of_domain(domain_id)

    file_start = PAGE_SIZE

    def file_name(self, number: int) -> str:
        return file_name(number)

    def file_number(self, name: str) -> int | None:
        return file_number(name)

    def files(self) -> list[BinlogFile]:
        found = []
        for number in self._pages.numbers():
            with contextlib.suppress(PositionPurged):  # purged meanwhile
                if (size := self._pages.size(number)) is not None:
                    found.append(BinlogFile(number, size))
        return found

    # --- reading ---

    def _in_one_age(self, look: Callable[[int], _T]) -> _T:
        """Call `look` with the binlog's age, again if a RESET MASTER came in between. One under way is waited for.

        So the result is that of one age, from before the RESET MASTER or from after it.
        """
        while True:
            age = self.references.wait_until_open()
            try:
                found = look(age)
            except Exception:
                if age == self.references.age:
                    raise
            else:
                if age == self.references.age:
                    return found

    def _as_purge_leaves(self, look: Callable[[list[int]], _T]) -> _T:
        """Call `look` with the numbers of the files, again if a purge came in between. Raises `PositionPurged`."""
        while True:
            files = self._reachable()
            try:
                return look(files)
            except PositionPurged:
                if self._reachable() == files:
                    raise  # and else a purge was under way: what is left may do

    def _reachable(self) -> list[int]:
        """Numbers of the files, ascending. Behind RESET MASTER the first one may wait for room."""
        return self._pages.files.numbers() or [self._pages.first_number()]

    def first_start(self) -> StartPoint:
        return self._in_one_age(lambda _: self._as_purge_leaves(self._first_start))

    def _first_start(self, files: list[int]) -> StartPoint:
        """Searched once for each first file: later groups refer to no purged file."""
        known = self._known  # taken before the search: RESET MASTER may delete the files of it
        place = known.whole_from
        if place is None or place[0] != files[0]:
            found = behind_halves(self._pages, files, self.durable_end)
            place = known.whole_from = files[0], found
        return StartPoint(place[1], self.state_at(place[1]))

    def find_start(self, position: SlavePosition) -> StartPoint:
        return self._in_one_age(
            lambda _: self._as_purge_leaves(lambda files: self._find_start(files, position))
        )

    def _find_start(self, files: list[int], position: SlavePosition) -> StartPoint:
        if self.durable_end <= _FIRST_PLACE:
            self._durability.sync_log()  # the state that a new binlog begins with
        pages = self._pages.probing()
        found = StartPoint(
            *search.find_start(
                pages, files, self._shape, position, self.durable_end, self._breaks.known()
            )
        )
        if not refers_back(pages, found.position.file_no, files[0]):
            return found
        first = self._first_start(files)
        if found.position >= first.position:
            return found
        if first.state.is_before(position):
            return first
        raise PositionPurged("a part of a group behind the position is gone")

    def read(self, start: Position) -> GroupBatch:
        limit = self._durability.mark.end
        groups = self._writer.last_runs.between(start, limit, self.large_group_bytes)
        if groups is not None:
            return GroupBatch(start, limit, groups)
        batch = read_batch(self._pages, start, limit, self.large_group_bytes)
        _require_all_read(start, batch.end, limit)
        return batch

    def read_placed(self, start: Position) -> PlacedBatch:
        limit = self.durable_end
        batch = read_placed_batch(
            self._pages, start, limit, self._file_end(start), self.large_group_bytes
        )
        _require_all_read(start, batch.end, limit)
        return batch

    def locate(self, place: Position) -> Located:
        return locate(
            self._pages, place, self.durable_end, self._file_end(place), self.large_group_bytes
        )

    def _file_end(self, place: Position) -> Position:
        """The present end of the file of a place; FLUSH may cut a file. Raises `PositionPurged`."""
        size = self._pages.size(place.file_no)
        if size is None:
            raise PositionPurged(f"{file_name(place.file_no)} has gone")
        return Position(place.file_no, size)

    def state_at(self, place: Position) -> BinlogState:
        return state_at(self._pages, place, self._shape(place.file_no).interval)

    def is_recent(self, start: Position) -> bool:
        return self._pages.is_recent(start.file_no, start.offset // PAGE_SIZE)

    def _shape(self, file_no: int) -> FileShape:
        shapes = self._known.shapes
        shape = shapes.get(file_no)
        if shape is None:
            header = self._pages.header(file_no)
            size = self._pages.size(file_no)
            if header is None or size is None:
                raise PositionPurged(f"{file_name(file_no)} has gone")
            shape = shapes[file_no] = FileShape(header.state_interval_pages, size // PAGE_SIZE)
        return shape

    # --- the end ---

    def stop_waiting(self) -> None:
        self._full.close()
        self._room.close()

    def close(self) -> None:
        self._closing = True
        self.stop_waiting()
        self._rows.close()
        if self._look is not None:
            self._look.join()
        self.keeper.caretaker.stop()
        self._flusher.worker.stop()
        try:
            if not self._durability.failed:
                self._end()
        finally:
            if self.row_keeper is not None:
                self.row_keeper.close()
            self._flusher.close()
            self._pages.close()
            self._redo.close()
            self._disk.close()

    def _end(self) -> None:
        if (full := self._late.full) is not None:
            log.warning("%s: what opening has to write is left to the next start", full)
            return
        try:
            self.sync()
            self._flusher.checkpoint()
            self._snapshots.finish()
            self._flusher.publish()  # the end that was captured before more came ...
            self._flusher.publish()  # ... and the last end
        except StoreFailed:
            pass  # another thread's sync failed meanwhile
        except DiskFull as error:
            log.warning("%s: the last pages are in the redo log only, until the next start", error)


@dataclass(eq=False)
class PagesLog:
    """The redo log of pages and tables: see `SnapshotLog`."""

    lock: threading.Lock
    _durability: Durability
    _bounds: Bounds
    _flusher: Flusher

    def __post_init__(self) -> None:
        self.redo = self._durability.redo
        self.require_sound = self._durability.require_sound
        self.sync_log = self._durability.sync_log

    @property
    def failed(self) -> bool:
        return self._durability.failed

    @property
    def lasting_lsn(self) -> int:
        return self.redo.durable_lsn

    @property
    def redo_wanted(self) -> int:
        return self._bounds.redo_wanted

    @property
    def tables_hold(self) -> bool:
        return self.redo.tables_hold

    def checkpoint(self, tables: TablesFrom) -> None:
        with self._flusher.working:  # RESET MASTER changes the epoch under it
            self.require_sound()
            try:
                self.redo.write_tables_checkpoint(tables)
            except DiskError as error:
                self._durability.fail(error)
                raise final(error) from error.__cause__
        self._bounds.freed()
        self._flusher.worker.poke()  # now the binlog's part may be the lower one


@dataclass(slots=True)
class _Known:
    """The results of searches in one age. A search that a RESET MASTER overtakes writes into that of its own age."""

    shapes: dict[int, FileShape] = dataclasses.field(default_factory=dict)
    whole_from: tuple[int, Position] | None = None  # of the first file


_T = TypeVar("_T")
_FIRST_PLACE: Final = Position(0, PAGE_SIZE)


def _require_all_read(start: Position, end: Position, limit: Position) -> None:
    """Raises `CorruptBinlog` if a batch is empty and does not end at the durable end: readers would wait for ever."""
    if end == start < limit:
        raise CorruptBinlog(
            *start,
            f"the data end here, but up to {file_name(limit.file_no)}:{limit.offset} they were durable",
        )


_ENGINE: type[TableEngine] = IbbEngine  # mypy checks the interface here, before a caller does
