"""A seed made of the statements in the log of a real server says what its information_schema says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_pipeline.errors import IncompatibleSchema
from binlog_pipeline.jobs.ddl_seed import DdlSeed, write_ddl_seed
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.seed_writing import write_seed

from binlog_server.testing.mariadb import MariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.any_ddl import BETWEEN, AnyDdl
from tests.pipeline.ddl_corpus import DATABASES, EXECUTED, OF_11_8, UNKNOWN
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.view_rows import rows_of

NO_LOG = "--binlog-row-metadata=NO_LOG"
ROW_TIMES = [("row_start", "timestamp(6)", None), ("row_end", "timestamp(6)", None)]
_COLUMNS = """
    SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t, COLUMN_NAME AS c, COLUMN_TYPE AS ty, CHARACTER_SET_NAME AS cs
    FROM information_schema.COLUMNS JOIN information_schema.TABLES USING (TABLE_SCHEMA, TABLE_NAME)
    WHERE TABLE_SCHEMA IN ('d', 'e', 'f', 'g') AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
    ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
_KEYS = """
    SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t, COLUMN_NAME AS c FROM information_schema.KEY_COLUMN_USAGE
    WHERE CONSTRAINT_NAME = 'PRIMARY' AND TABLE_SCHEMA IN ('d', 'e', 'f', 'g')
    ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""


def made_of(store: Path, file: Path, **options: str) -> DdlSeed:
    chosen = SourceOptions.parse({"path": str(store), **options})
    return write_ddl_seed(chosen, file, Engine("local", workers=1))


def newest(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for table in json.loads(file.read_text())["tables"]:
        found.setdefault((table["database"], table["table"]), table)
    return found


Name = tuple[str, str]
Columns = list[tuple[str, str, str | None]]


@dataclass(frozen=True)
class Asked:
    """What a server says: names, types and character sets of columns, and the primary keys."""

    columns: dict[Name, Columns]
    keys: dict[Name, list[str]]

    @classmethod
    def of(cls, upstream: MariaDB) -> Asked:
        keys: dict[Name, list[str]] = {}
        for row in upstream.q(_KEYS):
            keys.setdefault((row["d"], row["t"]), []).append(row["c"])
        return cls(columns_of(upstream.q(_COLUMNS)), keys)

    def check(self, name: Name, told: dict[str, Any]) -> None:
        assert shown(told) == self.columns[name], name
        assert told["key"] == self.keys.get(name, []), name


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[Name, Columns]:
    columns: dict[Name, Columns] = {}
    for row in rows:
        columns.setdefault((row["d"], row["t"]), []).append((row["c"], row["ty"], row["cs"]))
    return columns


def shown(told: dict[str, Any]) -> Columns:
    """Columns of a file as a server shows them: without those of system versioning that nobody defined."""
    said = [(c["name"], c["type"], c.get("charset")) for c in told["columns"]]
    return said[:-2] if said[-2:] == ROW_TIMES else said


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def run(upstream: MariaDB, *statements: str) -> None:
    """In one session; all that fail are told."""
    failed: list[str] = []
    with upstream.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                failed.append(f"{statement}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.by_turns(4)
@pytest.mark.each_version
@pytest.mark.parametrize("metadata", [NO_LOG, FULL])
def test_a_seed_says_what_the_server_says(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path, metadata: str
) -> None:
    upstream = make_upstream(metadata, server_id=1)
    newer = OF_11_8 if backend.version == "11.8" else ()
    run(upstream, *DATABASES, *EXECUTED, *newer, *UNKNOWN.values())
    asked = Asked.of(upstream)
    there = asked.columns
    # A row of each, so that the log describes it.
    empty = [
        f"INSERT IGNORE INTO {quoted(d)}.{quoted(t)} () VALUES ()"
        for d, t in there
        if t not in ("overlaps", "types3")
    ]
    run(
        upstream,
        "SET sql_mode=''",
        *empty,
        "INSERT INTO d.overlaps VALUES (1, '2001-01-01', '2002-01-01')",
        "INSERT INTO d.types3 (p, t) VALUES (POINT(1, 2), 'x')",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    seed = tmp_path / "seed.json"
    done = made_of(store, seed)
    known = newest(seed)
    surprising = [one for one in done.unknown if one[0].removeprefix("d.") not in UNKNOWN]
    assert not surprising
    assert len(done.unknown) == len(UNKNOWN)
    names = {name for name in there if name[1] not in UNKNOWN}
    assert known.keys() >= names
    for name in names:
        asked.check(name, known[name])
    for name in names:
        database, table = name
        # Some have had columns of other names, behind which a typed view does not read unasked.
        rows = rows_of(store, table=f"{database}.{table}", schemaSeed=str(seed), **READ_ON)
        assert [*rows[-1]["after"]] == [c["name"] for c in known[database, table]["columns"]]
        key = [*(rows[-1].get("_key") or ())]
        # FULL logs the first UNIQUE key of a table without a primary key in its place.
        assert key == known[database, table]["key"] or (metadata == FULL and name not in asked.keys)


READ_ON = {"schemaEvolution": "ignore"}
STATEMENTS = 600
"""Of which a server takes about half."""
KNOWN = (
    "CREATE DATABASE f CHARACTER SET utf8mb4",
    "CREATE TABLE f.t (a INT, b TEXT)",
    "ALTER TABLE f.t ADD c DATE FIRST",
    "ALTER TABLE f.t DROP a",
)
"""Three layouts of one table, behind everything else."""


@pytest.mark.by_turns(2)
@pytest.mark.each_version
def test_any_statements_that_a_server_takes(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path, rng: random.Random
) -> None:
    upstream = make_upstream(NO_LOG)
    run(
        upstream,
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE DATABASE e CHARACTER SET latin1",
    )
    made = AnyDdl(rng)
    taken = 0
    past: dict[Name, list[Columns]] = {}
    with upstream.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET system_versioning_alter_history = KEEP")
        while made.count < STATEMENTS:
            cursor.execute(_COLUMNS)
            there = columns_of(cursor.fetchall())
            for name, columns in there.items():
                past.setdefault(name, []).append(columns)
            names = {name: [column[0] for column in columns] for name, columns in there.items()}
            try:
                cursor.execute(made.statement(names))
            except pymysql.MySQLError:
                continue
            taken += 1
        # Of all the others the log may have left nothing that is known.
        for statement in KNOWN:
            cursor.execute(statement)
            cursor.execute(_COLUMNS)
            for name, columns in columns_of(cursor.fetchall()).items():
                past.setdefault(name, []).append(columns)
    assert taken > STATEMENTS // 3
    seed = tmp_path / "seed.json"
    done = made_of(store_of_upstream(tmp_path / "store", upstream), seed)
    asked, known = Asked.of(upstream), newest(seed)
    unknown = {name for name, _ in done.unknown}
    for name in asked.columns:
        if ".".join(name) not in unknown:
            asked.check(name, known[name])
    layouts = [
        layout for layout in json.loads(seed.read_text())["tables"] if layout["table"] != BETWEEN
    ]
    for layout in layouts:
        name = layout["database"], layout["table"]
        said = shown(layout)
        assert said in past.get(name, []) or said == asked.columns.get(name), layout
    assert len([layout for layout in layouts if layout["database"] == "f"]) == 3


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_values_of_types_that_the_log_does_not_name(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(NO_LOG, server_id=1)
    has_vectors = backend.version == "11.8"
    column = ", v VECTOR(2) NOT NULL" if has_vectors else ""
    values = ["", ""]
    if has_vectors:
        values = [", VEC_FromText('[1.5,-2]')", ", VEC_FromText('[0,1]')"]
    run(
        upstream,
        "CREATE DATABASE d CHARACTER SET latin1",
        "CREATE TABLE d.t (u UUID PRIMARY KEY, i INET6, f INET4, n BIGINT UNSIGNED, s VARCHAR(9), "
        f"e ENUM('ä', 'it''s'){column})",
        "INSERT INTO d.t VALUES (UUID(), '::1', '10.0.0.1', 18446744073709551615, 'né', 'it''s'"
        f"{values[0]})",
        "ALTER TABLE d.t DROP i, CHANGE s text VARCHAR(20) CHARACTER SET utf8mb4 FIRST, ADD INDEX (n)",
        f"INSERT INTO d.t VALUES ('né', UUID(), '10.0.0.2', 7, 'ä'{values[1]})",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    seed = tmp_path / "seed.json"
    assert made_of(store, seed).known[0].layouts == 2
    with pytest.raises(IncompatibleSchema, match="what is now text may have been i then"):
        rows_of(store, table="d.t", schemaSeed=str(seed))
    first, second = rows_of(store, table="d.t", schemaSeed=str(seed), **READ_ON)
    for row, address, number, label in (
        (first, "10.0.0.1", 18446744073709551615, "it's"),
        (second, "10.0.0.2", 7, "ä"),
    ):
        after = row["after"]
        assert row["_key"] == {"u": after["u"]}
        assert len(after["u"]) == 36
        assert (after["f"], after["n"], after["e"]) == (address, number, label)
    assert (first["after"]["text"], second["after"]["text"]) == (None, "né")
    old = rows_of(store, table="d.t", schemaSeed=str(seed), endGtid="0-1-3")
    assert (old[0]["after"]["s"], old[0]["after"]["i"]) == ("né", "::1")
    if has_vectors:
        assert (first["after"]["v"], second["after"]["v"]) == ([1.5, -2.0], [0.0, 1.0])


def test_the_server_and_its_log_write_the_same_file(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(NO_LOG)
    run(
        upstream,
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.t (id INT PRIMARY KEY, s TEXT) WITH SYSTEM VERSIONING",
        "CREATE TABLE d.u (a UUID)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    told, asked = tmp_path / "told.json", tmp_path / "asked.json"
    made_of(store, told)
    with upstream.connect() as connection:
        assert write_seed(connection, asked, ["d.*"]) == 2
    assert Seed.read(str(told)) == Seed.read(str(asked))


LABELS = (  # of a table each, by sessions of that collation_connection
    ("latin1", "latin1_swedish_ci", "ENUM('\u00e9', 'a') CHARACTER SET binary", [b"\xe9", b"a"]),
    ("utf8", "utf8mb4_bin", "ENUM('\u00e9', 'a') CHARACTER SET binary", [b"\xc3\xa9", b"a"]),
    ("ascii", "utf8mb4_bin", "ENUM('a', 'b ') BYTE", [b"a", b"b "]),
    ("wide", "utf16_general_ci", "ENUM('a', 'b') BYTE", [b"\0a", b"\0b"]),
    ("hexadecimal", "utf8mb4_bin", "ENUM(x'E9', x'C3A9') COLLATE binary", [b"\xe9", b"\xc3\xa9"]),
    ("many", "utf8mb4_bin", "SET(x'E9', x'C3A9') CHARACTER SET binary", [b"\xe9", b"\xc3\xa9"]),
    ("no_text", "utf8mb4_bin", "ENUM(x'E9', 'a') CHARACTER SET utf8mb4", ["\ufffd", "a"]),
    ("alike", "utf8mb4_bin", "ENUM(x'E8', x'E9') CHARACTER SET utf8mb4", [1, 2]),
)
OF_DDL = {"ascii": [b"a", b"b "]}
"""What NO_LOG and a seed made of the statements tell; of all others the number, or no seed."""


@pytest.mark.parametrize("metadata", [NO_LOG, FULL])
def test_labels_that_differ_never_become_the_same(
    make_upstream: MakeMariaDB, tmp_path: Path, metadata: str
) -> None:
    """Servers take labels that are no text in their character set, and those of a binary one are bytes."""
    upstream = make_upstream(metadata, server_id=1)
    run(upstream, "CREATE DATABASE d CHARACTER SET utf8mb4")
    for table, collation, type_, _ in LABELS:
        run(
            upstream,
            f"SET collation_connection = {collation}",
            f"CREATE TABLE d.{table} (e {type_} PRIMARY KEY)",
            f"INSERT INTO d.{table} VALUES (1)",
            f"INSERT INTO d.{table} VALUES (2)",
        )
    run(upstream, "CREATE TABLE d.converted LIKE d.ascii")
    run(upstream, "ALTER TABLE d.converted CONVERT TO CHARACTER SET latin1")
    run(upstream, "INSERT INTO d.converted VALUES (2)")
    store = store_of_upstream(tmp_path / "store", upstream)
    told, asked = tmp_path / "told.json", tmp_path / "asked.json"
    unknown = dict(made_of(store, told).unknown)
    with upstream.connect(charset="utf8mb4") as connection:
        write_seed(connection, asked, ["d.*"])

    def given(table: str, seed: Path) -> list[Any]:
        rows = rows_of(store, table=f"d.{table}", schemaSeed=str(seed))
        return [value for row in rows for value in row["after"].values()]

    for table, _, _, labels in LABELS:
        if metadata == FULL:
            assert given(table, told) == given(table, asked) == labels, table
            continue
        assert given(table, told) == OF_DDL.get(table, [1, 2]), table
        assert (f"d.{table}" in unknown) == (table not in OF_DDL), table
        if table == "wide":  # the server prints such bytes as they are
            assert given(table, asked) == labels
        elif table == "no_text":
            assert given(table, asked) == ["?", "a"]
        else:
            assert given(table, asked) == OF_DDL.get(table, [1, 2]), table
    assert given("converted", told) == [b"b "]  # bytes stay bytes


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1"])
def test_write_seed_where_labels_are_half_a_surrogate_pair(
    make_upstream: MakeMariaDB, tmp_path: Path, charset: str
) -> None:
    upstream = make_upstream(NO_LOG, server_id=1)
    run(
        upstream,
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.halves (e ENUM(x'D800', x'D801', x'0061') CHARACTER SET ucs2)",
        "CREATE TABLE d.whole (e ENUM('\u00e9', 'a'))",
        "INSERT INTO d.halves VALUES (1), (2), (3)",
        "INSERT INTO d.whole VALUES (1), (2)",
    )
    store, seed = store_of_upstream(tmp_path / "store", upstream), tmp_path / "seed.json"
    with upstream.connect(charset=charset) as connection:
        assert write_seed(connection, seed, ["d.*"]) == 2
    for table, values in {"halves": [1, 2, 3], "whole": ["\u00e9", "a"]}.items():
        rows = rows_of(store, table=f"d.{table}", schemaSeed=str(seed))
        assert [row["after"]["e"] for row in rows] == values


def test_what_a_server_did_not_execute_of_a_comment(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(NO_LOG)
    run(
        upstream,
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT /*!40101 UNSIGNED */, /*!999999 b INT, */ c INT /*M!100000 ZEROFILL*/)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    made_of(store, tmp_path / "seed.json")
    columns = newest(tmp_path / "seed.json")["d", "t"]["columns"]
    assert [(c["name"], c["type"]) for c in columns] == [
        ("a", "int(10) unsigned"),
        ("c", "int(10) unsigned zerofill"),
    ]


def test_queries_that_make_tables(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(NO_LOG)
    run(
        upstream,
        "CREATE DATABASE d CHARACTER SET latin1",
        "USE d",
        "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(5))",
        "CREATE TEMPORARY TABLE tmp (x INT, y UUID)",
        "CREATE TABLE b SELECT *, UUID() AS u FROM a",
        "CREATE TABLE c LIKE a",
        "CREATE TABLE e LIKE tmp",
        "CREATE TABLE f (z ENUM('x')) SELECT 1 AS one",
        "DROP TEMPORARY TABLE tmp",
        "SET binlog_format=STATEMENT",
        "CREATE TABLE g SELECT * FROM a",
        "CREATE TEMPORARY TABLE c (x INT)",
        "ALTER TABLE c ADD w INT",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    seed = tmp_path / "seed.json"
    done = made_of(store, seed, tables="d.*")
    columns = {t: [c["name"] for c in one["columns"]] for (_, t), one in newest(seed).items()}
    assert columns == {
        "a": ["id", "s"],
        "b": ["id", "s", "u"],
        "e": ["x", "y"],
        "f": ["z", "one"],
    }
    unknown = dict(done.unknown)
    assert "from a query" in unknown["d.g"]
    assert "temporary" in unknown["d.c"]


@pytest.mark.parametrize("binlog_format", ["ROW", "MIXED"])
def test_a_temporary_table_that_is_renamed(
    make_upstream: MakeMariaDB, tmp_path: Path, binlog_format: str
) -> None:
    """The log has RENAME TABLE of it as of any other; and with ROW nothing else of it."""
    upstream = make_upstream(NO_LOG)
    upstream.script(
        "CREATE DATABASE d", "USE d", f"SET binlog_format={binlog_format}", "CREATE TABLE t1 (x INT, y INT)",
        "CREATE TABLE tmp (a INT, b INT)", "CREATE TEMPORARY TABLE t1 (z INT)", "RENAME TABLE t1 TO tmp",
        "DROP TEMPORARY TABLE tmp", "SET binlog_format=ROW", "INSERT INTO tmp VALUES (1,2)",
        "INSERT INTO t1 VALUES (3,4)",
    )  # fmt: skip
    store, seed = store_of_upstream(tmp_path / "store", upstream), tmp_path / "seed.json"
    made_of(store, seed)
    for table, columns in {"tmp": {"a": 1, "b": 2}, "t1": {"x": 3, "y": 4}}.items():
        (row,) = rows_of(store, table=f"d.{table}", schemaSeed=str(seed))
        assert row["after"] == columns
