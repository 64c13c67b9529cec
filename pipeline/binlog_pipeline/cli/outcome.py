"""The outcome of a command that has kept a table, and of a dry run into a target: text and exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from binlog_storage.console.output import show_json
from binlog_storage.console.running import EXIT_FAILED

if TYPE_CHECKING:
    from binlog_pipeline.jobs.outlook import Outlook
    from binlog_pipeline.jobs.state import Kept
    from binlog_pipeline.tables.sinks import TableSink

_FROM_BEFORE = (
    "the log has no CREATE TABLE of it, nor TRUNCATE, so rows from before may be missing. Begin a new target with "
    "a copy of the table and the GTID position at which it was made (--copy, --start-gtid); or, if there are no "
    "such rows, take it as it is with --option nonRow=skip"
)


def told(
    target: Path | str,
    kept: Kept | TableSink,
    *,
    is_strict: bool,
    facts: Mapping[str, object] | None = None,
) -> int:
    """0 if the target is right, or it is accepted that it may not be; else it is said why not.

    facts: what else an object of --json has; None without --json.
    """
    why = None if kept.is_complete else kept.doubt or _FROM_BEFORE
    if facts is not None:
        show_json(as_object(target, kept, facts))
    elif why is not None:
        print(f"binlog-spark: {target} may not be complete: {why}", file=sys.stderr)
    return EXIT_FAILED if why is not None and is_strict else 0


def as_object(
    target: Path | str, kept: Kept | TableSink, facts: Mapping[str, object]
) -> dict[str, object]:
    """The object of --json: of the target, with `facts` among it."""
    why = None if kept.is_complete else kept.doubt or _FROM_BEFORE
    known = {"target": str(target), "position": str(kept.position)}
    return {**known, **facts, "complete": why is None, "doubt": why}


def would(target: Path | str, found: Outlook, *, as_json: bool) -> int:
    """Say what --dry-run has found. Returns the exit code."""
    if as_json:
        show_json(
            {
                "target": str(target),
                "new": found.is_new,
                "begin": str(found.begin),
                "end": str(found.end),
                "bytes": found.bytes,
                "dry_run": True,
            }
        )
    elif found.begin == found.end:
        print(f"nothing new: {target} is at '{found.begin}'")
    else:
        size = (
            ""
            if found.bytes is None
            else f"; at most {found.bytes / (1 << 20):.1f} MiB of the log are read"
        )
        made = "would be made" if found.is_new else "would go on"
        print(f"{target} {made} from '{found.begin}' to '{found.end}'{size}")
    return 0
