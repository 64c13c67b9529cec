"""Replicas at the tail of a server that follows an upstream which commits small transactions at a fixed rate.

In the middle is either our relay, which sends what is durable, or a mariadbd that follows with log_slave_updates and
BLACKHOLE tables, which is what serves as a binlog server without us; it syncs nothing. By turns, for each number of
replicas and each rate, plain and by TLS: the processor time of the middle server, and how long after its due time on
the upstream a transaction had come to a replica. Plain, also a program in C in the middle that reads, syncs and sends
(`durable_tail.py`): what is left to a server that makes each group durable.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from binlog_storage.console.arguments import amount_argument

from benchmarks.arrivals import Timed
from benchmarks.child import Child
from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, BenchmarkError, Result, add_numbers, progress
from benchmarks.servers import Usage, mariadb_install, tls_flags, wait_relayed
from benchmarks.suite.latency import percentile_ms
from binlog_server.testing import rundir
from binlog_server.testing.install import Install
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import UPSTREAM
from binlog_server.testing.sql_server import Credentials, Followed
from tests.kit.server import BinlogServer

RATES: Final = (1000.0, 5000.0)
REPLICAS: Final = (1, 20, 100, 300)
SECONDS: Final = 8.0
WARM_UP_S: Final = 1.0
TIMEOUT_S: Final = 60.0

_TLS: Final = "_tls"  # behind the rate, in the keys of results

_INSERT: Final = "INSERT INTO bench.t (a, b) VALUES (7, REPEAT('x', 123))"
_SET_UP: Final = (
    "CREATE DATABASE bench",
    "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL,"
    " b VARCHAR(200) NOT NULL) ENGINE=BLACKHOLE",
)
_FLAGS: Final = (
    *UPSTREAM,
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--max-connections=2000",
    "--plugin-load-add=ha_blackhole",
)


@dataclass(frozen=True, slots=True)
class Limit:
    """The program in C as a middle server; its accounts are the upstream's."""

    host: str
    port: int
    account: Credentials


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement. `lags`: seconds of each transaction of the window; `rate`: that came in it."""

    replicas: int
    seconds: float
    cpu_s: float
    lags: Sequence[float]

    @property
    def us_per_group(self) -> float:
        return 1e6 * self.cpu_s / len(self.lags)

    def report(self) -> dict[str, float]:
        return {
            "cpu_percent": round(100 * self.cpu_s / self.seconds, 1),
            "groups_s": round(len(self.lags) / self.seconds),
            "us_per_group": round(self.us_per_group, 1),
            "lag_p50_ms": percentile_ms(self.lags, 50),
            "lag_p99_ms": percentile_ms(self.lags, 99),
        }


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = mariadb_install(options.mariadb)
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        machine = facts(path)
        upstream = LocalMariaDB(install, "upstream", server_id=1, flags=_FLAGS)
        stack.callback(upstream.discard)
        upstream.start().create_account()
        upstream.script(*_SET_UP)
        relay = BinlogServer(upstream=upstream, server_id=2, directory=path / "relay")
        stack.callback(relay.discard)
        wait_relayed(relay.start(), upstream, TIMEOUT_S)
        mariadbd = _follower(install, upstream, path)
        stack.callback(mariadbd.discard)
        wait_followed(mariadbd, upstream)
        middles: dict[str, BinlogServer | LocalMariaDB] = {"ours": relay, "mariadbd": mariadbd}
        results = {}
        for rate, tls in itertools.product(options.rates, (False, True)):
            runs: dict[str, list[Run]] = {name: [] for name in middles}
            limits: list[Run] = []
            key = f"{rate:.0f}{_TLS * tls}"
            for replicas in options.replicas:
                for name, middle in middles.items():
                    wait_followed(mariadbd, upstream)
                    wait_relayed(relay, upstream, TIMEOUT_S)
                    found = measure(
                        middle, middle.pid, upstream, replicas, rate, options.seconds, tls=tls
                    )
                    runs[name].append(found)
                    progress(f"{key}/s {replicas:4} {name:>8}: {found.report()}")
                if not tls:
                    found = measure_limit(upstream, path, replicas, rate, options.seconds)
                    limits.append(found)
                    progress(f"{key}/s {replicas:4} {'limit':>8}: {found.report()}")
            results[key] = compared(runs, limits)
    return {**results, "seconds": options.seconds, "machine": machine}


def _follower(install: Install, upstream: LocalMariaDB, directory: Path) -> LocalMariaDB:
    flags = (*_FLAGS, "--log-slave-updates", *tls_flags(directory))
    mariadbd = LocalMariaDB(install, "middle", server_id=3, flags=flags)
    mariadbd.start().create_account()
    account = upstream.account
    mariadbd.script(
        f"CHANGE MASTER TO MASTER_HOST='{upstream.host}', MASTER_PORT={upstream.port},"
        f" MASTER_USER='{account.user}', MASTER_PASSWORD='{account.password}',"
        " MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    )
    return mariadbd


def wait_followed(mariadbd: LocalMariaDB, upstream: LocalMariaDB) -> None:
    """Wait until it has logged all that the upstream has. Raises `BenchmarkError`."""
    deadline = time.monotonic() + TIMEOUT_S
    while mariadbd.gtid_binlog_pos != upstream.gtid_binlog_pos:
        if time.monotonic() > deadline:
            raise BenchmarkError("the mariadbd in the middle does not follow")
        time.sleep(0.1)


def measure(
    middle: Followed,
    pid: int,
    upstream: LocalMariaDB,
    replicas: int,
    rate: float,
    seconds: float,
    *,
    tls: bool,
) -> Run:
    """One run. Raises `BenchmarkError`."""
    account = middle.account
    login = f"{account.user}:{account.password}@{middle.host}:{middle.port}"
    position = upstream.gtid_binlog_pos
    with (
        Child(
            "benchmarks.receivers",
            *(f"--position={position}", f"--replicas={replicas}", *["--tls"] * tls, login),
        ) as receivers,
        Child(
            "benchmarks.arrivals",
            *("--host", upstream.host, "--port", str(upstream.port)),
            *("--connections", "1", "--rate", str(rate), "--sql", _INSERT),
        ) as arrivals,
    ):
        receivers.line()
        arrivals.line()
        time.sleep(WARM_UP_S)
        began, before = time.monotonic(), Usage.of(pid).cpu_s
        time.sleep(seconds)
        ended, cpu_s = time.monotonic(), Usage.of(pid).cpu_s - before
        times: list[Timed] = arrivals.finish()
        came: list[float] = receivers.tell(str(len(times)))
    # One connection: they come in the order in which they were due.
    lags = [at - due for (due, _), at in zip(times, came, strict=True) if began <= at < ended]
    if not lags:
        raise BenchmarkError("nothing came in the window")
    return Run(replicas, ended - began, cpu_s, lags)


def measure_limit(
    upstream: LocalMariaDB, directory: Path, replicas: int, rate: float, seconds: float
) -> Run:
    """One run with the program in C in the middle. Raises `BenchmarkError`."""
    with Child(
        "benchmarks.durable_tail",
        *(f"--directory={directory}", f"--replicas={replicas}"),
        f"{upstream.host}:{upstream.port}",
    ) as child:
        middle = Limit("127.0.0.1", child.line()["port"], upstream.account)
        return measure(middle, child.pid, upstream, replicas, rate, seconds, tls=False)


def compared(runs: Mapping[str, Sequence[Run]], limits: Sequence[Run] = ()) -> dict[str, Any]:
    """Ratios by the number of replicas, and what a group and each replica of it costs ours.

    Args:
        limits: of the program in C, if it has run; that is between ours and mariadbd's then.
    """
    ours, theirs = runs["ours"], runs["mariadbd"]
    pairs = list(zip(ours, theirs, strict=True))

    def lag_ratio(percent: int) -> dict[str, float]:
        return {
            str(a.replicas): round(
                percentile_ms(a.lags, percent) / percentile_ms(b.lags, percent), 3
            )
            for a, b in pairs
        }

    return {
        "cpu_ratio": {str(a.replicas): round(a.us_per_group / b.us_per_group, 3) for a, b in pairs},
        "lag_p50_ratio": lag_ratio(50),
        "lag_p99_ratio": lag_ratio(99),
        **costs(ours),
        **limited(limits, theirs),
        "ours": {str(one.replicas): one.report() for one in ours},
        "mariadbd": {str(one.replicas): one.report() for one in theirs},
    }


def limited(limits: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
    """What the program in C says of the same numbers of replicas; nothing where it has not run."""
    if not limits:
        return {}
    return {
        "limit_cpu_ratio": {
            str(a.replicas): round(a.us_per_group / b.us_per_group, 3)
            for a, b in zip(limits, theirs, strict=True)
        },
        "limit": {str(one.replicas): one.report() for one in limits},
    }


def costs(runs: Sequence[Run]) -> dict[str, float]:
    """Microseconds a group for the server, and for each replica: the line through the first and the last."""
    first, last = runs[0], runs[-1]
    more = last.replicas - first.replicas
    each = (last.us_per_group - first.us_per_group) / more if more else 0.0
    return {
        "us_per_group": round(first.us_per_group - each * first.replicas, 1),
        "us_per_group_and_replica": round(each, 2),
    }


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = []
    for rate, of_rate in result.items():
        if not rate.removesuffix(_TLS).isdigit():
            continue
        lines += [
            f"{rate} transactions a second; {of_rate['us_per_group']} us a group and "
            f"{of_rate['us_per_group_and_replica']} us each replica",
            f"{'replicas':>8} {'cpu %':>14} {'ratio':>6} {'p50 ms':>14} {'p99 ms':>16}",
        ]
        for replicas, ratio in of_rate["cpu_ratio"].items():
            a, b = of_rate["ours"][replicas], of_rate["mariadbd"][replicas]
            lines.append(
                f"{replicas:>8} {a['cpu_percent']:>6}, {b['cpu_percent']:>6} {ratio:>6} "
                f"{a['lag_p50_ms']:>6}, {b['lag_p50_ms']:>6} {a['lag_p99_ms']:>7}, {b['lag_p99_ms']:>7}"
            )
        lines.append("")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    add_numbers(parser, "--rates", RATES, "transactions a second", amount_argument)
    add_numbers(parser, "--replicas", REPLICAS, "those counts")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")
    parser.add_argument("--directory", type=Path, help="for the relay's store; on a disk")


BENCHMARK: Final = Benchmark(
    name="tail",
    summary="replicas at the tail: processor time and lag, beside a mariadbd in our place",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
