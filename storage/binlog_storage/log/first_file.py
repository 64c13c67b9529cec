"""The first file that there is to be: what is missing from there on was not purged.

A purge notes where the store begins from then on, as a fact of the store, before it deletes. A directory without that
note was made elsewhere: what is missing in front of its files was purged, as far as anybody can tell.
"""

from __future__ import annotations

import contextlib
import logging

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.disk.state import FIRST_FILE_KEY, StateStore, read_facts
from binlog_storage.errors import DiskError, StorageError
from binlog_storage.ibb.file_names import file_name

log = logging.getLogger(__name__)


class FirstFile:
    """The number of the first file that must be there, as a durable fact of an open store."""

    def __init__(self, facts: StateStore | None) -> None:
        self._facts = facts
        self._unnoted: int | None = None  # what could not be noted yet

    def opened(self, numbers: list[int]) -> None:
        """Say what was deleted by hand; that stays so until the next purge. Raises `DiskError`."""
        if self._facts is None or not numbers:
            return
        told = lost_files(self._facts.get(FIRST_FILE_KEY), numbers)
        if told:
            log.warning(
                "%s: who needs what was in there is told that it was purged; PURGE BINARY LOGS TO '%s' says that it "
                "may be missing",
                told,
                file_name(numbers[0]),
            )
        else:
            self._note(numbers[0])

    def moves_to(self, file_no: int) -> None:
        """Note that earlier files are being deleted, or may be missing. On a full disk `note_again` does it later."""
        try:
            self._note(file_no)
            self._unnoted = None
        except DiskError as error:
            self._unnoted = file_no
            log.warning(
                "it could not be noted that the store begins with %s, which is tried again: %s",
                file_name(file_no),
                error,
            )

    def note_again(self) -> None:
        """Try again what `moves_to` could not note. Not more than that: files deleted by hand stay missing."""
        if self._unnoted is None:
            return
        with contextlib.suppress(DiskError):  # said already; another time
            self._note(self._unnoted)
            self._unnoted = None

    def _note(self, file_no: int) -> None:
        if self._facts is not None and self._facts.get(FIRST_FILE_KEY) != file_no:
            self._facts.set(FIRST_FILE_KEY, file_no)


def lost_files(known: object, numbers: list[int]) -> str:
    """The files missing in front of the first of these that were not purged, in words; empty if none is missing.

    Args:
        known: the note; a store that began anew may have fewer files than it says.
    """
    if not isinstance(known, int) or not numbers or known >= numbers[0]:
        return ""
    if known == numbers[0] - 1:
        return f"{file_name(known)} is missing, and was not purged"
    return f"{file_name(known)} to {file_name(numbers[0] - 1)} are missing, and were not purged"


def lost_files_of(disk: ReadableDisk, numbers: list[int]) -> str:
    """`lost_files` of a store of another process. Empty if nothing is known. Raises nothing."""
    try:
        return lost_files(read_facts(disk).get(FIRST_FILE_KEY), numbers)
    except StorageError:
        return ""
