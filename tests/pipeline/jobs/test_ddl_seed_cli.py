"""binlog-spark schema --seed-from-ddl: from each kind of source, what it prints, and what is wrong usage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.jobs.ddl_seed import ddl_catalog
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.seed_writing import write_tables
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.gtid import Gtid

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import make_store, store_of_upstream
from tests.pipeline.view_rows import MINIMAL, rows_of

Capture = pytest.CaptureFixture[str]
ONE = ("--workers", "1")


def output(capsys: Capture, *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def ddl_store(directory: Path, *statements: str) -> Path:
    """A store of statements that no server ran."""
    groups = []
    for number, sql in enumerate(statements, 1):
        gtid = Gtid(0, 1, number)
        begin = GtidEvent(gtid, GtidFlags.STANDALONE | GtidFlags.DDL).build()
        groups.append((begin + QueryEvent(sql.encode(), 1, b"d").build(), gtid))
    return make_store(directory, groups)


def test_each_source_gives_the_same_file(
    capsys: Capture,
    tmp_path: Path,
    make_upstream: MakeMariaDB,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = make_upstream(MINIMAL, server_id=1)
    upstream.script(
        "CREATE DATABASE d CHARACTER SET latin1",
        "CREATE TABLE d.t (id INT PRIMARY KEY, u UUID)",
        "INSERT INTO d.t VALUES (1, '00000000-0000-0000-0000-00000000000f')",
        "ALTER TABLE d.t ADD s VARCHAR(9) FIRST",
        "INSERT INTO d.t VALUES ('x', 2, NULL)",
        "CREATE TABLE d.sized (a INT)",
        "CREATE TABLE d.hidden (a TEXT UNIQUE)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    archive = str(tmp_path / "archive")
    output(capsys, "archive", str(store), archive, "--include-tail", *ONE)
    account = upstream.account
    monkeypatch.setenv("BINLOG_PASSWORD", account.password)
    server = f"mariadb://{account.user}@{upstream.host}:{upstream.port}"
    files = [tmp_path / f"seed{i}.json" for i in range(3)]
    said = [
        output(capsys, "schema", source, "--seed-from-ddl", str(file), *ONE, *connection)
        for source, file, connection in (
            (str(store), files[0], ()),
            (archive, files[1], ()),
            (server, files[2], ("--password-env", "BINLOG_PASSWORD")),
        )
    ]
    lines = said[0].splitlines()
    assert lines[:2] == ["d.sized: 1 layout, 1 column", "d.t: 2 layouts, 3 columns"]
    assert lines[2].startswith("d.hidden: not known: 0-1-7: a UNIQUE key over TEXT")
    assert said[0] == said[1] == said[2]
    assert files[0].read_text() == files[1].read_text() == files[2].read_text()
    assert [*tmp_path.glob("*.new")] == []
    assert [row["after"] for row in rows_of(store, table="d.t", schemaSeed=str(files[0]))] == [
        {"s": None, "id": 1, "u": "00000000-0000-0000-0000-00000000000f"},
        {"s": "x", "id": 2, "u": None},
    ]
    first = output(
        capsys, "schema", str(store), "--seed-from-ddl", str(files[0]), "--end-gtid", "0-1-3", *ONE
    )
    assert first == "d.t: 1 layout, 2 columns\n"
    found = json.loads(files[0].read_text())["tables"]
    assert [(one["table"], one["since"], one["key"]) for one in found] == [("t", "0-1-2", ["id"])]


def test_what_is_said_of_tables(capsys: Capture, tmp_path: Path) -> None:
    store = ddl_store(
        tmp_path / "store",
        "CREATE TABLE t (a CHAR(3), b INT)",
        "ALTER TABLE t RENAME COLUMN b TO c",
        "ALTER TABLE u ADD a INT",
        "CREATE TABLE v (a INT)",
    )
    file = tmp_path / "seed.json"
    arguments = ("schema", str(store), "--seed-from-ddl", str(file), *ONE)
    said = output(capsys, *arguments, "--tables", "d.[tu],d.x")
    assert said.splitlines() == [
        "d.t: 2 layouts, 2 columns; taken for a newer layout where the log has no names: 1; "
        "not known: character set of a",
        "d.u: not known: 0-1-3: its CREATE TABLE is not there",
        "d.x: not known: no statement is about it",
    ]
    assert {one["table"] for one in json.loads(file.read_text())["tables"]} == {"t"}
    told = json.loads(output(capsys, *arguments, "--json"))
    assert [one["name"] for one in told["known"]] == ["d.t", "d.v"]
    assert [one["name"] for one in told["unknown"]] == ["d.u"]


def test_no_table_is_known(capsys: Capture, tmp_path: Path) -> None:
    store = ddl_store(tmp_path / "store", "ALTER TABLE u ADD a INT")
    file = tmp_path / "seed.json"
    file.write_text("what was there")
    assert main(["schema", str(store), "--seed-from-ddl", str(file), *ONE]) == 1
    said = capsys.readouterr()
    assert said.out == "d.u: not known: 0-1-1: its CREATE TABLE is not there\n"
    assert said.err == "binlog-spark: no table is known by the DDL there\n"
    assert file.read_text() == "what was there"


def test_wrong_usage(capsys: Capture, tmp_path: Path) -> None:
    store = str(ddl_store(tmp_path / "store", "CREATE TABLE t (a INT)"))
    seed = ("--seed-from-ddl", str(tmp_path / "seed.json"))
    for code, arguments, text in (
        (2, (), "--table DB.TABLE is needed, or --seed-from-ddl FILE"),
        (2, (*seed, "--table", "d.t"), "--tables, not --table"),
        (2, ("--table", "d.t", "--tables", "d.*"), "--tables belongs to --seed-from-ddl"),
        (2, (*seed, "--tables", "t"), "database.table"),
        (1, ("--seed-from-ddl", str(tmp_path / "none" / "seed.json")), "there is no"),
        (1, ("--seed-from-ddl", str(tmp_path)), "directory"),
    ):
        assert main(["schema", store, *arguments, *ONE]) == code
        said = capsys.readouterr().err
        assert text in said
        assert said.count("\n") == 1
    assert main(["schema", str(tmp_path / "nothing"), *seed]) == 1


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "seed.json"
    write_tables(file, [])
    before = file.read_text()
    with pytest.raises(TypeError):
        write_tables(file, [{"database": object()}])
    assert file.read_text() == before
    assert [*tmp_path.iterdir()] == [file]


def test_slices_are_put_in_order(tmp_path: Path) -> None:
    many = [
        f"CREATE OR REPLACE TABLE t (a INT COMMENT '{'x' * 4000}', b{i} INT)" for i in range(3000)
    ]
    store = ddl_store(tmp_path / "store", *many)
    options = SourceOptions.parse({"path": str(store)})
    ((_, past),) = ddl_catalog(options, Engine("local", workers=2)).known()
    assert [since.layout.columns[1].name for since in past] == [
        f"b{i}" for i in range(2999, -1, -1)
    ]


def test_write_seed_is_imported_alone() -> None:
    program = (
        "import sys, binlog_pipeline\n"
        "assert callable(binlog_pipeline.write_seed)\n"
        "heavy = {'pymysql', 'pyspark', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
