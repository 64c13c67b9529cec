"""Waits for work that goes on when the waiting task is cancelled."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def shielded(work: asyncio.Future[T]) -> asyncio.Future[T]:
    """A future as of `asyncio.shield`; an error of work for which nobody waits any more is no traceback in the log."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(work)
