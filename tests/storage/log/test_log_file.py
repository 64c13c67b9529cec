"""One file by its pages: where its data end, the states in it, and what damage is told as."""

from __future__ import annotations

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb import gtid_state
from binlog_storage.ibb.chunk import Position, RecordType, last_chunk
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.log_file import (
    base_state,
    base_state_from_outside,
    first_empty,
    state_at,
    states_back,
    used_pages,
)
from binlog_storage.log.partitions import Partition, Stretch, first_times

from tests.storage.groups import group
from tests.storage.plain_pages import PlainPages, chunk


def state(*entries: Gtid) -> bytes:
    return chunk(RecordType.GTID_STATE, gtid_state.encode(BinlogState(entries)))


def commit(payload: bytes) -> bytes:
    return chunk(RecordType.COMMIT, b"\0" + payload)


@pytest.mark.parametrize("pages", range(1, 9))
def test_the_first_empty_page(pages: int) -> None:
    """Of any number of pages and any number of them in use; the header page is never asked for."""
    for used in range(1, pages + 1):
        asked: list[int] = []

        def is_empty(page_no: int, asked: list[int] = asked, used: int = used) -> bool:
            asked.append(page_no)
            return page_no >= used

        assert first_empty(pages, is_empty) == used
        assert 0 not in asked
    assert first_empty(0, lambda _: True) == 0


def test_pages_in_use() -> None:
    pages = PlainPages({(0, 1): state(), (0, 2): b"\x01"}, file_pages=8)
    assert used_pages(pages, 0, 8) == 3
    assert used_pages(pages, 0, 20) == 3  # of a file that is shorter than its header says
    assert used_pages(PlainPages({(0, 0): b"\x01"}), 0, 4) == 1


def test_the_state_at_the_beginning_of_a_file() -> None:
    """One that is lost is damage. A file 0 of another program may have none yet."""
    pages = PlainPages({(0, 1): commit(b"x"), (1, 1): commit(b"x"), (2, 1): state(Gtid(0, 1, 2))})
    for file_no in (0, 1):
        with pytest.raises(CorruptBinlog, match="no GTID state at the beginning"):
            base_state(pages, file_no)
    assert base_state_from_outside(pages, 0) == BinlogState()
    with pytest.raises(CorruptBinlog, match="no GTID state at the beginning"):
        base_state_from_outside(pages, 1)
    for look in (base_state, base_state_from_outside):
        assert look(pages, 2) == BinlogState([Gtid(0, 1, 2)])


def test_states_from_a_page_back() -> None:
    """Records may have been left out; page 1 is the base of the others and none of them."""
    said = {page: [Gtid(0, 1, page)] for page in (2, 4, 8)}
    pages = PlainPages(
        {(0, page): state(*entries) for page, entries in said.items()} | {(0, 1): state()}, 12
    )
    assert list(states_back(pages, 0, 11, 2)) == [(page, said[page]) for page in (8, 4, 2)]
    assert list(states_back(pages, 0, 7, 2)) == [(page, said[page]) for page in (4, 2)]
    assert list(states_back(pages, 0, 7, 2, behind=2)) == [(4, said[4])]
    assert list(states_back(pages, 0, 11, 1)) == [(page, said[page]) for page in (8, 4, 2)]
    assert list(states_back(pages, 0, 11, 0)) == []


REST = chunk(RecordType.COMMIT, b"rest", first=False)  # of a record that began in the file before
ONE, TWO = (commit(group(Gtid(0, 1, number)).payload) for number in (1, 2))
BASE = state(Gtid(7, 7, 7)) + REST


@pytest.mark.parametrize(
    ("interval", "contents"),
    [
        (0, {(3, 1): BASE + ONE + TWO}),
        (1, {(3, 1): BASE, (3, 2): state(Gtid(0, 1, 1)) + REST + TWO}),
        (2, {(3, 1): BASE, (3, 2): state(Gtid(0, 1, 1)) + REST + TWO}),
        (3, {(3, 1): BASE + ONE + TWO}),
    ],
)
def test_the_state_at_a_place(interval: int, contents: dict[tuple[int, int], bytes]) -> None:
    """From page 1, or the last record inside the file, and the groups behind it."""
    pages = PlainPages(contents)
    end = Position(3, len(contents) * PAGE_SIZE + 1000)
    assert state_at(pages, end, interval) == BinlogState([Gtid(7, 7, 7), Gtid(0, 1, 2)])
    with pytest.raises(PositionPurged):
        state_at(pages, Position(4, PAGE_SIZE), interval)


def test_a_stored_group_that_is_none_is_damage() -> None:
    """Not an error of the protocol, which nobody who reads a store expects."""
    pages = PlainPages({(1, 1): state() + commit(b"?" * 40)})
    with pytest.raises(CorruptBinlog, match="neither a GTID nor a format description"):
        state_at(pages, Position(1, PAGE_SIZE + 1000), 0)
    with pytest.raises(CorruptBinlog, match="neither a GTID nor a format description"):
        first_times(pages, Stretch(Partition(1, 1, 2), BinlogState()))


def test_the_last_chunk_of_a_page() -> None:
    assert last_chunk(bytes(PAGE_SIZE)) == (0, 0)
    page = state() + chunk(RecordType.DUMMY, b"-" * 10)
    assert last_chunk(page.ljust(PAGE_SIZE, b"\0")) == (len(page), RecordType.DUMMY)
    assert last_chunk(page.ljust(PAGE_SIZE, b"\xff")) == (len(page), RecordType.DUMMY)
