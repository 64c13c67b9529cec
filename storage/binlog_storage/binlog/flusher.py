"""From memory to the .ibb files; checkpoints, which let the redo log be used again; and what other processes may read.

A full page is written once, when its redo is durable: what another process finds in a file is never taken back by a
crash. A checkpoint does this, each step after the one before is done:

1. under the append lock: note the LSN, where the writer stands, and a copy of the partial page; from here on the next
   write to that page logs the whole of it
2. make the redo durable up to there
3. write the full pages up to there, and the copy
4. sync the files
5. write the checkpoint into the redo log, and sync it; what lies before in the ring is free

A crash before 5 leaves the checkpoint before, and all redo since. A torn page, the partial one too, is made anew from
its redo.

Publishing the durable end for other processes takes steps 1 to 3 without the sync, and without logging the partial page
again: all of it is in the redo since the last checkpoint. If it cannot be written that is said, and tried again.

A new file for which there is no room is waited for (`FullDisk`), and not with `working` held: whoever appends, syncs or
reads goes on meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState

from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import FullPages, PageKey, PageStore
from binlog_storage.binlog.room import UNSYNCED_SPILL_BYTES, Room
from binlog_storage.binlog.worker import Worker
from binlog_storage.errors import DiskError, NoRoom, StoreFailed, TooManyOpenFiles
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.publication import Publication
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX

log = logging.getLogger(__name__)

_BATCH_PAGES = 64
# Few, so that a sync of a file is short: a sync of the redo log, and with it a commit, may wait behind it in the disk.
# While no client commits the bound is `UNSYNCED_PAGES_MAX`.
_UNSYNCED_PAGES = 64
_PUBLISH_S = 0.05
_PUBLISH_RETRY_S = 5.0


class _Capture(NamedTuple):
    """A snapshot for a checkpoint: the LSN, and a copy of the partial page."""

    lsn: int
    end: Position
    state: BinlogState
    tail: FullPages


class Flusher:
    """Writes the pages of one store. One thread works at a time; others wait for it.

    Args:
        lock: the append lock.
        full: waits for room.
        checkpointed: called after each checkpoint.
    """

    def __init__(
        self,
        lock: threading.Lock,
        durability: Durability,
        pages: PageStore,
        writer: LogWriter,
        room: Room,
        publication: Publication,
        full: FullDisk,
        checkpointed: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._durability = durability
        self._redo = durability.redo
        self._pages = pages
        self._writer = writer
        self._room = room
        self._publication = publication
        self.unpublished = ""
        """Why the durable end could not be published, the last time; empty if it was."""
        self.unpublished_since = 0.0
        self._full = full
        self._capture: _Capture | None = None
        self._checkpointed = checkpointed
        self.working = threading.RLock()
        self._dirty: set[int] = set()
        self._unsynced = 0
        self.worker = Worker("binlog-flusher", self._round)
        self._published_at = 0.0
        self._resting = False
        self._hindrance = ""  # no descriptor: said and tried again by the thread
        self.checkpoints = 0

    # --- work ---

    def step(self) -> bool:
        """One unit of work. Returns whether there was any."""
        return self._work() or self._guarded(self.publish)

    def _work(self) -> bool:
        """The oldest pages, or a checkpoint."""
        return self._guarded(self._write_some) or (
            self._checkpoint_due() and self._guarded(self._checkpoint_done)
        )

    def _checkpoint_done(self) -> bool:
        self._checkpoint()
        return True

    def _guarded(self, work: Callable[[], bool]) -> bool:
        """Run `work`; a disk error ends writing for good. Returns its result; False after a failure, and while there is
        no space on the disk or no file descriptor.
        """
        with self.working:
            if self._durability.failed:
                return False
            try:
                return work()
            except (StoreFailed, NoRoom):
                return False  # NoRoom: nothing was done, the next round tries again
            except TooManyOpenFiles as error:
                self._hindrance = str(error)  # nothing was done either
                return False
            except DiskError as error:
                self._durability.fail(error)
                return False

    def _patiently(
        self, work: Callable[[], None], given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Run `work`, waiting for space on the disk as often as needed. Raises `NoRoom` when `given_up` says so."""
        while True:
            try:
                with self.working:
                    work()
                return
            except NoRoom:
                self._full.wait(given_up)

    def synced(self) -> None:
        """Wake the thread: the redo log was synced. Does nothing if the thread will look soon by itself."""
        if self._resting or self._pages.waiting >= _BATCH_PAGES:
            self._resting = False
            self.worker.poke()

    def filled(self) -> None:
        """Wake the thread for unlogged pages: no commit's sync will."""
        if self._resting and self._pages.waiting >= self._unlogged_pages():
            self._resting = False
            self.worker.poke()

    def _unlogged_pages(self) -> int:
        """Unlogged pages that are worth a sync of the redo log, without which they may not be written."""
        return 2 * _BATCH_PAGES * self._room.unsynced_factor

    def close(self) -> None:
        """Close the publication file."""
        self._publication.close()

    def relieve(self) -> bool:
        """See `Room`."""
        if self._redo.is_full:
            self._durability.write_log()
            return True
        if self.worker.running:
            self.worker.poke()
            return False
        with self.working:
            if not self.step():
                self._guarded(self._checkpoint_done)
        if self._full.error is not None:
            self._full.wait()
        return True

    def checkpoint(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Bring everything appended so far to the files, when there is room.

        Raises `DiskError`, `StoreFailed`; `NoRoom` when `given_up` says so.
        """
        self._patiently(self._checkpoint, given_up)

    def _checkpoint(self) -> None:
        with self._lock:
            self._durability.require_sound()
            lsn = self._redo.lsn
            stand = self._writer.stand
            tail = self._writer.tail_taken()
        self._durability.sync_log()
        while batch := self._pages.ready(lsn, _BATCH_PAGES):
            self._write(batch)
        self._put([tail])
        self._sync_files()
        self._redo.write_checkpoint(lsn, stand)
        self.checkpoints += 1
        self.began(stand)

    def publish(self) -> bool:
        """Tell other processes of what has become durable. Returns whether there was anything new.

        What is appended now may become durable only later: then it is told by a later call.
        """
        with self.working:
            if self._capture is None and self._is_behind():
                with self._lock:
                    writer = self._writer
                    tail = self._pages.sealed_tail()
                    self._capture = _Capture(self._redo.lsn, writer.end, writer.state.copy(), tail)
            capture = self._capture
            if capture is None or self._redo.durable_lsn < capture.lsn:
                return False
            self._capture = None
            while batch := self._pages.ready(capture.lsn, _BATCH_PAGES):
                self._write(batch)
            # A checkpoint since then has written the page with more in it.
            written = capture.lsn <= self._redo.checkpoint_lsn
            if not written and not self._pages.is_in_file(capture.tail.key):
                self._put([capture.tail])
            try:
                self._publication.publish(self._redo.epoch, capture.end, capture.state)
            except DiskError as error:
                # Nobody who commits depends on it, and nothing in the files does.
                if not self.unpublished:
                    self.unpublished_since = time.monotonic()
                if self.unpublished != str(error):
                    self.unpublished = str(error)
                    log.error(
                        "%s. Other processes do not learn of what is new; trying again every %.0f seconds",
                        error,
                        _PUBLISH_RETRY_S,
                    )
                return False
            self.unpublished = ""
            return True

    def _is_behind(self) -> bool:
        publication = self._publication
        end = self._durability.mark.end
        return end != publication.end or self._redo.epoch != publication.epoch

    def began(self, end: Position) -> None:
        """Note the checkpoint with which this run begins, at `end`."""
        self._room.clean_file = end.file_no
        self._room.freed()
        self._checkpointed()

    def settle(self, end: PageKey, given_up: Callable[[], bool]) -> None:
        """Write and sync all full pages before `end`, waiting for space on the disk.

        Raises `DiskError`, `StoreFailed`; `NoRoom` when `given_up` says so.
        """
        self._patiently(lambda: self._settle(end), given_up)

    def _settle(self, end: PageKey) -> None:
        self._durability.require_sound()
        try:
            while self._pages.written_end < end:
                if batch := self._pages.ready(self._redo.durable_lsn, _BATCH_PAGES):
                    self._write(batch, hurry=True)
                else:
                    self._durability.sync_log()
            if self._pages.synced_end < end:
                self._sync_files()
        except (NoRoom, TooManyOpenFiles):
            raise
        except DiskError as error:
            self._durability.fail(error)
            raise

    def restart(self) -> None:
        """Forget pages and checkpoints: RESET MASTER has removed all files."""
        self._capture = None
        self._dirty.clear()
        self._unsynced = 0

    # --- parts ---

    def _checkpoint_due(self) -> bool:
        redo = self._redo
        entered = self._room.clean_file != self._writer.file_no
        return entered or redo.lsn - redo.checkpoint_lsn > redo.capacity // 2

    def _write_some(self) -> bool:
        factor = self._room.unsynced_factor
        if self._redo.lsn - self._redo.durable_lsn >= UNSYNCED_SPILL_BYTES * factor // 2:
            # With flush_log_at_trx_commit=0 or 2, or for a large group, no commit may be waiting and syncing it.
            self._durability.sync_log()
            self._room.freed()
        limit = UNSYNCED_PAGES_MAX if factor > 1 else _UNSYNCED_PAGES
        batch = self._pages.ready(self._redo.durable_lsn, _BATCH_PAGES)
        if not batch and self._pages.waiting >= self._unlogged_pages():
            self._durability.sync_log()
            batch = self._pages.ready(self._redo.durable_lsn, _BATCH_PAGES)
        if not batch:
            return False
        self._write(batch, limit, hurry=factor > 1)
        return True

    def _write(
        self, batch: list[FullPages], limit: int = UNSYNCED_PAGES_MAX, *, hurry: bool = False
    ) -> None:
        """Write full pages. Earlier pages are synced first if more than `limit` pages would be unsynced with these.

        Syncing late is cheaper: the kernel has begun to write meanwhile.
        """
        self._put(batch, limit, hurry=hurry)
        self._pages.written(batch)
        self._room.freed()

    def _put(
        self, batch: list[FullPages], limit: int = UNSYNCED_PAGES_MAX, *, hurry: bool = False
    ) -> None:
        count = sum(pages.page_count for pages in batch)
        # A file that FLUSH has ended is cut before the next has a header: other processes take zeros in front of a
        # successor for damage.
        if self._unsynced + count > limit or self._pages.has_cuts_before(batch[0].key[0]):
            self._sync_files()
        self._pages.write(batch, hurry=hurry)
        self._dirty.add(batch[0].key[0])
        self._unsynced += count

    def _sync_files(self) -> None:
        end = self._pages.written_end
        for file_no in sorted(self._dirty):
            self._pages.sync_file(file_no)
        self._dirty.clear()
        self._unsynced = 0
        self._pages.synced_end = end

    def _round(self) -> float | None:
        """One round of the thread: what `step` does, but published no more often than is of use.

        Raises `TooManyOpenFiles`, for the log: nothing else tells of it, as `FullDisk` does of `NoRoom`.
        """
        self._hindrance = ""
        while self._work():
            pass
        if self._hindrance:
            raise TooManyOpenFiles(self._hindrance)
        if self._full.error is not None:
            return max(self._full.retry_s, _PUBLISH_S)
        self._resting = True
        if not self._is_behind():
            return None
        self._resting = False
        wait = self._published_at + _PUBLISH_S - time.monotonic()
        if wait <= 0:
            self._guarded(self.publish)
            self._published_at = time.monotonic()
            wait = _PUBLISH_RETRY_S if self.unpublished else _PUBLISH_S
        return wait
