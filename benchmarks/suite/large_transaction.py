"""The effect of a transaction of 1 GiB on the small commits beside it, and on the server's memory.

Small commits arrive open-loop from one process, the large transaction is written by another. Latencies of the small
ones, from their due times, are compared between two windows of the same length and the same run: one before the large
transaction, and one that begins when its COMMIT is sent. A third one is the time of that COMMIT alone, or half a second
if it takes less. Each repetition has a server and a store of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.arrivals import Timed, percentile, window
from benchmarks.big_writer import STATEMENT_BYTES, STEPS
from benchmarks.child import Child
from benchmarks.machine import facts, work_directory
from benchmarks.masters import Master, Memory, counter, start_mariadbd, start_ours
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from benchmarks.servers import mariadb_install
from binlog_server.testing import rundir

BYTES: Final = 1 << 30
RATE: Final = 200.0
CONNECTIONS: Final = 8
WINDOW_S: Final = 5.0
IN_COMMIT_S: Final = 0.5  # so that there are 100 small commits
WARM_UP_S: Final = 2.0
REPETITIONS: Final = 3

_TABLE: Final = "bench.t"
_SMALL: Final = f"INSERT INTO {_TABLE} VALUES (1,'{'y' * 200}')"
_MS: Final = 1000.0

Start = Callable[[contextlib.ExitStack, Path], Master]


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    starts: dict[str, Start] = {
        "ours": lambda stack, path: start_ours(stack, path, flush_log_at_trx_commit=1)
    }
    versions = {}
    if not options.no_mariadbd:
        install = mariadb_install(options.mariadb)
        versions["mariadbd"] = install.full_version
        starts["mariadbd"] = lambda stack, path: start_mariadbd(
            stack, install, path, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"
        )
    others, machine = by_turns(starts, options)
    ours = others.pop("ours")
    return {
        "p99_factor": ours["p99_factor"],
        "memory_growth_mib": ours["memory_growth_mib"],
        "ours": ours,
        **{name: {"version": versions[name], **found} for name, found in others.items()},
        "transaction_bytes": options.bytes,
        "statement_bytes": options.statement_bytes,
        "small_commits_s": RATE,
        "window_s": options.window,
        "repetitions": options.repetitions,
        "machine": machine,
    }


def by_turns(
    starts: Mapping[str, Start], options: argparse.Namespace
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The summaries of all repetitions by name, each server in its turn, and the machine. Raises `BenchmarkError`."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in starts}
    with contextlib.ExitStack() as outer:
        outer.callback(rundir.remove_own)
        machine = facts(outer.enter_context(work_directory(options.directory)))
        for _ in range(options.repetitions):
            for name, start in starts.items():
                with contextlib.ExitStack() as stack:
                    path = stack.enter_context(work_directory(options.directory))
                    runs[name].append(measure(start(stack, path / name), options))
                progress(f"{name}: {runs[name][-1]}")
    return {name: summary(of_one) for name, of_one in runs.items()}, machine


def measure(master: Master, options: argparse.Namespace) -> dict[str, Any]:
    """One repetition on a fresh server. Raises `BenchmarkError`."""
    master.execute(
        "CREATE DATABASE bench", f"CREATE TABLE {_TABLE} (a INT, b LONGTEXT) ENGINE=BLACKHOLE"
    )
    host, port = master.source.host, master.source.port
    login = [
        *("--host", host, "--port", str(port)),
        *("--user", master.writer.user, "--password", master.writer.password),
    ]
    small = ("--rate", str(RATE), "--connections", str(CONNECTIONS), "--sql", _SMALL)
    big = ("--table", _TABLE, "--bytes", str(options.bytes))
    commits_before = counter(master.status(), "Binlog_commits")
    cpu_before = master.cpu_s()
    with Child("benchmarks.arrivals", *login, *small) as client:
        client.line()
        time.sleep(WARM_UP_S)
        baseline = time.monotonic()
        time.sleep(options.window)
        pieces = ("--statement-bytes", str(options.statement_bytes))
        with (
            Memory(master) as memory,
            Child("benchmarks.big_writer", *login, *big, *pieces) as big_writer,
        ):
            at = dict(_step(big_writer.line(), name) for name in STEPS)
            # Not before the window has passed; with what the COMMIT leaves the server to do, in memory too.
            time.sleep(max(0.0, at["commit"] + options.window - time.monotonic()) + 0.5)
        times: list[Timed] = client.finish()
    commits = counter(master.status(), "Binlog_commits") - commits_before
    if commits != len(times) + 1:
        raise BenchmarkError(
            f"{master.name}: {commits} groups for {len(times)} commits and a large one"
        )
    before = _latencies(window(times, baseline, options.window))
    after = _latencies(window(times, at["commit"], options.window))
    commit_s = at["committed"] - at["commit"]
    within = _latencies(window(times, at["commit"], max(commit_s, IN_COMMIT_S)))
    return {
        "p99_factor": after["p99_ms"] / before["p99_ms"],
        "p99_factor_in_commit": within["p99_ms"] / before["p99_ms"],
        "memory_growth_mib": memory.growth_mib,
        "memory_before_mib": memory.before_mib,
        "baseline": before,
        "commit": after,
        "in_commit": within,
        "writing": _latencies(window(times, at["begin"], at["commit"] - at["begin"])),
        "writing_s": at["commit"] - at["begin"],
        "commit_s": commit_s,
        "cpu_s": master.cpu_s() - cpu_before,
    }


def _step(line: Any, wanted: str) -> tuple[str, float]:
    name, at = line
    if name != wanted:
        raise BenchmarkError(f"the large transaction is at {name!r}, not {wanted!r}")
    return str(name), float(at)


def _latencies(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "commits": len(seconds),
        "p50_ms": percentile(seconds, 50) * _MS,
        "p99_ms": percentile(seconds, 99) * _MS,
        "max_ms": max(seconds) * _MS,
    }


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of repetitions: medians; of memory the most. And every repetition."""

    def middle(key: str, inner: str) -> float:
        return round(float(median(one[key][inner] for one in found)), 3)

    windows = ("baseline", "writing", "commit", "in_commit")
    return {
        **{
            key: round(median(one[key] for one in found), 3)
            for key in ("p99_factor", "p99_factor_in_commit")
        },
        "memory_growth_mib": round(max(one["memory_growth_mib"] for one in found), 1),
        **{w: {key: middle(w, key) for key in ("p50_ms", "p99_ms", "max_ms")} for w in windows},
        **{
            key: round(median(one[key] for one in found), 2)
            for key in ("writing_s", "commit_s", "cpu_s", "memory_before_mib")
        },
        "runs": [_rounded(one) for one in found],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"a transaction of {result['transaction_bytes'] >> 20} MiB beside {result['small_commits_s']:.0f} small "
        f"commits/s; windows of {result['window_s']:.0f} s; medians of {result['repetitions']}",
        "",
        f"{'server':>9} {'window':>9} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}",
    ]
    for name in ("ours", "mariadbd"):
        for when in ("baseline", "writing", "commit"):
            if name in result:
                found = result[name][when]
                lines.append(
                    f"{name:>9} {when:>9} {found['p50_ms']:>8.2f} {found['p99_ms']:>8.2f} {found['max_ms']:>8.2f}"
                )
    lines.append("")
    for name in ("ours", "mariadbd"):
        if name in result:
            found = result[name]
            lines.append(
                f"{name}: p99 x{found['p99_factor']:.2f}; memory +{found['memory_growth_mib']:.1f} MiB; "
                f"written in {found['writing_s']:.2f} s, committed in {found['commit_s']:.2f} s"
            )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument(
        "--bytes", type=int, default=BYTES, help="of the transaction; default 1 GiB"
    )
    parser.add_argument(
        "--statement-bytes", type=int, default=STATEMENT_BYTES, help="of each INSERT"
    )
    parser.add_argument("--window", type=float, default=WINDOW_S, help="seconds; default 5")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="default 3")
    parser.add_argument("--no-mariadbd", action="store_true", help="ours only")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")
    parser.add_argument("--directory", type=Path, help="for the stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="large-transaction",
    summary="small commits while 1 GiB is written and commits: p99_factor, memory_growth_mib",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
