"""The events of one connection to an upstream, as they come: whole groups into the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.event_group import EventGroup, Incident, StartMarker
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

from binlog_server.loop.turn import Turn
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Gate, UpstreamHistory
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.into import Into
from binlog_server.relay.large_group import IncomingGroup
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.upstream_acks import UpstreamAcks

log = logging.getLogger(__name__)

_HEARTBEATS: Final = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})

UNSYNCED_BYTES_MAX = 64 << 20  # reading waits for the disk beyond this
_SHORT_LIST_BYTES = 16 << 10
SLOW_S = 1.0  # a wait for room that is worth a line in the log


class DumpEnded(ConnectionError):
    """The upstream ended the dump: it shuts down, or has begun a new binlog by RESET MASTER."""


class Ingest:
    """Stores the groups of one connection, from the dump command on.

    Args:
        gate: says which groups are wanted.
        status: gets the progress.
        incidents: decides which INCIDENT events are passed.
        checksum_algorithm: that was negotiated.
        acks: acknowledges groups to an upstream with semi-sync; None without.
        history: checks the GTID_LIST events of the upstream against the store; None: they are not checked.
    """

    def __init__(
        self,
        link: ClientLink,
        into: Into,
        gate: Gate,
        status: UpstreamStatus,
        incidents: Incidents,
        checksum_algorithm: int,
        *,
        acks: UpstreamAcks | None,
        history: UpstreamHistory | None,
    ) -> None:
        self._link = link
        self._engine = into.engine
        self._syncer = into.syncer
        self._room = into.room
        self._gate = gate
        self._status = status
        self._acks = acks
        self._history = history
        self._incidents = incidents
        status.read, status.stored = self._read, self._stored = ReplicaPlace(), ReplicaPlace()
        self._stream = GroupStream(
            link.machine,
            checksum_algorithm,
            group_bytes_max=into.config().max_event_group_size,
            large_bytes=PIECE_BYTES,
            piece_bytes=PIECE_BYTES,
            place=self._read,
        )
        # The group that is coming, if its pieces are in the store already.
        self._large: IncomingGroup | None = None
        self._rest: tuple[GroupRun, int] | None = (
            None  # of a run that had no room for all its groups at once
        )
        self._failure: Exception | None = None  # what `_take_at_once` has met
        self._appended = 0  # bytes, of what was received together
        self._unsynced = 0  # bytes, since a sync was waited for
        self.new_bytes = 0
        """Bytes of new groups."""

    @property
    def received(self) -> bool:
        """An event has come."""
        return self._stream.received

    async def run(self) -> NoReturn:
        """Take what comes, for as long as it comes. Raises what ends it; what came whole is stored by then."""
        if self._acks is None:
            self._link.ask_first(self._take_at_once)
        try:
            await self._run()
        finally:
            self._link.ask_first(None)
            await self._drop_large()

    async def _run(self) -> NoReturn:
        while True:
            self._status.storing = False
            await self._link.receive()
            self._status.storing, self._status.storing_since = True, time.monotonic()
            try:
                await self._take()
            finally:
                self._have_taken()
                if self._acks is not None and self._stream.unfinished is None:
                    self._acks.stored(self._stored)
            if self._unsynced > UNSYNCED_BYTES_MAX:
                await self._syncer.synced()
                self._unsynced = 0

    def _have_taken(self) -> None:
        """What was received together is taken; or as much as could be, as no later group may ever come."""
        appended, self._appended = self._appended, 0
        self._status.heard(appended, self._gate.last_timestamp)
        if appended:
            self.new_bytes += appended
            self._unsynced += appended
            self._syncer.appended()

    def _take_at_once(self) -> bool:
        """Take what has come, while `_run` waits for it, where that is nothing but whole groups and needs no waiting.

        False: `_run` goes on from there. At the tail, where each group comes alone, that is a turn of the loop less for
        each, and the way down and up again through the coroutines.
        """
        try:
            if not self._gate.takes_runs or not self._link.receive_now():
                return False
            run = self._stream.next_run()
            if run is None or not self._is_stored(run):
                return False
            if self._link.machine.has_unread:
                return False
            self._stored.follow(self._read)
            self._have_taken()
            return self._unsynced <= UNSYNCED_BYTES_MAX
        except Exception as error:  # noqa: BLE001 - raised by `_take`: this is the loop's call
            self._failure = error
            return False

    def _is_stored(self, run: GroupRun) -> bool:
        """Store a run, if it is wanted. False: not all of it in this call; what is left is `_rest`."""
        if not self._gate.admits_run(run):
            return True
        self._went_on()
        self._status.coming_timestamp = run.timestamp
        try:
            done = self._engine.append_run(run, 0, self._gate.age)
        except BaseException:
            self._syncer.appended()  # a part of it may be stored
            raise
        if done < len(run.ends):
            self._rest = run, done
            return False
        self._appended += len(run.payloads)
        return True

    async def _take(self) -> None:
        """Store what was received. Other connections get their turns between steps."""
        stream = self._stream
        turn: Turn | None = None
        if self._failure is not None:
            raise self._failure
        await self._store_rest()
        while True:
            item = await self._link.next_item(stream, runs=self._gate.takes_runs)
            if stream.ack_wanted and self._acks is not None:
                stream.ack_wanted = False
                self._acks.asked()
            match item:
                case None:
                    return
                case GroupRun():
                    if not self._is_stored(item):
                        await self._store_rest()
                    if not self._link.machine.has_unread:  # at the tail, where each comes alone
                        self._stored.follow(self._read)
                        return
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
                    position = self._engine.binlog_state().position()
                    await self._incidents.meet(self._status.title, item, self._read, position)
                case StreamEnded():
                    raise DumpEnded("the upstream has ended the stream")
            if stream.unfinished is None:
                self._stored.follow(self._read)
            if turn is None:
                turn = Turn()
            elif turn.is_over:
                await asyncio.sleep(0)
                turn = Turn()

    async def _look_at(self, event: StreamEvent) -> None:
        if event.type == EventType.GTID:
            self._status.coming_timestamp = int.from_bytes(event.sent[:TYPE_OFFSET], "little")
        elif event.type == EventType.GTID_LIST and self._history is not None:
            await self._compare(self._history, event.event)
        elif event.type in _HEARTBEATS:
            self._status.heartbeats += 1

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

    async def _store_rest(self) -> None:
        """Store what `_is_stored` has left."""
        if self._rest is None:
            return
        run, index = self._rest
        turn: Turn | None = None
        try:
            while (done := self._engine.append_run(run, index, self._gate.age)) < len(run.ends):
                if not self._room.available:
                    await self._wait_for_room()
                elif done == index:
                    payload = run.payload(index)
                    await self._spill_large(payload)
                    await self._commit(payload, run.gtid(index))
                    done += 1
                index = done
                if turn is None:
                    turn = Turn()
                elif turn.is_over:
                    await asyncio.sleep(0)
                    turn = Turn()
        except BaseException:
            # A part of it is stored: `run` knows of whole ones only.
            self._syncer.appended()
            raise
        self._rest = None
        self._appended += len(run.payloads)

    async def _spill(self, part: GroupPart) -> None:
        """Store the part of a group that has come so far."""
        if not self._gate.wants(part.gtid):
            return
        if self._large is None:
            self._large = IncomingGroup(self._room, bulk=True)
        if not self._large.spill_at_once(part.events):
            await self._patiently(self._large.spill(part.events))

    async def _spill_large(self, payload: bytes) -> None:
        """Spill a whole group that is more than one record, or the rest of one that was spilled in part."""
        size = len(payload)
        if self._large is None and size > self._engine.cache_bytes:
            self._large = IncomingGroup(self._room, bulk=size > PIECE_BYTES)
        if self._large is not None:
            await self._patiently(self._large.finish(payload))
            await self._have_room()

    async def _drop_large(self) -> None:
        """Drop the spilled part of a group that does not become whole, or is not wanted."""
        large, self._large = self._large, None
        if large is not None:
            await large.rollback()

    async def _store(self, whole: EventGroup) -> int:
        """Bytes appended."""
        await self._have_room()
        if self._gate.wants(whole.gtid):
            await self._spill_large(whole.payload)
        if not self._gate.admits(whole):
            await self._drop_large()
            return 0
        self._went_on()
        return await self._commit(whole.payload, whole.gtid)

    async def _commit(self, payload: bytes, gtid: Gtid) -> int:
        """Append an admitted group, or commit what was spilled of it. Returns the bytes appended."""
        if self._large is None:
            self._engine.append(payload, gtid, self._gate.age)
            return len(payload)
        # If it raises, `run` rolls back: what was spilled holds files.
        size = await self._large.commit(gtid, self._gate.age)
        self._large = None
        return size

    def _went_on(self) -> None:
        """An admitted group is stored next: what lies in front of it is over."""
        self._gate.last_marker = None
        self._incidents.went_on()

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
                log.warning(
                    "reading from %s pauses: the disk is full or slow, or a backup holds up commits",
                    self._status.title,
                )
                await asyncio.shield(waiting)
                log.info(
                    "reading from %s goes on after %.1f s",
                    self._status.title,
                    time.monotonic() - began,
                )
            waiting.result()  # or what it has ended with
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
