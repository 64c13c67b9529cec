"""A backup of a traditional store that is open, while it is written: see `engine.backup.Backup`.

Nothing here holds up a commit for longer than a sync of the binlog does that it might have to wait for anyway:

1. under the locks of syncs and writes, which no commit takes: the point, the end of the binlog, is fixed under the
   append lock, with the place in the redo log that belongs to it, and the prepared transactions; both logs are synced
   up to there; the redo from its checkpoint to there is read (no checkpoint moves meanwhile), and the snapshot of the
   tables opened. On a full disk the point is the durable end instead, and the place that was noted with it
2. the files, the last one up to the point: they are only appended to. Encrypted ones go as they lie there
3. prepared transactions, each from its file, which was opened at the point
4. the index, which names the files that were copied

The last file says that it was closed, though no event ends it: what is torn in it then is an error, and not cut off.
GTID indexes of closed files come along as they are: a start believes none that is of other groups.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.gtid import SlavePosition

from binlog_storage.binlog.backup import LOG_BYTES, LogBackup, StoreBackup, in_pieces
from binlog_storage.classic.binlog import mark_of
from binlog_storage.classic.gtid_index import INDEX_SUFFIX
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.writing import FLAG_AT
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.classic.xa_files import PreparedCopy
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Position, StartPoint
from binlog_storage.engine.backup import BackupPlace, BackupRequest, Manifest, Piece
from binlog_storage.errors import DiskFull, FileMissing, PositionPurged
from binlog_storage.tables.participants import RowKeeper

ENGINE: Final = ""
"""Of a manifest: the value of `binlog_storage_engine` with which a server has such a store."""


class ClassicBackup(StoreBackup):
    """Of one traditional store.

    Args:
        facts: the file of facts beside the redo log.
        find_start: as of `EngineReader`.
    """

    def __init__(
        self,
        wanted: BackupRequest,
        disk: Disk,
        binlog: WrittenLog,
        rows: RowLog,
        facts: StateStore | None,
        keeper: RowKeeper | None,
        find_start: Callable[[SlavePosition], StartPoint],
    ) -> None:
        log = LogBackup(disk, rows.redo, facts, rows.tables.store, keeper)
        super().__init__(wanted, disk, binlog.references, log, find_start)
        self._binlog: Final = binlog
        self._rows: Final = rows
        self._directory: Final = binlog.files.directory
        self._end = Position(0, 0)  # in the file, behind its head
        self._index: list[int] = []  # that are named by the index of the copy
        self._prepared: list[PreparedCopy] = []
        self._head = b""  # of the last file, if it is nothing else: a start marker takes its place

    def begin(self) -> Manifest:
        self._hold()
        redo, snapshots = self._rows.redo, self._rows.tables.snapshots
        if redo.tables is not None and redo.lsn - redo.tables.lsn > LOG_BYTES:
            snapshots.make()
        with snapshots.working, self._binlog.syncing, self._binlog.writing:
            return self._fixed()

    def _fixed(self) -> Manifest:
        binlog, skip_binlog = self._binlog, self._wanted.skip_binlog
        with binlog.lock:
            binlog.require_sound()
            end, lsn, state = binlog.written_end, self._rows.redo.lsn, binlog.state.copy()
            self._log.keep()
            if not skip_binlog:
                self._prepared = binlog.xa.copies()
        try:
            binlog.sync_once()
        except DiskFull:
            if self._log.has_kept_rows:
                raise
            redo = self._rows.redo
            end, lsn = binlog.extent.durable, max(redo.settled_lsn, redo.checkpoint.lsn)
            state = binlog.reader.state_at(end)
        checkpoint = self._log.without_binlog(lsn) if skip_binlog else self._rows.redo.checkpoint
        self._log.fix(lsn, checkpoint, {})
        place = None if skip_binlog else self._fix_files(end)
        self._manifest = Manifest(
            ENGINE,
            self._rows.redo.uuid.hex(),
            self._log.uuid.hex(),
            str(state),
            lsn,
            place,
            self._index[0] if self._index else 0,
            self._since,
            skip_binlog,
            bytes_total=sum(self._sizes().values()),
            log_bin=self._directory.base,
        )
        return self._manifest

    def _fix_files(self, end: Position) -> BackupPlace:
        self._index = list(self._binlog.extent.numbers)
        self._files = self._from(self._index)
        head = self._binlog.reader.head(end.file_no)
        self._end = Position(end.file_no, max(end.offset, head.end))
        if self._end.offset == head.end:
            with contextlib.closing(self._open(end.file_no)) as file:
                self._head = file.pread(head.end, 0)
        return self._anchor(*self._end)

    def _open(self, file_no: int) -> File:
        try:
            return self._disk.open(self._directory.name(file_no))
        except FileMissing:
            raise PositionPurged(f"{self._directory.name(file_no)} has gone") from None

    def _sizes(self) -> dict[str, int]:
        return super()._sizes() | {one.name: one.size for one in self._prepared}

    def _name(self, file_no: int) -> str:
        return self._directory.name(file_no)

    def _first_now(self) -> int:
        return self._binlog.extent.numbers[0]

    def _written(self) -> tuple[int, int]:
        current = self._binlog.current
        return current.number, current.end

    def _anchor(self, file_no: int, offset: int) -> BackupPlace:
        with contextlib.closing(self._open(file_no)) as file:
            return BackupPlace(self._rows.redo.uuid.hex(), file_no, offset, mark_of(file))

    def _end_of_copy(self) -> tuple[int, int]:
        return self._end

    def _first_copied(self) -> int:
        return self._index[0] if self._index else 0

    def _begin_behind(self, file_no: int) -> None:
        self._index = [n for n in self._index if n > file_no]

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        for prepared in self._prepared:
            at = 0
            for data in prepared.pieces():
                yield Piece(prepared.name, prepared.size, at, data)
                at += len(data)
        if self._index:
            data = self._directory.index_of(self._index)
            yield Piece(self._directory.index_name, len(data), 0, data)

    def _pieces_of(self, file: File, file_no: int, begin: int, size: int) -> Iterator[Piece]:
        name, is_last = self._directory.name(file_no), file_no == self._end.file_no
        for piece in in_pieces(file, name, size, begin=begin):
            data = piece.data
            if is_last and begin + piece.offset == 0:
                data = _closed(self._head + data[len(self._head) :])
            yield piece._replace(data=data)
        if not is_last:
            yield from self._gtid_index_pieces(f"{name}{INDEX_SUFFIX}")

    def _gtid_index_pieces(self, name: str) -> Iterator[Piece]:
        """Of one that is made, or deleted, nothing is copied: it is made again once somebody wants it."""
        with contextlib.suppress(FileMissing), contextlib.closing(self._disk.open(name)) as file:
            yield from in_pieces(file, name, file.size())

    def close(self) -> None:
        for prepared in self._prepared:
            prepared.close()
        self._prepared = []
        super().close()


def _closed(data: bytes) -> bytes:
    """The beginning of a file, which says that it was closed."""
    flag = data[FLAG_AT] & ~FLAG_IN_USE & 0xFF
    return data[:FLAG_AT] + bytes([flag]) + data[FLAG_AT + 1 :]
