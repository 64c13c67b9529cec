"""The binlog state at a place: from the last state record before it, and the groups in between."""

from __future__ import annotations

from binlog_protocol.gtid import BinlogState

from binlog_storage.errors import PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log.group_reader import read_head
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
    for record in reader.commits():
        gtid = read_head(pages, record).gtid
        if gtid is not None:
            state.update(gtid)
    return state
