"""A directory that is ours: the store in it, its state, and the lock that keeps others out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk, OsDisk, mapped
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.disk.state import LOST_WITH_STATE, STATE_NAME, StateStore, StoreFacts
from binlog_storage.errors import DiskFull, NotAStore
from binlog_storage.ibb.file_names import LOCK_NAME, file_number
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from binlog_server.upstreams.password import KEY_NAME

log = logging.getLogger(__name__)

# Of a store whose state was lost; a new one is made beside them.
_OURS = frozenset(
    {
        REDO_NAME,
        PUBLICATION_NAME,
        TABLES_NAME,
        f"{REDO_NAME}.new",
        f"{PUBLICATION_NAME}.new",
        f"{TABLES_NAME}.new",
        f"{STATE_NAME}.new",
        KEY_NAME,
        f"{KEY_NAME}.new",
        SQLITE_NAME,
        f"{SQLITE_NAME}-wal",
        f"{SQLITE_NAME}.new",
    }
)
_IGNORED = _OURS | {LOCK_NAME, "lost+found"}


class StoreDirectory:
    """Opens a directory, or raises and leaves it as it was.

    Args:
        background: files are made ahead and purged from now on; without it from `start` on, when all that holds files
            back is known.
        patient: on a full disk it is opened all the same, see `PatientDisk`.
    """

    def __init__(
        self, path: Path, options: StoreOptions, *, background: bool = True, patient: bool = False
    ) -> None:
        """Raises `NotAStore`, `StoreInUse`, `CorruptBinlog`, `DiskError`; `DiskFull` where a new store has no room."""
        disk = _locked(path, patient=patient)
        try:
            names = disk.names()
            has_files = any(file_number(name) is not None for name in names)
            if not has_files and REDO_NAME not in names:
                _require_room(path, options)
            if STATE_NAME not in names and has_files:
                log.warning(
                    "%s has .ibb files and no %s: it is a store of MariaDB, or the state was lost, and with it %s",
                    path,
                    STATE_NAME,
                    LOST_WITH_STATE,
                )
            self.engine = IbbEngine(
                disk,
                options,
                facts=StateStore(disk),
                background=background,
                row_keeper=SqliteRows(path / SQLITE_NAME),
            )
            self.state: StoreFacts = self.engine.facts
        except BaseException:
            disk.close()
            raise

    def start(self) -> None:
        """See `background`."""
        self.engine.start()

    def close(self) -> None:
        """Sync and let go."""
        self.engine.close()


def _require_room(path: Path, options: StoreOptions) -> None:
    """Check the room for a new store, before anything is made of it. Raises `DiskFull`."""
    with mapped("look at", path):
        found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    redo, first = options.innodb_log_file_size, options.max_binlog_size
    if free < redo + first:
        raise DiskFull(
            f"there is no room for a new store in {path}: it begins with {redo + first} bytes (innodb_log_file_size="
            f"{redo}, and a file of max_binlog_size={first}), and {free} are free. Nothing was made but the lock"
        )


def open_state(path: Path) -> tuple[OfflineFacts, Disk]:
    """The state alone, for the command line; close the disk afterwards. Raises as `StoreDirectory`."""
    disk = _locked(path)
    try:
        return OfflineFacts(disk), disk
    except BaseException:
        disk.close()
        raise


def _locked(path: Path, *, patient: bool = False) -> Disk:
    """The disk of our directory, with its lock. Raises `NotAStore`, `StoreInUse`, `DiskError`."""
    if path.is_dir():
        _require_ours(path, (entry.name for entry in path.iterdir()))
    elif path.exists():
        raise NotAStore(f"{path} is not a directory")
    disk = PatientDisk(OsDisk(path)) if patient else OsDisk(path)
    disk.lock(LOCK_NAME)
    return disk


def _require_ours(path: Path, names: Iterable[str]) -> None:
    """Raise `NotAStore` unless the directory has our state, or nothing but .ibb files, or nothing."""
    found = set(names) - _IGNORED
    if STATE_NAME in found:
        return
    foreign = sorted(name for name in found if file_number(name) is None)
    if foreign:
        raise NotAStore(
            f"{path} is not a binlog store: it holds {foreign[0]!r}"
            f"{f' and {len(foreign) - 1} more' if len(foreign) > 1 else ''} and no {STATE_NAME}. Give an "
            "empty directory, or one with nothing but .ibb files in it"
        )
