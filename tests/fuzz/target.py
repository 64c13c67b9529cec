"""What is fuzzed: something that takes bytes, and says what must be true of it whatever they are."""

from __future__ import annotations

import random
from typing import Protocol


class Wrong(AssertionError):
    """What must be true is not: content that nobody wrote, a line with a traceback, a client that gets no answer."""


class Target(Protocol):
    """One way in. `open`, then `run` as often as one likes, then `close`; all by one thread."""

    name: str
    time_s: float
    """Processor time that any one input may take, in seconds, on a slow machine."""
    per_life: int
    """Inputs after which it is closed and opened anew: what one leaves behind meets the next ones."""

    def open(self) -> None:
        """Make what the inputs are given to."""

    def make(self, rng: random.Random) -> bytes:
        """An input."""

    def run(self, data: bytes) -> None:
        """Give it an input. Any exception is a finding: `run` lets pass what may be said to bad bytes."""

    def close(self) -> None:
        """Let go; may raise `Wrong`, too, for what can only be seen at the end."""
