"""What a replica makes of the packets of a dump: groups, heartbeats that it must be able to bear, and how it ends."""

from __future__ import annotations

from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_protocol.wire.results import parse_error

_SEMI_SYNC_MAGIC = 0xEF
_EOF_SIZE_MAX = 8  # an EOF packet is shorter than 9 bytes
_CHECKSUM_SIZE = 4
# What does not move a replica's position, and what does so only with an end position.
_STANDING = (EventType.HEARTBEAT, EventType.STOP, EventType.GTID_LIST)
_COUNTED_IF_PLACED = (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION)


def event_of(payload: bytes) -> bytes | None:
    """The event in a packet of a dump, with or without the semi-sync header; None for EOF and errors."""
    for start in (1, 3):
        event = payload[start:]
        if start == 3 and payload[1:2] != bytes((_SEMI_SYNC_MAGIC,)):
            return None
        if (
            payload[:1] == b"\0"
            and len(event) >= HEADER_SIZE
            and EventHeader.parse(event).length == len(event)
        ):
            return event
    return None


class Follower:
    """Takes packets one by one. `complaints` are what a MariaDB replica would have stopped at."""

    def __init__(self, *, checksums: bool = False, knows_gtids: bool = True) -> None:
        """`checksums`: what was negotiated; it holds until the first format description.

        `knows_gtids`: else there are only `commits`, and a GTID event is a complaint.
        """
        self.types: list[int] = []
        self.groups: list[EventGroup] = []
        self.commits = 0
        self.heartbeats = 0
        self.until_reached = False
        self.ended = False
        self.error: RemoteError | None = None
        self.complaints: list[str] = []
        self._assembler = EventGroupAssembler() if knows_gtids else None
        self._checksums = checksums
        self._file = ""
        self._position = 4

    def take(self, payload: bytes) -> None:
        if payload[:1] == b"\xff":
            self.error = parse_error(payload)
            self.ended = True
            return
        if payload[:1] == b"\xfe" and len(payload) <= _EOF_SIZE_MAX:
            self.ended = True
            return
        event = event_of(payload)
        if event is None:
            self.complaints.append(f"neither event nor EOF nor error: {payload[:30].hex()}")
            return
        self.types.append(event[4])
        if EventType.FORMAT_DESCRIPTION not in self.types[:2] and event[4] != EventType.ROTATE:
            self.complaints.append(f"event of type {event[4]} before the format description")
        try:
            self._look_at(event)
            self._count(event)
        except ProtocolError as error:
            self.complaints.append(f"event of type {event[4]}: {error}")

    def _look_at(self, event: bytes) -> None:
        match event[4]:
            case EventType.ROTATE:
                self._file = RotateEvent.parse(self._bare(event)).name
                return
            case EventType.HEARTBEAT:
                self.heartbeats += 1
                heartbeat = HeartbeatEvent.parse(self._bare(event))
                if heartbeat.name == self._file and heartbeat.position < self._position:
                    self.complaints.append(
                        f"heartbeat at {heartbeat.position}, the replica is at {self._position}"
                    )
                return
            case EventType.FORMAT_DESCRIPTION:
                described = FormatDescription.parse(event)
                self._checksums = described.checksum_algorithm == ChecksumAlgorithm.CRC32
            case EventType.GTID_LIST:
                gtid_list = GtidList.parse(self._bare(event))
                self.until_reached |= bool(gtid_list.flags & GtidListFlags.UNTIL_REACHED)
            case EventType.XID:
                self.commits += 1
            case EventType.GTID if self._assembler is None:
                self.complaints.append("a GTID event, which the client does not understand")
        if self._assembler is None:
            return
        group = self._assembler.feed(event)
        if isinstance(group, EventGroup):
            self.groups.append(group)

    def _bare(self, event: bytes) -> bytes:
        """Without its checksum, which is verified by the assembler where it is part of a group."""
        if not self._checksums:
            return event
        size = (len(event) - _CHECKSUM_SIZE).to_bytes(4, "little")
        return event[:9] + size + event[13:-_CHECKSUM_SIZE]

    def _count(self, event: bytes) -> None:
        """Where the replica believes to be, by MariaDB's rules."""
        header = EventHeader.parse(event)
        if header.type == EventType.ROTATE:
            self._position = RotateEvent.parse(self._bare(event)).position
            return
        placed = header.type not in _COUNTED_IF_PLACED or header.end_position
        if header.type not in _STANDING and placed:
            self._position += len(event)
        if header.type != EventType.HEARTBEAT:
            self._position = max(self._position, header.end_position)
