"""LOAD DATA in statement format: BEGIN_LOAD_QUERY (17), APPEND_BLOCK (9), EXECUTE_LOAD_QUERY (18), DELETE_FILE (11).

======  =====================================================================================
17, 9   file id u32, then a piece of the file
11      file id u32: the file is not needed after all
18      as QUERY, but between its fixed part (13 bytes) and the status variables: file id u32,
        first and last offset in the statement of the text between LOAD DATA and INTO that a
        replica replaces by its own file, u32 each, and u8: 0 errors for duplicates, 1 IGNORE,
        2 REPLACE
======  =====================================================================================
"""

from __future__ import annotations

import struct
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.events.query import QueryEvent

_FILE_ID_SIZE: Final = 4
_QUERY_FIXED_SIZE: Final = 13
_OWN: Final = struct.Struct("<IIIB")
assert _OWN.size == 13

_PIECES: Final = (EventType.BEGIN_LOAD_QUERY, EventType.APPEND_BLOCK)


@dataclass(frozen=True, slots=True)
class LoadPiece:
    """A BEGIN_LOAD_QUERY or APPEND_BLOCK event."""

    file_id: int
    data: bytes

    @classmethod
    def parse(cls, event: bytes) -> LoadPiece:
        """Read an event without checksum; raises `ProtocolError`."""
        if parse_whole(event).type not in _PIECES or len(event) < HEADER_SIZE + _FILE_ID_SIZE:
            raise ProtocolError(
                f"event of type {event[4]}, {len(event)} bytes, is no piece of a file"
            )
        body = event[HEADER_SIZE:]
        return cls(int.from_bytes(body[:_FILE_ID_SIZE], "little"), body[_FILE_ID_SIZE:])

    def build(self, *, server_id: int, timestamp: int = 0, is_first: bool = True) -> bytes:
        """The event without checksum: of the first piece of a file, or of a later one."""
        return build_event(
            _PIECES[0] if is_first else _PIECES[1],
            self.file_id.to_bytes(_FILE_ID_SIZE, "little") + self.data,
            server_id=server_id,
            timestamp=timestamp,
        )


@dataclass(frozen=True, slots=True)
class ExecuteLoadQuery:
    """An EXECUTE_LOAD_QUERY event: the statement as it was given, and where its file name stands."""

    query: QueryEvent
    file_id: int
    name_start: int
    name_end: int
    duplicates: int

    @classmethod
    def parse(cls, event: bytes) -> ExecuteLoadQuery:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event)
        own_at = HEADER_SIZE + _QUERY_FIXED_SIZE
        rest_at = own_at + _OWN.size
        if header.type != EventType.EXECUTE_LOAD_QUERY or len(event) < rest_at:
            raise ProtocolError(
                f"event of type {header.type}, {len(event)} bytes, is no EXECUTE_LOAD_QUERY event"
            )
        file_id, start, end, duplicates = _OWN.unpack_from(event, own_at)
        query = QueryEvent.parse(
            build_event(
                EventType.QUERY,
                event[HEADER_SIZE:own_at] + event[rest_at:],
                server_id=header.server_id,
                timestamp=header.timestamp,
                flags=header.flags,
            )
        )
        if not start <= end <= len(query.text):
            raise ProtocolError(
                f"EXECUTE_LOAD_QUERY event: a file name at {start} to {end} of {len(query.text)} bytes"
            )
        return cls(query, file_id, start, end, duplicates)

    def statement(self, path: bytes) -> bytes:
        """The statement that loads the file at `path`, which must need no escapes in quotes."""
        how = (b"", b" IGNORE", b" REPLACE")[self.duplicates] if self.duplicates < 3 else b""
        local = b" LOCAL INFILE '" + path + b"'" + how + b" INTO"
        return self.query.text[: self.name_start] + local + self.query.text[self.name_end :]

    def build(self) -> bytes:
        """The event without checksum, with the fields of `query`."""
        plain = self.query.build()
        own = _OWN.pack(self.file_id, self.name_start, self.name_end, self.duplicates)
        own_at = HEADER_SIZE + _QUERY_FIXED_SIZE
        return build_event(
            EventType.EXECUTE_LOAD_QUERY,
            plain[HEADER_SIZE:own_at] + own + plain[own_at:],
            server_id=self.query.server_id,
            timestamp=self.query.timestamp,
            flags=self.query.header_flags,
        )
