"""The only door from the store to the operating system.

Everything that a store does to a disk goes through a `Disk`, which is one directory, and its `File`s. There are
two: `OsDisk` here, and `MemoryDisk` in `memory_disk.py`, which forgets what was not synced when it is told to crash.
Both pass the same contract tests. Names are plain file names inside the directory, or `folder/name` in a folder there
that `make_folder` has made; no other paths.

What a caller may rely on after a power cut, and no more: bytes of a file whose `fdatasync` returned; the existence,
the name and the size of a file once `fsync_dir` returned as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import get_ident
from time import monotonic
from typing import Final, NamedTuple, Protocol

from binlog_storage.disk.durable_files import sync_folder
from binlog_storage.disk.local_path import local_path
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    FileMissing,
    OtherFileSystem,
    StoreInUse,
    TooManyOpenFiles,
)

_AGAIN_BYTES: Final = 4 << 20  # aligned: no block of memory of the kernel lies across a border
OPEN_FILES_MAX: Final = 64  # of the .ibb files of a store, by each who reads or writes it


class Unread(Protocol):
    """A file that can tell where it was never written."""

    def next_data(self, offset: int) -> int:
        """The first place at `offset` or behind it where anything may be written: what is passed over are zeros that
        need not be read. The length of the file if nothing is; `offset` itself where the file system cannot tell.
        """


class File(Unread, Protocol):
    """An open file. `pread` and `pwrite` may be called from several threads; the rest by one owner."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """All of `data` at `offset`, or `DiskError`."""

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        """All of them, one behind the other, as one `pwrite`; no more than 1024."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to `size` bytes."""

    def allocate(self, size: int, start: int = 0) -> None:
        """Have room on the disk for the bytes from `start` to `size`, so that writing them cannot meet a full disk.
        What is there stays; a shorter file is extended with zeros.
        """

    def start_writing(self, size: int, offset: int) -> None:
        """Let the disk begin to write those bytes. A hint that promises nothing; `fdatasync` has less to wait for."""

    def fdatasync(self) -> None:
        """Returns when data and length are durable."""

    def close(self) -> None:
        """Further use is an error."""


def is_unwritten(file: Unread, offset: int, size: int) -> bool:
    """Whether so many bytes are known to be zeros without a look at them. `False` may mean that nobody can tell."""
    return file.next_data(offset) >= offset + size


class Disk(Protocol):
    """One directory."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing; `FileMissing` if there is none. `create` makes a new empty file and fails if
        there is one.
        """

    def names(self, folder: str = "") -> list[str]:
        """All names in the directory, in no order; or in a folder of it, without that folder's name."""

    def make_folder(self, name: str) -> None:
        """Make a folder in the directory, for its owner alone. One that is there is no error."""

    def modified(self, name: str) -> float:
        """Time of the last change of the file, seconds since 1970."""

    def size(self, name: str) -> int:
        """Length in bytes, without opening the file. Raises `FileMissing`."""

    def reread(self, name: str, offset: int = 0, size: int = 0) -> None:
        """From now on reads of so many bytes of the file give what the disk has, and what has still to be written to
        it; size 0: of all that is behind the offset.

        Where a sync has failed the kernel shows what it has given up, and ext4 loses even what is written over it
        later, in spite of a sync that says all is well: it has the place for one that was written. Advice to the
        kernel, which follows it for whole blocks of memory. `FileMissing` if there is none.
        """

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`. Raises `OtherFileSystem` if the folder of one lies in another."""

    def unlink(self, name: str) -> None:
        """Remove; the name must exist."""

    def fsync_dir(self) -> None:
        """Returns when names made, changed or removed in the directory so far are durable; not those in folders."""

    def beside(self, *syncs: Callable[[], None]) -> AbstractContextManager[None]:
        """Around a sync: others are done at the same time, for a file system with a journal writes that once for all.

        syncs: of files and of this directory; all was written before. At the end of the block each has returned. The
            first error is raised, that of the block before theirs; behind one the others are done, or not.
        """

    def lock(self, name: str) -> None:
        """Take the directory for this process, or raise `StoreInUse`. Held until `close`.

        From then on `fsync_dir` needs no descriptor of its own: it may come behind what cannot be taken back.
        """

    def close(self) -> None:
        """Give up the lock."""


@contextlib.contextmanager
def one_by_one(*syncs: Callable[[], None]) -> Iterator[None]:
    """See `Disk.beside`: behind the block, in their order, where nothing is gained by threads."""
    yield
    for sync in syncs:
        sync()


@contextlib.contextmanager
def replaced(disk: Disk, name: str) -> Iterator[File]:
    """A new file to write, which takes the place of `name` behind the block. A crash leaves either of them, whole.

    Raises `DiskError`.
    """
    with made_ahead(disk, name) as file:
        yield file
    put_in_place(disk, name)


@contextlib.contextmanager
def made_ahead(disk: Disk, name: str) -> Iterator[File]:
    """The first half: behind the block the new file has its bytes durably, and that name with `.new` behind it.

    What found no room is removed: it would take some from those that write meanwhile.
    """
    new = f"{name}.new"
    if new in disk.names():  # left by a crash between create and rename
        disk.unlink(new)
    with contextlib.closing(disk.open(new, create=True)) as file:
        try:
            yield file
            file.fdatasync()  # before the rename: a renamed empty file is what ext4 is known for
        except DiskFull:
            with contextlib.suppress(DiskError):
                disk.unlink(new)
            raise


def put_in_place(disk: Disk, name: str) -> None:
    """The second half: durable when it returns."""
    disk.rename(f"{name}.new", name)
    disk.fsync_dir()


def write_again(file: File, begin: int, size: int) -> None:
    """Write these bytes once more, as a read gives them, for the next `fdatasync`.

    A start does it with what an earlier process may have failed to sync: the kernel shows such bytes and has given
    them up, so a sync alone says that all is well. Enough where every block has been synced once, as in the redo log;
    for other files there is `make_durable`. Raises `DiskError`.
    """
    end = begin + size
    for at in range(begin, end, _AGAIN_BYTES):
        file.pwrite(file.pread(min(_AGAIN_BYTES, end - at), at), at)


def make_durable(disk: Disk, name: str, file: File, size: int) -> None:
    """Make the first bytes of an open file durable, as a read gives them, whatever became of earlier syncs.

    As `write_again`; but the kernel has to forget them before they are written: see `Disk.reread`. It forgets nothing
    that is still to be written, so that is synced first. Raises `DiskError`.
    """
    file.fdatasync()
    for at in range(0, size, _AGAIN_BYTES):
        data = file.pread(min(_AGAIN_BYTES, size - at), at)
        disk.reread(name, at, _AGAIN_BYTES)
        file.pwrite(data, at)
    file.fdatasync()


_KINDS: Final[dict[int | None, type[DiskError]]] = {
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
    errno.ENOENT: FileMissing,
    errno.EXDEV: OtherFileSystem,
    errno.EMFILE: TooManyOpenFiles,
    errno.ENFILE: TooManyOpenFiles,
}


class Mapped:
    """See `mapped`. A class, since it is entered for each call: a generator takes three times as long."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: Path) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        _under_way[get_ident()] = (monotonic(), self._action, self._path)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _under_way.pop(get_ident(), None)
        if isinstance(error, OSError):
            raise disk_error(self._action, self._path, error) from error


def disk_error(action: str, path: Path, error: OSError) -> DiskError:
    """An error of the operating system as one of ours."""
    kind = _KINDS.get(error.errno, DiskError)
    return kind(f"cannot {action} {path}: {error.strerror or error}")


def mapped(action: str, path: Path) -> Mapped:
    """The border at which `OSError` becomes ours, with the action and the path in the text."""
    return Mapped(action, path)


class DiskCall(NamedTuple):
    """One call of the operating system that has not returned yet; `since` by the monotonic clock."""

    since: float
    action: str
    path: Path


# By thread, which makes one at a time. Plain tuples, as nearly nobody looks: the parts of a `DiskCall`.
_under_way: Final[dict[int, tuple[float, str, Path]]] = {}


def calls_under_way() -> list[DiskCall]:
    """The calls of this process, the oldest first: on a disk that has stopped they do not return."""
    return sorted(map(DiskCall._make, list(_under_way.values())))


_KINDS_OF_ENTRY: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a file, and of nothing else that may have its name. Never waits. Raises OSError.

    Opening a FIFO would wait for somebody at its other end, and reading from a device may never end. Who writes through
    a symbolic link changes another file.
    """
    writes = bool(flags & os.O_RDWR)
    flags |= os.O_NOFOLLOW if writes else 0
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o640)
    except OSError as error:
        if writes and error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.EINVAL, "it is a symbolic link, not a file") from None
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise OSError(
            errno.EINVAL, f"it is {_KINDS_OF_ENTRY.get(kind, 'something else')}, not a file"
        )
    if flags & os.O_CREAT and os.geteuid() == 0:
        _give_to_owner(path, fd)
    return fd


def _give_to_owner(path: Path, fd: int) -> None:
    """What root makes in a folder of somebody else is that one's: a service that goes on there must open it.

    Only an empty file with one name: nobody may get another file by a link that lies there.
    """
    made, folder = os.fstat(fd), path.parent.stat()
    if made.st_uid == 0 and made.st_nlink == 1 and not made.st_size and folder.st_uid != 0:
        with contextlib.suppress(OSError):  # a root that may not, as in some containers
            os.fchown(fd, folder.st_uid, folder.st_gid)


# Linux has it, and Python's `os` has not. It only starts the writing, and takes no error from who calls `fdatasync`.
_posix_fadvise: Final = getattr(os, "posix_fadvise", None)
_DONTNEED: Final = getattr(os, "POSIX_FADV_DONTNEED", 0)
_SYNC_FILE_RANGE_WRITE: Final = 2
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class OsFile:
    """A file of the operating system. The offset of the descriptor is never used."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        with mapped("read", self._path):
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [
                data
            ]  # a short read in mid-file is legal: a signal, or the kernel's 2 GiB limit
            have = len(data)
            while have < size:
                data = os.pread(self._fd, size - have, offset + have)
                if not data:
                    break
                parts.append(data)
                have += len(data)
            return b"".join(parts)

    # Each commit writes and syncs: these two do by themselves what `mapped` does, for two calls less.

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        _under_way[thread := get_ident()] = (monotonic(), "write", self._path)
        try:
            done = os.pwrite(self._fd, data, offset)
            if done != len(data):
                self._write_rest(data, offset, done)
        except OSError as error:
            raise disk_error("write", self._path, error) from error
        finally:
            _under_way.pop(thread, None)

    def _write_rest(self, data: bytes | bytearray | memoryview, offset: int, done: int) -> None:
        # A full disk shows as a short write first; the next call then names the reason. The views end with it: the
        # traceback keeps them, and who gets the error may want to cut `data`.
        with memoryview(data) as whole:
            while done < len(whole):
                with whole[done:] as rest:
                    done += os.pwrite(self._fd, rest, offset + done)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        with mapped("write", self._path):
            done = os.pwritev(self._fd, parts, offset)
        if done < sum(map(len, parts)):
            self.pwrite(memoryview(b"".join(parts))[done:], offset + done)

    def size(self) -> int:
        with mapped("stat", self._path):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with mapped("truncate", self._path):
            os.ftruncate(self._fd, size)

    def allocate(self, size: int, start: int = 0) -> None:
        with mapped("allocate", self._path):
            os.posix_fallocate(self._fd, start, size - start)

    def next_data(self, offset: int) -> int:
        try:
            return os.lseek(
                self._fd, offset, os.SEEK_DATA
            )  # nothing reads by the place that this moves
        except OSError as error:
            return max(offset, self.size()) if error.errno == errno.ENXIO else offset

    def start_writing(self, size: int, offset: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def fdatasync(self) -> None:
        _under_way[thread := get_ident()] = (monotonic(), "sync", self._path)
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise disk_error("sync", self._path, error) from error
        finally:
            _under_way.pop(thread, None)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def in_use(directory: Path) -> StoreInUse:
    """The error for a directory whose lock another process has."""
    return StoreInUse(
        f"the directory {directory} is in use by another process; stop it, or give another "
        "binlog_directory"
    )


def locked(directory: Path, name: str, flags: int) -> int:
    """A descriptor of the lock file, which holds the lock. Raises `StoreInUse`, `FileMissing`, `DiskError`."""
    path = directory / name
    with mapped("open", path):
        fd = open_regular(path, flags)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise in_use(directory) from None
    return fd


class OsDisk:
    """A directory of the operating system; made if it is not there.

    Thread contract: the methods may be called from any thread; `lock` and `close` by the owner.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory = local_path(directory)
        self._lock_fd = -1
        self._fd = -1  # of the directory, while it is ours
        with mapped("make directory", directory):
            directory.mkdir(parents=True, exist_ok=True)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        path = self._directory / name
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        with mapped("create" if create else "open", path):
            return OsFile(path, open_regular(path, flags))

    def names(self, folder: str = "") -> list[str]:
        path = self._directory / folder
        with mapped("list", path):
            return os.listdir(path)  # noqa: PTH208 - names, not paths

    def make_folder(self, name: str) -> None:
        path = self._directory / name
        with mapped("make directory", path):
            path.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0 and (owner := self._directory.stat()).st_uid:
                with contextlib.suppress(OSError):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        if path.is_symlink():  # what is removed there would be another's
            raise DiskError(f"cannot make directory {path}: it is a symbolic link, not a folder")

    def modified(self, name: str) -> float:
        with mapped("stat", self._directory / name):
            return (self._directory / name).stat().st_mtime

    def size(self, name: str) -> int:
        with mapped("stat", self._directory / name):
            return (self._directory / name).stat().st_size

    def reread(self, name: str, offset: int = 0, size: int = 0) -> None:
        path = self._directory / name
        with mapped("open", path):
            fd = open_regular(path, os.O_RDONLY)
            try:
                if _posix_fadvise is not None:
                    _posix_fadvise(fd, offset, size, _DONTNEED)
            finally:
                os.close(fd)

    def rename(self, old: str, new: str) -> None:
        with mapped("rename", self._directory / old):
            (self._directory / old).replace(self._directory / new)

    def unlink(self, name: str) -> None:
        with mapped("remove", self._directory / name):
            (self._directory / name).unlink()

    def fsync_dir(self) -> None:
        with mapped("sync directory", self._directory):
            if self._fd >= 0:
                os.fsync(self._fd)
            else:
                sync_folder(self._directory)

    @contextlib.contextmanager
    def beside(self, *syncs: Callable[[], None]) -> Iterator[None]:
        """See `Disk`. In threads of its own: this is done for a new file, and each saves a write of the journal."""
        failed: dict[int, BaseException] = {}

        def do(place: int, sync: Callable[[], None]) -> None:
            try:
                sync()
            except BaseException as error:  # noqa: BLE001 - it is raised by who waits
                failed[place] = error

        threads = [
            threading.Thread(target=do, args=one, name="sync", daemon=True)
            for one in enumerate(syncs)
        ]
        started = 0
        try:
            with contextlib.suppress(RuntimeError):  # there may be no more threads
                for thread in threads:
                    thread.start()
                    started += 1
            yield
        finally:
            for thread in threads[:started]:
                thread.join()
        if failed:
            raise failed[min(failed)]
        for sync in syncs[started:]:
            sync()

    def lock(self, name: str) -> None:
        self._lock_fd = locked(self._directory, name, os.O_RDWR | os.O_CREAT)
        with mapped("open", self._directory):
            self._fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        for fd in (self._lock_fd, self._fd):
            if fd >= 0:
                os.close(fd)  # closing gives up the flock
        self._lock_fd = self._fd = -1
