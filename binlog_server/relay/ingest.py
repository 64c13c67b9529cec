"""The events of one connection to an upstream, as they come: whole groups into the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NoReturn

from binlog_protocol.connection.client import (
    ClientConnection,
    ErrorReceived,
    EventReceived,
    StreamEnded,
)
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    Incident,
    StartMarker,
    split_events,
)
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import GTID_LIST_EVENT_BYTES_MAX
from binlog_protocol.wire.semi_sync import STILL, PositionStep, ReplicaPlace
from binlog_storage.engine import BinlogEngine, GroupWriter

from binlog_server.commits.room import Room
from binlog_server.commits.syncer import Syncer
from binlog_server.loop.turn import Turn
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Gate
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.large_group import PIECE_BYTES, LargeGroup
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
        engine: BinlogEngine,
        syncer: Syncer,
        room: Room,
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
        self._assembler = EventGroupAssembler(
            checksum_algorithm,
            group_bytes_max=group_bytes_max,
            limit_option="max_event_group_size",
        )
        self._large: LargeGroup | None = (
            None  # that is coming, if its pieces are in the store already
        )
        self.received = False
        """An event has come."""
        self.stored = False
        """Something of it was new."""

    async def run(self, link: ClientLink) -> NoReturn:
        """Take what comes, for as long as it comes. Raises what ends it; what came whole is stored by then."""
        try:
            await self._run(link)
        finally:
            if self._large is not None:
                await self._large.rollback()

    async def _run(self, link: ClientLink) -> NoReturn:
        unsynced = 0
        while True:
            self._status.storing = False
            await link.receive()
            self._status.storing, self._status.storing_since = True, time.monotonic()
            appended = 0
            try:
                async for size in self._take(link.machine):
                    appended += size
            finally:
                self._status.heard(appended, self._gate.last_timestamp)
                # Also for what came together with the end: no later group may ever come.
                if appended:
                    self.stored = True
                    self._syncer.appended()
                if self._acks is not None and self._assembler.unfinished is None:
                    self._acks.stored(self._stored)
            unsynced += appended
            if unsynced > UNSYNCED_BYTES_MAX:
                await self._syncer.synced()
                unsynced = 0

    async def _take(self, machine: ClientConnection) -> AsyncIterator[int]:
        """Store what was received; yields the bytes of each step. Other connections get their turns between steps."""
        assembler = self._assembler
        turn = Turn()
        while True:
            if turn.is_over:
                await asyncio.sleep(0)
                turn = Turn()
            if assembler.unfinished is None:
                self._stored.follow(self._read)
                run = (
                    machine.take_run(assembler.checksum_algorithm)
                    if self._gate.takes_runs
                    else None
                )
                if run is not None:
                    self.received = True
                    self._count(run.step, ack_wanted=run.ack_wanted)
                    yield await self._store_run(run)
                    continue
            elif assembler.takes_parts:
                part = machine.take_part(assembler.checksum_algorithm)
                if part is not None:
                    assembler.add_part(part.events, part.event_count)
                    self._count(part.step, ack_wanted=part.ack_wanted)
                    await self._spill()
                    continue
            match machine.next_event():
                case None:
                    return
                case EventReceived(data, ack_wanted):
                    self.received = True
                    algorithm = assembler.checksum_algorithm
                    whole = assembler.feed(data)
                    self._read.feed(data, algorithm)
                    if data[TYPE_OFFSET] == EventType.GTID:
                        self._status.coming_timestamp = int.from_bytes(data[:TYPE_OFFSET], "little")
                    self._count(STILL, ack_wanted=ack_wanted)
                    if data[TYPE_OFFSET] == EventType.GTID_LIST and self._history is not None:
                        await self._compare(self._history, strip_checksum(data, algorithm))
                    if whole is None:
                        await self._spill()
                    elif isinstance(whole, Incident):
                        await self._meet(whole)
                    else:
                        yield await self._store(whole)
                case ErrorReceived(error):
                    raise error
                case StreamEnded():
                    raise DumpEnded("the upstream has ended the stream")

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

    def _count(self, step: PositionStep, *, ack_wanted: bool) -> None:
        self._read.move(step)
        if ack_wanted and self._acks is not None:
            self._acks.asked()

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
            while (done := self._engine.append_run(run, index)) < len(run):
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

    async def _spill(self) -> None:
        """In the middle of a group: what there is of it goes to the store, if that is much."""
        if self._assembler.buffered < PIECE_BYTES:
            return
        events = self._assembler.spill_parts()
        gtid = self._assembler.unfinished
        assert gtid is not None
        if not self._gate.wants(gtid):
            return
        if self._large is None:
            self._large = LargeGroup(self._room)
        await self._patiently(self._large.spill(events))

    async def _store(self, whole: EventGroup | StartMarker) -> int:
        """Bytes appended."""
        await self._have_room()
        if isinstance(whole, StartMarker):
            return self._store_marker(whole.payload)
        wanted = self._gate.wants(whole.gtid)
        if self._large is None and len(whole.payload) > PIECE_BYTES and wanted:
            self._large = LargeGroup(self._room)
        large = self._large
        if large is not None:
            await self._patiently(large.finish(whole.payload))
            await self._have_room()
        elif len(whole.payload) > self._engine.cache_bytes and wanted:
            return await self._store_in_pieces(whole)
        admitted = self._gate.admits(whole)  # if it raises, `run` rolls back
        self._large = None
        if not admitted:
            if large is not None:
                await large.rollback()
            return 0
        self._gate.last_marker = None
        self._incidents.went_on()
        if large is not None:
            large.commit(whole.gtid)
            return large.size
        self._engine.append(whole.payload, whole.gtid)
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
            writer.commit(gtid_event, whole.gtid)
        except BaseException:
            writer.rollback()
            raise
        return len(whole.payload)

    async def _append(self, payload: bytes, gtid: Gtid) -> None:
        """Append an admitted group; there is room for its first record."""
        if len(payload) <= self._engine.cache_bytes:
            self._engine.append(payload, gtid)
            return
        gtid_event, writer = await self._spilled(payload)
        try:
            writer.commit(gtid_event, gtid)
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
        self._engine.append(payload, None)
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
