"""The files of a store and their index: what a new file begins with, how it gets its name, how files go.

A file that is made or deleted is named by `~rec~` first; the index decides. The steps, and what a crash leaves at each,
stand at the head of `store.py`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.directory import BinlogDirectory
from binlog_storage.classic.encryption import EventCipher, Keys, of_file
from binlog_storage.classic.file_indexes import FileIndexes
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.writing import (
    FILE_START,
    FLAG_AT,
    file_head,
    rotate_event,
    stop_event,
)
from binlog_storage.disk.disk import Disk, File
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    OtherFileSystem,
    TooManyOpenFiles,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CurrentFile:
    """The file that is written.

    head_end: the offset behind its head.
    cipher: of its events, if it is encrypted.
    written: up to there it was handed to the operating system; what follows, up to `end`, is in memory.
    logical_end: where readers stop.
    is_empty: neither a group nor a marker is in it.
    """

    number: int
    file: File
    checksum_algorithm: int
    cipher: EventCipher | None
    written: int
    end: int
    logical_end: int
    is_empty: bool

    def sealed(self, data: bytes, begin: int) -> bytes:
        """Events as they lie in the file from an offset on."""
        return data if self.cipher is None else self.cipher.sealed(data, begin)


class MadeFile(NamedTuple):
    """A new file. It ends at `end`; readers stop at `logical_end`: `FILE_START`, if it has only its head.

    checksum_algorithm: that of its head, and so of all its events. The option may be another one by now.
    """

    file: File
    end: int
    logical_end: int
    checksum_algorithm: int


def _nothing() -> None:
    pass


def _no_old(_: int, beside: AbstractContextManager[None]) -> None:
    with beside:
        pass


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files behind the last one: one, or one that is closed already and the next.

    make: gives them their names and all their bytes, not durably. If it raises, nothing was made.
    unmake: undoes that.
    decide: called right before the index names them; behind that nothing is undone.
    entered: called when the first one is the last of the binlog, under the append lock.
    """

    numbers: list[int]
    make: Callable[[], list[MadeFile]]
    unmake: Callable[[list[MadeFile]], None]
    decide: Callable[[], None] | None = None
    entered: Callable[[], None] = _nothing


class BinlogFiles:
    """Of one store.

    Args:
        directory: its `keys` are set before a file is made.
        options: those that hold; they are replaced as a whole.
        clock: gives seconds since 1970.
    """

    def __init__(
        self,
        directory: BinlogDirectory,
        options: ClassicOptions,
        soundness: Soundness,
        clock: Callable[[], float],
    ) -> None:
        self.directory = directory
        self.disk: Disk = directory.disk
        self.options = options
        self._soundness = soundness
        self._clock = clock
        self.indexing = threading.Lock()
        """Held while files get or lose their names."""
        self.index: list[int] = []
        self.names_what_is_gone = False
        """Whether the index on the disk names files that are purged, as there was no room for another."""
        self.when_removed: Callable[[], object] = lambda: None
        """Called when a purge on a full disk has made room, in front of its writes."""
        self.checkpoint: int | None = None
        """The file that heads name, if it is not their own."""
        self.indexes = FileIndexes(
            directory, lambda: self.options, self.indexing, lambda: self.index
        )

    def cipher_of(self, number: int, file: File) -> EventCipher | None:
        return of_file(self.directory.keys, Path(self.directory.name(number)), file)

    @property
    def sealing(self) -> Keys | None:
        """The keys, if what is written is encrypted."""
        return self.directory.keys if self.options.encrypt_binlog else None

    def description(self) -> FormatDescription:
        options = self.options
        return FormatDescription(options.server_version, options.server_id, timestamp=self.now())

    def now(self) -> int:
        return int(self._clock()) & 0xFFFFFFFF

    def head(
        self, number: int, state: BinlogState, description: FormatDescription, algorithm: int
    ) -> bytes:
        """`algorithm`: of the checksums of its events."""
        checkpoint = self.directory.name(self.checkpoint or number)
        sealing, start = self.sealing, b""
        if sealing is not None:
            start = sealing.start_event(description.server_id, description.timestamp)
        head = file_head(description, state.entries(), checkpoint, algorithm, start)
        return head if sealing is None else sealing.sealed_head(head)

    def next_number(self) -> int:
        """That of the next file."""
        return self.directory.next_number(self.disk.names())

    def empty_file(
        self, state: BinlogState, description: FormatDescription, number: int | None = None
    ) -> NewFiles:
        """The next file, or the one of that number, with nothing but its head."""
        number = self.next_number() if number is None else number
        name = self.directory.name(number)

        def make() -> list[MadeFile]:
            return [self.new_file(name, number, state, description)]

        def unmake(made: list[MadeFile]) -> None:
            made[0].file.close()
            self.disk.unlink(name)

        return NewFiles([number], make, unmake)

    def new_file(
        self, name: str, number: int, state: BinlogState, description: FormatDescription
    ) -> MadeFile:
        """A file with its head, not synced."""
        algorithm = self.options.binlog_checksum
        head = self.head(number, state, description, algorithm)
        file = self.disk.open(name, create=True)
        try:
            file.pwrite(head, 0)
            file.start_writing(len(head), 0)
        except BaseException:
            file.close()
            with contextlib.suppress(DiskError):
                self.disk.unlink(name)
            raise
        return MadeFile(file, len(head), FILE_START, algorithm)

    def prepare(self, count: int = 1) -> None:
        """Do ahead what the next files need beside themselves, so that it takes no time under the locks.

        It is done again there if something else has come first.
        """
        with self.indexing:
            first = self.next_number()
            try:
                self._announce([*range(first, first + count)])
            except DiskError:
                with contextlib.suppress(DiskError):
                    self.directory.forget_next()
                raise

    def _announce(self, numbers: list[int]) -> None:
        self.directory.note(numbers)
        self.directory.prepare_index([*self.index, *numbers])

    def named_files(
        self,
        new: NewFiles,
        old: CurrentFile | None = None,
        end_old: Callable[[int, AbstractContextManager[None]], None] = _no_old,
    ) -> list[MadeFile]:
        """New files, durable, and named by the index; they are noted still.

        Their bytes and the end of the file before are written first and synced at the same time: a file system with a
        journal writes that once.

        old: the file before; `end_old` writes its ROTATE event, which names that number, and makes all of it durable,
            inside of what it gets. A torn one is cut off at a start, if its file is still the last.
        """
        directory, is_decided = self.directory, False

        def decide() -> None:
            nonlocal is_decided
            if new.decide is not None:
                new.decide()
                is_decided = True

        with self.indexing:
            try:
                self._announce(new.numbers)
                for number in new.numbers:
                    self.indexes.clear(number)
                made = new.make()
                try:
                    synced = [one.file.fdatasync for one in made]
                    end_old(new.numbers[0], self.disk.beside(*synced, self.disk.fsync_dir))
                    directory.write_index([*self.index, *new.numbers], decide)
                except BaseException as error:
                    if (
                        is_decided
                    ):  # it cannot be taken back: the next start finds what the index says
                        raise DiskError(str(error)) from error
                    with self._soundness.failing():
                        new.unmake(made)
                        if old is not None:
                            old.file.truncate(old.end)
                    raise
            except (DiskFull, TooManyOpenFiles, OtherFileSystem):
                with contextlib.suppress(DiskError):
                    directory.end_note()
                raise
            self.names_what_is_gone = False
            self.index += new.numbers
        return made

    def last_event(self, old: CurrentFile, following: int | None) -> bytes:
        """The last event of a file, as it lies there: ROTATE, or STOP if no other follows."""
        algorithm = old.checksum_algorithm
        if following is None:
            last = stop_event(old.end, algorithm, self.options.server_id, self.now())
        else:
            last = self.rotate_at(old.end, algorithm, following)
        return old.sealed(last, old.end)

    def rotate_at(self, end: int, algorithm: int, following: int) -> bytes:
        """The ROTATE event at that end of a file, in clear."""
        name = self.directory.name(following)
        return rotate_event(name, end, algorithm, self.options.server_id, self.now())

    def delete(self, numbers: list[int]) -> None:
        directory = self.directory
        with self.indexing:
            gone = set(numbers)
            self.index = [n for n in self.index if n > numbers[-1] and n not in gone]
            try:
                directory.note(numbers)
                directory.write_index(self.index)
            except DiskFull:
                # Files that the index names and that are not there are no obstacle; now there is room for it.
                for number in numbers:
                    directory.remove(number)
                self.when_removed()
                self.names_what_is_gone = True
                self._write_index_again()
            else:
                self.names_what_is_gone = False
            for number in numbers:
                directory.remove(number)
            directory.end_note()

    def write_index_again(self) -> None:
        """Write the index for which a purge had no room, if there is some. Raises `DiskError`, but no `DiskFull`."""
        with self.indexing:
            self._write_index_again()

    def _write_index_again(self) -> None:
        if not self.names_what_is_gone:
            return
        try:
            self.directory.write_index(self.index)
        except DiskFull as error:
            log.warning(
                "the index still names files that are purged, until there is room: %s", error
            )
        else:
            self.names_what_is_gone = False

    def size_of(self, number: int) -> int:
        """Of a file that is not written any more; 0 if it is not there."""
        try:
            return self.disk.size(self.directory.name(number))
        except DiskError:
            return 0


def clear_flag(file: File) -> None:
    """Say in a file that it is closed."""
    flag = file.pread(1, FLAG_AT)[0]
    file.pwrite(bytes([flag & ~FLAG_IN_USE & 0xFF]), FLAG_AT)
