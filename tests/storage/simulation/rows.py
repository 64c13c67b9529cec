"""Rows on a disk that fails: a random history of transactions on tables, whose steps and starts meet faults.

What must hold: a start finds the rows, prepared transactions and last group of one step, none before the last that was
told durable, nor before the one that the start before has found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from binlog_storage.errors import DiskError, StoreFailed
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.check import quiet
from tests.storage.crash.history import OPTIONS, open_engine
from tests.storage.crash.tables import TableHistory, begun, look, step
from tests.storage.simulation.faults import FAILURES, Faults, opened_in_the_end

STEPS: Final = 250
FAULT_EVERY: Final = 12


class RowsWorld:
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
        self._history = TableHistory(OPTIONS, None, self._disk)
        self.starts = 0

    def run(self, steps: int = STEPS) -> None:
        """So many steps. Raises `AssertionError`, or what the store raises."""
        rng, history = self._rng, self._history
        with quiet():
            begun(history)
            for _ in range(steps):
                if not rng.randrange(FAULT_EVERY):
                    self._say(self._faults.inject(FAILURES))
                try:
                    step(history, rng)
                except (DiskError, StoreFailed) as error:
                    self._say(f"  {error}")
                    self._start()
            self._start()

    def _start(self) -> None:
        """The process is gone, or the power is; then it is opened until that goes well."""
        history = self._history
        least = history.disk.last_told
        engine, disk = opened_in_the_end(
            self._disk, self._faults, self._rng, lambda made: open_engine(made, OPTIONS), self._say
        )
        self.starts += 1
        found = look(engine)
        stands = history.stands
        fitting = [
            number
            for number, stand in enumerate(stands[least:], least)
            if (stand.rows, stand.seq_no, frozenset(stand.prepared)) == found
        ]
        most = len(stands) - 1
        assert fitting, f"no step from {least} to {most} has this group and these rows: {found}"
        self._say(f"  opened: step {fitting[-1]} of {least} to {most}")
        history.go_on(engine, disk, fitting[-1])
