"""Sync, move the durable mark, wake: in this order, and nowhere else.

An append is a mini-transaction of the redo log, in memory. `sync_log` makes all of them durable by one write and one
sync, then moves the durable mark, up to which readers may read, then wakes the listeners.

The mark is the end of the last record whose redo is durable. A FIFO maps LSNs to positions in the binlog: `note` adds a
pair before each write of the redo log, the LSN up to which it is written, and the end of the binlog; `advance` takes
off the pairs that have become durable. The positions are ends of records, so a reader never stops inside a record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.engine.soundness import Soundness, final
from binlog_storage.errors import DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.log import RedoLog

PENDING_MAX = 2048


class DurableMark:
    """The durable end of one store. `note` under the append lock; other methods from any thread.

    Args:
        lsn, end: the durable LSN and the durable end now.
    """

    def __init__(self, lsn: int, end: Position) -> None:
        self.lsn = lsn
        self.end = end
        self._pending: deque[tuple[int, Position]] = deque()
        self._lock = threading.Lock()

    def note(self, lsn: int, end: Position) -> None:
        """Pair a place with its LSN: records up to `end` are durable when the redo log is durable up to `lsn`."""
        pending = self._pending
        if len(pending) >= PENDING_MAX:
            with self._lock:
                if pending:  # `advance` may just have taken all of them
                    pending.pop()  # the next pair stands for this one, too
        pending.append((lsn, end))

    def advance(self, durable_lsn: int) -> bool:
        """Move the mark: the redo log is durable up to `durable_lsn`. Returns whether the durable end moved."""
        with self._lock:
            pending = self._pending
            end = None
            while pending and pending[0][0] <= durable_lsn:
                self.lsn, end = pending.popleft()
            if end is None:
                return False
            self.end = end
            return True

    def restart(self, lsn: int, end: Position) -> None:
        """RESET MASTER: the binlog begins anew at `end`. Nothing may be pending."""
        with self._lock:
            self._pending.clear()
            self.lsn, self.end = lsn, end


class Durability(Soundness):
    """Syncs the redo log of one store and moves the durable mark; from any thread."""

    def __init__(self, redo: RedoLog, writer: LogWriter) -> None:
        super().__init__()
        self.redo = redo
        self.mark = DurableMark(redo.lsn, Position(0, PAGE_SIZE))
        self._writer = writer

    def sync_log(self, durable: Callable[[], object] | None = None) -> None:
        """Make everything appended so far durable and visible to readers. Raises `DiskError`, `StoreFailed`.

        `durable`: see `EngineWriter.sync`.
        """
        if self.failure is not None:
            self.require_sound()
        try:
            lsn = self.redo.flush(self.note, durable)
        except DiskError as error:
            self.fail(error)
            raise final(error) from error.__cause__
        if self.mark.advance(lsn):
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
            raise final(error) from error.__cause__
