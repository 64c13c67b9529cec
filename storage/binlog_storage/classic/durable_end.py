"""The durable end of a traditional store, for other processes: `binlog-server.durable`, as `.ibb` stores have it.

What lies behind it may be lost in a power cut. A thread writes it, so it may be a little old, and never says too much.
A MariaDB that goes on in the directory leaves it as it is, or begins the binlog anew: so the uuid of a slot is a hash
of the head of the file in which the end lies, and an end of another file is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import BinlogState

from binlog_storage.binlog.worker import Worker
from binlog_storage.classic.binlog import FileHead, read_head
from binlog_storage.classic.encryption import Keys, given_to_read
from binlog_storage.classic.stored_files import Extent
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.read_only_disk import ReadableDisk, ReadOnlyDisk
from binlog_storage.errors import DiskError, PositionPurged, StorageError
from binlog_storage.log.publication import Publication, Published, read_published

_PUBLISH_S: Final = 0.05
_RETRY_S: Final = 60.0


def _mark(head: FileHead) -> bytes:
    """Of a file: without its format description, which a start marker replaces."""
    return hashlib.blake2b(b"".join(head.events[1:]), digest_size=16).digest()


def durable_end(disk: ReadableDisk, heads: Sequence[FileHead]) -> tuple[int, int] | None:
    """Which of these files, as an index named them in their order, has the durable end, and its offset there.

    None: nothing is published, or not of them: all that is whole in them may be read. Raises `DiskError`.
    """
    published = read_published(disk)
    if published is None:
        return None
    for at, head in enumerate(heads):
        if _number(head.path) == published.end.file_no and _mark(head) == published.uuid:
            return at, published.end.offset
    return None


def durable_sizes(paths: Iterable[Path], keys: Keys | None = None) -> dict[Path, int]:
    """By file in which its directory says that the durable end lies, the offset of that. `keys`: for encrypted ones."""
    found: dict[Path, int] = {}
    published: dict[Path, Published | None] = {}
    for path in paths:
        with contextlib.suppress(StorageError, OSError):
            if path.parent not in published:
                published[path.parent] = None
                published[path.parent] = read_published(ReadOnlyDisk(path.parent))
            end = published[path.parent]
            if end is None or end.end.file_no != _number(path):
                continue
            if _mark(read_head(path, given_to_read(keys, path))) == end.uuid:
                found[path] = end.end.offset
    return found


def _number(path: Path) -> int | None:
    suffix = path.suffix[1:]
    return int(suffix) if suffix.isdecimal() else None


class DurableEnd:
    """Publishes that of an open store.

    Args:
        extent, age: give those of the store.
        head: gives that of a file.
    """

    def __init__(
        self,
        disk: Disk,
        extent: Callable[[], Extent],
        age: Callable[[], int],
        head: Callable[[int], FileHead],
    ) -> None:
        self._disk = disk
        self._extent = extent
        self._age = age
        self._head = head
        self._publication: Publication | None = None
        self._due = True
        self._published_at = 0.0
        self.worker: Final = Worker("binlog-publication", self._round, retry_s=_RETRY_S)

    def moved(self) -> None:
        """The end has moved. From any thread."""
        if not self._due:
            self._due = True
            self.worker.poke()

    def publish(self) -> None:
        """Say where it is now. In one thread at a time. Raises `DiskError`."""
        self._due = False  # what comes from here on is asked for again
        try:
            end, age = self._extent().durable, self._age()
            publication = self._publication
            if publication is None:
                publication = self._publication = Publication(self._disk, b"")
            if (end, age) != (publication.end, publication.epoch):
                publication.uuid = _mark(self._head(end.file_no))
                publication.publish(age, end, BinlogState())
        except PositionPurged:  # RESET MASTER is at work, and wakes behind it
            pass
        except DiskError:
            self._due = True
            raise

    def step(self) -> None:
        """One round, at once."""
        self._published_at = -_PUBLISH_S
        self.worker.step()

    def _round(self) -> float | None:
        wait = self._published_at + _PUBLISH_S - time.monotonic()
        if wait > 0:
            return wait
        if self._due:
            self.publish()
            self._published_at = time.monotonic()
        return None

    def close(self) -> None:
        """Let go of the file; what it says stays."""
        if self._publication is not None:
            self._publication.close()
