"""Closes clients that are silent for `wait_timeout`, without an error packet, as MariaDB does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LOOKS = 8  # checks per wait_timeout: an idle client is closed at most an eighth of it too late
_LOOK_S_MIN = 0.1


class IdleTimer:
    """Checks from time to time, so that a packet costs nothing here.

    Args:
        timeout_s: the timeout in force, asked at each look.
        was_heard: whether the client has said something since the last call, or is being answered.
    """

    def __init__(
        self,
        timeout_s: Callable[[], float],
        was_heard: Callable[[], bool],
        expire: Callable[[], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._was_heard = was_heard
        self._expire = expire
        self._idle_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look, or begin again with another timeout."""
        self.stop()
        step = max(_LOOK_S_MIN, self._timeout_s() / _LOOKS)
        self._timer = asyncio.get_running_loop().call_later(step, self._look, step)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, step: float) -> None:
        self._idle_s = 0.0 if self._was_heard() else self._idle_s + step
        if self._idle_s >= self._timeout_s():
            self._expire()
        else:
            self.start()
