"""What statements see and do of the running server: the server's side of `sql.view.ServerView`.

SET GLOBAL replaces the configuration as a whole: whoever needs an option looks at `config` when it needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import WrongVariableValue
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
from binlog_server.engine_limits import SEMI_SYNC_WAIT_POINT
from binlog_server.leases import Leases
from binlog_server.relay.manager import Relay
from binlog_server.relay.slave_rows import slave_row
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.sessions.connections import Connections
from binlog_server.sessions.login import FailedLogins
from binlog_server.sql.runner import Runner
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.variables import CONSTANTS
from binlog_server.sql.view import Client, Later, Row, Shown, text_of

T = TypeVar("T")

log = logging.getLogger(__name__)

SERVER_UUID_KEY = "server_uuid"
_DAY_S = 86400
_STORE_OPTIONS = frozenset(
    {
        "binlog_expire_logs_seconds",
        "max_binlog_size",
        "max_binlog_total_size",
        "slave_connections_needed_for_purge",
    }
)
_SEMI_SYNC_SWITCHES = (
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_master_wait_no_slave",
    "rpl_semi_sync_slave_enabled",
)
_SEMI_SYNC_NUMBERS = (
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_master_wait_for_slave_count",
    "rpl_semi_sync_slave_wait_for_slave_count",
)
# Read from the configuration by whoever needs them; a change needs nothing else.
_CONFIG_OPTIONS = frozenset(
    {
        "connect_timeout",
        "max_connections",
        "max_user_connections",
        "net_read_timeout",
        "net_write_timeout",
    }
)


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
    _gtid_begin: str
    relay: Relay
    port: int
    _started: float
    _flush_log_at_trx_commit: int
    _runner: Runner | None
    _first_values: Mapping[str, str] | None
    wait_timeout: int
    _sync_binlog: int

    def _init_view(self) -> None:
        """Before the server starts."""
        self._texts: StateTexts | None = None
        self.leases = Leases(self.engine, self.state)
        archive = self.config.binlog_archive_directory
        self._archive_hold = ArchiveHold(self.engine, Path(archive)) if archive else None
        self._gtid_begin = ""
        self.look_at_begin()
        self._runner = None
        self.wait_timeout = int(CONSTANTS["wait_timeout"])
        self._sync_binlog = 0
        self._first_values = None
        self._first_values = {name: text_of(v) for name, v in self.global_variables().items()}

    def refresh_holds(self) -> None:
        """See `sql.view.ServerView`."""
        self.leases.expire()
        if self._archive_hold is not None:
            self._archive_hold.refresh()
        self.look_at_begin()

    def look_at_begin(self) -> None:
        """See `sql.view.ServerView`."""
        with contextlib.suppress(StorageError):  # a purge under way: it is looked at again
            self._gtid_begin = str(self.engine.first_start().state.position())

    # --- variables ---

    @property
    def binlog_checksum(self) -> str:
        """See `sql.view.ServerView`."""
        return self.config.binlog_checksum

    def state_texts(self) -> StateTexts:
        """See `sql.view.ServerView`."""
        end = self.engine.written_end
        texts = self._texts
        if texts is None or texts.end != end:
            texts = self._texts = StateTexts(end, self.engine.binlog_state())
        return texts

    def global_variables(self, texts: StateTexts | None = None) -> Mapping[str, Shown]:
        """See `sql.view.ServerView`."""

        def position() -> str:
            return (texts or self.state_texts()).position

        config = self.config
        expire_s = config.binlog_expire_logs_seconds or round(config.expire_logs_days * _DAY_S)
        return {
            **CONSTANTS,
            "binlog_archive_directory": config.binlog_archive_directory,
            "binlog_cache_size": str(config.binlog_cache_size),
            "binlog_directory": str(config.binlog_directory),
            "binlog_expire_logs_seconds": str(expire_s),
            "binlog_format": lambda: self._binlog_format(texts or self.state_texts()),
            "binlog_stmt_cache_size": str(config.binlog_stmt_cache_size),
            "connect_timeout": str(config.connect_timeout),
            "datadir": str(config.binlog_directory),
            "expire_logs_days": f"{expire_s / _DAY_S:.6f}",
            "gtid_binlog_pos": position,
            "gtid_binlog_state": lambda: (texts or self.state_texts()).state,
            "gtid_current_pos": position,
            "gtid_domain_id": str(config.gtid_domain_id),
            "gtid_ignore_duplicates": _on(self.relay.domains.ignore_duplicates),
            "gtid_slave_pos": lambda: self._slave_position(texts or self.state_texts()),
            "gtid_strict_mode": _on(config.gtid_strict_mode),
            "have_ssl": "YES" if config.ssl else "DISABLED",
            "hostname": config.report_host,
            "innodb_binlog_state_interval": str(config.innodb_binlog_state_interval),
            "innodb_flush_log_at_timeout": str(config.innodb_flush_log_at_timeout),
            "innodb_flush_log_at_trx_commit": str(self._flush_log_at_trx_commit),
            "innodb_log_buffer_size": str(config.innodb_log_buffer_size),
            "innodb_log_file_size": str(config.innodb_log_file_size),
            "max_allowed_packet": str(config.max_allowed_packet),
            "max_binlog_size": str(config.max_binlog_size),
            "max_binlog_total_size": str(config.max_binlog_total_size),
            "max_connect_errors": str(config.max_connect_errors),
            "max_connections": str(config.max_connections),
            "max_session_mem_used": str(config.max_session_mem_used),
            "max_total_session_mem_used": str(config.max_total_session_mem_used),
            "max_user_connections": str(config.max_user_connections),
            "net_read_timeout": str(config.net_read_timeout),
            "net_write_timeout": str(config.net_write_timeout),
            "replica_lag_grace_seconds": str(config.replica_lag_grace_seconds),
            "port": str(self.port),
            "read_only": _on(self.publisher.read_only),
            "report_host": config.report_host,
            "require_secure_transport": _on(config.require_secure_transport),
            **{name: _on(getattr(config, name)) for name in _SEMI_SYNC_SWITCHES},
            **{name: str(getattr(config, name)) for name in _SEMI_SYNC_NUMBERS},
            "server_id": str(config.server_id),
            "server_uid": str(self.state.get(SERVER_UUID_KEY)),
            "slave_compressed_protocol": _on(config.slave_compressed_protocol),
            "slave_connections_needed_for_purge": str(config.slave_connections_needed_for_purge),
            "slave_net_timeout": str(config.slave_net_timeout),
            "sync_binlog": str(self._sync_binlog),
            "tcp_keepalive_interval": str(config.tcp_keepalive_interval),
            "tcp_keepalive_probes": str(config.tcp_keepalive_probes),
            "tcp_keepalive_time": str(config.tcp_keepalive_time),
            "tls_version": config.tls_version,
            "version": config.server_version,
            "version_comment": "binlog-server",
            "wait_timeout": str(self.wait_timeout),
        }

    def default_of(self, name: str) -> str:
        """See `sql.view.ServerView`."""
        assert self._first_values is not None
        return self._first_values[name]

    def set_global(self, name: str, value: str) -> None:
        """See `sql.view.ServerView`."""
        if name == "expire_logs_days":
            name, value = "binlog_expire_logs_seconds", str(round(float(value) * _DAY_S))
        if name in _STORE_OPTIONS:
            self._set_store_option(name, int(value))
        elif name in _CONFIG_OPTIONS:
            self._set_config({name: int(value)})
        elif name == "read_only":
            self.publisher.read_only = value == "ON"
        elif name == "gtid_strict_mode":
            self.publisher.strict = value == "ON"
            self.config = dataclasses.replace(self.config, gtid_strict_mode=value == "ON")
        elif name == "slave_compressed_protocol":
            self._set_config({name: value == "ON"})
        elif name in _SEMI_SYNC_SWITCHES or name in _SEMI_SYNC_NUMBERS:
            switch = name in _SEMI_SYNC_SWITCHES
            self._set_config({name: value == "ON" if switch else int(value)})
            self.semi_sync.changed()
        elif name in (SEMI_SYNC_WAIT_POINT, "binlog_checksum"):
            return  # there is no other; see `assignments`
        elif name == "gtid_ignore_duplicates":
            self.relay.domains.ignore_duplicates = value == "ON"
        elif name == "wait_timeout":
            self.wait_timeout = int(value)
        elif name == "sync_binlog":
            self._sync_binlog = int(value)
            log.warning("sync_binlog has no effect: innodb_flush_log_at_trx_commit decides")
        else:
            assert name == "innodb_flush_log_at_trx_commit"
            self._flush_log_at_trx_commit = self.syncer.flush_log_at_trx_commit = int(value)
        log.info("%(variable)s is now %(value)s", {"variable": name, "value": value})

    def _set_store_option(self, name: str, value: int) -> None:
        before = self.config
        changes: dict[str, Any] = {name: value}
        if name == "binlog_expire_logs_seconds":
            changes["expire_logs_days"] = 0.0  # the same in other units
        try:
            self._set_config(changes)
            self.engine.set_option(name, value)
        except ValueError as error:
            self.config = before
            log.warning("%s", error)
            raise WrongVariableValue(name, str(value)) from error

    def _set_config(self, changes: Mapping[str, Any]) -> None:
        """Raises ValueError for what a configuration may not hold."""
        self.config = dataclasses.replace(self.config, **changes)

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

    def _slave_position(self, texts: StateTexts) -> str:
        """That of the binlog, where it comes from others, or was set and nothing came since; empty where all of it was
        made here."""
        found = self._comes_from_others(texts) or texts.position == self._gtid_begin
        return texts.position if found else ""

    def _binlog_format(self, texts: StateTexts) -> str:
        """What is committed here are statements. Of others' groups it is not known: programs that ask need rows, and
        are told of rows where there is nothing else."""
        if self.publisher.read_only:
            return "ROW"
        return "MIXED" if self._comes_from_others(texts) else "STATEMENT"

    def _comes_from_others(self, texts: StateTexts) -> bool:
        return texts.has_others_than(self.config.server_id) or bool(self.relay.connections)

    @property
    def max_session_mem_used(self) -> int:
        """See `sql.view.ServerView`."""
        return self.config.max_session_mem_used

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
            "Binlog_gtid_begin": self._gtid_begin,
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
