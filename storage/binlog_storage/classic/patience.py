"""Waiting for room on a full disk, of all the work of one store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.disk.disk import Disk
from binlog_storage.engine.late_opening import LateOpening
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import DiskFull, NoRoom, WaitGivenUp

log = logging.getLogger(__name__)

T = TypeVar("T")

LONG_WAIT_S: Final = 0.5
"""What a thread that must not wait for room may wait for other things."""


class Patience:
    """Of one store. Any thread.

    Args:
        wait_for_room: as for `FullDisk`.
        disk: of the store. What its opening has no room for waits, if it is a `PatientDisk`, and is written before
            anything else.

    is_late: something of the opening is not written yet.
    """

    def __init__(
        self, soundness: Soundness, wait_for_room: Callable[[float], object] | None, disk: Disk
    ) -> None:
        self._soundness = soundness
        self._late = LateOpening(disk, soundness)
        self.is_late = False
        self.full = FullDisk(wait_for_room)
        self._never_wait = -1

    def never_wait_in(self, thread: int) -> None:
        """See `BinlogEngine`."""
        self._never_wait = thread

    def opened(self) -> None:
        """See `LateOpening`."""
        self._late.opened()
        if (full := self._late.full) is not None:
            self.is_late = True
            self.full.met(full, self.full.tries)
            log.error(
                "%s. What there is is served; what opening has to write, and all commits, wait for room. PURGE BINARY "
                "LOGS makes some",
                full,
            )

    def catch_up(self) -> None:
        """Write what opening had no room for: in front of all other writes. Raises as `LateOpening`."""
        if self.is_late:
            self._late.catch_up()
            self.is_late = False

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
                if self.is_late:
                    self.catch_up()
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
