"""Snapshots of the tables, which let the redo log be used again: docs/internals/tables.md has the steps.

A snapshot is due when tables need more than half of the log, or somebody waits for room that only a snapshot makes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Final, Protocol

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.worker import Worker
from binlog_storage.disk.disk import Disk
from binlog_storage.errors import DiskError
from binlog_storage.redo.format import TablesFrom
from binlog_storage.redo.log import AppendLock, RedoLog
from binlog_storage.tables import snapshot
from binlog_storage.tables.snapshot import TABLES_NAME, Begin, OpenTrx
from binlog_storage.tables.store import TableStore

log = logging.getLogger(__name__)

SNAPSHOT_PART: Final = 1 / 2  # of the log, from which on a snapshot is due
FEW_ROWS: Final = 10_000
"""So many are written when the store is closed: some milliseconds. More would make each stop longer."""
_LOOK_AGAIN_S: Final = 1.0
_ASKS_WITHIN_S: Final = 2.0  # who waits for room asks ten times a second


class SnapshotLog(Protocol):
    """The redo log of a store as snapshots need it."""

    @property
    def redo(self) -> RedoLog: ...

    @property
    def lock(self) -> AppendLock:
        """The append lock."""

    @property
    def failed(self) -> bool:
        """Whether the store accepts nothing more."""

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""

    def sync_log(self) -> None:
        """Make all that was logged durable, for good. Raises `DiskError`, `StoreFailed`."""

    @property
    def lasting_lsn(self) -> int:
        """The LSN up to which `sync_log` has done that."""

    @property
    def redo_wanted(self) -> int:
        """The bytes of the log for which somebody waits."""

    @property
    def tables_hold(self) -> bool:
        """Whether a snapshot would free a part of the log."""

    def checkpoint(self, tables: TablesFrom) -> None:
        """The tables begin to read there from now on: durable. Whoever waits for room is woken. Raises `DiskError`,
        `StoreFailed`.
        """


@dataclass(eq=False)
class TableSnapshots:
    """Of one store. One is made at a time; any thread."""

    _disk: Disk
    _log: SnapshotLog
    _tables: TableStore

    def __post_init__(self) -> None:
        self._redo = self._log.redo
        self._due_from = int(self._redo.capacity * SNAPSHOT_PART)
        self.working = threading.Lock()
        self.worker = Worker("binlog-tables", self._round)
        self._has_said = False  # that somebody waits, since one could be made
        self.made = 0
        self.rows = 0
        # When somebody last asked for room that only a snapshot makes, and since when, by the monotonic clock.
        self._asked_at = -math.inf
        self._asked_since = 0.0

    @property
    def due(self) -> bool:
        """Whether one should be made now."""
        redo = self._redo
        tables = redo.tables
        if tables is None or tables.lsn >= redo.lsn or self._log.failed:
            return False
        return redo.lsn - tables.lsn > self._due_from or (
            redo.room() < self._log.redo_wanted and self._log.tables_hold
        )

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for room in the log."""
        return bool(self._log.redo_wanted)

    @property
    def waited_s(self) -> float:
        """The seconds for which somebody has waited for room that only a snapshot makes; 0 if nobody does."""
        now = time.monotonic()
        return now - self._asked_since if now - self._asked_at < _ASKS_WITHIN_S else 0.0

    def logged(self) -> None:
        """Tables have logged something: wake the thread if a snapshot is due. Under the append lock."""
        tables = self._redo.tables
        if tables is not None and self._redo.lsn - tables.lsn > self._due_from:
            self._poke()

    def look(self) -> None:
        """Wake the thread if a snapshot is due. Groups fill the log, too, and do not look themselves."""
        if self.due:
            self._poke()

    def _poke(self) -> None:
        """Behind an error the thread tries again by itself, in a while: who waits for room says so ten times a second,
        and each try writes all rows, as far as there is room on the disk.
        """
        if not self.worker.failure:
            self.worker.poke()

    def relieve(self) -> bool:
        """Make room for one who waits, if a snapshot does that. Returns True if it was made here."""
        if not self.due:
            return False
        now = time.monotonic()
        if now - self._asked_at >= _ASKS_WITHIN_S:
            self._asked_since = now
        self._asked_at = now
        if self.worker.running:
            self._poke()
            return False
        return self.step()

    def step(self) -> bool:
        """Make a snapshot if one is due. Returns whether it was."""
        if not self.due:
            return False
        self.make()
        return True

    def finish(self) -> None:
        """The store is being closed: the next start needs no log in front of here, unless there are many rows."""
        redo, tables = self._redo, self._tables
        with tables.latch:  # another thread may give one its first row
            rows = sum(len(table) for table in tables.memory.tables.values())
        if redo.tables is not None and not redo.tables_unchanged and rows <= FEW_ROWS:
            try:
                self.make()
            except DiskError as error:  # the log has it all
                log.warning("%s was not written: %s", TABLES_NAME, error)

    def _round(self) -> float | None:
        try:
            while self.step():
                pass
        except DiskError as error:
            if self.is_wanted and not self._has_said:
                log.error(
                    "changes of rows, commits and DDL wait until %s can be written: %s",
                    TABLES_NAME,
                    error,
                )
                self._has_said = True
            raise
        self._has_said = False
        # Groups without rows fill the log, too; of these only checkpoints tell.
        return None if self._redo.tables is None else _LOOK_AGAIN_S

    def make(self) -> None:
        """Make a snapshot of now. Raises `DiskError`, `StoreFailed`; the one before stays then."""
        with self.working:
            self._make()

    def _make(self) -> None:
        redo, tables = self._redo, self._tables
        with self._log.lock:
            self._log.require_sound()
            before = redo.tables or TablesFrom(redo.lsn, redo.epoch)
            # What is in the log since the last one is the binlog's alone: that one goes on from here.
            unchanged = redo.tables_unchanged
            begin = TablesFrom(redo.lsn, redo.epoch, before.snapshot + (not unchanged))
            with tables.latch:
                unfinished = [OpenTrx.of(trx) for trx in tables.open.values()]
        if unchanged:
            self._log.sync_log()
        else:
            self.rows = snapshot.write(
                self._disk,
                Begin(redo.uuid, begin, unfinished),
                tables.memory,
                tables.latch,
                self._durable_end,
            )
            self.made += 1
        self._log.checkpoint(begin)
        self._asked_at = -math.inf
        log.debug("%s: number %d goes on at LSN %d", TABLES_NAME, begin.snapshot, begin.lsn)

    def _durable_end(self) -> tuple[int, int]:
        """Make the log durable behind all that the snapshot may hold: it must never know more than the log."""
        self._log.sync_log()
        return self._log.lasting_lsn, self._tables.next_trx
