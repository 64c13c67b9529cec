"""Columns that name no character set, in tables and databases of CHARACTER SET binary and others, as servers have them.

A target says the same values, bytes for bytes and text for text, or that it cannot.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from binlog_pipeline.errors import PipelineError
from binlog_pipeline.jobs.state import keep_state
from binlog_pipeline.targets import TABLE_SINKS
from binlog_protocol.gtid import SlavePosition

from binlog_server.testing.mariadb import MariaDB
from tests.kit import backends
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.tables.lake import configure, place, rows_of
from tests.pipeline.tables.test_behind_ddl import options_of

PLAIN: Final = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"
ROWS: Final = "INSERT INTO t (id, a) VALUES (1, 1), (2, 2)"
WAYS: Final[dict[str, tuple[str, ...]]] = {
    "table": (f"{PLAIN} CHARSET=binary", ROWS),
    "collation": (f"{PLAIN} COLLATE=binary", ROWS),
    "latin1": (f"{PLAIN} CHARSET=latin1", ROWS),
    "database": ("ALTER DATABASE CHARACTER SET binary", PLAIN, ROWS),
    "other database": ("CREATE DATABASE {d}o CHARACTER SET binary", "USE {d}o", PLAIN, ROWS, "RENAME TABLE t TO {d}.t",
                       "USE {d}"),
    "server": ("SET collation_server=binary", "CREATE DATABASE {d}s", "USE {d}s", PLAIN, ROWS,
               "ALTER TABLE t RENAME {d}.t", "USE {d}"),
    "altered": (PLAIN, ROWS, "ALTER TABLE t DEFAULT CHARACTER SET binary"),
    "and back": (f"{PLAIN} CHARSET=binary", ROWS, "ALTER TABLE t CHARACTER SET latin1"),
    "reset": (f"{PLAIN} CHARSET=binary", ROWS, "ALTER TABLE t CHARACTER SET DEFAULT"),
    "reset to binary": ("ALTER DATABASE {d} CHARACTER SET binary", f"{PLAIN} CHARSET=latin1", ROWS,
                        "ALTER TABLE t CHARACTER SET = DEFAULT"),
    "converted": (PLAIN, ROWS, "ALTER TABLE t CONVERT TO CHARACTER SET binary"),
    "liked": (f"{PLAIN.replace(' t ', ' o ')} CHARSET=binary", "CREATE TABLE t LIKE o", ROWS),
    "selected": ("ALTER DATABASE CHARACTER SET binary", PLAIN.replace(" t ", " o "), ROWS.replace(" t ", " o "),
                 "CREATE TABLE t (PRIMARY KEY (id)) SELECT * FROM o"),
    "swapped": (PLAIN, f"{PLAIN.replace(' t ', ' o ')} CHARSET=binary", ROWS.replace(" t ", " o "),
                "RENAME TABLE t TO p, o TO t, p TO o"),
    "unlogged": ("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(9))", ROWS),
    "unlogged, without text": (PLAIN, ROWS),
    "unlogged, to latin1": (PLAIN, ROWS, "ALTER TABLE t CONVERT TO CHARACTER SET latin1"),
    "at once": (PLAIN, ROWS, "ALTER TABLE t CHARACTER SET binary, ADD z VARCHAR(3) DEFAULT 'z'"),
    "truncated": (f"{PLAIN} CHARSET=binary", ROWS, "TRUNCATE t", ROWS),
}  # fmt: skip
"""How the table comes to its character set, in database {d}; the log has not that of `unlogged`, which is binary."""
TYPES: Final = (
    "VARCHAR(5)", "CHAR(3)", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "TEXT(300)", "LONG VARCHAR", "ENUM('a','b')",
    "SET('a','b')", "SET('b','c','a') CHARACTER SET binary", "VARCHAR(5) BINARY", "JSON",
    "VARCHAR(5) CHARACTER SET latin1", "VARCHAR(5) CHARACTER SET binary",
    "ENUM('a','b') CHARACTER SET binary", "CHAR(3) ASCII", "CHAR(3) BYTE", "NCHAR(3)", "BINARY(3)", "VARBINARY(5)",
    "BLOB", "VARCHAR(5) COLLATE utf8mb4_bin", "VARCHAR(40) COMPRESSED",
)  # fmt: skip
DEFAULTS: Final = ("NULL", "DEFAULT 'a'", "NOT NULL DEFAULT ''", "NOT NULL", "DEFAULT 'b,a'")
BEHIND: Final = ("INSERT INTO t (id, a) VALUES (3, 3)", "UPDATE t SET {c} = 'b' WHERE id = 1")
REFUSED, SAME = "refused", "same"


def lived(
    upstream: MariaDB, rng: random.Random, name: str, way: str, type_: str, default: str
) -> tuple[list[str], str]:
    """The statements, and a position among them."""
    said = [one.replace("{d}", name) for one in WAYS[way]]
    said.append(f"ALTER TABLE t ADD c {type_} {default}{rng.choice(('', ' FIRST'))}")
    said += rng.sample(BEHIND, rng.randrange(3))
    middle = ""
    with upstream.connect() as connection, connection.cursor() as cursor:
        create: tuple[str, ...] = (f"CREATE DATABASE {name}",)
        if way.startswith("unlogged"):
            create = ("SET sql_log_bin=0", f"{create[0]} CHARACTER SET binary", "SET sql_log_bin=1")
        for sql in (*create, f"USE {name}", "SET sql_mode=''", *said):
            with contextlib.suppress(pymysql.MySQLError):  # a label that is none
                cursor.execute(sql.replace("{c}", "c"))
            if not middle or rng.random() < 0.3:
                middle = upstream.gtid_binlog_pos
    return said, str(middle)


def outcome(upstream: MariaDB, store: Path, name: str, middle: str, target: Path, sink: str) -> str:
    """What came of the table in two runs, or how it differs."""
    table = f"{name}.t"
    options, where = options_of(store, table), place(sink, target)
    for until in (SlavePosition.parse(middle), None):
        try:
            done = keep_state(options, where, sink=sink, until=until)
        except PipelineError as error:
            if until is None:
                return f"{REFUSED}: {until} {middle} {error}"
    assert done.is_complete, done.doubt
    rows = {row["id"]: row for row in rows_of(sink, target).to_pylist()}
    want: dict[int, dict[str, Any]] = {
        row["id"]: row for row in upstream.q(f"SELECT * FROM {table}")
    }
    return SAME if rows == want else f"{rows}, the server has {want}"


def run(
    upstream: MariaDB,
    folder: Path,
    rng: random.Random,
    cases: list[tuple[str, str, str]],
    sink: str,
) -> Counter[str]:
    upstream.script("RESET MASTER")
    told: Counter[str] = Counter()
    wrong: list[str] = []
    made = [
        (f"c{number}", case, *lived(upstream, rng, f"c{number}", *case))
        for number, case in enumerate(cases)
    ]
    store = store_of_upstream(folder / "store", upstream)
    for name, case, said, middle in made:
        found = outcome(upstream, store, name, middle, folder / f"{sink}{name}", sink)
        kind = found.partition(":")[0]
        told[kind] += 1
        if kind == REFUSED:
            print(case, found)
        elif found != SAME:
            wrong.append(f"{found}\n    {said}")
    shutil.rmtree(folder / "store")
    for name, *_ in made:
        upstream.script(
            f"DROP DATABASE {name}",
            f"DROP DATABASE IF EXISTS {name}o",
            f"DROP DATABASE IF EXISTS {name}s",
        )
    print(f"{len(cases)} tables, {sink}: {dict(told)}")
    assert not wrong, "\n".join(wrong)
    return told


@pytest.mark.any_version
@pytest.mark.by_turns(2)
@pytest.mark.timeout(600)
def test_new_columns(
    backend: Backend,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    cases = [(way, type_, default) for way in WAYS for type_ in TYPES for default in DEFAULTS]
    if not backends.full_matrix():
        cases = rng.sample(cases, 24)
    rng.shuffle(cases)
    upstream = make_upstream(FULL)
    for begin in range(0, len(cases), 48):
        run(
            upstream, tmp_path / str(begin), rng, cases[begin : begin + 48], rng.choice(TABLE_SINKS)
        )
