"""A directory that is only looked at: nothing is made, locked or written, and another process may be writing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from storage.disk import OsFile
from storage.errors import DiskError


class ReadOnlyDisk:
    """`Disk` for reading; what would change the directory raises `DiskError`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, name: str, *, create: bool = False) -> OsFile:
        if create:
            self._refuse()
        path = self._directory / name
        try:
            return OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise DiskError(f"cannot open {path}: {error.strerror or error}") from error

    def names(self) -> list[str]:
        try:
            return os.listdir(self._directory)  # noqa: PTH208 - names, not paths
        except OSError as error:
            raise DiskError(f"cannot list {self._directory}: {error.strerror or error}") from error

    def rename(self, old: str, new: str) -> None:
        self._refuse()

    def unlink(self, name: str) -> None:
        self._refuse()

    def fsync_dir(self) -> None:
        self._refuse()

    def lock(self, name: str) -> None:
        self._refuse()

    def close(self) -> None:
        """Nothing is held."""

    def _refuse(self) -> NoReturn:
        raise DiskError(f"{self._directory} is open for reading only")
