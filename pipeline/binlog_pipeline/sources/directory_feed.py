"""Following a directory of .ibb files to which a server of ours adds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.publication import Published
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.errors import DataLost
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.directory_reading import (
    BEYOND,
    RESTORE,
    explained,
    first_place,
    one_history,
    read_groups,
    start_place,
    whole_from,
)
from binlog_pipeline.telling import tell_gap
from binlog_pipeline.wanted import Wanted

if TYPE_CHECKING:
    from binlog_pipeline.sources.directory import DirectorySource

_POLL_S: Final = 0.01


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
        oldest, begin = whole_from(path, pages, files, limit)
        if start is not None and start >= begin:
            return start
        missed = GtidRange(start=position).misses(oldest)
        if missed is not None:
            if self._source.fail_on_data_loss:
                raise DataLost(
                    f"{path}: {missed} is wanted, but the store begins behind it; {RESTORE}"
                )
            tell_gap(path, position, oldest)
        return max(first_place(path, pages, Position(files[0], PAGE_SIZE), limit), begin)

    def _has_purged(self, position: SlavePosition) -> bool:
        """Whether what is wanted was purged meanwhile: else trying again would be no use."""
        return GtidRange(start=position).misses(self._source.beginning()) is not None

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
        self._pages = self._at = None
