"""A group from an upstream that is too large to lie in memory: its pieces go to the store while it still comes."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Sequence

from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import Gtid

from binlog_server.commits.room import AppendRoom
from binlog_server.loop.shielded import shielded

_QUEUE_BYTES = 4 << 20  # of these, which it has not taken yet
_PARTS_MAX = 8  # small parts would be many records

Events = Sequence[bytes | bytearray]


class IncomingGroup:
    """One large group. A thread of its own stores what has come, while more comes.

    At its end `finish`, and then `commit` or `rollback`; `rollback` alone whenever the rest does not come.
    """

    def __init__(self, room: AppendRoom, *, bulk: bool) -> None:
        """`bulk`: see `EngineWriter.begin`."""
        self._room = room
        self._writer = room.engine.begin(bulk=bulk)
        self._gtid_event = b""
        self.size = 0
        """Bytes that were spilled."""
        self._work: queue.SimpleQueue[Events | None] = queue.SimpleQueue()  # None is its end
        self._ending = False
        self._dropped = False  # what is left in the queue
        # The thread sets its progress first, then wakes the loop if that waits.
        self._stored_bytes = 0
        self._failure: BaseException | None = None
        self._has_ended = False
        self._awaited = False
        self._moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._store, name="binlog-spill", daemon=True).start()

    def spill_at_once(self, events: Events) -> bool:
        """Take the next events, if that needs no waiting. Returns whether they were taken. Raises `StorageError`."""
        if self._is_behind or not self._room.engine.has_room_to_spill:
            return False
        self._put(events)
        return True

    async def spill(self, events: Events) -> None:
        """Take the next events; waits for room, and for those before if they are many. Raises `StorageError`."""
        if self._is_behind:
            with self._room.waiting():
                while self._is_behind:
                    await self._step()
        if not self._room.engine.has_room_to_spill:
            await self._room.wait(to_spill=True)
        self._put(events)

    def _put(self, events: Events) -> None:
        if self._failure is not None:
            raise self._failure
        if len(events) > _PARTS_MAX:
            # The last one may be large: it is not copied.
            events = [b"".join(events[:-1]), events[-1]]
        self.size += sum(map(len, events))
        self._work.put(events)

    @property
    def _is_behind(self) -> bool:
        return self.size - self._stored_bytes > _QUEUE_BYTES and self._failure is None

    async def finish(self, payload: bytes) -> None:
        """The group is whole; `payload` is its GTID event, and what was not spilled. Raises `StorageError`."""
        self._gtid_event = next(split_events(payload))
        await self.spill([payload[len(self._gtid_event) :]])
        await self._end()
        if self._failure is not None:
            raise self._failure

    async def commit(self, gtid: Gtid, age: int) -> int:
        """Append the commit record: the group becomes part of the binlog of that age. Raises `StorageError`.

        Returns the bytes of the whole group. What takes long is done in a thread, to its end: cancelled, it is waited
        for, but not on a full disk.
        """
        turn = self._writer.turn()
        if turn is None:
            self._writer.commit(self._gtid_event, gtid, age)
        else:
            with turn, self._room.waiting():
                call = asyncio.to_thread(self._writer.commit, self._gtid_event, gtid, age)
                committing = asyncio.ensure_future(call)
                try:
                    await shielded(committing)
                finally:
                    if not committing.done():
                        self._writer.give_up()
                        await asyncio.wait((committing,))
        return len(self._gtid_event) + self.size

    async def rollback(self) -> None:
        """Drop the group and stop the thread."""
        self._dropped = True
        self._writer.give_up()
        try:
            await self._end()  # the thread would go on while the store is closed
        finally:
            self._writer.rollback()

    async def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._work.put(None)
        with self._room.waiting():
            while not self._has_ended:
                await self._step()

    async def _step(self) -> None:
        """Wait for progress of the thread.

        The first call returns at once: the thread may have moved between the caller's look and this call.
        """
        if not self._awaited:
            self._awaited = True
            return  # the caller looks again; from now on the thread sees that somebody waits
        await self._moved.wait()
        self._moved.clear()

    def _store(self) -> None:
        while (events := self._work.get()) is not None:
            if not self._dropped and self._failure is None:
                self._guarded(events)
            self._stored_bytes += sum(map(len, events))
            self._tell()
        if not self._dropped and self._failure is None:
            self._guarded(None)
        self._has_ended = True
        self._tell()

    def _guarded(self, events: Events | None) -> None:
        """Store these events, or without events sync the pages. Errors are kept for the loop."""
        try:
            if events is None:
                self._writer.settle()
            for part in events or ():
                self._writer.spill(part)
        except BaseException as error:  # noqa: BLE001 - raised by the loop's thread
            self._failure = error

    def _tell(self) -> None:
        if self._awaited:
            self._awaited = False
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._moved.set)
