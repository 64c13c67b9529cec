"""Facts for the manifest about a part that is being written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.disk.durable_files import sync_file

from binlog_pipeline.groups import Groups

_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class PartFacts:
    """Facts of a part, gathered while it is written: its groups are added in their order, and their bytes as well."""

    groups: int = 0
    payload_bytes: int = 0
    markers: int = 0
    markers_behind: int = 0
    crc32c: int = 0
    first: str = ""
    last: str = ""
    first_place: tuple[int, int] = (0, 0)
    last_place: tuple[int, int] = (0, 0)
    last_sha256: str = ""
    times: list[int] = field(default_factory=list)
    _last_of: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.groups and not self.markers

    def add(self, groups: Groups) -> None:
        """Note GTIDs, places and times of groups; their bytes are for `add_bytes`."""
        count = len(groups)
        behind = sum(at == count for at, _ in groups.markers)
        self.markers_behind = behind if count else self.markers_behind + behind
        if not count:
            return
        if not self.groups:
            self.first, self.first_place = str(groups.gtid(0)), groups.place(0)
        self.groups += count
        self.last, self.last_place = str(groups.gtid(count - 1)), groups.place(count - 1)
        if groups.large is None:
            self.last_sha256 = hashlib.sha256(groups.payloads[-1]).hexdigest()
        self.times += [int(groups.timestamp.min()), int(groups.timestamp.max())]
        for i in _lasts(groups):
            domain, server, seq = groups.gtid(i)
            self._last_of.pop((domain, server), None)  # to the end: in the order of the log
            self._last_of[domain, server] = seq

    def add_bytes(self, data: bytes) -> None:
        """Add the bytes of groups that were added."""
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        self.payload_bytes += len(data)

    def note_marker(self, marker: bytes) -> None:
        """Note a start marker that is written into the part."""
        self.markers += 1
        self.times.append(marker_time(marker))

    def part(self, path: Path) -> ArchivePart:
        """The manifest's entry for the part in `path`, which is synced."""
        sync_file(path)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
        return ArchivePart(
            size=path.stat().st_size,
            sha256=digest.hexdigest(),
            groups=self.groups,
            payload_bytes=self.payload_bytes,
            crc32c=self.crc32c,
            first=self.first,
            last=self.last,
            gtids=",".join(f"{d}-{s}-{seq}" for (d, s), seq in self._last_of.items()),
            last_sha256=self.last_sha256,
            ts_min=min(self.times),
            ts_max=max(self.times),
            last_place=self.last_place,
            markers_behind=self.markers_behind,
            name=path.name,
        )


def _lasts(groups: Groups) -> list[int]:
    """The last group of each domain and server, in their order."""
    key = (groups.domain.astype(np.uint64) << np.uint64(32)) | groups.server.astype(np.uint64)
    if (key == key[-1]).all():
        return [len(key) - 1]
    _, from_end = np.unique(key[::-1], return_index=True)
    return sorted((len(key) - 1 - from_end).tolist())


def marker_time(marker: bytes) -> int:
    """The time of a start marker: when the server started, in seconds since 1970."""
    return int.from_bytes(marker[:4], "little")
