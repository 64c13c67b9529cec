"""Status variables for SHOW STATUS, of the server and of a session, under MariaDB's names where it has them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_server.connections.tls import tls_counters
from binlog_server.sql import places
from binlog_server.sql.view import ServerView

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_FILE: Final = Path(__file__).with_name("mariadb_status.tsv")
_IDLE: Final = ("Sleep", "Connect")  # values of Command for connections without a running statement


def shown_status(session: SqlSession, *, globally: bool) -> dict[str, str]:
    """The rows of SHOW GLOBAL STATUS (`globally`) or of SHOW SESSION STATUS, by name."""
    shown = {
        **status_variables(session.server),
        **session.status,
        **places.snapshot(session.server, session.coordinates, session.snapshot),
    }
    if not globally:
        own = session.counts.fold()
        shown |= {name: str(own.get(name, 0)) for name in _OF_SESSIONS}
        shown["Bytes_received"] = str(session.traffic.received)
        shown["Bytes_sent"] = str(session.traffic.sent)
        shown["Max_tmp_space_used"] = str(session.tmp_space.most)
        shown["Tmp_space_used"] = str(session.tmp_space.used)
        since = time.monotonic() - session.counts.since
        shown["Uptime_since_flush_status"] = str(int(since))
    return shown


def flush_status(session: SqlSession, *, globally: bool) -> None:
    """FLUSH STATUS: the session's counters begin anew; `globally`: those of the server, too."""
    session.counts.forget()
    space = session.server.tmp_space if globally else session.tmp_space
    space.forget_most()
    if globally:
        connections = session.server.connections
        connections.flush_status(_flushable(session.server))


def status_variables(view: ServerView) -> Mapping[str, str]:
    """The values of the server's status variables, by name as SHOW STATUS prints it."""
    connections, upstreams = view.connections, view.relay.statuses
    flushed, store = connections.flushed, view.engine.counters()
    counters = {
        **connections.counted(),
        **store,
        "Innodb_pages_read": store.get("Binlog_pages_read", 0),
        "Innodb_pages_written": store.get("Binlog_pages_written", 0),
        **view.semi_sync.status_variables(),
        **tls_counters(view.tls),
        "Rpl_semi_sync_slave_send_ack": sum(s.acks_sent for s in upstreams),
        "Rpl_semi_sync_slave_status": "ON" if any(s.semi_sync for s in upstreams) else "OFF",
        "Binlog_gtid_begin": view.gtid_begin,
        **{name: value - flushed.get(name, 0) for name, value in _flushable(view).items()},
        "Connection_errors_max_connections": connections.too_many,
        "Connections": connections.accepted,
        "Max_used_connections": connections.most,
        "Max_used_connections_time": _local(connections.most_at),
        "Max_tmp_space_used": view.tmp_space.most,
        "Binlog_scrub_bytes": view.scrub.bytes_read,
        "Binlog_scrub_damages": len(view.scrub.damages()),
        "Binlog_scrub_last_pass": round(view.scrub.last_pass or 0),
        "Binlog_scrub_passes": view.scrub.passes,
        "Prepared_stmt_count": view.prepared_count.total,
        "Slave_received_heartbeats": sum(s.heartbeats for s in upstreams),
        "Slave_running": "ON" if any(s.connected for s in upstreams) else "OFF",
        "Slaves_connected": sum(1 for c in connections if c.dump_server_id),
        "Slaves_dropped": connections.replicas_dropped,
        "Slaves_running": sum(s.connected for s in upstreams),
        "Slaves_throttled_ms": round(connections.throttled_ms),
        "Ssl_accepts": connections.tls_accepts,
        "Ssl_finished_accepts": connections.tls_finished,
        "Threads_connected": len(connections),
        "Threads_running": sum(c.shown_now[0] not in _IDLE for c in connections),
        "Tmp_space_used": view.tmp_space.used,
        "Uptime": view.uptime_s,
        "Uptime_since_flush_status": int(time.monotonic() - connections.flushed_at),
    }
    return {**_ABSENT, **{name: str(value) for name, value in counters.items()}}


def _flushable(view: ServerView) -> dict[str, int]:
    """Those that count from the last FLUSH GLOBAL STATUS on, from the start."""
    connections, traffic = view.connections, view.connections.traffic()
    return {
        "Aborted_clients": connections.aborted_clients,
        "Aborted_connects": connections.aborted_connects,
        "Aborted_connects_preauth": connections.aborted_early,
        "Access_denied_errors": view.failed_logins.total,
        "Bytes_received": traffic.received,
        "Bytes_sent": traffic.sent,
        "Slave_connections": connections.registered,
        **view.publisher.cache_use(),
    }


def _local(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def _absent() -> dict[str, str]:
    """The rows of what is not here, and so never happens; and of what has not happened yet."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines if not line.startswith("#"))


_ABSENT: Final[Mapping[str, str]] = _absent()
_OF_SESSIONS: Final = frozenset(
    {
        *(name for name in _ABSENT if name.startswith(("Com_", "Master_gtid_wait_"))),
        *("Questions", "Slow_queries", "Max_statement_time_exceeded"),
    }
)
"""Counters that sessions have, too."""
