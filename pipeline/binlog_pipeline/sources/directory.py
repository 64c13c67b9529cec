"""A directory of .ibb files: of our server, running or not, or of a MariaDB that is stopped.

Of our server's store what is published beside the files is read, and nothing behind it: that is durable, so no crash
takes it back. A directory without that is MariaDB's; it is read to its end, where a record that is not whole is no
error. MariaDB's own directory must not be read while it runs: it may hold what recovery will remove.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.disk.local_path import no_directory
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import require_prepared
from binlog_storage.errors import BackupRefused
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_numbers, no_files
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import BEGINNING
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.log.log_file import base_state_from_outside
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import Partition, first_times, plan, stretches
from binlog_storage.log.publication import Published, read_published
from binlog_storage.log.ranges import GtidRange
from binlog_storage.redo.format import REDO_NAME

from binlog_pipeline.belonging import has_passed, require_had, require_there
from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.groups import Groups, after, chosen
from binlog_pipeline.sources.directory_reading import (
    BEYOND,
    RESTORE,
    explained,
    first_place,
    one_history,
    pruned,
    read_groups,
    start_place,
    whole_from,
    within,
)
from binlog_pipeline.sources.source import LogPart
from binlog_pipeline.telling import tell, tell_gap
from binlog_pipeline.wanted import Wanted

_TRIES: Final = 5  # to plan, while files are purged
_POLL_S: Final = 0.01
_STORE: Final = "store"


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """See the module. `path` must be readable under that name by all workers.

    fail_on_data_loss: False goes on at the oldest group that is there, with a warning, where older ones are wanted.
    """

    path: str
    fail_on_data_loss: bool = True

    @property
    def name(self) -> str:
        return self.path

    @property
    def is_growing(self) -> bool:
        return self.published() is not None

    def earliest(self) -> SlavePosition:
        return self.beginning().position()

    def beginning(self) -> BinlogState:
        """The GTID binlog state before the first group that is there. Raises as `earliest`."""
        published = self.published()
        with self._looking(published) as pages:
            files = pages.files()
            self._require_first(files)
            return whole_from(self.path, pages, files)[0]

    def _require_first(self, files: list[int]) -> None:
        """Check that reading can start at the beginning. Raises `DataLost` if files were deleted without a purge."""
        lost = lost_files_of(ReadOnlyDisk(Path(self.path)), files)
        if lost and self.fail_on_data_loss:
            raise DataLost(f"{self.path}: {lost}; {RESTORE}")
        if lost:
            tell(f"{self.path}: {lost}; they are left out, as failOnDataLoss=false says")

    def latest(self) -> SlavePosition:
        return self._state(self.published()).position()

    def _state(self, published: Published | None) -> BinlogState:
        """The binlog state behind all that may be read now."""
        if published is not None:
            return BinlogState.parse(published.state)
        with explained(self.path), self._pages(None) as pages:
            for file_no in reversed(pages.files()):
                state = base_state_from_outside(pages, file_no)
                place = first_place(self.path, pages, Position(file_no, PAGE_SIZE), BEYOND)
                found = False
                for groups, _ in read_groups(self.path, pages, place, BEYOND):
                    state.overlay(map(groups.gtid, range(len(groups))))
                    found = found or len(groups) > 0
                if found:  # else the state may tell of a group that began in the file before, and never ends
                    break
            return state

    def has_passed(self, position: SlavePosition) -> bool:
        state = self._state(self.published())
        if not has_passed(self.name, _STORE, position, state):
            return False
        require_there(self.name, self._read, _STORE, position, before=self.beginning(), state=state)
        return True

    def _read(self, wanted: Wanted) -> Iterator[Groups]:
        for part in self.slices(wanted, 1):
            yield from part.read()

    def slices(self, wanted: Wanted, partition_bytes: int) -> Sequence[DirectorySlice]:
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._slices(wanted, partition_bytes)
            except DataLost:
                if self.fail_on_data_loss or not tries_left:
                    raise
        raise AssertionError("not reached")

    def _slices(self, wanted: Wanted, partition_bytes: int) -> list[DirectorySlice]:
        published = self.published()
        with self._looking(published) as pages:
            files, begin = self._files(pages, wanted, published)
            partitions = plan(
                pages,
                files,
                partition_bytes=partition_bytes,
                gtids=self._pruned(pages, files, wanted, published),
                times=within(wanted),
            )
        return [
            DirectorySlice(
                self.path, partition, pages.end, wanted, published, self.fail_on_data_loss, begin
            )
            for partition in partitions
            if partition.end > begin
        ]

    def parts(self, wanted: Wanted) -> list[LogPart]:
        """Parts, each from one GTID state to the next. See `ListedSource`."""
        published = self.published()
        with self._looking(published) as pages:
            files, begin = self._files(pages, wanted, published)
            gtids = self._pruned(pages, files, wanted, published)
            found = stretches(pages, files, gtids=gtids, times=within(wanted))
            found = [stretch for stretch in found if stretch.partition.end > begin]
            times = [first_times(pages, stretch) for stretch in found]
        end = None if published is None else published.state
        made = []
        for i, stretch in enumerate(found):
            file_no, first, last = stretch.partition
            follows = i + 1 < len(found) and found[i + 1].state is stretch.behind
            later = times[i + 1] if follows else []
            near = [*times[i], *later]
            made.append(
                LogPart(
                    file_no,
                    first,
                    last,
                    (last - first) * PAGE_SIZE,
                    str(stretch.state),
                    end if stretch.behind is None else str(stretch.behind),
                    min(near, default=None),
                    max(near) if later else None,
                    None,
                )
            )
        return made

    def _files(
        self, pages: LogPages, wanted: Wanted, published: Published | None
    ) -> tuple[list[int], Position]:
        """The files needed for the range, and a place in front of which nothing is whole. Raises `DataLost`."""
        files, start = pages.files(), wanted.gtids.start
        if start is None:
            self._require_first(files)
        oldest, begin = whole_from(self.path, pages, files)
        if start is None or not files:
            return files, begin
        self.check_history(start, published)
        place = start_place(pages, files, start, pages.end or BEYOND)
        if place is not None:
            files = [file_no for file_no in files if file_no >= place.file_no] or files
        if place is not None and place >= begin:
            oldest = base_state_from_outside(pages, files[0])
        self.check_beginning(start, wanted.gtids, oldest)
        return files, begin

    def _pruned(
        self, pages: LogPages, files: list[int], wanted: Wanted, published: Published | None
    ) -> GtidRange:
        if not files:
            return GtidRange()
        oldest = base_state_from_outside(pages, files[0])
        if published is not None:
            domains = BinlogState.parse(published.state).domains()
            return pruned(wanted, oldest, set(domains), are_all=True)
        domains = base_state_from_outside(pages, files[-1]).domains()
        return pruned(wanted, oldest, set(domains), are_all=False)

    def feed(self) -> DirectoryFeed:
        return DirectoryFeed(self)

    def check_beginning(self, start: SlavePosition, wanted: GtidRange, oldest: BinlogState) -> None:
        """Whether the store reaches back to what is wanted behind `start`. Raises `DataLost`, or tells of the gap."""
        missed = wanted.misses(oldest)
        if missed is None:
            return
        if self.fail_on_data_loss:
            raise DataLost(
                f"{self.path}: {missed} is wanted, but the store begins behind it; {RESTORE}"
            )
        tell_gap(self.path, start, oldest)

    def check_history(self, start: SlavePosition, published: Published | None) -> None:
        """Whether `start` is of this history. Raises `DataLost`."""
        if published is None:
            # What is in front of the last file is known without reading that.
            with explained(self.path), self._pages(None) as pages:
                before = base_state_from_outside(pages, pages.files()[-1])
            if all(map(before.has, start)):
                return
        require_had(self.path, _STORE, start, self._state(published))

    def published(self) -> Published | None:
        """Raises `SourceError`, `DiskError`."""
        path = Path(self.path)
        if not path.is_dir():
            raise SourceError(no_directory(path))
        disk = ReadOnlyDisk(path)
        published = read_published(disk)
        if published is None and REDO_NAME in disk.names():
            try:
                require_prepared(disk, self.path)
            except BackupRefused as error:
                raise SourceError(str(error)) from None
            raise SourceError(
                f"{self.path}: what is durable is not published there: a server is starting for the first time, or the "
                "machine has crashed; wait until the server takes connections, or start it once"
            )
        # A server over traditional files publishes, too, but without a state. Taken for an .ibb store
        # such a directory would be an empty one: sound, and with nothing to export or to archive.
        if published is not None and not published.state:
            names = disk.names()
            if not file_numbers(names) and any(name.endswith(".index") for name in names):
                raise SourceError(f"{self.path} {no_files(names)}")
        return published

    @contextmanager
    def _looking(self, published: Published | None) -> Iterator[LogPages]:
        """The pages, and what they tell is of the history of `published`. Raises `SourceError`, `DataLost`."""
        with (
            one_history(self.path, published),
            explained(self.path),
            self._pages(published) as pages,
        ):
            yield pages

    def _pages(self, published: Published | None) -> LogPages:
        """Raises `SourceError` where there are none."""
        end = None if published is None else published.end
        pages = LogPages(ReadOnlyDisk(Path(self.path)), end)
        if published is None and not pages.files():
            pages.close()
            raise SourceError(f"{self.path} {no_files(ReadOnlyDisk(Path(self.path)).names())}")
        return pages


@dataclass(frozen=True, slots=True)
class DirectorySlice:
    """A range of pages, up to `end`.

    published: what was when this was planned.
    begin: nothing is read in front of it, as groups there are not whole.
    """

    path: str
    partition: Partition
    end: Position | None
    wanted: Wanted
    published: Published | None = None
    fail_on_data_loss: bool = True
    begin: Position = BEGINNING

    def read(self) -> Iterator[Groups]:
        return (groups for groups in self.read_marked() if len(groups))

    def read_marked(self) -> Iterator[Groups]:
        """See `MarkedSlice`."""
        disk = ReadOnlyDisk(Path(self.path))
        limit = self.partition.end if self.end is None else min(self.end, self.partition.end)
        with LogPages(disk, self.end) as pages:
            try:
                with one_history(self.path, self.published):
                    with explained(self.path):
                        if not pages.has_data(self.partition.file_no):
                            raise DataLost(f"{self.path}: {self} has gone meanwhile; {RESTORE}")
                    place = first_place(self.path, pages, self.partition.begin, limit)
                    place = max(place, min(self.begin, limit))
            except DataLost as error:
                if self.fail_on_data_loss:
                    raise
                tell(f"{error}; left out, as failOnDataLoss=false says")
                return
            read = (
                groups for groups, _ in read_groups(self.path, pages, place, limit, self.published)
            )
            yield from chosen(read, self.wanted.mask)

    def __str__(self) -> str:
        file_no, first, end = self.partition
        return f"{file_name(file_no)}, pages {first} to {end - 1}"


class DirectoryFeed:
    """Follows a directory that a server writes; see `Feed`. A call may go on where the last one ended."""

    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._history: tuple[bytes, int] | None = None
        self._pages: LogPages | None = None
        self._at: tuple[SlavePosition, Position] | None = None

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        path = self._source.path
        published = self._wait(position, wait_s)
        if published is not None or self._at is None or self._at[0] != position:
            self._source.check_history(position, published)
        while True:
            try:
                with one_history(path, published), explained(path):
                    pages, limit = self._open(published)
                    place = self._place(pages, position, limit)
                wanted = Wanted(GtidRange(start=position))
                for groups, behind in read_groups(path, pages, place, limit, published):
                    found = wanted.some(groups)
                    position = after(position, found)
                    self._at = position, behind
                    if len(found):
                        yield found
                return
            except DataLost:
                if self._source.fail_on_data_loss or not self._has_purged(position):
                    raise
                self.close()  # and once more, from the oldest that is there

    def _wait(self, position: SlavePosition, wait_s: float) -> Published | None:
        """The published state, once it is behind `position` or `wait_s` seconds are over; None if none is published."""
        deadline = time.monotonic() + wait_s
        while True:
            published = self._source.published()
            if published is None or time.monotonic() >= deadline:
                return published
            if BinlogState.parse(published.state).position() != position:
                return published
            time.sleep(_POLL_S)

    def _open(self, published: Published | None) -> tuple[LogPages, Position]:
        """The pages there are, and where they end."""
        if published is None:
            if self._pages is None:
                self._pages = LogPages(ReadOnlyDisk(Path(self._source.path)))
            return self._pages, BEYOND
        history = published.uuid, published.epoch
        if self._history != history:  # positions may have begun anew
            self.close()
            self._history = history
        if self._pages is None:
            self._pages = LogPages(ReadOnlyDisk(Path(self._source.path)), published.end)
        else:
            self._pages.move_end(published.end)
        return self._pages, published.end

    def _place(self, pages: LogPages, position: SlavePosition, limit: Position) -> Position:
        if self._at is not None and self._at[0] == position:
            return self._at[1]
        files = pages.files()
        start = start_place(pages, files, position, limit)
        if not files:
            return limit if start is None else start
        path = self._source.path
        oldest, begin = whole_from(path, pages, files)
        if start is not None and start >= begin:
            return start
        self._source.check_beginning(position, GtidRange(start=position), oldest)
        return max(first_place(path, pages, Position(files[0], PAGE_SIZE), limit), begin)

    def _has_purged(self, position: SlavePosition) -> bool:
        """Whether what is wanted was purged meanwhile: else trying again would be no use."""
        return GtidRange(start=position).misses(self._source.beginning()) is not None

    def latest(self) -> SlavePosition:
        return self._source.latest()

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
        self._pages = self._at = None
