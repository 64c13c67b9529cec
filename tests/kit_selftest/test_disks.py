"""The disks of the kit lose and refuse what they should: a test on them can fail."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_server.testing import rundir
from tests.kit import mounts
from tests.kit.cut_disk import BLOCK, CutDisk
from tests.kit.fixtures import MakeCutDisk, MakeFailingDisk, MakeSmallDisk, MakeThinDisk

MB = 1 << 20

WRITER = """
import os, sys
path, synced = sys.argv[1], sys.argv[2] == "sync"
f = os.open(path, os.O_CREAT | os.O_WRONLY)
while True:
    os.write(f, b"line\\n")
    if synced:
        os.fdatasync(f)
    os.write(1, b".")
"""
"""Acknowledges each line on its standard output."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield fd
    finally:
        os.close(fd)


def error_of(call: object, *arguments: object) -> int | None:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        return error.errno
    return None


def dense(path: Path, size: int) -> None:
    """A file whose blocks are all there."""
    with opened(path) as fd:
        os.write(fd, bytes(size))
        os.fsync(fd)


def in_many_extents(fd: int, count: int = 16) -> None:
    """More of them, and apart, than ext4 keeps in an inode: the block that they need beside it is on the disk.

    Whoever says sync(2) on the machine while a file is written cuts it into more of them. On a disk without room
    that block would be lost, and with it what was synced long before.
    """
    for number in range(count):
        os.pwrite(fd, b"kept", 2 * number * BLOCK)
        os.fsync(fd)


def once_at_least(is_so: Callable[[], bool]) -> None:
    """One time may show nothing: whoever says sync(2) on the machine writes back the pages of everybody."""
    assert any(is_so() for _ in range(10))


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("synced", [True, False])
def test_what_was_not_synced_is_lost(cut_disk: MakeCutDisk, kind: str, *, synced: bool) -> None:
    disk = cut_disk(kind)
    if synced:
        acknowledged, kept = cut_while_written(disk, synced=True)
        assert kept >= acknowledged
        return

    def is_lost() -> bool:
        acknowledged, kept = cut_while_written(disk, synced=False)
        return kept < acknowledged

    once_at_least(is_lost)


def cut_while_written(disk: CutDisk, *, synced: bool) -> tuple[int, int]:
    """Lines that a live process, killed only after the cut, has said to have written; and those that are left."""
    path = disk.path / "log"
    path.unlink(missing_ok=True)
    argv = [sys.executable, "-c", WRITER, str(path), "sync" if synced else "no"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        seen = len(writer.stdout.read(500))
        # Between two calls: ext4 lets one sync succeed that is under way when it is shut down.
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        disk.cut()
        writer.send_signal(signal.SIGCONT)
        rest, trace = writer.communicate(timeout=20)  # ends by itself, with EIO
    assert b"Input/output error" in trace
    disk.restart()
    return seen + len(rest), path.read_bytes().count(b"line\n") if path.exists() else 0


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_write_back_takes_some_pages_and_not_others(cut_disk: MakeCutDisk, kind: str) -> None:
    disk = cut_disk(kind)
    path = disk.path / "file"
    rng = random.Random(1)

    def is_in_disorder() -> bool:
        dense(path, 16 * MB)
        with opened(path) as fd:
            for offset in range(0, 16 * MB, BLOCK):
                os.pwrite(fd, b"new", offset)
        disk.write_back(rng)
        disk.cut()
        disk.restart()
        data = path.read_bytes()
        kept = [at for at in range(0, len(data), BLOCK) if data[at : at + 3] == b"new"]
        assert kept
        is_prefix = kept[0] == 0 and kept[-1] == (len(kept) - 1) * BLOCK
        return len(kept) < len(data) // BLOCK and not is_prefix

    once_at_least(is_in_disorder)


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_small_disk(small_disk: MakeSmallDisk, kind: str) -> None:
    disk = small_disk(kind, size_mb=8)
    disk.fill(leave=MB)
    with opened(disk.path / "a") as fd:
        assert error_of(os.posix_fallocate, fd, 0, 2 * MB) == errno.ENOSPC
        # Perhaps a short write first.
        assert errno.ENOSPC in [error_of(os.write, fd, bytes(2 * MB)) for _ in range(3)]
    disk.empty()
    with opened(disk.path / "b") as fd:
        os.posix_fallocate(fd, 0, 2 * MB)


def test_thin_disk(thin_disk: MakeThinDisk) -> None:
    """The trap: the sync fails once, then succeeds, and the data are gone."""
    disk = thin_disk()
    path = disk.path / "log"
    with opened(path) as fd:
        os.posix_fallocate(fd, 0, 8 * MB)
        in_many_extents(fd)
        disk.fail(leave=MB)
        os.pwrite(fd, b"x" * 4 * MB, MB)
        assert error_of(os.fdatasync, fd) == errno.ENOSPC
        assert error_of(os.fdatasync, fd) is None
    disk.restart()
    data = path.read_bytes()
    assert data[:4] == b"kept"
    assert data.count(b"x") < 4 * MB


def test_thin_disk_keeps_what_a_sync_has_promised(thin_disk: MakeThinDisk) -> None:
    """Also of a write that has room in part."""
    disk = thin_disk()
    path, size, safe = disk.path / "log", 304 << 10, 0
    begin = MB  # behind the extents
    with opened(path) as fd:
        os.posix_fallocate(fd, 0, 5 * MB)
        in_many_extents(fd)
        disk.fail(leave=MB)
        while True:
            os.pwrite(fd, b"x" * size, begin + safe)
            if error_of(os.fdatasync, fd) is not None:
                break
            safe += size
    disk.restart()
    assert path.read_bytes()[begin : begin + safe] == b"x" * safe
    assert safe


def test_failing_disk(failing_disk: MakeFailingDisk) -> None:
    disk = failing_disk()
    path = disk.path / "log"
    dense(path, MB)
    with opened(path) as fd:
        os.pwrite(fd, b"kept", 0)
        os.fdatasync(fd)
        disk.fail()
        os.pwrite(fd, b"lost", 0)
        assert os.pread(fd, 4, 0) == b"lost"
        # The other one if a sync of somebody else came first, behind which ext4 has given up its journal.
        assert error_of(os.fdatasync, fd) in (errno.EIO, errno.EROFS)
    disk.restart()
    assert path.read_bytes()[:4] == b"kept"
    dense(disk.path / "other", MB)


def test_leftovers_of_a_killed_run(small_disk: MakeSmallDisk) -> None:
    if reason := mounts.cannot():
        pytest.skip(reason)
    argv = [sys.executable, "-c", LEAVES, str(rundir.base())]
    path = Path(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip())
    assert path.is_mount()
    rundir.remove_leftovers(mounts.unmount_below)
    assert not path.exists()
    assert not mounts.mounted_below(path.parent)


LEAVES = """
from tests.kit.bad_disk import SmallDisk
print(SmallDisk("ext4", 8).path)
"""
