"""How far `binlog-server import` is: one line of a terminal, written over and over."""

from __future__ import annotations

import sys
import time
from typing import Final

from storage.intake.intake import Taken
from storage.intake.source import Source

_EVERY_S: Final = 0.5


class Progress:
    """On standard error, if that is a terminal; else it only takes the time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._began = time.monotonic()
        self._next = self._began + _EVERY_S
        self._is_shown = sys.stderr.isatty()
        self._width = 0
        self.seconds = 0.0
        """Since the beginning, until `end`."""

    def show(self, taken: Taken) -> None:
        """Called for each step of the work; writes now and then."""
        if not self._is_shown:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._write(self._line(taken, now - self._began))

    def _line(self, taken: Taken, seconds: float) -> str:
        done, size = self._source.bytes_read, self._source.size
        part = done / size if size else 1.0
        rest = f", {seconds / part - seconds:.0f} s to go" if 0.01 < part < 1 else ""
        passed = f", {taken.passed_over} passed over" if taken.passed_over else ""
        return (
            f"{part:4.0%} of {size / (1 << 20):.0f} MiB, {taken.groups} groups stored{passed}{rest}"
        )

    def end(self) -> None:
        """The line goes away."""
        self.seconds = time.monotonic() - self._began
        if self._width:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, line: str) -> None:
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)
