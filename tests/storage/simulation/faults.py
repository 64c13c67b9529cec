"""What goes wrong with a disk, drawn from a random source."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from binlog_storage.errors import DiskError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.recorder import RecordingDisk

T = TypeVar("T")

KINDS = ("stop", "once", "sync", "read", "full")
FAILURES = ("stop", "once", "sync")  # each ends the store
WRITING = ("write", "sync", "truncate", "allocate", "create", "rename", "unlink", "sync directory")


class Faults:
    """Of one disk. One at a time, until `repair`.

    Attributes:
        any: whether one is there, fired or not.
        fired: whether it has struck.
    """

    def __init__(self, disk: MemoryDisk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng
        self._kinds: tuple[str, ...] = ()
        self._left = 0
        self.any = False
        self.fired = False

    def inject(self, kinds: Sequence[str] = KINDS) -> str:
        """One of these kinds. Returns what it is going to be."""
        self.repair()
        self.any = True
        rng = self._rng
        kind = rng.choice(kinds)
        self._left = rng.randrange(1, 12)
        match kind:
            case "stop":  # as in the middle of a power cut
                self._disk.fail_at = self._disk.operations + self._left
                return f"nothing is done any more from {self._left} operations on"
            case "full":
                room = rng.choice((0, 1000, 70_000))
                self._disk.capacity = self._disk.used() + room
                return f"the disk is full but for {room} bytes"
            case "once":
                self._kinds = WRITING
            case "sync" | "read":
                self._kinds = (kind,)
        self._disk.fault = self._strike
        return f"one of {', '.join(self._kinds)} fails once, the {self._left}th"

    def _strike(self, kind: str, name: str) -> None:
        if kind not in self._kinds:
            return
        self._left -= 1
        if not self._left:
            self.fired = True
            raise DiskError(f"cannot {kind} {name}: Input/output error (injected)")

    def repair(self) -> None:
        """Everything works again."""
        self._disk.fail_at = None
        self._disk.fault = None
        self._disk.capacity = 1 << 62
        self.any = self.fired = False


def opened_in_the_end(
    disk: MemoryDisk,
    faults: Faults,
    rng: random.Random,
    opened: Callable[[RecordingDisk], T],
    say: Callable[[str], None],
) -> tuple[T, RecordingDisk]:
    """The process is gone, or the power is, and the store is opened: starts meet faults, too, until one goes well."""
    while True:
        faults.repair()
        if rng.random() < 0.6:
            disk.kill()
        else:
            disk.crash(rng if rng.random() < 0.7 else None)
        if rng.random() < 0.4:
            say(f"  the start: {faults.inject(FAILURES)}")
        recording = RecordingDisk(disk)
        try:
            engine = opened(recording)
        except DiskError as error:
            say(f"  not opened: {error}")
        else:
            faults.repair()
            return engine, recording
