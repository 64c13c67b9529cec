"""One connection to an upstream: from the socket to its loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.engine import Position

from binlog_server.process.logs import shortened
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Gate, UpstreamHistory
from binlog_server.relay.guard import Guard
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.ingest import Ingest
from binlog_server.relay.into import Into
from binlog_server.relay.status import IoState, UpstreamStatus
from binlog_server.semi_sync.upstream_acks import UpstreamAcks
from binlog_server.upstreams.master_info import GroupFilter, MasterInfo

log = logging.getLogger(__name__)

CONNECT_S: Final = 10.0  # among candidates: for the login, and each answer before the stream
END_DUMP_S: Final = 3.0  # for an upstream to be told that we go
_NS: Final = 1_000_000_000
_OLD_PREFIX: Final = (
    "5.5.5-"  # in front of the version of servers before 11, for clients of their time
)


class UpstreamStream:
    """One network connection to an upstream.

    Args:
        info: with the address of the server that is meant.
        status: is told how it goes.
        among: the server is one of several candidates.
        until: groups beyond it, and of domains that are not in it, are not taken.
        begun: is called when groups may come.
        incidents: says which are passed.
    """

    def __init__(
        self,
        info: MasterInfo,
        into: Into,
        status: UpstreamStatus,
        gate: Gate,
        guard: Guard,
        *,
        among: bool,
        until: SlavePosition | None,
        begun: Callable[[], Awaitable[None]],
        incidents: Incidents,
    ) -> None:
        self._info = info
        self._into = into
        self._status = status
        self._gate = gate
        self._guard = guard
        self._among = among
        self._until = until
        self._begun = begun
        self._incidents = incidents
        self._password = ""
        self._ingest: Ingest | None = None

    @property
    def received(self) -> bool:
        """Whether an event has come."""
        return self._ingest is not None and self._ingest.received

    @property
    def new_bytes(self) -> int:
        """Bytes of new groups that were stored."""
        return 0 if self._ingest is None else self._ingest.new_bytes

    async def run(self) -> NoReturn:
        """Log in, start the dump and store its groups. Raises the error that ends the connection."""
        status, info, config = self._status, self._info, self._into.config()
        status.state = IoState.CONNECTING
        self._password = await info.password.read_apart(config.slave_net_timeout)
        link = await self._connect()
        acks: UpstreamAcks | None = None
        try:
            status.version = (await link.log_in()).removeprefix(_OLD_PREFIX)
            status.protection = link.protection
            await self._into.upstream_is(status.version)
            status.state = IoState.CHECKING
            await self._guard.prove(self._status.title, link, self._connect_more, among=self._among)
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
            self._note_begin(handshake, position)
            # Before the next wait: from now on the upstream counts us, and has to be told if we go.
            if link.machine.semi_sync:
                status.semi_sync = True
                acks = self._acks(link)
                self._into.semi_sync.when_moved.add(acks.flush)
            elif config.rpl_semi_sync_slave_enabled:
                log.warning("%s has no semi-sync: it is followed without", self._status.title)
            await self._begun()
            # With UNTIL the upstream leaves groups out.
            history = (
                UpstreamHistory(self._into.engine, self._gate) if self._until is None else None
            )
            self._ingest = Ingest(
                link,
                self._into,
                self._gate,
                status,
                self._incidents,
                handshake.checksum_algorithm,
                acks=acks,
                history=history,
            )
            await self._ingest.run()
        except asyncio.CancelledError:
            if status.semi_sync:
                await self._end_dump(link)
            raise
        finally:
            if acks is not None:
                self._into.semi_sync.when_moved.discard(acks.flush)
            status.connected = status.semi_sync = False
            link.close()

    async def _connect(self) -> ClientLink:
        info, config = self._info, self._into.config()
        timeout_s = float(config.slave_net_timeout)
        return await ClientLink.connect(
            info.host,
            info.port,
            info.user,
            self._password,
            min(timeout_s, CONNECT_S) if self._among else timeout_s,
            info.tls,
            # How the packets of both together are numbered is nowhere laid down.
            compress=config.slave_compressed_protocol and not config.rpl_semi_sync_slave_enabled,
        )

    async def _connect_more(self) -> ClientLink:
        """Make another connection to the same server, logged in."""
        link = await self._connect()
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
            self._status.acks_sent += 1
            link.acknowledge(packet)

        return UpstreamAcks(self._into.engine, self._into.syncer, held=held, send=send)

    async def _end_dump(self, link: ClientLink) -> None:
        """End the dump as a MariaDB replica does: an upstream with semi-sync does not notice by itself that we go."""
        number = link.connection_id
        if not number or link.machine.is_closed:
            return
        try:
            async with asyncio.timeout(END_DUMP_S):
                other = await self._connect_more()
                try:
                    await other.query(f"KILL {number}")
                finally:
                    other.close()
        except Exception as error:  # noqa: BLE001 - we go in any case
            log.info("%s: its dump could not be ended: %s", self._status.title, error)

    def _note_begin(self, handshake: ReplicaHandshake, position: str) -> None:
        status = self._status
        status.state = IoState.WAITING
        status.connected = True
        status.connects += 1
        status.errno, status.error = 0, ""
        status.server_id = handshake.upstream_server_id
        log.info(
            "following %(title)s (%(version)s) from '%(gtid)s', %(protection)s",
            {
                **status.facts,
                "version": status.version,
                "gtid": shortened(position),
                "protection": status.protection,
            },
        )

    async def _position(self, link: ClientLink) -> str:
        """The GTID position to begin at: the store's.

        In domains that are not wanted it is the upstream's, so that it sends no groups of them, and does not refuse
        because it has purged some. Worked out in threads: there may be thousands of domains.
        """
        position = self._into.engine.binlog_state().position()
        wanted = self._info.filter
        if not wanted.is_about_domains:
            return await asyncio.to_thread(str, position)
        rows = await link.query("SELECT @@GLOBAL.gtid_binlog_pos")
        try:
            return await asyncio.to_thread(_completed, position, rows[0][0] or "", wanted)
        except (ServerError, IndexError):
            raise ProtocolError(f"gtid_binlog_pos of the upstream is {rows!r}") from None


def _completed(ours: SlavePosition, theirs: str, wanted: GroupFilter) -> str:
    """Our position, with theirs in domains that are not wanted. Raises `BadGtidList`, `DuplicateGtidDomain`."""
    there = SlavePosition.parse(theirs)
    return str(
        SlavePosition(
            [
                *(gtid for gtid in ours if wanted.wants_domain(gtid.domain_id)),
                *(gtid for gtid in there if not wanted.wants_domain(gtid.domain_id)),
            ]
        )
    )
