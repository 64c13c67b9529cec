"""Back-pressure: appends wait when the disk does not keep up, as `Bounds` says.

`has_room` promises room for the largest step. If the thread that must not block (`never_wait_in`) would wait in `admit`
for longer than a moment all the same, it gets an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.bounds import Bounds
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.late_writes import LateWrites
from binlog_storage.binlog.table_snapshots import TableSnapshots
from binlog_storage.binlog.worker import Worker
from binlog_storage.errors import WaitGivenUp
from binlog_storage.ibb.page import PAGE_SIZE

MOMENT_S = 0.5  # the longest wait of a thread that must not block
_LOOKS: Final = 4
"""At least so often it looks, though the moment is over: while the process stood still, nobody could make room."""


class ShortWait:
    """For how long a thread that must not block waits for room."""

    def __init__(self) -> None:
        self._end: Final = time.monotonic() + MOMENT_S
        self._looks = 0

    def is_over(self) -> bool:
        """To be asked at each look, behind it."""
        self._looks += 1
        return self._looks > _LOOKS and time.monotonic() >= self._end


@dataclass(eq=False)
class Room:
    """The waits of one store for room.

    Args:
        lock: the store's append lock.
        late: writes of opening; while there are any, they are what has to be done.
        caretaker: does these, if it runs.
        flusher: makes room, in all other cases.
    """

    _lock: threading.Lock
    bounds: Bounds
    _late: LateWrites
    _caretaker: Worker
    _flusher: Flusher
    snapshots: TableSnapshots | None = None
    """Make the room that tables take; None while there are none."""

    def __post_init__(self) -> None:
        self._closing = False
        self._hasty: int | None = None  # the thread that must not block
        self.redo_waits = 0
        self.page_waits = 0

    def never_wait_in(self, thread: int) -> None:
        """See `BinlogEngine`."""
        self._hasty = thread

    def admit(self, size: int, given_up: Callable[[], bool] | None = None) -> None:
        """Wait until a record of `size` bytes may be written. Under the append lock, which is released while waiting.

        Raises `StorageError` if the record does not fit into an empty redo log; `WaitGivenUp` when the store is closed
        or `given_up` returns True during the wait, and after `MOMENT_S` in the thread of `never_wait_in`.
        """
        bounds = self.bounds
        bounds.credit -= size
        if bounds.credit >= 0:
            return
        try:
            self._wait_until_admitted(size, given_up)
        finally:
            bounds.redo_wanted = 0  # others that wait say it again
        bounds.renew_credit()

    def _wait_until_admitted(self, size: int, given_up: Callable[[], bool] | None) -> None:
        bounds = self.bounds
        hasty = threading.get_ident() == self._hasty
        wait = ShortWait()
        while not bounds.admits(size):
            bounds.redo_wanted = max(bounds.redo_wanted, bounds.redo_needed(size))
            if self._closing or (given_up is not None and given_up()):
                raise WaitGivenUp(
                    "there was no room in the binlog, and nobody waits for it any more"
                )
            if hasty and wait.is_over():
                raise WaitGivenUp(
                    "there is no room in the binlog now, and all others would have to wait, too"
                )
            if bounds.memory_is_full:
                self.page_waits += 1
            else:
                self.redo_waits += 1
            self._lock.release()
            try:
                self._wait_once()
            finally:
                self._lock.acquire()

    def take_pages(self, count: int) -> int:
        """Reserve up to so many pages by the softer bounds, without waiting. Returns how many; 0: there is no room."""
        bounds = self.bounds
        if not bounds.has_room:
            return 0
        if count > 1:
            count = max(1, min(count, bounds.redo_pages))
        bounds.credit -= count * PAGE_SIZE
        return count

    def close(self) -> None:
        """End all waits; later ones end at once with `WaitGivenUp`."""
        self._closing = True
        self.bounds.freed()

    def wait(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        """See `BinlogEngine.wait_for_room`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (found := self.bounds.has_room_to_spill if to_spill else self.bounds.has_room):
            if deadline is not None and time.monotonic() >= deadline:
                break
            self._wait_once()
        return found

    def _wait_once(self) -> None:
        seen = self.bounds.frees
        if not self._relieve():
            self.bounds.wait_freed(seen)

    def relieve_tables(self) -> None:
        """Make the room that tables take in the log, if that is where there is none for a next file."""
        bounds = self.bounds
        bounds.redo_wanted = max(bounds.redo_wanted, bounds.redo_needed(2 * PAGE_SIZE))
        try:
            if self.snapshots is not None:
                self.snapshots.relieve()
        finally:
            bounds.redo_wanted = 0

    def _relieve(self) -> bool:
        """Make room, without the lock. Returns True if there is room now, False if a thread is making it."""
        if self._late.full is None:
            made = self.snapshots is not None and self.snapshots.relieve()
            return self._flusher.relieve() or made
        if self._caretaker.running:
            return False
        self._late.relieve()
        return True
