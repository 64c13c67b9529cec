"""What the redo log of a store holds that its files may lack."""

from __future__ import annotations

from dataclasses import dataclass

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import CorruptRedo, DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.publication import read_published
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.redo.reader import RedoReader


def published_end(disk: ReadableDisk) -> Position | None:
    """The durable end that was published: groups up to there are in the files. None if unknown, as after a power cut.

    A publication of an earlier start, or from before RESET MASTER, is ignored: positions may have begun anew.
    """
    try:
        told = read_published(disk)
        if told is None:
            return None
        file = disk.open(REDO_NAME)
        try:
            redo = RedoReader(file)
        finally:
            file.close()
    except (DiskError, CorruptRedo):
        return None
    return told.end if told.is_of(redo.uuid, redo.checkpoint.epoch) else None


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
        file = disk.open(REDO_NAME)
        end: Position | None = None
        try:
            redo = RedoReader(file)
            end = redo.checkpoint.end
            return cls(end, sum(1 for _ in redo.replay()), uuid=redo.uuid.hex())
        except CorruptRedo as error:
            return cls(end, damage=str(error))
        finally:
            file.close()
