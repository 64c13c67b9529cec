"""The search for the place to start reading for a replica's position: by file, then by state record inside the file.

A state S *is before* a position Q if everything in S is in what Q has seen (`BinlogState.is_before`). Wanted is the
newest file whose page-1 state is before Q, and in it the last state record that still is; a state record inside a
file holds the difference to page 1. From there the groups are skipped one by one, by GTID. (MariaDB:
`innodb_binlog.cc`, gtid_search.)

As long as states only grow, "is before Q" holds for the first files and not for the later ones, and the file is found
by bisection. A state shrinks when a domain is deleted, and goes back when a server logs a lower seq_no than before.
The files at which that happens are known (`StateBreaks`): they cut the store into runs, each of which is bisected,
the newest first. Where they are not known every file is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_storage.errors import PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource
from binlog_storage.log.log_file import base_state, first_record, grown, states_back


class FileShape(NamedTuple):
    """Pages between state records (0 for none), and pages in the file."""

    interval: int
    pages: int


def find_start(
    pages: PageSource,
    files: Sequence[int],
    shape_of: Callable[[int], FileShape],
    position: SlavePosition,
    limit: Position,
    breaks: Sequence[int] | None = None,
) -> tuple[Position, BinlogState]:
    """The place to read from, always the beginning of a record or `limit`, and the state there.

    Args:
        files: numbers of the files there are, ascending.
        limit: the durable end; nothing behind it is looked at.
        breaks: the files at whose page 1 the state is not a grown one of the file before; None if not known.

    Raises `PositionPurged`.
    """
    durable = [file_no for file_no in files if Position(file_no, PAGE_SIZE) < limit]
    for run in _runs(durable, durable if breaks is None else breaks):
        file_no = _newest_before(pages, run, position)
        if file_no is not None:
            state = base_state(pages, file_no)
            page_no, state = _bisect(pages, file_no, shape_of(file_no), state, position, limit)
            return first_record(pages, Position(file_no, page_no * PAGE_SIZE), limit), state
    raise PositionPurged("no file reaches back to the position")


def _runs(files: Sequence[int], breaks: Sequence[int]) -> list[Sequence[int]]:
    """The files cut into runs that begin at the breaks, the newest run first."""
    runs: list[list[int]] = []
    beginnings = set(breaks)
    for file_no in files:
        if not runs or file_no in beginnings:
            runs.append([])
        runs[-1].append(file_no)
    return list(reversed(runs))


def _newest_before(pages: PageSource, run: Sequence[int], position: SlavePosition) -> int | None:
    """The last file of a run of growing states whose page-1 state is before the position."""
    if base_state(pages, run[-1]).is_before(position):
        return run[-1]
    low, high = -1, len(run) - 1  # high is not before the position
    while high - low > 1:
        middle = (low + high) // 2
        if base_state(pages, run[middle]).is_before(position):
            low = middle
        else:
            high = middle
    return run[low] if low >= 0 else None


def _bisect(
    pages: PageSource,
    file_no: int,
    shape: FileShape,
    page_one: BinlogState,
    position: SlavePosition,
    limit: Position,
) -> tuple[int, BinlogState]:
    """(page, state there) of the last state record in the file that is before `position`, page 1 if none is."""
    best = 1, page_one
    interval = shape.interval
    if not interval:
        return best
    last_page = shape.pages - 1
    if limit.file_no == file_no:
        last_page = (limit.offset - 1) // PAGE_SIZE
    low, high = (
        0,
        last_page // interval + 1,
    )  # in intervals: low is before the position, high is not
    while high - low > 1:
        middle = (low + high) // 2
        records = states_back(
            pages, file_no, middle * interval, interval, behind=max(low * interval, 1)
        )
        found = next(records, None)
        if found is None:
            high = middle
            continue
        page_no, entries = found
        state = grown(page_one, entries)
        if state.is_before(position):
            best = page_no, state
            low = middle
        else:
            high = page_no // interval
    return best
