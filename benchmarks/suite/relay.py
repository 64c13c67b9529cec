"""How fast one upstream's binlog is taken in: by us, and by a mariadbd whose IO thread alone runs.

The upstream holds two histories: many small row transactions, and one very large transaction. For each, both followers
begin with nothing and end with all of it, by turns, so that what disturbs the machine disturbs both. What counts is
the time from START SLAVE (for us: from the start of the process) to the last group: durable in our store, in the
relay log of mariadbd. There it may be in the memory of the kernel still: mariadbd syncs its relay log once in 10,000
events by default. For the large transaction it is measured with a sync of each event, too (`ratio_large_synced`; an
event is a row of a megabyte), which comes nearest to what we promise.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import history
from benchmarks.machine import facts, work_directory
from benchmarks.masters import DirectoryMariaDB
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from benchmarks.servers import Usage, gtid_binlog_pos, mariadb_install
from tests.kit import rundir
from tests.kit.install import Install
from tests.kit.server import BinlogServer

GROUPS: Final = 500_000
LARGE_BYTES: Final = 1 << 30
ROW_BYTES: Final = 1 << 20
REPETITIONS: Final = 3
TIMEOUT_S: Final = 900.0
POLL_S: Final = 0.02
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """One history taken in. `peak_mib`: resident memory at most, since the start of the process."""

    seconds: float
    cpu_s: float
    peak_mib: float

    def report(self) -> dict[str, float]:
        """For JSON."""
        return {
            "seconds": round(self.seconds, 3),
            "cpu_s": round(self.cpu_s, 2),
            "peak_rss_mib": round(self.peak_mib, 1),
        }


def make_large(server: DirectoryMariaDB, size: int) -> None:
    """Gives a fresh server a binlog with one transaction of that many bytes."""
    server.script(
        "CREATE DATABASE bench",
        "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=BLACKHOLE",
        "RESET MASTER",
        f"INSERT INTO bench.t (b) SELECT REPEAT('x', {ROW_BYTES}) FROM bench.seq_1_to_{size // ROW_BYTES}",
    )


def take_in_by_us(upstream: DirectoryMariaDB, directory: Path) -> Taken:
    """Our server, from nothing. Raises `BenchmarkError`."""
    wanted = upstream.gtid_binlog_pos
    server = BinlogServer(directory=directory, upstream=upstream, server_id=2)
    try:
        server.start()
        # Time and processor time are counted from here on: the process is up, and follows since a moment ago.
        begin = time.monotonic()
        before = Usage.of(server.pid).cpu_s
        _until(lambda: gtid_binlog_pos(server) == wanted, server.log)
        seconds = time.monotonic() - begin
        usage = Usage.of(server.pid)
        return Taken(seconds, usage.cpu_s - before, usage.peak_rss_mb)
    finally:
        server.discard()
        shutil.rmtree(directory, ignore_errors=True)


def take_in_by_mariadbd(
    install: Install, upstream: DirectoryMariaDB, directory: Path, *flags: str
) -> Taken:
    """A replica of which only the IO thread runs. Raises `BenchmarkError`."""
    # Gtid_IO_Pos is there before the group is: only the position in the file tells that all of it has come.
    end = upstream.q("SHOW MASTER STATUS")[0]
    wanted = (end["File"], end["Position"])
    replica = DirectoryMariaDB(
        install,
        directory,
        3,
        ["--relay-log=relay-bin", "--relay-log-purge=0", f"--tmpdir={directory}", *flags],
    )
    try:
        replica.start()
        replica.follow(upstream, start=False)
        before = Usage.of(replica.pid).cpu_s
        begin = time.monotonic()
        replica.q("START SLAVE IO_THREAD")
        _until(lambda: _read_position(replica) == wanted, replica.log)
        seconds = time.monotonic() - begin
        usage = Usage.of(replica.pid)
        return Taken(seconds, usage.cpu_s - before, usage.peak_rss_mb)
    finally:
        replica.discard()
        shutil.rmtree(directory, ignore_errors=True)


def _read_position(replica: DirectoryMariaDB) -> tuple[str, int]:
    status = replica.replica_status()
    return status["Master_Log_File"], status["Read_Master_Log_Pos"]


def _until(done: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"it does not come to the end:\n{log()[-3000:]}")
        time.sleep(POLL_S)


def _measure(
    name: str,
    install: Install,
    path: Path,
    make: Callable[[DirectoryMariaDB], None],
    repetitions: int,
    *,
    synced: bool,
) -> dict[str, Any]:
    """The followers of one history. `synced`: also a mariadbd that syncs its relay log after each event."""
    runs: dict[str, list[Taken]] = {}
    upstream = DirectoryMariaDB(
        install,
        path / f"upstream-{name}",
        1,
        [
            *history.FLAGS,
            "--max-binlog-cache-size=4G",
            f"--tmpdir={path}",
            "--plugin-maturity=unknown",
            "--plugin-load-add=ha_blackhole",
        ],
    )
    with contextlib.ExitStack() as stack:
        stack.callback(upstream.discard)
        upstream.start().create_account()
        progress(f"{name}: mariadbd {install.full_version} makes the history")
        make(upstream)
        size = sum(row["File_size"] for row in upstream.q("SHOW BINARY LOGS"))
        for _ in range(repetitions):
            one = {
                "ours": take_in_by_us(upstream, path / "ours"),
                "mariadbd": take_in_by_mariadbd(install, upstream, path / "mariadbd"),
            }
            if synced:
                one["mariadbd_synced"] = take_in_by_mariadbd(
                    install, upstream, path / "mariadbd", "--sync-relay-log=1"
                )
            for who, taken in one.items():
                runs.setdefault(who, []).append(taken)
                progress(f"{name}: {who:15} {taken.seconds:7.2f} s, {taken.cpu_s:6.2f} s of cpu")
    seconds = {who: median(taken.seconds for taken in found) for who, found in runs.items()}
    ratios = {who: round(theirs / seconds["ours"], 3) for who, theirs in seconds.items()}
    return {
        "ratio": ratios["mariadbd"],
        "ratio_synced": ratios.get("mariadbd_synced"),
        "bytes": size,
        **{f"{who}_mb_s": round(size / each / 1e6, 1) for who, each in seconds.items()},
        **{f"{who}_s": round(each, 3) for who, each in seconds.items()},
        **{who: [taken.report() for taken in found] for who, found in runs.items()},
    }


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = mariadb_install(options.mariadb)
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        small = _measure(
            "small",
            install,
            path,
            lambda s: history.make(s, options.groups),
            options.repetitions,
            synced=False,
        )
        large = _measure(
            "large",
            install,
            path,
            lambda s: make_large(s, options.bytes),
            options.repetitions,
            synced=True,
        )
        return {
            "ratio_small": small["ratio"],
            "ratio_large": large["ratio"],
            "ratio_large_synced": large["ratio_synced"],
            "rss_mib": max(taken["peak_rss_mib"] for taken in small["ours"] + large["ours"]),
            "groups_s": round(options.groups / small["ours_s"]),
            "mariadbd_groups_s": round(options.groups / small["mariadbd_s"]),
            "groups": options.groups,
            "small": small,
            "large": large,
            "repetitions": options.repetitions,
            "mariadbd": install.full_version,
            "machine": facts(path),
        }


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"{'history':>8} {'server':>15} {'seconds':>9} {'MB/s':>8} {'cpu s':>8} {'times ours':>11}",
    ]
    for name in ("small", "large"):
        found = result[name]
        for server in ("ours", "mariadbd", "mariadbd_synced"):
            if server in found:
                cpu_s = median(taken["cpu_s"] for taken in found[server])
                lines.append(
                    f"{name:>8} {server:>15} {found[f'{server}_s']:>9.2f} {found[f'{server}_mb_s']:>8.1f}"
                    f" {cpu_s:>8.2f} {found[f'{server}_s'] / found['ours_s']:>7.2f}"
                )
    lines += [
        "",
        f"small: {result['groups']:,} groups; ours {result['groups_s']:,} groups/s, mariadbd "
        f"{result['mariadbd_groups_s']:,}; large: one of {result['large']['bytes'] / _MIB:.0f} MiB",
        f"ours: resident {result['rss_mib']:.0f} MiB at most",
    ]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--groups", type=int, default=GROUPS, help="small ones; default 500,000")
    parser.add_argument(
        "--bytes", type=int, default=LARGE_BYTES, help="of the large one; default 1 GiB"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="default 3")
    parser.add_argument("--mariadb", default="10.11", metavar="VERSION", help="default 10.11")
    parser.add_argument("--directory", type=Path, help="for all stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="relay",
    summary="a binlog taken in, beside the IO thread of a mariadbd: ratio_small, ratio_large, rss_mib",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
