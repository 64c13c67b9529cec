"""The command `stream`: what it lands, and whether it says so where that may not be all that has changed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.spark.failures import cause
from binlog_pipeline.spark.local_files import write_without_processes
from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]

from binlog_server.testing.waiting import until
from tests.kit.backends import full_matrix
from tests.kit.commands_page import must_hold
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream

pytestmark = pytest.mark.spark

TEXT = "INSERT INTO t VALUES (1)"


def arguments(store: str, target: Path, *more: str) -> list[str]:
    """Of `stream`."""
    checkpoint = target.with_name(f"{target.name}-c")
    return [
        *("--from", store, "--to", str(target), "--checkpoint", str(checkpoint)),
        *("--available-now", "--master", "local[1]", *more),
    ]


SEVERAL = """
import json, sys
from binlog_pipeline.cli import main
for arguments in json.loads(sys.argv[1]):
    print("ended", main(arguments), file=sys.stderr)
"""


def streams(*arguments: list[str]) -> list[tuple[int, str]]:
    """The exit codes of `stream` with these arguments, and what each writes to stderr; in one process, by turns.

    Python and Java start once, which takes most of the time of a stream this short.
    """
    program = [sys.executable, "-c", SEVERAL, json.dumps([["stream", *one] for one in arguments])]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stdout)
    said = re.split(r"^ended (\d+)\n", done.stderr, flags=re.MULTILINE)
    return [(int(code), text) for code, text in zip(said[1::2], said[::2], strict=False)]


JVM = """
import json, os, sys
import binlog_pipeline
spark = binlog_pipeline.live_session("local[1]")
beans = spark._jvm.java.lang.management.ManagementFactory
writer = spark.readStream.format("rate").load().writeStream.format("noop")
writer.option("checkpointLocation", sys.argv[1]).trigger(once=True).start().awaitTermination()
hadoop = spark.sparkContext._jsc.hadoopConfiguration()
files = spark._jvm.org.apache.hadoop.fs.FileSystem.get(spark._jvm.java.net.URI("file:///"), hadoop)
kinds = [files.getClass().getName(), files.getConf().get("fs.file.impl")]
options = [*beans.getRuntimeMXBean().getInputArguments()]
print(json.dumps([kinds, options, os.environ["SPARK_SUBMIT_OPTS"]]))
spark.stop()
"""

TOLD = """#!/bin/sh
echo "{name} $*" >> {log}
exec {program} "$@"
"""


def test_a_live_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its JVM has one compiler, and starts no processes for a checkpoint's files; they have the modes that those gave.

    What somebody else says to the JVM stays, and counts more, and goes to nothing else.
    """
    given = "-Dbinlog.given=1 -XX:TieredStopAtLevel=4"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", given)
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    log.touch()
    for name in ("chmod", "readlink"):
        told = tmp_path / "bin" / name
        told.parent.mkdir(exist_ok=True)
        told.write_text(TOLD.format(name=name, log=log, program=shutil.which(name)))
        told.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        [sys.executable, "-c", JVM, str(checkpoint)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        umask=0o027,
    )
    started = log.read_text()
    assert not [line for line in started.splitlines() if "/offsets/" in line]
    assert "readlink" not in started
    written = [*(checkpoint / "offsets").iterdir()]
    modes = {one.name: stat.filemode(one.stat().st_mode) for one in written}
    assert modes == dict.fromkeys(("0", ".0.crc"), "-rw-r--r--")  # as Hadoop says
    kinds, options, left = json.loads(done.stdout.splitlines()[-1])
    assert kinds == ["binlog_pipeline.LocalFiles", None]  # its name is nowhere else
    place = options.index("-Dbinlog.given=1")
    levels = ["-XX:TieredStopAtLevel=1", "-XX:TieredStopAtLevel=4"]
    assert [options[place - 1], options[place + 1]] == levels
    assert left == given


def test_a_jvm_that_lacks_something_for_that() -> None:
    """As where Spark has no compiler, or another one: nothing is said, and files are written as before."""
    lacking: Any = JavaPackage("", None)
    write_without_processes(lacking, None)


@pytest.mark.slow
@pytest.mark.any_version
def test_text_in_another_database_is_told_at_the_end(
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rng: random.Random,
) -> None:
    """A trigger there may write here. Of one table the changes or the rows are kept; both in the slow suite."""
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
    changes = ("--sink", "changes")
    of_one = [
        arguments(store, tmp_path / "one", *changes, "--table", "d.t"),
        arguments(store, tmp_path / "table", "--table", "d.t"),
    ]
    two, again, *one = streams(
        arguments(store, tmp_path / "two", *changes, "--tables", "d.*"),
        arguments(store, tmp_path / "two", *changes, "--tables", "d.*", "--json"),
        *(of_one if full_matrix() else [rng.choice(of_one)]),
    )
    for code, said in (two, *one):
        assert (code, TEXT in said) == (1, True), said
    assert again[0] == 0, again[1]
    printed = re.search(r"^\{\n.*?^\}$", capsys.readouterr().out, re.MULTILINE | re.DOTALL)
    assert printed is not None
    must_hold("binlog-spark", "stream", json.loads(printed[0]))
    for code, said in (two, *one):
        assert (code, TEXT in said) == (1, True), said
    landed = pq.read_table(tmp_path / "two").sort_by("_order_key").to_pylist()
    told = [(row["_op"], row["_db"], row["_table"], row["after"]) for row in landed]
    assert told == [
        ("t", "d", "t", None),
        ("c", "d", "t", '{"id":1}'),
        ("x", "e", None, None),
    ]
    assert main(["state", store, str(tmp_path / "s"), *changes, "--table", "d.t"]) == 1
    assert TEXT in capsys.readouterr().err


REFUSED = {  # where it fails: in the driver's fold, in a task, where the table is looked for
    "fold": (("--table", "d.t"), "0-1-4: ALTER TABLE d.t ADD c INT DEFAULT 5: the rows that are there get a value"),
    "task": (("--tables", "d.*", "--sink", "changes"), "XA ROLLBACK X'61',X'',1 takes back rows that were given"),
    "opening": (("--table", "d.nope"), "has no row of d.nope, so its columns are not known"),
}  # fmt: skip


PLANNER_WAS_LATE = re.compile(
    r'Traceback \(most recent call last\):\n(  File "\S+/pyspark/daemon.py", line \d+, in (manager|worker)\n){2}'
    r"BrokenPipeError: .*\n"
)
"""Of a process that has planned a read: Spark has the answer, and closes in front of its last flush. On a busy machine,
at any time. The daemon that prints it is Spark's, whatever `spark.python.daemon.module` says (4.3)."""


def ours(err: str) -> str:
    return PLANNER_WAS_LATE.sub("", err)


@pytest.mark.any_version
def test_what_ends_it_is_one_line(
    make_logged_store: MakeLoggedStore, tmp_path: Path, rng: random.Random
) -> None:
    """Behind what Spark says when it starts: no stack of Python or of Java."""
    tried = (
        REFUSED if full_matrix() else {name: REFUSED[name] for name in rng.sample([*REFUSED], 1)}
    )
    store = str(
        make_logged_store(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "INSERT INTO d.t VALUES (1)",
            "ALTER TABLE d.t ADD c INT DEFAULT 5",
            "XA START 'a'",
            "INSERT INTO d.t VALUES (2, 2)",
            "XA END 'a'",
            "XA PREPARE 'a'",
            "XA ROLLBACK 'a'",
            server_id=1,
        )
    )
    ended = streams(
        *(arguments(store, tmp_path / name, *more) for name, (more, _) in tried.items())
    )
    for (code, said), (_, why) in zip(ended, tried.values(), strict=True):
        lines = said.splitlines()
        assert code == 1, said
        assert lines[-1].startswith("binlog-spark: "), said
        assert why in lines[-1], lines[-1]
        assert sum(line.startswith("binlog-spark: ") for line in lines) == 1
        assert not re.search(r"Traceback|^\s+at |ERROR|SQLSTATE", ours(said), re.MULTILINE), said


@pytest.mark.any_version
@pytest.mark.timeout(180)
@pytest.mark.parametrize("is_group", [False, True])
def test_it_ends_in_order_when_it_is_told_to(
    is_group: bool, make_logged_store: MakeLoggedStore, tmp_path: Path
) -> None:
    """By its result, and without the stack of a call that was broken off.

    A group: systemd and timeout tell all processes, and the JVM is the first that goes.
    """
    store = str(
        make_logged_store(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "INSERT INTO d.t VALUES (1)",
            server_id=1,
        )
    )
    target = tmp_path / "kept"
    words = ["stream", *arguments(store, target, "--table", "d.t", "--json")]
    words.remove("--available-now")
    code = "import sys; from binlog_pipeline.cli import main; sys.exit(main())"
    program = [sys.executable, "-c", code, *words]
    with subprocess.Popen(
        program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        until(lambda: bool([*target.glob("_manifests/*.json")]), "rows of the table", 120)
        (os.killpg if is_group else os.kill)(running.pid, signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert json.loads(out)["position"] == "0-1-3"
    assert not re.search(r"Traceback|^\s+at |ERROR", ours(err), re.MULTILINE), err


@pytest.mark.any_version
@pytest.mark.timeout(240)
def test_what_was_purged_behind_the_target(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    """A stream without a checkpoint begins where the log does: what it lacks in front of that is told."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (1)",
    )
    (tmp_path / "password").write_text(upstream.account.password)
    source = f"mariadb://{upstream.account.user}@{upstream.host}:{upstream.port}"
    words = ("--table", "d.t", "--password-file", str(tmp_path / "password"), "--tls", "disabled")
    kept = tmp_path / "kept"
    assert main(["state", source, str(kept), *words]) == 0
    upstream.script("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
    if upstream.q("SHOW VARIABLES LIKE 'slave_connections_needed_for_purge'"):
        upstream.q("SET GLOBAL slave_connections_needed_for_purge = 0")

    def is_purged() -> bool:
        upstream.q("PURGE BINARY LOGS TO 'upstream-bin.000002'")
        return len(upstream.q("SHOW BINARY LOGS")) == 1

    until(is_purged, "the first file is purged: it is in use until InnoDB has synced")
    more = ("--option", "failOnDataLoss=false")
    (code, said), (lenient, told) = streams(
        arguments(source, kept, *words), arguments(source, kept, *words, *more)
    )
    assert code == 1
    assert f"{kept} is at '0-1-3', and the stream begins behind 0-1-4: changes that lie" in said
    assert lenient == 0
    assert "they are left out" in told


WRAPPED = [
    (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Return Message: Traceback (most recent call "
        'last):\n  File "a.py", line 1, in f\n    raise E\nbinlog_pipeline.errors.NonRowChange: 0-1-4: ALTER\nTABLE t: '
        "why\n SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: 1",
        "0-1-4: ALTER\nTABLE t: why",
    ),
    (
        "Job: Traceback (most recent call last):\n  File\n\nKeyError: 'a'\n\nThe above exception was the direct "
        "cause of the following exception:\n\nTraceback (most recent call last):\n  File\nbinlog_storage.errors.Bad: "
        "page 3\n\n\tat org.apache.spark.X.read(X.scala:1)\n\nDriver stacktrace:\n",
        "page 3",
    ),
    (
        "x Traceback (most recent call last):\n  File\nOSError: [Errno 28] No space: '/a'\n\tat py4j.A.b(A.java:1)",
        "OSError: [Errno 28] No space: '/a'",
    ),
    ("[STREAM_FAILED] Query terminated: java.io.IOException: no\n\tat java.io.X(X.java)", "[STREAM_FAILED] Query "
     "terminated: java.io.IOException: no"),
    (
        "x Traceback (most recent call last):\n  File\nbinlog_pipeline.errors.SourceError: db1 does not answer\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  "
        "File\nUnboundLocalError: cannot access local variable 'reader' where it is not associated with a value\n",
        "db1 does not answer",
    ),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRAPPED)
def test_what_was_raised_within_spark(text: str, said: str) -> None:
    assert cause(text) == said
