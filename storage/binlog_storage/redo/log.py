"""The write-ahead log: one file, a ring of fixed size, of mini-transactions with an LSN each.

Who writes into it makes a mini-transaction of what belongs together (`append`, in memory), and whoever must know it
safe asks for a `flush`: one write and one sync serve all that was appended before. Recovery finds every
mini-transaction that is whole, from the last checkpoint on, and nothing behind the first that is not.

    lsn >= written_lsn >= durable_lsn >= checkpoint_lsn
    in memory  |  operating system  |  on disk   |  not needed any more

Thread contract: `append` under the lock that was given; `write`, `flush`, `checkpoint` from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from types import TracebackType
from typing import Protocol

from binlog_storage.disk.disk import Disk, File, replaced, write_again
from binlog_storage.disk.durations import Durations
from binlog_storage.errors import DiskError, StorageError
from binlog_storage.ibb.chunk import Position
from binlog_storage.redo.format import (
    BEGUN,
    BLOCK,
    FLUSHED,
    KIND_BEGUN,
    KIND_FLUSHED,
    MTR_OVERHEAD,
    REDO_NAME,
    RING_AT,
    Checkpoint,
    LogHeader,
    MiniTransaction,
    TablesFrom,
    build_mtr,
    frame_mtr,
)
from binlog_storage.redo.reader import Reaches, RedoReader, Take

FIRST_LSN = BLOCK  # 0 stays free for "none"
_FILL_BYTES = 1 << 20
_ALL_SETTLED = 1 << 62


class AppendLock(Protocol):
    """A lock of `threading`, of either kind."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...


def make(
    disk: Disk,
    *,
    uuid: bytes,
    size: int,
    epoch: int,
    lsn: int,
    end: Position | None,
    tables: TablesFrom | None = None,
) -> None:
    """Make the log file, `size` bytes, or make it anew; from then on recovery begins at `lsn`. Atomic and durable."""
    with replaced(disk, REDO_NAME) as file:
        # Really written: a first write into space that is only promised would change the file system at each sync.
        for at in range(0, size, _FILL_BYTES):
            file.pwrite(bytes(min(_FILL_BYTES, size - at)), at)
        file.pwrite(LogHeader(uuid, size - RING_AT).build(), 0)
        first = Checkpoint(1, epoch, lsn, end, tables)
        file.pwrite(first.build(), first.at)


class _Deadly:
    """Around writes and syncs of the file: after an error nothing is known of it any more, and it is never tried again.

    The kernel reports a lost write once, and the next sync would succeed without it. A commit looks at `failure` and
    sets it by itself, twice: for four calls less.
    """

    def __init__(self) -> None:
        self.failure: DiskError | None = None

    def require_none(self) -> None:
        """Raises `DiskError` behind a failure."""
        if self.failure is not None:
            raise DiskError(f"the redo log failed before: {self.failure}")

    def __enter__(self) -> None:
        self.require_none()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, DiskError):
            self.failure = error


class RedoLog:
    """The log of one store, open. First `replay`, then `begin`, then it takes new mini-transactions.

    Args:
        lock: guards `append`; the owner's, who orders mini-transactions.
        buffer_bytes: with more than that in memory `is_full` says so.
    """

    def __init__(self, disk: Disk, lock: AppendLock, buffer_bytes: int) -> None:
        """Open the file. Raises `CorruptRedo`, `DiskError`."""
        self._lock = lock
        self._buffer_bytes = buffer_bytes
        self._file: File = disk.open(REDO_NAME)
        try:
            self._reader = RedoReader(self._file)
        except BaseException:
            self._file.close()
            raise
        self.size = self._reader.size
        self.uuid = self._reader.uuid
        self.capacity = self._reader.capacity
        self.checkpoint = self._reader.checkpoint
        self.checkpoint_lsn = self.checkpoint.begin[0]
        """The LSN of the last checkpoint, where recovery would begin to read: the lower one of the two."""
        self.tables = self.checkpoint.tables
        """Where the tables begin to read, from the next checkpoint on; None while there are none. Under the lock."""
        self.tables_logged = 0
        """The LSN of the last record of tables, as far as is known. Under the lock."""
        self.epoch = self.checkpoint.epoch
        self.lsn = self.written_lsn = self.durable_lsn = self._reader.begin
        self._parts: list[bytes] = []  # in memory, from this LSN on
        self._taken_lsn = self.lsn
        self.settled_lsn = _ALL_SETTLED
        """What is durable up to there holds for good; behind it that hangs on a binlog beside the log."""
        self._noted_durable = 0
        self._writing = threading.Lock()  # from taking the buffer until it is in the file
        self._syncing = threading.Lock()
        self._deadly = _Deadly()
        self.bytes_written = 0
        self.taken = 0
        """How often the buffer was taken to be written: what is appended at the same number shares a sync."""
        self.fsyncs = Durations()
        self.groups = 0  # flushes that found something to do

    # --- opening ---

    def replay(
        self, take: Take | None = None, reaches: Reaches | None = None
    ) -> Iterator[MiniTransaction]:
        """See `RedoReader.replay`. Afterwards `lsn` is the end of them."""
        yield from self._reader.replay(take, reaches)
        self.lsn = self.written_lsn = self.durable_lsn = self._taken_lsn = self._reader.end
        self.epoch = self._reader.epoch

    @property
    def reading_epoch(self) -> int:
        """The epoch of what `replay` gave last."""
        return self._reader.epoch

    def mtrs_from(self, lsn: int, take: Take | None = None) -> Iterator[MiniTransaction]:
        """See `RedoReader.mtrs_from`. After `replay`."""
        return self._reader.mtrs_from(lsn, take)

    def begin(self, end: Position | None) -> None:
        """Recovery is done, and the files hold everything: a new epoch, from here on. Durable."""
        with self._lock:
            self.epoch += 1
            if self.tables is not None:
                self.append(BEGUN.pack(KIND_BEGUN, self.epoch - 1))
        if self.tables is not None:
            self.flush()  # before anything of this epoch: nothing else leads to it
        self.write_checkpoint(self.lsn, end)

    @property
    def tables_hold(self) -> bool:
        """Whether it is the tables that need the oldest part of the log."""
        checkpoint = self.checkpoint
        return checkpoint.tables is not None and checkpoint.tables.lsn < checkpoint.lsn

    def write_again(self) -> None:
        """Make durable what `replay` has read, and the last checkpoint: they may be with the operating system only, or
        not even there, if an earlier sync has failed. Before a start changes anything else.
        """
        size = self._reader.end - self._reader.synced
        at = self._reader.synced % self.capacity
        first = min(size, self.capacity - at)
        with self._syncing, self._deadly:
            self._file.pwrite(self.checkpoint.build(), self.checkpoint.at)
            write_again(self._file, RING_AT + at, first)
            write_again(self._file, RING_AT, size - first)
            self._file.fdatasync()

    def note_tables(self) -> None:
        """Tables are about to log a record. Under the lock."""
        self.tables_logged = self.lsn
        if self.tables is None:
            self.tables = TablesFrom(self.lsn, self.epoch)

    # --- writing ---

    def append(self, *records: bytes) -> int:
        """Add a mini-transaction of these records, in memory, under the lock. Returns the LSN behind it."""
        lsn = self.lsn
        if len(records) == 1:
            data = build_mtr(self.epoch, lsn, records[0])
            self._parts.append(data)
            lsn += len(data)
        else:
            for part in frame_mtr(self.epoch, lsn, records):
                self._parts.append(part)
                lsn += len(part)
        self.lsn = lsn
        return lsn

    def append_made(self, mtr: bytes) -> int:
        """The same of a mini-transaction that was made for this place: for this epoch and LSN."""
        self._parts.append(mtr)
        self.lsn += len(mtr)
        return self.lsn

    def room(self) -> int:
        """Bytes of the ring that are free. What is appended must fit, and a note of `write` behind it."""
        return self.capacity - (self.lsn - self.checkpoint_lsn) - _NOTE_BYTES

    @property
    def room_when_empty(self) -> int:
        """The least `room` right behind a checkpoint, where a note may stand already; in bytes."""
        return self.capacity - 2 * _NOTE_BYTES

    def copied(self, lsn: int, end: int) -> bytes:
        """The durable bytes of the log from one LSN to another; both are ends of mini-transactions.

        Raises `StorageError` if the ring was used again meanwhile, of which only a checkpoint that stays keeps it.
        """
        at, size = lsn % self.capacity, end - lsn
        first = min(size, self.capacity - at)
        data = self._file.pread(first, RING_AT + at) + self._file.pread(size - first, RING_AT)
        if self.lsn > lsn + self.capacity:
            raise StorageError(f"{REDO_NAME} was used again from LSN {lsn} on while it was copied")
        return data

    @property
    def is_full(self) -> bool:
        """Whether more is in memory than should be: somebody has to `write`."""
        return self.lsn - self._taken_lsn >= self._buffer_bytes

    @property
    def buffer_room(self) -> int:
        """Bytes until `is_full`."""
        return max(0, self._buffer_bytes - (self.lsn - self._taken_lsn))

    def write(self, taken: Callable[[int], None] = lambda lsn: None) -> int:
        """Hand everything appended so far to the operating system. Returns the LSN behind it. Raises `DiskError`.

        Args:
            taken: called under the lock with the LSN up to which the log is about to be written.
        """
        deadly = self._deadly
        with self._writing:
            if deadly.failure is not None:
                deadly.require_none()
            with self._lock:
                start = self.written_lsn
                if self.lsn == start:
                    return start
                settled = self.durable_lsn
                if settled > self.settled_lsn:
                    settled = self.settled_lsn
                if settled > self._noted_durable and self.room() >= 0:
                    self._noted_durable = settled
                    self.append(FLUSHED.pack(KIND_FLUSHED, settled))
                end = self.lsn
                if (used := end - self.checkpoint_lsn) > self.capacity:
                    deadly.failure = DiskError(
                        f"{REDO_NAME} is too small: {used} bytes since the last checkpoint"
                    )
                    raise deadly.failure
                taken(end)  # first: after an error here all of it is in memory still
                parts, self._parts = self._parts, []
                self._taken_lsn = end
                self.taken += 1
            try:
                self._write_ring(parts[0] if len(parts) == 1 else b"".join(parts), start)
            except DiskError as error:
                deadly.failure = error
                raise
            except BaseException:
                with (
                    self._lock
                ):  # a defect of ours: the same bytes go to the same place the next time
                    self._parts[:0] = parts
                    self._taken_lsn = start
                raise
            self.written_lsn = end
            self.bytes_written += end - start
        return end

    def flush(
        self,
        taken: Callable[[int], None] = lambda lsn: None,
        durable: Callable[[], object] | None = None,
    ) -> int:
        """Make everything appended so far durable. Returns the LSN up to which it is. `taken` and errors as `write`.

        `durable`: see `EngineWriter.sync`.
        """
        with self._syncing:
            end = self.write(taken)
            if end > self.durable_lsn:
                deadly = self._deadly
                if deadly.failure is not None:
                    deadly.require_none()
                began = perf_counter()
                try:
                    self._file.fdatasync()
                except DiskError as error:
                    deadly.failure = error
                    raise
                took = perf_counter() - began
                if durable is not None:
                    durable()
                self.fsyncs.add(took)
                self.groups += 1
                self.durable_lsn = end
            return self.durable_lsn

    @property
    def tables_unchanged(self) -> bool:
        """Whether tables have a snapshot, and have logged nothing behind it: they may begin to read here. Under the
        lock."""
        tables = self.tables
        return tables is not None and tables.snapshot > 0 and self.tables_logged < tables.lsn

    def write_checkpoint(
        self, lsn: int, end: Position | None, tables: TablesFrom | None = None
    ) -> None:
        """Recovery begins at `lsn` from now on; the binlog files hold everything before it, up to `end`. Durable.

        `tables`: where these begin to read from now on; None if that stays.
        """
        # Not at the same time as `flush`: of two syncs that run at once only one is told of an error.
        with self._syncing:
            if tables is not None:
                self._move_tables(tables)
            self._write_checkpoint(lsn, end)

    def write_tables_checkpoint(self, tables: TablesFrom) -> None:
        """The tables begin to read there from now on. That of the binlog stays. Durable."""
        with self._syncing:
            self._move_tables(tables)
            self._write_checkpoint(self.checkpoint.lsn, self.checkpoint.end)

    def _move_tables(self, tables: TablesFrom) -> None:
        # A checkpoint may have moved on meanwhile, with the same snapshot: what is in front of it is free by now.
        if self.tables is None or tables.snapshot != self.tables.snapshot:
            self.tables = tables
        else:
            self.tables = max(tables, self.tables)

    def _write_checkpoint(self, lsn: int, end: Position | None) -> None:
        number = self.checkpoint.number + 1
        checkpoint = Checkpoint(number, self.epoch, lsn, end, self.tables)
        with self._deadly:
            self._file.pwrite(checkpoint.build(), checkpoint.at)
            with self.fsyncs.measured():
                self._file.fdatasync()
        self.bytes_written += BLOCK
        self.checkpoint = checkpoint  # only now may the ring before it be used again
        self.checkpoint_lsn = checkpoint.begin[0]

    def close(self) -> None:
        """Close the file, without a flush."""
        self._file.close()

    def _write_ring(self, data: bytes, lsn: int) -> None:
        at = lsn % self.capacity
        if at + len(data) <= self.capacity:
            self._file.pwrite(data, RING_AT + at)
            return
        first = self.capacity - at
        with memoryview(data) as view:
            self._file.pwrite(view[:first], RING_AT + at)
            self._file.pwrite(view[first:], RING_AT)


_NOTE_BYTES = FLUSHED.size + MTR_OVERHEAD
