"""Rows as bytes: values there and back, keys in order, checksums. Servers are asked by tests/integration/rows."""

from __future__ import annotations

import datetime
import uuid
import zlib
from decimal import Decimal

import pytest
from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events.rows import Value
from binlog_protocol.tables.row_format import RowFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.tables.shop import LATIN1, ORDERS, col, key, table

FORMAT = RowFormat(ORDERS)
MOMENT = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, datetime.UTC)
ROW = (7, "x", Decimal("1.50"), "paid", None, MOMENT)


def test_a_row() -> None:
    row = FORMAT.row(ROW)
    assert row.hex() == "d007000000017880000001320265e079f01ed2"
    assert FORMAT.values(row) == ROW
    assert FORMAT.joined(FORMAT.split(row)) == row


@pytest.mark.parametrize(
    ("number", "value", "text"),
    [
        (0, None, "shop.orders.id: NULL in a column that is NOT NULL"),
        (0, -1, "shop.orders.id: -1 in 4 bytes, unsigned"),
        (1, "x" * 21, "shop.orders.who: 21 characters in a column of 20"),
        (3, "free", "shop.orders.state: 'free' is no label of the ENUM"),
    ],
)
def test_refused(number: int, value: Value, text: str) -> None:
    with pytest.raises(BadValue) as refused:
        FORMAT.row((*ROW[:number], value, *ROW[number + 1 :]))
    assert str(refused.value) == text


def test_another_number_of_values() -> None:
    with pytest.raises(BadValue, match="5 values for 6 columns"):
        FORMAT.row(ROW[:5])


@given(st.binary(max_size=40))
def test_any_bytes(raw: bytes) -> None:
    try:
        FORMAT.values(raw)
    except ProtocolError:
        return


KEYS: list[tuple[str, list[Value]]] = [
    ("tinyint(4)", [-128, -1, 0, 1, 127]),
    ("bigint(20) unsigned", [0, 1, 2**63, 2**64 - 1]),
    ("double", [-1.5, -1e-300, 0.0, 1e-300, 1.5]),
    ("float", [-1.5, -0.25, 0.0, 0.25, 1.5]),
    (
        "decimal(10,2)",
        [Decimal("-99999999.99"), Decimal("-1"), Decimal(0), Decimal("0.01"), Decimal(12)],
    ),
    ("date", [datetime.date(1, 1, 1), datetime.date(2023, 12, 31), datetime.date(2024, 1, 1)]),
    ("datetime(3)", [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 0, 1000)]),
    (
        "time(1)",
        [-datetime.timedelta(hours=1), -datetime.timedelta(milliseconds=100), datetime.timedelta()],
    ),
    ("year(4)", [0, 1901, 2155]),
    ("bit(9)", [0, 1, 256]),
    ("enum('b','a')", ["", "b", "a"]),
    ("varbinary(9)", [b"", b"\0", b"a", b"a\0", b"a\1"]),
    ("binary(3)", [b"\0\0\0", b"a\0\0", b"ab\0"]),
    ("varchar(9)", ["", "a", "\u00e4b", "c"]),
    ("char(9)", ["", "a", "\u00e4b", "c"]),
]


@pytest.mark.parametrize(("type_", "values"), KEYS)
def test_keys_are_in_the_order_of_values(type_: str, values: list[Value]) -> None:
    """Alone, nullable (NULL first), and in front of another column."""
    for nullable in (False, True):
        the_key = key(0, 1, name="u")
        rows = RowFormat(
            table(col("a", type_, nullable=nullable), col("b", "int(11)"), keys=(the_key,))
        )
        wanted = [
            (value, b) for value in ([None] if nullable else []) + values for b in (None, -1, 1)
        ]
        keys = [rows.key(rows.split(rows.row(row)), the_key) for row in wanted]
        assert keys == sorted(set(keys))


def test_keys_that_are_equal() -> None:
    the_key = key(0, (1, 2), name="u")
    rows = RowFormat(table(col("a", "double"), col("b", "text", LATIN1), keys=(the_key,)))
    one, other = (rows.split(rows.row(row)) for row in ((-0.0, "\u00e9xy"), (0.0, "EXz")))
    assert rows.key(one, the_key) == rows.key(other, the_key)
    assert rows.is_unique(one, the_key)
    assert not rows.is_unique(rows.split(rows.row((None, "x"))), the_key)


UUID = uuid.UUID("123e4567-e89b-12d3-a456-426655440000")
CHECKSUMS: list[tuple[str, bool, Value, str]] = [
    ("int(11)", False, 1, "ff01000000"),
    ("int(11)", True, 1, "fd01000000"),
    ("int(11)", True, None, "ff"),
    ("varchar(5)", True, "a ", "fe6120"),
    ("varchar(5)", False, "a", "61"),
    ("char(2)", False, "a", "ff61" + "20" * 7),
    ("binary(3)", False, b"a", "ff610000"),
    ("uuid", False, UUID, "ff426655440000a45612d3e89b123e4567"),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "nullable", "value", "hashed"), CHECKSUMS)
def test_checksum(type_: str, nullable: bool, value: Value, hashed: str) -> None:
    rows = RowFormat(table(col("a", type_, nullable=nullable)))
    assert rows.checksum(rows.split(rows.row((value,)))) == zlib.crc32(bytes.fromhex(hashed))
