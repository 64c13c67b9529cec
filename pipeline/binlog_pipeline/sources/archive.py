"""An archive: Parquet parts with groups as they were in the log, and a manifest of them.

Which parts are read is told by the manifest alone. A part is believed only if the file is as it was written, byte by
byte; else the error names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.archive.archive import Archive, PlacedPart
from binlog_storage.archive.manifest import ArchiveChunk, ArchivePart
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.part_rows import PartRows
from binlog_storage.archive.places import open_place
from binlog_storage.log.ranges import GtidRange, TimeRange

from binlog_pipeline.belonging import has_passed, require_had, require_there
from binlog_pipeline.errors import DataLost
from binlog_pipeline.groups import Groups, after, chosen
from binlog_pipeline.sources.directory_reading import pruned, within
from binlog_pipeline.sources.source import LogPart
from binlog_pipeline.telling import tell_gap
from binlog_pipeline.wanted import Wanted

_POLL_S: Final = 0.05
_ARCHIVE: Final = "archive"


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """See the module. `path` must be readable under that name by all workers.

    fail_on_data_loss: False goes on at the beginning of the archive, with a warning, where older groups are wanted.
    """

    path: str
    fail_on_data_loss: bool = True

    @property
    def name(self) -> str:
        return self.path

    @property
    def is_growing(self) -> bool:
        """True: another run of `archive` may add parts at any time."""
        return True

    def beginning(self) -> BinlogState:
        """The GTID binlog state before the first group. Raises as `earliest`."""
        return self.open().begin

    def earliest(self) -> SlavePosition:
        return self.beginning().position()

    def latest(self) -> SlavePosition:
        return self.open().manifest.state.position()

    def has_passed(self, position: SlavePosition) -> bool:
        archive = self.open()
        state = archive.manifest.state
        if not has_passed(self.name, _ARCHIVE, position, state):
            return False
        require_there(self.name, self._read, _ARCHIVE, position, before=archive.begin, state=state)
        return True

    def _read(self, wanted: Wanted) -> Iterator[Groups]:
        for part in self.slices(wanted, 1):
            yield from part.read()

    def slices(self, wanted: Wanted, partition_bytes: int) -> Sequence[ArchiveSlice]:
        archive = self.open()
        self.check(archive, wanted.gtids)
        joined: list[list[ArchivePart]] = []
        size = 0
        for placed in wanted_parts(archive, wanted):
            size += placed.part.payload_bytes
            if (
                size > partition_bytes or not joined
            ):  # the first may have no groups, but start markers
                joined.append([])
                size = placed.part.payload_bytes
            joined[-1].append(placed.part)
        return [ArchiveSlice(self.path, tuple(parts), wanted) for parts in joined]

    def parts(self, wanted: Wanted) -> list[LogPart]:
        """The parts of the archive, by their numbers. See `ListedSource`."""
        archive = self.open()
        self.check(archive, wanted.gtids)
        return [
            LogPart(
                placed.number,
                None,
                None,
                placed.part.payload_bytes,
                str(placed.before),
                str(placed.after),
                placed.part.ts_min,
                placed.part.ts_max,
                placed.part.groups,
            )
            for placed in wanted_parts(archive, wanted)
        ]

    def feed(self) -> ArchiveFeed:
        return ArchiveFeed(self)

    def open(self) -> Archive:
        """The archive at this moment. Raises `NotAnArchive`, `ArchiveDamaged`, `DiskError`."""
        return Archive.open(self.path)

    def check(self, archive: Archive, gtids: GtidRange) -> None:
        """Whether the archive reaches back to what is wanted, and has come as far. Raises `DataLost`."""
        missed = gtids.misses(archive.begin)
        if missed is not None and not self.fail_on_data_loss:
            tell_gap(self.path, gtids.start or SlavePosition(), archive.begin)
        elif missed is not None:
            raise DataLost(
                f"{self.path}: {missed} is wanted, but the archive begins behind it, at '{archive.begin}'; give an "
                "archive that reaches back to it, or say failOnDataLoss=false to go on behind the gap"
            )
        require_had(self.path, _ARCHIVE, gtids.start or SlavePosition(), archive.manifest.state)


@dataclass(frozen=True, slots=True)
class ArchiveSlice:
    """Parts of an archive that follow each other."""

    path: str
    parts: tuple[ArchivePart, ...]
    wanted: Wanted

    def read(self) -> Iterator[Groups]:
        return (groups for groups in self.read_marked() if len(groups))

    def read_marked(self) -> Iterator[Groups]:
        """See `MarkedSlice`."""
        read = (groups for part in self.parts for groups in _read(self.path, part))
        yield from chosen(read, self.wanted.mask)

    def __str__(self) -> str:
        first, last = self.parts[0].name, self.parts[-1].name
        return f"{self.path}: {first}" + (f" to {last}" if first != last else "")


class ArchiveFeed:
    """Follows an archive that somebody may add parts to; see `Feed`."""

    def __init__(self, source: ArchiveSource) -> None:
        self._source: Final = source

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        deadline = time.monotonic() + wait_s
        archive = self._source.open()
        while archive.manifest.state.position() == position and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            archive = self._source.open()
        wanted = Wanted(GtidRange(start=position))
        self._source.check(archive, wanted.gtids)
        for placed in wanted_parts(archive, wanted):
            for groups in _read(self._source.path, placed.part):
                found = wanted.some(groups)
                position = after(position, groups)
                if len(found):
                    yield found

    def latest(self) -> SlavePosition:
        return self._source.latest()

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def wanted_parts(archive: Archive, wanted: Wanted) -> Iterator[PlacedPart]:
    """The parts that may hold wanted groups, with their places. Raises as `Archive.parts`."""
    gtids = pruned(wanted, archive.begin, set(archive.manifest.state.domains()), are_all=True)
    times = within(wanted) or TimeRange()

    def may_hold(one: ArchiveChunk | ArchivePart, before: BinlogState, behind: BinlogState) -> bool:
        if gtids.is_reached(before) or gtids.is_all_seen(behind):
            return False
        # The times of a part are those of its groups, not samples.
        return replace(times, slack=0).may_have(one.ts_min, one.ts_max)

    def chunk_may_hold(chunk: ArchiveChunk, before: BinlogState) -> bool:
        return may_hold(chunk, before, BinlogState.parse(chunk.state))

    for placed in archive.parts(chunk_may_hold):
        if may_hold(placed.part, placed.before, placed.after):
            yield placed


def _read(path: str, part: ArchivePart) -> Iterator[Groups]:
    for rows in PartReader(open_place(path), part).rows():
        yield _groups(rows)


def _groups(rows: PartRows) -> Groups:
    if rows.large is not None:
        return Groups.of_large(rows.large)
    payloads = rows.payloads()
    is_marker = rows.is_marker
    if not is_marker.any():
        return Groups(payloads, rows.file, rows.offset)
    found: list[bytes] = []
    markers: list[tuple[int, bytes]] = []
    for payload, marker in zip(payloads, is_marker.tolist(), strict=True):
        if marker:
            markers.append((len(found), payload))
        else:
            found.append(payload)
    return Groups(found, rows.file[~is_marker], rows.offset[~is_marker], None, markers)
