"""Waiting for room on a full disk, of all the work of one store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import DiskFull, NoRoom, WaitGivenUp

T = TypeVar("T")

LONG_WAIT_S: Final = 0.5
"""What a thread that must not wait for room may wait for other things."""


class Patience:
    """Of one store. Any thread.

    Args:
        wait_for_room: as for `FullDisk`.
    """

    def __init__(
        self, soundness: Soundness, wait_for_room: Callable[[float], object] | None
    ) -> None:
        self._soundness = soundness
        self.full = FullDisk(wait_for_room)
        self._never_wait = -1

    def never_wait_in(self, thread: int) -> None:
        """See `BinlogEngine`."""
        self._never_wait = thread

    @property
    def waits_long(self) -> bool:
        """Whether this thread may wait for as long as it takes."""
        return threading.get_ident() != self._never_wait

    def note_full(self, error: DiskFull, tries: int) -> None:
        if not isinstance(error, NoRoom):  # of which it is known
            self.full.met(error, tries)

    def until_done(self, work: Callable[[], T], given_up: Callable[[], bool] = lambda: False) -> T:
        """Do it, again and again while the disk is full. Raises `WaitGivenUp` if `given_up` returns True, or the store
        is being closed.
        """
        began = time.monotonic()
        full = self.full
        while True:
            tries = full.tries
            try:
                if full.error is not None:
                    full.require_time()
                done = work()
            except DiskFull as error:
                if self._soundness.failed:
                    raise
                self.note_full(error, tries)
            else:
                if full.error is not None:
                    full.passed()
                return done
            try:
                full.wait(
                    lambda: (
                        given_up()
                        or not (self.waits_long or time.monotonic() - began < LONG_WAIT_S)
                    )
                )
            except NoRoom as error:
                raise WaitGivenUp(str(error)) from None
