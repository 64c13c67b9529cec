"""Folders in TMPDIR for parts that are about to be uploaded. One of a process that was killed goes with the next.

Each is locked as long as its owner lives: the operating system ends the lock, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "binlog-archive-"
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class StagingFolder:
    """A new, empty folder, until `close`. Those of this user that nobody has any more are removed first."""

    def __init__(self) -> None:
        """Raises OSError."""
        parent = Path(tempfile.gettempdir())
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_left(left)
        self._fd = -1
        while self._fd < 0:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            self._fd = _owned(self.path)

    def close(self) -> None:
        """Remove it, and all that is in it."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def _owned(path: Path) -> int:
    """A descriptor of a new folder that locks it; -1: another one has taken it for one that was left."""
    try:
        fd = os.open(path, _FLAGS)
    except FileNotFoundError:
        return -1
    with contextlib.suppress(OSError):  # a file system without locks: then nobody removes any there
        fcntl.flock(fd, fcntl.LOCK_EX)
    if path.is_dir():
        return fd
    os.close(fd)
    return -1


def _remove_if_left(path: Path) -> None:
    try:
        fd = os.open(path, _FLAGS)
    except OSError:  # it is gone, of another user, or no folder
        return
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:  # its owner lives
        pass
    finally:
        os.close(fd)
