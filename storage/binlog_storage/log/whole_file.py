"""Whether a file that has fewer pages than its header says was cut by FLUSH, or has lost some; and is full to its end.

FLUSH BINARY LOGS makes a file shorter, and ends it with a record of its own. A crash in the middle of that may leave
a shorter file without it, which lacks nothing. So where it is not there, what was logged up to the end of the file is
compared with what the next file says was logged before it.
"""

from __future__ import annotations

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import Position, RecordType, end_inside, last_chunk
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource
from binlog_storage.log.log_file import first_empty, read_header, read_state, state_at


def require_full(pages: PageSource, file_no: int, last: int) -> None:
    """Check the last pages of a file that has a successor, so many: each is sound and full. Raises `CorruptBinlog`.

    A power cut may leave a page empty, or as it was when less was on it, and only the redo log makes it anew. Who reads
    a file meets that by itself.
    """
    header = read_header(pages, file_no)
    if header is None:
        return
    count = header.pages
    if pages.page(file_no, count - 1) is None:
        count = first_empty(count, lambda page_no: pages.page(file_no, page_no) is None)
    for page_no in range(max(1, count - last), count):
        page = pages.page(file_no, page_no)
        if page is not None and (at := end_inside(page)) is not None:
            place = page_no * PAGE_SIZE + at
            raise CorruptBinlog(
                file_no, place, "the data of the file ends here, but it has a successor"
            )


def require_whole(pages: PageSource, file_no: int) -> None:
    """Check a file that was read to its end, before the next one. Raises `CorruptBinlog` if groups are missing."""
    header = read_header(pages, file_no)
    if header is None or pages.page(file_no, header.pages - 1) is not None:
        return
    # The first page is there, the last is not.
    count = first_empty(header.pages - 1, lambda page_no: pages.page(file_no, page_no) is None)
    last = pages.page(file_no, count - 1) if count > 1 else None
    if last is not None and last_chunk(last).type == RecordType.DUMMY:
        return
    lacks = "all of its groups"
    if last is not None:
        end = Position(file_no, count * PAGE_SIZE)
        have = state_at(pages, end, header.state_interval_pages)
        lost = [g for g in read_state(pages, file_no + 1, 1) or () if not have.has(g)]
        if not lost:
            return
        lacks = f"groups up to {lost[0]}"
    raise CorruptBinlog(
        file_no,
        count * PAGE_SIZE,
        f"the file ends here, and has lost {lacks}: {count} of its {header.pages} pages are left",
    )
