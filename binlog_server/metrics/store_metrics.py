"""Metrics of the store: commits, the redo log, pages, files, and who holds them."""

from __future__ import annotations

import time
from typing import Final

from binlog_storage.disk.local_path import free_bytes
from binlog_storage.engine.purge import PurgeHeld

from binlog_server.metrics.metric import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    PREFIX,
    Labelled,
    Metric,
    counter,
    gauge,
    status,
)
from binlog_server.metrics.observed import Look
from binlog_server.metrics.standstill import KINDS, standstills


def _first_and_last_file(look: Look) -> Labelled:
    numbers = [number for number, _ in look.files]
    return [(("first",), numbers[0]), (("last",), numbers[-1])] if numbers else []


def _stalled(look: Look) -> Labelled:
    found = standstills(look.server)
    return [
        ((what,), max((one.seconds for one in found if one.what == what), default=0.0))
        for what in KINDS
    ]


def directory_free_bytes(look: Look) -> float | None:
    """Room on the file system of the binlog files; None where it does not say."""
    try:
        return free_bytes(look.server.config.binlog_directory)
    except OSError:
        return None


def _purge_held(look: Look) -> list[PurgeHeld]:
    held = look.server.engine.purge_held()
    return [] if held is None else [held]


STORE: Final = (
    # --- commits and the redo log ---
    status("commits_total", COUNTER, "Groups appended to the binlog", "Binlog_commits"),
    status(
        "group_commits_total",
        COUNTER,
        "Syncs of the redo log that made groups durable; commits by this is the size of a group commit",
        "Binlog_group_commits",
    ),
    status(
        "binlog_written_bytes_total",
        COUNTER,
        "Bytes of the binlog, records and what frames them",
        "Binlog_bytes_written",
    ),
    gauge(
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
        lambda look: [((kind,), took) for kind, took in look.server.engine.fsync_times().items()],
    ),
    status("redo_written_bytes_total", COUNTER, "Bytes of the redo log", "Innodb_os_log_written"),
    status(
        "redo_capacity_bytes",
        GAUGE,
        "Size of the redo log's ring (innodb_log_file_size)",
        "Innodb_checkpoint_max_age",
    ),
    status(
        "checkpoint_age_bytes",
        GAUGE,
        "Redo since the last checkpoint: what is read again after a crash",
        "Innodb_checkpoint_age",
    ),
    status("checkpoints_total", COUNTER, "Checkpoints", "Binlog_checkpoints"),
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
    counter(
        "room_waits_total",
        "How often a client or an upstream was paused because the disk was full or slow",
        lambda look: look.server.room.waits,
    ),
    gauge(
        "room_wait_seconds",
        "For how long those who wait for room have waited",
        lambda look: look.server.room.waiting_s,
    ),
    Metric(
        PREFIX + "stalled_seconds",
        GAUGE,
        "For how long something has stood still or failed again and again; /readyz says why beyond net_read_timeout",
        ("what",),
        _stalled,
    ),
    # --- tables ---
    status(
        "table_changes_total", COUNTER, "Rows put and deleted in tables", "Binlog_table_changes"
    ),
    status(
        "table_rows_to_undo",
        GAUGE,
        "Changes of transactions that the start has found without an end, and that are still to be undone",
        "Binlog_table_rows_to_undo",
    ),
    status(
        "table_transactions_to_undo",
        GAUGE,
        "These transactions",
        "Binlog_table_transactions_to_undo",
    ),
    status("table_snapshots_total", COUNTER, "Snapshots of the tables", "Binlog_table_snapshots"),
    status("lock_waits_total", COUNTER, "Waits for a row or a table", "Innodb_row_lock_waits"),
    status(
        "lock_waiters", GAUGE, "Transactions that wait for one", "Innodb_row_lock_current_waits"
    ),
    status("deadlocks_total", COUNTER, "Transactions rolled back for others", "Innodb_deadlocks"),
    # --- pages and files ---
    status(
        "pages_waiting",
        GAUGE,
        "Pages in memory that are not in their file yet; 2048 at most",
        "Binlog_pages_in_memory",
    ),
    status("pages_written_total", COUNTER, "Pages written to files", "Binlog_pages_written"),
    status("pages_read_total", COUNTER, "Pages read from files, ahead too", "Binlog_pages_read"),
    status(
        "page_requests_total",
        COUNTER,
        "Pages that readers of history wanted",
        "Innodb_buffer_pool_read_requests",
    ),
    status(
        "page_misses_total",
        COUNTER,
        "Of them, pages that were not in memory",
        "Innodb_buffer_pool_reads",
    ),
    status("page_cache_pages", GAUGE, "Pages in the page cache", "Innodb_buffer_pool_pages_data"),
    gauge("files", "Binlog files, the one made ahead too", lambda look: len(look.files)),
    gauge(
        "files_bytes", "Bytes of the binlog files", lambda look: sum(size for _, size in look.files)
    ),
    Metric(
        PREFIX + "file_number",
        GAUGE,
        "Number of the first and of the last binlog file",
        ("which",),
        _first_and_last_file,
    ),
    status("purged_files_total", COUNTER, "Binlog files that were purged", "Binlog_purged_files"),
    status(
        "purged_bytes_total",
        COUNTER,
        "Bytes of binlog files that were purged",
        "Binlog_purged_bytes",
    ),
    gauge("disk_free_bytes", "Room on the file system of the binlog files", directory_free_bytes),
    Metric(
        PREFIX + "purge_held_bytes",
        GAUGE,
        "Bytes of files that a limit of age or size wants to go, and that stay",
        ("kind", "name"),
        lambda look: [
            ((held.holder.kind, held.holder.name), held.size) for held in _purge_held(look)
        ],
    ),
    Metric(
        PREFIX + "purge_held_age_seconds",
        GAUGE,
        "Seconds since the last write to the oldest of these files",
        ("kind", "name"),
        lambda look: [
            ((held.holder.kind, held.holder.name), time.time() - held.oldest)
            for held in _purge_held(look)
        ],
    ),
    counter(
        "scrub_passes_total",
        "Passes of the scrub that came to their end",
        lambda look: look.server.scrub.passes,
    ),
    counter(
        "scrub_read_bytes_total",
        "Bytes that the scrub has read",
        lambda look: look.server.scrub.bytes_read,
    ),
    gauge(
        "scrub_last_pass_timestamp_seconds",
        "End of the last pass, in seconds since 1970; none before the first one",
        lambda look: look.server.scrub.last_pass,
    ),
    Metric(
        PREFIX + "scrub_damages",
        GAUGE,
        "Damages that the last pass, or the one under way, has found",
        ("kind",),
        lambda look: [
            ((kind,), count) for kind, count in look.server.scrub.damages_by_kind().items()
        ],
    ),
    gauge("leases", "Leases that hold files", lambda look: len(look.server.leases.all())),
    Metric(
        PREFIX + "lease_held_bytes",
        GAUGE,
        "Bytes of the files from the first one that a lease holds",
        ("lease",),
        lambda look: [((lease.name,), held) for lease, held in look.server.leases.all_held()],
    ),
    gauge(
        "prepared_transactions",
        "XA transactions that wait for COMMIT or ROLLBACK",
        lambda look: len(look.server.engine.prepared()),
    ),
)
