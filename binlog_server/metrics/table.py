"""Every metric of the server, in one table: name, type, labels, what it means, and where it is read.

Names end in the unit, counters in `_total`. Nothing is counted for metrics alone but plain integers: all of it is
state that is there anyway. `docs/metrics.md` has the same table for people; a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from binlog_server.metrics.health import what_is_missing
from binlog_server.metrics.observed import Look, Replica
from binlog_server.relay.status import UpstreamStatus
from storage.binlog.file_names import file_number
from storage.durations import Durations

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
PREFIX: Final = "binlog_server_"

Value = float | Durations | None  # None is left out: there is nothing to tell
Labelled = Iterable[tuple[Sequence[str], Value]]  # values of the labels, and the value


@dataclass(frozen=True, slots=True)
class Metric:
    """`read` gives a value for each set of label values."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Look], Labelled]


def _one(name: str, kind: str, help_: str, read: Callable[[Look], float | None]) -> Metric:
    return Metric(PREFIX + name, kind, help_, (), lambda look: [((), read(look))])


def _counter(name: str, help_: str, read: Callable[[Look], float]) -> Metric:
    return _one(name, COUNTER, help_, read)


def _gauge(name: str, help_: str, read: Callable[[Look], float | None]) -> Metric:
    return _one(name, GAUGE, help_, read)


def _status(name: str, kind: str, help_: str, status: str) -> Metric:
    """A counter of SHOW GLOBAL STATUS. An engine that does not count has none."""
    return _one(name, kind, help_, lambda look: look.counters.get(status))


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


def _upstream(name: str, kind: str, help_: str, read: Callable[[UpstreamStatus], float]) -> Metric:
    return Metric(
        f"{PREFIX}upstream_{name}",
        kind,
        help_,
        ("upstream",),
        lambda look: [((status.name,), read(status)) for status in look.server.upstreams],
    )


def _info(look: Look) -> Labelled:
    config = look.server.config
    return [((version("binlog-server"), config.server_version, str(config.server_id)), 1)]


def _dropped(look: Look) -> Labelled:
    connections = look.server.connections
    return [
        (("lag",), connections.replicas_dropped),
        (("server_id",), connections.duplicate_server_ids),
    ]


def _first_and_last_file(look: Look) -> Labelled:
    numbers = [file_number(name) for name, _ in look.files]
    return [(("first",), numbers[0]), (("last",), numbers[-1])] if numbers else []


def _fsyncs(look: Look) -> Labelled:
    return [((kind,), times) for kind, times in look.server.engine.fsync_times().items()]


def _held(look: Look) -> Labelled:
    leases = look.server.leases
    return [((lease.name,), leases.held_bytes(lease)) for lease in leases.all()]


METRICS: Final = (
    Metric(
        PREFIX + "info",
        GAUGE,
        "Always 1; versions and server_id are in the labels",
        ("version", "server_version", "server_id"),
        _info,
    ),
    _gauge(
        "ready",
        "1 if /readyz says ok",
        lambda look: not what_is_missing(look.server),
    ),
    _gauge(
        "store_failed",
        "1 after a failure of the disk: the store accepts nothing more until it is repaired and restarted",
        lambda look: look.server.syncer.failure is not None,
    ),
    # --- commits and the redo log ---
    _status("commits_total", COUNTER, "Groups appended to the binlog", "Binlog_commits"),
    _status(
        "group_commits_total",
        COUNTER,
        "Syncs of the redo log that made groups durable; commits by this is the size of a group commit",
        "Binlog_group_commits",
    ),
    _status(
        "binlog_written_bytes_total",
        COUNTER,
        "Bytes of the binlog, records and what frames them",
        "Binlog_bytes_written",
    ),
    _gauge(
        "durable_gap_bytes",
        "Redo that is written and not durable yet",
        lambda look: (
            look.counters.get("Innodb_lsn_current", 0) - look.counters.get("Innodb_lsn_flushed", 0)
        ),
    ),
    Metric(
        PREFIX + "fsync_seconds",
        HISTOGRAM,
        "How long fsyncs took, of the redo log, for which commits wait, and of binlog files",
        ("file",),
        _fsyncs,
    ),
    _status("redo_written_bytes_total", COUNTER, "Bytes of the redo log", "Innodb_os_log_written"),
    _status(
        "redo_capacity_bytes",
        GAUGE,
        "Size of the redo log's ring (innodb_log_file_size)",
        "Innodb_checkpoint_max_age",
    ),
    _status(
        "checkpoint_age_bytes",
        GAUGE,
        "Redo since the last checkpoint: what is read again after a crash",
        "Innodb_checkpoint_age",
    ),
    _status("checkpoints_total", COUNTER, "Checkpoints", "Binlog_checkpoints"),
    Metric(
        PREFIX + "append_waits_total",
        COUNTER,
        "How often an append had to wait, for room in the redo log or for pages to be written",
        ("for",),
        lambda look: [
            (("redo",), look.counters.get("Innodb_log_waits")),
            (("pages",), look.counters.get("Binlog_page_waits")),
        ],
    ),
    _counter(
        "room_waits_total",
        "How often a client or an upstream was paused because the disk was full or slow",
        lambda look: look.server.room.waits,
    ),
    _gauge(
        "room_wait_seconds",
        "For how long those who wait for room have waited",
        lambda look: look.server.room.waiting_s,
    ),
    # --- pages and files ---
    _status(
        "pages_waiting",
        GAUGE,
        "Pages in memory that are not in their file yet; 2048 at most",
        "Binlog_pages_in_memory",
    ),
    _status("pages_written_total", COUNTER, "Pages written to files", "Binlog_pages_written"),
    _status("pages_read_total", COUNTER, "Pages read from files, ahead too", "Binlog_pages_read"),
    _status(
        "page_requests_total",
        COUNTER,
        "Pages that readers of history wanted",
        "Innodb_buffer_pool_read_requests",
    ),
    _status(
        "page_misses_total",
        COUNTER,
        "Of them, pages that were not in memory",
        "Innodb_buffer_pool_reads",
    ),
    _status("page_cache_pages", GAUGE, "Pages in the page cache", "Innodb_buffer_pool_pages_data"),
    _gauge("files", "Binlog files, the one made ahead too", lambda look: len(look.files)),
    _gauge(
        "files_bytes", "Bytes of the binlog files", lambda look: sum(size for _, size in look.files)
    ),
    Metric(
        PREFIX + "file_number",
        GAUGE,
        "Number of the first and of the last binlog file",
        ("which",),
        _first_and_last_file,
    ),
    _status("purged_files_total", COUNTER, "Binlog files that were purged", "Binlog_purged_files"),
    _status(
        "purged_bytes_total",
        COUNTER,
        "Bytes of binlog files that were purged",
        "Binlog_purged_bytes",
    ),
    _gauge("leases", "Leases that hold files", lambda look: len(look.server.leases.all())),
    Metric(
        PREFIX + "lease_held_bytes",
        GAUGE,
        "Bytes of the files from the first one that a lease holds",
        ("lease",),
        _held,
    ),
    _gauge(
        "prepared_transactions",
        "XA transactions that wait for COMMIT or ROLLBACK",
        lambda look: len(look.server.engine.prepared()),
    ),
    # --- clients ---
    _gauge("connections", "Clients that are connected", lambda look: look.threads),
    _gauge("connections_max", "max_connections", lambda look: look.server.config.max_connections),
    _gauge("tls_connections", "Of the clients, those with TLS", lambda look: look.tls),
    _counter(
        "connections_accepted_total",
        "Clients that were given a greeting",
        lambda look: look.server.connections.accepted,
    ),
    _counter(
        "connections_refused_total",
        "Clients that met max_connections (error 1040)",
        lambda look: look.server.connections.too_many,
    ),
    _counter(
        "aborted_connects_total",
        "Connections that ended without a login, whatever the reason",
        lambda look: look.server.connections.aborted_connects,
    ),
    _counter(
        "failed_logins_total",
        "Logins with a wrong name, password or proof (error 1045)",
        lambda look: look.server.failed_logins.total,
    ),
    _counter(
        "tls_handshakes_total",
        "TLS handshakes that succeeded",
        lambda look: look.server.connections.tls_finished,
    ),
    _counter(
        "tls_handshakes_begun_total",
        "TLS handshakes that clients began",
        lambda look: look.server.connections.tls_accepts,
    ),
    _counter(
        "received_bytes_total",
        "Bytes from clients, inside TLS",
        lambda look: look.server.connections.traffic().received,
    ),
    _counter(
        "sent_bytes_total",
        "Bytes to clients, inside TLS",
        lambda look: look.server.connections.traffic().sent,
    ),
    # --- replicas ---
    _gauge(
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
    _counter(
        "write_timeouts_total",
        "Connections cut off because they took nothing for net_write_timeout",
        lambda look: look.server.connections.write_timeouts,
    ),
    _counter(
        "throttled_seconds_total",
        "What dumps have waited because of MAX_BYTES_PER_SECOND, all together",
        lambda look: look.server.connections.throttled_ms / 1000,
    ),
    _counter(
        "frame_cache_hits_total",
        "Batches of groups that were there, or being made, when a replica came",
        lambda look: look.server.frames.hits,
    ),
    _counter(
        "frame_cache_misses_total",
        "Batches that a replica had to wait for",
        lambda look: look.server.frames.misses,
    ),
    _counter(
        "frame_cache_ahead_total",
        "Batches made before a replica came",
        lambda look: look.server.frames.made_ahead,
    ),
    _gauge(
        "frame_cache_bytes",
        "Memory of the frames that are kept",
        lambda look: look.server.frames.memory_bytes,
    ),
    # --- upstream ---
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
        "delay_seconds",
        GAUGE,
        "From when the last group was written there, by the upstream's clock, until it was stored; 0 before the first",
        lambda status: max(0.0, status.last_stored - status.last_timestamp),
    ),
)
