"""Where the writer puts chunks, byte by byte: page ends, file ends, state records, headers."""

from __future__ import annotations

import itertools

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb import gtid_state
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.log_file import read_state
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import vectors
from tests.storage.groups import group, read_all
from tests.storage.sizes import small
from tests.storage.writing import PAGES, SMALL, Writing


@pytest.mark.parametrize("last_page", [False, True], ids=["page end", "file end"])
@pytest.mark.parametrize("left", range(9))
def test_a_record_with_little_room(left: int, last_page: bool) -> None:
    writing = Writing()
    writing.writer.start_new(0)
    page_no = PAGES - 1 if last_page else 2
    writing.fill_to(left, page_no)
    end = writing.writer.end
    where = (1, 1) if last_page else (0, 3)
    behind = b"\x42\x02\x00\x00\x00" if last_page else b""  # page 3 is odd: no state there
    start = writing.writer.write(RecordType.COMMIT, b"0123456789")
    full = writing.page(0, page_no)
    following = writing.page(*where)
    assert following.startswith(behind)
    following = following[len(behind) :]
    if left < 4:
        assert full[PAGE_END - left : PAGE_END] == b"\xff" * left
        assert following[:13] == b"\x41\x0a\x00" + b"0123456789"
        assert start == Position(where[0], where[1] * PAGE_SIZE + len(behind))
        assert end == Position(0, (page_no + 1) * PAGE_SIZE)
    else:
        data = left - 3
        assert full[PAGE_END - left : PAGE_END] == bytes((1, data, 0)) + b"0123456789"[:data]
        assert following[: 13 - data] == bytes((0xC1, 10 - data, 0)) + b"0123456789"[data:]
        assert start == end == Position(0, page_no * PAGE_SIZE + PAGE_END - left)


def test_data_that_ends_with_the_page_is_last() -> None:
    writing = Writing()
    writing.writer.start_new(0)
    writing.fill_to(13, 1)
    writing.writer.write(RecordType.OOB_DATA, b"0123456789")
    assert writing.page(0, 1)[PAGE_END - 13 : PAGE_END] == b"\x43\x0a\x00" + b"0123456789"
    assert writing.writer.end == Position(0, 2 * PAGE_SIZE)
    assert not any(writing.page(0, 2)), "nothing enters a page before it is needed"


def test_a_full_page_is_one_chunk() -> None:
    writing = Writing()
    writing.writer.start_new(0)
    writing.fill_to(0, 2)
    writing.writer.write(RecordType.COMMIT, b"x" * 16377)
    assert writing.page(0, 3)[:3] == b"\x41\xf9\x3f"
    assert writing.writer.end == Position(0, 4 * PAGE_SIZE)


def test_states_are_where_they_belong() -> None:
    writing = Writing(StoreOptions(8 * PAGE_SIZE, 2 * PAGE_SIZE))
    writer = writing.writer
    writer.start_new(0)
    number = 0
    while writer.end.file_no < 2 or writer.end.page_no < 5:
        number += 1
        writer.write(RecordType.COMMIT, b"x" * 5000, Gtid(0, 1, number))
    writing.flush()
    for file_no in (0, 1):
        base = read_state(writing.pages, file_no, 1)
        assert base is not None
        for page_no in range(2, 8):
            entries = read_state(writing.pages, file_no, page_no)
            assert (entries is None) == (page_no % 2 == 1)
    # A state has the GTIDs whose commit begins before it, also of the one that it stands in.
    pages = writing.pages
    reader = RecordReader(pages, Position(0, PAGE_SIZE))
    starts = []
    while (record := reader.next()) is not None:
        if record.type == RecordType.COMMIT:
            starts.append(record.start)
    for page_no in (2, 4, 6):
        begun = sum(start < Position(0, page_no * PAGE_SIZE) for start in starts)
        assert read_state(pages, 0, page_no) == [Gtid(0, 1, begun)]
    begun = sum(start < Position(1, 0) for start in starts)
    assert read_state(pages, 1, 1) == [Gtid(0, 1, begun)]
    # the difference begins anew in each file, and is empty if no commit began since
    begun_later = sum(start < Position(1, 2 * PAGE_SIZE) for start in starts)
    assert read_state(pages, 1, 2) == ([Gtid(0, 1, begun_later)] if begun_later > begun else [])


def test_the_first_gtid_alone_is_a_state_like_others() -> None:
    """MariaDB leaves it out at page 1 of file 0, which it writes with the first group. Here that page is written before
    any group, so what it holds was set: RESET to that state must not forget it."""
    writing = Writing()
    writing.writer.state.update(Gtid(0, 1, 1))
    writing.writer.start_new(0)
    assert writing.page(0, 1)[:8] == bytes.fromhex("42 05 00 08 00 00 08 08")
    other = Writing()
    other.writer.state.update(Gtid(0, 1, 2))
    other.writer.start_new(0)
    assert other.page(0, 1)[:8] == bytes.fromhex("42 05 00 08 00 00 08 10")


def test_a_state_of_several_pages() -> None:
    writing = Writing(StoreOptions(16 * PAGE_SIZE, 8 * PAGE_SIZE))
    entries = [Gtid(domain, 1, 1000 + domain) for domain in range(8000)]
    writing.writer.state.overlay(entries)
    writing.writer.start_new(3)
    writing.writer.write(RecordType.COMMIT, b"behind it", Gtid(0, 1, 1001))
    writing.flush()
    assert read_state(writing.pages, 3, 1) == entries
    page = writing.page(3, 2)
    assert page[0] == 0x82  # neither first nor last
    record = RecordReader(writing.pages, Position(3, PAGE_SIZE)).next()
    assert record is not None
    behind = RecordReader(writing.pages, record.end).next()
    assert behind is not None
    assert behind.data == b"behind it"


def state_entries(size: int) -> list[Gtid]:
    """Entries whose state record has a body of exactly `size` bytes."""
    six = [Gtid(0, 1000 + number, 70_000) for number in range((size - 3) // 6 - 1)]
    short = size - len(gtid_state.encode(BinlogState(six)))
    for server_id, bits in itertools.product((1, 1000), (0, 5, 13, 21, 29, 37, 45, 53)):
        entries = [*six, Gtid(1, server_id, 1 << bits)]  # one more, of 3 to 12 bytes
        if len(gtid_state.encode(BinlogState(entries))) == size:
            return entries
    raise AssertionError(f"{short} bytes are missing")


@pytest.mark.parametrize("left", range(6))
@pytest.mark.parametrize("page_no", [1, 2], ids=["full state", "difference"])
def test_a_state_that_fills_its_page(left: int, page_no: int) -> None:
    """What comes behind it begins on the next page if fewer than 4 bytes are left."""
    writing = Writing(StoreOptions(16 * PAGE_SIZE, 2 * PAGE_SIZE))
    writer = writing.writer
    size = PAGE_END - 3 - left
    entries = state_entries(size)
    if page_no == 1:
        writer.state.overlay(entries)
        writer.start_new(7)
    else:
        writer.start_new(7)
        writing.fill_to(0, 1)
        writer._since_page_one.overlay(entries)
    start = writer.write(RecordType.COMMIT, b"behind it")
    writing.flush()
    found = read_state(writing.pages, 7, page_no)
    assert found is not None
    assert BinlogState(found) == BinlogState(entries)
    expected = (page_no + 1) * PAGE_SIZE
    if page_no + 1 == 2:
        expected += 5  # there the next state record stands first
    assert start.offset == (expected if left < 4 else page_no * PAGE_SIZE + PAGE_END - left)
    record = RecordReader(writing.pages, start).next()
    assert record is not None
    assert record.data == b"behind it"


@pytest.mark.long
def test_a_state_as_large_as_a_file() -> None:
    """The file is made larger; a state that filled it would be followed by the next, without end."""
    disk = MemoryDisk()
    options = small(PAGES, innodb_log_file_size=4 << 20)
    engine = IbbEngine(disk, options)
    groups = [group(Gtid(domain, 1, 70_000)) for domain in range(9000)]
    for payload, gtid in groups:
        engine.append(payload, gtid)
    engine.close()
    engine = IbbEngine(disk, options)
    assert read_all(engine) == [payload for payload, _ in groups]
    assert engine.binlog_state() == BinlogState(gtid for _, gtid in groups if gtid)
    sizes = {file.size // PAGE_SIZE for file in engine.files()}
    assert sizes == {PAGES, 2 * PAGES, 3 * PAGES}
    engine.close()


def test_a_difference_that_leaves_no_room_is_left_out() -> None:
    """Of two pages, at page 2 of 4 with an interval of 2: readers could not probe the next one."""
    writing = Writing()
    writing.writer.start_new(0)
    for domain in range(4000):
        writing.writer.state.update(Gtid(domain, 1, 70000))
        writing.writer._since_page_one.update(Gtid(domain, 1, 70000))
    writing.fill_to(0, 1)
    writing.writer.write(RecordType.COMMIT, b"x")
    writing.flush()
    assert read_state(writing.pages, 0, 2) is None
    assert writing.page(0, 2)[:4] == b"\x41\x01\x00x"


def test_the_header_names_the_file_of_an_open_group() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    first = engine.begin()
    first.spill(b"x" * 100)
    other = engine.begin()
    other.spill(b"y" * 100_000)
    gtid = Gtid(0, 1, 1)
    first.commit(bytes(38), gtid)
    other.spill(b"y" * 100_000)
    other.rollback()
    engine.append(bytes(32000), Gtid(0, 1, 2))
    engine.append(bytes(32000), Gtid(0, 1, 3))
    engine.append(bytes(32000), Gtid(0, 1, 4))
    engine.checkpoint()
    refs = []
    for number in range(len(engine.files())):
        header = FileHeader.parse(vectors.file_bytes(disk, file_name(number))[:PAGE_SIZE], number)
        assert header is not None
        refs.append(header.oob_ref)
    assert refs[:5] == [0, 0, 0, 0, 0]
    assert refs[-1] == len(refs) - 1
