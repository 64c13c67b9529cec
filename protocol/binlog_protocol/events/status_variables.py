"""Status variables of a QUERY event: the session in which the statement ran. One byte of code, then the value.

====  ====================  ========================================================================
code  name                  value
====  ====================  ========================================================================
0     flags2                u32, see `SessionFlags`
1     sql_mode              u64
2, 6  catalog               length u8, text; 2 has a 00 behind it
3     auto_increment        increment u16, offset u16
4     charset               character_set_client, collation_connection, collation_server: u16 each
5     time_zone             length u8, text
7     lc_time_names         u16
8     collation_database    u16
9     table map for update  u64
10    master data written   u32
11    invoker               user and host of the definer: length u8 and text each
128   microseconds          u24, of the moment that the header gives in seconds
129   xid                   u64, of DDL that recovers from a crash
130   flags of the GTID     u8; with bit 2 or 3 the seq_no of the START ALTER, u64
131   default collations    number u8, then pairs of character set (its default collation) and collation: u16 each
====  ====================  ========================================================================

As 10.11 and 11.8 write them. A code that is not known ends the list: its length is not known either.
"""

from __future__ import annotations

import struct
from dataclasses import field
from enum import IntFlag
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.gtid import GtidExtraFlags
from binlog_protocol.values import Cursor

_FLAGS: Final = struct.Struct("<BI")
_SQL_MODE: Final = struct.Struct("<BQ")
_AUTO_INCREMENT: Final = struct.Struct("<BHH")
_CHARSET: Final = struct.Struct("<BHHH")
_LC_TIME_NAMES: Final = struct.Struct("<BH")
_ALTER: Final = 130
_ALTER_NUMBER_AT: Final = 2  # behind the code and the flags
_ENDS_ALTER: Final = int(GtidExtraFlags.COMMIT_ALTER | GtidExtraFlags.ROLLBACK_ALTER)


class SessionFlags(IntFlag):
    """flags2."""

    AUTO_IS_NULL = 1 << 14
    NO_CHECK_CONSTRAINT_CHECKS = 1 << 15  # 10.11; 11.8 does not log it
    NOT_AUTOCOMMIT = 1 << 19
    EXPLICIT_DEFAULTS_FOR_TIMESTAMP = 1 << 24
    NO_FOREIGN_KEY_CHECKS = 1 << 26
    RELAXED_UNIQUE_CHECKS = 1 << 27
    IF_EXISTS = 1 << 28
    INSERT_HISTORY = 1 << 30


@dataclass(slots=True)
class StatusVariables:
    """The status variables of a QUERY event; None for those that were not logged."""

    flags: SessionFlags | None = None
    sql_mode: int | None = None
    auto_increment: tuple[int, int] = (1, 1)
    charset: tuple[int, int, int] | None = None
    time_zone: bytes | None = None
    lc_time_names: int = 0
    collation_database: int = 0
    microseconds: int = 0
    default_collations: dict[int, int] = field(default_factory=dict)
    alter_flags: int = 0
    start_alter_seq_no: int = 0

    @classmethod
    def parse(cls, raw: bytes) -> StatusVariables:
        """Raises `ProtocolError` when a value is cut short."""
        found = cls()
        cursor = Cursor(raw, "status variables of a QUERY event")
        while cursor.remaining and found._take(cursor.integer(1), cursor):
            pass
        return found

    def build(self) -> bytes:
        """The bytes of a statement's status variables, in MariaDB's order.

        flags, sql_mode, auto_increment, charset, time_zone, lc_time_names, microseconds and those of an ALTER in two
        phases, if they are set. The others are of no use to a statement made here.
        """
        parts = []
        if self.flags is not None:
            parts.append(_FLAGS.pack(0, self.flags))
        if self.sql_mode is not None:
            parts.append(_SQL_MODE.pack(1, self.sql_mode))
        if self.auto_increment != (1, 1):
            parts.append(_AUTO_INCREMENT.pack(3, *self.auto_increment))
        if self.charset is not None:
            parts.append(_CHARSET.pack(4, *self.charset))
        if self.time_zone is not None:
            parts.append(bytes((5, len(self.time_zone))) + self.time_zone)
        if self.lc_time_names:
            parts.append(_LC_TIME_NAMES.pack(7, self.lc_time_names))
        if self.microseconds:
            parts.append(b"\x80" + self.microseconds.to_bytes(3, "little"))
        if self.alter_flags:
            parts.append(bytes((_ALTER, self.alter_flags)))
        if self.alter_flags & _ENDS_ALTER:
            parts.append(self.start_alter_seq_no.to_bytes(8, "little"))
        return b"".join(parts)

    def _take(self, code: int, cursor: Cursor) -> bool:
        """One variable; False if the code is not known."""
        if code == 0:
            self.flags = SessionFlags(cursor.integer(4))
        elif code == 1:
            self.sql_mode = cursor.integer(8)
        elif code == 3:
            self.auto_increment = cursor.integer(2), cursor.integer(2)
        elif code == 4:
            self.charset = cursor.integer(2), cursor.integer(2), cursor.integer(2)
        elif code == 5:
            self.time_zone = cursor.short_bytes()
        elif code == 7:
            self.lc_time_names = cursor.integer(2)
        elif code == 8:
            self.collation_database = cursor.integer(2)
        elif code == 128:
            self.microseconds = cursor.integer(3)
        elif code == _ALTER:
            self._take_alter(cursor)
        elif code == 131:
            self.default_collations = {
                cursor.integer(2): cursor.integer(2) for _ in range(cursor.integer(1))
            }
        else:
            return _skip(code, cursor)
        return True

    def _take_alter(self, cursor: Cursor) -> None:
        self.alter_flags = cursor.integer(1)
        if self.alter_flags & _ENDS_ALTER:
            self.start_alter_seq_no = cursor.integer(8)


def start_alter_seq_no_at(raw: bytes) -> int | None:
    """The place in status variables of the number of the START ALTER that is ended; None: there is none.

    Raises `ProtocolError` when a value is cut short.
    """
    variables = StatusVariables()
    cursor = Cursor(raw, "status variables of a QUERY event")
    while cursor.remaining:
        at = cursor.position
        code = cursor.integer(1)
        if not variables._take(code, cursor):
            return None
        if code == _ALTER and cursor.position - at > _ALTER_NUMBER_AT:
            return at + _ALTER_NUMBER_AT
    return None


def _skip(code: int, cursor: Cursor) -> bool:
    if code in (2, 6, 11):
        cursor.short_bytes()
        if code == 2:
            cursor.skip(1)
        if code == 11:
            cursor.short_bytes()
    elif code in (9, 129):
        cursor.skip(8)
    elif code == 10:
        cursor.skip(4)
    else:
        return False
    return True
