"""Values, table maps and row events into bytes: what 10.11 and 11.8 log, byte for byte."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from dataclasses import replace
from decimal import Decimal

import pytest
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import decode_text, encode_text, result_encoder
from binlog_protocol.events.column_type import ColumnLayout, ColumnType, layout_bytes, parse_layout
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAGS_OFFSET,
    EventHeader,
    split_events,
)
from binlog_protocol.events.rows import (
    ABSENT,
    ROWS_TYPES,
    EnumIndex,
    Geometry,
    RowsEvent,
    SetBits,
    Value,
    ZeroDate,
    read_value,
    write_value,
)
from binlog_protocol.events.rows.rows_event import image_bytes
from binlog_protocol.events.table_map import (
    ColumnKind,
    RowMetadata,
    TableColumn,
    TableMap,
    TableMapHead,
)
from binlog_protocol.values import Cursor
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.events.rows import samples, test_row_values

T = ColumnType
LATIN1, UTF8MB4, UTF8MB3, UCS2, BINARY = 8, 45, 33, 35, 63
UTC = datetime.UTC
NAMES = 4  # optional metadata with FULL alone


def column(
    type_: ColumnType, size: int = 0, digits: int = 0, scale: int = 0, **more: object
) -> TableColumn:
    return TableColumn(ColumnLayout(type_, size, digits, scale), True, **more)  # type: ignore[arg-type]


def without_end(event: bytes) -> bytes:
    """But for its position in a file."""
    return event[:END_POSITION_OFFSET] + event[FLAGS_OFFSET:]


def row_bytes(event: RowsEvent, table: TableMap) -> bytes:
    """Its rows, decoded and made anew."""
    found = b""
    for before, after in event.rows(table):
        later = event.present if before is None else event.present_after
        for image, present in ((before, event.present), (after, later)):
            if image is not None:
                values = [
                    None if value is None or value is ABSENT else write_value(column, value)
                    for column, value in zip(table.columns, image, strict=True)
                ]
                found += image_bytes(values, present)
    return found


@pytest.mark.parametrize("name", samples.NAMES)
def test_samples_of_servers(name: str) -> None:
    """Each table map and row event of the samples is made anew, byte for byte."""
    for group in samples.groups(name):
        tables: dict[int, TableMap] = {}
        for event in split_events(group.payload):
            header = EventHeader.parse(event)
            about = {"timestamp": header.timestamp, "header_flags": header.flags}
            if header.type == EventType.TABLE_MAP:
                table = TableMap.parse(event)
                tables[table.table_id] = table
                logged = {field.type for field in TableMapHead.parse(event).optional}
                metadata = RowMetadata.FULL if NAMES in logged else RowMetadata.MINIMAL
                if not logged:
                    metadata = RowMetadata.NO_LOG
                made = table.build(header.server_id, metadata, **about)
                assert without_end(made) == without_end(event)
            elif header.type in ROWS_TYPES:
                rows = RowsEvent.parse(event)
                body = row_bytes(rows, tables[rows.table_id])
                assert body == rows.body
                if header.type in (23, 24, 25):
                    made = replace(rows, body=body).build(header.server_id, **about)
                    assert without_end(made) == without_end(event)


# Section by section of the types: the column, the metadata of its table map, a value, its bytes.
WRITTEN: list[tuple[TableColumn, str, Value, str]] = [
    (column(T.INT24, 3), "", -3, "fdffff"),
    (column(T.LONGLONG, 8, unsigned=True), "", 2**64 - 1, "ff" * 8),
    (column(T.TINY, 1), "", 1, "01"),
    (column(T.SHORT, 2), "", -2, "feff"),
    (column(T.LONG, 4), "", 1, "01000000"),
    (column(T.FLOAT, 4), "04", 1.5, "0000c03f"),
    (column(T.DOUBLE, 8), "08", -1.5, "000000000000f8bf"),
    (column(T.NEWDECIMAL, 0, 10, 3), "0a03", Decimal("1234567.891"), "8012d687037b"),
    (column(T.NEWDECIMAL, 0, 10, 3), "0a03", Decimal("-1234567.891"), "7fed2978fc84"),
    (column(T.NEWDECIMAL, 0, 20, 10), "140a", Decimal("1.5"), "80000000011dcd650000"),
    (column(T.NEWDECIMAL, 0, 10, 3), "0a03", Decimal("-0.000"), "800000000000"),
    (column(T.BIT, 1, 1), "0100", 1, "01"),
    (column(T.BIT, 2, 9), "0101", 0b100000001, "0101"),
    (column(T.BIT, 8, 64), "0008", 5, "0000000000000005"),
    (column(T.DATE, 3), "", datetime.date(2024, 2, 29), "5dd00f"),
    (column(T.DATETIME2), "00", datetime.datetime(2024, 2, 29, 12, 34, 56), "99b2bac8b8"),
    (column(T.DATETIME2, 0, 3), "03", datetime.datetime(2024, 2, 29, 12, 34, 56, 789000), "99b2bac8b81ed2"),
    (column(T.DATETIME2, 0, 6), "06", datetime.datetime(2024, 2, 29, 12, 34, 56, 789012), "99b2bac8b80c0a14"),
    (column(T.TIME2), "00", -datetime.timedelta(hours=12, minutes=34, seconds=56), "7f3748"),
    (column(T.TIME2, 0, 1), "01", -datetime.timedelta(milliseconds=100), "7ffffff6"),
    (column(T.TIME2, 0, 6), "06", datetime.timedelta(0, 45296, 789012), "80c8b80c0a14"),
    (column(T.TIMESTAMP2), "00", datetime.datetime(2024, 2, 29, 12, 34, 56, 0, UTC), "65e079f0"),
    (column(T.TIMESTAMP2, 0, 2), "02", datetime.datetime(2024, 2, 29, 12, 34, 56, 780000, UTC), "65e079f04e"),
    (column(T.DATETIME, 8), "", datetime.datetime(2024, 2, 29, 12, 34, 56), "80c5aa8b68120000"),
    (column(T.TIME, 3), "", -datetime.timedelta(hours=12, minutes=34, seconds=56), "c01dfe"),
    (column(T.TIMESTAMP, 4), "", datetime.datetime(2024, 2, 29, 12, 34, 56, 0, UTC), "f079e065"),
    (
        column(T.DATETIME, 8, fraction_digits=3), "",
        datetime.datetime(2024, 2, 29, 12, 34, 56, 789000), "00422bb59e9895",
    ),
    (column(T.YEAR, 1), "", 2024, "7c"),
    (column(T.YEAR, 1), "", 0, "00"),
    (column(T.STRING, 400, collation=UTF8MB4), "ee90", "ab  ", "02006162"),
    (column(T.STRING, 1020, collation=UTF8MB4), "cefc", "a", "010061"),
    (column(T.STRING, 20, collation=UTF8MB4), "fe14", "ab ", "026162"),
    (column(T.STRING, 5, collation=BINARY), "fe05", b"\0\xc3\xa9\0\0", "0300c3a9"),
    (column(T.VARCHAR, 252, collation=UTF8MB4), "fc00", "a ", "026120"),
    (column(T.VARCHAR, 256, collation=UTF8MB4), "0001", "a", "010061"),
    (column(T.BLOB, 1, collation=UTF8MB4), "01", "\u20ac", "03e282ac"),
    (column(T.BLOB, 4, collation=BINARY), "04", b"x", "0100000078"),
    (column(T.ENUM, 2, labels=("a", "b")), "f702", "b", "0200"),
    (column(T.ENUM, 1, labels=("a", "b")), "f701", "", "00"),
    (column(T.ENUM, 1), "f701", EnumIndex(2), "02"),
    (column(T.SET, 1, labels=("a", "b", "c")), "f801", "a,c", "05"),
    (column(T.SET, 8), "f808", SetBits(1 << 63), "0000000000000080"),
    (
        column(T.GEOMETRY, 4, collation=BINARY), "04",
        Geometry(0, bytes.fromhex("0101000000") + bytes(16)), "19" + "00" * 7 + "0101000000" + "00" * 16,
    ),
    (column(T.STRING, 4, kind=ColumnKind.INET4), "fe04", ipaddress.IPv4Address("1.2.3.4"), "0401020304"),
    (column(T.STRING, 4, kind=ColumnKind.INET4), "fe04", ipaddress.IPv4Address("1.0.0.0"), "0101"),
    (
        column(T.STRING, 16, kind=ColumnKind.UUID), "fe10",
        uuid.UUID("12345678-9abd-ef18-1234-56789abcdef0"), "10123456789abdef18123456789abcdef0",
    ),
    (column(T.STRING, 16, kind=ColumnKind.UUID), "fe10", uuid.UUID(int=0), "00"),
    (column(T.VARCHAR, 8, kind=ColumnKind.VECTOR), "0800", (1.0, -2.5), "080000803f000020c0"),
    (column(T.BLOB_COMPRESSED, 2, collation=LATIN1), "02", "abc", "040000616263"),
    (column(T.VARCHAR_COMPRESSED, 101, collation=LATIN1), "6500", "", "00"),
]  # fmt: skip


@pytest.mark.parametrize(("col", "metadata", "value", "raw"), WRITTEN)
def test_written(col: TableColumn, metadata: str, value: Value, raw: str) -> None:
    assert write_value(col, value).hex() == raw
    type_, layout = layout_bytes(col.layout)
    assert layout.hex() == metadata
    assert parse_layout(type_, Cursor(layout, "metadata")) == col.layout
    again = read_value(col, Cursor(bytes.fromhex(raw), "value"))
    assert write_value(col, again).hex() == raw


@pytest.mark.parametrize(
    ("col", "data", "value"), [*test_row_values.NUMBERS, *test_row_values.TEMPORALS]
)
def test_what_is_read_is_written(col: TableColumn, data: str, value: Value) -> None:
    assert write_value(col, value).hex() == data


def test_compressed_when_it_is_shorter() -> None:
    col = column(T.VARCHAR_COMPRESSED, 2001, collation=LATIN1)
    raw = write_value(col, "xy" * 1000)
    assert len(raw) < 100
    assert raw[2] == 0x80 | 0x08 | 2
    assert read_value(col, Cursor(raw, "value")) == "xy" * 1000


REFUSED: list[tuple[TableColumn, object]] = [
    (column(T.TINY, 1), 128),
    (column(T.TINY, 1, unsigned=True), -1),
    (column(T.LONG, 4), "1"),
    (column(T.LONG, 4), True),
    (column(T.LONG, 4), 1.0),
    (column(T.FLOAT, 4), 1e39),
    (column(T.DOUBLE, 8), float("nan")),
    (column(T.DOUBLE, 8), float("inf")),
    (column(T.NEWDECIMAL, 0, 5, 2), Decimal("1000")),
    (column(T.NEWDECIMAL, 0, 5, 2), Decimal("1.234")),
    (column(T.NEWDECIMAL, 0, 5, 2), Decimal("1E999999")),
    (column(T.NEWDECIMAL, 0, 5, 2), Decimal("1E-999999")),
    (column(T.NEWDECIMAL, 0, 5, 2), Decimal("NaN")),
    (column(T.BIT, 1, 3), 8),
    (column(T.YEAR, 1), 1900),
    (column(T.YEAR, 1), 2156),
    (column(T.DATE, 3), datetime.datetime(2024, 1, 1)),
    (column(T.DATE, 3), ZeroDate(2024, 13, 1)),
    (column(T.TIME2), datetime.timedelta(hours=839)),
    (column(T.TIME2), datetime.timedelta(milliseconds=1)),
    (column(T.DATETIME2), datetime.datetime(2024, 1, 1, tzinfo=UTC)),
    (column(T.DATETIME2, 0, 3), datetime.datetime(2024, 1, 1, 0, 0, 0, 1)),
    (column(T.TIMESTAMP2), datetime.datetime(2024, 1, 1)),
    (column(T.TIMESTAMP2), datetime.datetime(1970, 1, 1, tzinfo=UTC)),
    (column(T.TIMESTAMP2), datetime.datetime(2107, 1, 1, tzinfo=UTC)),
    (column(T.VARCHAR, 3, collation=LATIN1), "abcd"),
    (column(T.VARCHAR, 3, collation=LATIN1), "\u20ad"),
    (column(T.VARCHAR, 3, collation=LATIN1), b"abc"),
    (column(T.VARCHAR, 30, collation=UTF8MB3), "\U0001f600"),
    (column(T.VARCHAR, 30, collation=UTF8MB4), "\ud800"),
    (column(T.VARCHAR, 3, collation=BINARY), "abc"),
    (column(T.STRING, 3, collation=LATIN1), "abc d"),
    (column(T.BLOB, 1, collation=BINARY), bytes(256)),
    (column(T.ENUM, 1, labels=("a",)), "b"),
    (column(T.ENUM, 1, labels=("a",)), EnumIndex(2)),
    (column(T.SET, 1, labels=("a",)), "a,b"),
    (column(T.SET, 1, labels=("a",)), SetBits(2)),
    (column(T.VARCHAR, 8, kind=ColumnKind.VECTOR), (1.0,)),
    (column(T.VARCHAR, 4, kind=ColumnKind.VECTOR), (1e40,)),
    (column(T.GEOMETRY, 4), b"abc"),
]


@pytest.mark.parametrize(("col", "value"), REFUSED)
def test_refused(col: TableColumn, value: Value) -> None:
    with pytest.raises(BadValue):
        write_value(col, value)


CHARSETS = [1, 8, 9, 13, 19, 24, 25, 28, 33, 45, 35, 54, 56, 60, 51, 12, 95, 97, 32, 10]


@pytest.mark.long
@given(st.text(max_size=20), st.sampled_from(CHARSETS))
def test_any_text(text: str, collation: int) -> None:
    try:
        raw = encode_text(text, collation)
    except BadValue:
        return
    assert decode_text(raw, collation) == text


@given(st.binary(max_size=12), st.sampled_from(CHARSETS))
def test_any_bytes_that_are_text(raw: bytes, collation: int) -> None:
    """What is read can be written, and reads the same."""
    text = decode_text(raw, collation)
    if isinstance(text, str):
        assert decode_text(encode_text(text, collation), collation) == text


@pytest.mark.parametrize(
    ("charset", "text", "sent"),
    [
        ("latin1", "é€я", b"\xe9\x80?"),
        ("latin1", "a\udce9", b"a\xe9"),  # a byte that a client sent
        ("gbk", "日é😀", b"\xc8\xd5\xa8\xa6?"),
        ("sjis", "я\udc84\udc91", b"\x84\x91\x84\x91"),
        ("ascii", "é", b"?"),
    ],
)
def test_texts_of_results(charset: str, text: str, sent: bytes) -> None:
    encode = result_encoder(charset)
    assert encode is not None
    assert encode(text) == sent


@pytest.mark.parametrize("charset", ["", "none", "ucs2", "utf16", "utf32"])
def test_sets_in_which_no_result_is_sent(charset: str) -> None:
    assert result_encoder(charset) is None
