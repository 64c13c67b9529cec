"""A disk whose power can be cut, on a real file system and without a device mapper.

The SHUTDOWN ioctl with NOLOGFLUSH makes ext4 and xfs forget at once all that is not on the disk: dirty pages, and the
part of the journal that was not committed. Mounted again, the file system replays its journal as after a power cut.
What ext4 and xfs happen to make durable without being asked (the name of a new file that was synced) survives here;
the simulated disk of the storage tests is stricter, this one is real.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import time
from pathlib import Path

from binlog_server.testing import rundir
from tests.kit import mounts

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), see FS_IOC_SHUTDOWN in include/uapi/linux/fs.h
NOLOGFLUSH = 2

SIZE_MB = {"ext4": 256, "xfs": 320}
"""Sparse: only what was ever written takes room. mkfs.xfs refuses less than 300 MB."""

WRITE_BACK = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE, WRITE, WAIT_AFTER
BLOCK = 4096


def power_off(directory: Path) -> None:
    """Of the file system that the directory is in."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, NOLOGFLUSH.to_bytes(4, "little"))
    finally:
        os.close(fd)


class CutDisk:
    """A file system mounted at `path`. After `cut` everything fails with EIO, up to `restart`."""

    def __init__(self, kind: str = "ext4", size_mb: int | None = None) -> None:
        self.kind = kind
        self.dir = rundir.new_dir("cut")
        self.path = self.dir / "disk"
        mounts.make_image(self._image, kind, size_mb or SIZE_MB[kind])
        self._mount()

    @property
    def _image(self) -> Path:
        return self.dir / "image"

    def _mount(self) -> None:
        mounts.mount(self._image, self.path, self.kind, "loop")

    def cut(self) -> None:
        """The power goes. Whoever has files open may live on; he gets EIO for whatever he does with them."""
        power_off(self.path)

    def restart(self) -> None:
        """The power comes back. Nobody may have a file open any more: kill him first."""
        deadline = time.monotonic() + mounts.UNMOUNT_S
        while True:
            mounts.unmount(self.path)
            self._mount()
            if self._works():
                return
            # A container that is just being started has a copy of the mount for a moment: the same file system, which
            # is still without power, was found again.
            if time.monotonic() > deadline:
                raise mounts.MountError(f"{self.path} does not come back")
            time.sleep(0.05)

    def _works(self) -> bool:
        probe = self.path / "probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError:
            return False
        return True

    def write_back(self, rng: random.Random, files: int = 4, ranges: int = 4) -> None:
        """Some of the dirty pages go to the disk now, and nothing that leads there: the kernel, too, writes back in
        whatever order it likes. For use right before `cut`."""
        names = [path for path in self.path.rglob("*") if path.is_file()]
        for path in rng.sample(names, min(files, len(names))):
            with contextlib.suppress(FileNotFoundError):  # the server purges
                _push(path, [rng.random() for _ in range(ranges)])

    def close(self) -> None:
        mounts.unmount_below(self.dir)


def _push(path: Path, places: list[float]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    try:
        blocks = os.fstat(fd).st_size // BLOCK
        for place in places:
            offset = ctypes.c_int64(int(place * blocks) * BLOCK)
            if libc.sync_file_range(fd, offset, ctypes.c_int64(8 * BLOCK), WRITE_BACK):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)
