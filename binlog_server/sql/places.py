"""Files and offsets as statements show them: in the coordinates of the session, stored or classic ones."""

from __future__ import annotations

from binlog_server.dumps.coordinates import Coordinates
from binlog_server.sql.view import Row, ServerView


def next_write(view: ServerView, coordinates: Coordinates) -> tuple[str, int]:
    """The write position as SHOW MASTER STATUS tells it: the file, and the offset in it in bytes."""
    return coordinates.place(view.engine.written_end)


def snapshot(view: ServerView, coordinates: Coordinates) -> dict[str, str]:
    """SHOW STATUS LIKE 'binlog_snapshot_%', by variable; empty without positions of events.

    Dump programs give the values to BINLOG_GTID_POS().
    """
    if not coordinates.has_event_positions:
        return {}
    name, position = next_write(view, coordinates)
    return {"Binlog_snapshot_file": name, "Binlog_snapshot_position": str(position)}


def files(view: ServerView, coordinates: Coordinates) -> list[Row]:
    """SHOW BINARY LOGS: names and sizes in bytes, the oldest first."""
    engine = view.engine
    return [*coordinates.listed(engine.files(), engine.written_end)]
