"""System variables, by MariaDB's names: what `SELECT @@x`, `SHOW VARIABLES` and `SET` see.

A binlog server has no tables and runs no SQL, so most are constants that clients read to decide how to behave. The
rest come from the configuration and the store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Read by connectors before they start; the values are those of a MariaDB server that is read-only and logs.
CONSTANTS: Mapping[str, str] = {
    "auto_increment_increment": "1",
    "auto_increment_offset": "1",
    "autocommit": "ON",
    "binlog_annotate_row_events": "ON",
    "binlog_checksum": "NONE",  # engine binlogs have none, and replicas are told so
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_storage_engine": "innodb",
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "collation_connection": "utf8mb4_general_ci",
    "collation_database": "utf8mb4_general_ci",
    "collation_server": "utf8mb4_general_ci",
    "interactive_timeout": "28800",
    "license": "Apache-2.0",
    "log_bin": "ON",
    "log_slave_updates": "ON",
    "lower_case_table_names": "0",
    "max_allowed_packet": "16777216",
    "net_read_timeout": "30",
    "performance_schema": "OFF",
    "read_only": "ON",
    "skip_replication": "OFF",
    "sql_mode": "",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "transaction_isolation": "REPEATABLE-READ",
    "tx_isolation": "REPEATABLE-READ",
    "wait_timeout": "28800",
}

# What a client may SET for its session. The value is kept and shown again; only these have an effect on a dump:
# net_write_timeout, skip_replication.
SESSION_SETTABLE = frozenset(
    {
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "collation_connection",
        "interactive_timeout",
        "max_statement_time",
        "net_read_timeout",
        "net_write_timeout",
        "skip_replication",
        "sql_mode",
        "time_zone",
        "wait_timeout",
    }
)

# Shown as 1 and 0 by SELECT and as ON and OFF by SHOW.
BOOLEANS = frozenset(
    {
        "autocommit",
        "binlog_annotate_row_events",
        "gtid_strict_mode",
        "log_bin",
        "log_slave_updates",
        "performance_schema",
        "read_only",
        "skip_replication",
    }
)


def like_matches(pattern: str, name: str) -> bool:
    """SQL LIKE without case: % any text, _ any character, backslash takes the next as it is."""
    out = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
        at += 1
    return re.fullmatch("".join(out), name, re.IGNORECASE | re.DOTALL) is not None
