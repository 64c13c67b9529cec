"""The command line: `python -m tests.fuzz [--minutes N] [--target NAME ...] [--seed N] [--replay FILE ...]`."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fuzz.registry import TARGETS
from tests.fuzz.runner import Found, Run, Tally

FINDINGS: Final = Path("fuzz-findings")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was found, 1 if something was."""
    options = _options(arguments)
    if options.replay:
        return _replay(options.replay, options.target)
    names = options.target or list(TARGETS)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    print(f"fuzz: seed {seed}, {options.minutes:g} minutes, {options.jobs} at a time", flush=True)
    began = time.monotonic()
    seconds = options.minutes * 60 * options.jobs / len(names)
    # With a heap for each thread, holes between what the threads of many lives have left pass for growth.
    os.environ["MALLOC_ARENA_MAX"] = "1"
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        tasks = [(name, f"{seed}/{name}", seconds, options.inputs) for name in names]
        tallies = dict(pool.imap_unordered(_work, tasks))
    return _tell(tallies, time.monotonic() - began, as_json=options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--inputs", type=int, help="of each target, instead of a time")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="all by default")
    parser.add_argument("--seed", type=int, help="repeats a run, but for where its time ended")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--replay", type=Path, nargs="+", help="files of findings: FINDINGS/TARGET/NAME"
    )
    parser.add_argument("--json", action="store_true", help="the result as one object")
    return parser.parse_args(arguments)


def _work(task: tuple[str, str, float, int | None]) -> tuple[str, Tally]:
    name, seed, seconds, inputs = task
    logging.lastResort = None  # what damaged files make a store say is not for the screen
    folder = FINDINGS / name
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / f"running-{os.getpid()}"
    run = Run(TARGETS[name](), random.Random(seed), current)
    end = time.monotonic() + seconds

    def wanted(tally: Tally) -> bool:
        return tally.inputs < inputs if inputs is not None else time.monotonic() < end

    tally = run.go_on(wanted)
    for found in tally.found:
        _keep(folder, found)
    current.unlink(missing_ok=True)
    print(f"fuzz: {name}: {tally.inputs} inputs, {len(tally.found)} findings", flush=True)
    return name, tally


def _keep(folder: Path, found: Found) -> None:
    (folder / found.name).write_bytes(found.data)
    (folder / f"{found.name}.txt").write_text(f"{found.why}\n\n{found.trace}", encoding="utf-8")


def _tell(tallies: Mapping[str, Tally], seconds: float, *, as_json: bool) -> int:
    found = [(name, f) for name, tally in tallies.items() for f in tally.found]
    if as_json:
        shown: dict[str, Any] = {
            name: {
                "inputs": t.inputs,
                "slowest_s": round(t.slowest_s, 4),
                "grown_mib": t.grown >> 20,
                "found": [f.why for f in t.found],
            }
            for name, t in sorted(tallies.items())
        }
        print(json.dumps({"inputs": sum(t.inputs for t in tallies.values()), "targets": shown}))
    else:
        for name, tally in sorted(tallies.items()):
            print(
                f"{name:12} {tally.inputs:9} inputs, slowest {tally.slowest_s * 1000:7.1f} ms, "
                f"memory {tally.grown / (1 << 20):+6.1f} MiB, {len(tally.found)} found"
            )
        total = sum(tally.inputs for tally in tallies.values())
        print(f"{'all':12} {total:9} inputs in {seconds:.0f} s, {len(found)} found")
    for name, one in found:
        print(f"{FINDINGS / name / one.name}: {one.why}", file=sys.stderr)
    return 1 if found else 0


def _replay(files: Sequence[Path], targets: Sequence[str] | None) -> int:
    status = 0
    for file in files:
        name = targets[0] if targets else file.resolve().parent.name
        found = Run(TARGETS[name](), random.Random(0)).try_one(file.read_bytes())
        print(f"{file}: {'nothing is found' if found is None else found.why}")
        if found is not None:
            print(found.trace, file=sys.stderr)
            status = 1
    return status
