"""The events of one connection to an upstream, as they come: whole groups into the store."""

from __future__ import annotations

import asyncio
import logging
import time

from binlog_server.client_link import ClientLink
from binlog_server.publisher import Publisher
from binlog_server.room import Room
from binlog_server.syncer import Syncer
from protocol.connection.client import ErrorReceived, EventReceived, StreamEnded
from protocol.event_group import EventGroup, EventGroupAssembler, StartMarker
from storage.engine import BinlogEngine

log = logging.getLogger(__name__)

UNSYNCED_BYTES_MAX = 64 << 20  # reading waits for the disk beyond this
LARGE_BYTES = 1 << 20


class DomainTaken(Exception):
    """The upstream sends groups of a domain in which this server commits."""


class Ingest:
    """For one connection, from the dump command on.

    Args:
        name: the upstream's, for log lines.
        checksum_algorithm: that was negotiated.
        group_bytes_max: a larger group is an error.
    """

    def __init__(
        self,
        name: str,
        engine: BinlogEngine,
        syncer: Syncer,
        room: Room,
        publisher: Publisher,
        checksum_algorithm: int,
        *,
        group_bytes_max: int,
    ) -> None:
        self._name = name
        self._engine = engine
        self._syncer = syncer
        self._room = room
        self._publisher = publisher
        self._assembler = EventGroupAssembler(
            checksum_algorithm,
            group_bytes_max=group_bytes_max,
            limit_option="max_event_group_size",
        )
        self.received = False
        """An event has come."""
        self.stored = False
        """Something of it was new."""

    async def run(self, link: ClientLink) -> None:
        """Take what comes, for as long as it comes. Raises what ends it; what came whole is stored by then."""
        assembler = self._assembler
        unsynced = 0
        while True:
            appended = 0
            try:
                for event in await link.events():
                    match event:
                        case EventReceived(data):
                            self.received = True
                            whole = assembler.feed(data)
                            if whole is not None and not self._room.available:
                                await self._wait_for_room()
                            if isinstance(whole, EventGroup) and len(whole.payload) > LARGE_BYTES:
                                appended += await self._store_large(whole)
                            else:
                                appended += self._store(whole)
                        case ErrorReceived(error):
                            raise error
                        case StreamEnded():
                            raise ConnectionError("the upstream has ended the stream")
            finally:
                # Also for what came together with the end: no later group may ever come.
                if appended:
                    self.stored = True
                    self._syncer.appended()
            unsynced += appended
            if unsynced > UNSYNCED_BYTES_MAX:
                await self._syncer.synced()
                unsynced = 0

    async def _wait_for_room(self) -> None:
        """What comes meanwhile waits in the socket, and then at the upstream."""
        self._syncer.request()
        log.warning("reading from the %s pauses: the disk is full or slow", self._name)
        began = time.monotonic()
        await self._room.wait()
        log.info("reading goes on after %.1f s", time.monotonic() - began)

    async def _store_large(self, group: EventGroup) -> int:
        """In a thread: it goes in pieces, each of which may wait for the disk."""
        storing = asyncio.ensure_future(asyncio.to_thread(self._store, group))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            await storing  # it would go on while the store is closed
            raise

    def _store(self, whole: EventGroup | StartMarker | None) -> int:
        """Bytes appended."""
        match whole:
            case EventGroup(gtid, payload):
                if not self._publisher.follows_in(gtid.domain_id):
                    raise DomainTaken(
                        f"it sends {gtid}, but SQL that was sent to this server is committed in domain "
                        f"{gtid.domain_id}; restart with read_only, or commit in a domain of its own"
                    )
                self._engine.append(payload, gtid)
                return len(payload)
            case StartMarker():
                payload = whole.payload
                # At the same place the upstream sends it again whenever we connect, until a group follows it.
                if payload != self._engine.last_marker:
                    self._engine.append(payload, None)
                    return len(payload)
        return 0
