"""Back-pressure: appends wait when the disk does not keep up.

Four things are bounded: the ring of the redo log, its part in memory, the pages that are not in their file yet, and the
files that recovery would have to read (the next file is entered only when a checkpoint lies in the current one).
`admit` waits for the hard bounds. `has_room` tells of softer bounds, for callers that must not block. A large
transaction stops at still softer ones (`has_room_to_spill`): its data lie in front of the commits of others, which must
wait until they are on disk.

`has_room` promises room for `largest_step` bytes. If the thread that must not block (`never_wait_in`) would wait in
`admit` for longer than a moment all the same, it gets an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from binlog_storage.binlog.limits import (
    FIFO_PAGES_MAX,
    FIFO_PAGES_SOFT,
    FIFO_PAGES_SPILL,
    FREE_ENOUGH_PART,
    FREE_SOFT_PART,
    FREE_SPILL_PART,
    QUIET_FACTOR,
    UNSYNCED_SPILL_BYTES,
)
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.errors import StorageError, WaitGivenUp
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.log import RedoLog

QUIET_S = 0.2  # without a commit, until "no client commits"
_LOOK_AGAIN_S = 0.05
MOMENT_S = 0.5  # the longest wait of a thread that must not block
_CREDIT_PART = 8


class Room:
    """The back-pressure of one store.

    Args:
        lock: the store's append lock.
        largest_step: the most bytes that are written between two calls of `has_room`.
        failed: gives whether the store accepts nothing more; then nobody waits.
        relieve: makes room; called without the lock. Returns True if there is room now, False if a thread is making it.
        commits: gives the number of groups so far.
    """

    def __init__(
        self,
        lock: threading.Lock,
        redo: RedoLog,
        pages: PageStore,
        writer: LogWriter,
        *,
        largest_step: int,
        failed: Callable[[], bool],
        relieve: Callable[[], bool],
        commits: Callable[[], int],
    ) -> None:
        self._lock = lock
        self._redo = redo
        self._pages = pages
        self._writer = writer
        self._largest_step = largest_step
        self._failed = failed
        self._relieve = relieve
        self._commits = commits
        self._commits_seen = -1
        self._commit_seen_at = 0.0
        self._freed = threading.Condition(threading.Lock())
        self._frees = 0
        self.clean_file = 0  # the file of the last checkpoint
        self.redo_wanted = 0
        """The bytes of redo for which somebody waits: a checkpoint must make the room."""
        self._paused = False
        self._closing = False
        self._credit = 0
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
        self._credit -= size
        if self._credit >= 0:
            return
        try:
            self._wait_until_admitted(size, given_up)
        finally:
            self.redo_wanted = 0  # others that wait say it again
        self._credit = self._new_credit()

    def _wait_until_admitted(self, size: int, given_up: Callable[[], bool] | None) -> None:
        hasty = threading.get_ident() == self._hasty
        deadline = time.monotonic() + MOMENT_S
        while not self.admits(size) and not self._failed():
            self.redo_wanted = max(self.redo_wanted, self._redo_needed(size))
            if self._closing or (given_up is not None and given_up()):
                raise WaitGivenUp(
                    "there was no room in the binlog, and nobody waits for it any more"
                )
            if hasty and time.monotonic() >= deadline:
                raise WaitGivenUp(
                    "there is no room in the binlog now, and all others would have to wait, too"
                )
            self._note_wait()
            self._lock.release()
            try:
                self._wait_once()
            finally:
                self._lock.acquire()

    def take(self, size: int) -> bool:
        """Reserve `size` bytes by the softer bounds, without waiting. False if there is no room."""
        if not self.has_room:
            return False
        self._credit -= size
        return True

    def _redo_needed(self, size: int) -> int:
        """Bytes of redo for a record of `size` bytes. Raises `StorageError` if the log is too small for them."""
        needed = self._writer.redo_bytes(size)
        if needed > self._redo.room_when_empty:
            raise StorageError(
                f"the redo log is too small: {needed} bytes may be needed for a group of {size} bytes and the GTID "
                f"state records that come with it. Restart with a larger innodb_log_file_size than {self._redo.size}"
            )
        return needed

    def _new_credit(self) -> int:
        """Bytes that may be appended before the bounds are checked again.

        A fraction of the free room: a record also costs redo headers, filler and state records.
        """
        redo, writer = self._redo, self._writer
        pages = FIFO_PAGES_MAX - self._pages.waiting
        room = min(redo.room(), redo.buffer_room, pages * PAGE_SIZE, writer.bytes_left)
        return room // _CREDIT_PART

    def pause(self) -> None:
        """Let all calls of `admit` wait until `resume`. Under the append lock."""
        self._paused = True
        self._credit = 0

    def resume(self) -> None:
        """End the `pause`. Under the append lock."""
        self._paused = False
        self.freed()

    def close(self) -> None:
        """End all waits; later ones end at once with `WaitGivenUp`."""
        self._closing = True
        self.freed()

    def admits(self, size: int) -> bool:
        """Whether a record of `size` bytes may be written now. Under the append lock."""
        redo, writer = self._redo, self._writer
        return (
            self._pages.waiting < FIFO_PAGES_MAX
            and not redo.is_full
            and redo.room() >= writer.redo_bytes(size)
            and (self.clean_file == writer.file_no or not writer.may_leave_file(size))
            and not self._paused
        )

    @property
    def has_room(self) -> bool:
        """See `BinlogEngine`."""
        redo, writer = self._redo, self._writer
        return self._failed() or (
            self._pages.waiting < FIFO_PAGES_SOFT
            and (self.clean_file == writer.file_no or not writer.may_leave_file(self._largest_step))
            and self._redo_has_room()
            and not redo.is_full
            and not self._paused
        )

    def _redo_has_room(self) -> bool:
        """Whether the redo log has room for a step, as far as one of half its size can have that."""
        redo = self._redo
        room = redo.room()
        return room > redo.capacity * FREE_ENOUGH_PART or (
            room > redo.capacity * FREE_SOFT_PART
            and room >= self._writer.redo_bytes(self._largest_step)
        )

    @property
    def has_room_to_spill(self) -> bool:
        """See `BinlogEngine`."""
        redo = self._redo
        factor = self.unsynced_factor
        return self._failed() or (
            self._pages.waiting < FIFO_PAGES_SPILL * factor
            and redo.lsn - redo.durable_lsn < UNSYNCED_SPILL_BYTES * factor
            and redo.room() > redo.capacity * FREE_SPILL_PART
            and self.has_room
        )

    @property
    def unsynced_factor(self) -> int:
        """`QUIET_FACTOR` if nothing was committed for `QUIET_S`, else 1: then commits wait for syncs."""
        now, commits = time.monotonic(), self._commits()
        if commits != self._commits_seen:
            self._commits_seen, self._commit_seen_at = commits, now
        return QUIET_FACTOR if now - self._commit_seen_at > QUIET_S else 1

    def wait(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        """See `BinlogEngine.wait_for_room`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (found := self.has_room_to_spill if to_spill else self.has_room):
            if deadline is not None and time.monotonic() >= deadline:
                break
            self._wait_once()
        return found

    def freed(self) -> None:
        """Wake all waiters: the flusher or a sync has made room."""
        with self._freed:
            self._frees += 1
            self._freed.notify_all()

    def _wait_once(self) -> None:
        seen = self._frees
        if self._relieve():
            return
        with self._freed:
            # With a time-out, because a thread that fails notifies nobody.
            self._freed.wait_for(lambda: self._frees != seen, _LOOK_AGAIN_S)

    def _note_wait(self) -> None:
        if self._pages.waiting >= FIFO_PAGES_MAX:
            self.page_waits += 1
        else:
            self.redo_waits += 1
