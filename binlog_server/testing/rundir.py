"""Where a test process keeps its data directories, and how leftovers of dead ones are found.

    <base>/                     binlogtest-<uid>, in memory where there is room
        templates/<key>/        empty MariaDB data directories, kept between runs
        ports/<port>            lock files, see ports.py
        bytecode/               of Python, kept between runs, if it may not be beside the sources
        run-<owner>/            one test process; <owner> is "<pid>-<start time>"

A process id alone comes back; together with the start time in /proc it names one process for ever. What a process has
made goes when it ends; what one that was killed has left goes when the next one makes its directory.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOM_WANTED = 1 << 30
"""Free bytes below which /dev/shm is passed over (a container has 64 MB of it by default)."""


@functools.cache
def base() -> Path:
    path = Path(os.environ.get("BINLOG_TEST_TMP") or _parent()) / f"binlogtest-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _parent() -> str:
    shm = "/dev/shm"
    if os.access(shm, os.W_OK):
        room = os.statvfs(shm)
        if room.f_bavail * room.f_frsize >= ROOM_WANTED:
            return shm
    return tempfile.gettempdir()


def owner() -> str:
    """This process, in the form that `is_alive` understands."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def is_alive(who: str) -> bool:
    pid, _, start_time = who.partition("-")
    return pid.isdigit() and _start_time(int(pid)) == start_time


def _start_time(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Field 22; counted from behind the command name, which may hold anything, blanks included.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state == "Z" else fields[18]


@functools.cache
def run_dir() -> Path:
    remove_leftovers()
    path = base() / f"run-{owner()}"
    path.mkdir(exist_ok=True)
    atexit.register(remove_own)
    return path


def new_dir(name: str) -> Path:
    """A new directory of this run. The name is short: a socket's path has at most 107 bytes."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=run_dir()))


def keep_bytecode() -> None:
    """For the processes that we start: each would compile all of the project otherwise, half of a server's start."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(base() / "bytecode"))


def remove_leftovers(before: Callable[[Path], None] = lambda path: None) -> None:
    """Directories of runs that died before they could clean up. `before`: is told of each that is to go."""
    for path in base().glob("run-*"):
        if not is_alive(path.name.removeprefix("run-")):
            before(path)
            shutil.rmtree(path, ignore_errors=True)


def remove_own(before: Callable[[Path], None] = lambda path: None) -> None:
    """The directory of this process, if it has one. `before`: as of `remove_leftovers`."""
    path = base() / f"run-{owner()}"
    before(path)
    shutil.rmtree(path, ignore_errors=True)
