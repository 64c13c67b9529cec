"""Both disks under the contract, and what is special about each."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from binlog_storage.disk.disk import Disk, OsDisk
from binlog_storage.errors import DiskError, DiskFull, FileMissing, StoreInUse
from binlog_storage.testing.memory_disk import BLOCK_BYTES, SECTOR_BYTES, MemoryDisk

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


def test_names_are_of_one_moment() -> None:
    """Another thread may make a file while somebody looks at all names."""
    disk = MemoryDisk()
    disk.make_folder("folder")

    class Looked(str):
        def startswith(self, *given: Any) -> bool:
            if not disk.names():
                written(disk, "made meanwhile", b"")
            return super().startswith(*given)

    disk.open(Looked("folder/a"), create=True)
    assert disk.names("folder") == ["a"]
    assert disk.names() == ["made meanwhile"]


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
    for seed in range(2000):
        disk = MemoryDisk()
        file = disk.open("a", create=True)
        file.pwrite(b"0" * 4 * SECTOR_BYTES, 0)
        file.fdatasync()
        disk.fsync_dir()
        file.pwrite(b"1" * 4 * SECTOR_BYTES, 0)
        disk.crash(random.Random(seed))
        seen.add(content(disk.open("a")))
    assert seen == {
        b"".join(s * SECTOR_BYTES for s in kept) for kept in product(b"0 1".split(), repeat=4)
    }


def test_a_killed_process_leaves_the_bytes_to_the_kernel() -> None:
    disk = MemoryDisk()
    disk.lock("lock")
    written(disk, "a", b"not synced")
    disk.kill()
    disk.lock("lock")
    assert content(disk.open("a")) == b"not synced"
    disk.crash()
    assert disk.names() == []


def test_names_that_were_not_synced_are_there_up_to_some_point() -> None:
    seen = set()
    for seed in range(100):
        disk = MemoryDisk({"a": b"1"})
        written(disk, "b", b"2")
        disk.rename("a", "c")
        disk.unlink("b")
        disk.crash(random.Random(seed))
        seen.add(tuple(sorted(disk.names())))
    assert seen == {("a",), ("a", "b"), ("b", "c"), ("c",)}


def test_a_look_at_what_a_crash_would_leave() -> None:
    disk = MemoryDisk({"a": b"durable"})
    file = disk.open("a")
    file.pwrite(b"dirt", 0)
    written(disk, "b", b"")
    twin = disk.after_crash()
    assert twin.contents() == {"a": b"durable"}
    assert disk.contents() == {"a": b"dirtble", "b": b""}
    file.fdatasync()
    assert disk.after_crash().contents() == {"a": b"dirtble"}


def test_what_a_failed_sync_forgot_is_lost() -> None:
    disk = MemoryDisk({"a": b"...."})
    disk.failed_sync_forgets = True
    file = disk.open("a")
    file.pwrite(b"A", 0)
    disk.fault = fail_once("sync")
    with pytest.raises(DiskError, match="injected"):
        file.fdatasync()
    file.pwrite(b"B", 1)
    file.fdatasync()
    assert content(file) == b"AB.."
    assert disk.after_crash().contents() == {"a": b".B.."}
    file.pwrite(b"A", 0)
    file.fdatasync()
    assert disk.after_crash().contents() == {"a": b"AB.."}


def test_what_is_written_over_a_failed_sync_is_lost_too() -> None:
    """Where nothing was synced before, as on ext4; but not behind a `reread`, which shows that it is gone."""
    disk = MemoryDisk({"a": b"...."})
    disk.failed_sync_forgets = True
    file = disk.open("a")
    file.allocate(3 * BLOCK_BYTES)
    file.fdatasync()
    file.pwrite(b"A" * 2 * BLOCK_BYTES, 0)
    disk.fault = fail_once("sync")
    with pytest.raises(DiskError, match="injected"):
        file.fdatasync()
    for rereads in (False, True):
        if rereads:
            assert content(file)[:BLOCK_BYTES] != content(file)[BLOCK_BYTES : 2 * BLOCK_BYTES]
            disk.reread("a")
        file.pwrite(b"B" * 3 * BLOCK_BYTES, 0)
        file.fdatasync()
        second = b"B" if rereads else b"\0"
        expected = b"".join(one * BLOCK_BYTES for one in (b"B", second, b"B"))
        assert disk.after_crash().contents() == {"a": expected}
        file.pwrite(b"C" * BLOCK_BYTES, 0)
        file.fdatasync()


def test_a_reread_keeps_what_is_still_to_be_written() -> None:
    disk = MemoryDisk({"a": b"...."})
    file = disk.open("a")
    file.pwrite(b"A", 0)
    disk.reread("a")
    assert content(file) == b"A..."
    with pytest.raises(FileMissing):
        disk.reread("b")


def test_a_read_that_fails() -> None:
    disk = MemoryDisk({"a": b"1"})
    disk.fault = fail_once("read")
    file = disk.open("a")
    with pytest.raises(DiskError, match="injected"):
        file.pread(1, 0)
    assert file.pread(1, 0) == b"1"


def test_a_full_disk_has_room_again_when_a_file_is_removed() -> None:
    disk = MemoryDisk({"a": bytes(100)})
    disk.capacity = 150
    file = disk.open("b", create=True)
    with pytest.raises(DiskFull, match="No space left"):
        file.allocate(51)
    file.allocate(50)
    file.pwrite(b"in place", 0)
    with pytest.raises(DiskFull, match="No space left"):
        file.pwrite(b"!", 50)
    disk.unlink("a")
    file.pwrite(b"!", 50)
    assert file.size() == 51


def test_a_hole_takes_no_room_before_it_is_written_or_allocated() -> None:
    disk = MemoryDisk()
    disk.capacity = 100
    file = disk.open("a", create=True)
    file.truncate(1000)
    file.allocate(60)
    file.pwrite(b"in place", 52)
    assert disk.used() == 60
    with pytest.raises(DiskFull, match="No space left"):
        file.allocate(101, 60)
    with pytest.raises(DiskFull, match="No space left"):
        file.pwrite(b"!", 100)
    file.allocate(100, 60)
    assert (disk.used(), file.size()) == (100, 1000)


def fail_once(what: str) -> Callable[[str, str], None]:
    left = [1]

    def fault(kind: str, name: str) -> None:
        if kind == what and left:
            left.pop()
            raise DiskError(f"cannot {kind} {name}: Input/output error (injected)")

    return fault


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_makes_is_the_owners(tmp_path: Path) -> None:
    """Commands on the directory of a service: `binlog-server user add` left files that the service could not open."""
    os.chown(tmp_path, 65534, 65533)
    disk = OsDisk(tmp_path)
    disk.lock("lock")
    disk.open("made", create=True).close()
    disk.make_folder("folder")
    disk.close()
    assert {(one.stat().st_uid, one.stat().st_gid) for one in tmp_path.iterdir()} == {
        (65534, 65533)
    }
    # Another's file under the name of the lock stays that one's.
    other = tmp_path.with_name("other")
    other.touch()
    (tmp_path / "lock").unlink()
    os.link(other, tmp_path / "lock")
    disk.lock("lock")
    disk.close()
    assert other.stat().st_uid == 0
