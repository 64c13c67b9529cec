"""A directory in memory that can lose power, fill up and fail.

The twin of `OsDisk` for tests and simulations. It keeps two pictures of each file, what a reader sees and what is
durable, and two of the directory. `crash` makes the durable picture the only one, with a choice of what the kernel
may have written of the rest: nothing (default), or each unsynced write kept, dropped or torn as a random source says,
and a prefix of the unsynced changes of names.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence

from binlog_storage.disk.disk import one_by_one
from binlog_storage.errors import DiskError, DiskFull, FileMissing, StoreInUse

SECTOR_BYTES = 512  # the unit that a disk writes whole
BLOCK_BYTES = 4096  # the unit of a file system
_ZEROS = bytes(BLOCK_BYTES)


class _Content:
    """The bytes of one file, visible and durable, and the writes between the two."""

    __slots__ = ("_lock", "durable", "lost", "pending", "room", "visible", "written")

    def __init__(self, data: bytes = b"") -> None:
        self._lock = threading.Lock()
        # Both the same object until the first change: a simulation opens a file far more often than it changes one.
        self.visible: bytes | bytearray = data
        self.durable: bytes | bytearray = data
        self.pending: list[tuple[int, bytes] | int] = []  # a write (offset, data), or a length set
        self.room = len(
            data
        )  # bytes for which the disk has room; a longer file has a hole behind them
        # Blocks that were ever synced behind a write, if anybody asks; and others, whose first sync has failed.
        self.written = set(blocks_of((0, data)))
        self.lost: set[int] = set()

    def change(self, operation: tuple[int, bytes] | int) -> None:
        with self._lock:
            if not isinstance(self.visible, bytearray):
                self.visible = bytearray(self.visible)
            apply_to(self.visible, operation)
            self.pending.append(operation)

    def sync(self, *, notes_blocks: bool = False) -> None:
        with self._lock:
            if self.pending and not isinstance(self.durable, bytearray):
                self.durable = bytearray(self.durable)
            for operation in self.pending:
                assert isinstance(self.durable, bytearray)
                if notes_blocks and not isinstance(operation, int):
                    blocks = blocks_of(operation)
                    if not self.lost.isdisjoint(blocks):
                        self._keep_others(operation, blocks)
                        continue
                    self.written.update(blocks)
                apply_to(self.durable, operation)
            self.pending = []

    def _keep_others(self, operation: tuple[int, bytes], blocks: range) -> None:
        """The part of a write that does not go to lost blocks."""
        assert isinstance(self.durable, bytearray)
        offset, data = operation
        apply_to(self.durable, max(len(self.durable), offset + len(data)))
        for block in blocks:
            if block not in self.lost:
                first = max(block * BLOCK_BYTES, offset)
                last = min((block + 1) * BLOCK_BYTES, offset + len(data))
                apply_to(self.durable, (first, data[first - offset : last - offset]))
                self.written.add(block)

    def forget(self) -> None:
        """A sync failed: the kernel shows what was written, but never tries to write it again.

        As on ext4 even what is written there later is lost, if nothing ever was before; until `reread`.
        """
        with self._lock:
            for operation in self.pending:
                if not isinstance(operation, int):
                    self.lost.update(set(blocks_of(operation)) - self.written)
            self.pending = []

    def reread(self, offset: int, size: int) -> None:
        """The kernel has nothing of these blocks any more but what is still to be written."""
        with self._lock:
            if self.visible is self.durable and not self.pending and not self.lost:
                return  # as of nearly all files of a simulation, whenever a start reads them
            there = bytearray(self.durable)
            for operation in self.pending:
                apply_to(there, operation)
            end = offset + size if size else max(len(there), len(self.visible))
            length = len(self.visible)
            visible = bytearray(self.visible)
            visible[offset:end] = there[offset:end].ljust(min(end, length) - offset, b"\0")
            self.visible = visible[:length]
            blocks = range(offset // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            self.lost = {block for block in self.lost if block not in blocks}


def blocks_of(write: tuple[int, bytes]) -> range:
    """The blocks in which a write is."""
    offset, data = write
    return range(offset // BLOCK_BYTES, -(-(offset + len(data)) // BLOCK_BYTES))


def apply_to(image: bytearray, operation: tuple[int, bytes] | int) -> None:
    """A write (offset, data), or a length set, to the bytes of a file."""
    if isinstance(operation, int):
        if operation <= len(image):
            del image[operation:]
        else:
            image.extend(bytes(operation - len(image)))
        return
    offset, data = operation
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


class MemoryFile:
    """See `binlog_storage.disk.disk.File`."""

    def __init__(self, disk: MemoryDisk, name: str, content: _Content) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._epoch = disk.epoch

    def _check(self) -> None:
        if self._epoch != self._disk.epoch:
            raise DiskError("this file was open when the power went")

    def pread(self, size: int, offset: int) -> bytes:
        self._check()
        self._disk.meet("read", self._name)
        return bytes(self._content.visible[offset : offset + size])

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._check()
        self._disk.count("write", self._name)
        end = offset + len(data)
        self._disk.take_room("write", end - self._content.room)
        self._content.change((offset, bytes(data)))
        self._content.room = max(self._content.room, end)

    def size(self) -> int:
        self._check()
        return len(self._content.visible)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.count("truncate", self._name)
        self._content.change(size)
        self._content.room = min(self._content.room, size)

    def allocate(self, size: int, start: int = 0) -> None:
        self._check()
        self._disk.count("allocate", self._name)
        if size > self._disk.file_bytes_max:
            raise DiskFull("cannot allocate: No space left on device (injected)")
        self._disk.take_room("allocate", size - self._content.room)
        self._content.change(max(size, self.size()))
        self._content.room = max(self._content.room, size)

    def next_data(self, offset: int) -> int:
        self._check()
        visible = self._content.visible
        while offset < len(visible):
            data = visible[offset : offset + BLOCK_BYTES]
            # Compared: crash tests ask this of megabytes at each start.
            if data != _ZEROS[: len(data)]:
                break
            offset += len(data)
        return offset

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def start_writing(self, size: int, offset: int) -> None:
        self._check()

    def fdatasync(self) -> None:
        self._check()
        try:
            self._disk.count("sync", self._name)
        except DiskError:
            if self._disk.failed_sync_forgets:
                self._content.forget()
            raise
        self._content.sync(notes_blocks=self._disk.failed_sync_forgets)

    def close(self) -> None:
        self._epoch = -1


class MemoryDisk:
    """See `binlog_storage.disk.disk.Disk`. Files may be used from several threads, and who looks at names may do so
    beside one that changes them; the rest by one.

    Args:
        contents: files that are there at the start, durable.

    Faults, all off at the start:
        fail_at: the n-th change or sync, and all later ones, raise `DiskError`, until `kill` or `crash`.
        fault: called with (what, file name) before every operation, reads included; may raise. What is "read",
            "write", "truncate", "allocate", "sync", "create", "rename", "unlink", "make folder" or "sync directory".
        failed_sync_forgets: what a failed `fdatasync` should have written is lost at the next power cut, whatever the
            next `fdatasync` says. So does Linux; and as with ext4 what is written over it is lost, too, where nothing
            was synced before, until `reread`.
        file_bytes_max: `allocate` of more raises `DiskFull`.
        capacity: bytes of all files together; growing beyond raises `DiskFull`. Files that are removed make room.
    """

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.epoch = 0
        self.operations = 0
        self.syncs = 0
        self.fail_at: int | None = None
        self.fault: Callable[[str, str], None] | None = None
        self.failed_sync_forgets = False
        self.file_bytes_max = 1 << 62
        self.capacity = 1 << 62
        self.times: dict[str, float] = {}  # for `modified`; 0 where nothing is set
        self._visible = {name: _Content(data) for name, data in (contents or {}).items()}
        self._durable = dict(self._visible)
        self._folders: set[str] = set()
        self._unsynced_names: list[dict[str, _Content]] = []  # the directory after each change
        self._locked = False

    # --- faults ---

    def count(self, kind: str, name: str) -> None:
        """Note one change or sync, and fail if its turn has come."""
        self.operations += 1
        self.syncs += kind.startswith("sync")
        if self.fail_at is not None and self.operations >= self.fail_at:
            raise DiskError(f"cannot {kind}: Input/output error (injected)")
        self.meet(kind, name)

    def meet(self, kind: str, name: str) -> None:
        """Let the injected fault have its say."""
        if self.fault is not None:
            self.fault(kind, name)

    def take_room(self, action: str, more: int) -> None:
        """`more` bytes of the disk, or `DiskFull`."""
        if more > 0 and self.used() + more > self.capacity:
            raise DiskFull(f"cannot {action}: No space left on device (injected)")

    def used(self) -> int:
        """Bytes of all files, those of holes left out."""
        return sum(content.room for content in list(self._visible.values()))

    # --- the directory ---

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            self.count("create", name)
            if name in self._visible:
                raise DiskError(f"cannot create {name}: File exists")
            if "/" in name and name.partition("/")[0] not in self._folders:
                raise FileMissing(f"cannot create {name}: No such file or directory")
            self._visible[name] = _Content()
            self._changed()
        elif name not in self._visible:
            raise FileMissing(f"cannot open {name}: No such file or directory")
        return MemoryFile(self, name, self._visible[name])

    def names(self, folder: str = "") -> list[str]:
        there = list(self._visible)  # in one step: another thread may make and remove files
        if folder:
            inside = f"{folder}/"
            return [name.removeprefix(inside) for name in there if name.startswith(inside)]
        return [name for name in there if "/" not in name]

    def make_folder(self, name: str) -> None:
        self.count("make folder", name)
        self._folders.add(name)

    def modified(self, name: str) -> float:
        return self.times.get(name, 0.0)

    def size(self, name: str) -> int:
        if name not in self._visible:
            raise FileMissing(f"cannot stat {name}: No such file or directory")
        return len(self._visible[name].visible)

    def reread(self, name: str, offset: int = 0, size: int = 0) -> None:
        if name not in self._visible:
            raise FileMissing(f"cannot open {name}: No such file or directory")
        self._visible[name].reread(offset, size)

    def rename(self, old: str, new: str) -> None:
        self.count("rename", old)
        if old not in self._visible:
            raise FileMissing(f"cannot rename {old}: No such file or directory")
        self._visible[new] = self._visible.pop(old)
        self._changed()

    def unlink(self, name: str) -> None:
        self.count("unlink", name)
        if self._visible.pop(name, None) is None:
            raise FileMissing(f"cannot remove {name}: No such file or directory")
        self._changed()

    def fsync_dir(self) -> None:
        self.count("sync directory", "")
        self._durable = dict(self._visible)
        self._unsynced_names.clear()

    beside = staticmethod(one_by_one)

    def lock(self, name: str) -> None:
        if self._locked:
            raise StoreInUse("the directory is in use by another process")
        if name not in self._visible:
            self._visible[name] = _Content()
            self._changed()
        self._locked = True

    def close(self) -> None:
        self._locked = False

    def _changed(self) -> None:
        self._unsynced_names.append(dict(self._visible))

    def contents(self) -> dict[str, bytes]:
        """All files as a reader sees them."""
        return {name: bytes(content.visible) for name, content in self._visible.items()}

    # --- going down ---

    def kill(self) -> None:
        """The process dies: open files and the lock are gone, the kernel keeps every byte and still has to write it."""
        self.epoch += 1
        self._locked = False
        self.fail_at = None

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power: open files die, unsynced names and bytes are lost, or partly kept as `rng` says."""
        self.kill()
        names = self._surviving_names(rng)
        for name, image in self._survivors(names, rng).items():
            content = names[name]
            content.durable = content.visible = image
            content.pending = []
            content.lost.clear()
        self._visible = dict(names)
        self._durable = dict(names)
        self._unsynced_names.clear()

    def after_crash(self, rng: random.Random | None = None) -> MemoryDisk:
        """A disk as `crash` would leave this one; nothing happens to this one."""
        return MemoryDisk(self._survivors(self._surviving_names(rng), rng))

    def _surviving_names(self, rng: random.Random | None) -> dict[str, _Content]:
        if rng is not None:
            kept_changes = rng.randrange(len(self._unsynced_names) + 1)
            if kept_changes:
                return self._unsynced_names[kept_changes - 1]
        return self._durable

    def _survivors(
        self, names: Mapping[str, _Content], rng: random.Random | None
    ) -> dict[str, bytes]:
        images = {}
        for name in sorted(names):
            content = names[name]
            image = bytearray(content.durable)
            for operation in content.pending:
                if rng is not None:
                    _written_anyway(image, operation, rng)
            images[name] = bytes(image)
        return images


def _written_anyway(
    image: bytearray, operation: tuple[int, bytes] | int, rng: random.Random
) -> None:
    """Apply the part of an unsynced operation that a disk may have: nothing, all, or of a write some sectors."""
    fate = rng.random()
    if fate < 0.3:
        return
    if fate < 0.7 or isinstance(operation, int):
        apply_to(image, operation)
        return
    offset, data = operation
    borders = [0, *range(SECTOR_BYTES - offset % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
    sectors = list(itertools.pairwise(borders))
    cut = rng.randrange(len(sectors) + 1)
    kept = rng.choice((sectors[:cut], sectors[cut:], [s for s in sectors if rng.random() < 0.5]))
    for begin, end in kept:
        apply_to(image, (offset + begin, data[begin:end]))
