"""The effect of a transaction of 2 GiB on the small commits beside it, in traditional binlog files: renamed or copied.

As `large_transaction.py` measures it, of four servers in turn: ours with traditional files, once with
binlog_large_commit_threshold as it is and once out of reach, and mariadbd 11.8 and 10.11, of which the one renames and
the other copies. The factors are those of small commits that were due in the time of the large COMMIT itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from benchmarks.big_writer import STATEMENT_BYTES
from benchmarks.masters import start_mariadbd, start_ours
from benchmarks.registry import Benchmark, Result
from benchmarks.servers import mariadb_install
from benchmarks.suite import large_transaction
from benchmarks.suite.large_transaction import RATE, Start, by_turns

BYTES: Final = 2 << 30
REPETITIONS: Final = 1
VERSIONS: Final = ("11.8", "10.11")
_NEVER: Final = 2**63 - 1


def _ours(**options: Any) -> Start:
    return lambda stack, path: start_ours(
        stack, path, flush_log_at_trx_commit=1, engine="classic", **options
    )


def _mariadbd(version: str) -> Start:
    install = mariadb_install(version)
    return lambda stack, path: start_mariadbd(
        stack, install, path, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"
    )


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    starts = {"rename": _ours(), "copy": _ours(binlog_large_commit_threshold=_NEVER)}
    if not options.no_mariadbd:
        starts |= {f"mariadbd_{version}": _mariadbd(version) for version in VERSIONS}
    found, machine = by_turns(starts, options)
    return {
        **{f"p99_factor_{name}": one["p99_factor_in_commit"] for name, one in found.items()},
        **found,
        "transaction_bytes": options.bytes,
        "small_commits_s": RATE,
        "window_s": options.window,
        "repetitions": options.repetitions,
        "machine": machine,
    }


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"a transaction of {result['transaction_bytes'] >> 20} MiB beside {result['small_commits_s']:.0f} small "
        f"commits/s, traditional files; {result['window_s']:.0f} s before it, and the time of its COMMIT",
        "",
        f"{'server':>14} {'p99 before':>11} {'p99 beside':>11} {'factor':>8} {'max ms':>9} {'COMMIT s':>9}",
    ]
    for name, found in result.items():
        if isinstance(found, dict) and "p99_factor" in found:
            before, beside, factor = (
                found["baseline"],
                found["in_commit"],
                found["p99_factor_in_commit"],
            )
            lines.append(
                f"{name:>14} {before['p99_ms']:>8.2f} ms {beside['p99_ms']:>8.2f} ms {factor:>8.2f} "
                f"{beside['max_ms']:>9.1f} {found['commit_s']:>9.3f}"
            )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    window = large_transaction.WINDOW_S
    parser.add_argument(
        "--bytes", type=int, default=BYTES, help="of the transaction; default 2 GiB"
    )
    parser.add_argument(
        "--statement-bytes", type=int, default=STATEMENT_BYTES, help="of each INSERT"
    )
    parser.add_argument("--window", type=float, default=window, help="seconds; default 5")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="default 1")
    parser.add_argument("--no-mariadbd", action="store_true", help="ours only")
    parser.add_argument("--directory", type=Path, help="for the stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="rename",
    summary="small commits while 2 GiB commit, traditional files: p99_factor_rename, p99_factor_copy",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
