"""The plan of an archive run: the groups of a source that an archive does not have yet.

A directory is gone on with at the very place where the archive ended, if the group that ends there is the archive's
last one, byte by byte. Else, and at other sources, the position tells where; then that group is looked for by its GTID.
What purge has left of groups that began in files that have gone is passed over: the archive has those, or nobody has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.archive.manifest import ArchiveManifest, ArchivePart
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.log_file import base_state_from_outside
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import plan
from binlog_storage.log.ranges import GtidRange
from binlog_storage.log.stored_groups import digest

from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.jobs.archive_part import ArchiveItem
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySlice, DirectorySource
from binlog_pipeline.sources.directory_reading import whole_from
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.wanted import Wanted

_LOOK_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The parts to write, in this order.

    size: bytes to be read, about; 0 where that is not known.
    end: the state that the archive must have afterwards; None where that is not known.
    """

    items: Sequence[ArchiveItem]
    size: int = 0
    end: BinlogState | None = None


def beginning(source: LogSource) -> BinlogState:
    """The GTID binlog state before the first group of the source. Raises `SourceError`, `StorageError`."""
    if isinstance(source, DirectorySource | ArchiveSource):
        return source.beginning()
    return BinlogState(source.earliest())


def plan_archive(
    source: LogSource, manifest: ArchiveManifest, partition_bytes: int, *, tail: bool
) -> ArchivePlan:
    """The groups of the source behind the archive. Raises `SourceError`, `DataLost`, `StorageError`.

    Args:
        tail: also of the file that is being written, if the source is a directory.
    """
    if isinstance(source, DirectorySource):
        return _plan_directory(source, manifest, partition_bytes, tail)
    _require_last(source, manifest)
    wanted = Wanted(GtidRange(manifest.state.position(), source.latest()))
    return ArchivePlan([ArchiveItem(part) for part in source.slices(wanted, partition_bytes)])


def _plan_directory(
    source: DirectorySource, manifest: ArchiveManifest, partition_bytes: int, tail: bool
) -> ArchivePlan:
    published = source.published()
    written_to = None if published is None else published.end
    with LogPages(ReadOnlyDisk(Path(source.path)), written_to) as pages:
        files = there = pages.files()
        end = None if published is None else BinlogState.parse(published.state)
        if published is not None and not tail and published.end.file_no in there:
            end = base_state_from_outside(pages, published.end.file_no)
            files = [number for number in there if number < published.end.file_no]
        oldest, whole = whole_from(source.path, pages, there)
        start = _place(source.path, pages, there, manifest, oldest, whole)
        wanted = Wanted()
        if start is None:
            _require_last(source, manifest)
            wanted = Wanted(GtidRange(manifest.state.position()))
            _require_not_purged(source, wanted.gtids, oldest)
        elif not files or start.file_no > files[-1]:
            return ArchivePlan([])
        files = [number for number in files if start is None or number >= start.file_no]
        parts = plan(pages, files, partition_bytes=partition_bytes, gtids=wanted.gtids)
    begin = whole if start is None else start
    items = [
        ArchiveItem(
            DirectorySlice(source.path, part, written_to, wanted, published, begin=whole),
            begin if start is not None and part.begin < begin else None,
            manifest.known_markers if not number and start is not None else 0,
        )
        for number, part in enumerate(part for part in parts if part.end > begin)
    ]
    size = sum(part.end_page - part.first_page for part in parts) * PAGE_SIZE
    return ArchivePlan(items, size, end)


def _require_not_purged(source: DirectorySource, wanted: GtidRange, oldest: BinlogState) -> None:
    """Raises `DataLost` if something of the range is in front of what is whole."""
    missed = wanted.misses(oldest)
    if missed is not None:
        raise DataLost(
            f"{source.name}: {missed} is not archived, but the store begins behind it; restore the "
            "files, or begin another archive"
        )


def _place(
    path: str,
    pages: LogPages,
    files: list[int],
    manifest: ArchiveManifest,
    oldest: BinlogState,
    whole: Position,
) -> Position | None:
    """The place to go on from; None if it is not known by place.

    Args:
        oldest, whole: as of `whole_from`.
    """
    last = manifest.last_part
    if not files:
        return None
    if last is not None:
        file_no, offset = last.last_place
        place = Position(file_no - last.file_base, offset)
        if place > whole:
            return place if _ends_there(path, pages, files, place, last, whole) else None
    return (
        whole if oldest == manifest.state else None
    )  # nothing was archived, or just that was purged


def _ends_there(
    path: str,
    pages: LogPages,
    files: list[int],
    place: Position,
    last: ArchivePart,
    whole: Position,
) -> bool:
    """Whether the last group of the archive ends at that place; what is in front of `whole` is not read."""
    if place.file_no not in files:
        return False
    parts = plan(pages, [place.file_no], partition_bytes=_LOOK_BYTES)
    # Its record begins in the range that the place is in, or in one before.
    for part in reversed([part for part in parts if part.begin < place]):
        for groups in DirectorySlice(path, part, pages.end, Wanted(), begin=whole).read():
            at = (groups.file == place.file_no) & (groups.offset == place.offset)
            if at.any():
                return _is_last(groups.some(at), last)
    return False


def _is_last(found: Groups, last: ArchivePart) -> bool:
    return found.gtid(0) == last.last_gtid and digest(found.pieces(0)).hex() == last.last_sha256


def _require_last(source: LogSource, manifest: ArchiveManifest) -> None:
    """Raises `SourceError` if the source has another group by the name of the archive's last, `DataLost` if none."""
    last, position = manifest.last_part, manifest.state.position()
    if last is None:
        return
    domain, server, seq = last.last_gtid
    before = SlavePosition(gtid for gtid in position if gtid.domain_id != domain)
    if seq > 1:
        before = before.with_gtid(Gtid(domain, server, seq - 1))
    try:
        for found in _groups(source, Wanted(GtidRange(before, position))):
            here = (found.domain == domain) & (found.server == server) & (found.seq == seq)
            if here.any():
                if _is_last(found.some(here), last):
                    return
                raise SourceError(
                    f"{source.name}: its group {last.last} is another one than the last group of the archive: the "
                    "histories differ. Give the source that was archived, or begin another archive"
                )
    except DataLost:
        pass
    if source.earliest() != position:
        raise DataLost(
            f"{source.name}: the archive ends with {last.last}, at '{position}', and the source does not have that "
            "group: what is between may be lost. Give the source that was archived, or begin another archive"
        )


def _groups(source: LogSource, wanted: Wanted) -> Iterable[Groups]:
    for part in source.slices(wanted, _LOOK_BYTES):
        yield from part.read()
