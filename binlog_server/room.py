"""Waiting until the disk has caught up: one thread watches for all."""

from __future__ import annotations

import asyncio

from storage.engine import BinlogEngine

WATCH_S = 1.0  # a thread that waits looks this often whether the server stops


class Room:
    """For one event loop. Before each `append` and `spill` that must not block: `available`, else `wait`."""

    def __init__(self, engine: BinlogEngine) -> None:
        self.engine = engine
        self._watch: asyncio.Task[None] | None = None
        self.waits = 0  # how often somebody had to

    @property
    def available(self) -> bool:
        """Whether the store takes more without blocking."""
        return self.engine.has_room

    async def wait(self) -> None:
        """Until there is room, or the store has failed, which the next call of it will tell."""
        if self.engine.has_room:
            return
        self.waits += 1
        if self._watch is None:
            self._watch = asyncio.create_task(self._until_room())
        await asyncio.shield(self._watch)

    def close(self) -> None:
        """Nobody waits any more."""
        if self._watch is not None:
            self._watch.cancel()

    async def _until_room(self) -> None:
        try:
            while not await asyncio.to_thread(self.engine.wait_for_room, WATCH_S):
                pass
        finally:
            self._watch = None
