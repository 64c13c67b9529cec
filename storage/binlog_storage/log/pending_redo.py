"""The groups in the redo log of a store that its files may lack."""

from __future__ import annotations

import contextlib

from binlog_protocol.dataclass import dataclass

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import CorruptRedo, DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.log.publication import Published, read_published
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.redo.reader import RedoReader


def published(disk: ReadableDisk) -> Published | None:
    """The published state: groups up to its end are in the files. None if unknown, as after a power cut.

    A publication of an earlier start, or from before RESET MASTER, is ignored: positions may have begun anew.
    """
    try:
        told = read_published(disk)
        if told is None:
            return None
        redo = _redo(disk)
    except (DiskError, CorruptRedo):
        return None
    return told if told.is_of(redo.uuid, redo.checkpoint.epoch) else None


def lost_end(disk: ReadableDisk, told: Published | None, end: Position) -> str:
    """The fault of data that end there, in words; empty if there is none.

    Args:
        told: what `published` gave before the files were looked at.
    """
    if told is None or end >= told.end:
        return ""
    now = published(disk)
    if now is None or now.epoch != told.epoch:
        return ""  # RESET MASTER, or a start, came meanwhile
    return f"the data end here, but up to {file_name(told.end.file_no)}:{told.end.offset} they were durable"


def is_being_reset(disk: ReadableDisk, told: Published) -> bool:
    """Whether RESET MASTER is at work behind `told`, the newest publication there is, or a crash has ended it.

    Its first step is a checkpoint that says that the store is empty; then files are deleted, and numbers begin anew.
    A start of the server, which has an epoch of its own as well, goes on where the published end is or behind it.
    """
    try:
        redo = _redo(disk)
    except (DiskError, CorruptRedo):
        return False  # a copy of the files alone; or damage that others tell
    epoch, end = redo.checkpoint.epoch, redo.checkpoint.end
    if redo.uuid != told.uuid or epoch <= told.epoch:
        return False
    return end is None or end.next_record < told.end


def _redo(disk: ReadableDisk) -> RedoReader:
    """Its header and checkpoint; the file is closed. Raises `CorruptRedo`, `DiskError`."""
    with contextlib.closing(disk.open(REDO_NAME)) as file:
        return RedoReader(file)


@dataclass(frozen=True, slots=True)
class PendingRedo:
    """`count` mini-transactions since the last checkpoint, at which the binlog ended at `end`; or what is damaged.

    uuid: of the store, as text; None if there is no log that can be read.
    """

    end: Position | None = None
    count: int = 0
    damage: str = ""
    uuid: str | None = None

    @classmethod
    def of(cls, disk: ReadableDisk) -> PendingRedo:
        """The pending redo of a directory; none without a redo log. Raises `DiskError`."""
        if REDO_NAME not in disk.names():
            return cls()
        end: Position | None = None
        with contextlib.closing(disk.open(REDO_NAME)) as file:
            try:
                redo = RedoReader(file)
                end = redo.checkpoint.end
                begin = redo.checkpoint.lsn
                count = sum(mtr.lsn >= begin and not mtr.is_of_tables for mtr in redo.replay())
                return cls(end, count, uuid=redo.uuid.hex())
            except CorruptRedo as error:
                return cls(end, damage=str(error))
