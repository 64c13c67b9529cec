"""Metrics of those who are connected: clients, replicas, upstreams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from binlog_server.dumps.archive_parts import ArchiveParts
from binlog_server.metrics.metric import (
    COUNTER,
    GAUGE,
    PREFIX,
    Labelled,
    Metric,
    counter,
    gauge,
)
from binlog_server.metrics.observed import Look, Replica
from binlog_server.relay.status import UpstreamStatus


def _of_archive(look: Look, read: Callable[[ArchiveParts], int]) -> int:
    """0 without an archive."""
    parts = look.server.archive_parts
    return 0 if parts is None else read(parts)


def _replica(
    name: str, kind: str, help_: str, read: Callable[[Look, Replica], float | None]
) -> Metric:
    return Metric(
        f"{PREFIX}replica_{name}",
        kind,
        help_,
        ("server_id", "account"),
        lambda look: [(key, read(look, replica)) for key, replica in look.replicas.items()],
    )


def _upstream(
    name: str, kind: str, help_: str, read: Callable[[UpstreamStatus], float | None]
) -> Metric:
    return Metric(
        f"{PREFIX}upstream_{name}",
        kind,
        help_,
        ("connection", "upstream"),
        lambda look: [((s.connection, s.name), read(s)) for s in look.server.upstreams],
    )


def _dropped(look: Look) -> Labelled:
    connections = look.server.connections
    return [
        (("lag",), connections.replicas_dropped),
        (("server_id",), connections.duplicate_server_ids),
    ]


CLIENTS: Final = (
    gauge("connections", "Clients that are connected", lambda look: look.threads),
    gauge("connections_max", "max_connections", lambda look: look.server.config.max_connections),
    gauge("pending_logins", "Of the clients, those without a login yet", lambda look: look.pending),
    gauge("tls_connections", "Of the clients, those with TLS", lambda look: look.tls),
    counter(
        "connections_accepted_total",
        "Clients that were given a greeting",
        lambda look: look.server.connections.accepted,
    ),
    counter(
        "connections_refused_total",
        "Clients that met max_connections (error 1040), or were crowded out before their login",
        lambda look: look.server.connections.too_many,
    ),
    counter(
        "aborted_connects_total",
        "Connections that ended without a login, whatever the reason",
        lambda look: look.server.connections.aborted_connects,
    ),
    counter(
        "failed_logins_total",
        "Logins with a wrong name, password or proof (error 1045)",
        lambda look: look.server.failed_logins.total,
    ),
    gauge(
        "tls_certificate_expiry_timestamp_seconds",
        "When the certificate of the server expires; seconds since 1970",
        lambda look: None if look.server.tls is None else look.server.tls.expires,
    ),
    counter(
        "tls_handshakes_total",
        "TLS handshakes that succeeded",
        lambda look: look.server.connections.tls_finished,
    ),
    counter(
        "tls_handshakes_begun_total",
        "TLS handshakes that clients began",
        lambda look: look.server.connections.tls_accepts,
    ),
    counter(
        "received_bytes_total",
        "Bytes from clients, inside TLS",
        lambda look: look.server.connections.traffic().received,
    ),
    counter(
        "sent_bytes_total",
        "Bytes to clients, inside TLS",
        lambda look: look.server.connections.traffic().sent,
    ),
    gauge(
        "session_memory_bytes",
        "What sessions hold of statements and answers; the limit is max_total_session_mem_used",
        lambda look: look.server.session_memory.held,
    ),
    counter(
        "sessions_dropped_total",
        "Connections that ended because all together held too much (error 1041)",
        lambda look: look.server.session_memory.dropped,
    ),
)

REPLICAS: Final = (
    gauge(
        "replicas", "Dumps that run, also of clients without a server_id", lambda look: look.dumps
    ),
    _replica(
        "lag_bytes",
        GAUGE,
        "Binlog that is durable and was not sent to the replica",
        lambda look, replica: None if replica.sent is None else look.lag_bytes(replica.sent),
    ),
    _replica(
        "lag_seconds",
        GAUGE,
        "Age of the oldest group that was not sent, by its timestamp; 0 when all was sent",
        lambda look, replica: None if replica.sent is None else look.lag_s(replica.sent),
    ),
    _replica(
        "unacknowledged_bytes",
        GAUGE,
        "Binlog that is durable and that the replica has not acknowledged; only with semi-sync",
        lambda look, replica: (
            None if replica.acknowledged is None else look.lag_bytes(replica.acknowledged)
        ),
    ),
    _replica(
        "unread_seconds",
        GAUGE,
        "Age of the first bytes that the replica's system has and the replica has not read, as of its last word",
        lambda _, replica: replica.unread_s,
    ),
    _replica(
        "file_number",
        GAUGE,
        "Number of the binlog file that the replica is at; it and all later ones are kept",
        lambda _, replica: None if replica.sent is None else replica.sent.file_no,
    ),
    _replica(
        "sent_bytes_total",
        COUNTER,
        "Bytes sent to the replica since it connected",
        lambda _, replica: replica.bytes_sent,
    ),
    Metric(
        PREFIX + "replicas_dropped_total",
        COUNTER,
        "Dumps ended because the replica lagged too far, or because its server_id came again",
        ("reason",),
        _dropped,
    ),
    gauge(
        "semi_sync_on",
        "1 while commits wait for replicas",
        lambda look: look.server.semi_sync.is_on,
    ),
    gauge(
        "semi_sync_replicas",
        "Replicas with semi-sync",
        lambda look: look.server.semi_sync.clients,
    ),
    counter(
        "semi_sync_commits_acknowledged_total",
        "Commits that were answered when enough replicas had them",
        lambda look: look.server.semi_sync.commits_acknowledged,
    ),
    counter(
        "semi_sync_commits_unacknowledged_total",
        "Commits that were answered without that, while semi-sync was to be on",
        lambda look: look.server.semi_sync.commits_unacknowledged,
    ),
    counter(
        "write_timeouts_total",
        "Connections cut off because they took nothing for net_write_timeout",
        lambda look: look.server.connections.write_timeouts,
    ),
    counter(
        "throttled_seconds_total",
        "What dumps have waited because of MAX_BYTES_PER_SECOND, all together",
        lambda look: look.server.connections.throttled_ms / 1000,
    ),
    counter(
        "frame_cache_hits_total",
        "Batches of groups that were there, or being made, when a replica came",
        lambda look: look.server.frames.hits,
    ),
    counter(
        "frame_cache_misses_total",
        "Batches that a replica had to wait for",
        lambda look: look.server.frames.misses,
    ),
    counter(
        "frame_cache_ahead_total",
        "Batches made before a replica came",
        lambda look: look.server.frames.made_ahead,
    ),
    gauge(
        "frame_cache_bytes",
        "Memory of the frames that are kept",
        lambda look: look.server.frames.memory_bytes,
    ),
    gauge(
        "archive_replicas",
        "Dumps that are served from the archive, as their position was purged here",
        lambda look: _of_archive(look, lambda parts: parts.replicas),
    ),
    counter(
        "archive_fetched_bytes_total",
        "Bytes of the archive's parts that were fetched for replicas",
        lambda look: _of_archive(look, lambda parts: parts.fetched_bytes),
    ),
    counter(
        "archive_fetches_failed_total",
        "Tries to fetch a part for a replica that have failed",
        lambda look: _of_archive(look, lambda parts: parts.failed),
    ),
    gauge(
        "archive_cache_bytes",
        "Disk space of parts of an object store that are here for replicas",
        lambda look: _of_archive(look, lambda parts: parts.bytes_here),
    ),
)

UPSTREAMS: Final = (
    _upstream("connected", GAUGE, "1 while it is followed", lambda status: status.connected),
    _upstream(
        "stopped",
        GAUGE,
        "1 when following has ended for good; the log and /readyz say why",
        lambda status: status.stopped,
    ),
    _upstream("connects_total", COUNTER, "Dumps that it has granted", lambda s: s.connects),
    _upstream(
        "losses_total", COUNTER, "Connections lost, and attempts that failed", lambda s: s.losses
    ),
    _upstream("stored_bytes_total", COUNTER, "Bytes of groups stored", lambda s: s.bytes_stored),
    _upstream(
        "last_heard_timestamp_seconds",
        GAUGE,
        "When it was last heard, heartbeats too; seconds since 1970, 0 is never",
        lambda status: status.last_heard,
    ),
    _upstream(
        "last_stored_timestamp_seconds",
        GAUGE,
        "When a group of it was last stored; seconds since 1970, 0 is never",
        lambda status: status.last_stored,
    ),
    _upstream(
        "lag_seconds",
        GAUGE,
        "Seconds_Behind_Master of SHOW SLAVE STATUS: age of what was stored last, 0 when nothing more comes",
        lambda status: status.behind_s,
    ),
)
