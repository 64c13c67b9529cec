"""Groups of which purge has left a half: their commit is there, but out-of-band data began in a file that has gone.

Purge keeps what the file in active use refers to, and no more: else nothing could ever be purged where each file refers
to the one before. So the first files that are left may hold commits that nobody can have any more, and what can be had
begins behind the last of these. Headers tell which files may hold some.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from binlog_protocol.gtid import BinlogState

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log.batch_reader import skip_plain_commits
from binlog_storage.log.group_reader import began_in
from binlog_storage.log.log_file import (
    base_state_from_outside,
    first_record,
    read_header,
    state_at,
)


def refers_back(pages: PageSource, file_no: int, first: int) -> bool:
    """Whether groups of a file may need one before `first`. Of a header that cannot be read nothing is known: False."""
    try:
        header = read_header(pages, file_no)
    except CorruptBinlog:
        return False
    return header is not None and header.refers_to < first


def behind_halves(pages: PageSource, files: Sequence[int], limit: Position) -> Position:
    """The place behind the last half group, or the first record of the first file: all groups behind it are whole.

    Reads those of the first files whose headers refer to what has gone. Raises `PositionPurged`, `DiskError`.

    Args:
        files: numbers of the files there are, ascending; at least one.
        limit: the durable end.
    """
    first = files[0]
    place = Position(first, PAGE_SIZE)
    with contextlib.suppress(CorruptBinlog):
        place = first_record(pages, place, limit)  # the file may begin with the rest of a record
    for file_no in files:
        if not refers_back(pages, file_no, first):
            break
        try:
            at = first_record(pages, Position(file_no, PAGE_SIZE), limit)
            while at < limit and at.file_no == file_no:
                at = skip_plain_commits(pages, at, limit)
                record = RecordReader(pages, at, limit).next()
                if record is None or record.start.file_no != file_no:
                    break
                at = record.end
                if record.type == RecordType.COMMIT and _began_before(record, first):
                    place = at
        except CorruptBinlog:
            continue  # a reader of that place gets the error
    return place


def whole_from(
    pages: PageSource, files: Sequence[int], limit: Position
) -> tuple[BinlogState, Position]:
    """The state, and the place, from which on all groups of a directory are whole.

    Arguments as for `behind_halves`. Raises `CorruptBinlog`, `PositionPurged`, `DiskError`.
    """
    first = files[0]
    if not refers_back(pages, first, first):
        return base_state_from_outside(pages, first), Position(first, PAGE_SIZE)
    place = behind_halves(pages, files, limit)
    header = read_header(pages, place.file_no)
    return state_at(pages, place, 0 if header is None else header.state_interval_pages), place


def _began_before(record: Record, first: int) -> bool:
    try:
        began = began_in(record)
    except CorruptBinlog:
        return False  # as above
    return began is not None and began < first
