"""Traditional files on a disk that fails: random histories whose steps and starts meet faults.

A start finds what there was after one step, none before the last that was told durable, nor before the one that the
start before has found. What a failed sync should have written is lost, though readers see it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Final

import pytest
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import Xid
from binlog_storage.errors import DiskError, StoreFailed
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.classic.test_crash import OPTIONS, Scene, holds
from tests.storage.crash.check import quiet
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.simulation.faults import FAILURES, Faults, opened_in_the_end

STEPS: Final = 150
FAULT_EVERY: Final = 12
WORLDS: Final = 5
WORLDS_SLOW: Final = 200


def a_step(scene: Scene, rng: random.Random, names: itertools.count[int]) -> None:
    waiting = scene.now.prepared
    match rng.choice("aaaaassssfmplxxcrR"):
        case "a":
            scene.append(rng.choice((60, 300, 2000, 6000)), rng.randrange(3))
        case "s":
            scene.sync()
        case "f":
            scene.flush()
        case "m":
            scene.mark()
        case "p" if len(scene.engine.files()) > 1:
            scene.sync()
            scene.purge()
        case "l":
            scene.spilled(rng.choice((500, 40_000)))
        case "x":
            scene.prepare(Xid(1, b"%d" % next(names)))
        case "c" if waiting:
            scene.commit(rng.choice(waiting))
        case "r" if waiting:
            scene.rollback(rng.choice(waiting))
        case "R" if not waiting and rng.random() < 0.3:
            scene.reset()


def play(seed: int, say: Callable[[str], None] = lambda text: None) -> int:
    """Returns the number of starts behind a failure."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    faults = Faults(disk, rng)
    recording = RecordingDisk(disk)
    scene = Scene(ClassicEngine(recording, OPTIONS, clock=lambda: 1e9), recording)
    scene.told()
    names = itertools.count(1)
    starts = 0
    for _ in range(STEPS):
        if not rng.randrange(FAULT_EVERY):
            say(faults.inject(FAILURES))
        try:
            a_step(scene, rng, names)
        except (DiskError, StoreFailed) as error:
            say(f"  {error}")
            least, most = scene.disk.last_told, len(scene.snapshots) - 1
            scene.engine, scene.disk = opened_in_the_end(
                disk, faults, rng, lambda made: ClassicEngine(made, OPTIONS, clock=lambda: 1e9), say
            )
            fitting = [n for n in range(least, most + 1) if holds(scene.engine, scene.snapshots[n])]
            assert fitting, f"seed {seed}: what was found is of no step from {least} to {most}"
            del scene.snapshots[fitting[-1] + 1 :]
            scene.told()
            starts += 1
    return starts


def play_many(rng: random.Random, worlds: int) -> None:
    first = rng.randrange(1 << 48)
    starts = 0
    with quiet():
        for seed in range(first, first + worlds):
            print(f"seed {seed}")
            starts += play(seed)
    assert starts > 3 * worlds


def test_random_histories(rng: random.Random) -> None:
    play_many(rng, WORLDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_random_histories(rng: random.Random) -> None:
    play_many(rng, WORLDS_SLOW)
