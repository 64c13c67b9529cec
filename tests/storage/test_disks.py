"""Both disks under the contract, and what is special about each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage.disk import Disk, OsDisk
from storage.errors import DiskError, StoreInUse
from storage.memory_disk import SECTOR_BYTES, MemoryDisk
from tests.storage.contract.disk_contract import DiskContract, content


class TestMemoryDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return MemoryDisk()


class TestOsDisk(DiskContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Disk:
        return OsDisk(tmp_path / "made" / "on the way")


def test_a_directory_belongs_to_one(tmp_path: Path) -> None:
    first, second = OsDisk(tmp_path), OsDisk(tmp_path)
    first.lock("lock")
    with pytest.raises(StoreInUse, match=str(tmp_path)):
        second.lock("lock")
    first.close()
    second.lock("lock")
    second.close()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskError, match="cannot make directory"):
        OsDisk(tmp_path / "file")


def written(disk: MemoryDisk, name: str, data: bytes) -> None:
    file = disk.open(name, create=True)
    file.pwrite(data, 0)


def test_a_power_cut_forgets_what_was_not_synced() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    file.pwrite(b"durable", 0)
    file.fdatasync()
    disk.fsync_dir()
    file.pwrite(b"forgotten", 0)
    written(disk, "b", b"no name")
    disk.crash()
    assert disk.names() == ["a"]
    assert content(disk.open("a")) == b"durable"
    with pytest.raises(DiskError, match="when the power went"):
        file.size()


def test_a_power_cut_may_keep_any_of_it() -> None:
    seen = set()
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.open("a", create=True)
        file.pwrite(b"0" * 4 * SECTOR_BYTES, 0)
        file.fdatasync()
        disk.fsync_dir()
        file.pwrite(b"1" * 4 * SECTOR_BYTES, 0)
        disk.crash(random.Random(seed))
        seen.add(content(disk.open("a")))
    assert seen == {b"1" * n * SECTOR_BYTES + b"0" * (4 - n) * SECTOR_BYTES for n in range(5)}


def test_a_killed_process_leaves_the_bytes_to_the_kernel() -> None:
    disk = MemoryDisk()
    disk.lock("lock")
    written(disk, "a", b"not synced")
    disk.kill()
    disk.lock("lock")
    assert content(disk.open("a")) == b"not synced"
    disk.crash()
    assert disk.names() == []


def test_fail_at() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    disk.fail_at = disk.operations + 3
    file.pwrite(b"one", 0)
    file.fdatasync()
    for _ in range(2):
        with pytest.raises(DiskError, match="injected"):
            file.pwrite(b"two", 0)
    assert content(file) == b"one"
