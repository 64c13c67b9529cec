"""The outcome of a command that has kept a table: its text and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path

_FROM_BEFORE = (
    "the log has no CREATE TABLE of it, nor TRUNCATE, so rows from before may be missing. Begin a new target with "
    "a copy of the table and the GTID position at which it was made (--copy, --start-gtid); or, if there are no "
    "such rows, take it as it is with --option nonRow=skip"
)


def told(target: Path, *, is_complete: bool, doubt: str, is_strict: bool) -> int:
    """0 if the target is right, or it is accepted that it may not be; else it is said why not."""
    from binlog_pipeline.cli import EXIT_FAILED

    if is_complete:
        return 0
    print(f"binlog-spark: {target} may not be complete: {doubt or _FROM_BEFORE}", file=sys.stderr)
    return EXIT_FAILED if is_strict else 0
