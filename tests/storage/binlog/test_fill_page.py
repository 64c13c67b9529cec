"""Groups onto a page: in Python and in C, and beside the way that writes one record after the other."""

from __future__ import annotations

import random
from array import array

import google_crc32c
import pytest
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog import fill_page as module
from binlog_storage.binlog.fill_page import (
    RUN_PAGES,
    fill_pages_plainly,
    fill_record_plainly,
    fill_run_plainly,
    plain_commit_plainly,
)
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.ibb.chunk import CHUNK_DATA_MAX, RecordType
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, is_sound
from binlog_storage.redo.format import (
    CRC,
    KIND_WRITE,
    MTR_HEAD,
    Write,
    build_mtr,
    parse_records,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.storage import vectors
from tests.storage.binlog.test_write_plain import KeptRedo, write_long, writing
from tests.storage.writing import NoRedo, Writing

HAS_C = module.fill_run is not fill_run_plainly
needs_c = pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
FILLS = [
    pytest.param(fill_run_plainly, id="python"),
    pytest.param(module.fill_run, id="c", marks=needs_c),
]


def run_of(sizes: list[int], first: int = 1) -> GroupRun:
    payloads = [bytes([1 + n % 255]) * size for n, size in enumerate(sizes)]
    return GroupRun.of(payloads, [Gtid(0, 1, first + n) for n in range(len(sizes))])


def filled(
    fill: module.FillRun, page: bytearray, at: int, run: GroupRun, index: int, more: int
) -> module.FilledRun | None:
    return fill(page, at, run.payloads, run.ends, index, more, KIND_WRITE | 1, 70000, 3, 4096)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    ("at", "sizes", "index", "more", "wanted"),
    [
        (0, [10, 20], 0, 0, (0, 38, 2)),
        (100, [10, 20], 1, 0, (0, 124, 2)),
        (100, [10, 20], 2, 5, None),
        (PAGE_END - 14, [10, 20], 0, 0, (0, PAGE_END, 1)),
        (PAGE_END - 13, [10, 20], 0, 0, None),
        (PAGE_END - 13, [10, 20], 0, 1, (1, 4 + 24, 2)),
        (PAGE_END - 4, [10], 0, 1, (1, 3 + 10, 1)),
        (PAGE_END - 3, [10], 0, 1, (1, 4 + 10, 1)),
        (PAGE_END - 1, [10], 0, 0, None),
        (PAGE_END, [1], 0, 0, None),
        (PAGE_END, [1], 0, 1, (1, 5, 1)),
        (0, [PAGE_END - 4], 0, 0, (0, PAGE_END, 1)),
        (0, [PAGE_END - 4, 1], 0, 1, (1, 5, 2)),
        (0, [PAGE_END - 3], 0, 0, None),
        (0, [PAGE_END - 3], 0, 1, (1, 4, 1)),
        (0, [100_000], 0, 5, None),
        (0, [100_000], 0, 6, (6, 100_001 - 6 * CHUNK_DATA_MAX + 3, 1)),
        (PAGE_END - 5, [1, 0, 0], 0, 1, (1, 8, 3)),
    ],
)
def test_what_fits(
    fill: module.FillRun,
    at: int,
    sizes: list[int],
    index: int,
    more: int,
    wanted: tuple[int, int, int] | None,
) -> None:
    run, page = run_of(sizes), bytearray(PAGE_SIZE)
    page[:at] = before = bytes([0xAB]) * at
    found = filled(fill, page, at, run, index, more)
    if wanted is None:
        assert found is None
        assert page == before.ljust(PAGE_SIZE, b"\0")
        return
    assert found is not None
    full, last, end, done, _ = found
    assert (len(full), end, done) == wanted
    assert all(is_sound(page) for page in full)
    assert (full[0] if full else last)[:at] == before
    assert not any(last[end:])
    if full:
        assert page == before.ljust(PAGE_SIZE, b"\0")
    else:
        assert last is page


@needs_c
@given(
    at=st.integers(0, PAGE_END),
    payload=st.binary(max_size=300) | st.integers(0, PAGE_END).map(bytes),
    behind=st.binary(max_size=40),
    kind=st.integers(0, 255),
    page_no=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 2**32 - 1),
    lsn=st.integers(0, 2**64 - 1),
)
def test_one_commit_in_c_equals_python(
    at: int, payload: bytes, behind: bytes, kind: int, page_no: int, epoch: int, lsn: int
) -> None:
    pages = bytearray(b"\x5a" * PAGE_SIZE), bytearray(b"\x5a" * PAGE_SIZE)
    made = []
    for page, write in zip(pages, (plain_commit_plainly, module.plain_commit), strict=True):
        try:
            made.append(write(page, at, payload, behind, kind, page_no, epoch, lsn))
        except IndexError:
            made.append(b"no room")
    assert made[0] == made[1]
    assert pages[0] == pages[1]
    assert (made[0] == b"no room") == (at + 4 + len(payload) > PAGE_END)


@needs_c
def test_one_commit_in_c_takes_no_wrong_page() -> None:
    for page, at in ((bytearray(PAGE_SIZE - 1), 0), (bytearray(PAGE_SIZE), -1), (bytearray(), 0)):
        with pytest.raises(IndexError):
            module.plain_commit(page, at, b"group", b"", KIND_WRITE, 1, 1, 0)
        assert not any(page)
    with pytest.raises(BufferError):
        module.plain_commit(bytes(PAGE_SIZE), 0, b"group", b"", KIND_WRITE, 1, 1, 0)  # type: ignore[arg-type]


@needs_c
@given(
    st.lists(st.integers(0, 5000) | st.integers(0, 40_000), min_size=1, max_size=40),
    st.integers(0, PAGE_END) | st.integers(PAGE_END - 8, PAGE_END),
    st.integers(0, 40),
    st.integers(0, 8) | st.just(RUN_PAGES),
)
def test_c_equals_python(sizes: list[int], at: int, index: int, more: int) -> None:
    run, index = run_of(sizes), min(index, len(sizes))
    one, other = bytearray(b"\x5a" * PAGE_SIZE), bytearray(b"\x5a" * PAGE_SIZE)
    one[at:] = other[at:] = bytes(PAGE_SIZE - at)
    found = filled(module.fill_run, one, at, run, index, more)
    assert found == filled(fill_run_plainly, other, at, run, index, more)
    assert one == other


@pytest.mark.parametrize("fill", FILLS)
@given(
    st.lists(st.integers(0, 3000) | st.integers(0, 40_000), min_size=1, max_size=30),
    st.integers(0, PAGE_END),
    st.integers(0, 8),
)
def test_the_mini_transaction_makes_the_pages_again(
    fill: module.FillRun, sizes: list[int], at: int, more: int
) -> None:
    page = bytearray(b"\x5a" * at).ljust(PAGE_SIZE, b"\0")
    before = bytes(page)
    found = filled(fill, page, at, run_of(sizes), 0, more)
    if found is None:
        return
    full, last, end, _, mtr = found
    assert mtr == build_mtr(3, 4096, mtr[MTR_HEAD.size : -CRC.size])
    again = {70000: bytearray(before)}
    for record in parse_records(mtr[MTR_HEAD.size : -CRC.size]):
        assert isinstance(record, Write)
        assert record.parity == 1
        if record.page_no > 70000:
            assert record.offset == 0, "it begins the page"
        some = again.setdefault(record.page_no, bytearray(PAGE_SIZE))
        some[record.offset : record.offset + len(record.data)] = record.data
    assert [bytes(some[:PAGE_END]) for some in again.values()] == [
        bytes(some[:PAGE_END]) for some in (*full, last)
    ]
    assert not any(last[end:PAGE_END])


@pytest.mark.parametrize("fill", FILLS)
def test_places_outside_are_refused(fill: module.FillRun) -> None:
    page, run = bytearray(PAGE_SIZE), run_of([5])
    for at, index, more in (
        (-1, 0, 0),
        (PAGE_END + 1, 0, 0),
        (0, 2, 0),
        (0, -1, 0),
        (0, 0, -1),
        (0, 0, RUN_PAGES + 1),
    ):
        with pytest.raises(IndexError):
            filled(fill, page, at, run, index, more)
    assert not any(page)


@needs_c
def test_c_refuses_groups_that_are_not_there() -> None:
    ends = array("Q", [5, 3])
    page = bytearray(PAGE_SIZE)
    for given_page, payloads, index in (
        (bytearray(10), bytearray(5), 0),
        (page, bytearray(5), 0),
        (page, bytearray(4), 0),
        (page, bytearray(5), 1),
    ):
        with pytest.raises(IndexError):
            module.fill_run(given_page, 0, payloads, ends, index, 1, KIND_WRITE, 1, 1, 0)
    assert not any(page)
    with pytest.raises(BufferError):
        module.fill_run(bytes(PAGE_SIZE), 0, bytearray(5), ends, 0, 1, KIND_WRITE, 1, 1, 0)  # type: ignore[arg-type]


@needs_c
@given(
    st.binary(min_size=1, max_size=50),
    st.integers(0, 100),
    st.integers(1, 4),
    st.sampled_from((0, KIND_WRITE | 1)),
)
def test_whole_pages_by_c_equal_those_by_python(
    data: bytes, at: int, count: int, kind: int
) -> None:
    data = data * (5 * CHUNK_DATA_MAX // len(data) + 1)
    found = module.fill_pages(data, at, count, 0x03, 0x83, kind, 70000)
    assert found == fill_pages_plainly(data, at, count, 0x03, 0x83, kind, 70000)
    pages, last, redo = found
    assert bool(redo) == bool(kind)
    assert len(pages) == (count - 1) * PAGE_SIZE
    assert all(is_sound(pages[at : at + PAGE_SIZE]) for at in range(0, len(pages), PAGE_SIZE))
    assert is_sound(bytes(last))


@needs_c
def test_whole_pages_by_c_refuse_what_is_not_there() -> None:
    data = bytes(2 * CHUNK_DATA_MAX)
    for at, count in ((0, 3), (1, 2), (-1, 1), (len(data) + 1, 1), (0, 0), (0, -1)):
        with pytest.raises(IndexError):
            module.fill_pages(data, at, count, 0x03, 0x83, KIND_WRITE, 1)


@needs_c
@given(
    at=st.integers(0, PAGE_END - 4),
    head=st.binary(min_size=1, max_size=50),
    data=st.binary(min_size=1, max_size=50),
    size=st.integers(CHUNK_DATA_MAX, 5 * CHUNK_DATA_MAX)
    | st.integers(1, 5).map(CHUNK_DATA_MAX.__mul__),
    logged=st.booleans(),
    unlogged=st.binary(max_size=20),
)
def test_a_record_over_many_pages_by_c_equals_that_by_python(
    at: int, head: bytes, data: bytes, size: int, logged: bool, unlogged: bytes
) -> None:
    page = bytearray(random.Random(at).randbytes(PAGE_SIZE))
    data = (data * size)[:size]
    made: list[object] = []
    for way in (module.fill_record, fill_record_plainly):
        begin = 0 if logged else at
        try:
            made.append(way(page, at, head, data, 0x03, 0x83, KIND_WRITE, 70000, begin, unlogged))
        except IndexError:
            made.append("it does not fill a page")
    assert made[0] == made[1]
    assert page == random.Random(at).randbytes(PAGE_SIZE)
    if isinstance(made[0], tuple):
        pages, last, end, _ = made[0]
        assert all(is_sound(pages[at : at + PAGE_SIZE]) for at in range(0, len(pages), PAGE_SIZE))
        assert not any(last[end:])


@pytest.mark.parametrize(
    "fill", [fill_record_plainly, pytest.param(module.fill_record, marks=needs_c)]
)
def test_a_record_that_fills_no_page_is_refused(fill: module.FillRecord) -> None:
    page, data = bytearray(PAGE_SIZE), bytes(3 * CHUNK_DATA_MAX)
    for at, head, some, begin in (
        (0, b"h", bytes(2 * CHUNK_DATA_MAX - 1), 0),
        (10, b"h", bytes(2 * CHUNK_DATA_MAX - 11), 0),
        (PAGE_END - 3, b"h", data, 0),
        (PAGE_END - 5, b"head", data, 0),
        (PAGE_END, b"", data, 0),
        (PAGE_SIZE, b"", data, 0),
        (5, b"h", data, 6),
        (-1, b"h", data, -1),
        (5, b"h", data, -1),
    ):
        with pytest.raises(IndexError):
            fill(page, at, head, some, 0x03, 0x83, KIND_WRITE, 1, begin, b"")
    pages, last, end, _ = fill(page, 0, b"h", bytes(2 * CHUNK_DATA_MAX), 3, 0x83, 16, 1, 0, b"")
    assert (len(pages), last[:5], end) == (2 * PAGE_SIZE, bytearray(b"\xc3\x01\0\0\0"), 4)


class AllDurable(NoRedo):
    """Pages may go to their files."""

    @property
    def lsn(self) -> int:
        return 1 << 60


def require_same(one: Writing, other: Writing) -> None:
    """Where the writers stand, and the bytes of all files once their pages are there."""
    for name in ("stand", "unlogged_end", "bytes_written"):
        assert getattr(one.writer, name) == getattr(other.writer, name), name
    for each in (one, other):
        each.redo = AllDurable()
        each.flush()
    assert one.disk.names() == other.disk.names()
    for name in one.disk.names():
        assert vectors.file_bytes(one.disk, name) == vectors.file_bytes(other.disk, name)


RECORD_SIZES = st.one_of(
    st.integers(1, 3000),
    st.integers(1, 40 * PAGE_SIZE),
    st.builds(
        lambda pages, rest: pages * CHUNK_DATA_MAX + rest, st.integers(1, 20), st.integers(0, 5)
    ),
)


@given(st.lists(st.tuples(RECORD_SIZES, st.booleans()), max_size=8), st.sampled_from([2, 8, 64]))
def test_large_records_are_written_the_same(
    records: list[tuple[int, bool]], interval_pages: int
) -> None:
    """As chunk by chunk: pages, redo, and where the writer stands."""
    options = StoreOptions(
        max_binlog_size=50 * PAGE_SIZE, innodb_binlog_state_interval=interval_pages * PAGE_SIZE
    )
    quick, plain = KeptRedo(), KeptRedo()
    made = []
    for redo, many in ((quick, 3 * CHUNK_DATA_MAX), (plain, 1 << 40)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("binlog_storage.binlog.log_writer._MANY_PAGES_BYTES", many)
            one = Writing(options)
            one.writer._redo = redo
            one.writer.start_new(0)
            for number, (size, checkpoint) in enumerate(records, 1):
                data = bytes([number]) * size
                one.writer.write(RecordType.COMMIT, b"\0" + data, Gtid(0, 1, number))
                one.writer.end_mtr()
                if checkpoint:
                    one.writer.tail_taken()
            made.append(one)
    assert quick.bodies == plain.bodies
    require_same(*made)


@pytest.mark.parametrize(
    "way", [fill_record_plainly, pytest.param(module.fill_record, marks=needs_c)]
)
@given(
    st.lists(st.tuples(RECORD_SIZES, st.booleans(), st.booleans()), max_size=8),
    st.sampled_from([2, 8, 64]),
)
def test_large_records_whose_pages_are_not_logged_are_written_the_same(
    way: module.FillRecord, records: list[tuple[int, bool, bool]], interval_pages: int
) -> None:
    """At once, and as a chunk, whole pages and another chunk: pages, redo, and where the writer stands."""
    options = StoreOptions(
        max_binlog_size=50 * PAGE_SIZE, innodb_binlog_state_interval=interval_pages * PAGE_SIZE
    )
    quick, plain = KeptRedo(), KeptRedo()
    made = []
    for redo, at_once in ((quick, True), (plain, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("binlog_storage.binlog.log_writer.fill_record", way)
            if not at_once:
                patch.setattr(LogWriter, "_fill_record", lambda *_: False)
            one = Writing(options)
            one.writer._redo = redo
            one.writer.start_new(0)
            for number, (size, with_head, checkpoint) in enumerate(records, 1):
                data, head = bytes([number]) * size, b"head" * with_head
                one.writer.write(RecordType.OOB_DATA, data, head=head, logged=False)
                one.writer.end_mtr()
                assert one.pages.waiting == sum(some.page_count for some in one.pages.fifo)
                if checkpoint:
                    one.writer.tail_taken()
            made.append(one)
    assert quick.bodies == plain.bodies
    require_same(*made)


@pytest.mark.parametrize("fill", FILLS)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 9000) | st.integers(1, 50_000), min_size=1, max_size=30),
            st.integers(0, 16),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.sampled_from([2, 4, 8, 64]),
)
def test_runs_write_the_same_pages(
    fill: module.FillRun, runs: list[tuple[list[int], int, bool]], interval_pages: int
) -> None:
    """As one record after the other does, where state records and files come in between, too; the redo is in other
    pieces, and has the same bytes of pages.
    """
    options = StoreOptions(
        max_binlog_size=50 * PAGE_SIZE, innodb_binlog_state_interval=interval_pages * PAGE_SIZE
    )
    quick, plain = Writing(options), Writing(options)
    for made in (quick, plain):
        made.writer.start_new(0)
    seq_no = 1
    for sizes, pages, checkpoint in runs:
        run = run_of(sizes, seq_no)
        seq_no += len(sizes)
        index = 0
        while index < len(run):
            before = quick.writer.stand
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("binlog_storage.binlog.log_writer.fill_run", fill)
                done = quick.writer.write_run(run, index, pages)
            assert quick.writer.stand.page_no <= before.page_no + pages
            if done == index:
                write_long(quick, run.payload(index), run.gtid(index))
                done += 1
            index = done
        for index in range(len(run)):
            write_long(plain, run.payload(index), run.gtid(index))
        assert quick.writer.end == plain.writer.end
        assert quick.writer.commits == plain.writer.commits
        if checkpoint:
            quick.writer.tail_taken()
            plain.writer.tail_taken()
    assert quick.writer.state.entries() == plain.writer.state.entries()
    require_same(quick, plain)


def test_when_it_is_not_that_simple() -> None:
    made, _ = writing()
    run = run_of([100, 100, 100])
    assert made.writer.write_run(run, 0, 4) == 0, "a new server in the state"
    write_long(made, run.payload(0), run.gtid(0))
    assert made.writer.write_run(run, 0, 4) == 0, "a number that goes back"
    assert made.writer.write_run(run, 1, 4) == 3
    assert made.writer.state.get(0, 1) == 3
    made.writer.tail_taken()
    assert made.writer.write_run(run_of([1], 9), 0, 4) == 0, "the whole page is to be logged"


@needs_c
@given(st.binary(max_size=100), st.integers(0, 17))
def test_crcs_of_every_processor(data: bytes, start: int) -> None:
    """By tables, as on a processor without an instruction for it, and by that; at any place in memory."""
    from binlog_storage.ibb._speedups import crc32c

    part = memoryview(bytes(start) + data)[start:]
    wanted = google_crc32c.value(data)
    assert crc32c(part, False) == wanted
    assert crc32c(part, True) in (wanted, None)


@needs_c
@pytest.mark.parametrize("by_instruction", [False, True])
def test_the_crc_of_the_standard(by_instruction: bool) -> None:
    from binlog_storage.ibb._speedups import crc32c

    assert crc32c(b"123456789", by_instruction) in (0xE3069283, None)


@needs_c
@pytest.mark.parametrize("size", [16_367, 16_368, 16_369, PAGE_END, PAGE_SIZE, 32_736, 50_001])
@pytest.mark.parametrize("kind", ["random", "zeros", "ones"])
def test_crcs_by_three_lanes(size: int, kind: str) -> None:
    """Side by side where there is enough for them, and what is left behind them."""
    from binlog_storage.ibb._speedups import crc32c

    data = {
        "random": random.Random(size).randbytes(size),
        "zeros": bytes(size),
        "ones": b"\xff" * size,
    }[kind]
    assert crc32c(data, True) in (google_crc32c.value(data), None)
    assert crc32c(data, False) == google_crc32c.value(data)
