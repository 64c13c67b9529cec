"""Tables at a start: the snapshot, and behind it what the redo log holds, applied in one pass with the binlog's pages.

Everything is made in memory, so nothing on disk changes before the whole start is planned.
"""

from __future__ import annotations

import contextlib
import logging

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import CorruptRedo, CorruptTables
from binlog_storage.redo.format import REDO_NAME, RedoFormatError, Tables, TablesFrom
from binlog_storage.redo.reader import Reaches, RedoReader
from binlog_storage.tables import snapshot
from binlog_storage.tables.records import ChangedRow, SetState, State, Undone, parse
from binlog_storage.tables.rows import COMMITTED, Memory, Trx
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.take_changes import take_changes

log = logging.getLogger(__name__)


class Rebuild:
    """The tables of one start.

    Attributes:
        begin: where they begin to read the log; None while there are no tables.
        open: transactions that have not ended, by number.
        logged: an LSN in the last mini-transaction that was applied.
    """

    def __init__(self) -> None:
        self.memory = Memory()
        self.begin: TablesFrom | None = None
        self.open: dict[int, Trx] = {}
        self.next_trx = 1
        self.logged = 0
        self._snapshot: snapshot.SnapshotFacts | None = None
        self.changes = 0

    def load(self, disk: ReadableDisk, uuid: bytes, told: TablesFrom | None) -> None:
        """Read the snapshot, if there is one.

        Args:
            uuid: of the redo log.
            told: what its last checkpoint says of the tables.

        Raises `CorruptTables`, `DiskError`.
        """
        self.begin = told
        if not snapshot.is_there(disk, told):
            return
        found = self._take(snapshot.load(disk))
        found.require_fits(uuid, told)
        # It may be newer than the checkpoint, which comes behind it; and where nothing has changed since, the
        # checkpoint alone has moved on.
        if told is not None and told.snapshot == found.begin.snapshot:
            self.begin = max(told, found.begin)

    def load_alone(self, disk: ReadableDisk) -> None:
        """Read the snapshot without a redo log: what has changed while it was written may be half there."""
        if not snapshot.is_there(disk):
            return
        found = self._take(snapshot.load(disk))
        for trx in list(self.open.values()):
            while trx.top is not None:
                self.memory.undo_top(trx)
        log.warning(
            "%s is used without its redo log: transactions behind LSN %d are lost, %d that were open there are undone, "
            "and what changed until LSN %d may be there in part",
            TABLES_NAME,
            found.begin.lsn,
            len(self.open),
            found.end,
        )
        self.open.clear()
        self.memory.redone()

    def load_as_it_is(self, disk: ReadableDisk, reaches: Reaches | None = None) -> None:
        """Read all of them as the next start will find them; nothing is changed. None without a redo log.

        `reaches`: see `RedoReader.replay`.

        Raises `CorruptRedo`, `CorruptTables`, `DiskError`.
        """
        if REDO_NAME not in disk.names():
            return
        with contextlib.closing(disk.open(REDO_NAME)) as file:
            log_file = RedoReader(file)
            self.load(disk, log_file.uuid, log_file.checkpoint.tables)
            try:
                self.read_log(log_file, reaches)
            except RedoFormatError as error:
                raise CorruptRedo(f"{REDO_NAME} holds {error}") from None

    def read_log(self, log_file: RedoReader, reaches: Reaches | None = None) -> None:
        """Apply all of a log. Raises `RedoFormatError`, `CorruptRedo`, `CorruptTables`.

        `reaches`: see `RedoReader.replay`.
        """
        for mtr in log_file.replay(self.take, reaches):
            for record in mtr.records():
                if isinstance(record, Tables):
                    self.apply(record.data, mtr.lsn, log_file.epoch)
        self.done(log_file.end)

    def _take(self, loaded: snapshot.Loaded) -> snapshot.SnapshotFacts:
        self._snapshot, self.memory, self.open = loaded
        self.next_trx, self.begin = self._snapshot.next_trx, self._snapshot.begin
        return self._snapshot

    def take(self, window: bytes, at: int, stop: int, lsn: int, epoch: int) -> tuple[int, int]:
        """Apply what is plain in a part of the log: see `take_changes` and `RedoReader.replay`."""
        if self.begin is None or lsn < self.begin.lsn:
            return at, 0
        behind, count = take_changes(
            window, at, stop, lsn, epoch, self.open, self.memory.tables, COMMITTED
        )
        if count:
            self.logged = lsn + behind - at - 1  # inside of the last one
            self.changes += count
        return behind, 0

    def apply(self, data: bytes, lsn: int, epoch: int) -> None:
        """Apply records of the log that begin at that LSN. Raises `CorruptTables`."""
        if self.begin is None:
            self.begin = TablesFrom(lsn, epoch)
        elif lsn < self.begin.lsn:
            return
        self.logged = lsn
        for record in parse(data):
            trx = self.open.get(record.trx)
            if trx is None:
                trx = self.open[record.trx] = Trx(record.trx)
                self.next_trx = max(self.next_trx, record.trx + 1)
            if isinstance(record, ChangedRow):
                self.memory.redo(trx, record)
                self.changes += 1
            elif isinstance(record, Undone):
                self._undo(trx, record.top)
            elif isinstance(record, SetState):
                trx.state, trx.engines, trx.xid = record.state, record.engines, record.xid
            else:
                if record.committed:
                    self.memory.redo_commit(trx)
                elif trx.top is not None:
                    raise CorruptTables(f"transaction {trx.id} was rolled back, but not undone")
                del self.open[record.trx]

    def _undo(self, trx: Trx, top: int) -> None:
        while trx.top is not None and trx.top.no > top:
            self.memory.undo_top(trx)
        if top != (0 if trx.top is None else trx.top.no):
            raise CorruptTables(
                f"transaction {trx.id} is undone down to {top}, which is no change of it"
            )

    def done(self, end: int) -> None:
        """All of the log is applied, which ends at that LSN. Raises `CorruptRedo`."""
        if self._snapshot is not None:
            self._snapshot.require_whole(end)
        self.memory.redone()
        if self.open:
            prepared = sum(trx.state == State.PREPARED for trx in self.open.values())
            log.info(
                "InnoDB: %d transaction(s) which must be rolled back or cleaned up in total %d row operations to undo; "
                "%d of them prepared",
                len(self.open),
                sum(trx.count for trx in self.open.values() if trx.state != State.PREPARED),
                prepared,
            )
