"""What lets those wait who commit: a full disk, a large commit under way, too much that is not written yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from binlog_storage.classic.patience import Patience
from binlog_storage.classic.write_behind import WriteBehind
from binlog_storage.classic.written_log import BUFFER_MAX, WrittenLog
from binlog_storage.errors import StoreFailed, WaitGivenUp

_SOFT_BYTES: Final = BUFFER_MAX // 2


class Turns:
    """Counts the commits under way that take long: those inside of `with`. From any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self.count = 0

    def __enter__(self) -> None:
        with self._changed:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait(self, timeout: float | None, ended: Callable[[], bool]) -> None:
        """Wait until there are none, for so many seconds, or until `ended`, which `wake` lets it ask again."""
        with self._changed:
            self._changed.wait_for(lambda: not self.count or ended(), timeout)

    def wake(self) -> None:
        """Let who waits ask again whether that has ended."""
        with self._changed:
            self._changed.notify_all()


class BackPressure:
    """Of one store; each method from any thread."""

    def __init__(
        self, binlog: WrittenLog, patience: Patience, turns: Turns, behind: WriteBehind
    ) -> None:
        self._log = binlog
        self._patience = patience
        self._turns = turns
        self._behind = behind

    @property
    def has_room(self) -> bool:
        log = self._log
        return log.soundness.failure is not None or (
            self._patience.full.error is None
            and not self._turns.count
            and len(log.buffer) <= _SOFT_BYTES
            and (log.rows is None or log.rows.redo.lsn < log.rows.roomy_lsn or log.rows.has_room)
        )

    @property
    def has_room_to_spill(self) -> bool:
        return self.has_room and (self._behind.has_room or self._log.soundness.failed)

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        until = None if timeout is None else time.monotonic() + timeout

        def given_up() -> bool:
            return until is not None and time.monotonic() >= until

        def ended() -> bool:
            return self._log.soundness.failed or self._patience.full.is_closing

        while not (found := self.has_room_to_spill if to_spill else self.has_room):
            left = None if until is None else until - time.monotonic()
            if ended() or (left is not None and left <= 0):
                return found
            if self._turns.count:
                self._turns.wait(left, ended)
                continue
            if self.has_room:
                self._behind.wait(left, ended)
                continue
            try:
                self._patience.until_done(self._log.write_once, given_up)
            except (WaitGivenUp, StoreFailed):
                return self.has_room
            if self._log.rows is not None and not self._log.rows.has_room:
                if given_up():
                    return False
                self._log.rows.relieve()
        return True
