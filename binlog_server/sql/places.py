"""Files and offsets as statements show them: in the coordinates of the session, stored or classic ones."""

from __future__ import annotations

from binlog_storage.engine import BinlogFile

from binlog_server.dumps.coordinates import Coordinates
from binlog_server.sql.view import Row, ServerView


def next_write(view: ServerView, coordinates: Coordinates) -> tuple[str, int]:
    """The write position as SHOW MASTER STATUS tells it: the file, and the offset in it in bytes."""
    end = view.engine.written_end
    return coordinates.name(end.file_no), coordinates.position(end.offset)


def snapshot(view: ServerView, coordinates: Coordinates) -> dict[str, str]:
    """SHOW STATUS LIKE 'binlog_snapshot_%', by variable; empty but in classic coordinates.

    Dump programs give the values to BINLOG_GTID_POS(), which only sessions with classic coordinates have.
    """
    if not coordinates.classic:
        return {}
    name, position = next_write(view, coordinates)
    return {"Binlog_snapshot_file": name, "Binlog_snapshot_position": str(position)}


def files(view: ServerView, coordinates: Coordinates) -> list[Row]:
    """SHOW BINARY LOGS: names and sizes in bytes, the oldest first.

    As with MariaDB's engine the file made ahead is listed, too, and the one being written with its physical size. A
    traditional binlog ends with the one being written, as far as it is written: programs take that row for the end.
    """
    found = view.engine.files()
    if coordinates.classic:
        end = view.engine.written_end
        found = [*(f for f in found if f.number < end.file_no), BinlogFile(*end)]
    return [(coordinates.name(number), coordinates.position(size)) for number, size in found]
