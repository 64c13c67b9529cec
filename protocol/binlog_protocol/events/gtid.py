"""GTID (162): begins every event group.

======  ====================================================================================
bytes   field (offsets in the body; the server_id of the GTID is that of the event header)
======  ====================================================================================
0..7    seq_no
8..11   domain_id
12      flags2
+8      commit_id, with GROUP_COMMIT_ID
+6+n    XA id, with PREPARED_XA or COMPLETED_XA: format id u32, length of its global part u8,
        length of its branch part u8, both parts
+1      flags_extra, when there is room and it is not 0
+1      number of other engines that take part, with MULTI_ENGINE
+8      seq_no of the START ALTER, with COMMIT_ALTER or ROLLBACK_ALTER
+4      thread_id, with THREAD_ID
..      zeros, until the body has 19 bytes
======  ====================================================================================
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_SUPPRESS_USE, HEADER_SIZE, build_event, parse_whole
from binlog_protocol.gtid import Gtid
from binlog_protocol.values import Cursor

BODY_SIZE_MIN: Final = 19
FLAGS2_OFFSET: Final = HEADER_SIZE + 12

_FIXED: Final = struct.Struct("<QIB")
assert _FIXED.size == 13
# server_id of the header, then seq_no and domain_id of the body: all that makes the identifier.
_IDENTIFIER: Final = struct.Struct("<5xI10xQI")
assert _IDENTIFIER.size == FLAGS2_OFFSET
_XA_LENGTHS: Final = struct.Struct("<IBB")
assert _XA_LENGTHS.size == 6


class GtidFlags(IntFlag):
    """flags2."""

    STANDALONE = 0x01  # one event follows and ends the group
    GROUP_COMMIT_ID = 0x02
    TRANSACTIONAL = 0x04
    ALLOW_PARALLEL = 0x08
    WAITED = 0x10
    DDL = 0x20
    PREPARED_XA = 0x40
    COMPLETED_XA = 0x80


class GtidExtraFlags(IntFlag):
    """flags_extra."""

    MULTI_ENGINE = 0x01
    START_ALTER = 0x02
    COMMIT_ALTER = 0x04
    ROLLBACK_ALTER = 0x08
    THREAD_ID = 0x10


_ALTER_END: Final = GtidExtraFlags.COMMIT_ALTER | GtidExtraFlags.ROLLBACK_ALTER
_XA: Final = GtidFlags.PREPARED_XA | GtidFlags.COMPLETED_XA


class XaId(NamedTuple):
    """The name of an XA transaction."""

    format_id: int
    global_part: bytes
    branch_part: bytes

    @property
    def sql(self) -> str:
        """The name as XA statements take it."""
        return f"X'{self.global_part.hex()}',X'{self.branch_part.hex()}',{self.format_id}"


@dataclass(frozen=True, slots=True)
class GtidEvent:
    """A GTID event. Fields that are None are not in the event; their flags follow from them."""

    gtid: Gtid
    flags2: int = 0
    commit_id: int | None = None
    xa_id: XaId | None = None
    flags_extra: int = 0
    extra_engines: int | None = None
    start_alter_seq_no: int | None = None
    thread_id: int | None = None
    timestamp: int = 0
    end_position: int = 0
    header_flags: int = FLAG_SUPPRESS_USE
    # What a newer server may append after the fields above; passed on untouched.
    unknown_tail: bytes = b""

    @property
    def is_standalone(self) -> bool:
        return bool(self.flags2 & GtidFlags.STANDALONE)

    @classmethod
    def parse(cls, event: bytes) -> GtidEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        header = parse_whole(event, EventType.GTID)
        cursor = Cursor(event, "GTID event", HEADER_SIZE)
        if cursor.remaining < BODY_SIZE_MIN:
            raise ProtocolError(f"GTID event with a body of {cursor.remaining} bytes")
        seq_no, domain_id, flags2 = _FIXED.unpack(cursor.take(_FIXED.size))
        commit_id = cursor.integer(8) if flags2 & GtidFlags.GROUP_COMMIT_ID else None
        xa_id = _parse_xa_id(cursor) if flags2 & _XA else None
        flags_extra = 0
        extra_engines = start_alter_seq_no = thread_id = None
        # A zero here is padding or the flags themselves: the same to us, and kept as it is.
        if cursor.remaining and event[cursor.position]:
            flags_extra = cursor.integer(1)
            if flags_extra & GtidExtraFlags.MULTI_ENGINE:
                extra_engines = cursor.integer(1)
            if flags_extra & _ALTER_END:
                start_alter_seq_no = cursor.integer(8)
            if flags_extra & GtidExtraFlags.THREAD_ID:
                thread_id = cursor.integer(4)
        tail = cursor.rest()
        is_padding = len(event) == HEADER_SIZE + BODY_SIZE_MIN and not any(tail)
        return cls(
            Gtid(domain_id, header.server_id, seq_no),
            flags2,
            commit_id,
            xa_id,
            flags_extra,
            extra_engines,
            start_alter_seq_no,
            thread_id,
            header.timestamp,
            header.end_position,
            header.flags,
            b"" if is_padding else tail,
        )

    def build(self) -> bytes:
        """The event without checksum. Flags of optional fields are set from the fields."""
        flags2, flags_extra = self._effective_flags()
        parts = [_FIXED.pack(self.gtid.seq_no, self.gtid.domain_id, flags2)]
        if self.commit_id is not None:
            parts.append(self.commit_id.to_bytes(8, "little"))
        if self.xa_id is not None:
            format_id, global_part, branch_part = self.xa_id
            parts.append(_XA_LENGTHS.pack(format_id, len(global_part), len(branch_part)))
            parts += (global_part, branch_part)
        if flags_extra:
            parts.append(bytes((flags_extra,)))
        if self.extra_engines is not None:
            parts.append(bytes((self.extra_engines,)))
        if self.start_alter_seq_no is not None:
            parts.append(self.start_alter_seq_no.to_bytes(8, "little"))
        if self.thread_id is not None:
            parts.append(self.thread_id.to_bytes(4, "little"))
        parts.append(self.unknown_tail)
        return build_event(
            EventType.GTID,
            b"".join(parts).ljust(BODY_SIZE_MIN, b"\0"),
            server_id=self.gtid.server_id,
            timestamp=self.timestamp,
            end_position=self.end_position,
            flags=self.header_flags,
        )

    def _effective_flags(self) -> tuple[int, int]:
        flags2, flags_extra = self.flags2, self.flags_extra
        if self.commit_id is not None:
            flags2 |= GtidFlags.GROUP_COMMIT_ID
        if self.xa_id is not None and not flags2 & _XA:
            raise ValueError("an XA id goes with PREPARED_XA or COMPLETED_XA")
        if self.extra_engines is not None:
            flags_extra |= GtidExtraFlags.MULTI_ENGINE
        if self.start_alter_seq_no is not None and not flags_extra & _ALTER_END:
            raise ValueError("a START ALTER number goes with COMMIT_ALTER or ROLLBACK_ALTER")
        if self.thread_id is not None:
            flags_extra |= GtidExtraFlags.THREAD_ID
        return flags2, flags_extra


def _parse_xa_id(cursor: Cursor) -> XaId:
    format_id, global_size, branch_size = _XA_LENGTHS.unpack(cursor.take(_XA_LENGTHS.size))
    return XaId(format_id, cursor.take(global_size), cursor.take(branch_size))


def gtid_of(event: bytes) -> Gtid:
    """The identifier alone of an event known to be a GTID event: the hot path.

    Raises `ProtocolError` when the event is too short for one.
    """
    if len(event) < HEADER_SIZE + BODY_SIZE_MIN:
        raise ProtocolError(f"GTID event of {len(event)} bytes")
    server_id, seq_no, domain_id = _IDENTIFIER.unpack_from(event)
    return Gtid(domain_id, server_id, seq_no)
