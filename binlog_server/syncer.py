"""Keeps `sync` going in a thread while groups come in on the loop: one sync serves all that was appended before it."""

from __future__ import annotations

import asyncio
import contextlib

from storage.engine import BinlogEngine
from storage.errors import StorageError


class Syncer:
    """For one event loop. After a failure every call raises it: the store accepts nothing more."""

    def __init__(self, engine: BinlogEngine) -> None:
        self._engine = engine
        self._running: asyncio.Task[None] | None = None
        self._again = False
        self._failure: StorageError | None = None

    def request(self) -> None:
        """Everything appended so far is to become durable soon."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        else:
            self._again = True

    async def synced(self) -> None:
        """Wait until everything appended so far is durable."""
        self.request()
        while self._running is not None and not self._running.done():
            await asyncio.shield(self._running)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Finish what was requested."""
        if self._running is not None:
            with contextlib.suppress(StorageError):
                await self._running

    async def _run(self) -> None:
        try:
            self._again = True
            while self._again:
                self._again = False
                await asyncio.to_thread(self._engine.sync)
        except StorageError as error:
            self._failure = error
