"""A store of traditional files on a disk that fails: a random history of groups and XA, whose steps and starts meet
faults.

What must hold: a start finds what the store held behind one step, none before the last that was told durable. What it
finds is durable: the next start finds no less.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Final

from binlog_storage.classic.store import ClassicEngine
from binlog_storage.errors import DiskError, StoreFailed
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.classic.test_crash import OPTIONS, Scene, a_step, holds
from tests.storage.classic.test_crash import STEPS as HISTORY
from tests.storage.crash.check import quiet
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.simulation.faults import FAILURES, Faults, opened_in_the_end

STEPS: Final = 150
FAULT_EVERY: Final = 12


def _opened(disk: RecordingDisk) -> ClassicEngine:
    return ClassicEngine(disk, OPTIONS, clock=lambda: 1e9)


class ClassicWorld:
    """Of one seed.

    Attributes:
        starts: behind a failure.
    """

    def __init__(self, seed: int, say: Callable[[str], None] = lambda text: None) -> None:
        self._rng = random.Random(seed)
        self._say = say
        self._disk = MemoryDisk()
        self._disk.failed_sync_forgets = True
        self._faults = Faults(self._disk, self._rng)
        self._names = itertools.count(1)
        disk = RecordingDisk(self._disk)
        self._scene = Scene(_opened(disk), disk)
        self._scene.told()
        self.starts = 0

    def run(self, steps: int = STEPS) -> None:
        """So many steps. Raises `AssertionError`, or what the store raises."""
        with quiet():
            for _ in range(steps):
                if not self._rng.randrange(FAULT_EVERY):
                    self._say(self._faults.inject(FAILURES))
                try:
                    self._step()
                except (DiskError, StoreFailed) as error:
                    self._say(f"  {error}")
                    self._start()
            self._start()

    def _step(self) -> None:
        what = self._rng.choice(HISTORY + "R")
        self._say(what)
        a_step(what, self._scene, self._rng, self._names)

    def _start(self) -> None:
        """The process is gone, or the power is; then it is opened until that goes well."""
        scene = self._scene
        least = scene.disk.last_told
        engine, disk = opened_in_the_end(self._disk, self._faults, self._rng, _opened, self._say)
        self.starts += 1
        snapshots = scene.snapshots
        most = len(snapshots) - 1
        fitting = [n for n in range(least, most + 1) if holds(engine, snapshots[n])]
        assert fitting, (
            f"no step from {least} to {most} has what is there, with {engine.prepared()} prepared"
        )
        self._say(f"  opened: step {fitting[-1]} of {least} to {most}")
        scene.engine, scene.disk = engine, disk
        del snapshots[fitting[-1] + 1 :]
        disk.mark("told", fitting[-1])
