"""A directory that is served as it lies: what a store changes in it is kept in memory, and gone when it is closed.

So a store opens, goes on behind a crash and keeps facts as in any directory, while no byte, name or time of change in
this one becomes another. The file system may be one that cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from binlog_storage.disk.disk import File, locked, mapped, one_by_one
from binlog_storage.disk.local_path import local_path
from binlog_storage.disk.patient_disk import FileImage
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import DiskError, FileMissing


class _OverlayFile:
    """See `binlog_storage.disk.disk.File`."""

    def __init__(self, disk: OverlayDisk, image: FileImage) -> None:
        self._disk = disk
        self._image = image
        self._is_open = True

    def pread(self, size: int, offset: int) -> bytes:
        with self._disk.lock_of_changes:
            image = self._image
            if image.shown is None:
                return image.below.pread(size, offset)
            return image.read(size, offset)

    def size(self) -> int:
        with self._disk.lock_of_changes:
            return self._image.below.size() if self._image.shown is None else self._image.size

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        with self._disk.lock_of_changes:
            self._image.write(bytes(data), offset)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def truncate(self, size: int) -> None:
        with self._disk.lock_of_changes:
            self._image.truncate(size)

    def allocate(self, size: int, start: int = 0) -> None:
        with self._disk.lock_of_changes:
            self._image.allocate(size)

    def next_data(self, offset: int) -> int:
        with self._disk.lock_of_changes:
            image = self._image
            return image.below.next_data(offset) if image.shown is None else offset

    def start_writing(self, size: int, offset: int) -> None:
        """There is no disk behind it."""

    def fdatasync(self) -> None:
        """There is no disk behind it."""

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.let_go(self._image)


class OverlayDisk:
    """See `binlog_storage.disk.disk.Disk`, and the module.

    Args:
        clock: seconds since 1970: when what is changed here was changed.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = local_path(directory)
        self._below = ReadOnlyDisk(directory)
        self._began = clock()
        self._images: dict[str, FileImage] = {}  # of files that are open, or not as below
        self._hidden: set[str] = set()  # names below that are not those of their files any more
        self._folders: set[str] = set()
        self._lock_fd = -1
        self.lock_of_changes = threading.RLock()

    def open(self, name: str, *, create: bool = False) -> File:
        with self.lock_of_changes:
            if create:
                if self._is_there(name):
                    raise DiskError(f"cannot create {name}: File exists")
                image = self._images[name] = FileImage(name, None)
                image.begin()
            else:
                image = self._image(name)
            image.users += 1
            return _OverlayFile(self, image)

    def _image(self, name: str) -> FileImage:
        image = self._images.get(name)
        if image is None:
            if name in self._hidden:
                raise FileMissing(f"cannot open {name}: No such file or directory")
            image = self._images[name] = FileImage(name, self._below.open(name))
        return image

    def _is_there(self, name: str) -> bool:
        return name in self._images or (
            name not in self._hidden and os.path.lexists(self._directory / name)
        )

    def let_go(self, image: FileImage) -> None:
        """A user has closed the file. What was changed is kept for the next one."""
        with self.lock_of_changes:
            image.users -= 1
            is_named = self._images.get(image.name) is image
            if image.users or (is_named and image.shown is not None):
                return
            if image.file is not None:
                image.file.close()
            if is_named:
                del self._images[image.name]

    def names(self, folder: str = "") -> list[str]:
        prefix = f"{folder}/" if folder else ""
        path = self._directory / folder
        below = ReadOnlyDisk(path).names() if not folder or path.is_dir() else []
        with self.lock_of_changes:
            found = {name for name in below if prefix + name not in self._hidden}
            images = (name.removeprefix(prefix) for name in self._images if name.startswith(prefix))
            found.update(name for name in images if "/" not in name)
            return [*found, *(self._folders if not folder else ())]

    def make_folder(self, name: str) -> None:
        if not (self._directory / name).is_dir():
            self._folders.add(name)

    def modified(self, name: str) -> float:
        with self.lock_of_changes:
            image = self._images.get(name)
            if image is not None and image.shown is not None:
                return self._began
            if name in self._hidden:
                raise FileMissing(f"cannot stat {name}: No such file or directory")
        with mapped("stat", self._directory / name):
            return (self._directory / name).stat().st_mtime

    def size(self, name: str) -> int:
        with self.lock_of_changes:
            image = self._images.get(name)
            if image is not None and image.shown is not None:
                return image.size
            if name in self._hidden:
                raise FileMissing(f"cannot stat {name}: No such file or directory")
        return self._below.size(name)

    def reread(self, name: str, offset: int = 0, size: int = 0) -> None:
        """See `Disk`: nobody writes here, so nothing can have been given up."""

    def rename(self, old: str, new: str) -> None:
        with self.lock_of_changes:
            image = self._image(old)
            image.begin()
            del self._images[old]
            self._hidden.add(old)
            self._forget(new)
            image.name = new
            self._images[new] = image

    def unlink(self, name: str) -> None:
        with self.lock_of_changes:
            if not self._is_there(name):
                raise FileMissing(f"cannot remove {name}: No such file or directory")
            self._forget(name)

    def _forget(self, name: str) -> None:
        image = self._images.pop(name, None)
        self._hidden.add(name)
        if image is not None and not image.users and image.file is not None:
            image.file.close()

    def fsync_dir(self) -> None:
        """There is no disk behind it."""

    beside = staticmethod(one_by_one)

    def lock(self, name: str) -> None:
        """See `Disk`. Without a lock file no server of ours has written here, and none is made."""
        with contextlib.suppress(FileMissing):
            self._lock_fd = locked(self._directory, name, os.O_RDONLY)

    def close(self) -> None:
        with self.lock_of_changes:
            for image in self._images.values():
                if image.file is not None:
                    image.file.close()
            self._images.clear()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1
