"""A disk that writes down what is done to it, in order, with marks of what the outside was told in between."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.disk.disk import Disk, File, one_by_one
from binlog_storage.errors import FileMissing


class Create(NamedTuple):
    """A new empty file; `inode` is its number for the rest of the trace, whatever it is called."""

    name: str
    inode: int


class Write(NamedTuple):
    """Bytes at an offset."""

    inode: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    """The length in bytes, cut or extended with zeros."""

    inode: int
    size: int


class SyncFile(NamedTuple):
    """What was written to the file is durable from here on."""

    inode: int


class Rename(NamedTuple):
    """The file `inode` is called `new` from now on, which is replaced."""

    old: str
    new: str
    inode: int


class Unlink(NamedTuple):
    """The name goes."""

    name: str


class SyncDirectory(NamedTuple):
    """All names are durable as they are here."""


class Mark(NamedTuple):
    """No operation: what the outside was told at this point. See `tests.storage.crash.history`."""

    what: str
    value: object


Operation = Create | Write | Resize | SyncFile | Rename | Unlink | SyncDirectory | Mark


class RecordingFile:
    """See `binlog_storage.disk.disk.File`."""

    def __init__(self, disk: RecordingDisk, file: File, inode: int) -> None:
        self._disk = disk
        self._file = file
        self._inode = inode
        self.pread = file.pread
        self.size = file.size
        self.close = file.close

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        written = bytes(data)
        self._disk.do(
            lambda: self._file.pwrite(written, offset), Write(self._inode, offset, written)
        )

    def truncate(self, size: int) -> None:
        self._disk.do(lambda: self._file.truncate(size), Resize(self._inode, size))

    def allocate(self, size: int, start: int = 0) -> None:
        size = max(size, self._file.size())
        self._disk.do(lambda: self._file.allocate(size, start), Resize(self._inode, size))

    def next_data(self, offset: int) -> int:
        return self._file.next_data(offset)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def start_writing(self, size: int, offset: int) -> None:
        self._file.start_writing(size, offset)

    def fdatasync(self) -> None:
        self._disk.do(self._file.fdatasync, SyncFile(self._inode))


class RecordingDisk:
    """See `binlog_storage.disk.disk.Disk`. Operations are done and recorded one at a time, from any thread.

    What is there at the start counts as durable. An operation that fails is not recorded.

    Attributes:
        trace: what was done, in order.
        initial: contents at the start, by inode; `initial_names` gives their names.
        before: called before each operation, by the thread that does it; may `mark`.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self.trace: list[Operation] = []
        self.initial: dict[int, bytes] = {}
        self.initial_names: dict[str, int] = {}
        self.before: Callable[[], None] | None = None
        self._inodes: dict[str, int] = {}
        self._next = 0
        names = disk.names()
        with contextlib.suppress(FileMissing):
            names += [f"{CACHE_FOLDER}/{name}" for name in disk.names(CACHE_FOLDER)]
        for name in names:
            inode = self._new_inode(name)
            file = disk.open(name)
            self.initial[inode] = file.pread(file.size(), 0)
            file.close()
        self.initial_names = dict(self._inodes)
        self.modified = disk.modified
        self.reread = disk.reread
        self.size = disk.size
        self.names = disk.names
        self.make_folder = disk.make_folder
        self.close = disk.close

    def _new_inode(self, name: str) -> int:
        self._next += 1
        self._inodes[name] = self._next
        return self._next

    def do(self, action: Callable[[], object], operation: Operation) -> None:
        """Do it, then note it."""
        with self._lock:
            if self.before is not None:
                self.before()
            action()
            self.trace.append(operation)

    def mark(self, what: str, value: object) -> None:
        """Note what the outside knows from here on."""
        with self._lock:
            self.trace.append(Mark(what, value))

    @property
    def last_told(self) -> int:
        """The number in the last mark `told`; 0 without one."""
        told = (
            mark.value
            for mark in reversed(self.trace)
            if isinstance(mark, Mark) and mark.what == "told"
        )
        number = next(told, 0)
        assert isinstance(number, int)
        return number

    def open(self, name: str, *, create: bool = False) -> RecordingFile:
        with self._lock:
            if create and self.before is not None:
                self.before()
            file = self._disk.open(name, create=create)
            if create:
                self.trace.append(Create(name, self._new_inode(name)))
            return RecordingFile(self, file, self._inodes[name])

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            self.do(lambda: self._disk.rename(old, new), Rename(old, new, self._inodes[old]))
            self._inodes[new] = self._inodes.pop(old)

    def unlink(self, name: str) -> None:
        with self._lock:
            self.do(lambda: self._disk.unlink(name), Unlink(name))
            del self._inodes[name]

    def fsync_dir(self) -> None:
        self.do(self._disk.fsync_dir, SyncDirectory())

    beside = staticmethod(one_by_one)

    def lock(self, name: str) -> None:
        with self._lock:
            new = name not in self._disk.names()
            self._disk.lock(name)
            if new:
                self.trace.append(Create(name, self._new_inode(name)))
