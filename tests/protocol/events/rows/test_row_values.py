"""Values of row events from their bytes. The bytes are those that 10.11 and 11.8 log."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
import zlib
from decimal import Decimal

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import UndecodedText, charset_of, decode_text
from binlog_protocol.events.column_type import ColumnLayout, ColumnType
from binlog_protocol.events.rows import (
    EnumIndex,
    Geometry,
    SetBits,
    Value,
    ZeroDate,
    read_value,
)
from binlog_protocol.events.table_map import ColumnKind, TableColumn
from binlog_protocol.values import Cursor

T = ColumnType
LATIN1, UTF8MB4, UCS2, BINARY, SJIS, DEC8, UNKNOWN = 8, 45, 35, 63, 13, 3, 1000
HOUR = datetime.timedelta(hours=1)
UTC = datetime.UTC
NO_TEXT = UndecodedText(b"\xe9", UTF8MB4)


def column(
    type_: ColumnType, size: int = 0, digits: int = 0, scale: int = 0, **more: object
) -> TableColumn:
    return TableColumn(ColumnLayout(type_, size, digits, scale), True, **more)  # type: ignore[arg-type]


def read(col: TableColumn, data: str | bytes) -> Value:
    raw = bytes.fromhex(data) if isinstance(data, str) else data
    cursor = Cursor(raw, "value")
    value = read_value(col, cursor)
    assert cursor.remaining == 0
    return value


NUMBERS = [
    (column(T.TINY, 1), "80", -128),
    (column(T.TINY, 1, unsigned=True), "80", 128),
    (column(T.INT24, 3), "ffff7f", 8388607),
    (column(T.INT24, 3), "000080", -8388608),
    (column(T.LONGLONG, 8, unsigned=True), "ff" * 8, 2**64 - 1),
    (column(T.LONGLONG, 8), "ff" * 8, -1),
    (column(T.FLOAT, 4), "0000c03f", 1.5),
    (column(T.DOUBLE, 8), "9a9999999999b93f", 0.1),
    (column(T.YEAR, 1), "00", 0),
    (column(T.YEAR, 1), "01", 1901),
    (column(T.YEAR, 1), "ff", 2155),
    (column(T.BIT, 2, 10), "03ff", 1023),
    (column(T.BIT, 8, 64), "ff" * 8, 2**64 - 1),
    (column(T.NEWDECIMAL, 0, 10, 2), "8000000119", Decimal("1.25")),
    (column(T.NEWDECIMAL, 0, 10, 2), "7ffffffee6", Decimal("-1.25")),
    (column(T.NEWDECIMAL, 0, 10, 2), "8000000000", Decimal("0.00")),
    (column(T.NEWDECIMAL, 0, 3, 2), "8119", Decimal("1.25")),
    (column(T.NEWDECIMAL, 0, 2, 2), "99", Decimal("0.25")),
    (column(T.NEWDECIMAL, 0, 9, 0), "bb9ac9ff", Decimal(999999999)),
]


@pytest.mark.parametrize(("col", "data", "value"), NUMBERS)
def test_numbers(col: TableColumn, data: str, value: Value) -> None:
    found = read(col, data)
    assert found == value
    assert str(found) == str(value)


def test_longest_decimal() -> None:
    """DECIMAL(65,38), as 11.8 logs -123456789012345678901234567.12345678901234567890123456789012345678."""
    groups = [
        "123456789",
        "012345678",
        "901234567",
        "123456789",
        "012345678",
        "901234567",
        "890123456",
    ]
    data = b"".join(int(group).to_bytes(4, "big") for group in groups) + bytes((78,))
    data = bytes(byte ^ 0xFF for byte in data)
    data = bytes((data[0] & 0x7F,)) + data[1:]
    found = read(column(T.NEWDECIMAL, 0, 65, 38), data)
    # 65 digits: no context may round them.
    assert str(found) == f"-{''.join(groups[:3])}.{''.join(groups[3:])}78"


TEMPORALS = [
    (column(T.DATE, 3), "5dd00f", datetime.date(2024, 2, 29)),
    (column(T.DATE, 3), "000000", ZeroDate(0, 0, 0)),
    (column(T.DATE, 3), "1fd00f", ZeroDate(2024, 0, 31)),
    (column(T.TIME2), "800000", datetime.timedelta()),
    (column(T.TIME2), "b46efb", 838 * HOUR + datetime.timedelta(minutes=59, seconds=59)),
    (column(T.TIME2), "4b9105", -838 * HOUR - datetime.timedelta(minutes=59, seconds=59)),
    (column(T.TIME2, 0, 1), "7fffffce", datetime.timedelta(milliseconds=-500)),
    (column(T.TIME2, 0, 6), "7fffffffffff", datetime.timedelta(microseconds=-1)),
    (column(T.DATETIME2), "99b2bad38f", datetime.datetime(2024, 2, 29, 13, 14, 15)),
    (column(T.DATETIME2, 0, 3), "99b2bad38f1a7c", datetime.datetime(2024, 2, 29, 13, 14, 15, 678000)),
    (column(T.DATETIME2), "8000000000", ZeroDate(0, 0, 0)),
    (column(T.TIMESTAMP2), "00000000", ZeroDate(0, 0, 0)),
    (column(T.TIMESTAMP2), "7fffffff", datetime.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)),
    (column(T.TIMESTAMP2, 0, 2), "ffffffff63", datetime.datetime(2106, 2, 7, 6, 28, 15, 990000, UTC)),
    # mysql56_temporal_format=OFF, bytes of 10.11
    (column(T.TIME, 3), "590a80", -838 * HOUR - datetime.timedelta(minutes=59, seconds=59)),
    (column(T.TIME, 3, fraction_digits=1), "01cc4eee", datetime.timedelta(seconds=-3723, milliseconds=-400)),
    (column(T.TIME, 3, fraction_digits=6), "000000000001", -839 * HOUR + datetime.timedelta(microseconds=1)),
    (column(T.DATETIME, 8), "fac61c8a68120000", datetime.datetime(2024, 2, 3, 4, 5, 6)),
    (column(T.DATETIME, 8, fraction_digits=2), "069deafd72d6", datetime.datetime(2024, 2, 3, 4, 5, 6, 780000)),
    (column(T.DATETIME, 8, fraction_digits=6), "04fcee3943bfffff", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (column(T.TIMESTAMP, 4), "72bbbd65", datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (column(T.TIMESTAMP, 4, fraction_digits=4), "65bdbb7204d2", datetime.datetime(2024, 2, 3, 4, 5, 6, 123400, UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("col", "data", "value"), TEMPORALS)
def test_temporals(col: TableColumn, data: str, value: Value) -> None:
    assert read(col, data) == value


def compressed(plain: bytes, *, raw: bool = False) -> bytes:
    stream = zlib.compressobj(wbits=-15 if raw else 15)
    data = stream.compress(plain) + stream.flush()
    return bytes((0x82 | (8 if raw else 0),)) + len(plain).to_bytes(2, "big") + data


def prefixed(data: bytes, size: int = 1) -> bytes:
    return len(data).to_bytes(size, "little") + data


STRINGS = [
    (column(T.STRING, 10, collation=LATIN1), prefixed(b"a\xe9\x80"), "a\u00e9\u20ac"),
    (column(T.STRING, 300, collation=UTF8MB4), prefixed("\U0001f600".encode(), 2), "\U0001f600"),
    (column(T.STRING, 5, collation=BINARY), prefixed(b"ab"), b"ab\0\0\0"),
    (column(T.STRING, 5), prefixed(b"ab"), b"ab"),
    (column(T.VARCHAR, 255, collation=UCS2), prefixed(b"\x00\xe9\xd8\x3d"), "\u00e9\ud83d"),
    (column(T.VARCHAR, 256, collation=SJIS), prefixed(b"\x83\x65\x81\x5f", 2), "\u30c6\\"),
    (column(T.VARCHAR, 9, collation=DEC8), prefixed(b"\xe9\xa4"), UndecodedText(b"\xe9\xa4", DEC8)),
    (column(T.VARCHAR, 9, collation=UNKNOWN), prefixed(b"a"), UndecodedText(b"a", UNKNOWN)),
    (column(T.VARCHAR, 9, collation=UTF8MB4), prefixed(b"\xff"), UndecodedText(b"\xff", UTF8MB4)),
    (column(T.VARCHAR, 9, collation=BINARY), prefixed(b"\xff\0"), b"\xff\0"),
    (column(T.BLOB, 3, collation=UTF8MB4), prefixed(b"{}", 3), "{}"),
    (column(T.BLOB, 4), prefixed(b"", 4), b""),
    (column(T.VARCHAR_COMPRESSED, 101, collation=LATIN1), prefixed(b"\0\xe9"), "\u00e9"),
    (column(T.VARCHAR_COMPRESSED, 101, collation=LATIN1), prefixed(b""), ""),
    (column(T.BLOB_COMPRESSED, 2, collation=BINARY), prefixed(compressed(b"x" * 300), 2), b"x" * 300),
    (column(T.BLOB_COMPRESSED, 2, collation=BINARY), prefixed(compressed(b"x" * 300, raw=True), 2), b"x" * 300),
    (column(T.ENUM, 1), b"\2", EnumIndex(2)),
    (column(T.ENUM, 1, labels=("a", "b")), b"\2", "b"),
    (column(T.ENUM, 2, labels=("a", "b")), b"\0\0", ""),
    (column(T.SET, 1), b"\5", SetBits(5)),
    (column(T.SET, 8, labels=("a", "b", "c")), b"\5" + bytes(7), "a,c"),
    (column(T.SET, 1, labels=("a", "b", "c")), b"\0", ""),
    (column(T.ENUM, 1, labels=(b"a", b"\xe9")), b"\2", b"\xe9"),
    (column(T.ENUM, 1, labels=(b"a", b"\xe9")), b"\0", b""),
    (column(T.ENUM, 1, labels=("a", NO_TEXT)), b"\2", NO_TEXT),
    (column(T.SET, 1, labels=(b"\xe9", b"\xc3\xa9")), b"\3", b"\xe9,\xc3\xa9"),
    (column(T.SET, 1, labels=(b"\xe9", b"\xc3\xa9")), b"\0", b""),
    (column(T.SET, 1, labels=("a", NO_TEXT)), b"\1", "a"),
    (column(T.SET, 1, labels=("a", NO_TEXT)), b"\3", SetBits(3)),
    (column(T.GEOMETRY, 4), prefixed(b"\xe6\x10\0\0" + b"wkb", 4), Geometry(4326, b"wkb")),
    (column(T.GEOMETRY, 4), prefixed(b"", 4), Geometry(0, b"")),
    (
        column(T.STRING, 16, collation=BINARY, kind=ColumnKind.UUID),
        prefixed(b"\1" * 15),
        uuid.UUID(bytes=b"\1" * 15 + b"\0"),
    ),
    (column(T.STRING, 4, kind=ColumnKind.INET4), prefixed(b"\x0a"), ipaddress.IPv4Address("10.0.0.0")),
    (column(T.STRING, 16, kind=ColumnKind.INET6), prefixed(b""), ipaddress.IPv6Address("::")),
    (column(T.VARCHAR, 8, kind=ColumnKind.VECTOR), prefixed(bytes.fromhex("0000803f000020c0")), (1.0, -2.5)),
]  # fmt: skip


@pytest.mark.parametrize(("col", "data", "value"), STRINGS)
def test_strings(col: TableColumn, data: bytes, value: Value) -> None:
    assert read(col, data) == value


REFUSED = [
    (column(T.LONG, 4), b"\0\0\0"),
    (column(T.BIT, 2, 10), b"\x04\0"),  # an eleventh bit
    (column(T.NEWDECIMAL, 0, 3, 2), b"\x81\x64"),  # 100 hundredths
    (column(T.TIME2), b"\x80\x0f\x00"),  # 60 minutes
    (column(T.TIME2), b"\xc0\0\0"),  # 1024 hours
    (column(T.DATETIME2), b"\0" * 5),  # below zero
    (column(T.DATETIME2), b"\xff" * 5),
    (column(T.TIMESTAMP2, 0, 2), b"\0\0\0\1\x64"),  # 100 hundredths
    (column(T.DATETIME, 8), b"\xff" * 8),
    (column(T.STRING, 3), b"\4abcd"),
    (column(T.BLOB, 4), b"\xff\xff\xff\xffab"),
    (column(T.VARCHAR_COMPRESSED, 50), prefixed(b"\x10ab")),
    (column(T.VARCHAR_COMPRESSED, 50), prefixed(b"\x84\xff\xff\xff\xff" + zlib.compress(b"bomb"))),
    (column(T.VARCHAR_COMPRESSED, 50), prefixed(b"\x81\x03" + zlib.compress(b"four"))),
    (column(T.VARCHAR_COMPRESSED, 50), prefixed(b"\x81\x05" + zlib.compress(b"four"))),
    (column(T.VARCHAR_COMPRESSED, 50), prefixed(b"\x81\x04" + zlib.compress(b"four")[:-1])),
    (column(T.ENUM, 1, labels=("a",)), b"\2"),
    (column(T.SET, 1, labels=("a",)), b"\2"),
    (column(T.GEOMETRY, 4), prefixed(b"abc", 4)),
    (column(T.STRING, 20, kind=ColumnKind.UUID), prefixed(b"x" * 17)),
    (column(T.VARCHAR, 8, kind=ColumnKind.VECTOR), prefixed(b"abc")),
]


@pytest.mark.parametrize(("col", "data"), REFUSED)
def test_refused(col: TableColumn, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(col, data)


@pytest.mark.parametrize(
    ("collation", "charset"),
    [(8, "latin1"), (1032, "latin1"), (45, "utf8mb4"), (309, "utf8mb4"), (2048, "utf8mb3"), (2304, "utf8mb4"),
     (2560, "ucs2"), (2816, "utf16"), (3072, "utf32"), (3327, "utf32"), (3328, None), (17, None), (1248, "utf8mb4")],
)  # fmt: skip
def test_charset_of_collation(collation: int, charset: str | None) -> None:
    assert charset_of(collation) == charset


def test_bytes_that_mariadb_maps_and_python_does_not() -> None:
    assert decode_text(b"\x81\x8d\x8f\x90\x9d", LATIN1) == "\x81\x8d\x8f\x90\x9d"
    assert decode_text(b"\xfc", 36) == "\u207f"
    assert decode_text(b"\xaa", 57) == UndecodedText(b"\xaa", 57)
