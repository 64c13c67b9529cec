"""The time from a commit on an upstream mariadbd to a replica: attached to it directly, and by way of our relay.

Both replicas are raw clients in one process (`benchmarks.followers`). One client commits small row transactions on
the upstream, one every few milliseconds; its clock starts when it sends the INSERT, and a transaction has come when
its last byte has. What the relay adds is the difference of the two for the same transaction.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.child import Child
from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, Result, progress
from benchmarks.servers import gtid_binlog_pos, mariadb_install, wait_relayed
from binlog_server.testing import rundir
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import UPSTREAM
from binlog_server.testing.sql_server import Followed
from tests.kit.server import BinlogServer

COMMITS: Final = 1000
INTERVAL_MS: Final = 5.0
WARM_UP: Final = 50
TIMEOUT_S: Final = 60.0

_SET_UP: Final = (
    "CREATE DATABASE bench",
    "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL,"
    " b VARCHAR(200) NOT NULL) ENGINE=InnoDB",
)
_INSERT: Final = "INSERT INTO bench.t (a, b) VALUES (7, REPEAT('x', 123))"
_FLAGS: Final = (*UPSTREAM, "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0")


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    commits = options.commits + WARM_UP
    install = mariadb_install(options.mariadb)
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        machine = facts(path)
        mariadb = LocalMariaDB(install, "mariadbd", server_id=1, flags=_FLAGS)
        stack.callback(mariadb.discard)
        mariadb.start().create_account()
        mariadb.script(*_SET_UP)
        relay = BinlogServer(upstream=mariadb, server_id=2, directory=path / "relay")
        stack.callback(relay.discard)
        wait_relayed(relay.start(), mariadb, TIMEOUT_S)
        progress("both are followed")
        followers = stack.enter_context(
            Child(
                "benchmarks.followers",
                f"--position={gtid_binlog_pos(relay)}",
                f"--groups={commits}",
                *(_login(server) for server in (mariadb, relay)),
            )
        )
        followers.line()
        began = _commit(mariadb, commits, options.interval_ms / 1000)
        direct, relayed = followers.line()
    return {**summary(began[WARM_UP:], direct[WARM_UP:], relayed[WARM_UP:]), "machine": machine}


def _login(server: Followed) -> str:
    account = server.account
    return f"{account.user}:{account.password}@{server.host}:{server.port}"


def _commit(mariadb: LocalMariaDB, commits: int, interval_s: float) -> list[float]:
    """Commit, one after the other, none before its time. Returns the time when each was sent."""
    began = []
    with mariadb.connect() as connection, connection.cursor() as cursor:
        due = time.monotonic()
        for _ in range(commits):
            time.sleep(max(0.0, due - time.monotonic()))
            began.append(time.monotonic())
            cursor.execute(_INSERT)
            due = max(due, time.monotonic() - interval_s) + interval_s
    return began


def summary(
    began: Sequence[float], direct: Sequence[float], relayed: Sequence[float]
) -> dict[str, Any]:
    """A summary of three times of the same transactions: their begin, and their arrival on both ways."""
    extra = [r - d for r, d in zip(relayed, direct, strict=True)]
    return {
        "extra_ms_median": percentile_ms(extra, 50),
        "extra_ms_p99": percentile_ms(extra, 99),
        "direct_ms": _spread([d - b for b, d in zip(began, direct, strict=True)]),
        "relay_ms": _spread([r - b for b, r in zip(began, relayed, strict=True)]),
        "commits": len(extra),
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": percentile_ms(seconds, 50), "p99": percentile_ms(seconds, 99)}


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """The smallest that at least `percent` of them do not exceed, in milliseconds."""
    ordered = sorted(seconds)
    rank = -(-len(ordered) * percent // 100)
    return round(ordered[max(0, rank - 1)] * 1000, 3)


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"{result['commits']} commits, ms from the INSERT; fdatasync "
        f"{result['machine']['fdatasync_us']} us",
        "",
        f"{'':>10} {'median':>8} {'p99':>8}",
    ]
    for name in ("direct", "relay"):
        spread = result[f"{name}_ms"]
        lines.append(f"{name:>10} {spread['median']:>8.3f} {spread['p99']:>8.3f}")
    lines.append(f"{'extra':>10} {result['extra_ms_median']:>8.3f} {result['extra_ms_p99']:>8.3f}")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--commits", type=int, default=COMMITS, help="that count")
    parser.add_argument("--interval-ms", type=float, default=INTERVAL_MS, help="between commits")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")
    parser.add_argument("--directory", type=Path, help="for the relay's store; on a disk")


BENCHMARK: Final = Benchmark(
    name="latency",
    summary="from a commit upstream to a replica: directly, and by way of our relay",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
