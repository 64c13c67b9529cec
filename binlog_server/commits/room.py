"""Waiting until the disk has caught up: a thread or two watch for all."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Hashable, Iterator

from binlog_storage.engine import EngineWriter

from binlog_server.loop.shielded import shielded

WATCH_S = 1.0  # a thread that waits looks this often whether the server stops


class AppendRoom:
    """Back-pressure in one event loop. Before an `append` or `spill` that must not block: `available`, else `wait`."""

    def __init__(self, engine: EngineWriter) -> None:
        self.engine = engine
        self._watches: dict[bool, asyncio.Task[None]] = {}  # by whether it is for a large group
        self.waits = 0  # how often somebody had to
        self._began: dict[Hashable, float] = {}  # those who wait

    @property
    def available(self) -> bool:
        """Whether the store takes more without blocking."""
        return self.engine.has_room

    @property
    def waiting_s(self) -> float:
        """Seconds that the longest wait has lasted; 0 if nobody waits."""
        began = list(self._began.values())  # at once: metrics ask in a thread
        return time.monotonic() - min(began) if began else 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count waits inside of the block as waits for the disk, though they do not use `wait`."""
        who = object()
        self._began[who] = time.monotonic()
        try:
            yield
        finally:
            del self._began[who]

    async def wait(self, *, to_spill: bool = False) -> None:
        """Wait until there is room, or the store has failed; its next call then raises."""
        if self.engine.has_room_to_spill if to_spill else self.engine.has_room:
            return
        self.waits += 1
        if to_spill not in self._watches:
            self._watches[to_spill] = asyncio.create_task(self._until_room(to_spill))
        await shielded(self._watches[to_spill])

    def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()

    async def _until_room(self, to_spill: bool) -> None:
        self._began[to_spill] = time.monotonic()
        wait = functools.partial(self.engine.wait_for_room, WATCH_S, to_spill=to_spill)
        try:
            while not await asyncio.to_thread(wait):
                pass
        finally:
            del self._watches[to_spill], self._began[to_spill]
