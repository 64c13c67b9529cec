"""XA_PREPARE_LOG (38): ends the group that prepares an XA transaction.

======  ===================================================
bytes   field (offsets in the body)
======  ===================================================
0       1 when the transaction commits in one phase, else 0
1..4    format id
5..8    length of the global part of the XA id
9..12   length of its branch part
13..    both parts
======  ===================================================
"""

from __future__ import annotations

import struct
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import XaId
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.values import Cursor

_FIXED: Final = struct.Struct("<BIII")
assert _FIXED.size == 13


@dataclass(frozen=True, slots=True)
class XaPrepareEvent:
    """An XA_PREPARE_LOG event."""

    xa_id: XaId
    server_id: int
    one_phase: bool = False
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = 0

    @classmethod
    def parse(cls, event: bytes) -> XaPrepareEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.XA_PREPARE_LOG)
        cursor = Cursor(event, "XA prepare event", HEADER_SIZE)
        one_phase, format_id, global_size, branch_size = _FIXED.unpack(cursor.take(_FIXED.size))
        xa_id = XaId(format_id, cursor.take(global_size), cursor.take(branch_size))
        if cursor.remaining:
            raise ProtocolError(f"XA prepare event: {cursor.remaining} bytes follow the XA id")
        return cls(
            xa_id,
            header.server_id,
            bool(one_phase),
            header.timestamp,
            header.end_position,
            header.flags,
        )

    def build(self) -> bytes:
        """The event without checksum."""
        format_id, global_part, branch_part = self.xa_id
        return build_event(
            EventType.XA_PREPARE_LOG,
            _FIXED.pack(self.one_phase, format_id, len(global_part), len(branch_part))
            + global_part
            + branch_part,
            server_id=self.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )
