"""The store of traditional files: `BinlogEngine` over `BASE.000001` ..., readable and continued by MariaDB.

The steps of a group into the store, and the effect of a crash between them:

1. `append`, under the append lock: the group becomes events of the file, with their ends and checksums, in memory; the
   state learns its GTID. A crash forgets it.
2. `sync`: what is in memory is written to the file, and the file synced. A crash before its end leaves a torn tail,
   which opening cuts behind the last whole group; from its end on the group is kept.
3. The durable mark moves to the end that step 2 has synced. Listeners wake; only now can a reader see the group.

A new file begins when one has reached max_binlog_size, at FLUSH, and at a start marker: what is appended is synced;
`~rec~` names the new file; it is made with its whole head, synced; the old file gets its ROTATE event, synced; the
index names the new one; the old one's flag is cleared; `~rec~` goes. Before the index names it, opening deletes it;
behind that it is the last file. A start marker is the format description of its file, with a time of creation, as
MariaDB's are: in a file without groups it takes the place of the one that is there.

A large group: its cache file is written to its end and synced, without a lock; then a new file begins, but what takes
its name is the cache file, its head and GTID event written into what was reserved for them. When the index names it,
the group is durable. One that is copied is written behind the end of the file, without a lock either; what is appended
waits for its end, what is in front of it can be synced.

A purge: `~rec~` names the files, the index forgets them, they are deleted, `~rec~` goes: a crash leaves them all, or
opening deletes the rest. RESET MASTER makes the new first file under another name before anything goes.

A store with tables has a redo log beside the binlog: `row_log.py` has the steps of a group with rows.

Locks, in this order: that of purges, of syncs, of writes, the append lock, that of the index. Readers take none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from binlog_protocol.events.checksum import laid_out_events
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.binlog.appender import STEP_BYTES, JoinedTables
from binlog_storage.binlog.decision import Decision, tell, xa_name
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.joined_writer import JoinedWriter
from binlog_storage.binlog.stored_tables import StoredTables, TableEngine
from binlog_storage.binlog.worker import Worker
from binlog_storage.classic.binlog import FileHead
from binlog_storage.classic.directory import LOCK_NAME, BinlogDirectory
from binlog_storage.classic.encryption import CountedFile, EventCipher, Keys, of_file
from binlog_storage.classic.file_indexes import FileIndexes, remove_unfinished
from binlog_storage.classic.opening import has_group, reaching, survey, take
from binlog_storage.classic.options import FILE_BYTES_MIN, ClassicOptions
from binlog_storage.classic.row_log import RowDeciding, RowLog
from binlog_storage.classic.spool import CACHE_FOLDER, CacheFile, Spool, SpoolMark, prepare_folder
from binlog_storage.classic.stored_files import Extent, StoredBatch, StoredFiles
from binlog_storage.classic.write_behind import WriteBehind
from binlog_storage.classic.writing import (
    FILE_START,
    FLAG_AT,
    description_laid_out,
    file_head,
    padded,
    pieces_laid_out,
    rotate_event,
    stop_event,
)
from binlog_storage.classic.xa_files import Commitment, PreparedFile, PreparedFiles
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.durations import Durations
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import (
    LARGE_GROUP_BYTES,
    BinlogEngine,
    BinlogFile,
    GroupBatch,
    GroupMark,
    LargeGroup,
    Located,
    PlacedBatch,
    Position,
    Stalled,
    StartPoint,
    Xid,
    purge,
)
from binlog_storage.engine.purge import FileFacts, FileFate, PurgeHeld, PurgePlan, Wanted
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import (
    BinlogHasGtids,
    DiskError,
    DiskFull,
    DomainInUse,
    FileMissing,
    NoRoom,
    NotAStore,
    OtherFileSystem,
    PositionPurged,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
    UnknownBinlog,
    WaitGivenUp,
    XaStateError,
)
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.redo.log import AppendLock
from binlog_storage.redo.reader import Reaches
from binlog_storage.tables.facts import FactTables
from binlog_storage.tables.participants import RowKeeper
from binlog_storage.tables.records import CHANGE_BYTES, SMALL_BYTES
from binlog_storage.tables.store import ReadView, TableStep, TableStore, TableTransaction

log = logging.getLogger(__name__)

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

_CACHE_BYTES: Final = 1 << 20  # of a group in one piece
_BUFFER_BYTES: Final = 1 << 20  # appended and not written: handed to the operating system beyond it
_BUFFER_MAX: Final = 16 << 20  # the same on a full disk: appends wait then
_RUN_S: Final = 0.001
_RECENT_BYTES: Final = 8 << 20
_LONG_WAIT_S: Final = 0.5
_NO_FILE: Final = 1 << 62  # of holds that keep no file: open groups do not lie in the binlog here
_LIMITS_S: Final = 60.0
_GTID_ROOM: Final = (
    2048  # reserved for a GTID event, and for GTIDs that the list has more until the commit
)
_BLOCK_BYTES: Final = 4096


@dataclass(slots=True)
class _Current:
    """The file that is written.

    head_end: the offset behind its head.
    cipher: of its events, if it is encrypted.
    written: up to there it was handed to the operating system; what follows, up to `end`, is in memory.
    logical_end: where readers stop.
    is_empty: neither a group nor a marker is in it.
    """

    number: int
    file: File
    checksum_algorithm: int
    cipher: EventCipher | None
    written: int
    end: int
    logical_end: int
    is_empty: bool

    def sealed(self, data: bytes, begin: int) -> bytes:
        """Events as they lie in the file from an offset on."""
        return data if self.cipher is None else self.cipher.sealed(data, begin)


class _NewFile(NamedTuple):
    """How the next file gets its name: `make` gives it, and the end of what is in it; `unmake` undoes that.

    decide: called right before the index names it; behind that nothing is undone.
    """

    make: Callable[[], tuple[File, int]]
    unmake: Callable[[File], None]
    decide: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """A large group that is to be appended.

    age: of the binlog; None for any.
    given_up: ends waits for room.
    ending: under the locks, the end of the transaction of tables that commits with it.
    prepared: the XA transaction that it commits.
    """

    gtid_event: bytes
    gtid: Gtid
    age: int | None
    given_up: Callable[[], bool]
    ending: Callable[[], TableStep] | None = None
    prepared: PreparedFile | None = None

    def step(self) -> TableStep | None:
        """The end of its rows, if it has some."""
        return None if self.ending is None else self.ending()


class Turns:
    """Counts the commits under way that take long: those inside of `with`. From any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self.count = 0

    def __enter__(self) -> None:
        with self._changed:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait(self, timeout: float | None, ended: Callable[[], bool]) -> None:
        """Wait until there are none, for so many seconds, or until `ended`, which `wake` lets it ask again."""
        with self._changed:
            self._changed.wait_for(lambda: not self.count or ended(), timeout)

    def wake(self) -> None:
        """Let who waits ask again whether that has ended."""
        with self._changed:
            self._changed.notify_all()


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
    ) -> None:
        """Open the store in `disk`, or begin one. Raises `NotAStore`, `DamagedBinlog`, `DiskError`."""
        self._options = options or ClassicOptions()
        self.large_group_bytes = LARGE_GROUP_BYTES
        self._disk = disk
        self._clock = clock
        self._directory = BinlogDirectory(disk, self._options.log_bin)
        self._syncing = threading.Lock()
        self._writing = threading.RLock()
        self._lock = threading.RLock()
        self._copied = threading.Condition(self._lock)
        self._copying = False  # a large group, to the end of the file: nothing else is appended
        self._turns = Turns()
        self._purging = threading.Lock()
        self._indexing = threading.Lock()  # held while files get or lose their names
        self._extending = threading.Lock()
        self._index: list[int] = []
        self._checkpoint: int | None = None  # the file that heads name, if it is not their own
        self.references = References()
        self._soundness = Soundness()
        self.references.when_opened(self._soundness.wake)
        self._full = FullDisk(wait_for_room)
        self._buffer = bytearray()
        self._state = BinlogState()
        self._last_marker: bytes | None = None
        self._ended: list[PreparedFile] = []  # of appended groups: they go at the next sync
        self._spools = itertools.count(1)
        self._behind = WriteBehind(disk)
        self._never_wait = -1
        self._fsyncs = Durations()
        self._commits = self._group_commits = self._bytes_written = 0
        self._rotation_due = False
        self._completing: set[Xid] = set()  # prepared transactions that are being committed
        self._held: PurgeHeld | None = None
        self._told: tuple[int, str] | None = None
        self._indexes = FileIndexes(
            self._directory, lambda: self._options, self._indexing, lambda: self._index
        )
        self._reader = StoredFiles(self._directory, lambda: self._extent, self._indexes)
        self._worker = Worker("binlog-caretaker", self._take_care, retry_s=_LIMITS_S)
        self._row_log: RowLog | None = None
        self.row_keeper = row_keeper
        self._has_begun = True  # a RESET MASTER, if one was at work
        self._indexes.when_wanted(self._worker.poke)
        if not locked:
            disk.lock(LOCK_NAME)
        try:
            if facts is not None or REDO_NAME in disk.names():
                self._row_log = RowLog(self, disk, self._options, facts)
            self._open()
        except BaseException:
            if hasattr(self, "_current"):
                self._current.file.close()
            self._close_rows()
            disk.close()
            raise
        if background:
            self.start()

    def start(self) -> None:
        """Start the thread that purges by age and size, that of cache files, and those of tables."""
        self._worker.start()
        self._behind.worker.start()
        if self._row_log is not None:
            self._rows.start()

    # --- opening ---

    def _open(self) -> None:
        directory = self._directory
        directory.keys = self._options.keys()
        names = set(self._disk.names())
        if directory.index_name not in names:
            found = sorted(name for name in names if directory.number(name) is not None)
            if found:
                raise NotAStore(
                    f"there are binlog files ({found[0]} ...), but no {directory.index_name}: write one that names "
                    "them, one a line, or move them away. The store was not opened"
                )
            directory.write_index([])
        self._index = directory.read_index()
        directory.work_off_note(self._index)
        self._finish_reset()
        prepare_folder(self._disk)
        remove_unfinished(directory, self._disk.names())
        self._xa = PreparedFiles(self._disk, self._sealing, directory.keys)
        if not self._index:
            self._plan_rows(lambda _: False)
            self._begin_file(BinlogState(), ())
            log.info("Starting a new binlog from %s.", directory.name(self._current.number))
        else:
            self._go_on()
        self._xa.settle(self._has)
        for prepared in self._xa.by_xid.values():
            self._keep(prepared)
        if self._row_log is not None:
            self._row_log.begin(self._settle_rows)
            self._rows = self._row_log.tables
            self._snapshots = self._rows.snapshots
            if self.row_keeper is not None:
                self._rows.load(self.row_keeper, self._row_log.redo.uuid)
            with self._lock:
                self._row_log.has_begun(begun=self._has_begun)
            if not self._has_begun:
                self._disk.unlink(self._directory.reset_name)
        if self._options.encrypt_binlog != (self._current.cipher is not None):
            with self._syncing, self._writing, self._lock:  # nothing new goes into the old file
                self._next_file(self._state, self._description())

    def _plan_rows(self, reaches: Reaches) -> None:
        if self._row_log is not None:
            self._row_log.plan(reaches)

    def _settle_rows(self, rows: StoredTables) -> bool:
        """Undo what the binlog does not have prepared, or not everybody. Returns whether the log got records."""
        store, keeper, row_log = rows.store, self.row_keeper, self._row_log
        assert row_log is not None
        elsewhere: set[Xid] = set()
        if keeper is not None:
            keeper.require_fits(row_log.redo.uuid, store.kept_elsewhere)
            elsewhere = set(keeper.recover())
        ended = False
        for xid, trx in list(store.prepared.items()):
            prepared = self._xa.by_xid.get(xid)
            if prepared is None:
                log.warning(
                    "the binlog does not know the prepared XA transaction %s: it is rolled back",
                    xid,
                )
            elif trx.engines > 1 and xa_name(row_log.redo.uuid, trx.id) not in elsewhere:
                log.warning("XA transaction %s is not prepared everywhere: it is rolled back", xid)
                self._xa.remove(prepared)
                self._disk.fsync_dir()
                self._forget_prepared(prepared)
            else:
                continue
            store.revive(trx)
            ended = True
        return (keeper is not None and row_log.settle(keeper)) or ended

    def _has(self, commitment: Commitment) -> bool:
        place = commitment.place
        if place.file_no < self._extent.numbers[0]:
            return True
        name = self._directory.name(place.file_no)
        return has_group(self._disk, name, place.offset, commitment.gtid, self._directory.keys)

    def _finish_reset(self) -> None:
        """Go on with a RESET MASTER that was at work: the old files are gone, the new first one is whole."""
        directory = self._directory
        names = set(self._disk.names())
        if directory.reset_name not in names:
            return
        if self._index and directory.name(self._index[-1]) in names:
            self._has_begun = False
            if self._row_log is None:
                self._disk.unlink(directory.reset_name)
            return
        if not self._index:
            self._index = [directory.next_number(names)]
            directory.write_index(self._index)
        self._disk.rename(directory.reset_name, directory.name(self._index[-1]))
        self._disk.fsync_dir()

    def _begin_file(self, state: BinlogState, before: tuple[int, ...]) -> None:
        """Make the next file, with nothing to close."""
        number = self._directory.next_number(self._disk.names())
        file, end = self._named_file(number, self._empty_file(number, state, self._description()))
        self._directory.end_note()
        self._enter(number, file, end, (*before, number))

    def _go_on(self) -> None:
        opened = survey(self._directory, self._index, self._options)
        self._plan_rows(reaching(self._directory, opened))
        self._state = opened.state
        self._last_marker = opened.last_marker
        if opened.closed_by_mariadb:
            self._begin_file(opened.state, opened.numbers)
        else:
            self._checkpoint = opened.checkpoint
            self._indexes.clear(opened.number)
            self._disk.fsync_dir()  # it is gone before the file changes
            self._indexes.go_on(opened.number, opened.index)
            file = take(self._directory, opened)
            self._current = _Current(
                opened.number,
                file,
                opened.head.description.checksum_algorithm,
                self._cipher_of(opened.number, file),
                opened.end,
                opened.end,
                opened.logical_end,
                opened.logical_end == FILE_START,
            )
            self._extent = Extent(opened.numbers, self.written_end)
        if self._directory.state_name in self._disk.names():
            self._disk.unlink(self._directory.state_name)
            self._disk.fsync_dir()
        log.info(
            "Continuing %s from position %d.",
            self._directory.name(self._current.number),
            self._current.end,
        )

    def _cipher_of(self, number: int, file: File) -> EventCipher | None:
        return of_file(self._directory.keys, Path(self._directory.name(number)), file)

    @property
    def _sealing(self) -> Keys | None:
        """The keys, if what is written is encrypted."""
        return self._directory.keys if self._options.encrypt_binlog else None

    def _description(self) -> FormatDescription:
        options = self._options
        return FormatDescription(options.server_version, options.server_id, timestamp=self._now())

    def _now(self) -> int:
        return int(self._clock()) & 0xFFFFFFFF

    def _named_file(
        self, number: int, new: _NewFile, old: _Current | None = None
    ) -> tuple[File, int]:
        """A new file, durable, and named by the index; it is noted still. Returns the end of what is in it.

        `old`: the file before, which gets its ROTATE event in front of the index: a torn one is cut off at a start, if
        its file is still the last.
        """
        directory, is_decided = self._directory, False

        def decide() -> None:
            nonlocal is_decided
            if new.decide is not None:
                new.decide()
                is_decided = True

        with self._indexing:
            try:
                directory.note([number])
                self._indexes.clear(number)
                file, end = new.make()
                try:
                    self._disk.fsync_dir()
                    if old is not None:
                        self._write_last(old, number)
                    directory.write_index([*self._index, number], decide)
                except BaseException as error:
                    if (
                        is_decided
                    ):  # it cannot be taken back: the next start finds what the index says
                        raise DiskError(str(error)) from error
                    with self._failing():
                        new.unmake(file)
                        if old is not None:
                            old.file.truncate(old.end)
                    raise
            except (DiskFull, TooManyOpenFiles, OtherFileSystem):
                with contextlib.suppress(DiskError):
                    directory.end_note()
                raise
            self._index.append(number)
        return file, end

    def _empty_file(
        self, number: int, state: BinlogState, description: FormatDescription
    ) -> _NewFile:
        name = self._directory.name(number)

        def unmake(file: File) -> None:
            file.close()
            self._disk.unlink(name)

        return _NewFile(lambda: self._new_file(name, number, state, description), unmake)

    def _head(self, number: int, state: BinlogState, description: FormatDescription) -> bytes:
        algorithm = self._options.binlog_checksum
        checkpoint = self._directory.name(self._checkpoint or number)
        sealing, start = self._sealing, b""
        if sealing is not None:
            start = sealing.start_event(description.server_id, description.timestamp)
        head = file_head(description, state.entries(), checkpoint, algorithm, start)
        return head if sealing is None else sealing.sealed_head(head)

    def _new_file(
        self, name: str, number: int, state: BinlogState, description: FormatDescription
    ) -> tuple[File, int]:
        """A file with its head, synced. Returns the end of the head."""
        head = self._head(number, state, description)
        file = self._disk.open(name, create=True)
        try:
            file.pwrite(head, 0)
            file.fdatasync()
        except BaseException:
            file.close()
            with contextlib.suppress(DiskError):
                self._disk.unlink(name)
            raise
        return file, len(head)

    def _enter(
        self,
        number: int,
        file: File,
        end: int,
        numbers: tuple[int, ...],
        logical_end: int = FILE_START,
    ) -> None:
        """Go on in a new file. `logical_end`: where readers stop; it has only its head, if that is `FILE_START`."""
        algorithm = self._options.binlog_checksum
        cipher = self._cipher_of(number, file)
        is_empty = logical_end == FILE_START
        self._current = _Current(number, file, algorithm, cipher, end, end, logical_end, is_empty)
        self._extent = Extent(numbers, Position(number, logical_end))
        self._rotation_due = False
        self._indexes.begin(number, self._reader.head)

    # --- writing ---

    @property
    def cache_bytes(self) -> int:
        return _CACHE_BYTES

    @property
    def age(self) -> int:
        return self.references.age

    def begin_age(self, age: int) -> None:
        self.references.begin_at(age)

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if gtid is None:
            return self._append_marker(payload, age)
        self._wait_while_full()
        self._rotate_if_due()
        with self._lock:
            self._admit(age)
            end = self._put(payload, gtid)
        self._write_if_much()
        return end

    def _put(self, payload: bytes, gtid: Gtid) -> Position:
        """A group, in memory. Under the append lock."""
        current = self._current
        data = laid_out_events(payload, current.end, current.checksum_algorithm)
        data = current.sealed(data, current.end)
        self._buffer += data
        return self._note_group(len(data), gtid)

    def _write_if_much(self) -> None:
        rows = self._row_log
        # In front of groups with rows the redo log is synced, which is better left to a sync.
        must_sync = rows is not None and rows.group_lsn > rows.redo.durable_lsn
        if len(self._buffer) > (_BUFFER_MAX // 2 if must_sync else _BUFFER_BYTES):
            self._write_some()

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        self._rotate_if_due()
        until = time.monotonic() + _RUN_S
        while index < len(run) and self.has_room:
            payload = run.payload(index)
            if len(payload) > _CACHE_BYTES:
                break
            self.append(payload, run.gtid(index), age)
            index += 1
            if time.monotonic() > until:
                break
        return index

    def _admit(self, age: int | None) -> None:
        """Under the append lock, which is given back while a large group is being copied."""
        if self._copying:
            self._wait_for_copy()
        self._soundness.require_sound()
        self.references.require_age(age)

    def _admit_with_rows(self, size: int, age: int | None) -> None:
        """The same, with room for so many bytes of the redo log."""
        assert self._row_log is not None
        self._row_log.admit(size)
        while self._copying:  # it takes of that room
            self._wait_for_copy()
            self._row_log.admit(size)
        self._admit(age)

    def _wait_for_copy(self) -> None:
        """Without other locks than that of appends. Raises `WaitGivenUp` in a thread that must not wait."""
        with self._copied:
            timeout = None if threading.get_ident() != self._never_wait else _LONG_WAIT_S
            if not self._copied.wait_for(lambda: not self._copying, timeout):
                raise WaitGivenUp("a large group is being copied into the binlog")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The locks of syncs, writes and appends, while no group is being copied."""
        while True:
            with self._syncing, self._writing, self._lock:
                if not self._copying:
                    yield
                    return
            self._wait_for_copy()

    def turn(self) -> AbstractContextManager[None]:
        """`has_room` is false inside of it: see `GroupWriter.turn`."""
        return self._turns

    def turn_of(self, xid: Xid) -> AbstractContextManager[None] | None:
        """See `EngineWriter`."""
        with self._lock:
            prepared = self._xa.by_xid.get(xid)
        return None if prepared is None or prepared.size <= _CACHE_BYTES else self.turn()

    def _note_group(self, size: int, gtid: Gtid) -> Position:
        """Note that a group of so many bytes is behind the end. Under the append lock."""
        current = self._current
        current.end += size
        current.logical_end = current.end
        current.is_empty = False
        self._state.update(gtid)
        self._indexes.add(current.end, gtid)
        self._last_marker = None
        self._commits += 1
        self._bytes_written += size
        if current.end >= self._options.max_binlog_size:
            self._rotation_due = True
        return Position(current.number, current.end)

    def _write_some(self) -> None:
        """Write what is more than is wanted in memory. What fails here fails at the sync, which says so."""
        tries = self._full.tries
        try:
            self._full.require_time()
            self.write_log_once()
        except DiskFull as error:
            self._note_full(error, tries)
        except DiskError as error:
            log.warning("%s", error)

    def _rotate_if_due(self) -> None:
        """Begin a new file behind one that is long enough: behind a sync, or in front of the next group. Without locks.

        While that cannot be, the binlog goes on in the file that it has.
        """
        if not self._rotation_due or (self._full.error is not None and self._full.retry_s):
            return
        tries = self._full.tries
        try:
            with self._syncing, self._writing, self._lock:
                if self._rotation_due and not self._soundness.failed and not self._copying:
                    self._next_file(self._state, self._description())
            self._soundness.wake()
        except DiskFull as error:
            self._note_full(error, tries)
        except DiskError as error:
            log.warning("%s: the binlog goes on beyond max_binlog_size", error)

    def _append_marker(self, payload: bytes, age: int | None) -> Position:
        description = FormatDescription.parse(payload)
        if not description.created:
            raise ValueError("a start marker has a time of creation")

        def marked() -> Position:
            with self._alone():
                self._admit(age)
                if not self._current.is_empty:
                    self._next_file(self._state, description)
                current = self._current
                event = description_laid_out(description, current.checksum_algorithm)
                self._write(current.file, event, FILE_START)
                with self._failing():
                    current.file.fdatasync()  # in front of all that follows
                self._reader.forget_head(current.number)
                current.is_empty = False
                current.logical_end = FILE_START + len(event)
                self._last_marker = payload
                return self.written_end

        end = self._patiently(marked)
        self._soundness.wake()
        return end

    def begin(self, *, bulk: bool = False, tables: JoinedTables | None = None) -> ClassicGroup:
        return ClassicGroup(self, tables)

    def new_spool(self) -> Spool:
        """For an open group."""
        algorithm = self._options.binlog_checksum
        encrypted = None if self._sealing is None else CountedFile.temporary
        return Spool(self._disk, algorithm, self._new_cache_file, self._behind, encrypted)

    def _new_cache_file(self) -> CacheFile:
        """With room for the head of the next file as it would be now, and a little more."""
        with self._lock:
            head = self._head(self._current.number + 1, self._state, self._description())
        reserved = -(-(len(head) + _GTID_ROOM) // _BLOCK_BYTES) * _BLOCK_BYTES
        return CacheFile(f"{CACHE_FOLDER}/ML_{next(self._spools)}", reserved)

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""
        self._soundness.require_sound()

    def spill(self, spool: Spool, data: Buffer, given_up: Callable[[], bool]) -> None:
        """Add to an open group; waits for room. Raises `WaitGivenUp`."""
        self._patiently(lambda: spool.add(data), given_up)

    def append_spools(
        self,
        gtid_event: bytes,
        gtid: Gtid,
        spools: Sequence[Spool],
        age: int | None,
        given_up: Callable[[], bool],
        ending: Callable[[], TableStep] | None = None,
    ) -> Position:
        """Append the group of a GTID event and what these hold. A large one is durable when it returns, if it was
        renamed.

        ending: under the locks, the end of the transaction of tables that commits with it.
        Raises `WaitGivenUp` if `given_up` returns True while the disk is full: nothing was appended.
        """
        self._soundness.require_sound()
        for spool in spools:
            spool.require_whole()
        group = _Group(gtid_event, gtid, age, given_up, ending)
        if len(spools) == 1 and self.may_rename(spools[0]):
            end = self._rename(group, spools[0])
            if end is not None:
                return end
        if len(gtid_event) + sum(map(len, spools)) <= _CACHE_BYTES:
            payload = gtid_event + b"".join(itertools.chain(*(spool.plain() for spool in spools)))
            if ending is None:
                return self.append(payload, gtid, age)
            return self.append_ending(payload, gtid, ending, age)
        self._rotate_if_due()
        return self._copy(
            group, lambda: itertools.chain([gtid_event], *(spool.plain() for spool in spools))
        )

    def may_rename(self, spool: Spool) -> bool:
        """Whether its file is to become the next binlog file."""
        return (
            spool.is_one_file
            and self._may_rename(spool.body_size)
            and spool.checksum_algorithm == self._options.binlog_checksum
        )

    def _may_rename(self, size: int) -> bool:
        return self._sealing is None and size >= self._options.binlog_large_commit_threshold

    def seal(self, spool: Spool, given_up: Callable[[], bool]) -> int:
        """See `Spool.seal`; waits for room. Raises `WaitGivenUp`."""
        return self._patiently(spool.seal, given_up)

    def _rename(self, group: _Group, spool: Spool) -> Position | None:
        """Let the file of a large group be the next binlog file. None if it has to be copied."""
        end = self.seal(spool, group.given_up)

        def renamed() -> Position | None:
            self._admit_step(with_tables=group.ending is not None)
            directory = self._directory
            with (
                self._indexing
            ):  # ahead of the locks; it is noted again if another file takes the number
                directory.note([directory.next_number(self._disk.names())])
            with self._alone():
                self._admit(group.age)
                place = self._adopt(group, spool, end)
                if place is None:
                    with self._indexing:
                        directory.end_note()
                return place

        try:
            place = self._patiently(renamed, group.given_up)
        except OtherFileSystem as error:
            log.warning("%s: the group is copied", error)
            return None
        if place is not None:
            self._soundness.wake()
        return place

    def _adopt(self, group: _Group, spool: Spool, end: int) -> Position | None:
        """The same, under the locks of syncs, writes, appends. The file is durable but for what is reserved."""
        disk, number = self._disk, self._directory.next_number(self._disk.names())
        name, description = self._directory.name(number), self._description()
        head = self._head(number, self._state, description)
        algorithm = spool.checksum_algorithm
        event = padded(group.gtid_event, len(head), spool.reserved, algorithm)
        if event is None or algorithm != self._options.binlog_checksum:
            log.info(
                "Could not rename binlog cache to binlog: required %d bytes, reserved are %d",
                len(head) + len(group.gtid_event),
                spool.reserved,
            )
            return None

        def make() -> tuple[File, int]:
            spool.file.pwrite(head + event, 0)
            spool.file.fdatasync()
            try:
                self._note_commitment(group, Position(number, len(head)))
                disk.rename(spool.name, name)
            except BaseException:
                with self._failing():
                    self._note_commitment(group, None)
                raise
            return spool.file, end

        def unmake(file: File) -> None:
            disk.rename(name, spool.name)
            self._note_commitment(group, None)

        def decide() -> None:
            step = group.step()
            self._log_step(step, Position(number, end))
            if step is not None and self._row_log is not None:
                self._row_log.flush()

        new = _NewFile(make, unmake, None if group.ending is None else decide)
        self._next_file(self._state, description, new, logical_end=end)
        spool.give_file()
        if group.prepared is not None:
            self._commits_prepared(group.prepared)
        place = self._note_group(0, group.gtid)  # it is in the file already
        self._bytes_written += end - len(head)
        self._group_commits += 1
        log.info("Renamed binlog cache to binlog %s", name)
        return place

    def _note_commitment(self, group: _Group, place: Position | None) -> None:
        """Note durably where the group of a prepared transaction is being written; None for nowhere."""
        if group.prepared is not None:
            commitment = None if place is None else Commitment(place, group.gtid)
            self._xa.note(group.prepared, commitment)

    def _copy(self, group: _Group, plain: Callable[[], Iterable[bytes]]) -> Position:
        """Append a group of pieces in normal form at the end of the file, waiting for room. Without locks."""
        return self._patiently(lambda: self._copied_once(group, plain()), group.given_up)

    def _copied_once(self, group: _Group, plain: Iterable[bytes]) -> Position:
        """The same, once. Its bytes are written without locks: others wait for its end before they append, and a sync
        makes durable what is in front of it.
        """
        with self._alone():
            self._admit(group.age)
            self._write_out()
            current, begin = self._current, self._current.end
            self._copying = True
        try:
            with self.turn():
                try:
                    self._note_commitment(group, Position(current.number, begin))
                    return self._copied_behind(group, plain, current)
                except BaseException as error:
                    with self._failing():
                        if isinstance(error, DiskError) and not isinstance(error, DiskFull):
                            raise
                        current.file.truncate(begin)
                        self._note_commitment(group, None)
                    raise
        finally:
            with self._copied:
                self._copying = False
                self._copied.notify_all()

    def _copied_behind(self, group: _Group, plain: Iterable[bytes], current: _Current) -> Position:
        """The last piece is written under the locks: with tables behind a sync of the redo log, over zeros that have
        kept its room.

        Each event is given its end: what waits has none, and a replica that reads by file and wants no ANNOTATE_ROWS
        events counts its place wrong between events without ends.
        """
        begin = at = last_at = current.end
        file, last, rows = current.file, b"", self._row_log
        for data in pieces_laid_out(plain, begin, current.checksum_algorithm):
            file.pwrite(last, last_at)
            file.start_writing(len(last), last_at)
            last, last_at = current.sealed(data, at), at
            at += len(last)
        self._admit_step(with_tables=group.ending is not None)
        with self._writing, self._lock:
            self._soundness.require_sound()
            if rows is None:
                file.pwrite(last, last_at)
            else:
                file.pwrite(bytes(len(last)), last_at)
                self._log_step(group.step(), Position(current.number, at))
                rows.flush()
                with self._failing():
                    file.pwrite(last, last_at)
            current.written = at
            if group.prepared is not None:
                self._commits_prepared(group.prepared)
            return self._note_group(at - begin, group.gtid)

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
        return _CACHE_BYTES

    def append_with(
        self, payload: bytes, gtid: Gtid, tables: JoinedTables, age: int | None = None
    ) -> Position:
        """As `append`, and the transaction of tables commits with the group."""
        return self.append_ending(payload, gtid, tables.ending, age)

    def append_ending(
        self, payload: bytes, gtid: Gtid, ending: Callable[[], TableStep], age: int | None = None
    ) -> Position:
        """The same: `ending` is called under the append lock."""
        self._wait_while_full()
        self._rotate_if_due()
        with self._lock:
            self._admit_with_rows(STEP_BYTES, age)
            step = ending()
            end = self._put(payload, gtid)
            self._log_step(step, end)
        self._write_if_much()
        return end

    def append_change(
        self,
        payload: bytes,
        gtid: Gtid,
        table: int,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        age: int | None = None,
    ) -> Position | None:
        """See `TableEngine`."""
        if len(payload) > _CACHE_BYTES:
            return None
        store = self._rows.store
        self._wait_while_full()
        self._rotate_if_due()
        with self._lock:
            size = CHANGE_BYTES + len(key) + len(before or b"") + len(after or b"")
            self._admit_with_rows(STEP_BYTES + size, age)
            with store.latch:
                step = store.at_once(table, key, before, after)
                if step is None:
                    return None
                end = self._put(payload, gtid)
                self._log_step(step, end)
        self._write_if_much()
        return end

    def _admit_step(self, *, with_tables: bool) -> None:
        """Wait for room for the end of a transaction. Without locks: who waits gives that of appends back once."""
        if with_tables:
            assert self._row_log is not None
            with self._lock:
                self._row_log.admit(STEP_BYTES)

    def _log_step(self, step: TableStep | None, end: Position) -> None:
        """End a transaction of tables with a group that ends there. Under the append lock."""
        if step is None:
            return
        if step.record:
            assert self._row_log is not None
            self._row_log.log_with(step.record, end)
        step.done()

    @property
    def next_sync(self) -> int:
        """See `TableEngine`."""
        assert self._row_log is not None
        return self._row_log.redo.taken

    def make_row_keeper(self) -> bool:
        """See `TableEngine`."""
        if self.row_keeper is None or self._row_log is None:
            return False
        self.row_keeper.create(self._row_log.redo.uuid)
        return True

    def begin_two_phase(self, tables: TableTransaction, *, is_xa: bool = False) -> Decision:
        """See `TableEngine`."""
        assert self.row_keeper is not None
        assert self._row_log is not None
        part = self.row_keeper.part(tables.changes_elsewhere())
        name = xa_name(self._row_log.redo.uuid, tables.id) if is_xa else None
        decision = RowDeciding(self._row_log).begin((part,), name)
        tables.ready(prepared=True)
        return decision

    def finish_two_phase(self, decision: Decision) -> None:
        """See `TableEngine`."""
        assert self._row_log is not None
        RowDeciding(self._row_log).finish(decision)

    def deciding(self, decision: Decision, tables: JoinedTables) -> TableStep:
        """The end of a transaction of which other engines have a part. Under the append lock, right before its group is
        appended."""
        return self._decided(decision, tables.ending())

    def _decided(self, decision: Decision, end: TableStep) -> TableStep:
        assert self._row_log is not None
        ending = self._row_log.decision(decision.xid, end)

        def done() -> None:
            ending.done()
            name = decision.xid.sql()
            decision.hold = self.references.hold(Reason.PREPARED_XA, name, _NO_FILE)

        return TableStep(ending.record, done)

    def consistent_snapshot(self) -> tuple[ReadView, Position, BinlogState]:
        """See `TableEngine`."""
        with self._lock:
            return self.tables.view(), self.written_end, self._state.copy()

    @property
    def rows_to_undo(self) -> int:
        """See `IbbEngine`."""
        return self._rows.undoer.rows

    # --- for the redo log beside it: see `Beside` ---

    @property
    def append_lock(self) -> AppendLock:
        """See `Beside`."""
        return self._lock

    @property
    def write_lock(self) -> AppendLock:
        """See `Beside`."""
        return self._writing

    @property
    def appended_end(self) -> Position:
        """See `Beside`."""
        return Position(self._current.number, self._current.end)

    @property
    def is_pending(self) -> bool:
        """See `Beside`."""
        return self.written_end != self._extent.durable

    @property
    def why_stuck(self) -> DiskFull | None:
        """See `Beside`."""
        return self._full.error if self.is_pending else None

    @property
    def failed(self) -> bool:
        """See `Beside`."""
        return self._soundness.failed

    def fail(self, error: StorageError) -> None:
        """See `Beside`."""
        self._soundness.fail(error)

    # --- durability ---

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """What fails in here ends the store."""
        try:
            yield
        except DiskError as error:
            self._soundness.fail(error)
            raise

    def _note_full(self, error: DiskFull, tries: int) -> None:
        if not isinstance(error, NoRoom):  # of which it is known
            self._full.met(error, tries)

    def _patiently(self, work: Callable[[], T], given_up: Callable[[], bool] = lambda: False) -> T:
        """Do it, again and again while the disk is full. Raises `WaitGivenUp` if `given_up` returns True, or the store
        is being closed.
        """
        waits_long = threading.get_ident() != self._never_wait
        began = time.monotonic()
        while True:
            tries = self._full.tries
            try:
                self._full.require_time()
                done = work()
            except DiskFull as error:
                if self._soundness.failed:
                    raise
                self._note_full(error, tries)
            else:
                self._full.passed()
                return done
            try:
                self._full.wait(
                    lambda: (
                        given_up() or not (waits_long or time.monotonic() - began < _LONG_WAIT_S)
                    )
                )
            except NoRoom as error:
                raise WaitGivenUp(str(error)) from None

    def _wait_while_full(self) -> None:
        """While too much is in memory, which could not be written."""
        while len(self._buffer) > _BUFFER_MAX and not self._soundness.failed:
            self._patiently(self.write_log_once)

    def write_log_once(self) -> None:
        """Hand what is in memory to the operating system. Raises `DiskError`."""
        with self._writing:
            self._write_out()

    def _write_out(self, *, sync_rows: bool = False) -> tuple[_Current, Position, int]:
        """Hand what is in memory to the operating system. Returns the file, the end of what was handed over, and the
        LSN of the redo log there. Under the lock of writes.

        sync_rows: sync the redo log, also if no group needs that.
        """
        rows = self._row_log
        with self._lock:
            self._soundness.require_sound()
            current, end, data = self._current, self.written_end, bytes(self._buffer)
            lsn = 0 if rows is None else rows.redo.lsn
            wanted = rows is not None and rows.group_lsn > rows.redo.durable_lsn
        if rows is not None and (sync_rows or (data and wanted)):
            rows.flush()
        if data:
            self._write(current.file, data, current.written)
            with self._lock:
                del self._buffer[: len(data)]
                current.written += len(data)
            self._indexes.write()
        return current, end, lsn

    def _write(self, file: File, data: bytes, offset: int) -> None:
        """Write; what fails but for room ends the store."""
        try:
            file.pwrite(data, offset)
        except DiskFull:
            raise
        except DiskError as error:
            self._soundness.fail(error)
            raise

    def write_log(self) -> None:
        self._patiently(self.write_log_once)

    def sync(self) -> None:
        def synced() -> bool:
            with self._syncing:
                return self._sync()

        if self._patiently(synced):
            self._soundness.wake()
        self._rotate_if_due()

    def _sync(self) -> bool:
        """Write and sync what was appended, and move the mark. Returns whether it moved. Under the lock of syncs."""
        with self._lock:
            ended = list(self._ended)  # their groups are in front of the end that is written
        with self._writing:
            current, end, lsn = self._write_out(sync_rows=True)
        moves = end != self._extent.durable
        if moves:
            with self._failing(), self._fsyncs.measured():
                current.file.fdatasync()
            with self._extending:
                self._extent = self._extent._replace(durable=end)
            self._group_commits += 1
        if self._row_log is not None:
            self._row_log.settled(lsn)
        for prepared in ended:
            with self._lock:
                self._ended.remove(prepared)
            self._remove_prepared(prepared)
        return moves

    def _all_settled(self) -> None:
        """All groups with rows are durable. Behind a sync, under the locks of writes and appends."""
        if self._row_log is not None:
            self._row_log.all_settled()

    def _remove_prepared(self, prepared: PreparedFile) -> None:
        """A file that stays is found at the next start: its transaction is in the binlog. The next sync tries again."""
        try:
            self._xa.remove(prepared)
        except DiskError as error:
            log.warning("%s", error)
            with self._lock:
                self._ended.append(prepared)

    def _next_file(
        self,
        state: BinlogState,
        description: FormatDescription,
        new: _NewFile | None = None,
        logical_end: int = FILE_START,
    ) -> None:
        """Go on in a new file, everything before it durable. Under the locks of syncs, writes, appends.

        new: that file, with a group in it up to `logical_end`; by default an empty one. Raises `DiskFull`,
        `TooManyOpenFiles`, `OtherFileSystem`: nothing was done.
        """
        self._soundness.require_sound()
        self._sync()
        self._all_settled()
        old = self._current
        number = self._directory.next_number(self._disk.names())
        try:
            # A start marker is written into it by its own: until then readers find nothing in it.
            plain = dataclasses.replace(description, created=0)
            made = self._empty_file(number, state, plain) if new is None else new
            file, end = self._named_file(number, made, old)
        except (DiskFull, TooManyOpenFiles, OtherFileSystem):
            raise
        except DiskError as error:
            self._soundness.fail(error)
            raise
        with self._extending:
            self._enter(number, file, end, (*self._extent.numbers, number), logical_end)
        try:
            with contextlib.closing(old.file):
                _clear_flag(old.file)
            with self._indexing:
                self._directory.end_note()
        except DiskError as error:  # it looks as behind a crash, and nothing of it is lost
            log.warning("%s", error)
        self._worker.poke()

    def _write_last(self, old: _Current, following: int | None) -> None:
        """Write the last event of a file, durably."""
        server_id, now, algorithm = self._options.server_id, self._now(), old.checksum_algorithm
        if following is None:
            last = stop_event(old.end, algorithm, server_id, now)
        else:
            name = self._directory.name(following)
            last = rotate_event(name, old.end, algorithm, server_id, now)
        old.file.pwrite(old.sealed(last, old.end), old.end)
        old.file.fdatasync()

    # --- XA ---

    def _keep(self, prepared: PreparedFile) -> None:
        """A prepared transaction refuses RESET MASTER."""
        prepared.hold = self.references.hold(Reason.PREPARED_XA, prepared.xid.sql(), _NO_FILE)

    def prepared(self) -> list[Xid]:
        with self._lock:
            return list(self._xa.by_xid)

    def note_prepared(
        self,
        xid: Xid,
        spool: Spool,
        given_up: Callable[[], bool],
        tables: JoinedTables | None = None,
        engines: int = 1,
    ) -> Position:
        """Prepare the transaction of an open group: durable when it returns, as is all that was appended before.

        Its file is written without locks. Then its rows are prepared: the name of the file decides.
        """
        rows = self._row_log

        def write() -> PreparedFile:
            self._soundness.require_sound()
            return self._xa.write(xid, len(spool), spool.plain())

        written = self._patiently(write, given_up)

        def noted() -> Position:
            if rows is not None and tables is not None:
                with self._lock:
                    rows.admit(SMALL_BYTES)
            with self._syncing, self._writing, self._lock:
                self._soundness.require_sound()
                if xid in self._xa.by_xid:
                    raise XaStateError(f"the XID {xid} is prepared already")
                step = None
                if rows is not None and tables is not None:
                    step = tables.preparing(xid, engines)
                    rows.log_tables(step.record)
                self._sync()
                self._xa.add(written)
                self._keep(written)
                if step is not None:
                    step.done()
                return self.written_end

        try:
            end = self._patiently(noted, given_up)
        except BaseException:
            with contextlib.suppress(DiskError):
                self._xa.drop(written)
            raise
        self._soundness.wake()
        return end

    def _prepared(self, xid: Xid) -> PreparedFile:
        """Under the append lock."""
        self._soundness.require_sound()
        if xid not in self._xa.by_xid or xid in self._completing:
            raise XaStateError(f"the XID {xid} is not prepared")
        return self._xa.by_xid[xid]

    def _forget_prepared(self, prepared: PreparedFile) -> None:
        """Under the append lock."""
        del self._xa.by_xid[prepared.xid]
        if prepared.hold is not None:
            prepared.hold.release()

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        decision = self.completing_two_phase(xid)
        if decision is None:
            step = None if self._row_log is None else self.tables.completing(xid)
            return self._commit_prepared(xid, gtid_event, gtid, step)
        end = self.decide_prepared(decision, xid, gtid_event, gtid)
        self.finish_two_phase(decision)
        return end

    def completing_two_phase(self, xid: Xid) -> Decision | None:
        """See `TableEngine`."""
        rows, keeper = self._row_log, self.row_keeper
        trx = None if rows is None else self.tables.prepared.get(xid)
        if rows is None or trx is None or not trx.elsewhere or keeper is None:
            return None
        return Decision(xa_name(rows.redo.uuid, trx.id), (keeper,))

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """See `TableEngine`."""
        ending = self.tables.completing(xid)
        assert ending is not None
        return self._commit_prepared(xid, gtid_event, gtid, self._decided(decision, ending))

    def _commit_prepared(
        self, xid: Xid, gtid_event: bytes, gtid: Gtid, step: TableStep | None
    ) -> Position:
        with self._lock:
            prepared = self._prepared(xid)
            self._completing.add(xid)
        try:
            ending = None if step is None else lambda: step
            group = _Group(gtid_event, gtid, None, lambda: False, ending, prepared)
            return self._append_prepared(group, prepared)
        finally:
            with self._lock:
                self._completing.discard(xid)

    def _append_prepared(self, group: _Group, prepared: PreparedFile) -> Position:
        """A large one becomes a cache file first, which can be renamed as that of any other transaction."""
        xa = self._xa
        xa.verify(prepared)
        if self._may_rename(prepared.size):
            spool = self.new_spool()
            try:
                for piece in xa.pieces(prepared):
                    self.spill(spool, piece, group.given_up)
                spool.require_whole()
                end = self._rename(group, spool) if self.may_rename(spool) else None
            finally:
                spool.close()
            if end is not None:
                return end
        self._rotate_if_due()
        return self._copy(group, lambda: itertools.chain([group.gtid_event], xa.pieces(prepared)))

    def _commits_prepared(self, prepared: PreparedFile) -> None:
        """Its group is appended: its file goes at the next sync. Under the append lock."""
        self._forget_prepared(prepared)
        self._ended.append(prepared)

    def rollback_prepared(self, xid: Xid) -> Position:
        rows = self._row_log
        trx = None if rows is None else self.tables.prepared.get(xid)
        step = None if rows is None else self.tables.reviving(xid)
        decision = self.completing_two_phase(xid)

        def ended() -> Position:
            self._admit_step(with_tables=step is not None)
            with self._syncing, self._writing, self._lock:
                prepared = self._prepared(xid)
                self._sync()
                with self._failing():
                    self._xa.remove(prepared)
                    self._disk.fsync_dir()
                self._forget_prepared(prepared)
                if rows is not None and step is not None:
                    rows.log_tables(step.record)
                    step.done()
                return self.written_end

        end = self._patiently(ended)
        if decision is not None:
            tell(decision.taking_part, decision.xid, committed=False)
        if trx is not None:
            self.tables.roll_back(trx)
        self._soundness.wake()
        return end

    # --- files ---

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        domains = set(delete_domains)

        def flushed() -> None:
            with self._alone():
                self._soundness.require_sound()
                self._require_unused(domains)
                kept = [gtid for gtid in self._state.entries() if gtid.domain_id not in domains]
                state = BinlogState(kept)
                self._next_file(state, self._description())
                self._state = state

        self._patiently(flushed, given_up)
        self._soundness.wake()

    def _require_unused(self, domains: set[int]) -> None:
        """Raises `DomainInUse` if a file has groups of these domains: the first file begins with another state."""
        known = [domain for domain in sorted(domains) if self._state.last(domain) is not None]
        if not known:
            return
        then = self.first_start().state
        for domain in known:
            if then.of_domain(domain) != self._state.of_domain(domain):
                raise DomainInUse(domain)

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
        number: int = 0,
    ) -> None:
        """See `EngineAdmin`. `number`: of the new first file, if no file there has that or a higher one."""
        begin = BinlogState(state.entries() if state is not None else [])

        def begun() -> None:
            with self._purging, self._alone():
                self._soundness.require_sound()
                is_empty = not len(self._state)
                if only_if_empty and not is_empty:
                    raise BinlogHasGtids("there are GTIDs in the binlog")
                self._sync()
                self._all_settled()
                self._forget_ended()
                self.references.close(is_empty=is_empty)
                try:
                    self._start_anew(begin, number)
                finally:
                    self.references.open()

        self._patiently(begun, given_up)
        self._soundness.wake()

    def _forget_ended(self) -> None:
        """Remove what is left of committed XA transactions: without their groups a start would find them prepared.

        Raises `DiskError`: the binlog must stay.
        """
        for prepared in list(self._ended):
            self._xa.remove(prepared)
            self._ended.remove(prepared)

    def _start_anew(self, state: BinlogState, wanted: int) -> None:
        """Remove all files and begin anew. A crash at any step leaves the old binlog, or the new one.

        Raises `DiskFull`: nothing was done.
        """
        directory, disk = self._directory, self._disk
        others = [n for name in disk.names() if (n := directory.number(name)) is not None]
        kept = (directory.name(n) for n in others if n not in set(self._index))
        number = max(wanted, directory.next_number(kept))
        rows = self._row_log
        if rows is not None:
            rows.has_begun(begun=False)
        with contextlib.suppress(FileMissing):
            disk.unlink(directory.reset_name)
        checkpoint, self._checkpoint = self._checkpoint, None
        try:
            file, end = self._new_file(directory.reset_name, number, state, self._description())
            try:
                if rows is not None:
                    disk.fsync_dir()
                    rows.will_begin()
                with self._indexing:
                    directory.note(self._index)
                    directory.write_index([])  # from now on it is the new one
            except BaseException:
                file.close()
                raise
        except BaseException:
            self._checkpoint = checkpoint
            raise
        old, self._index = self._index, [number]
        with self._failing(), self._indexing:
            self._current.file.close()
            for gone in old:
                directory.remove(gone)
            self._indexes.forget()
            self._indexes.clear(number)
            directory.end_note()
            disk.fsync_dir()
            try:
                self._patiently(lambda: directory.write_index([number]))
            except WaitGivenUp as error:  # the next start goes on
                self._soundness.fail(error)
                raise
            disk.rename(directory.reset_name, directory.name(number))
            disk.fsync_dir()
        self._reader.forget()
        self._state, self._last_marker = state, None
        with self._extending:
            self._enter(number, file, end, (number,))
        if rows is not None:
            rows.has_begun(begun=True)

    def purge_to(self, file_no: int) -> PurgePlan:
        name = self._directory.name(self._known(file_no))
        return self._purge(purge.before_file(file_no), f"PURGE BINARY LOGS TO '{name}'")

    def purge_before(self, seconds: float) -> PurgePlan:
        return self._purge(purge.before_time(seconds), "PURGE BINARY LOGS BEFORE")

    def _known(self, file_no: int) -> int:
        if file_no > self._current.number:
            name = self._directory.name(file_no)
            raise UnknownBinlog(f"Target log not found in binlog index: {name!r}")
        return file_no

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        if to is not None:
            return self._fates(purge.before_file(self._known(to)))
        if before is not None:
            return self._fates(purge.before_time(before))
        return self._fates(purge.any_of([wanted for wanted, _ in self._limits()]))

    def _fates(self, wanted: Wanted) -> list[FileFate]:
        needed = self._options.slave_connections_needed_for_purge
        return purge.fates(
            [self._facts(number) for number in self._extent.numbers],
            wanted,
            first_open=self._current.number,
            holds=self.references.holds(),
            replicas_missing=needed - self.references.count(Reason.DUMP),
        )

    def _facts(self, number: int) -> FileFacts:
        name = self._directory.name(number)
        try:
            modified = self._disk.modified(name)
        except DiskError:
            modified = 0.0
        return FileFacts(number, self._size_of(number), modified, number)

    def _size_of(self, number: int) -> int:
        current = self._current
        if number == current.number:
            return current.end
        try:
            return self._disk.size(self._directory.name(number))
        except DiskError:
            return 0

    def _purge(self, wanted: Wanted, asked: str) -> PurgePlan:
        """Delete the wanted files, from the oldest on, up to the first that must stay."""
        deleted: list[int] = []
        with self._purging:
            plan = purge.plan(self._fates(wanted))
            if self._checkpoint in plan.delete:
                self._move_checkpoint()
            for number in plan.delete:
                if not self.references.let_go(number, {}, lambda: self._hide()):
                    plan = purge.plan(self._fates(wanted))  # a hold that came meanwhile
                    break
                deleted.append(number)
            if deleted:
                self._delete(deleted)
                self._full.freed()
                names = len(deleted), self._directory.name(deleted[-1])
                log.info("purged %d binlog files, up to %s: %s", *names, asked)
        return dataclasses.replace(plan, delete=deleted)

    def _move_checkpoint(self) -> None:
        """A MariaDB does not start where the last file names one that is gone: let the last one be new."""
        named = self._directory.name(self._checkpoint or 0)
        log.warning(
            "%s is purged: a MariaDB that was killed while it wrote here finds none of its prepared transactions in it",
            named,
        )
        self._checkpoint = None
        try:
            with self._syncing, self._writing, self._lock:
                self._next_file(self._state, self._description())
        except DiskFull as error:
            log.warning("%s: until the next file begins, a MariaDB does not start here", error)
        self._soundness.wake()

    def _hide(self) -> None:
        """Nobody finds the oldest file from now on."""
        with self._extending:
            self._extent = self._extent._replace(numbers=self._extent.numbers[1:])

    def _delete(self, numbers: list[int]) -> None:
        directory = self._directory
        with self._indexing:
            gone = set(numbers)
            self._index = [n for n in self._index if n > numbers[-1] and n not in gone]
            try:
                directory.note(numbers)
                directory.write_index(self._index)
            except DiskFull:
                # Files that the index names and that are not there are no obstacle; now there is room for it.
                for number in numbers:
                    directory.remove(number)
                directory.write_index(self._index)
            for number in numbers:
                directory.remove(number)
            with contextlib.suppress(FileMissing):
                directory.end_note()

    def _limits(self) -> list[tuple[Wanted, str]]:
        options = self._options
        return purge.limits(
            options.binlog_expire_logs_seconds, options.max_binlog_total_size, self._clock()
        )

    def _take_care(self) -> float | None:
        """One round of the purge by age and size."""
        self._held = None
        limits = self._limits()
        for wanted, name in limits:
            plan = self._purge(wanted, name)
            if plan.kept is None:
                continue
            stay = [fate for fate in self._fates(wanted) if fate.wanted and not fate.goes]
            if not stay:
                continue
            size, oldest = sum(f.size for f in stay), min(f.modified for f in stay)
            if self._held is None or size > self._held.size:
                self._held = PurgeHeld(size, oldest, stay[0].held_by[0])
            if (plan.kept, str(plan.why)) != self._told:
                self._told = plan.kept, str(plan.why)  # logged once, not every round
                kept = self._directory.name(plan.kept)
                log.warning("Binary log %r is not purged because %s", kept, plan.why)
        if self._indexes.step(lambda number: self._reader.build_index(number, self._options)):
            return 0.0
        return _LIMITS_S if limits else None

    def step(self) -> bool:
        """Do one round of the background work. Returns whether there are rows to undo."""
        self._worker.step()
        if self._row_log is None:
            return False
        self._snapshots.worker.step()
        return self._rows.undo_step()

    @property
    def max_binlog_size_min(self) -> int:
        return FILE_BYTES_MIN

    def set_option(self, name: str, value: int) -> None:
        with self._lock:
            self._options = dataclasses.replace(self._options, **{name: value})  # type: ignore[arg-type]
        self._worker.poke()

    def files(self) -> list[BinlogFile]:
        return [BinlogFile(number, self._size_of(number)) for number in self._extent.numbers]

    file_start = FILE_START

    @property
    def log_bin(self) -> str:
        """The base name of the files."""
        return self._directory.base

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return self._directory.index_name

    def file_name(self, number: int) -> str:
        return self._directory.name(number)

    def file_number(self, name: str) -> int | None:
        number = self._directory.number(name)
        return None if number is None or self._directory.name(number) != name else number

    @property
    def next_write(self) -> Position:
        """The place of the next byte, behind the head of a file that has nothing else."""
        current = self._current
        return Position(current.number, current.end)

    def groups_of_file(
        self, file_no: int | None = None, offset: int = 0
    ) -> Iterator[Iterator[bytes]]:
        age = self.references.wait_until_open()
        extent = self._extent
        number = extent.numbers[0] if file_no is None else self._known(file_no)
        return self._groups_of_file(number, offset, age)

    def _groups_of_file(self, number: int, offset: int, age: int) -> Iterator[Iterator[bytes]]:
        hold = self.references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", number, age)
        try:
            if number not in self._extent.numbers:
                raise PositionPurged("Could not find target log")
            durable = self._extent.durable
            limit = durable.offset if number == durable.file_no else None
            for group in self._reader.groups(number, FILE_START, limit, _CACHE_BYTES):
                if group.begin >= offset:
                    if group.is_large:
                        yield self._reader.pieces(number, group.begin, group.end)
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
            lambda: self._extent.numbers[0] if start is None else start.file_no,
            dump=dump,
            slot=slot,
            ended_by=ended_by,
            holder=holder,
            wait=wait,
        )

    # --- reading ---

    def first_start(self) -> StartPoint:
        return self._in_one_age(self._reader.first_start)

    def find_start(self, position: SlavePosition) -> StartPoint:
        return self._in_one_age(lambda: self._reader.find_start(position))

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
        return self._reader.read(start, self.large_group_bytes)

    def read_placed(self, start: Position) -> PlacedBatch:
        return self._reader.read_placed(start, self.large_group_bytes)

    def read_stored(self, start: Position, *, with_cuts: bool = True) -> StoredBatch:
        """A batch as of `read_placed`, as it lies in its file: see `StoredFiles.read_stored`."""
        return self._reader.read_stored(start, self.large_group_bytes, with_cuts=with_cuts)

    def reached(self, place: Position, position: SlavePosition) -> list[tuple[int, BinlogState]]:
        """See `StoredFiles.reached`."""
        return self._reader.reached(place, position)

    def from_event(self, place: Position) -> tuple[Position, LargeGroup | None]:
        """See `StoredFiles.from_event`. `PositionPurged` if its file is gone."""
        return self._reader.from_event(place, self.large_group_bytes)

    def head(self, file_no: int) -> FileHead:
        """The head of a file. `PositionPurged` if it is gone."""
        return self._reader.head(file_no)

    def events_of_file(self, file_no: int, offset: int = FILE_START) -> Iterator[tuple[int, bytes]]:
        """The events of a file, up to the durable end: see `StoredFiles.events`. The file is held meanwhile.

        `PositionPurged` for a file that is gone.
        """
        hold = self.references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", file_no)
        try:
            if file_no not in self._extent.numbers:
                raise PositionPurged("Could not find target log")
            yield from self._reader.events(file_no, offset)
        finally:
            hold.release()

    def is_recent(self, start: Position) -> bool:
        durable = self._extent.durable
        return start.file_no == durable.file_no and durable.offset - start.offset < _RECENT_BYTES

    def locate(self, place: Position) -> Located:
        return self._reader.locate(place, self.large_group_bytes)

    def state_at(self, place: Position) -> BinlogState:
        return self._reader.state_at(place)

    # --- what there is ---

    @property
    def written_end(self) -> Position:
        current = self._current
        return Position(current.number, current.logical_end)

    @property
    def durable_end(self) -> Position:
        return self._extent.durable

    @property
    def last_marker(self) -> bytes | None:
        return self._last_marker

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        with self._lock:
            return self._state.copy() if domain_id is None else self._state.of_domain(domain_id)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._soundness.subscribe(wake)

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        self._soundness.when_failed(failed)

    @property
    def has_room(self) -> bool:
        return self._soundness.failed or (
            self._full.error is None
            and not self._turns.count
            and len(self._buffer) <= _BUFFER_MAX // 2
            and (self._row_log is None or self._row_log.has_room)
        )

    @property
    def has_room_to_spill(self) -> bool:
        return self.has_room and (self._behind.has_room or self._soundness.failed)

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        until = None if timeout is None else time.monotonic() + timeout

        def given_up() -> bool:
            return until is not None and time.monotonic() >= until

        def ended() -> bool:
            return self._soundness.failed or self._full.is_closing

        while not (found := self.has_room_to_spill if to_spill else self.has_room):
            left = None if until is None else until - time.monotonic()
            if ended() or (left is not None and left <= 0):
                return found
            if self._turns.count:
                self._turns.wait(left, ended)
                continue
            if self.has_room:
                self._behind.wait(left, ended)
                continue
            try:
                self._patiently(self.write_log_once, given_up)
            except (WaitGivenUp, StoreFailed):
                return self.has_room
            if self._row_log is not None and not self._row_log.has_room:
                if given_up():
                    return False
                self._row_log.relieve()
        return True

    def never_wait_in(self, thread: int) -> None:
        self._never_wait = thread
        if self._row_log is not None:
            self._row_log.never_wait_in(thread)

    def counters(self) -> Mapping[str, int]:
        redo = None if self._row_log is None else self._row_log.redo
        limited = self._options.max_binlog_total_size > 0
        return {
            "Binlog_disk_use": sum(file.size for file in self.files()) if limited else 0,
            "Innodb_data_fsyncs": self._fsyncs.count + (0 if redo is None else redo.fsyncs.count),
            "Innodb_data_written": self._bytes_written
            + (0 if redo is None else redo.bytes_written),
            "Binlog_bytes_written": self._bytes_written,
            "Binlog_commits": self._commits,
            "Binlog_group_commits": self._group_commits,
            **({} if self._row_log is None else self._row_log.counters()),
            "Binlog_gtid_index_hit": self._indexes.hits,
            "Binlog_gtid_index_miss": self._indexes.misses,
        }

    def stalled(self) -> list[Stalled]:
        now = time.monotonic()
        found = []
        if (error := self._full.error) is not None:
            found.append(Stalled("binlog", now - self._full.since, str(error)))
        if self._worker.failure:
            since = now - self._worker.failing_since
            found.append(Stalled(self._worker.name, since, self._worker.failure))
        return found if self._row_log is None else [*found, *self._rows.stalled()]

    def purge_held(self) -> PurgeHeld | None:
        return self._held

    def fsync_times(self) -> Mapping[str, Durations]:
        found = {"binlog": self._fsyncs}
        return found if self._row_log is None else {"redo": self._row_log.redo.fsyncs, **found}

    def stop_waiting(self) -> None:
        self._full.close()
        self._behind.wake()
        self._turns.wake()
        if self._row_log is not None:
            self._row_log.stop_waiting()

    def close(self) -> None:
        self.stop_waiting()
        self._indexes.stopping = True
        if self._row_log is not None:
            self._rows.close()
        self._worker.stop()
        self._behind.worker.stop()
        try:
            if not self._soundness.failed:
                try:
                    self.sync()
                    if self._row_log is not None:
                        self._row_log.finish()
                except (WaitGivenUp, DiskError) as error:
                    log.error("the binlog was not closed in order: %s", error)
                else:
                    with self._alone():
                        self._finish()
        finally:
            self._current.file.close()
            self._close_rows()
            self._disk.close()

    def _close_rows(self) -> None:
        if self.row_keeper is not None:
            self.row_keeper.close()
        if self._row_log is not None:
            self._row_log.close()

    def _finish(self) -> None:
        try:
            with contextlib.suppress(DiskFull):
                self._write_last(self._current, None)
            self._indexes.close()
            _clear_flag(self._current.file)
            self._current.file.fdatasync()
        except DiskError as error:
            log.warning("%s", error)


def _clear_flag(file: File) -> None:
    """Say in a file that it is closed."""
    flag = file.pread(1, FLAG_AT)[0]
    file.pwrite(bytes([flag & ~FLAG_IN_USE & 0xFF]), FLAG_AT)


class ClassicGroup:
    """See `GroupWriter`. Its events wait in two lists beside the binlog.

    At the commit they are copied into it, or their file becomes the next binlog file.
    """

    def __init__(self, engine: ClassicEngine, tables: JoinedTables | None = None) -> None:
        self._engine = engine
        self._tables = tables
        self._transactional = engine.new_spool()
        self._statement = engine.new_spool()
        self._hold: Pin | None = None
        self._closed = False
        self._given_up = False

    @property
    def spilled(self) -> bool:
        return bool(len(self._transactional) or len(self._statement))

    def spill(self, data: Buffer, *, statement: bool = False) -> None:
        self._require_open()
        self._engine.require_sound()
        if data:
            self._hold = self._hold or self._engine.references.hold(
                Reason.ACTIVE_TRANSACTION, "", _NO_FILE
            )
            spool = self._statement if statement else self._transactional
            self._engine.spill(spool, data, lambda: self._given_up)

    def mark(self) -> GroupMark:
        return GroupMark(self._transactional.mark())

    def rewind(self, mark: GroupMark) -> None:
        assert isinstance(mark.transactional, SpoolMark)
        self._transactional.rewind(mark.transactional)

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`: the file of a large group is durable then."""
        spool = self._statement if len(self._statement) else self._transactional
        if len(self._statement) and len(self._transactional):
            return
        if self._engine.may_rename(spool):
            self._engine.seal(spool, lambda: given_up() or self._given_up)

    def turn(self) -> AbstractContextManager[None] | None:
        """See `GroupWriter`: a group that is copied or renamed takes long."""
        is_long = len(self._statement) + len(self._transactional) > _CACHE_BYTES
        return self._engine.turn() if is_long else None

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        tables = self._tables
        return self._commit(gtid_event, gtid, age, None if tables is None else tables.ending)

    def decide(
        self, decision: Decision, gtid_event: bytes, gtid: Gtid, age: int | None = None
    ) -> Position:
        """As `commit`, of what engines with logs of their own have prepared."""
        tables, engine = self._tables, self._engine
        assert tables is not None
        return self._commit(gtid_event, gtid, age, lambda: engine.deciding(decision, tables))

    def _commit(
        self, gtid_event: bytes, gtid: Gtid, age: int | None, ending: Callable[[], TableStep] | None
    ) -> Position:
        self._require_open()

        spools = [spool for spool in (self._statement, self._transactional) if len(spool)]
        end = self._engine.append_spools(
            gtid_event, gtid, spools, age, lambda: self._given_up, ending
        )
        self.rollback()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        self._require_open()
        if len(self._statement):
            raise ValueError("an XA transaction has no statement list: spill into one list only")
        end = self._engine.note_prepared(
            xid, self._transactional, lambda: self._given_up, self._tables, engines
        )
        self.rollback()
        return end

    def give_up(self) -> None:
        self._given_up = True

    def rollback(self) -> None:
        """See `GroupWriter`. A second call does nothing."""
        self._closed = True
        self._statement.close()
        self._transactional.close()
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")


_ENGINE: type[BinlogEngine] = ClassicEngine  # mypy checks the interfaces here, before a caller does
_TABLES: type[TableEngine] = ClassicEngine
