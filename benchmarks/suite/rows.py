"""Rows into Arrow columns, on one core: what `benchmarks/row_decoding.py` measures."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Final

from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, BenchmarkError, Result
from benchmarks.row_decoding import REPETITIONS, ROWS, TRANSACTIONS, measure
from tests.kit import rundir
from tests.kit.install import Install


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = Install.system()
    if install is None:
        raise BenchmarkError("there is no mariadbd here: `make setup` installs it")
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        numbers = measure(
            stack,
            install,
            path,
            rows=options.rows,
            transactions=options.transactions,
            repetitions=options.repetitions,
            without_pmr=options.without_pmr,
        )
        return {**numbers, "machine": facts(path)}


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = []
    for name, rates in result["rows_s"].items():
        lines.append(f"{name}: {result['rows'][name]:,} rows")
        lines += [
            f"  {who:15} {rate:>11,} rows/s {result['rows_cpu_s'][name][who]:>11,} rows/s of CPU"
            for who, rate in rates.items()
        ]
    lines += [f"{key} {value}" for key, value in result.items() if "_vs_" in key]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="row changes of bulk; default 400,000"
    )
    parser.add_argument(
        "--transactions", type=int, default=TRANSACTIONS, help="of one row; default 60,000"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="default 5, by turns")
    parser.add_argument(
        "--without-pmr",
        action="store_true",
        help="leave python-mysql-replication out: it takes long",
    )
    parser.add_argument("--directory", type=Path, help="for the files; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="rows",
    summary="rows into Arrow columns beside mariadb-binlog -v: bulk_rows_s, oltp_transactions_s, *_vs_*",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
