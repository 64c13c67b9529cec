"""What a Python process says to the disk, call by call: counted, stopped, refused, or swallowed. For child processes.

The store knows the operating system by `os.*` alone, so that is where a test can stand. Nothing of the product is
changed, and unlike a debugger it is the same on every run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BY_DESCRIPTOR = ("pwrite", "pwritev", "fdatasync", "fsync", "ftruncate", "posix_fallocate")
BY_PATH = ("rename", "replace", "unlink")
CALLS = (*BY_DESCRIPTOR, *BY_PATH, "open")


@dataclass(frozen=True)
class Call:
    """One call that changes what is on the disk, before it is made."""

    name: str
    arguments: tuple[Any, ...]
    path: str
    """The file's; of a rename the old name."""
    make: Callable[[], Any]
    """Makes the call, as the operating system has it, and returns its result."""

    def tear(self) -> None:
        """Makes the first half of a write, as a crash in the middle of it would have."""
        if self.name in ("pwrite", "pwritev"):
            fd, data, offset = self.arguments
            whole = bytes(data) if self.name == "pwrite" else b"".join(data)
            os_pwrite(fd, whole[: len(whole) // 2], offset)


os_pwrite = os.pwrite


def watch(around: Callable[[Call], Any]) -> None:
    """From now on `around` is called in the place of each call that changes a disk, by any thread; it decides."""

    def wrapper(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return original(*arguments, **named)
            path = _path(arguments[0]) if name in BY_DESCRIPTOR else os.fspath(arguments[0])
            return around(Call(name, arguments, str(path), lambda: original(*arguments, **named)))

        return call

    for name in CALLS:
        setattr(os, name, wrapper(name))


def _path(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()
