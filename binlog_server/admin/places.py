"""Files and offsets as statements show them. All of them ask here, so that a session can be shown other ones."""

from __future__ import annotations

from binlog_server.admin.view import Row, ServerView


def next_write(view: ServerView) -> tuple[str, int]:
    """SHOW MASTER STATUS: the file and the offset in it.

    Not shown as Binlog_snapshot_*: dump programs would take that to BINLOG_GTID_POS().
    """
    return view.engine.status()


def files(view: ServerView) -> list[Row]:
    """SHOW BINARY LOGS: names and sizes in bytes, the oldest first."""
    return list(view.engine.files())
