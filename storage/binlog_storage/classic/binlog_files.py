"""The files of a store and their index: what a new file begins with, how it gets its name, how files go.

A file that is made or deleted is named by `~rec~` first; the index decides. The steps, and what a crash leaves at each,
stand at the head of `store.py`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.directory import BinlogDirectory
from binlog_storage.classic.encryption import EventCipher, Keys, of_file
from binlog_storage.classic.file_indexes import FileIndexes
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.writing import FLAG_AT, file_head, rotate_event, stop_event
from binlog_storage.disk.disk import Disk, File
from binlog_storage.engine.soundness import Soundness
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    FileMissing,
    OtherFileSystem,
    TooManyOpenFiles,
)


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


class NewFile(NamedTuple):
    """How the next file gets its name: `make` gives it, and the end of what is in it; `unmake` undoes that.

    decide: called right before the index names it; behind that nothing is undone.
    """

    make: Callable[[], tuple[File, int]]
    unmake: Callable[[File], None]
    decide: Callable[[], None] | None = None


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

    def head(self, number: int, state: BinlogState, description: FormatDescription) -> bytes:
        algorithm = self.options.binlog_checksum
        checkpoint = self.directory.name(self.checkpoint or number)
        sealing, start = self.sealing, b""
        if sealing is not None:
            start = sealing.start_event(description.server_id, description.timestamp)
        head = file_head(description, state.entries(), checkpoint, algorithm, start)
        return head if sealing is None else sealing.sealed_head(head)

    def empty_file(
        self, number: int, state: BinlogState, description: FormatDescription
    ) -> NewFile:
        name = self.directory.name(number)

        def unmake(file: File) -> None:
            file.close()
            self.disk.unlink(name)

        return NewFile(lambda: self.new_file(name, number, state, description), unmake)

    def new_file(
        self, name: str, number: int, state: BinlogState, description: FormatDescription
    ) -> tuple[File, int]:
        """A file with its head, synced. Returns the end of the head."""
        head = self.head(number, state, description)
        file = self.disk.open(name, create=True)
        try:
            file.pwrite(head, 0)
            file.fdatasync()
        except BaseException:
            file.close()
            with contextlib.suppress(DiskError):
                self.disk.unlink(name)
            raise
        return file, len(head)

    def named_file(
        self, number: int, new: NewFile, old: CurrentFile | None = None
    ) -> tuple[File, int]:
        """A new file, durable, and named by the index; it is noted still. Returns the end of what is in it.

        `old`: the file before, which gets its ROTATE event in front of the index: a torn one is cut off at a start, if
        its file is still the last.
        """
        directory, is_decided = self.directory, False

        def decide() -> None:
            nonlocal is_decided
            if new.decide is not None:
                new.decide()
                is_decided = True

        with self.indexing:
            try:
                directory.note([number])
                self.indexes.clear(number)
                file, end = new.make()
                try:
                    self.disk.fsync_dir()
                    if old is not None:
                        self.write_last(old, number)
                    directory.write_index([*self.index, number], decide)
                except BaseException as error:
                    if (
                        is_decided
                    ):  # it cannot be taken back: the next start finds what the index says
                        raise DiskError(str(error)) from error
                    with self._soundness.failing():
                        new.unmake(file)
                        if old is not None:
                            old.file.truncate(old.end)
                    raise
            except (DiskFull, TooManyOpenFiles, OtherFileSystem):
                with contextlib.suppress(DiskError):
                    directory.end_note()
                raise
            self.index.append(number)
        return file, end

    def write_last(self, old: CurrentFile, following: int | None) -> None:
        """Write the last event of a file, durably."""
        server_id, now, algorithm = self.options.server_id, self.now(), old.checksum_algorithm
        if following is None:
            last = stop_event(old.end, algorithm, server_id, now)
        else:
            name = self.directory.name(following)
            last = rotate_event(name, old.end, algorithm, server_id, now)
        old.file.pwrite(old.sealed(last, old.end), old.end)
        old.file.fdatasync()

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
                directory.write_index(self.index)
            for number in numbers:
                directory.remove(number)
            with contextlib.suppress(FileMissing):
                directory.end_note()

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
