"""How a replica of 10.11 and 11.8 counts positions (slave.cc, queue_event): what a master must respect."""

from __future__ import annotations

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_ARTIFICIAL, EventHeader
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.rotate import RotateEvent

_STAY = {EventType.HEARTBEAT, EventType.STOP}
_ONLY_WITH_POSITION = {EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION}


class ReplicaPosition:
    """Fed with the events of a stream, without their checksums; `added` bytes of checksum count, too."""

    def __init__(self, *, checksum: bool = False) -> None:
        self.file = ""
        self.position = 4
        self._added = 4 if checksum else 0
        self._described = False

    def feed(self, event: bytes) -> None:
        """Raises AssertionError where a replica would stop."""
        header = EventHeader.parse(event)
        length = header.length + self._added
        if header.type == EventType.ROTATE:
            rotate = RotateEvent.parse(event)
            assert header.flags & FLAG_ARTIFICIAL
            self.file, self.position = rotate.name, rotate.position
            self._described = False
            return
        if header.type == EventType.FORMAT_DESCRIPTION:
            self._described = True
            length = len(event)  # which has its checksum in any case
        assert self._described, (
            "10.11 stops on an event behind a ROTATE that is no format description"
        )
        if header.type == EventType.HEARTBEAT:
            heartbeat = HeartbeatEvent.parse(event)
            assert heartbeat.name == self.file
            assert heartbeat.position >= self.position, "error 1623"
        elif header.type == EventType.GTID_LIST:
            self.position = max(self.position, header.end_position)
        elif header.type in _ONLY_WITH_POSITION:
            self.position += length if header.end_position else 0
        elif header.type not in _STAY:
            self.position = max(self.position + length, header.end_position)
