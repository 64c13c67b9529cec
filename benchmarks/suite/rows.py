"""Rows into Arrow columns, on one core: what `benchmarks/row_decoding.py` measures."""

from __future__ import annotations

import argparse
import contextlib
from typing import Final

from benchmarks.machine import facts, work_directory
from benchmarks.registry import Benchmark, BenchmarkError, Result
from benchmarks.row_decoding import add_arguments, measure
from binlog_server.testing import rundir
from binlog_server.testing.install import Install


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    install = Install.system()
    if install is None:
        raise BenchmarkError("there is no mariadbd here: `make setup` installs it")
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        numbers = measure(stack, install, path, options)
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


BENCHMARK: Final = Benchmark(
    name="rows",
    summary="rows into Arrow columns beside mariadb-binlog -v: bulk_rows_s, oltp_transactions_s, *_vs_*",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
