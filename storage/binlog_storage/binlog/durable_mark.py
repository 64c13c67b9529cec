"""The durable mark, up to which readers may read: the end of the last record whose redo is durable.

A FIFO maps LSNs to positions in the binlog. `note` adds a pair before each write of the redo log: the LSN up to which
it is written, and the end of the binlog. `advance` takes off the pairs that have become durable. The positions are ends
of records, so a reader never stops inside a record.
"""

from __future__ import annotations

import threading
from collections import deque

from binlog_storage.ibb.chunk import Position

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
