"""A group from an upstream that is too large to lie in memory: its pieces go to the store while it still comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from binlog_server.commits.room import Room
from binlog_server.commits.syncer import Syncer
from protocol.event_group import split_events
from protocol.gtid import Gtid

PIECE_BYTES = 1 << 20  # of a group that is kept in memory until it is whole
SPILL_BYTES = 2 << 20  # events handed to the store at a time
_PARTS_MAX = 8  # of them: small parts would be many records
# Nobody waits for them to be durable before the group is whole; but then little should be left to be done, and pages
# should be on their way to the disk meanwhile.
SYNC_BYTES = 4 << 20


class LargeGroup:
    """One such group. Each piece is stored in a thread while the next one comes.

    At its end `finish`, and then `commit` or `rollback`; `rollback` alone whenever the rest does not come.
    """

    def __init__(self, room: Room, syncer: Syncer) -> None:
        self._room = room
        self._syncer = syncer
        self._writer = room.engine.begin(bulk=True)
        self._storing: asyncio.Future[None] | None = None
        self._gtid_event = b""
        self.size = 0
        """Bytes that were spilled."""
        self._requested = 0  # of these: to be made durable

    async def spill(self, events: Sequence[bytes | bytearray]) -> None:
        """Take the next events; waits for the ones before, and for room. Raises `StorageError`."""
        if len(events) > _PARTS_MAX:
            events = [b"".join(events)]
        await self._stored()
        if not self._room.engine.has_room_to_spill:
            await self._room.wait(to_spill=True)
        self._storing = asyncio.ensure_future(asyncio.to_thread(self._store, events))
        self.size += sum(map(len, events))
        if self.size - self._requested >= SYNC_BYTES:
            self._requested = self.size
            self._syncer.request()

    async def finish(self, payload: bytes) -> None:
        """The group is whole; `payload` is its GTID event, and what was not spilled. Raises `StorageError`."""
        self._gtid_event = next(split_events(payload))
        await self.spill([payload[len(self._gtid_event) :]])
        await self._stored()
        self._storing = asyncio.ensure_future(asyncio.to_thread(self._writer.settle))
        await self._stored()

    def commit(self, gtid: Gtid) -> None:
        """It becomes part of the binlog. Raises `StorageError`."""
        self._writer.commit(self._gtid_event, gtid)

    async def rollback(self) -> None:
        """It never was."""
        if self._storing is not None:
            # It would go on while the store is closed. Its error is told by the next who appends.
            await asyncio.wait([self._storing])
        self._writer.rollback()

    def _store(self, events: Sequence[bytes | bytearray]) -> None:
        for part in events:
            self._writer.spill(part)

    async def _stored(self) -> None:
        storing, self._storing = self._storing, None
        if storing is None:
            return
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            self._storing = storing
            raise
