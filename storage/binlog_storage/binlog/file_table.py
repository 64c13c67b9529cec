"""The .ibb files of a directory: opened when needed, shared by readers and writer, made ahead, removed.

However many files there are, few are open: beyond `OPEN_FILES_MAX` the least recently used are closed. A file in use
stays open, even if it is removed meanwhile: a descriptor that is closed too early may belong to another file by the
time it is used. A file with unsynced data stays open, too: if the kernel fails to write them back it reports that to
this descriptor, perhaps not to one that is opened later.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.disk.disk import OPEN_FILES_MAX, Disk, File
from binlog_storage.errors import DiskError, DiskFull, FileMissing, PositionPurged, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name, file_numbers

ROOM_FIRST: Final = 32 << 20
"""Bytes for which a new store has room on the disk in each of its first two files, whatever their length. The first
gets as much again whenever it is full, so that a store that is never filled takes no gigabytes. Files behind these two
are made with room for all of their length, one ahead, as MariaDB makes every file."""
_WHOLE_FROM: Final = 2

T = TypeVar("T")


@dataclass(slots=True)
class _Handle:
    file: File
    users: int = 0
    unsynced: bool = False
    gone: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether it may be closed."""
        return not self.users and not self.unsynced


def lengthen(file: File, file_no: int, size: int) -> int:
    """Extend a file with zeros to `size` bytes. Returns for how many the disk has room: see `ROOM_FIRST`."""
    room = size if file_no >= _WHOLE_FROM else min(size, ROOM_FIRST)
    if room < size:
        file.truncate(size)
    file.allocate(room)
    return room


class FileTable:
    """All files of one directory. May be used from several threads; each file is written by one at a time."""

    def __init__(self, disk: Disk, full: FullDisk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self._making = threading.Lock()  # keeper and flusher may be making the same file
        self._full = full
        self._handles: OrderedDict[int, _Handle] = OrderedDict()  # the least recently used first
        self._made_ahead: dict[int, int] = {}  # file_no -> bytes, all zeros
        self._room: dict[int, int] = {}  # file_no -> bytes for which it has room, of the newest
        self._purged_below = 0

    @contextlib.contextmanager
    def use(self, file_no: int) -> Iterator[File | None]:
        """The file, for as long as the block lasts; None if there is none. Raises `PositionPurged`, `DiskError`."""
        handle = self._enter(file_no)
        if handle is None:
            yield None
            return
        try:
            yield handle.file
        finally:
            with self._lock:
                handle.users -= 1
                self._close_if_done(handle)
                self._close_idle(OPEN_FILES_MAX)

    def note_unsynced(self, file_no: int, *, unsynced: bool) -> None:
        """Note whether the file has data that are not synced. To be called within `use`."""
        with self._lock:
            handle = self._handles.get(file_no)
            if handle is not None:
                handle.unsynced = unsynced

    def _enter(self, file_no: int) -> _Handle | None:
        with self._lock:
            self._require_kept(file_no)
            handle = self._handles.get(file_no)
            if handle is None:
                try:
                    handle = self._handles[file_no] = _Handle(self._open(file_name(file_no)))
                except FileMissing:
                    return None
            else:
                self._handles.move_to_end(file_no)
            handle.users += 1
            return handle

    def _open(self, name: str) -> File:
        self._close_idle(OPEN_FILES_MAX - 1)
        return self._with_descriptor(lambda: self._disk.open(name))

    def _with_descriptor(self, what: Callable[[], T]) -> T:
        """Call a function that needs a descriptor. If the process has none left, close idle files and try again."""
        try:
            return what()
        except TooManyOpenFiles:
            with self._lock:
                self._close_idle(0)
            return what()

    def _close_idle(self, most: int) -> None:
        """Close idle files until `most` are open, or none is idle. Under the lock."""
        surplus = len(self._handles) - most
        if surplus > 0:
            idle = [number for number, handle in self._handles.items() if handle.is_idle]
            for number in idle[:surplus]:
                self._handles.pop(number).file.close()

    @staticmethod
    def _close_if_done(handle: _Handle) -> None:
        if handle.gone and not handle.users:
            handle.file.close()

    def _require_kept(self, file_no: int) -> None:
        if 0 <= file_no < self._purged_below:
            raise PositionPurged(f"{file_name(file_no)} was purged")

    def numbers(self) -> list[int]:
        """Numbers of the files there are, ascending, those made ahead included; not of one that is being deleted."""
        numbers = file_numbers(self._with_descriptor(self._disk.names))
        return [number for number in numbers if number >= self._purged_below]

    def size(self, file_no: int) -> int | None:
        """Physical size in bytes; None if there is no such file."""
        with self._lock:
            self._require_kept(file_no)
        return self._size(file_no)

    def _size(self, file_no: int) -> int | None:
        try:
            return self._disk.size(file_name(file_no))
        except FileMissing:
            return None

    def modified(self, file_no: int) -> float:
        """Time of the last write, seconds since 1970."""
        return self._disk.modified(file_name(file_no))

    def note_purged(self) -> None:
        """Take all files in front of the first existing one as purged."""
        with self._lock:
            self._purged_below = next(iter(self.numbers()), 0)

    # --- making files ---

    def make_ahead(self, file_no: int, size: int) -> None:
        """Make a file of `size` zero bytes now, for `make` to take later. An existing file is left as it is: the
        flusher may have made it first.

        Raises `DiskError`, or `NoRoom`, which is logged already; nothing of the file is left then.
        """
        with self._making:
            if self._size(file_no) is not None:
                return
            try:
                self._allocate(file_no, size)
            except DiskFull as error:
                raise self._full.say(error) from error
            self._made_ahead[file_no] = size

    def make(self, file_no: int, size: int) -> None:
        """Take the file that was made ahead, or make it, before it is written. File and name are durable then.

        Raises `NoRoom`, after which it can be tried again; `DiskError`.
        """
        with self._making:
            made = self._made_ahead.pop(file_no, None)
            if made != size or self._size(file_no) is None:
                self._full.require_time()
                tries = self._full.tries
                try:
                    self._allocate(file_no, size)
                except DiskFull as error:
                    raise self._full.met(error, tries) from error
            self._full.passed()

    def _allocate(self, file_no: int, size: int) -> None:
        name = file_name(file_no)
        self.forget(file_no)
        if (
            self._size(file_no) is not None
        ):  # left by a crash; recovery saw to it that it holds nothing
            self._disk.unlink(name)
        file = self._with_descriptor(lambda: self._disk.open(name, create=True))
        try:
            room = lengthen(file, file_no, size)
            file.fdatasync()
        except DiskError as error:
            with contextlib.suppress(DiskError):
                self._disk.unlink(name)  # the next start must not find half a file
            if isinstance(error, DiskFull):
                raise DiskFull(f'Unable to allocate file {name}: "{error}"') from error
            raise
        finally:
            file.close()
        self._with_descriptor(self._disk.fsync_dir)
        self._note_room(file_no, room)

    def _note_room(self, file_no: int, room: int) -> None:
        with self._lock:
            newest = {
                number: there for number, there in self._room.items() if number >= file_no - 1
            }
            self._room = {**newest, file_no: room}

    def reserve(self, file_no: int, begin: int, end: int) -> None:
        """Have room on the disk for the bytes from `begin` to `end` of a file, and for some behind, before they are
        written: a write into a hole could meet a full disk when part of it is done.

        Raises `NoRoom`, after which it can be tried again; `DiskError`.
        """
        # One that was made before this start, or by a copy, may have holes anywhere behind that place.
        there = self._room.get(file_no, begin)
        if end <= there:
            return
        size = self.size(file_no) or 0
        room = min(size, max(end, there + max(there, ROOM_FIRST)))
        if room > there:
            self._full.require_time()
            tries = self._full.tries
            try:
                with self.use(file_no) as file:
                    if file is not None:
                        file.allocate(room, there)
            except DiskFull as error:
                text = f'Unable to allocate file {file_name(file_no)}: "{error}"'
                raise self._full.met(DiskFull(text), tries) from error
            self._full.passed()
        self._note_room(file_no, room)

    # --- ending files ---

    def going(self, file_no: int) -> None:
        """The lowest file is about to be deleted by `remove`: readers get `PositionPurged` from now on."""
        with self._lock:
            self._purged_below = file_no + 1

    def remove(self, file_no: int) -> None:
        """Delete the lowest file, durably; readers that come to it get `PositionPurged` from now on.

        If it cannot be deleted, it is not `going` any more: all is as before.
        """
        self.going(file_no)
        try:
            self.forget(file_no)
            self._disk.unlink(file_name(file_no))
        except FileMissing:
            return
        except BaseException:
            self.stays(file_no)
            raise
        # Synced for each file: a power cut must not leave a gap between files, which would be taken for damage.
        self._with_descriptor(self._disk.fsync_dir)

    def stays(self, file_no: int) -> None:
        """A file that was `going` is not deleted: readers find it again, and the next purge begins with it.

        If a purge passed over it, the next start would see a hole among the files.
        """
        try:
            is_there = self._size(file_no) is not None
        except DiskError:  # unknown: it may still be there
            is_there = True
        if is_there:
            with self._lock:
                self._purged_below = min(self._purged_below, file_no)

    def forget(self, file_no: int) -> None:
        """Close a file; its next use opens it anew."""
        with self._lock:
            handle = self._handles.pop(file_no, None)
            if handle is not None:
                handle.gone = True
                self._close_if_done(handle)

    def restart(self) -> None:
        """RESET MASTER has removed all files, and numbers begin anew: forget all that is known of files."""
        for file_no in list(self._handles):
            self.forget(file_no)
        with self._lock:
            self._purged_below = 0
            self._room = {}
        with self._making:
            self._made_ahead.clear()
        self._full.passed()

    def close(self) -> None:
        """Close all files."""
        for file_no in list(self._handles):
            self.forget(file_no)
