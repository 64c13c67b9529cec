"""Disks that tests put under a store, their faults, a process that dies; and copies of directories that are in use."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from binlog_storage.disk.disk import Disk, File, OsDisk, OsFile, one_by_one
from binlog_storage.errors import DiskError


def copy_of_running(store: Path, copy: Path) -> Path:
    """As a kill would leave it. A file that is renamed in the background has gone: then all is copied again."""
    while True:
        try:
            return Path(shutil.copytree(store, copy))
        except shutil.Error:
            shutil.rmtree(copy)


class MortalDisk(OsDisk):
    """The process that uses it may `die`: the kernel closes its files, and nothing else happens."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._opened: list[OsFile] = []

    def open(self, name: str, *, create: bool = False) -> OsFile:
        file = super().open(name, create=create)
        self._opened.append(file)
        return file

    def die(self) -> None:
        for file in self._opened:
            file.close()
        self.close()


class BreakableFile:
    """See `binlog_storage.disk.disk.File`."""

    def __init__(self, disk: BreakableDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.pread = file.pread
        self.size = file.size
        self.close = file.close

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._disk.check()
        self._file.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._disk.check()
        self._file.truncate(size)

    def allocate(self, size: int, start: int = 0) -> None:
        self._disk.check()
        self._file.allocate(size, start)

    def next_data(self, offset: int) -> int:
        self._disk.check()
        return self._file.next_data(offset)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def start_writing(self, size: int, offset: int) -> None:
        self._file.start_writing(size, offset)

    def fdatasync(self) -> None:
        self._disk.check()
        self._file.fdatasync()


class BreakableDisk:
    """See `binlog_storage.disk.disk.Disk`. After `broken` was set nothing is changed any more; reading goes on."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.broken = False
        self.names = disk.names
        self.make_folder = disk.make_folder
        self.lock = disk.lock
        self.modified = disk.modified
        self.reread = disk.reread
        self.size = disk.size
        self.close = disk.close

    def check(self) -> None:
        if self.broken:
            raise DiskError("cannot write: Input/output error (injected)")

    def open(self, name: str, *, create: bool = False) -> File:
        if create:
            self.check()
        return BreakableFile(self, self._disk.open(name, create=create))

    def rename(self, old: str, new: str) -> None:
        self.check()
        self._disk.rename(old, new)

    def unlink(self, name: str) -> None:
        self.check()
        self._disk.unlink(name)

    def fsync_dir(self) -> None:
        self.check()
        self._disk.fsync_dir()

    beside = staticmethod(one_by_one)


def fails_to_sync(kind: str, name: str) -> None:
    """For `MemoryDisk.fault`: every sync of a file fails. With `failed_sync_forgets` readers see what is lost."""
    if kind == "sync":
        raise DiskError(f"cannot sync {name}: Input/output error (injected)")
