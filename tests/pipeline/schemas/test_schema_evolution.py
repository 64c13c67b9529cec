"""A table that changes while it is read: each way of schemaEvolution, with and without names in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.errors import BadOption, IncompatibleSchema, SchemaChanged
from binlog_pipeline.jobs.ddl_seed import write_ddl_seed
from binlog_pipeline.jobs.export import export
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.conversion import widens
from binlog_pipeline.schemas.seed_writing import write_seed
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views import View, open_view, reading
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_server.testing.mariadb import MariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline import exports
from tests.pipeline.logs import SMALL_FILES
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import MINIMAL, rows_of

CREATE = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a SMALLINT, b VARCHAR(5))")
FIRST = "INSERT INTO d.t VALUES (1, 2, 'x')"
SECOND = "INSERT INTO d.t (id, b) VALUES (2, 'y')"


def after(store: Path, **options: str) -> list[dict[str, Any]]:
    return [row["after"] for row in rows_of(store, table="d.t", **options)]


def made(upstream: MariaDB, directory: Path, alter: str, second: str) -> Path:
    upstream.script(*CREATE, FIRST, f"ALTER TABLE d.t {alter}", f"INSERT INTO d.t VALUES {second}")
    return store_of_upstream(directory, upstream)


CONVERTED = [
    ("ADD c INT FIRST", "(7, 2, 3, 'y')", {"c": None, "id": 1, "a": 2, "b": "x"}),
    ("ADD c INT DEFAULT 5", "(2, 3, 'y', 7)", {"id": 1, "a": 2, "b": "x", "c": None}),
    ("DROP a", "(2, 'y')", {"id": 1, "b": "x"}),
    ("MODIFY a BIGINT, MODIFY b TEXT", "(2, 3, 'y')", {"id": 1, "a": 2, "b": "x"}),
    ("MODIFY b VARCHAR(5) FIRST", "('y', 2, 3)", {"b": "x", "id": 1, "a": 2}),
    ("MODIFY a DECIMAL(7,2)", "(2, 3, 'y')", {"id": 1, "a": 2, "b": "x"}),
    ("MODIFY a DOUBLE", "(2, 3, 'y')", {"id": 1, "a": 2.0, "b": "x"}),
]


@pytest.mark.by_turns(2)
@pytest.mark.parametrize(("alter", "second", "first"), CONVERTED)
def test_older_rows_are_converted_by_name(
    make_upstream: MakeMariaDB, tmp_path: Path, alter: str, second: str, first: dict[str, Any]
) -> None:
    store = made(make_upstream(FULL, server_id=1), tmp_path / "store", alter, second)
    for mode in ("restart", "ignore"):
        rows = rows_of(store, table="d.t", schemaEvolution=mode)
        assert [row["after"]["id"] for row in rows] == [1, 2]
        assert rows[0]["after"] == first
        assert list(rows[0]["after"]) == list(first)
        assert rows[0]["_schema_id"] != rows[1]["_schema_id"]
    with pytest.raises(SchemaChanged, match=r"d\.t has other columns at 0-1-3 .* than at 0-1-5"):
        after(store, schemaEvolution="fail")
    # Each part by itself, with the schema that it had.
    assert after(store, schemaEvolution="fail", endGtid="0-1-4") == [{"id": 1, "a": 2, "b": "x"}]
    assert len(after(store, schemaEvolution="fail", startGtid="0-1-4")) == 1


def test_what_an_older_row_has_not_was_not_logged(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    store = made(make_upstream(FULL), tmp_path / "store", "ADD c INT AFTER id", "(2, 7, 3, 'y')")
    assert [row["_present"] for row in rows_of(store, table="d.t")] == [b"\x0d", None]
    # Where the ALTER TABLE is a row as well, the one before it is whole.
    with_statements = rows_of(store, table="d.t", ops="c,u,d,t,x")
    assert [(row["_op"], row["_present"]) for row in with_statements] == [
        ("t", None), ("c", None), ("a", None), ("c", None),
    ]  # fmt: skip


@pytest.mark.parametrize("alter", ["MODIFY a TINYINT", "MODIFY a VARCHAR(9)", "MODIFY b INT"])
def test_what_may_lose_values_is_refused(
    make_upstream: MakeMariaDB, tmp_path: Path, alter: str
) -> None:
    upstream = make_upstream(FULL)
    upstream.script(*CREATE, "INSERT INTO d.t VALUES (1, 2, '5')", f"ALTER TABLE d.t {alter}")
    upstream.script("INSERT INTO d.t VALUES (2, 3, '4')")
    store = store_of_upstream(tmp_path / "store", upstream)
    for mode in ("restart", "ignore"):
        with pytest.raises(IncompatibleSchema, match=r"column [ab] is .*, not .*endGtid"):
            after(store, schemaEvolution=mode)
    assert after(store, columns="id") == [{"id": 1}, {"id": 2}]


ANOTHER_MEANING = [
    "RENAME COLUMN a TO z",
    "CHANGE a z SMALLINT",
    "CHANGE a z BIGINT FIRST",
    "RENAME COLUMN a TO A",
    "DROP a, ADD z SMALLINT",  # the table maps are those of RENAME COLUMN
    "DROP a, ADD a SMALLINT AFTER id",
    "CHANGE a id INT NOT NULL, CHANGE id a INT NOT NULL DEFAULT 0",
    "RENAME COLUMN a TO c, ADD a SMALLINT AFTER id",
    "DROP a; ALTER TABLE d.t ADD a SMALLINT AFTER id",
    "DROP a; ALTER TABLE d.t ADD IF NOT EXISTS a SMALLINT AFTER id",
]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("alter", ANOTHER_MEANING)
def test_a_name_of_another_column_is_never_filled_silently(
    make_upstream: MakeMariaDB, tmp_path: Path, alter: str
) -> None:
    """What was renamed was null in older rows, and what was made anew had the old values."""
    upstream = make_upstream(FULL)
    upstream.script(*CREATE, FIRST, *f"ALTER TABLE d.t {alter}".split(";"))
    upstream.script(SECOND)
    store = store_of_upstream(tmp_path / "store", upstream)
    with pytest.raises(IncompatibleSchema, match=r"endGtid.*columns.*schemaEvolution=ignore"):
        after(store)
    with pytest.raises((SchemaChanged, IncompatibleSchema)):
        after(store, schemaEvolution="fail")
    assert after(store, columns="b") == [{"b": "x"}, {"b": "y"}]
    assert [row["b"] for row in after(store, schemaEvolution="ignore")] == ["x", "y"]
    server_id = upstream.q("SELECT @@server_id AS id")[0]["id"]
    behind = f"0-{server_id}-{5 if ';' in alter else 4}"
    assert [row["b"] for row in after(store, startGtid=behind)] == ["y"]
    assert after(store, endGtid="0-1-3") == [{"id": 1, "a": 2, "b": "x"}]
    told = rows_of(store, table="d.t", ops="c,u,d,t,x", nonRow="fail")
    assert {"x", "a"} & {row["_op"] for row in told}


def test_a_name_that_is_lost_in_one_file_and_given_in_another(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    """Tasks know nothing of each other; that a column has the name in the end is known to all."""
    upstream = make_upstream(FULL)
    fill = ["INSERT INTO d.f VALUES (REPEAT('x', 30000))"] * 20
    upstream.script(*CREATE, FIRST, "CREATE TABLE d.f (x LONGTEXT)", *fill)
    upstream.script("ALTER TABLE d.t DROP a", *fill)
    store = store_of_upstream(tmp_path / "dropped", upstream, options=SMALL_FILES)
    assert after(store) == [{"id": 1, "a": 2, "b": "x"}]  # as no row has come since
    upstream.script("ALTER TABLE d.t ADD a SMALLINT AFTER id", SECOND)
    store = store_of_upstream(tmp_path / "store", upstream, options=SMALL_FILES)
    with pytest.raises(IncompatibleSchema, match=r"column a of d\.t may not be"):
        after(store)
    assert [row["b"] for row in after(store, schemaEvolution="ignore")] == ["x", "y"]


NOTHING_RENAMED = [
    "ADD COLUMN IF NOT EXISTS a SMALLINT",  # as a migration does that is run again
    "DROP COLUMN IF EXISTS old; ALTER TABLE d.t ADD old INT; ALTER TABLE d.t DROP old",
    "CHANGE COLUMN IF EXISTS old a SMALLINT",
    "RENAME COLUMN IF EXISTS old TO a",
    "WAIT 5 ADD INDEX i (a)",
    "NOWAIT MODIFY a SMALLINT COMMENT 'b'",
]


@pytest.mark.parametrize("alter", NOTHING_RENAMED)
def test_what_finds_its_columns_there_renames_nothing(
    make_logged_store: MakeLoggedStore, alter: str
) -> None:
    store = make_logged_store(*CREATE, FIRST, *f"ALTER TABLE d.t {alter}".split(";"), SECOND)
    assert [row["b"] for row in after(store)] == ["x", "y"]


def test_a_column_that_is_not_picked_does_not_matter(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    store = made(make_upstream(FULL), tmp_path / "store", "DROP a, ADD c INT", "(2, 'y', 3)")
    assert after(store, columns="b,id") == [{"b": "x", "id": 1}, {"b": "y", "id": 2}]
    with pytest.raises(BadOption, match=r"no column a; it has id, b, c"):
        after(store, columns="a")


NAMED_ANEW = ANOTHER_MEANING[5:]


def task(view: View, store: Path, start: str, *, begins: bool) -> list[dict[str, Any]]:
    """The rows of a task that reads what is behind `start`."""
    (part,) = DirectorySource(str(store)).slices(
        Wanted(GtidRange(SlavePosition.parse(start))), 1 << 30
    )
    return [
        row["after"]
        for batch in reading.rows_of(view, part, begins=begins)
        for row in batch.to_pylist()
    ]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize(
    ("alter", "is_loaded_before"),
    [
        *((one, False) for one in NAMED_ANEW),
        *((one, True) for one in NAMED_ANEW if "IF NOT EXISTS" not in one),
    ],
)
def test_a_task_that_begins_with_a_name_of_another_column(
    make_upstream: MakeMariaDB, tmp_path: Path, alter: str, is_loaded_before: bool
) -> None:
    """Rows of what had the name before are those of other tasks, or of micro-batches before."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(*CREATE, FIRST)
    reader = Reader(store_of_upstream(tmp_path / "before", upstream))
    upstream.script(*f"ALTER TABLE d.t {alter}".split(";"), SECOND)
    store = store_of_upstream(tmp_path / "store", upstream)
    view = reader.view if is_loaded_before else Reader(store).view
    # A micro-batch begins with each of the statements; with a view of before the rows behind the last one are wrong.
    is_second = is_loaded_before and ";" in alter
    with pytest.raises((IncompatibleSchema, SchemaChanged)):
        task(view, store, "0-1-4" if is_second else "0-1-3", begins=False)
    again = Reader(store).view  # as a stream that is started again there
    assert [row["b"] for row in task(again, store, "0-1-3", begins=True)] == ["y"]


@pytest.mark.parametrize("alter", ["ADD INDEX i (a)", "ADD COLUMN IF NOT EXISTS a SMALLINT"])
def test_a_task_that_begins_with_a_statement_that_keeps_all_names(
    make_upstream: MakeMariaDB, tmp_path: Path, alter: str
) -> None:
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(*CREATE, FIRST)
    before = Reader(store_of_upstream(tmp_path / "before", upstream)).view
    upstream.script(f"ALTER TABLE d.t {alter}", SECOND)
    store = store_of_upstream(tmp_path / "store", upstream)
    for view in (before, Reader(store).view):
        assert [row["b"] for row in task(view, store, "0-1-3", begins=False)] == ["y"]


def test_a_task_that_begins_with_a_new_column(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    store = made(make_upstream(FULL, server_id=1), tmp_path, "ADD c INT", "(2, 3, 'y', 7)")
    assert task(Reader(store).view, store, "0-1-3", begins=False)[0]["c"] == 7


class Reader:
    """A query that was started at some time, and reads what comes later."""

    def __init__(self, store: Path, **options: str) -> None:
        chosen = {"path": str(store), "view": "changes", "table": "d.t", **options}
        self.options = SourceOptions.parse(chosen)
        self.view: View = open_view(self.options, open_source(self.options))

    def rows_of(self, store: Path) -> list[dict[str, Any]]:
        """Of a store that the first has become."""
        options = SourceOptions.parse({"path": str(store), "view": "changes"})
        source = open_source(options)
        batches = [
            batch
            for part in source.slices(options.wanted, 1 << 20)
            for batch in self.view.batches(part.read())
        ]
        table = pa.Table.from_batches(batches, self.view.schema)
        rows: list[dict[str, Any]] = table.column("after").to_pylist()
        return rows


def test_newer_columns_end_a_query_that_was_started_before(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(*CREATE, FIRST)
    old = store_of_upstream(tmp_path / "old", upstream)
    restart, ignore, fail = (
        Reader(old, schemaEvolution=mode) for mode in ("restart", "ignore", "fail")
    )
    upstream.script("ALTER TABLE d.t MODIFY b VARCHAR(100)", "INSERT INTO d.t VALUES (2, 3, 'yy')")
    same = store_of_upstream(tmp_path / "same", upstream)
    rows = [{"id": 1, "a": 2, "b": "x"}, {"id": 2, "a": 3, "b": "yy"}]
    assert restart.rows_of(same) == ignore.rows_of(same) == rows
    with pytest.raises(SchemaChanged):
        fail.rows_of(same)
    upstream.script("ALTER TABLE d.t ADD c INT, DROP a")
    upstream.script("INSERT INTO d.t VALUES (3, 'z', 9)", "INSERT INTO d.t VALUES (4, 'z', 9)")
    new = store_of_upstream(tmp_path / "new", upstream)
    text = (
        r"d\.t has other columns at 0-1-7 \(id int32, b string, c int32\) than at 0-1-3, with which it was loaded "
        r"\(id int32, a int16, b string\); load it again and restart the query"
    )
    with pytest.raises(SchemaChanged, match=text):
        restart.rows_of(new)
    assert ignore.rows_of(new) == [
        *rows,
        {"id": 3, "a": None, "b": "z"},
        {"id": 4, "a": None, "b": "z"},
    ]
    with pytest.raises(IncompatibleSchema, match=r"what is now c may have been a then"):
        Reader(new).rows_of(new)  # by the table maps it was
    again = Reader(new, schemaEvolution="ignore").rows_of(new)
    assert again[0] == {"id": 1, "b": "x", "c": None}
    assert again[-1] == {"id": 4, "b": "z", "c": 9}


def test_without_names_nothing_is_guessed(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(MINIMAL)
    upstream.script(*CREATE, FIRST)
    seed = tmp_path / "seed.json"
    with upstream.connect() as connection:
        write_seed(connection, seed, ["d.*"])
    old = store_of_upstream(tmp_path / "old", upstream)
    assert after(old) == [{"@1": 1, "@2": 2, "@3": "x"}]
    assert "_key" not in rows_of(old, table="d.t")[0]
    seeded = rows_of(old, table="d.t", schemaSeed=str(seed))
    assert [(row["_key"], row["after"]) for row in seeded] == [
        ({"id": 1}, {"id": 1, "a": 2, "b": "x"})
    ]
    upstream.script("ALTER TABLE d.t ADD c INT FIRST", "INSERT INTO d.t VALUES (7, 2, 3, 'y')")
    new = store_of_upstream(tmp_path / "new", upstream)
    with pytest.raises(IncompatibleSchema, match="binlog_row_metadata is not FULL"):
        after(new)
    with pytest.raises(IncompatibleSchema, match=r"column @3 is string, not int16"):
        after(new, schemaEvolution="ignore")
    # A file with both layouts says which column became which.
    newer = tmp_path / "newer.json"
    with upstream.connect() as connection:
        write_seed(connection, newer)
    layouts = [text.read_text() for text in (newer, seed)]
    both = tmp_path / "both.json"
    both.write_text(merged(*layouts))
    assert after(new, schemaSeed=str(both)) == [
        {"c": None, "id": 1, "a": 2, "b": "x"},
        {"c": 7, "id": 2, "a": 3, "b": "y"},
    ]


HASHED = (
    "CREATE DATABASE d",
    "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(9), b TEXT, UNIQUE (b), UNIQUE (a) USING HASH)",
    "INSERT INTO d.t VALUES (1, 'x', 'y')",
    "UPDATE d.t SET b = 'z'",
    "CREATE TABLE d.v (id INT, db_row_hash_1 INT, a TEXT UNIQUE) WITH SYSTEM VERSIONING",
    "INSERT INTO d.v VALUES (1, 2, 'x')",
)


@pytest.mark.any_version
@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_columns_that_no_statement_can_name_are_in_no_view(
    make_upstream: MakeMariaDB, tmp_path: Path, metadata: str
) -> None:
    """The log has them, information_schema.COLUMNS has not."""
    upstream = make_upstream(f"--binlog-row-metadata={metadata}")
    upstream.script(*HASHED)
    seed = tmp_path / "seed.json"
    with upstream.connect() as connection:
        write_seed(connection, seed, ["d.*"])
    more = {"schemaSeed": str(seed)} if metadata == "NO_LOG" else {}
    store = store_of_upstream(tmp_path / "store", upstream)
    old, new = {"id": 1, "a": "x", "b": "y"}, {"id": 1, "a": "x", "b": "z"}
    assert after(store, **more) == [old, new]
    flat = rows_of(store, table="d.t", layout="flat", **more)[0]
    assert [name for name in flat if not name.startswith("_")] == ["id", "a", "b"]
    asked = {"layout": "struct", "tables": "d.*", **more}
    as_json = [json.loads(row["after"]) for row in rows_of(store, **asked)]
    assert as_json[:2] == [old, new]
    assert [*as_json[2]] == ["id", "db_row_hash_1", "a", "row_start", "row_end"]
    target = tmp_path / "exported"
    export(SourceOptions.parse({"path": str(store), **more}), target)
    assert [row["after"] for row in exports.rows_of(target, "d", "t")] == [old, new]


@pytest.mark.parametrize(
    ("alter", "shifts"),
    [
        (
            "DROP INDEX f, ADD COLUMN amount BIGINT",
            True,
        ),  # of a key that is a hash, and has a column
        ("DROP b, ADD c INT", True),
        ("MODIFY b INT AFTER f", True),
        ("ADD UNIQUE u (a)", False),
        ("COMMENT 'x', ENGINE=InnoDB", False),
    ],
)
def test_a_column_under_the_number_of_another(
    make_logged_store: MakeLoggedStore, alter: str, shifts: bool
) -> None:
    store = make_logged_store(
        "CREATE DATABASE d CHARACTER SET latin1",
        "CREATE TABLE d.t (f VARCHAR(4096), a INT, b INT, UNIQUE f (f))",
        "INSERT INTO d.t VALUES ('foo', 1, 2)",
        f"ALTER TABLE d.t {alter}",
        "INSERT INTO d.t () VALUES ()",
        flags=["--binlog-row-metadata=NO_LOG"],
        server_id=1,
    )
    if shifts:
        with pytest.raises(IncompatibleSchema, match="the log has no names of them"):
            rows_of(store, table="d.t")
    else:
        assert len(rows_of(store, table="d.t")) == 2
    assert len(rows_of(store, table="d.t", schemaEvolution="ignore")) == 2
    assert len(rows_of(store, table="d.t", startGtid="0-1-3")) == 1
    view = Reader(store).view
    assert len(task(view, store, "0-1-3", begins=True)) == 1
    if shifts:
        with pytest.raises(IncompatibleSchema, match="the log has no names of them"):
            task(view, store, "0-1-3", begins=False)
    else:
        assert len(task(view, store, "0-1-3", begins=False)) == 1
    told = rows_of(store, tables="d.*", ops="c,u,d,t,x")
    doubts = [row["_statement"]["sql"] for row in told if row["_op"] == "x"]
    assert doubts == ([f"ALTER TABLE d.t {alter}"] if shifts else [])


@pytest.mark.parametrize("rows_before", [True, False])
def test_a_column_under_the_number_of_another_which_another_task_reads(
    make_upstream: MakeMariaDB, tmp_path: Path, rows_before: bool
) -> None:
    """Each task sees its own part of the log only; a table that is made in its part had no rows before."""
    upstream = make_upstream("--binlog-row-metadata=NO_LOG", server_id=1)
    fill = ("CREATE TABLE d.u (a LONGBLOB)", *["INSERT INTO d.u VALUES (REPEAT('x', 1000000))"] * 6)
    made = ("CREATE TABLE d.t (a INT, b INT)", *["INSERT INTO d.t VALUES (1, 2)"] * rows_before)
    upstream.script(
        "CREATE DATABASE d",
        *((*made, *fill) if rows_before else (*fill, *made)),
        "ALTER TABLE d.t DROP b, ADD c INT",
        "INSERT INTO d.t VALUES (3, 4)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    for more in ({}, {"partitionBytes": "1m"}):
        if rows_before:
            with pytest.raises(IncompatibleSchema, match="the log has no names of them"):
                rows_of(store, table="d.t", **more)
        else:
            assert len(rows_of(store, table="d.t", **more)) == 1
        told = rows_of(store, table="d.t", schemaEvolution="ignore", **more)
        assert len(told) == 1 + rows_before


def test_a_log_that_has_names_at_its_end_only(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream("--binlog-row-metadata=NO_LOG", server_id=1)
    moves = ("ALTER TABLE d.t DROP b, ADD c INT", "INSERT INTO d.t VALUES (3, 4)")
    upstream.script(
        *("CREATE DATABASE d", "CREATE TABLE d.t (a INT, b INT)", "CREATE TABLE d.u (a INT)"),
        *("INSERT INTO d.t VALUES (1, 2)", *moves, "SET GLOBAL binlog_row_metadata=FULL"),
    )
    upstream.script("INSERT INTO d.u VALUES (3)", "ALTER TABLE d.u ADD b INT")
    store = store_of_upstream(tmp_path / "store", upstream)
    told = rows_of(store, tables="d.*", ops="c,u,d,t,x")
    assert [row["_statement"]["sql"] for row in told if row["_op"] == "x"] == [moves[0]]


def test_layouts_that_a_seed_tells_apart_by_their_types(
    make_logged_store: MakeLoggedStore, tmp_path: Path
) -> None:
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b INT)",
        "INSERT INTO d.t VALUES (1, 2)",
        "ALTER TABLE d.t DROP b, ADD c BIGINT",
        "INSERT INTO d.t VALUES (3, 4)",
        flags=["--binlog-row-metadata=NO_LOG"],
        server_id=1,
    )
    seed = tmp_path / "seed.json"
    write_ddl_seed(SourceOptions.parse({"path": str(store)}), seed, Engine("local", workers=1))
    for more in ({"schemaEvolution": "ignore"}, {"columns": "a"}):
        rows = rows_of(store, table="d.t", schemaSeed=str(seed), **more)
        assert [row["after"]["a"] for row in rows] == [1, 3]


def merged(*documents: str) -> str:
    found = [json.loads(text) for text in documents]
    return json.dumps({**found[0], "tables": [t for d in found for t in d["tables"]]})


SPECIAL = {
    "10.11": (
        "u UUID, i INET6, f INET4, e ENUM('a','it''s'), n BIGINT UNSIGNED",
        "('00000000-0000-0000-0000-00000000000f', '::1', '10.0.0.1', 'it''s', 18446744073709551615)",
        {"u": "00000000-0000-0000-0000-00000000000f", "i": "::1", "f": "10.0.0.1", "e": "it's",
         "n": 18446744073709551615},
    ),
    "11.8": ("v VECTOR(2) NOT NULL, u UUID", "(VEC_FromText('[1.5,-2]'), NULL)", {"v": [1.5, -2.0], "u": None}),
}  # fmt: skip


@pytest.mark.each_version
@pytest.mark.by_turns(2)
@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL", "FULL"])
def test_types_that_the_log_does_not_name(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path, metadata: str
) -> None:
    columns, values, want = SPECIAL.get(backend.version, SPECIAL["10.11"])
    upstream = make_upstream(f"--binlog-row-metadata={metadata}")
    upstream.script(
        "CREATE DATABASE d",
        f"CREATE TABLE d.t ({columns}) CHARACTER SET utf8mb4",
        f"INSERT INTO d.t VALUES {values}",
    )
    seed = tmp_path / "seed.json"
    with upstream.connect() as connection:
        assert write_seed(connection, seed, ["d.t"]) == 1
    store = store_of_upstream(tmp_path / "store", upstream)
    assert after(store, schemaSeed=str(seed)) == [want]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "tables": []}',
        '{"version": 1}',
        '{"version": 1, "tables": [{"database": "d", "table": "t", "columns": [{"name": "a", "type": "blurb"}]}]}',
        '{"version": 1, "tables": [{"database": "d", "table": "t", "columns": [], "key": ["a"]}]}',
    ],
)
def test_a_seed_that_is_wrong(tmp_path: Path, text: str) -> None:
    seed = tmp_path / "seed.json"
    seed.write_text(text)
    with pytest.raises(BadOption, match=r"schemaSeed .*seed\.json"):
        rows_of(tmp_path, schemaSeed=str(seed))


WIDER = [
    (pa.int8(), pa.int16()), (pa.int16(), pa.int64()), (pa.int64(), pa.decimal128(20, 0)), (pa.int16(), pa.float32()),
    (pa.int32(), pa.float64()), (pa.float32(), pa.float64()), (pa.decimal128(5, 2), pa.decimal128(8, 4)),
    (pa.date32(), pa.timestamp("us")), (pa.int8(), pa.decimal128(3, 0)), (pa.bool_(), pa.int64()),
]  # fmt: skip
NARROWER = [
    (pa.int32(), pa.float32()), (pa.int64(), pa.float64()), (pa.decimal128(5, 2), pa.decimal128(5, 3)),
    (pa.int16(), pa.decimal128(4, 0)), (pa.date32(), pa.timestamp("us", tz="UTC")), (pa.string(), pa.binary()),
    (pa.int8(), pa.string()), (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
]  # fmt: skip


def test_widening() -> None:
    for narrow, wide in WIDER:
        assert widens(narrow, wide)
        assert not widens(wide, narrow), (narrow, wide)
    for narrow, wide in NARROWER:
        assert not widens(narrow, wide), (narrow, wide)
