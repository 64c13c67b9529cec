"""Kept rows behind an ALTER TABLE: what is certain is made, all else is refused.

Servers are asked in test_any_history.py.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.schemas.ddl_alter import alteration_of
from binlog_pipeline.schemas.ddl_columns import ColumnReader
from binlog_pipeline.schemas.default_charsets import TableCharset
from binlog_pipeline.schemas.lineage import PlacedDdl
from binlog_pipeline.schemas.logged_statements import LoggedStatement
from binlog_pipeline.tables.rewriting import Rewriting
from binlog_pipeline.tables.values import NewColumn
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.row_columns import ColumnOptions
from binlog_protocol.sql.statements import parse_statement
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.sql.tokens import tokens

TIME = 1_600_000_000
OPTIONS = ColumnOptions()


def column(text: str, charset: str | None = None) -> NewColumn:
    """A column of its definition, `a INT`, in a table of that character set."""
    reader = ColumnReader([*tokens(text)], "d", 0)
    return NewColumn.of(reader.definition(reader.identifier()), OPTIONS, charset)


def altered(
    clauses: str,
    columns: dict[str, list[Any]],
    zone: str = "",
    charset: str | None = None,
) -> dict[str, list[Any]]:
    """A table with these definitions and values, behind the clauses of an ALTER TABLE.

    charset: of columns that name none.
    """
    made = [column(text) for text in columns]
    names = [one.definition.name for one in made]
    rows = pa.table(
        [pa.array(v, one.field.type) for one, v in zip(made, columns.values(), strict=True)], names
    )
    sql = f"ALTER TABLE t {clauses}"
    said = LoggedStatement("d", sql, parse_statement(sql, "d"), time_zone=zone, microseconds=123456)
    placed = PlacedDdl(said, Gtid(0, 1, 1), SlavePosition(), SlavePosition(), TIME)
    logged = {one.definition.name: one.logged for one in made}
    alteration = alteration_of(said)
    given = TableCharset(charset or "").behind(alteration, None).charset or None
    found = Rewriting.of(alteration, placed, names, logged, OPTIONS, given, is_empty=False)
    behind = found.rows(rows)
    assert [*found.columns] == behind.column_names
    made_of: dict[str, list[Any]] = behind.to_pydict()
    return made_of


MADE: list[tuple[str, dict[str, list[Any]], dict[str, list[Any]]]] = [
    ("RENAME COLUMN A TO b", {"a INT": [1]}, {"b": [1]}),
    ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a INT": [1], "b INT": [2]}, {"b": [1], "a": [2]}),
    ("DROP a, ADD a INT", {"a INT": [1], "b INT": [2]}, {"b": [2], "a": [None]}),
    ("DROP IF EXISTS z, ADD IF NOT EXISTS a BIGINT DEFAULT 5", {"a INT": [1]}, {"a": [1]}),
    ("ADD b INT DEFAULT -5 FIRST", {"a INT": [1, 2]}, {"a": [1, 2], "b": [-5, -5]}),
    ("ADD (b INT NOT NULL, c TEXT NOT NULL, d ENUM('x','y') NOT NULL)", {"a INT": [1]},
     {"a": [1], "b": [0], "c": [""], "d": ["x"]}),
    ("ADD b CHAR(5) DEFAULT 'it''s '", {"a INT": [1]}, {"a": [1], "b": ["it's"]}),
    ("ADD b DECIMAL(5,2) DEFAULT 1.5", {"a INT": [1]}, {"a": [1], "b": [Decimal("1.50")]}),
    ("ADD b DATETIME(3) DEFAULT NOW(3)", {"a INT": [1]},
     {"a": [1], "b": [dt.datetime(2020, 9, 13, 14, 26, 40, 123000)]}),
    ("MODIFY a BIGINT NOT NULL", {"a INT": [1]}, {"a": [1]}),
    ("CHANGE a b TINYINT", {"a INT": [1, 300, -300, None]}, {"b": [1, 127, -128, None]}),
    ("MODIFY a BIGINT UNSIGNED", {"a INT": [1, -1]}, {"a": [Decimal(1), Decimal(0)]}),
    ("MODIFY a VARCHAR(9)", {"a INT": [-12]}, {"a": ["-12"]}),
    ("MODIFY a INT", {"a VARCHAR(9)": ["-12", None]}, {"a": [-12, None]}),
    ("MODIFY a DECIMAL(4,1)", {"a DECIMAL(9,3)": [Decimal("1.250"), Decimal("-1.250")]},
     {"a": [Decimal("1.3"), Decimal("-1.3")]}),
    ("MODIFY a INT", {"a DECIMAL(9,3)": [Decimal("-2.500")]}, {"a": [-3]}),
    # DECIMAL of all digits, which Arrow's has not, so it is text
    ("ADD b DECIMAL(65,30) DEFAULT 1.5, ADD c DECIMAL(65,0) NOT NULL", {"a INT": [1]},
     {"a": [1], "b": [f"1.5{'0' * 29}"], "c": ["0"]}),
    ("ADD b DECIMAL(38,30) DEFAULT 1.5", {"a INT": [1]}, {"a": [1], "b": [Decimal(f"1.5{'0' * 29}")]}),
    ("MODIFY a DECIMAL(65,1)", {"a DECIMAL(65,30)": ["9" * 35 + ".95", "-0.01", None]},
     {"a": [f"1{'0' * 35}.0", "0.0", None]}),
    ("MODIFY a BIGINT", {"a DECIMAL(65,1)": ["9" * 64 + ".5", "-2.5"]}, {"a": [(1 << 63) - 1, -3]}),
    ("MODIFY a VARCHAR(90)", {"a DECIMAL(65,30)": ["-1.50"]}, {"a": ["-1.50"]}),
    ("MODIFY a DECIMAL(60,2)", {"a INT": [-7, None]}, {"a": ["-7.00", None]}),
    ("MODIFY a DECIMAL(60,2)", {"a VARCHAR(9)": ["7.005"]}, {"a": ["7.01"]}),
    ("MODIFY a DECIMAL(20,2)", {"a DECIMAL(60,2)": ["7.25"]}, {"a": [Decimal("7.25")]}),
    # Partitions behind other clauses, without a comma
    ("ADD b INT DEFAULT 5, COMMENT='x' REMOVE PARTITIONING", {"a INT": [1]}, {"a": [1], "b": [5]}),
    ("ADD b INT DEFAULT 5 PARTITION BY HASH (a)", {"a INT": [1]}, {"a": [1], "b": [5]}),
    ("MODIFY a ENUM('b','a','c')", {"a ENUM('a','b')": ["a", "b"]}, {"a": ["a", "b"]}),
    ("MODIFY a DATETIME(6)", {"a DATE": [dt.date(2020, 1, 2)]}, {"a": [dt.datetime(2020, 1, 2)]}),
    ("MODIFY a CHAR(9)", {"a VARCHAR(9)": ["x  "]}, {"a": ["x"]}),
    ("CONVERT TO CHARACTER SET latin1", {"a VARCHAR(9) CHARACTER SET utf8mb4": ["\u00e4"]}, {"a": ["\u00e4"]}),
    ("CONVERT TO CHARACTER SET binary", {"a VARCHAR(3) CHARACTER SET utf8mb4": ["x\u00e4\u00e4", None]},
     {"a": [b"x\xc3\xa4", None]}),
    ("CONVERT TO CHARACTER SET binary", {"a CHAR(3) CHARACTER SET latin1": ["x"]}, {"a": [b"x\0\0"]}),
    ("CONVERT TO CHARACTER SET binary", {"a TEXT CHARACTER SET ucs2": ["x"]}, {"a": [b"\0x"]}),
    ("CONVERT TO CHARACTER SET binary", {"a ENUM('\u00e4') CHARACTER SET latin1": ["\u00e4", ""]},
     {"a": [b"\xe4", b""]}),
    ("CONVERT TO CHARACTER SET binary", {"a SET('x','y') CHARACTER SET latin1": ["x,y", ""]}, {"a": [b"x,y", b""]}),
    ("MODIFY a VARBINARY(9)", {"a VARCHAR(9) CHARACTER SET latin1": ["\u00e4"]}, {"a": [b"\xe4"]}),
    ("MODIFY a VARCHAR(9) CHARACTER SET latin1", {"a VARBINARY(9)": [b"\xe4"]}, {"a": ["\u00e4"]}),
    ("MODIFY a SET('z','y','x')", {"a SET('x','y')": ["x,y", ""]}, {"a": ["y,x", ""]}),
    ("ADD b SET('x','y') DEFAULT 'y,x'", {"a INT": [1]}, {"a": [1], "b": ["x,y"]}),
    ("ADD b SET('x','y') NOT NULL", {"a INT": [1]}, {"a": [1], "b": [""]}),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "columns", "want"), MADE)
def test_what_is_made(
    clauses: str, columns: dict[str, list[Any]], want: dict[str, list[Any]]
) -> None:
    assert altered(clauses, columns, zone="+02:00", charset="latin1") == want


REFUSED: list[tuple[str, dict[str, list[Any]], str]] = [
    ("RENAME COLUMN z TO b", {"a INT": [1]}, "z is not there"),
    ("ADD b INT DEFAULT (a + 1)", {"a INT": [1]}, "DEFAULT"),
    ("ADD b DATETIME DEFAULT NOW()", {"a INT": [1]}, "time zone SYSTEM"),
    ("ADD b DATE NOT NULL", {"a INT": [1]}, "NOT NULL without a default"),
    ("ADD b TIMESTAMP", {"a INT": [1]}, "NOT NULL of itself"),
    ("MODIFY a INT NOT NULL", {"a INT": [1, None]}, "no NULL"),
    ("MODIFY a INT", {"a VARCHAR(9)": ["12x"]}, "no whole number"),
    ("MODIFY a VARCHAR(2)", {"a VARCHAR(9)": ["123"]}, "too long"),
    ("MODIFY a VARCHAR(2)", {"a INT": [123]}, "too long"),
    ("MODIFY a VARCHAR(9)", {"a INT UNSIGNED": [1]}, "ZEROFILL"),
    ("MODIFY a VARCHAR(9) CHARACTER SET latin1", {"a VARCHAR(9)": ["\u0416"]}, "no character of latin1"),
    ("MODIFY a ENUM('b')", {"a ENUM('a','b')": ["a"]}, "no label"),
    ("MODIFY a ENUM('\u0436')", {"a ENUM('\u0436') CHARACTER SET utf8mb4": [""]}, "no character of latin1"),
    ("MODIFY a DATETIME", {"a DATETIME(3)": [dt.datetime(2020, 1, 2)]}, "fractions"),
    ("MODIFY a DECIMAL(3,1)", {"a DECIMAL(9,1)": [Decimal("100.0")]}, "beyond its range"),
    ("MODIFY a UUID", {"a BINARY(16)": [b"x" * 16]}, "another length"),
    ("ADD PRIMARY KEY (a)", {"a INT": [None]}, "no NULL"),
    ("CONVERT TO CHARACTER SET latin1", {"a TEXT": ["\u0416"]}, "no character of latin1"),
    ("CONVERT TO CHARACTER SET latin1", {"a ENUM('\u00e4')": ["\u00e4"]}, "labels converted"),
    ("ADD b SET('x','y') DEFAULT 'x,z'", {"a INT": [1]}, "no label"),
    ("CONVERT TO CHARACTER SET binary", {"a SET('x','y') CHARACTER SET ucs2": ["x", "x,y"]}, "several labels as bytes"),
    ("ADD b SET('x','y') DEFAULT 3", {"a INT": [1]}, "DEFAULT 3"),
    ("MODIFY a VARCHAR(9) CHARACTER SET utf8mb4", {"a VARBINARY(9)": [b"\xff\x00\x81"]}, "no text of utf8mb4"),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "columns", "why"), REFUSED)
def test_what_is_refused(clauses: str, columns: dict[str, list[Any]], why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        altered(clauses, columns, zone="SYSTEM", charset="latin1")


OPEN: list[tuple[str, dict[str, list[Any]]]] = [
    ("ADD b VARCHAR(9) DEFAULT 'x'", {"a INT": [1]}),
    ("ADD b TEXT NOT NULL", {"a INT": [1]}),
    ("ADD b ENUM('x') DEFAULT 'x'", {"a INT": [1]}),
    ("MODIFY a VARCHAR(9)", {"a INT": [1]}),
    ("MODIFY a VARCHAR(9)", {"a TEXT CHARACTER SET latin1": ["x"]}),
    ("MODIFY a ENUM('b','a')", {"a ENUM('a','b') CHARACTER SET latin1": ["a"]}),
]


@pytest.mark.parametrize(("clauses", "columns"), OPEN)
def test_text_or_bytes(clauses: str, columns: dict[str, list[Any]]) -> None:
    """A column without a character set in a table of one that is not known."""
    with pytest.raises(NotUnderstood, match="character set of the table is not known"):
        altered(clauses, columns)


BINARY: list[tuple[str, Any]] = [
    ("VARCHAR(9) DEFAULT 'x'", b"x"),
    ("VARCHAR(9) NOT NULL", b""),
    ("CHAR(3) DEFAULT 'x'", b"x\0\0"),
    ("CHAR(3) NOT NULL", b"\0\0\0"),
    ("TEXT(300) DEFAULT 'x'", b"x"),
    ("ENUM('x') DEFAULT 'x'", b"x"),
    ("ENUM('x') NOT NULL", b"x"),
    ("JSON DEFAULT 'x'", "x"),
    ("NCHAR(3) DEFAULT 'x'", "x"),
    ("TEXT CHARACTER SET latin1 DEFAULT 'x'", "x"),
]


@pytest.mark.parametrize(("definition", "want"), BINARY)
def test_a_table_of_bytes(definition: str, want: Any) -> None:
    made = altered(f"ADD b {definition}", {"a INT": [1]}, charset="binary")
    assert made == {"a": [1], "b": [want]}
