"""What the redo log of a store holds that its files may lack."""

from __future__ import annotations

from dataclasses import dataclass

from storage.errors import CorruptRedo
from storage.ibb.chunk import Position
from storage.inspection.read_only_disk import ReadableDisk
from storage.redo.format import REDO_NAME
from storage.redo.reader import RedoReader


@dataclass(frozen=True, slots=True)
class PendingRedo:
    """`count` mini-transactions since the last checkpoint, at which the binlog ended at `end`; or what is damaged."""

    end: Position | None = None
    count: int = 0
    damage: str = ""

    @classmethod
    def of(cls, disk: ReadableDisk) -> PendingRedo:
        """Nothing if there is no redo log. Raises `DiskError`."""
        if REDO_NAME not in disk.names():
            return cls()
        file = disk.open(REDO_NAME)
        end: Position | None = None
        try:
            redo = RedoReader(file)
            end = redo.checkpoint.end
            return cls(end, sum(1 for _ in redo.replay()))
        except CorruptRedo as error:
            return cls(end, damage=str(error))
        finally:
            file.close()
