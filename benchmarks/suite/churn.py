"""Whether a server that works all day stays as it is: memory, descriptors and threads, while clients come and go.

100 replicas follow, each for a while; clients log in, ask and leave; 1,000 transactions a second are committed. The
first part of the run does not count: caches fill. Of what is left the first and the last quarter are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.child import Child
from benchmarks.registry import Benchmark, Result, progress
from benchmarks.servers import Usage
from binlog_server.testing import rundir
from tests.kit.server import BinlogServer

REPLICAS: Final = 100
COMMITS_S: Final = 1000.0
LOGINS_S: Final = 20.0
LIVES_S: Final = 60.0
SECONDS: Final = 600.0
_SAMPLE_S: Final = 2.0
_UNCOUNTED: Final = 0.2  # of the run, at its beginning
_KEPT_BYTES: Final = 256 << 20  # older files are purged


class Sample(NamedTuple):
    """Resources of the server at a moment."""

    rss_mb: float
    descriptors: int
    threads: int


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        server = BinlogServer(
            server_id=2,
            users={"churn": {"password": "churn", "grants": ["ALL PRIVILEGES"]}},
            max_binlog_total_size=_KEPT_BYTES,
            slave_connections_needed_for_purge=0,
        )
        stack.callback(server.discard)
        server.start()
        account = server.account
        churners = stack.enter_context(
            Child(
                "benchmarks.churners",
                *("--host", server.host, "--port", str(server.port)),
                *("--user", account.user, "--password", account.password),
                *("--replicas", str(options.replicas), "--commits-s", str(options.commits_s)),
                *("--logins-s", str(options.logins_s), "--lives-s", str(options.lives_s)),
            )
        )
        churners.line()
        progress(f"{options.replicas} replicas follow")
        before, began = Usage.of(server.pid), time.monotonic()
        samples = _watch(server.pid, options.seconds)
        after, seconds = Usage.of(server.pid), time.monotonic() - began
        done = churners.finish()
    counted = samples[int(len(samples) * _UNCOUNTED) :]
    quarter = max(1, len(counted) // 4)
    first, last = counted[:quarter], counted[-quarter:]
    return {
        **_compared("rss_mb", first, last, lambda s: s.rss_mb),
        **_compared("descriptors", first, last, lambda s: s.descriptors),
        **_compared("threads", first, last, lambda s: s.threads),
        "peak_rss_mb": round(after.peak_rss_mb, 1),
        "cpu_percent": round(100 * (after.cpu_s - before.cpu_s) / seconds, 1),
        "commits_s": round(done["commits"] / seconds, 1),
        "late_s": round(done["late_s"], 2),
        "logins": done["logins"],
        "replicas": options.replicas,
        "replaced": done["replaced"],
        "sent_mb": done["bytes"] >> 20,
        "seconds": round(seconds, 1),
    }


def _watch(pid: int, seconds: float) -> list[Sample]:
    process = Path("/proc") / str(pid)
    end = time.monotonic() + seconds
    found = []
    while time.monotonic() < end:
        time.sleep(_SAMPLE_S)
        found.append(
            Sample(
                Usage.of(pid).rss_mb,
                len(os.listdir(process / "fd")),  # noqa: PTH208 - names, not paths
                len(os.listdir(process / "task")),  # noqa: PTH208
            )
        )
    return found


def _compared(
    name: str, first: Sequence[Sample], last: Sequence[Sample], of: Callable[[Sample], float]
) -> dict[str, float]:
    began, ended = (statistics.median(map(of, part)) for part in (first, last))
    return {f"{name}_first": round(began, 1), f"{name}_last": round(ended, 1)}


def table(result: Result) -> str:
    """See `Benchmark`."""
    return (
        f"{result['replicas']} replicas, {result['replaced']} of them replaced, {result['logins']} logins, "
        f"{result['commits_s']} commits/s for {result['seconds']} s: resident {result['rss_mb_first']} -> "
        f"{result['rss_mb_last']} MB, descriptors {result['descriptors_first']} -> {result['descriptors_last']}, "
        f"threads {result['threads_first']} -> {result['threads_last']}; {result['cpu_percent']}% of a core"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--commits-s", type=float, default=COMMITS_S)
    parser.add_argument("--logins-s", type=float, default=LOGINS_S)
    parser.add_argument("--lives-s", type=float, default=LIVES_S, help="of a replica; 0: for ever")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that are measured")


BENCHMARK: Final = Benchmark(
    name="churn",
    summary="ten minutes of load, with clients that come and go: memory, descriptors and threads stay",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
