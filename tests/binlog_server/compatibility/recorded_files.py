"""The binlog files of a recorded master, made again of what it sent: each event lay where its position says."""

from __future__ import annotations

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import FLAG_ARTIFICIAL, HEADER_SIZE, EventHeader
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION

from .recordings import Recording
from .stream import event_of

MAGIC = b"\xfebin"
_POSITION_BYTES = 8  # of a ROTATE, in front of the name


def events_of(packets: list[bytes]) -> list[bytes]:
    """The events of a dump, as they came."""
    return [event for event in map(event_of, packets) if event is not None]


def files_of(recording: Recording) -> dict[str, bytes] | None:
    """The files from their beginnings on, in order; None if the stream does not hold all of them.

    A stream without the checksums of the files does not: its format descriptions were changed.
    """
    files: dict[str, bytearray] = {}
    name = ""
    with_checksum = recording.stream_begins_with_checksum
    for event in events_of(recording.stream):
        header = EventHeader.parse(event)
        if not header.end_position or header.flags & FLAG_ARTIFICIAL:
            if header.type == EventType.ROTATE:
                end = len(event) - 4 * with_checksum
                name = event[HEADER_SIZE + _POSITION_BYTES : end].decode()
                files.setdefault(name, bytearray(MAGIC))
            continue
        if header.end_position - header.length != len(files[name]):
            return None
        if header.type == EventType.FORMAT_DESCRIPTION:
            with_checksum = bool(FormatDescription.parse(event).checksum_algorithm)
        files[name] += event
    whole = [
        len(data) > FIRST_EVENT_POSITION and data[8] == EventType.FORMAT_DESCRIPTION
        for data in files.values()
    ]
    return {name: bytes(data) for name, data in files.items()} if whole and all(whole) else None
