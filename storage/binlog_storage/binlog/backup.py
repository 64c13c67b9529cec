"""A backup of a store that is open, while it is written: see `engine.backup.Backup`. Nothing here holds up a commit.

Pages of bulk groups are not in the redo log, so the order is:

1. a checkpoint, if the disk has room: little redo is left to copy then
2. under the flusher's lock, which no commit takes: the point, an LSN at the end of a mini-transaction, is fixed under
   the append lock, with a copy of the partial page; the log is synced; the redo from its checkpoint to there is read
   (no checkpoint moves meanwhile, so nothing of it is overwritten), and the snapshot of the tables opened
3. the files that begin in front of the point, up to its page: pages in front of the checkpoint are in them for good;
   those behind are made again from the redo, torn or not; unlogged ones to which a record in front of the point refers
   were synced before that was logged
4. the snapshot of the tables, and the facts

The redo log of the backup is another one, as large as it must be, with a uuid of its own: neither log nor snapshot goes
with the store's. Its first start sees a crash at the point.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_storage.binlog.decision import xa_name
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import FullPages, PageStore
from binlog_storage.binlog.table_snapshots import TableSnapshots
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.state import FIRST_FILE_KEY, REDO_KEY, STATE_NAME, StateStore, facts_file
from binlog_storage.engine import StartPoint
from binlog_storage.engine.backup import WHOLE, BackupPlace, BackupRequest, Manifest, Piece
from binlog_storage.engine.references import Pin, References
from binlog_storage.errors import BackupRefused, CorruptBinlog, FileMissing, NoRoom, PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, is_sound
from binlog_storage.ibb.xa import Xid
from binlog_storage.redo.format import BLOCK, REDO_NAME, RING_AT, Checkpoint, LogHeader
from binlog_storage.redo.log import RedoLog
from binlog_storage.tables.participants import Changes, Copied, RowKeeper
from binlog_storage.tables.snapshot import TABLES_NAME, with_uuid
from binlog_storage.tables.store import RowsElsewhere, TableStore

PIECE_BYTES: Final = 256 << 10
HOLDER: Final = "a backup"
LOG_BYTES: Final = 32 << 20
"""With more than that in the log for the tables a snapshot is made first: the log is read into memory."""
_LOG_BYTES_MIN: Final = 256 << 10


def in_pieces(
    file: Copied, name: str, size: int, *, begin: int = 0, end: int | None = None
) -> Iterator[Piece]:
    """A file of an open store from `begin` to `end`; bytes that it lacks are zeros. `size`: that of the copy."""
    end = begin + size if end is None else end
    for at in range(begin, end, PIECE_BYTES):
        wanted = min(PIECE_BYTES, end - at)
        yield Piece(name, size, at - begin, file.pread(wanted, at).ljust(wanted, b"\0"))


class LogBackup:
    """The redo log, the tables and the facts at the point: stores of both formats have these.

    Rows that another engine keeps are not copied but written anew, as the tables had them at the point: it commits
    behind the binlog, some time. What it had prepared and the binlog not decided is not among them; what waits for XA
    COMMIT is.
    """

    def __init__(
        self,
        disk: Disk,
        redo: RedoLog,
        facts: StateStore | None,
        tables: TableStore,
        keeper: RowKeeper | None,
    ) -> None:
        self.uuid = uuid.uuid4().bytes
        self._store = tables
        self._keeper = keeper if keeper is not None and keeper.exists else None
        self._kept: RowsElsewhere | None = None
        self._disk = disk
        self._redo = redo
        self._facts = facts
        self._first = Checkpoint(1, 0, 0, None)
        self._ring = b""
        self._tables: File | None = None
        self._values = b""

    @property
    def has_kept_rows(self) -> bool:
        """Whether `keep` has something to keep."""
        return self._keeper is not None

    def keep(self) -> None:
        """The rows that another engine keeps are those of now. Under the append lock."""
        if self.has_kept_rows:
            self._kept = self._store.now_elsewhere()

    def without_binlog(self, lsn: int) -> Checkpoint:
        """From which a start reads the tables alone, up to that LSN."""
        redo = self._redo
        tables = (
            redo.checkpoint.tables or redo.tables
        )  # none is written before the first checkpoint
        if tables is not None and tables.lsn > lsn:
            tables = None
        return Checkpoint(1, redo.epoch, lsn, None, tables)

    def fix(self, lsn: int, checkpoint: Checkpoint, changed: dict[str, object]) -> None:
        """Read what a later checkpoint would take away. While there is none, and no snapshot ends; all is durable.

        Args:
            checkpoint: from which the backup's first start reads; it may be `lsn` for a part of it.
            changed: facts that are other ones in the backup.
        """
        self._first = replace(checkpoint, number=1)
        self._ring = self._redo.copied(self._first.begin[0], lsn)
        if TABLES_NAME in self._disk.names():
            self._tables = self._disk.open(TABLES_NAME)
        if self._facts is not None:
            values = {**dict(self._facts.items("")), REDO_KEY: self.uuid.hex(), **changed}
            self._values = facts_file({k: v for k, v in values.items() if v is not None})

    def sizes(self) -> dict[str, int]:
        """Bytes by file."""
        found = {REDO_NAME: RING_AT + self._capacity}
        if self._tables is not None:
            found[TABLES_NAME] = self._tables.size()
        if self._values:
            found[STATE_NAME] = len(self._values)
        return found

    @property
    def _capacity(self) -> int:
        size = max(len(self._ring) + BLOCK, _LOG_BYTES_MIN)
        return -(-size // BLOCK) * BLOCK

    def pieces(self, *, skip_binlog: bool) -> Iterator[Piece]:
        """All of it. `skip_binlog`: without what waits for XA COMMIT."""
        yield from self._kept_pieces([] if skip_binlog else None)
        yield from self._log_pieces()
        if self._tables is not None:
            size = self._tables.size()
            for piece in in_pieces(self._tables, TABLES_NAME, size):
                data = piece.data if piece.offset else with_uuid(piece.data, self.uuid)
                yield piece._replace(data=data)
        if self._values:
            yield Piece(STATE_NAME, len(self._values), 0, self._values)

    def _kept_pieces(self, prepared: list[tuple[Xid, Changes]] | None) -> Iterator[Piece]:
        kept, keeper = self._kept, self._keeper
        if kept is None or keeper is None:
            return
        if prepared is None:
            prepared = [(xa_name(self.uuid, trx), changes) for trx, changes in kept.prepared]
        with contextlib.closing(keeper.copy_of(self.uuid, kept.rows(), prepared)) as file:
            kept.close()
            yield from in_pieces(file, keeper.file_name, file.size())

    def _log_pieces(self) -> Iterator[Piece]:
        capacity = self._capacity
        size = RING_AT + capacity
        head = LogHeader(self.uuid, capacity).build() + self._first.build()
        yield Piece(REDO_NAME, size, 0, head)
        at = self._first.begin[0] % capacity
        split = min(len(self._ring), capacity - at)
        for begin, data in ((0, self._ring[split:]), (at, self._ring[:split])):
            for done in range(0, len(data), PIECE_BYTES):
                part = data[done : done + PIECE_BYTES]
                yield Piece(REDO_NAME, size, RING_AT + begin + done, part)

    def close(self) -> None:
        """Let go of the snapshot, and of rows."""
        if self._kept is not None:
            self._kept.close()
        if self._tables is not None:
            self._tables.close()
            self._tables = None
        self._ring = b""


class StoreBackup(ABC):
    """What the backups of stores of both formats share: their files, the first of which may go away meanwhile.

    Args:
        log: what of the store is no file of the binlog.
        find_start: as of `EngineReader`.
    """

    def __init__(
        self,
        wanted: BackupRequest,
        disk: Disk,
        references: References,
        log: LogBackup,
        find_start: Callable[[SlavePosition], StartPoint],
    ) -> None:
        self._wanted: Final = wanted
        self._disk: Final = disk
        self._references: Final = references
        self._log: Final = log
        self._find_start: Final = find_start
        self._pin: Pin | None = None
        self._age = 0
        self._since: BackupPlace | None = None
        self._files: Sequence[int] = ()  # that are copied
        self._manifest: Manifest
        self._notes: list[str] = []

    # --- of each format ---

    @abstractmethod
    def _name(self, file_no: int) -> str:
        """Of a file."""

    @abstractmethod
    def _first_now(self) -> int:
        """The first file of the binlog as it is now."""

    @abstractmethod
    def _written(self) -> tuple[int, int]:
        """The end of the binlog as it is now: a file, and an offset in it."""

    @abstractmethod
    def _anchor(self, file_no: int, offset: int) -> BackupPlace:
        """A place of the binlog as it is now. Raises `PositionPurged`."""

    @abstractmethod
    def _end_of_copy(self) -> tuple[int, int]:
        """The last file, and how long its copy is together with what earlier backups have of it."""

    @abstractmethod
    def _first_copied(self) -> int:
        """The first file of the binlog of the copy."""

    @abstractmethod
    def _begin_behind(self, file_no: int) -> None:
        """The binlog of the copy begins behind a file that went away."""

    @abstractmethod
    def _pieces_of(self, file: File, file_no: int, begin: int, size: int) -> Iterator[Piece]:
        """So many bytes of a file from `begin` on."""

    def _is_in_log(self, file_no: int) -> bool:
        """Whether the copy of the redo log has all of a file."""
        return False

    # --- the steps ---

    def _hold(self) -> None:
        """Let nothing go that is to be copied, and find the place where it begins."""
        if not self._wanted.no_lock and not self._wanted.skip_binlog:
            self._pin = self._references.hold_for_reader(HOLDER, self._first_now)
        self._age = self._references.wait_until_open()
        self._since = self._begins_at()

    def _begins_at(self) -> BackupPlace | None:
        """The place from which on an incremental backup has the binlog. Raises `BackupRefused`, `PositionPurged`."""
        since = self._wanted.since
        if self._wanted.since_gtid is not None:
            return self._anchor(self._find_start(self._wanted.since_gtid).position.file_no, 0)
        if since is None:
            return None
        if since.file_no < self._first_now():
            raise BackupRefused(
                f"{self._name(since.file_no)}, where the earlier backup ends, was purged since: make a full backup"
            )
        there: BackupPlace | None = None
        with contextlib.suppress(PositionPurged):
            there = self._anchor(since.file_no, since.offset)
        if there != since or self._written() < (since.file_no, since.offset):
            raise BackupRefused(
                "the earlier backup is not of this binlog: RESET MASTER came since, or it is another store. Make a "
                "full backup"
            )
        return since

    def _from(self, files: Iterable[int]) -> list[int]:
        """Those of some files that an earlier backup does not have as they are now."""
        begin = 0 if self._since is None else self._since.file_no
        return [file_no for file_no in files if file_no >= begin]

    def _begin_of(self, file_no: int) -> int:
        since = self._since
        return since.offset if since is not None and since.file_no == file_no else 0

    def _size(self, file_no: int) -> int | None:
        """Bytes of a file that are copied; None if it has gone."""
        last, end = self._end_of_copy()
        if file_no != last:
            try:
                end = self._disk.size(self._name(file_no))
            except FileMissing:
                return None
        return end - self._begin_of(file_no)

    def _sizes(self) -> dict[str, int]:
        """Bytes by file, of all that is copied."""
        files = {self._name(file_no): self._size(file_no) or 0 for file_no in self._files}
        return self._log.sizes() | files

    def pieces(self) -> Iterator[Piece]:
        yield from self._log.pieces(skip_binlog=self._wanted.skip_binlog)
        for file_no in self._files:
            yield from self._file_pieces(file_no)
            self._require_age()

    def _file_pieces(self, file_no: int) -> Iterator[Piece]:
        size = self._size(file_no)
        try:
            if size is None:
                raise FileMissing(f"{self._name(file_no)} has gone")
            file = self._disk.open(self._name(file_no))
        except FileMissing:
            self._gone(file_no)
            return
        with contextlib.closing(file):
            yield from self._pieces_of(file, file_no, self._begin_of(file_no), size)

    def _gone(self, file_no: int) -> None:
        """A file is not there. Raises `PositionPurged` unless it was to be expected."""
        self._require_age()
        if self._is_in_log(file_no):
            return
        name = self._name(file_no)
        if not self._wanted.no_lock:
            raise PositionPurged(f"{name} has gone while it was backed up")
        self._begin_behind(file_no)
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
        return replace(
            self._manifest, stage=WHOLE, first_file=self._first_copied(), notes=tuple(self._notes)
        )

    def close(self) -> None:
        if self._pin is not None:
            self._pin.release()
            self._pin = None
        self._log.close()


class IbbBackup(StoreBackup):
    """Of one `.ibb` store.

    Args:
        facts: the file of facts beside the log, if there is one.
        find_start: as of `EngineReader`.
    """

    def __init__(
        self,
        wanted: BackupRequest,
        disk: Disk,
        lock: threading.Lock,
        pages: PageStore,
        writer: LogWriter,
        durability: Durability,
        flusher: Flusher,
        snapshots: TableSnapshots,
        references: References,
        full: FullDisk,
        facts: StateStore | None,
        find_start: Callable[[SlavePosition], StartPoint],
        tables: TableStore,
        keeper: RowKeeper | None,
    ) -> None:
        log = LogBackup(disk, durability.redo, facts, tables, keeper)
        super().__init__(wanted, disk, references, log, find_start)
        self._lock: Final = lock
        self._pages: Final = pages
        self._writer: Final = writer
        self._durability: Final = durability
        self._flusher: Final = flusher
        self._snapshots: Final = snapshots
        self._full: Final = full
        self._stable = Position(0, 0)  # pages in front of it are in the files for good
        self._tail: FullPages
        self._first = 0

    def begin(self) -> Manifest:
        self._hold()
        if self._full.error is None:
            with contextlib.suppress(NoRoom):  # nothing was done: there is more redo to copy
                self._flusher.checkpoint(lambda: self._full.error is not None)
        redo = self._durability.redo
        if redo.tables is not None and redo.lsn - redo.tables.lsn > LOG_BYTES:
            self._snapshots.make()
        with self._snapshots.working, self._flusher.working:
            with self._lock:
                self._durability.require_sound()
                lsn, stand = redo.lsn, self._writer.stand
                self._tail = self._pages.sealed_tail()
                state = self._writer.state.copy()
                self._log.keep()
            self._durability.sync_log()
            return self._fixed(lsn, stand, state)

    def _fixed(self, lsn: int, stand: Position, state: BinlogState) -> Manifest:
        redo = self._durability.redo
        checkpoint, changed = redo.checkpoint, dict[str, object]()
        if self._wanted.skip_binlog:
            checkpoint = self._log.without_binlog(lsn)
            changed[FIRST_FILE_KEY] = None
        self._stable = checkpoint.end or Position(0, 0)
        self._log.fix(lsn, checkpoint, changed)
        end: BackupPlace | None = None
        if not self._wanted.skip_binlog:
            there = self._pages.files.numbers() if checkpoint.end is not None else []
            self._files = self._from(n for n in there if n <= stand.file_no)
            self._first = there[0] if there else stand.file_no
            file_no, page_no = self._tail.key
            end = self._anchor(file_no, page_no * PAGE_SIZE)
        self._manifest = Manifest(
            "innodb",
            redo.uuid.hex(),
            self._log.uuid.hex(),
            str(state),
            lsn,
            end,
            self._first,
            self._since,
            self._wanted.skip_binlog,
            bytes_total=sum(self._sizes().values()),
        )
        return self._manifest

    def _name(self, file_no: int) -> str:
        return file_name(file_no)

    def _first_now(self) -> int:
        return self._pages.first_number()

    def _written(self) -> tuple[int, int]:
        return self._writer.stand

    def _anchor(self, file_no: int, offset: int) -> BackupPlace:
        header = self._pages.header(file_no)
        if header is None:
            raise PositionPurged(f"{file_name(file_no)} has gone")
        return BackupPlace(self._durability.redo.uuid.hex(), file_no, offset, header.start_lsn)

    def _end_of_copy(self) -> tuple[int, int]:
        file_no, page_no = self._tail.key
        return file_no, (page_no + 1) * PAGE_SIZE

    def _first_copied(self) -> int:
        return self._first

    def _begin_behind(self, file_no: int) -> None:
        self._first = max(self._first, file_no + 1)

    def _is_in_log(self, file_no: int) -> bool:
        return file_no > self._stable.file_no  # not made yet

    def _pieces_of(self, file: File, file_no: int, begin: int, size: int) -> Iterator[Piece]:
        name, is_last = file_name(file_no), file_no == self._tail.key[0]
        end = begin + size - (PAGE_SIZE if is_last else 0)
        for piece in in_pieces(file, name, size, begin=begin, end=end):
            self._require_sound(file_no, begin, piece)
            yield piece
        if is_last:
            yield Piece(name, size, end - begin, self._tail.data)

    def _require_sound(self, file_no: int, begin: int, piece: Piece) -> None:
        """Raises `CorruptBinlog` for a page that is in its file for good, and has another checksum."""
        for at in range(0, len(piece.data), PAGE_SIZE):
            page = piece.data[at : at + PAGE_SIZE]
            place = Position(file_no, begin + piece.offset + at)
            if place < self._stable.page_start and not is_sound(page):
                self._require_age()
                raise CorruptBinlog(
                    *place, "the page has another checksum: nothing is backed up", page
                )
