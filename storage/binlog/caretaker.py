"""What happens in the background: the next file is made ahead, and files that are too old or too many are deleted.

One thread in production; tests and simulations call `step` themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from storage.binlog.file_table import ROOM_RETRY_S
from storage.binlog.worker import Worker
from storage.errors import DiskError, StorageError

log = logging.getLogger(__name__)


class Caretaker:
    """Runs `work` whenever it is poked. A full disk is said aloud, and tried again after a while.

    Args:
        work: one round; raises `DiskError` if the disk refuses.
    """

    def __init__(self, work: Callable[[], None], *, retry_s: float = ROOM_RETRY_S) -> None:
        self._work = work
        self._retry_s = retry_s
        self._worker = Worker("binlog-caretaker", self.step)
        self.start = self._worker.start
        self.poke = self._worker.poke
        self.stop = self._worker.stop

    def step(self) -> float | None:
        """One round. Returns the seconds after which to try again, None if all is done."""
        try:
            self._work()
        except DiskError as error:
            log.error(
                "InnoDB: %s. Waiting %.0f seconds before trying again...", error, self._retry_s
            )
            return self._retry_s
        except StorageError as error:
            log.error("the caretaker of the binlog gave up a round: %s", error)
        return None
