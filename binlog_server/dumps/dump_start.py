"""The start of a dump: the place behind a GTID position, or a position in a file. Waits for the disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.classic_positions import OVERTAKEN, POSITIONS_PER_BYTE, position_of
from binlog_protocol.dump.dump_position import check_position
from binlog_protocol.errors import (
    FirstFileMissing,
    GtidPurged,
    ImpossiblePosition,
    PositionInsideOvertaken,
)
from binlog_protocol.events.format_description import FORMAT_DESCRIPTION_SIZE
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState
from binlog_protocol.wire.event_frames import EventFrames
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import EngineReader, LargeGroup, Position
from binlog_storage.errors import PositionPurged, UnknownBinlog

from binlog_server.dumps.coordinates import classic_name, classic_number
from binlog_server.dumps.dump_request import DumpRequest, FilePosition
from binlog_server.dumps.frame_style import FrameStyle
from binlog_server.dumps.large_group_frames import LargeGroupFrames
from binlog_server.dumps.stream_places import files_of

_BEHIND_DESCRIPTION: Final = FIRST_EVENT_POSITION + FORMAT_DESCRIPTION_SIZE


@dataclass(frozen=True, slots=True)
class DumpStart:
    """Read from `cursor` on; `state` is the binlog state there, and only known with GTID.

    The replica is at `position` of file `file_no`, in the coordinates of its style. `rest` comes before everything
    else: the events that it lacks of the group which it is inside of; `large_rest` of a large one. `reached`: see
    `StreamPlace.open`.
    """

    cursor: Position
    state: BinlogState
    file_no: int
    position: int
    rest: EventFrames | None = None
    large_rest: LargeGroupFrames | None = None
    reached: Sequence[tuple[int, BinlogState]] = ()


def start_of(request: DumpRequest, engine: EngineReader) -> DumpStart:
    """Raises `MasterFatalError` (1236), with MariaDB's texts."""
    if request.file_position is not None:
        if request.style.keeps_ends:
            return _in_a_file(request, request.file_position, files_of(engine))
        return _at_file_position(request.file_position, request.style, engine)
    check_position(
        engine.binlog_state(),
        request.position,
        ignore_duplicates=request.ignore_duplicates,
        until=request.until,
    )
    try:
        cursor, state = engine.find_start(request.position)
    except PositionPurged:
        raise GtidPurged() from None
    reached = request.style.reached(engine, cursor, request.position)
    position = request.style.position(cursor.offset)
    return DumpStart(cursor, state, cursor.file_no, position, reached=reached)


def _at_file_position(wanted: FilePosition, style: FrameStyle, engine: EngineReader) -> DumpStart:
    """A position is one of: 4, the end of the format description, the end of a group, the end of an event in one."""
    file_no = _number_of(wanted.file, engine, classic_number)
    name, position = classic_name(file_no), wanted.position
    if position in (FIRST_EVENT_POSITION, _BEHIND_DESCRIPTION):
        return DumpStart(_first_of(file_no, engine), BinlogState(), file_no, position)
    if position > OVERTAKEN:
        raise PositionInsideOvertaken(name, position)
    offset = position // POSITIONS_PER_BYTE
    if offset < engine.file_start:
        raise ImpossiblePosition(name, position)
    place = Position(file_no, offset)
    try:
        found = engine.locate(place)
    except PositionPurged:
        raise FirstFileMissing() from None
    if position == position_of(offset) and (found.border or place == engine.written_end):
        return DumpStart(place, BinlogState(), file_no, position)
    if isinstance(found.group, LargeGroup):
        large_rest = LargeGroupFrames(found.group, style, start=position)
        if not large_rest.begins_at(position):
            raise ImpossiblePosition(name, position)
        return DumpStart(found.after, BinlogState(), file_no, position, large_rest=large_rest)
    rest = None if found.group is None else style.rest_of(found.group, position)
    if rest is None:
        raise ImpossiblePosition(name, position)
    return DumpStart(found.after, BinlogState(), file_no, position, rest)


def _in_a_file(request: DumpRequest, wanted: FilePosition, engine: ClassicEngine) -> DumpStart:
    """A position is 4, or that of an event, of which the replica gets the rest of the group."""
    file_no = _number_of(wanted.file, engine, engine.file_number)
    name, position = engine.file_name(file_no), wanted.position
    place = Position(file_no, position)
    try:
        head = engine.head(file_no)
        begins = itertools.accumulate(map(len, head.events), initial=FIRST_EVENT_POSITION)
        if place > engine.durable_end:
            engine.sync()
        if position in begins:
            start = min(place, engine.durable_end) if position > FIRST_EVENT_POSITION else place
            return DumpStart(start, BinlogState(), file_no, position)
        cursor, rest = engine.from_event(place)
    except PositionPurged:
        raise FirstFileMissing() from None
    except UnknownBinlog:
        raise ImpossiblePosition(name, position) from None
    style = request.style
    if request.as_in_files:
        style = style.sealed_as(checksum=bool(head.description.checksum_algorithm))
    frames = None if rest is None else LargeGroupFrames(rest, style, place)
    return DumpStart(cursor, BinlogState(), file_no, position, large_rest=frames)


def _first_of(file_no: int, engine: EngineReader) -> Position:
    """The first group that begins in the file: before it may lie the rest of one that began in the file before."""
    beginning = Position(file_no, engine.file_start)
    if engine.durable_end < beginning:
        engine.sync()  # the file was begun, but what it begins with is not there for readers
    try:
        return engine.locate(beginning).begin
    except PositionPurged:
        raise FirstFileMissing() from None


def _number_of(name: str, engine: EngineReader, number_of: Callable[[str], int | None]) -> int:
    """The number of the file; the oldest without a name."""
    numbers = [file.number for file in engine.files()]
    numbers.append(engine.durable_end.file_no)  # perhaps begun, and in no directory yet
    wanted = number_of(name) if name else numbers[0]
    if wanted is None or wanted not in numbers:
        raise FirstFileMissing()
    return wanted
