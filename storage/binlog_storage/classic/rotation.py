"""A new file: behind one that is long enough, at a start marker, at FLUSH, of a large group; and a sync, behind which
one begins.

The steps, and what a crash leaves at each, stand at the head of `store.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection

from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.binlog_files import NewFile, clear_flag
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.writing import FILE_START, description_laid_out
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.engine import Position, StartPoint
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    DomainInUse,
    OtherFileSystem,
    TooManyOpenFiles,
)

log = logging.getLogger(__name__)


class Rotation:
    """Of one store; each method from any thread.

    Args:
        begun: called behind each new file, under its locks.
    """

    def __init__(self, binlog: WrittenLog, patience: Patience, begun: Callable[[], None]) -> None:
        self._log = binlog
        self._files = binlog.files
        self._patience = patience
        self._begun = begun

    def begin_file(self, state: BinlogState, before: tuple[int, ...]) -> None:
        """Make the next file, with nothing to close."""
        number = self._files.directory.next_number(self._files.disk.names())
        file, end = self._files.named_file(
            number, self._files.empty_file(number, state, self._files.description())
        )
        self._files.directory.end_note()
        self._log.enter(number, file, end, (*before, number))

    def next_file(
        self,
        state: BinlogState,
        description: FormatDescription,
        new: NewFile | None = None,
        logical_end: int = FILE_START,
    ) -> None:
        """Go on in a new file, everything before it durable. Under the locks of syncs, writes, appends.

        new: that file, with a group in it up to `logical_end`; by default an empty one. Raises `DiskFull`,
        `TooManyOpenFiles`, `OtherFileSystem`: nothing was done.
        """
        self._log.soundness.require_sound()
        self._log.sync_once()
        self._log.all_settled()
        old = self._log.current
        number = self._files.directory.next_number(self._files.disk.names())
        try:
            # A start marker is written into it by its own: until then readers find nothing in it.
            plain = dataclasses.replace(description, created=0)
            made = self._files.empty_file(number, state, plain) if new is None else new
            file, end = self._files.named_file(number, made, old)
        except (DiskFull, TooManyOpenFiles, OtherFileSystem):
            raise
        except DiskError as error:
            self._log.soundness.fail(error)
            raise
        with self._log.extending:
            self._log.enter(number, file, end, (*self._log.extent.numbers, number), logical_end)
        try:
            with contextlib.closing(old.file):
                clear_flag(old.file)
            with self._files.indexing:
                self._files.directory.end_note()
        except DiskError as error:  # it looks as behind a crash, and nothing of it is lost
            log.warning("%s", error)
        self._begun()

    def rotate_if_due(self) -> None:
        """Begin a new file behind one that is long enough: behind a sync, or in front of the next group. Without locks.

        While that cannot be, the binlog goes on in the file that it has.
        """
        if not self._log.rotation_due or (
            self._patience.full.error is not None and self._patience.full.retry_s
        ):
            return
        tries = self._patience.full.tries
        try:
            with self._log.syncing, self._log.writing, self._log.lock:
                if (
                    self._log.rotation_due
                    and not self._log.soundness.failed
                    and not self._log.copying
                ):
                    self.next_file(self._log.state, self._files.description())
            self._log.soundness.wake()
        except DiskFull as error:
            self._patience.note_full(error, tries)
        except DiskError as error:
            log.warning("%s: the binlog goes on beyond max_binlog_size", error)

    def sync(self) -> None:
        """All that was appended is durable; waits for room."""

        def synced() -> bool:
            with self._log.syncing:
                return self._log.sync_once()

        if self._patience.until_done(synced):
            self._log.soundness.wake()
        self.rotate_if_due()

    def append_marker(self, payload: bytes, age: int | None) -> Position:
        """The format description of a file without groups: of a new one, if the last has some."""
        description = FormatDescription.parse(payload)
        if not description.created:
            raise ValueError("a start marker has a time of creation")

        def marked() -> Position:
            with self._log.alone():
                self._log.admit(age)
                if not self._log.current.is_empty:
                    self.next_file(self._log.state, description)
                current = self._log.current
                event = description_laid_out(description, current.checksum_algorithm)
                self._log.write(current.file, event, FILE_START)
                with self._log.soundness.failing():
                    current.file.fdatasync()  # in front of all that follows
                self._log.reader.forget_head(current.number)
                current.is_empty = False
                current.logical_end = FILE_START + len(event)
                self._log.last_marker = payload
                return self._log.written_end

        end = self._patience.until_done(marked)
        self._log.soundness.wake()
        return end

    def flush(
        self,
        domains: Collection[int],
        first_start: Callable[[], StartPoint],
        given_up: Callable[[], bool],
    ) -> None:
        """See `EngineAdmin`: a new file whose list has none of these domains.

        first_start: gives the place in front of all groups.
        """

        def flushed() -> None:
            with self._log.alone():
                self._log.soundness.require_sound()
                self._require_unused(domains, first_start)
                kept = [gtid for gtid in self._log.state.entries() if gtid.domain_id not in domains]
                state = BinlogState(kept)
                self.next_file(state, self._files.description())
                self._log.state = state

        self._patience.until_done(flushed, given_up)
        self._log.soundness.wake()

    def _require_unused(
        self, domains: Collection[int], first_start: Callable[[], StartPoint]
    ) -> None:
        """Raises `DomainInUse` if a file has groups of these domains: the first file begins with another state."""
        known = [domain for domain in sorted(domains) if self._log.state.last(domain) is not None]
        if not known:
            return
        then = first_start().state
        for domain in known:
            if then.of_domain(domain) != self._log.state.of_domain(domain):
                raise DomainInUse(domain)
