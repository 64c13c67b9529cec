"""A value of each type that becomes one of each other type, as in a real server: by INSERT ... SELECT of a column, of
what functions and subqueries make of it, by UPDATE and by ALTER.

Both servers have a table with columns of all types, so that a statement tries one value in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from pymysql.cursors import Cursor

from tests.integration.test_compared_statements import NAMES, answer
from tests.integration.test_tables import USERS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

pytestmark = pytest.mark.any_version

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "INT": ("0", "7", "-3", "10203"),
    "INT(5) UNSIGNED ZEROFILL": ("42",),
    "BIGINT UNSIGNED": ("18446744073709551615", "5"),
    "DECIMAL(12,3)": ("1.5", "-0.001", "-1.6", "0.5", "10203.25"),
    "DECIMAL(6,2) ZEROFILL": ("1.5",),
    "DOUBLE": ("1.5e3", "-0.25", "1e300", "10203", "20240229", "0.5"),
    "FLOAT": ("0.1", "10203", "203040.5"),
    "BIT(9)": ("b'101'", "300"),
    "BIT(1)": ("1",),
    "CHAR(40)": (
        "'abc'", "'12'", "'2024-01-02 03:04:05'", "'::1'", "'1-2-3'", "''", "'1.9.1'", "'12e3'",
        "'123e4567-e89b-12d3-a456-426655440000'", "'1e30x'", "'-5.5 '",
    ),
    "VARBINARY(40)": ("'x'", "x'00010203'", "REPEAT('q',16)"),
    "BINARY(16)": ("REPEAT('a',16)",),
    "TEXT": ("'1.9'", "'1.2.3.4'"),
    "DATE": ("'2024-02-29'",),
    "TIME(3)": ("'-10:11:12.345'", "'30:00:00'"),
    "DATETIME(2)": ("'2024-02-29 01:02:03.45'",),
    "YEAR": ("2001", "0"),
    "ENUM('a','b','12')": ("'b'", "'12'"),
    "SET('a','b','12')": ("'a,12'", "''"),
    "UUID": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "INET6": ("'::1'", "'1::ffff'", "'::ffff:1.2.3.4'"),
    "INET4": ("'1.2.3.4'",),
}  # fmt: skip
TARGETS: Final = (*VALUES, "TIMESTAMP NULL", "BLOB", "VARCHAR(50)", "INT UNSIGNED", "DATETIME")
WAYS: Final = (
    "c", "COALESCE(c, c)", "IF(1, c, c)", "MAX(c)", "(SELECT c FROM source)", "NULLIF(c, 'zz')"
)  # fmt: skip


class Both:
    """A statement on both servers."""

    def __init__(self, there: Any, here: Any) -> None:
        self.connections = (there, here)
        self.different: list[str] = []
        for connection in self.connections:
            connection.decoders = {}  # texts as they come
            connection.cursor(Cursor).execute(NAMES)

    def run(self, statement: str) -> None:
        for connection in self.connections:
            connection.cursor(Cursor).execute(statement)

    def same_outcome(self, statement: str) -> None:
        """It is an error of both, or of none."""
        theirs, ours = (answer(connection, statement) for connection in self.connections)
        if (theirs[0] == "error") is not (ours[0] == "error"):
            self.different.append(f"{statement}: {theirs[:3]}, {ours[:3]}")

    def same(self, statement: str, of: str) -> None:
        """The rows of a query are the same, column by column."""
        theirs, ours = (answer(connection, statement)[3] for connection in self.connections)
        assert len(theirs) == len(ours)
        for number, (their_row, our_row) in enumerate(zip(theirs, ours, strict=True)):
            for at, (one, two) in enumerate(zip(their_row, our_row, strict=True)):
                if one != two:
                    self.different.append(f"{of} -> {TARGETS[at]} row {number}: {one!r}, {two!r}")


@pytest.fixture
def both(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> Iterator[Both]:
    real, ours = make_upstream(version="11.8"), binlog_server(users=USERS, local_tables=True)
    with real.connect(autocommit=True) as there, ours.connect(autocommit=True) as here:
        found = Both(there, here)
        found.run("SET sql_mode = ''")
        found.run("SET timestamp = 1700000000")
        found.run("CREATE DATABASE shop")
        found.run("USE shop")
        yield found
        assert not found.different, "\n".join(found.different)


def shown() -> str:
    return ", ".join(f"HEX(CONCAT(t{i}))" for i in range(len(TARGETS)))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("null", ["", " NOT NULL"])
def test_inserted_and_updated(both: Both, null: str) -> None:
    columns = [f"t{i}" for i in range(len(TARGETS))]
    declared = ", ".join(
        f"{name} {kind}{null if 'NULL' not in kind else ''}"
        for name, kind in zip(columns, TARGETS, strict=True)
    )
    both.run(f"CREATE TABLE target (id INT AUTO_INCREMENT PRIMARY KEY, {declared})")
    for kind, texts in VALUES.items():
        both.run(f"CREATE TABLE source (id INT PRIMARY KEY, c {kind})")
        for text in texts:
            both.run(f"REPLACE INTO source VALUES (1, {text})")
            both.run("TRUNCATE target")
            for way in WAYS[:2] if null else WAYS:
                if way.startswith("NULLIF") and kind in ("UUID", "INET4", "INET6", "YEAR"):
                    continue  # not comparable; a warning's text
                given = ", ".join([way] * len(columns))
                both.run(f"INSERT INTO target ({', '.join(columns)}) SELECT {given} FROM source")
            given = ", ".join(f"{name} = (SELECT c FROM source)" for name in columns)
            both.run(f"UPDATE target SET {given} WHERE id = 1")
            both.same(f"SELECT {shown()} FROM target ORDER BY id", f"{kind} {text}{null}")
        both.run("DROP TABLE source")


@pytest.mark.timeout(180)
def test_altered(both: Both) -> None:
    for kind, texts in VALUES.items():
        columns = ", ".join(f"t{i} {kind}" for i in range(len(TARGETS)))
        both.run(f"CREATE TABLE target (id INT AUTO_INCREMENT PRIMARY KEY, {columns})")
        for text in texts:
            given = ", ".join([text] * len(TARGETS))
            both.run(f"INSERT INTO target VALUES (NULL, {given})")
        changes = [f"MODIFY t{i} {target}" for i, target in enumerate(TARGETS)]
        both.run(f"ALTER TABLE target {', '.join(changes)}")
        both.same(f"SELECT {shown()} FROM target ORDER BY id", f"ALTER {kind}")
        both.run("DROP TABLE target")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_refused_by_a_strict_sql_mode(both: Both) -> None:
    """Each pair by itself: what is taken and what is an error, which would stop a replica where ALTER is none here."""
    for kind, texts in VALUES.items():
        for text in texts:
            for target in TARGETS:
                both.run("SET sql_mode = ''")
                both.run(f"CREATE TABLE source (id INT PRIMARY KEY, c {kind})")
                both.run(f"CREATE TABLE target (id INT PRIMARY KEY, c {target})")
                both.run(f"INSERT INTO source VALUES (1, {text})")
                both.run("SET sql_mode = 'STRICT_TRANS_TABLES'")
                both.same_outcome(
                    f"INSERT INTO target SELECT * FROM source /* {kind} {text} to {target} */"
                )
                both.same_outcome(f"ALTER TABLE source MODIFY c {target} /* {kind} {text} */")
                both.run("DROP TABLE source, target")
