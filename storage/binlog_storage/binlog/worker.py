"""A background thread of the store, which runs a round of its work whenever it is poked. Simulations call `step`.

No error ends it for good. A full disk, a directory that cannot be read, a defect of ours: the error is logged, and the
round is tried again after a pause. Work that must not be repeated (a sync that failed) has to guard itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from binlog_storage.defects import Defects
from binlog_storage.engine import Stalled
from binlog_storage.errors import DiskFull, NoRoom, StorageError

log = logging.getLogger(__name__)

RETRY_S = 5.0


class Worker:
    """Runs `work` in a thread.

    Args:
        work: one round; returns the seconds after which it wants to run again without a poke, None for never.
        retry_s: the pause after an error.
    """

    def __init__(
        self, name: str, work: Callable[[], float | None], *, retry_s: float = RETRY_S
    ) -> None:
        self.name = name
        self._work = work
        self._retry_s = retry_s
        self._poked = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._defects = Defects()
        self.failure = ""
        """The error of the last round; empty if it went well."""
        self.failing_since = 0.0
        """The time of the first such error, by the monotonic clock; it means nothing if all goes well."""

    @property
    def running(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        self.poke()

    def poke(self) -> None:
        """Ask for a round now."""
        if not self._poked.is_set():
            self._poked.set()

    def stop(self) -> None:
        """Finish the round, and end the thread."""
        self._stopping = True
        self._poked.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def step(self) -> float | None:
        """Run one round. Returns the seconds after which the next one runs without a poke, None for never."""
        if not self.failure:
            self.failing_since = time.monotonic()
        try:
            wait = self._work()
        except NoRoom as error:  # `FullDisk` has logged it
            self.failure = str(error)
        except DiskFull as error:
            log.error(
                "InnoDB: %s. Waiting %.0f seconds before trying again...", error, self._retry_s
            )
            self.failure = str(error)
        except StorageError as error:
            log.error("%s: %s. Trying again in %.0f seconds", self.name, error, self._retry_s)
            self.failure = str(error)
        except Exception as error:
            log.error(
                "%s: internal error %r. Trying again in %.0f seconds",
                self.name,
                error,
                self._retry_s,
                exc_info=self._defects.trace(error),
            )
            self.failure = repr(error)
        else:
            self.failure = ""
            return wait
        return self._retry_s

    def _run(self) -> None:
        wait: float | None = None
        while True:
            self._poked.wait(wait)
            self._poked.clear()
            if self._stopping:
                return
            wait = self.step()


def stalled_workers(*workers: Worker) -> list[Stalled]:
    """Those whose work fails again and again, by their names without `binlog-`."""
    now = time.monotonic()
    return [
        Stalled(one.name.removeprefix("binlog-"), now - one.failing_since, one.failure)
        for one in workers
        if one.failure
    ]
