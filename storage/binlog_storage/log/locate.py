"""The group and borders around a place in a file: for positions that come from outside."""

from __future__ import annotations

from binlog_storage.engine import LARGE_GROUP_BYTES, LargeGroup, Located, PlacedGroup
from binlog_storage.errors import PositionPurged
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import NESTABLE, PageSource, RecordReader
from binlog_storage.log.group_reader import end_in_file, large_group, payload_up_to


def locate(
    pages: PageSource,
    place: Position,
    limit: Position,
    file_end: Position,
    large_bytes: int = LARGE_GROUP_BYTES,
) -> Located:
    """See `BinlogEngine.locate`. Reads the pages from the last record before `place` to the group behind it.

    Args:
        limit: the durable end; nothing behind it is looked at.
        file_end: the physical end of the file.

    Raises `PositionPurged`, `CorruptBinlog`.
    """
    if not pages.has_data(place.file_no):
        raise PositionPurged("the file of the position is gone")
    border = place in (limit, file_end)
    if place >= min(limit, file_end):  # else a place far beyond would be looked for page by page
        return Located(border, None, place, place)
    reader = _reader_before(pages, place, limit)
    after = place
    group: PlacedGroup | LargeGroup
    while (record := reader.next()) is not None and record.start.file_no == place.file_no:
        end = end_in_file(record, file_end)
        border = border or place in (record.start, end)
        if record.type == RecordType.COMMIT and end > place:
            payload = payload_up_to(pages, record, large_bytes)
            if payload is None:
                group = large_group(pages, record, file_end)
            else:
                group = PlacedGroup(payload, end)
            return Located(border, group, record.start, record.end)
        after = max(after, record.end)
    if record is None:  # behind the rest of a record from the file before, too
        after = max(after, min(reader.position, limit))
    return Located(border, None, after, after)


def _reader_before(pages: PageSource, place: Position, limit: Position) -> RecordReader:
    """A reader at the last page in which a record begins before `place`, or at the beginning of the file.

    A state record does not count: it may stand inside another record, which `place` may be inside of.
    """
    page_no = max(1, place.offset // PAGE_SIZE)
    while page_no > 1:
        begin = Position(place.file_no, page_no * PAGE_SIZE)
        reader = RecordReader(pages, begin, limit, skip_partial=True)
        record = next((record for record in reader if record.type not in NESTABLE), None)
        if record is not None and record.start < place:
            break
        page_no -= 1
    begin = Position(place.file_no, page_no * PAGE_SIZE)
    return RecordReader(pages, begin, limit, skip_partial=True)
