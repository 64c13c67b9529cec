"""A full disk: logged, waited for and tried again, in one place.

A write without room raises `NoRoom`; its caller gives its locks back and calls `wait`. Meanwhile no other write is
tried, so that a full disk is tried once every `ROOM_RETRY_S` seconds, and at once when files were purged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from binlog_storage.errors import DiskFull, NoRoom

log = logging.getLogger(__name__)

ROOM_RETRY_S = 60.0
_SAID_AGAIN_S = ROOM_RETRY_S - 1  # the next try may log the same again
_LOOK_AGAIN_S = 0.1  # between two calls of `given_up`


class FullDisk:
    """The wait of one store for space on the disk; from any thread.

    Args:
        wait: for simulations: waits for room, its argument are seconds.
    """

    def __init__(self, wait: Callable[[float], object] | None = None) -> None:
        self._instead = wait
        self._changed = threading.Condition(threading.Lock())
        self.error: NoRoom | None = None
        """The error of the last write that found no space; None if the last one found space.

        Not to be raised: an error that is raised again and again collects tracebacks.
        """
        self.since = 0.0
        """The time when room was missing first, by the monotonic clock; it means nothing without `error`."""
        self._retry_at = 0.0
        self._said = ("", 0.0)  # the last log line, and its time
        self.tries = 0
        """How often room may have come so far. To be read before a try, for `met`."""
        self.is_closing = False
        self._when_freed: list[Callable[[], None]] = []

    def when_freed(self, call: Callable[[], None]) -> None:
        """Call this, too, each time that files were deleted."""
        self._when_freed.append(call)

    @property
    def retry_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._retry_at - time.monotonic())

    def require_time(self) -> None:
        """Raises `NoRoom` again while it is too early to try."""
        error = self.error
        if error is not None and self.retry_s:
            raise NoRoom(str(error))

    def met(self, error: DiskFull, tries: int) -> NoRoom:
        """Note and log that there is no room. Returns the error to raise.

        Args:
            tries: `tries` as it was before the try. If room has come since, the try may have missed it: the next one
                may be made at once.
        """
        with self._changed:
            if self.error is None:
                self.since = time.monotonic()
            self.error = NoRoom(str(error))
            self._retry_at = time.monotonic() + ROOM_RETRY_S if self.tries == tries else 0.0
        return self.say(error)

    def say(self, error: DiskFull) -> NoRoom:
        """Log that there is no room, once for all writes that find the same. Returns the error to raise."""
        text, now = str(error), time.monotonic()
        said, at = self._said
        if not self.is_closing and (text != said or now - at >= _SAID_AGAIN_S):
            self._said = text, now
            log.error("InnoDB: %s. Waiting %.0f seconds before trying again...", text, ROOM_RETRY_S)
        return NoRoom(text)

    def passed(self) -> None:
        """Note that a write found space."""
        if self.error is not None:
            self.error = None
            log.info("InnoDB: there is room on the disk again")

    def freed(self) -> None:
        """Files were deleted: all waiters try again at once."""
        with self._changed:
            self._retry_at = 0.0
            self.tries += 1
            self._changed.notify_all()
        for call in self._when_freed:
            call()

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self.is_closing = True
            self._changed.notify_all()

    def wait(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until the next try is due. To be called without any lock.

        Raises `NoRoom` if `given_up` returns True, and after `close`.
        """
        error = self.error  # read once: another thread may find room meanwhile
        if error is not None and (self.is_closing or given_up()):
            raise NoRoom(str(error))
        if self._instead is not None:
            self._instead(ROOM_RETRY_S)
            self._retry_at = 0.0
            self._said = ("", 0.0)
            return
        with self._changed:
            tries = self.tries
            while self.retry_s and self.tries == tries:
                if self.is_closing or given_up():
                    break
                self._changed.wait(min(self.retry_s, _LOOK_AGAIN_S))
