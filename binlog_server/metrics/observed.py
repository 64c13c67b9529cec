"""The server, as metrics and health see it; and one look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from binlog_storage.engine import BinlogEngine, BinlogFile, Position

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.connections.connections import Connection, Connections
from binlog_server.connections.login import FailedLogins
from binlog_server.connections.session_memory import SessionMemory
from binlog_server.connections.tls import TlsServer
from binlog_server.dumps.archive_parts import ArchiveParts
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.replica_rows import age_ms, bytes_between
from binlog_server.loop.rounds import Rounds
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config
from binlog_server.store.archive_hold import ArchiveHold
from binlog_server.store.leases import Leases
from binlog_server.store.scrub import Scrub


class Observed(Protocol):
    """The server, as far as metrics look at it."""

    config: Config
    engine: BinlogEngine
    connections: Connections
    failed_logins: FailedLogins
    frames: FrameCache
    archive_parts: ArchiveParts | None
    archive_hold: ArchiveHold | None
    leases: Leases
    publisher: Publisher
    room: AppendRoom
    rounds: list[Rounds]
    semi_sync: SemiSyncMaster
    session_memory: SessionMemory
    syncer: Syncer
    tls: TlsServer | None
    metrics_tls: TlsServer | None
    is_listening: bool
    """Whether clients can connect."""

    @property
    def scrub(self) -> Scrub: ...
    @property
    def uptime_s(self) -> int:
        """Seconds since the server was made."""

    @property
    def upstreams(self) -> Sequence[UpstreamStatus]:
        """The upstreams that are followed."""


class ReplicaKey(NamedTuple):
    """The labels by which the series of replicas are told apart."""

    server_id: str
    account: str


class Replica(NamedTuple):
    """A dump: how far it has got (None: it is still looking for its start), and what went to it since it connected.

    `acknowledged`: how far by its own word; None without semi-sync. `unread_s`: seconds for which it has read nothing,
    as far as its system tells; None: it does not.
    """

    sent: Position | None
    bytes_sent: int
    acknowledged: Position | None
    unread_s: float | None


class Look:
    """The server at one moment. Made on the loop; then read in a thread, because some values ask the store."""

    def __init__(self, server: Observed) -> None:
        self.server = server
        # First, so that no replica is ahead of it.
        self._end = server.engine.durable_end
        connections = list(server.connections)
        self.threads = len(connections)
        self.dumps = sum(c.command.startswith("Binlog Dump") for c in connections)
        self.pending = len(server.connections.pending)
        self.tls = sum(c.uses_tls for c in connections)
        self.replicas = _replicas(connections)
        self._ages: dict[Position, float | None] = {}

    @cached_property
    def counters(self) -> Mapping[str, int]:
        return self.server.engine.counters()

    @cached_property
    def files(self) -> Sequence[BinlogFile]:
        """Files of the store, oldest first."""
        return self.server.engine.files()

    def lag_bytes(self, sent: Position) -> int:
        """Bytes of the binlog that are durable and were not sent."""
        return bytes_between(self.files, sent, self._end)

    def lag_s(self, sent: Position) -> float | None:
        """Age of the oldest group that was not sent, by its timestamp; None if it has gone."""
        if sent >= self._end:
            return 0.0
        if sent not in self._ages:  # many stand at the same place
            age = age_ms(self.server.engine, sent)
            self._ages[sent] = None if age is None else age / 1000
        return self._ages[sent]


def _replicas(connections: Sequence[Connection]) -> Mapping[ReplicaKey, Replica]:
    """The replicas by key: of two dumps with the same one, the newer counts. The older is just being ended."""
    return {
        ReplicaKey(str(c.dump_server_id), c.account): Replica(
            c.sent, c.traffic.sent, c.acknowledged, c.unread_s()
        )
        for c in sorted(connections, key=lambda c: c.id)
        if c.dump_server_id
    }
