"""Rows of a table as bytes, and what is made of them: keys, and the checksum of CHECKSUM TABLE.

A row is its full image, as WRITE_ROWS has it: null bits, then the values that are not NULL
(`events/rows/rows_event.py`).
Row events of a FULL image take it as it is.

A key is the values of its columns in bytes that compare as the values do. In front of a value that may be NULL stands
01, and 00 alone is NULL:

=====================================  ======================================================================
column                                 bytes
=====================================  ======================================================================
integers                               big endian, from the smallest one on
FLOAT, DOUBLE                          big endian; the sign inverted, or all bits of a negative one; no -0
DECIMAL, YEAR, BIT, TIME, DATETIME,
TIMESTAMP                              as in the row
DATE, ENUM, SET                        big endian
BINARY, INET4, INET6                   padded with zeros
UUID                                   in the order of its storage: see `uuid_order`
VARBINARY, BLOB, text                  see `collation.py`
=====================================  ======================================================================

The checksum of a row is the CRC-32 of its null bytes and the bytes of its values, one behind the other; that of a
table the sum of those of its rows, in 32 bits:

* null bytes: a bit 1 if the table has no column of varying length; a bit for each column that may be NULL; the rest of
  the last byte 1. No bits, no byte. The bit of a VIRTUAL column is 1
* values: as in the row, but CHAR, BINARY, INET padded to their widths, no lengths in front, COMPRESSED ones plain, UUID
  in the order of its storage; VIRTUAL columns not at all (in 10.11 STORED ones neither, and their bits are 1)

As 10.11 and 11.8 give it for InnoDB tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events.charsets import BINARY_COLLATION, space_of
from binlog_protocol.events.column_type import BLOB_TYPES, INTEGER_SIZES, ColumnType
from binlog_protocol.events.rows import Value, read_value, value_size, write_value
from binlog_protocol.events.rows.rows_event import image_bytes
from binlog_protocol.events.rows.strings import decompressed
from binlog_protocol.events.table_map import ColumnKind, KeyPart
from binlog_protocol.tables.collation import beginning, binary_key, collation_key
from binlog_protocol.tables.definition import Generation, StoredKey, StoredTable
from binlog_protocol.values import Cursor

T = ColumnType
CHECKSUM_MODULUS: Final = 1 << 32
_COMPRESSED: Final = (T.VARCHAR_COMPRESSED, T.BLOB_COMPRESSED)
_VARYING: Final = BLOB_TYPES | {T.VARCHAR, T.VARCHAR_COMPRESSED, T.GEOMETRY}
_STRINGS: Final = (*BLOB_TYPES, T.VARCHAR, T.VARCHAR_COMPRESSED, T.STRING)
_FLOATS: Final = (T.FLOAT, T.DOUBLE)
_REVERSED: Final = (T.DATE, T.ENUM, T.SET)
_NULL_KEY: Final = b"\0"
_VALUE_KEY: Final = b"\1"

Values = tuple[bytes | None, ...]
"""The bytes of each value of a row, with the length in front if there is one; None for NULL."""


class RowFormat:
    """Rows of one table."""

    def __init__(self, definition: StoredTable) -> None:
        self.definition: Final = definition
        self.columns: Final = tuple(column.logged() for column in definition.columns)
        self.present: Final = (1 << len(self.columns)) - 1
        self._sizes: Final = [value_size(column) for column in self.columns]
        self._null_bytes: Final = (len(self.columns) + 7) // 8
        self._without_nulls: Final = image_bytes([b""] * len(self.columns), self.present)
        # What makes the key of an integer: its sign bit, as a number; None for other columns.
        self._signs: Final = [
            None
            if column.type not in INTEGER_SIZES
            else 0
            if column.unsigned
            else 1 << 8 * INTEGER_SIZES[column.type] - 1
            for column in self.columns
        ]
        self._has_varying: Final = any(column.type in _VARYING for column in self.columns)

    def row(self, values: Sequence[Value]) -> bytes:
        """The row of these values, one for each column. Raises `BadValue`."""
        if len(values) != len(self.columns):
            raise BadValue(
                f"{len(values)} values for {len(self.columns)} columns", self._where(None)
            )
        return self.joined([self.value(i, value) for i, value in enumerate(values)])

    def value(self, number: int, value: Value) -> bytes | None:
        """The bytes of a value of a column. Raises `BadValue` for one that the column does not hold."""
        column, definition = self.columns[number], self.definition.columns[number]
        try:
            if value is None:
                if not definition.nullable:
                    raise BadValue("NULL in a column that is NOT NULL")
                return None
            raw = write_value(column, value)
            most = definition.characters
            if most is not None and isinstance(value, str) and len(value) > most:
                trimmed = value.rstrip(" ") if column.type == T.STRING else value
                if len(trimmed) > most:
                    raise BadValue(f"{len(value)} characters in a column of {most}")
            return raw
        except BadValue as error:
            raise BadValue(error.what, self._where(number)) from None

    def values(self, row: bytes) -> tuple[Value, ...]:
        """The values of a row. Raises `ProtocolError`."""
        return tuple(
            None if raw is None else self.decoded(i, raw) for i, raw in enumerate(self.split(row))
        )

    def decoded(self, number: int, raw: bytes) -> Value:
        """A value of a column that is not NULL, from its bytes."""
        return read_value(self.columns[number], Cursor(raw, self._where(number)))

    def split(self, row: bytes) -> Values:
        """The bytes of each value. Raises `ProtocolError` for a row of another length."""
        nulls = int.from_bytes(row[: self._null_bytes], "little")
        at = self._null_bytes
        found: list[bytes | None] = []
        for fixed, length in self._sizes:
            if nulls & 1:
                found.append(None)
            else:
                size = fixed or length + int.from_bytes(row[at : at + length], "little")
                found.append(row[at : at + size])
                at += size
            nulls >>= 1
        if at != len(row):
            raise ProtocolError(
                f"a row of {self._where(None)} has {len(row)} bytes, its values {at}"
            )
        return tuple(found)

    def joined(self, values: Sequence[bytes | None]) -> bytes:
        """The row of these bytes: what `split` takes."""
        if None in values:
            return image_bytes(values, self.present)
        return self._without_nulls + b"".join(values)  # type: ignore[arg-type]

    def changed(self, row: bytes, values: Sequence[bytes | None]) -> bytes:
        """The row of these bytes, which takes the place of another."""
        return self.joined(values)

    def key(self, values: Values, key: StoredKey) -> bytes:
        """The key of a row, see above. Raises `BadValue` for text that is none."""
        return b"".join([self._part(values[part.column], part) for part in key.parts])

    def is_unique(self, values: Values, key: StoredKey) -> bool:
        """Whether no other row may have the same key: not if one of its columns is NULL."""
        return key.is_unique and all(values[part.column] is not None for part in key.parts)

    def _part(self, raw: bytes | None, part: KeyPart) -> bytes:
        if raw is None:
            return _NULL_KEY
        made = self._value_key(raw, part)
        return _VALUE_KEY + made if self.definition.columns[part.column].nullable else made

    def _value_key(self, raw: bytes, part: KeyPart) -> bytes:
        sign = self._signs[part.column]
        if sign is not None:
            return (int.from_bytes(raw, "little") ^ sign).to_bytes(len(raw), "big")
        column = self.columns[part.column]
        type_ = column.type
        if type_ in _FLOATS:
            return _float_key(raw)
        if type_ in _REVERSED:
            return raw[::-1]
        if type_ not in _STRINGS:
            return raw
        text = self._content(part.column, raw)
        if column.kind is not ColumnKind.AS_LOGGED:
            return text
        collation = column.collation or BINARY_COLLATION
        if part.prefix:
            text = beginning(text, collation, part.prefix)
        if collation == BINARY_COLLATION:
            return text if type_ == T.STRING else binary_key(text)
        return collation_key(text, collation)

    def _content(self, number: int, raw: bytes) -> bytes:
        """A value without its length, in its plain form; CHAR as it is logged, others with their padding."""
        column = self.columns[number]
        content = raw[self._sizes[number].length :]
        if column.type in _COMPRESSED:
            return decompressed(content)
        if column.type == T.STRING and column.collation in (None, BINARY_COLLATION):
            content = content.ljust(column.layout.size, b"\0")
            return uuid_order(content) if column.kind is ColumnKind.UUID else content
        return content

    def checksum(self, values: Values) -> int:
        """The checksum of one row: see above."""
        null_bytes, crc = self._checksum_nulls(values), 0
        if null_bytes:
            crc = zlib.crc32(null_bytes)
        for number, raw in enumerate(values):
            definition = self.definition.columns[number]
            if raw is not None and definition.generation is not Generation.VIRTUAL:
                crc = zlib.crc32(self._checksum_bytes(number, raw), crc)
        return crc

    def _checksum_bytes(self, number: int, raw: bytes) -> bytes:
        column = self.columns[number]
        content = self._content(number, raw)
        if column.type == T.STRING and column.collation not in (None, BINARY_COLLATION):
            assert column.collation is not None
            space = space_of(column.collation)
            return content + space * ((column.layout.size - len(content)) // len(space))
        return content

    def _checksum_nulls(self, values: Values) -> bytes:
        bits, count = (0, 0) if self._has_varying else (1, 1)
        for raw, column in zip(values, self.definition.columns, strict=True):
            if column.nullable:
                is_set = raw is None or column.generation is Generation.VIRTUAL
                bits |= is_set << count
                count += 1
        size = (count + 7) // 8
        return (bits | (1 << 8 * size) - (1 << count)).to_bytes(size, "little")

    def _where(self, number: int | None) -> str:
        table = f"{self.definition.database}.{self.definition.name}"
        return table if number is None else f"{table}.{self.definition.columns[number].name}"


def _float_key(raw: bytes) -> bytes:
    number = int.from_bytes(raw, "little")
    sign = 1 << 8 * len(raw) - 1
    if number == sign:  # -0
        number = 0
    number = number ^ (2 * sign - 1) if number & sign else number | sign
    return number.to_bytes(len(raw), "big")


def uuid_order(raw: bytes) -> bytes:
    """A UUID in the order of its storage, by which MariaDB compares: the parts of those of versions 1 to 5 reversed."""
    if not _is_reversed(raw):
        return raw
    return raw[10:16] + raw[8:10] + raw[6:8] + raw[4:6] + raw[:4]


def _is_reversed(raw: bytes) -> bool:
    version, variant = raw[6] >> 4, raw[8] >> 6
    return not (6 <= version <= 8 and variant == 2)
