"""Writes of opening for which a full disk had no room: the caretaker does them later, before anything is appended."""

from __future__ import annotations

from collections.abc import Callable

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.bounds import Bounds
from binlog_storage.binlog.file_table import FileTable
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.engine.late_opening import LateOpening
from binlog_storage.errors import DiskFull, StorageError, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name


@dataclass(eq=False)
class LateWrites:
    """The writes that the opening of one store has left."""

    _opening: LateOpening
    _files: FileTable
    _bounds: Bounds
    _full: FullDisk
    when_done: Callable[[], object] = lambda: None
    """Called when there are none left any more."""

    @property
    def full(self) -> DiskFull | None:
        """Why they wait; None if there are none left."""
        return self._opening.full

    def opened(self) -> None:
        """The store is open: what was not written until now is done later."""
        self._opening.opened()

    def require_written(self) -> None:
        """Raises `StoreFailed`, and `DiskFull` while there are any."""
        self._opening.require_done()

    def catch_up(self) -> bool:
        """Do them if there is room. Returns whether other files may be made: not after a failure. Raises `DiskFull`,
        `TooManyOpenFiles`."""
        try:
            if self._opening.catch_up():
                self._bounds.resume()
                self.when_done()
        except (DiskFull, TooManyOpenFiles):
            raise
        except StorageError:
            return False  # the end of writing, which was told
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
        late = (n for n in self._files.numbers() if self._opening.touches(file_name(n)))
        return min([self._bounds.clean_file, *late])
