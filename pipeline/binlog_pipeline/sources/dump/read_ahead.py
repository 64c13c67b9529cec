"""Reading in a thread, some way ahead of who uses it: a server is not kept waiting while rows are made."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.dump.reader import DumpReader

BYTES_AHEAD: Final = 32 << 20
_END_S: Final = 5.0


class ReadAhead:
    """Read-ahead of a reader, in a thread: no more than `bytes_max` not yet taken; a large group counts as much."""

    def __init__(self, reader: DumpReader, bytes_max: int = BYTES_AHEAD) -> None:
        self._reader = reader
        self._bytes_max = bytes_max
        self._queue: deque[Groups] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_done = self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="binlog-read-ahead", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether reading has failed, and all groups before the error were taken."""
        with self._changed:
            return self._error is not None and not self._queue

    @property
    def waiting(self) -> int:
        """Batches that can be taken without waiting."""
        return len(self._queue)

    def take(self, timeout_s: float | None = None) -> Groups | None:
        """The next batch; None at the end, or after so long. Raises what has ended the reading."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._queue:
                if self._error is not None:
                    raise self._error
                left = None if deadline is None else deadline - time.monotonic()
                if self._is_done or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            groups = self._queue.popleft()
            self._bytes -= self._size(groups)
            self._changed.notify_all()
            return groups

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify_all()
        self._reader.close()
        self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            for groups in self._reader.groups():
                with self._changed:
                    if self._is_closed:
                        return
                    self._queue.append(groups)
                    self._bytes += self._size(groups)
                    self._changed.notify_all()
                    # Only now: what is read next may already take place on the disk.
                    self._changed.wait_for(lambda: self._is_closed or self._bytes < self._bytes_max)
        except BaseException as error:  # noqa: BLE001  # for the other thread to raise
            with self._changed:
                self._error = error
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _size(self, groups: Groups) -> int:
        if groups.large is not None:
            return self._bytes_max
        return sum(map(len, groups.payloads))
