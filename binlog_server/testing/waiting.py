"""Waiting for a condition that nobody tells: tests wait for these, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL = 0.02
"""Seconds between two looks at a condition."""


def until(
    condition: Callable[[], object], what: str = "a condition", timeout: float = 30.0
) -> None:
    """Look until the condition is true. Raises `TimeoutError` with the name of what did not come."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(POLL)
