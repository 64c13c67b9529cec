"""A disk on which a store can be opened while it is full: what does not fit waits, and is seen as if it were done.

Opening a store writes: pages out of the redo log, the next file, copies of what is cut off, a new redo log. From the
first of these for which there is no room on they all wait, in their order, in memory; whoever reads sees the directory
as it will be. `try_again` does them, in the same order, as far as there is room now. So the disk below is at any time
as an opening that got so far has left it, and a crash meanwhile is a crash during an opening, which the next one mends.

What was not done is not durable: so only an opening may let changes wait (`opened` ends it). After that a change is
refused while others wait, and the owner of the store sees to it that nothing is appended. One thing can still be done:
removing a file that no waiting change touches. That is what makes room.

A sync that meets a full disk is an error like any other, as the kernel may have dropped what it could not write. After
any such error nothing that waits is ever done: the same sync would succeed the next time, without what was dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Final

from binlog_protocol.dataclass import dataclass

from binlog_storage.disk.disk import Disk, File, one_by_one
from binlog_storage.errors import DiskError, DiskFull, FileMissing, TooManyOpenFiles

WAITING_BYTES_MAX: Final = 256 << 20

Deed = Callable[[], object]


@dataclass(eq=False, slots=True)
class FileImage:
    """A file, as all who have it open share it: `file` of the disk below, and what waiting changes make of it.

    plain: the same, once the store is open and nothing waits, nor ever will: it is all that there is to the file.
    shown: bytes of the file below that still show; None while nothing waits, and all of them do.
    size: as readers see it.
    patches: (offset, bytes) on top of that, the later over the earlier.
    """

    name: str
    file: File | None  # None until it is really made
    users: int = 0
    plain: File | None = None
    shown: int | None = None
    size: int = 0
    patches: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def below(self) -> File:
        """The real file. What is done in its turn finds it made."""
        if self.file is None:
            raise DiskError(f"{self.name} is not open")
        return self.file

    def begin(self) -> None:
        """Let all changes from now on wait."""
        if self.shown is None:
            self.shown = self.size = 0 if self.file is None else self.file.size()

    def write(self, data: bytes, offset: int) -> None:
        self.begin()
        self.patches.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        self.begin()
        assert self.shown is not None
        self.shown = min(self.shown, size)
        self.patches = [(at, data[: size - at]) for at, data in self.patches if at < size]
        self.size = size

    def allocate(self, size: int) -> None:
        self.begin()
        self.size = max(self.size, size)

    def read(self, size: int, offset: int) -> bytes:
        assert self.shown is not None
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        image = bytearray(end - offset)
        if offset < self.shown:
            below = self.below.pread(min(end, self.shown) - offset, offset)
            image[: len(below)] = below
        for at, data in self.patches:
            first, last = max(at, offset), min(at + len(data), end)
            if first < last:
                image[first - offset : last - offset] = data[first - at : last - at]
        return bytes(image)

    def next_data(self, offset: int) -> int:
        if self.shown is None:
            return self.below.next_data(offset)
        found = [max(at, offset) for at, data in self.patches if at + len(data) > offset]
        if offset < self.shown and (below := self.below.next_data(offset)) < self.shown:
            found.append(below)
        return min(found, default=max(offset, self.size))


class _PatientFile:
    """See `binlog_storage.disk.disk.File`."""

    def __init__(self, disk: PatientDisk, content: FileImage) -> None:
        self._disk = disk
        self._content = content

    def pread(self, size: int, offset: int) -> bytes:
        content = self._content
        if content.shown is None:
            return content.below.pread(size, offset)
        with self._disk.lock_of_changes:
            if content.shown is None:
                return content.below.pread(size, offset)
            return content.read(size, offset)

    def size(self) -> int:
        content = self._content
        if content.shown is None:
            return content.below.size()
        with self._disk.lock_of_changes:
            return content.below.size() if content.shown is None else content.size

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        content = self._content
        if content.plain is not None:
            self._become(content.plain)
            content.plain.pwrite(data, offset)
            return
        kept = bytes(data)
        self._disk.change(
            lambda: content.below.pwrite(kept, offset),
            lambda: content.write(kept, offset),
            len(kept),
            content,
        )

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        if self._content.plain is not None:
            self._content.plain.pwritev(parts, offset)
        else:
            self.pwrite(b"".join(parts), offset)

    def truncate(self, size: int) -> None:
        content = self._content
        self._disk.change(
            lambda: content.below.truncate(size), lambda: content.truncate(size), 0, content
        )

    def allocate(self, size: int, start: int = 0) -> None:
        content = self._content
        self._disk.change(
            lambda: content.below.allocate(size, start), lambda: content.allocate(size), 0, content
        )

    def next_data(self, offset: int) -> int:
        with self._disk.lock_of_changes:
            return self._content.next_data(offset)

    def start_writing(self, size: int, offset: int) -> None:
        if self._content.plain is not None:
            self._content.plain.start_writing(size, offset)

    def fdatasync(self) -> None:
        content = self._content
        if content.plain is not None:
            self._become(content.plain)
            content.plain.fdatasync()
        else:
            self._disk.sync(lambda: content.below.fdatasync(), content)

    def _become(self, plain: File) -> None:
        # Each commit writes and syncs: the next one calls the file below at once.
        self.__dict__.update(pwrite=plain.pwrite, fdatasync=plain.fdatasync)

    def close(self) -> None:
        for name in ("pwrite", "fdatasync"):
            self.__dict__.pop(name, None)
        content, self._content = self._content, FileImage(self._content.name, None)
        self._disk.let_go(content)


class PatientDisk:
    """See `binlog_storage.disk.disk.Disk`, and the module.

    Args:
        below: the disk that may be full.
        bytes_max: so much may wait in memory; more is `DiskFull` after all.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        below: Disk,
        *,
        bytes_max: int = WAITING_BYTES_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._below = below
        self._began = clock()
        self._bytes_max = bytes_max
        self.lock_of_changes = threading.RLock()
        self._opening = True
        self._waiting: deque[tuple[Deed, FileImage | None]] = deque()
        self._waiting_bytes = 0
        self.full: DiskFull | None = None
        """The error for which changes wait; None if none do."""
        self._failure: DiskError | None = None  # of what waited
        self._contents: dict[str, FileImage] = {}  # of files that are open, by their name now
        self._names: set[str] = set()  # while changes wait

    # --- waiting ---

    @property
    def is_plain(self) -> bool:
        """Whether it is no more than the disk below: the store is open, and nothing waits."""
        return not self._opening and not self._waiting

    def touches(self, name: str) -> bool:
        """Whether a change of that file waits."""
        content = self._contents.get(name)
        return content is not None and content.shown is not None

    def opened(self) -> None:
        """The store is open: from now on a change is done at once, or refused."""
        with self.lock_of_changes:
            self._opening = False
            self._all_plain()

    def _all_plain(self) -> None:
        """Each file that is open is what the disk below has, if that is so by now. Under the lock."""
        if self.is_plain:
            for content in self._contents.values():
                content.plain = content.file

    def try_again(self) -> bool:
        """Do what waits, as far as there is room. Whether all of it is done.

        Raises `TooManyOpenFiles`, and can be called again; any other `DiskError`, and that from then on.
        """
        with self.lock_of_changes:
            self._require_sound()
            while self._waiting:
                deed, content = self._waiting[0]
                try:
                    deed()
                except DiskFull as error:
                    self.full = error
                    return False
                except TooManyOpenFiles:
                    raise
                except DiskError as error:
                    self._failure = error
                    raise
                self._waiting.popleft()
                if content is not None:
                    self.let_go(content)
            for content in self._contents.values():
                content.shown = None
                content.patches.clear()
            self.full = None
            self._waiting_bytes = 0
            self._all_plain()
            return True

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise DiskError(f"what opening had to write has failed before: {self._failure}")

    def change(
        self, deed: Deed, show: Deed, size: int = 0, content: FileImage | None = None
    ) -> None:
        """Do something, or let it wait: then `show` makes it visible. `size`: bytes of memory that it takes."""
        if self.is_plain:
            deed()
            return
        with self.lock_of_changes:
            if not self._waiting:
                try:
                    deed()
                    return
                except DiskFull as error:
                    if not self._opening:
                        raise
                    self.full = error
                    self._names = set(self._below.names())
            self._wait(deed, show, size, content)

    def sync(self, deed: Deed, content: FileImage | None = None) -> None:
        """A sync, which waits for all earlier changes of the file."""

        def strictly() -> None:
            try:
                deed()
            except DiskFull as error:
                raise DiskError(str(error)) from error

        with self.lock_of_changes:
            if self._waiting:
                self._wait(strictly, lambda: None, 0, content)
                return
        strictly()

    def _wait(self, deed: Deed, show: Deed, size: int, content: FileImage | None) -> None:
        self._require_sound()
        assert self.full is not None
        if content is not None and not content.users:
            raise DiskError(f"{content.name} is not open")
        if not self._opening:
            raise DiskFull(f"nothing is written until there is room on the disk: {self.full}")
        if self._waiting_bytes + size > self._bytes_max:
            raise DiskFull(str(self.full))
        self._waiting.append((deed, content))
        self._waiting_bytes += size
        if content is not None:
            content.users += 1
        show()

    def let_go(self, content: FileImage) -> None:
        """Close the real file when its last user has gone."""
        with self.lock_of_changes:
            content.users -= 1
            if content.users:
                return
            if content.file is not None:
                content.file.close()
            if self._contents.get(content.name) is content:
                del self._contents[content.name]

    # --- the directory ---

    def open(self, name: str, *, create: bool = False) -> File:
        if self.is_plain and name not in self._contents:
            return self._below.open(name, create=create)
        with self.lock_of_changes:
            if create:
                content = self._make(name)
            else:
                content = self._content(name)
                content.users += 1
            return _PatientFile(self, content)

    def _is_missing(self, name: str) -> bool:
        """While changes wait. Of files in folders the disk below knows: none is made in an opening."""
        return bool(self._waiting) and "/" not in name and name not in self._names

    def _make(self, name: str) -> FileImage:
        if self._waiting and name in self._names:
            raise DiskError(f"cannot create {name}: File exists")
        content = FileImage(name, None)
        content.users = 1

        def make() -> None:
            content.file = self._below.open(name, create=True)

        def show() -> None:
            content.begin()
            self._names.add(name)

        self.change(make, show, 0, content)
        self._contents[name] = content
        return content

    def _content(self, name: str) -> FileImage:
        content = self._contents.get(name)
        if content is None:
            if self._is_missing(name):
                raise FileMissing(f"cannot open {name}: No such file or directory")
            content = self._contents[name] = FileImage(name, self._below.open(name))
        return content

    def make_folder(self, name: str) -> None:
        self._below.make_folder(name)

    def names(self, folder: str = "") -> list[str]:
        if folder:
            return self._below.names(folder)
        if self._waiting:
            with self.lock_of_changes:
                if self._waiting:
                    return list(self._names)
        return self._below.names()

    def size(self, name: str) -> int:
        if self._waiting:
            with self.lock_of_changes:
                if self._is_missing(name):
                    raise FileMissing(f"cannot stat {name}: No such file or directory")
                if self.touches(name):
                    return self._contents[name].size
        return self._below.size(name)

    def modified(self, name: str) -> float:
        """See `Disk`; a change that waits counts from when the disk was opened."""
        return self._began if self.touches(name) else self._below.modified(name)

    def rename(self, old: str, new: str) -> None:
        if self.is_plain and old not in self._contents and new not in self._contents:
            self._below.rename(old, new)
            return
        with self.lock_of_changes:
            if "/" not in old and old not in self.names():
                raise FileMissing(f"cannot rename {old}: No such file or directory")
            content = self._content(old)
            content.users += 1  # until it has its new name

            def show() -> None:
                content.begin()
                self._names.discard(old)
                self._names.add(new)

            try:
                self.change(lambda: self._below.rename(old, new), show, 0, content)
                del self._contents[old]
                content.name = new
                self._contents[new] = content
            finally:
                self.let_go(content)

    def reread(self, name: str, offset: int = 0, size: int = 0) -> None:
        """See `Disk`. What waits is not the kernel's."""
        self._below.reread(name, offset, size)

    def unlink(self, name: str) -> None:
        """See `Disk`. While changes wait, for files that none of them touches."""
        with self.lock_of_changes:
            if self._is_missing(name):
                raise FileMissing(f"cannot remove {name}: No such file or directory")
            if self._waiting and not self._opening and not self.touches(name):
                self._below.unlink(name)  # out of turn, and now
                self._names.discard(name)
            else:
                self.change(lambda: self._below.unlink(name), lambda: self._names.discard(name))
            self._contents.pop(name, None)

    def fsync_dir(self) -> None:
        """See `Disk`. While changes wait, of files that were removed."""
        if self._opening:
            self.sync(self._below.fsync_dir)
        else:
            self._below.fsync_dir()

    def beside(self, *syncs: Callable[[], None]) -> AbstractContextManager[None]:
        """See `Disk`. In an opening one by one: what waits has its turn."""
        return one_by_one(*syncs) if self._opening else self._below.beside(*syncs)

    def lock(self, name: str) -> None:
        self._below.lock(name)

    def close(self) -> None:
        """See `Disk`. What waits is not done."""
        with self.lock_of_changes:
            waiting = [content for _, content in self._waiting]
            self._waiting.clear()
            for content in waiting:
                if content is not None:
                    self.let_go(content)
        self._below.close()
