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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.gtid import SlavePosition

from binlog_storage.binlog.backup import HOLDER, LOG_BYTES, LogBackup, in_pieces
from binlog_storage.classic.binlog import mark_of
from binlog_storage.classic.gtid_index import INDEX_SUFFIX
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.writing import FLAG_AT
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.classic.xa_files import PreparedCopy
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Position, StartPoint
from binlog_storage.engine.backup import WHOLE, BackupPlace, BackupRequest, Manifest, Piece
from binlog_storage.engine.references import Pin
from binlog_storage.errors import BackupRefused, DiskFull, FileMissing, PositionPurged
from binlog_storage.tables.participants import RowKeeper

ENGINE: Final = ""
"""Of a manifest: the value of `binlog_storage_engine` with which a server has such a store."""


@dataclass(eq=False)
class ClassicBackup:
    """Of one traditional store.

    Args:
        facts: the file of facts beside the redo log.
        find_start: as of `EngineReader`.
    """

    _wanted: BackupRequest
    _disk: Disk
    _binlog: WrittenLog
    _rows: RowLog
    _facts: StateStore | None
    _keeper: RowKeeper | None
    _find_start: Callable[[SlavePosition], StartPoint]

    def __post_init__(self) -> None:
        rows = self._rows
        self._log = LogBackup(self._disk, rows.redo, self._facts, rows.tables.store, self._keeper)
        self._directory = self._binlog.files.directory
        self._references = self._binlog.references
        self._pin: Pin | None = None
        self._age = 0
        self._end = Position(0, 0)  # in the file, behind its head
        self._files: Sequence[int] = ()  # that are copied
        self._index: list[int] = []  # that are named by the index of the copy
        self._prepared: list[PreparedCopy] = []
        self._head = b""  # of the last file, if it is nothing else: a start marker takes its place
        self._since: BackupPlace | None = None
        self._manifest: Manifest
        self._notes: list[str] = []

    def begin(self) -> Manifest:
        if not self._wanted.no_lock and not self._wanted.skip_binlog:
            self._pin = self._references.hold_for_reader(
                HOLDER, lambda: self._binlog.extent.numbers[0]
            )
        self._age = self._references.wait_until_open()
        self._since = self._begins_at()
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
        sizes = self._log.sizes() | {one.name: one.size for one in self._prepared}
        sizes |= {self._directory.name(n): self._size(n) or 0 for n in self._files}
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
            bytes_total=sum(sizes.values()),
            log_bin=self._directory.base,
        )
        return self._manifest

    def _fix_files(self, end: Position) -> BackupPlace:
        self._index = list(self._binlog.extent.numbers)
        begin = 0 if self._since is None else self._since.file_no
        self._files = [n for n in self._index if n >= begin]
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

    def _anchor(self, file_no: int, offset: int) -> BackupPlace:
        """A place of the binlog as it is now. Raises `PositionPurged`."""
        with contextlib.closing(self._open(file_no)) as file:
            return BackupPlace(self._rows.redo.uuid.hex(), file_no, offset, mark_of(file))

    def _begins_at(self) -> BackupPlace | None:
        """The place from which on an incremental backup has the binlog. Raises `BackupRefused`, `PositionPurged`."""
        since = self._wanted.since
        if self._wanted.since_gtid is not None:
            return self._anchor(self._find_start(self._wanted.since_gtid).position.file_no, 0)
        if since is None:
            return None
        extent = self._binlog.extent
        if since.file_no < extent.numbers[0]:
            raise BackupRefused(
                f"{self._directory.name(since.file_no)}, where the earlier backup ends, was purged since: make a full "
                "backup"
            )
        there: BackupPlace | None = None
        with contextlib.suppress(PositionPurged):
            there = self._anchor(since.file_no, since.offset)
        current = self._binlog.current
        if there != since or Position(current.number, current.end) < Position(
            since.file_no, since.offset
        ):
            raise BackupRefused(
                "the earlier backup is not of this binlog: RESET MASTER came since, or it is another store. Make a "
                "full backup"
            )
        return since

    def pieces(self) -> Iterator[Piece]:
        yield from self._log.pieces(skip_binlog=self._wanted.skip_binlog)
        for file_no in self._files:
            yield from self._file_pieces(file_no)
            self._require_age()
        for prepared in self._prepared:
            at = 0
            for data in prepared.pieces():
                yield Piece(prepared.name, prepared.size, at, data)
                at += len(data)
        if self._index:
            data = self._directory.index_of(self._index)
            yield Piece(self._directory.index_name, len(data), 0, data)

    def _begin_of(self, file_no: int) -> int:
        since = self._since
        return since.offset if since is not None and since.file_no == file_no else 0

    def _size(self, file_no: int) -> int | None:
        """Bytes of a file that are copied; None if it has gone."""
        begin = self._begin_of(file_no)
        if file_no == self._end.file_no:
            return self._end.offset - begin
        try:
            return self._disk.size(self._directory.name(file_no)) - begin
        except FileMissing:
            return None

    def _file_pieces(self, file_no: int) -> Iterator[Piece]:
        name, size, begin = (
            self._directory.name(file_no),
            self._size(file_no),
            self._begin_of(file_no),
        )
        is_last = file_no == self._end.file_no
        try:
            if size is None:
                raise FileMissing(f"{name} has gone")
            file = self._disk.open(name)
        except FileMissing:
            self._gone(file_no)
            return
        with contextlib.closing(file):
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

    def _gone(self, file_no: int) -> None:
        """A file is not there. Raises `PositionPurged` unless it was to be expected."""
        self._require_age()
        name = self._directory.name(file_no)
        if not self._wanted.no_lock:
            raise PositionPurged(f"{name} has gone while it was backed up")
        self._index = [n for n in self._index if n > file_no]
        self._notes.append(
            f"{name} went away while the backup ran (--no-lock): the binlog begins behind it"
        )

    def _require_age(self) -> None:
        if not self._wanted.skip_binlog and self._references.age != self._age:
            raise BackupRefused(
                "RESET MASTER was executed while the backup ran (--no-lock): make another one"
            )

    def finish(self) -> Manifest:
        self._require_age()
        first = self._index[0] if self._index else 0
        return replace(self._manifest, stage=WHOLE, first_file=first, notes=tuple(self._notes))

    def close(self) -> None:
        if self._pin is not None:
            self._pin.release()
            self._pin = None
        for prepared in self._prepared:
            prepared.close()
        self._prepared = []
        self._log.close()


def _closed(data: bytes) -> bytes:
    """The beginning of a file, which says that it was closed."""
    flag = data[FLAG_AT] & ~FLAG_IN_USE & 0xFF
    return data[:FLAG_AT] + bytes([flag]) + data[FLAG_AT + 1 :]
