"""The progress of a long command: one line on a terminal, overwritten again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 0.1


class ProgressLine:
    """A progress line on standard error, if that is a terminal; without one it only measures the time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    @property
    def seconds(self) -> float:
        """Seconds since the line was made."""
        return time.monotonic() - self._began

    def show(self, line: Callable[[], str]) -> None:
        """Show a step of the work; the line is written ten times a second at most."""
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._write(line())

    def end(self) -> None:
        """Remove the line from the terminal."""
        if self._width:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, line: str) -> None:
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)
