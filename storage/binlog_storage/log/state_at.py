"""The binlog state at a place: from the last state record before it, and the groups in between."""

from __future__ import annotations

from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState

from binlog_storage.errors import PositionPurged
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import NESTABLE, PageSource, RecordReader
from binlog_storage.log.group_reader import group_head
from binlog_storage.log.search import read_state


def state_at(pages: PageSource, place: Position, interval: int) -> BinlogState:
    """Reads no more than `interval` pages (a file, if it is 0) and what lies out of band of the last groups in them.

    Raises `PositionPurged`.
    """
    entries = read_state(pages, place.file_no, 1)
    if entries is None:
        raise PositionPurged("the file of the position is gone")
    state = BinlogState(entries)
    page_no = 1
    probe = place.offset // PAGE_SIZE
    while interval and (probe := probe // interval * interval) > 0:
        difference = read_state(pages, place.file_no, probe)
        if difference is not None:
            state.overlay(difference)
            page_no = probe
            break
        probe -= 1
    begin = Position(place.file_no, page_no * PAGE_SIZE)
    reader = RecordReader(pages, begin, place, skip_partial=True)
    while (record := reader.next()) is not None:
        if record.type not in NESTABLE:
            reader.stop_skipping()
        if record.type == RecordType.COMMIT:
            gtid = group_gtid(group_head(pages, record))
            if gtid is not None:
                state.update(gtid)
    return state
