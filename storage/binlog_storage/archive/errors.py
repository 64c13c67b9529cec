"""Errors of archives. Their text names the archive and the file in it."""

from __future__ import annotations

from binlog_storage.errors import StorageError


class NotAnArchive(StorageError):
    """There is no manifest, or one of another program or a later version."""


class ArchiveDamaged(StorageError):
    """A file of the archive is missing, or is not as it was written. Nothing of it is believed."""


class ArchiveInUse(StorageError):
    """Another process is adding to it."""


class PyarrowMissing(StorageError):
    """Parts are Parquet files, which nothing else here can read."""
