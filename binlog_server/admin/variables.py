"""System variables, by MariaDB's names: what `SELECT @@x`, `SHOW VARIABLES` and `SET` see.

A binlog server has no tables, so most are constants that clients read to decide how to behave. The rest come from the
configuration and the store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    "encrypt_binlog": "OFF",
    "explicit_defaults_for_timestamp": "ON",
    "foreign_key_checks": "ON",
    "gtid_seq_no": "0",
    "insert_id": "0",
    "interactive_timeout": "28800",
    "last_insert_id": "0",
    "license": "Apache-2.0",
    "log_bin": "ON",
    "log_slave_updates": "ON",
    "lower_case_table_names": "0",
    "max_statement_time": "0.000000",
    "net_read_timeout": "30",
    "optimizer_switch": "",  # dump programs set it
    "performance_schema": "OFF",
    "pseudo_thread_id": "0",
    "rand_seed1": "0",
    "rand_seed2": "0",
    "skip_replication": "OFF",
    "sql_auto_is_null": "OFF",
    "sql_mode": "",
    "sql_notes": "ON",
    "sql_quote_show_create": "ON",
    "sync_binlog": "0",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "timestamp": "0",
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

# Those of them that decide what a group is called: only with the right to commit.
NEED_RIGHT = frozenset({"gtid_domain_id", "gtid_seq_no", "pseudo_thread_id", "server_id"})
# Not between BEGIN and COMMIT.
NOT_IN_TRANSACTION = frozenset({"gtid_domain_id", "gtid_seq_no"})

# Settable numbers, and what MariaDB cuts them to.
RANGES: Mapping[str, tuple[int, int]] = {
    "auto_increment_increment": (1, 65535),
    "auto_increment_offset": (1, 65535),
    "gtid_domain_id": (0, _U32_MAX),
    "gtid_seq_no": (0, _U64_MAX),
    "innodb_flush_log_at_trx_commit": (0, 3),
    "insert_id": (0, _U64_MAX),
    "last_insert_id": (0, _U64_MAX),
    "pseudo_thread_id": (0, _U32_MAX),
    "rand_seed1": (0, _U64_MAX),
    "rand_seed2": (0, _U64_MAX),
    "server_id": (1, _U32_MAX),
    "interactive_timeout": (1, 31536000),
    "net_read_timeout": (1, 31536000),
    "net_write_timeout": (1, 31536000),
    "wait_timeout": (1, 31536000),
}

# Shown as 1 and 0 by SELECT and as ON and OFF by SHOW.
BOOLEANS = frozenset(
    {
        "autocommit",
        "binlog_annotate_row_events",
        "check_constraint_checks",
        "encrypt_binlog",
        "explicit_defaults_for_timestamp",
        "foreign_key_checks",
        "gtid_strict_mode",
        "log_bin",
        "log_slave_updates",
        "performance_schema",
        "read_only",
        "skip_replication",
        "sql_auto_is_null",
        "sql_notes",
        "sql_quote_show_create",
        "transaction_read_only",
        "tx_read_only",
        "unique_checks",
    }
)

_LIKE_PART = re.compile(r"\\(.)|.", re.DOTALL)
# No character lowers to these: they are longer than one.
_ANY_TEXT = "any text"
_ANY_CHARACTER = "any character"
_WILD = {"%": _ANY_TEXT, "_": _ANY_CHARACTER}


def like_matches(pattern: str, name: str) -> bool:
    """SQL LIKE without case: % any text, _ any character, backslash takes the next as it is.

    In time pattern times name, whatever the pattern: after a mismatch only the last % takes one character more.
    """
    wanted = [
        (match[1] or match[0]).lower() if match[1] or match[0] not in _WILD else _WILD[match[0]]
        for match in _LIKE_PART.finditer(pattern)
    ]
    text = name.lower()
    at = in_text = 0
    last_any = resume = -1
    while in_text < len(text):
        part = wanted[at] if at < len(wanted) else None
        if part is _ANY_TEXT:
            last_any, resume = at, in_text
            at += 1
        elif part is not None and (part is _ANY_CHARACTER or part == text[in_text]):
            at += 1
            in_text += 1
        elif last_any >= 0:
            resume += 1
            at, in_text = last_any + 1, resume
        else:
            return False
    return all(part is _ANY_TEXT for part in wanted[at:])
