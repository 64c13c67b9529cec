"""Writes pages from memory to the .ibb files, makes checkpoints, and publishes the durable end to other processes.

A full page is written once, when its redo is durable: a crash never takes back a page that another process has read. A
checkpoint lets the redo log be used again, in these steps, one after the other:

1. under the append lock: note the LSN, where the writer stands, and a copy of the partial page; from here on the next
   write to that page logs the whole of it
2. make the redo durable up to there
3. write the full pages up to there, and the copy
4. sync the files
5. write the checkpoint into the redo log, and sync it; the ring in front of it is free

A crash before 5 leaves the previous checkpoint, and all redo since. A torn page, the partial one too, is made anew from
its redo.

To publish the durable end, steps 1 to 3 are done without the sync, and without logging the partial page again: all of
it is in the redo since the last checkpoint. A failure to publish is logged, and tried again.

If there is no room for a new file, the flusher waits (`FullDisk`) without holding `working`: appends, syncs and reads
go on meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState

from binlog_storage.binlog.bounds import Bounds
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.limits import (
    BATCH_PAGES,
    CHECKPOINT_PART,
    SYNC_SPILL_BYTES,
    UNLOGGED_PAGES,
    UNSYNCED_PAGES,
)
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import FullPages, PageKey, PageStore
from binlog_storage.binlog.worker import Worker
from binlog_storage.engine.soundness import final
from binlog_storage.errors import DiskError, NoRoom, StoreFailed, TooManyOpenFiles
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.publication import Publication
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX
from binlog_storage.redo.format import TablesFrom

log = logging.getLogger(__name__)

_PUBLISH_S = 0.05
_PUBLISH_RETRY_S = 5.0


class _Capture(NamedTuple):
    """A snapshot for a checkpoint: the LSN, and a copy of the partial page."""

    lsn: int
    end: Position
    state: BinlogState
    tail: FullPages


@dataclass(eq=False)
class Flusher:
    """Writes the pages of one store. One thread works at a time; others wait for it.

    Args:
        lock: the append lock.
        full: waits for room.
        caretaker: makes the next file behind a checkpoint.
    """

    _lock: threading.Lock
    _durability: Durability
    _pages: PageStore
    _writer: LogWriter
    _bounds: Bounds
    _publication: Publication
    _full: FullDisk
    _caretaker: Worker

    def __post_init__(self) -> None:
        self._redo = self._durability.redo
        self.unpublished = ""
        """The reason why the durable end could not be published the last time; empty if it was."""
        self.unpublished_since = 0.0
        self._capture: _Capture | None = None
        self.working = threading.RLock()
        self._dirty: set[int] = set()
        self._unsynced = 0
        self.worker = Worker("binlog-flusher", self._round)
        self._full.when_freed(self.worker.poke)
        self._published_at = 0.0
        self._resting = False
        self._hindrance = ""  # no descriptor is left: the thread logs it and tries again
        self.checkpoints = 0
        self.checkpointed: Callable[[], None] = lambda: None
        """Called behind each checkpoint."""

    # --- work ---

    def step(self) -> bool:
        """Do one unit of work. Returns whether there was any."""
        return self._work() or self._guarded(self.publish)

    def _work(self) -> bool:
        """Write the oldest pages, or make a checkpoint. Returns whether there was anything to do."""
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
                return False  # no room: nothing was done, the next round tries again
            except TooManyOpenFiles as error:
                self._hindrance = str(error)  # nothing was done either
                return False
            except DiskError as error:
                self._durability.fail(error)
                return False

    def _patiently(
        self, work: Callable[[], None], given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Run `work`, and wait for space on the disk as often as needed. Raises `NoRoom` if `given_up` returns True."""
        while True:
            try:
                with self.working:
                    work()
                return
            except NoRoom:
                self._full.wait(given_up)

    def synced(self) -> None:
        """The redo log was synced: wake the thread, unless it runs soon by itself."""
        if self._resting or self._pages.waiting >= BATCH_PAGES:
            self._resting = False
            self.worker.poke()

    def filled(self) -> None:
        """Unlogged pages were added: wake the thread, because no commit's sync will."""
        if self._resting and self._pages.waiting >= self._unlogged_pages():
            self._resting = False
            self.worker.poke()

    def _unlogged_pages(self) -> int:
        """The number of unlogged pages from which on the thread syncs the redo log, to be allowed to write them."""
        return UNLOGGED_PAGES * self._bounds.unsynced_factor

    def close(self) -> None:
        """Close the publication file."""
        self._publication.close()

    def relieve(self) -> bool:
        """Make room for one who waits. Returns True if there is some now, False if the thread is making it."""
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
        """Write everything appended so far to the files, waiting for room.

        Raises `DiskError`, `StoreFailed`; `NoRoom` if `given_up` returns True.
        """
        self._patiently(self._checkpoint, given_up)

    def _checkpoint(self) -> None:
        with self._lock:
            self._durability.require_sound()
            lsn = self._redo.lsn
            stand = self._writer.stand
            tail = self._writer.tail_taken()
            tables = None
            if self._redo.tables_unchanged and self._redo.tables is not None:
                tables = TablesFrom(lsn, self._redo.epoch, self._redo.tables.snapshot)
        self._durability.sync_log()
        while batch := self._pages.ready(lsn, BATCH_PAGES):
            self._write(batch)
        self._put([tail])
        self._sync_files()
        self._redo.write_checkpoint(lsn, stand, tables)
        self.checkpoints += 1
        self.began(stand)
        self.checkpointed()

    def publish(self) -> bool:
        """Publish the durable end to other processes. Returns whether it has moved.

        Groups that are appended meanwhile are published by a later call.
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
            while batch := self._pages.ready(capture.lsn, BATCH_PAGES):
                self._write(batch)
            # A checkpoint has since written the page with more in it.
            written = capture.lsn <= self._redo.checkpoint.lsn
            if not written and not self._pages.is_in_file(capture.tail.key):
                self._put([capture.tail])
            try:
                self._publication.publish(self._redo.epoch, capture.end, capture.state)
            except DiskError as error:
                # No failure of the store: neither commits nor files depend on the publication.
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
        """Note a checkpoint at `end`, made now or found by recovery: wake those who wait for room, and the keeper."""
        self._bounds.clean_file = end.file_no
        self._bounds.freed()
        self._caretaker.poke()

    def settle(self, end: PageKey, given_up: Callable[[], bool]) -> None:
        """Write and sync all full pages before `end`, waiting for space on the disk.

        Raises `DiskError`, `StoreFailed`; `NoRoom` if `given_up` returns True.
        """
        self._patiently(lambda: self._settle(end), given_up)

    def _settle(self, end: PageKey) -> None:
        self._durability.require_sound()
        try:
            while self._pages.written_end < end:
                if batch := self._pages.ready(self._redo.durable_lsn, BATCH_PAGES):
                    self._write(batch, hurry=True)
                else:
                    self._durability.sync_log()
            if self._pages.synced_end < end:
                self._sync_files()
        except (NoRoom, TooManyOpenFiles):
            raise
        except DiskError as error:
            self._durability.fail(error)
            raise final(error) from error.__cause__

    def restart(self) -> None:
        """RESET MASTER has removed all files: forget pages and checkpoints."""
        self._capture = None
        self._dirty.clear()
        self._unsynced = 0

    # --- parts ---

    def _checkpoint_due(self) -> bool:
        redo = self._redo
        entered = self._bounds.clean_file != self._writer.file_no
        used = redo.lsn - redo.checkpoint.lsn
        # A record may need more than half of the log, with the state records that may come with it.
        return (
            entered
            or used > redo.capacity * CHECKPOINT_PART
            or (redo.room() < self._bounds.redo_wanted and not redo.tables_hold)
        )

    def _write_some(self) -> bool:
        factor = self._bounds.unsynced_factor
        if self._redo.lsn - self._redo.durable_lsn >= SYNC_SPILL_BYTES * factor:
            # With flush_log_at_trx_commit=0 or 2, or for a large group, there may be no commit that syncs the redo log.
            self._durability.sync_log()
            self._bounds.freed()
        limit = UNSYNCED_PAGES_MAX if factor > 1 else UNSYNCED_PAGES
        batch = self._pages.ready(self._redo.durable_lsn, BATCH_PAGES)
        if not batch and self._pages.waiting >= self._unlogged_pages():
            self._durability.sync_log()
            batch = self._pages.ready(self._redo.durable_lsn, BATCH_PAGES)
        if not batch:
            return False
        self._write(batch, limit, hurry=factor > 1)
        return True

    def _write(
        self, batch: list[FullPages], limit: int = UNSYNCED_PAGES_MAX, *, hurry: bool = False
    ) -> None:
        """Write full pages. If more than `limit` pages were unsynced with these, earlier ones are synced first.

        A late sync is cheaper, because the kernel has begun to write meanwhile.
        """
        self._put(batch, limit, hurry=hurry)
        self._pages.written(batch)
        self._bounds.freed()

    def _put(
        self, batch: list[FullPages], limit: int = UNSYNCED_PAGES_MAX, *, hurry: bool = False
    ) -> None:
        count = sum(pages.page_count for pages in batch)
        # A file that FLUSH has ended is cut before the next file has a header: other processes take zeros at the end of
        # a file with a successor for damage.
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
        """One round of the thread: as `step`, but it publishes only as often as other processes look.

        Raises `TooManyOpenFiles`, which the worker logs; `NoRoom` is logged by `FullDisk`.
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
