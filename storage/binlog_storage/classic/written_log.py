"""The end of the binlog: the file that is written, what is in memory, and the mark up to which all is durable.

What is appended waits in memory; `write_once` hands it to the operating system, `sync_once` makes it durable and moves
the mark. It is also what the redo log of rows sees of the binlog (`Beside`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.appender import STEP_BYTES
from binlog_storage.classic.binlog_files import BinlogFiles, CurrentFile, MadeFile
from binlog_storage.classic.patience import LONG_WAIT_S, Patience
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.stored_files import Extent, StoredFiles
from binlog_storage.classic.writing import FILE_START
from binlog_storage.classic.xa_files import PreparedFile, PreparedFiles
from binlog_storage.disk.disk import File
from binlog_storage.disk.durations import Durations
from binlog_storage.engine import Position
from binlog_storage.engine.references import References
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import DiskError, DiskFull, StorageError, WaitGivenUp
from binlog_storage.ibb.chunk import position_of
from binlog_storage.redo.log import AppendLock
from binlog_storage.tables.store import TableStep

log = logging.getLogger(__name__)

CACHE_BYTES: Final = 1 << 20  # of a group in one piece
BUFFER_MAX: Final = 16 << 20  # appended and not written, on a full disk: appends wait then
NO_FILE: Final = 1 << 62  # of holds that keep no file: open groups do not lie in the binlog here


class WrittenLog:
    """Of one store. Locks in the order of the head of `store.py`: `syncing`, `writing`, `lock` (that of appends).

    rows: the redo log beside it.
    xa: its prepared transactions.
    current, extent: the file that is written, and what readers may see: from the start on.
    state: behind all that was appended.
    copying: a large group is copied to the end of the file, or a new file begins: nothing else is appended.
    """

    def __init__(
        self,
        files: BinlogFiles,
        references: References,
        soundness: Soundness,
        patience: Patience,
    ) -> None:
        self.files = files
        self.references = references
        self.soundness = soundness
        self.patience = patience
        self.syncing = threading.Lock()
        self.writing = threading.RLock()
        self.lock = threading.RLock()
        self.copied = threading.Condition(self.lock)
        self.copying = False
        self.extending = threading.Lock()
        self.buffer = bytearray()
        self.state = BinlogState()
        self.last_marker: bytes | None = None
        self.rotation_due = False
        self.fsyncs = Durations()
        self.commits = self.group_commits = self.bytes_written = 0
        self.current: CurrentFile
        self.extent: Extent
        self.rows: RowLog | None = None
        self.xa: PreparedFiles
        self.reader = StoredFiles(files.directory, lambda: self.extent, files.indexes)

    # --- its ends ---

    @property
    def written_end(self) -> Position:
        """The place behind the last group, durable or not."""
        current = self.current
        return Position(current.number, current.logical_end)

    def enter(self, number: int, made: MadeFile, numbers: tuple[int, ...]) -> None:
        """Go on in a new file. It has only its head, if readers stop at `FILE_START`."""
        file, end, logical_end, algorithm = made
        cipher = self.files.cipher_of(number, file)
        is_empty = logical_end == FILE_START
        self.current = CurrentFile(number, file, algorithm, cipher, end, end, logical_end, is_empty)
        self.extent = Extent(numbers, Position(number, logical_end))
        self.rotation_due = False
        self.files.indexes.begin(number, self.reader.head)

    def hide_oldest(self) -> None:
        """Nobody finds the oldest file from now on."""
        with self.extending:
            self.extent = self.extent._replace(numbers=self.extent.numbers[1:])

    # --- appending ---

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""
        self.soundness.require_sound()

    def admit(self, age: int | None) -> None:
        """Under the append lock, which is given back while a large group is being copied."""
        if self.copying:
            self.wait_for_copy()
        # All is well, but for the other cases of `require_open`: this is looked at for each group.
        if self.soundness.failure is not None or (age is not None and age != self.references.age):
            self.require_open(age)

    def require_open(self, age: int | None) -> None:
        """Raises `StoreFailed` after a failure, and `BinlogBegunAnew` if the binlog has begun anew since that age."""
        self.soundness.require_sound()
        self.references.require_age(age)

    def admit_with_rows(self, size: int, age: int | None) -> None:
        """The same, with room for so many bytes of the redo log."""
        assert self.rows is not None
        self.rows.admit(size)
        while self.copying:  # it takes of that room
            self.wait_for_copy()
            self.rows.admit(size)
        self.admit(age)

    def admit_step(self, *, with_tables: bool) -> None:
        """Wait for room for the end of a transaction. Without locks: who waits gives that of appends back once."""
        if with_tables:
            assert self.rows is not None
            with self.lock:
                self.rows.admit(STEP_BYTES)

    def wait_for_copy(self) -> None:
        """Without other locks than that of appends. Raises `WaitGivenUp` in a thread that must not wait."""
        with self.copied:
            timeout = None if self.patience.waits_long else LONG_WAIT_S
            if not self.copied.wait_for(lambda: not self.copying, timeout):
                raise WaitGivenUp(
                    "a large group is being copied into the binlog, or a new file begins"
                )

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """The locks of syncs and writes, while nothing is appended.

        Who asks for the state meanwhile does not wait. Raises as `wait_for_copy`.
        """
        while True:
            with self.syncing, self.writing:
                with self.lock:
                    is_ours = not self.copying
                    self.copying = True
                if is_ours:
                    try:
                        yield
                        return
                    finally:
                        self.end_copy()
            self.wait_for_copy()

    def end_copy(self) -> None:
        """Others may append again."""
        with self.copied:
            self.copying = False
            self.copied.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """The locks of syncs, writes and appends, while no group is being copied."""
        while True:
            with self.syncing, self.writing, self.lock:
                if not self.copying:
                    yield
                    return
            self.wait_for_copy()

    def note_group(self, size: int, gtid: Gtid, count: int = 1) -> Position:
        """Note that a group of so many bytes is behind the end; or several, of one domain and server. Under the append
        lock.
        """
        current = self.current
        current.end = current.logical_end = end = current.end + size
        current.is_empty = False
        self.state.update(gtid)
        growing = self.files.indexes.current
        if growing is not None:
            growing.index.add(end, gtid)
        self.last_marker = None
        self.commits += count
        self.bytes_written += size
        if end >= self.files.options.max_binlog_size:
            self.rotation_due = True
        return position_of((current.number, end))

    def log_step(self, step: TableStep | None, end: Position) -> None:
        """End a transaction of tables with a group that ends there. Under the append lock."""
        if step is None:
            return
        if step.record:
            assert self.rows is not None
            self.rows.log_with(step.record, end)
        step.done()

    # --- durability ---

    def write_once(self) -> None:
        """Hand what is in memory to the operating system. Raises `DiskError`."""
        with self.writing:
            self.write_out()

    def write_at_once(self) -> None:
        """The same in a thread that must not wait: not for room, nor for a sync. Raises `WaitGivenUp`."""
        if not self.writing.acquire(blocking=False):
            raise WaitGivenUp("another thread writes, or a new file begins")
        tries = self.patience.full.tries
        try:
            rows = self.rows
            if rows is not None and self.buffer and rows.group_lsn > rows.redo.durable_lsn:
                raise WaitGivenUp("the redo log is synced in front of groups with rows")
            self.patience.full.require_time()
            if self.patience.is_late:
                raise WaitGivenUp("what opening had no room for is written first")
            self.write_out()
        except DiskFull as error:
            self.patience.note_full(error, tries)
            raise WaitGivenUp(str(error)) from None
        finally:
            self.writing.release()

    def write_out(self, *, sync_rows: bool = False) -> tuple[CurrentFile, Position, int]:
        """Hand what is in memory to the operating system. Returns the file, the end of what was handed over, and the
        LSN of the redo log there. Under the lock of writes.

        sync_rows: sync the redo log, also if no group needs that.
        """
        rows = self.rows
        if self.patience.is_late:
            self.patience.catch_up()
        lsn = wanted = 0
        with self.lock:
            if self.soundness.failure is not None:
                self.soundness.require_sound()
            current, data = self.current, bytes(self.buffer)
            end = position_of((current.number, current.logical_end))
            if rows is not None:
                lsn = rows.redo.lsn
                wanted = lsn if sync_rows else rows.group_lsn if data else 0
        if rows is not None and wanted > rows.redo.durable_lsn:
            rows.flush()
        if data:
            self.write(current.file, data, current.written)
            with self.lock:
                del self.buffer[: len(data)]
                current.written += len(data)
            growing = self.files.indexes.current
            if growing is not None and growing.index.has_grown:
                self.files.indexes.write()
        return current, end, lsn

    def write(self, file: File, data: bytes, offset: int) -> None:
        """Write; what fails but for room ends the store."""
        try:
            file.pwrite(data, offset)
        except DiskFull:
            raise
        except DiskError as error:
            self.soundness.fail(error)
            raise

    def write_last(self, last: bytes) -> None:
        """Write the last event of the file, behind all that was written. While nothing is appended."""
        self.current.file.pwrite(last, self.current.end)

    def sync_once(
        self, durable: Callable[[], object] | None = None, *, ended: bool = False
    ) -> bool:
        """Write and sync what was appended, and move the mark. Returns whether it moved. Under the lock of syncs.

        durable: see `EngineWriter.sync`.
        ended: the file has its last event, which is made durable, too.
        """
        committed: list[PreparedFile] = []
        if self.xa.ended:  # who comes later is of the next sync
            with self.lock:
                committed = list(self.xa.ended)  # their groups are in front of the end
        with self.writing:
            current, end, lsn = self.write_out(sync_rows=True)
        moves = end != self.extent.durable
        if moves:
            began = perf_counter()
            try:
                current.file.fdatasync()
            except DiskError as error:  # groups may be lost
                self.soundness.end(error)
                raise
            took = perf_counter() - began
            if durable is not None:
                durable()
            self.fsyncs.add(took)
            with self.extending:
                self.extent = tuple.__new__(Extent, (self.extent.numbers, end))  # as `position_of`
            self.group_commits += 1
        elif ended:
            with self.fsyncs.measured():  # an event that ends the file is taken back
                current.file.fdatasync()
        if self.rows is not None and lsn > self.rows.redo.settled_lsn:
            self.rows.settled(lsn)
        for prepared in committed:
            with self.lock:
                self.xa.ended.remove(prepared)
            self.remove_prepared(prepared)
        return moves

    def all_settled(self) -> None:
        """All groups with rows are durable. Behind a sync, under the locks of writes and appends."""
        if self.rows is not None:
            self.rows.all_settled()

    def remove_prepared(self, prepared: PreparedFile) -> None:
        """A file that stays is found at the next start: its transaction is in the binlog. The next sync tries again."""
        try:
            self.xa.remove(prepared)
        except DiskError as error:
            log.warning("%s", error)
            with self.lock:
                self.xa.ended.append(prepared)

    # --- as the redo log beside it sees it: see `Beside` ---

    @property
    def append_lock(self) -> AppendLock:
        """See `Beside`."""
        return self.lock

    @property
    def write_lock(self) -> AppendLock:
        """See `Beside`."""
        return self.writing

    @property
    def appended_end(self) -> Position:
        """See `Beside`."""
        return Position(self.current.number, self.current.end)

    @property
    def is_pending(self) -> bool:
        """See `Beside`."""
        return self.written_end != self.extent.durable

    @property
    def why_stuck(self) -> DiskFull | None:
        """See `Beside`."""
        return self.patience.full.error if self.is_pending or self.patience.is_late else None

    def catch_up(self) -> None:
        """See `Beside`."""
        self.patience.catch_up()

    @property
    def failed(self) -> bool:
        """See `Beside`."""
        return self.soundness.failed

    def fail(self, error: StorageError) -> None:
        """See `Beside`."""
        self.soundness.fail(error)
