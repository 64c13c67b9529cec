"""Cache files go to the disk while they are written, so that little is left for the sync at the commit.

A large file that is synced at once makes all syncs beside it wait for its bytes: those of small commits, too. So a
thread syncs each cache file every few megabytes, and who spills waits while too much is left. It promises nothing: it
has descriptors of its own, so an error that it meets is told to the owner of the file as well, at the owner's sync.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from binlog_storage.binlog.worker import Worker
from binlog_storage.disk.disk import Disk
from binlog_storage.errors import DiskError, FileMissing

log = logging.getLogger(__name__)

STEP_BYTES: Final = 2 << 20
LEFT_BYTES_MAX: Final = 8 << 20  # of all files; beyond it `has_room` is false


class WriteBehind:
    """Of one store. Methods may be called from any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._left: dict[str, int] = {}  # bytes that were written and not synced, by file
        self._changed = threading.Condition(threading.Lock())
        self.worker: Final = Worker("binlog-spool", self._round)

    def wrote(self, name: str, size: int) -> None:
        """So many bytes more were written to a file."""
        with self._changed:
            left = self._left[name] = self._left.get(name, 0) + size
        if left >= STEP_BYTES or not self.has_room:
            self.worker.poke()

    def forget(self, name: str) -> None:
        """A file is gone, or was synced by its owner."""
        with self._changed:
            if self._left.pop(name, 0):
                self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        """Whether more may be written. Without its thread nothing is waited for."""
        return not self.worker.running or sum(tuple(self._left.values())) <= LEFT_BYTES_MAX

    def wait(self, timeout: float | None, ended: Callable[[], bool]) -> None:
        """Wait for room, at most so many seconds, or until `ended`, which is asked each time that a file was synced."""
        with self._changed:
            self._changed.wait_for(lambda: self.has_room or ended(), timeout)

    def wake(self) -> None:
        """Let who waits ask again whether that has ended."""
        with self._changed:
            self._changed.notify_all()

    def _round(self) -> float | None:
        while (found := self._next()) is not None:
            name, size = found
            try:
                with contextlib.closing(self._disk.open(name)) as file:
                    file.fdatasync()
            except FileMissing:  # a commit or a rollback was faster
                pass
            except DiskError as error:
                log.warning("%s", error)
            with self._changed:
                if name in self._left:
                    self._left[name] = max(0, self._left[name] - size)
                self._changed.notify_all()
        return None

    def _next(self) -> tuple[str, int] | None:
        """The file with the most left to sync, if that is worth it."""
        with self._changed:
            if not self._left:
                return None
            name, size = max(self._left.items(), key=lambda item: item[1])
            worth = size >= STEP_BYTES or (
                size > 0 and sum(self._left.values()) > LEFT_BYTES_MAX // 2
            )
            return (name, size) if worth else None
