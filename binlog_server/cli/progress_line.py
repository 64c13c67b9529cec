"""How far a long command is: one line of a terminal, written over and over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 0.5


class ProgressLine:
    """On standard error, if that is a terminal; else it only takes the time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + _EVERY_S
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def show(self, line: Callable[[], str]) -> None:
        """Called for each step of the work; writes now and then."""
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._write(line())

    def end(self) -> None:
        """The line goes away."""
        if self._width:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, line: str) -> None:
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)
