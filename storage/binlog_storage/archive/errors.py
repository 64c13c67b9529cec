"""Errors of archives. Their text names the archive and the file in it."""

from __future__ import annotations

from binlog_storage.errors import StorageError


class NotAnArchive(StorageError):
    """There is no manifest, or one of another program or a later version."""


class ArchiveDamaged(StorageError):
    """A file of the archive is missing, or is not as it was written. Nothing of it is believed."""


class ArchiveTurnedBack(StorageError):
    """There is an older manifest than the one that was seen last, or none any more."""


class ArchiveInUse(StorageError):
    """Another process is adding to it."""


class PyarrowMissing(StorageError):
    """Parts are Parquet, or zstd, which nothing else here can read."""


class ArchiveUnreachable(StorageError):
    """An object store did not answer, or not as it should. What was asked of it may have been done."""


class FetchGivenUp(StorageError):
    """Nobody wants the part any more that was being brought here."""


class ObjectChanged(StorageError):
    """An object was to be written in the place of another, or of none, and there is something else."""


class StoreLibraryMissing(StorageError):
    """Object stores are reached by obstore, HDFS by hdfs-native: extras both."""


class ArchiveNotOfStore(StorageError):
    """The archive does not go on with the store: it is of another history, or there is a gap."""
