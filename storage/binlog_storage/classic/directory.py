"""The names of traditional binlog files, `BASE.000001` ..., and the files beside them.

    BASE.index    the files that there are, oldest first, one a line. Replaced as a whole.
    BASE.~rec~    names of files that are being made or deleted. At a start those that the index does not name go.
    BASE.state    the GTID state, a GTID a line: of a MariaDB that was stopped, until the next start. Not written here:
                  without it a server reads its last file, and nothing can be believed that is wrong.
    BASE.reset    the first file behind a RESET MASTER, whole, until the old ones are deleted.

MariaDB takes the number behind the highest that any file of that base has, whether the index names it or not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.classic.encryption import Keys, opened_to_read
from binlog_storage.classic.event_reader import Bytes
from binlog_storage.disk.disk import Disk, made_ahead, put_in_place, replaced
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import DiskError, FileMissing, NotAStore

log = logging.getLogger(__name__)

LOCK_NAME: Final = "binlog-server.lock"
NUMBER_MAX: Final = 2147483647
_INDEX_BYTES_MAX: Final = 64 << 20
_INDEX: Final = ".index"
_OF_A_BINLOG: Final = compiled_later(
    r"\.(index|~rec~|state|reset)(\.new)?|\.[0-9]{6,10}(\.idx(\.new)?|\.broken(\.[0-9]+)?)?"
)


def bases(names: Iterable[str]) -> list[str]:
    """The base names of the binlogs whose index is among these names."""
    return sorted(name.removesuffix(_INDEX) for name in names if name.endswith(_INDEX))


def belongs(name: str, base: str) -> bool:
    """Whether a file of this name may be one of the binlog with that base name."""
    return name.startswith(base) and _OF_A_BINLOG.fullmatch(name, len(base)) is not None


def read_small(disk: ReadableDisk, name: str) -> bytes:
    """All of a file that is not large. Raises `DiskError`, `NotAStore`."""
    with contextlib.closing(disk.open(name)) as file:
        size = file.size()
        if size > _INDEX_BYTES_MAX:
            raise NotAStore(f"{name} has {size} bytes: it is no list of binlog files")
        return file.pread(size, 0)


class BinlogNames:
    """The names of the files of one binlog."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._numbered = re.compile(re.escape(base) + r"\.([0-9]{1,10})")

    def name(self, number: int) -> str:
        """The name of a file: at least six digits."""
        return f"{self.base}.{number:06d}"

    def number(self, name: str) -> int | None:
        """The number of a file of this binlog; None for any other name."""
        match = self._numbered.fullmatch(name)
        return int(match[1]) if match else None


def read_index(disk: ReadableDisk, base: str) -> list[int]:
    """The files that an index names, in its order. Raises `DiskError`, `NotAStore` for one that cannot be ours."""
    names, index_name = BinlogNames(base), f"{base}{_INDEX}"
    found: list[int] = []
    for line in read_small(disk, index_name).split(b"\n"):
        text = os.fsdecode(line)
        if not text:
            break  # as MariaDB: behind the first empty line nothing is read
        # A line that had lost its end, as MariaDB makes of one without a newline, names two files.
        number = names.number(text.rpartition("/")[2]) if text.count("./") < 2 else None
        if number is None or (found and number <= found[-1]):
            raise NotAStore(
                f"{index_name} has {text!r}, which is no binlog file of {base!r} behind the one before: "
                "the index was left as it is"
            )
        found.append(number)
    return found


class BinlogDirectory(BinlogNames):
    """The directory of one binlog; its owner holds a lock."""

    def __init__(self, disk: Disk, base: str) -> None:
        super().__init__(base)
        self.disk = disk
        self.keys: Keys | None = None
        """For files that are encrypted."""
        self.index_name = f"{base}{_INDEX}"
        self.rec_name = f"{base}.~rec~"
        self.state_name = f"{base}.state"
        self.reset_name = f"{base}.reset"
        self._noted: list[int] | None = None  # in `rec_name`, durably
        self._next_index: list[int] | None = None  # written ahead, durably

    def next_number(self, names: Iterable[str]) -> int:
        """The number for a new file, with these names in the directory."""
        highest = max((n for name in names if (n := self.number(name)) is not None), default=0)
        if highest >= NUMBER_MAX:
            raise DiskError(
                f"Can't generate a unique log-filename {self.base}.(1-{NUMBER_MAX}): RESET MASTER begins anew"
            )
        return highest + 1

    def to_read(self, number: int) -> Bytes:
        """A file, with its events in clear. Raises `FileMissing`, `NoBinlogKey`."""
        name = self.name(number)
        return opened_to_read(self.keys, Path(name), self.disk.open(name))

    # --- the index ---

    def read_index(self) -> list[int]:
        """See `read_index`."""
        return read_index(self.disk, self.base)

    def write_index(
        self, numbers: Sequence[int], decide: Callable[[], None] = lambda: None
    ) -> None:
        """Replace the index: durable when it returns.

        `decide` is called when the next one is written, right before it takes the place.
        """
        self.prepare_index(numbers)
        decide()
        self._next_index = None
        put_in_place(self.disk, self.index_name)

    def prepare_index(self, numbers: Sequence[int]) -> None:
        """Write the next index ahead, durably, under another name. What is written already costs nothing."""
        if self._next_index == list(numbers):
            return
        self._next_index = None
        with made_ahead(self.disk, self.index_name) as file:
            file.pwrite(self.index_of(numbers), 0)
        self._next_index = list(numbers)

    # --- files that are being made or deleted ---

    def note(self, numbers: Sequence[int]) -> None:
        """Note durably that these files are made or deleted: whichever the index does not name goes at a start.

        What is noted already costs nothing.
        """
        if self._noted == list(numbers):
            return
        self._noted = None
        with replaced(self.disk, self.rec_name) as file:
            file.pwrite(self.index_of(numbers), 0)
        self._noted = list(numbers)

    def end_note(self) -> None:
        """The files are made or deleted. One that is ended already is no error."""
        self._noted = None
        with contextlib.suppress(FileMissing):
            self.disk.unlink(self.rec_name)

    def forget_next(self) -> None:
        """Remove what was noted and written ahead for files that have not been made."""
        if self._noted is not None:
            self.end_note()
        if self._next_index is not None:
            self._next_index = None
            self.disk.unlink(f"{self.index_name}.new")

    def index_of(self, numbers: Sequence[int]) -> bytes:
        """An index that names these files."""
        return "".join(f"./{self.name(number)}\n" for number in numbers).encode()

    def work_off_note(self, kept: Sequence[int]) -> None:
        """Delete the noted files, but for those `kept`: at a start."""
        names = set(self.disk.names())
        if self.rec_name not in names:
            return
        for line in read_small(self.disk, self.rec_name).split(b"\n"):
            name = os.fsdecode(line).rpartition("/")[2]
            number = self.number(name)
            if number is None or number in kept:
                continue
            for gone in (f"{name}.idx", name):
                if gone in names:
                    self.disk.unlink(gone)
                    log.info("deleted %s, which was being made or deleted at the last stop", gone)
        self.end_note()

    def remove(self, number: int) -> None:
        """Delete a file, and a GTID index beside it. One that is gone already is no error."""
        names = set(self.disk.names())
        for gone in (f"{self.name(number)}.idx", self.name(number)):
            if gone in names:
                self.disk.unlink(gone)
