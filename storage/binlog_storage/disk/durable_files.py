"""Files that are there whole or not at all after a power cut, each by its path.

For what is no part of a store: results of jobs, the key of passwords. Files of a store go through
`binlog_storage.disk.disk`, which loses power in tests. Errors are OSError as the system gives it; who calls maps it.

A file takes its place in four steps:

    1  written under a temporary name      a crash behind it leaves that name, and in it anything
    2  synced                              ... and in it all that was written
    3  renamed                             the old file or the new one, each of them whole
    4  its folder synced                   the new one

What a crash leaves under the temporary name is written over by the next who uses that name, or removed by the owner of
the folder. An error removes it, so that on a full disk there is as much room behind it as before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

_MODE: Final = 0o666


def replace_file(path: Path, data: bytes, mode: int = _MODE) -> None:
    """All four steps. The temporary name is that of the file and `.new`, so there is one who writes at a time.

    `mode`: permissions of a file that is made, without those that the umask takes. Raises OSError.
    """
    staged = path.with_name(f"{path.name}.new")
    with synced_file(staged, mode) as file:
        file.write(data)
    put_in_place(staged, path)


@contextmanager
def synced_file(path: Path, mode: int = _MODE) -> Iterator[BinaryIO]:
    """Steps 1 and 2: an empty file to write to, synced behind the block; what was there is gone. Raises OSError."""
    with removed_on_error(path), open(path, "wb", opener=partial(os.open, mode=mode)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def removed_on_error(path: Path) -> Iterator[None]:
    """If the block raises, a file that it was writing goes."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def put_in_place(staged: Path, path: Path) -> None:
    """Steps 3 and 4, for a file that is synced and lies in the same folder. Raises OSError."""
    staged.replace(path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Step 2, for a file that somebody else has written and closed. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Sync a folder, so that names made, changed or removed in it outlive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
