"""FORMAT_DESCRIPTION (15): the version of the writer, and how the events after it look.

======  ====================================================================================
bytes   field (offsets in the body, after the event header)
======  ====================================================================================
0..1    binlog version, 4
2..51   server version, NUL padded
52..55  created: seconds since 1970 when the server started; 0 for a file made by rotation
56      length of an event header, 19
57..    one byte for each event type from 1 on: length of its post-header (171 of them in
        10.11 and 11.8)
+1      checksum algorithm of the events that follow (0 none, 1 CRC-32)
+4      CRC-32 of this event: always there, whatever the algorithm says. With algorithm 0 it may
        be wrong: 11.8 does not renew it when it clears `created` and end_position for a replica
======  ====================================================================================

The last two fields came with MariaDB 5.3 and MySQL 5.6.1: whether they are there is told by the server version alone.

A replica drops its temporary tables and rolls back an open group when `created` is not 0.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import (
    CHECKSUM_SIZE,
    ChecksumAlgorithm,
    append_checksum,
    verify_checksum,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    FLAG_ARTIFICIAL,
    FLAG_IN_USE,
    HEADER_SIZE,
    build_event,
    parse_whole,
)

_BINLOG_VERSION: Final = 4
SERVER_VERSION_SIZE: Final = 50

_FIXED: Final = struct.Struct(f"<H{SERVER_VERSION_SIZE}sIB")
assert _FIXED.size == 57

# As 10.11 and 11.8 both write it; entry i belongs to event type i + 1.
POST_HEADER_LENGTHS: Final = (
    bytes.fromhex("380d000800120004040404120000e400041a08000000080808020000000a0a0a000000")
    + bytes.fromhex("0000000a0a0a")
    + bytes(119)
    + bytes.fromhex("041304000d0808080a0a0a")
)
assert len(POST_HEADER_LENGTHS) == 171
assert POST_HEADER_LENGTHS[EventType.FORMAT_DESCRIPTION - 1] == _FIXED.size + 171
assert POST_HEADER_LENGTHS[EventType.GTID - 1] == 19

FORMAT_DESCRIPTION_SIZE: Final = (
    HEADER_SIZE + _FIXED.size + len(POST_HEADER_LENGTHS) + 1 + CHECKSUM_SIZE
)
assert FORMAT_DESCRIPTION_SIZE == 252


# In front of the version of MariaDB servers before 11, where it is told to clients.
_FOR_CLIENTS: Final = b"5.5.5-"
_VERSION: Final = compiled_later(rb"(\d+)\.(\d+)\.(\d+)")


def _has_checksums(server_version: bytes) -> bool:
    """Whether a server of that version tells its checksum algorithm."""
    found = _VERSION.match(server_version.removeprefix(_FOR_CLIENTS))
    if found is None:
        return True  # of no known kind: as all that are in use
    first = (5, 3, 0) if b"MariaDB" in server_version else (5, 6, 1)
    return tuple(map(int, found.groups())) >= first


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """One format description event. Times are seconds since 1970."""

    server_version: str
    server_id: int
    created: int = 0
    checksum_algorithm: int = ChecksumAlgorithm.NONE
    timestamp: int = 0
    end_position: int = 0
    flags: int = 0
    post_header_lengths: bytes = POST_HEADER_LENGTHS

    @classmethod
    def artificial(cls, server_version: str, server_id: int) -> FormatDescription:
        """The opening event of a master with an engine binlog, as MariaDB 12.3 sends it."""
        return cls(server_version, server_id, flags=FLAG_ARTIFICIAL)

    @classmethod
    def parse(cls, event: bytes) -> FormatDescription:
        """Raises `ProtocolError`; `EventChecksumError` when it announces checksums and its own is
        wrong.
        """
        header = parse_whole(event, EventType.FORMAT_DESCRIPTION)
        if len(event) < HEADER_SIZE + _FIXED.size + 1 + CHECKSUM_SIZE:
            raise ProtocolError(f"format description of {len(event)} bytes")
        version, server_version, created, header_size = _FIXED.unpack_from(event, HEADER_SIZE)
        algorithm, lengths_end = int(ChecksumAlgorithm.NONE), len(event)
        if _has_checksums(server_version):
            lengths_end -= 1 + CHECKSUM_SIZE
            algorithm = event[lengths_end]
        if algorithm not in (ChecksumAlgorithm.NONE, ChecksumAlgorithm.CRC32):
            raise ProtocolError(f"format description: unknown checksum algorithm {algorithm}")
        if algorithm:
            verify_checksum(event)
        if version != _BINLOG_VERSION or header_size != HEADER_SIZE:
            raise ProtocolError(
                f"binlog version {version} with event headers of {header_size} bytes"
            )
        return cls(
            server_version.rstrip(b"\0").decode("utf-8", "surrogateescape"),
            header.server_id,
            created,
            algorithm,
            header.timestamp,
            header.end_position,
            header.flags,
            event[HEADER_SIZE + _FIXED.size : lengths_end],
        )

    def build(self) -> bytes:
        """The event with its own checksum."""
        version = self.server_version.encode("utf-8", "surrogateescape")
        if len(version) > SERVER_VERSION_SIZE:
            raise ValueError(f"server version longer than {SERVER_VERSION_SIZE} bytes")
        body = (
            _FIXED.pack(_BINLOG_VERSION, version, self.created, HEADER_SIZE)
            + self.post_header_lengths
            + bytes((self.checksum_algorithm,))
        )
        return append_checksum(
            build_event(
                EventType.FORMAT_DESCRIPTION,
                body,
                server_id=self.server_id,
                timestamp=self.timestamp,
                end_position=self.end_position,
                flags=self.flags,
            )
        )

    def for_store(self) -> FormatDescription:
        """The start marker that is stored for it: created kept, no checksums, end_position 0."""
        return replace(
            self,
            checksum_algorithm=ChecksumAlgorithm.NONE,
            end_position=0,
            flags=self.flags & ~FLAG_IN_USE,
        )
