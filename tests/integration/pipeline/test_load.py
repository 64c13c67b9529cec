"""Tables that are loaded from a real server: the rows that its log gives, joined with it at any moment of a load."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.errors import (
    BadOption,
    DataLost,
    IncompleteImage,
    NonRowChange,
    SchemaChanged,
    SourceError,
)
from binlog_pipeline.jobs import load as loading
from binlog_pipeline.jobs.load import KeyPiece, ReadPiece, load, tables_of
from binlog_pipeline.jobs.state import OPS, keep_state
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.asked import asked_table, described, encoded
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.tables.manifest import StateManifest
from binlog_pipeline.targets import TABLE_SINKS
from binlog_pipeline.views.reading import open_view
from binlog_pipeline.views.view import View
from binlog_pipeline.wanted import unreached
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_protocol.row_columns import ColumnOptions, result_rows
from binlog_protocol.row_columns.result_rows import ResultColumns, selected
from binlog_protocol.sql.token_reader import TableName

from binlog_server.testing.mariadb import MariaDB
from tests.integration.pipeline import sources
from tests.integration.rows.test_columns import decoded
from tests.integration.rows.test_values import SESSION, create, insert, raw_connection, tables
from tests.integration.rows.type_cases import cases_of
from tests.kit.backends import Backend
from tests.kit.commands_page import must_hold
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL
from tests.pipeline.tables import lake
from tests.pipeline.tables.lake import place
from tests.shell_blocks import blocks, calls

CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"zero_date": "string", "time": "string", "unsigned_bigint": "string", "bad_text": "binary"},
    {"time": "micros", "bit1": "boolean", "set_labels": "array"},
)


def options_of(upstream: MariaDB, table: str, **more: str) -> SourceOptions:
    said = {"view": "changes", "table": table, "ops": OPS, "schemaEvolution": "ignore"}
    return sources.options_of(upstream, None, **said, **more)


@pytest.fixture
def shop(make_upstream: MakeMariaDB) -> MariaDB:
    """A server whose account may read rows."""
    upstream = make_upstream(FULL)
    upstream.q(f"GRANT SELECT ON *.* TO `{upstream.account.user}`@'%'")
    return upstream


def rows_of(target: Path | str, sink: str = "parquet") -> list[dict[str, Any]]:
    return sorted(lake.rows_of(sink, target).to_pylist(), key=str)


def kept_from_log(upstream: MariaDB, table: str, target: Path, **more: str) -> list[dict[str, Any]]:
    """The table as the log alone makes it."""
    keep_state(options_of(upstream, table, **more), target)
    return rows_of(target)


@pytest.mark.any_version
def test_values_are_those_of_row_events(backend: Backend, shop: MariaDB, tmp_path: Path) -> None:
    """Every column type with its extremes, with each choice of what values become."""
    names = []
    with raw_connection(shop) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE OR REPLACE DATABASE d")
        for table, some in tables(cases_of(backend.version)):
            cursor.execute(create(table, some))
            insert(cursor, table, some)
            names.append(table)
    address = ServerAddress.of(options_of(shop, "d.t0"))
    with closing(ServerLink.open(address)) as link:
        for sql in result_rows.SESSION:
            link.query(sql)
        for choice in CHOICES:
            options = ColumnOptions(**choice)  # type: ignore[arg-type]
            found = {f"d.{one.table.table}": one for one in decoded(shop, "", options)}
            for table in names:
                asked = asked_table(link.query, TableName(*table.split(".")))
                columns = ResultColumns(asked.map, asked.types, options)
                shown = ", ".join(map(selected, asked.names, asked.types))
                have = columns.batch([*link.rows(f"SELECT {shown} FROM {table} ORDER BY id")])
                want = found[table].after
                assert want is not None
                assert have.schema == want.schema
                for name in want.schema.names:
                    values = [one.column(name).to_pylist() for one in (have, want)]
                    assert str(values[0]) == str(values[1]), (table, name)
                assert described(encoded(asked.map)) == asked.map


TABLE = "d.`t ü`"
NAME = "d.t ü"
COLUMNS = "a VARCHAR(20) COLLATE utf8mb4_general_ci, b INT UNSIGNED, v TEXT, n INT DEFAULT 7, PRIMARY KEY (a, b)"


def change(cursor: Any, rng: random.Random) -> None:
    """A random change of the table: rows come, go, and get other keys."""
    a, b = f"k'{rng.randint(0, 30)}\u20ac", rng.randint(0, 9)
    where = f"a = '{pymysql.converters.escape_string(a)}' AND b = {b}"
    match rng.choice("iiiudk"):
        case "i":
            cursor.execute(
                f"INSERT INTO {TABLE} (a, b, v) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE n = n + 1",
                (a, b, f"{rng.random()}"),
            )
        case "u":
            cursor.execute(f"UPDATE {TABLE} SET v = '{rng.random()}', n = n + 1 WHERE {where}")
        case "d":
            cursor.execute(f"DELETE FROM {TABLE} WHERE {where}")
        case _:
            with contextlib.suppress(pymysql.err.IntegrityError):
                cursor.execute(f"UPDATE {TABLE} SET b = b + 5, a = UPPER(a) WHERE {where}")


@contextlib.contextmanager
def changing(upstream: MariaDB, seed: int) -> Iterator[None]:
    """Changes a table while the block runs."""
    stop = threading.Event()

    def run() -> None:
        rng = random.Random(seed)
        with upstream.connect() as connection, connection.cursor() as cursor:
            while not stop.wait(0.004):
                change(cursor, rng)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def made(upstream: MariaDB, rng: random.Random, changes: int = 400) -> None:
    """The table with some rows; the log begins with its CREATE TABLE."""
    upstream.script("CREATE DATABASE d CHARACTER SET utf8mb4", f"CREATE TABLE {TABLE} ({COLUMNS})")
    with upstream.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for _ in range(changes):
            change(cursor, rng)
        cursor.execute("COMMIT")


def test_the_log_goes_on_meanwhile(
    shop: MariaDB, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads while rows change, into all sinks, again and again: what `state` makes of it is the table."""
    lake.configure(monkeypatch, tmp_path)
    made(shop, rng)
    options = options_of(shop, NAME)
    with changing(shop, rng.randrange(1 << 30)):
        for again in (False, True):
            for sink in TABLE_SINKS:
                target = place(sink, tmp_path / sink)
                before = position_of(shop)
                done = load(
                    options,
                    target,
                    sink=sink,
                    again=again,
                    piece_rows=7,
                    staging=tmp_path / "staging" if sink == "iceberg" else None,
                )
                assert done.is_new
                assert done.kept.is_complete
                assert not unreached(before, done.kept.position)
                keep_state(
                    options, target, sink=sink
                )  # it goes on with the table as anybody else's
        untouched = load(options, tmp_path / "parquet")
        assert not untouched.is_new
    wanted = kept_from_log(shop, NAME, tmp_path / "whole")
    for sink in TABLE_SINKS:
        assert keep_state(options, place(sink, tmp_path / sink), sink=sink).is_complete
        assert rows_of(tmp_path / sink, sink) == wanted
    assert len(wanted) == int(shop.value(f"SELECT COUNT(*) FROM {TABLE}"))
    assert not (tmp_path / "parquet" / loading.STAGING / "plan.json").exists()


def dying(options: SourceOptions, target: Path, sink: str, again: bool, last: int) -> None:
    """Loads, and dies by a SIGKILL in front of a step on the disk."""
    steps = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > last:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments, **more)

        return counting

    for name in ("fsync", "link", "replace", "rename", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    load(options, target, sink=sink, again=again, piece_rows=9)


def killed(*arguments: Any) -> bool:
    """Whether `dying` has died."""
    process = FORKS.Process(target=dying, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


def check_kills(shop: MariaDB, folder: Path, rng: random.Random, steps: Iterable[int]) -> int:
    """Kills loads, each in front of one of these steps; the number of those that died."""
    made(shop, rng, 60)
    options = options_of(shop, NAME)
    deaths = 0
    with shop.connect() as connection, connection.cursor() as cursor:
        for number in steps:
            target = folder / f"{number}"
            for again in (False, True):
                deaths += killed(options, target, "parquet", again, number)
                for _ in range(5):
                    change(cursor, rng)
                before = newest(target)
                done = load(options, target, again=again, piece_rows=9)
                assert before is None or not unreached(before, done.kept.position)
                shown = f"behind step {number}"
                assert keep_state(options, target).is_complete, shown
                whole = kept_from_log(shop, NAME, folder / "whole")
                assert rows_of(target) == whole, shown
    return deaths


def newest(target: Path) -> SlavePosition | None:
    """Where a target stands, if it was ever published."""
    manifest = StateManifest.newest(target)
    return None if manifest is None else manifest.slave_position


def test_killed(shop: MariaDB, tmp_path: Path, rng: random.Random) -> None:
    """By kill -9, at some steps; the next run goes on, and the table is right."""
    assert check_kills(shop, tmp_path, rng, rng.sample(range(60), 2)) >= 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_each_step(shop: MariaDB, tmp_path: Path, rng: random.Random) -> None:
    assert check_kills(shop, tmp_path, rng, range(150)) > 100


def position_of(upstream: MariaDB) -> SlavePosition:
    return SlavePosition.parse(upstream.gtid_binlog_pos)


def test_a_log_that_has_gone_meanwhile(
    shop: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a load that was killed, behind whose beginning nothing can be read any more: it is begun anew, once."""
    shop.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT)")
    shop.script("INSERT INTO d.t VALUES (1, 10), (2, 20)")
    options = options_of(shop, "d.t")
    with monkeypatch.context() as patched:
        patched.setattr(loading, "_begin_state", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            load(options, tmp_path / "t")
    shop.script(
        "UPDATE d.t SET a = 11 WHERE id = 1", "RESET MASTER", "DELETE FROM d.t WHERE id = 2"
    )
    assert load(options, tmp_path / "t").rows == 1
    assert rows_of(tmp_path / "t") == shop.q("SELECT * FROM d.t")
    tries = []

    def lost(*_: Any) -> None:
        tries.append(1)
        raise DataLost("purged")

    monkeypatch.setattr(loading, "_refuse_ddl", lost)
    with pytest.raises(DataLost, match="purged"):
        load(options, tmp_path / "t", again=True)
    assert len(tries) == 1


def test_rows_of_another_history(
    shop: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server had, from which rows were read, the one behind a failover must have, too."""
    shop.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT)")
    shop.script("INSERT INTO d.t VALUES (1, 10), (2, 20)")
    options = options_of(shop, "d.t")
    with monkeypatch.context() as patched:
        patched.setattr(loading, "_begin_state", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            load(options, tmp_path / "t")
    rows = tmp_path / "t" / loading.STAGING / "rows"
    (piece,) = [KeyPiece(0, None, None, str(path)) for path in rows.glob("*.parquet")]
    address = loading._server_of(options)
    last = Gtid.parse(shop.gtid_binlog_pos)
    loading._require_one_history(BinlogState([last]), [piece], address)
    lacking = last._replace(seq_no=last.seq_no - 1), last._replace(server_id=last.server_id + 1)
    for other in lacking:
        with pytest.raises(DataLost, match=f"does not have {last}"):
            loading._require_one_history(BinlogState([other]), [piece], address)
    # Such a load is begun anew, once.
    states = iter([BinlogState([lacking[0]])])
    whole = ServerLink.binlog_state
    with monkeypatch.context() as patched:
        patched.setattr(ServerLink, "binlog_state", lambda link: next(states, None) or whole(link))
        shop.script("DELETE FROM d.t WHERE id = 2")
        assert load(options, tmp_path / "t").rows == 1
    assert next(states, None) is None
    assert rows_of(tmp_path / "t") == shop.q("SELECT * FROM d.t")


def test_altered_meanwhile(shop: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit together is read anew; a table that is altered all the time is given up."""
    shop.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT)")
    shop.script("INSERT INTO d.t VALUES (1, 10), (2, 20), (3, 30)")
    options = options_of(shop, "d.t")
    wanted = [
        ["ALTER TABLE d.t ADD b INT DEFAULT 5"],
        [
            "ALTER TABLE d.t MODIFY a BIGINT",
            "ALTER TABLE d.t MODIFY a INT",
        ],  # as it was, at the end
        ["RENAME TABLE d.t TO d.u", "RENAME TABLE d.u TO d.t"],
    ]
    done = loading.ReadPiece.__call__
    for statements in wanted:
        left = list(statements)

        def read(task: ReadPiece, piece: KeyPiece, left: list[str] = left) -> int:
            count = done(task, piece)
            while left:
                shop.q(left.pop(0))
            return count

        monkeypatch.setattr(loading.ReadPiece, "__call__", read)
        load(options, tmp_path / "t", again=True, piece_rows=2)
        assert not left
        keep_state(options, tmp_path / "t")
        assert rows_of(tmp_path / "t") == sorted(shop.q("SELECT * FROM d.t"), key=str)

    def always(task: ReadPiece, piece: KeyPiece) -> int:
        shop.q("ALTER TABLE d.t COMMENT 'x', MODIFY a BIGINT")
        shop.q("ALTER TABLE d.t MODIFY a INT")
        return done(task, piece)

    monkeypatch.setattr(loading.ReadPiece, "__call__", always)
    with pytest.raises(SourceError, match="altered while it was read, 3 times"):
        load(options, tmp_path / "t", again=True)
    assert rows_of(tmp_path / "t") == sorted(shop.q("SELECT * FROM d.t"), key=str)


def test_an_update_meanwhile_that_does_not_say_all(
    make_upstream: MakeMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB 11.8.9 logs no computed column of an UPDATE: what was read before is of no use, and is read anew."""
    shop = make_upstream(FULL, version="11.8")
    shop.q(f"GRANT SELECT ON *.* TO `{shop.account.user}`@'%'")
    shop.script(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, s INT AS (a * 3) STORED)"
    )
    shop.q("INSERT INTO d.t (id, a) VALUES (1, 10), (2, 20), (3, 30)")
    options = options_of(shop, "d.t")
    done, left = loading.ReadPiece.__call__, [3]

    def read(task: ReadPiece, piece: KeyPiece) -> int:
        count = done(task, piece)
        if left[0]:
            left[0] -= 1
            shop.q("UPDATE d.t SET a = a + 1")
        return count

    monkeypatch.setattr(loading.ReadPiece, "__call__", read)
    with pytest.raises(IncompleteImage, match="does not say what is in column s"):
        load(options, tmp_path / "t")
    assert not left[0]
    left[0] = 2
    assert load(options, tmp_path / "t").kept.is_complete
    assert not left[0]
    assert rows_of(tmp_path / "t") == sorted(shop.q("SELECT * FROM d.t"), key=str)


def test_no_row_in_the_log(
    shop: MariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log begins behind the rows: the table is described by the server, and followed from there."""
    shop.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, s ENUM('x', 'y'))",
        "INSERT INTO d.t VALUES (1, 10, 'x'), (2, NULL, 'y')",
        "CREATE TABLE d.parent (id INT PRIMARY KEY)",
        "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "RESET MASTER",
        "CREATE DATABASE other",
    )
    options = options_of(shop, "d.t")
    target = tmp_path / "t"

    def is_right() -> bool:
        done = keep_state(options, target)
        return done.is_complete and rows_of(target) == sorted(shop.q("SELECT * FROM d.t"), key=str)

    assert load(options, target).kept.is_complete
    assert is_right()
    for sql in (
        "ALTER TABLE d.t ADD b BIGINT DEFAULT 5",
        "ALTER TABLE d.t MODIFY b INT, CHANGE a aa DECIMAL(10,2)",  # another run has read the one before
        "INSERT INTO d.t (aa, s) VALUES (1.5, 'y')",
        "RENAME TABLE d.t TO d.t2; RENAME TABLE d.t2 TO d.t",
        "TRUNCATE TABLE d.t",
        "INSERT INTO d.t (aa, s) VALUES (2.5, 'x')",
    ):
        shop.script(*sql.split("; "))
        assert is_right(), sql
    child = load(options_of(shop, "d.child"), tmp_path / "child").kept
    assert not child.is_complete  # engines log no row of what cascades
    assert "FOREIGN KEY" in child.doubt
    shop.q("ALTER TABLE d.t ADD c INT AS (aa + 1) VIRTUAL")
    with pytest.raises(NonRowChange, match="begin a new target"):
        keep_state(options, target)
    assert mend(shop, target.parent, capsys) == 0
    assert is_right()


def test_a_stream_of_a_table_without_a_row_in_the_log(shop: MariaDB) -> None:
    """It is opened with the columns that the server shows, and ends where rows with others come."""
    shop.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, id INT PRIMARY KEY, u UUID)",
        "INSERT INTO d.t VALUES (1, 10, NULL)",
        "RESET MASTER",
        "CREATE TABLE d.other (id INT PRIMARY KEY)",
    )
    options = sources.options_of(shop, None, view="changes", table="d.t", ops=OPS)

    def opened(table: str = "d.t") -> tuple[View, LogSource]:
        found = open_source(options)
        return open_view(replace(options, table=table), found), found

    def rows(view: View, source: LogSource) -> list[tuple[Any, ...]]:
        wanted = options.wanted.between(source.earliest(), source.latest())
        read = (one.read() for one in source.slices(wanted, options.partition_bytes))
        found = [
            row for groups in read for batch in view.batches(groups) for row in batch.to_pylist()
        ]
        return [(row["_op"], row["_key"], row["after"]) for row in found]

    view, source = opened()
    assert rows(view, source) == []
    shop.q("INSERT INTO d.t VALUES (2, 20, NULL)")
    assert rows(view, source) == [("c", {"id": 20}, {"a": 2, "id": 20, "u": None})]
    assert view.schema == opened()[0].schema
    shop.script("ALTER TABLE d.t ADD b INT", "INSERT INTO d.t VALUES (3, 30, NULL, 3)")
    with pytest.raises(SchemaChanged, match="load it again and restart the query"):
        rows(view, source)
    for other in ("d.none", "d.T"):
        with pytest.raises(BadOption, match=f"has no row of {other}.*needs SELECT"):
            opened(other)


def mend(shop: MariaDB, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """By the command; the table is taken to where it keeps it, and back."""
    (folder / "d").mkdir()
    (folder / "t").rename(folder / "d" / "t")
    try:
        source = f"mariadb://{shop.account.user}@{shop.host}:{shop.port}"
        arguments = ["--again", "d.t", "--target", str(folder), "--json"]
        os.environ["LOAD_TEST_PASSWORD"] = shop.account.password
        code = main(
            [
                "load",
                source,
                *arguments,
                "--tls",
                "disabled",
                "--password-env",
                "LOAD_TEST_PASSWORD",
            ]
        )
        (said,) = json.loads(capsys.readouterr().out)
        assert (said["table"], said["rows"], said["loaded"], said["complete"]) == (
            "d.t",
            1,
            True,
            True,
        )
        return code
    finally:
        (folder / "d" / "t").rename(folder / "t")


def test_names_and_tables_beside_one_that_cannot_be_loaded(
    shop: MariaDB,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the command, with names that have dots and backticks; the tables behind one without a key are loaded."""
    shop.script(
        "CREATE DATABASE `d.e`",
        "CREATE TABLE `d.e`.bare (id INT)",
        "CREATE TABLE `d.e`.`t.``x``. \u8868` (id INT PRIMARY KEY)",
        "INSERT INTO `d.e`.`t.``x``. \u8868` VALUES (1), (2)",
        "CREATE TABLE `d.e`.`u``` (id INT PRIMARY KEY)",
    )
    monkeypatch.setenv("LOAD_TEST_PASSWORD", shop.account.password)
    source = f"mariadb://{shop.account.user}@{shop.host}:{shop.port}"
    login = ["--tls", "disabled", "--password-env", "LOAD_TEST_PASSWORD"]
    target = str(tmp_path / "lake")
    assert main(["load", source, "--tables", "`d.e`.*", "--target", target, *login]) == 1
    said = capsys.readouterr()
    assert "`d.e`.bare is not loaded: d.e.bare has no primary key" in said.err
    assert "`d.e`.`t.``x``. \u8868`: 2 rows" in said.out
    assert "`d.e`.u`: 0 rows" in said.out
    kept = tmp_path / "lake" / "d.e" / "t.`x`. \u8868"
    shop.q("INSERT INTO `d.e`.`t.``x``. \u8868` VALUES (3)")
    shop.q("RENAME TABLE `d.e`.`t.``x``. \u8868` TO `d.e`.`n.n`")
    for table in ("`d.e`.`t.``x``. \u8868`", "`d.e`.`n.n`"):
        code = main(["state", source, str(kept), "--table", table, *login])
        assert code == (1 if "x" in table else 0), capsys.readouterr()
    assert [row["id"] for row in rows_of(kept)] == [1, 2, 3]


def test_refused(shop: MariaDB, tmp_path: Path) -> None:
    """What cannot be joined, before a row is read; and nothing is left of it."""
    shop.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.bare (id INT)",
        "CREATE TABLE d.t (id INT PRIMARY KEY, at TIME)",
        "CREATE VIEW d.v AS SELECT 1",
        "CREATE TABLE d.labels (id INT PRIMARY KEY, e ENUM('\u00e4') CHARACTER SET binary)",
        "CREATE TABLE d.ids (id INT PRIMARY KEY, a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, "
        "b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b)) WITH SYSTEM VERSIONING",
    )

    def refused(table: str, what: str, **more: Any) -> None:
        with pytest.raises((SourceError, BadOption), match=what):
            load(options_of(shop, table), tmp_path / table, **more)

    refused("d.bare", "no primary key")
    refused("d.t", "no column x", keys=["x"])
    refused("d.labels", "what its labels are")
    refused("d.ids", "versioned by transaction ids")
    refused("d.none", "has no table")
    refused("d.v", "has no table")
    refused("d.t", "Delta has no type", sink="delta")
    refused("d.t", "keeps no table", sink="changes")
    for name, value, what in (
        ("binlog_row_metadata", "MINIMAL", "names of columns"),
        ("binlog_format", "MIXED", "binlog_format=ROW"),
    ):
        was = shop.value(f"SELECT @@GLOBAL.{name}")
        shop.q(f"SET GLOBAL {name} = '{value}'")
        refused("d.t", what)
        shop.q(f"SET GLOBAL {name} = '{was}'")
    shop.q("INSERT INTO d.bare VALUES (1), (1)")
    refused("d.bare", "two rows of one key", keys=["id"])
    with pytest.raises(BadOption, match="running server"):
        load(SourceOptions.parse({"path": str(tmp_path)}), tmp_path / "t")
    with pytest.raises(BadOption, match=r"shows no table of d\.q"):
        tables_of(options_of(shop, "d.t"), ["d.q*"])
    assert not read_manifests(tmp_path)


def read_manifests(folder: Path) -> list[Path]:
    return [*folder.glob("*/_manifests/*")]


def test_large_rows(shop: MariaDB, tmp_path: Path) -> None:
    """Larger than what is collected of other answers, and than one packet."""
    shop.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.large (id INT PRIMARY KEY, a LONGBLOB, b LONGTEXT)",
        "INSERT INTO d.large VALUES (1, REPEAT('x', 1500000), NULL), (2, REPEAT('y', 17000000), REPEAT('z', 20000000))",
    )
    load(options_of(shop, "d.large"), tmp_path / "large")
    shop.q("UPDATE d.large SET id = 3 WHERE id = 2")
    keep_state(options_of(shop, "d.large"), tmp_path / "large")
    found = read_state(tmp_path / "large")[0].sort_by("id").to_pylist()
    assert [(row["id"], len(row["a"]), row["b"] and len(row["b"])) for row in found] == [
        (1, 1_500_000, None),
        (3, 17_000_000, 20_000_000),
    ]


def test_versions_and_other_keys(shop: MariaDB, tmp_path: Path) -> None:
    """All versions of rows; keys that no statement can name a bound of; pieces by text that compares alike; labels that
    servers take without strict mode alone."""
    shop.script(
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.v (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
        "INSERT INTO d.v VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE d.v SET a = a + 1 WHERE id < 3",
        "DELETE FROM d.v WHERE id = 1",
        "CREATE TABLE d.e (e ENUM('b', 'a'), u INT, PRIMARY KEY (e, u))",
        "INSERT INTO d.e VALUES ('a', 1), ('b', 1), ('a', 2)",
        "CREATE TABLE d.s (s VARCHAR(9) COLLATE utf8mb4_uca1400_ai_ci, t TIMESTAMP(3), d DECIMAL(9,3), b VARBINARY(3),"
        " PRIMARY KEY (s, t, d, b))",
        "INSERT INTO d.s SELECT s, t, d, b FROM (SELECT 'a' s UNION SELECT 'Ä''x' UNION SELECT 'z' UNION SELECT '') w,"
        " (SELECT '2000-01-01 00:00:00.5' t UNION SELECT '2030-06-01 12:00:00.25') x,"
        " (SELECT -1.5 d UNION SELECT 2) y, (SELECT '' b UNION SELECT X'00' UNION SELECT X'ff') z",
        "SET sql_mode=''",
        "CREATE TABLE d.l (id INT PRIMARY KEY, e ENUM('a', 'A'), s SET('b', 'B', 'c'))",
        "INSERT INTO d.l VALUES (1, 2, 7), (2, 1, 2)",
    )
    for table, rows in (("d.v", 5), ("d.e", 3), ("d.s", 48), ("d.l", 2)):
        target = tmp_path / table
        assert load(options_of(shop, table), target, piece_rows=5).rows == rows
        assert rows_of(target) == kept_from_log(shop, table, tmp_path / f"{table}.log")


def test_the_page(
    shop: MariaDB,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commands of docs/lake.md, as they stand there; the catalog's warehouse is a folder."""
    lake.configure(monkeypatch, tmp_path)
    shop.script(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE shop.users (id INT PRIMARY KEY)",
        "INSERT INTO shop.orders VALUES (1, 10)",
        "INSERT INTO shop.users VALUES (1), (2)",
        "RESET MASTER",
    )
    (tmp_path / "password").write_text(shop.account.password)
    words = {
        "mariadb://repl@db1:3306": f"mariadb://{shop.account.user}@{shop.host}:{shop.port}",
        "/etc/binlog/repl.password": str(tmp_path / "password"),
        "/lake": str(tmp_path),
        "/lake/shop/orders": str(tmp_path / "shop" / "orders"),
        "/var/tmp/load": str(tmp_path / "staging"),
    }
    done = 0
    for block in blocks("docs/lake.md"):
        if block.mark == "run by":
            for _, *arguments in calls(block.text):
                assert main([words.get(word, word) for word in arguments]) == 0
                done += 1
            shop.q("INSERT IGNORE INTO shop.orders VALUES (2, 20)")
    assert done == 5
    assert [row["id"] for row in rows_of("iceberg://lake/shop/orders", "iceberg")] == [1, 2]
    assert [row["id"] for row in rows_of(tmp_path / "shop" / "orders")] == [1, 2]
    assert len(rows_of(tmp_path / "shop" / "users")) == 2
    said = capsys.readouterr().out
    for line in ("shop.orders: 1 rows", "shop.users: 2 rows", "shop.orders: 2 rows"):
        assert line in said
    arguments = ["load", words["mariadb://repl@db1:3306"], "--target", str(tmp_path)]
    arguments += ["--password-file", str(tmp_path / "password")]
    assert main(arguments) == 2
    assert main([*arguments, "--tables", "shop.*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["loaded"] for one in found] == [False, False]
    for one in found:
        must_hold("binlog-spark", "load", one)
    shop.q("CREATE TABLE shop.later (id INT PRIMARY KEY)")
    arguments += ["--tables", "shop.*", "--again", "shop.users", "--dry-run"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for one in found:
        must_hold("binlog-spark", "load --dry-run", one)
    read = {one["table"]: (one["loaded"], one["position"] is None) for one in found}
    assert read == {
        "shop.orders": (False, False),
        "shop.users": (True, False),
        "shop.later": (True, True),
    }
    assert not (tmp_path / "shop" / "later").exists()
    assert main(arguments) == 0
    assert f"shop.later: {tmp_path / 'shop' / 'later'} would be loaded" in capsys.readouterr().out
