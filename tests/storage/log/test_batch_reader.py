"""Batches beside one record after the other, and the loop in C beside that in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from binlog_protocol.events.header import build_event
from binlog_storage.engine import LARGE_GROUP_BYTES
from binlog_storage.errors import CorruptBinlog, StorageError
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log import batch_reader
from binlog_storage.log.batch_reader import (
    WINDOW_BYTES,
    read_batch,
    read_placed_batch,
    take_plain_commits_plainly,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.groups import group_payload
from tests.storage.plain_pages import PlainPages, chunk

HAS_C = batch_reader.take_plain_commits is not take_plain_commits_plainly
needs_c = pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
START = Position(0, PAGE_SIZE)
PAGES = 40  # of each file, two windows and a half

Take = Callable[
    [list[bytes], int, int, int, list[bytes], list[tuple[int, int]] | None], tuple[int, int]
]


class Writer:
    """Cuts records into pages, as the store does."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], bytes] = {}
        self._place = (0, 1)
        self._page = b""

    def record(self, kind: int, data: bytes) -> None:
        first = True
        while first or data:
            room = PAGE_END - len(self._page) - 3
            if room < 1:
                self._page += b"\xff" * (room + 3)
                self._turn()
                continue
            part, data = data[:room], data[room:]
            self._page += chunk(kind, part, first=first, last=not data)
            first = False

    @property
    def end(self) -> Position:
        self.pages[self._place] = self._page
        file_no, page_no = self._place
        if PAGE_END - len(self._page) < 4:
            return Position(file_no, (page_no + 1) * PAGE_SIZE)
        return Position(file_no, page_no * PAGE_SIZE + len(self._page))

    def _turn(self) -> None:
        self.pages[self._place] = self._page
        file_no, page_no = self._place
        self._place = (file_no, page_no + 1) if page_no + 1 < PAGES else (file_no + 1, 1)
        self._page = b""


def one_after_the_other(pages: PlainPages, start: Position, limit: Position) -> list[bytes]:
    return list(singly(pages, start, limit))


def singly(pages: PlainPages, start: Position, limit: Position) -> Iterator[bytes]:
    reader = RecordReader(pages, start, limit)
    while (record := reader.next()) is not None:
        if record.type == RecordType.COMMIT:
            yield group_payload(pages, record)


def in_batches(pages: PlainPages, start: Position, limit: Position) -> list[bytes]:
    groups = []
    while start < limit:
        batch = read_batch(pages, start, limit)
        assert batch.end > start
        assert batch.start == start
        # Batches end in the next window at the latest, but for records that are longer.
        assert batch.groups or batch.end == limit
        groups += batch.groups
        start = batch.end
    return groups


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_batches_hold_what_single_records_do(
    seed: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(batch_reader, "take_plain_commits", take_plain_commits_plainly)
    random = Random(seed)
    writer = Writer()
    sizes = random.choice([(1, 400), (1, 40), (5000, 20000), (16300, 16400), (1, 60000)])
    ends = []
    for _ in range(40_000_000 // (sum(sizes) * 30)):
        # An event: a group that goes on in the next file must split into such.
        body = b"\0" + build_event(2, random.randbytes(random.randint(*sizes)), server_id=1)
        kind = random.choices([RecordType.COMMIT, RecordType.GTID_STATE, 9], [50, 1, 1])[0]
        writer.record(kind, body)
        ends.append(writer.end)
    pages = PlainPages(writer.pages, PAGES)
    for limit in (writer.end, random.choice(ends), random.choice(ends)):
        expected = one_after_the_other(pages, START, limit)
        assert in_batches(pages, START, limit) == expected


def test_batches_end_where_windows_do() -> None:
    writer = Writer()
    for n in range(3000):
        writer.record(RecordType.COMMIT, b"\0" + bytes(300 + n % 7))
    pages = PlainPages(writer.pages, PAGES * 3)
    first = read_batch(pages, START, writer.end).end
    assert WINDOW_BYTES <= first.offset < WINDOW_BYTES + 400
    # Who begins somewhere in the window meets those who came from before.
    later = RecordReader(pages, START)
    for _ in range(100):
        later.next()
    assert read_batch(pages, later.position, writer.end).end == first


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("seed", range(8))
def test_damage_is_found_as_by_single_records(seed: int) -> None:
    """Whatever a page holds: the same groups in front of it, and an error for an error."""
    random = Random(seed)
    writer = Writer()
    for _ in range(400):
        writer.record(RecordType.COMMIT, b"\0" + bytes(random.randint(1, 900)))
    end = writer.end
    for _ in range(150):
        damaged = dict(writer.pages)
        key = random.choice(list(damaged))
        page = bytearray(damaged[key])
        at = 0 if random.random() < 0.3 else random.randrange(len(page))
        page[at] = random.choice([0, 1, 0x41, 0x81, 0xC1, 0xFF, random.randrange(256)])
        damaged[key] = bytes(page)
        pages = PlainPages(damaged, PAGES)
        expected = up_to_damage(singly(pages, START, end))
        assert up_to_damage(in_batches_to_the_end(pages, end)) == expected
        assert up_to_damage(in_placed_batches(pages, end)) == expected


class UnreadablePages(PlainPages):
    """One page cannot be read."""

    def __init__(self, pages: dict[tuple[int, int], bytes], lost: tuple[int, int]) -> None:
        super().__init__(pages, PAGES)
        self._lost = lost

    def page(self, file_no: int, page_no: int) -> bytes | None:
        if (file_no, page_no) == self._lost:
            raise CorruptBinlog(file_no, page_no * PAGE_SIZE, "this page is lost")
        return super().page(file_no, page_no)


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("page_no", [1, 2, 5, 31, 33])
def test_all_that_is_sound_in_front_of_damage_is_read(page_no: int, size: int) -> None:
    writer = Writer()
    for _ in range(20 * PAGE_SIZE // size * 2):
        writer.record(RecordType.COMMIT, b"\0" + bytes(size))
    pages = UnreadablePages(writer.pages, (0, page_no))
    sound = (page_no - 1) * (PAGE_END - 8) // (size + 8)
    groups, failed = up_to_damage(in_batches_to_the_end(pages, writer.end))
    assert failed
    assert len(groups) >= sound
    assert up_to_damage(singly(pages, START, writer.end)) == (groups, failed)
    assert up_to_damage(in_placed_batches(pages, writer.end)) == (groups, failed)


@pytest.mark.parametrize("large_bytes", [LARGE_GROUP_BYTES, 15_000])
@pytest.mark.parametrize("left", [0, 4096, PAGE_SIZE, 2 * PAGE_SIZE, 2 * PAGE_SIZE + 5000])
def test_a_file_that_has_become_shorter_sends_nobody_back(left: int, large_bytes: int) -> None:
    """Its pages may be in memory still. Who was sent back would read the same groups for ever."""
    writer = Writer()
    for size in [300, 400, 40_000, 20_000] * 5:
        writer.record(RecordType.COMMIT, b"\0" + build_event(2, bytes(size), server_id=1))
    pages = PlainPages(writer.pages, PAGES)

    def read_all() -> None:
        start = START
        while True:
            batch = read_placed_batch(pages, start, writer.end, Position(0, left), large_bytes)
            ends = [group.end for group in batch.groups]
            ends += [batch.large.end] if batch.large is not None else []
            assert [start, *ends] == sorted({start, *ends})
            assert batch.end > start
            start = batch.end

    with pytest.raises(CorruptBinlog, match="has become shorter"):
        read_all()


def up_to_damage(groups: Iterator[bytes]) -> tuple[list[bytes], bool]:
    """What there is before an error, and whether there was one."""
    found = []
    try:
        for group in groups:
            found.append(group)
    except StorageError:
        return found, True
    return found, False


def in_batches_to_the_end(pages: PlainPages, limit: Position) -> Iterator[bytes]:
    """As `in_batches`, up to the end of the data, too."""
    start = START
    while start < limit:
        batch = read_batch(pages, start, limit)
        yield from batch.groups
        if batch.end == start:
            break
        start = batch.end


def in_placed_batches(pages: PlainPages, limit: Position) -> Iterator[bytes]:
    start = START
    while start < limit:
        file_end = Position(start.file_no, PAGES * PAGE_SIZE)
        batch = read_placed_batch(pages, start, limit, file_end)
        yield from (group.payload for group in batch.groups)
        if batch.end == start:
            break
        start = batch.end


CHUNKS = st.one_of(
    st.binary(max_size=40).map(lambda body: chunk(RecordType.COMMIT, b"\0" + body)),
    st.binary(max_size=40).map(lambda body: chunk(RecordType.COMMIT, body)),
    st.builds(
        chunk,
        st.integers(0, 63),
        st.binary(max_size=40),
        first=st.booleans(),
        last=st.booleans(),
    ),
    st.binary(max_size=8),
)


PAGE = st.builds(
    lambda body, shift: (bytes(shift) + body)[:PAGE_SIZE].ljust(PAGE_SIZE, b"\0"),
    st.lists(CHUNKS, max_size=20).map(b"".join),
    st.one_of(st.just(0), st.integers(16300, PAGE_END)),
)


def taken(
    take: Take, pages: list[bytes], at: int, stop: int
) -> tuple[tuple[int, int], list[bytes], list[tuple[int, int]]]:
    groups, runs = [b"before"], [(0, 7)]
    place = take(pages, at, stop, 3 * PAGE_SIZE, groups, runs)
    without: list[bytes] = [b"before"]
    assert take(pages, at, stop, 3 * PAGE_SIZE, without, None) == place
    assert without == groups
    return place, groups, runs


@needs_c
@given(
    st.lists(PAGE, min_size=1, max_size=3),
    st.one_of(st.just(0), st.integers(0, PAGE_SIZE)),
    st.integers(-5, 3 * PAGE_SIZE + 5),
)
def test_c_equals_python(pages: list[bytes], at: int, stop: int) -> None:
    begins = (at, next((n for n, byte in enumerate(pages[0]) if byte), 0))
    for begin in begins:
        c = taken(batch_reader.take_plain_commits, pages, begin, stop)
        assert c == taken(take_plain_commits_plainly, pages, begin, stop)


@needs_c
@pytest.mark.parametrize("seed", range(40))
def test_c_equals_python_for_many_pages(seed: int) -> None:
    """Commits that go over the ends of pages, sound ones and with a byte changed somewhere."""
    random = Random(seed)
    writer = Writer()
    sizes = random.choice([(1, 60), (300, 900), (5000, 16370)])
    for _ in range(300_000 // sizes[1]):
        writer.record(RecordType.COMMIT, b"\0" + random.randbytes(random.randint(*sizes)))
    end = writer.end
    pages = [page.ljust(PAGE_SIZE, b"\0") for _, page in sorted(writer.pages.items())]
    for changed in range(20):
        if changed:
            number, at = random.randrange(len(pages)), random.choice([0, 1, 2, 3, 16370, 16379])
            page = bytearray(pages[number])
            page[random.choice([at, random.randrange(PAGE_SIZE)])] ^= 1 << random.randrange(8)
            pages[number] = bytes(page)
        whole = end.offset - PAGE_SIZE
        stop = random.choice([whole, random.randrange(whole)]) if changed else whole
        c = taken(batch_reader.take_plain_commits, pages, 0, stop)
        assert c == taken(take_plain_commits_plainly, pages, 0, stop)
        assert changed or (c[0] == divmod(whole, PAGE_SIZE) and len(c[1]) > 9)


@needs_c
def test_c_refuses_what_is_no_page() -> None:
    take = batch_reader.take_plain_commits
    page = chunk(RecordType.COMMIT, b"\0x").ljust(PAGE_SIZE)
    bad: tuple[tuple[list[bytes], int], ...] = (
        ([], 0),
        ([b""], 0),
        ([page, page[1:]], 0),
        ([page], -1),
        ([bytearray(page)], 0),  # type: ignore[list-item]
    )
    for pages, at in bad:
        with pytest.raises(IndexError):
            take(pages, at, PAGE_SIZE, 0, [], None)
    with pytest.raises(IndexError):
        take([page], 0, 10, 0, (), None)  # type: ignore[arg-type]
    with pytest.raises(SystemError):
        take([page], 0, 10, 0, [], ())  # type: ignore[arg-type]


class Asked(PlainPages):
    """Says which pages were asked for."""

    def __init__(self, pages: dict[tuple[int, int], bytes]) -> None:
        super().__init__(pages, PAGES)
        self.asked: list[int] = []

    def page(self, file_no: int, page_no: int) -> bytes | None:
        self.asked.append(page_no)
        return super().page(file_no, page_no)


@pytest.mark.parametrize("fill", [0, PAGE_SIZE // 2])
def test_no_page_behind_the_limit_is_asked_for(fill: int) -> None:
    """It may be half written, and a reader from outside would wait for it."""
    writer = Writer()
    while writer.end.offset < 6 * PAGE_SIZE + fill:
        writer.record(RecordType.COMMIT, b"\0" + build_event(2, bytes(500), server_id=1))
    limit = writer.end
    while writer.end.offset < 9 * PAGE_SIZE:
        writer.record(RecordType.COMMIT, b"\0" + build_event(2, bytes(500), server_id=1))
    pages = Asked(writer.pages)
    batch = read_batch(pages, START, limit)
    assert batch.end == limit
    assert sorted(set(pages.asked)) == list(range(1, limit.page_no + 1))
    pages.asked.clear()
    assert read_batch(pages, limit, limit).end == limit
    assert pages.asked == []


def test_a_limit_inside_a_cut_group() -> None:
    """As of a part of a file that is read by itself: what begins in front of the limit is read to its end."""
    writer = Writer()
    while writer.end.offset < 4 * PAGE_SIZE:
        writer.record(RecordType.COMMIT, b"\0" + build_event(2, bytes(700), server_id=1))
    writer.record(RecordType.COMMIT, b"\0" + build_event(2, bytes(700), server_id=1))
    pages = PlainPages(writer.pages, PAGES)
    for page_no in (2, 3, 4):
        limit = Position(0, page_no * PAGE_SIZE)
        batch = read_batch(pages, START, limit)
        assert limit < batch.end < Position(0, limit.offset + 719)
        assert batch.groups == one_after_the_other(pages, START, limit)
