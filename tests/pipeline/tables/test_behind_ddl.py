"""What a state of a table is behind statements that change its rows without rows in the log: what the server has, or an
error that says which statement it is."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.errors import (
    BadOption,
    IncompatibleSchema,
    NonRowChange,
    PipelineError,
    SourceError,
)
from binlog_pipeline.jobs.ddl_seed import write_ddl_seed
from binlog_pipeline.jobs.state import OPS, Kept, keep_state
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.targets import TABLE_SINKS
from binlog_protocol.gtid import SlavePosition
from pymysql.constants import FIELD_TYPE

from binlog_server.testing.mariadb import MariaDB
from tests.kit import backends
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.any_ddl import BETWEEN, NAMES, TYPES, AnyDdl, quoted, table_text
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.tables.ddl_cases import AS_LOGGED, CASES, DOUBT, REFUSED, SAME, Case
from tests.pipeline.tables.lake import configure, place, rows_of


def database(name: str) -> str:
    return f"c_{name}"


def is_known(upstream: MariaDB, one: Case) -> bool:
    """Whether the server has all that the statements need."""
    images = upstream.value(
        "SELECT ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES "
        "WHERE VARIABLE_NAME='BINLOG_ROW_IMAGE'"
    )
    return "FULL_NODUP" in images or "FULL_NODUP" not in str(one.statements)


def in_turn(rng: random.Random) -> dict[str, Case]:
    """All cases in the slow suite, otherwise an eighth of each outcome: for each of them all of a log is read."""
    if backends.full_matrix():
        return CASES
    names: list[str] = []
    for want in (SAME, REFUSED, DOUBT, AS_LOGGED):
        alike = [name for name, one in CASES.items() if one.want == want]
        names += rng.sample(alike, -(-len(alike) // 8))
    return {name: CASES[name] for name in CASES if name in names}


def logs_of(upstream: MariaDB, cases: dict[str, Case]) -> list[dict[str, Case]]:
    """Cases that may share a log: a statement that is logged as text leaves a doubt in all tables."""
    known = {name: one for name, one in cases.items() if is_known(upstream, one)}
    text = {name: one for name, one in known.items() if "STATEMENT" in str(one.statements)}
    return [
        {name: one for name, one in known.items() if name not in text},
        *({name: one} for name, one in text.items()),
    ]


def run_all(upstream: MariaDB, cases: dict[str, Case]) -> None:
    """All of them into one log, each in a database and a session of its own."""
    for name, one in cases.items():
        db = database(name)
        setup = (
            f"CREATE DATABASE {db}",
            f"USE {db}",
            "SET binlog_row_image=FULL, binlog_format=ROW, sql_mode=''",
        )
        upstream.script(*setup, *(text.replace("{db}", db) for text in one.statements))


def options_of(store: Path, table: str, **more: str) -> SourceOptions:
    said = {
        "path": str(store),
        "view": "changes",
        "table": table,
        "ops": OPS,
        "schemaEvolution": "ignore",
    }
    return SourceOptions.parse({**said, **more})


def kept(store: Path, target: Path, table: str, sink: str = "parquet", **more: str) -> Kept | str:
    """What a run has done; or its error."""
    try:
        return keep_state(options_of(store, table, **more), place(sink, target), sink=sink)
    except (NonRowChange, SourceError, IncompatibleSchema) as error:
        return str(error)


def rows_there(upstream: MariaDB, sql: str) -> list[dict[str, Any]]:
    """With BIT as the number that it is."""
    conversions = {**pymysql.converters.conversions, FIELD_TYPE.BIT: _number}
    with upstream.connect(conv=conversions) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _number(bits: bytes) -> int:
    return int.from_bytes(bits, "big")


def comparable(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted((name, _text(value)) for name, value in row.items())) for row in rows)


def _text(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def versions(upstream: MariaDB, name: tuple[str, str]) -> str:
    """What asks for all versions of rows, where there are some."""
    made = str(upstream.q(f"SHOW CREATE TABLE {table_text(name)}"))
    return " FOR SYSTEM_TIME ALL" if "WITH SYSTEM VERSIONING" in made else ""


def asked(upstream: MariaDB, table: str) -> Counter[str]:
    """What the server has, with all versions of rows."""
    database, name = table.split(".")
    of_all = versions(upstream, (database, name))
    times = {"row_start": "", "row_end": ""} if of_all else {}
    return comparable([{**row, **times} for row in upstream.q(f"SELECT * FROM {table}{of_all}")])


def outcome(upstream: MariaDB, store: Path, folder: Path, name: str, sink: str) -> str:
    table = f"{database(name)}.t"
    target = folder / sink / name
    found = kept(store, target, table, sink)
    if isinstance(found, str):
        return REFUSED
    rows = rows_of(sink, target).to_pylist()
    if rows and "row_end" in rows[0]:
        rows = [{**row, "row_start": "", "row_end": ""} for row in rows]
    if not found.is_complete:
        return DOUBT if found.doubt else "no CREATE TABLE"
    want = asked(upstream, table)
    return SAME if comparable(rows) == want else f"DIFFERENT: {rows}, the server has {want}"


@pytest.mark.any_version
@pytest.mark.timeout(600)  # up to 384 jobs
def test_a_state_is_what_the_server_has_or_says_that_it_cannot_be(
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    upstream = make_upstream(FULL)
    sinks = TABLE_SINKS if backends.full_matrix() else (rng.choice(TABLE_SINKS),)
    for number, cases in enumerate(logs_of(upstream, in_turn(rng))):
        upstream.script("RESET MASTER")
        run_all(upstream, cases)
        store = store_of_upstream(tmp_path / str(number), upstream)
        for sink in sinks:
            found = {name: outcome(upstream, store, tmp_path, name, sink) for name in cases}
            wrong = {
                n: told for n, told in found.items() if told not in CASES[n].want.split(" or ")
            }
            assert not wrong, "\n".join(
                f"{sink} {n}: {t}, not {CASES[n].want}" for n, t in wrong.items()
            )


def test_the_command_says_it(
    make_upstream: MakeMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = make_upstream(FULL)
    names = ("add_stored", "truncate", "cascade")
    run_all(upstream, {name: CASES[name] for name in names})
    upstream.script(
        "CREATE TABLE c_truncate.u (id INT PRIMARY KEY)", "INSERT INTO c_truncate.u VALUES (1)"
    )
    begin = upstream.gtid_binlog_pos
    upstream.script("INSERT INTO c_truncate.u VALUES (2)")
    store = str(store_of_upstream(tmp_path / "store", upstream))

    def run(name: str, *more: str, table: str = "t") -> tuple[int, str]:
        target = str(tmp_path / "_".join((name, *more)).replace("/", ""))
        code = main(["state", store, target, "--table", f"{database(name)}.{table}", *more])
        return code, capsys.readouterr().err

    assert run("truncate") == (0, "")
    code, said = run("add_stored")
    assert code == 1
    for part in (
        "c_add_stored.t are not known behind",
        "ADD b INT AS (a*10) PERSISTENT",
        "--copy",
        "--at-gtid",
    ):
        assert part in said
    code, said = run("add_stored", "--option", "nonRow=skip")
    assert code == 0
    assert "may not be complete" in said
    assert "ADD b INT AS (a*10) PERSISTENT" in said
    code, said = run("cascade")
    assert code == 1
    assert "ON DELETE CASCADE changes rows that are not logged" in said
    behind_create = ("--start-gtid", str(begin))
    code, said = run("truncate", *behind_create, table="u")
    assert code == 1
    for part in ("the log has no CREATE TABLE of it", "--copy, --start-gtid", "nonRow=skip"):
        assert part in said
    code, said = run("truncate", *behind_create, "--option", "nonRow=skip", table="u")
    assert code == 0
    assert "the log has no CREATE TABLE of it" in said


def test_what_was_published_before_stays(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(FULL)
    run_all(upstream, {"x": Case(SAME, CASES["truncate"].statements[:2])})
    store = store_of_upstream(tmp_path / "before", upstream)
    target = tmp_path / "t"
    before = kept(store, target, "c_x.t")
    assert isinstance(before, Kept)
    upstream.script(
        "USE c_x", "ALTER TABLE t ADD b INT AS (a + 1) STORED", "INSERT INTO t (id, a) VALUES (3,3)"
    )
    behind = store_of_upstream(tmp_path / "behind", upstream)
    said = kept(behind, target, "c_x.t")
    assert isinstance(said, str)
    assert f"the target is at '{before.position}'" in said
    assert comparable(read_state(target)[0].to_pylist()) == Counter(
        comparable([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    )
    upstream.script("TRUNCATE c_x.t", "INSERT INTO c_x.t (id, a) VALUES (4,4)")
    assert isinstance(kept(store_of_upstream(tmp_path / "healed", upstream), target, "c_x.t"), Kept)
    assert comparable(read_state(target)[0].to_pylist()) == asked(upstream, "c_x.t")


def test_a_table_that_was_there_before_under_another_name(
    make_upstream: MakeMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends while gh-ost or pt-online-schema-change copies, and the next one is behind the swap."""
    configure(monkeypatch, tmp_path)
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)",
        "INSERT INTO t VALUES (1,1),(2,2),(3,3)",
        "CREATE TABLE _t_gho LIKE t",
        "ALTER TABLE _t_gho ADD b INT DEFAULT 7, DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)",
        "INSERT INTO _t_gho (id, a) SELECT id, a FROM t WHERE id < 3",
    )
    middle = SlavePosition.parse(upstream.gtid_binlog_pos)
    upstream.script(
        "USE d",
        "UPDATE t SET a=8 WHERE id=1",
        "UPDATE _t_gho SET a=8 WHERE id=1",
        "INSERT INTO _t_gho (id, a) SELECT id, a FROM t WHERE id = 3",
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        "DELETE FROM t WHERE id=2",
        "INSERT INTO t VALUES (1,4,4)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    for sink in TABLE_SINKS:
        target = tmp_path / sink
        keep_state(options_of(store, "d.t"), place(sink, target), sink=sink, until=middle)
        found = kept(store, target, "d.t", sink)
        assert isinstance(found, Kept)
        assert (found.is_complete, str(found.position)) == (True, upstream.gtid_binlog_pos)
        assert comparable(rows_of(sink, target).to_pylist()) == asked(upstream, "d.t")
    # Of the one that comes next, what is read for a new target does not have the CREATE TABLE.
    upstream.script("USE d", "RENAME TABLE t TO _t, _t_del TO t", "INSERT INTO t VALUES (9,9)")
    again = store_of_upstream(tmp_path / "again", upstream)
    with pytest.raises(BadOption, match=r"not d\.t by id: "):
        kept(again, target, "d.t", sink, startGtid=str(middle))


def test_a_table_that_is_made_anew_and_has_no_row_yet(
    make_upstream: MakeMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is empty, whatever its key will be; then it is what comes."""
    configure(monkeypatch, tmp_path)
    upstream = make_upstream(FULL)
    stops: list[SlavePosition] = []
    for said in (
        "CREATE TABLE d.t (id INT PRIMARY KEY, a INT); INSERT INTO d.t VALUES (1,1),(2,2)",
        "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, a INT)",
        "DROP TABLE d.t; CREATE TABLE d.t (k VARCHAR(9) PRIMARY KEY, a INT); ALTER TABLE d.t ADD b INT",
        "INSERT INTO d.t VALUES ('x',1,1)",
    ):
        upstream.script("CREATE DATABASE IF NOT EXISTS d", *said.split("; "))
        stops.append(SlavePosition.parse(upstream.gtid_binlog_pos))
    want = asked(upstream, "d.t")
    store = store_of_upstream(tmp_path / "store", upstream)
    for sink in TABLE_SINKS:
        target = tmp_path / sink
        found = []
        for stop in stops:
            done = keep_state(options_of(store, "d.t"), place(sink, target), sink=sink, until=stop)
            assert done.is_complete
            found.append(rows_of(sink, target).to_pylist())
        assert [*map(len, found)] == [2, 0, 0, 1]
        assert comparable(found[-1]) == want


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_rows_from_before_a_column_came_lack_nothing_for_it(
    make_upstream: MakeMariaDB, tmp_path: Path, image: str
) -> None:
    """Read with the columns of later, as a stream does that is started again: a row may get another key."""
    upstream = make_upstream(FULL)
    upstream.script(
        f"SET binlog_row_image={image}",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO d.t VALUES (1,1),(2,2),(3,3)",
        "UPDATE d.t SET a=9 WHERE id=2",
        "UPDATE d.t SET id=8, a=8 WHERE id=1",
        "ALTER TABLE d.t ADD c INT NULL",
        "INSERT INTO d.t VALUES (4,4,4)",
        "UPDATE d.t SET c=5 WHERE id=8",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    target = tmp_path / "t"
    found = kept(store, target, "d.t", columns="id,a,c")
    assert isinstance(found, Kept)
    assert found.is_complete
    assert comparable(read_state(target)[0].to_pylist()) == asked(upstream, "d.t")


@pytest.mark.parametrize("image", ["FULL", "FULL_NODUP", "MINIMAL", "NOBLOB"])
def test_a_computed_column_is_not_as_it_was(
    make_upstream: MakeMariaDB, tmp_path: Path, image: str
) -> None:
    """MariaDB 11.8.9 logs it in no UPDATE: where it may have changed that is an error, also behind a load."""
    upstream = make_upstream(FULL, version="11.8")
    columns = "id INT PRIMARY KEY, a INT, b INT, s INT AS (a * 3) STORED"
    upstream.script(
        "CREATE DATABASE d",
        f"CREATE TABLE d.t ({columns})",
        f"CREATE TABLE d.u ({columns}, v INT AS (s + a) STORED)",
        f"SET binlog_row_image={image}",
        "INSERT INTO d.t (id, a, b) VALUES (1, 1, 1), (2, NULL, 2)",
        "UPDATE d.t SET b = b + 1",
        "INSERT INTO d.u (id, a, b) VALUES (1, 1, 1)",
        "UPDATE d.u SET a = 5",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    done = kept(store, tmp_path / "t", "d.t")
    said = kept(store, tmp_path / "u", "d.u")
    assert isinstance(said, str)
    assert "does not say what is in column s, which is computed by the server" in said
    assert isinstance(done, Kept), done
    if image != "NOBLOB":  # where a REPLACE looks like this
        assert done.is_complete
    assert comparable(read_state(tmp_path / "t")[0].to_pylist()) == asked(upstream, "d.t")
    left = kept(store, tmp_path / "left", "d.u", columns="id,a,b")
    assert isinstance(left, Kept), left
    rows = read_state(tmp_path / "left")[0].to_pylist()
    assert comparable(rows) == comparable([{"id": 1, "a": 5, "b": 1}])


XA_SETUP = (
    "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "CREATE TABLE d.u (id INT PRIMARY KEY)",
    "INSERT INTO d.t VALUES (1)", "INSERT INTO d.u VALUES (1)",
)  # fmt: skip
XA_PREPARE = ("XA START 'g'", "INSERT INTO d.t VALUES (9)", "XA END 'g'", "XA PREPARE 'g'")


@pytest.mark.parametrize("sink", TABLE_SINKS)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_xa_transaction_that_ends_in_another_run(
    make_upstream: MakeMariaDB, tmp_path: Path, sink: str, end: str
) -> None:
    upstream = make_upstream(FULL)
    upstream.script(*XA_SETUP, *XA_PREPARE)

    def run(name: str, table: str) -> Kept | str:
        return kept(store_of_upstream(tmp_path / name, upstream), tmp_path / table, table, sink)

    first = run("1", "d.t")
    assert isinstance(first, Kept)
    assert not first.is_complete
    assert "XA PREPARE X'67',X'',1: only prepared" in first.doubt
    other = run("2", "d.u")
    assert isinstance(other, Kept)
    assert other.is_complete
    upstream.script(f"XA {end} 'g'", "INSERT INTO d.t VALUES (2)", "INSERT INTO d.u VALUES (2)")
    other = run("3", "d.u")
    assert isinstance(other, Kept)
    assert other.is_complete
    last = run("4", "d.t")
    if end == "ROLLBACK":
        assert isinstance(last, str)
        assert "XA ROLLBACK X'67',X'',1" in last
        assert f"The target stays at '{first.position}', which may be wrong already" in last
        assert "only prepared: its rows may be taken back" in last
        return
    assert isinstance(last, Kept)
    assert last.is_complete
    rows = rows_of(sink, tmp_path / "d.t")
    assert comparable(rows.to_pylist()) == asked(upstream, "d.t")


def test_what_was_prepared_before_a_target_begins_is_in_doubt(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    """A copy made then has not its rows."""
    upstream = make_upstream(FULL)
    upstream.script(*XA_SETUP, *XA_PREPARE)
    begin = upstream.gtid_binlog_pos
    upstream.script("XA COMMIT 'g'", "INSERT INTO d.t VALUES (2)")
    store = store_of_upstream(tmp_path / "store", upstream)
    rows = pa.table({"id": pa.array([1], pa.int32())})
    pq.write_table(rows, tmp_path / "copy.parquet")
    options = options_of(store, "d.t", startGtid=str(begin))
    done = keep_state(options, tmp_path / "t", copy=tmp_path / "copy.parquet")
    assert not done.is_complete
    assert "it was prepared before the target begins" in done.doubt


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_old_values_of_a_dropped_column_do_not_come_back(
    make_upstream: MakeMariaDB, tmp_path: Path, sink: str
) -> None:
    """A run behind the DROP, another behind the ADD."""
    upstream = make_upstream(FULL)
    run_all(upstream, {"x": CASES["drop"]})
    target = tmp_path / "t"
    first = kept(store_of_upstream(tmp_path / "1", upstream), target, "c_x.t", sink)
    assert isinstance(first, Kept)
    upstream.script("USE c_x", "ALTER TABLE t ADD a INT", "INSERT INTO t VALUES (9,9,9)")
    second = kept(store_of_upstream(tmp_path / "2", upstream), target, "c_x.t", sink)
    assert isinstance(second, Kept)
    rows = rows_of(sink, target)
    assert comparable(rows.to_pylist()) == asked(upstream, "c_x.t")


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_minimal_images_behind_a_copy_are_in_doubt(
    make_upstream: MakeMariaDB, tmp_path: Path, sink: str
) -> None:
    """The log does not say whether columns are VIRTUAL."""
    upstream = make_upstream(FULL)
    run_all(upstream, {"x": Case(SAME, CASES["minimal"].statements[:3])})
    begin = upstream.gtid_binlog_pos
    schema = pa.schema([("id", pa.int32()), ("a", pa.int32())])
    rows = pa.Table.from_pylist(upstream.q("SELECT * FROM c_x.t"), schema)
    pq.write_table(rows, tmp_path / "copy.parquet")
    upstream.script("USE c_x", "SET binlog_row_image=MINIMAL", "UPDATE t SET a=5 WHERE id=1")
    store = store_of_upstream(tmp_path / "store", upstream)
    options = options_of(store, "c_x.t", startGtid=str(begin))
    target = place(sink, tmp_path / "t")
    done = keep_state(options, target, sink=sink, copy=tmp_path / "copy.parquet")
    assert not done.is_complete
    assert "has not logged all columns" in done.doubt


def test_names_that_come_late_are_not_mixed_with_none(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream("--binlog-row-metadata=NO_LOG")
    run_all(upstream, {"x": Case(SAME, CASES["truncate"].statements[:2])})
    upstream.script("SET GLOBAL binlog_row_metadata=FULL", "INSERT INTO c_x.t VALUES (3,3)")
    said = kept(store_of_upstream(tmp_path / "store", upstream), tmp_path / "t", "c_x.t")
    assert isinstance(said, str)
    assert "no names of columns" in said


@pytest.mark.parametrize("seeded", [False, True])
def test_columns_of_a_log_without_names(
    make_upstream: MakeMariaDB, tmp_path: Path, seeded: bool
) -> None:
    """A seed takes (id, a) for (id, b): by types they are the same."""
    upstream = make_upstream("--binlog-row-metadata=NO_LOG")
    statements = (
        *CASES["truncate"].statements[:2], "ALTER TABLE t DROP a", "ALTER TABLE t ADD b INT",
        "INSERT INTO t VALUES (3,3)",
    )  # fmt: skip
    run_all(upstream, {"x": Case(REFUSED, statements)})
    store = store_of_upstream(tmp_path / "store", upstream)
    more = {}
    if seeded:
        seed = tmp_path / "seed.json"
        write_ddl_seed(SourceOptions.parse({"path": str(store)}), seed, Engine("local", workers=1))
        more["schemaSeed"] = str(seed)
    options = options_of(store, "c_x.t", **more)
    with pytest.raises(NonRowChange, match="the log has no names of them"):
        keep_state(options, tmp_path / "t", keys=["id" if seeded else "@1"])


def test_statements_have_to_be_asked_for(tmp_path: Path) -> None:
    options = SourceOptions.parse({"path": str(tmp_path), "view": "changes", "table": "d.t"})
    with pytest.raises(BadOption, match="ops=c,u,d,t,x"):
        keep_state(options, tmp_path / "t")


@pytest.mark.any_version
def test_any_ddl(make_upstream: MakeMariaDB, tmp_path: Path, rng: random.Random) -> None:
    """State is what the server has, or says that it cannot be."""
    upstream = make_upstream(FULL)
    upstream.script("CREATE DATABASE d", "CREATE DATABASE e")
    ddl = AnyDdl(rng)
    told: Counter[str] = Counter()
    for number in range(8 if backends.full_matrix() else 3):
        with upstream.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode='NO_ENGINE_SUBSTITUTION', foreign_key_checks=0")
            for _ in range(25):
                there = columns_there(upstream)
                is_wild = len(there) < 5 or rng.random() < 0.05
                try_all(cursor, ddl.statement(there) if is_wild else tame(rng, there))
                for name, columns in columns_there(upstream).items():
                    if name[1] != BETWEEN and rng.random() < 0.5:
                        table, column = table_text(name), quoted(rng.choice(columns))
                        value = rng.choice(("1", "5", "NULL"))
                        try_all(cursor, f"INSERT INTO {table} () VALUES ()")
                        try_all(cursor, f"UPDATE {table} SET {column} = {value}")
        store = store_of_upstream(tmp_path / f"store{number}", upstream)
        for name, columns in columns_there(upstream).items():
            told[state_of_any(upstream, store, tmp_path / f"{number}_{name}", name, columns)] += 1
    print(f"{ddl.count} wild statements; states: {told}")


def state_of_any(
    upstream: MariaDB, store: Path, target: Path, name: tuple[str, str], columns: Sequence[str]
) -> str:
    """What came of it; where it says that it is right, it is."""
    try:
        done = keep_state(options_of(store, ".".join(name), zeroDate="string"), target)
    except PipelineError:
        return REFUSED
    rows = read_state(target)[0]
    wanted = ", ".join(map(quoted, columns))  # by name: * leaves INVISIBLE columns out
    want = rows_there(
        upstream, f"SELECT {wanted} FROM {table_text(name)}{versions(upstream, name)}"
    )
    new = [column for column in columns if column not in rows.column_names]  # since the last row
    both = [column for column in columns if column not in new]
    is_same = sketch(rows.to_pylist(), both) == sketch(want, both) and all(
        row[column] is None for row in want for column in new
    )
    assert is_same or not done.is_complete, (name, rows.to_pylist(), want)
    return SAME if done.is_complete else DOUBT


def tame(rng: random.Random, there: dict[tuple[str, str], list[str]]) -> str:
    """A statement behind which most often the rows are known."""
    name, columns = rng.choice([*there.items()])
    table, column = table_text(name), quoted(rng.choice(columns))
    new = f"{quoted(rng.choice(NAMES))} {rng.choice(TYPES)}"
    match rng.randrange(7):
        case 0 | 1 | 2:
            return f"ALTER TABLE {table} ADD {new}{rng.choice(('', ' FIRST', f' AFTER {column}', ' NOT NULL'))}"
        case 3:
            return f"ALTER TABLE {table} DROP COLUMN {column}"
        case 4:
            return f"ALTER TABLE {table} ADD KEY ({column}), COMMENT='x'"
        case 5:
            return f"TRUNCATE {table}"
    return f"CREATE OR REPLACE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, {new})"


def columns_there(upstream: MariaDB) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in upstream.q(
        "SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t, COLUMN_NAME AS c FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA IN ('d', 'e') ORDER BY d, t, ORDINAL_POSITION"
    ):
        found.setdefault((row["d"], row["t"]), []).append(row["c"])
    return found


def try_all(cursor: Any, sql: str) -> None:
    """Servers refuse some."""
    with contextlib.suppress(pymysql.MySQLError):
        cursor.execute(sql)


def sketch(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Counter[str]:
    """Where values are null, and what numbers they are: values of other types are for other tests."""

    def of(value: Any) -> Any:
        if value is None or type(value) is int or isinstance(value, Decimal):
            return None if value is None else int(value)
        return "some"

    return Counter(str([of(row[name]) for name in columns]) for row in rows)
