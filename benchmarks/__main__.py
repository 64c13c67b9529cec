"""`python -m benchmarks [NAME [--json] [options]]`: list the benchmarks, or run one.

Standard output has the result alone: a table, or with --json exactly one JSON object. Progress goes
to standard error. Exit code 2: no such benchmark, or a wrong option; 1: it could not be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence

from benchmarks import machine
from benchmarks.registry import Benchmark, BenchmarkError, benchmarks

FAILED = 1
USAGE_ERROR = 2


def main(arguments: Sequence[str]) -> int:
    known = benchmarks()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: python -m benchmarks NAME [--json] [options]   (NAME --help tells the options)\n"
        )
        print(listing(known))
        return 0
    name, *rest = arguments
    benchmark = known.get(name)
    if benchmark is None:
        print(f"no benchmark {name!r}; there are:\n\n{listing(known)}", file=sys.stderr)
        return USAGE_ERROR
    return run(benchmark, rest)


def run(benchmark: Benchmark, arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {benchmark.name}", description=benchmark.summary
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--let-sleep",
        action="store_true",
        help="processors may sleep while they wait, as they do unless tuned",
    )
    benchmark.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        with contextlib.nullcontext() if options.let_sleep else machine.awake():
            result = benchmark.run(options)
    except BenchmarkError as error:
        print(f"{benchmark.name} could not be measured: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(result) if options.json else benchmark.table(result))
    return 0


def listing(known: Mapping[str, Benchmark]) -> str:
    width = max(map(len, known))
    return "\n".join(f"  {b.name:{width}}  {b.summary}" for b in known.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
