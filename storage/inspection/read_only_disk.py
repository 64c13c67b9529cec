"""A directory that is only looked at: nothing is made, locked or written, and another process may be writing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from storage.disk import OsFile
from storage.errors import DiskError
from storage.local_path import local_path


class ReadableFile(Protocol):
    """What reading needs of `storage.disk.File`."""

    def pread(self, size: int, offset: int) -> bytes: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class ReadableDisk(Protocol):
    """What reading needs of `storage.disk.Disk`."""

    def open(self, name: str) -> ReadableFile: ...
    def names(self) -> list[str]: ...


class ReadOnlyDisk:
    """A directory of the operating system. Nothing is kept open but the files that were asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = local_path(directory)

    def open(self, name: str) -> OsFile:
        """Raises `DiskError`."""
        path = self._directory / name
        try:
            return OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise DiskError(f"cannot open {path}: {error.strerror or error}") from error

    def names(self) -> list[str]:
        """Raises `DiskError`."""
        try:
            return os.listdir(self._directory)  # noqa: PTH208 - names, not paths
        except OSError as error:
            raise DiskError(f"cannot list {self._directory}: {error.strerror or error}") from error
