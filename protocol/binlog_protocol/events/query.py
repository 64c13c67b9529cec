"""QUERY (2): a statement.

======  ==============================================
bytes   field (offsets in the body)
======  ==============================================
0..3    thread id
4..7    execution time in seconds
8       length of the database name
9..10   error code
11..12  length of the status variables
13..    status variables, database name, 00, statement
======  ==============================================

Status variables are passed through as bytes. There is no BEGIN in a MariaDB binlog (the GTID event
is the beginning); a group of a non-transactional table ends with the statement COMMIT.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.values import Cursor

_FIXED: Final = struct.Struct("<IIBHH")
assert _FIXED.size == 13

_GROUP_END_TEXTS: Final = (b"COMMIT", b"ROLLBACK")
_GROUP_END_BYTES_MAX: Final = max(map(len, _GROUP_END_TEXTS))
_STATUS_LENGTH_OFFSET: Final = HEADER_SIZE + 11
_DATABASE_LENGTH_OFFSET: Final = HEADER_SIZE + 8
STATUS_VARIABLES_OFFSET: Final = HEADER_SIZE + _FIXED.size


class QueryHead(NamedTuple):
    """The head of QUERY and QUERY_COMPRESSED, in front of the statement. `end`: the offset of the statement."""

    thread_id: int
    execution_seconds: int
    error_code: int
    status_variables: bytes
    database: bytes
    end: int

    @classmethod
    def take(cls, cursor: Cursor) -> QueryHead:
        """The head, read from the beginning of the body on. Raises `ProtocolError`."""
        thread_id, seconds, database_size, error_code, status_size = _FIXED.unpack(
            cursor.take(_FIXED.size)
        )
        status_variables = cursor.take(status_size)
        database = cursor.take(database_size)
        if cursor.integer(1):
            raise ProtocolError("QUERY event: no NUL ends the database name")
        return cls(thread_id, seconds, error_code, status_variables, database, cursor.position)


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A QUERY event; text and names are the bytes of the connection that ran it."""

    text: bytes
    server_id: int
    database: bytes = b""
    status_variables: bytes = b""
    thread_id: int = 0
    execution_seconds: int = 0
    error_code: int = 0
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = 0

    @classmethod
    def parse(cls, event: bytes) -> QueryEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.QUERY)
        head = QueryHead.take(Cursor(event, "QUERY event", HEADER_SIZE))
        return cls(
            event[head.end :],
            header.server_id,
            head.database,
            head.status_variables,
            head.thread_id,
            head.execution_seconds,
            head.error_code,
            header.timestamp,
            header.end_position,
            header.flags,
        )

    def build(self) -> bytes:
        """The event without checksum."""
        body = (
            _FIXED.pack(
                self.thread_id,
                self.execution_seconds,
                len(self.database),
                self.error_code,
                len(self.status_variables),
            )
            + self.status_variables
            + self.database
            + b"\0"
            + self.text
        )
        return build_event(
            EventType.QUERY,
            body,
            server_id=self.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )

    @property
    def ends_group(self) -> bool:
        """Whether the statement is exactly COMMIT or ROLLBACK."""
        return self.text in _GROUP_END_TEXTS


def query_ends_group(event: bytes) -> bool:
    """Whether a QUERY event without checksum is exactly COMMIT or ROLLBACK: the hot path.

    Raises `ProtocolError` when it is too short for a QUERY event.
    """
    if len(event) <= STATUS_VARIABLES_OFFSET:
        raise ProtocolError(f"QUERY event of {len(event)} bytes")
    status_size = event[_STATUS_LENGTH_OFFSET] | event[_STATUS_LENGTH_OFFSET + 1] << 8
    text_offset = STATUS_VARIABLES_OFFSET + status_size + event[_DATABASE_LENGTH_OFFSET] + 1
    if text_offset > len(event):
        raise ProtocolError("QUERY event: its statement begins after its end")
    return event[text_offset : text_offset + _GROUP_END_BYTES_MAX + 1] in _GROUP_END_TEXTS
