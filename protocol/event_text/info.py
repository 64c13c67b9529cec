"""Events as SHOW BINLOG EVENTS tells them: the name of the type, and a line in MariaDB's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.errors import ProtocolError
from protocol.events.compressed import uncompressed
from protocol.events.event_type import EventType
from protocol.events.format_description import FormatDescription
from protocol.events.gtid import GtidEvent, GtidFlags
from protocol.events.header import FLAG_SUPPRESS_USE, HEADER_SIZE, TYPE_OFFSET
from protocol.events.query import QueryEvent
from protocol.events.rows import ROWS_TYPES, RowsFlags
from protocol.events.statement_context import IntvarEvent, IntvarKind
from protocol.events.table_map import TableMapHead
from protocol.events.xid import XidEvent

_TABLE_ID_BYTES: Final = 6
_FLAGS_AT: Final = HEADER_SIZE + _TABLE_ID_BYTES
INFO_CHARS_MAX: Final = 64 * 1024  # of a statement; one may have a gigabyte

# Where MariaDB's name is not that of the type in small letters.
_NAMES: Final[Mapping[int, str]] = {
    EventType.FORMAT_DESCRIPTION: "Format_desc",
    EventType.RAND: "RAND",
    EventType.USER_VAR: "User var",
    EventType.XA_PREPARE_LOG: "XA_prepare",
}


def event_type_name(event: bytes) -> str:
    """As the column Event_type has it."""
    code = event[TYPE_OFFSET]
    if code in _NAMES:
        return _NAMES[code]
    try:
        return EventType(code).name.capitalize()
    except ValueError:
        return "Unknown"


def event_info(event: bytes) -> str:
    """As the column Info has it. Raises `ProtocolError` for an event that no door would have let in."""
    code = event[TYPE_OFFSET]
    if code in ROWS_TYPES:
        return _rows(event)
    build = _INFO.get(code)
    return "" if build is None else build(event)


def _gtid(event: bytes) -> str:
    gtid = GtidEvent.parse(event)
    commit_id = "" if gtid.commit_id is None else f" cid={gtid.commit_id}"
    if gtid.flags2 & GtidFlags.PREPARED_XA:
        return f"XA START GTID {gtid.gtid}{commit_id}"
    begin = "" if gtid.is_standalone else "BEGIN "
    return f"{begin}GTID {gtid.gtid}{commit_id}"


def _query(event: bytes) -> str:
    try:
        plain = uncompressed(event)
    except ProtocolError as error:
        return f"# {error}"
    query = QueryEvent.parse(plain)
    used = query.database and not query.header_flags & FLAG_SUPPRESS_USE
    use = f"use `{_text(query.database).replace('`', '``')}`; " if used else ""
    return use + _text(query.text[:INFO_CHARS_MAX])


def _format(event: bytes) -> str:
    return f"Server ver: {FormatDescription.parse(event).server_version}, Binlog ver: 4"


def _xid(event: bytes) -> str:
    return f"COMMIT /* xid={XidEvent.parse(event).xid} */"


def _annotation(event: bytes) -> str:
    return _text(event[HEADER_SIZE : HEADER_SIZE + INFO_CHARS_MAX])


def _table_map(event: bytes) -> str:
    table = TableMapHead.parse(event)
    return f"table_id: {table.table_id} ({table.database}.{table.table})"


def _rows(event: bytes) -> str:
    table_id = int.from_bytes(event[HEADER_SIZE:_FLAGS_AT], "little")
    flags = int.from_bytes(event[_FLAGS_AT : _FLAGS_AT + 2], "little")
    end = " flags: STMT_END_F" if flags & RowsFlags.STMT_END else ""
    return f"table_id: {table_id}{end}"


def _intvar(event: bytes) -> str:
    found = IntvarEvent.parse(event)
    name = "LAST_INSERT_ID" if found.kind is IntvarKind.LAST_INSERT_ID else "INSERT_ID"
    return f"{name}={found.value}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_INFO: Final[Mapping[int, Callable[[bytes], str]]] = {
    EventType.ANNOTATE_ROWS: _annotation,
    EventType.FORMAT_DESCRIPTION: _format,
    EventType.GTID: _gtid,
    EventType.INTVAR: _intvar,
    EventType.QUERY: _query,
    EventType.QUERY_COMPRESSED: _query,
    EventType.TABLE_MAP: _table_map,
    EventType.XID: _xid,
}
