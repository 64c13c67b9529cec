"""Status variables of the server for SHOW STATUS, under MariaDB's names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from binlog_server.sql.view import ServerView

_IDLE: Final = ("Sleep", "Connect")  # values of Command for connections without a running statement


def status_variables(view: ServerView) -> Mapping[str, str]:
    """The values of the server's status variables, by name as SHOW STATUS prints it."""
    connections, upstreams = view.connections, view.relay.statuses
    traffic = connections.traffic()
    counters = {
        **view.engine.counters(),
        **view.semi_sync.status_variables(),
        "Rpl_semi_sync_slave_send_ack": sum(s.acks_sent for s in upstreams),
        "Rpl_semi_sync_slave_status": "ON" if any(s.semi_sync for s in upstreams) else "OFF",
        "Aborted_connects": connections.aborted_connects,
        "Binlog_gtid_begin": view.gtid_begin,
        "Access_denied_errors": view.failed_logins.total,
        "Bytes_received": traffic.received,
        "Bytes_sent": traffic.sent,
        "Connection_errors_max_connections": connections.too_many,
        "Connections": connections.accepted,
        "Max_used_connections": connections.most,
        "Slaves_connected": sum(1 for c in connections if c.dump_server_id),
        "Slaves_dropped": connections.replicas_dropped,
        "Slaves_running": sum(s.connected for s in upstreams),
        "Slaves_throttled_ms": round(connections.throttled_ms),
        "Ssl_accepts": connections.tls_accepts,
        "Ssl_finished_accepts": connections.tls_finished,
        "Threads_connected": len(connections),
        "Threads_running": sum(c.shown_now[0] not in _IDLE for c in connections),
        "Uptime": view.uptime_s,
        "Uptime_since_flush_status": view.uptime_s,
    }
    return {name: str(value) for name, value in counters.items()}
