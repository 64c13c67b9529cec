"""Histories worth crashing in: each on one matter, and random ones over all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.storage.crash.player import Step
from tests.storage.groups import pick_size

PAGE = 16384


def steps(*texts: str) -> list[Step]:
    """From "name number; name number; ..."; "3x name" is that three times."""
    return list(_parsed("; ".join(texts)))


def _parsed(text: str) -> Iterator[Step]:
    for words in (part.split() for part in text.split(";")):
        if not words:
            continue
        times = int(words.pop(0)[:-1]) if words[0].endswith("x") else 1
        number = int(words.pop()) if words[-1].isdigit() else 0
        for _ in range(times):
            yield Step(" ".join(words), number)


SCRIPTS: dict[str, list[Step]] = {
    # flush_log_at_trx_commit=1: each group is durable before the next
    "synced": steps(
        "5x append sync 300; append sync 9000; step; 3x append sync 5000; step 2; 2x append sync 300",
        "append sync 16300; append sync 16380; append sync 16384; step 3; marker; sync; 3x append sync 200",
        "append sync 30000; step 2; append sync 31000; 3x append sync 200; step 9; append sync 100",
    ),
    # 0 and 2: a sync now and then, pages written in between
    "unsynced": steps(
        "3x append 300; write log; 2x append 9000; step; append 200; sync; append 20000; step; append 31000; step",
        "2x append 500; write log; step; append 16000; sync; 4x append 7000; step; write log; 3x append 100; step 3",
        "append 25000; append 100; sync; append 100; step 2; 2x append 40; marker; append 16384",
    ),
    "pages": steps(
        "append 16300; append sync 60; append 16321; append sync 16322; append sync 16323; append 16324",
        "append sync 16325; step; append 16326; sync; append sync 16319; step 2; append sync 16320; append sync 5",
    ),
    "files": steps(
        "append 31000; append sync 31000; step; append 31000; append sync 200; append 31000; step 2; append sync 31000",
        "append 200; append 31000; sync; step 3; append 31000; append 31000; append sync 31000; step; append sync 300",
    ),
    "checkpoints": steps(
        "append sync 300; checkpoint; append sync 300; append 300; checkpoint; append 300; append sync 9000",
        "checkpoint; append 20000; checkpoint; append 100; step; append sync 100; checkpoint; checkpoint; append 31000",
        "checkpoint; 2x append 31000; append sync 200; checkpoint; flush; checkpoint; append sync 200; checkpoint",
        "append 100",
    ),
    # the log is a ring of 256 KiB: around it more than once
    "ring": steps(
        "7x append sync 16000; step 2; 9x append 12000; sync; step; 6x append 9000; write log; 3x append sync 20000",
        "step 3; 8x append 14000; append sync 31000; 7x append 15000; 5x append sync 9000; step; 9x append sync 8000",
    ),
    "flush": steps(
        "flush; append 300; flush; flush; append 20000; flush; step; append sync 300; flush; append 16000; append 350",
        "flush; step 2; append 16300; flush; append 31000; append 16000; flush; checkpoint; append 100; flush",
    ),
    "domains": steps(
        "domain 1; domain 2; append 300; flush; append sync 300; delete domain 1; flush; append 200; purge; sync",
        "delete domain 1; append sync 100; delete domain 2; append 300; domain 1; sync; step; domain 2; append sync 9",
    ),
    "purge": steps(
        "append 20000; flush; append 20000; flush; append 300; sync; purge 1; append sync 200; purge; step",
        "2x append 31000; append sync 40000; flush; step; checkpoint; append 200; purge; append sync 300; purge",
    ),
    "reset": steps(
        "append 20000; append sync 300; reset; append 300; sync; append 31000; append 31000; flush; append sync 300",
        "step; reset state; append 300; append sync 9000; checkpoint; reset; append sync 100; reset; reset; append 50",
        "append 31000; append 31000; append 31000; reset state; checkpoint; append 40; sync",
    ),
    "spilled": steps(
        "begin; begin; spill 200; spill 20000; append sync 300; spill 9000; begin; spill 16000; rewind 5000; sync",
        "commit open; spill 300; append 100; step; spill 16384; sync; spill 40000; rollback open; append sync 200",
        "commit open; sync; append 70000; sync; append 40000; step 3; append sync 100000; commit open; append 50",
    ),
    "xa": steps(
        "prepare 300; sync; prepare 0; append sync 300; commit prepared; sync; prepare 20000; append 31000; sync",
        "rollback prepared 1; append 31000; prepare 500; step 2; sync; commit prepared; append 20000; purge; sync",
        "checkpoint; prepare 40000; flush; commit prepared 1; append sync 100; step; rollback prepared; append 99",
    ),
}

# Large groups whose whole pages are not logged; they need larger files.
BULK_SCRIPTS: dict[str, list[Step]] = {
    "bulk": steps(
        "begin bulk; spill 60000; append sync 300; step; spill 120000; append 200; step 2; append sync 300",
        "commit open; append 300; sync; begin bulk; spill 100000; step; append sync 100; rollback open",
        "append sync 300; step 9",
    ),
    "bulk by turns": steps(
        "begin bulk; begin; begin bulk; spill 70000; spill 70000; append 300; sync; step; spill 70000; rewind 60000",
        "commit open; step; checkpoint; spill 60000; commit open; append sync 200; commit open; sync; append 50",
    ),
    "bulk in files": steps(
        "append 120000; begin bulk; spill 100000; spill 60000; sync; step; commit open; flush; prepare bulk 70000",
        "append sync 300; checkpoint; commit prepared; begin bulk; spill 70000; write log; step; append 100",
        "commit open",
    ),
}

WEIGHTS = {
    "append": 8,
    "append sync": 8,
    "domain": 1,
    "marker": 1,
    "sync": 3,
    "write log": 2,
    "step": 5,
    "checkpoint": 1,
    "begin": 2,
    "spill": 4,
    "rewind": 1,
    "commit open": 2,
    "rollback open": 1,
    "prepare": 2,
    "commit prepared": 2,
    "rollback prepared": 1,
    "flush": 1,
    "delete domain": 1,
    "purge": 1,
    "reset": 0.5,
    "reset state": 0.3,
}
_SIZED = ("append", "append sync", "spill", "rewind")


def random_step(rng: random.Random, size_max: int = 50_000) -> Step:
    """Any step, by `WEIGHTS`."""
    name = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if name in _SIZED:
        return Step(name, pick_size(rng, size_max))
    if name == "prepare":
        return Step(name, rng.choice((0, 100, 3000, 40_000)))
    return Step(name, rng.randrange(4))


def random_steps(rng: random.Random, count: int, size_max: int = 50_000) -> list[Step]:
    """So many."""
    return [random_step(rng, size_max) for _ in range(count)]
