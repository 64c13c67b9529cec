"""Replay: the groups of an archive, back into a store of .ibb files, under the same GTIDs.

What the store has already is passed over, so a run that was killed is done again, and an archive that has grown is
gone on with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.places import Where
from binlog_storage.archive.taking import take_archive
from binlog_storage.binlog.file_table import ROOM_FIRST
from binlog_storage.binlog.options import FILE_BYTES_MAX, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk, OsDisk
from binlog_storage.disk.local_path import require_room
from binlog_storage.disk.overlay_disk import OverlayDisk
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import LOCK_NAME
from binlog_storage.intake.intake import Intake, Taken, progress_text
from binlog_storage.intake.nothing_stored import NothingStored
from binlog_storage.redo.format import REDO_NAME

_OF_A_BEGINNING: Final = {LOCK_NAME, f"{STATE_NAME}.new", "lost+found"}
"""What a run leaves that was killed before there was a store."""
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
    progress: Callable[[int, int, Callable[[], str]], None] = lambda done, total, text: None,
    dry_run: bool = False,
) -> Replayed:
    """Fill the store in `target`; it is made if there is none.

    Raises `NotAStore`, `StorageError`: what was taken until then stays, and is durable. Where a new store has no room
    nothing is made.

    Args:
        start: begin an empty store with the part of the archive in which this position is.
        progress: is called with the bytes of the archive that were read, with all, and with what says more in words.
        dry_run: all is read, and nothing is stored or made.
    """
    source = ArchiveFiles(archive, start)

    def shown(taken: Taken) -> None:
        progress(source.bytes_read, source.size, partial(progress_text, taken, source, target))

    if dry_run and not target.exists():
        engine = NothingStored(None)
        return Replayed(Intake(engine, source, shown).run(), engine.position)
    redo = _SMALL_REDO_BYTES if max_binlog_size < _REDO_BYTES else _REDO_BYTES
    if not dry_run and _is_new(target):
        require_room(target, redo, min(max_binlog_size, ROOM_FIRST))
    disk: Disk = OverlayDisk(target) if dry_run else OsDisk(target)
    try:
        names = disk.names()
        if STATE_NAME not in names and set(names) - _OF_A_BEGINNING:
            raise NotAStore(
                f"{target} is no binlog store: it holds something, and no {STATE_NAME}. Give an empty directory"
            )
        disk.lock(LOCK_NAME)
        options = StoreOptions(max_binlog_size=max_binlog_size, innodb_log_file_size=redo)
        store = IbbEngine(disk, options, facts=StateStore(disk), background=not dry_run)
    except BaseException:
        disk.close()
        raise
    try:
        if dry_run:
            engine = NothingStored(store)
            return Replayed(Intake(engine, source, shown).run(), engine.position)
        taken = take_archive(store, store.facts, source, shown)
        return Replayed(taken, store.binlog_state().position())
    finally:
        store.close()


def _is_new(target: Path) -> bool:
    """Whether the store is still to be made."""
    return not (target / REDO_NAME).exists()
