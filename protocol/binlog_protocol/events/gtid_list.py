"""GTID_LIST (163): the binlog state at a place in the stream.

======  ==================================================================================
bytes   field (offsets in the body)
======  ==================================================================================
0..3    number of GTIDs in the low 28 bits, flags in the high 4
4..     per GTID: domain_id u32, server_id u32, seq_no u64; within a domain the most recent
        one last
..      two zero bytes when there is no GTID
======  ==================================================================================

A real list begins a binlog file. A fake one is made by a master for a replica: timestamp 0,
ARTIFICIAL, end_position the file offset reached (0 with an engine binlog).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntFlag
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_ARTIFICIAL, HEADER_SIZE, build_event, parse_whole
from binlog_protocol.gtid import Gtid

_COUNT_BITS: Final = 28
_COUNT_MASK: Final = (1 << _COUNT_BITS) - 1
_COUNT_SIZE: Final = 4
_ENTRY: Final = struct.Struct("<IIQ")
assert _ENTRY.size == 16
# Old replicas turn the event into a QUERY of the same length, which needs this much room.
_EMPTY_PADDING: Final = b"\0\0"


class GtidListFlags(IntFlag):
    """The high four bits of the count."""

    UNTIL_REACHED = 0x1
    # A replica takes the list as its own position without having the transactions.
    IGNORE_GTIDS = 0x2


@dataclass(frozen=True, slots=True)
class GtidList:
    """A GTID_LIST event."""

    gtids: tuple[Gtid, ...]
    server_id: int
    flags: int = 0
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = 0

    def lasts(self) -> dict[int, Gtid]:
        """The last GTID of each domain in the list, which is the last that was logged."""
        return {gtid.domain_id: gtid for gtid in self.gtids}

    @classmethod
    def fake(
        cls, gtids: Iterable[Gtid], server_id: int, *, flags: int = 0, end_position: int = 0
    ) -> GtidList:
        """A list made for one replica, as a master sends it in the middle of the stream."""
        return cls(tuple(gtids), server_id, flags, 0, end_position, FLAG_ARTIFICIAL)

    @classmethod
    def parse(cls, event: bytes) -> GtidList:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.GTID_LIST)
        body = event[HEADER_SIZE:]
        if len(body) < _COUNT_SIZE:
            raise ProtocolError(f"GTID list with a body of {len(body)} bytes")
        word = int.from_bytes(body[:_COUNT_SIZE], "little")
        count, flags = word & _COUNT_MASK, word >> _COUNT_BITS
        end = _COUNT_SIZE + count * _ENTRY.size
        if len(body) != (end if count else end + len(_EMPTY_PADDING)):
            raise ProtocolError(f"GTID list: {count} entries in a body of {len(body)} bytes")
        gtids = tuple(Gtid(*entry) for entry in _ENTRY.iter_unpack(body[_COUNT_SIZE:end]))
        return cls(
            gtids, header.server_id, flags, header.timestamp, header.end_position, header.flags
        )

    def build(self) -> bytes:
        """The event without checksum."""
        body = (len(self.gtids) | self.flags << _COUNT_BITS).to_bytes(_COUNT_SIZE, "little")
        body += b"".join(_ENTRY.pack(*gtid) for gtid in self.gtids) or _EMPTY_PADDING
        return build_event(
            EventType.GTID_LIST,
            body,
            server_id=self.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )
