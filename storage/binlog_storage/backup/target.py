"""A backup as a directory, while it is written. What a crash leaves is at the stage `COPYING`, and no backup.

An error leaves nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses

from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.engine.backup import BACKUP_NAME, COPYING, Manifest, Piece, write_manifest
from binlog_storage.errors import DiskError, NotAStore
from binlog_storage.ibb.file_names import LOCK_NAME

_NO_FILES = frozenset({"lost+found", LOCK_NAME})


def require_empty(disk: ReadableDisk, where: str) -> None:
    """Raises `NotAStore` for a directory that is not empty. `where`: its name."""
    there = sorted(set(disk.names()) - _NO_FILES)
    if there:
        raise NotAStore(f"{where} holds {there[0]!r}: give an empty directory for the backup")


class BackupTarget:
    """An empty directory that takes a backup. One thread.

    Args:
        where: its name, for errors.
    """

    def __init__(self, disk: Disk, where: str) -> None:
        """Raises `NotAStore` for a directory that is not empty."""
        require_empty(disk, where)
        self._disk = disk
        self._name = ""
        self._file: File | None = None
        self._sizes: dict[str, int] = {}

    def begin(self, manifest: Manifest) -> None:
        """Raises `DiskError`."""
        write_manifest(self._disk, manifest.at(COPYING))

    def take(self, piece: Piece) -> None:
        """Raises `DiskError`."""
        if piece.name != self._name or self._file is None:
            self._end_file()
            self._name = piece.name
            self._file = self._disk.open(piece.name, create=True)
            self._sizes[piece.name] = piece.size
        self._file.pwrite(piece.data, piece.offset)

    def finish(self, manifest: Manifest) -> Manifest:
        """All is there: durable when it returns. Returns the manifest with all sizes. Raises `DiskError`."""
        self._end_file()
        self._disk.fsync_dir()
        whole = dataclasses.replace(manifest, sizes=self._sizes)
        write_manifest(self._disk, whole)
        return whole

    def _end_file(self) -> None:
        if self._file is not None:
            with contextlib.closing(self._file) as file:
                self._file = None
                file.truncate(self._sizes[self._name])
                file.fdatasync()

    def discard(self) -> None:
        """Remove what was written, so that the directory is as it was. `DiskError`s stay unsaid."""
        self.close()
        for name in (*self._sizes, BACKUP_NAME):
            with contextlib.suppress(DiskError):
                self._disk.unlink(name)

    def close(self) -> None:
        """Let go; what is not finished stays no backup."""
        if self._file is not None:
            self._file.close()
            self._file = None
