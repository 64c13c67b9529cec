"""Answers to a command: OK, EOF, ERR and result sets. Rows of the binary protocol are in `binary_rows`.

OK ::

    00 | affected rows lenenc | insert id lenenc | status u16 | warnings u16 | info lenenc or none
       | session state lenenc                        (only with STATUS_SESSION_STATE_CHANGED, behind an info)

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

A client with DEPRECATE_EOF gets no EOF behind the definitions, and in the place of the last one an OK packet that
begins with FE. One with CACHE_METADATA gets a byte behind the column count: 0 if the definitions are left out, because
they are those that it was sent before (then the EOF behind them still comes), 1 if they follow.

Column definition ::

    "def" | schema | table | original table | name | original name      (lenenc strings)
    extended type, lenenc: pairs of its kind u8 (0 type, 1 format) and lenenc text   (only with EXTENDED_METADATA)
    0C | charset u16 | length u32 | type u8 | flags u16 | decimals u8 | 0000

Session state: for each change a kind u8, and its content, lenenc: of a variable name and value (lenenc strings each),
of `StateChange.ANY` the byte '1', of all others one lenenc string.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError, RemoteError, ServerError
from binlog_protocol.events.column_type import ColumnType
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
STATUS_MORE_RESULTS: Final = (
    0x0008  # the command has several statements, and another answer follows
)
STATUS_CURSOR_EXISTS: Final = 0x0040  # the rows are to be fetched
STATUS_LAST_ROW_SENT: Final = 0x0080  # there are no more rows to be fetched
STATUS_NO_BACKSLASH_ESCAPES: Final = 0x0200  # by these clients choose how they quote
STATUS_IN_TRANS_READONLY: Final = 0x2000
STATUS_SESSION_STATE_CHANGED: Final = 0x4000
STATUS_ANSI_QUOTES: Final = 0x8000

CHARSET_UTF8: Final = 33
CHARSET_BINARY: Final = 63

FLAG_NOT_NULL: Final = 0x0001
FLAG_UNSIGNED: Final = 0x0020
FLAG_ZEROFILL: Final = 0x0040
FLAG_BINARY: Final = 0x0080
FLAG_NO_DEFAULT: Final = 0x1000

DECIMALS_OF_TEXT: Final = 39
_TYPE, _FORMAT = 0, 1  # kinds of extended types
_U32_MAX: Final = 2**32 - 1
_UTF8_BYTES: Final = 3  # of a character, as the length of a column counts them

_COLUMN_FIXED: Final = struct.Struct("<BHIBHBH")
assert _COLUMN_FIXED.size == 13
_EOF: Final = struct.Struct("<BHH")
assert _EOF.size == 5

# A time is a text as MariaDB prints it.
Value = str | int | float | Decimal | bytes | None
Row = Sequence[Value]


def utf8(text: str) -> bytes:
    """Text as it is sent in UTF-8: bytes that came from a client as no UTF-8 go back as they came."""
    return text.encode("utf-8", "surrogateescape")


class ResultCharset(NamedTuple):
    """The character set of results: the number of a collation, the bytes of a character at most, how text is made."""

    collation: int = CHARSET_UTF8
    bytes_per_character: int = _UTF8_BYTES
    encode: Callable[[str], bytes] = utf8

    def name(self, text: str) -> bytes:
        """The name of a column, which is always text."""
        return text.encode("utf-8", "replace") if self.encode is utf8 else self.encode(text)

    def rows(
        self, columns: Sequence[Column], encode: Callable[[Row], bytes]
    ) -> Callable[[Row], bytes]:
        """`encode`, with the texts in this character set."""
        if self.encode is utf8:
            return encode
        are_texts = [column.charset == CHARSET_UTF8 for column in columns]

        def converted(row: Row) -> bytes:
            return encode(
                [
                    self.encode(value) if is_text and isinstance(value, str) else value
                    for value, is_text in zip(row, are_texts, strict=True)
                ]
            )

        return converted


UTF8: Final = ResultCharset()


class StateChange(IntEnum):
    """Kinds of changes of the session's state."""

    VARIABLE = 0
    SCHEMA = 1
    ANY = 2  # something has changed, whatever it was
    TRANSACTION_CHARACTERISTICS = 4
    TRANSACTION_STATE = 5


class AnswerForm(NamedTuple):
    """How a client wants its answers, by the capabilities that both sides have."""

    deprecates_eof: bool = False
    tracks_state: bool = False
    extended_metadata: bool = False
    caches_metadata: bool = False


CLASSIC: Final = AnswerForm()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result set. `length` is in bytes of the widest value; of a text, three for each character."""

    name: str
    type: int = ColumnType.VAR_STRING
    charset: int = CHARSET_UTF8
    length: int = 1024
    flags: int = 0
    decimals: int = 0
    table: str = ""
    schema: str = ""
    original_table: str = ""
    original_name: str = ""
    format: str = ""  # of a text, as json
    native: str = ""  # the type of what is sent as a text, as uuid

    @classmethod
    def text(
        cls,
        name: str,
        characters: int = 255,
        *,
        kind: int = ColumnType.VAR_STRING,
        null: bool = False,
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
        return cls.unsigned(name, ColumnType.LONGLONG, length, null=null)

    @classmethod
    def integer(cls, name: str, length: int = 10, *, null: bool = False) -> Column:
        """LONG (3), unsigned."""
        return cls.unsigned(name, ColumnType.LONG, length, null=null)

    @classmethod
    def decimal(cls, name: str, value: Decimal) -> Column:
        """NEWDECIMAL (246), as wide as the value."""
        digits, scale = digits_and_scale(value)
        return cls.binary(name, ColumnType.NEWDECIMAL, digits + bool(scale) + 1, scale)

    def of_table(self, table: str = "", original_name: str = "") -> Column:
        """The column as MariaDB sends it for that table of information_schema; `original_name`: as it is there."""
        is_text = self.charset == CHARSET_UTF8
        flags = self.flags if self.type == ColumnType.DATETIME else self.flags & ~FLAG_BINARY
        decimals = 0 if is_text else self.decimals
        column = replace(self, flags=flags | FLAG_NO_DEFAULT, decimals=decimals)
        if not table:
            return column
        return replace(
            column,
            schema="information_schema",
            table=table,
            original_table=table,
            original_name=original_name or self.name,
        )

    def sent_in(self, charset: ResultCharset) -> Column:
        """The column for a client that gets its texts in that character set."""
        if self.charset != CHARSET_UTF8 or charset == UTF8:
            return self
        characters = self.length // _UTF8_BYTES
        return replace(
            self, charset=charset.collation, length=characters * charset.bytes_per_character
        )

    def build(self, charset: ResultCharset = UTF8, *, extended: bool = False) -> bytes:
        """The definition, with its names in a character set; `extended` with the field of EXTENDED_METADATA."""
        names = ("def", self.schema, self.table, self.original_table, self.name, self.original_name)
        more = b"".join(
            bytes((kind,)) + lenenc_bytes(text.encode())
            for kind, text in ((_TYPE, self.native), (_FORMAT, self.format))
            if text
        )
        return b"".join(
            [lenenc_bytes(charset.name(name)) for name in names]
            + [lenenc_bytes(more)] * extended
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
    state: bytes = b"",
    ends_rows: bool = False,
) -> bytes:
    """An OK packet.

    Args:
        state: changes of the session's state, each made by `state_change`; for clients with SESSION_TRACK only.
        ends_rows: it stands in the place of the EOF behind the rows.
    """
    if state:
        status |= STATUS_SESSION_STATE_CHANGED
    return (
        bytes((EOF_MARK if ends_rows else OK_MARK,))
        + lenenc_int(affected_rows)
        + lenenc_int(insert_id)
        + status.to_bytes(2, "little")
        + warnings.to_bytes(2, "little")
        + (lenenc_bytes(info) if info or state else b"")
        + (lenenc_bytes(state) if state else b"")
    )


def state_change(kind: StateChange, *texts: str) -> bytes:
    """One change of the session's state: of a variable its name and value, of others one text."""
    if kind is StateChange.ANY:
        return bytes((kind,)) + lenenc_bytes(b"1")
    content = b"".join(lenenc_bytes(utf8(text)) for text in texts)
    return bytes((kind,)) + lenenc_bytes(content)


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
    return lenenc_bytes(utf8(str(value)))


def parse_row_bytes(payload: bytes, column_count: int) -> list[bytes | None]:
    """The values as they were sent. Raises `ProtocolError`."""
    cursor = Cursor(payload, "row")
    values = [cursor.lenenc_bytes_or_null() for _ in range(column_count)]
    if cursor.remaining:
        raise ProtocolError(f"row: {cursor.remaining} bytes follow the last value")
    return values


def parse_row(payload: bytes, column_count: int) -> list[str | None]:
    """Raises `ProtocolError`. Bytes that are not UTF-8 survive as surrogate escapes."""
    values = parse_row_bytes(payload, column_count)
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
    """The payloads of a whole result set of texts, in the classic form; None is NULL, numbers are sent as text."""
    payloads = [lenenc_int(len(columns))]
    payloads += [column.sent_in(charset).build() for column in columns]
    payloads.append(eof_payload(status=status))
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"row of {len(row)} values for {len(columns)} columns")
        payloads.append(row_payload(row))
    payloads.append(eof_payload(status=status, warnings=warnings))
    return payloads
