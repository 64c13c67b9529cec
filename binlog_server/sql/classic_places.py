"""Answers for sessions whose events have positions only: BINLOG_GTID_POS, and SHOW BINLOG EVENTS with positions.

Of classic coordinates, which are made for an `.ibb` store, and of traditional files, which have them (`file_`...).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from binlog_protocol.dump.classic_positions import (
    POSITIONS_PER_BYTE,
    ends_behind,
    event_lengths,
    position_of,
)
from binlog_protocol.event_text.info import event_info, event_type_name
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.format_description import FORMAT_DESCRIPTION_SIZE
from binlog_protocol.events.header import EventHeader
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import EngineReader, LargeGroup, PlacedGroup, Position
from binlog_storage.errors import PositionPurged, UnknownBinlog

from binlog_server.dumps.coordinates import AS_CLASSIC, classic_number
from binlog_server.dumps.frame_style import ClassicStyle, FrameStyle
from binlog_server.sql.places import number_of
from binlog_server.sql.view import Row

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_IN_HEAD = (FIRST_EVENT_POSITION, FIRST_EVENT_POSITION + FORMAT_DESCRIPTION_SIZE)


def style_for(session: SqlSession) -> FrameStyle | None:
    """The style that gives events their positions in this session; None for one that makes none.

    It is that of a replica that asks for all events.
    """
    if session.coordinates is not AS_CLASSIC:
        return None
    return ClassicStyle(
        annotate=True,
        skip_marked=False,
        checksum=session.server.config.binlog_checksum == ChecksumAlgorithm.CRC32.name,
    )


def gtid_position(
    engine: EngineReader, style: FrameStyle, file: object, position: object
) -> str | None:
    """BINLOG_GTID_POS: the GTID position of a replica that has everything before a file and position.

    A group counts as soon as its first event lies before the position, as in MariaDB. None where the binlog has no
    event border at the position.
    """
    file_no, at = classic_number(str(file)), number_of(position)
    if file_no is None or at is None:
        return None
    try:
        if at in _IN_HEAD:
            return str(engine.state_at(Position(file_no, engine.file_start)).position())
        offset = at // POSITIONS_PER_BYTE
        if offset < engine.file_start:
            return None
        place = Position(file_no, offset)
        found = engine.locate(place)
        if found.border and at == position_of(offset):
            return str(engine.state_at(place).position())
        if found.group is None:
            return None
        group = _whole(found.group)
        if style.rest_of(group, at) is None:
            return None
        lengths = event_lengths(style.events(group.payload), checksum=style.checksum)
        begins = at == position_of(group.end.offset) - sum(lengths)
        return str(engine.state_at(found.begin if begins else found.after).position())
    except PositionPurged:
        return None


def file_gtid_position(engine: ClassicEngine, file: object, position: object) -> str | None:
    """The same over traditional files."""
    oldest = min(dict(engine.files())) if file == "" else None
    file_no, at = oldest or engine.file_number(str(file)), number_of(position)
    if file_no is None or at is None:
        return None
    at = max(at, FIRST_EVENT_POSITION)  # a place in front of the events is their beginning
    place = Position(file_no, at)
    try:
        head = engine.head(file_no)
        if at in itertools.accumulate(map(len, head.events), initial=FIRST_EVENT_POSITION):
            return str(head.state.position())
        if place > engine.durable_end:
            return None
        return str(engine.state_at(engine.from_event(place)[0]).position())
    except (PositionPurged, UnknownBinlog):
        return None


def file_event_rows(engine: ClassicEngine, number: int | None, start: int) -> Iterator[Row]:
    """SHOW BINLOG EVENTS of a traditional file: all its events, those of its head, too. End_log_pos is as stored.

    Raises `StorageError`, `ProtocolError`.
    """
    if number is None:
        raise UnknownBinlog("Could not find target log")
    name = engine.file_name(number)
    for offset, event in engine.events_of_file(number, max(start, FIRST_EVENT_POSITION)):
        header = EventHeader.parse(event)
        yield (
            name,
            offset,
            event_type_name(event),
            header.server_id,
            header.end_position,
            event_info(event),
        )


def event_rows(
    engine: EngineReader, style: FrameStyle, file: str | None, start: int
) -> Iterator[Row]:
    """Rows of SHOW BINLOG EVENTS: the events of one file from a position on. Memory holds one batch of groups.

    Pos is 0 for events of an overtaken group: no replica can begin inside it.

    Raises `StorageError`, `ProtocolError`.
    """
    file_no = AS_CLASSIC.number(file) if file else min(dict(engine.files()), default=0)
    hold = engine.hold("SHOW BINLOG EVENTS")
    try:
        offset = max(engine.file_start, start // POSITIONS_PER_BYTE)
        before = position_of(engine.file_start)
        for group in _groups(engine, Position(file_no, offset)):
            events = style.events(group.payload)
            lengths = event_lengths(events, checksum=style.checksum)
            end = position_of(group.end.offset)
            ends, overtaken = ends_behind(lengths, end, before)
            for event, length, end_position in zip(events, lengths, ends, strict=True):
                at = 0 if overtaken else end_position - length
                if at < start and not overtaken:
                    continue
                whole = bytes(event)
                yield (
                    AS_CLASSIC.name(file_no),
                    at,
                    event_type_name(whole),
                    EventHeader.parse(whole).server_id,
                    end_position,
                    event_info(whole),
                )
            before = end
    finally:
        hold.release()


def _groups(engine: EngineReader, place: Position) -> Iterator[PlacedGroup]:
    """The groups of a file that end behind a place in it."""
    found = engine.locate(place)
    start = found.after
    if found.group is not None:
        yield _whole(found.group)
    while start.file_no == place.file_no and start < engine.durable_end:
        batch = engine.read_placed(start)
        yield from batch.groups
        if batch.large is not None:
            yield _whole(batch.large)
        start = batch.end


def _whole(group: PlacedGroup | LargeGroup) -> PlacedGroup:
    """A group with all its bytes in memory, however large: the positions inside it need the length of each event."""
    if isinstance(group, LargeGroup):
        return PlacedGroup(b"".join(group.pieces()), group.end)
    return group
