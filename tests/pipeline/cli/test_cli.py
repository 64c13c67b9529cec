"""The frame of binlog-spark, and its small commands: lag, schema, verify."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.cli import COMMANDS, main
from binlog_pipeline.errors import SourceError
from binlog_pipeline.jobs.workers import Engine, LocalWorkers
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.sinks import KeptTable, open_sink
from binlog_pipeline.targets import TABLE_SINKS
from binlog_pipeline.tasks import WorkFailed
from binlog_protocol.gtid import SlavePosition

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.exports import folded, rows_of
from tests.pipeline.stores import MakeLoggedStore, make_store, store_of_upstream
from tests.pipeline.tables import lake
from tests.storage.groups import simple

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def complaint(capsys: Capture, code: int, *arguments: str) -> str:
    """The one line on standard error."""
    try:
        ended = main(arguments)
    except SystemExit as error:  # from argparse
        ended = int(error.code or 0)
    assert ended == code
    said = capsys.readouterr().err
    assert said.startswith(("binlog-spark: ", "usage: "))
    assert said.count("\n") == 1 or said.startswith("usage: ")
    return said


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(make_store(tmp_path / "store", simple(3000, size=400)))


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from binlog_pipeline.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pyarrow', 'pyspark', 'pandas', 'matplotlib', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for command in ("stats", "export", "lag", "schema", "verify"):
        assert command in COMMANDS
        assert f"\n    {command} ".encode() in done.stdout


def test_without_spark_a_stream_names_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from binlog_pipeline.cli import main\n"
        "sys.modules.update(pyspark=None, py4j=None)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["stream", "--table", "d.t", "--from", "/a", "--to", "/b", "--checkpoint", tmp_path]
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True)
    needed = "pyspark is needed for that: pip install '.[spark]'"
    assert (done.returncode, done.stderr) == (1, f"binlog-spark: {needed}\n")


def test_each_command_has_help(capsys: Capture) -> None:
    for command in ("stats", "export", "lag", "schema", "verify"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert "SOURCE" in capsys.readouterr().out


def test_wrong_usage(capsys: Capture, store: str, tmp_path: Path) -> None:
    assert "there is no " in complaint(capsys, 1, "verify", str(tmp_path / "none"))
    assert "--password-file" in complaint(capsys, 2, "verify", "mariadb://u:secret@h:3306")
    assert "USER@HOST" in complaint(capsys, 2, "verify", "mariadb://u@h/db")
    assert "USER@HOST:PORT" in complaint(capsys, 2, "verify", "mariadb://h:3306")
    assert "binlog-spark: --start-gtid: '1-2' is no GTID position" in complaint(
        capsys, 2, "verify", store, "--start-gtid", "1-2"
    )
    assert ": --option startGtid: '1-2' is no GTID position" in complaint(
        capsys, 2, "verify", store, "--option", "startGtid=1-2"
    )
    both = ("--password-file", "x", "--password-env", "X")
    assert "--password-file and --password-env exclude each other" in complaint(
        capsys, 2, "verify", "mariadb://u@h", *both
    )
    assert "--table: 'a.b.c' is wrong: " in complaint(
        capsys, 2, "schema", store, "--table", "a.b.c"
    )
    assert "NAME=VALUE" in complaint(capsys, 2, "verify", store, "--option", "nonRow")
    assert "no option" in complaint(capsys, 2, "verify", store, "--option", "no=1")
    meant = complaint(capsys, 2, "verify", store, "--option", "longpollm=1")
    assert "did you mean 'longPollMs'?" in meant
    assert "is no whole number from 1 on" in complaint(capsys, 2, "verify", store, "--workers", "0")
    times = ("state", store, str(tmp_path / "kept"), "--table", "a.b", "--at-time", "noon")
    assert "'noon' is no time such as '2026-" in complaint(capsys, 2, *times)
    assert "'noon' is no time such" in complaint(capsys, 2, "stats", store, "--start-time", "noon")
    assert "COMMAND" in complaint(capsys, 2)


@pytest.mark.parametrize("command", ["archive", "export"])
def test_a_source_that_is_not_there_leaves_no_target(
    capsys: Capture, tmp_path: Path, command: str
) -> None:
    target = tmp_path / "target"
    complaint(capsys, 1, command, str(tmp_path / "none"), str(target))
    assert not target.exists()


def test_the_engine() -> None:
    assert not Engine().is_spark(1 << 30)
    assert Engine().is_spark(2 << 30)
    assert not Engine("local").is_spark(1 << 40)
    assert Engine("spark").is_spark(1)
    assert Engine(master="local[2]").is_spark(1)


def test_without_java_the_engine_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert not Engine().is_spark(2 << 30)
    assert Engine("spark").is_spark(2 << 30)


def fails_at_seven(number: int) -> int:
    if number == 7:
        raise SourceError("seven")
    return number * number


def test_workers() -> None:
    for count in (1, 2):
        results = dict(LocalWorkers(count).map(fails_at_seven, range(6)))
        assert results == {number: number * number for number in range(6)}
        with pytest.raises(WorkFailed, match="7: seven"):
            list(LocalWorkers(count).map(fails_at_seven, range(20)))
    assert list(LocalWorkers(2).map(fails_at_seven, [])) == []


def killed(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed() -> None:
    with pytest.raises(WorkFailed, match="fewer --workers"):
        list(LocalWorkers(2).map(killed, [1, 2]))


def test_verify(capsys: Capture, store: str) -> None:
    for workers in ("1", "2"):
        text = output(capsys, "verify", store, "--workers", workers)
        assert "0       0-1-1  0-1-3000         3,000        0" in text
        assert "sound: 3,000 transactions, 6,000 events, 0 rows, 1.1 MiB" in text
    found = json.loads(output(capsys, "verify", store, "--json", "--start-gtid", "0-1-2000"))
    assert (found["sound"], found["transactions"]) == (True, 1000)


def test_verify_names_each_damage(capsys: Capture, tmp_path: Path) -> None:
    """And goes on with the other slices: a file has one here, or more."""
    store = make_store(tmp_path / "store", simple(30_000, size=1000))
    for file, page in ((0, 30), (1, 300)):
        path = store / f"binlog-00000{file}.ibb"
        data = bytearray(path.read_bytes())
        data[page * 16384 + 77] ^= 0x10
        path.write_bytes(data)
    found = json.loads(output(capsys, "verify", str(store), "--json", "--workers", "2", code=1))
    assert not found["sound"]
    first, second = found["damage"]
    assert "page 30 in binlog number 0" in first
    assert "page 300 in binlog number 1" in second
    assert found["transactions"] < 30_000
    assert "damaged: " in output(capsys, "verify", str(store), "--workers", "1", code=1)


def test_lag(capsys: Capture, store: str, tmp_path: Path) -> None:
    assert output(capsys, "lag", store, "0-1-1000,9-9-9").splitlines()[1:] == [
        "0       0-1-1000  0-1-3000   2,000",
        "9       9-9-9     -             -9",
    ]
    target = str(tmp_path / "out")
    output(capsys, "export", store, target, "--workers", "1", "--option", "nonRow=skip")
    found = json.loads(output(capsys, "lag", store, target, "--json"))
    assert found == [{"domain": 0, "at": "0-1-3000", "latest": "0-1-3000", "behind": 0}]
    make_store(Path(store), simple(50, first=3001))
    assert main(["lag", store, target, "--max", "49"]) == 1
    assert "50 behind, 49 are allowed" in capsys.readouterr().err
    assert main(["lag", store, target, "--max", "50"]) == 0
    assert "neither a directory nor" in complaint(capsys, 2, "lag", store, "nothing")
    assert "is no export" in complaint(capsys, 2, "lag", store, str(tmp_path))


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_lag_of_a_table(
    sink: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.configure(monkeypatch, tmp_path)
    store = str(make_store(tmp_path / "store", simple(3)))
    target = str(lake.place(sink, tmp_path / "t"))
    if sink == "iceberg":
        assert "is no export" in complaint(capsys, 2, "lag", store, target)
    with open_sink(sink, target, "shop.orders", ["id"], SlavePosition()) as kept:
        assert isinstance(kept, KeptTable)
        kept.take_over(pa.table({"id": [1]}), ["id"], SlavePosition.parse("0-1-2"), Facts())
    found = json.loads(output(capsys, "lag", store, target, "--json"))
    assert found == [{"domain": 0, "at": "0-1-2", "latest": "0-1-3", "behind": 1}]


def test_lag_of_a_checkpoint(capsys: Capture, store: str, tmp_path: Path) -> None:
    """As Spark writes it: a version, metadata, an offset a source."""
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    assert "no batch" in complaint(capsys, 1, "lag", store, str(checkpoint))
    for number, seq in ((9, 500), (10, 800), (11, 900)):
        offset = json.dumps({"v": 1, "gtid": f"0-1-{seq}"})
        (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
    for number in (9, 10):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    assert "0-1-800" in output(capsys, "lag", store, str(checkpoint))


def test_a_running_server(
    capsys: Capture,
    tmp_path: Path,
    make_upstream: MakeMariaDB,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the dump protocol, with what an account of a replica may do: the same rows as from its files."""
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO d.t SELECT seq, REPEAT('v', seq) FROM d.seq_1_to_500",
    )
    account = upstream.account
    monkeypatch.setenv("BINLOG_PASSWORD", account.password)
    server = f"mariadb://{account.user}@{upstream.host}:{upstream.port}"
    connection = ("--password-env", "BINLOG_PASSWORD", "--workers", "1")
    assert "3 transactions" in output(capsys, "stats", server, *connection)
    assert "sound: 3 transactions" in output(capsys, "verify", server, *connection)
    target = tmp_path / "out"
    assert "500 rows in 1 file," in output(capsys, "export", server, str(target), *connection)
    upstream.script("DELETE FROM d.t WHERE id > 400")
    assert "BEHIND" in output(capsys, "lag", server, str(target), *connection[:2])
    assert "100 rows in 1 file," in output(capsys, "export", server, str(target), *connection)
    assert "nothing new" in output(capsys, "export", server, str(target), *connection)
    assert sorted(folded(rows_of(target, "d", "t"))) == list(range(1, 401))
    state = str(tmp_path / "state")
    output(capsys, "state", server, state, "--table", "d.t", *connection[:2])
    assert json.loads(output(capsys, "lag", server, state, "--json", *connection[:2])) == [
        {"domain": 0, "at": position, "latest": position, "behind": 0}
        for position in [upstream.gtid_binlog_pos]
    ]


def test_an_archive(capsys: Capture, tmp_path: Path, make_logged_store: MakeLoggedStore) -> None:
    store = str(
        make_logged_store(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "INSERT INTO d.t SELECT seq FROM d.seq_1_to_500",
            "DELETE FROM d.t WHERE id > 400",
        )
    )
    archive = str(tmp_path / "archive")
    output(capsys, "archive", store, archive, "--include-tail", "--workers", "1")
    for number, source in enumerate((store, archive)):
        output(capsys, "export", source, str(tmp_path / f"out{number}"), "--workers", "1")
    assert rows_of(tmp_path / "out0", "d", "t") == rows_of(tmp_path / "out1", "d", "t")
    assert "sound: 4 transactions" in output(capsys, "verify", archive, "--workers", "1")
    assert output(capsys, "lag", store, archive).endswith(" 0\n")


def test_schema(capsys: Capture, tmp_path: Path, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT UNSIGNED PRIMARY KEY, name VARCHAR(20), old DATE)",
        "INSERT INTO d.t VALUES (1, 'a', NULL)",
        "INSERT INTO d.t VALUES (2, 'd\\0t\\0d', NULL)",
        "ALTER TABLE d.t ADD COLUMN x DECIMAL(5,2), MODIFY name BLOB, DROP COLUMN old",
        "CREATE TABLE d.t2 (id INT)",
        "INSERT INTO d.t2 VALUES (1)",
        "UPDATE d.t SET x = 1 WHERE id = 1",
    )
    store = str(store_of_upstream(tmp_path / "store", upstream))
    found: list[dict[str, Any]] = json.loads(
        output(capsys, "schema", store, "--table", "d.t", "--json")
    )
    server = upstream.server_id
    assert [(one["first"], one["last"]) for one in found] == [
        (f"0-{server}-3", f"0-{server}-4"),
        (f"0-{server}-8", f"0-{server}-8"),
    ]
    assert found[0]["columns"] == {"id": "int64", "name": "string", "old": "date32[day]"}
    assert found[1]["columns"] == {"id": "int64", "name": "binary", "x": "decimal128(5, 2)"}
    assert found[1]["key"] == ["id"]
    text = output(capsys, "schema", store, "--table", "d.t", "--workers", "2")
    assert f"0-{server}-3 .. 0-{server}-4" in text
    lines = text.splitlines()
    assert any(line.split() == ["+", "x", "decimal128(5,", "2)"] for line in lines)
    assert any(line.split() == ["-", "old", "date32[day]"] for line in lines)
    assert any(line.split() == ["~", "name", "binary,", "was", "string"] for line in lines)
    assert "no row change" in complaint(capsys, 1, "schema", store, "--table", "d.none")
