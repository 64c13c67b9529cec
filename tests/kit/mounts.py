"""File systems of a test's own: made in a file, mounted by a loop device. Needs root.

What kind of disk the product gets is then the kernel's business and not a stand-in's: its errors, its page cache, its
journal. `rundir` unmounts what a run that died has left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where mkfs is; not on the path of every shell."""

UNMOUNT_S = 5.0
"""How long a process that was killed may take to let go of its files."""


class MountError(Exception):
    """What the command said."""


def run(*argv: str) -> None:
    path = f"{os.environ.get('PATH', os.defpath)}:{SBIN}"
    done = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
    )
    if done.returncode:
        raise MountError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")


def has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}") is not None


def mount(what: Path | str, where: Path, kind: str, *options: str) -> None:
    where.mkdir(exist_ok=True)
    run("mount", "-t", kind, *(("-o", ",".join(options)) if options else ()), str(what), str(where))


def unmount(where: Path) -> None:
    """Waits for those who still have a file open there. Raises `MountError` if they do not go away."""
    deadline = time.monotonic() + UNMOUNT_S
    while True:
        try:
            run("umount", str(where))
            return
        except MountError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def make_image(path: Path, kind: str, size_mb: int, *options: str) -> None:
    """A file system in a sparse file."""
    with path.open("wb") as file:
        file.truncate(size_mb << 20)
    if kind == "ext4":
        # Nothing may be written later, behind the test's back.
        options = ("-q", "-F", "-E", "lazy_itable_init=0,nodiscard", *options)
    else:
        options = ("-q", "-K", *options)
    run(f"mkfs.{kind}", *options, str(path))


def sync(where: Path) -> None:
    """This file system alone: the others of the machine may be slow."""
    run("sync", "-f", str(where))


def limit_requests(where: Path, kib: int) -> None:
    """The device that is mounted there is asked for no more at a time."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, place, *_ = line.split()
        if place == str(where):
            queue = Path("/sys/block") / Path(device).name / "queue"
            (queue / "max_sectors_kb").write_text(str(kib))
            return
    raise FileNotFoundError(f"nothing is mounted at {where}")


def mounted_below(directory: Path) -> list[Path]:
    """Mount points in a directory, the innermost first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Blanks in a path are written as \\040; ours have none.
        where = Path(line.split(" ")[4])
        if directory in where.parents:
            found.append(where)
    return found[::-1]  # in the order of mounting


def unmount_below(directory: Path) -> None:
    """Of a run that has ended: nothing is waited for. A loop device goes with its mount."""
    for where in mounted_below(directory):
        subprocess.run(["umount", "-l", str(where)], capture_output=True, check=False)


# -- whether it can be done here -------------------------------------------------------------------


@functools.cache
def cannot() -> str | None:
    """Why this machine allows no mounts; None if it does."""
    if os.getuid():
        return "mounting needs root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices here"
    with tempfile.TemporaryDirectory() as directory:
        try:
            mount("tmpfs", Path(directory), "tmpfs", "size=64k")
        except (MountError, OSError) as error:
            return f"mounting is not allowed here: {error}"
        unmount(Path(directory))
    return None


@functools.cache
def lacking(kind: str) -> str | None:
    """What is not installed for this kind of file system on a machine that could have it."""
    for program in ("mount", "umount", f"mkfs.{kind}") if kind != "tmpfs" else ("mount", "umount"):
        if not has(program):
            return f"{program} is not installed (make test sets it up)"
    return None


@functools.cache
def known(kind: str) -> bool:
    """Whether the kernel has this kind of file system, perhaps as a module."""
    line = re.compile(rf"^(nodev)?\t{kind}$", re.MULTILINE)
    if not line.search(Path("/proc/filesystems").read_text()):
        with contextlib.suppress(MountError, OSError):
            run("modprobe", kind)
    return bool(line.search(Path("/proc/filesystems").read_text()))


def require(kind: str) -> None:
    """Skips the test where this cannot be; in CI only where the machine does not allow it at all."""
    if reason := cannot():
        pytest.skip(reason)
    if not known(kind):
        pytest.skip(f"the kernel has no {kind}")
    if reason := lacking(kind):
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
