"""Sync, move the durable mark, wake: in this order, and nowhere else.

An append is a mini-transaction of the redo log, in memory. `sync_log` makes all of them durable by one write and one
sync, then moves the durable mark, up to which readers may read, then wakes the listeners.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from binlog_storage.binlog.durable_mark import DurableMark
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.errors import DiskError, StorageError, StoreFailed
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.log import RedoLog

log = logging.getLogger(__name__)


class Durability:
    """Syncs the redo log of one store and moves the durable mark; from any thread."""

    def __init__(self, redo: RedoLog, writer: LogWriter) -> None:
        self.redo = redo
        self.mark = DurableMark(redo.lsn, Position(0, PAGE_SIZE))
        self._writer = writer
        self._failure: StorageError | None = None
        self._failing = threading.Lock()
        self._when_failed: list[Callable[[StorageError], None]] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed: the store accepts nothing more."""
        return self._failure is not None

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""
        if self._failure is not None:
            raise StoreFailed(
                f"the binlog accepts nothing more after an earlier failure: {self._failure}"
            )

    def fail(self, error: StorageError) -> None:
        """End writing for good: it is unknown which bytes reached the disk, and the next sync may succeed without
        them."""
        with self._failing:
            if self._failure is not None:
                return
            self._failure = error
        log.error("the binlog accepts nothing more: %s; what is durable is still served", error)
        for failed in self._when_failed:
            failed(error)

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        """See `BinlogEngine`."""
        self._when_failed.append(failed)

    def sync_log(self) -> None:
        """Make everything appended so far durable and visible to readers. Raises `DiskError`, `StoreFailed`."""
        self.require_sound()
        try:
            durable = self.redo.flush(self.note)
        except DiskError as error:
            self.fail(error)
            raise
        if self.mark.advance(durable):
            self.wake()

    def note(self, lsn: int) -> None:
        """Note for the mark where the binlog ends at this LSN. Under the append lock, between two mini-transactions."""
        self.mark.note(lsn, self._writer.end)

    def restart(self, end: Position) -> None:
        """RESET MASTER: the binlog begins anew at `end`. Under the append lock, with nothing left to sync."""
        self.mark.restart(self.redo.lsn, end)

    def write_log(self) -> None:
        """Hand everything appended so far to the operating system. Raises `DiskError`, `StoreFailed`."""
        self.require_sound()
        try:
            self.redo.write(self.note)
        except DiskError as error:
            self.fail(error)
            raise

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `BinlogEngine`."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def wake(self) -> None:
        """Call the listeners: the mark has moved."""
        for wake in list(self._listeners):
            wake()
