"""From where to where numbers go, of options of the configuration file and of variables: MariaDB's limits where it has
the option.

What is beyond them is refused in the file, and cut with a warning by SET, as MariaDB does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from binlog_storage.binlog.options import FILE_BYTES_MAX, PAGES_MIN
from binlog_storage.ibb.page import PAGE_SIZE

_U32_MAX: Final = 2**32 - 1
_I32_MAX: Final = 2**31 - 1
_YEAR_S: Final = 31_536_000

LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "binlog_cache_size": (4096, 1 << 40),
    "binlog_expire_logs_seconds": (0, 99 * 86_400),
    "binlog_page_cache_size": (1 << 20, 1 << 40),
    "binlog_stmt_cache_size": (4096, 1 << 40),
    "connect_timeout": (2, _YEAR_S),
    "dump_frame_cache_size": (1 << 20, 1 << 40),
    "expire_logs_days": (0, 99),
    "gtid_domain_id": (0, _U32_MAX),
    "innodb_flush_log_at_timeout": (0, 2700),
    "innodb_flush_log_at_trx_commit": (0, 3),
    "innodb_force_recovery": (0, 6),
    "innodb_log_buffer_size": (2 << 20, 1 << 32),
    "innodb_log_file_size": (4 << 20, 512 << 30),
    "interactive_timeout": (1, _YEAR_S),
    "listen_port": (0, 65_535),
    "max_allowed_packet": (1024, 1 << 30),
    "max_session_mem_used": (8192, 1 << 40),
    "max_total_session_mem_used": (1 << 20, 1 << 40),
    "max_binlog_size": (PAGES_MIN * PAGE_SIZE, FILE_BYTES_MAX),
    "max_binlog_total_size": (0, 1 << 62),
    "max_connect_errors": (1, _U32_MAX),
    "max_connections": (10, 100_000),
    "max_event_group_size": (1 << 20, 1 << 40),
    "max_user_connections": (0, _I32_MAX),
    "net_read_timeout": (1, _YEAR_S),
    "net_write_timeout": (1, _YEAR_S),
    "replica_lag_grace_seconds": (1, _YEAR_S),
    "rpl_semi_sync_master_timeout": (0, _U32_MAX),
    "rpl_semi_sync_master_wait_for_slave_count": (1, 65_535),
    "rpl_semi_sync_slave_wait_for_slave_count": (0, 65_535),
    "server_id": (1, _U32_MAX),
    "slave_connections_needed_for_purge": (0, _U32_MAX),
    "slave_net_timeout": (1, _YEAR_S),
    "sql_slave_skip_counter": (0, _U32_MAX),
    "sync_binlog": (0, _U32_MAX),
    "tcp_keepalive_interval": (0, 32_767),
    "tcp_keepalive_probes": (0, 127),
    "tcp_keepalive_time": (0, 32_767),
    "wait_timeout": (1, _YEAR_S),
}
