"""The .ibb store: `BinlogEngine` over a directory of .ibb files.

How a group gets in, and what a crash between the steps leaves:

1. `append`, under the append lock: the group becomes chunks on pages in memory, the state learns its GTID. A crash
   forgets it.
2. `sync`, under the sync lock: all pages since the last sync, the partial last one included, are written and synced.
   A crash in between leaves some of them; `recovery` cuts what is not whole.
3. The durable mark moves to what step 2 has written. A crash keeps the group from here on.
4. Listeners wake; only now can a reader see the group.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from protocol.gtid import BinlogState, Gtid, SlavePosition
from storage.binlog import search
from storage.binlog.batch_reader import read_batch
from storage.binlog.file_names import file_name
from storage.binlog.log_writer import LogWriter
from storage.binlog.open_group import OpenGroup
from storage.binlog.options import StoreOptions
from storage.binlog.page_store import PageStore
from storage.binlog.recovery import recover
from storage.binlog.search import FileShape
from storage.disk import Disk
from storage.engine import BinlogFile, GroupBatch, StartPoint
from storage.errors import DiskError, PositionPurged, StorageError, StoreFailed
from storage.ibb import commit
from storage.ibb.chunk import Position, RecordType
from storage.ibb.page import PAGE_SIZE

log = logging.getLogger(__name__)


class IbbEngine:
    """See `storage.engine.BinlogEngine`. Made by `open`; every method may be called from any thread."""

    def __init__(self, disk: Disk, options: StoreOptions | None = None) -> None:
        """Open the store in `disk`, or begin one. Raises `CorruptBinlog`, `DiskError`."""
        self._options = options or StoreOptions()
        self._disk = disk
        self._append_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._failure: StorageError | None = None
        self._pages = PageStore(disk, self._options.page_cache_bytes // PAGE_SIZE)
        self._writer = LogWriter(self._pages, self._options)
        self._last_marker: bytes | None = None
        self._shapes: dict[int, FileShape] = {}
        found = recover(disk, self._pages)
        if found is None:
            self._writer.start_new(0)
            log.info("Starting a new binlog from file number 0.")
        else:
            self._writer.resume(found)
            self._last_marker = found.last_marker
            end = self._writer.end
            log.info("Continuing binlog number %d from position %d.", end.file_no, end.offset)
        self._durable_end = Position(0, PAGE_SIZE) if found is None else self._writer.end
        self._write_and_sync()  # a new store has a durable first header before anything else happens

    # --- writing ---

    @property
    def cache_bytes(self) -> int:
        """See `BinlogEngine`."""
        return self._options.piece_bytes

    def append(self, payload: bytes, gtid: Gtid | None) -> Position:
        """See `BinlogEngine`."""
        if len(payload) <= self._options.piece_bytes:
            with self._append_lock:
                self._refuse_after_failure()
                self._writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
                self._last_marker = payload if gtid is None else None
                return self._writer.end
        assert gtid is not None
        # Only the GTID event goes into the commit record: readers take the list behind the payload.
        head = int.from_bytes(payload[9:13], "little")
        group = self.begin()
        group.spill(memoryview(payload)[head:])
        return group.commit(payload[:head], gtid)

    def begin(self) -> OpenGroup:
        """See `BinlogEngine`."""
        return OpenGroup(
            self._writer,
            self._append_lock,
            self._options.piece_bytes,
            self._refuse_after_failure,
            self._committed,
        )

    def _committed(self) -> None:
        self._last_marker = None

    def sync(self) -> None:
        """See `BinlogEngine`."""
        wanted = self.written_end
        with self._sync_lock:
            if self._durable_end >= wanted and self._failure is None:
                return  # whoever held the lock before us has done our work too
            self._write_and_sync()
        for wake in list(self._listeners):
            wake()

    def _write_and_sync(self) -> None:
        with self._append_lock:
            self._refuse_after_failure()
            end = self._writer.end
            pages = self._pages.take()
        try:
            self._pages.write_out(pages)
        except DiskError as error:
            # What reached the disk is unknown, and the kernel may have forgotten the error by the next fsync.
            self._failure = error
            log.error("the binlog accepts nothing more: %s; what is durable is still served", error)
            raise
        self._durable_end = end

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise StoreFailed(
                f"the binlog accepts nothing more after an earlier failure: {self._failure}"
            )

    # --- what there is ---

    @property
    def durable_end(self) -> Position:
        """See `BinlogEngine`."""
        return self._durable_end

    @property
    def written_end(self) -> Position:
        """See `BinlogEngine`."""
        with self._append_lock:
            return self._writer.end

    @property
    def last_marker(self) -> bytes | None:
        """See `BinlogEngine`."""
        return self._last_marker

    def binlog_state(self) -> BinlogState:
        """See `BinlogEngine`."""
        with self._append_lock:
            return self._writer.state.copy()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `BinlogEngine`."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def files(self) -> list[BinlogFile]:
        """See `BinlogEngine`."""
        sizes = ((n, self._pages.file_size(n)) for n in self._pages.file_numbers())
        return [BinlogFile(file_name(n), size) for n, size in sizes if size is not None]

    def status(self) -> tuple[str, int]:
        """See `BinlogEngine`."""
        end = self.written_end
        return file_name(end.file_no), end.offset

    # --- reading ---

    def find_start(self, position: SlavePosition) -> StartPoint:
        """See `BinlogEngine`."""
        limit = self._durable_end
        shapes = {n: self._shape(n) for n in self._pages.file_numbers() if n <= limit.file_no}
        return StartPoint(*search.find_start(self._pages, shapes, position, limit))

    def read(self, start: Position) -> GroupBatch:
        """See `BinlogEngine`."""
        return read_batch(self._pages, start, self._durable_end)

    def is_recent(self, start: Position) -> bool:
        """See `BinlogEngine`."""
        return self._pages.is_recent(start.file_no, start.page_no)

    def _shape(self, file_no: int) -> FileShape:
        shape = self._shapes.get(file_no)
        if shape is None:
            header = self._pages.header(file_no)
            size = self._pages.file_size(file_no)
            if header is None or size is None:
                raise PositionPurged(f"{file_name(file_no)} has gone")
            shape = self._shapes[file_no] = FileShape(
                header.state_interval_pages, size // PAGE_SIZE
            )
        return shape

    # --- the end ---

    def close(self) -> None:
        """See `BinlogEngine`."""
        try:
            if self._failure is None:
                self.sync()
        finally:
            self._pages.close()
            self._disk.close()
