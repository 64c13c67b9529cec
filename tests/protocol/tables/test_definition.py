"""Definitions: what a server refuses (the texts are asked by tests/integration/rows/test_tables.py), and bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.tables.definition import Generation, StoredTable
from binlog_protocol.tables.sql_type import SqlType
from binlog_protocol.tables.stored_definition import definition_bytes, parse_definition
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.tables.shop import ORDERS, col, key, table

GENERATED = table(
    col("a", "int(11)", nullable=False),
    col("b", "bigint(20)", generation=Generation.VIRTUAL, expression="`a` + 1"),
    col("c", "varchar(9) /*M!100301 COMPRESSED*/", generation=Generation.STORED, expression="'x'"),
    col("d", "int(5) unsigned zerofill"),
    col("e", "vector(3)"),
    col("f", "point"),
    col("\u00e9", "set('a','\u00e9')"),
)

REFUSED: list[tuple[int, Callable[[], object]]] = [
    (1113, table),
    (1060, lambda: table(col("a", "int(11)"), col("A", "int(11)"))),
    (1166, lambda: table(col("a ", "int(11)"))),
    (1059, lambda: table(col("a" * 65, "int(11)"))),
    (1103, lambda: StoredTable("d", "t ", (col("a", "int(11)"),))),
    (1103, lambda: StoredTable("d", "t" * 65, (col("a", "int(11)"),))),
    (1300, lambda: StoredTable("d", "\U0001f600" * 64, (col("a", "int(11)"),))),
    (1300, lambda: StoredTable("d\U0001f600", "t", (col("a", "int(11)"),))),
    (1300, lambda: col("a\udcff", "int(11)")),
    (1064, lambda: col("a\0b", "int(11)")),
    (1629, lambda: col("a", "int(11)", comment="x" * 1025)),
    (1628, lambda: StoredTable("d", "t", (col("a", "int(11)"),), comment="x" * 2049)),
    (1005, lambda: table(*(col(f"c{n}", "tinyint(4)") for n in range(1018)))),
    (1117, lambda: table(*(col(f"c{n}", "tinyint(4)") for n in range(4097)))),
    (1074, lambda: col("a", "char(256)")),
    (1074, lambda: col("a", "varchar(16384)")),
    (1074, lambda: col("a", "varbinary(65533)")),
    (1425, lambda: col("a", "decimal(65,39)")),
    (1426, lambda: col("a", "decimal(66,0)")),
    (1426, lambda: col("a", "time(7)")),
    (1427, lambda: col("a", "decimal(2,3)")),
    (1439, lambda: col("a", "bit(65)")),
    (1291, lambda: col("a", "enum('x','X')")),
    (1097, lambda: col("a", f"set({','.join(repr(str(n)) for n in range(65))})")),
    (1273, lambda: col("a", "varchar(3)", 1000)),
    (1118, lambda: table(*(col(f"c{n}", "varchar(1000)") for n in range(17)))),
    (1171, lambda: table(col("a", "int(11)"), keys=(key(0),))),
    (1170, lambda: table(col("a", "text"), keys=(key(0, name="u"),))),
    (1089, lambda: table(col("a", "int(11)"), keys=(key((0, 3), name="u"),))),
    (1089, lambda: table(col("a", "char(3)"), keys=(key((0, 4), name="u"),))),
    (1071, lambda: table(col("a", "varchar(769)"), keys=(key(0, name="u"),))),
    (1068, lambda: table(col("a", "int(11)", nullable=False), keys=(key(0), key(0)))),
    (1061, lambda: table(col("a", "int(11)"), keys=(key(0, name="u"), key(0, name="U")))),
    (1280, lambda: table(col("a", "int(11)"), keys=(key(0, name="Primary"),))),
    (1060, lambda: table(col("a", "int(11)"), keys=(key(0, 0, name="u"),))),
    (1063, lambda: table(col("a", "varchar(3)", collation=45, nullable=False, is_auto_increment=True), keys=(key(0),))),
    (1075, lambda: table(col("a", "int(11)", is_auto_increment=True))),
    (1235, lambda: table(col("a", "varchar(9)", 2305), keys=(key(0, name="u"),))),
    (1235, lambda: table(col("a", "point"), keys=(key(0, name="u"),))),
    (1235, lambda: col("a", "decimal")),
]  # fmt: skip


@pytest.mark.parametrize(("number", "make"), REFUSED)
def test_refused(number: int, make: Callable[[], object]) -> None:
    with pytest.raises(ServerError) as refused:
        make()
    assert refused.value.errno == number


def test_limits_are_taken() -> None:
    table(*(col(f"c{n}", "tinyint(4)") for n in range(1017)))
    table(col("a", "varchar(16383)"))
    table(col("a", "varchar(16000)"), col("b", "longtext"))
    table(col("a", "varchar(768)"), keys=(key(0, name="u"),))
    table(col("a", "varchar(9)", 2305))
    table(col("a", "enum('a','A')", 63))
    table(col("a", "enum('a','A')", 46))


@pytest.mark.parametrize("definition", [ORDERS, GENERATED])
def test_bytes(definition: StoredTable) -> None:
    raw = definition_bytes(definition)
    assert parse_definition(raw) == definition
    for end in range(len(raw)):
        with pytest.raises(ProtocolError):
            parse_definition(raw[:end])
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        parse_definition(raw + b"\0")
    with pytest.raises(ProtocolError, match="version 2"):
        parse_definition(b"\2" + raw[1:])


def test_the_bytes_stay_readable() -> None:
    """Those of version 1: a store that has them must open for ever."""
    raw = (
        b"\1" b"\4shop" b"\6orders" b"\6InnoDB" b"\0" b"\x08"
        b"\1" b"\2id" b"\3int" b"\1\x0a" b"\0" b"\x21" b"\x3f" b"\0"
        b"\1" b"\0" b"\7PRIMARY" b"\1" b"\0\0"
        b"\0"
    )  # fmt: skip
    made = table(
        col("id", "int(10) unsigned", nullable=False, is_auto_increment=True), keys=(key(0),)
    )
    assert parse_definition(raw) == made
    assert definition_bytes(made) == raw


@given(st.binary(max_size=80), st.integers(0, 400), st.sampled_from([ORDERS, GENERATED]))
def test_any_bytes(noise: bytes, at: int, definition: StoredTable) -> None:
    raw = bytearray(definition_bytes(definition))
    raw[at : at + len(noise)] = noise
    try:
        found = parse_definition(bytes(raw))
    except ProtocolError:
        return
    assert parse_definition(definition_bytes(found)) == found


TYPES = [
    "tinyint(4)", "bigint(20) unsigned", "int(5) unsigned zerofill", "decimal(10,3)", "varchar(63)", "text",
    "enum('a','it''s','b\\\\c')", "varchar(9) /*M!100301 COMPRESSED*/", "timestamp(3)", "point", "uuid", "bit(9)",
    "float(7,2)",
]  # fmt: skip


@pytest.mark.parametrize("text", TYPES)
def test_types_as_they_are_printed(text: str) -> None:
    assert str(SqlType.parse(text)) == text


def test_table_map() -> None:
    logged = ORDERS.table_map(7, has_triggers=True)
    assert (logged.table_id, logged.flags, logged.database, logged.table) == (
        7,
        0x4001,
        "shop",
        "orders",
    )
    assert [c.name for c in logged.columns] == ["id", "who", "price", "state", "note", "changed"]
    assert [c.unsigned for c in logged.columns] == [True, None, False, None, None, None]
    assert logged.columns[3].labels == ("new", "paid", "it's \\ gone")
    assert logged.primary_key == ((0, 0),)
    assert ORDERS.column_number("WHO") == 1
    assert ORDERS.auto_increment == 0
