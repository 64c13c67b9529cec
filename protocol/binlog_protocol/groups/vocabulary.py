"""Every type of event that there is, and what becomes of it: the one place that says so.

    stored      as it is, inside its group; `Role` says what it means there
    skipped     it belongs to the connection, or to the files of the server that wrote it
    incident    the master has lost changes here: who reads decides, see `binlog_protocol.events.incident`
    refused     by name: no MariaDB with GTIDs writes it, and nobody behind us could apply it

An event that would be refused and says itself that it may be left out (header flag IGNORABLE, as MySQL sets it) is
skipped. Numbers from 173 on will be those of a newer MariaDB: such events are stored, as its replicas know them.

What is stored is read first, by the code that will read it later: an event that is cut short, or whose optional fields
are, never gets into a store. How far that goes: everything that says where a field ends, and the fields that this
server looks at. Not the images of rows, nor the types of columns: they are the tables' matter, and newer servers may
have others; nor compressed data. Who reads those must bear what they find.

`_group_runs.c` does the same for the events that nearly all of a stream is made of, by the codes in `C_TABLE`. What it
does not take is left to the Python: tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import CompressedPart
from binlog_protocol.events.event_type import NAMES, EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import (
    FLAG_IGNORABLE,
    FLAGS_OFFSET,
    HEADER_SIZE,
    TYPE_OFFSET,
    parse_whole,
)
from binlog_protocol.events.load_data import ExecuteLoadQuery
from binlog_protocol.events.query import QueryHead
from binlog_protocol.events.rows import RowsHead
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableMapHead
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.values import Cursor


class Role(Enum):
    """The role of an event in its group, by its type."""

    GTID = auto()
    FORMAT = auto()
    DROPPED = auto()
    INCIDENT = auto()
    REFUSED = auto()
    PREFIX = auto()  # never ends a standalone group
    QUERY = auto()
    COMMIT = auto()
    OTHER = auto()


class Form(Enum):
    """The layouts of bodies of events: the checks that there are. The values are those of `_group_runs.c`."""

    ANY = 0
    GTID = 1
    QUERY = 2
    QUERY_COMPRESSED = 3
    TABLE_MAP = 4
    ROWS = 5
    ROWS_TWICE = 6  # of an UPDATE: a second bitmap
    ROWS_COMPRESSED = 7
    ROWS_COMPRESSED_TWICE = 8
    XID = 9
    INTVAR = 10
    RAND = 11
    USER_VAR = 12
    FILE_PIECE = 13
    EXECUTE_LOAD = 14
    XA_PREPARE = 15
    PARTIAL_ROWS = 16
    FORMAT = 17


class Meaning(NamedTuple):
    """`whose`: of a type that is refused, who wrote such events."""

    role: Role
    form: Form = Form.ANY
    whose: str = ""


_ALPHA: Final = "of an alpha version of MySQL 5.1"
_BEFORE_5: Final = "of MySQL before 5.0"
_MYSQL: Final = "MySQL's"

_MEANINGS: Final[dict[EventType, Meaning]] = {
    EventType.UNKNOWN: Meaning(Role.REFUSED, whose="of no server"),
    EventType.START_V3: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.QUERY: Meaning(Role.QUERY, Form.QUERY),
    EventType.STOP: Meaning(Role.DROPPED),
    EventType.ROTATE: Meaning(Role.DROPPED),
    EventType.INTVAR: Meaning(Role.PREFIX, Form.INTVAR),
    EventType.LOAD: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.SLAVE: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.CREATE_FILE: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.APPEND_BLOCK: Meaning(Role.OTHER, Form.FILE_PIECE),
    EventType.EXEC_LOAD: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.DELETE_FILE: Meaning(Role.OTHER, Form.FILE_PIECE),
    EventType.NEW_LOAD: Meaning(Role.REFUSED, whose=_BEFORE_5),
    EventType.RAND: Meaning(Role.PREFIX, Form.RAND),
    EventType.USER_VAR: Meaning(Role.PREFIX, Form.USER_VAR),
    EventType.FORMAT_DESCRIPTION: Meaning(Role.FORMAT, Form.FORMAT),
    EventType.XID: Meaning(Role.COMMIT, Form.XID),
    EventType.BEGIN_LOAD_QUERY: Meaning(Role.OTHER, Form.FILE_PIECE),
    EventType.EXECUTE_LOAD_QUERY: Meaning(Role.OTHER, Form.EXECUTE_LOAD),
    EventType.TABLE_MAP: Meaning(Role.PREFIX, Form.TABLE_MAP),
    EventType.PRE_GA_WRITE_ROWS: Meaning(Role.REFUSED, whose=_ALPHA),
    EventType.PRE_GA_UPDATE_ROWS: Meaning(Role.REFUSED, whose=_ALPHA),
    EventType.PRE_GA_DELETE_ROWS: Meaning(Role.REFUSED, whose=_ALPHA),
    EventType.WRITE_ROWS_V1: Meaning(Role.OTHER, Form.ROWS),
    EventType.UPDATE_ROWS_V1: Meaning(Role.OTHER, Form.ROWS_TWICE),
    EventType.DELETE_ROWS_V1: Meaning(Role.OTHER, Form.ROWS),
    EventType.INCIDENT: Meaning(Role.INCIDENT),
    EventType.HEARTBEAT: Meaning(Role.DROPPED),
    EventType.IGNORABLE: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.ROWS_QUERY: Meaning(Role.REFUSED, whose=_MYSQL),
    # Version 2 of row events: MariaDB has numbers for compressed ones, too, and writes version 1 alone.
    EventType.WRITE_ROWS: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.UPDATE_ROWS: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.DELETE_ROWS: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.MYSQL_GTID: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.MYSQL_ANONYMOUS_GTID: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.MYSQL_PREVIOUS_GTIDS: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.TRANSACTION_CONTEXT: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.VIEW_CHANGE: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.XA_PREPARE_LOG: Meaning(Role.COMMIT, Form.XA_PREPARE),
    EventType.PARTIAL_UPDATE_ROWS: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.TRANSACTION_PAYLOAD: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.HEARTBEAT_V2: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.MYSQL_TAGGED_GTID: Meaning(Role.REFUSED, whose=_MYSQL),
    EventType.ANNOTATE_ROWS: Meaning(Role.PREFIX),
    EventType.BINLOG_CHECKPOINT: Meaning(Role.DROPPED),
    EventType.GTID: Meaning(Role.GTID, Form.GTID),
    EventType.GTID_LIST: Meaning(Role.DROPPED),
    EventType.START_ENCRYPTION: Meaning(Role.DROPPED),
    EventType.QUERY_COMPRESSED: Meaning(Role.OTHER, Form.QUERY_COMPRESSED),
    EventType.WRITE_ROWS_COMPRESSED_V1: Meaning(Role.OTHER, Form.ROWS_COMPRESSED),
    EventType.UPDATE_ROWS_COMPRESSED_V1: Meaning(Role.OTHER, Form.ROWS_COMPRESSED_TWICE),
    EventType.DELETE_ROWS_COMPRESSED_V1: Meaning(Role.OTHER, Form.ROWS_COMPRESSED),
    EventType.WRITE_ROWS_COMPRESSED: Meaning(Role.REFUSED, whose="of no server"),
    EventType.UPDATE_ROWS_COMPRESSED: Meaning(Role.REFUSED, whose="of no server"),
    EventType.DELETE_ROWS_COMPRESSED: Meaning(Role.REFUSED, whose="of no server"),
    EventType.PARTIAL_ROW_DATA: Meaning(Role.OTHER, Form.PARTIAL_ROWS),
}
_UNKNOWN: Final = Meaning(Role.REFUSED, whose="of a MySQL that is not known here")
_NEWER: Final = Meaning(Role.OTHER)
NEWER_FROM: Final = max(EventType) + 1


def _meaning(type_: int) -> Meaning:
    try:
        return _MEANINGS[EventType(type_)]
    except ValueError:
        return _NEWER if type_ >= NEWER_FROM else _UNKNOWN


VOCABULARY: Final = tuple(map(_meaning, range(256)))
"""The meaning of each type byte."""
assert set(_MEANINGS) == set(EventType)

ROLES: Final = tuple(meaning.role for meaning in VOCABULARY)

# Of _group_runs.c: the role in the low three bits, the form above.
_C_ROLES: Final = {
    Role.OTHER: 0,
    Role.PREFIX: 1,
    Role.QUERY: 2,
    Role.COMMIT: 3,
    Role.GTID: 4,
    Role.FORMAT: 5,
    Role.DROPPED: 5,
    Role.INCIDENT: 5,
    Role.REFUSED: 5,
}
C_TABLE: Final = bytes(
    _C_ROLES[meaning.role] | meaning.form.value << 3 if _C_ROLES[meaning.role] != 5 else 5
    for meaning in VOCABULARY
)


def is_never_sound(event: bytes, table: bytes) -> bool:
    """Whether it is known at once that a whole event is one that is stored, and can be read. Else ask `CHECKS`."""
    return False


is_sound: Callable[[bytes, bytes], bool] = is_never_sound
try:
    from binlog_protocol.events import _group_runs
except ImportError:
    pass
else:
    is_sound = _group_runs.is_sound


class EventRefused(ProtocolError):
    """An event of a type that is not taken."""


def type_name(type_: int) -> str:
    """The name of a type byte for people: `MYSQL_GTID (33)`."""
    return f"{NAMES[type_]} ({type_})" if type_ in NAMES else str(type_)


def refuse(event: bytes) -> None:
    """An event whose role is REFUSED: raises `EventRefused`, unless it says itself that it may be left out."""
    if not int.from_bytes(event[FLAGS_OFFSET:HEADER_SIZE], "little") & FLAG_IGNORABLE:
        type_ = event[TYPE_OFFSET]
        raise EventRefused(
            f"an event of type {type_name(type_)}, {VOCABULARY[type_].whose}: no MariaDB with GTIDs writes it"
        )


def check_event(event: bytes) -> None:
    """Whether an event in normal form is one that is stored, and can be read. Raises `ProtocolError`."""
    if is_sound(event, C_TABLE):
        return
    if ROLES[event[TYPE_OFFSET]] is Role.REFUSED:
        refuse(event)
    check = CHECKS[event[TYPE_OFFSET]]
    if check is not None:
        check(event)


# --- the checks ---


def _check_query(event: bytes) -> None:
    head = QueryHead.take(Cursor(event, "QUERY event", HEADER_SIZE))
    if head.status_variables:
        StatusVariables.parse(head.status_variables)


def _check_query_compressed(event: bytes) -> None:
    _check_query(event)
    CompressedPart.find(event)


def _check_rows_compressed(event: bytes) -> None:
    RowsHead.take(event)
    CompressedPart.find(event)


def _check_load(event: bytes) -> None:
    StatusVariables.parse(ExecuteLoadQuery.parse(event).query.status_variables)


def _least(size: int, name: str) -> Callable[[bytes], object]:
    def check(event: bytes) -> None:
        if parse_whole(event).length < HEADER_SIZE + size:
            raise ProtocolError(f"{name} of {len(event)} bytes")

    return check


_FILE_ID_SIZE: Final = 4
_FRAGMENT_HEAD_SIZE: Final = 9  # number of fragments, which one this is, flags

_CHECKS: Final[dict[Form, Callable[[bytes], object] | None]] = {
    Form.ANY: None,
    Form.GTID: GtidEvent.parse,
    Form.QUERY: _check_query,
    Form.QUERY_COMPRESSED: _check_query_compressed,
    Form.TABLE_MAP: TableMapHead.parse,
    Form.ROWS: RowsHead.take,
    Form.ROWS_TWICE: RowsHead.take,
    Form.ROWS_COMPRESSED: _check_rows_compressed,
    Form.ROWS_COMPRESSED_TWICE: _check_rows_compressed,
    Form.XID: XidEvent.parse,
    Form.INTVAR: IntvarEvent.parse,
    Form.RAND: RandEvent.parse,
    Form.USER_VAR: UserVarEvent.parse,
    Form.FILE_PIECE: _least(_FILE_ID_SIZE, "piece of a file"),
    Form.EXECUTE_LOAD: _check_load,
    Form.XA_PREPARE: XaPrepareEvent.parse,
    Form.PARTIAL_ROWS: _least(_FRAGMENT_HEAD_SIZE, "fragment of a row event"),
    Form.FORMAT: FormatDescription.parse,
}
CHECKS: Final = tuple(_CHECKS[meaning.form] for meaning in VOCABULARY)
"""The check by type byte: it reads the event to its end and raises `ProtocolError`. None where any bytes will do."""
