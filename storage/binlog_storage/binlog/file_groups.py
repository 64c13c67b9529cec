"""The groups of one file, for SHOW BINLOG EVENTS: in bounded memory, whatever their size.

A group belongs to the file in which its commit record begins; its out-of-band data may lie in earlier files, and the
record may go on in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlog_storage.binlog.options import FILE_BYTES_MAX
from binlog_storage.engine.references import Reason, References
from binlog_storage.errors import PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log.group_reader import group_pieces


def groups_of_file(
    pages: PageSource, start: Position, durable_end: Position, references: References, age: int
) -> Iterator[Iterator[bytes]]:
    """See `BinlogEngine.groups_of_file`. Raises `BinlogBegunAnew` if the places are not of this `age` any more."""
    limit = min(durable_end, Position(start.file_no + 1, PAGE_SIZE))
    # No file has more pages: an offset farther behind its end is no place on a disk.
    page = min(max(1, start.offset // PAGE_SIZE), FILE_BYTES_MAX // PAGE_SIZE)
    first = Position(start.file_no, page * PAGE_SIZE)
    hold = references.hold(Reason.NAMED, "SHOW BINLOG EVENTS", start.file_no, age)
    try:
        if first >= limit:
            return
        if not pages.has_data(start.file_no):
            raise PositionPurged("Could not find target log")
        # Offsets are looked up by pages: records that begin in the page before the offset are passed over.
        reader = RecordReader(pages, first, limit, skip_partial=True)
        for record in reader.commits():
            if record.start.file_no != start.file_no:
                return
            if record.start >= start:
                yield group_pieces(pages, record)
    finally:
        hold.release()
