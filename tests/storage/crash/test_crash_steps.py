"""Crashes at every operation of random work: groups, XA transactions, FLUSH, purge, RESET MASTER, files made ahead.

After each crash (see `test_crash.py` for the three ways) the store opens, every record of it reads, and what it holds
is what it held after one of the steps, none older than the last one that was made durable. A purge or a reset that was
under way may have taken the oldest files away already. A transaction that is still prepared can be committed, whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import GroupWriter, Xid
from binlog_storage.errors import DiskError, PositionPurged, StorageError, StoreFailed
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.test_crash import WAYS, go_down
from tests.storage.groups import events, group, group_payload, gtid_event, gtid_of, pick_size
from tests.storage.sizes import small

TINY = small(slave_connections_needed_for_purge=0)

# what: how often, against the others
WORK = {
    "append": 8,
    "sync": 4,
    "step": 2,
    "checkpoint": 1,
    "flush": 2,
    "prepare": 2,
    "commit prepared": 2,
    "roll back prepared": 1,
    "open": 2,
    "spill": 3,
    "commit open": 2,
    "purge": 1,
    "reset": 1,
}


class Snapshot(NamedTuple):
    """What a store holds: groups since the last reset, and XA transactions by name."""

    groups: list[bytes]
    prepared: dict[Xid, bytes]
    state: BinlogState


@dataclass(slots=True)
class Worker:
    """Does the same steps again and again, on disks that fail at one operation or another."""

    engine: IbbEngine
    rng: random.Random
    groups: list[bytes] = field(default_factory=list)
    prepared: dict[Xid, bytes] = field(default_factory=dict)
    open: list[tuple[GroupWriter, bytes]] = field(default_factory=list)
    count: int = 0
    shortened: bool = False  # a purge or a reset has begun

    def snapshot(self) -> Snapshot:
        gtids = [g for p in self.groups if (g := gtid_of(p)) is not None]
        return Snapshot(list(self.groups), dict(self.prepared), BinlogState(gtids))

    def do(self, what: str) -> bool:
        """One step. Whether everything was made durable by it."""
        if what in ("purge", "reset"):
            self.shortened = True
        return STEPS[what](self)

    def _gtid(self) -> Gtid:
        self.count += 1
        return Gtid(0, 1, self.count)

    def append(self) -> bool:
        payload, gtid = group(self._gtid(), pick_size(self.rng, 50_000))
        self.groups.append(payload)
        self.engine.append(payload, gtid)
        return False

    def sync(self) -> bool:
        self.engine.sync()
        return True

    def step(self) -> bool:
        while self.engine._flusher.step():
            pass
        wait = self.engine.keeper.caretaker.step()
        if wait is not None:
            raise DiskError("the caretaker met the failing disk")
        return False

    def checkpoint(self) -> bool:
        self.engine.checkpoint()
        return True

    def flush(self) -> bool:
        self.engine.flush()
        return True

    def prepare(self) -> bool:
        self.count += 1
        xid = Xid(1, b"%d" % self.count)
        writer = self.engine.begin()
        self.prepared[xid] = events(self.rng.choice((0, 100, 40_000)), str(xid))
        writer.spill(self.prepared[xid])
        writer.prepare(xid)
        return False

    def commit_prepared(self) -> bool:
        if self.prepared:
            xid = self.rng.choice(list(self.prepared))
            gtid = self._gtid()
            self.groups.append(gtid_event(gtid) + self.prepared.pop(xid))
            self.engine.commit_prepared(xid, gtid_event(gtid), gtid)
        return False

    def roll_back_prepared(self) -> bool:
        if self.prepared:
            xid = self.rng.choice(list(self.prepared))
            del self.prepared[xid]
            self.engine.rollback_prepared(xid)
        return False

    def begin(self) -> bool:
        if len(self.open) < 3:
            self.open.append((self.engine.begin(), b""))
        return False

    def spill(self) -> bool:
        if self.open:
            at = self.rng.randrange(len(self.open))
            writer, data = self.open[at]
            piece = events(self.rng.choice((60, 3000, 33_000)), f"{self.count} {len(data)}")
            self.open[at] = writer, data + piece
            writer.spill(piece)
        return False

    def commit_open(self) -> bool:
        if self.open:
            writer, data = self.open.pop(0)
            if self.rng.random() < 0.3:
                writer.rollback()
            else:
                gtid = self._gtid()
                self.groups.append(gtid_event(gtid) + data)
                writer.commit(gtid_event(gtid), gtid)
        return False

    def purge(self) -> bool:
        self.engine.purge_to(self.engine.written_end.file_no)
        return False

    def reset(self) -> bool:
        if not self.prepared:
            for writer, _ in self.open:
                writer.rollback()
            self.open.clear()
            self.groups.clear()
            self.count = 1000 * (self.count // 1000 + 1)
            self.engine.reset()
            return True
        return False


STEPS: dict[str, Callable[[Worker], bool]] = {
    "append": Worker.append,
    "sync": Worker.sync,
    "step": Worker.step,
    "checkpoint": Worker.checkpoint,
    "flush": Worker.flush,
    "prepare": Worker.prepare,
    "commit prepared": Worker.commit_prepared,
    "roll back prepared": Worker.roll_back_prepared,
    "open": Worker.begin,
    "spill": Worker.spill,
    "commit open": Worker.commit_open,
    "purge": Worker.purge,
    "reset": Worker.reset,
}


def work(disk: MemoryDisk, steps: list[str], seed: int) -> tuple[list[Snapshot], int, bool]:
    """Until an error or the end: a snapshot before and after each step begun, the oldest durable one, shortened."""
    empty = Snapshot([], {}, BinlogState())
    snapshots, durable = [empty], 0
    shortened = False
    try:
        worker = Worker(IbbEngine(disk, TINY, facts=StateStore(disk)), random.Random(seed))
        for what in steps:
            try:
                made_durable = worker.do(what)
            finally:
                snapshots.append(worker.snapshot())
                shortened = worker.shortened
            if made_durable:
                durable = len(snapshots) - 1
    except (DiskError, StoreFailed):
        pass
    return snapshots, durable, shortened


def held_by(engine: IbbEngine) -> list[bytes | None]:
    """All groups from the first file on; None for one that has lost data to a purge."""
    engine.sync()
    first = engine.files()[0].number
    pages = engine._pages
    reader = RecordReader(pages, Position(first, PAGE_SIZE), engine.durable_end, skip_partial=True)
    found: list[bytes | None] = []
    for record in reader.commits():
        try:
            found.append(group_payload(pages, record))
        except PositionPurged:
            found.append(None)
    return found


def check(disk: MemoryDisk, allowed: list[Snapshot], *, shortened: bool) -> None:
    engine = IbbEngine(disk, TINY, facts=StateStore(disk))
    found = held_by(engine)
    prepared = engine.prepared()
    state = engine.binlog_state()

    def fits(held: Snapshot) -> bool:
        if sorted(prepared) != sorted(held.prepared) or state != held.state:
            return False
        if not shortened:
            return found == held.groups
        last = held.groups[len(held.groups) - len(found) :]
        return len(last) == len(found) and all(
            a in (b, None) for a, b in zip(found, last, strict=True)
        )

    fitting = [held for held in allowed if fits(held)]
    assert fitting, f"{len(found)} groups, {len(prepared)} prepared, state {state}"
    for number, xid in enumerate(prepared, 500_000):
        gtid = Gtid(9, 1, number)
        engine.commit_prepared(xid, gtid_event(gtid), gtid)
        found.append(gtid_event(gtid) + fitting[-1].prepared[xid])
    engine.flush()
    more = group(Gtid(8, 1, 1), 70_000)
    engine.append(*more)
    found.append(more.payload)
    assert held_by(engine) == found
    state = engine.binlog_state()
    engine.close()
    engine = IbbEngine(disk, TINY, facts=StateStore(disk))
    assert held_by(engine) == found
    assert engine.prepared() == []
    assert engine.binlog_state() == state
    engine.close()


def crash_everywhere(rng: random.Random, way: str, count: int, *kinds: str) -> None:
    names = [name for name in WORK if not kinds or name in kinds]
    steps = rng.choices(names, [WORK[name] for name in names], k=count)
    seed = rng.randrange(1 << 30)
    disk = MemoryDisk()
    work(disk, steps, seed)
    for stop in range(1, disk.operations + 2):
        broken = MemoryDisk()
        broken.fail_at = stop
        snapshots, durable, shortened = work(broken, steps, seed)
        go_down(broken, way, rng)
        at = steps[len(snapshots) - 2] if len(snapshots) > 1 else "opening"
        about = f"{way} at operation {stop} of {disk.operations}, step {len(snapshots) - 1} ({at})"
        try:
            check(broken, snapshots[durable:], shortened=shortened)
        except (StorageError, AssertionError) as error:
            raise AssertionError(f"{about}: {error}") from error


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(2))
def test_crash_at_every_operation(way: str, number: int, rng: random.Random) -> None:
    crash_everywhere(rng, way, 45)


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kinds",
    [
        ("append", "flush", "step"),
        ("append", "prepare", "commit prepared", "roll back prepared", "sync"),
        ("append", "spill", "open", "commit open", "flush", "purge", "step"),
        ("append", "flush", "reset"),
    ],
    ids=["flush", "xa", "purge", "reset"],
)
def test_crash_of(way: str, kinds: tuple[str, ...], rng: random.Random) -> None:
    crash_everywhere(rng, way, 30, *kinds)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(40))
def test_crash_at_every_operation_of_many(way: str, number: int, rng: random.Random) -> None:
    crash_everywhere(rng, way, 90)
