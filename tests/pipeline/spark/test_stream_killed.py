"""A stream that is killed again and again, driver, JVM or a worker, has each change once: the target is the table."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.tables.delta import read_delta

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.pipeline.stores import FULL

JOB: Final = Path(__file__).parents[1] / "jobs" / "following.py"
KILLS: Final = int(os.environ.get("BINLOG_TEST_KILLS", "20"))
TABLE: Final = "d.t"


class Writer:
    """A thread that changes a table at random."""

    def __init__(self, upstream: MariaDB, rng: random.Random) -> None:
        self._upstream = upstream
        self._rng = rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0

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
                cursor.execute("BEGIN")
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
def following(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The job in a session of its own, of which nothing is left behind the block."""
    process = subprocess.Popen(
        [sys.executable, str(JOB), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        yield process
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
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_each_change_once(
    sink: str,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    upstream = make_upstream(FULL)
    store = tmp_path / "store"
    server = binlog_server(upstream=upstream, directory=store)
    upstream.script(
        "CREATE DATABASE d", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, a VARCHAR(60), n INT)"
    )
    arguments = [str(store), TABLE, str(tmp_path / "target"), str(tmp_path / "checkpoint"), sink]
    killed = []
    with Writer(upstream, rng) as writer:
        until(lambda: writer.transactions > 20, "a load")
        first = upstream.gtid_binlog_pos
        until(lambda: number(server.gtid_binlog_pos) >= number(first), "our server")
        for _ in range(KILLS):
            with following(*arguments, "forever") as job:
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
    with following(*arguments, "once") as job:
        assert job.wait(200) == 0
    target = tmp_path / "target"
    rows = read_state(target)[0] if sink == "parquet" else read_delta(target)
    have = [tuple(row.values()) for row in rows.sort_by("id").to_pylist()]
    want = [tuple(row.values()) for row in upstream.q(f"SELECT id, a, n FROM {TABLE} ORDER BY id")]
    assert have == want, f"behind {killed}, {writer.transactions} transactions"


def number(position: str) -> int:
    """Of a position in one domain."""
    return int(position.rpartition("-")[2] or 0)
