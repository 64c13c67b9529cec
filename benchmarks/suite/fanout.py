"""The same history from us and from mariadbd to 1 and to 16 clients that drain it.

mariadbd makes the history, our server relays it, and is then started anew without its upstream, so
that nothing runs but what is measured. One pass counts the events and groups that each server sends
and warms it up. Then rounds of drains, the two servers by turns, so that what disturbs the machine
disturbs both; the medians are the result. By turns with them, a bare server sends as many ready-made
bytes as ours to the same clients: what the machine would allow.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from binlog_storage.console.arguments import number_argument

from benchmarks import drain, history
from benchmarks.child import Child
from benchmarks.drain import Drained
from benchmarks.masters import ENGINES, MAX_BINLOG_SIZE, storage_engine
from benchmarks.raw_replica import DrainError
from benchmarks.registry import Benchmark, Result, add_numbers, progress
from benchmarks.servers import TICK_S, Usage, mariadb_install, tls_flags, wait_relayed
from binlog_server.testing import rundir
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.sql_server import Followed
from tests.kit.server import BinlogServer

GROUPS: Final = 500_000
CLIENTS: Final = (1, 16)
ROUNDS: Final = 3
TRIES: Final = 3
OTHER_EVENTS_MAX: Final = 100
"""Of a stream, outside of groups: the heads and ends of files, five or so a file of a gibibyte."""
RELAY_TIMEOUT_S: Final = 900.0


@dataclass(slots=True)
class Subject:
    """One of the two servers."""

    source: Followed
    pid: int
    groups: int
    """The groups that the server must send to each client."""
    tls: bool
    events: int = 0
    client_bytes: int = 0
    runs: dict[int, list[Drained]] = field(default_factory=dict)
    """The runs by the number of clients."""
    cpu_s: dict[int, list[float]] = field(default_factory=dict)

    def count(self) -> None:
        """The first pass: warm up, and learn what a client must get. Raises `DrainError`."""
        counted = drain.run(self.source, 1, count=True, tls=self.tls)
        if counted.groups != self.groups:
            raise DrainError(f"{self.source} sends {counted.groups} groups, not {self.groups}")
        others = counted.events - self.groups * history.EVENTS_PER_GROUP
        if not 0 <= others <= OTHER_EVENTS_MAX:
            raise DrainError(
                f"{self.source} sends {counted.events} events for {self.groups} groups of {history.EVENTS_PER_GROUP}: "
                f"{others} are of no group, where heads of files are {OTHER_EVENTS_MAX} at most"
            )
        self.events = counted.events
        self.client_bytes = counted.bytes

    def measure(self, clients: int) -> Drained:
        """One drain. Raises `DrainError` unless every client got what the first one did."""
        for _ in range(TRIES):
            before = Usage.of(self.pid)
            drained = drain.run(self.source, clients, tls=self.tls)
            cpu_s = Usage.of(self.pid).cpu_s - before.cpu_s
            if drained.bytes == clients * self.client_bytes:
                break
            # mariadbd notes a binlog checkpoint when its engine gets round to it: one small event more since the count.
            self.count()
        else:
            raise DrainError(
                f"{self.source}: {drained.bytes} bytes for {clients} clients, "
                f"of which one alone got {self.client_bytes}"
            )
        self.runs.setdefault(clients, []).append(drained)
        self.cpu_s.setdefault(clients, []).append(cpu_s)
        return drained

    # Medians, in total over the clients

    def seconds(self, clients: int) -> float:
        return median(drained.seconds for drained in self.runs[clients])

    def mb_s(self, clients: int) -> float:
        return clients * self.client_bytes / self.seconds(clients) / 1e6

    def groups_s(self, clients: int) -> float:
        return clients * self.groups / self.seconds(clients)

    def events_s(self, clients: int) -> float:
        return clients * self.events / self.seconds(clients)

    def groups_per_cpu_s(self, clients: int) -> float:
        return clients * self.groups / max(median(self.cpu_s[clients]), TICK_S)

    def report(self) -> dict[str, Any]:
        """Results beside the main numbers."""
        usage = Usage.of(self.pid)
        return {
            "groups_s": _by_clients(self.runs, self.groups_s, 0),
            "seconds": {
                str(n): [round(d.seconds, 3) for d in runs] for n, runs in self.runs.items()
            },
            "cpu_s": {str(n): round(median(values), 2) for n, values in self.cpu_s.items()},
            "drain_cpu_s": _by_clients(
                self.runs, lambda n: median(d.cpu_s for d in self.runs[n]), 2
            ),
            "client_bytes": self.client_bytes,
            "events": self.events,
            "rss_mb": round(usage.rss_mb),
            "peak_rss_mb": round(usage.peak_rss_mb),
        }


class Bare:
    """The server of ready-made bytes, `client_bytes` for each client. It ends with `stack`."""

    def __init__(self, stack: contextlib.ExitStack, client_bytes: int) -> None:
        self._client_bytes = client_bytes
        self._runs: dict[int, list[float]] = {}
        child = stack.enter_context(Child("benchmarks.loopback", f"--bytes={client_bytes}"))
        self._port = int(child.line()["port"])

    def measure(self, clients: int) -> float:
        """One drain; its megabytes per second. Raises `DrainError` unless every client got all."""
        drained = drain.run_bare(self._port, clients)
        if drained.bytes != clients * self._client_bytes:
            raise DrainError(f"loopback: {drained.bytes} bytes for {clients} clients")
        speed = drained.bytes / drained.seconds / 1e6
        self._runs.setdefault(clients, []).append(speed)
        return speed

    def mb_s(self, clients: int) -> float:
        """The median."""
        return median(self._runs[clients])


def _by_clients(
    clients: Iterable[int], value: Callable[[int], float], digits: int
) -> dict[str, float]:
    return {str(n): round(value(n), digits) for n in clients}


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    groups, clients, rounds = options.groups, options.clients, options.rounds
    install = mariadb_install(options.mariadb)
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        flags: tuple[str, ...] = history.FLAGS
        if options.tls:
            flags += tls_flags(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        mariadb = LocalMariaDB(install, "mariadbd", server_id=1, flags=flags)
        stack.callback(mariadb.discard)
        mariadb.start().create_account()
        progress(f"mariadbd {install.full_version} makes {groups} groups")
        made_s = _timed(lambda: history.make(mariadb, groups))

        engine = storage_engine(options.engine)
        relay = BinlogServer(
            upstream=mariadb,
            server_id=2,
            binlog_storage_engine=engine,
            max_binlog_size=MAX_BINLOG_SIZE,  # as mariadbd's: each file has events of its own
        )
        stack.callback(relay.discard)
        progress(f"made in {made_s:.1f} s; our server relays them")
        relay_s = _timed(lambda: wait_relayed(relay.start(), mariadb, RELAY_TIMEOUT_S))
        relay_cpu_s = Usage.of(relay.pid).cpu_s
        relay.stop()
        relay.upstream = None
        relay.start()
        progress(
            f"relayed in {relay_s:.1f} s; both are drained: "
            f"ours is process {relay.pid}, mariadbd {mariadb.pid}"
        )

        ours = Subject(relay, relay.pid, groups, options.tls)
        theirs = Subject(mariadb, mariadb.pid, groups, options.tls)
        for subject in (ours, theirs):
            subject.count()
        bare = Bare(stack, ours.client_bytes)
        for n in clients:
            for _ in range(rounds):
                for subject in (ours, theirs):
                    drained = subject.measure(n)
                    speed = n * groups / drained.seconds
                    progress(f"{n:3} clients  {subject.source!r}: {speed:,.0f} groups/s")
                progress(f"{n:3} clients  loopback: {bare.measure(n):,.0f} MB/s")

        return {
            "ours_mb_s": _by_clients(ours.runs, ours.mb_s, 1),
            "mariadbd_mb_s": _by_clients(theirs.runs, theirs.mb_s, 1),
            "ratio": _by_clients(ours.runs, lambda n: theirs.seconds(n) / ours.seconds(n), 3),
            "ratio_by_cpu": _by_clients(
                ours.runs, lambda n: ours.groups_per_cpu_s(n) / theirs.groups_per_cpu_s(n), 3
            ),
            "of_loopback": _by_clients(ours.runs, lambda n: ours.mb_s(n) / bare.mb_s(n), 3),
            "loopback_mb_s": _by_clients(ours.runs, bare.mb_s, 1),
            "ours_events_s": _by_clients(ours.runs, ours.events_s, 0),
            "ours": ours.report(),
            "mariadbd": {"version": install.full_version, **theirs.report()},
            "history": {
                "groups": groups,
                "events_per_group": history.EVENTS_PER_GROUP,
                "made_s": round(made_s, 2),
                "relay_s": round(relay_s, 2),
                "relay_groups_s": round(groups / relay_s),
                "relay_cpu_s": round(relay_cpu_s, 2),
            },
            "tls": options.tls,
            "rounds": rounds,
            "cpus": os.cpu_count(),
        }


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def table(result: Result) -> str:
    """See `Benchmark`."""
    made = result["history"]
    lines = [
        f"{made['groups']:,} groups of {made['events_per_group']} events; mariadbd "
        f"{result['mariadbd']['version']}; {result['cpus']} cpus; medians of {result['rounds']}",
        "",
        f"{'clients':>7} {'server':>9} {'groups/s':>11} {'MB/s':>8} {'cpu s':>7} {'ratio':>7}",
    ]
    for n, ratio in result["ratio"].items():
        for server in ("ours", "mariadbd"):
            report = result[server]
            lines.append(
                f"{n:>7} {server:>9} {report['groups_s'][n]:>11,.0f}"
                f" {result[f'{server}_mb_s'][n]:>8,.1f} {report['cpu_s'][n]:>7.2f}"
                f" {ratio if server == 'ours' else 1:>7.2f}"
            )
        lines.append(
            f"{n:>7} {'loopback':>9} {'':>11} {result['loopback_mb_s'][n]:>8,.1f}"
            f"   (ours: {result['of_loopback'][n]:.0%} of it)"
        )
    lines += [
        "",
        f"ours: {', '.join(f'{v:,.0f} events/s to {n}' for n, v in result['ours_events_s'].items())}",
        f"relay: {made['relay_groups_s']:,} groups/s ({made['relay_cpu_s']} s of cpu); "
        f"resident {result['ours']['peak_rss_mb']} MB at most, "
        f"mariadbd {result['mariadbd']['peak_rss_mb']} MB",
    ]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    positive = number_argument(1)
    parser.add_argument("--groups", type=positive, default=GROUPS, help="of the history")
    add_numbers(parser, "--clients", CLIENTS, "those counts")
    parser.add_argument(
        "--rounds", type=positive, default=ROUNDS, help="of which the median counts"
    )
    parser.add_argument(
        "--tls", action="store_true", help="clients by TLS; the bare server stays plain"
    )
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="of our store")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")


BENCHMARK: Final = Benchmark(
    name="fanout",
    summary="history to 1 and 16 draining replicas, beside mariadbd: MB/s, groups/s, ratio",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
