"""Histories of some tables at random: all that a server may be told to do to their rows, by whatever way.

A history has two databases of its own, so many share a log. Servers refuse some of the statements.

In the texts below `{t}` and `{o}` are tables, `{d}` is a database, `{c}` and `{n}` are columns, the same in all
statements of a line; `{insert}`, `{value}`, `{type}`, `{definition}` are made anew at each place. `a; b` are statements
that follow one another; one with `2:` is said in the second session.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

TYPES: Final[dict[str, tuple[str, ...]]] = {
    "INT": ("1", "-7", "2147483647"),
    "INT UNSIGNED": ("1", "4294967295"),
    "BIGINT": ("5", "-9"),
    "TINYINT(1)": ("0", "1"),
    "BIT(9)": ("1", "b'101000001'"),
    "DECIMAL(9,3)": ("1.5", "-99.125"),
    "FLOAT": ("1.5", "0.25"),
    "DOUBLE": ("1e9", "-0.5"),
    "YEAR": ("2020", "1999"),
    "DATE": ("'2020-01-02'", "'1999-12-31'"),
    "TIME(2)": ("'10:11:12.13'", "'-100:00:01'"),
    "DATETIME(6)": ("'2020-01-02 03:04:05.678901'",),
    "TIMESTAMP NULL": ("'2020-01-02 03:04:05'",),
    "CHAR(7)": ("'x'", "'12'", "'ä'"),
    "CHAR(7) CHARACTER SET latin1": ("'ä'", "'7'"),
    "VARCHAR(9)": ("'y'", "'3 '", "''"),
    "VARCHAR(40) COMPRESSED": ("'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'",),
    "BINARY(3)": ("'a'", "x'00ff01'"),
    "VARBINARY(30)": ("'b'", "x'00ff00'"),
    "TEXT": ("'t'", "'5'"),
    "BLOB": ("'t'", "x'ff'"),
    "TINYTEXT": ("'t'", "'5'"),
    "VARCHAR(9) BINARY": ("'y'", "'3 '"),
    "VARCHAR(9) CHARACTER SET binary": ("'y'", "x'00ff'"),
    "CHAR(3) CHARACTER SET binary": ("'a'", "x'00ff01'"),
    "TEXT CHARACTER SET binary": ("'t'", "x'ff'"),
    "VARCHAR(5) COLLATE utf8mb4_bin": ("'y'", "'5'"),
    "ENUM('a','b') CHARACTER SET binary": ("'a'", "2"),
    "ENUM('a','b,)')": ("'a'", "2"),
    "SET('x ','it''s')": ("3", "'it''s'"),
    "SET('y','x') CHARACTER SET latin1": ("3", "'x'"),
    "VARCHAR(5) CHARACTER SET ucs2": ("'ä'", "'жук'", "'5'"),
    "JSON": ("'{\"a\": 1}'", "'[]'"),
    "INET6": ("'::1'", "'1234::ffff'"),
    "INET4": ("'1.2.3.4'",),
    "UUID": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "POINT": ("POINT(1, 2)",),
}
NEW_TYPES: Final[dict[str, tuple[str, ...]]] = {"VECTOR(2)": ("Vec_FromText('[1,2]')",)}
"""From 11.8 on."""
COLUMNS: Final = ("id", "a", "b", "c", "d`x")
CHARSETS: Final = ("utf8mb4", "latin1", "binary", "DEFAULT")
MORE_CHARSETS: Final = ("ucs2", "binary", "binary", "ascii", "cp932")
ENGINES: Final = ("InnoDB", "InnoDB", "InnoDB", "MyISAM", "Aria", "MEMORY")
DML: Final = """
{insert}
{insert}
{insert}
{insert}
INSERT INTO {t} () VALUES ()
REPLACE INTO {t} (id, a) VALUES (1, {value}), (2, {value})
REPLACE INTO {t} (id) VALUES (3)
{insert} ON DUPLICATE KEY UPDATE {c} = {value}
UPDATE IGNORE {t} SET {c} = {value}
UPDATE IGNORE {t} SET {c} = {value} WHERE id = 1
UPDATE IGNORE {t} SET {c} = {value} WHERE {n} IS NULL
UPDATE IGNORE {t} SET id = id + 7 WHERE id > 2 ORDER BY id DESC
UPDATE IGNORE {t} SET id = id + 1 ORDER BY id DESC
DELETE FROM {t}
DELETE FROM {t} WHERE id = 1
DELETE FROM {t} WHERE {c} IS NULL
INSERT IGNORE INTO {t} (id, a) SELECT id + 50, a FROM {o}
UPDATE IGNORE {t} p, {o} q SET p.{c} = {value}, q.a = NULL WHERE p.id = q.id
DELETE p, q FROM {t} p JOIN {o} q ON p.id = q.id WHERE p.id < 3
"""
TRANSACTIONS: Final = """
BEGIN; {dml}; SAVEPOINT s; {dml}; ROLLBACK TO s; {dml}; COMMIT
BEGIN; {dml}; SAVEPOINT s; {dml}; RELEASE SAVEPOINT s; {dml}; COMMIT
BEGIN; {dml}; {dml}; ROLLBACK
2:XA START {xid}; 2:{dml}; 2:{dml}; 2:XA END {xid}; 2:XA PREPARE {xid}; 2:XA COMMIT {xid}
2:XA START {xid}; 2:{dml}; 2:{dml}; 2:XA END {xid}; 2:XA PREPARE {xid}; 2:XA ROLLBACK {xid}
2:XA START {xid}; 2:{dml}; 2:XA END {xid}; 2:XA PREPARE {xid}
2:XA COMMIT {xid}
2:XA ROLLBACK {xid}
2:XA START {xid}; 2:{dml}; 2:{dml}; 2:XA END {xid}; 2:XA COMMIT {xid} ONE PHASE
"""
SETTINGS: Final = """
SET binlog_format=ROW
SET binlog_format={format}
SET binlog_format={format}
SET binlog_row_image=FULL
SET binlog_row_image=MINIMAL
SET binlog_row_image=NOBLOB
SET binlog_row_image=FULL_NODUP
SET sql_mode=''
SET sql_mode='ANSI_QUOTES'
SET sql_mode='NO_BACKSLASH_ESCAPES'
SET sql_mode='STRICT_TRANS_TABLES'
SET foreign_key_checks=1
SET explicit_defaults_for_timestamp=0
SET NAMES latin1
USE {d}
USE {d}
"""
BESIDE: Final = """
CREATE OR REPLACE TRIGGER {o}_g AFTER INSERT ON {o} FOR EACH ROW {action}
CREATE OR REPLACE TRIGGER {o}_g BEFORE UPDATE ON {o} FOR EACH ROW {action}
CREATE OR REPLACE TRIGGER {o}_g AFTER DELETE ON {o} FOR EACH ROW {action}
CREATE OR REPLACE TRIGGER {t}_b BEFORE INSERT ON {t} FOR EACH ROW SET NEW.a = NULL
CREATE OR REPLACE VIEW {d}.v AS SELECT id, a FROM {t}; INSERT INTO {d}.v VALUES (88, 1); DELETE FROM {d}.v WHERE id < 2
CREATE OR REPLACE PROCEDURE {d}.p() {action}; CALL {d}.p()
CREATE OR REPLACE FUNCTION {d}.f() RETURNS INT DETERMINISTIC RETURN {d}.g(); DO {d}.f()
CREATE OR REPLACE FUNCTION {d}.g() RETURNS INT DETERMINISTIC BEGIN {action};RETURN 1;END; DO {d}.g()
INSERT INTO {o} (id) SELECT {d}.g()
SELECT 91 + id, NULL FROM {o} INTO OUTFILE {file}; LOAD DATA INFILE {file} IGNORE INTO TABLE {t} (id, a)
SELECT id, NULL FROM {t} INTO OUTFILE {file}; LOAD DATA INFILE {file} REPLACE INTO TABLE {t} (id, a)
{temporary}; {insert}; TRUNCATE {t}; DROP TABLE {t}
{temporary}; ALTER TABLE {t} ADD z INT DEFAULT 5; {insert}; DROP TEMPORARY TABLE {t}
{temporary}; RENAME TABLE {t} TO {d}.tmp
{temporary}; ALTER TABLE {t} RENAME {d}.tmp; {insert}
{temporary}; CREATE INDEX i ON {t} (a); DELETE FROM {t}; DROP TABLE IF EXISTS {t}
{temporary}; CREATE OR REPLACE TEMPORARY TABLE {t} (id INT); CREATE OR REPLACE TABLE {t} LIKE {o}
{child}, FOREIGN KEY (a) REFERENCES {t} (id) ON DELETE {how}); {fill}; DELETE FROM {t}
{child} REFERENCES {t} (id) ON UPDATE CASCADE); {fill}; UPDATE {t} SET id = id + 30
CREATE TABLE {d}.m (id INT PRIMARY KEY, a INT) ENGINE=MERGE UNION=({t}) INSERT_METHOD=LAST; INSERT {d}.m VALUES (66, 1)
REPAIR TABLE {t}
OPTIMIZE TABLE {t}; FLUSH TABLES
"""
TAME: Final = """
ALTER TABLE {t} ADD {n} {type}
ALTER TABLE {t} ADD {n} {type} FIRST
ALTER TABLE {t} ADD {n} {type} NULL AFTER id
ALTER TABLE {t} ADD {n} {type} INVISIBLE DEFAULT NULL
ALTER TABLE {t} DROP COLUMN {c}
ALTER TABLE {t} DROP COLUMN {c}, ADD {n} {type}
CREATE INDEX i ON {t} (a); ALTER TABLE {t} RENAME INDEX i TO j
DROP INDEX i ON {t}
ALTER TABLE {t} ADD UNIQUE u (b)
ALTER IGNORE TABLE {t} ADD UNIQUE w (a)
CREATE UNIQUE INDEX y ON {t} (b)
ALTER TABLE {t} COMMENT='x', FORCE
ALTER TABLE {t} AUTO_INCREMENT=99, ROW_FORMAT=DYNAMIC
ALTER TABLE {t} ADD CHECK (id > -5)
ALTER TABLE {t} ENGINE={engine}
ALTER TABLE {t} ALTER {c} SET DEFAULT 5
ALTER TABLE {t} ALTER {c} DROP DEFAULT
TRUNCATE {t}
TRUNCATE TABLE {t}
ALTER TABLE {t} DEFAULT CHARACTER SET {charset}
ALTER DATABASE {d} CHARACTER SET {charset}
SET collation_server={collation}
DROP TABLE {t}
DROP TABLE IF EXISTS {t}, {o}
CREATE OR REPLACE TABLE {create}
CREATE TABLE IF NOT EXISTS {create}
CREATE TABLE {create}
CREATE TABLE {create}
"""
WILD: Final = """
ALTER TABLE {t} MODIFY {c} {definition}
ALTER TABLE {t} CHANGE {c} {n} {definition}
ALTER TABLE {t} RENAME COLUMN {c} TO {n}
ALTER TABLE {t} ADD {n} {definition}
ALTER TABLE {t} ADD {n} {definition}, DROP {c}
ALTER TABLE {t} ADD {n} {definition}, ADD KEY ({c})
RENAME TABLE {t} TO {d}.between, {o} TO {t}, {d}.between TO {o}
RENAME TABLE {t} TO {o}
ALTER TABLE {t} RENAME {o}
CREATE TABLE {t} LIKE {o}
CREATE OR REPLACE TABLE {t} LIKE {o}
CREATE TABLE {t} (PRIMARY KEY (id)) SELECT * FROM {o}
CREATE OR REPLACE TABLE {t} (PRIMARY KEY (id)) REPLACE SELECT * FROM {o}
CREATE TABLE IF NOT EXISTS {t} IGNORE SELECT * FROM {o}
ALTER TABLE {t} DROP PARTITION {p}
ALTER TABLE {t} TRUNCATE PARTITION {p}
ALTER TABLE {t} REBUILD PARTITION {p}
ALTER TABLE {t} EXCHANGE PARTITION {p} WITH TABLE {o}
ALTER TABLE {t} CONVERT PARTITION {p} TO TABLE {d}.fresh
ALTER TABLE {t} REMOVE PARTITIONING
ALTER TABLE {t} PARTITION BY KEY (id) PARTITIONS 2
ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)
ALTER TABLE {t} DROP PRIMARY KEY
ALTER TABLE {t} CONVERT TO CHARACTER SET {charset}
ALTER TABLE {t} ADD SYSTEM VERSIONING
ALTER TABLE {t} DROP SYSTEM VERSIONING
CREATE OR REPLACE DATABASE {d}
CREATE OR REPLACE DATABASE {d} CHARACTER SET {charset}
DROP DATABASE {d}; CREATE DATABASE {d}
"""
SHARES: Final = ((DML, 50), (TRANSACTIONS, 13), (SETTINGS, 7), (BESIDE, 8), (TAME, 14), (WILD, 8))
FOLLOWED: Final = """
ALTER TABLE {t} MODIFY {c} {definition}
ALTER TABLE {t} MODIFY {c} {type}
ALTER TABLE {t} MODIFY {c} {type} FIRST
ALTER TABLE {t} MODIFY id BIGINT
ALTER TABLE {t} CHANGE {c} {n} {definition}
ALTER TABLE {t} CHANGE {c} {n} {type}, ADD KEY ({n})
ALTER TABLE {t} CHANGE {c} {n} {type} AFTER id
ALTER TABLE {t} RENAME COLUMN {c} TO {n}
ALTER TABLE {t} RENAME COLUMN {c} TO {n}, RENAME COLUMN {n} TO {c}
ALTER TABLE {t} RENAME COLUMN a TO A
ALTER TABLE {t} ADD {n} {definition}
ALTER TABLE {t} ADD {n} {type} NOT NULL
ALTER TABLE {t} ADD {n} {type} NOT NULL DEFAULT {value} FIRST
ALTER TABLE {t} ADD {n} {type} DEFAULT {value}
ALTER TABLE {t} ADD IF NOT EXISTS {n} {type} DEFAULT {value}, DROP IF EXISTS {c}
ALTER TABLE {t} ADD {n} DATETIME DEFAULT CURRENT_TIMESTAMP
ALTER TABLE {t} ADD {n} TIMESTAMP(6) NOT NULL DEFAULT NOW(6)
ALTER TABLE {t} DROP COLUMN {c}, ADD {c} {type}
ALTER TABLE {t} ADD {n} {definition}, DROP {c}, RENAME {o}
ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)
ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (a)
ALTER TABLE {t} CHANGE id i2 BIGINT NOT NULL, CHANGE {c} {n} {type}; ALTER TABLE {t} CHANGE i2 id INT NOT NULL
ALTER TABLE {t} CONVERT TO CHARACTER SET {charset}
ALTER TABLE {t} CONVERT TO CHARACTER SET binary
ALTER TABLE {t} CONVERT TO CHARACTER SET {other}, ADD {n} {text} DEFAULT 'b'
ALTER TABLE {t} ADD KEY ({c}(2)), CONVERT TO CHARACTER SET {other}
ALTER TABLE {t} ADD {n} {set} DEFAULT 'y,x '
ALTER TABLE {t} ADD {n} {set} NOT NULL
ALTER TABLE {t} ADD {n} {set} DEFAULT ''
ALTER TABLE {t} MODIFY {c} {set}
ALTER TABLE {t} MODIFY {c} {text} CHARACTER SET {other}
ALTER TABLE {t} DEFAULT CHARACTER SET {charset}
ALTER TABLE {t} CHARACTER SET {charset}, ADD {n} {text} DEFAULT 'a'
ALTER TABLE {t} ADD {n} {text} DEFAULT 'a'
ALTER TABLE {t} ADD {n} {text} NOT NULL
ALTER TABLE {t} ADD {n} {text}, ADD KEY (id)
ALTER TABLE {t} MODIFY {c} {text}
ALTER DATABASE {d} CHARACTER SET {charset}
CREATE DATABASE IF NOT EXISTS {d} CHARACTER SET {charset}
ALTER TABLE {t} ADD {n} INT NOT NULL DEFAULT (1 + 2)
ALTER TABLE {t} ADD {n} INT AUTO_INCREMENT UNIQUE
ALTER TABLE {t} ADD {n} INT AS (id + 1) VIRTUAL
CREATE TABLE {t} LIKE {o}
CREATE OR REPLACE TABLE {t} LIKE {o}
CREATE OR REPLACE TABLE {t} (PRIMARY KEY (id)) SELECT * FROM {o}
ALTER TABLE {t} ALTER {c} SET DEFAULT {value}
RENAME TABLE {t} TO {d}.between, {o} TO {t}, {d}.between TO {o}
RENAME TABLE {t} TO {o}
RENAME TABLE {t} TO {d}.z; RENAME TABLE {d}.z TO {t}
{ghost}; INSERT IGNORE INTO {d}.gho (id) SELECT id FROM {t}; RENAME TABLE {t} TO {d}.del, {d}.gho TO {t}; {end}
TRUNCATE {t}
DROP TABLE {t}
CREATE TABLE {create}
CREATE OR REPLACE TABLE {create}
SET sql_mode='STRICT_TRANS_TABLES'
SET sql_mode=''
"""
"""What is followed without a copy, most often."""
TEXTS: Final = (
    "VARCHAR(5)", "CHAR(3)", "TEXT", "TINYTEXT", "ENUM('a','b')", "VARCHAR(9) BINARY", "LONG VARCHAR", "TEXT(300)",
)  # fmt: skip
"""Types whose values are bytes where the table is of CHARACTER SET binary."""
SETS: Final = (
    "SET('x ','y')",
    "SET('y','x')",
    "SET('a','y','x','ä')",
    "SET('x','y') CHARACTER SET binary",
)
FOLLOWED_SHARES: Final = ((DML, 55), (FOLLOWED, 45))
"""Of the lines, in percent."""
KEYS: Final = ("id INT PRIMARY KEY",) * 5 + (
    "id INT AUTO_INCREMENT PRIMARY KEY",
    "id VARCHAR(9) PRIMARY KEY",
)
OPTIONS: Final = ("",) * 12 + (
    " CHARSET=binary", " CHARSET=latin1", " WITH SYSTEM VERSIONING",
    " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN MAXVALUE)",
)  # fmt: skip
ATTRIBUTES: Final = ("",) * 20 + (
    " NOT NULL", " DEFAULT {value}", " NOT NULL DEFAULT ({value})", " AS (id) VIRTUAL", " AS (id) STORED", " UNIQUE",
    " INVISIBLE", " COMMENT 'x, DEFAULT 5'", " CHECK (1 < 2)",
)  # fmt: skip
ACTIONS: Final = (
    "INSERT IGNORE INTO {t} (id, a) VALUES (77, 1)", "DELETE FROM {t} LIMIT 1", "UPDATE {t} SET a = NULL",
)  # fmt: skip
_PLACE: Final = re.compile(r"\{(\w+)\}")


class Step(NamedTuple):
    """A statement; `other`: said in the second session, which is for XA."""

    sql: str
    other: bool


class History:
    """`databases`: its two, the one in use first.

    Args:
        modern: the server is 11.8 or later.
        is_text: some of its statements are logged as text.
        shares: what is done how often.
    """

    def __init__(
        self,
        rng: random.Random,
        number: int,
        *,
        modern: bool,
        is_text: bool,
        shares: Sequence[tuple[str, int]] = SHARES,
    ) -> None:
        self._rng: Final = rng
        self._shares: Final = shares
        self.databases: Final = (f"h{number}", f"x{number}")
        self._types: Final = {**TYPES, **(NEW_TYPES if modern else {})}
        one, two = self.databases
        self._tables: Final = (
            f"{one}.t",
            f"{one}.t",
            f"{one}.t",
            f"{one}.u",
            f"{two}.t",
            f"{two}.s",
        )
        self._xid: Final = f"'g{number}'"
        self._formats: Final = ("MIXED", "STATEMENT", "STATEMENT") if is_text else ("ROW",)

    def begin(self) -> list[Step]:
        """Its databases, and most of its tables."""
        texts = []
        for name in self.databases:
            charset = self._some(("", "", "", " CHARACTER SET latin1", " CHARACTER SET binary"))
            create = f"CREATE DATABASE {name}{charset}"
            is_told = self._rng.random() < 0.8  # else the log begins behind it
            texts += [create] if is_told else ["SET sql_log_bin=0", create, "SET sql_log_bin=1"]
        texts.append(f"USE {self._some(self.databases[:1] * 4 + self.databases[1:])}")
        for table in dict.fromkeys(self._tables):
            if self._rng.random() < 0.9:
                texts += [f"CREATE TABLE {self._create(table)}", self._insert(table)]
        return [Step(text, other=False) for text in texts]

    def steps(self) -> list[Step]:
        """What comes next: one step, or some that belong together."""
        (lines,) = self._rng.choices(
            [one for one, _ in self._shares], [share for _, share in self._shares]
        )
        texts = self._line(lines).split("; ")
        return [Step(text.removeprefix("2:"), other=text.startswith("2:")) for text in texts]

    def _line(self, lines: str) -> str:
        """One of them, filled in."""
        table, other = self._some(self._tables), self._some(self._tables)
        database = self._some(self.databases)
        same = {
            "t": table, "o": other, "d": database, "c": quoted(self._some(COLUMNS)), "n": quoted(self._some(COLUMNS)),
            "p": self._some(("p0", "p1")), "xid": self._xid,
            "file": f"'./{self.databases[0]}.{self._rng.randrange(1 << 40)}'",
            "action": self._some(ACTIONS).replace("{t}", table), "how": self._some(("CASCADE", "SET NULL", "RESTRICT")),
            "temporary": f"CREATE TEMPORARY TABLE {table} (id INT PRIMARY KEY, a INT)",
            "ghost": f"CREATE TABLE {database}.gho LIKE {table}; ALTER TABLE {database}.gho ADD z INT DEFAULT 7",
            "end": f"DROP TABLE {database}.del",
            "child": f"CREATE TABLE {database}.k (id INT PRIMARY KEY, a INT",
            "fill": f"INSERT INTO {database}.k SELECT id, id FROM {table}",
        }  # fmt: skip
        anew: dict[str, Callable[[], str]] = {
            "insert": lambda: self._insert(table),
            "value": self._value,
            "dml": lambda: self._line(DML),
            "format": lambda: self._some(self._formats),
            "engine": lambda: self._some(ENGINES),
            "charset": lambda: self._some(CHARSETS),
            "other": lambda: self._some(CHARSETS[:3] + MORE_CHARSETS),
            "set": lambda: self._some(SETS),
            "collation": lambda: self._some(("binary", "latin1_swedish_ci", "utf8mb4_bin")),
            "text": lambda: self._some(TEXTS),
            "type": lambda: self._some([*self._types]),
            "definition": self._definition,
            "create": lambda: self._create(table),
        }
        line = self._some(lines.strip().split("\n"))
        return _PLACE.sub(lambda found: same.get(found[1]) or anew[found[1]](), line)

    def _insert(self, table: str) -> str:
        columns = ["id", *self._rng.sample(COLUMNS[1:4], self._rng.randrange(0, 3))]
        rows = [
            ", ".join([str(self._rng.randrange(1, 9)), *(self._value() for _ in columns[1:])])
            for _ in range(self._rng.randrange(1, 4))
        ]
        return f"INSERT IGNORE INTO {table} ({', '.join(columns)}) VALUES ({'), ('.join(rows)})"

    def _value(self) -> str:
        return self._some((*self._types[self._some([*self._types])], "NULL", "1", "2", "DEFAULT"))

    def _create(self, table: str) -> str:
        columns = self._rng.sample(COLUMNS[1:], self._rng.randrange(1, 4))
        elements = [self._some(KEYS), *(f"{quoted(name)} {self._definition()}" for name in columns)]
        return f"{table} ({', '.join(elements)}) ENGINE={self._some(ENGINES)}{self._some(OPTIONS)}"

    def _definition(self) -> str:
        text = self._some([*self._types])
        value = self._some(self._types[text])
        return text + self._some(ATTRIBUTES).replace("{value}", value)

    def _some(self, found: Sequence[T]) -> T:
        return self._rng.choice(found)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
