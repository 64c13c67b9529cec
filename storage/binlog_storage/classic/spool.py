"""The events of an open group, in front of the binlog: in memory first, in a file beside it when they are many.

MariaDB's caches of a transaction. The file has no meaning behind a crash: a start deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from binlog_storage.disk.disk import Disk, File

CACHE_PREFIX: Final = "binlog-server.cache."
_MEMORY_BYTES: Final = 32768  # MariaDB's binlog_cache_size
_PIECE_BYTES: Final = 256 << 10


Mark = tuple[tuple[int, int], ...]  # ranges of all that was added


class Spool:
    """One list of events. One owner. What is taken back stays as garbage, so that one may go back to any mark.

    Args:
        name: gives a new name for its file, which begins with `CACHE_PREFIX`.
        opened: what is written to and read from in the place of the file.
    """

    def __init__(
        self,
        disk: Disk,
        name: Callable[[], str],
        opened: Callable[[File], File] = lambda file: file,
    ) -> None:
        self._disk = disk
        self._new_name = name
        self._opened = opened
        self._memory = bytearray()
        self._file: File | None = None
        self._name = ""
        self._in_file = 0
        self._ranges: list[tuple[int, int]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end. Raises `DiskError`: nothing is added then."""
        before = len(self._memory)
        begin = self._in_file + before
        self._memory += data
        if len(self._memory) > _MEMORY_BYTES:
            try:
                self._write()
            except BaseException:
                del self._memory[before:]
                raise
        if self._ranges and self._ranges[-1][1] == begin:
            begin = self._ranges.pop()[0]
        self._ranges.append((begin, self._in_file + len(self._memory)))
        self._size += len(data)

    def _write(self) -> None:
        if self._file is None:
            name = self._new_name()
            self._file = self._opened(self._disk.open(name, create=True))
            self._name = name
        self._file.pwrite(self._memory, self._in_file)
        self._in_file += len(self._memory)
        self._memory.clear()

    def mark(self) -> Mark:
        """What there is now."""
        return tuple(self._ranges)

    def rewind(self, mark: Mark) -> None:
        """Go back to a mark."""
        self._ranges = list(mark)
        self._size = sum(end - begin for begin, end in mark)

    def pieces(self) -> Iterator[bytes]:
        """All bytes, in pieces cut anywhere."""
        for begin, end in self._ranges:
            at = begin
            while at < min(end, self._in_file):
                assert self._file is not None
                piece = self._file.pread(min(_PIECE_BYTES, min(end, self._in_file) - at), at)
                assert piece
                at += len(piece)
                yield piece
            if at < end:
                yield bytes(self._memory[at - self._in_file : end - self._in_file])

    def close(self) -> None:
        """Give up the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.unlink(self._name)
        self._memory.clear()
        self._ranges.clear()
        self._in_file = self._size = 0


def remove_spools(disk: Disk) -> None:
    """Delete the files that a crash has left."""
    for name in disk.names():
        if name.startswith(CACHE_PREFIX):
            disk.unlink(name)
