"""The source of groups that paths name: for `import`, and for a master of tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from binlog_storage.archive.archive import is_archive
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.places import Where
from binlog_storage.classic.binlog import ClassicBinlog
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.file_list import in_order, of_index
from binlog_storage.disk.given_files import open_given
from binlog_storage.disk.local_path import local_path
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.intake.ibb_files import IbbFiles
from binlog_storage.intake.source import IntakeSource
from binlog_storage.log.groups import IBB_MAGIC


def source_of(
    given: Sequence[Where],
    index: Path | None = None,
    keys: Keys | None = None,
    archive_keys: ArchiveKeys | None = None,
) -> IntakeSource:
    """An archive, a directory of .ibb files, or traditional binlog files, or those that an index names.

    keys: for traditional files that are encrypted.
    archive_keys: as for `Archive.open`.

    Raises `StorageError`, `OSError`.
    """
    if index is not None:
        return ClassicBinlog(of_index(index), keys)
    if len(given) == 1 and is_archive(given[0]):
        return ArchiveFiles(given[0], keys=archive_keys)
    paths = [local_path(path) for path in given]
    if len(paths) == 1 and paths[0].is_dir():
        return IbbFiles(paths[0])
    for path in paths:
        if path.is_dir():
            raise NotAStore(f"{path} is a directory: give it alone, or give files")
        if is_ibb(path):
            raise NotAStore(f"{path} is an .ibb file: give its directory {path.parent}")
        if _is_made_ahead(path):
            raise NotAStore(
                f"{path} has nothing in it: an .ibb file that was made ahead. Give those in front of it"
            )
    return ClassicBinlog(in_order(paths), keys)


def _is_made_ahead(path: Path) -> bool:
    with open_given(path) as file:
        return file.read(PAGE_SIZE) == bytes(PAGE_SIZE)


def is_ibb(path: Path) -> bool:
    """Whether a file begins as an .ibb file does. Raises `OSError`."""
    with open_given(path) as file:
        return file.read(len(IBB_MAGIC)) == IBB_MAGIC
