"""Files and offsets as statements show them. All of them ask here, so that a session can be shown other ones."""

from __future__ import annotations

from binlog_server.admin.view import Row, ServerView
from binlog_server.dumps.coordinates import Coordinates


def next_write(view: ServerView, coordinates: Coordinates) -> tuple[str, int]:
    """SHOW MASTER STATUS: the file and the offset in it."""
    name, offset = view.engine.status()
    return coordinates.name(name), coordinates.position(offset)


def snapshot(view: ServerView, coordinates: Coordinates) -> dict[str, str]:
    """SHOW STATUS LIKE 'binlog_snapshot_%': dump programs take it to BINLOG_GTID_POS(), which only the classic
    coordinates have."""
    if not coordinates.classic:
        return {}
    name, position = next_write(view, coordinates)
    return {"Binlog_snapshot_file": name, "Binlog_snapshot_position": str(position)}


def files(view: ServerView, coordinates: Coordinates) -> list[Row]:
    """SHOW BINARY LOGS: names and sizes in bytes, the oldest first."""
    return [
        (coordinates.name(name), coordinates.position(size)) for name, size in view.engine.files()
    ]
