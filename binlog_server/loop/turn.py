"""Fair turns on the event loop: how long one connection may go on with what it has sent before others come.

Whoever goes through many small things that lie here already asks after each whether its turn is over. If it is, the
rest waits for the next round of the loop (`call_soon`, `sleep(0)`), and nothing more is read from that peer meanwhile.
So what a peer sends at once, however much it is, delays others by a turn and by its longest single thing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

TURN_S: Final = 0.001


class Turn:
    """A connection's turn; begins when it is made."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_S

    @property
    def is_over(self) -> bool:
        """Whether the turn is over, and other connections come first."""
        return time.monotonic() >= self._ends


async def in_turns(things: Iterable[T]) -> AsyncIterator[T]:
    """The things one after the other; when a turn is over, others come first."""
    turn = Turn()
    for thing in things:
        if turn.is_over:
            await asyncio.sleep(0)
            turn = Turn()
        yield thing
