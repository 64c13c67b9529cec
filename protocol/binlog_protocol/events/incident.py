"""INCIDENT (26): the server that wrote it has lost changes here. It stands outside groups, and has no GTID.

======  ====================================================================================
bytes   field (offsets in the body)
======  ====================================================================================
0..1    number of the incident: 1 is LOST_EVENTS, the one that there is
2       length of the message
3..     message, such as `error writing to the binary log`
======  ====================================================================================

MariaDB writes it when a change to a table without transactions cannot be logged. A replica stops at it, with error
1590. As 10.11 and 11.8 write it.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.values import Cursor

LOST_EVENTS: Final = 1


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """An INCIDENT event; `timestamp` in seconds since 1970."""

    message: str
    server_id: int
    number: int = LOST_EVENTS
    timestamp: int = 0

    @classmethod
    def parse(cls, event: bytes) -> IncidentEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.INCIDENT)
        cursor = Cursor(event, "incident event", HEADER_SIZE)
        number = cursor.integer(2)
        message = cursor.short_bytes().decode("utf-8", "replace")
        return cls(message, header.server_id, number, header.timestamp)

    def build(self) -> bytes:
        """The event without checksum."""
        message = self.message.encode()
        body = self.number.to_bytes(2, "little") + bytes((len(message),)) + message
        return build_event(
            EventType.INCIDENT, body, server_id=self.server_id, timestamp=self.timestamp
        )

    @property
    def name(self) -> str:
        """The name of the incident, as MariaDB has it."""
        return "LOST_EVENTS" if self.number == LOST_EVENTS else f"number {self.number}"

    def __str__(self) -> str:
        """The incident in the words of MariaDB's error 1590."""
        message = self.message or "<none>"
        return f"The incident {self.name} occurred on the master. Message: {message}"
