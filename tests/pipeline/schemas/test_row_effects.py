"""What a statement does to the rows of a table: which ones leave them alone, and that no other is taken for such."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from binlog_pipeline.schemas.logged_statements import LoggedStatement
from binlog_pipeline.schemas.row_effects import (
    SAME,
    TOLD,
    UNKNOWN,
    RowEffect,
    is_numbered,
    row_effect,
)
from binlog_protocol.sql.statements import TableName, parse_statement
from hypothesis import given
from hypothesis import strategies as st

T = TableName("shop", "orders")
COLUMNS = ("id", "a", "b")


def effect(
    sql: str, database: str = "shop", *, by_name: bool = True, **said: object
) -> RowEffect | None:
    made = LoggedStatement(database, sql, parse_statement(sql, database))
    return row_effect(replace(made, **said), T, COLUMNS, by_name=by_name)  # type: ignore[arg-type]


def op(sql: str, database: str = "shop", **said: object) -> str:
    found = effect(sql, database, **said)  # type: ignore[arg-type]
    return "-" if found is None else found.op


OPS = {
    "ALTER TABLE orders ADD c INT": "a",
    "ALTER TABLE orders ADD COLUMN IF NOT EXISTS c INT UNSIGNED ZEROFILL NULL AFTER a": "a",
    "ALTER TABLE orders ADD c VARCHAR(9) CHARSET 'utf8mb4' COLLATE = utf8mb4_bin COMMENT 'NOT NULL' INVISIBLE": "a",
    "ALTER TABLE orders ADD c ENUM('a','b,)') DEFAULT NULL CHECK (c <> 'b'), ADD d SET('x') CHARACTER SET latin1": "a",
    "ALTER TABLE orders ADD c TIMESTAMP NULL": "a",
    "ALTER TABLE orders ADD c TIMESTAMP": "x",
    "ALTER TABLE orders ADD c DOUBLE PRECISION": "a",
    "ALTER TABLE orders ADD c INT DEFAULT 1": "x",
    "ALTER TABLE orders ADD c INT DEFAULT NULL ON UPDATE x": "x",
    "ALTER TABLE orders ADD c INT NOT NULL": "x",
    "ALTER TABLE orders ADD c INT AUTO_INCREMENT UNIQUE": "x",
    "ALTER TABLE orders ADD c INT AS (a)": "x",
    "ALTER TABLE orders ADD c INT GENERATED ALWAYS AS (stored + 1)": "x",
    "ALTER TABLE orders ADD c INT, ADD d INT DEFAULT 5": "x",
    "ALTER TABLE orders ADD (c INT, d INT NOT NULL)": "x",
    "ALTER TABLE orders ADD c SERIAL": "x",
    "ALTER TABLE orders DROP c": "a",
    "ALTER TABLE orders DROP a": "x",
    "ALTER TABLE orders DROP COLUMN IF EXISTS `A` CASCADE": "x",
    "ALTER TABLE orders RENAME COLUMN a TO c": "x",
    "ALTER TABLE orders CHANGE a A INT": "x",
    "ALTER TABLE orders MODIFY a BIGINT": "x",
    "ALTER TABLE orders RENAME TO o": "x",
    "ALTER TABLE o RENAME orders": "x",
    "ALTER TABLE o RENAME AS shop.orders": "x",
    "ALTER TABLE o EXCHANGE PARTITION p WITH TABLE orders": "x",
    "ALTER TABLE o CONVERT TABLE orders TO PARTITION p VALUES LESS THAN (1)": "x",
    "ALTER TABLE o CONVERT PARTITION p TO TABLE orders": "x",
    "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4": "x",
    "ALTER TABLE orders DROP PARTITION p": "x",
    "ALTER TABLE orders COMMENT='x' DROP PARTITION p": "x",
    "ALTER TABLE orders ADD PARTITION (PARTITION p VALUES LESS THAN (9))": "-",
    "ALTER TABLE orders REBUILD PARTITION p": "-",
    "ALTER TABLE orders REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9))": "-",
    "ALTER TABLE orders COALESCE PARTITION 2": "-",
    "ALTER TABLE orders PARTITION BY HASH (a) PARTITIONS 2": "-",
    "ALTER TABLE orders COMMENT='x' PARTITION BY HASH (a)": "-",
    "ALTER TABLE orders ENGINE=InnoDB, COMMENT='x' REMOVE PARTITIONING": "-",
    "ALTER TABLE orders DROP COLUMN gone REMOVE PARTITIONING": "a",
    "ALTER TABLE orders MODIFY a INT REMOVE PARTITIONING": "x",
    "ALTER TABLE orders REMOVE SOMETHING": "x",
    "ALTER TABLE orders PARTITION SOMEHOW": "x",
    "ALTER IGNORE TABLE orders PARTITION BY HASH (a)": "x",
    "ALTER TABLE orders TRUNCATE PARTITION ALL": "x",
    "ALTER TABLE orders REMOVE PARTITIONING": "-",
    "ALTER TABLE orders IMPORT TABLESPACE": "x",
    "ALTER TABLE orders ADD SYSTEM VERSIONING": "x",
    "ALTER TABLE orders ADD PERIOD FOR p(a, b)": "x",
    "ALTER TABLE orders ADD INDEX (a), DROP KEY b, ALGORITHM=INPLACE, LOCK = NONE": "-",
    "ALTER TABLE orders ADD CONSTRAINT c CHECK (a > 0), DROP CONSTRAINT IF EXISTS d, ALTER INDEX i IGNORED": "-",
    "ALTER TABLE orders WAIT 5 ADD FULLTEXT (a)": "-",
    "ALTER TABLE orders DROP INDEX `PRIMARY`": "x",
    "ALTER TABLE orders DROP PRIMARY KEY": "x",
    "ALTER TABLE orders ADD CONSTRAINT PRIMARY KEY (a)": "x",
    "ALTER IGNORE TABLE orders ADD UNIQUE (a)": "x",
    "ALTER ONLINE TABLE orders ADD UNIQUE (a)": "a",
    "ALTER TABLE orders ENGINE=InnoDB, FORCE, COMMENT 'x' AUTO_INCREMENT = 5": "-",
    "ALTER TABLE orders ENGINE BLACKHOLE": "x",
    "ALTER TABLE orders UNION=(o)": "x",
    "ALTER TABLE o UNION=(p, orders)": "x",
    "ALTER TABLE orders ORDER BY a": "x",
    "ALTER TABLE orders ALTER a SET DEFAULT (5), ALTER COLUMN b DROP DEFAULT": "a",
    "ALTER TABLE orders FUTURE WORDS": "x",
    "ALTER TABLE orders": "-",
    "ALTER TABLE orders ADD c INT; DROP TABLE x": "x",
    "ALTER TABLE orders ADD c INT NOT": "x",
    "ALTER TABLE ORDERS ADD c INT": "x",
    "ALTER SEQUENCE orders RESTART": "x",
    "ALTER TABLE other.orders CHANGE a c INT": "-",
    "ALTER TABLE o CHANGE orders c INT": "-",
    "ALTER VIEW orders AS SELECT 1": "-",
    "ALTER /*!50100 TABLE orders DROP */ PARTITION p": "x",
    "ALTER /* TABLE x */ TABLE `shop`.`orders` ADD c INT -- DEFAULT 5": "a",
    "SET STATEMENT x=1 FOR ALTER TABLE orders ADD c INT DEFAULT 1": "x",
    "CREATE TABLE orders (id INT)": "t",
    "CREATE TABLE IF NOT EXISTS shop.orders (id INT)": "t",
    "CREATE OR REPLACE TABLE orders LIKE o": "t",
    "CREATE TABLE orders (id INT) ENGINE=BLACKHOLE": "x",
    "CREATE TABLE o (id INT) ENGINE=MERGE UNION=(orders)": "x",
    "CREATE TABLE o (id INT) ENGINE=InnoDB AS SELECT 1 UNION SELECT id FROM orders": "-",
    "CREATE TABLE o LIKE orders": "-",
    "CREATE TEMPORARY TABLE orders (id INT)": "-",
    "CREATE SEQUENCE orders": "x",
    "CREATE INDEX i ON orders (a)": "-",
    "CREATE UNIQUE INDEX i ON orders (a)": "a",
    "CREATE DATABASE shop": "-",
    "CREATE OR REPLACE DATABASE shop": "t",
    "CREATE VIEW v AS SELECT * FROM orders": "-",
    "CREATE SOMETHING orders": "x",
    "DROP TABLE orders": "t",
    "DROP TABLE IF EXISTS x, `shop`.`orders`": "t",
    "DROP TABLE ORDERS": "x",
    "DROP TEMPORARY TABLE orders": "-",
    "DROP DATABASE shop": "t",
    "DROP DATABASE SHOP": "x",
    "DROP INDEX i ON orders": "-",
    "DROP INDEX `PRIMARY` ON orders": "x",
    "DROP VIEW orders": "-",
    "RENAME TABLE orders TO o": "x",
    "RENAME TABLES IF EXISTS x TO y, o WAIT 5 TO orders": "x",
    "RENAME TABLE other.x TO shop.orders": "x",
    "RENAME USER a TO orders": "-",
    "TRUNCATE orders": "t",
    "TRUNCATE TABLE other.orders": "-",
    "REPAIR TABLE orders": "x",
    "OPTIMIZE TABLE orders": "-",
    "GRANT ALL ON orders TO x": "-",
    "FROBNICATE orders": "x",
    "FROBNICATE": "x",
    "": "x",
}  # fmt: skip


@pytest.mark.parametrize("sql", OPS)
def test_statements(sql: str) -> None:
    assert op(sql) == OPS[sql]


def test_elsewhere() -> None:
    assert op("FROBNICATE the_other", "other") == "-"
    assert op("FROBNICATE `orders`", "other") == "x"
    assert op("FROBNICATE shop", "other") == "x"
    assert op("ALTER TABLE orders CHANGE a c INT", "other") == "-"
    assert op("ALTER TABLE shop.orders CHANGE a c INT", "other") == "x"
    assert op('ALTER TABLE "shop"."orders" CHANGE a c INT', "other", sql_mode=4) == "x"
    assert op("ALTER TABLE \ufffd CHANGE a c INT", "other") == "x"


def test_sessions() -> None:
    assert op("TRUNCATE orders", may_be_temporary=True) == "-"
    assert (
        op("DROP TABLE orders", may_be_temporary=True) == "t"
    )  # of a temporary one it is DROP TEMPORARY
    assert op("ALTER TABLE orders CHANGE a c INT", may_be_temporary=True) == "x"
    assert op("ALTER TABLE orders ADD c INT", has_failed=True) == "x"
    assert op("TRUNCATE orders", has_failed=True) == "x"
    assert op("CREATE OR REPLACE TABLE orders (a INT)", has_failed=True) == "t"


def test_logs_without_names() -> None:
    assert op("ALTER TABLE orders ADD c INT", by_name=False) == "x"
    assert op("ALTER TABLE orders DROP c", by_name=False) == "x"
    assert op("ALTER TABLE orders ADD UNIQUE (a)", by_name=False) == "x"
    assert op("ALTER TABLE orders ADD KEY (a), COMMENT 'x'", by_name=False) == "-"
    assert op("ALTER TABLE orders ALTER a SET DEFAULT 5", by_name=False) == "a"


def test_definitions() -> None:
    found = effect(
        "CREATE TABLE orders (id INT PRIMARY KEY, a INT, b TEXT NOT NULL, c INT DEFAULT (as_of(1)), "
        "d INT AS (a * stored) VIRTUAL, e INT GENERATED ALWAYS AS (a) STORED, f TIMESTAMP, g TIMESTAMP NULL, "
        "h VARCHAR(9) CHARACTER SET latin1 DEFAULT NULL COMMENT 'AS', i INT INVISIBLE, KEY k (a), "
        "PERIOD FOR p (x, y), j INT AS (a), CHECK (a > (1))) ENGINE=InnoDB CHARSET=utf8mb4"
    )
    assert found is not None
    assert found.definition == TOLD
    assert found.computed == ("d", "j")
    assert found.defaulted == ("id", "b", "c", "e", "f")
    assert found.sources == (("d", "a"), ("e", "a"), ("j", "a"))
    for sql, definition in {
        "TRUNCATE orders": SAME,
        "DROP TABLE orders": UNKNOWN,
        "CREATE TABLE orders LIKE o": UNKNOWN,
        "CREATE TABLE orders (a INT) AS SELECT 1": UNKNOWN,
        "CREATE TABLE orders (a INT) PARTITION BY HASH (a)": TOLD,
        "CREATE TABLE orders (a INT future words here)": TOLD,
        "CREATE TABLE orders (": UNKNOWN,
        "ALTER TABLE orders ADD c INT": SAME,
    }.items():
        told = effect(sql)
        assert told is not None
        assert told.definition == definition, sql
    nested = effect(
        "CREATE TABLE orders (A INT, b INT AS (`a` + 1) STORED, c INT AS (B + 1), d INT, e INT AS (3))"
    )
    assert nested is not None
    assert nested.sources == (("b", "A"), ("c", "A", "b"), ("e",))
    late = effect("ALTER TABLE orders ALTER a SET DEFAULT 5")
    assert late is not None
    assert late.defaulted == ("a",)


@pytest.mark.parametrize(
    ("clause", "doubts"),
    [
        ("ON DELETE CASCADE", True), ("ON UPDATE SET NULL", True), ("ON DELETE RESTRICT ON UPDATE CASCADE", True),
        ("ON DELETE SET DEFAULT", True), ("ON DELETE RESTRICT", False), ("ON UPDATE NO ACTION", False), ("", False),
    ],
)  # fmt: skip
def test_foreign_keys(clause: str, doubts: bool) -> None:
    made = effect(f"CREATE TABLE orders (a INT REFERENCES p (id) {clause})")
    assert made is not None
    assert bool(made.doubt) == doubts
    added = effect(f"ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES p (id) {clause}")
    assert (added is not None and bool(added.doubt)) == doubts


PIECES = (
    "ALTER", "CREATE", "DROP", "TABLE", "orders", "shop", ".", ",", "(", ")", "ADD", "COLUMN", "c", "INT", "DEFAULT",
    "5", "NULL", "NOT", "KEY", "PRIMARY", "RENAME", "TO", "o", "PARTITION", "p", "'x", "'", "`", '"', "/*!", "*/", "/*",
    "--", "=", "ENGINE", "InnoDB", "COMMENT", "AS", "CHECK", ";", "\n", "CHARACTER", "SET", "TRUNCATE", "IF", "EXISTS",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(["shop", "other"]))
def test_any_text(pieces: list[str], database: str) -> None:
    """Never raises; and what says RENAME, CHANGE or DEFAULT of the table is never harmless."""
    found = effect(" ".join(pieces), database)
    assert found is None or found.op in "tax"


@given(st.randoms(use_true_random=False))
def test_a_word_that_is_put_in_never_makes_a_statement_harmless(rng: random.Random) -> None:
    unknown = [
        sql for sql, want in OPS.items() if want == "x" and sql.startswith("ALTER TABLE orders")
    ]
    words = rng.choice(unknown).split(" ")
    words.insert(rng.randrange(3, len(words) + 1), rng.choice(("FUTURE", "5", "'x'", "(1)", "=")))
    assert op(" ".join(words)) in "xa", " ".join(words)


@pytest.mark.parametrize(
    ("sql", "numbered"),
    [
        ("CREATE TABLE orders (id SERIAL, v INT AS (id + 1))", True),
        ("CREATE TABLE orders (id SERIAL, v INT AS (id + 1) STORED)", False),
        ("CREATE TABLE orders (id INT PRIMARY KEY, v INT AS (id + 1))", False),
        ("CREATE TABLE orders LIKE o", True),
        ("CREATE TABLE orders (LIKE o)", True),
        ("CREATE OR REPLACE TABLE orders LIKE shop.`o`", True),
        ("CREATE TABLE orders LIKE p", False),
        ("CREATE TABLE orders LIKE other.o", False),
        ("CREATE INDEX i ON orders (a)", False),
        ("CREATE TABLE orders LIKE", False),
        ("DROP TABLE orders", False),
    ],
)
def test_a_table_that_is_made_like_one_that_is_computed_of_numbers(
    sql: str, numbered: bool
) -> None:
    known = {TableName("shop", "o")}
    said = LoggedStatement("shop", sql, parse_statement(sql, "shop"))
    assert is_numbered(said, T, known) is numbered
    found = row_effect(said, T, COLUMNS, numbered=known)
    if sql.startswith("CREATE") and "TABLE" in sql and found is not None and found.op == "t":
        assert ("computed of an AUTO_INCREMENT" in found.doubt) is numbered
