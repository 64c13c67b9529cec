"""A stream that is killed again and again, driver, JVM or a worker, has each change once: the target is the table."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer
from tests.pipeline.stores import FULL
from tests.pipeline.tables.changes import History, in_order
from tests.pipeline.tables.lake import configure, place, rows_of

JOB: Final = Path(__file__).parents[1] / "jobs" / "following.py"
MERGING: Final = JOB.with_name("merging.py")
ROOT: Final = Path(__file__).parents[3]
KILLS: Final = int(os.environ.get("BINLOG_TEST_KILLS", "20"))
A_ROUND: Final = 400
"""Transactions: two batches, so that many are not begun when a stream is killed."""
TABLE: Final = "d.t"
SAID_CHARACTERS: Final = 20_000
"""Of what a program has said, when it failed."""
DAEMON: Final = "-m\0binlog_pipeline.spark.worker_daemon"
"""Of executors, by its command line; the JVM of the driver has its name in a setting."""


class Writer:
    """A thread that changes a table at random: so many transactions as it is asked for, that a stream keeps up."""

    def __init__(self, upstream: MariaDB, rng: random.Random) -> None:
        self._upstream = upstream
        self._rng = rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self.wanted = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        rng = self._rng
        with self._upstream.connect() as connection, connection.cursor() as cursor:
            while not self._stop.wait(0.003):
                if self.transactions >= self.wanted:
                    continue
                cursor.execute("BEGIN")
                if rng.random() < 0.002:  # more than the driver takes at once
                    for _ in range(4):
                        cursor.execute(f"UPDATE {TABLE} SET n = n + 1")
                for _ in range(rng.randint(1, 4)):
                    self._change(cursor)
                cursor.execute("COMMIT")
                self.transactions += 1

    def _change(self, cursor: Any) -> None:
        rng = self._rng
        row, text = rng.randint(1, 500), f"text {rng.random()}"
        with contextlib.suppress(pymysql.err.IntegrityError):
            match rng.choice("iiiudk"):
                case "i":
                    cursor.execute(
                        f"INSERT INTO {TABLE} VALUES (%s, %s, 1) ON DUPLICATE KEY UPDATE n = n + 1",
                        (row, text),
                    )
                case "u":
                    cursor.execute(
                        f"UPDATE {TABLE} SET a = %s, n = n + 1 WHERE id = %s", (text, row)
                    )
                case "d":
                    cursor.execute(f"DELETE FROM {TABLE} WHERE id = %s", (row,))
                case "k":
                    cursor.execute(f"UPDATE {TABLE} SET id = id + 250 WHERE id = %s", (row,))


def members(session: int) -> list[int]:
    """Processes of a session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(folder.name))
    return found


@contextlib.contextmanager
def running(program: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, of which nothing is left behind the block.

    What it has said to standard error is told if the block fails.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        )
        try:
            yield process
        except BaseException:
            errors.seek(0)
            print(f"{program.name}: {errors.read()[-SAID_CHARACTERS:]}", file=sys.stderr)
            raise
        finally:
            while left := members(process.pid):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg"])
def test_each_change_once(
    sink: str,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    upstream = make_upstream(FULL)
    server = binlog_server(upstream=upstream, directory=tmp_path / "store")
    target = place(sink, tmp_path / "target")
    follow_and_kill(sink, upstream, server, target, str(tmp_path / "checkpoint"), rng, KILLS)


def follow_and_kill(
    sink: str,
    upstream: MariaDB,
    server: BinlogServer,
    target: Path | str,
    checkpoint: str,
    rng: random.Random,
    kills: int,
) -> None:
    """A stream from the store of a relay is killed so many times: its target is the table of the upstream."""
    upstream.script(
        "CREATE DATABASE d", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, a VARCHAR(60), n INT)"
    )
    arguments = [str(server.directory), TABLE, str(target), checkpoint, sink]
    killed = []
    with Writer(upstream, rng) as writer:
        writer.wanted = A_ROUND
        until(lambda: writer.transactions > 20, "a load")
        first = upstream.gtid_binlog_pos
        until(lambda: number(server.gtid_binlog_pos) >= number(first), "our server")
        for _ in range(kills):
            writer.wanted += A_ROUND
            with running(JOB, *arguments, "forever") as job:
                assert job.stdout is not None
                assert job.stdout.readline() == "running\n"
                time.sleep(rng.uniform(0, 8))
                victim = rng.choice(["all", "driver", "any"])
                pids = members(job.pid)
                chosen = {"all": pids, "driver": [job.pid], "any": [rng.choice(pids)]}[victim]
                for pid in chosen:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                killed.append(victim)
                time.sleep(rng.uniform(0, 1))  # what is left goes on for a moment
    server.wait_position(upstream.gtid_binlog_pos, 60)
    with running(JOB, *arguments, "once") as job:
        assert job.wait(400) == 0
    have = [tuple(row.values()) for row in in_order(rows_of(sink, target))]
    want = [tuple(row.values()) for row in upstream.q(f"SELECT id, a, n FROM {TABLE} ORDER BY id")]
    assert have == want, f"behind {killed}, {writer.transactions} transactions"


def number(position: str) -> int:
    """Of a position in one domain."""
    return int(position.rpartition("-")[2] or 0)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_executors_that_write_a_table_are_killed(
    sink: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of two workers: what an executor was at is done again by another one. Python is killed as well."""
    configure(monkeypatch, tmp_path)
    target, seed, batches = str(place(sink, tmp_path / "t")), rng.randrange(1 << 30), 25
    history = History(random.Random(seed))
    for _ in range(batches):
        history.batch(30)
    killed: list[str] = []
    arguments = (sink, target, str(seed), str(batches))
    cluster = {"SPARK_WORKER_DIR": str(tmp_path / "work"), "PYTHONPATH": str(ROOT)}
    with running(MERGING, *arguments, **cluster) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if int(line) % 4 == 3 and int(line) < batches - 1:
                time.sleep(rng.uniform(0, 0.4))
                what = rng.choice(["CoarseGrainedExecutorBackend", DAEMON])
                while not (chosen := [pid for pid in members(job.pid) if what in command(pid)]):
                    time.sleep(0.05)  # one that was killed is begun again
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(chosen), signal.SIGKILL)
                    killed.append(what)
        assert job.wait(60) == 0, f"behind {killed}"
    assert len(killed) >= 4
    assert in_order(rows_of(sink, target)) == history.table(), f"behind {killed}"


def command(pid: int) -> str:
    """The command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    return ""
