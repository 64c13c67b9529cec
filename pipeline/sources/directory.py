"""A directory of .ibb files: of our server, running or not, or of a MariaDB that is stopped.

Of our server's store what is published beside the files is read, and nothing behind it: that is durable, so no crash
takes it back. A directory without that is MariaDB's; it is read to its end, where a record that is not whole is no
error. MariaDB's own directory must not be read while it runs: it may hold what recovery will remove.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import DataLost, SourceError
from pipeline.groups import Groups, after
from pipeline.wanted import Wanted
from protocol.gtid import BinlogState, SlavePosition
from storage.binlog.file_names import file_name
from storage.binlog.publication import Published, read_published
from storage.binlog.search import FileShape, find_start, first_record
from storage.errors import PositionPurged, TruncatedRecord
from storage.ibb.chunk import Position
from storage.ibb.page import PAGE_SIZE
from storage.inspection.read_only_disk import ReadOnlyDisk
from storage.planning import GtidRange, LogPages, Partition, batches_from, plan, state_of
from storage.redo.format import REDO_NAME

_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """See the module. `path` must be readable under that name by all workers."""

    path: str

    @property
    def name(self) -> str:
        return self.path

    @property
    def is_growing(self) -> bool:
        return self.published() is not None

    def earliest(self) -> SlavePosition:
        return self.beginning().position()

    def beginning(self) -> BinlogState:
        """What had been logged before the first group that is there. Raises as `earliest`."""
        with self._pages() as pages:
            files = pages.files()
            return state_of(pages, files[0]) if files else BinlogState()

    def latest(self) -> SlavePosition:
        published = self.published()
        if published is not None:
            return BinlogState.parse(published.state).position()
        with self._pages() as pages:
            files = pages.files()
            if not files:
                return SlavePosition()
            state = state_of(pages, files[-1])
            begin = Position(files[-1], PAGE_SIZE)
            for groups, _ in _read(pages, first_record(pages, begin, _BEYOND), _BEYOND):
                state.overlay(map(groups.gtid, range(len(groups))))
            return state.position()

    def slices(self, wanted: Wanted, partition_bytes: int) -> Sequence[DirectorySlice]:
        published = self.published()
        end = None if published is None else published.end
        with self._pages() as pages:
            files = pages.files()
            start = wanted.gtids.start
            if start is not None:
                self._check(start, published)
                place = _start(pages, files, start, _BEYOND if end is None else end)
                if place is not None:
                    files = [file_no for file_no in files if file_no >= place.file_no]
            try:
                partitions = plan(
                    pages,
                    files,
                    partition_bytes=partition_bytes,
                    gtids=wanted.gtids,
                    times=wanted.times,
                )
            except PositionPurged as error:
                raise DataLost(f"{self.path}: {error}; {_RESTORE}") from None
        return [DirectorySlice(self.path, partition, end, wanted) for partition in partitions]

    def feed(self) -> DirectoryFeed:
        return DirectoryFeed(self)

    def _check(self, start: SlavePosition, published: Published | None) -> None:
        """Whether the history has come as far as `start`. Raises `DataLost`."""
        if published is None:
            return
        there = BinlogState.parse(published.state)
        for gtid in start:
            last = there.last(gtid.domain_id)
            if last is None or last.seq_no < gtid.seq_no:
                raise DataLost(
                    f"{self.path}: what is behind {gtid} is wanted, but the store ends at '{there}': it is another "
                    "store, or has begun anew (RESET MASTER); begin with a new checkpoint, or put the right store there"
                )

    def published(self) -> Published | None:
        """Raises `SourceError`, `DiskError`."""
        if not Path(self.path).is_dir():
            raise SourceError(f"{self.path} is no directory, or this machine cannot see it")
        disk = ReadOnlyDisk(Path(self.path))
        published = read_published(disk)
        if published is None and REDO_NAME in disk.names():
            raise SourceError(
                f"{self.path}: what is durable is not published there, as after a power cut; start the server once"
            )
        return published

    def _pages(self) -> LogPages:
        published = self.published()
        pages = LogPages(
            ReadOnlyDisk(Path(self.path)), None if published is None else published.end
        )
        if published is None and not pages.files():
            pages.close()
            raise SourceError(f"{self.path} has no .ibb files")
        return pages


@dataclass(frozen=True, slots=True)
class DirectorySlice:
    """A range of pages, up to `end`."""

    path: str
    partition: Partition
    end: Position | None
    wanted: Wanted

    def read(self) -> Iterator[Groups]:
        return (groups for groups in self.read_marked() if len(groups))

    def read_marked(self) -> Iterator[Groups]:
        """See `MarkedSlice`."""
        with LogPages(ReadOnlyDisk(Path(self.path)), self.end) as pages:
            try:
                limit = (
                    self.partition.end if self.end is None else min(self.end, self.partition.end)
                )
                place = first_record(pages, self.partition.begin, limit)
                for groups, _ in _read(pages, place, limit):
                    found = self.wanted.some(groups)
                    if len(found) or found.markers:
                        yield found
            except PositionPurged as error:
                raise DataLost(f"{self.path}: {error}; {_RESTORE}") from None

    def __str__(self) -> str:
        file_no, first, end = self.partition
        return f"{file_name(file_no)}, pages {first} to {end - 1}"


class DirectoryFeed:
    """See `Feed`. Goes on where it ended, if that is asked for."""

    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._pages: LogPages | None = None
        self._at: tuple[SlavePosition, Position] | None = None

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        published = self._source.published()
        deadline = time.monotonic() + wait_s
        while published is not None and time.monotonic() < deadline:
            if BinlogState.parse(published.state).position() != position:
                break
            time.sleep(_POLL_S)
            published = self._source.published()
        end = None if published is None else published.end
        if self._pages is None:
            self._pages = LogPages(ReadOnlyDisk(Path(self._source.path)), end)
        elif end is not None:
            self._pages.move_end(end)
        pages = self._pages
        limit = _BEYOND if end is None else end
        wanted = Wanted(GtidRange(start=position))
        for groups, behind in _read(pages, self._place(pages, position, limit), limit):
            position = after(position, groups)
            self._at = position, behind
            found = wanted.some(groups)
            if len(found):
                yield found

    def _place(self, pages: LogPages, position: SlavePosition, limit: Position) -> Position:
        if self._at is not None and self._at[0] == position:
            return self._at[1]
        files = pages.files()
        start = _start(pages, files, position, limit)
        if start is not None:
            return start
        missed = GtidRange(start=position).misses(state_of(pages, files[0])) if files else None
        if missed is not None:
            raise DataLost(
                f"{self._source.path}: {missed} is wanted, but the store begins behind it; {_RESTORE}"
            )
        return first_record(pages, Position(files[0], PAGE_SIZE), limit) if files else limit

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()


def _start(
    pages: LogPages, files: list[int], position: SlavePosition, limit: Position
) -> Position | None:
    """Where to read for a position; None if no file reaches back to it, as far as servers are concerned."""

    def shape(file_no: int) -> FileShape:
        header = pages.header(file_no)
        if header is None:
            return FileShape(0, 0)
        return FileShape(header.state_interval_pages, header.pages)

    try:
        return find_start(pages, files, shape, position, limit)[0]
    except PositionPurged:
        return None


def _read(pages: LogPages, place: Position, limit: Position) -> Iterator[tuple[Groups, Position]]:
    """Groups, and where they end; whatever is wanted of them."""
    try:
        for batch in batches_from(pages, place, limit):
            yield Groups.of_batch(batch), batch.end
    except TruncatedRecord as error:
        # The torn tail of a log that nobody has recovered, if it is the last thing there is.
        if pages.end is not None or pages.has_data(error.file_no + 1):
            raise


_BEYOND: Final = Position(1 << 62, 0)
_RESTORE: Final = (
    "restore the files, read what was archived, or say failOnDataLoss=false to go on behind the gap"
)
