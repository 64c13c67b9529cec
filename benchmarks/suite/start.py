"""The cost of a start: exec to the first login, on a new store and on an existing one; the first master of a program.

Processor time, as nearly all of a start is modules that are loaded. The least of several starts is told: whatever else
the machine does only adds to it. Compiled modules are there, a start before does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.child import ROOT
from benchmarks.machine import facts, work_directory
from benchmarks.registry import POSITIVE, Benchmark, BenchmarkError, Result, progress
from binlog_server.testing import rundir
from tests.kit.server import BinlogServer

STARTS: Final = 9
SOURCES: Final = (".", "protocol", "storage")
PYTHON: Final = (sys.executable, "-P")
FIRST_MASTER: Final = """
import json, os, sys, time
from binlog_server.testing import new_master
master = new_master().start()
ready = time.process_time()
modules = len(sys.modules)
master.sql("SELECT 1")
print(json.dumps({"cpu_s": ready, "with_sql_cpu_s": time.process_time(), "modules": modules}), flush=True)
master.discard()
"""


class _Server(BinlogServer):
    command = (*PYTHON, "-m", "binlog_server")


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    trees = {"now": ROOT} | ({"before": options.before} if options.before else {})
    found: dict[str, dict[str, list[Any]]] = {
        tree: {"new": [], "existing": [], "master": []} for tree in trees
    }
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        path = stack.enter_context(work_directory(options.directory))
        machine = facts(path)
        for number in range(-1, options.starts):
            for tree, folder in trees.items():
                path_of_modules = os.pathsep.join(str(folder / part) for part in SOURCES)
                environment = {"PYTHONPATH": path_of_modules}
                store = path / f"{tree}-{number}"
                some = {
                    "new": _first_login(store, environment),
                    "existing": _first_login(store, environment),
                    "master": _first_master(environment),
                }
                for what, one in some.items():
                    if number >= 0:
                        found[tree][what].append(one)
                progress(f"{tree}: " + ", ".join(f"{w} {o['cpu_s']:.3f}" for w, o in some.items()))
    return {**_least(found["now"]), "machine": machine, "starts": found} | (
        {"before": _least(found["before"])} if options.before else {}
    )


def _least(found: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        **{
            f"{what}_s": round(min(one["cpu_s"] for one in some), 3) for what, some in found.items()
        },
        "master_sql_s": round(min(one["with_sql_cpu_s"] for one in found["master"]), 3),
        "median_s": {
            what: round(median(one["cpu_s"] for one in some), 3) for what, some in found.items()
        },
        "master_modules": found["master"][0]["modules"],
    }


def _first_login(directory: Path, environment: dict[str, str]) -> dict[str, float]:
    """One start of the server, which is killed behind its first login. Raises `BenchmarkError`."""
    server = _Server(directory=directory, environment=environment)
    try:
        before, began = _children_s(), time.perf_counter()
        server.start(timeout=120)
        server.connect().close()
        wall = time.perf_counter() - began
        server.kill()  # and wait, so that its time is counted
        return {"cpu_s": _children_s() - before, "wall_s": wall}
    except RuntimeError as error:
        raise BenchmarkError(str(error)) from None
    finally:
        server.discard()


def _first_master(environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [*PYTHON, "-c", FIRST_MASTER],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BenchmarkError(done.stderr)
    return json.loads(done.stdout)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(result: Result) -> str:
    """See `Benchmark`."""
    lines = [
        f"{'processor time, s':20}{'new store':>12}{'existing':>12}{'first master':>14}{'with SQL':>12}"
    ]
    for name, some in (("before", result.get("before")), ("now", result)):
        if some is not None:
            numbers = (some["new_s"], some["existing_s"], some["master_s"], some["master_sql_s"])
            new, existing, master, with_sql = (f"{number:.3f}" for number in numbers)
            lines.append(f"{name:20}{new:>12}{existing:>12}{master:>14}{with_sql:>12}")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--starts", type=POSITIVE, default=STARTS, help="of each; default 9")
    parser.add_argument(
        "--before", type=Path, metavar="TREE", help="another version's sources, by turns with these"
    )
    parser.add_argument("--directory", type=Path, help="for the stores; default: on a disk")


BENCHMARK: Final = Benchmark(
    name="start",
    summary="processor time from exec to the first login, and of the first master of a program",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
