"""The tables of an open store: rows, their snapshots, the undo of what a start has found, and rows kept elsewhere.

The engine gives the redo log, and settles what was prepared: each does that by its binlog.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.decision import Decision, xa_name
from binlog_storage.binlog.options import UNDO_NEVER, UNDO_SYNCHRONOUS
from binlog_storage.binlog.table_snapshots import SnapshotLog, TableSnapshots
from binlog_storage.binlog.transaction import GroupSink
from binlog_storage.binlog.worker import Worker, stalled_workers
from binlog_storage.disk.disk import Disk
from binlog_storage.engine import Position, Stalled, Xid
from binlog_storage.errors import DiskFull, WaitGivenUp
from binlog_storage.tables.participants import RowKeeper
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.rows import COMMITTED, Version
from binlog_storage.tables.store import ReadView, TableLog, TableStore, TableTransaction
from binlog_storage.tables.undo import Undoer

log = logging.getLogger(__name__)

_UNDO_STEPS = 64  # at once, where nobody waits


class TableEngine(Protocol):
    """An engine that has tables, whose transactions commit with groups of its binlog."""

    @property
    def tables(self) -> TableStore:
        """The tables."""

    def writer_of(self, tables: TableTransaction) -> GroupSink:
        """For the caches of a transaction: the commit, or XA PREPARE, of its group is that of these tables, too."""

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
        """Commit a group with the change of one row, which is all that its transaction does; see `EngineWriter.append`.

        None, and nothing is done, if that cannot be done at once: the row is not `before`, it is locked, or somebody
        waits for it; or the group is larger than `cache_bytes`.
        """

    @property
    def next_sync(self) -> int:
        """A number that is the same for all that is appended between two syncs of the log."""

    def consistent_snapshot(self) -> tuple[ReadView, Position, BinlogState]:
        """A view of the tables, and the end and the state of the binlog that belong to it."""

    def make_row_keeper(self) -> bool:
        """Make sure that there can be tables whose rows another engine keeps. False: this store has no such engine."""

    def begin_two_phase(self, tables: TableTransaction, *, is_xa: bool = False) -> Decision:
        """The first step of the commit of a transaction with rows that another engine keeps: they are prepared there.

        `Transaction.decide` is the second one, `finish_two_phase` the last. One transaction at a time. Raises
        `StorageError`: nothing is prepared then. `is_xa`: it is to wait for XA COMMIT, `Transaction.prepare` is the
        second step, and the last one is only done if that fails.
        """

    def completing_two_phase(self, xid: Xid) -> Decision | None:
        """The commit of a prepared transaction with such rows, by `decide_prepared` and then, if that has not failed,
        `finish_two_phase`; None without such rows."""

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """As `EngineWriter.commit_prepared`, of one that has a part elsewhere."""

    def finish_two_phase(self, decision: Decision) -> None:
        """Commit there what the binlog has, or roll it back; durable when it returns."""


class UndoOptions(Protocol):
    """What options say of the undo at a start: see `StoreOptions`."""

    @property
    def innodb_force_recovery(self) -> int: ...

    @property
    def undo(self) -> int: ...


class StoredTables:
    """Of one store. Any thread.

    Args:
        settle: decides, at a start, what becomes of prepared transactions; returns whether it has logged something.
        is_full: whether nothing can be logged, as the disk is full: settled is later then, see `undo_step`.
    """

    def __init__(
        self,
        disk: Disk,
        log: TableLog,
        snapshot_log: SnapshotLog,
        rebuilt: Rebuild,
        options: UndoOptions,
        settle: Callable[[], bool],
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store = TableStore(log, rebuilt.memory, rebuilt.open, rebuilt.next_trx)
        self.snapshots = TableSnapshots(disk, snapshot_log, self.store)
        self.undo_worker = Worker("binlog-undo", self._undo_round)
        self._options = options
        self._settle_prepared = settle
        self._is_full = is_full
        self._closing = False
        self.is_settled = False
        self.undoer: Undoer

    # --- a start ---

    def settle(self) -> None:
        """Decide what becomes of transactions without an end, durably; undo none of them yet, unless asked to.

        On a full disk it is decided once there is room (`undo_step`): until then nothing can be logged.
        """
        self.undoer = Undoer(self.store)
        if self._is_full():
            return
        self._settle()
        if self._options.undo == UNDO_SYNCHRONOUS:
            while self.undoer.step(_UNDO_STEPS):
                pass
            self.store.log.sync_log()

    def _settle(self) -> None:
        if self._settle_prepared():
            self.store.log.sync_log()
        self.undoer = Undoer(self.store)
        self.is_settled = True
        if self._options.undo == UNDO_NEVER and self.undoer.transactions:
            log.warning(
                "innodb_force_recovery=%d: %d transactions, %d rows, are not rolled back: their rows stay locked until "
                "a start without it",
                self._options.innodb_force_recovery,
                self.undoer.transactions,
                self.undoer.rows,
            )

    def load(self, keeper: RowKeeper, uuid: bytes) -> None:
        """Read the rows that another engine keeps; what it has prepared is settled. `uuid`: of the redo log."""
        if not self.is_settled and keeper.recover():
            raise DiskFull(
                "what is prepared in another engine must be ended first, and there is no room to log it"
            )
        tables = self.store.memory.tables
        kept = self.store.kept_elsewhere
        fits = keeper.require_fits(uuid, kept)
        unknown: set[int] = set()
        for number, key, row in keeper.rows():
            if number in kept:
                tables[number].rows[key] = Version(row, COMMITTED, None)
            else:
                unknown.add(number)
        waiting = set(keeper.recover())
        for trx in self.store.prepared.values():
            if (name := xa_name(uuid, trx.id)) in waiting:
                self.store.take_prepared(trx, keeper.prepared_rows(name))
        if fits:
            keeper.forget(unknown)  # they were dropped
            return
        log.warning(
            "%s: the redo log that it was written with is lost. %d of its table(s) are known; the rows of %d others "
            "stay in it",
            keeper.name,
            len(kept),
            len(unknown),
        )
        keeper.adopt(uuid)

    # --- background work ---

    def start(self) -> None:
        """Start the background threads."""
        self.snapshots.worker.start()
        if not self.is_settled or self.undoer.transactions:
            self.undo_worker.start()

    def _undo_round(self) -> float | None:
        with contextlib.suppress(WaitGivenUp):  # the store is being closed: the next start goes on
            while not self._closing and self.undo_step():
                pass
        return None

    def undo_step(self) -> bool:
        """Decide what opening could not decide, or undo one step. Returns whether there is more to do."""
        if not self.is_settled:
            if self._is_full():
                return False
            self._settle()
        return self._options.undo != UNDO_NEVER and self.undoer.step()

    def close(self) -> None:
        """End the threads, and all waits for locks."""
        self._closing = True
        self.store.close()
        self.undo_worker.stop()
        self.snapshots.worker.stop()

    # --- what there is ---

    def counters(self) -> dict[str, int]:
        """By the names of SHOW STATUS."""
        tables, locks = self.store, self.store.locks
        return {
            "Binlog_table_changes": tables.changes,
            "Binlog_table_changes_undone": tables.undone,
            "Binlog_table_commits": tables.commits,
            "Binlog_table_rows_to_undo": self.undoer.rows,
            "Binlog_table_snapshots": self.snapshots.made,
            "Binlog_table_transactions_to_undo": self.undoer.transactions,
            "Innodb_deadlocks": locks.deadlocks,
            "Innodb_row_lock_current_waits": locks.waiting,
            "Innodb_row_lock_waits": locks.waits,
        }

    def stalled(self) -> list[Stalled]:
        """What its threads try again and again, and whether changes wait for that."""
        snapshots = self.snapshots
        found = stalled_workers(snapshots.worker, self.undo_worker)
        if waited_s := snapshots.waited_s:
            why = "changes of rows wait for a snapshot of the tables"
            if snapshots.worker.failure:
                why += f": {snapshots.worker.failure}"
            found.append(Stalled("rows", waited_s, why))
        return found
