"""A disk that writes down what is done to it, and breaks when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from binlog_storage.disk.disk import File
from binlog_storage.errors import DiskError
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk


class Done(NamedTuple):
    """One operation that succeeded. `pages` of a write to an .ibb file."""

    what: str
    name: str
    pages: range = range(0)
    data: bytes = b""


class _File:
    def __init__(self, disk: Recording, name: str, file: File) -> None:
        self._disk = disk
        self._name = name
        self._file = file
        self.pread = file.pread
        self.size = file.size
        self.close = file.close
        self.allocate = file.allocate
        self.next_data = file.next_data

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        pages = range(offset // PAGE_SIZE, -(-(offset + len(data)) // PAGE_SIZE))
        self._disk.meet(Done("write", self._name, pages, bytes(data)))
        self._file.pwrite(data, offset)
        self._disk.done.append(Done("write", self._name, pages, bytes(data)))

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def start_writing(self, size: int, offset: int) -> None:
        self._file.start_writing(size, offset)

    def fdatasync(self) -> None:
        self._disk.meet(Done("sync", self._name))
        self._file.fdatasync()
        self._disk.done.append(Done("sync", self._name))

    def truncate(self, size: int) -> None:
        self._disk.meet(Done("truncate", self._name))
        self._file.truncate(size)
        self._disk.done.append(Done("truncate", self._name))


class Recording:
    """See `binlog_storage.disk.disk.Disk`. `fails` says which operations do, once each is asked for."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.done: list[Done] = []
        self.tried: list[Done] = []
        self.fails: Callable[[Done], bool] = lambda _: False

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def meet(self, operation: Done) -> None:
        self.tried.append(operation)
        if self.fails(operation):
            raise DiskError(f"cannot {operation.what}: Input/output error (injected)")

    def open(self, name: str, *, create: bool = False) -> File:
        return _File(self, name, self.disk.open(name, create=create))

    def told(self) -> list[tuple[str, str]]:
        return [(each.what, each.name) for each in self.done]
