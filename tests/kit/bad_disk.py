"""Disks that refuse, as real ones do: full, broken, or full only where nobody could have known."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from binlog_server.testing import rundir
from tests.kit import mounts
from tests.kit.cut_disk import CutDisk


class SmallDisk:
    """A disk of a few MiB: ENOSPC. `fill` takes the rest of the room away, `empty` gives it back."""

    def __init__(self, kind: str, size_mb: int) -> None:
        self.dir = rundir.new_dir("small")
        self.path = self.dir / "disk"
        if kind == "tmpfs":
            mounts.mount("tmpfs", self.path, "tmpfs", f"size={size_mb}m")
        else:
            image = self.dir / "image"
            mounts.make_image(image, kind, size_mb)
            mounts.mount(image, self.path, kind, "loop")

    @property
    def _ballast(self) -> Path:
        return self.path / "lost+found" / "ballast"  # a name that no store takes for a foreign file

    def fill(self, leave: int = 0) -> None:
        """Take all room but so many bytes."""
        self._ballast.parent.mkdir(exist_ok=True)
        _take_room(self._ballast, leave)

    def empty(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        mounts.unmount_below(self.dir)


class ThinDisk:
    """A disk that has promised more than it has: writing works and the sync fails, with ENOSPC, for blocks that were
    never written before. The next sync succeeds again, and the data are not there: what is known as fsyncgate.

    ext4 without a journal, on a sparse image, on a tmpfs that is too small for it.
    """

    def __init__(self, kind: str = "ext4", size_mb: int = 64) -> None:
        assert kind == "ext4"
        self.dir = rundir.new_dir("thin")
        self.path = self.dir / "disk"
        self._below = self.dir / "below"
        mounts.mount("tmpfs", self._below, "tmpfs", f"size={size_mb}m")
        mounts.make_image(
            self._image, "ext4", size_mb, "-O", "^has_journal", "-b", "4096", "-N", "128"
        )
        self._mount()
        # The blocks of inodes and bitmaps are to be there: it is data that gets lost.
        files = [self.path / f"{number}" for number in range(100)]
        for path in files:
            path.write_bytes(b"x")
        mounts.sync(self.path)
        for path in files:
            path.unlink()
        mounts.sync(self.path)

    @property
    def _image(self) -> Path:
        return self._below / "image"

    @property
    def _ballast(self) -> Path:
        return self._below / "ballast"

    def _mount(self) -> None:
        # Blocks become part of a file as written ones. Else they are taken for unwritten until they are written, and if
        # anybody says sync(2) meanwhile a file is in more pieces than its inode holds: the block that has the rest of
        # the list was never written, so that what was synced long before is lost with it.
        mounts.mount(self._image, self.path, "ext4", "loop", "errors=continue", "dioread_lock")
        # A loop device takes a write that was cut short for a whole one: the sync would lie. One block is not cut.
        mounts.limit_requests(self.path, 4)

    def fail(self, leave: int = 0) -> None:
        """From now on, once so many bytes were written where nothing was."""
        _take_room(self._ballast, leave)

    def heal(self) -> None:
        """The disk has room again; what it lost stays lost."""
        self._ballast.unlink(missing_ok=True)

    def restart(self) -> None:
        """With what is really on it. Nobody may have a file open."""
        mounts.unmount(self.path)
        self.heal()
        self._mount()

    def close(self) -> None:
        mounts.unmount_below(self.dir)


class FailingDisk:
    """A disk that takes no write any more, with EIO or EROFS, as the sync tells; the page cache can be read.

    ext4 on an image that lies on a `CutDisk`.
    """

    def __init__(self, kind: str = "ext4", size_mb: int = 192) -> None:
        self._outer = CutDisk(kind, size_mb * 2)
        self.dir = self._outer.dir
        self.path = self._outer.dir / "failing"
        mounts.make_image(self._image, "ext4", size_mb)
        mounts.sync(self._outer.path)
        self._mount()

    @property
    def _image(self) -> Path:
        return self._outer.path / "image"

    def _mount(self) -> None:
        # Not errors=remount-ro: the server is to find out by a sync, and not by a directory that cannot be written.
        mounts.mount(self._image, self.path, "ext4", "loop", "errors=continue")

    def fail(self) -> None:
        """From now on."""
        self._outer.cut()

    def restart(self) -> None:
        """Sound again, with what was ever synced. Nobody may have a file open."""
        mounts.unmount(self.path)
        self._outer.restart()
        self._mount()

    def close(self) -> None:
        self._outer.close()


def _free(where: Path) -> int:
    """Bytes."""
    room = os.statvfs(where)
    return room.f_bavail * room.f_frsize


def _take_room(ballast: Path, leave: int) -> None:
    """All but so many bytes of the room that there is, while others may be at it too."""
    fd = os.open(ballast, os.O_RDWR | os.O_CREAT)
    try:
        while (size := _free(ballast.parent) - leave) > 0:
            try:
                os.posix_fallocate(fd, 0, os.fstat(fd).st_size + size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    finally:
        os.close(fd)
