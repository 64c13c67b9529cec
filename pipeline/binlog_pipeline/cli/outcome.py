"""The outcome of a command that has kept a table: its text and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binlog_pipeline.jobs.state import Kept
    from binlog_pipeline.tables.sinks import TableSink

_FROM_BEFORE = (
    "the log has no CREATE TABLE of it, nor TRUNCATE, so rows from before may be missing. Begin a new target with "
    "a copy of the table and the GTID position at which it was made (--copy, --start-gtid); or, if there are no "
    "such rows, take it as it is with --option nonRow=skip"
)


def told(target: Path, kept: Kept | TableSink, *, is_strict: bool) -> int:
    """0 if the target is right, or it is accepted that it may not be; else it is said why not."""
    from binlog_pipeline.cli import EXIT_FAILED

    if kept.is_complete:
        return 0
    why = kept.doubt or _FROM_BEFORE
    print(f"binlog-spark: {target} may not be complete: {why}", file=sys.stderr)
    return EXIT_FAILED if is_strict else 0
