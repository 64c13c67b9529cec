"""XID (16): commits a group of transactional tables. Body: the transaction number, u64."""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole

_BODY_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID event."""

    xid: int
    server_id: int
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = 0

    @classmethod
    def parse(cls, event: bytes) -> XidEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event)
        if header.type != EventType.XID or len(event) != HEADER_SIZE + _BODY_SIZE:
            raise ProtocolError(f"event of type {header.type}, {len(event)} bytes, is no XID event")
        xid = int.from_bytes(event[HEADER_SIZE:], "little")
        return cls(xid, header.server_id, header.timestamp, header.end_position, header.flags)

    def build(self) -> bytes:
        """The event without checksum."""
        return build_event(
            EventType.XID,
            self.xid.to_bytes(_BODY_SIZE, "little"),
            server_id=self.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )
