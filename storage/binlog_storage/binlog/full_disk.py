"""The disk of the store is full: said aloud, waited for and tried again, in one place.

Who needs room that there is not gets `NoRoom`, with no lock held for it, and `wait`s; meanwhile nobody else tries, so
that a full disk is asked once every `ROOM_RETRY_S` seconds, and at once when files were purged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from binlog_storage.errors import DiskFull, NoRoom

log = logging.getLogger(__name__)

ROOM_RETRY_S = 60.0
_SAID_AGAIN_S = ROOM_RETRY_S - 1  # another try may find the same
_LOOK_AGAIN_S = 0.1  # whether who waits has given up


class FullDisk:
    """The wait of one store for space on the disk; from any thread.

    Args:
        wait: waits that many seconds for room, for simulations.
    """

    def __init__(self, wait: Callable[[float], object] | None = None) -> None:
        self._instead = wait
        self._changed = threading.Condition(threading.Lock())
        self._error: NoRoom | None = None
        self.since = 0.0
        """When there was no room first, by the monotonic clock; of no meaning without `error`."""
        self._retry_at = 0.0
        self._said = ("", 0.0)  # what, and when
        self._tries = 0  # that are worth it: each time there may be room
        self.is_closing = False

    @property
    def error(self) -> NoRoom | None:
        """The last write that found no space; None while there is space as far as known. For reading only: an error
        that is raised again and again collects tracebacks.
        """
        return self._error

    @property
    def retry_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._retry_at - time.monotonic())

    def require_time(self) -> None:
        """Raises `NoRoom` again while it is too early to try."""
        error = self._error
        if error is not None and self.retry_s:
            raise NoRoom(str(error))

    @property
    def tries(self) -> int:
        """How often there may have come room until now: to be taken before a try, for `met`."""
        return self._tries

    def met(self, error: DiskFull, tries: int) -> NoRoom:
        """Note that there is no room, and say so. Returns the error to raise.

        Args:
            tries: `tries` of before the try. Room that was made during it may not have been seen by it: it is tried
                again at once.
        """
        with self._changed:
            if self._error is None:
                self.since = time.monotonic()
            self._error = NoRoom(str(error))
            self._retry_at = time.monotonic() + ROOM_RETRY_S if self._tries == tries else 0.0
        return self.say(error)

    def say(self, error: DiskFull) -> NoRoom:
        """Say that there is no room, once for all who meet the same. Returns the error to raise."""
        text, now = str(error), time.monotonic()
        said, at = self._said
        if not self.is_closing and (text != said or now - at >= _SAID_AGAIN_S):
            self._said = text, now
            log.error("InnoDB: %s. Waiting %.0f seconds before trying again...", text, ROOM_RETRY_S)
        return NoRoom(text)

    def passed(self) -> None:
        """Note that a write found space."""
        if self._error is not None:
            self._error = None
            log.info("InnoDB: there is room on the disk again")

    def freed(self) -> None:
        """There may be room now: whoever waits tries at once."""
        with self._changed:
            self._retry_at = 0.0
            self._tries += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self.is_closing = True
            self._changed.notify_all()

    def wait(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Until it is time to try again. With no lock held. Raises `NoRoom` if there is nothing to wait for."""
        error = self._error  # once: another thread may find room meanwhile
        if error is not None and (self.is_closing or given_up()):
            raise NoRoom(str(error))
        if self._instead is not None:
            self._instead(ROOM_RETRY_S)
            self._retry_at = 0.0
            self._said = ("", 0.0)
            return
        with self._changed:
            tries = self._tries
            while self.retry_s and self._tries == tries:
                if self.is_closing or given_up():
                    break
                self._changed.wait(min(self.retry_s, _LOOK_AGAIN_S))
