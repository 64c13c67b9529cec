"""Commands: what a client sends after the login. The first byte of the payload is the command.

====  =====================  ==================================================================
byte  command                body
====  =====================  ==================================================================
01    COM_QUIT               none
02    COM_INIT_DB            database name
03    COM_QUERY              statement
04    COM_FIELD_LIST         table name NUL, LIKE pattern
07    COM_REFRESH            flags u8
08    COM_SHUTDOWN           level u8, which means nothing
09    COM_STATISTICS         none
0C    COM_PROCESS_KILL       connection id u32
0D    COM_DEBUG              none
0E    COM_PING               none
11    COM_CHANGE_USER        user NUL; answer to the salt with a one-byte length; database NUL;
                             [charset u16; plugin NUL; attributes, as in the login]
12    COM_BINLOG_DUMP        position u32, flags u16, server_id u32, file name (to its first NUL)
15    COM_REGISTER_SLAVE     server_id u32; host, user, password with a one-byte length each;
                             port u16, rank u32, master_id u32
16    COM_STMT_PREPARE       statement
17    COM_STMT_EXECUTE       statement number u32, cursor flags u8, iterations u32, parameters
18    COM_STMT_SEND_LONG_    statement number u32, parameter u16, bytes: a part of its value. No answer
      DATA
19    COM_STMT_CLOSE         statement number u32. No answer
1A    COM_STMT_RESET         statement number u32
1B    COM_SET_OPTION         option u16
1C    COM_STMT_FETCH         statement number u32, rows u32
1E    COM_BINLOG_DUMP_GTID   flags u16, server_id u32, length u32, file name, position u64,
                             length u32, GTID list
1F    COM_RESET_CONNECTION   none
FA    COM_STMT_BULK_EXECUTE  statement number u32, flags u16 (80 types follow, 40 unit results),
                             parameters of each row
====  =====================  ==================================================================

The statement number FFFFFFFF is that of the statement prepared last. Parameters: `binlog_protocol.wire.binary_rows`.
A body that makes no sense raises the `ServerError` that a MariaDB master answers; the connection
stays. COM_BINLOG_DUMP_GTID is MySQL's; MariaDB's own text takes the place of MySQL's binary set.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Final

from binlog_protocol.connection.handshake import Capability, LoginRequest
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    GtidListTooLong,
    MalformedPacket,
    MasterFatalError,
    ProtocolError,
    UnknownCommandError,
    UnknownServerError,
)
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import (
    DATABASE_BYTES_MAX,
    FIELD_LIST_BYTES_MAX,
    FILE_NAME_BYTES_MAX,
    GTID_LIST_BYTES_MAX,
    REPORT_HOST_BYTES_MAX,
    REPORT_PASSWORD_BYTES_MAX,
    REPORT_USER_BYTES_MAX,
)
from binlog_protocol.values import Cursor, nul_terminated


class CommandCode(IntEnum):
    """The first byte of a command."""

    QUIT = 0x01
    INIT_DB = 0x02
    QUERY = 0x03
    FIELD_LIST = 0x04
    REFRESH = 0x07
    SHUTDOWN = 0x08
    STATISTICS = 0x09
    PROCESS_INFO = 0x0A
    PROCESS_KILL = 0x0C
    DEBUG = 0x0D
    PING = 0x0E
    CHANGE_USER = 0x11
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15
    STMT_PREPARE = 0x16
    STMT_EXECUTE = 0x17
    STMT_SEND_LONG_DATA = 0x18
    STMT_CLOSE = 0x19
    STMT_RESET = 0x1A
    SET_OPTION = 0x1B
    STMT_FETCH = 0x1C
    BINLOG_DUMP_GTID = 0x1E
    RESET_CONNECTION = 0x1F
    STMT_BULK_EXECUTE = 0xFA


LAST_PREPARED: Final = 0xFFFFFFFF
"""The number that means the statement prepared last."""


class DumpFlag(IntFlag):
    """Flags of the dump commands."""

    NON_BLOCK = 0x0001  # EOF at the end of the binlog instead of waiting
    SEND_ANNOTATE_ROWS = 0x0002


class RefreshFlag(IntFlag):
    """Flags of COM_REFRESH, as far as they mean something here."""

    LOG = 0x02


_DUMP_FIXED: Final = struct.Struct("<IHI")
assert _DUMP_FIXED.size == 10
_REGISTER_TAIL: Final = struct.Struct("<HII")
assert _REGISTER_TAIL.size == 10
_EXECUTE_FIXED: Final = struct.Struct("<IBI")
_LONG_DATA_FIXED: Final = struct.Struct("<IH")
_FETCH_FIXED: Final = struct.Struct("<II")
_BULK_FIXED: Final = struct.Struct("<IH")
assert [s.size for s in (_EXECUTE_FIXED, _LONG_DATA_FIXED, _FETCH_FIXED, _BULK_FIXED)] == [
    9,
    6,
    8,
    6,
]


@dataclass(frozen=True, slots=True)
class Quit:
    """The client leaves."""

    def build(self) -> bytes:
        return bytes((CommandCode.QUIT,))


@dataclass(frozen=True, slots=True)
class Ping:
    """Is anybody there?"""

    def build(self) -> bytes:
        return bytes((CommandCode.PING,))


@dataclass(frozen=True, slots=True)
class StatisticsCommand:
    """Asks for one line of text, sent bare."""

    def build(self) -> bytes:
        return bytes((CommandCode.STATISTICS,))


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """Asks for the rows of SHOW PROCESSLIST; of old clients."""

    def build(self) -> bytes:
        return bytes((CommandCode.PROCESS_INFO,))


@dataclass(frozen=True, slots=True)
class Debug:
    """Asks for a dump of the server's state in its log."""

    def build(self) -> bytes:
        return bytes((CommandCode.DEBUG,))


@dataclass(frozen=True, slots=True)
class ProcessKill:
    """The old form of KILL."""

    connection_id: int

    def build(self) -> bytes:
        return bytes((CommandCode.PROCESS_KILL,)) + self.connection_id.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class FieldList:
    """Asks for the columns of a table."""

    table: str
    pattern: str = ""

    def build(self) -> bytes:
        names = _encoded(self.table) + b"\0" + _encoded(self.pattern)
        return bytes((CommandCode.FIELD_LIST,)) + names


@dataclass(frozen=True, slots=True)
class ChangeUser:
    """Log in anew on this connection. `request` has what a login has."""

    request: LoginRequest

    def build(self) -> bytes:
        request = self.request
        answer = request.auth_response
        parts = [
            bytes((CommandCode.CHANGE_USER,)),
            nul_terminated(_encoded(request.user)),
            bytes((len(answer),)) + answer,
            nul_terminated(_encoded(request.database or "")),
            request.charset.to_bytes(2, "little"),
            nul_terminated(_encoded(request.plugin or "")),
        ]
        if request.capabilities & Capability.CONNECT_ATTRS:
            parts.append(request.built_attributes())
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class ResetConnection:
    """Forget the state of the session."""

    def build(self) -> bytes:
        return bytes((CommandCode.RESET_CONNECTION,))


@dataclass(frozen=True, slots=True)
class InitDatabase:
    """The default database from now on."""

    database: str

    def build(self) -> bytes:
        return bytes((CommandCode.INIT_DB,)) + _encoded(self.database)


@dataclass(frozen=True, slots=True, init=False, match_args=False)
class Query:
    """A statement, in the character set of the client. A large one may be a bytearray, which is the receiver's own."""

    text: bytes

    __match_args__ = ("sql",)

    def __init__(self, sql: str | bytes) -> None:
        object.__setattr__(self, "text", _encoded(sql) if isinstance(sql, str) else sql)

    @property
    def sql(self) -> str:
        """The statement as UTF-8; other bytes survive as surrogate escapes."""
        return _decoded(self.text)

    def build(self) -> bytes:
        return bytes((CommandCode.QUERY,)) + self.text


@dataclass(frozen=True, slots=True)
class StmtPrepare:
    """A statement to be prepared; as `Query`."""

    text: bytes

    def build(self) -> bytes:
        return bytes((CommandCode.STMT_PREPARE,)) + self.text


@dataclass(frozen=True, slots=True)
class StmtExecute:
    """Execute a prepared statement. `body` are its parameters."""

    number: int
    cursor_flags: int = 0
    body: bytes | memoryview = b""

    def build(self) -> bytes:
        head = _EXECUTE_FIXED.pack(self.number, self.cursor_flags, 1)
        return bytes((CommandCode.STMT_EXECUTE,)) + head + self.body


@dataclass(frozen=True, slots=True)
class StmtSendLongData:
    """A part of a parameter's value. There is no answer."""

    number: int
    parameter: int
    data: bytes | memoryview

    def build(self) -> bytes:
        head = _LONG_DATA_FIXED.pack(self.number, self.parameter)
        return bytes((CommandCode.STMT_SEND_LONG_DATA,)) + head + self.data


@dataclass(frozen=True, slots=True)
class StmtClose:
    """Forget a prepared statement. There is no answer."""

    number: int

    def build(self) -> bytes:
        return bytes((CommandCode.STMT_CLOSE,)) + self.number.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class StmtReset:
    """Forget a prepared statement's cursor and long data."""

    number: int

    def build(self) -> bytes:
        return bytes((CommandCode.STMT_RESET,)) + self.number.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class StmtFetch:
    """Some more rows of a cursor."""

    number: int
    rows: int

    def build(self) -> bytes:
        return bytes((CommandCode.STMT_FETCH,)) + _FETCH_FIXED.pack(self.number, self.rows)


class BulkFlag(IntFlag):
    """Flags of COM_STMT_BULK_EXECUTE."""

    UNIT_RESULTS = 0x40
    TYPES_FOLLOW = 0x80


@dataclass(frozen=True, slots=True)
class StmtBulkExecute:
    """Execute a prepared statement for many rows of parameters."""

    number: int
    flags: int
    body: bytes | memoryview = b""

    def build(self) -> bytes:
        head = _BULK_FIXED.pack(self.number, self.flags)
        return bytes((CommandCode.STMT_BULK_EXECUTE,)) + head + self.body


@dataclass(frozen=True, slots=True)
class Refresh:
    """The old form of FLUSH."""

    flags: int

    def build(self) -> bytes:
        return bytes((CommandCode.REFRESH, self.flags))


@dataclass(frozen=True, slots=True)
class ShutdownCommand:
    """The old form of SHUTDOWN, which `mariadb-admin shutdown` sends."""

    def build(self) -> bytes:
        return bytes((CommandCode.SHUTDOWN, 0))


@dataclass(frozen=True, slots=True)
class SetOption:
    """0 allows several statements in one query, 1 forbids it."""

    option: int

    def build(self) -> bytes:
        return bytes((CommandCode.SET_OPTION,)) + self.option.to_bytes(2, "little")


@dataclass(frozen=True, slots=True)
class RegisterSlave:
    """The entry of a replica in SHOW SLAVE HOSTS."""

    server_id: int
    host: str = ""
    user: str = ""
    password: str = ""
    port: int = 0
    rank: int = 0
    master_id: int = 0

    def build(self) -> bytes:
        parts = [bytes((CommandCode.REGISTER_SLAVE,)), self.server_id.to_bytes(4, "little")]
        for text in (self.host, self.user, self.password):
            encoded = _encoded(text)
            parts.append(bytes((len(encoded),)) + encoded)
        parts.append(_REGISTER_TAIL.pack(self.port, self.rank, self.master_id))
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class BinlogDump:
    """Start the stream. With a GTID state set, `file` and `position` mean nothing."""

    server_id: int
    flags: int = 0
    file: str = ""
    position: int = 4

    @property
    def non_block(self) -> bool:
        """End at the end of the binlog. A client with server_id 0 means that, too."""
        return bool(self.flags & DumpFlag.NON_BLOCK) or self.server_id == 0

    @property
    def annotate(self) -> bool:
        """ANNOTATE_ROWS events are wanted."""
        return bool(self.flags & DumpFlag.SEND_ANNOTATE_ROWS)

    def build(self) -> bytes:
        return (
            bytes((CommandCode.BINLOG_DUMP,))
            + _DUMP_FIXED.pack(self.position, self.flags, self.server_id)
            + _encoded(self.file)
        )


@dataclass(frozen=True, slots=True)
class BinlogDumpGtid(BinlogDump):
    """Start the stream after a position, of which the text is not looked at before it is asked for."""

    gtid_list: str = ""

    def position_of(self) -> SlavePosition:
        """Raises `BadGtidList` (1941), `DuplicateGtidDomain` (1943)."""
        return SlavePosition.from_peer(self.gtid_list)

    def build(self) -> bytes:
        name, text = _encoded(self.file), self.gtid_list.encode("ascii")
        return b"".join(
            (
                bytes((CommandCode.BINLOG_DUMP_GTID,)),
                self.flags.to_bytes(2, "little"),
                self.server_id.to_bytes(4, "little"),
                len(name).to_bytes(4, "little"),
                name,
                self.position.to_bytes(8, "little"),
                len(text).to_bytes(4, "little"),
                text,
            )
        )


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command that we do not serve: to be answered by error 1047."""

    code: int


Command = (
    Quit
    | Ping
    | StatisticsCommand
    | ProcessInfo
    | Debug
    | ProcessKill
    | FieldList
    | ChangeUser
    | ResetConnection
    | InitDatabase
    | Query
    | StmtPrepare
    | StmtExecute
    | StmtSendLongData
    | StmtClose
    | StmtReset
    | StmtFetch
    | StmtBulkExecute
    | Refresh
    | ShutdownCommand
    | SetOption
    | RegisterSlave
    | BinlogDump
    | BinlogDumpGtid
    | UnknownCommand
)


def parse_command(payload: bytes, *, has_attributes: bool = False) -> Command:
    """Read one command. A bytearray is taken over.

    Args:
        has_attributes: the client has said CONNECT_ATTRS at its login, so that COM_CHANGE_USER has attributes, too.

    Raises `ServerError` (1105, 1236, 1835, 1941) for a body that makes no sense.
    """
    code = payload[0] if payload else _SLEEP
    parse = _PARSERS.get(code)
    if parse is None and code not in _WITH_BODIES and code != CommandCode.CHANGE_USER:
        return UnknownCommand(code)
    try:
        if code in _TEXTS and isinstance(payload, bytearray):
            del payload[:1]  # a large statement, which is not copied
            if payload.endswith(_END_OF_TEXT):
                del payload[-1:]
            return Query(payload) if code == CommandCode.QUERY else StmtPrepare(payload)
        if code in _WITH_BODIES:
            return _WITH_BODIES[code](payload)
        cursor = Cursor(payload, f"command {code:#04x}", 1)
        if parse is None:
            return ChangeUser(LoginRequest.parse_change(cursor, has_attributes=has_attributes))
        return parse(cursor)
    except ProtocolError as error:
        if code == CommandCode.REGISTER_SLAVE:
            raise UnknownServerError("Wrong parameters to function register_slave") from error
        if code == CommandCode.CHANGE_USER:
            raise UnknownCommandError() from error
        raise MalformedPacket() from error


_END_OF_TEXT: Final = b"\0"
"""The end of C's strings, which mariadb-slap sends behind its statements: it is no part of them."""


def _text(cursor: Cursor) -> bytes:
    return cursor.rest().removesuffix(_END_OF_TEXT)


def _parse_init_db(cursor: Cursor) -> InitDatabase:
    return InitDatabase(_decoded(cursor.take(min(cursor.remaining, DATABASE_BYTES_MAX + 1))))


def _parse_field_list(cursor: Cursor) -> FieldList:
    table, _, pattern = cursor.take(min(cursor.remaining, FIELD_LIST_BYTES_MAX)).partition(b"\0")
    return FieldList(_decoded(table), _decoded(pattern))


def _parse_fetch(cursor: Cursor) -> StmtFetch:
    return StmtFetch(cursor.integer(4), cursor.integer(4))


# Commands whose end is as long as the packet: it is not copied.


def _parse_execute(payload: bytes) -> StmtExecute:
    number, flags, _ = _EXECUTE_FIXED.unpack(_head(payload, _EXECUTE_FIXED.size))
    return StmtExecute(number, flags, memoryview(payload)[1 + _EXECUTE_FIXED.size :])


def _parse_long_data(payload: bytes) -> StmtSendLongData:
    number, parameter = _LONG_DATA_FIXED.unpack(_head(payload, _LONG_DATA_FIXED.size))
    return StmtSendLongData(number, parameter, memoryview(payload)[1 + _LONG_DATA_FIXED.size :])


def _parse_bulk(payload: bytes) -> StmtBulkExecute:
    number, flags = _BULK_FIXED.unpack(_head(payload, _BULK_FIXED.size))
    return StmtBulkExecute(number, flags, memoryview(payload)[1 + _BULK_FIXED.size :])


def _head(payload: bytes, size: int) -> bytes:
    return Cursor(payload, f"command {payload[0]:#04x}", 1).take(size)


def _parse_register_slave(cursor: Cursor) -> RegisterSlave:
    server_id = cursor.integer(4)
    host, user, password = (
        _report_text(cursor, limit)
        for limit in (REPORT_HOST_BYTES_MAX, REPORT_USER_BYTES_MAX, REPORT_PASSWORD_BYTES_MAX)
    )
    port, rank, master_id = _REGISTER_TAIL.unpack(cursor.take(_REGISTER_TAIL.size))
    return RegisterSlave(server_id, host, user, password, port, rank, master_id)


def _report_text(cursor: Cursor, limit: int) -> str:
    text = cursor.short_bytes()
    if len(text) > limit:
        raise ProtocolError(f"COM_REGISTER_SLAVE: text of {len(text)} bytes, limit {limit}")
    return _decoded(text)


def _parse_binlog_dump(cursor: Cursor) -> BinlogDump:
    position, flags, server_id = _DUMP_FIXED.unpack(cursor.take(_DUMP_FIXED.size))
    name = cursor.take(min(cursor.remaining, FILE_NAME_BYTES_MAX))
    return BinlogDump(server_id, flags, _file_name(name), position)


def _parse_binlog_dump_gtid(cursor: Cursor) -> BinlogDumpGtid:
    flags = cursor.integer(2)
    server_id = cursor.integer(4)
    name_bytes = cursor.integer(4)
    file = _file_name(cursor.take(min(name_bytes, FILE_NAME_BYTES_MAX)))
    cursor.skip(max(0, name_bytes - FILE_NAME_BYTES_MAX))
    position = cursor.integer(8)
    length = cursor.integer(4)
    if GTID_LIST_BYTES_MAX < length <= cursor.remaining:
        raise GtidListTooLong(length, GTID_LIST_BYTES_MAX)
    gtid_list = cursor.take(length)
    # MySQL's set begins with the number of its members in eight bytes, some of them NUL.
    if b"\0" in gtid_list or not gtid_list.isascii():
        raise MasterFatalError(
            "COM_BINLOG_DUMP_GTID carries a MySQL GTID set; a MariaDB GTID list is needed"
        )
    return BinlogDumpGtid(server_id, flags, file, position, gtid_list.decode("ascii"))


def _file_name(data: bytes) -> str:
    # python-mysql-replication sends three NULs for "no name".
    return _decoded(data[:FILE_NAME_BYTES_MAX].partition(b"\0")[0])


_PARSERS: Final[dict[int, Callable[[Cursor], Command]]] = {
    CommandCode.QUIT: lambda _: Quit(),
    CommandCode.INIT_DB: _parse_init_db,
    CommandCode.QUERY: lambda cursor: Query(_text(cursor)),
    CommandCode.REFRESH: lambda cursor: Refresh(cursor.integer(1)),
    CommandCode.SHUTDOWN: lambda _: ShutdownCommand(),
    CommandCode.STATISTICS: lambda _: StatisticsCommand(),
    CommandCode.PROCESS_INFO: lambda _: ProcessInfo(),
    CommandCode.PING: lambda _: Ping(),
    CommandCode.BINLOG_DUMP: _parse_binlog_dump,
    CommandCode.REGISTER_SLAVE: _parse_register_slave,
    CommandCode.SET_OPTION: lambda cursor: SetOption(cursor.integer(2)),
    CommandCode.BINLOG_DUMP_GTID: _parse_binlog_dump_gtid,
    CommandCode.RESET_CONNECTION: lambda _: ResetConnection(),
    CommandCode.DEBUG: lambda _: Debug(),
    CommandCode.PROCESS_KILL: lambda cursor: ProcessKill(cursor.integer(4)),
    CommandCode.FIELD_LIST: _parse_field_list,
    CommandCode.STMT_PREPARE: lambda cursor: StmtPrepare(_text(cursor)),
    CommandCode.STMT_CLOSE: lambda cursor: StmtClose(cursor.integer(4)),
    CommandCode.STMT_RESET: lambda cursor: StmtReset(cursor.integer(4)),
    CommandCode.STMT_FETCH: _parse_fetch,
}
_TEXTS: Final = frozenset({CommandCode.QUERY, CommandCode.STMT_PREPARE})
_SLEEP: Final = 0
"""COM_SLEEP, for which MariaDB takes an empty packet; no client may say it."""
_WITH_BODIES: Final[dict[int, Callable[[bytes], Command]]] = {
    CommandCode.STMT_EXECUTE: _parse_execute,
    CommandCode.STMT_SEND_LONG_DATA: _parse_long_data,
    CommandCode.STMT_BULK_EXECUTE: _parse_bulk,
}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
