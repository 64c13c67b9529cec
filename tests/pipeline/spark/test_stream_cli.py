"""The command `stream`: what it lands, and whether it says so where that may not be all that has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from binlog_pipeline.cli import main

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import store_of_upstream
from tests.pipeline.view_rows import FULL

pytestmark = pytest.mark.spark

PROGRAM = "import sys; from binlog_pipeline.cli import main; sys.exit(main())"
TEXT = "INSERT INTO t VALUES (1)"


def test_text_in_another_database_is_told_at_the_end(
    make_upstream: MakeMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trigger there may write here."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE DATABASE e",
        "CREATE TABLE e.t (id INT)",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (1)",
    )
    upstream.script("SET binlog_format=STATEMENT", "USE e", TEXT)
    store = str(store_of_upstream(tmp_path / "store", upstream))

    def stream(name: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [
                *(sys.executable, "-c", PROGRAM, "stream", "--from", store),
                *("--to", str(tmp_path / name), "--checkpoint", str(tmp_path / f"{name}-c")),
                *("--available-now", "--master", "local[1]", *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr.rpartition("binlog-spark: ")[2]

    changes = ("--sink", "changes")
    code, said = stream("one", *changes, "--table", "d.t")
    assert (code, TEXT in said) == (1, True), said
    assert main(["state", store, str(tmp_path / "s"), *changes, "--table", "d.t"]) == 1
    assert TEXT in capsys.readouterr().err
    code, said = stream("two", *changes, "--tables", "d.*")
    assert (code, TEXT in said) == (1, True), said
    landed = pq.read_table(tmp_path / "two").sort_by("_order_key").to_pylist()
    told = [(row["_op"], row["_db"], row["_table"], row["after"]) for row in landed]
    assert told == [
        ("t", "d", "t", None),
        ("c", "d", "t", '{"id":1}'),
        ("x", "e", None, None),
    ]
    code, said = stream("two", *changes, "--tables", "d.*")
    assert code == 0, said
    code, said = stream("table", "--table", "d.t")
    assert (code, TEXT in said) == (1, True), said
