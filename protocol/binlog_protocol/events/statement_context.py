"""INTVAR (5), RAND (13), USER_VAR (14): what the statement behind them needs to give the same result again.

INTVAR

======  =====================================================================================
0       1 LAST_INSERT_ID() of the statement, 2 the first AUTO_INCREMENT value it gives
1..8    the number, u64
======  =====================================================================================

RAND: two u64, the seeds of RAND().

USER_VAR

======  =====================================================================================
0..3    length of the name
4..     name, 1 if NULL (and nothing more) else 0
+1      type: 0 string, 1 real (8 bytes), 2 integer (8 bytes), 4 decimal (digits u8, scale u8,
        as in row events)
+4      collation
+4      length of the value
+n      value
+1      of an integer: bit 0 says unsigned. Else, in newer versions, bit 1: the length (u8) and
        the name of a data type follow, such as `point`
======  =====================================================================================
"""

from __future__ import annotations

import struct
from decimal import Decimal
from enum import IntEnum
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, parse_whole
from binlog_protocol.events.numbers import decimal, decimal_bytes, digits_and_scale
from binlog_protocol.values import Cursor

_INTVAR: Final = struct.Struct("<BQ")
_RAND: Final = struct.Struct("<QQ")
_DOUBLE: Final = struct.Struct("<d")
_USER_VALUE: Final = struct.Struct("<BBII")
assert _INTVAR.size == 9
assert _RAND.size == 16

_UNSIGNED: Final = 0x01
_I64_MIN: Final = -(2**63)
_I64_MAX: Final = 2**63 - 1
_U64_MASK: Final = 2**64 - 1
_DECIMAL_DIGITS_MAX: Final = 65


class IntvarKind(IntEnum):
    LAST_INSERT_ID = 1
    INSERT_ID = 2


@dataclass(frozen=True, slots=True)
class IntvarEvent:
    """An INTVAR event."""

    kind: IntvarKind
    value: int

    @classmethod
    def parse(cls, event: bytes) -> IntvarEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        kind, value = _INTVAR.unpack(_body(event, EventType.INTVAR, _INTVAR.size))
        try:
            return cls(IntvarKind(kind), value)
        except ValueError:
            raise ProtocolError(f"INTVAR event of kind {kind}") from None

    def build(self, *, server_id: int, timestamp: int = 0, flags: int = 0) -> bytes:
        """The event without checksum."""
        body = _INTVAR.pack(self.kind, self.value)
        return build_event(
            EventType.INTVAR, body, server_id=server_id, timestamp=timestamp, flags=flags
        )


@dataclass(frozen=True, slots=True)
class RandEvent:
    """A RAND event."""

    seed1: int
    seed2: int

    @classmethod
    def parse(cls, event: bytes) -> RandEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        return cls(*_RAND.unpack(_body(event, EventType.RAND, _RAND.size)))

    def build(self, *, server_id: int, timestamp: int = 0, flags: int = 0) -> bytes:
        """The event without checksum."""
        body = _RAND.pack(self.seed1, self.seed2)
        return build_event(
            EventType.RAND, body, server_id=server_id, timestamp=timestamp, flags=flags
        )


@dataclass(frozen=True, slots=True)
class UserVarEvent:
    """A USER_VAR event; a string is its bytes in the character set of `collation`."""

    name: bytes
    value: bytes | float | int | Decimal | None
    collation: int = 0

    @classmethod
    def parse(cls, event: bytes) -> UserVarEvent:
        """Read an event without checksum; raises `ProtocolError`."""
        parse_whole(event, EventType.USER_VAR)
        cursor = Cursor(event, "USER_VAR event", HEADER_SIZE)
        name = cursor.take(cursor.integer(4))
        if cursor.integer(1):
            return cls(name, None)
        type_, collation = cursor.integer(1), cursor.integer(4)
        raw = cursor.take(cursor.integer(4))
        unsigned = bool(cursor.remaining and cursor.integer(1) & _UNSIGNED)
        return cls(name, _user_value(type_, raw, unsigned), collation)

    def build(self, *, server_id: int, timestamp: int = 0, flags: int = 0) -> bytes:
        """The event without checksum. Of NULL, strings, DECIMALs, integers of up to 64 bits; ValueError for others."""
        body = len(self.name).to_bytes(4, "little") + self.name
        value = self.value
        if value is None:
            body += b"\1"
        elif isinstance(value, bytes):
            body += _USER_VALUE.pack(0, 0, self.collation, len(value)) + value + b"\0"
        elif isinstance(value, Decimal):
            digits, scale = digits_and_scale(value)
            raw = bytes((digits, scale)) + decimal_bytes(value, digits, scale)
            body += _USER_VALUE.pack(0, 4, self.collation, len(raw)) + raw + b"\0"
        elif isinstance(value, int) and _I64_MIN <= value <= _U64_MASK:
            body += _USER_VALUE.pack(0, 2, self.collation, 8)
            body += (value & _U64_MASK).to_bytes(8, "little")
            body += bytes((_UNSIGNED if value > _I64_MAX else 0,))
        else:
            raise ValueError(f"{type(value).__name__} {value} is not written")
        return build_event(
            EventType.USER_VAR, body, server_id=server_id, timestamp=timestamp, flags=flags
        )


def _user_value(type_: int, raw: bytes, unsigned: bool) -> bytes | float | int | Decimal:
    if type_ == 0:
        return raw
    if type_ == 1 and len(raw) == _DOUBLE.size:
        value: float = _DOUBLE.unpack(raw)[0]
        return value
    if type_ == 2 and len(raw) == 8:
        return int.from_bytes(raw, "little", signed=not unsigned)
    if type_ == 4 and len(raw) > 2 and raw[1] <= raw[0] <= _DECIMAL_DIGITS_MAX:
        return decimal(Cursor(raw, "USER_VAR event", 2), raw[0], raw[1])
    raise ProtocolError(
        f"USER_VAR event: a value of type {type_} with {len(raw)} bytes: {raw[:16].hex(' ')}"
    )


def _body(event: bytes, type_: EventType, size: int) -> bytes:
    if parse_whole(event).type != type_ or len(event) != HEADER_SIZE + size:
        raise ProtocolError(
            f"event of type {event[4]}, {len(event)} bytes, is no {type_.name} event"
        )
    return event[HEADER_SIZE:]
