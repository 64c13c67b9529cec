"""The registry of benchmarks. Each module of `benchmarks.suite` holds one, by the name BENCHMARK."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from binlog_storage.console.arguments import number_argument

from benchmarks import suite

Result = Mapping[str, Any]
"""Ready for JSON: nested mappings with strings as keys; numbers, strings, lists."""


class BenchmarkError(Exception):
    """A benchmark cannot be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement.

    summary: one line for the list.
    add_arguments: declares its options.
    run: measures; says by `progress` what it is at. Leaves nothing behind, also when it fails.
        May raise `BenchmarkError`.
    table: its result for a reader.
    """

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]
    table: Callable[[Result], str]


def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks, by name."""
    modules = (
        importlib.import_module(f"{suite.__name__}.{module.name}")
        for module in pkgutil.iter_modules(suite.__path__)
    )
    found: list[Benchmark] = [module.BENCHMARK for module in modules]
    return {benchmark.name: benchmark for benchmark in sorted(found, key=lambda b: b.name)}


POSITIVE: Final = number_argument(1)


class _Flat(argparse.Action):
    """Lists in a list as one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [number for part in values for number in part])


def add_numbers(
    parser: argparse.ArgumentParser,
    flag: str,
    default: Sequence[float],
    about: str,
    kind: Callable[[str], float] = POSITIVE,
) -> None:
    """Declare an option that takes several numbers: `1 16`, `1,16`, or both."""

    def numbers(text: str) -> list[float]:
        return [kind(word) for word in text.split(",")]

    shown = ",".join(map(str, default))
    help = f"{about}; default {shown}"
    options: dict[str, Any] = {"nargs": "+", "metavar": "N", "action": _Flat}
    parser.add_argument(flag, type=numbers, default=list(default), help=help, **options)


def progress(text: str) -> None:
    """Tell whoever waits; standard output is for the result."""
    print(text, file=sys.stderr, flush=True)
