"""Errors of traditional binlog files."""

from __future__ import annotations

from pathlib import Path

from binlog_storage.errors import StorageError


class UnreadableBinlog(StorageError):
    """A file that is no binlog file of a MariaDB with GTIDs, or cannot be read without its server."""


class EncryptedBinlog(UnreadableBinlog):
    """A file that is read with a key which was not given."""


class DamagedBinlog(StorageError):
    """A file holds what no server writes there.

    Args:
        path: of the file.
        offset: in bytes, of the event.
        reason: what is wrong with it.
    """

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(f"{path} is damaged at offset {offset}: {reason}")
