"""The store of traditional files: `BinlogEngine` over `BASE.000001` ..., readable and continued by MariaDB.

The steps of a group into the store, and the effect of a crash between them:

1. `append`, under the append lock: the group becomes events of the file, with their ends and checksums, in memory; the
   state learns its GTID. A crash forgets it.
2. `sync`: what is in memory is written to the file, and the file synced. A crash before its end leaves a torn tail,
   which opening cuts behind the last whole group; from its end on the group is kept.
3. The durable mark moves to the end that step 2 has synced. Listeners wake; only now can a reader see the group.

A new file begins when one has reached max_binlog_size, at FLUSH, and at a start marker. Ahead, without locks: `~rec~`
names the new file; the next index is written under another name. Then, while nothing is appended: the file is made
with its whole head; the old one gets what was appended and its ROTATE event; both and the folder are synced; the
index takes its name. Behind that the old file's flag is cleared; `~rec~` goes. Before the index names the new file,
opening deletes it, and cuts off the ROTATE event; behind that it is the last file. A start marker is the format
description of its file, with a time of creation, as MariaDB's are: in a file without groups it takes the place of the
one that is there.

A large group: its cache file is written to its end and synced, without a lock; then a new file begins, but what takes
its name is the cache file, its head and GTID event written into what was reserved for them. When the index names it,
the group is durable. If it is as long as a file may be, it gets its ROTATE event, too, and the same index names an
empty file behind it. One that is copied is written behind the end of the file, without a lock either; what is appended
waits for its end, what is in front of it can be synced.

A purge: `~rec~` names the files, the index forgets them, they are deleted, `~rec~` goes: a crash leaves them all, or
opening deletes the rest. RESET MASTER makes the new first file under another name before anything goes.

A store with tables has a redo log beside the binlog: `row_log.py` has the steps of a group with rows.

Locks, in this order: that of purges, of syncs, of writes, the append lock, that of the index. Readers take none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.binlog.appender import JoinedTables
from binlog_storage.binlog.decision import Decision
from binlog_storage.binlog.joined_writer import JoinedWriter
from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.binlog.worker import stalled_workers
from binlog_storage.classic.back_pressure import BackPressure, Turns
from binlog_storage.classic.backup import ClassicBackup
from binlog_storage.classic.binlog import FileHead
from binlog_storage.classic.binlog_files import BinlogFiles, CurrentFile, clear_flag
from binlog_storage.classic.directory import LOCK_NAME, BinlogDirectory
from binlog_storage.classic.durable_end import DurableEnd
from binlog_storage.classic.file_indexes import remove_unfinished
from binlog_storage.classic.large_commits import LargeCommits
from binlog_storage.classic.open_group import ClassicGroup
from binlog_storage.classic.opening import has_group, reaching, survey, take
from binlog_storage.classic.options import FILE_BYTES_MIN, ClassicOptions
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.purging import Purging
from binlog_storage.classic.reset import Reset
from binlog_storage.classic.rotation import Rotation
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.small_commits import SmallCommits
from binlog_storage.classic.spool import prepare_folder
from binlog_storage.classic.stored_files import Extent, StoredBatch
from binlog_storage.classic.two_phase import RowTwoPhase
from binlog_storage.classic.write_behind import WriteBehind
from binlog_storage.classic.writing import FILE_START
from binlog_storage.classic.written_log import CACHE_BYTES, WrittenLog
from binlog_storage.classic.xa_files import Commitment, PreparedFiles
from binlog_storage.classic.xa_groups import XaGroups
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.durations import Durations
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import (
    LARGE_GROUP_BYTES,
    BinlogEngine,
    BinlogFile,
    GroupBatch,
    LargeGroup,
    Located,
    PlacedBatch,
    Position,
    Stalled,
    StartPoint,
    Xid,
)
from binlog_storage.engine.backup import BackupRequest
from binlog_storage.engine.purge import FileFate, PurgeHeld, PurgePlan
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import (
    BackupRefused,
    DiskError,
    DiskFull,
    NotAStore,
    PositionPurged,
    StorageError,
    WaitGivenUp,
)
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.redo.reader import Reaches
from binlog_storage.tables.facts import FactTables
from binlog_storage.tables.participants import RowKeeper
from binlog_storage.tables.store import ReadView, TableStep, TableStore, TableTransaction

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECENT_BYTES: Final = 8 << 20


class ClassicEngine:
    """See `binlog_storage.engine.BinlogEngine`, and there for each method that says nothing here.

    Every method may be called from any thread.

    Args:
        disk: the directory.
        background: purge by age and size in a thread. Without it the owner calls `step`.
        clock: gives seconds since 1970, for purge by age and for events.
        wait_for_room: waits for room on a full disk, its argument are seconds; by default a wait that `close` ends.
        locked: the owner has locked the directory.
        facts: the file that keeps facts beside the redo log; without it there are no tables, unless the store has some.
        row_keeper: another engine, which keeps the rows of tables whose numbers say so.
        as_it_lies: no file begins at the start, and the last one stays as it is: nothing will be appended.
    """

    def __init__(
        self,
        disk: Disk,
        options: ClassicOptions | None = None,
        *,
        background: bool = False,
        clock: Callable[[], float] = time.time,
        wait_for_room: Callable[[float], object] | None = None,
        locked: bool = False,
        facts: StateStore | None = None,
        row_keeper: RowKeeper | None = None,
        as_it_lies: bool = False,
    ) -> None:
        """Open the store in `disk`, or begin one. Raises `NotAStore`, `DamagedBinlog`, `DiskError`."""
        options = options or ClassicOptions()
        self.large_group_bytes = LARGE_GROUP_BYTES
        self._disk = disk
        self._as_it_lies = as_it_lies
        self.references = References()
        self._soundness = Soundness()
        self.references.when_opened(self._soundness.wake)
        self._patience = patience = Patience(self._soundness, wait_for_room, disk)
        self._full = patience.full
        directory = BinlogDirectory(disk, options.log_bin)
        self._files = BinlogFiles(directory, options, self._soundness, clock)
        self._log = binlog = WrittenLog(self._files, self.references, self._soundness, patience)
        self._reader = binlog.reader
        taking_away = threading.Lock()
        turns, self._behind = Turns(), WriteBehind(disk)
        self._rotation = Rotation(binlog, patience, turns, lambda: self._purging.worker)
        self._purging = Purging(binlog, patience, self._rotation, taking_away, clock)
        self._reset = Reset(binlog, patience, taking_away)
        self._turns = turns
        self._pressure = BackPressure(binlog, patience, turns, self._behind)
        self._small = SmallCommits(binlog, patience, self._rotation, self._pressure)
        self._large = LargeCommits(
            binlog, patience, self._rotation, self._small, turns, self._behind
        )
        self._two_phase = RowTwoPhase(binlog, row_keeper)
        self._xa = XaGroups(binlog, patience, self._rotation, self._large, self._two_phase)
        self._durable_end = DurableEnd(
            disk, lambda: binlog.extent, lambda: self.age, binlog.reader.head
        )
        self._soundness.subscribe(self._durable_end.moved)
        self._row_log: RowLog | None = None
        self._files.indexes.when_wanted(self._purging.worker.poke)
        self._files.when_removed = patience.catch_up
        self._full.when_freed(self._purging.worker.poke)
        if not locked:
            disk.lock(LOCK_NAME)
        try:
            if facts is not None or REDO_NAME in disk.names():
                self._row_log = RowLog(binlog, disk, options, facts, self._rotation.sync)
                binlog.rows = self._row_log
            self._open()
            patience.opened()
        except BaseException:
            if hasattr(binlog, "current"):
                binlog.current.file.close()
            self._close_rows()
            disk.close()
            raise
        if background:
            self.start()

    def start(self) -> None:
        """Start the thread that purges by age and size, that of cache files, that of the published end, and those of
        tables.
        """
        self._purging.worker.start()
        self._durable_end.worker.start()
        self._durable_end.worker.poke()
        self._behind.worker.start()
        if self._row_log is not None:
            self._rows.start()

    # --- opening ---

    def _open(self) -> None:
        directory = self._files.directory
        directory.keys = self._files.options.keys()
        names = set(self._disk.names())
        if directory.index_name not in names:
            found = sorted(name for name in names if directory.number(name) is not None)
            if found:
                raise NotAStore(
                    f"there are binlog files ({found[0]} ...), but no {directory.index_name}: write one that names "
                    "them, one a line, or move them away. The store was not opened"
                )
            directory.write_index([])
        self._files.index = directory.read_index()
        directory.work_off_note(self._files.index)
        self._reset.finish()
        prepare_folder(self._disk)
        remove_unfinished(directory, self._disk.names())
        self._log.xa = PreparedFiles(self._disk, self._files.sealing, directory.keys)
        if not self._files.index:
            self._plan_rows(lambda _: False)
            self._rotation.begin_file(BinlogState(), ())
            log.info("Starting a new binlog from %s.", directory.name(self._log.current.number))
        else:
            self._go_on()
        self._log.xa.settle(self._has, noted_again=not self._as_it_lies)
        for prepared in self._log.xa.by_xid.values():
            self._xa.keep(prepared)
        if self._row_log is not None:
            self._row_log.begin(self._two_phase.settle)
            self._rows = self._row_log.tables
            self._snapshots = self._rows.snapshots
            if self._two_phase.row_keeper is not None:
                self._rows.load(self._two_phase.row_keeper, self._row_log.redo.uuid)
            with self._log.lock:
                self._row_log.has_begun(begun=self._reset.has_begun)
            if not self._reset.has_begun:
                self._disk.unlink(self._files.directory.reset_name)
        is_encrypted = self._log.current.cipher is not None
        if self._files.options.encrypt_binlog != is_encrypted and not self._as_it_lies:
            with self._log.still():  # nothing new goes into the old file
                self._rotation.next_file(self._log.state)

    def _plan_rows(self, reaches: Reaches) -> None:
        if self._row_log is not None:
            self._row_log.plan(reaches)

    def _has(self, commitment: Commitment) -> bool:
        place = commitment.place
        if place.file_no < self._log.extent.numbers[0]:
            return True
        name = self._files.directory.name(place.file_no)
        return has_group(
            self._disk, name, place.offset, commitment.gtid, self._files.directory.keys
        )

    def _go_on(self) -> None:
        opened = survey(self._files.directory, self._files.index, self._files.options)
        self._plan_rows(reaching(self._files.directory, opened))
        self._log.state = opened.state
        self._log.last_marker = opened.last_marker
        if opened.closed_by_mariadb and not self._as_it_lies:
            self._rotation.begin_file(opened.state, opened.numbers)
        else:
            self._files.checkpoint = opened.checkpoint
            self._files.indexes.clear(opened.number)
            self._disk.fsync_dir()  # it is gone before the file changes
            self._files.indexes.go_on(opened.number, opened.index)
            if self._as_it_lies:
                file = self._disk.open(self._files.directory.name(opened.number))
                end = file.size()
            else:
                file, end = take(self._files.directory, opened), opened.end
            self._log.current = CurrentFile(
                opened.number,
                file,
                opened.head.description.checksum_algorithm,
                self._files.cipher_of(opened.number, file),
                end,
                end,
                opened.logical_end,
                opened.logical_end == FILE_START,
            )
            self._log.extent = Extent(opened.numbers, self.written_end)
        if self._files.directory.state_name in self._disk.names():
            self._disk.unlink(self._files.directory.state_name)
            self._disk.fsync_dir()
        log.info(
            "Continuing %s from position %d.",
            self._files.directory.name(self._log.current.number),
            self._log.current.end,
        )

    # --- writing ---

    @property
    def cache_bytes(self) -> int:
        return CACHE_BYTES

    @property
    def spills_to_files(self) -> bool:
        return True

    @property
    def age(self) -> int:
        return self.references.age

    def begin_age(self, age: int) -> None:
        self.references.begin_at(age)

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if gtid is None:
            return self._rotation.append_marker(payload, age)
        return self._small.append(payload, gtid, age)

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        return self._small.append_run(run, index, age)

    def begin(self, *, bulk: bool = False, tables: JoinedTables | None = None) -> ClassicGroup:
        return ClassicGroup(self._log, self._large, self._xa, self._two_phase, tables)

    def turn(self) -> AbstractContextManager[None]:
        return self._turns

    def turn_of(self, xid: Xid) -> AbstractContextManager[None] | None:
        return self._xa.turn_of(xid)

    def write_log(self) -> None:
        if self._patience.waits_long:
            self._patience.until_done(self._log.write_once)
        else:
            self._log.write_at_once()

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        self._rotation.sync(durable)

    # --- XA ---

    def prepared(self) -> list[Xid]:
        return self._xa.prepared()

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        return self._xa.commit(xid, gtid_event, gtid)

    def rollback_prepared(self, xid: Xid) -> Position:
        return self._xa.rollback(xid)

    # --- tables ---

    @property
    def has_tables(self) -> bool:
        """Whether there is a redo log beside the binlog."""
        return self._row_log is not None

    @property
    def tables(self) -> TableStore:
        """The tables, of a store that has some."""
        return self._rows.store

    @property
    def facts(self) -> FactTables:
        """What the server itself keeps, as rows of tables."""
        assert self._row_log is not None
        return self._row_log.facts

    def writer_of(self, tables: TableTransaction) -> JoinedWriter:
        """See `TableEngine`."""
        return JoinedWriter(self, tables)

    @property
    def piece_bytes(self) -> int:
        """See `AppenderWithTables`."""
        return CACHE_BYTES

    def append_with(
        self, payload: bytes, gtid: Gtid, tables: JoinedTables, age: int | None = None
    ) -> Position:
        """As `append`, and the transaction of tables commits with the group."""
        return self._small.append_ending(payload, gtid, tables.ending, age)

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
        return self._small.append_change(table, key, before, after, payload, gtid, age)

    def append_ending(
        self, payload: bytes, gtid: Gtid, ending: Callable[[], TableStep], age: int | None = None
    ) -> Position:
        """See `AppenderWithTables`."""
        return self._small.append_ending(payload, gtid, ending, age)

    @property
    def next_sync(self) -> int:
        """See `TableEngine`."""
        assert self._row_log is not None
        return self._row_log.redo.taken

    def make_row_keeper(self) -> bool:
        """See `TableEngine`."""
        return self._two_phase.make_row_keeper()

    def begin_two_phase(self, tables: TableTransaction, *, is_xa: bool = False) -> Decision:
        """See `TableEngine`."""
        return self._two_phase.begin(tables, is_xa=is_xa)

    def finish_two_phase(self, decision: Decision) -> None:
        """See `TableEngine`."""
        self._two_phase.finish(decision)

    def deciding(self, decision: Decision, tables: JoinedTables) -> TableStep:
        """See `AppenderWithTables`."""
        return self._two_phase.decided(decision, tables.ending())

    def completing_two_phase(self, xid: Xid) -> Decision | None:
        """See `TableEngine`."""
        return self._two_phase.completing(xid)

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """See `TableEngine`."""
        return self._xa.decide(decision, xid, gtid_event, gtid)

    def consistent_snapshot(self) -> tuple[ReadView, Position, BinlogState]:
        """See `TableEngine`."""
        with self._log.lock:
            return self.tables.view(), self.written_end, self._log.state.copy()

    @property
    def rows_to_undo(self) -> int:
        """See `IbbEngine`."""
        return self._rows.undoer.rows

    # --- files ---

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._rotation.flush(set(delete_domains), self.first_start, given_up)

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
        number: int = 0,
    ) -> None:
        """See `EngineAdmin`. `number`: of the new first file, if no file there has that or a higher one."""
        self._reset.reset(state, given_up, only_if_empty=only_if_empty, number=number)

    def purge_to(self, file_no: int) -> PurgePlan:
        return self._purging.purge_to(file_no)

    def purge_before(self, seconds: float) -> PurgePlan:
        return self._purging.purge_before(seconds)

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        return self._purging.explain_purge(to, before)

    def backup(self, wanted: BackupRequest) -> ClassicBackup:
        """See `BackupEngine`."""
        if self._row_log is None:
            raise BackupRefused(
                "the store has no redo log: files of somebody else are copied by hand"
            )
        return ClassicBackup(
            wanted,
            self._disk,
            self._log,
            self._row_log,
            self._row_log.file,
            self._two_phase.row_keeper,
            self.find_start,
        )

    def step(self) -> bool:
        """Do one round of the background work. Returns whether there are rows to undo."""
        self._purging.worker.step()
        self._durable_end.step()
        if self._row_log is None:
            return False
        self._snapshots.worker.step()
        return self._rows.undo_step()

    @property
    def max_binlog_size_min(self) -> int:
        return FILE_BYTES_MIN

    def set_option(self, name: str, value: int) -> None:
        with self._log.lock:
            self._files.options = dataclasses.replace(self._files.options, **{name: value})  # type: ignore[arg-type]
        self._purging.worker.poke()

    def files(self) -> list[BinlogFile]:
        return [
            BinlogFile(number, self._purging.size_of(number)) for number in self._log.extent.numbers
        ]

    file_start = FILE_START

    @property
    def log_bin(self) -> str:
        """The base name of the files."""
        return self._files.directory.base

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return self._files.directory.index_name

    def file_name(self, number: int) -> str:
        return self._files.directory.name(number)

    def file_number(self, name: str) -> int | None:
        number = self._files.directory.number(name)
        return None if number is None or self._files.directory.name(number) != name else number

    @property
    def next_write(self) -> Position:
        """The place of the next byte, behind the head of a file that has nothing else."""
        current = self._log.current
        return Position(current.number, current.end)

    def groups_of_file(
        self, file_no: int | None = None, offset: int = 0
    ) -> Iterator[Iterator[bytes]]:
        age = self.references.wait_until_open()
        extent = self._log.extent
        number = extent.numbers[0] if file_no is None else self._purging.known(file_no)
        return self._groups_of_file(number, offset, age)

    def _groups_of_file(self, number: int, offset: int, age: int) -> Iterator[Iterator[bytes]]:
        hold = self.references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", number, age)
        try:
            if number not in self._log.extent.numbers:
                raise PositionPurged("Could not find target log")
            durable = self._log.extent.durable
            limit = durable.offset if number == durable.file_no else None
            for group in self._log.reader.groups(number, FILE_START, limit, CACHE_BYTES):
                if group.begin >= offset:
                    if group.is_large:
                        yield self._log.reader.pieces(number, group.begin, group.end)
                    else:
                        yield iter([group.payload])
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
            lambda: self._log.extent.numbers[0] if start is None else start.file_no,
            dump=dump,
            slot=slot,
            ended_by=ended_by,
            holder=holder,
            wait=wait,
        )

    # --- reading ---

    def first_start(self) -> StartPoint:
        return self._in_one_age(self._log.reader.first_start)

    def find_start(self, position: SlavePosition) -> StartPoint:
        return self._in_one_age(lambda: self._log.reader.find_start(position))

    def _in_one_age(self, find: Callable[[], T]) -> T:
        """What is found, of files that no RESET MASTER took away meanwhile."""
        while True:
            age = self.references.wait_until_open()
            try:
                found = find()
            except StorageError:
                if age == self.references.age:
                    raise
                continue
            if age == self.references.age:
                return found

    def read(self, start: Position) -> GroupBatch:
        return self._log.reader.read(start, self.large_group_bytes)

    def read_placed(self, start: Position) -> PlacedBatch:
        return self._log.reader.read_placed(start, self.large_group_bytes)

    def read_stored(self, start: Position, *, with_cuts: bool = True) -> StoredBatch:
        """A batch as of `read_placed`, as it lies in its file: see `StoredFiles.read_stored`."""
        return self._log.reader.read_stored(start, self.large_group_bytes, with_cuts=with_cuts)

    def reached(self, place: Position, position: SlavePosition) -> list[tuple[int, BinlogState]]:
        """See `StoredFiles.reached`."""
        return self._log.reader.reached(place, position)

    def from_event(self, place: Position) -> tuple[Position, LargeGroup | None]:
        """See `StoredFiles.from_event`. `PositionPurged` if its file is gone."""
        return self._log.reader.from_event(place, self.large_group_bytes)

    def head(self, file_no: int) -> FileHead:
        """The head of a file. `PositionPurged` if it is gone."""
        return self._log.reader.head(file_no)

    def events_of_file(self, file_no: int, offset: int = FILE_START) -> Iterator[tuple[int, bytes]]:
        """The events of a file, up to the durable end: see `StoredFiles.events`. The file is held meanwhile.

        `PositionPurged` for a file that is gone.
        """
        hold = self.references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", file_no)
        try:
            if file_no not in self._log.extent.numbers:
                raise PositionPurged("Could not find target log")
            yield from self._log.reader.events(file_no, offset)
        finally:
            hold.release()

    def is_recent(self, start: Position) -> bool:
        durable = self._log.extent.durable
        return start.file_no == durable.file_no and durable.offset - start.offset < _RECENT_BYTES

    def locate(self, place: Position) -> Located:
        return self._log.reader.locate(place, self.large_group_bytes)

    def state_at(self, place: Position) -> BinlogState:
        return self._log.reader.state_at(place)

    # --- what there is ---

    @property
    def written_end(self) -> Position:
        current = self._log.current
        return Position(current.number, current.logical_end)

    @property
    def durable_end(self) -> Position:
        return self._log.extent.durable

    @property
    def last_marker(self) -> bytes | None:
        return self._log.last_marker

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        with self._log.lock:
            return (
                self._log.state.copy()
                if domain_id is None
                else self._log.state.of_domain(domain_id)
            )

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._soundness.subscribe(wake)

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        self._soundness.when_failed(failed)

    @property
    def has_room(self) -> bool:
        return self._pressure.has_room

    @property
    def has_room_to_spill(self) -> bool:
        return self._pressure.has_room_to_spill

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        return self._pressure.wait_for_room(timeout, to_spill=to_spill)

    def never_wait_in(self, thread: int) -> None:
        self._patience.never_wait_in(thread)
        if self._row_log is not None:
            self._row_log.never_wait_in(thread)

    def counters(self) -> Mapping[str, int]:
        redo = None if self._row_log is None else self._row_log.redo
        limited = self._files.options.max_binlog_total_size > 0
        return {
            "Binlog_disk_use": sum(file.size for file in self.files()) if limited else 0,
            "Innodb_data_fsyncs": self._log.fsyncs.count
            + (0 if redo is None else redo.fsyncs.count),
            "Innodb_data_written": self._log.bytes_written
            + (0 if redo is None else redo.bytes_written),
            "Binlog_bytes_written": self._log.bytes_written,
            "Binlog_commits": self._log.commits,
            "Binlog_group_commits": self._log.group_commits,
            **({} if self._row_log is None else self._row_log.counters()),
            "Binlog_gtid_index_hit": self._files.indexes.hits,
            "Binlog_gtid_index_miss": self._files.indexes.misses,
        }

    def stalled(self) -> list[Stalled]:
        found = stalled_workers(self._purging.worker, self._durable_end.worker)
        if (error := self._full.error) is not None:
            since = time.monotonic() - self._full.since
            found.insert(0, Stalled("room", since, str(error)))
        return found if self._row_log is None else [*found, *self._rows.stalled()]

    def purge_held(self) -> PurgeHeld | None:
        return self._purging.held

    def fsync_times(self) -> Mapping[str, Durations]:
        found = {"binlog": self._log.fsyncs}
        return found if self._row_log is None else {"redo": self._row_log.redo.fsyncs, **found}

    def stop_waiting(self) -> None:
        self._full.close()
        self._behind.wake()
        self._turns.wake()
        if self._row_log is not None:
            self._row_log.stop_waiting()

    def close(self) -> None:
        self.stop_waiting()
        self._files.indexes.stopping = True
        if self._row_log is not None:
            self._rows.close()
        self._purging.worker.stop()
        self._behind.worker.stop()
        self._durable_end.worker.stop()
        try:
            if not self._soundness.failed:
                try:
                    self.sync()
                    if self._row_log is not None:
                        self._row_log.finish()
                except (WaitGivenUp, DiskError) as error:
                    log.error("the binlog was not closed in order: %s", error)
                else:
                    with self._log.alone():
                        self._finish()
        finally:
            self._durable_end.close()
            self._log.current.file.close()
            self._close_rows()
            self._disk.close()

    def _close_rows(self) -> None:
        if self._two_phase.row_keeper is not None:
            self._two_phase.row_keeper.close()
        if self._row_log is not None:
            self._row_log.close()

    def _finish(self) -> None:
        try:
            with contextlib.suppress(DiskFull):
                current = self._log.current
                current.file.pwrite(self._files.last_event(current, None), current.end)
                current.file.fdatasync()
            self._files.indexes.close()
            self._files.directory.forget_next()
            # A MariaDB that was killed here commits what it had prepared only if it finds the flag; else it refuses to
            # start.
            if self._files.checkpoint is None:
                clear_flag(self._log.current.file)
                self._log.current.file.fdatasync()
            self._durable_end.publish()
        except DiskError as error:
            log.warning("%s", error)


_ENGINE: type[BinlogEngine] = ClassicEngine  # mypy checks the interfaces here, before a caller does
_TABLES: type[TableEngine] = ClassicEngine
