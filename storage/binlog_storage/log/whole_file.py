"""Whether a file that has fewer pages than its header says was cut by FLUSH, or has lost some.

FLUSH BINARY LOGS makes a file shorter, and ends it with a record of its own. A crash in the middle of that may leave
a shorter file without it, which lacks nothing. So where it is not there, what was logged up to the end of the file is
compared with what the next file says was logged before it.
"""

from __future__ import annotations

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import (
    CHUNK_HEADER,
    END_OF_DATA,
    FILLER,
    LAST_CHUNK_START,
    TYPE_MASK,
    Position,
    RecordType,
)
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource
from binlog_storage.log.search import read_state
from binlog_storage.log.state_at import state_at


def require_whole(pages: PageSource, file_no: int) -> None:
    """For who has read a file to its end, and goes on in the next. Raises `CorruptBinlog`."""
    page = pages.page(file_no, 0)
    header = None if page is None else FileHeader.parse(page, file_no)
    if header is None or pages.page(file_no, header.pages - 1) is not None:
        return
    count = _pages_there(pages, file_no, header.pages)
    last = pages.page(file_no, count - 1) if count > 1 else None
    if last is not None and _last_type(last) == RecordType.DUMMY:
        return
    lacks = "all of its groups"
    if last is not None:
        end = Position(file_no, count * PAGE_SIZE)
        have = state_at(pages, end, header.state_interval_pages)
        lost = [
            gtid
            for gtid in read_state(pages, file_no + 1, 1) or ()
            if (have.get(gtid.domain_id, gtid.server_id) or 0) < gtid.seq_no
        ]
        if not lost:
            return
        lacks = f"groups up to {lost[0]}"
    raise CorruptBinlog(
        file_no,
        count * PAGE_SIZE,
        f"the file ends here, and has lost {lacks}: {count} of its {header.pages} pages are left",
    )


def _pages_there(pages: PageSource, file_no: int, count: int) -> int:
    low, high = 0, count - 1  # the first is there, the last is not
    while high - low > 1:
        middle = (low + high) // 2
        if pages.page(file_no, middle) is None:
            high = middle
        else:
            low = middle
    return high


def _last_type(page: bytes) -> int:
    """The type of the last chunk of a page."""
    at, kind = 0, 0
    while at <= LAST_CHUNK_START and page[at] not in (END_OF_DATA, FILLER):
        kind = page[at] & TYPE_MASK
        at += CHUNK_HEADER + (page[at + 1] | page[at + 2] << 8)
    return kind
