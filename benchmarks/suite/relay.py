"""How fast one upstream's binlog is taken in: by us, and by a mariadbd whose IO thread alone runs.

The upstream holds two histories: many small row transactions, and one very large transaction. For each, both followers
begin with nothing and end with all of it, by turns, so that what disturbs the machine disturbs both. What counts is
the time from START SLAVE, said by SQL to a server that is up, to the last group: durable in our store, in the relay log
of mariadbd. There it may be in the memory of the kernel still: mariadbd syncs its relay log once in 10,000 events by
default. For the large transaction it is measured with a sync of each event, too (`ratio_large_synced`; an event is a
row of a megabyte), which comes nearest to what we promise; and what the disk can do is measured beside it.

What a receiver can reach at all is measured in the same rounds (`large_vs_limit`): a program in C asks the upstream
for the large transaction, and has it durable in pages with checksums (`durable_pages.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import durable_pages, history
from benchmarks.compiled import compiled
from benchmarks.machine import facts, work_directory, write_mb_s
from benchmarks.masters import MAX_BINLOG_SIZE, DirectoryMariaDB
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from benchmarks.servers import Usage, mariadb_install
from binlog_server.testing import rundir
from binlog_server.testing.install import Install
from tests.kit.server import BinlogServer

GROUPS: Final = 500_000
LARGE_BYTES: Final = 1 << 30
ROW_BYTES: Final = 1 << 20
REPETITIONS: Final = 3
TIMEOUT_S: Final = 900.0
POLL_S: Final = 0.02
SETTLED_S: Final = (
    3.0  # our start loads things behind its first clients, which are no part of what is measured
)
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """One history taken in.

    peak_mib: resident memory at most, since the start of the process.
    written: bytes that the server gave to the kernel for its files.
    """

    seconds: float
    cpu_s: float
    peak_mib: float
    written: int

    def report(self) -> dict[str, float]:
        """The numbers for JSON."""
        return {
            "seconds": round(self.seconds, 3),
            "cpu_s": round(self.cpu_s, 2),
            "peak_rss_mib": round(self.peak_mib, 1),
            "written_mb": round(self.written / 1e6, 1),
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
    server = BinlogServer(
        directory=directory,
        server_id=2,
        users={"admin": {"password": "admin-password", "grants": ["ALL PRIVILEGES"]}},
        max_binlog_size=MAX_BINLOG_SIZE,
    )
    try:
        server.start()
        account = upstream.account
        server.q(
            f"CHANGE MASTER TO MASTER_HOST='{upstream.host}', MASTER_PORT={upstream.port}, MASTER_SSL=0, "
            f"MASTER_USER='{account.user}', MASTER_PASSWORD='{account.password}'"
        )
        with server.connect() as connection, connection.cursor() as cursor:

            def is_durable() -> bool:
                cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos AS position")
                if cursor.fetchone()["position"] != wanted:
                    return False
                cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_lsn%'")
                lsn = {row["Variable_name"]: int(row["Value"]) for row in cursor.fetchall()}
                return lsn["Innodb_lsn_flushed"] >= lsn["Innodb_lsn_current"]

            time.sleep(SETTLED_S)
            is_durable()  # what the first question of its kind has loaded is no part of it either
            os.sync()  # what was written before is nobody's load
            before = Usage.of(server.pid).cpu_s
            begin = time.monotonic()
            cursor.execute("START SLAVE")
            _until(is_durable, server.log)
            seconds = time.monotonic() - begin
            usage = Usage.of(server.pid)
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_data_written'")
            written = int(cursor.fetchone()["Value"])
        return Taken(seconds, usage.cpu_s - before, usage.peak_rss_mb, written)
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
        with replica.connect() as connection, connection.cursor() as cursor:

            def is_there() -> bool:
                cursor.execute("SHOW SLAVE STATUS")
                row = cursor.fetchone()
                # More if the server has noted a checkpoint of its binlog meanwhile, which is an event.
                return (row["Master_Log_File"], row["Read_Master_Log_Pos"]) >= wanted

            is_there()
            os.sync()
            before = Usage.of(replica.pid).cpu_s
            begin = time.monotonic()
            cursor.execute("START SLAVE IO_THREAD")
            _until(is_there, replica.log)
            seconds = time.monotonic() - begin
            usage = Usage.of(replica.pid)
            cursor.execute("SHOW SLAVE STATUS")
            written = int(cursor.fetchone()["Relay_Log_Space"])
        return Taken(seconds, usage.cpu_s - before, usage.peak_rss_mb, written)
    finally:
        replica.discard()
        shutil.rmtree(directory, ignore_errors=True)


def take_in_by_the_least(
    program: Path, upstream: DirectoryMariaDB, directory: Path, size: int
) -> Taken:
    """A program that only makes pages and has them durable. Raises `BenchmarkError`."""
    found = durable_pages.receive(program, upstream, directory, size)
    return Taken(found.seconds, found.cpu_s, 0, found.bytes)


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
    is_large: bool,
) -> dict[str, Any]:
    """The followers of one history. `is_large`: also a mariadbd that syncs its relay log after each event, and the
    least that any of them has to do.
    """
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
        program = compiled(durable_pages.SOURCE, path) if is_large else None
        for _ in range(repetitions):
            one = {
                "ours": take_in_by_us(upstream, path / "ours"),
                "mariadbd": take_in_by_mariadbd(install, upstream, path / "mariadbd"),
            }
            if program is not None:
                one["mariadbd_synced"] = take_in_by_mariadbd(
                    install, upstream, path / "mariadbd", "--sync-relay-log=1"
                )
                one["limit"] = take_in_by_the_least(program, upstream, path, 2 * size)
            for who, taken in one.items():
                runs.setdefault(who, []).append(taken)
                progress(f"{name}: {who:15} {taken.seconds:7.2f} s, {taken.cpu_s:6.2f} s of cpu")
    seconds = {who: median(taken.seconds for taken in found) for who, found in runs.items()}
    ratios = {who: round(theirs / seconds["ours"], 3) for who, theirs in seconds.items()}
    return {
        "ratio": ratios["mariadbd"],
        "ratio_synced": ratios.get("mariadbd_synced"),
        "vs_limit": round(seconds["ours"] / seconds["limit"], 3) if is_large else None,
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
            is_large=False,
        )
        large = _measure(
            "large",
            install,
            path,
            lambda s: make_large(s, options.bytes),
            options.repetitions,
            is_large=True,
        )
        return {
            "ratio_small": small["ratio"],
            "ratio_large": large["ratio"],
            "ratio_large_synced": large["ratio_synced"],
            "large_vs_limit": large["vs_limit"],
            "rss_mib": max(taken["peak_rss_mib"] for taken in small["ours"] + large["ours"]),
            "groups_s": round(options.groups / small["ours_s"]),
            "mariadbd_groups_s": round(options.groups / small["mariadbd_s"]),
            "groups": options.groups,
            "small": small,
            "large": large,
            "repetitions": options.repetitions,
            "disk_mb_s": round(write_mb_s(path, options.bytes), 1),
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
        for server in ("ours", "mariadbd", "mariadbd_synced", "limit"):
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
        f"ours: resident {result['rss_mib']:.0f} MiB at most; written for the large one: ours "
        f"{result['large']['ours'][0]['written_mb']:.0f} MB, mariadbd "
        f"{result['large']['mariadbd'][0]['written_mb']:.0f} MB; the disk, with one sync at the end: "
        f"{result['disk_mb_s']:.0f} MB/s",
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
    summary="a binlog taken in, beside the IO thread of a mariadbd: ratio_small, ratio_large, large_vs_limit, rss_mib",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
