"""Semi-synchronous replication: what stands in front of events, and what a replica answers.

A replica that has said `SET @rpl_semi_sync_slave=1` gets two more bytes in front of each event: `ef`, and a flag that
is 1 where it is to acknowledge the event. Behind such a packet the master numbers its packets from 1 again.

    status byte   00
    magic         ef
    flag          00 or 01
    event

The replica answers on the same socket, with sequence number 0, how far it has stored the stream:

    magic         ef
    position      u64
    file name     to the end

Position and name are the replica's own count, which `ReplicaPlace` repeats (10.11 and 11.8: slave.cc, queue_event).
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import EventHeader
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION, RotateEvent
from binlog_protocol.wire.packets import frame_packet

MAGIC: Final = 0xEF
ACK_WANTED: Final = 1
# Status byte, magic, flag.
STATUS: Final = bytes((0, MAGIC, 0))
STATUS_WITH_ACK: Final = bytes((0, MAGIC, ACK_WANTED))
FLAG_OFFSET: Final = 2
SEQUENCE_AFTER_ACK: Final = 1
"""The sequence number of the packet behind one that is to be acknowledged."""

_POSITION_END: Final = 9
# A file name has at most 512 bytes (FN_REFLEN).
ACK_BYTES_MAX: Final = _POSITION_END + 512

_STAY: Final = frozenset({EventType.HEARTBEAT, EventType.STOP})
_ONLY_WITH_POSITION: Final = frozenset({EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION})


@dataclass(frozen=True, slots=True)
class Ack:
    """The replica has stored the stream up to that place, in its own count."""

    file: str
    position: int

    @classmethod
    def parse(cls, payload: bytes) -> Ack | None:
        """The acknowledgement in a packet; None for another packet: clients send pings and COM_QUIT, too.

        Raises `ProtocolError` for one that is cut off.
        """
        if payload[:1] != bytes((MAGIC,)):
            return None
        if not _POSITION_END < len(payload) <= ACK_BYTES_MAX:
            raise ProtocolError(f"an acknowledgement of {len(payload)} bytes")
        position = int.from_bytes(payload[1:_POSITION_END], "little")
        name = payload[_POSITION_END:].decode("utf-8", "surrogateescape")
        return cls(name, position)

    def build(self) -> bytes:
        """The bytes of the packet."""
        payload = (
            bytes((MAGIC,))
            + self.position.to_bytes(_POSITION_END - 1, "little")
            + self.file.encode("utf-8", "surrogateescape")
        )
        return frame_packet(payload, 0)[0]


def parse_event(payload: bytes) -> tuple[bytes, bool]:
    """The event in a packet of the stream, and whether it is to be acknowledged. Raises `ProtocolError`.

    `payload`: as of `behind`.
    """
    if payload[:FLAG_OFFSET] != STATUS[:FLAG_OFFSET] or len(payload) < len(STATUS):
        raise ProtocolError(
            f"a packet of the stream without the semi-sync header: {payload[:8].hex()}"
        )
    ack_wanted = bool(payload[FLAG_OFFSET] & ACK_WANTED)
    return behind(payload, len(STATUS)), ack_wanted


def behind(payload: bytes | bytearray, status_size: int) -> bytes:
    """The event in the payload of a packet. Of a bytearray, which must be the caller's own, without a copy: it becomes
    the event.
    """
    if isinstance(payload, bytearray):
        del payload[:status_size]  # at the front: nothing moves
        return cast(bytes, payload)
    return payload[status_size:]


class PositionStep(NamedTuple):
    """The step of a replica's position over events: `max(position + advance, floor)`. Two such steps make one."""

    advance: int = 0
    floor: int = 0

    @classmethod
    def of(cls, type_: int, length: int, end_position: int) -> PositionStep:
        """The step over one event that is no ROTATE, with the length that it is sent with, checksum included."""
        if type_ in _STAY:
            return STILL
        if type_ == EventType.GTID_LIST:
            return cls(0, end_position)
        if type_ in _ONLY_WITH_POSITION:
            return cls(length if end_position else 0)
        return cls(length, end_position)

    def then(self, later: PositionStep) -> PositionStep:
        """This count followed by another."""
        advance, floor = later
        return PositionStep(self.advance + advance, max(self.floor + advance, floor))

    def moved(self, position: int) -> int:
        """The position behind these events."""
        return max(position + self.advance, self.floor)


STILL: Final = PositionStep()


class ReplicaPlace:
    """The place of a replica in a stream that it gets, by its own count."""

    __slots__ = ("file", "position")

    def __init__(self) -> None:
        self.file = ""
        self.position = FIRST_EVENT_POSITION

    @property
    def ack(self) -> Ack:
        """The acknowledgement for everything so far."""
        return Ack(self.file, self.position)

    def feed(self, event: bytes, checksum_algorithm: int = 0) -> None:
        """The next event as it was sent, with the checksum that it has. Raises `ProtocolError`."""
        header = EventHeader.parse(event)
        if header.type == EventType.ROTATE:
            rotate = RotateEvent.parse(strip_checksum(event, checksum_algorithm))
            self.file, self.position = rotate.name, rotate.position
        else:
            self.move(PositionStep.of(header.type, len(event), header.end_position))

    def follow(self, other: ReplicaPlace) -> None:
        """Move to another place."""
        self.file, self.position = other.file, other.position

    def move(self, step: PositionStep) -> None:
        """Move over events that were counted elsewhere."""
        advance, floor = step
        self.position = max(self.position + advance, floor)  # as `moved`, which costs a call
