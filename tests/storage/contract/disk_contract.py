"""The promises of `binlog_storage.disk.disk.Disk` and `File`, for every disk. A test gets a fresh `disk`."""

from __future__ import annotations

import pytest
from binlog_storage.disk.disk import Disk, File, is_unwritten
from binlog_storage.errors import DiskError


def content(file: File) -> bytes:
    return file.pread(file.size(), 0)


class DiskContract:
    def test_a_new_file_is_empty(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        assert file.size() == 0
        assert file.pread(10, 0) == b""
        assert disk.names() == ["a"]
        file.close()

    def test_create_takes_no_old_file(self, disk: Disk) -> None:
        disk.open("a", create=True).close()
        with pytest.raises(DiskError, match=r"cannot create .*a: File exists"):
            disk.open("a", create=True)

    def test_open_makes_no_file(self, disk: Disk) -> None:
        with pytest.raises(DiskError, match=r"cannot open .*a: No such file"):
            disk.open("a")
        assert disk.names() == []

    def test_reading_and_writing_at_offsets(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"0123456789", 0)
        file.pwrite(bytearray(b"AB"), 4)
        file.pwrite(memoryview(b"xyz")[1:], 8)
        assert content(file) == b"0123AB67yz"
        assert file.pread(3, 3) == b"3AB"
        assert file.pread(100, 8) == b"yz"
        assert file.pread(5, 10) == b""
        assert file.pread(5, 99) == b""
        file.close()

    def test_writing_behind_the_end_leaves_zeros(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"x", 5)
        assert content(file) == bytes(5) + b"x"
        file.close()

    def test_truncate(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"0123456789", 0)
        file.truncate(4)
        assert content(file) == b"0123"
        file.truncate(6)
        assert content(file) == b"0123\0\0"
        file.close()

    def test_syncs_beside_another(self, disk: Disk) -> None:
        """All are done at the end; the first error of theirs is raised behind that, or that of the block."""
        done: list[str] = []

        def fail() -> None:
            raise DiskError("cannot sync b")

        with disk.beside(lambda: done.append("a"), disk.fsync_dir):
            pass
        assert done == ["a"]
        with pytest.raises(DiskError, match="cannot sync b"), disk.beside(disk.fsync_dir, fail):
            done.append("block")
        assert done == ["a", "block"]
        with pytest.raises(DiskError, match="of the block"), disk.beside(fail):
            raise DiskError("of the block")

    def test_two_handles_see_the_same(self, disk: Disk) -> None:
        one = disk.open("a", create=True)
        two = disk.open("a")
        one.pwrite(b"hello", 0)
        assert content(two) == b"hello"
        one.close()
        assert content(two) == b"hello"
        two.close()

    def test_what_was_synced_is_there_again(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"kept", 0)
        file.fdatasync()
        file.close()
        disk.fsync_dir()
        again = disk.open("a")
        assert content(again) == b"kept"
        again.close()

    def test_what_was_never_written_is_passed_over(self, disk: Disk) -> None:
        """By blocks of the file system; what is passed over is zeros, with room on the disk or without."""
        file = disk.open("a", create=True)
        file.allocate(1 << 16)
        file.truncate(1 << 18)
        assert file.next_data(0) == file.next_data(5000) == 1 << 18
        file.pwrite(b"x" * 100, 1 << 17)
        assert file.next_data(0) == 1 << 17
        assert file.next_data((1 << 17) + 50) == (1 << 17) + 50
        assert file.next_data((1 << 17) + (1 << 16)) == 1 << 18
        assert file.next_data(1 << 18) == 1 << 18
        assert is_unwritten(file, 0, 1 << 17)
        assert not is_unwritten(file, 0, (1 << 17) + 1)
        file.allocate(1 << 18, 1 << 17)
        assert file.next_data((1 << 17) + (1 << 16)) == 1 << 18
        file.close()

    def test_rename(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"new", 0)
        file.close()
        disk.open("b", create=True).close()
        disk.rename("a", "b")
        assert disk.names() == ["b"]
        again = disk.open("b")
        assert content(again) == b"new"
        again.close()
        with pytest.raises(DiskError, match=r"cannot rename .*a: No such file"):
            disk.rename("a", "c")

    def test_unlink(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.pwrite(b"still here", 0)
        disk.unlink("a")
        assert disk.names() == []
        assert content(file) == b"still here", "open files outlive their names"
        file.close()
        with pytest.raises(DiskError, match=r"cannot remove .*a: No such file"):
            disk.unlink("a")

    def test_a_closed_file_is_not_used(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.close()
        file.close()
        with pytest.raises(DiskError):
            file.pread(1, 0)
        with pytest.raises(DiskError):
            file.pwrite(b"x", 0)

    def test_lock_makes_a_file_and_can_be_taken_again(self, disk: Disk) -> None:
        disk.lock("lock")
        assert "lock" in disk.names()
        disk.close()
        disk.lock("lock")
        disk.close()
