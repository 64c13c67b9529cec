"""Backups that are being made, and the statements that change which files there are: these wait for those.

Commits, the upstream and the entering of new files never wait. Purges by age and size pass over what a backup holds:
the store's own pins see to that. With --no-lock a backup makes nobody wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from binlog_protocol.errors import LockWaitExceeded, QueryInterrupted

_LOOK_S: Final = 0.1  # for a client that has gone
_WAIT_S: Final = 50.0
"""A backup waits so long for a FLUSH or RESET MASTER that is at work, which may wait for room on the disk."""


class Backups:
    """Of one server. Any thread; whoever waits blocks its thread."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._running = 0
        self._changing = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a backup is made. Raises `LockWaitExceeded` (1205) if files are being changed for long."""
        deadline = time.monotonic() + _WAIT_S
        with self._free:
            while self._changing:
                if not self._free.wait(deadline - time.monotonic()):
                    raise LockWaitExceeded()
            self._running += 1
        try:
            yield
        finally:
            with self._free:
                self._running -= 1
                self._free.notify_all()

    @contextmanager
    def changing(self, given_up: Callable[[], bool]) -> Iterator[None]:
        """While PURGE, FLUSH or RESET MASTER is at work, which begins when no backup is being made.

        Raises `QueryInterrupted` (1317) if `given_up` returns True before that.
        """
        with self._free:
            while self._running:
                if given_up():
                    raise QueryInterrupted()
                self._free.wait(_LOOK_S)
            self._changing += 1
        try:
            yield
        finally:
            with self._free:
                self._changing -= 1
                self._free.notify_all()
