"""Follows one upstream as a replica: its groups, whole and in order, into the store. From START SLAVE to STOP SLAVE.

Where to go on is what the store holds: its binlog state, nothing kept beside it. A group that was cut off by a lost
connection was never stored, and comes again whole.

Reconnecting: at once, then after 1, 2, 4 ... s, up to MASTER_CONNECT_RETRY. An error that will not pass by itself
(1236, our own server_id, no GTIDs there, a domain that comes from elsewhere) ends the following; what is in the store
is still served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from binlog_server.commits.room import Room
from binlog_server.commits.syncer import Syncer
from binlog_server.config import Config
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.failure import Failure
from binlog_server.relay.gate import Domains, Gate, GroupRefused
from binlog_server.relay.ingest import Ingest
from binlog_server.relay.master_info import MasterInfo
from binlog_server.relay.password import PasswordUnavailable
from binlog_server.relay.status import IoState, UpstreamStatus
from binlog_server.relay.upstream_history import UpstreamHistory
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.semi_sync.upstream_acks import UpstreamAcks
from protocol.connection.replica import ReplicaHandshake, UpstreamRefused
from protocol.errors import BadGtidList, MasterFatalError, ProtocolError, RemoteError
from protocol.gtid import SlavePosition
from storage.engine import BinlogEngine, Position
from storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_S_MIN = 1.0
WORKED_S = 1.0
END_DUMP_S = 5.0  # for each answer, when an upstream is told that we go
_NS = 1_000_000_000
_OLD_PREFIX = "5.5.5-"  # in front of the version of servers before 11, for clients of their time


@dataclass(frozen=True, slots=True)
class Into:
    """Where groups go.

    config: the options, as they are when it is called.
    upstream_is: told the version of the upstream, each time it is connected to.
    semi_sync: knows what our replicas hold.
    """

    config: Callable[[], Config]
    engine: BinlogEngine
    syncer: Syncer
    room: Room
    domains: Domains
    upstream_is: Callable[[str], None]
    semi_sync: SemiSyncMaster


class Follower:
    """One following. For one event loop.

    Args:
        until: where it ends by itself; groups beyond it, and of domains that are not in it, are not taken.
    """

    def __init__(
        self,
        info: MasterInfo,
        into: Into,
        status: UpstreamStatus,
        until: SlavePosition | None = None,
    ) -> None:
        self._info = info
        self._into = into
        self._until = until
        self.status = status
        self._ingest: Ingest | None = None  # of this connection
        self._gate = Gate(self._name, into.domains, info.filter)

    async def run(self) -> None:
        """Follow until cancelled, or until following makes no sense any more."""
        try:
            await self._run()
        finally:
            self.status.state = IoState.STOPPED
            self._gate.release()

    async def _run(self) -> None:
        failures = 0
        while not self._has_reached_until():
            self._ingest = None
            began = time.monotonic()
            try:
                await self._follow()
            except (UpstreamRefused, GroupRefused) as error:
                self._stopped(error)
                return
            except StorageError as error:
                self._stopped(error)
                self._into.syncer.fail(error)
                return
            except RemoteError as error:
                if error.errno == MasterFatalError.errno:
                    self._stopped(error)
                    return
                self._lost(error)
            except (
                OSError,
                ProtocolError,
                TimeoutError,
                asyncio.IncompleteReadError,
                PasswordUnavailable,
            ) as error:
                if self._has_reached_until():  # the upstream has ended the stream there
                    break
                self._lost(error)
            # A connection that brought us on, or worked for more than a moment, starts the count anew.
            came = self._ingest
            lasted = came is not None and came.received and time.monotonic() - began >= WORKED_S
            worked = (came is not None and came.stored) or lasted
            failures = 1 if worked else failures + 1
            await self._pause(failures)
        log.info("%s: UNTIL is reached: '%s'", self._name, self._until)

    async def _pause(self, failures: int) -> None:
        longest = max(self._info.connect_retry, RETRY_S_MIN)
        delay = 0.0 if failures == 1 else min(RETRY_S_MIN * 2.0 ** (failures - 2), longest)
        if delay:
            log.info("connecting to %s again in %.0f s", self._name, delay)
        await asyncio.sleep(delay)

    def _has_reached_until(self) -> bool:
        if self._until is None:
            return False
        state = self._into.engine.binlog_state()
        for wanted in self._until:
            last = state.last(wanted.domain_id)
            if last is None or last.seq_no < wanted.seq_no:
                return False
        return True

    def _stopped(self, error: Exception) -> None:
        self._failed(error)
        self.status.stopped = True
        facts = {"upstream": self.status.name, "error": error}
        log.error("stopped following upstream %(upstream)s: %(error)s", facts)

    def _lost(self, error: Exception) -> None:
        self._failed(error)
        self.status.losses += 1
        facts = {"upstream": self.status.name, "error": self.status.last_error}
        log.warning("lost upstream %(upstream)s: %(error)s", facts)

    def _failed(self, error: Exception) -> None:
        status = self.status
        failure = Failure.of(error, self._info, connecting=status.state is not IoState.WAITING)
        status.errno, status.error = failure.errno, failure.text
        status.last_error = str(error) or type(error).__name__
        status.state = IoState.CONNECTING if failure.connecting else IoState.PAUSING

    @property
    def _name(self) -> str:
        return f"upstream {self.status.name}"

    async def _follow(self) -> None:
        """One connection, from its start to its loss."""
        status, info, config = self.status, self._info, self._into.config()
        status.state = IoState.CONNECTING
        password = await asyncio.to_thread(info.password.read)
        link = await ClientLink.connect(
            info.host,
            info.port,
            info.user,
            password,
            config.slave_net_timeout,
            info.tls,
            # How the packets of both together are numbered is nowhere laid down.
            compress=config.slave_compressed_protocol and not config.rpl_semi_sync_slave_enabled,
        )
        acks: UpstreamAcks | None = None
        try:
            status.version = (await link.log_in()).removeprefix(_OLD_PREFIX)
            status.protection = link.protection
            self._into.upstream_is(status.version)
            status.state = IoState.CHECKING
            position = await self._position(link)
            handshake = ReplicaHandshake(
                link.machine,
                server_id=config.server_id,
                position=position,
                heartbeat_period_ns=int(info.heartbeat_s(config.slave_net_timeout) * _NS),
                ignore_duplicates=self._into.domains.ignore_duplicates,
                until=self._until,
                report_host=config.report_host,
                semi_sync=config.rpl_semi_sync_slave_enabled,
            )
            await link.start_dump(handshake)
            link.timeout_s = info.silence_s(config.slave_net_timeout)
            self._follows(handshake, position)
            if link.machine.semi_sync:
                status.semi_sync = True
                acks = self._acks(link)
                self._into.semi_sync.when_moved.add(acks.flush)
            elif config.rpl_semi_sync_slave_enabled:
                log.warning("%s has no semi-sync: it is followed without", self._name)
            self._ingest = Ingest(
                self._name,
                self._into.engine,
                self._into.syncer,
                self._into.room,
                self._gate,
                handshake.checksum_algorithm,
                status=status,
                group_bytes_max=config.max_event_group_size,
                acks=acks,
                # With UNTIL the upstream leaves groups out.
                history=(
                    None
                    if self._until is not None
                    else UpstreamHistory(self._into.engine, self._gate)
                ),
            )
            await self._ingest.run(link)
        except asyncio.CancelledError:
            if status.semi_sync:
                await self._end_dump(link, password)
            raise
        finally:
            if acks is not None:
                self._into.semi_sync.when_moved.discard(acks.flush)
            status.connected = status.semi_sync = False
            link.close()

    def _acks(self, link: ClientLink) -> UpstreamAcks:
        semi_sync, config = self._into.semi_sync, self._into.config

        def held() -> Position | None:
            count = config().rpl_semi_sync_slave_wait_for_slave_count
            return semi_sync.held_by(count) if count else None

        def send(packet: bytes) -> None:
            self.status.acks_sent += 1
            link.acknowledge(packet)

        return UpstreamAcks(self._into.engine, self._into.syncer, held=held, send=send)

    async def _end_dump(self, link: ClientLink, password: str) -> None:
        """As a MariaDB replica does: an upstream with semi-sync does not notice by itself that we go."""
        greeting = link.machine.greeting
        info = self._info
        if greeting is None or link.machine.is_closed:
            return
        try:
            other = await ClientLink.connect(
                info.host, info.port, info.user, password, END_DUMP_S, info.tls
            )
            try:
                await other.log_in()
                await other.query(f"KILL {greeting.connection_id}")
            finally:
                other.close()
        except (OSError, ProtocolError, TimeoutError, RemoteError) as error:
            log.info("%s: its dump could not be ended: %s", self._name, error)

    def _follows(self, handshake: ReplicaHandshake, position: SlavePosition) -> None:
        status = self.status
        status.state = IoState.WAITING
        status.connected = True
        status.connects += 1
        status.errno, status.error = 0, ""
        status.server_id = handshake.upstream_server_id
        log.info(
            "following upstream %(upstream)s (%(version)s) from '%(gtid)s', %(protection)s",
            {
                "upstream": status.name,
                "version": status.version,
                "gtid": position,
                "protection": status.protection,
            },
        )

    async def _position(self, link: ClientLink) -> SlavePosition:
        """What the store has. Of domains that are not wanted: what the upstream has, so that it sends nothing of them,
        nor refuses because it has purged what we never had."""
        position = self._into.engine.binlog_state().position()
        wanted = self._info.filter
        if not wanted.is_about_domains:
            return position
        rows = await link.query("SELECT @@GLOBAL.gtid_binlog_pos")
        try:
            there = SlavePosition.parse(rows[0][0] or "")
        except (BadGtidList, IndexError):
            raise ProtocolError(f"gtid_binlog_pos of the upstream is {rows!r}") from None
        ours = [gtid for gtid in position if wanted.wants_domain(gtid.domain_id)]
        return SlavePosition(
            [*ours, *(gtid for gtid in there if not wanted.wants_domain(gtid.domain_id))]
        )
