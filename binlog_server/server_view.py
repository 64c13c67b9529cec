"""What statements see and do of the running server: the server's side of `sql.view.ServerView`.

SET GLOBAL replaces the configuration as a whole: whoever needs an option looks at `config` when it needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors.sql_errors import KillDenied
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Value
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import StorageError
from binlog_storage.state import StateStore

from binlog_server.archive_hold import ArchiveHold
from binlog_server.commits.publisher import Publisher
from binlog_server.commits.syncer import Syncer
from binlog_server.config import Config
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.leases import Leases
from binlog_server.relay.manager import Relay
from binlog_server.relay.slave_rows import slave_row
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.sessions.connections import Connections
from binlog_server.sessions.login import FailedLogins
from binlog_server.sql.runner import Runner
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.view import Client, Later, Row

T = TypeVar("T")

log = logging.getLogger(__name__)

SERVER_UUID_KEY = "server_uuid"


class ServerFacts:
    """The part of `app.Server` that answers statements; the attributes are those of the whole."""

    config: Config
    engine: BinlogEngine
    state: StateStore
    connections: Connections
    failed_logins: FailedLogins
    publisher: Publisher
    syncer: Syncer
    semi_sync: SemiSyncMaster
    frames: FrameCache
    leases: Leases
    _archive_hold: ArchiveHold | None
    gtid_begin: str
    relay: Relay
    port: int
    _started: float
    _runner: Runner | None

    def _init_view(self) -> None:
        """Before the server starts."""
        self._texts: StateTexts | None = None
        self.kept_variables: dict[str, str] = {}
        self.leases = Leases(self.engine, self.state)
        archive = self.config.binlog_archive_directory
        self._archive_hold = ArchiveHold(self.engine, Path(archive)) if archive else None
        self.gtid_begin = ""
        self.look_at_begin()
        self._runner = None

    def refresh_holds(self) -> None:
        """See `sql.view.ServerView`."""
        self.leases.expire()
        if self._archive_hold is not None:
            self._archive_hold.refresh()
        self.look_at_begin()

    def look_at_begin(self) -> None:
        """See `sql.view.ServerView`."""
        with contextlib.suppress(StorageError):  # a purge under way: it is looked at again
            self.gtid_begin = str(self.engine.first_start().state.position())

    @property
    def server_uuid(self) -> str:
        """See `sql.view.ServerView`."""
        return str(self.state.get(SERVER_UUID_KEY))

    def state_texts(self) -> StateTexts:
        """See `sql.view.ServerView`."""
        end = self.engine.written_end
        texts = self._texts
        if texts is None or texts.end != end:
            texts = self._texts = StateTexts(end, self.engine.binlog_state())
        return texts

    # --- status ---

    @property
    def upstreams(self) -> Sequence[UpstreamStatus]:
        """Of those that run, or ought to."""
        return self.relay.statuses

    def slave_rows(self, texts: StateTexts) -> Mapping[str, Mapping[str, Value]]:
        """See `sql.view.ServerView`."""
        timeout = self.config.slave_net_timeout
        return {
            c.name: slave_row(c, texts.position, timeout)
            for c in self.relay.connections
            if c.info.host
        }

    def status_variables(self) -> Mapping[str, str]:
        """See `sql.view.ServerView`."""
        connections = self.connections
        traffic = connections.traffic()
        counters = {
            **self.engine.counters(),
            **self.semi_sync.status_variables(),
            "Rpl_semi_sync_slave_send_ack": sum(s.acks_sent for s in self.upstreams),
            "Rpl_semi_sync_slave_status": _on(any(s.semi_sync for s in self.upstreams)),
            "Aborted_connects": connections.aborted_connects,
            "Binlog_gtid_begin": self.gtid_begin,
            "Access_denied_errors": self.failed_logins.total,
            "Bytes_received": traffic.received,
            "Bytes_sent": traffic.sent,
            "Connection_errors_max_connections": connections.too_many,
            "Connections": connections.accepted,
            "Max_used_connections": connections.most,
            "Slaves_connected": sum(1 for c in connections if c.dump_server_id),
            "Slaves_dropped": connections.replicas_dropped,
            "Slaves_running": sum(status.connected for status in self.upstreams),
            "Slaves_throttled_ms": round(connections.throttled_ms),
            "Ssl_accepts": connections.tls_accepts,
            "Ssl_finished_accepts": connections.tls_finished,
            "Threads_connected": len(connections),
            "Uptime": self._uptime_s,
            "Uptime_since_flush_status": self._uptime_s,
        }
        return {name: str(value) for name, value in counters.items()}

    def slave_hosts(self) -> Iterable[Row]:
        """See `sql.view.ServerView`."""
        return self.connections.slave_hosts(self.config.server_id)

    def processlist(self, user: str | None) -> Iterable[Row]:
        """See `sql.view.ServerView`."""
        upstreams = [c.process for c in self.relay.connections if c.runs] if user is None else []
        return [*upstreams, *self.connections.processlist(user)]

    def replicas(self) -> Iterable[Row]:
        """See `sql.view.ServerView`."""
        return ReplicaRows(self.engine, list(self.connections))

    def statistics(self) -> str:
        """The answer to COM_STATISTICS."""
        return f"Uptime: {self._uptime_s}  Threads: {len(self.connections)}"

    @property
    def _uptime_s(self) -> int:
        return int(time.monotonic() - self._started)

    # --- deeds ---

    def owner(self, connection_id: int) -> str:
        """See `sql.view.ServerView`."""
        if any(c.thread_id == connection_id for c in self.relay.connections if c.runs):
            raise KillDenied(connection_id)  # STOP SLAVE ends it
        return self.connections.owner(connection_id)

    def kill(self, connection_id: int) -> None:
        """See `sql.view.ServerView`."""
        self.connections.kill(connection_id)

    def interrupt(self, connection_id: int) -> None:
        """See `sql.view.ServerView`."""
        self.connections.interrupt(connection_id)

    def require_in_order(self, seq_no: int, domain_id: str | None, server_id: str | None) -> None:
        """See `sql.view.ServerView`."""
        config = self.config
        domain = config.gtid_domain_id if domain_id is None else int(domain_id)
        server = config.server_id if server_id is None else int(server_id)
        self.publisher.require_in_order(Gtid(domain, server, seq_no))

    def history_changed(self) -> None:
        """See `sql.view.ServerView`."""
        # Positions mean something else now; nobody dumps, or it could not have been done.
        self._texts = None
        self.frames = FrameCache(self.engine, self.config.dump_frame_cache_size)
        self.publisher.history_changed()
        self.semi_sync.forget()
        self.relay.domains.forget()

    def answer_later(
        self,
        what: Later,
        client: Client,
        machine: ServerConnection,
        warnings: Callable[[], int],
    ) -> asyncio.Task[None]:
        """See `sql.view.ServerView`."""
        answering = self._statements().answer(what, client, machine, warnings)
        return asyncio.get_running_loop().create_task(answering)

    def in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """See `sql.view.ServerView`."""
        return self._statements().in_thread(call)

    def _statements(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.engine)
        return self._runner

    def _close_view(self) -> None:
        """Wait for the statements that are under way."""
        if self._runner is not None:
            self._runner.close()


def _on(value: bool) -> str:
    return "ON" if value else "OFF"
