"""Batches of groups for dumps: the hot path of reading.

Nearly all groups of a busy server are plain commit records that lie whole on one page. `take_plain_commits` picks
those off a page without a call per group, `join_plain_commit` the one that goes on in the next page; `RecordReader`,
which knows everything, reads what is left. A test holds the ways equal.

`take_plain_commits` exists in C, too (`_speedups.c`), and is used where it was built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from storage.binlog.group_reader import large_group, payload_up_to
from storage.binlog.search import first_record
from storage.engine import LARGE_GROUP_BYTES, GroupBatch, PlacedBatch, PlacedGroup
from storage.ibb.chunk import CHUNK_HEADER, CONT, LAST, LAST_CHUNK_START, Position, RecordType
from storage.ibb.page import PAGE_END, PAGE_SIZE
from storage.ibb.records import PageSource, RecordReader

# Batches end where the next record begins in another window, so that readers meet at the same places.
WINDOW_BYTES = 32 * PAGE_SIZE
BATCH_BYTES_MAX = 1 << 20

_PLAIN_COMMIT = RecordType.COMMIT | LAST  # one chunk ...
_NO_LIST = 0  # ... and nothing out of band
_CUT_COMMIT = int(RecordType.COMMIT)  # two chunks: the first ...
_REST_OF_COMMIT = RecordType.COMMIT | CONT | LAST  # ... and the second, on the next page

assert WINDOW_BYTES % PAGE_SIZE == 0


def read_batch(
    pages: PageSource, start: Position, limit: Position, large_bytes: int = LARGE_GROUP_BYTES
) -> GroupBatch:
    """See `BinlogEngine.read`; `limit` is the durable end."""
    groups: list[bytes] = []
    end = behind_group = start
    window = _window(start)
    size = 0
    while end < limit:
        if _window(end) == window:
            end = behind_group = _plain_commits(pages, end, limit, groups)
        # Behind the window, which held only what was never committed, one group is enough.
        if _window(end) == window or not groups:
            reader = RecordReader(pages, end, limit)
            record = reader.next()
            if record is None:
                break
            end = record.end
            if record.type == RecordType.COMMIT:
                payload = payload_up_to(pages, record, large_bytes)
                if payload is None:
                    if groups:
                        return GroupBatch(start, behind_group, groups)
                    return GroupBatch(start, end, [], large_group(pages, record))
                groups.append(payload)
                size += len(payload)
                behind_group = end
        if groups and (_window(end) != window or size > BATCH_BYTES_MAX):
            break
    return GroupBatch(start, end, groups)


def read_placed_batch(
    pages: PageSource,
    start: Position,
    limit: Position,
    file_end: Position,
    large_bytes: int = LARGE_GROUP_BYTES,
) -> PlacedBatch:
    """See `BinlogEngine.read_placed`. `limit` is the durable end, `file_end` the physical end of the file."""
    groups: list[bytes] = []
    ends: list[Position] = []
    end = behind_group = start
    window = _window(start)
    size = 0
    while end < limit:
        if _window(end) == window:
            end = behind_group = _plain_commits(pages, end, limit, groups, ends)
        if _window(end) == window or not groups:
            reader = RecordReader(pages, end, limit)
            record = reader.next()
            if record is None:
                break
            if record.start.file_no != start.file_no:
                end = first_record(pages, Position(record.start.file_no, PAGE_SIZE), limit)
                break
            end = record.end
            if record.type == RecordType.COMMIT:
                payload = payload_up_to(pages, record, large_bytes)
                if payload is None and not groups:
                    return PlacedBatch(start, end, [], large_group(pages, record, file_end))
                if payload is None:
                    end = behind_group
                    break
                behind_group = end
                groups.append(payload)
                ends.append(min(end, file_end))
                size += len(payload)
        if end.file_no != start.file_no or (
            groups and (_window(end) != window or size > BATCH_BYTES_MAX)
        ):
            break
    placed = [PlacedGroup(*found) for found in zip(groups, ends, strict=True)]
    return PlacedBatch(start, end, placed)


def take_plain_commits_plainly(page: bytes, at: int, stop: int, groups: list[bytes]) -> int:
    """Append the payloads of the plain commits that begin at offset `at` of a page, one behind the other.

    Returns the offset of the first chunk that is something else, or is not whole, or begins at `stop` or later.
    """
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


take_plain_commits: Callable[[bytes, int, int, list[bytes]], int] = take_plain_commits_plainly
try:
    from storage.binlog import _speedups
except ImportError:
    pass
else:
    take_plain_commits = _speedups.take_plain_commits


def join_plain_commit(page: bytes, at: int, following: bytes) -> tuple[bytes, int] | None:
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


def _plain_commits(
    pages: PageSource,
    place: Position,
    limit: Position,
    groups: list[bytes],
    ends: list[Position] | None = None,
) -> Position:
    """Append the plain commits from `place` on, as far as its window goes; the place behind them, normalized.

    Their ends are appended to `ends`.
    """
    file_no, offset = place
    stop = (offset // WINDOW_BYTES + 1) * WINDOW_BYTES
    if limit.file_no == file_no:
        stop = min(stop, limit.offset)
    page_no, at = divmod(offset, PAGE_SIZE)
    page = pages.page(file_no, page_no)
    while page is not None:
        known, begin = len(groups), at
        at = take_plain_commits(page, at, stop - page_no * PAGE_SIZE, groups)
        if ends is not None:
            offset = page_no * PAGE_SIZE + begin
            ends.extend(_plain_ends(Position(file_no, offset), groups[known:]))
        if at > LAST_CHUNK_START:
            page_no, at = page_no + 1, 0
            page = pages.page(file_no, page_no) if page_no * PAGE_SIZE < stop else None
            continue
        if page_no * PAGE_SIZE + at >= stop or page[at] != _CUT_COMMIT:
            break
        following = pages.page(file_no, page_no + 1)
        joined = None if following is None else join_plain_commit(page, at, following)
        if joined is None:
            break
        payload, at = joined
        groups.append(payload)
        page_no, page = page_no + 1, following
        if ends is not None:
            ends.append(_normalized(file_no, page_no * PAGE_SIZE + at))
    return Position(file_no, page_no * PAGE_SIZE + at)


def _plain_ends(begin: Position, payloads: list[bytes]) -> Iterator[Position]:
    """The ends of plain commits, each one chunk, from `begin` on."""
    file_no, offset = begin
    for payload in payloads:
        offset += CHUNK_HEADER + 1 + len(payload)
        yield _normalized(file_no, offset)


def _normalized(file_no: int, offset: int) -> Position:
    """As `RecordReader.position`: the next page where this one has no room for a chunk."""
    if offset % PAGE_SIZE > LAST_CHUNK_START:
        offset = (offset // PAGE_SIZE + 1) * PAGE_SIZE
    return Position(file_no, offset)


def _window(position: Position) -> tuple[int, int]:
    return position.file_no, position.offset // WINDOW_BYTES
