"""The options of commands that write change messages in Debezium's form."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from binlog_protocol.event_text.column_rules import ColumnRules
from binlog_protocol.event_text.debezium_form import DebeziumOptions
from binlog_protocol.event_text.debezium_values import DecimalHandling, Invalid


def add_message_options(
    parser: argparse.ArgumentParser, path_argument: Callable[[str], Path]
) -> None:
    """Declare them. `message_options` reads them. `path_argument`: reads a path, which is of a room above this one."""
    group = parser.add_argument_group("change messages")
    add = group.add_argument
    prefix = "topics are NAME.DB.TABLE, NAME (statements) and NAME.transaction; default: binlog"
    add("--topic-prefix", default="binlog", metavar="NAME", help=prefix)
    pattern: dict[str, Any] = {"action": "append", "default": [], "metavar": "DB.TABLE.COLUMN"}
    add("--exclude-column", **pattern, help="leave it out; * and ? as in file names; repeatable")
    add("--mask-column", **pattern, help="**** in place of its values; repeatable")
    add("--hash-column", **pattern, help="a SHA-256 in place of its values; repeatable")
    salt = "salt of --hash-column: without one, short values are found by trying all"
    add("--hash-salt-file", type=path_argument, metavar="FILE", help=salt)
    add(
        "--decimal-handling-mode",
        choices=[one.value for one in DecimalHandling],
        default=DecimalHandling.STRING.value,
        help="default: string",
    )
    invalid = "what becomes of zero dates, and of bytes that are no text; default: fail"
    add(
        "--invalid-values",
        choices=[one.value for one in Invalid],
        default=Invalid.FAIL.value,
        help=invalid,
    )
    transactions = "a message for the beginning and one for the end of each transaction"
    add("--transaction-metadata", action="store_true", help=transactions)
    tombstones = "no message without a value behind each DELETE"
    add("--no-tombstones", action="store_true", help=tombstones)
    statements = "go on without statements that change rows and are logged as text"
    add("--skip-statements", action="store_true", help=statements)


def message_options(arguments: argparse.Namespace) -> DebeziumOptions:
    """Raises `ValueError` for one that makes no sense, `OSError` for a salt that cannot be read."""
    salt_file: Path | None = arguments.hash_salt_file
    if arguments.hash_column and salt_file is None:
        raise ValueError("--hash-column needs --hash-salt-file FILE, a file of random bytes")
    columns = ColumnRules(
        arguments.exclude_column,
        arguments.mask_column,
        arguments.hash_column,
        b"" if salt_file is None else salt_file.read_bytes(),
    )
    return DebeziumOptions(
        prefix=arguments.topic_prefix,
        columns=columns,
        decimals=DecimalHandling(arguments.decimal_handling_mode),
        invalid=Invalid(arguments.invalid_values),
        transactions=arguments.transaction_metadata,
        tombstones=not arguments.no_tombstones,
        skip_statements=arguments.skip_statements,
    )
