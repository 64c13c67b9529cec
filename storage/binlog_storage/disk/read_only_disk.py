"""A directory that is only looked at: nothing is made, locked or written, and another process may be writing it."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from binlog_storage.disk.disk import OPEN_FILES_MAX, OsFile, Unread, mapped, open_regular
from binlog_storage.disk.local_path import local_path, no_directory
from binlog_storage.errors import DiskError
from binlog_storage.ibb.file_names import file_name


class ReadableFile(Unread, Protocol):
    """The methods of `binlog_storage.disk.disk.File` that reading needs."""

    def pread(self, size: int, offset: int) -> bytes: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class ReadableDisk(Protocol):
    """The methods of `binlog_storage.disk.disk.Disk` that reading needs."""

    def open(self, name: str) -> ReadableFile: ...
    def names(self) -> list[str]: ...
    def size(self, name: str) -> int: ...


class ReadOnlyDisk:
    """A directory of the operating system. Nothing is kept open but the files that were asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = local_path(directory)

    def open(self, name: str) -> OsFile:
        """Raises `DiskError`."""
        path = self._directory / name
        with mapped("open", path):
            return OsFile(path, open_regular(path, os.O_RDONLY))

    def names(self) -> list[str]:
        """Raises `DiskError`."""
        try:
            with mapped("list", self._directory):
                return os.listdir(self._directory)  # noqa: PTH208 - names, not paths
        except DiskError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise DiskError(no_directory(self._directory)) from None
            raise

    def size(self, name: str) -> int:
        """Raises `DiskError`."""
        with mapped("stat", self._directory / name):
            return (self._directory / name).stat().st_size


class OpenFiles:
    """The .ibb files of a directory that were used last; there may be many more than one may have open. One owner."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk = disk
        self._files: OrderedDict[int, ReadableFile] = OrderedDict()

    def get(self, file_no: int) -> ReadableFile:
        """An open file, valid until the next call. Raises `DiskError`, `FileMissing`."""
        file = self._files.get(file_no)
        if file is None:
            if len(self._files) >= OPEN_FILES_MAX:
                self._files.popitem(last=False)[1].close()
            file = self._files[file_no] = self._disk.open(file_name(file_no))
        else:
            self._files.move_to_end(file_no)
        return file

    def forget(self, file_no: int) -> None:
        """Close the file: it is opened anew when it is asked for. Another one may have its name by now."""
        file = self._files.pop(file_no, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
