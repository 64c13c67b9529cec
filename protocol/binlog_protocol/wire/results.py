"""Answers to a command: OK, EOF, ERR and result sets, in the classic form (with EOF packets).

OK ::

    00 | affected rows lenenc | insert id lenenc | status u16 | warnings u16 | info lenenc or none

EOF (payload shorter than 9 bytes) ::

    FE | warnings u16 | status u16

ERR ::

    FF | number u16 | '#' | SQLSTATE, 5 bytes | text to the end

Result set, one packet per line ::

    column count lenenc
    column definition                    (each column)
    EOF
    row: each value a lenenc string, or FB for NULL       (each row)
    EOF

Column definition ::

    "def" | schema | table | original table | name | original name      (lenenc strings)
    0C | charset u16 | length u32 | type u8 | flags u16 | decimals u8 | 0000
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError, RemoteError, ServerError
from binlog_protocol.events.numbers import digits_and_scale
from binlog_protocol.limits import ERROR_TEXT_BYTES_MAX, RESULT_COLUMNS_MAX
from binlog_protocol.values import Cursor, lenenc_bytes, lenenc_int

OK_MARK: Final = 0x00
LOCAL_INFILE_MARK: Final = 0xFB
EOF_MARK: Final = 0xFE
ERROR_MARK: Final = 0xFF

# A packet that begins with FE is an EOF only below this length; else it is a row.
EOF_LENGTH_LIMIT: Final = 9

STATUS_IN_TRANS: Final = 0x0001
STATUS_AUTOCOMMIT: Final = 0x0002
STATUS_NO_BACKSLASH_ESCAPES: Final = 0x0200  # by these clients choose how they quote
STATUS_IN_TRANS_READONLY: Final = 0x2000
STATUS_ANSI_QUOTES: Final = 0x8000

# Kinds of columns that a MariaDB server uses for the statements we answer.
TYPE_SHORT: Final = 2
TYPE_LONG: Final = 3
TYPE_FLOAT: Final = 4
TYPE_DOUBLE: Final = 5
TYPE_NULL: Final = 6
TYPE_TIMESTAMP: Final = 7
TYPE_LONGLONG: Final = 8
TYPE_DATETIME: Final = 12
TYPE_NEW_DECIMAL: Final = 246
TYPE_MEDIUM_BLOB: Final = 251
TYPE_VAR_STRING: Final = 253
TYPE_STRING: Final = 254

CHARSET_UTF8: Final = 33
CHARSET_BINARY: Final = 63

FLAG_NOT_NULL: Final = 0x0001
FLAG_UNSIGNED: Final = 0x0020
FLAG_BINARY: Final = 0x0080
FLAG_NO_DEFAULT: Final = 0x1000

DECIMALS_OF_TEXT: Final = 39
_U32_MAX: Final = 2**32 - 1
_UTF8_BYTES: Final = 3  # of a character, as the length of a column counts them

_COLUMN_FIXED: Final = struct.Struct("<BHIBHBH")
assert _COLUMN_FIXED.size == 13
_EOF: Final = struct.Struct("<BHH")
assert _EOF.size == 5

Value = str | int | bytes | None
Row = Sequence[Value]


class ResultCharset(NamedTuple):
    """The character set of results: the number of a collation, and the bytes of a character at most."""

    collation: int = CHARSET_UTF8
    bytes_per_character: int = _UTF8_BYTES


UTF8: Final = ResultCharset()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result set. `length` is in bytes of the widest value; of a text, three for each character."""

    name: str
    type: int = TYPE_VAR_STRING
    charset: int = CHARSET_UTF8
    length: int = 1024
    flags: int = 0
    decimals: int = 0
    table: str = ""
    schema: str = ""
    original_table: str = ""
    original_name: str = ""

    @classmethod
    def text(
        cls, name: str, characters: int = 255, *, kind: int = TYPE_VAR_STRING, null: bool = False
    ) -> Column:
        """VAR_STRING (253), unless `kind` is another type of texts."""
        length = characters * _UTF8_BYTES
        return cls(name, kind, CHARSET_UTF8, length, _not_null(null=null), DECIMALS_OF_TEXT)

    @classmethod
    def binary(
        cls, name: str, kind: int, length: int, decimals: int = 0, *, null: bool = False
    ) -> Column:
        """A column whose values have no character set: a signed number, a time."""
        flags = FLAG_BINARY | _not_null(null=null)
        return cls(name, kind, CHARSET_BINARY, length, flags, decimals)

    @classmethod
    def unsigned(cls, name: str, kind: int, length: int, *, null: bool = False) -> Column:
        """An integer of that type."""
        flags = FLAG_BINARY | FLAG_UNSIGNED | _not_null(null=null)
        return cls(name, kind, CHARSET_BINARY, length, flags)

    @classmethod
    def bigint(cls, name: str, length: int = 20, *, null: bool = False) -> Column:
        """LONGLONG (8), unsigned."""
        return cls.unsigned(name, TYPE_LONGLONG, length, null=null)

    @classmethod
    def integer(cls, name: str, length: int = 10, *, null: bool = False) -> Column:
        """LONG (3), unsigned."""
        return cls.unsigned(name, TYPE_LONG, length, null=null)

    @classmethod
    def decimal(cls, name: str, value: Decimal) -> Column:
        """NEWDECIMAL (246), as wide as the value."""
        digits, scale = digits_and_scale(value)
        return cls.binary(name, TYPE_NEW_DECIMAL, digits + bool(scale) + 1, scale)

    def of_table(self) -> Column:
        """The column as MariaDB sends it for a table of information_schema."""
        is_text = self.charset == CHARSET_UTF8
        flags = self.flags if self.type == TYPE_DATETIME else self.flags & ~FLAG_BINARY
        decimals = 0 if is_text else self.decimals
        return replace(self, flags=flags | FLAG_NO_DEFAULT, decimals=decimals)

    def sent_in(self, charset: ResultCharset) -> Column:
        """The column for a client that gets its texts in that character set."""
        if self.charset != CHARSET_UTF8 or charset == UTF8:
            return self
        characters = self.length // _UTF8_BYTES
        return replace(
            self, charset=charset.collation, length=characters * charset.bytes_per_character
        )

    def build(self) -> bytes:
        names = ("def", self.schema, self.table, self.original_table, self.name, self.original_name)
        return b"".join(
            [lenenc_bytes(name.encode()) for name in names]
            + [
                _COLUMN_FIXED.pack(
                    _COLUMN_FIXED.size - 1,
                    self.charset,
                    min(self.length, _U32_MAX),
                    self.type,
                    self.flags,
                    self.decimals,
                    0,
                )
            ]
        )

    @classmethod
    def parse(cls, payload: bytes) -> Column:
        """Raises `ProtocolError`."""
        cursor = Cursor(payload, "column definition")
        _catalog, schema, table, original_table, name, original_name = (
            cursor.lenenc_bytes().decode(errors="surrogateescape") for _ in range(6)
        )
        size, charset, length, kind, flags, decimals, _filler = _COLUMN_FIXED.unpack(
            cursor.take(_COLUMN_FIXED.size)
        )
        if size != _COLUMN_FIXED.size - 1:
            raise ProtocolError(f"column definition: fixed part of {size} bytes")
        return cls(
            name,
            kind,
            charset,
            length,
            flags,
            decimals,
            table,
            schema,
            original_table,
            original_name,
        )


def _not_null(*, null: bool) -> int:
    return 0 if null else FLAG_NOT_NULL


@dataclass(frozen=True, slots=True)
class Ok:
    """The content of an OK packet."""

    affected_rows: int = 0
    insert_id: int = 0
    status: int = STATUS_AUTOCOMMIT
    warnings: int = 0
    info: bytes = b""


@dataclass(frozen=True, slots=True)
class Eof:
    """The content of an EOF packet."""

    warnings: int = 0
    status: int = STATUS_AUTOCOMMIT


def ok_payload(
    *,
    affected_rows: int = 0,
    insert_id: int = 0,
    status: int = STATUS_AUTOCOMMIT,
    warnings: int = 0,
    info: bytes = b"",
) -> bytes:
    return (
        b"\x00"
        + lenenc_int(affected_rows)
        + lenenc_int(insert_id)
        + status.to_bytes(2, "little")
        + warnings.to_bytes(2, "little")
        + (lenenc_bytes(info) if info else b"")
    )


def parse_ok(payload: bytes) -> Ok:
    """Raises `ProtocolError`."""
    cursor = Cursor(payload, "OK packet")
    if cursor.integer(1) != OK_MARK:
        raise ProtocolError("OK packet: wrong first byte")
    affected_rows = cursor.lenenc_int()
    insert_id = cursor.lenenc_int()
    status = cursor.integer(2)
    warnings = cursor.integer(2)
    info = cursor.lenenc_bytes() if cursor.remaining else b""
    return Ok(affected_rows, insert_id, status, warnings, info)


def eof_payload(*, status: int = STATUS_AUTOCOMMIT, warnings: int = 0) -> bytes:
    return _EOF.pack(EOF_MARK, warnings, status)


def is_eof(payload: bytes) -> bool:
    return len(payload) < EOF_LENGTH_LIMIT and payload[:1] == b"\xfe"


def parse_eof(payload: bytes) -> Eof:
    """Raises `ProtocolError`."""
    cursor = Cursor(payload, "EOF packet")
    mark, warnings, status = _EOF.unpack(cursor.take(_EOF.size))
    if mark != EOF_MARK:
        raise ProtocolError("EOF packet: wrong first byte")
    return Eof(warnings, status)


def error_payload(error: ServerError) -> bytes:
    text = error.message.encode("utf-8", "replace")[:ERROR_TEXT_BYTES_MAX]
    # A character cut in half at the limit is dropped whole.
    text = text.decode("utf-8", "ignore").encode()
    return (
        b"\xff" + error.errno.to_bytes(2, "little") + b"#" + error.sqlstate.encode("ascii") + text
    )


def parse_error(payload: bytes) -> RemoteError:
    """Raises `ProtocolError`. Before the login a server may leave the SQLSTATE out."""
    cursor = Cursor(payload, "ERR packet")
    if cursor.integer(1) != ERROR_MARK:
        raise ProtocolError("ERR packet: wrong first byte")
    errno = cursor.integer(2)
    text = cursor.rest()
    sqlstate = b"HY000"
    if text[:1] == b"#":
        if len(text) < 6:
            raise ProtocolError("ERR packet: SQLSTATE is cut short")
        sqlstate, text = text[1:6], text[6:]
    shown = text[:ERROR_TEXT_BYTES_MAX].decode("utf-8", "replace")
    return RemoteError(errno, sqlstate.decode("ascii", "replace"), shown)


def row_payload(row: Row) -> bytes:
    return b"".join(map(_value_bytes, row))


def _value_bytes(value: Value) -> bytes:
    if value is None:
        return b"\xfb"
    if isinstance(value, bytes):
        return lenenc_bytes(value)
    return lenenc_bytes(str(value).encode("utf-8", "surrogateescape"))


def parse_row(payload: bytes, column_count: int) -> list[str | None]:
    """Raises `ProtocolError`. Bytes that are not UTF-8 survive as surrogate escapes."""
    cursor = Cursor(payload, "row")
    values = [cursor.lenenc_bytes_or_null() for _ in range(column_count)]
    if cursor.remaining:
        raise ProtocolError(f"row: {cursor.remaining} bytes follow the last value")
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def parse_column_count(payload: bytes) -> int:
    """The first packet of a result set. Raises `ProtocolError`."""
    cursor = Cursor(payload, "column count")
    count = cursor.lenenc_int()
    if cursor.remaining or not 0 < count <= RESULT_COLUMNS_MAX:
        raise ProtocolError(f"column count: {count}, {cursor.remaining} bytes follow")
    return count


def result_set_payloads(
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    status: int = STATUS_AUTOCOMMIT,
    warnings: int = 0,
    charset: ResultCharset = UTF8,
) -> list[bytes]:
    """The payloads of a whole result set; a value None is NULL, numbers are sent as text."""
    payloads = column_payloads(columns, status=status, charset=charset)
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"row of {len(row)} values for {len(columns)} columns")
        payloads.append(row_payload(row))
    payloads.append(eof_payload(status=status, warnings=warnings))
    return payloads


def column_payloads(
    columns: Sequence[Column],
    *,
    status: int = STATUS_AUTOCOMMIT,
    charset: ResultCharset = UTF8,
) -> list[bytes]:
    """The packets in front of the first row. `charset`: what the client is told of texts."""
    payloads = [lenenc_int(len(columns))]
    payloads += [column.sent_in(charset).build() for column in columns]
    payloads.append(eof_payload(status=status))
    return payloads
