"""Follows one upstream as a replica: its groups, whole and in order, into the store. From START SLAVE to STOP SLAVE.

Where to go on is what the store holds: its binlog state, nothing kept beside it. A group that was cut off by a lost
connection was never stored, and comes again whole.

Reconnecting: at once, then after 1, 2, 4 ... s, up to MASTER_CONNECT_RETRY; with candidates as `candidates.Ring` says.
Before anything is taken in, the upstream must show that it has our history (`guard`).

An error that will not pass by itself (1236, another history, our own server_id, no GTIDs there) ends the following,
unless a candidate may do better; a domain that comes from elsewhere, and a history that begins anew, always do. What is
in the store is still served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from binlog_server.commits.room import Room
from binlog_server.commits.syncer import Syncer
from binlog_server.config import Config
from binlog_server.relay.candidates import Ring
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.failure import Failure
from binlog_server.relay.gate import Domains, Gate, GroupRefused
from binlog_server.relay.guard import CandidateBehind, Guard, HistoryDiverged
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

CONNECT_S = 10.0  # with candidates: for the login, and each answer before the stream
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
        ring: the servers that may be followed, the ones of `info`.
        until: where it ends by itself; groups beyond it, and of domains that are not in it, are not taken.
        follows: is told each server whose stream has begun.
    """

    def __init__(
        self,
        info: MasterInfo,
        into: Into,
        status: UpstreamStatus,
        ring: Ring,
        until: SlavePosition | None = None,
        follows: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._configured = info
        self._into = into
        self._until = until
        self._ring = ring
        self._tell = follows
        self.status = status
        self._ingest: Ingest | None = None  # of this connection
        self._gate = Gate(self._name, into.domains, info.filter)
        self._guard = Guard(
            into.engine,
            into.syncer,
            into.domains,
            self._gate,
            info.filter,
            into.config,
            check_groups=info.check_last_group,
        )

    @property
    def _info(self) -> MasterInfo:
        """With the address of the server that is followed, or tried."""
        return self._configured.at(self._ring.current)

    async def run(self) -> None:
        """Follow until cancelled, or until following makes no sense any more."""
        try:
            await self._run()
        finally:
            self.status.state = IoState.STOPPED
            self._gate.release()

    async def _run(self) -> None:
        while not self._has_reached_until():
            self._ingest = None
            began = time.monotonic()
            pause: float | None = None  # known, for those who are passed over
            try:
                await self._follow()
            except GroupRefused as error:
                self._stopped(error)
                return
            except StorageError as error:
                self._stopped(error)
                self._into.syncer.fail(error)
                return
            except CandidateBehind as error:
                self._lost(error)
                pause = self._ring.pass_over()
            except (UpstreamRefused, RemoteError) as error:
                refused = (
                    isinstance(error, UpstreamRefused) or error.errno == MasterFatalError.errno
                )
                if refused and self._is_final(error):
                    self._stopped(error)
                    return
                self._lost(error)
                if refused:
                    pause = self._ring.pass_over(error)
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
            if pause is None:
                # A connection that brought us on, or worked for more than a moment, starts the count anew.
                came = self._ingest
                lasted = came is not None and came.received and time.monotonic() - began >= WORKED_S
                pause = self._ring.lost(worked=(came is not None and came.stored) or lasted)
            refusal = self._ring.hopeless()
            if refusal is not None:
                self._stopped(refusal)
                return
            await self._pause(pause)
        log.info("%s: UNTIL is reached: '%s'", self._name, self._until)

    def _is_final(self, refusal: Exception) -> bool:
        """Whether no candidate may help. Where the one that we followed has changed its history a human must choose."""
        if not self._ring.has_others:
            return True
        return isinstance(refusal, HistoryDiverged) and self._ring.is_home

    async def _pause(self, delay: float) -> None:
        name = str(self._ring.current)
        if name != self.status.name:
            log.warning("upstream %s: the candidate %s is tried next", self.status.name, name)
            self.status.name = name
            self._gate.name = self._name
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
        self._guard.lost()
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
        link = await self._connect(info, password)
        acks: UpstreamAcks | None = None
        try:
            status.version = (await link.log_in()).removeprefix(_OLD_PREFIX)
            status.protection = link.protection
            self._into.upstream_is(status.version)
            status.state = IoState.CHECKING
            await self._guard.prove(
                self._name,
                link,
                partial(self._connect_more, info, password),
                among=self._ring.has_others,
            )
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
            if self._tell is not None:
                await self._tell(status.name)
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

    async def _connect(self, info: MasterInfo, password: str) -> ClientLink:
        config = self._into.config()
        timeout_s = float(config.slave_net_timeout)
        return await ClientLink.connect(
            info.host,
            info.port,
            info.user,
            password,
            min(timeout_s, CONNECT_S) if self._ring.has_others else timeout_s,
            info.tls,
            # How the packets of both together are numbered is nowhere laid down.
            compress=config.slave_compressed_protocol and not config.rpl_semi_sync_slave_enabled,
        )

    async def _connect_more(self, info: MasterInfo, password: str) -> ClientLink:
        """Another connection, logged in."""
        link = await self._connect(info, password)
        try:
            await link.log_in()
        except BaseException:
            link.close()
            raise
        link.timeout_s = self._into.config().slave_net_timeout
        return link

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
        self._ring.follows()
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
