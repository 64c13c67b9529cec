"""Files, offsets and leases as statements show them: in the coordinates of the session, stored or classic ones."""

from __future__ import annotations

from typing import NamedTuple

from binlog_storage.engine import EngineReader, Position
from binlog_storage.errors import PositionPurged

from binlog_server.dumps.coordinates import Coordinates
from binlog_server.sql.time_zones import utc
from binlog_server.sql.view import Row, ServerView
from binlog_server.store.leases import Leases


def next_write(view: ServerView, coordinates: Coordinates) -> tuple[str, int]:
    """The write position as SHOW MASTER STATUS tells it: the file, and the offset in it in bytes."""
    return coordinates.place(view.engine.written_end)


class Snapshot(NamedTuple):
    """Where the binlog ended when a transaction's view of the tables was taken, and the GTID position there."""

    place: Position
    gtids: str


def snapshot(view: ServerView, coordinates: Coordinates, kept: Snapshot | None) -> dict[str, str]:
    """SHOW STATUS LIKE 'binlog_snapshot_%', by variable: of the session's snapshot, else of the end.

    Empty where nobody could use it: without positions of events, and without tables. Dump programs give the values to
    BINLOG_GTID_POS().
    """
    if not (coordinates.has_event_positions or view.tables.has_any):
        return {}
    if kept is not None:
        place = kept.place
    elif coordinates.has_event_positions:
        place = view.engine.written_end
    else:
        place = view.engine.durable_end  # what can be read, by BINLOG_GTID_POS(), too
    name, position = coordinates.place(place)
    shown = {"Binlog_snapshot_file": name, "Binlog_snapshot_position": str(position)}
    if kept is not None:
        shown["Binlog_snapshot_gtid"] = kept.gtids
    return shown


def stored_gtid_position(
    engine: EngineReader, end: Position, kept: Snapshot | None, file: object, position: object
) -> str | None:
    """BINLOG_GTID_POS in the coordinates of the store: what a replica has that has everything in front of a place.

    None where no group ends. `end`: that of what can be read. Reads the store.
    """
    number, offset = engine.file_number(str(file)), number_of(position)
    if number is None or offset is None or offset < engine.file_start:
        return None
    place = Position(number, offset)
    if kept is not None and place == kept.place:
        return kept.gtids
    try:
        if place > end or (offset > engine.file_start and not engine.locate(place).border):
            return None
        return str(engine.state_at(place).position())
    except PositionPurged:
        return None


def number_of(position: object) -> int | None:
    """A position from a number, or from digits in quotes, as mariadb-dump sends them; None from any other text."""
    text = str(position)
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def files(view: ServerView, coordinates: Coordinates) -> list[Row]:
    """SHOW BINARY LOGS: names and sizes in bytes, the oldest first."""
    engine = view.engine
    return [*coordinates.listed(engine.files(), engine.written_end)]


def leases(leases: Leases, coordinates: Coordinates) -> list[Row]:
    """SHOW BINLOG LEASES: the bytes that each holds stand last."""
    return [
        (
            lease.name,
            lease.position,
            coordinates.name(lease.from_file),
            utc(lease.created),
            None if lease.until is None else utc(lease.until),
            lease.max_bytes,
            held,
        )
        for lease, held in leases.all_held()
    ]
