"""Statements that make and change tables, at random: servers refuse some of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

BETWEEN: Final = "between"
"""Name of a table while two are swapped."""

TABLES: Final = ("t1", "t2", "T3", "t 4", "t5")
NAMES: Final = ("a", "B", "c d", "e`f", "key", "ä", "period", "first", "x1", "x2")
TYPES: Final = (
    "INT", "INT UNSIGNED", "BIGINT(5) ZEROFILL", "TINYINT(1)", "BOOL", "DECIMAL(9,3)", "DECIMAL UNSIGNED", "FLOAT(20)",
    "DOUBLE(9,2)", "REAL", "BIT(9)", "YEAR", "DATE", "TIME(2)", "DATETIME(6)", "TIMESTAMP NULL", "CHAR", "CHAR(7)",
    "VARCHAR(9)", "NCHAR(4)", "BINARY(3)", "VARBINARY(30)", "TEXT", "TINYTEXT", "TEXT(70)", "TEXT(20000)", "MEDIUMTEXT",
    "LONGTEXT", "BLOB", "BLOB(300)", "ENUM('a','b,)')", "SET('x ','it''s')", "JSON", "UUID", "INET4", "INET6", "POINT",
    "GEOMETRY", "LONG VARCHAR", "VARCHAR(40) COMPRESSED", "INT2 UNSIGNED",
)  # fmt: skip
CHARSETS: Final = ("utf8mb4", "latin1", "utf8mb3", "ucs2", "binary", "cp932", "ascii")
COLLATIONS: Final = ("utf8mb4_bin", "latin1_german1_ci", "utf8mb3_unicode_ci", "binary")
ATTRIBUTES: Final = (
    "NOT NULL", "NULL", "DEFAULT NULL", "COMMENT 'x, ) \\'y'", "INVISIBLE DEFAULT 1", "UNIQUE KEY", "PRIMARY KEY",
    "DEFAULT (1 + (2))", "CHECK (1 < (2))", "DEFAULT '1'", "NOT NULL DEFAULT ''",
)  # fmt: skip


class AnyDdl:
    """`count` statements were made."""

    def __init__(self, rng: random.Random) -> None:
        self.count = 0
        self._rng: Final = rng

    def statement(self, there: Mapping[tuple[str, str], Sequence[str]]) -> str:
        """For a server with these tables."""
        self.count += 1
        some = self._rng.choice
        if len(there) < 5 or self._maybe(0.1):
            return self._create()
        name = some([*there])
        if self._maybe(0.06):
            return f"CREATE TABLE {self._any_table()} LIKE {table_text(name)}"
        if self._maybe(0.05):
            other = some([*there])
            swapped = (
                f"{table_text(other)} TO {table_text(name)}, e.{BETWEEN} TO {table_text(other)}"
            )
            return f"RENAME TABLE {table_text(name)} TO e.{BETWEEN}, {swapped}"
        if self._maybe(0.04):
            return f"DROP TABLE {table_text(name)}"
        parts = [self._part(there[name]) for _ in range(some((1, 1, 1, 2, 2, 3)))]
        return f"ALTER TABLE {table_text(name)} {', '.join(parts)}"

    def _create(self) -> str:
        columns = self._rng.sample(NAMES, self._rng.randrange(1, 6))
        elements = [f"{quoted(name)} {self._definition()}" for name in columns]
        if self._maybe(0.5):
            elements.append(self._key(columns))
        options = ""
        if self._maybe(0.4):
            options += f" CHARSET={self._rng.choice(CHARSETS)}"
        elif self._maybe(0.4):
            options += f" COLLATE {self._rng.choice(COLLATIONS)}"
        if self._maybe(0.15):
            options += " WITH SYSTEM VERSIONING"
        begin = self._rng.choice(
            ("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE")
        )
        return f"{begin} {self._any_table()} ({', '.join(elements)}){options}"

    def _part(self, columns: Sequence[str]) -> str:
        some = self._rng.choice
        column = some(columns)
        match self._rng.randrange(16):
            case 0 | 1 | 2:
                return f"ADD {quoted(some(NAMES))} {self._definition()}{self._place(columns)}"
            case 3:
                return f"ADD COLUMN IF NOT EXISTS ({quoted(some(NAMES))} {self._definition()})"
            case 4 | 5:
                return f"MODIFY {quoted(column.upper())} {self._definition()}{self._place(columns)}"
            case 6 | 7:
                names = f"{quoted(column)} {quoted(some(NAMES))}"
                return f"CHANGE {names} {self._definition()}{self._place(columns)}"
            case 8:
                return f"RENAME COLUMN {quoted(column)} TO {quoted(some(NAMES))}"
            case 9 | 10:
                return f"DROP COLUMN {quoted(column)}"
            case 11:
                return f"ADD {self._key(columns)}"
            case 12:
                return some(("DROP PRIMARY KEY", "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING"))
            case 13:
                return f"CONVERT TO CHARACTER SET {some(CHARSETS)}"
            case 14:
                return some((f"CHARACTER SET {some(CHARSETS)}", f"RENAME TO {self._any_table()}"))
        return some(
            (f"ALTER {quoted(column)} DROP DEFAULT", "COMMENT='x'", "FORCE", "ENGINE InnoDB")
        )

    def _definition(self) -> str:
        some = self._rng.choice
        text = some(TYPES)
        if text.startswith(("CHAR", "VARCHAR", "TEXT", "ENUM", "SET", "MEDIUM")) and self._maybe(
            0.4
        ):
            text += some(
                (f" CHARACTER SET {some(CHARSETS)}", f" COLLATE {some(COLLATIONS)}", " BINARY")
            )
        if self._maybe(0.4):
            text += f" {some(ATTRIBUTES)}"
        return text

    def _place(self, columns: Sequence[str]) -> str:
        return self._rng.choice(
            ("", "", " FIRST", f" AFTER {quoted(self._rng.choice((*columns, *NAMES)))}")
        )

    def _key(self, columns: Sequence[str]) -> str:
        names = self._rng.sample([*columns], min(len(columns), self._rng.randrange(1, 3)))
        kind = self._rng.choice(("PRIMARY KEY", "CONSTRAINT k PRIMARY KEY", "KEY"))
        return f"{kind} ({', '.join(map(quoted, names))})"

    def _any_table(self) -> str:
        return table_text((self._rng.choice("de"), self._rng.choice(TABLES)))

    def _maybe(self, how_often: float) -> bool:
        return self._rng.random() < how_often


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def table_text(name: tuple[str, str]) -> str:
    return f"{quoted(name[0])}.{quoted(name[1])}"
