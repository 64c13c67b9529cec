"""The .ibb files of a directory: opened when needed, shared by readers and writer, made ahead, removed.

However many files there are, few are open: beyond `OPEN_FILES_MAX` those are closed that nobody has used for longest.
Whoever uses a file keeps it open, even if it is removed meanwhile: a descriptor closed too early may be another file's
by the time it is used. A file with data that were written and not synced stays open, too: if the kernel then fails to
write them back, the descriptor is what it tells, and a later one may not hear of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.disk.disk import OPEN_FILES_MAX, Disk, File
from binlog_storage.errors import DiskError, DiskFull, FileMissing, PositionPurged, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name, file_numbers

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


class FileTable:
    """All files of one directory. May be used from several threads; each file is written by one at a time."""

    def __init__(self, disk: Disk, full: FullDisk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self._making = (
            threading.Lock()
        )  # the caretaker and the writer may come to make the same file
        self._full = full
        self._handles: OrderedDict[int, _Handle] = OrderedDict()  # the least recently used first
        self._made_ahead: dict[int, int] = {}  # file_no -> bytes, all zeros
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
        """Within `use`: whether the file has data from now on that are not synced."""
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
        """If others have taken all there are, those that we can do without may be enough."""
        try:
            return what()
        except TooManyOpenFiles:
            with self._lock:
                self._close_idle(0)
            return what()

    def _close_idle(self, most: int) -> None:
        """Under the lock: as far as can be, until so many are open."""
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
        """Files in front of the first one there is were purged, as far as anybody can tell."""
        with self._lock:
            self._purged_below = next(iter(self.numbers()), 0)

    # --- making files ---

    def make_ahead(self, file_no: int, size: int) -> None:
        """Make the file now, `size` bytes of zeros, for `make` to take. Raises `DiskError`, and leaves nothing then:
        `NoRoom`, which is said already.

        If it is there, it is left as it is: the writer may have come first.
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
        """The file is to be written: take the one made ahead, or make it. Durable, its name too.

        Raises `NoRoom`, and then it can be tried again; `DiskError`.
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
            file.allocate(size)
            file.fdatasync()
        except DiskError as error:
            with contextlib.suppress(DiskError):
                self._disk.unlink(name)  # half a file must not be found by the next start
            if isinstance(error, DiskFull):
                raise DiskFull(f'Unable to allocate file {name}: "{error}"') from error
            raise
        finally:
            file.close()
        self._with_descriptor(self._disk.fsync_dir)

    # --- ending files ---

    def going(self, file_no: int) -> None:
        """The lowest file is about to be deleted, by `remove`: for readers it has gone already."""
        with self._lock:
            self._purged_below = file_no + 1

    def remove(self, file_no: int) -> None:
        """Delete the lowest file; readers that come to it get `PositionPurged` from now on. Durable.

        If it cannot be deleted it is no longer `going`, and all is as it was.
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
        # One by one: a gap between files, left by a power cut, would be taken for damage.
        self._with_descriptor(self._disk.fsync_dir)

    def stays(self, file_no: int) -> None:
        """What was `going` has not been deleted: readers find it, and the next to be deleted is this one again.

        If it were passed over, the later ones would be deleted and the next start would see a hole.
        """
        try:
            is_there = self._size(file_no) is not None
        except DiskError:  # then it is not known to have gone
            is_there = True
        if is_there:
            with self._lock:
                self._purged_below = min(self._purged_below, file_no)

    def forget(self, file_no: int) -> None:
        """The file is closed, and opened anew when it is used next."""
        with self._lock:
            handle = self._handles.pop(file_no, None)
            if handle is not None:
                handle.gone = True
                self._close_if_done(handle)

    def restart(self) -> None:
        """All files were removed, and numbers begin anew."""
        for file_no in list(self._handles):
            self.forget(file_no)
        with self._lock:
            self._purged_below = 0
        with self._making:
            self._made_ahead.clear()
        self._full.passed()

    def close(self) -> None:
        """Close all files."""
        for file_no in list(self._handles):
            self.forget(file_no)
