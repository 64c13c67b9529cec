"""Values of the binary protocol: rows to the byte as 11.8 sends them, parameters as programs do, and nonsense."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.values import Cursor, lenenc_bytes
from binlog_protocol.wire.binary_rows import (
    BinaryRows,
    Indicator,
    LongData,
    Parameter,
    Parameters,
)
from binlog_protocol.wire.results import Column, row_payload
from hypothesis import given
from hypothesis import strategies as st

# A table with 43 types of columns, its definitions and rows as 11.8 sends them, in hex.
TYPES = json.loads((Path(__file__).parents[1] / "data" / "column_types_118.json").read_text())


def value_of(text_row: str) -> bytes | None:
    return Cursor(bytes.fromhex(text_row), "row").lenenc_bytes_or_null()


@pytest.mark.parametrize("recorded", TYPES, ids=lambda recorded: recorded["declared"])
def test_rows_are_those_of_118(recorded: dict[str, Any]) -> None:
    definition = bytes.fromhex(recorded["definition"])
    column = Column.parse(definition)
    assert column.build() == definition
    rows = BinaryRows([column])
    for text, binary in zip(recorded["text"], recorded["binary"], strict=True):
        value = value_of(text)
        assert row_payload([value]).hex() == text
        assert rows.payload([value]).hex() == binary


def test_a_row_of_many_columns() -> None:
    columns = [Column.bigint(str(number)) for number in range(15)]
    row = [None if number % 2 else number for number in range(15)]
    payload = BinaryRows(columns).payload(row)
    assert payload[:4] == bytes((0, 0b10101000, 0b10101010, 0))
    assert len(payload) == 4 + 8 * 8


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        (ColumnType.TINY, True, b"\1"),
        (ColumnType.LONGLONG, Decimal(-1), b"\xff" * 8),
        (ColumnType.LONGLONG, 2**64 - 1, b"\xff" * 8),
        (ColumnType.DOUBLE, 1.5, struct.pack("<d", 1.5)),
        (ColumnType.DOUBLE, Decimal("1e300"), struct.pack("<d", 1e300)),
        (ColumnType.NEWDECIMAL, Decimal("1E+3"), b"\x041000"),
        (ColumnType.VAR_STRING, "ä\udcff", b"\3\xc3\xa4\xff"),
        (ColumnType.TIME, "-838:59:59.5", b"\x0c\1\x22\0\0\0\x16\x3b\x3b\x20\xa1\7\0"),
    ],
)
def test_values_of_python(kind: int, value: Any, packed: bytes) -> None:
    assert BinaryRows([Column("a", kind)]).payload([value]) == b"\0\0" + packed


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ColumnType.TINY, 256),
        (ColumnType.SHORT, -32769),
        (ColumnType.LONG, "x"),
        (ColumnType.DATE, "tomorrow"),
        (ColumnType.TIME, ""),
    ],
)
def test_a_value_that_its_column_cannot_have(kind: int, value: Any) -> None:
    with pytest.raises(ValueError, match=r"in a column of|invalid literal"):
        BinaryRows([Column("a", kind)]).payload([value])


def date(*parts: int) -> bytes:
    packed = struct.pack("<HBB", *parts[:3]) + bytes(parts[3:6])
    return lenenc_bytes(packed + b"".join(struct.pack("<I", micros) for micros in parts[6:]))


def duration(minus: int, days: int, *clock: int) -> bytes:
    packed = struct.pack("<BI", minus, days) + bytes(clock[:3])
    return lenenc_bytes(packed + b"".join(struct.pack("<I", micros) for micros in clock[3:]))


# (type, flag, as sent, value): what 11.8 takes it for, by what it logs.
PARAMETERS = [
    (ColumnType.TINY, 0, b"\xff", -1),
    (ColumnType.TINY, 128, b"\xff", 255),
    (ColumnType.SHORT, 0, b"\0\x80", -32768),
    (ColumnType.LONG, 0, b"\0\0\0\x80", -(2**31)),
    (ColumnType.LONGLONG, 0, b"\xff" * 8, -1),
    (ColumnType.LONGLONG, 128, b"\xff" * 8, 2**64 - 1),
    (ColumnType.FLOAT, 0, struct.pack("<f", 1.5), 1.5),
    (ColumnType.DOUBLE, 0, struct.pack("<d", -2.25e-20), -2.25e-20),
    (ColumnType.NEWDECIMAL, 0, b"\x041.50", "1.50"),
    (0, 0, b"\7-000.10", "-0.10"),
    (ColumnType.NEWDECIMAL, 0, b"\3abc", "0"),
    (ColumnType.NEWDECIMAL, 0, b"\x081); DROP", "1"),
    (ColumnType.NEWDECIMAL, 0, b"\0", "0"),
    (ColumnType.NEWDECIMAL, 0, b"\x031e3", "1000"),
    (ColumnType.NEWDECIMAL, 0, b"\2.5", "0.5"),
    (ColumnType.NEWDECIMAL, 0, b"\2+5", "5"),
    (ColumnType.VAR_STRING, 0, b"\5it's\\", b"it's\\"),
    (ColumnType.BLOB, 0, b"\4\0\xff'\\", b"\0\xff'\\"),
    (15, 0, b"\xfc\3\0abc", b"abc"),
    (ColumnType.DATE, 0, date(2024, 2, 29), "2024-02-29"),
    (ColumnType.DATE, 0, date(2024, 2, 31), "2024-02-31"),
    (ColumnType.DATE, 0, b"\0", "0000-00-00"),
    (ColumnType.DATETIME, 0, date(2024, 2, 29), "2024-02-29 00:00:00"),
    (ColumnType.DATETIME, 0, date(2024, 2, 29, 1, 2, 3), "2024-02-29 01:02:03"),
    (ColumnType.DATETIME, 0, date(2024, 2, 29, 1, 2, 3, 40), "2024-02-29 01:02:03.000040"),
    (ColumnType.DATETIME, 0, date(2024, 13, 29, 1, 2, 3), "0000-00-00 00:00:00"),
    (ColumnType.DATETIME, 0, b"\0", "0000-00-00 00:00:00"),
    (ColumnType.TIME, 0, duration(1, 1, 1, 2, 3), "-25:02:03"),
    (ColumnType.TIME, 0, duration(0, 0, 1, 2, 3, 5), "01:02:03.000005"),
    (ColumnType.TIME, 0, duration(0, 100, 1, 2, 3), "838:59:59"),
    (ColumnType.TIME, 0, b"\0", "00:00:00"),
]


def executed(body: bytes, count: int, **head: Any) -> list[Parameter]:
    parameters = Parameters(body, count)
    parameters.read_head(head.get("types", b""), head.get("long_data", {}))
    found = list(parameters.row())
    assert parameters.is_at_end
    return found


def plain(value: object) -> object:
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


@pytest.mark.parametrize(("kind", "flag", "sent", "value"), PARAMETERS)
def test_parameters(kind: int, flag: int, sent: bytes, value: object) -> None:
    (found,) = executed(b"\0\1" + bytes((kind, flag)) + sent, 1)
    assert (found.type, found.unsigned, plain(found.value)) == (kind, flag == 128, value)
    for end in range(len(sent)):  # byte by byte
        with pytest.raises(ProtocolError):
            executed(b"\0\1" + bytes((kind, flag)) + sent[:end], 1)


def long_value(*parts: bytes) -> LongData:
    value = LongData()
    for part in parts:
        value.add(part)
    return value


@given(st.lists(st.sampled_from((0, 1, 3, 40_000, 65_535, 65_536, 200_000)), max_size=12))
def test_a_value_in_parts(sizes: list[int]) -> None:
    parts = [bytes((number,)) * size for number, size in enumerate(sizes, 1)]
    value = long_value(*parts)
    assert (value.joined(), len(value)) == (b"".join(parts), sum(sizes))


@pytest.mark.long
def test_small_parts_of_a_value_are_put_together() -> None:
    value = LongData()
    tracemalloc.start()
    try:
        for _ in range(50_000):
            value.add(memoryview(b"x"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * len(value)


def test_null_and_types_of_the_last_time_and_long_data() -> None:
    types = bytes((ColumnType.LONG, 0, ColumnType.NULL, 0, ColumnType.BLOB, 0))
    long_data = {2: long_value(b"lo", b"", b"ng")}
    body = b"\2\0" + struct.pack("<i", 7)
    found = executed(body, 3, types=types, long_data=long_data)
    assert [plain(p.value) for p in found] == [7, None, b"long"]


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (b"\0\0", {}),  # no types, and none of the last time
        (b"", {}),
        (b"\0", {}),
        (b"\0\1\3", {}),
        (b"\0\1\6\0", {}),  # NULL that is not in the bitmap
        (b"\0\1\x11\0abc", {}),  # a type that there is not
        (b"\0\1\x0c\0\5aaaaa", {}),  # a date of five bytes
        (b"\0\1\xf6\0\xfc\xc8\0" + b"9" * 200, {}),
        (b"\0\1\xfd\0\xfb", {}),
        (b"\0\1\3\0", {"long_data": {0: long_value(b"12")}}),  # long data for a number
    ],
)
def test_nonsense(body: bytes, head: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        executed(body, 1, **head)


def bulk(body: bytes, count: int) -> list[list[object]]:
    parameters = Parameters(body, count)
    parameters.read_bulk_head(b"", follow=True)
    rows = []
    while not parameters.is_at_end:
        rows.append([plain(parameter.value) for parameter in parameters.row()])
    return rows


def test_rows_of_a_bulk() -> None:
    """As Connector/Python sends them."""
    head = bytes((ColumnType.TINY, 0, ColumnType.VAR_STRING, 0))
    rows = b"\0\x0a\0\x03r10" + b"\0\x0d\1" + b"\2\3"
    wanted = [[10, b"r10"], [13, None], [Indicator.DEFAULT, Indicator.IGNORE]]
    assert bulk(head + rows, 2) == wanted
    for end in (5, 8, 10, 12):
        with pytest.raises(ProtocolError):
            bulk((head + rows)[:end], 2)
    with pytest.raises(ProtocolError):
        bulk(head + b"\4", 2)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_whatever_comes(body: bytes, count: int) -> None:
    with contextlib.suppress(ProtocolError):
        parameters = Parameters(body, count)
        parameters.read_head(b"", {})
        assert len(list(parameters.row())) == count
    with contextlib.suppress(ProtocolError):
        assert all(len(row) == count for row in bulk(body, count))


@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.none() | st.binary() | st.floats(allow_nan=False)
    )
)
def test_parameters_as_they_were(values: list[object]) -> None:
    nulls, types, sent = 0, b"", b""
    for number, value in enumerate(values):
        match value:
            case None:
                nulls |= 1 << number
                types += b"\6\0"
            case int():
                types += bytes((ColumnType.LONGLONG, 0))
                sent += struct.pack("<q", value)
            case float():
                types += bytes((ColumnType.DOUBLE, 0))
                sent += struct.pack("<d", value)
            case bytes():
                types += bytes((ColumnType.BLOB, 0))
                sent += lenenc_bytes(value)
    bitmap = nulls.to_bytes((len(values) + 7) // 8, "little")
    body = bitmap + b"\1" + types + sent if values else b""
    assert [plain(p.value) for p in executed(body, len(values))] == values
