"""The places of times in the store, for dumps: one search at a time, so that others have threads of the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from binlog_storage.engine import EngineReader
from binlog_storage.log.file_times import FileTimes, TimePlace

from binlog_server.loop.shielded import shielded


class TimePlaces:
    """To be used on one event loop. `times` is for any thread."""

    def __init__(self) -> None:
        self.times: Final = FileTimes()
        self._turn: Final = asyncio.Lock()

    async def find(self, engine: EngineReader, time: float) -> TimePlace:
        """As `FileTimes.find`. Cancelled, the search ends soon. Raises `StorageError`."""
        async with self._turn:
            given_up = threading.Event()
            search = asyncio.ensure_future(
                asyncio.to_thread(self.times.find, engine, time, given_up.is_set)
            )
            try:
                return await shielded(search)
            except asyncio.CancelledError:
                given_up.set()
                await asyncio.wait([search])
                raise
