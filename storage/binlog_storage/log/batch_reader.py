"""Batches of groups for dumps: the hot path of reading.

Nearly all groups of a busy server are plain commit records that lie on one page, or on two. `take_plain_commits` picks
those off the pages of a window without a call for each group or page; `RecordReader`, which knows everything, reads
what is left. A test holds the ways equal.

`take_plain_commits` exists in C, too (`_speedups.c`), and is used where it was built.
"""

from __future__ import annotations

from collections.abc import Callable

from binlog_protocol.dataclass import dataclass

from binlog_storage.engine import (
    LARGE_GROUP_BYTES,
    GroupBatch,
    LargeGroup,
    PlacedBatch,
    PlacedGroup,
)
from binlog_storage.errors import StorageError
from binlog_storage.ibb.chunk import (
    CHUNK_HEADER,
    CONT,
    LAST,
    LAST_CHUNK_START,
    Position,
    RecordType,
)
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log.group_reader import end_in_file, large_group, payload_up_to
from binlog_storage.log.log_file import first_record
from binlog_storage.log.whole_file import require_whole

# Batches end where the next record begins in another window, so that readers meet at the same places.
WINDOW_BYTES = 32 * PAGE_SIZE
BATCH_BYTES_MAX = 1 << 20
# Bytes in front of the payload of a plain commit: the header of its chunk, and a byte that says that there is no list.
PLAIN_OVERHEAD = CHUNK_HEADER + 1

_PLAIN_COMMIT = RecordType.COMMIT | LAST  # one chunk ...
_NO_LIST = 0  # ... and nothing out of band
_CUT_COMMIT = int(RecordType.COMMIT)  # two chunks: the first ...
_REST_OF_COMMIT = RecordType.COMMIT | CONT | LAST  # ... and the second, on the next page

assert WINDOW_BYTES % PAGE_SIZE == 0


def read_batch(
    pages: PageSource, start: Position, limit: Position, large_bytes: int = LARGE_GROUP_BYTES
) -> GroupBatch:
    """See `BinlogEngine.read`; `limit` is the durable end.

    Damage behind sound groups ends the batch in front of it, and raises only where a batch begins with it.
    """
    return GroupBatch(start, *_read(pages, start, limit, large_bytes))


def read_placed_batch(
    pages: PageSource,
    start: Position,
    limit: Position,
    file_end: Position,
    large_bytes: int = LARGE_GROUP_BYTES,
) -> PlacedBatch:
    """See `BinlogEngine.read_placed`. `limit` is the durable end, `file_end` the physical end of the file."""
    batch = read_laid_batch(pages, start, limit, file_end, large_bytes)
    stops = [*(index for index, _ in batch.runs[1:]), len(batch.groups)]
    placed: list[PlacedGroup] = []
    for (index, offset), stop in zip(batch.runs, stops, strict=False):
        for payload in batch.groups[index:stop]:
            offset += PLAIN_OVERHEAD + len(payload)
            placed.append(PlacedGroup(payload, Position(start.file_no, offset).next_record))
    return PlacedBatch(start, batch.end, placed, batch.large)


@dataclass(frozen=True, slots=True)
class LaidBatch:
    """Groups as of a `PlacedBatch`, and where they lie, in a form that needs no object for each.

    runs: (number of a group, offset): from that group on, up to the next run, they are laid one behind the other from
        that offset of the file of `start`, with `PLAIN_OVERHEAD` bytes in front of each. Whatever is not laid so is a
        run of its own, whose offset makes its end come out right.
    """

    start: Position
    end: Position
    groups: list[bytes]
    runs: list[tuple[int, int]]
    large: LargeGroup | None = None


def read_laid_batch(
    pages: PageSource,
    start: Position,
    limit: Position,
    file_end: Position,
    large_bytes: int = LARGE_GROUP_BYTES,
) -> LaidBatch:
    """Read a batch as `read_placed_batch` does, without an object for each group."""
    runs: list[tuple[int, int]] = []
    end, groups, large = _read(pages, start, limit, large_bytes, (runs, file_end))
    return LaidBatch(start, end, groups, runs, large)


def _read(
    pages: PageSource,
    start: Position,
    limit: Position,
    large_bytes: int,
    placed: tuple[list[tuple[int, int]], Position] | None = None,
) -> tuple[Position, list[bytes], LargeGroup | None]:
    """The end of a batch, its groups, or a large one.

    placed: `LaidBatch.runs` to append to, and the physical end of the file, with which the batch ends then, too.
    """
    runs, file_end = (None, None) if placed is None else placed
    groups: list[bytes] = []
    end = behind_group = start
    window = _window(start)
    left = start.file_no
    size = 0
    try:
        while end < limit:
            if _window(end) == window:
                end = behind_group = _plain_commits(pages, end, limit, groups, runs)
                if end == limit:
                    break
            # Behind the window, which held only what was never committed, one group is enough.
            if _window(end) == window or not groups:
                record = RecordReader(pages, end, limit, data_of=RecordType.COMMIT).next()
                if record is None:
                    break
                if placed is not None and record.start.file_no != start.file_no:
                    _require_left_whole(pages, left, record.start)
                    end = first_record(pages, Position(record.start.file_no, PAGE_SIZE), limit)
                    break
                end = record.end
                left = _require_left_whole(pages, left, end)
                if record.type == RecordType.COMMIT:
                    payload = payload_up_to(pages, record, large_bytes)
                    if payload is None and not groups:
                        return end, groups, large_group(pages, record, file_end)
                    if payload is None:
                        end = behind_group
                        break
                    if placed is not None:
                        place = end_in_file(record, placed[1]).offset
                        placed[0].append(_run_of_one(len(groups), payload, place))
                    behind_group = end
                    groups.append(payload)
                    size += len(payload)
            if groups and (_window(end) != window or size > BATCH_BYTES_MAX):
                break
            if placed is not None and end.file_no != start.file_no:
                break
    except StorageError:
        if not groups:
            raise
        end = behind_group  # what is sound goes out; who reads on from there hears of the rest
    return end, groups, None


def _require_left_whole(pages: PageSource, left: int, end: Position) -> int:
    """All files from `left` up to that of `end`, without it, were read to their ends. Returns the file of `end`."""
    for file_no in range(left, end.file_no):
        require_whole(pages, file_no)
    return end.file_no


def take_plain_commits_plainly(
    pages: list[bytes],
    at: int,
    stop: int,
    base: int,
    groups: list[bytes],
    runs: list[tuple[int, int]] | None,
) -> tuple[int, int]:
    """Append the payloads of the plain commits that begin at offset `at` of the first page, one behind the other.

    Returns the number of a page, and the offset in it, of the first chunk that is something else, or does not end in
    these pages, or begins at `stop` or later; at the end of a page that is the beginning of the next.

    Args:
        pages: consecutive ones, at least one.
        stop: counted from the beginning of the first page.
        base: the offset of the first page in its file.
        runs: how they lie is appended: `LaidBatch.runs`.
    """
    for index, page in enumerate(pages):
        first, begin = len(groups), at
        at = _take_of_page(page, at, stop - index * PAGE_SIZE, groups)
        if runs is not None and len(groups) > first:
            runs.append((first, base + index * PAGE_SIZE + begin))
        if at > LAST_CHUNK_START:
            at = 0
            if (index + 1) * PAGE_SIZE >= stop:
                return index + 1, 0
            continue
        is_last = index + 1 == len(pages)
        if is_last or index * PAGE_SIZE + at >= stop or page[at] != _CUT_COMMIT:
            return index, at
        joined = _join_plain_commit(page, at, pages[index + 1])
        if joined is None:
            return index, at
        payload, at = joined
        if runs is not None:
            runs.append(_run_of_one(len(groups), payload, base + (index + 1) * PAGE_SIZE + at))
        groups.append(payload)
    return len(pages), 0


def _take_of_page(page: bytes, at: int, stop: int, groups: list[bytes]) -> int:
    """Those that lie whole in one page; the offset behind them."""
    stop = min(stop, LAST_CHUNK_START + 1)
    append = groups.append
    while at < stop and page[at] == _PLAIN_COMMIT:
        begin = at + CHUNK_HEADER
        end = begin + (page[at + 1] | page[at + 2] << 8)
        if end > PAGE_END or end == begin or page[begin] != _NO_LIST:
            break
        append(page[begin + 1 : end])
        at = end
    return at


def _join_plain_commit(page: bytes, at: int, following: bytes) -> tuple[bytes, int] | None:
    """The payload of a commit that is cut by the end of its page, and where it ends in the `following` one.

    None if what begins at offset `at` is something else, or does not end there.
    """
    begin = at + CHUNK_HEADER
    end = begin + (page[at + 1] | page[at + 2] << 8)
    if page[at] != _CUT_COMMIT or not LAST_CHUNK_START < end <= PAGE_END or end == begin:
        return None
    rest_end = CHUNK_HEADER + (following[1] | following[2] << 8)
    if page[begin] != _NO_LIST or following[0] != _REST_OF_COMMIT or rest_end > PAGE_END:
        return None
    return page[begin + 1 : end] + following[CHUNK_HEADER:rest_end], rest_end


take_plain_commits: Callable[
    [list[bytes], int, int, int, list[bytes], list[tuple[int, int]] | None], tuple[int, int]
] = take_plain_commits_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    take_plain_commits = _speedups.take_plain_commits


def skip_plain_commits(pages: PageSource, place: Position, limit: Position) -> Position:
    """Skip plain commits as `_plain_commits` would read them."""
    return _plain_commits(pages, place, limit, [])


def _plain_commits(
    pages: PageSource,
    place: Position,
    limit: Position,
    groups: list[bytes],
    runs: list[tuple[int, int]] | None = None,
) -> Position:
    """Append the plain commits from `place` on, as far as its window goes; the place behind them, normalized.

    How they lie is appended to `runs`.
    """
    file_no, offset = place
    stop = (offset // WINDOW_BYTES + 1) * WINDOW_BYTES
    end = stop + PAGE_SIZE  # the last one may go on behind the window
    if limit.file_no == file_no:
        stop, end = min(stop, limit.offset), min(end, limit.offset)
    page_no, at = divmod(offset, PAGE_SIZE)
    # One page first: at the tail there is no other, and where something else comes next the others are not wanted.
    for alone in (True, False):
        base = page_no * PAGE_SIZE
        if base + at >= stop:
            break
        found = pages.run(file_no, page_no, 1 if alone else -(-end // PAGE_SIZE) - page_no)
        if not found:
            break
        index, at = take_plain_commits(found, at, stop - base, base, groups, runs)
        page_no += index
        if index == 0 and found[0][at] != _CUT_COMMIT:
            break
    return Position(file_no, page_no * PAGE_SIZE + at)


def _run_of_one(number: int, payload: bytes, end: int) -> tuple[int, int]:
    """A run of one group that ends at this place."""
    return number, end - PLAIN_OVERHEAD - len(payload)


def _window(position: Position) -> tuple[int, int]:
    return position.file_no, position.offset // WINDOW_BYTES
