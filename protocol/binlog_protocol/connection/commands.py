"""Commands: what a client sends after the login. The first byte of the payload is the command.

====  ====================  ==================================================================
byte  command               body
====  ====================  ==================================================================
01    COM_QUIT              none
02    COM_INIT_DB           database name
03    COM_QUERY             statement
07    COM_REFRESH           flags u8
09    COM_STATISTICS        none
0E    COM_PING              none
12    COM_BINLOG_DUMP       position u32, flags u16, server_id u32, file name (to its first NUL)
15    COM_REGISTER_SLAVE    server_id u32; host, user, password with a one-byte length each;
                            port u16, rank u32, master_id u32
1B    COM_SET_OPTION        option u16
1E    COM_BINLOG_DUMP_GTID  flags u16, server_id u32, length u32, file name, position u64,
                            length u32, GTID list
1F    COM_RESET_CONNECTION  none
====  ====================  ==================================================================

A body that makes no sense raises the `ServerError` that a MariaDB master answers; the connection
stays. COM_BINLOG_DUMP_GTID is MySQL's; MariaDB's own text takes the place of MySQL's binary set.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from binlog_protocol.errors import (
    BadGtidList,
    MalformedPacket,
    MasterFatalError,
    ProtocolError,
    UnknownServerError,
)
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import (
    DATABASE_BYTES_MAX,
    FILE_NAME_BYTES_MAX,
    GTID_LIST_BYTES_MAX,
    REPORT_HOST_BYTES_MAX,
    REPORT_PASSWORD_BYTES_MAX,
    REPORT_USER_BYTES_MAX,
)
from binlog_protocol.values import Cursor


class CommandCode(IntEnum):
    """The first byte of a command."""

    QUIT = 0x01
    INIT_DB = 0x02
    QUERY = 0x03
    REFRESH = 0x07
    STATISTICS = 0x09
    PING = 0x0E
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15
    SET_OPTION = 0x1B
    BINLOG_DUMP_GTID = 0x1E
    RESET_CONNECTION = 0x1F


class DumpFlag(IntFlag):
    """Flags of the dump commands."""

    NON_BLOCK = 0x0001  # EOF at the end of the binlog instead of waiting
    SEND_ANNOTATE_ROWS = 0x0002


_DUMP_FIXED: Final = struct.Struct("<IHI")
assert _DUMP_FIXED.size == 10
_REGISTER_TAIL: Final = struct.Struct("<HII")
assert _REGISTER_TAIL.size == 10


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
class ResetConnection:
    """Forget the user variables."""

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
class Refresh:
    """The old form of FLUSH."""

    flags: int

    def build(self) -> bytes:
        return bytes((CommandCode.REFRESH, self.flags))


@dataclass(frozen=True, slots=True)
class SetOption:
    """0 allows several statements in one query, 1 forbids it."""

    option: int

    def build(self) -> bytes:
        return bytes((CommandCode.SET_OPTION,)) + self.option.to_bytes(2, "little")


@dataclass(frozen=True, slots=True)
class RegisterSlave:
    """How a replica wants to appear in SHOW SLAVE HOSTS."""

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
    | ResetConnection
    | InitDatabase
    | Query
    | Refresh
    | SetOption
    | RegisterSlave
    | BinlogDump
    | BinlogDumpGtid
    | UnknownCommand
)


def parse_command(payload: bytes) -> Command:
    """Read one command. A bytearray is taken over.

    Raises `ServerError` (1105, 1236, 1835, 1941) for a body that makes no sense and
    `ProtocolError` for an empty payload.
    """
    if not payload:
        raise ProtocolError("empty command packet", MalformedPacket())
    code = payload[0]
    parse = _PARSERS.get(code)
    if parse is None:
        return UnknownCommand(code)
    try:
        if code == CommandCode.QUERY and isinstance(payload, bytearray):
            del payload[:1]  # a large statement, which is not copied
            return Query(payload)
        return parse(Cursor(payload, f"command {code:#04x}", 1))
    except ProtocolError as error:
        if code == CommandCode.REGISTER_SLAVE:
            raise UnknownServerError("Wrong parameters to function register_slave") from error
        raise MalformedPacket from error


def _parse_init_db(cursor: Cursor) -> InitDatabase:
    return InitDatabase(_decoded(cursor.take(min(cursor.remaining, DATABASE_BYTES_MAX + 1))))


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
        raise BadGtidList.too_long(length, GTID_LIST_BYTES_MAX)
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
    CommandCode.QUERY: lambda cursor: Query(cursor.rest()),
    CommandCode.REFRESH: lambda cursor: Refresh(cursor.integer(1)),
    CommandCode.STATISTICS: lambda _: StatisticsCommand(),
    CommandCode.PING: lambda _: Ping(),
    CommandCode.BINLOG_DUMP: _parse_binlog_dump,
    CommandCode.REGISTER_SLAVE: _parse_register_slave,
    CommandCode.SET_OPTION: lambda cursor: SetOption(cursor.integer(2)),
    CommandCode.BINLOG_DUMP_GTID: _parse_binlog_dump_gtid,
    CommandCode.RESET_CONNECTION: lambda _: ResetConnection(),
}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
