"""What the opening of a store had no room for on a full disk, and does later, in front of all that is new."""

from __future__ import annotations

import logging

from binlog_storage.disk.disk import Disk
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import DiskError, DiskFull, TooManyOpenFiles

log = logging.getLogger(__name__)


class LateOpening:
    """Of one store; there is nothing left to do unless its disk is a `PatientDisk`."""

    def __init__(self, disk: Disk, soundness: Soundness) -> None:
        self._disk = disk if isinstance(disk, PatientDisk) else None
        self._soundness = soundness

    @property
    def full(self) -> DiskFull | None:
        """Why something waits; None if nothing does."""
        return None if self._disk is None else self._disk.full

    def opened(self) -> None:
        """The store is open. From now on a change is made at once, or refused: one that waits in memory is not durable,
        so nothing may be told so while one does."""
        if self._disk is not None:
            self._disk.opened()

    def touches(self, name: str) -> bool:
        """Whether a change of that file waits."""
        return self._disk is not None and self._disk.touches(name)

    def require_done(self) -> None:
        """Raises `StoreFailed`, and `DiskFull` while something waits."""
        self._soundness.require_sound()
        if (full := self.full) is not None:
            raise DiskFull(str(full))

    def catch_up(self) -> bool:
        """Do what waits. False: nothing did. Raises `StoreFailed`, `DiskFull` without room for all of it,
        `TooManyOpenFiles`; any other `DiskError` is the end of writing."""
        self._soundness.require_sound()
        if self._disk is None or self._disk.full is None:
            return False
        try:
            self._disk.try_again()
        except TooManyOpenFiles:
            raise  # tried again
        except DiskError as error:
            self._soundness.fail(error)
            raise
        self.require_done()
        log.info("there was room for what opening had to write: commits go on")
        return True
