"""The redo log beside a traditional binlog: rows of tables, and the server's own facts. Two logs, one order.

Both get their records under one append lock, so that a moment is one place in each. A mini-transaction of the redo log
that comes behind groups which are not durable yet says so: it begins with PLACED, the place in the binlog that it is
behind. A start reads the redo log up to the first one whose place the binlog does not reach. So behind any crash the
tables are as they were when the last group that is there was appended: a prefix of both, as in a store of one log.

A transaction of rows and its group, by two phases; the binlog decides:

1. prepare   under the append lock: END of the transaction, behind PLACED with the end of the group, in memory; the
             group, in memory. Its locks are free, later views see it. A crash forgets it: it is undone
2.           the redo log is synced, once for all that was appended, before a byte of their groups goes to the file.
             A crash finds that the binlog does not reach the place: the log ends there, and it is undone
3. decide    the groups are written, and the file synced, once for all. From its end on a start finds them: committed
4. commit    nothing for each: what the redo log writes next begins with FLUSHED, up to where both are durable

A transaction that a start undoes is an open one then: it has its locks, and the background rollback undoes it.

In front of a new file, and of RESET MASTER, a checkpoint says that all places are reached. So a start asks for places
in the last file only, its checkpoint event names itself, and a purge deletes no file that a start may need.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from binlog_storage.binlog.decision import settle_in, xa_name
from binlog_storage.binlog.opening import (
    go_on_with,
    make_log,
    no_collections,
    require_known,
    tables_without_pages,
)
from binlog_storage.binlog.options import NO_LOG_REDO
from binlog_storage.binlog.room import ShortWait
from binlog_storage.binlog.stored_tables import StoredTables
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import REDO_KEY, StateStore
from binlog_storage.engine import Position
from binlog_storage.engine.soundness import final
from binlog_storage.errors import CorruptRedo, DiskError, DiskFull, StorageError, WaitGivenUp
from binlog_storage.ibb.xa import Xid
from binlog_storage.redo.format import (
    REDO_NAME,
    RedoFormatError,
    Tables,
    TablesFrom,
    placed_record,
    tables_record,
)
from binlog_storage.redo.log import FIRST_LSN, AppendLock, RedoLog
from binlog_storage.redo.reader import Reaches
from binlog_storage.tables.facts import (
    FactTables,
    binlog_has_begun,
    binlog_will_begin,
    decision,
    decisions,
    forget_decisions,
)
from binlog_storage.tables.participants import RowKeeper
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.records import SMALL_BYTES, is_commit
from binlog_storage.tables.store import TableStep

_RESERVE: Final = 64 << 10  # of the log, for small records of steps that cannot wait any more
_SOFT_PART: Final = 1 / 8  # `has_room` is false with less of the log left
_LOOK_AGAIN_S: Final = 0.05


class Beside(Protocol):
    """The binlog as the redo log beside it sees it."""

    @property
    def append_lock(self) -> AppendLock: ...

    @property
    def write_lock(self) -> AppendLock:
        """Held around each write of the redo log: it comes before the append lock."""

    @property
    def appended_end(self) -> Position:
        """The place behind all that was appended. Under the append lock."""

    @property
    def is_pending(self) -> bool:
        """Whether something that was appended is not durable yet."""

    @property
    def why_stuck(self) -> DiskFull | None:
        """Why what is pending cannot become durable now: the disk is full."""

    @property
    def failed(self) -> bool: ...

    def require_sound(self) -> None: ...

    def catch_up(self) -> None:
        """Write what comes first, if anything does. Raises `DiskFull` without room for it."""

    def fail(self, error: StorageError) -> None: ...


class RowLog:
    """Of one store. First `plan`, then `begin`; then it takes what tables log (`TableLog`, `SnapshotLog`).

    Any thread; locks as in the head of `store.py`, and those of `RedoLog` behind that of writes.
    """

    def __init__(
        self,
        binlog: Beside,
        disk: Disk,
        options: ClassicOptions,
        facts: StateStore | None,
        sync_binlog: Callable[[], None],
    ) -> None:
        self._binlog = binlog
        self._sync_binlog = sync_binlog
        self._disk = disk
        self._options = options
        self.file: Final = facts
        self.lock = binlog.append_lock
        self.require_sound = binlog.require_sound
        self._planned: RedoLog | None = None
        self._rebuilt = Rebuild()
        self._checkpointing = threading.Lock()
        self._freed = threading.Condition(threading.Lock())
        self._frees = 0
        self._closing = False
        self._hasty: int | None = None
        self.redo_wanted = 0
        self.redo_waits = 0
        self._noted: Position | None = None  # the last place that was asked for
        self._placed_lsn = 0
        self.roomy_lsn = 0  # there is room up to there: checkpoints and writes only make more
        self.group_lsn = 0
        """The redo log must be durable up to here before more of the binlog is written. Under the append lock."""
        self.redo: RedoLog
        self.tables: StoredTables
        self.facts: FactTables

    # --- a start ---

    def plan(self, reaches: Reaches) -> None:
        """Read the log, as far as the binlog goes; nothing is changed. Raises `CorruptRedo`, `CorruptTables`."""
        there = REDO_NAME in self._disk.names()
        if self._options.innodb_force_recovery >= NO_LOG_REDO:
            self._rebuilt = tables_without_pages(self._disk)
        elif there:
            redo = RedoLog(self._disk, self.lock, self._options.innodb_log_buffer_size)
            try:
                require_known(redo, self.file)
                with no_collections():
                    self._read(redo, reaches)
            except BaseException:
                redo.close()
                raise
            self._planned = redo
        elif self.file is not None and self.file.get(REDO_KEY) is not None:
            raise CorruptRedo(
                f"{REDO_NAME} is missing, which has the rows of tables and the facts of this server. The store was not "
                "opened: put it back; or start once with innodb_force_recovery=6 to go on without what was only there"
            )
        else:
            self._rebuilt.load_alone(self._disk)

    def _read(self, redo: RedoLog, reaches: Reaches) -> None:
        tables = self._rebuilt
        tables.load(self._disk, redo.uuid, redo.checkpoint.tables)
        try:
            for mtr in redo.replay(tables.take, reaches):
                for record in mtr.records():
                    if isinstance(record, Tables):
                        tables.apply(record.data, mtr.lsn, redo.reading_epoch)
        except RedoFormatError as error:
            raise CorruptRedo(f"{REDO_NAME} holds {error}") from None
        tables.done(redo.lsn)

    def begin(self, settle: Callable[[StoredTables], bool]) -> None:
        """Go on behind what was read; the binlog has its end. Raises `DiskError`.

        `settle`: see `StoredTables`.
        """
        disk, file, options, rebuilt = self._disk, self.file, self._options, self._rebuilt
        if self._planned is None:
            redo = make_log(disk, rebuilt, file, options, self.lock, FIRST_LSN, None)
        else:
            self._planned.write_again()
            redo = go_on_with(disk, self._planned, rebuilt, file, options, self.lock, None)
        self._planned = self.redo = redo
        redo.settled_lsn = redo.lsn
        self.tables = StoredTables(disk, self, self, rebuilt, options, lambda: settle(self.tables))
        self.tables.settle()
        self.facts = FactTables(self.tables.store, file, lambda: self._binlog.why_stuck)

    # --- what tables log: see `TableLog` ---

    def admit(self, size: int, given_up: Callable[[], bool] | None = None) -> None:
        """See `TableLog`. It leaves so much that small records need not be admitted."""
        if not self._admits(size):
            try:
                self._wait_until_admitted(size, given_up)
            finally:
                self.redo_wanted = 0  # others that wait say it again
        if given_up is not None and self._binlog.why_stuck is not None and given_up():
            raise WaitGivenUp("what is in front of it in the binlog cannot be written now")
        self.require_sound()

    def _admits(self, size: int) -> bool:
        redo = self.redo
        if size <= _RESERVE and redo.lsn < self.roomy_lsn:
            return True
        return self.failed or (not redo.is_full and redo.room() >= size + _RESERVE)

    def _wait_until_admitted(self, size: int, given_up: Callable[[], bool] | None) -> None:
        needed = size + _RESERVE
        if needed > self.redo.room_when_empty:
            raise StorageError(
                f"the redo log is too small: {needed} bytes may be needed for a change. Restart with a larger "
                f"innodb_log_file_size than {self.redo.size}"
            )
        hasty = threading.get_ident() == self._hasty
        wait = ShortWait()
        while not self._admits(size):
            self.redo_wanted = max(self.redo_wanted, needed)
            if self._closing or (given_up is not None and given_up()):
                raise WaitGivenUp(
                    "there was no room in the redo log, and nobody waits for it any more"
                )
            if hasty and wait.is_over():
                raise WaitGivenUp(
                    "there is no room in the redo log now, and all others would have to wait, too"
                )
            self.redo_waits += 1
            self.lock.release()
            try:
                self.relieve()
            finally:
                self.lock.acquire()

    def relieve(self) -> None:
        """Make room, or wait a moment for those who do. Without locks."""
        frees = self._frees
        if self.redo.is_full:
            self.write()
        elif not self.tables.snapshots.relieve():
            with self._freed:
                # With a time-out, because a thread that fails notifies nobody.
                self._freed.wait_for(lambda: self._frees != frees, _LOOK_AGAIN_S)

    @property
    def has_room(self) -> bool:
        """Whether the next changes need not wait."""
        redo = self.redo
        lsn = redo.lsn
        if lsn < self.roomy_lsn:  # asked in front of each commit
            return True
        left = redo.room() - max(int(redo.capacity * _SOFT_PART), 2 * _RESERVE)
        self.roomy_lsn = lsn + min(left, redo.buffer_room)
        return self.failed or lsn < self.roomy_lsn

    def log_tables(self, record: bytes) -> None:
        """See `TableLog`."""
        end = self._binlog.appended_end
        if end == self._noted or not self._binlog.is_pending:
            self._noted = end
            self._append(tables_record(record))
        else:
            self._append_behind(record, end)
        if is_commit(record):  # what is appended from now on must not be there without it
            self.group_lsn = self.redo.lsn

    def log_with(self, record: bytes, end: Position) -> None:
        """The same, with a group that ends there: before it is written. Under the append lock."""
        self._append_behind(record, end)
        self.group_lsn = self.redo.lsn

    def _append_behind(self, record: bytes, end: Position) -> None:
        self._append(placed_record(end) + tables_record(record))
        self._noted, self._placed_lsn = end, self.redo.lsn

    def _append(self, records: bytes) -> None:
        self.redo.note_tables()
        self.redo.append(records)
        self.tables.snapshots.logged()

    def sync_log(self) -> None:
        """See `TableLog`. What is in front of it in the binlog becomes durable, too."""
        if self._binlog.is_pending:
            self._sync_binlog()
            return
        with self._binlog.write_lock:
            with self.lock:
                if self._binlog.is_pending:  # somebody has appended meanwhile
                    lsn = 0
                else:
                    lsn = self.redo.lsn
            self.flush()
            if lsn:
                self.settled(lsn)
        if not lsn:
            self._sync_binlog()

    # --- durability; under the lock of writes ---

    def flush(self) -> None:
        """Make durable what was logged. Raises `DiskError`, `StoreFailed`."""
        self.require_sound()
        self._binlog.catch_up()
        try:
            self.redo.flush()
        except DiskError as error:
            self._binlog.fail(error)
            raise final(error) from error.__cause__

    def write(self) -> None:
        """Hand it to the operating system. Takes the lock of writes itself; raises as `flush`."""
        with self._binlog.write_lock:
            self.require_sound()
            self._binlog.catch_up()
            try:
                self.redo.write()
            except DiskError as error:
                self._binlog.fail(error)
                raise final(error) from error.__cause__

    def settled(self, lsn: int) -> None:
        """The binlog has all that was appended in front of this LSN, durably."""
        self.redo.settled_lsn = max(lsn, self.redo.settled_lsn)

    def all_settled(self) -> None:
        """Note durably that the binlog reaches all places. Behind a sync, under the locks of writes and appends."""
        self._noted = None  # RESET MASTER may follow, and then the same places again
        with self._checkpointing:
            if self._placed_lsn > self.redo.checkpoint.lsn:
                self._checkpoint(self.redo.durable_lsn)

    # --- other engines; see `RowDeciding` ---

    def decision(self, xid: Xid, ending: TableStep) -> TableStep:
        """The end of a transaction of which other engines have a part, prepared under this name. Under the append
        lock."""
        decided = decision(self.tables.store, xid.encode())

        def done() -> None:
            ending.done()
            decided.done()

        return TableStep(ending.record + decided.record, done)

    def known(self, xid: Xid) -> None:
        """All know this decision."""
        with self.lock:
            self.admit(SMALL_BYTES)
            forget_decisions(self.tables.store, [xid.encode()])

    def settle(self, keeper: RowKeeper) -> bool:
        """At a start: settle what another engine has prepared. Returns whether the log got records."""
        store = self.tables.store
        known = decisions(store)
        waiting = {xa_name(self.redo.uuid, trx.id) for trx in store.prepared.values()}
        for xid in keeper.recover():
            if xid in waiting:  # for XA COMMIT
                continue
            settle_in(keeper, xid, committed=xid.encode() in known)
        if known:
            with self.lock:
                forget_decisions(store, known)
        return bool(known)

    # --- RESET MASTER; under the same locks ---

    def will_begin(self) -> None:
        """The binlog is to begin anew; its new first file has a name already, durably."""
        self._log_now(binlog_will_begin(self.tables.store))

    def has_begun(self, *, begun: bool) -> None:
        """It has, or else it has not; durable then, and only then the new first file may be deleted."""
        self._log_now(binlog_has_begun(self.tables.store, begun=begun))

    def _log_now(self, step: TableStep | None) -> None:
        if step is not None:
            self.log_tables(step.record)
            step.done()
            self.flush()

    def _checkpoint(self, lsn: int, tables: TablesFrom | None = None) -> None:
        try:
            self.redo.write_checkpoint(max(lsn, self.redo.checkpoint.lsn), None, tables)
        except DiskError as error:
            self._binlog.fail(error)
            raise final(error) from error.__cause__

    # --- see `SnapshotLog` ---

    @property
    def failed(self) -> bool:
        """See `SnapshotLog`."""
        return self._binlog.failed

    @property
    def lasting_lsn(self) -> int:
        """See `SnapshotLog`."""
        return min(self.redo.durable_lsn, self.redo.settled_lsn)

    @property
    def tables_hold(self) -> bool:
        """See `SnapshotLog`."""
        return True

    def checkpoint(self, tables: TablesFrom) -> None:
        """See `SnapshotLog`."""
        self.require_sound()
        with self._checkpointing:
            self._checkpoint(tables.lsn, tables)
        with self._freed:
            self._frees += 1
            self._freed.notify_all()

    # --- the end ---

    def never_wait_in(self, thread: int) -> None:
        """See `BinlogEngine`."""
        self._hasty = thread

    def stop_waiting(self) -> None:
        """All waits end with an error, now and later."""
        self._closing = True
        with self._freed:
            self._frees += 1
            self._freed.notify_all()

    def finish(self) -> None:
        """The store is being closed, and everything is durable: the next start has less to read."""
        self.tables.snapshots.finish()
        self.all_settled()

    def close(self) -> None:
        """Let go of the file."""
        if self._planned is not None:
            self._planned.close()

    def counters(self) -> dict[str, int]:
        """By the names of SHOW STATUS."""
        redo = self.redo
        return {
            "Innodb_checkpoint_age": redo.lsn - redo.checkpoint_lsn,
            "Innodb_checkpoint_max_age": redo.capacity,
            "Innodb_log_waits": self.redo_waits,
            "Innodb_lsn_current": redo.lsn,
            "Innodb_lsn_flushed": redo.durable_lsn,
            "Innodb_lsn_last_checkpoint": redo.checkpoint_lsn,
            "Innodb_os_log_fsyncs": redo.fsyncs.count,
            "Innodb_os_log_written": redo.bytes_written,
            **self.tables.counters(),
        }
