"""Says in the log that the disk does not answer, whoever waits for it: the loop may, when a single client commits."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Self

from binlog_storage.disk.disk import DiskCall, calls_under_way

log = logging.getLogger(__name__)

_ROUNDS: Final = 4  # looks, in the time after which a call is told
_JOIN_S: Final = 1.0  # its line may wait for the reader of the log


class DiskWatch:
    """From `with` on a thread looks; a call that takes longer than `told_s` seconds is told once, and its end."""

    def __init__(self, told_s: float) -> None:
        self._told_s = told_s
        self._stop = threading.Event()
        self._told: list[DiskCall] = []
        self._thread = threading.Thread(target=self._watch, name="binlog-disk-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_S)

    def look(self) -> None:
        """Look once whether a call to the disk takes too long."""
        now = time.monotonic()
        there = calls_under_way()
        for call in self._told:
            if call not in there:
                log.info(
                    "the disk has answered after some %.0f s: %s %s",
                    now - call.since,
                    call.action,
                    call.path,
                )
        self._told = [call for call in self._told if call in there]
        for call in there:
            if now - call.since >= self._told_s and call not in self._told:
                self._told.append(call)
                log.error(
                    "the disk does not answer, since %.0f s: %s %s; what needs it waits, the server itself perhaps",
                    now - call.since,
                    call.action,
                    call.path,
                )

    def _watch(self) -> None:
        while not self._stop.wait(self._told_s / _ROUNDS):
            self.look()
