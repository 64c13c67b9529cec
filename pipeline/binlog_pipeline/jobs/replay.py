"""Replay: the groups of an archive, back into a store of .ibb files, under the same GTIDs.

What the store has already is passed over, so a run that was killed is done again, and an archive that has grown is
gone on with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.places import Where
from binlog_storage.archive.taking import take_archive
from binlog_storage.binlog.options import FILE_BYTES_MAX, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import LOCK_NAME
from binlog_storage.intake.intake import Taken

_REDO_BYTES: Final = 96 << 20
_SMALL_REDO_BYTES: Final = 4 << 20  # taken at once, and a small store needs no more


@dataclass(frozen=True, slots=True)
class Replayed:
    """The groups that were taken, and the GTID position of the store behind them."""

    taken: Taken
    position: SlavePosition


def replay(
    archive: Where,
    target: Path,
    *,
    start: SlavePosition | None = None,
    max_binlog_size: int = FILE_BYTES_MAX,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Replayed:
    """Fill the store in `target`; it is made if there is none.

    Raises `NotAStore`, `StorageError`: what was taken until then stays, and is durable.

    Args:
        start: begin an empty store with the part of the archive in which this position is.
        progress: is called with the bytes of the archive that were read, and with all.
    """
    source = ArchiveFiles(archive, start)
    disk = OsDisk(target)
    names = disk.names()
    if STATE_NAME not in names and set(names) - {LOCK_NAME, "lost+found"}:
        raise NotAStore(
            f"{target} is no binlog store: it holds something, and no {STATE_NAME}. Give an empty directory"
        )
    disk.lock(LOCK_NAME)
    try:
        redo = _SMALL_REDO_BYTES if max_binlog_size < _REDO_BYTES else _REDO_BYTES
        options = StoreOptions(max_binlog_size=max_binlog_size, innodb_log_file_size=redo)
        engine = IbbEngine(disk, options, facts=StateStore(disk), background=True)
    except BaseException:
        disk.close()
        raise
    try:
        taken = take_archive(
            engine, engine.facts, source, lambda taken: progress(source.bytes_read, source.size)
        )
        return Replayed(taken, engine.binlog_state().position())
    finally:
        engine.close()
