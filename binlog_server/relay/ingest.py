"""The events of one connection to an upstream, as they come: whole groups into the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, NoReturn

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.event_group import EventGroup, Incident, StartMarker, split_events
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import (
    PIECE_BYTES,
    GroupPart,
    GroupStream,
    StreamEnded,
    StreamEvent,
)
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import GTID_LIST_EVENT_BYTES_MAX
from binlog_protocol.wire.semi_sync import ReplicaPlace
from binlog_storage.engine import EngineWriter, GroupWriter

from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.loop.turn import Turn
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Gate
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.large_group import IncomingGroup
from binlog_server.relay.status import UpstreamStatus
from binlog_server.relay.upstream_history import UpstreamHistory
from binlog_server.semi_sync.upstream_acks import UpstreamAcks

log = logging.getLogger(__name__)

UNSYNCED_BYTES_MAX = 64 << 20  # reading waits for the disk beyond this
_SHORT_LIST_BYTES = 16 << 10
SLOW_S = 1.0  # a wait for room that is worth a line in the log


class DumpEnded(ConnectionError):
    """The upstream ended the dump: it shuts down, or has begun a new binlog by RESET MASTER."""


class Ingest:
    """Stores the groups of one connection, from the dump command on.

    Args:
        name: the upstream's, for log lines.
        gate: says which groups are wanted.
        status: gets the progress.
        checksum_algorithm: that was negotiated.
        group_bytes_max: a larger group is an error.
        acks: acknowledges groups to an upstream with semi-sync; None without.
        history: checks the GTID_LIST events of the upstream against the store; None: they are not checked.
        incidents: decides which INCIDENT events are passed; None: following ends at each.
    """

    def __init__(
        self,
        name: str,
        engine: EngineWriter,
        syncer: Syncer,
        room: AppendRoom,
        gate: Gate,
        checksum_algorithm: int,
        *,
        status: UpstreamStatus,
        group_bytes_max: int,
        acks: UpstreamAcks | None = None,
        history: UpstreamHistory | None = None,
        incidents: Incidents | None = None,
    ) -> None:
        self._name = name
        self._engine = engine
        self._syncer = syncer
        self._room = room
        self._gate = gate
        self._status = status
        self._acks = acks
        self._history = history
        self._incidents = incidents or Incidents()
        status.read, status.stored = self._read, self._stored = ReplicaPlace(), ReplicaPlace()
        self._checksum_algorithm = checksum_algorithm
        self._group_bytes_max = group_bytes_max
        self._stream: GroupStream | None = None
        # The group that is coming, if its pieces are in the store already.
        self._large: IncomingGroup | None = None
        self._appended = 0  # bytes, of what was received together
        self.stored = False
        """Something of it was new."""

    @property
    def received(self) -> bool:
        """An event has come."""
        return self._stream is not None and self._stream.received

    async def run(self, link: ClientLink) -> NoReturn:
        """Take what comes, for as long as it comes. Raises what ends it; what came whole is stored by then."""
        stream = self._stream = GroupStream(
            link.machine,
            self._checksum_algorithm,
            group_bytes_max=self._group_bytes_max,
            large_bytes=PIECE_BYTES,
            piece_bytes=PIECE_BYTES,
            place=self._read,
        )
        try:
            await self._run(link, stream)
        finally:
            await self._drop_large()

    async def _run(self, link: ClientLink, stream: GroupStream) -> NoReturn:
        unsynced = 0
        while True:
            self._status.storing = False
            await link.receive()
            self._status.storing, self._status.storing_since = True, time.monotonic()
            self._appended = 0
            try:
                await self._take(link, stream)
            finally:
                self._status.heard(self._appended, self._gate.last_timestamp)
                # Also for what came together with the end: no later group may ever come.
                if self._appended:
                    self.stored = True
                    self._syncer.appended()
                if self._acks is not None and stream.unfinished is None:
                    self._acks.stored(self._stored)
            unsynced += self._appended
            if unsynced > UNSYNCED_BYTES_MAX:
                await self._syncer.synced()
                unsynced = 0

    async def _take(self, link: ClientLink, stream: GroupStream) -> None:
        """Store what was received. Other connections get their turns between steps."""
        turn = Turn()
        while True:
            if turn.is_over:
                await asyncio.sleep(0)
                turn = Turn()
            if stream.unfinished is None:
                self._stored.follow(self._read)
            item = await link.next_item(stream, runs=self._gate.takes_runs)
            if stream.ack_wanted and self._acks is not None:
                stream.ack_wanted = False
                self._acks.asked()
            match item:
                case None:
                    return
                case GroupRun():
                    self._appended += await self._store_run(item)
                case EventGroup():
                    self._appended += await self._store(item)
                case GroupPart():
                    await self._spill(item)
                case StreamEvent():
                    await self._look_at(item)
                case StartMarker():
                    await self._drop_large()
                    await self._have_room()
                    self._appended += self._store_marker(item.payload)
                case Incident():
                    await self._meet(item)
                case StreamEnded():
                    raise DumpEnded("the upstream has ended the stream")

    async def _look_at(self, event: StreamEvent) -> None:
        if event.type == EventType.GTID:
            self._status.coming_timestamp = int.from_bytes(event.sent[:TYPE_OFFSET], "little")
        elif event.type == EventType.GTID_LIST and self._history is not None:
            await self._compare(self._history, event.event)

    @staticmethod
    async def _compare(history: UpstreamHistory, event: bytes) -> None:
        """Off the loop, if there is much of it: a state has an entry for each domain and server there ever was."""
        if len(event) > GTID_LIST_EVENT_BYTES_MAX:
            raise ProtocolError(
                f"a GTID list of {len(event)} bytes; {GTID_LIST_EVENT_BYTES_MAX} are the most: delete domains that are "
                "not used any more there, FLUSH BINARY LOGS DELETE_DOMAIN_ID=(...)"
            )
        if len(event) <= _SHORT_LIST_BYTES:
            history.compare(GtidList.parse(event))
        else:
            await asyncio.to_thread(lambda: history.compare(GtidList.parse(event)))

    async def _meet(self, incident: Incident) -> None:
        position = self._engine.binlog_state().position()
        await self._incidents.meet(self._name, incident, self._read, position)

    async def _store_run(self, run: GroupRun) -> int:
        """Bytes appended."""
        if not self._gate.admits_run(run):
            return 0
        self._gate.last_marker = None
        self._incidents.went_on()
        self._status.coming_timestamp = run.timestamp
        index = 0
        turn = Turn()
        try:
            while (done := self._engine.append_run(run, index, self._gate.age)) < len(run):
                if not self._room.available:
                    await self._wait_for_room()
                elif done == index:
                    await self._append(run.payload(index), run.gtid(index))
                    done += 1
                index = done
                if turn.is_over:
                    await asyncio.sleep(0)
                    turn = Turn()
        except BaseException:
            # A part of it is stored: `run` knows of whole ones only.
            self.stored = True
            self._syncer.appended()
            raise
        return len(run.payloads)

    async def _spill(self, part: GroupPart) -> None:
        """Store the part of a group that has come so far."""
        if not self._gate.wants(part.gtid):
            return
        if self._large is None:
            self._large = IncomingGroup(self._room)
        await self._patiently(self._large.spill(part.events))

    async def _drop_large(self) -> None:
        """Drop the spilled part of a group that does not become whole, or is not wanted."""
        large, self._large = self._large, None
        if large is not None:
            await large.rollback()

    async def _store(self, whole: EventGroup) -> int:
        """Bytes appended."""
        await self._have_room()
        wanted = self._gate.wants(whole.gtid)
        if self._large is None and len(whole.payload) > PIECE_BYTES and wanted:
            self._large = IncomingGroup(self._room)
        large = self._large
        if large is not None:
            await self._patiently(large.finish(whole.payload))
            await self._have_room()
        elif len(whole.payload) > self._engine.cache_bytes and wanted:
            return await self._store_in_pieces(whole)
        if not self._gate.admits(whole):  # if it raises, `run` rolls back
            await self._drop_large()
            return 0
        self._gate.last_marker = None
        self._incidents.went_on()
        if large is not None:
            large.commit(
                whole.gtid, self._gate.age
            )  # if it raises, too: what was spilled holds files
            self._large = None
            return large.size
        self._engine.append(whole.payload, whole.gtid, self._gate.age)
        return len(whole.payload)

    async def _store_in_pieces(self, whole: EventGroup) -> int:
        """Bytes appended, of a group that is more than one record."""
        gtid_event, writer = await self._spilled(whole.payload)
        try:
            if not self._gate.admits(whole):
                writer.rollback()
                return 0
            self._gate.last_marker = None
            self._incidents.went_on()
            writer.commit(gtid_event, whole.gtid, self._gate.age)
        except BaseException:
            writer.rollback()
            raise
        return len(whole.payload)

    async def _append(self, payload: bytes, gtid: Gtid) -> None:
        """Append an admitted group; there is room for its first record."""
        if len(payload) <= self._engine.cache_bytes:
            self._engine.append(payload, gtid, self._gate.age)
            return
        gtid_event, writer = await self._spilled(payload)
        try:
            writer.commit(gtid_event, gtid, self._gate.age)
        except BaseException:
            writer.rollback()
            raise

    async def _spilled(self, payload: bytes) -> tuple[bytes, GroupWriter]:
        """The GTID event of a group, and what has the rest of it and can be committed at once.

        Record by record: the store would wait for room between them, and the loop with it.
        """
        engine = self._engine
        gtid_event = next(split_events(payload))
        writer = engine.begin()
        try:
            rest = memoryview(payload)[len(gtid_event) :]
            for at in range(0, len(rest), engine.cache_bytes):
                await self._have_room()
                writer.spill(rest[at : at + engine.cache_bytes])
            await self._have_room()
        except BaseException:
            writer.rollback()
            raise
        return gtid_event, writer

    def _store_marker(self, payload: bytes) -> int:
        """Bytes appended."""
        # At the same place the upstream sends it again whenever we connect, until a group follows it.
        if payload in (self._engine.last_marker, self._gate.last_marker):
            return 0
        self._engine.append(payload, None, self._gate.age)
        self._gate.last_marker = payload
        return len(payload)

    async def _have_room(self) -> None:
        while not self._room.available:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        self._syncer.request()
        await self._patiently(self._room.wait())

    async def _patiently(self, what: Coroutine[Any, Any, None]) -> None:
        """Wait for the disk; what comes meanwhile waits in the socket, then at the upstream. A long wait is said."""
        began = time.monotonic()
        waiting = asyncio.ensure_future(what)
        try:
            await asyncio.wait([waiting], timeout=SLOW_S)
            if not waiting.done():
                log.warning("reading from %s pauses: the disk is full or slow", self._name)
                await asyncio.shield(waiting)
                log.info(
                    "reading from %s goes on after %.1f s", self._name, time.monotonic() - began
                )
            waiting.result()  # or what it has ended with
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
