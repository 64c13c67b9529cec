"""Files that are not archived yet are not purged: `binlog_archive_directory`, and `binlog_archive_url`.

The manifest of the archive tells how far it is. It is believed if its last group is that of the store, byte by byte, or
was purged. What cannot be told holds all files: a manifest that is missing or damaged, an archive of another history.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.coverage import first_missing, is_within
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.errors import ArchiveUnreachable
from binlog_storage.archive.manifest import ArchiveManifest
from binlog_storage.archive.places import Where
from binlog_storage.defects import Defects
from binlog_storage.engine import EngineReader, Pin, Position
from binlog_storage.errors import PositionPurged, StorageError
from binlog_storage.log.stored_groups import digest, find_group

from binlog_server.process.logs import shortened

log = logging.getLogger(__name__)

FIRST_LOOK_S: Final = 5.0
_ENDED_BY: Final = "take {} out of the configuration file and restart"


class ArchiveHold:
    """Holds the files of a store that an archive lacks. From any thread; every call reads from disks.

    Args:
        archiver: adds to it, in `round`; None: others do.
        keys: as for `Archive.open`.
    """

    def __init__(
        self,
        engine: EngineReader,
        where: Where,
        archiver: StoreArchiver | None = None,
        keys: ArchiveKeys | None = None,
    ) -> None:
        self._engine: Final = engine
        self._archiver: Final = archiver
        self._keys: Final = keys
        option = "binlog_archive_directory" if archiver is None else "binlog_archive_url"
        self._ended_by: Final = _ENDED_BY.format(option)
        self.where: Final = where
        self._lock: Final = threading.Lock()
        self._known: ArchiveManifest | None = (
            None  # of which it is known that it is of this history
        )
        self._archive: Archive | None = None  # as it was seen last
        self._why = "was not looked at yet"  # there is none such
        self._told = ""
        self._defects: Final = Defects()
        told = f"the archive {where}, which was not looked at yet"
        self._hold: Pin = engine.hold(told, ended_by=self._ended_by, holder=_holder(where))
        self._look_first()

    def _look_first(self) -> None:
        """Look at the archive, and wait for that a little: one that does not answer holds up no start.

        Until it was seen all files stay; `ArchiveParts` looks again for a replica that needs it.
        """
        look = threading.Thread(target=self._refresh_apart, name="binlog-archive", daemon=True)
        look.start()
        look.join(FIRST_LOOK_S)
        if look.is_alive():
            log.warning(
                "the archive %(archive)s does not answer: the start does not wait for it any longer",
                {"archive": self.where},
            )

    def _refresh_apart(self) -> None:
        with contextlib.suppress(StorageError):  # the store was closed meanwhile
            self.refresh()

    def round(self) -> None:
        """Archive what is durable, if that is done here, and `refresh`. One thread at a time. Raises `StorageError`."""
        try:
            if self._archiver is not None:
                self._archiver.step()
        finally:
            self.refresh()

    @property
    def archive(self) -> Archive:
        """The archive as it was seen last; it is of this history, and has all that was purged. Never waits.

        Raises `StorageError` with the reason if there is none such.
        """
        if self._archive is None:
            raise StorageError(f"the archive {self.where} {self._why}")
        return self._archive

    def stop(self) -> None:
        """The server is to end: `round` returns soon."""
        if self._archiver is not None:
            self._archiver.stop()

    def refresh(self) -> None:
        """Release files that were archived meanwhile."""
        with self._lock:
            try:
                archive = Archive.open(self.where, self._keys)
                manifest = archive.manifest
                self._check(manifest)
                if self._archive is None or manifest != self._archive.manifest:
                    self._archive = archive
                first, why = self._first(manifest), f"is at '{manifest.state.position()}'"
            except PositionPurged:
                return  # a purge under way: what there is then is looked at the next time
            except StorageError as error:
                first, why = None, f"does not let any go: {error}"
                if not isinstance(error, ArchiveUnreachable):
                    self._archive, self._why = None, f"cannot be read: {error}"
            except Exception as error:
                first, why = None, f"does not let any go: {error!r}"
                log.error("%s", why, exc_info=self._defects.trace(error))
            self._move(first, shortened(f"the archive {self.where}, which {why}"))

    def _move(self, first: int | None, told: str) -> None:
        # A new one before the old one goes, as this one may go back.
        start = None if first is None else Position(first, self._engine.file_start)
        hold = self._engine.hold(told, start, ended_by=self._ended_by, holder=_holder(self.where))
        self._hold.release()
        self._hold = hold
        if told != self._told:
            self._told = told
            name = (
                "all files" if first is None else f"{self._engine.file_name(first)} and later files"
            )
            log.info("%(archive)s: %(held)s stay", {"archive": told, "held": name})

    def _first(self, manifest: ArchiveManifest) -> int:
        """The first file that is not archived."""
        last = self._engine.written_end.file_no
        files = [file.number for file in self._engine.files() if file.number <= last]
        begin = BinlogState.parse(manifest.begin)
        return first_missing(begin, manifest.state, files, self._state_before)

    def _state_before(self, file_no: int) -> BinlogState:
        try:
            return self._engine.state_at(Position(file_no, self._engine.file_start))
        except PositionPurged:
            if file_no:
                raise
            return BinlogState()

    def _check(self, manifest: ArchiveManifest) -> None:
        """Compare the archive with the store. Raises `StorageError` if its history is another one."""
        if manifest == self._known:
            return
        stored = self._engine.binlog_state()
        if not is_within(manifest.state, stored):
            raise StorageError(
                f"it is at '{manifest.state}', and the store at '{stored}' has not come as far: it is of another "
                "history. Archive into an empty directory, and give that"
            )
        last = next((part for part in reversed(manifest.parts) if part.groups), None)
        if last is not None:
            digest = self._digest(last.last_gtid, manifest.state.position())
            if digest not in (None, last.last_sha256):
                raise StorageError(
                    f"its last group {last.last} is another one than the store's of that name: it is of another "
                    "history. Archive into an empty directory, and give that"
                )
        self._known = manifest

    def _digest(self, gtid: Gtid, position: SlavePosition) -> str | None:
        """Digest of a stored group; None if it was purged, empty if it never was there."""
        try:
            found = find_group(self._engine, gtid, position)
            if found.group is not None:
                return digest(found.group.pieces()).hex()
        except PositionPurged:
            return None
        return "" if found.passed else None


def _holder(where: Where) -> tuple[str, str]:
    return "archive", str(where)
