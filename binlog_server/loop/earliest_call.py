"""One timer for calls that are asked for again and again: it fires at the earliest time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class EarliestCall:
    """For one event loop. Times are the loop's, in seconds."""

    __slots__ = ("_due", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Kept here: uvloop's handle of a call that is due at once has no when().
        self._due = 0.0

    def by(self, due: float, call: Callable[[], None]) -> None:
        """Call then, unless an earlier call is coming already; a later one gives way to this one."""
        if self._timer is not None and self._due > due:
            self.cancel()
        if self._timer is None:
            self._due = due
            self._timer = self._loop.call_at(due, self._fire, call)

    @property
    def is_set(self) -> bool:
        """Whether a call is coming."""
        return self._timer is not None

    def cancel(self) -> bool:
        """Whether one was coming, which is no more."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        return True

    def _fire(self, call: Callable[[], None]) -> None:
        self._timer = None
        call()
