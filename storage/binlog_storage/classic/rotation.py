"""A new file: behind one that is long enough, at a start marker, at FLUSH, of a large group; and a sync, behind which
one begins.

The steps, and what a crash leaves at each, stand at the head of `store.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Final

from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import BinlogState

from binlog_storage.binlog.worker import Worker
from binlog_storage.classic.binlog_files import NewFiles, clear_flag
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.writing import FILE_START, description_laid_out
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.disk.disk import File
from binlog_storage.engine import Position, StartPoint
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    DomainInUse,
    OtherFileSystem,
    TooManyOpenFiles,
    WaitGivenUp,
)

log = logging.getLogger(__name__)


NEAR: Final = 7 / 8  # of max_binlog_size: what the next file needs is done ahead from there on


class Rotation:
    """Of one store; each method from any thread.

    Args:
        turns: entered while others cannot append.
        caretaker: gives the worker that calls `step`.
    """

    def __init__(
        self,
        binlog: WrittenLog,
        patience: Patience,
        turns: AbstractContextManager[None],
        caretaker: Callable[[], Worker],
    ) -> None:
        self._log = binlog
        self._files = binlog.files
        self._patience = patience
        self._turns = turns
        self._caretaker = caretaker
        self._is_prepared = False

    def begin_file(self, state: BinlogState, before: tuple[int, ...]) -> None:
        """Make the next file, with nothing to close."""
        new = self._files.empty_file(state, self._files.description())
        (made,) = self._files.named_files(new)
        self._files.directory.end_note()
        (number,) = new.numbers
        self._log.enter(number, made, (*before, number))

    def next_file(self, state: BinlogState, new: NewFiles | None = None) -> None:
        """Go on in a new file, everything before it durable. Inside of `WrittenLog.still`.

        state: in front of the new file; that of the binlog from now on.
        new: more than an empty file. Raises `DiskFull`, `TooManyOpenFiles`, `OtherFileSystem`: nothing was done.
        """
        binlog, files = self._log, self._files
        binlog.soundness.require_sound()
        with binlog.writing:
            binlog.write_out(sync_rows=True)
        old = binlog.current
        # A start marker is written into an empty file by its own: until then readers find nothing in it.
        new = new or files.empty_file(state, files.description())

        def end_old(following: int, beside: AbstractContextManager[None]) -> None:
            binlog.write_last(files.last_event(old, following))
            with beside:
                binlog.sync_once(ended=True)
            with binlog.lock:
                binlog.all_settled()

        with contextlib.ExitStack() as held:
            try:
                made = files.named_files(self._locked_from_its_decision(new, held), old, end_old)
            except (DiskFull, TooManyOpenFiles, OtherFileSystem):
                raise
            except DiskError as error:
                binlog.soundness.fail(error)
                raise
            held.enter_context(binlog.lock)
            binlog.state = state
            closed = [old.file]
            for number, one in zip(new.numbers, made, strict=True):
                if one is not made[0]:
                    closed.append(binlog.current.file)
                with binlog.extending:
                    numbers = (*binlog.extent.numbers, number)
                    binlog.enter(number, one, numbers)
                if one is made[0]:
                    new.entered()
        self._is_prepared = False
        self._close(closed)
        self._caretaker().poke()

    def _locked_from_its_decision(self, new: NewFiles, held: contextlib.ExitStack) -> NewFiles:
        """What decides is in the redo log. What comes behind it there must not be told to be durable before the index
        is: so the append lock is held from then on.
        """
        decide = new.decide
        if decide is None:
            return new

        def decided() -> None:
            held.enter_context(self._log.lock)
            decide()

        return dataclasses.replace(new, decide=decided)

    def _close(self, files: list[File]) -> None:
        """Files that others have followed."""
        try:
            for file in files:
                with contextlib.closing(file):
                    clear_flag(file)
            with self._files.indexing:
                self._files.directory.end_note()
        except DiskError as error:  # it looks as behind a crash, and nothing of it is lost
            log.warning("%s", error)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """As `WrittenLog.still`; who commits on a loop waits elsewhere."""
        with self._turns, self._log.still():
            yield

    def step(self) -> None:
        """Begin a new file if that is due, or do ahead what it needs. In the caretaker's thread."""
        self.rotate_if_due()
        is_near = self._log.current.end >= self._files.options.max_binlog_size * NEAR
        if is_near and not self._is_prepared and not self._log.soundness.failed:
            self._is_prepared = True
            try:
                self._files.prepare()
            except DiskError as error:
                log.warning("%s", error)

    def care(self) -> None:
        """Let the caretaker prepare a rotation that is near, or make one that is due. Never waits."""
        binlog = self._log
        near = binlog.current.end >= self._files.options.max_binlog_size * NEAR
        if binlog.rotation_due or (near and not self._is_prepared):
            self._caretaker().poke()

    def rotate_before_append(self) -> None:
        """The same in front of a group; the thread that must not wait leaves it to the caretaker."""
        if self._log.rotation_due and (self._patience.waits_long or not self._caretaker().running):
            self.rotate_if_due()
        else:
            self.care()

    def rotate_if_due(self) -> None:
        """Begin a new file behind one that is long enough: behind a sync, or in front of the next group. Without locks.

        While that cannot be, the binlog goes on in the file that it has.
        """
        binlog, patience = self._log, self._patience
        is_full = patience.full.error is not None and patience.full.retry_s
        if not binlog.rotation_due or binlog.copying or is_full:
            return
        tries = patience.full.tries
        try:
            self._files.prepare()
            with self.still():
                if binlog.rotation_due and not binlog.soundness.failed:
                    self.next_file(binlog.state)
            binlog.soundness.wake()
        except DiskFull as error:
            patience.note_full(error, tries)
        except DiskError as error:
            log.warning("%s: the binlog goes on beyond max_binlog_size", error)
        except WaitGivenUp:  # the next sync tries again
            pass

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        """All that was appended is durable; waits for room. `durable`: see `EngineWriter.sync`."""
        log, patience = self._log, self._patience
        if patience.full.error is not None or patience.is_late:
            moved = patience.until_done(self._synced)
        else:  # nearly always: two calls less
            try:
                with log.syncing:
                    moved = log.sync_once(durable)
            except DiskFull:
                moved = patience.until_done(self._synced)
        if moved:
            log.soundness.wake()
        if log.rotation_due or log.current.end >= self._files.options.max_binlog_size * NEAR:
            self.rotate_if_due()
            self.care()

    def _synced(self) -> bool:
        with self._log.syncing:
            return self._log.sync_once()

    def append_marker(self, payload: bytes, age: int | None) -> Position:
        """The format description of a file without groups: of a new one, if the last has some."""
        description = FormatDescription.parse(payload)
        if not description.created:
            raise ValueError("a start marker has a time of creation")

        def marked() -> Position:
            with self.still():
                self._log.require_open(age)
                if not self._log.current.is_empty:
                    self.next_file(self._log.state)
                current = self._log.current
                event = description_laid_out(description, current.checksum_algorithm)
                self._log.write(current.file, event, FILE_START)
                with self._log.soundness.failing():
                    current.file.fdatasync()  # in front of all that follows
                self._log.reader.forget_head(current.number)
                with self._log.lock:
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
            with self._log.syncing:
                self._log.sync_once()  # what fails here ends the store, and no file is begun for it
            self._files.prepare()
            with self.still():
                self._log.soundness.require_sound()
                self._require_unused(domains, first_start)
                kept = [gtid for gtid in self._log.state.entries() if gtid.domain_id not in domains]
                self.next_file(BinlogState(kept))

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
