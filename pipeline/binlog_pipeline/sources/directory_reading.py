"""Reading .ibb files for a source: groups one behind the other, and errors that say where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine import LargeGroup
from binlog_storage.errors import (
    REPAIR,
    CorruptBinlog,
    PositionPurged,
    StorageError,
    TruncatedRecord,
)
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.records import BEGINNING
from binlog_storage.log import halves
from binlog_storage.log.log_file import first_record
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import batches_from
from binlog_storage.log.pending_redo import is_being_reset
from binlog_storage.log.publication import Published, read_published
from binlog_storage.log.ranges import GtidRange, TimeRange
from binlog_storage.log.search import FileShape, find_start

from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.wanted import Wanted, unreached

BEYOND: Final = Position(1 << 62, 0)
RESTORE: Final = (
    "restore the files, read what was archived, or say failOnDataLoss=false to go on behind the gap"
)
_U64_MAX: Final = (1 << 64) - 1


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Raise errors of the store as errors of a directory, with advice: `DataLost`, `SourceError`."""
    try:
        yield
    except PositionPurged as error:
        raise DataLost(f"{path}: {error}; {RESTORE}") from None
    except CorruptBinlog as error:
        raise SourceError(f"{path}: {error}; {REPAIR}") from None
    except StorageError as error:
        raise SourceError(f"{path}: {error}") from error


@contextmanager
def one_history(path: str, then: Published | None) -> Iterator[None]:
    """Check that all that is read within belongs to one history, `then`. Raises `SourceError` after a RESET MASTER.

    Files that it deletes are no damage, and those that it makes have other groups at the same places.
    """
    try:
        yield
    except SourceError:
        require_history(path, then)
        raise
    require_history(path, then)


def require_history(path: str, then: Published | None) -> None:
    """Positions begin anew with a RESET MASTER; the other way to a new epoch is a start of the server."""
    if then is None:
        return
    disk = ReadOnlyDisk(Path(path))
    with explained(path):
        now = read_published(disk)
        if now is None:
            return  # what is there is all that can be known
        begun_anew = is_being_reset(disk, now)
    if not begun_anew and not now.is_of(then.uuid, then.epoch):
        position = BinlogState.parse(now.state).position()
        is_behind = GtidRange(position).is_all_seen(BinlogState.parse(then.state))
        begun_anew = now.uuid != then.uuid or now.end < then.end or not is_behind
    if begun_anew:
        raise SourceError(
            f"{path}: the store has begun anew (RESET MASTER) since the query was planned; start the "
            "query anew, when the server runs"
        )


def read_groups(
    path: str,
    pages: LogPages,
    place: Position,
    limit: Position,
    published: Published | None = None,
) -> Iterator[tuple[Groups, Position]]:
    """Groups, and where they end; whatever is wanted of them. Raises `DataLost`, `SourceError`."""
    while True:
        with one_history(path, published), explained(path):
            try:
                batch = next(batches_from(pages, place, limit), None)
            except TruncatedRecord as error:
                torn = Position(error.file_no, error.offset)
                if not _is_tail(pages, torn) or torn >= limit:
                    raise
                limit = torn  # what the same batch has in front of it is sound
                continue
            if batch is None:
                return
            groups = Groups.of_batch(batch)
        if groups.large is not None:
            groups = Groups.of_large(_explained_large(path, groups.large, published))
        yield groups, batch.end
        place = batch.end


def first_place(path: str, pages: LogPages, begin: Position, limit: Position) -> Position:
    """The place of the first record behind a state record; `limit` if none is whole."""
    with explained(path):
        return _or_tail(pages, limit, lambda: first_record(pages, begin, limit))


def _or_tail(pages: LogPages, limit: Position, find: Callable[[], Position]) -> Position:
    """The result of `find`; `limit` if it meets a torn tail."""
    try:
        return find()
    except TruncatedRecord as error:
        if not _is_tail(pages, Position(error.file_no, error.offset)):
            raise
        return limit


def _is_tail(pages: LogPages, torn: Position) -> bool:
    """Whether a record that is cut short is the last thing there is, of a log that nobody has recovered."""
    if pages.end is not None:
        return False
    last = torn.file_no
    while pages.has_data(last + 1):  # it may go on there
        last += 1
    return last == pages.files()[-1]


def _explained_large(path: str, large: LargeGroup, published: Published | None) -> LargeGroup:
    def pieces() -> Iterator[bytes]:
        with one_history(path, published), explained(path):
            yield from large.pieces()

    return replace(large, pieces=pieces)


def start_place(
    pages: LogPages, files: list[int], position: SlavePosition, limit: Position
) -> Position | None:
    """The place to read from for a position; None if no file reaches back to it, by the rule of servers.

    `limit` if nothing whole begins behind it.
    """

    def shape(file_no: int) -> FileShape:
        header = pages.header(file_no)
        if header is None:
            return FileShape(0, 0)
        return FileShape(header.state_interval_pages, header.pages)

    try:
        return _or_tail(pages, limit, lambda: find_start(pages, files, shape, position, limit)[0])
    except PositionPurged:
        return None


def whole_from(path: str, pages: LogPages, files: list[int]) -> tuple[BinlogState, Position]:
    """The state, and the place, from which on all groups are whole: purge may have left halves in the first files.

    `files`: all that there are.
    """
    if not files:
        return BinlogState(), BEGINNING
    with explained(path):
        return halves.whole_from(pages, files, pages.end or BEYOND)


def within(wanted: Wanted) -> TimeRange | None:
    """The range of times in which groups are wanted; None for all."""
    parts = [part for part in (wanted.times, wanted.hints) if part.is_bounded]
    if not parts:
        return None
    return reduce(TimeRange.and_also, parts)


def pruned(wanted: Wanted, oldest: BinlogState, domains: set[int], *, are_all: bool) -> GtidRange:
    """The range of `wanted` for planning, narrowed by domains and numbers. It misses nothing that was purged.

    Args:
        oldest: what was logged before the first group that is there.
        domains: of groups that there are.
        are_all: whether there are no others.
    """
    start = wanted.gtids.start or SlavePosition()
    for domain in sorted(domains):
        floor = 0 if wanted.numbers.first is None else wanted.numbers.first - 1
        if wanted.domains is not None and domain not in wanted.domains:
            floor = _U64_MAX
        seen = start.get(domain)
        if floor > 0 and (seen is None or seen.seq_no < floor):
            start = start.with_gtid(Gtid(domain, 0, min(floor, _U64_MAX)))
    stop = _stop(wanted, domains if are_all else None)
    if wanted.gtids.start is None and not len(start):
        return GtidRange(None, stop)
    for gtid in unreached(oldest.position(), start):
        start = start.with_gtid(gtid)
    return GtidRange(start, stop)


def _stop(wanted: Wanted, all_domains: set[int] | None) -> SlavePosition | None:
    stop, last, domains = wanted.gtids.stop, wanted.numbers.last, wanted.domains
    if last is None:
        return stop
    if stop is not None:
        bounds = {gtid.domain_id: min(gtid.seq_no, last) for gtid in stop}
    elif all_domains is not None or domains is not None:
        bounds = dict.fromkeys(all_domains if all_domains is not None else domains or (), last)
    else:
        return None  # of a domain that nobody knows of yet, too, there may be groups
    if domains is not None:
        bounds = {domain: bound for domain, bound in bounds.items() if domain in domains}
    return SlavePosition(Gtid(domain, 0, n) for domain, n in sorted(bounds.items()) if n >= 0)
