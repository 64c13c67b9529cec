"""A disk on which a store is opened while it is full: what waits looks as if it were done, and is done in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.errors import DiskError, DiskFull, TooManyOpenFiles
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.contract.disk_contract import DiskContract, content


def no_room(kind: str, name: str) -> None:
    if kind in ("create", "write", "allocate", "truncate", "rename"):
        raise DiskFull(f"cannot {kind} {name}: No space left on device")


def full_disk(contents: dict[str, bytes] | None = None) -> MemoryDisk:
    disk = MemoryDisk(contents)
    disk.fault = no_room
    return disk


class TestWithRoom(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return PatientDisk(MemoryDisk())


class TestOpened(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        disk = PatientDisk(MemoryDisk())
        disk.opened()
        return disk


class TestWaiting(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return PatientDisk(full_disk())


def steps(rng: random.Random, count: int) -> list[Callable[[Disk, dict[str, File]], None]]:
    """Changes as an opening might make them, over a few names."""

    def write(name: str, data: bytes, at: int) -> Callable[[Disk, dict[str, File]], None]:
        def do(disk: Disk, files: dict[str, File]) -> None:
            if name not in files:
                files[name] = disk.open(name, create=name not in disk.names())
            files[name].pwrite(data, at)

        return do

    def on(name: str, act: Callable[[File], None]) -> Callable[[Disk, dict[str, File]], None]:
        return lambda disk, files: act(files[name]) if name in files else None

    def rename(old: str, new: str) -> Callable[[Disk, dict[str, File]], None]:
        def do(disk: Disk, files: dict[str, File]) -> None:
            if old in disk.names():
                disk.rename(old, new)
                files.pop(new, None)
                if old in files:
                    files[new] = files.pop(old)

        return do

    def unlink(name: str) -> Callable[[Disk, dict[str, File]], None]:
        def do(disk: Disk, files: dict[str, File]) -> None:
            if name in disk.names():
                disk.unlink(name)
                files.pop(name, None)

        return do

    def close(name: str) -> Callable[[Disk, dict[str, File]], None]:
        def do(disk: Disk, files: dict[str, File]) -> None:
            if name in files:
                files.pop(name).close()

        return do

    found: list[Callable[[Disk, dict[str, File]], None]] = []
    for _ in range(count):
        name, other = rng.sample("abcd", 2)
        size = rng.randrange(60)
        data = rng.randbytes(rng.randrange(1, 30))
        found.append(
            rng.choice(
                [
                    write(name, data, size),
                    write(name, data, size),
                    on(name, lambda file, size=size: file.truncate(size)),  # type: ignore[misc]
                    on(name, lambda file, size=size: file.allocate(size)),  # type: ignore[misc]
                    on(name, lambda file: file.fdatasync()),
                    rename(name, other),
                    unlink(name),
                    close(name),
                    lambda disk, _: disk.fsync_dir(),
                ]
            )
        )
    return found


def seen(disk: Disk) -> dict[str, bytes]:
    found = {}
    for name in sorted(disk.names()):
        file = disk.open(name)
        found[name] = content(file)
        file.close()
    return found


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("seed", range(300))
def test_a_full_disk_looks_like_one_with_room(seed: int) -> None:
    """From any step on, and while what waits is done bit by bit; what is done in the end is the same."""
    rng = random.Random(seed)
    begin = {name: rng.randbytes(40) for name in "ab"}
    with_room, below = MemoryDisk(begin), MemoryDisk(begin)
    patient = PatientDisk(below)
    twins: dict[str, File] = {}
    files: dict[str, File] = {}
    changes = steps(rng, 30)
    full_from = rng.randrange(len(changes))
    for number, change in enumerate(changes):
        if number == full_from:
            below.fault = no_room
        change(with_room, twins)
        change(patient, files)
        assert seen(patient) == with_room.contents()
        assert {name: content(file) for name, file in files.items()} == {
            name: content(file) for name, file in twins.items()
        }
    patient.opened()
    while patient.full:
        left = [rng.randrange(5)]

        def some(kind: str, name: str, left: list[int] = left) -> None:
            left[0] -= kind != "read"
            if left[0] < 0:
                no_room(kind, name)

        below.fault = some
        patient.try_again()
        assert seen(patient) == with_room.contents()
    below.fault = None
    assert below.contents() == with_room.contents()
    assert seen(patient) == with_room.contents()
    for name, file in files.items():
        file.pwrite(b"on", 1)  # goes to the disk itself now
        twins[name].pwrite(b"on", 1)
    assert below.contents() == with_room.contents()
    below.crash()
    with_room.crash()
    assert below.contents() == with_room.contents()


def test_after_opening_changes_are_refused_while_others_wait() -> None:
    below = full_disk({"old": b"1", "mine": b"2"})
    disk = PatientDisk(below)
    mine = disk.open("mine")
    mine.pwrite(b"3", 0)
    disk.opened()
    assert isinstance(disk.full, DiskFull)
    for change in (
        lambda: mine.pwrite(b"4", 0),
        lambda: mine.fdatasync(),
        lambda: disk.open("new", create=True),
        lambda: disk.rename("mine", "other"),
        lambda: disk.unlink("mine"),
    ):
        with pytest.raises(DiskFull, match="nothing is written until there is room"):
            change()
    assert seen(disk) == {"old": b"1", "mine": b"3"}
    disk.unlink("old")  # that is what makes room
    disk.fsync_dir()
    assert below.names() == ["mine"]
    assert seen(disk) == {"mine": b"3"}
    below.fault = None
    assert disk.try_again()
    assert disk.full is None
    assert below.contents() == {"mine": b"3"}
    mine.pwrite(b"4", 0)
    assert below.contents() == {"mine": b"4"}


def test_once_nothing_waits_a_file_is_that_of_the_disk_below() -> None:
    """Also for who has opened it in the opening: the last errors are those of the disk, and a copy is made nowhere."""
    below = full_disk({"mine": b"1"})
    disk = PatientDisk(below)
    mine, unlinked = disk.open("mine"), disk.open("mine")
    mine.pwrite(b"2", 0)
    disk.opened()
    below.fault = None
    assert disk.try_again()
    for data in (bytearray(b"3"), memoryview(b"4")):
        mine.pwrite(data, 1)
        mine.fdatasync()
    assert below.contents() == {"mine": b"24"}
    below.fault = no_room
    with pytest.raises(DiskFull, match="cannot write mine"):
        mine.pwrite(b"5", 2)
    below.fault = None
    disk.unlink("mine")
    unlinked.pwrite(b"6", 0)
    assert mine.pread(2, 0) == b"64"
    assert below.contents() == {}
    mine.close()
    with pytest.raises(DiskError, match="mine is not open"):
        mine.pwrite(b"7", 0)
    unlinked.close()


def test_files_in_folders_are_those_of_the_disk_below() -> None:
    below = full_disk({"folder/old": b"1", "mine": b"2"})
    disk = PatientDisk(below)
    disk.open("mine").pwrite(b"3", 0)
    assert disk.size("folder/old") == 1
    assert disk.open("folder/old").pread(1, 0) == b"1"
    disk.unlink("folder/old")
    disk.opened()
    below.fault = None
    assert disk.try_again()
    assert below.contents() == {"mine": b"3"}


def test_what_is_opened_already_does_not_wait() -> None:
    below = MemoryDisk({"a": b"1"})
    disk = PatientDisk(below)
    file = disk.open("a")
    disk.opened()
    below.fault = no_room
    with pytest.raises(DiskFull, match="cannot write a"):
        file.pwrite(b"2", 0)
    assert disk.full is None


def test_a_sync_that_meets_a_full_disk_is_an_error() -> None:
    """The kernel may have dropped what it could not write, and the next sync would not tell."""

    def fails(kind: str, name: str) -> None:
        if kind == "sync":
            raise DiskFull("cannot sync")

    below = MemoryDisk({"a": b"1"})
    below.fault = fails
    disk = PatientDisk(below)
    with pytest.raises(DiskError, match="cannot sync") as caught:
        disk.open("a").fdatasync()
    assert not isinstance(caught.value, DiskFull)
    below.fault = no_room
    file = disk.open("a")
    file.pwrite(b"2", 0)
    file.fdatasync()
    below.fault = fails
    with pytest.raises(DiskError, match="cannot sync") as caught:
        disk.try_again()
    assert not isinstance(caught.value, DiskFull)


@pytest.mark.parametrize("at", ["write", "sync", "rename"])
def test_an_error_of_what_waited_is_for_good(at: str) -> None:
    """It is not done again: a sync that failed would succeed the next time, without what was lost."""

    def fails(kind: str, name: str) -> None:
        if kind == at:
            raise DiskError(f"cannot {kind} {name}: Input/output error")

    below = full_disk({"a": b"1"})
    disk = PatientDisk(below)
    file = disk.open("a")
    file.pwrite(b"2", 0)
    file.fdatasync()
    disk.rename("a", "b")
    disk.opened()
    below.fault = fails
    with pytest.raises(DiskError, match=f"^cannot {at} a: Input/output error"):
        disk.try_again()
    below.fault = None
    before = below.operations
    for again in (disk.try_again, lambda: file.pwrite(b"3", 0), file.fdatasync):
        with pytest.raises(DiskError, match=f"failed before: cannot {at}") as caught:
            again()
        assert not isinstance(caught.value, DiskFull)
    assert below.operations == before, "nothing was done"
    assert seen(disk) == {"b": b"2"}


def test_without_a_descriptor_nothing_was_done_and_it_is_tried_again() -> None:
    def fails(kind: str, name: str) -> None:
        if kind == "create":
            raise TooManyOpenFiles("too many open files")

    below = full_disk()
    disk = PatientDisk(below)
    disk.open("new", create=True).pwrite(b"1", 0)
    below.fault = fails
    with pytest.raises(TooManyOpenFiles):
        disk.try_again()
    below.fault = None
    assert disk.try_again()
    assert below.contents() == {"new": b"1"}


def test_a_change_that_waits_counts_from_the_opening() -> None:
    below = MemoryDisk({"a": b"", "b": b""})
    below.times = {"a": 5.0, "b": 6.0}
    disk = PatientDisk(below, clock=lambda: 1000.0)
    assert disk.modified("a") == 5.0
    below.fault = no_room
    disk.open("a").pwrite(b"1", 0)
    disk.open("new", create=True)
    disk.opened()
    assert [disk.modified(name) for name in ("a", "b", "new")] == [1000.0, 6.0, 1000.0]


def test_no_more_waits_than_there_is_memory_for() -> None:
    disk = PatientDisk(full_disk({"a": b""}), bytes_max=100)
    file = disk.open("a")
    file.pwrite(bytes(60), 0)
    with pytest.raises(DiskFull, match="cannot write a"):
        file.pwrite(bytes(41), 0)


def test_readers_meanwhile() -> None:
    """They see the same bytes before, while and after what waits is done."""
    below = MemoryDisk({"a": bytes(64)})
    disk = PatientDisk(below)
    below.fault = no_room
    file = disk.open("a")
    for at in range(0, 64, 8):
        file.pwrite(b"x" * 8, at)
    disk.opened()
    wrong: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            if (found := file.pread(64, 0)) != b"x" * 64:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    left = 0

    def some(kind: str, name: str) -> None:
        nonlocal left
        if kind == "write" and not left:
            no_room(kind, name)
        left -= kind == "write"

    below.fault = some
    while disk.full:
        left = 1
        disk.try_again()
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
