"""Page ranges of .ibb files as units of work, and reading one of them.

A partition owns the commit records whose first chunk starts in its pages. It reads on behind them, into the next file
too, to finish the last one, and reads out-of-band data wherever they are; chunks at its beginning that go on with a
record are its predecessor's. So any cut between pages gives each commit to exactly one partition. Cuts are made at
pages with GTID state records, which tell what was logged before without any of it being read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState

from binlog_storage.engine import GroupBatch
from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb.chunk import Position, Record
from binlog_storage.ibb.file_header import no_data
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log.batch_reader import LaidBatch, read_batch, read_laid_batch
from binlog_storage.log.group_reader import read_head
from binlog_storage.log.log_file import (
    base_state_from_outside,
    first_record,
    grown,
    read_state,
    used_pages,
)
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.pages import OutsidePages
from binlog_storage.log.ranges import GtidRange, TimeRange
from binlog_storage.log.whole_file import require_whole

PARTITION_BYTES = 64 << 20
_FOREVER = 1 << 62


class Partition(NamedTuple):
    """Pages `first_page` to `end_page` - 1 of a file."""

    file_no: int
    first_page: int
    end_page: int

    @property
    def begin(self) -> Position:
        return Position(self.file_no, self.first_page * PAGE_SIZE)

    @property
    def end(self) -> Position:
        return Position(self.file_no, self.end_page * PAGE_SIZE)


@dataclass(slots=True)
class Stretch:
    """The pages from one state record to the next: the smallest unit that is read by itself.

    state, behind: what was logged before it and up to its end; the second is None of the last there is.
    times: of its first group, if it was looked up and one begins there.
    """

    partition: Partition
    state: BinlogState
    behind: BinlogState | None = None
    times: list[int] = field(default_factory=list)


def plan(
    pages: OutsidePages,
    files: list[int],
    *,
    partition_bytes: int = PARTITION_BYTES,
    gtids: GtidRange | None = None,
    times: TimeRange | None = None,
) -> list[Partition]:
    """Cut files, in the order of the store, into partitions of about `partition_bytes` bytes.

    What the state records say holds nothing of the ranges is left out; the rest has all of it, and more: whoever
    reads asks `has` of each group. Reads one page for each state record, and with `times` a group's beginning.

    Raises `PositionPurged` if groups behind `gtids.start` were there and are not any more, `CorruptBinlog` also for
    a file that is missing among the others.
    """
    wanted = stretches(pages, files, gtids=gtids, times=times)
    return _joined(wanted, max(partition_bytes // PAGE_SIZE, 1))


def stretches(
    pages: OutsidePages,
    files: list[int],
    *,
    gtids: GtidRange | None = None,
    times: TimeRange | None = None,
) -> list[Stretch]:
    """The stretches that `plan` joins or cuts. Raises as it does."""
    gtids = gtids or GtidRange()
    found: list[Stretch] = []
    for stretch in _all_stretches(pages, files):
        if found:
            found[-1].behind = stretch.state
            if gtids.is_reached(stretch.state):
                break  # numbers ascend: what is wanted is behind us
        found.append(stretch)
    if found:
        missed = gtids.misses(found[0].state)
        if missed is not None:
            raise PositionPurged(f"{missed} is wanted, but the store begins behind it")
    wanted = [
        stretch
        for stretch in found
        if not gtids.is_reached(stretch.state)
        and (stretch.behind is None or not gtids.is_all_seen(stretch.behind))
    ]
    return wanted if times is None else _within(pages, wanted, found, times)


def partition_records(
    pages: PageSource, partition: Partition, limit: Position | None = None
) -> Iterator[Record]:
    """The commit records that the partition owns; none that begins at `limit` or later. Raises `CorruptBinlog`."""
    end = partition.end if limit is None else min(limit, partition.end)
    return RecordReader(pages, partition.begin, end, skip_partial=True).commits()


def partition_batches(
    pages: PageSource, partition: Partition, limit: Position | None = None
) -> Iterator[GroupBatch]:
    """The groups of a partition, about a MiB at a time; large groups alone. Includes start markers."""
    end = partition.end if limit is None else min(limit, partition.end)
    place = first_record(pages, partition.begin, end)
    while place < end:
        batch = read_batch(pages, place, end)
        if batch.end == place:
            return
        if batch.heads:
            yield batch
        place = batch.end


def batches_from(pages: LogPages, place: Position, end: Position) -> Iterator[LaidBatch]:
    """All that begins from `place`, where a record begins, up to `end`; in batches of about a MiB.

    Behind the last group there may be more in front of `end`: of a large one that is not committed yet.

    Raises `CorruptBinlog`, also where the data end in front of the published end.
    """
    while place < end:
        header = pages.header(place.file_no)
        behind = place
        if header is not None:
            file_end = Position(place.file_no, header.pages * PAGE_SIZE)
            batch = read_laid_batch(pages, place, end, file_end)
            behind = batch.end
        if behind == place:
            if end == pages.end:
                raise CorruptBinlog(*place, "the data end here, but more was published")
            return
        if batch.groups or batch.large is not None:
            yield batch
        place = batch.end


def _all_stretches(pages: OutsidePages, files: list[int]) -> Iterator[Stretch]:
    for number, file_no in enumerate(files):
        if number and file_no != files[number - 1] + 1:
            raise no_data(file_no - 1, missing=True)
        if number:
            require_whole(pages, files[number - 1])
        yield from _stretches(pages, file_no)


def _stretches(pages: OutsidePages, file_no: int) -> Iterator[Stretch]:
    header = pages.header(file_no)
    if header is None:
        return
    end = used_pages(pages, file_no, header.pages)
    base = base_state_from_outside(pages, file_no)
    begin, state = 1, base
    step = header.state_interval_pages
    for page_no in range(step, end, step) if step else ():
        entries = read_state(pages, file_no, page_no) if page_no > 1 else None
        if entries is None:
            continue
        yield Stretch(Partition(file_no, begin, page_no), state)
        begin, state = page_no, grown(base, entries)
    if begin < end:
        yield Stretch(Partition(file_no, begin, end), state)


def _within(
    pages: PageSource, wanted: list[Stretch], all_: list[Stretch], times: TimeRange
) -> list[Stretch]:
    """The stretches that may have groups of those times, by the times of the first groups in them and behind them."""
    following = dict(zip((s.partition for s in all_), all_[1:], strict=False))
    found = []
    for stretch in wanted:
        own = first_times(pages, stretch)
        behind = following.get(stretch.partition)
        later = first_times(pages, behind) if behind is not None else []
        samples = [*own, *later]
        latest = max(samples) if later else _FOREVER
        if not own or times.may_have(min(samples), latest):
            found.append(stretch)
    return found


def first_times(pages: PageSource, stretch: Stretch) -> list[int]:
    """The timestamp of the first group of a stretch, as a list; empty if no group begins there."""
    if not stretch.times:
        record = next(partition_records(pages, stretch.partition), None)
        if record is not None:
            stretch.times.append(read_head(pages, record).timestamp)
    return stretch.times


def _joined(stretches: list[Stretch], pages_max: int) -> list[Partition]:
    """Join neighbours up to the wanted size; cut larger stretches between any two pages."""
    found: list[Partition] = []
    for stretch in stretches:
        file_no, begin, end = stretch.partition
        if found and found[-1].file_no == file_no and found[-1].end_page == begin:
            last = found[-1]
            if end - last.first_page <= pages_max:
                found[-1] = Partition(file_no, last.first_page, end)
                continue
        cuts = [*range(begin, end, pages_max), end]
        found += [Partition(file_no, a, b) for a, b in pairwise(cuts)]
    return found
