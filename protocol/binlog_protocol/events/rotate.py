"""ROTATE (4): the stream goes on in another file. Body: position u64, file name to the end.

A fake one, with timestamp 0, ARTIFICIAL and end_position 0, names the file to a replica before
anything of it is sent.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_ARTIFICIAL, HEADER_SIZE, build_event, parse_whole

_POSITION_SIZE: Final = 8

# Bytes of magic number at the front of a binlog file: where its first event lies.
FIRST_EVENT_POSITION: Final = 4


@dataclass(frozen=True, slots=True)
class RotateEvent:
    """A ROTATE event; `position` is a byte offset in the file `name`."""

    name: str
    server_id: int
    position: int = FIRST_EVENT_POSITION
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = 0

    @classmethod
    def fake(cls, name: str, server_id: int, position: int = FIRST_EVENT_POSITION) -> RotateEvent:
        """The one that opens a stream or a file for a replica."""
        return cls(name, server_id, position, header_flags=FLAG_ARTIFICIAL)

    @classmethod
    def parse(cls, event: bytes) -> RotateEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.ROTATE)
        body = event[HEADER_SIZE:]
        if len(body) <= _POSITION_SIZE:
            raise ProtocolError(f"ROTATE event of {len(event)} bytes")
        return cls(
            body[_POSITION_SIZE:].decode("utf-8", "surrogateescape"),
            header.server_id,
            int.from_bytes(body[:_POSITION_SIZE], "little"),
            header.timestamp,
            header.end_position,
            header.flags,
        )

    def build(self) -> bytes:
        """The event without checksum."""
        return build_event(
            EventType.ROTATE,
            self.position.to_bytes(_POSITION_SIZE, "little")
            + self.name.encode("utf-8", "surrogateescape"),
            server_id=self.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )
