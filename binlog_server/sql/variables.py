"""System variables, by MariaDB's names: what `SELECT @@x`, `SHOW VARIABLES` and `SET` see.

A binlog server has no tables, so most are constants that clients read to decide how to behave. The rest come from the
configuration and the store.
"""

from __future__ import annotations

from collections.abc import Mapping

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.option_limits import LIMITS

_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1

# Read by connectors before they start; the values are those of a MariaDB server that is read-only and logs.
CONSTANTS: Mapping[str, str] = {
    "auto_increment_increment": "1",
    "auto_increment_offset": "1",
    "autocommit": "ON",
    "check_constraint_checks": "ON",
    "binlog_annotate_row_events": "ON",
    "binlog_checksum": "NONE",  # engine binlogs have none, and replicas are told so
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_storage_engine": "innodb",
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_filesystem": "binary",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "character_set_system": "utf8mb3",
    "collation_connection": "utf8mb4_general_ci",
    "collation_database": "utf8mb4_general_ci",
    "collation_server": "utf8mb4_general_ci",
    "default_master_connection": "",
    "encrypt_binlog": "OFF",
    "explicit_defaults_for_timestamp": "ON",
    "foreign_key_checks": "ON",
    "gtid_seq_no": "0",
    "init_connect": "",
    "insert_id": "0",
    "interactive_timeout": "28800",
    "last_insert_id": "0",
    "license": "Apache-2.0",
    "log_bin": "ON",
    "log_slave_updates": "ON",
    "lower_case_table_names": "0",
    "max_statement_time": "0.000000",
    "net_buffer_length": "16384",
    "optimizer_switch": "",  # dump programs set it
    "performance_schema": "OFF",
    "pseudo_thread_id": "0",
    "query_cache_size": "0",
    "query_cache_type": "OFF",
    "rand_seed1": "0",
    "rand_seed2": "0",
    "rpl_semi_sync_master_wait_point": "AFTER_COMMIT",
    "skip_replication": "OFF",
    "sql_auto_is_null": "OFF",
    "sql_mode": "",
    "sql_notes": "ON",
    "sql_quote_show_create": "ON",
    "sql_slave_skip_counter": "0",
    "sync_binlog": "0",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "timestamp": "0.000000",
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": "OFF",
    "tx_isolation": "REPEATABLE-READ",
    "tx_read_only": "OFF",
    "unique_checks": "ON",
    "wait_timeout": "28800",
}

# What a client may SET for its session. The value is kept and shown again. Of a dump these have an effect:
# net_write_timeout, skip_replication; of statements that are committed: see `sql_commit.settings`.
SESSION_SETTABLE = frozenset(
    {
        "auto_increment_increment",
        "auto_increment_offset",
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "check_constraint_checks",
        "collation_connection",
        "default_master_connection",
        "explicit_defaults_for_timestamp",
        "foreign_key_checks",
        "gtid_domain_id",
        "gtid_seq_no",
        "insert_id",
        "interactive_timeout",
        "last_insert_id",
        "max_statement_time",
        "net_read_timeout",
        "net_write_timeout",
        "optimizer_switch",
        "pseudo_thread_id",
        "rand_seed1",
        "rand_seed2",
        "server_id",
        "skip_replication",
        "sql_auto_is_null",
        "sql_mode",
        "sql_notes",
        "sql_quote_show_create",
        "time_zone",
        "timestamp",
        "transaction_isolation",
        "transaction_read_only",
        "tx_isolation",
        "tx_read_only",
        "unique_checks",
        "wait_timeout",
    }
)

# Those of them that have no global value.
SESSION_ONLY = frozenset(
    {
        "gtid_seq_no",
        "insert_id",
        "last_insert_id",
        "pseudo_thread_id",
        "rand_seed1",
        "rand_seed2",
        "skip_replication",
        "timestamp",
    }
)

# These have a value for the session, too, which a client cannot change; all others are of the server alone.
SESSION_FIXED = frozenset(
    {
        "binlog_annotate_row_events",
        "binlog_format",
        "binlog_row_image",
        "character_set_database",
        "character_set_filesystem",
        "character_set_server",
        "collation_database",
        "collation_server",
        "max_allowed_packet",
        "net_buffer_length",
        "query_cache_type",
    }
)

# MariaDB takes no value for one statement alone.
NOT_IN_SET_STATEMENT = frozenset(
    {
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "collation_connection",
        "interactive_timeout",
        "skip_replication",
        "wait_timeout",
    }
)

# Those of them that decide what a group is called: only with the right to commit.
RESTRICTED: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("gtid_domain_id", "gtid_seq_no", "pseudo_thread_id", "server_id"), (BINLOG_REPLAY,)
)
# Not between BEGIN and COMMIT.
NOT_IN_TRANSACTION = frozenset({"gtid_domain_id", "gtid_seq_no"})

# Settable numbers, and what MariaDB cuts them to, with a warning.
RANGES: Mapping[str, tuple[int, int]] = {
    "auto_increment_increment": (1, 65535),
    "auto_increment_offset": (1, 65535),
    "gtid_domain_id": LIMITS["gtid_domain_id"],
    "gtid_seq_no": (0, _U64_MAX),
    "innodb_flush_log_at_trx_commit": LIMITS["innodb_flush_log_at_trx_commit"],
    "insert_id": (0, _U64_MAX),
    "last_insert_id": (0, _U64_MAX),
    "max_statement_time": (0, 31536000),
    "pseudo_thread_id": (0, _U32_MAX),
    "rand_seed1": (0, _U64_MAX),
    "rand_seed2": (0, _U64_MAX),
    "server_id": LIMITS["server_id"],
    "timestamp": (0, _U32_MAX),
    "interactive_timeout": LIMITS["interactive_timeout"],
    "net_read_timeout": LIMITS["net_read_timeout"],
    "net_write_timeout": LIMITS["net_write_timeout"],
    "wait_timeout": LIMITS["wait_timeout"],
}

# Numbers with decimals.
DOUBLES = frozenset({"expire_logs_days", "max_statement_time", "timestamp"})

# Never a number, whatever they hold.
TEXTS = frozenset({"default_master_connection", "hostname", "optimizer_switch", "report_host"})

# Shown as 1 and 0 by SELECT and as ON and OFF by SHOW.
BOOLEANS = frozenset(
    {
        "autocommit",
        "binlog_annotate_row_events",
        "check_constraint_checks",
        "encrypt_binlog",
        "explicit_defaults_for_timestamp",
        "foreign_key_checks",
        "gtid_ignore_duplicates",
        "gtid_strict_mode",
        "log_bin",
        "log_slave_updates",
        "performance_schema",
        "read_only",
        "require_secure_transport",
        "rpl_semi_sync_master_enabled",
        "rpl_semi_sync_master_wait_no_slave",
        "rpl_semi_sync_slave_enabled",
        "skip_replication",
        "slave_compressed_protocol",
        "sql_auto_is_null",
        "sql_notes",
        "sql_quote_show_create",
        "transaction_read_only",
        "tx_read_only",
        "unique_checks",
    }
)

_ISOLATION_LEVELS = ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")
# One of a few words, or its number.
ENUMS: Mapping[str, tuple[str, ...]] = {
    "transaction_isolation": _ISOLATION_LEVELS,
    "tx_isolation": _ISOLATION_LEVELS,
}
# Two names of one variable: the old and the new.
ALIASES: Mapping[str, str] = {
    "transaction_isolation": "tx_isolation",
    "transaction_read_only": "tx_read_only",
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
}
