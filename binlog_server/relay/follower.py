"""Follows one upstream as a replica: its groups, whole and in order, into the store.

Where to go on is what the store holds: its binlog state, nothing kept beside it. A group that was cut off by a lost
connection was never stored, and comes again whole.

Reconnecting: at once, then after 1, 2, 4 ... 60 s. An error that will not pass by itself (1236, our own server_id, no
GTIDs there) ends the following; what is in the store is still served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from binlog_server.client_link import ClientLink
from binlog_server.config import Config, Upstream
from binlog_server.publisher import Publisher
from binlog_server.room import Room
from binlog_server.syncer import Syncer
from protocol.connection.client import ErrorReceived, EventReceived, StreamEnded
from protocol.connection.replica import ReplicaHandshake, UpstreamRefused
from protocol.errors import MasterFatalError, ProtocolError, RemoteError
from protocol.event_group import EventGroup, EventGroupAssembler, StartMarker
from storage.engine import BinlogEngine
from storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_S_MAX = 60.0
WORKED_S = 1.0
UNSYNCED_BYTES_MAX = 64 << 20  # reading waits for the disk beyond this
LARGE_BYTES = 1 << 20
_NS = 1_000_000_000
_OLD_PREFIX = "5.5.5-"  # in front of the version of servers before 11, for clients of their time


class DomainTaken(Exception):
    """The upstream sends groups of a domain in which this server commits."""


class Follower:
    """The task that follows. For one event loop.

    Args:
        publisher: is told which domains are the upstream's.
        upstream_is: told the version of the upstream, each time it is connected to.
    """

    def __init__(
        self,
        config: Config,
        upstream: Upstream,
        engine: BinlogEngine,
        syncer: Syncer,
        room: Room,
        publisher: Publisher,
        upstream_is: Callable[[str], None],
    ) -> None:
        self._config = config
        self._upstream = upstream
        self._engine = engine
        self._syncer = syncer
        self._room = room
        self._publisher = publisher
        self._upstream_is = upstream_is
        # Since the last loss of connection:
        self._received = False  # an event has come
        self._stored = False  # and something of it was new

    async def run(self) -> None:
        """Follow until cancelled, or until following makes no sense any more."""
        failures = 0
        while True:
            self._received = self._stored = False
            began = time.monotonic()
            try:
                await self._follow()
            except (UpstreamRefused, DomainTaken) as error:
                log.error("stopped following %s: %s", self._name, error)
                return
            except StorageError as error:
                log.error("stopped following %s: %s", self._name, error)
                self._syncer.fail(error)
                return
            except RemoteError as error:
                if error.errno == MasterFatalError.errno:
                    log.error("stopped following %s: %s", self._name, error)
                    return
                log.warning("lost %s: %s", self._name, error)
            except (OSError, ProtocolError, TimeoutError, asyncio.IncompleteReadError) as error:
                log.warning("lost %s: %s", self._name, str(error) or type(error).__name__)
            # A connection that brought us on, or worked for more than a moment, starts the count anew.
            lasted = self._received and time.monotonic() - began >= WORKED_S
            worked = self._stored or lasted
            failures = 1 if worked else failures + 1
            delay = 0.0 if failures == 1 else min(2.0 ** (failures - 2), RETRY_S_MAX)
            if delay:
                log.info("connecting to %s again in %.0f s", self._name, delay)
            await asyncio.sleep(delay)

    @property
    def _name(self) -> str:
        return f"upstream {self._upstream.host}:{self._upstream.port}"

    async def _follow(self) -> None:
        """One connection, from its start to its loss."""
        timeout = self._config.slave_net_timeout
        upstream = self._upstream
        link = await ClientLink.connect(
            upstream.host, upstream.port, upstream.user, upstream.password, timeout
        )
        try:
            version = await link.log_in()
            self._upstream_is(version.removeprefix(_OLD_PREFIX))
            position = self._engine.binlog_state().position()
            handshake = ReplicaHandshake(
                link.machine,
                server_id=self._config.server_id,
                position=position,
                heartbeat_period_ns=timeout * _NS // 3,
                report_host=self._config.report_host,
            )
            await link.start_dump(handshake)
            log.info("following %s (%s) from '%s'", self._name, version, position)
            assembler = EventGroupAssembler(
                handshake.checksum_algorithm,
                group_bytes_max=self._config.max_event_group_size,
                limit_option="max_event_group_size",
            )
            await self._store_stream(link, assembler)
        finally:
            link.close()

    async def _store_stream(self, link: ClientLink, assembler: EventGroupAssembler) -> None:
        unsynced = 0
        while True:
            appended = 0
            try:
                for event in await link.events():
                    match event:
                        case EventReceived(data):
                            self._received = True
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
                    self._stored = True
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
