"""Values into columns: what is stored, and MariaDB's error for what a column cannot hold."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.rows.strings import EnumIndex, SetBits
from binlog_protocol.events.rows.temporal import ZeroDate
from binlog_protocol.tables.definition import StoredColumn, StoredTable, json_check
from binlog_protocol.tables.row_format import RowFormat
from binlog_protocol.tables.sql_type import SqlType

from binlog_server.queries import types, values
from binlog_server.queries.catalog import ColumnDefinition
from binlog_server.queries.types import Type, ValueForm
from binlog_server.tables.cells import Cells, shown
from tests.binlog_server.tables.asking import asker

TEXT, BYTES, INT, DOUBLE = types.text(99), types.octets(99), types.BIGINT, types.DOUBLE
DECIMAL = types.decimal(30, 10)
HYBRID = Type(ValueForm.BYTES, 9, code=types.HYBRID)
MOMENT = types.moment(ValueForm.DATETIME, 6)
UTC = datetime.UTC
UUID = uuid.UUID("123e4567-e89b-12d3-a456-426655440000")
AT = datetime.datetime(2024, 2, 9, 1, 2, 3, 456000)


def cells(kind: str, **options: Any) -> Cells:
    type_ = SqlType.parse(kind)
    collation = options.pop("collation", 45 if type_.is_text else BINARY_COLLATION)
    column = StoredColumn("c", type_, collation=collation, **options)
    return Cells(StoredTable("d", "t", (column,)), asker())


STORED: list[tuple[str, Any, Type, Any, Any]] = [
    # what is stored, and how an expression has it then
    ("tinyint(4)", 127, INT, 127, 127),
    ("tinyint(4)", "-128", TEXT, -128, -128),
    ("int(11)", " 42 ", TEXT, 42, 42),
    ("int(11)", "1.5e1", TEXT, 15, 15),
    ("int(11)", Decimal("2.5"), DECIMAL, 3, 3),
    ("int(11)", 2.5, DOUBLE, 2, 2),
    ("int(11)", b"\x01\x00", HYBRID, 256, 256),
    ("bigint(20) unsigned", 2**64 - 1, INT, 2**64 - 1, 2**64 - 1),
    ("decimal(5,2)", "1.005", TEXT, Decimal("1.01"), Decimal("1.01")),
    ("decimal(5,2)", 999.994, DOUBLE, Decimal("999.99"), Decimal("999.99")),
    ("decimal(5,2)", Decimal("1e-50"), DECIMAL, Decimal("0.00"), Decimal("0.00")),
    ("double", "1e3", TEXT, 1000.0, 1000.0),
    ("varchar(3)", "abc  ", TEXT, "abc", "abc"),
    ("varchar(3)", "日本😀", TEXT, "日本😀", "日本😀"),
    ("varchar(3)", 12, INT, "12", "12"),
    ("varchar(3)", "äö".encode(), BYTES, "äö", "äö"),
    ("char(3)", "a  ", TEXT, "a", "a"),
    ("varbinary(3)", "ä", TEXT, "ä".encode(), "ä".encode()),
    ("binary(3)", b"a", BYTES, b"a", b"a\0\0"),
    ("date", "2024-02-29", TEXT, datetime.date(2024, 2, 29), "2024-02-29"),
    ("date", 20240229, INT, datetime.date(2024, 2, 29), "2024-02-29"),
    ("date", "2024-02-29 12:00:00", TEXT, datetime.date(2024, 2, 29), "2024-02-29"),
    ("datetime(3)", "24-2-9 1:2:3.4567", TEXT, AT, "2024-02-09 01:02:03.456"),
    ("datetime", "2024-02-09", TEXT, datetime.datetime(2024, 2, 9), "2024-02-09 00:00:00"),
    ("timestamp(3)", "2024-02-09 01:02:03.4567", MOMENT, AT.replace(tzinfo=UTC), "2024-02-09 01:02:03.456"),
    ("time(1)", "-1:02:03.49", TEXT, -datetime.timedelta(seconds=3723.4), "-01:02:03.4"),
    ("time", "838:59:59", TEXT, datetime.timedelta(hours=838, minutes=59, seconds=59), "838:59:59"),
    ("float", 1 / 3, DOUBLE, 0.3333333432674408, 0.3333333432674408),
    ("float(7,2)", Decimal("1234.567"), DECIMAL, 1234.5699462890625, 1234.5699462890625),
    ("float(7,2)", "99999.995", TEXT, 99999.9921875, 99999.9921875),
    ("double(8,3)", 1.23456, DOUBLE, 1.2349999999999999, 1.2349999999999999),
    ("year(4)", 5.6, DOUBLE, 2005, 2005),
    ("year(4)", 70, INT, 1970, 1970),
    ("year(4)", 0, INT, 0, 0),
    ("year(4)", "0", TEXT, 2000, 2000),
    ("year(4)", "0000", TEXT, 0, 0),
    ("bit(9)", 257, INT, 257, b"\1\1"),
    ("bit(9)", "1", TEXT, 49, b"\0001"),
    ("bit(9)", b"\0\xff", HYBRID, 255, b"\0\xff"),
    ("enum('a','b','it''s')", "IT'S ", TEXT, EnumIndex(3), "it's"),
    ("enum('a','b')", "2", TEXT, EnumIndex(2), "b"),
    ("enum('b','2')", "2", TEXT, EnumIndex(2), "2"),
    ("enum('a','b')", Decimal("2.7"), DECIMAL, EnumIndex(2), "b"),
    ("set('x','y','z')", "Z,x,Z", TEXT, SetBits(5), "x,z"),
    ("set('x','y','z')", "3", TEXT, SetBits(3), "x,y"),
    ("set('x','y','z')", "", TEXT, SetBits(0), ""),
    ("uuid", "123E4567e89b-12D3a456--426655440000", TEXT, UUID, str(UUID)),
    ("inet4", "01.2.3.4", TEXT, ipaddress.IPv4Address("1.2.3.4"), "1.2.3.4"),
    ("inet6", "1.2.3.4", TEXT, ipaddress.IPv6Address("::ffff:1.2.3.4"), "::ffff:1.2.3.4"),
    ("date", "0000-00-00", TEXT, ZeroDate(0, 0, 0), "0000-00-00"),
    ("date", 0, INT, ZeroDate(0, 0, 0), "0000-00-00"),
    ("date", "2024-00-10", TEXT, ZeroDate(2024, 0, 10), "2024-00-10"),
    ("datetime(1)", "2024-10-00 01:02:03.45", TEXT, ZeroDate(2024, 10, 0, 1, 2, 3, 400000), "2024-10-00 01:02:03.4"),
    ("timestamp", 0, INT, ZeroDate(0, 0, 0), "0000-00-00 00:00:00"),
    ("time", "2024-01-01T5:06", TEXT, datetime.timedelta(hours=5, minutes=6), "05:06:00"),
    ("time", "20240101050607", TEXT, datetime.timedelta(hours=5, minutes=6, seconds=7), "05:06:07"),
    ("datetime", "1-2-3", TEXT, datetime.datetime(1, 2, 3), "0001-02-03 00:00:00"),
    ("datetime", "01-2-3", TEXT, datetime.datetime(2001, 2, 3), "2001-02-03 00:00:00"),
    ("datetime(2)", Decimal("10203.25"), DECIMAL, datetime.datetime(2001, 2, 3), "2001-02-03 00:00:00.00"),
    ("uuid", UUID.bytes, BYTES, UUID, str(UUID)),
    ("time", "2024-01-01 05:06:07", MOMENT, datetime.timedelta(hours=5, minutes=6, seconds=7), "05:06:07"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "source", "stored", "seen"), STORED)
def test_stored(kind: str, given: Any, source: Type, stored: Any, seen: Any) -> None:
    found = cells(kind)
    value = found.value(0, given, source, 1)
    assert value == stored
    made = RowFormat(found.table)
    (read,) = made.values(made.row([value]))
    show = shown(found.table.columns[0], found.session.local)
    assert show(read) == show(value) == seen


NO_UUID = "12345678-9abc-def0-1234-56789abcdef0"  # its order in a row could not be told
REFUSED: list[tuple[str, Any, Type, int, str]] = [
    ("tinyint(4)", 128, INT, 1264, "Out of range value{c}"),
    ("tinyint(3) unsigned", -1, INT, 1264, "Out of range value{c}"),
    ("int(11)", 1e30, DOUBLE, 1264, "Out of range value{c}"),
    ("int(11)", float("inf"), DOUBLE, 1264, "Out of range value{c}"),
    ("int(11)", "x", TEXT, 1366, "Incorrect integer value: 'x'{at}"),
    ("int(11)", "", TEXT, 1366, "Incorrect integer value: ''{at}"),
    ("int(11)", "1x", TEXT, 1265, "Data truncated{c}"),
    ("decimal(5,2)", 1000, INT, 1264, "Out of range value{c}"),
    ("decimal(5,2)", "999.996", TEXT, 1264, "Out of range value{c}"),
    ("decimal(5,2) unsigned", -1, INT, 1264, "Out of range value{c}"),
    ("decimal(5,2)", "x", TEXT, 1366, "Incorrect decimal value: 'x'{at}"),
    ("double", "x", TEXT, 1366, "Incorrect double value: 'x'{at}"),
    ("varchar(3)", "abcd", TEXT, 1406, "Data too long{c}"),
    ("tinytext", "x" * 256, TEXT, 1406, "Data too long{c}"),
    ("varchar(3)", b"\xff", BYTES, 1366, "Incorrect string value: '\\xFF'{at}"),
    ("binary(3)", b"abcd", BYTES, 1406, "Data too long{c}"),
    ("datetime", "2024-13-01", TEXT, 1292, "Incorrect datetime value: '2024-13-01'{at}"),
    ("timestamp", "1969-12-31 00:00:00", TEXT, 1292, "Incorrect datetime value: '1969-12-31 00:00:00'{at}"),
    ("date", "2024-02-30", TEXT, 1292, "Incorrect date value: '2024-02-30'{at}"),
    ("date", "2024-02-29x", TEXT, 1292, "Incorrect date value: '2024-02-29x'{at}"),
    ("timestamp", "0000-00-00 01:00:00", TEXT, 1292, "Incorrect datetime value: '0000-00-00 01:00:00'{at}"),
    ("timestamp", "2024-00-10", TEXT, 1292, "Incorrect datetime value: '2024-00-10'{at}"),
    ("float", 3.4028235e38, DOUBLE, 1264, "Out of range value{c}"),
    ("float unsigned", -1, INT, 1264, "Out of range value{c}"),
    ("float(7,2)", 100000, INT, 1264, "Out of range value{c}"),
    ("double(8,3)", 99999.9996, DOUBLE, 1264, "Out of range value{c}"),
    ("float", "1x", TEXT, 1265, "Data truncated{c}"),
    ("year(4)", 1900, INT, 1264, "Out of range value{c}"),
    ("year(4)", "x", TEXT, 1366, "Incorrect integer value: 'x'{at}"),
    ("year(4)", "2024-05-06", TEXT, 1265, "Data truncated{c}"),
    ("bit(9)", 512, INT, 1406, "Data too long{c}"),
    ("bit(9)", -1, INT, 1406, "Data too long{c}"),
    ("bit(9)", "ab", TEXT, 1406, "Data too long{c}"),
    ("enum('a','b')", "q", TEXT, 1265, "Data truncated{c}"),
    ("enum('a','b')", " b", TEXT, 1265, "Data truncated{c}"),
    ("enum('a','b')", 0, INT, 1265, "Data truncated{c}"),
    ("enum('a','b')", 3, INT, 1265, "Data truncated{c}"),
    ("set('x','y')", "x,", TEXT, 1265, "Data truncated{c}"),
    ("set('x','y')", "x, y", TEXT, 1265, "Data truncated{c}"),
    ("set('x','y')", 4, INT, 1265, "Data truncated{c}"),
    ("set('x','y')", -1, INT, 1265, "Data truncated{c}"),
    ("uuid", "x", TEXT, 1292, "Incorrect uuid value: 'x'{at}"),
    ("uuid", NO_UUID, TEXT, 1292, f"Incorrect uuid value: '{NO_UUID}'{{at}}"),
    ("inet4", "1.2.3.256", TEXT, 1292, "Incorrect inet4 value: '1.2.3.256'{at}"),
    ("inet6", "fe80::1%eth0", TEXT, 1292, "Incorrect inet6 value: 'fe80::1%eth0'{at}"),
    ("inet6", b"\1\2", BYTES, 1292, "Incorrect inet6 value: '\\x01\\x02'{at}"),
    ("time", "839:00:00", TEXT, 1292, "Incorrect time value: '839:00:00'{at}"),
    ("time", "2024-01-01", TEXT, 1292, "Incorrect time value: '2024-01-01'{at}"),
    ("time", "2024-13-01 05:06:07", TEXT, 1292, "Incorrect time value: '2024-13-01 05:06:07'{at}"),
    ("time", "1:60:00", TEXT, 1292, "Incorrect time value: '1:60:00'{at}"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "source", "errno", "text"), REFUSED)
def test_refused(kind: str, given: Any, source: Type, errno: int, text: str) -> None:
    with pytest.raises(ServerError) as caught:
        cells(kind).value(0, given, source, 7)
    text = text.format(at=" for column `d`.`t`.`c` at row 7", c=" for column 'c' at row 7")
    assert (caught.value.errno, caught.value.message) == (errno, text)


INSTEAD: list[tuple[str, Any, Type, Any, int]] = [
    # without a strict sql_mode: what is shown then, and the warning
    ("tinyint(4)", 300, INT, 127, 1264),
    ("int(10) unsigned", -5, INT, 0, 1264),
    ("int(11)", "x", TEXT, 0, 1366),
    ("int(11)", "1x", TEXT, 1, 1265),
    ("float", 1e39, DOUBLE, 3.4028234663852886e38, 1264),
    ("decimal(5,2)", 1e9, DOUBLE, Decimal("999.99"), 1264),
    ("decimal(5,2) unsigned", -1, INT, Decimal("0.00"), 1264),
    ("varchar(3)", "abcd", TEXT, "abc", 1265),
    ("varchar(3)", b"a\xffb", BYTES, "a?b", 1366),
    ("binary(2)", b"abc", BYTES, b"ab", 1265),
    ("tinytext", "ä" * 200, TEXT, "ä" * 127, 1265),
    ("date", "2024-13-01", TEXT, "0000-00-00", 1265),
    ("date", "2024-02-30", TEXT, "0000-00-00", 1265),
    ("datetime", "2024-02-03 04:05:06x", TEXT, "2024-02-03 04:05:06", 1265),
    ("timestamp", "1960-01-01", TEXT, "0000-00-00 00:00:00", 1264),
    ("time", "900:00:00", TEXT, "838:59:59", 1264),
    ("time", "99:99", TEXT, "00:00:00", 1265),
    ("year(4)", 1800, INT, 0, 1264),
    ("bit(3)", 9, INT, b"\7", 1264),
    ("enum('a','b')", "q", TEXT, "", 1265),
    ("set('x','y')", "q,x", TEXT, "x", 1265),
    ("set('x','y')", 77, INT, "x", 1265),
    ("int(11)", "1.5.3", TEXT, 15, 1265),
    ("int(11)", "-12.34.5", TEXT, -1234, 1265),
    ("int(11)", "1..5", TEXT, 1, 1265),
    ("int(11)", "1e30x", TEXT, 2147483647, 1264),
    ("int(11)", "99999999999 ", TEXT, 2147483647, 1264),
    ("int(10) unsigned", Decimal("-0.4"), DECIMAL, 0, 1264),
    ("bit(3)", Decimal("-1.6"), DECIMAL, b"\0", 1264),
    ("year(4)", "9999x", TEXT, 0, 1264),
    ("timestamp", "0-2-3", TEXT, "0000-00-00 00:00:00", 1264),
    ("time", "12e3", TEXT, "00:00:00", 1265),
    ("time", "12:13e4", TEXT, "00:00:00", 1265),
]


@pytest.mark.parametrize(("kind", "given", "source", "seen", "errno"), INSTEAD)
def test_without_strict_mode(kind: str, given: Any, source: Type, seen: Any, errno: int) -> None:
    found = replace(cells(kind), is_strict=False)
    value = found.value(0, given, source, 1)
    made = RowFormat(found.table)
    (read,) = made.values(made.row([value]))
    assert shown(found.table.columns[0], found.session.local)(read) == seen
    assert [warning.errno for warning in found.session.warnings] == [errno]


def test_zero_dates_by_sql_mode() -> None:
    for mode, text, is_taken in (
        ("NO_ZERO_DATE", "0000-00-00", False),
        ("NO_ZERO_DATE", "2024-00-10", True),
        ("NO_ZERO_IN_DATE", "0000-00-00", True),
        ("NO_ZERO_IN_DATE", "2024-00-10", False),
        ("ALLOW_INVALID_DATES", "2024-02-30", True),
        ("ALLOW_INVALID_DATES", "2024-02-32", False),
    ):
        found = cells("date")
        found.session.modes = frozenset((mode,))
        if is_taken:
            assert found.value(0, text, TEXT, 1) is not None
        else:
            with pytest.raises(ServerError, match="1292"):
                found.value(0, text, TEXT, 1)


def test_a_json_column_takes_documents_only() -> None:
    column = StoredColumn("c", SqlType.parse("longtext"), collation=46)
    found = Cells(StoredTable("d", "t", (column,), checks=(json_check("c"),)), asker())
    assert found.value(0, '{"a": [1]}', TEXT, 1) == '{"a": [1]}'
    assert found.value(0, None, types.NULL, 1) is None
    with pytest.raises(ServerError, match=r"4025.*`t.c` failed for `d`.`t`"):
        found.value(0, "{", TEXT, 1)


def test_null_and_defaults() -> None:
    assert cells("int(11)").value(0, None, types.NULL, 1) is None
    with pytest.raises(ServerError, match="1048"):
        cells("int(11)", nullable=False).value(0, None, types.NULL, 1)
    with pytest.raises(ServerError, match="1364"):
        cells("int(11)", nullable=False).default(0, 1)
    assert cells("int(11)", default="5").default(0, 1) == 5
    assert cells("varchar(9)", default="'it''s'").default(0, 1) == "it's"
    moment = cells("datetime(3)", default="current_timestamp(3)").default(0, 1)
    assert moment == datetime.datetime(2026, 11, 23, 3, 4, 5, 678000)


def test_what_is_no_uuid_where_alter_copies() -> None:
    """Without a strict sql_mode: no value, where there may be none; INSERT takes the first one of the type."""
    first = uuid.UUID(int=0)
    for nullable, copied in ((True, None), (False, first)):
        inserting = replace(cells("uuid", nullable=nullable), is_strict=False)
        copying = replace(inserting, copies=True)
        assert (copying.value(0, 5, INT, 1), inserting.value(0, 5, INT, 1)) == (copied, first)


COPIED: list[tuple[str, Any, str, Any, Any]] = [
    # of a column: its value in expressions, the other column, what INSERT ... SELECT and what ALTER puts there
    ("bit(9)", b"\1,", "varchar(9)", "300", "300"),
    ("bit(9)", b"\1,", "text", "\1,", "\1,"),
    ("bit(9)", b"\1,", "time", datetime.timedelta(minutes=3), datetime.timedelta(minutes=3)),
    ("bit(9)", b"\0\1", "enum('x','y')", EnumIndex(1), EnumIndex(1)),
    ("year(4)", values.Year(0), "char(9)", "0", "0000"),
    ("year(4)", values.Year(0), "text", "0000", "0000"),
    ("int(5) zerofill", 42, "varchar(9)", "42", "00042"),
    ("int(5) zerofill", 42, "text", "00042", "00042"),
    ("decimal(6,2) unsigned zerofill", Decimal("1.50"), "blob", b"0001.50", b"0001.50"),
    ("float", values.Single(0.10000000149011612), "varchar(30)", "0.10000000149011612", "0.1"),
    ("enum('x','y')", values.Label("y", 2), "bit(9)", 2, 2),
    ("uuid", values.native_of(types.UUID, UUID.bytes), "varbinary(30)", UUID.bytes, UUID.bytes),
    ("uuid", values.native_of(types.UUID, UUID.bytes), "varchar(40)", str(UUID), str(UUID)),
    ("double", 1e300, "bigint(20) unsigned", 2**64 - 1, 2**63 - 1),
    ("double", 1e300, "time", datetime.timedelta(hours=838, minutes=59, seconds=59), datetime.timedelta(0)),
    ("decimal(5,1)", Decimal("1.5"), "enum('x','y')", EnumIndex(1), EnumIndex(2)),
    ("varchar(9)", "1.9", "int(11)", 2, 1),
    ("varchar(9)", "12e3", "int(11)", 12000, 12),
    ("varchar(9)", "1.9.1", "int(11)", 19, 1),
]  # fmt: skip


@pytest.mark.parametrize(("source", "given", "kind", "inserted", "altered"), COPIED)
def test_copied(source: str, given: Any, kind: str, inserted: Any, altered: Any) -> None:
    """What a column of another type takes of a column, as test_assigned_types.py has seen it in a real server."""
    of = types.of_column(ColumnDefinition("c", source).wire("", ""))
    if source in ("uuid", "enum('x','y')"):
        of = replace(of, code=types.UUID if source == "uuid" else types.LABEL)
    for copies, expected in ((False, inserted), (True, altered)):
        found = replace(cells(kind), is_strict=False, copies=copies)
        assert found.value(0, given, of, 1) == expected
    computed = replace(cells("varbinary(40)"), is_strict=False)
    if source == "uuid":  # a function gives its text
        assert computed.value(0, given, of.computed(), 1) == str(UUID).encode()


@pytest.mark.parametrize(
    ("source", "given", "kind", "errno"),
    [
        ("decimal(9,3)", Decimal("-0.001"), "int(10) unsigned", 1264),
        ("decimal(9,3)", Decimal("-0.001"), "decimal(6,2) unsigned", 1264),
        ("decimal(9,3)", Decimal("-0.001"), "year(4)", 1264),
        ("double", -0.25, "year(4)", 1264),
        ("decimal(9,3)", Decimal("0.5"), "timestamp", 1292),
        ("date", "2024-02-29", "year(4)", 1292),
        ("double", 1e300, "bigint(20) unsigned", 1916),
        ("year(4)", values.Year(0), "date", 1292),
        ("varchar(9)", "1.9", "int(11)", 1292),
        ("varchar(9)", "x", "year(4)", 1366),
    ],
)
def test_refused_where_alter_copies(source: str, given: Any, kind: str, errno: int) -> None:
    """Else replicas, which get the statement, would stop at it."""
    of = types.of_column(ColumnDefinition("c", source).wire("", ""))
    with pytest.raises(ServerError) as caught:
        replace(cells(kind), copies=True).value(0, given, of, 1)
    assert caught.value.errno == errno


@pytest.mark.parametrize("is_strict", [True, False])
def test_what_no_column_takes_is_told_without_a_value(is_strict: bool) -> None:
    found = replace(cells("int(11)"), is_strict=is_strict)
    if is_strict:
        with pytest.raises(ServerError, match="4078"):
            found.check(0, replace(TEXT, code=types.UUID))
    else:
        found.check(0, replace(TEXT, code=types.UUID))
        assert [warning.errno for warning in found.session.warnings] == [4078]
    found.check(0, TEXT)


def test_four_bytes_are_no_utf8mb3() -> None:
    with pytest.raises(ServerError, match="1366"):
        cells("varchar(9)", collation=33).value(0, "😀", TEXT, 1)
