"""A file copied with its holes: what was never written takes no room in the copy either."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def copy_sparse(source: str | Path, target: str | Path) -> None:
    """As `shutil.copy2`, for `shutil.copytree` too: the target is made or written over. Raises OSError."""
    with Path(source).open("rb") as given, Path(target).open("wb") as made:
        size = os.fstat(given.fileno()).st_size
        for begin, end in _data(given.fileno(), size):
            os.lseek(made.fileno(), begin, os.SEEK_SET)
            while begin < end:
                begin += os.sendfile(made.fileno(), given.fileno(), begin, end - begin)
        os.ftruncate(made.fileno(), size)
    shutil.copystat(source, target)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of what was written; all of it where the file system cannot tell. Raises OSError."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing more
                return
            raise
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        yield begin, end
