"""Why groups from elsewhere are not taken into a store. Nothing of what is refused was stored."""

from __future__ import annotations

from binlog_storage.errors import StorageError


class DoesNotContinue(StorageError):
    """The groups do not follow exactly upon what there is."""


class FilesMissing(StorageError):
    """Between two files, or in front of the first, there were others."""
