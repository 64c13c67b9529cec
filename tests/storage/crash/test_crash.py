"""Crashes at every write and sync of random histories; what must be left of the store afterwards.

Three ways to go down, and what each may take:

    kill    the process dies, the kernel keeps what was written        nothing durable
    cut     power cut; nothing that was not synced reached the disk    nothing durable
    torn    power cut; unsynced writes kept, dropped or cut short      nothing durable
            as a random source says

After each of them the store opens, holds a prefix of what was appended, its state is that of the prefix, and it takes
more. Run the same histories again with BINLOG_TEST_SEED, which the head of the report prints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import DiskError, StorageError, StoreFailed
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    Group,
    append_all,
    group,
    history,
    payloads,
    read_all,
    simple,
    state_after,
)
from tests.storage.sizes import small

SMALL = small()
WAYS = ("kill", "cut", "torn")


class Run:
    """One history appended until the disk fails; knows what was durable then."""

    def __init__(self, groups: Sequence[Group], syncs: Sequence[bool]) -> None:
        self.groups = groups
        self.syncs = syncs
        self.steps = [sync and number % 3 == 0 for number, sync in enumerate(syncs)]

    def until(self, disk: MemoryDisk) -> int:
        """Append and sync until an error or the end. Returns how many groups were made durable."""
        durable = 0
        try:
            engine = IbbEngine(disk, SMALL)
            for count, ((payload, gtid), sync, step) in enumerate(
                zip(self.groups, self.syncs, self.steps, strict=True), 1
            ):
                engine.append(payload, gtid)
                if sync:
                    engine.sync()
                    durable = count
                if step:
                    engine.step()
        except (DiskError, StoreFailed):
            pass
        return durable


def go_down(disk: MemoryDisk, way: str, rng: random.Random) -> None:
    if way == "kill":
        disk.kill()
    else:
        disk.crash(rng if way == "torn" else None)


def check_reopened(disk: MemoryDisk, groups: Sequence[Group], least: int, about: str) -> int:
    """Open, look, append, close, look again. Returns how many of `groups` are there."""
    try:
        engine = IbbEngine(disk, SMALL)
        found = read_all(engine)
        count = len(found)
        assert found == payloads(groups[:count]), f"{about}: not a prefix"
        assert count >= least, f"{about}: {least} groups were durable, {count} are left"
        assert engine.binlog_state() == state_after(groups[:count]), about
        assert engine.durable_end == engine.written_end
        more = [*simple(3, domain=99), group(Gtid(99, 1, 4), 70000)]
        append_all(engine, more)
        engine.sync()
        assert read_all(engine) == found + payloads(more), about
        engine.close()
        engine = IbbEngine(disk, SMALL)
        assert read_all(engine) == found + payloads(more), about
        assert engine.binlog_state() == state_after([*groups[:count], *more]), about
        engine.close()
    except StorageError as error:
        raise AssertionError(f"{about}: {error}") from error
    return count


def random_run(rng: random.Random, count: int) -> Run:
    groups = history(rng, count, size_max=60000, domains=2)
    often = rng.choice((0.1, 0.3, 0.8))
    return Run(groups, [rng.random() < often for _ in groups])


def crash_everywhere(rng: random.Random, way: str, count: int) -> None:
    run = random_run(rng, count)
    disk = MemoryDisk()
    run.until(disk)
    operations = disk.operations
    for stop in range(1, operations + 2):
        disk = MemoryDisk()
        disk.fail_at = stop
        durable = run.until(disk)
        go_down(disk, way, rng)
        about = f"{way} at operation {stop} of {operations}"
        check_reopened(disk, run.groups, durable, about)


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(4))
def test_crash_at_every_operation(way: str, number: int, rng: random.Random) -> None:
    crash_everywhere(rng, way, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(40))
def test_crash_at_every_operation_of_many(way: str, number: int, rng: random.Random) -> None:
    crash_everywhere(rng, way, 80)


def went_down(rng: random.Random) -> tuple[MemoryDisk, list[Group], int]:
    """A store that went down while pages were written: recovery has something to do. How much was durable."""
    groups = history(rng, rng.randrange(1, 25), size_max=40000, domains=2)
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, groups)
    engine.sync()
    big = group(Gtid(50, 1, 1), 30000 + rng.randrange(40000))
    disk.fail_at = disk.operations + rng.randrange(1, 12)
    try:
        engine.append(*big)
        engine.checkpoint()
    except (DiskError, StoreFailed):
        disk.crash(rng)
    else:
        disk.kill()
    return disk, [*groups, big], len(groups)


def torn_tail(rng: random.Random) -> tuple[MemoryDisk, list[Group], int]:
    """The same without a redo log: of the last group only a part is there."""
    groups = history(rng, rng.randrange(1, 25), size_max=40000, domains=2)
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, groups)
    place = engine.written_end
    groups.append(group(Gtid(50, 1, 1), 30000 + rng.randrange(40000)))
    engine.append(*groups[-1])
    end = engine.written_end
    engine.close()
    disk.unlink(REDO_NAME)
    for number in range(place.file_no, end.file_no + 1):
        file = disk.open(file_name(number))
        first = place.offset + 512 if number == place.file_no else PAGE_SIZE
        last = end.offset if number == end.file_no else file.size()
        first = min(first, last - 1)
        if number == end.file_no or rng.random() < 0.3:
            cut = rng.randrange(first, max(last, first + 1))
            file.pwrite(bytes(file.size() - cut), cut)
            for later in range(number + 1, end.file_no + 1):
                disk.unlink(file_name(later))
            file.fdatasync()
            break
    disk.fsync_dir()
    return disk, groups, 0


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    twin = MemoryDisk()
    for name in disk.names():
        old, new = disk.open(name), twin.open(name, create=True)
        new.pwrite(old.pread(old.size(), 0), 0)
        new.fdatasync()
    twin.fsync_dir()
    twin.operations = 0
    return twin


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("broken_store", [went_down, torn_tail])
def test_crash_during_recovery(
    broken_store: Callable[[random.Random], tuple[MemoryDisk, list[Group], int]],
    way: str,
    number: int,
    rng: random.Random,
) -> None:
    """The repair is cut short at each of its own operations; the next one finds the same."""
    broken, groups, durable = broken_store(rng)
    undisturbed = copy_of(broken)
    count = check_reopened(undisturbed, groups, durable, "undisturbed")
    stop = 0
    while True:
        stop += 1
        disk = copy_of(broken)
        disk.fail_at = stop
        try:
            IbbEngine(disk, SMALL)
        except DiskError:
            go_down(disk, way, rng)
            # Without a redo log a torn page may take what was on it.
            least = 0 if way == "torn" and broken_store is torn_tail else count
            check_reopened(disk, groups, least, f"{way} at operation {stop} of the recovery")
        else:
            return
