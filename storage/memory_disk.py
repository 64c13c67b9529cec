"""A directory in memory that can lose power.

The twin of `OsDisk` for tests and simulations. It keeps two pictures of each file, what a reader sees and what is
durable, and two of the directory. `crash` makes the durable picture the only one, with a choice of what the kernel
may have written of the rest: nothing (default), or each unsynced write kept, dropped or torn as a random source says.
"""

from __future__ import annotations

import random

from storage.errors import DiskError, DiskFull, StoreInUse

SECTOR_BYTES = 512  # the unit that a disk writes whole


class _Content:
    """The bytes of one file, durable and visible, and the writes between the two."""

    __slots__ = ("durable", "pending", "visible")

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes] | int] = []  # a write (offset, data), or a length set


def _apply(image: bytearray, operation: tuple[int, bytes] | int) -> None:
    if isinstance(operation, int):
        if operation <= len(image):
            del image[operation:]
        else:
            image.extend(bytes(operation - len(image)))
        return
    offset, data = operation
    if len(image) < offset + len(data):
        image.extend(bytes(offset + len(data) - len(image)))
    image[offset : offset + len(data)] = data


class MemoryFile:
    """See `storage.disk.File`."""

    def __init__(self, disk: MemoryDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._epoch = disk.epoch

    def _check(self) -> None:
        if self._epoch != self._disk.epoch:
            raise DiskError("this file was open when the power went")

    def pread(self, size: int, offset: int) -> bytes:
        self._check()
        return bytes(self._content.visible[offset : offset + size])

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._check()
        self._disk.count("write")
        operation = (offset, bytes(data))
        _apply(self._content.visible, operation)
        self._content.pending.append(operation)

    def size(self) -> int:
        self._check()
        return len(self._content.visible)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.count("truncate")
        self._set_size(size)

    def _set_size(self, size: int) -> None:
        _apply(self._content.visible, size)
        self._content.pending.append(size)

    def allocate(self, size: int) -> None:
        self._check()
        self._disk.count("allocate")
        if size > self._disk.file_bytes_max:
            raise DiskFull("cannot allocate: No space left on device (injected)")
        self._set_size(max(size, self.size()))

    def fdatasync(self) -> None:
        self._check()
        self._disk.count("sync")
        self._content.durable = bytes(self._content.visible)
        self._content.pending.clear()

    def close(self) -> None:
        self._epoch = -1


class MemoryDisk:
    """See `storage.disk.Disk`. `fail_at` makes the n-th change or sync, and all later ones, raise. For one thread."""

    def __init__(self) -> None:
        self.epoch = 0
        self.operations = 0
        self.syncs = 0
        self.fail_at: int | None = None
        self.file_bytes_max = 1 << 62  # `allocate` of more meets a full disk
        self.times: dict[str, float] = {}  # for `modified`; 0 where nothing is set
        self._visible: dict[str, _Content] = {}
        self._durable: dict[str, _Content] = {}
        self._locked = False

    def count(self, kind: str) -> None:
        """Note one change or sync, and fail if its turn has come."""
        self.operations += 1
        self.syncs += kind == "sync"
        if self.fail_at is not None and self.operations >= self.fail_at:
            raise DiskError(f"cannot {kind}: Input/output error (injected)")

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            self.count("create")
            if name in self._visible:
                raise DiskError(f"cannot create {name}: File exists")
            self._visible[name] = _Content()
        elif name not in self._visible:
            raise DiskError(f"cannot open {name}: No such file or directory")
        return MemoryFile(self, self._visible[name])

    def names(self) -> list[str]:
        return list(self._visible)

    def modified(self, name: str) -> float:
        return self.times.get(name, 0.0)

    def rename(self, old: str, new: str) -> None:
        self.count("rename")
        if old not in self._visible:
            raise DiskError(f"cannot rename {old}: No such file or directory")
        self._visible[new] = self._visible.pop(old)

    def unlink(self, name: str) -> None:
        self.count("unlink")
        if self._visible.pop(name, None) is None:
            raise DiskError(f"cannot remove {name}: No such file or directory")

    def fsync_dir(self) -> None:
        self.count("sync")
        self._durable = dict(self._visible)

    def lock(self, name: str) -> None:
        if self._locked:
            raise StoreInUse("the directory is in use by another process")
        self._visible.setdefault(name, _Content())
        self._locked = True

    def close(self) -> None:
        self._locked = False

    def kill(self) -> None:
        """The process dies: open files and the lock are gone, the kernel keeps every byte and still has to write it."""
        self.epoch += 1
        self._locked = False
        self.fail_at = None

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power: open files die, unsynced names and bytes are lost, or partly kept as `rng` says."""
        self.kill()
        names = dict(self._durable)
        if rng is not None:
            for name in sorted(set(self._visible) - set(names)):
                if rng.random() < 0.5:
                    names[name] = self._visible[name]
        for content in names.values():
            image = bytearray(content.durable)
            for operation in content.pending:
                kept = None if rng is None else self._survivor(operation, rng)
                if kept is not None:
                    _apply(image, kept)
            content.visible = image
            content.durable = bytes(image)
            content.pending = []
        self._visible = names
        self._durable = dict(names)

    @staticmethod
    def _survivor(
        operation: tuple[int, bytes] | int, rng: random.Random
    ) -> tuple[int, bytes] | int | None:
        fate = rng.random()
        if fate < 0.3:
            return None
        if fate < 0.7 or isinstance(operation, int):
            return operation
        offset, data = operation
        return offset, data[: rng.randrange(0, len(data) + 1, SECTOR_BYTES)]
