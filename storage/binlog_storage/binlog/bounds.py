"""The bounds of what may wait for the disk: looked at here, waited for in `Room`.

Four things are bounded: the ring of the redo log, its part in memory, the pages that are not in their file yet, and the
files that recovery would have to read (the next file is entered only when a checkpoint lies in the current one).
`admits` knows the hard bounds. `has_room` tells of softer bounds, for callers that must not block. A large
transaction stops at still softer ones (`has_room_to_spill`): its data lie in front of the commits of others, which must
wait until they are on disk.
"""

from __future__ import annotations

import threading
import time

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.durability import Durability
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
from binlog_storage.errors import StorageError
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.log import RedoLog

QUIET_S = 0.2  # without a commit, until "no client commits"
_LOOK_AGAIN_S = 0.05
_CREDIT_PART = 8


@dataclass(eq=False)
class Bounds:
    """The bounds of one store, as they are met now.

    Args:
        largest_step: the most bytes that are written between two calls of `has_room`.
    """

    _redo: RedoLog
    _pages: PageStore
    _writer: LogWriter
    _durability: Durability
    _largest_step: int

    def __post_init__(self) -> None:
        self._commits_seen = -1
        self._commit_seen_at = 0.0
        self._freed = threading.Condition(threading.Lock())
        self.frees = 0
        """How often room was made."""
        self.clean_file = 0  # the file of the last checkpoint
        self.redo_wanted = 0
        """The bytes of redo for which somebody waits: a checkpoint must make the room."""
        self.credit = 0
        """Bytes that may be appended before the bounds are looked at again. Under the append lock."""
        self._paused = False

    def renew_credit(self) -> None:
        """Give credit: a fraction of the free room, as a record also costs redo headers, filler and state records."""
        redo, writer = self._redo, self._writer
        pages = FIFO_PAGES_MAX - self._pages.waiting
        room = min(redo.room(), redo.buffer_room, pages * PAGE_SIZE, writer.bytes_left)
        self.credit = room // _CREDIT_PART

    def redo_needed(self, size: int) -> int:
        """Bytes of redo for a record of `size` bytes. Raises `StorageError` if the log is too small for them."""
        needed = self._writer.redo_bytes(size)
        if needed > self._redo.room_when_empty:
            raise StorageError(
                f"the redo log is too small: {needed} bytes may be needed for a group of {size} bytes and the GTID "
                f"state records that come with it. Restart with a larger innodb_log_file_size than {self._redo.size}"
            )
        return needed

    def pause(self) -> None:
        """Admit nothing until `resume`. Under the append lock."""
        self._paused = True
        self.credit = 0

    def resume(self) -> None:
        """End the `pause`. Under the append lock."""
        self._paused = False
        self.freed()

    def admits(self, size: int) -> bool:
        """Whether a record of `size` bytes may be written now, or the store has failed. Under the append lock."""
        redo, writer = self._redo, self._writer
        return self._durability.failed or (
            self._pages.waiting < FIFO_PAGES_MAX
            and not redo.is_full
            and redo.room() >= writer.redo_bytes(size)
            and (self.clean_file == writer.file_no or not writer.may_leave_file(size))
            and not self._paused
        )

    @property
    def memory_is_full(self) -> bool:
        """Whether it is pages in memory that nothing is admitted for."""
        return self._pages.waiting >= FIFO_PAGES_MAX

    @property
    def has_room(self) -> bool:
        """See `BinlogEngine`."""
        redo, writer = self._redo, self._writer
        room = redo.room()
        return self._durability.failure is not None or (
            self._pages.waiting < FIFO_PAGES_SOFT
            and (self.clean_file == writer.file_no or not writer.may_leave_file(self._largest_step))
            # The redo log has room for a step, as far as one of half its size can have that.
            and (
                room > redo.capacity * FREE_ENOUGH_PART
                or (
                    room > redo.capacity * FREE_SOFT_PART
                    and room >= writer.redo_bytes(self._largest_step)
                )
            )
            and not redo.is_full
            and not self._paused
        )

    @property
    def redo_pages(self) -> int:
        """Pages that may be logged at once: a fraction of the free room of the redo log."""
        return self._redo.room() // (_CREDIT_PART * PAGE_SIZE)

    @property
    def has_room_to_spill(self) -> bool:
        """See `BinlogEngine`."""
        redo = self._redo
        factor = self.unsynced_factor
        return self._durability.failed or (
            self._pages.waiting < FIFO_PAGES_SPILL * factor
            and redo.lsn - redo.durable_lsn < UNSYNCED_SPILL_BYTES * factor
            and redo.room() > redo.capacity * FREE_SPILL_PART
            and self.has_room
        )

    @property
    def unsynced_factor(self) -> int:
        """`QUIET_FACTOR` if nothing was committed for `QUIET_S`, else 1: then commits wait for syncs."""
        now, commits = time.monotonic(), self._writer.commits
        if commits != self._commits_seen:
            self._commits_seen, self._commit_seen_at = commits, now
        return QUIET_FACTOR if now - self._commit_seen_at > QUIET_S else 1

    def freed(self) -> None:
        """Wake all waiters: the flusher or a sync has made room."""
        with self._freed:
            self.frees += 1
            self._freed.notify_all()

    def wait_freed(self, frees: int) -> None:
        """Wait for a moment, or until room was made more than `frees` times."""
        with self._freed:
            # With a time-out, because a thread that fails notifies nobody.
            self._freed.wait_for(lambda: self.frees != frees, _LOOK_AGAIN_S)
