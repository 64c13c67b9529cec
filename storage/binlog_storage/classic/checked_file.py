"""One traditional file, looked through to its first damage, and whether it ends where its groups end.

Behind a damage nothing can be found: events tell their lengths, and nothing else where the next one begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.binlog import read_head, require_followed
from binlog_storage.classic.encryption import Keys, opened_to_read
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import Bytes
from binlog_storage.classic.groups import FileGroups
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import FileMissing
from binlog_storage.intake.source import SourceGroup, UnfinishedGroup


def opened_in(disk: ReadableDisk, name: str, keys: Keys | None = None) -> Bytes:
    """A file of a directory, its events in clear. Raises `DiskError`, `NoBinlogKey`."""
    return opened_to_read(keys, Path(name), disk.open(name))


class CheckedFile:
    """One look at one file.

    Args:
        size: it ends there for this look.
        durable_end: groups up to there must be in it; 0 if nothing is known.
        following: the file behind it.
        gap: a file may be missing between the two, so the next one decides even if this one was closed. A file without
            a STOP or ROTATE event is no damage by itself, as a killed MariaDB leaves one: there it always decides.
    """

    def __init__(
        self,
        disk: ReadableDisk,
        name: str,
        keys: Keys | None = None,
        *,
        size: int | None = None,
        durable_end: int = 0,
        following: str | None = None,
        gap: bool = False,
    ) -> None:
        self._disk = disk
        self._path = Path(name)
        self._keys = keys
        self._size = size
        self._durable_end = durable_end
        self._following = following
        self._gap = gap
        self.left_out = ""
        """The torn end of the file, in words, once all was read; empty if the file is whole."""

    def groups(self) -> Iterator[SourceGroup | None]:
        """Groups and start markers; None behind each piece of a large group, where the look may pause.

        Raises `DamagedBinlog`, `UnreadableBinlog`, `NoBinlogKey`, `DiskError`.
        """
        path, following = self._path, self._following
        groups = FileGroups(path, file=self._opened(path.name), size=self._size)
        try:
            state = BinlogState()
            if following is not None:
                state = read_head(path, self._opened(path.name)).state
            for group in groups.items(runs=False):
                assert isinstance(group, SourceGroup)
                if group.rest is not None:
                    for _ in group.rest:
                        yield None
                if group.gtid is not None:
                    state.update(group.gtid)
                yield group
        except UnfinishedGroup:
            pass
        finally:
            groups.close()
        self.left_out = groups.left_out
        if groups.end < self._durable_end:
            reason = (
                f"the file ends here, in front of its durable end at offset {self._durable_end}"
            )
            raise DamagedBinlog(path, groups.end, reason)
        if following is not None and (self._gap or groups.closed_at is None):
            head = None
            with contextlib.suppress(DamagedBinlog, UnreadableBinlog, FileMissing):
                # A look of its own tells its damage.
                head = read_head(Path(following), self._opened(following))
            if head is not None:
                require_followed(path, groups.end, state, head)

    def _opened(self, name: str) -> Bytes:
        return opened_in(self._disk, name, self._keys)
