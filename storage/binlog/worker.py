"""A thread of the store that does its work whenever it is poked. Simulations call the work themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """Runs `work` in a thread.

    Args:
        work: one round; returns the seconds after which it wants to run again unasked, None for never.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self._name = name
        self._work = work
        self._poked = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None

    def start(self) -> None:
        """Have a thread from now on."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self.poke()

    def poke(self) -> None:
        """There may be something to do."""
        if not self._poked.is_set():
            self._poked.set()

    def stop(self) -> None:
        """Finish the round, and end the thread."""
        self._stopping = True
        self._poked.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        wait: float | None = None
        while True:
            self._poked.wait(wait)
            self._poked.clear()
            if self._stopping:
                return
            wait = self._work()
