"""Batches of groups for dumps: the hot path of reading.

Nearly all groups of a busy server are plain commit records that lie whole on one page. `take_plain_commits` picks
those off a page without a call per group; `RecordReader`, which knows everything, reads the one record after them. A
test holds the two ways equal.
"""

from __future__ import annotations

from storage.binlog.group_reader import group_payload
from storage.engine import GroupBatch
from storage.ibb.chunk import CHUNK_HEADER, LAST, LAST_CHUNK_START, Position, RecordType
from storage.ibb.page import PAGE_END, PAGE_SIZE
from storage.ibb.records import PageSource, RecordReader

# Batches end where the next record begins in another window, so that readers meet at the same places.
WINDOW_BYTES = 16 * PAGE_SIZE
BATCH_BYTES_MAX = 1 << 20

_PLAIN_COMMIT = RecordType.COMMIT | LAST  # one chunk ...
_NO_LIST = 0  # ... and nothing out of band

assert WINDOW_BYTES % PAGE_SIZE == 0


def read_batch(pages: PageSource, start: Position, limit: Position) -> GroupBatch:
    """See `BinlogEngine.read`; `limit` is the durable end."""
    groups: list[bytes] = []
    end = start
    window = _window(start)
    size = 0
    while end < limit:
        if _window(end) == window:
            end = _plain_commits(pages, end, limit, groups)
        # Behind the window, which held only what was never committed, one group is enough.
        if _window(end) == window or not groups:
            reader = RecordReader(pages, end, limit)
            record = reader.next()
            if record is None:
                break
            end = record.end
            if record.type == RecordType.COMMIT:
                payload = group_payload(pages, record)
                groups.append(payload)
                size += len(payload)
        if groups and (_window(end) != window or size > BATCH_BYTES_MAX):
            break
    return GroupBatch(start, end, groups)


def take_plain_commits(page: bytes, at: int, stop: int, groups: list[bytes]) -> int:
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


def _plain_commits(
    pages: PageSource, place: Position, limit: Position, groups: list[bytes]
) -> Position:
    """`take_plain_commits` at a place in a file; the place behind them, normalized."""
    page_no, at = divmod(place.offset, PAGE_SIZE)
    page = pages.page(place.file_no, page_no)
    if page is None:
        return place
    page_start = page_no * PAGE_SIZE
    stop = limit.offset - page_start if limit.file_no == place.file_no else PAGE_SIZE
    at = take_plain_commits(page, at, stop, groups)
    return Position(place.file_no, page_start + (PAGE_SIZE if at > LAST_CHUNK_START else at))


def _window(position: Position) -> tuple[int, int]:
    return position.file_no, position.offset // WINDOW_BYTES
