"""Events that can be read, of each type that is stored; and how to cut them."""

from __future__ import annotations

import struct
import zlib

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import build_event
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid

T = EventType


def event(type_: int, body: bytes = b"", flags: int = 0) -> bytes:
    return build_event(type_, body, server_id=1, end_position=777, flags=flags)


def row_body(size: int, fill: bytes = b"\0") -> bytes:
    """Of a row event of one column, with as many bytes; at least eleven, so that it may be an UPDATE."""
    head = bytes(6) + b"\0\0" + b"\x01" + b"\x01\x01"
    return head + (fill * (size // len(fill) + 1))[: max(0, size - len(head))]


def rows(size: int = 30, type_: int = T.WRITE_ROWS_V1, fill: bytes = b"\0") -> bytes:
    return event(type_, row_body(size, fill))


def compressed(head: bytes, plain: bytes) -> bytes:
    return head + bytes((0x82,)) + len(plain).to_bytes(2, "big") + zlib.compress(plain)


def _gtid(**fields: object) -> bytes:
    return GtidEvent(Gtid(3, 1, 77), **fields).build()  # type: ignore[arg-type]


# Each variable once, and last a code that nobody knows yet, with anything behind it.
STATUS = (
    b"\x00" + bytes(4)
    + b"\x01" + bytes(8)
    + b"\x02\x03std\x00"
    + b"\x03" + bytes(4)
    + b"\x04" + bytes(6)
    + b"\x05\x06SYSTEM"
    + b"\x06\x03std"
    + b"\x07" + bytes(2)
    + b"\x08" + bytes(2)
    + b"\x09" + bytes(8)
    + b"\x0a" + bytes(4)
    + b"\x0b\x04root\x09localhost"
    + b"\x80" + bytes(3)
    + b"\x81" + bytes(8)
    + b"\x82\x02" + b"\x82\x04" + bytes(8)
    + b"\x83\x02" + bytes(8)
    + b"\x0c\x01\x02"
)  # fmt: skip
_QUERY = QueryEvent(b"INSERT INTO t VALUES (1)", 1, b"db", STATUS).build()
_QUERY_HEAD = struct.pack("<IIBHH", 1, 2, 2, 0, len(STATUS)) + STATUS + b"db\0"
_LOAD_HEAD = struct.pack("<IIBHH", 1, 2, 2, 0, len(STATUS)) + struct.pack("<IIIB", 7, 5, 9, 2)
_MAP = (
    bytes(6) + b"\x01\0" + b"\x02db\0" + b"\x01t\0"
    + b"\x03" + bytes((3, 15, 246)) + b"\x04" + struct.pack("<HBB", 40, 10, 2) + b"\x07"
)  # fmt: skip
_OPTIONAL = b"\x01\x01\x80" + b"\x02\x01\x2d" + b"\x04\x06\x01a\x01b\x01c" + b"\xff\xfc\x01\x00x"
_ROWS_HEAD = bytes(6) + b"\0\0" + b"\x09" + b"\xff\x01"
_WIDE = bytes(6) + b"\0\0" + b"\xfc\x00\x10" + bytes(512)


SAMPLES: dict[EventType, list[bytes]] = {
    T.GTID: [
        _gtid(),
        _gtid(flags2=0x29),
        _gtid(commit_id=9),
        _gtid(flags2=int(GtidFlags.PREPARED_XA), xa_id=XaId(1, b"global", b"branch")),
        _gtid(flags2=int(GtidFlags.COMPLETED_XA), xa_id=XaId(1, b"g", b""), commit_id=5),
        _gtid(extra_engines=2),
        _gtid(flags_extra=int(GtidExtraFlags.START_ALTER)),
        _gtid(flags_extra=int(GtidExtraFlags.COMMIT_ALTER), start_alter_seq_no=5, thread_id=3),
        _gtid(thread_id=8, commit_id=1, unknown_tail=b"\1\2"),
    ],
    T.QUERY: [_QUERY, QueryEvent(b"", 1).build(), QueryEvent(b"COMMIT", 1).build()],
    T.QUERY_COMPRESSED: [
        event(T.QUERY_COMPRESSED, compressed(_QUERY_HEAD, b"INSERT INTO t VALUES (1)" * 9))
    ],
    T.TABLE_MAP: [event(T.TABLE_MAP, _MAP), event(T.TABLE_MAP, _MAP + _OPTIONAL)],
    T.ANNOTATE_ROWS: [event(T.ANNOTATE_ROWS, b"INSERT"), event(T.ANNOTATE_ROWS)],
    T.WRITE_ROWS_V1: [rows(), event(T.WRITE_ROWS_V1, _WIDE)],
    T.UPDATE_ROWS_V1: [rows(type_=T.UPDATE_ROWS_V1), event(T.UPDATE_ROWS_V1, _WIDE + bytes(512))],
    T.DELETE_ROWS_V1: [rows(type_=T.DELETE_ROWS_V1)],
    T.WRITE_ROWS_COMPRESSED_V1: [
        event(T.WRITE_ROWS_COMPRESSED_V1, compressed(_ROWS_HEAD, bytes(300)))
    ],
    T.UPDATE_ROWS_COMPRESSED_V1: [
        event(T.UPDATE_ROWS_COMPRESSED_V1, compressed(_ROWS_HEAD + b"\xff\x01", bytes(300)))
    ],
    T.DELETE_ROWS_COMPRESSED_V1: [
        event(T.DELETE_ROWS_COMPRESSED_V1, compressed(_ROWS_HEAD, bytes(300)))
    ],
    T.XID: [XidEvent(5, 1).build()],
    T.INTVAR: [event(T.INTVAR, b"\x01" + bytes(8)), event(T.INTVAR, b"\x02" + bytes(8))],
    T.RAND: [event(T.RAND, bytes(16))],
    T.USER_VAR: [
        event(T.USER_VAR, b"\x01\0\0\0v\x01"),
        event(T.USER_VAR, b"\x01\0\0\0v\0" + struct.pack("<BII", 0, 45, 3) + b"abc\0"),
        event(T.USER_VAR, b"\x01\0\0\0v\0" + struct.pack("<BII", 1, 45, 8) + bytes(8)),
        event(T.USER_VAR, b"\x01\0\0\0v\0" + struct.pack("<BII", 2, 45, 8) + bytes(8) + b"\1"),
        event(T.USER_VAR, b"\x01\0\0\0v\0" + struct.pack("<BII", 4, 45, 4) + b"\x03\x01\x80\x01"),
    ],
    T.BEGIN_LOAD_QUERY: [event(T.BEGIN_LOAD_QUERY, bytes(4) + b"a,b\n")],
    T.APPEND_BLOCK: [event(T.APPEND_BLOCK, bytes(4))],
    T.DELETE_FILE: [event(T.DELETE_FILE, bytes(4))],
    T.EXECUTE_LOAD_QUERY: [
        event(T.EXECUTE_LOAD_QUERY, _LOAD_HEAD + STATUS + b"db\0" + b"LOAD DATA INFILE")
    ],
    T.XA_PREPARE_LOG: [XaPrepareEvent(XaId(1, b"global", b"branch"), 1).build()],
    T.PARTIAL_ROW_DATA: [event(T.PARTIAL_ROW_DATA, struct.pack("<IIB", 2, 1, 0) + b"rows")],
}


def cut(sample: bytes, size: int) -> bytes:
    """Its first bytes, as an event of that length: what a master that is wrong would send."""
    return sample[:9] + size.to_bytes(4, "little") + sample[13:size]
