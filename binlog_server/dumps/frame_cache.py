"""Groups as packets, made once and shared by all replicas that pass the same place.

A replica that follows the tail asks for the frames from the same position as every other one there; a replica that
catches up meets those before it at the places where the store cuts its batches. So the work per replica is one copy
to a socket.

History is read and framed in a thread, one batch ahead of the first replica that passes: while the loop copies a batch
to sockets, the thread makes the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from binlog_storage.engine import EngineReader, PlacedBatch, Position

from binlog_server.dumps.frame_style import FramedBatch, FrameStyle
from binlog_server.loop.shielded import shielded

_Key = tuple[
    int, Position, FrameStyle
]  # with the age of the binlog, in which alone a position means anything
# How a replica waits for a batch that is being made. It must not cancel the task: other replicas wait for the same one.
Waiting = Callable[[asyncio.Task[FramedBatch]], Awaitable[FramedBatch]]
# Batches that are being made, beyond which none is made ahead: so many replicas at different places keep the thread
# pool busy by themselves, and might push each other's batches out of the cache unused.
_BUSY: Final = 4
# Bytes of binlog that the loop itself makes into frames with positions or checksums: a millisecond's work.
_LITTLE: Final = 32768


class FrameCache:
    """The frames of one store, shared by all replicas. For one event loop.

    Args:
        bytes_max: memory for frames; the least recently used go first.
    """

    def __init__(self, engine: EngineReader, bytes_max: int) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._bytes = 0
        self._age = engine.age  # of all that is kept
        self._made: dict[_Key, FramedBatch] = {}
        self._being_made: dict[_Key, asyncio.Task[FramedBatch]] = {}
        self.hits = 0
        self.misses = 0  # batches for which a replica waited; one made ahead is a hit
        self.made_ahead = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of the batches in the cache."""
        return self._bytes

    async def groups(self, start: Position, style: FrameStyle) -> PlacedBatch:
        """The groups themselves, for a replica that does not get all of them."""
        if self._engine.is_recent(start):
            return style.read(self._engine, start)
        return await asyncio.to_thread(style.read, self._engine, start)

    async def frames(
        self, start: Position, style: FrameStyle, waiting: Waiting = shielded
    ) -> FramedBatch:
        """The frames from `start`; `end` equals `start` at the durable end.

        That takes as long as the disk needs for all that lies before the next group: `waiting` may do something else
        meanwhile.
        """
        batch = self.at_once(start, style)
        key = (self._age, start, style)
        if batch is None:
            making = self._being_made.get(key)
            if making is None:
                self.misses += 1
                making = self._begin(key)
            else:
                self.hits += 1
            batch = await waiting(making)
        self._read_ahead((key[0], batch.end, style))
        return batch

    def at_once(self, start: Position, style: FrameStyle) -> FramedBatch | None:
        """The frames from `start`, if they are here or are made with little work; None if that is for a thread.

        Raises as `FrameStyle.framed`.
        """
        if self._age != self._engine.age:
            self._age, self._bytes = self._engine.age, 0
            self._made.clear()
        key = (self._age, start, style)
        batch = self._made.pop(key, None)
        if batch is not None:
            self._made[key] = batch  # to the young end
            self.hits += 1
            return batch
        if key in self._being_made or not self._is_made_at_once(start, style):
            return None
        self.misses += 1
        return self._keep(key, self._make(key))

    def _is_made_at_once(self, start: Position, style: FrameStyle) -> bool:
        """Whether making the frames costs the loop nothing worth a thread."""
        if not self._engine.is_recent(start):
            return False
        if not style.is_costly:
            return True
        end = self._engine.durable_end
        return start.file_no == end.file_no and end.offset - start.offset < _LITTLE

    def _read_ahead(self, key: _Key) -> None:
        if key in self._made or key in self._being_made or len(self._being_made) >= _BUSY:
            return
        start = key[1]
        if start < self._engine.durable_end and not self._engine.is_recent(start):
            # Errors are not cached: the next replica at this place reads again.
            self.made_ahead += 1
            self._begin(key).add_done_callback(take_error)

    def _begin(self, key: _Key) -> asyncio.Task[FramedBatch]:
        # A task of its own: the replica that asked first may go away while others wait.
        making = asyncio.get_running_loop().create_task(self._make_in_thread(key))
        self._being_made[key] = making
        return making

    async def _make_in_thread(self, key: _Key) -> FramedBatch:
        try:
            loop = asyncio.get_running_loop()
            return self._keep(key, await loop.run_in_executor(None, self._make, key))
        finally:
            del self._being_made[key]

    def _make(self, key: _Key) -> FramedBatch:
        _, start, style = key
        return style.framed(self._engine, start)

    def _keep(self, key: _Key, batch: FramedBatch) -> FramedBatch:
        age, start, _ = key
        if batch.end == start:
            return batch  # the durable end: there will be more here
        if age != self._age or age != self._engine.age:
            return batch  # of a binlog that is gone
        self._made[key] = batch
        self._bytes += batch.frames.memory_bytes
        while self._bytes > self._bytes_max and len(self._made) > 1:
            oldest = next(iter(self._made))
            self._bytes -= self._made.pop(oldest).frames.memory_bytes
        return batch


def take_error(making: asyncio.Task[Any]) -> None:
    """Take a task's error, or asyncio logs that nobody did."""
    if not making.cancelled():
        making.exception()
