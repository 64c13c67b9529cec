"""HEARTBEAT (27): sent when the stream is idle. Body: the file name, without NUL.

The position is in end_position of the header. One that does not fit 32 bits is put before the name
as u64, and end_position is 0; so end_position 0 always means "eight bytes of position first".

A replica stops for good when the name is that of its current file and the position lies before its
own count (error 1623). A position that is too large is harmless.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.gtid import U32_MAX

_POSITION_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class HeartbeatEvent:
    """A HEARTBEAT event; `position` is a byte offset in the file `name`."""

    name: str
    position: int
    server_id: int

    @classmethod
    def parse(cls, event: bytes) -> HeartbeatEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.HEARTBEAT)
        position, name = header.end_position, event[HEADER_SIZE:]
        if position == 0:
            position, name = int.from_bytes(name[:_POSITION_SIZE], "little"), name[_POSITION_SIZE:]
        if not name:
            raise ProtocolError("heartbeat without a file name")
        return cls(name.decode("utf-8", "surrogateescape"), position, header.server_id)

    def build(self) -> bytes:
        """The event without checksum."""
        if not self.name:
            raise ValueError("a replica stops on a heartbeat without a file name")
        name = self.name.encode("utf-8", "surrogateescape")
        if 0 < self.position <= U32_MAX:
            return build_event(
                EventType.HEARTBEAT, name, server_id=self.server_id, end_position=self.position
            )
        body = self.position.to_bytes(_POSITION_SIZE, "little") + name
        return build_event(EventType.HEARTBEAT, body, server_id=self.server_id)
