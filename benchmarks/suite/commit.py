"""Commits per second over the wire for 1, 16 and 64 connections, from us and from mariadbd.

Both take the same statements from the same client, which is a process of its own. Twice: every commit durable before
its OK (`sync`), and none (`nosync`). And each with two loads:

    text    INSERTs, logged in statement format; mariadbd's table is a BLACKHOLE, so that it has nothing else to do
    rows    prepared INSERTs and UPDATEs of one row by its key, logged in row format with full metadata: an InnoDB table
            there, a table in the same redo log as the binlog here

Rounds, the two servers by turns, so that what disturbs the machine disturbs both; medians are the result.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any, Final

from benchmarks import store_process
from benchmarks.commit_cost import BATCHES, BINLOG_WRITTEN, FSYNCS, LOG_WRITTEN, WRITTEN, Subject
from benchmarks.committers import ROW_TABLE, Load
from benchmarks.machine import facts, work_directory
from benchmarks.masters import ENGINES, Master, counter, start_mariadbd, start_ours
from benchmarks.registry import Benchmark, Result, add_numbers, progress
from benchmarks.servers import mariadb_install
from benchmarks.strace import counting_syncs
from binlog_server.testing import rundir
from binlog_server.testing.install import Install

CONNECTIONS: Final = (1, 16, 64)
ROUNDS: Final = 3
SECONDS: Final = 2.0
WARM_UP_S: Final = 0.5
SETTINGS: Final = {"sync": 1, "nosync": 0}

_SET_UP: Final = (
    "CREATE DATABASE bench",
    "CREATE TABLE bench.t (a INT, b VARCHAR(500)) ENGINE=BLACKHOLE",
)
_SQL: Final = f"INSERT INTO bench.t VALUES (1,'{'x' * 200}')"
# In a character set and collation that both have.
_SET_UP_ROWS: Final = (
    "CREATE DATABASE bench CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    f"CREATE TABLE bench.r {ROW_TABLE} ENGINE=InnoDB",
)
_ROW_FLAGS: Final = ("--binlog-format=ROW", "--binlog-row-metadata=FULL")
_PARTS: Final = ("statements", "rows")


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = mariadb_install(options.mariadb)
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        machine = facts(path)
        if "statements" in options.only:
            result |= _statements(path, install, options)
        if "rows" in options.only:
            result |= _rows(path, install, options)
    return {
        **result,
        "mariadbd_version": install.full_version,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": machine,
    }


def _statements(path: Path, install: Install, options: argparse.Namespace) -> Result:
    measured = {
        name: _measure(path, setting, install, options) for name, setting in SETTINGS.items()
    }
    sync = measured["sync"]
    is_ibb = options.engine == ENGINES[0]
    inside = is_ibb and {
        "in_process": store_process.commits(
            path, options.connections, options.seconds, sync["ours"]["group_bytes"]
        )
    }
    return {
        "ratio_sync": sync["ratio"],
        "ratio_nosync": measured["nosync"]["ratio"],
        "fsyncs_per_commit": max(sync["fsyncs_per_commit"].values()),
        "fsyncs_per_commit_by_committers": sync["fsyncs_per_commit"],
        "all_fsyncs_per_commit_by_committers": sync["all_fsyncs_per_commit"],
        "write_amplification": sync["write_amplification"]["ours"][_written(options)[0]],
        "ours_commits_s": _commits_s(measured, "ours", options),
        "mariadbd_commits_s": _commits_s(measured, "mariadbd", options),
        **(inside or {}),
        **measured,
        "statement_bytes": len(_SQL),
    }


def _rows(path: Path, install: Install, options: argparse.Namespace) -> Result:
    measured = {
        f"rows_{name}": _measure(path, setting, install, options, with_rows=True)
        for name, setting in SETTINGS.items()
    }
    return {
        **{f"ratio_{name}": found["ratio"] for name, found in measured.items()},
        "ours_rows_commits_s": _commits_s(measured, "ours", options),
        "mariadbd_rows_commits_s": _commits_s(measured, "mariadbd", options),
        **measured,
    }


def _measure(
    path: Path,
    setting: int,
    install: Install,
    options: argparse.Namespace,
    *,
    with_rows: bool = False,
) -> dict[str, Any]:
    """Both servers with one setting of `flush_log_at_trx_commit`."""
    load = Load(table="bench.r") if with_rows else Load(_SQL)
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(work_directory(path))
        flags = (
            f"--sync-binlog={setting}",
            f"--innodb-flush-log-at-trx-commit={setting}",
            *(_ROW_FLAGS if with_rows else ()),
        )
        masters = (
            start_ours(
                stack,
                here / "ours",
                flush_log_at_trx_commit=setting,
                local_tables=with_rows,
                engine=options.engine,
            ),
            start_mariadbd(stack, install, here / "mariadbd", *flags),
        )
        ours, theirs = subjects = [Subject(master) for master in masters]
        for master in masters:
            master.execute(*(_SET_UP_ROWS if with_rows else _SET_UP))
        for n in options.connections:
            for _ in range(options.rounds):
                for subject in subjects:
                    done = subject.measure(load, n, options.seconds, WARM_UP_S)
                    progress(
                        f"{'rows' if with_rows else 'text'}, flush at commit {setting}, "
                        f"{n:3} connections  {subject.master.name}: {done.commits_s:,.0f} commits/s"
                    )
        result = {
            "ratio": {
                str(n): round(cost.commits_s / theirs.costs[n].commits_s, 3)
                for n, cost in ours.costs.items()
            },
            "fsyncs_per_commit": ours.per_commit(BATCHES),
            "all_fsyncs_per_commit": ours.per_commit(_syncs(options)),
            "write_amplification": {
                "ours": ours.amplification(_written(options)),
                "mariadbd": theirs.amplification(["Binlog_bytes_written"]),
            },
            "ours": ours.report(),
            "mariadbd": theirs.report(),
        }
        if options.strace:
            result["strace"] = _cross_check(ours.master, load, options)
        return result


def _written(options: argparse.Namespace) -> list[str]:
    """Our counters of bytes written for the binlog, by the engine."""
    return [WRITTEN, LOG_WRITTEN] if options.engine == ENGINES[0] else [BINLOG_WRITTEN]


def _syncs(options: argparse.Namespace) -> str:
    return FSYNCS if options.engine == ENGINES[0] else BATCHES


def _cross_check(master: Master, load: Load, options: argparse.Namespace) -> dict[str, int]:
    """Syncs of one more round, by strace and by our counter. Slow: its speed is not kept."""
    before = counter(master.status(), FSYNCS)
    with counting_syncs(master.pid) as seen:
        Subject(master).measure(
            load, options.connections[-1], options.seconds, WARM_UP_S, keep=False
        )
        counted = counter(master.status(), FSYNCS) - before
    return {"strace": seen.calls, "counted": counted}


def _commits_s(measured: dict[str, Any], name: str, options: argparse.Namespace) -> dict[str, Any]:
    return {
        setting: {str(n): found[name][str(n)]["commits_s"] for n in options.connections}
        for setting, found in measured.items()
    }


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"INSERT of {len(_SQL)} bytes; rows: INSERT and UPDATE of one by its key, prepared; "
        f"mariadbd {result['mariadbd_version']}; {result['machine']['cpus']} cpus; medians of {result['rounds']}",
        "",
        f"{'':>11} {'n':>4} {'ours/s':>9} {'mariadbd/s':>11} {'ratio':>6} {'cpu us':>7} {'theirs':>7} "
        f"{'fsyncs':>7} {'batch':>6} {'theirs':>7}",
    ]
    settings = [name for name in (*SETTINGS, *(f"rows_{s}" for s in SETTINGS)) if name in result]
    for setting in settings:
        found = result[setting]
        for n, ratio in found["ratio"].items():
            ours, theirs = found["ours"][n], found["mariadbd"][n]
            lines.append(
                f"{setting:>11} {n:>4} {ours['commits_s']:>9,} {theirs['commits_s']:>11,} {ratio:>6.2f} "
                f"{ours['cpu_us_per_commit']:>7.1f} {theirs['cpu_us_per_commit']:>7.1f} "
                f"{found['fsyncs_per_commit'][n]:>7.3f} {ours['groups_per_batch']:>6.1f} "
                f"{theirs['groups_per_batch']:>7.1f}"
            )
    lines += [
        "",
        *(f"write amplification, {s}: {result[s]['write_amplification']}" for s in settings),
    ]
    if "in_process" in result:
        inside = result["in_process"]
        lines.append(
            f"the store by itself, commits/s: {inside['append_sync']} by threads; "
            f"append alone {inside['append']:,}"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    add_numbers(parser, "--connections", CONNECTIONS, "those counts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the median counts")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each round; default 2")
    parser.add_argument(
        "--only", choices=_PARTS, nargs=1, default=_PARTS, help="default: both, one after the other"
    )
    parser.add_argument("--strace", action="store_true", help="count our syncs by strace, too")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="of our store")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")
    parser.add_argument("--directory", type=Path, help="for both; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="commit",
    summary="commits/s from 1, 16, 64 connections, beside mariadbd, with and without syncs: ratios",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
