"""Groups as packets, made once and shared by all replicas that pass the same place.

A replica that follows the tail asks for the frames from the same position as every other one there; a replica that
catches up meets those before it at the places where the store cuts its batches. So the work per replica is one copy
to a socket.

History is read and framed in a thread, ahead of the first replica that passes: while the loop copies a batch to
sockets, the thread makes the next ones, some in a row. Asked for each by itself, it waited for the loop after each, and
that for it: a third of a single replica's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from binlog_storage.engine import EngineReader, PlacedBatch, Position

from binlog_server.dumps.frame_style import FramedBatch, FrameStyle
from binlog_server.loop.shielded import shielded

_Key = tuple[
    int, Position, FrameStyle
]  # with the age of the binlog, in which alone a position means anything
# How a replica waits for a batch that is being made. It must not cancel it: other replicas wait for the same one.
Waiting = Callable[[asyncio.Future[FramedBatch]], Awaitable[FramedBatch]]
# Batches that are being made, beyond which none is made ahead: so many replicas at different places keep the thread
# pool busy by themselves, and might push each other's batches out of the cache unused.
_BUSY: Final = 4
# Bytes of binlog that the loop itself makes into frames with positions or checksums: a millisecond's work.
_LITTLE: Final = 32768
# A thread makes one batch ahead; where a replica had to wait for it, so many in a row, and goes on when no more than
# these are left of them. With more than a few that pass the same batches the loop is what all wait for, and batches in
# a row would take 20 MiB without being sooner.
_AHEAD: Final = 4
_FEW: Final = 8
_LEFT: Final = 2
_PART: Final = 4  # of the memory for frames, that they may take in this way


class _Run:
    """Batches that lie one behind the other, made ahead of a replica.

    at: the key of the one that is made now, or next. A thread moves it, while there is one.
    made: so many so far; the thread counts them.
    taken: of these, by the first replica that passed, or nobody will any more.
    rests: no thread is at it, and there is more behind it, as far as the loop knows.
    """

    __slots__ = ("at", "made", "rests", "taken")

    def __init__(self, at: _Key) -> None:
        self.at = at
        self.made = self.taken = 0
        self.rests = False

    @property
    def left(self) -> int:
        """How many nobody has taken yet."""
        return self.made - self.taken


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
        self._ahead: dict[_Key, _Run] = {}  # of those that nobody has taken yet
        self._being_made: dict[_Key, asyncio.Future[FramedBatch]] = {}
        self._waited = False  # a replica had to, since a thread was so far ahead
        self._behind = 0  # replicas that have passed a batch behind the first one, of late
        self._passed = 0  # the same since the last first one
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
                making = self._begin(_Run(key))
            else:
                self.hits += 1
            self._waited = True
            batch = await waiting(making)
        self._read_ahead(key, batch)
        return batch

    def at_once(
        self, start: Position, style: FrameStyle, age: int | None = None
    ) -> FramedBatch | None:
        """The frames from `start`, if they are here or are made with little work; None if that is for a thread.

        `age`: that of the engine, for whoever has just looked. Raises as `FrameStyle.framed`.
        """
        if age is None:
            age = self._engine.age
        if self._age != age:
            self._age, self._bytes = age, 0
            self._made.clear()
            self._ahead.clear()
        key = (age, start, style)
        batch = self._made.pop(key, None)
        if batch is not None:
            self._made[key] = batch  # to the young end
            self.hits += 1
            return batch
        if key in self._being_made or not self._engine.is_recent(start):
            return None
        if style.is_costly and not self._is_little(start):
            return None
        self.misses += 1
        return self._keep(key, style.framed(self._engine, start))

    def _is_little(self, start: Position) -> bool:
        """Whether so little is durable from there on that even costly frames cost the loop nothing worth a thread."""
        end = self._engine.durable_end
        return start.file_no == end.file_no and end.offset - start.offset < _LITTLE

    def _read_ahead(self, key: _Key, batch: FramedBatch) -> None:
        """A replica has taken this batch: have the next ones made."""
        run = self._ahead.pop(key, None)
        if run is None:
            self._passed += 1
        else:
            run.taken += 1
            self._behind, self._passed = self._passed, 0
        following = key[0], batch.end, key[2]
        if self._is_wanted_ahead(following):
            run = _Run(following)
        elif (
            run is None
            or not run.rests
            or run.left > (_LEFT if self._in_a_row else 0)
            or not self._is_wanted_ahead(run.at)
        ):
            return
        self.made_ahead += 1
        self._begin(run)

    @property
    def _in_a_row(self) -> bool:
        """Whether a thread is to make more than one batch ahead."""
        return self._waited and self._behind < _FEW

    def _is_wanted_ahead(self, key: _Key) -> bool:
        """Whether a batch is to be made before anybody asks for it. From any thread."""
        age, start, _ = key
        return (
            key not in self._made
            and key not in self._being_made
            and len(self._being_made) < _BUSY
            and age == self._engine.age
            and start < self._engine.durable_end
            and not self._engine.is_recent(start)
        )

    def _begin(self, run: _Run) -> asyncio.Future[FramedBatch]:
        """Have a thread make the batch where the run is, and those behind it."""
        making = self._announce(run.at)
        run.rests = False
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(None, self._make_run, loop, run)
        except RuntimeError as error:  # the system has no more threads now
            self._being_made.pop(run.at).set_exception(error)
        else:
            work.add_done_callback(partial(self._ended, run))
        return making

    def _announce(self, key: _Key) -> asyncio.Future[FramedBatch]:
        """A batch is being made. The replica that asked first may go away while others wait."""
        making = self._being_made.get(key)
        if making is None:
            making = self._being_made[key] = asyncio.get_running_loop().create_future()
            # Errors are not cached: the next replica at this place reads again.
            making.add_done_callback(take_error)
        return making

    def _make_run(self, loop: asyncio.AbstractEventLoop, run: _Run) -> None:
        """The thread: make batches in a row, as many as are wanted ahead."""
        goes_on = True
        while goes_on:
            key = run.at
            batch = self._make(key)
            run.made += 1
            run.at = key[0], batch.end, key[2]
            goes_on = (
                batch.end != key[1]  # the end of a part of an archive: others follow elsewhere
                and batch.large is None
                and run.left < (_AHEAD if self._in_a_row else 1)
                and run.left * batch.frames.memory_bytes < self._bytes_max // _PART
                and self._is_wanted_ahead(run.at)
            )
            loop.call_soon_threadsafe(self._publish, key, batch, run, run.at if goes_on else None)

    def _publish(self, key: _Key, batch: FramedBatch, run: _Run, following: _Key | None) -> None:
        """A batch is made. `following`: the one that the thread makes now."""
        if following is not None:
            self._announce(following)
            self.made_ahead += 1
        run.rests = following is None and batch.end != key[1]
        if run.left >= _AHEAD:
            self._waited = False
        if key not in self._made:  # by another thread, which began when this one had
            self._keep(key, batch)
        if key in self._made:
            self._ahead[key] = run
        making = self._being_made.pop(key, None)
        if making is not None:
            making.set_result(batch)

    def _ended(self, run: _Run, work: asyncio.Future[None]) -> None:
        """The thread does something else: what it could not make is told to who waits."""
        error = work.exception()
        if error is not None:
            making = self._being_made.pop(run.at, None)
            if making is not None:
                making.set_exception(error)

    def _make(self, key: _Key) -> FramedBatch:
        _, start, style = key
        return style.framed(self._engine, start)

    def _keep(self, key: _Key, batch: FramedBatch) -> FramedBatch:
        age, start, _ = key
        if batch.end == start:
            return batch  # the durable end: there will be more here
        if age != self._age:
            return batch  # of a binlog that is gone, as is known here; what is of it goes when `at_once` hears of that
        self._made[key] = batch
        self._bytes += batch.frames.memory_bytes
        while self._bytes > self._bytes_max and len(self._made) > 1:
            oldest = next(iter(self._made))
            self._bytes -= self._made.pop(oldest).frames.memory_bytes
            if (run := self._ahead.pop(oldest, None)) is not None:
                run.taken += 1
        return batch


def take_error(making: asyncio.Future[Any]) -> None:
    """Take the error of what was done, or asyncio logs that nobody did."""
    if not making.cancelled():
        making.exception()
