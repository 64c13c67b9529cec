"""A history of transactions on tables goes on behind a full disk as if there had been none, from whichever call on the
disk is full: rows, binlog, what is prepared, and what a crash leaves of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.table_snapshots import TableSnapshots
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskFull
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash import tables
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.tables import TableChecker, TableHistory, begun, look, step

STEPS = 40
STATES = 6
NEVER = 1 << 30
CHANGES = ("create", "write", "allocate", "truncate", "rename")


class Room:
    """The room of a disk, which ends with its n-th change, and comes back when somebody has waited for it twice.

    What is written within the redo log and binlog files needs none: they have theirs before.
    """

    def __init__(self, disk: MemoryDisk, ends_with: int) -> None:
        self._disk = disk
        self._ends_with = ends_with
        self._waits = 0
        self.changes = self.refused = 0
        disk.fault = self._fault

    def _fault(self, kind: str, name: str) -> None:
        if kind not in CHANGES or (
            kind == "write" and (name == REDO_NAME or name.endswith(".ibb"))
        ):
            return
        self.changes += 1
        if self.changes >= self._ends_with:
            self.refused += 1
            raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")

    def wait(self, _: float) -> None:
        """In the place of the time that a writer waits."""
        self._waits += 1
        if self._waits == 2:
            self.comes()

    def comes(self) -> None:
        self._disk.fault = None


class OnFullDisk(TableHistory):
    """Where somebody is told that there is no room, nothing of it is done: it is done again when there is some."""

    room: Room

    def _again(self, call: Callable[[], None]) -> None:
        try:
            call()
        except DiskFull:
            self.room.comes()
            call()

    def snapshot(self, meanwhile: Callable[[], None]) -> None:
        self._again(lambda: super(OnFullDisk, self).snapshot(meanwhile))

    def restart(self) -> None:
        self.engine.sync()
        self._again(self.engine.close)
        self.disk.mark("told", len(self.stands) - 1)
        self.open.clear()

        def open_() -> None:
            self.engine = tables.open_engine(self._wrapped, self.options)

        self._again(open_)


@pytest.fixture
def opened_with(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Room]]:
    """The room that a store waits for, when it is opened."""
    rooms: list[Room] = []

    def open_(disk: Disk, options: object) -> IbbEngine:
        wait = rooms[-1].wait if rooms else None
        return IbbEngine(disk, OPTIONS, facts=StateStore(disk), wait_for_room=wait)

    make = TableSnapshots.step

    def step_(snapshots: TableSnapshots) -> bool:
        try:
            return make(snapshots)
        except DiskFull:  # the thread of the server tries again in a while
            rooms[-1].wait(0)
            return True

    monkeypatch.setattr(TableSnapshots, "step", step_)
    monkeypatch.setattr(tables, "open_ibb", open_)
    yield rooms
    rooms.clear()


def play(seed: int, ends_with: int, rooms: list[Room]) -> OnFullDisk:
    disk, rng = MemoryDisk(), random.Random(seed)
    rooms.append(Room(disk, NEVER))
    history = OnFullDisk(OPTIONS, None, disk)
    begun(history)
    rooms[-1].__init__(disk, ends_with)  # type: ignore[misc]
    history.room = rooms[-1]
    for _ in range(STEPS):
        step(history, rng)
    history.room.comes()
    history.sync()
    return history


def checked(rng: random.Random, rooms: list[Room], some: int | None = None) -> None:
    """A history, full from each change on; or from `some` of them, the last one too."""
    seed = rng.getrandbits(32)
    rooms.clear()
    changes = play(seed, NEVER, rooms).room.changes
    print(f"seed {seed}: {changes} changes")
    numbers = range(1, changes + 1)
    for number in numbers if some is None else {*rng.sample(numbers, min(some, changes)), changes}:
        history = play(seed, number, rooms)
        assert history.room.refused, number
        last = history.stands[-1]
        assert look(history.engine) == (last.rows, last.seq_no, frozenset(last.prepared)), number
        rooms.clear()
        TableChecker(history, rng).run(STATES)


@pytest.mark.long
def test_full_from_some_change_on(rng: random.Random, opened_with: list[Room]) -> None:
    checked(rng, opened_with, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(10))
def test_full_from_each_change_on(number: int, rng: random.Random, opened_with: list[Room]) -> None:
    checked(rng, opened_with)
