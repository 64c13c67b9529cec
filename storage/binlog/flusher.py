"""From memory to the .ibb files, and checkpoints: what lets the redo log be used again.

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
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from storage.binlog.durability import Durability
from storage.binlog.log_writer import LogWriter
from storage.binlog.page_store import FullPage, PageStore
from storage.binlog.room import FIFO_PAGES_SOFT, Room
from storage.binlog.worker import Worker
from storage.errors import DiskError, StoreFailed
from storage.ibb.chunk import Position

log = logging.getLogger(__name__)

_BATCH_PAGES = 64
# So that no sync has much to write: another one, of the redo log, may be waiting behind it.
_UNSYNCED_PAGES_MAX = 256


class Flusher:
    """Of one store. One thread at a time is at work; the others wait for it.

    Args:
        checkpointed: called after each checkpoint.
    """

    def __init__(
        self,
        durability: Durability,
        pages: PageStore,
        writer: LogWriter,
        room: Room,
        checkpointed: Callable[[], None],
    ) -> None:
        self._durability = durability
        self._redo = durability.redo
        self._pages = pages
        self._writer = writer
        self._room = room
        self._checkpointed = checkpointed
        self.working = threading.RLock()
        self._dirty: set[int] = set()
        self._unsynced = 0
        self.worker = Worker("binlog-flusher", self._round)
        self.checkpoints = 0

    # --- work ---

    def step(self) -> bool:
        """One unit of work. Returns whether there was any."""
        with self.working:
            if self._durability.failed:
                return False
            try:
                if self._write_some():
                    return True
                if self._checkpoint_due():
                    self.checkpoint()
                    return True
            except StoreFailed:
                pass
            except DiskError as error:
                self._durability.fail(error)
            return False

    def relieve(self) -> bool:
        """See `Room`."""
        if self._redo.is_full:
            self._durability.write_log()
            return True
        if self.worker.running:
            self.worker.poke()
            return False
        with self.working:
            if not self.step() and not self._durability.failed:
                self.checkpoint()
        return True

    def checkpoint(self) -> None:
        """Bring everything appended so far to the files. Raises `DiskError`, `StoreFailed`."""
        with self.working:
            with self._durability.lock:
                self._durability.require_sound()
                lsn = self._redo.lsn
                stand = self._writer.stand
                tail = self._writer.tail_taken()
            self._durability.sync_log()
            while batch := self._pages.ready(lsn, _BATCH_PAGES):
                self._write(batch)
            self._pages.write([tail])
            self._dirty.add(stand.file_no)
            self._sync_files()
            self._redo.write_checkpoint(lsn, stand)
            self.checkpoints += 1
            self.began(stand)

    def began(self, end: Position) -> None:
        """A checkpoint lies at `end`."""
        self._room.clean_file = end.file_no
        self._room.freed()
        self._checkpointed()

    def restart(self) -> None:
        """All files were removed."""
        self._dirty.clear()
        self._unsynced = 0

    # --- parts ---

    def _checkpoint_due(self) -> bool:
        redo = self._redo
        entered = self._room.clean_file != self._writer.file_no
        return entered or redo.lsn - redo.checkpoint_lsn > redo.capacity // 2

    def _write_some(self) -> bool:
        batch = self._pages.ready(self._redo.durable_lsn, _BATCH_PAGES)
        if not batch and len(self._pages.fifo) >= FIFO_PAGES_SOFT // 2:
            # Nobody waits for these to be durable (flush_log_at_trx_commit=0 or 2, or a large group): see to it.
            self._durability.sync_log()
            batch = self._pages.ready(self._redo.durable_lsn, _BATCH_PAGES)
        if not batch:
            return False
        self._write(batch)
        if self._unsynced >= _UNSYNCED_PAGES_MAX:
            self._sync_files()
        return True

    def _write(self, batch: list[FullPage]) -> None:
        self._pages.write(batch)
        self._pages.written(batch)
        self._dirty.add(batch[0].key[0])
        self._unsynced += len(batch)
        self._room.freed()

    def _sync_files(self) -> None:
        for file_no in sorted(self._dirty):
            self._pages.sync_file(file_no)
        self._dirty.clear()
        self._unsynced = 0

    def _round(self) -> None:
        while self.step():
            pass
