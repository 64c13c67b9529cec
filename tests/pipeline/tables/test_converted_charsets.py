"""Kept texts behind CONVERT TO CHARACTER SET, and MODIFY to or from bytes, as servers have them: byte for byte."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pymysql
import pytest
from binlog_pipeline.targets import TABLE_SINKS

from binlog_server.testing.mariadb import MariaDB
from tests.kit import backends
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.tables.lake import configure
from tests.pipeline.tables.test_default_charsets import REFUSED, SAME, outcome

CHARSETS: Final = (
    "utf8mb4", "utf8mb3", "latin1", "ascii", "ucs2", "utf16le", "cp932", "koi8r", "binary",
)  # fmt: skip
TYPES: Final = (
    "VARCHAR(5)", "CHAR(3)", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "TEXT(70)", "VARCHAR(40) COMPRESSED",
    "TEXT COMPRESSED", "VARCHAR(300)", "ENUM('a','b','c d')", "SET('a','b','c d')", "ENUM('ä','b')", "SET('ä','b')",
)  # fmt: skip
VALUES: Final = (
    "'a'", "'b'",
    "'a,b'", "'ä'", "'äöü'", "''", "'x  '", "'ääääa'", "'жук'", "'日本語日本'", "'😀😀'", "NULL", "DEFAULT",
)  # fmt: skip
KEYS: Final = ("PRIMARY KEY (id)",) * 3 + (
    "PRIMARY KEY (id), KEY (c(2))", "PRIMARY KEY (id), UNIQUE (c(2))", "PRIMARY KEY (c)", "PRIMARY KEY (id, c)",
)  # fmt: skip
ATTRIBUTES: Final = ("", "", "NOT NULL", "DEFAULT 'b'", "NOT NULL DEFAULT 'a'")
BYTES: Final = ("VARBINARY(9)", "VARBINARY(3)", "BINARY(3)", "BINARY(16)", "BLOB", "TINYBLOB")
BEHIND: Final = (
    "INSERT IGNORE INTO t (id, c) VALUES (90, 'b')", "UPDATE IGNORE t SET c = 'a' WHERE id = 1",
    "DELETE FROM t WHERE id = 2", "ALTER TABLE t CONVERT TO CHARACTER SET {charset}",
)  # fmt: skip


class Case(NamedTuple):
    """A table with a column c, and what it becomes."""

    charset: str
    type: str
    attribute: str
    key: str
    becomes: str


def any_case(rng: random.Random, charset: str, type_: str) -> Case:
    to = rng.choice((*CHARSETS, "binary", "binary", "binary", "binary"))
    becomes = rng.choice((
        *(f"CONVERT TO CHARACTER SET {to}",) * 6,
        f"CONVERT TO CHARACTER SET {to}, ADD z INT",
        f"CONVERT TO CHARACTER SET {to}, RENAME COLUMN c TO d, RENAME COLUMN d TO c",
        f"MODIFY c {type_} CHARACTER SET {to}",
        f"MODIFY c {rng.choice(TYPES)} CHARACTER SET {to}",
        f"MODIFY c {rng.choice(BYTES)}",
        f"MODIFY d {rng.choice(TYPES)} CHARACTER SET {to}",
    ))  # fmt: skip
    return Case(charset, type_, rng.choice(ATTRIBUTES), rng.choice(KEYS), becomes)


def lived(upstream: MariaDB, rng: random.Random, name: str, case: Case) -> tuple[list[str], str]:
    """The statements that the server has done, and a position among them."""
    charset, type_, attribute, key, becomes = case
    column = type_.replace(" COMPRESSED", f" CHARACTER SET {charset} COMPRESSED")
    if column == type_:
        column = f"{type_} CHARACTER SET {charset}"
    table = (
        f"CREATE TABLE t (id INT, c {column} {attribute}, d VARBINARY(9), {key}) CHARSET={charset}"
    )
    values = [f"({number}, {rng.choice(VALUES)}, 'a')" for number in range(rng.randrange(1, 5))]
    said = [table, *(f"INSERT IGNORE INTO t (id, c, d) VALUES {one}" for one in values)]
    said += [
        f"SET sql_mode='{rng.choice(('', 'STRICT_TRANS_TABLES'))}'",
        f"ALTER TABLE t {becomes}",
    ]
    said += rng.sample(BEHIND, rng.randrange(3))
    done: list[str] = []
    middle = ""
    with upstream.connect() as connection, connection.cursor() as cursor:
        for sql in (f"CREATE DATABASE {name}", f"USE {name}", "SET sql_mode=''", *said):
            with contextlib.suppress(pymysql.MySQLError):
                text = sql.replace("{charset}", rng.choice(CHARSETS))
                cursor.execute(text)
                done.append(text)
            if not middle or rng.random() < 0.3:
                middle = upstream.gtid_binlog_pos
    return done, str(middle)


def run(
    upstream: MariaDB, folder: Path, rng: random.Random, cases: list[Case], sink: str
) -> Counter[str]:
    upstream.script("RESET MASTER")
    told: Counter[str] = Counter()
    wrong: list[str] = []
    made = [(f"c{n}", *lived(upstream, rng, f"c{n}", case)) for n, case in enumerate(cases)]
    store = store_of_upstream(folder / "store", upstream)
    for name, done, middle in made:
        if any(sql.startswith("CREATE TABLE") for sql in done):
            found = outcome(upstream, store, name, middle, folder / f"{sink}{name}", sink)
            kind = found.partition(":")[0]
            told[kind] += 1
            if kind == REFUSED:
                print(done[3:], found)
            elif found != SAME:
                wrong.append("\n    ".join((found, *done)))
        upstream.script(f"DROP DATABASE {name}")
    print(f"{len(cases)} tables, {sink}: {dict(told)}")
    assert not wrong, "\n".join(wrong)
    return told


@pytest.mark.any_version
@pytest.mark.by_turns(2)
@pytest.mark.timeout(900)
def test_converted_texts(
    backend: Backend,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    kinds = [(charset, type_) for charset in CHARSETS for type_ in TYPES]
    kinds = kinds * 4 if backends.full_matrix() else rng.sample(kinds, 24)
    cases = [any_case(rng, *kind) for kind in kinds]
    rng.shuffle(cases)
    upstream = make_upstream(FULL)
    told: Counter[str] = Counter()
    for begin in range(0, len(cases), 56):
        some = cases[begin : begin + 56]
        told += run(upstream, tmp_path / str(begin), rng, some, rng.choice(TABLE_SINKS))
    assert told[SAME] > told[REFUSED]
