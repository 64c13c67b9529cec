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
from binlog_server.relay.gate import Domains, DomainTaken, Gate, GroupFilter
from binlog_server.relay.ingest import Ingest
from binlog_server.relay.status import UpstreamStatus
from binlog_server.room import Room
from binlog_server.syncer import Syncer
from protocol.connection.replica import ReplicaHandshake, UpstreamRefused
from protocol.errors import MasterFatalError, ProtocolError, RemoteError
from storage.engine import BinlogEngine
from storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_S_MAX = 60.0
WORKED_S = 1.0
_NS = 1_000_000_000
_OLD_PREFIX = "5.5.5-"  # in front of the version of servers before 11, for clients of their time


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
        self._upstream_is = upstream_is
        self.status = UpstreamStatus(f"{upstream.host}:{upstream.port}")
        self._ingest: Ingest | None = None  # of this connection
        self._gate = Gate(self._name, Domains(engine, publisher), GroupFilter())

    async def run(self) -> None:
        """Follow until cancelled, or until following makes no sense any more."""
        failures = 0
        while True:
            self._ingest = None
            began = time.monotonic()
            try:
                await self._follow()
            except (UpstreamRefused, DomainTaken) as error:
                self._stopped(error)
                return
            except StorageError as error:
                self._stopped(error)
                self._syncer.fail(error)
                return
            except RemoteError as error:
                if error.errno == MasterFatalError.errno:
                    self._stopped(error)
                    return
                self._lost(error)
            except (OSError, ProtocolError, TimeoutError, asyncio.IncompleteReadError) as error:
                self._lost(error)
            # A connection that brought us on, or worked for more than a moment, starts the count anew.
            came = self._ingest
            lasted = came is not None and came.received and time.monotonic() - began >= WORKED_S
            worked = (came is not None and came.stored) or lasted
            failures = 1 if worked else failures + 1
            delay = 0.0 if failures == 1 else min(2.0 ** (failures - 2), RETRY_S_MAX)
            if delay:
                log.info("connecting to %s again in %.0f s", self._name, delay)
            await asyncio.sleep(delay)

    def _stopped(self, error: Exception) -> None:
        self.status.stopped, self.status.last_error = True, str(error)
        facts = {"upstream": self.status.name, "error": error}
        log.error("stopped following upstream %(upstream)s: %(error)s", facts)

    def _lost(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self.status.losses += 1
        self.status.last_error = text
        facts = {"upstream": self.status.name, "error": text}
        log.warning("lost upstream %(upstream)s: %(error)s", facts)

    @property
    def _name(self) -> str:
        return f"upstream {self.status.name}"

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
            self.status.connected = True
            self.status.connects += 1
            log.info(
                "following upstream %(upstream)s (%(version)s) from '%(gtid)s'",
                {"upstream": self.status.name, "version": version, "gtid": position},
            )
            self._ingest = Ingest(
                self._name,
                self._engine,
                self._syncer,
                self._room,
                self._gate,
                handshake.checksum_algorithm,
                status=self.status,
                group_bytes_max=self._config.max_event_group_size,
            )
            await self._ingest.run(link)
        finally:
            self.status.connected = False
            link.close()
