"""Writes of opening for which a full disk had no room: the caretaker does them later, before anything is appended."""

from __future__ import annotations

import logging
from collections.abc import Callable

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.bounds import Bounds
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.file_table import FileTable
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.errors import DiskError, DiskFull, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name

log = logging.getLogger(__name__)


@dataclass(eq=False)
class LateWrites:
    """The writes that the opening of one store has left, if its disk is a `PatientDisk`; else there are none."""

    _patient: PatientDisk | None
    _files: FileTable
    _durability: Durability
    _bounds: Bounds
    _full: FullDisk
    when_done: Callable[[], object] = lambda: None
    """Called when there are none left any more."""

    @property
    def full(self) -> DiskFull | None:
        """Why they wait; None if there are none left."""
        return None if self._patient is None else self._patient.full

    def opened(self) -> None:
        """The store is open: what was not written until now is done later."""
        if self._patient is not None:
            self._patient.opened()

    def require_written(self) -> None:
        """Raises `StoreFailed`, and `DiskFull` while there are any."""
        self._durability.require_sound()
        if (full := self.full) is not None:
            raise DiskFull(str(full))

    def catch_up(self) -> bool:
        """Do them if there is room. Returns whether other files may be made: not after a failure. Raises `DiskFull`."""
        if self._durability.failed:
            return False
        if self._patient is None or self._patient.full is None:
            return True
        try:
            done = self._patient.try_again()
        except TooManyOpenFiles:
            raise  # tried again
        except DiskError as error:
            self._durability.fail(error)
            return False
        if not done:
            self.require_written()
        self._bounds.resume()
        self.when_done()
        log.info("InnoDB: there was room for what opening had to write: commits go on")
        return True

    def relieve(self) -> None:
        """Do them for one who waits for room, where no thread does; without room wait until there may be some."""
        tries = self._full.tries
        try:
            self.catch_up()
        except DiskFull as error:
            self._full.met(error, tries)
            self._full.wait()

    def first_open(self) -> int:
        """The first file that recovery may need: that of the last checkpoint, or one that is still to be written."""
        first = self._bounds.clean_file
        if self._patient is not None and self._patient.full is not None:
            numbers = self._files.numbers()
            first = min([first, *(n for n in numbers if self._patient.touches(file_name(n)))])
        return first
