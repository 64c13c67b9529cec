"""Events as SHOW BINLOG EVENTS tells them: the name of the type, and a line in MariaDB's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.literals import hex_literal
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.events.compressed import plain_begin
from binlog_protocol.events.event_type import NAMES, EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import FLAG_SUPPRESS_USE, HEADER_SIZE, TYPE_OFFSET
from binlog_protocol.events.load_data import ExecuteLoadQuery
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.rows import ROWS_TYPES, RowsFlags
from binlog_protocol.events.statement_context import (
    IntvarEvent,
    IntvarKind,
    RandEvent,
    UserVarEvent,
)
from binlog_protocol.events.table_map import TableMapHead
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent

_TABLE_ID_BYTES: Final = 6
_FILE_ID_BYTES: Final = 4
_LENGTH_BYTES: Final = 4
# A DOUBLE is written without an exponent if its point stands so far behind or before its first digit.
_POINT_MIN, _POINT_MAX = -14, 15
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
    """The type of an event for the column Event_type of SHOW BINLOG EVENTS."""
    code = event[TYPE_OFFSET]
    return _NAMES.get(code) or NAMES.get(code, "unknown").capitalize()


def event_info(event: bytes) -> str:
    """The text for the column Info of SHOW BINLOG EVENTS. Raises `ProtocolError` for an event no intake accepts."""
    code = event[TYPE_OFFSET]
    if code in ROWS_TYPES:
        return _rows(event)
    build = _INFO.get(code)
    return "" if build is None else build(event)


def _gtid(event: bytes) -> str:
    gtid = GtidEvent.parse(event)
    commit_id = "" if gtid.commit_id is None else f" cid={gtid.commit_id}"
    if gtid.flags2 & GtidFlags.PREPARED_XA:
        name = "" if gtid.xa_id is None else f"{gtid.xa_id.sql} "
        return f"XA START {name}GTID {gtid.gtid}{commit_id}"
    begin = "" if gtid.is_standalone else "BEGIN "
    return f"{begin}GTID {gtid.gtid}{commit_id}"


def _query(event: bytes) -> str:
    return _statement(QueryEvent.parse(event))


def _compressed_query(event: bytes) -> str:
    try:
        begin = plain_begin(event)  # no more than is shown
    except ProtocolError as error:
        return f"# {error}"
    return _statement(QueryEvent.parse(begin))


def _statement(query: QueryEvent) -> str:
    used = query.database and not query.header_flags & FLAG_SUPPRESS_USE
    use = f"use `{_text(query.database).replace('`', '``')}`; " if used else ""
    return use + _text(query.text[:INFO_CHARS_MAX])


def _format(event: bytes) -> str:
    return f"Server ver: {FormatDescription.parse(event).server_version}, Binlog ver: 4"


def _gtid_list(event: bytes) -> str:
    """By domain, as 10.11 and 11.8 show it, in whatever order it is stored."""
    gtids = sorted(GtidList.parse(event).gtids, key=lambda gtid: gtid.domain_id)
    return f"[{','.join(map(str, gtids))}]"


def _checkpoint(event: bytes) -> str:
    return _text(event[HEADER_SIZE + _LENGTH_BYTES :])  # of a file's name


def _rotate(event: bytes) -> str:
    rotate = RotateEvent.parse(event)
    return f"{rotate.name};pos={rotate.position}"


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


def _rand(event: bytes) -> str:
    found = RandEvent.parse(event)
    return f"rand_seed1={found.seed1},rand_seed2={found.seed2}"


def _user_variable(event: bytes) -> str:
    variable = UserVarEvent.parse(event)
    return f"@`{_text(variable.name).replace('`', '``')}`={_user_value(variable)}"


def _user_value(variable: UserVarEvent) -> str:
    match variable.value:
        case None:
            return "NULL"
        case bytes(raw):
            charset = charset_of(variable.collation)
            if charset is None:
                return "???"
            text = hex_literal(raw[: INFO_CHARS_MAX // 2]).upper() if raw else '""'
            return f"_{charset} {text} COLLATE {collation_name(variable.collation)}"
        case float(number):
            return _double(number)
        case Decimal() as number:
            return f"{number:f}"
        case number:
            return str(number)


def _double(number: float) -> str:
    shortest = Decimal(repr(number)).normalize()
    sign, digits, _ = shortest.as_tuple()
    point = shortest.adjusted() + 1
    if not number or _POINT_MIN <= point <= _POINT_MAX:
        return f"{shortest:f}"
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{point - 1}"


def _xa_prepare(event: bytes) -> str:
    found = XaPrepareEvent.parse(event)
    if found.one_phase:
        return f"XA COMMIT {found.xa_id.sql} ONE PHASE"
    return f"XA PREPARE {found.xa_id.sql}"


def _file_piece(event: bytes) -> str:
    data_bytes = len(event) - HEADER_SIZE - _FILE_ID_BYTES
    return f";file_id={_file_id(event)};block_len={data_bytes}"


def _file_end(event: bytes) -> str:
    return f";file_id={_file_id(event)}"


def _file_id(event: bytes) -> int:
    return int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + _FILE_ID_BYTES], "little")


def _load(event: bytes) -> str:
    found = ExecuteLoadQuery.parse(event)
    return f"{_statement(found.query)} ;file_id={found.file_id}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_INFO: Final[Mapping[int, Callable[[bytes], str]]] = {
    EventType.ANNOTATE_ROWS: _annotation,
    EventType.APPEND_BLOCK: _file_piece,
    EventType.BEGIN_LOAD_QUERY: _file_piece,
    EventType.DELETE_FILE: _file_end,
    EventType.EXECUTE_LOAD_QUERY: _load,
    EventType.FORMAT_DESCRIPTION: _format,
    EventType.GTID_LIST: _gtid_list,
    EventType.BINLOG_CHECKPOINT: _checkpoint,
    EventType.ROTATE: _rotate,
    EventType.GTID: _gtid,
    EventType.INTVAR: _intvar,
    EventType.QUERY: _query,
    EventType.QUERY_COMPRESSED: _compressed_query,
    EventType.RAND: _rand,
    EventType.TABLE_MAP: _table_map,
    EventType.USER_VAR: _user_variable,
    EventType.XA_PREPARE_LOG: _xa_prepare,
    EventType.XID: _xid,
}
