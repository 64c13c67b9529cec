"""The chunk reader on pages made by hand: nesting, skipping, the three ends, and what is corruption."""

from __future__ import annotations

import pytest
from binlog_storage.errors import CorruptBinlog, TruncatedRecord
from binlog_storage.ibb.chunk import CHUNK_DATA_MAX, Position, RecordType
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.ibb.records import RecordReader

from tests.storage.plain_pages import PlainPages, chunk

COMMIT, STATE, OOB, DUMMY = 1, 2, 3, 4
FULL = CHUNK_DATA_MAX
FIRST = Position(0, PAGE_SIZE)
A, B = b"A" * 20, b"B" * 30


def read(
    pages: PlainPages,
    start: Position = FIRST,
    limit: Position | None = None,
    *,
    skip: bool = False,
) -> list[tuple[int, bytes]]:
    reader = RecordReader(pages, start, limit, skip_partial=skip)
    found = []
    while (record := reader.next()) is not None:
        assert record.end == reader.position
        found.append((int(record.type), record.data))
    return found


def one_page(*chunks: bytes) -> PlainPages:
    return PlainPages({(0, 1): b"".join(chunks)})


def test_records_on_one_page() -> None:
    pages = one_page(chunk(STATE, b"\0\0"), chunk(COMMIT, A), chunk(OOB, B), chunk(7, A))
    assert read(pages) == [(STATE, b"\0\0"), (COMMIT, A), (OOB, B), (7, A)]


def test_positions() -> None:
    pages = one_page(chunk(COMMIT, A), chunk(COMMIT, B))
    reader = RecordReader(pages, Position(0, 0))
    first, second = reader.next(), reader.next()
    assert first is not None
    assert second is not None
    assert (first.start, first.end) == (Position(0, PAGE_SIZE), Position(0, PAGE_SIZE + 23))
    assert (second.start, second.end) == (first.end, Position(0, PAGE_SIZE + 56))
    assert second.type is RecordType.COMMIT or second.type == COMMIT
    assert reader.next() is None
    assert reader.position == second.end


@pytest.mark.parametrize("between", [b"", chunk(STATE, b"\0\0"), chunk(DUMMY, b"\xff" * 9)])
def test_a_record_over_two_pages(between: bytes) -> None:
    pages = PlainPages(
        {
            (0, 1): chunk(COMMIT, b"x" * FULL, last=False),
            (0, 2): between + chunk(COMMIT, B, first=False) + chunk(COMMIT, A),
        }
    )
    assert read(pages) == [(COMMIT, b"x" * FULL + B), (COMMIT, A)]


def test_data_of_one_type_alone() -> None:
    """What is passed over is checked as ever, and comes without its data."""
    behind = chunk(STATE, b"\0\0") + chunk(OOB, A) + chunk(COMMIT, A)
    pages = {
        (0, 1): chunk(OOB, b"x" * FULL, last=False),
        (0, 2): chunk(OOB, B, first=False) + behind,
    }
    commits_alone = RecordReader(
        PlainPages(pages), Position(0, PAGE_SIZE), data_of=RecordType.COMMIT
    )
    whole = list(RecordReader(PlainPages(pages), Position(0, PAGE_SIZE)))
    some = list(commits_alone)
    assert [record.data for record in some] == [b"", b"", b"", A]
    assert [record._replace(data=b"") for record in some] == [
        record._replace(data=b"") for record in whole
    ]
    del pages[0, 2]
    with pytest.raises(TruncatedRecord):
        list(RecordReader(PlainPages(pages), Position(0, PAGE_SIZE), data_of=RecordType.COMMIT))


def test_a_record_over_two_files() -> None:
    pages = PlainPages(
        {
            (0, 1): chunk(DUMMY, b"\xff" * FULL),
            (0, 2): chunk(DUMMY, b"\xff" * FULL),
            (0, 3): chunk(COMMIT, b"x" * FULL, last=False),
            (1, 1): chunk(STATE, b"\0\0") + chunk(COMMIT, B, first=False),
        }
    )
    assert read(pages)[2:] == [(COMMIT, b"x" * FULL + B)]


def test_a_state_over_two_pages_inside_a_record() -> None:
    pages = PlainPages(
        {
            (0, 1): chunk(COMMIT, b"x" * FULL, last=False),
            (0, 2): chunk(STATE, b"s" * FULL, last=False),
            (0, 3): chunk(STATE, b"s", first=False) + chunk(COMMIT, B, first=False),
        }
    )
    assert read(pages) == [(COMMIT, b"x" * FULL + B)]


@pytest.mark.parametrize("left", range(9))
def test_the_end_of_a_page(left: int) -> None:
    """`left` bytes behind the first record: filler for 1 to 3, a chunk from 4 on."""
    head = chunk(COMMIT, b"x" * (PAGE_END - 3 - left))
    if left >= 4:
        pages = PlainPages(
            {
                (0, 1): head + chunk(COMMIT, b"y" * (left - 3), last=False),
                (0, 2): chunk(COMMIT, B, first=False),
            }
        )
        second = b"y" * (left - 3) + B
    else:
        pages = PlainPages({(0, 1): head + b"\xff" * left, (0, 2): chunk(COMMIT, B)})
        second = B
    assert read(pages) == [(COMMIT, head[3:]), (COMMIT, second)]


def test_unknown_types_are_records_too() -> None:
    pages = one_page(*(chunk(kind, b"u") for kind in range(7, 63)), chunk(COMMIT, A))
    assert read(pages)[-1] == (COMMIT, A)
    assert [kind for kind, _ in read(pages)] == [*range(7, 63), COMMIT]


def test_filler_in_mid_page_ends_the_page() -> None:
    pages = PlainPages({(0, 1): chunk(COMMIT, A) + b"\xff", (0, 2): chunk(COMMIT, B)})
    assert read(pages) == [(COMMIT, A), (COMMIT, B)]


def test_an_empty_chunk() -> None:
    assert read(one_page(chunk(COMMIT, b""), chunk(COMMIT, A))) == [(COMMIT, b""), (COMMIT, A)]


def test_skip_partial() -> None:
    tail = chunk(COMMIT, b"rest", first=False)
    body = chunk(STATE, b"\0\0") + tail + chunk(COMMIT, A) + chunk(COMMIT, B)
    pages = PlainPages({(0, 2): body, (1, 1): body})
    for start in (Position(0, 2 * PAGE_SIZE), Position(1, PAGE_SIZE)):
        one = read(pages, start, Position(start.file_no, start.offset + len(body)), skip=True)
        assert one == [(STATE, b"\0\0"), (COMMIT, A), (COMMIT, B)]
        with pytest.raises(CorruptBinlog, match="starts with continuation chunk"):
            read(pages, start)


def test_nothing_is_skipped_at_the_very_beginning() -> None:
    """No record can come from in front of page 1 of file 0: a rest there has lost its head."""
    pages = one_page(chunk(COMMIT, b"rest", first=False), chunk(COMMIT, A))
    for start in (FIRST, Position(0, 0)):
        with pytest.raises(CorruptBinlog, match="starts with continuation chunk"):
            read(pages, start, skip=True)


def test_skipping_ends_with_the_first_record_that_stands_alone() -> None:
    """A state or a filling record may stand inside another; behind one that does not there is nothing left to skip."""
    rest = chunk(COMMIT, b"rest", first=False)
    nested = chunk(STATE, b"\0\0") + rest + chunk(DUMMY, b"") + rest
    start = Position(0, 2 * PAGE_SIZE)
    for type_ in (COMMIT, OOB):
        pages = PlainPages({(0, 2): nested + chunk(type_, A) + rest + chunk(COMMIT, B)})
        reader = RecordReader(pages, start, skip_partial=True)
        assert [next(iter(reader)).type for _ in range(3)] == [STATE, DUMMY, type_]
        with pytest.raises(CorruptBinlog, match="starts with continuation chunk"):
            reader.next()
        found = list(RecordReader(pages, start, lenient=True))
        assert [record.type for record in found] == [STATE, DUMMY, type_, COMMIT]
        commits = RecordReader(pages, start, lenient=True).commits()
        assert [record.data for record in commits] == ([A, B] if type_ == COMMIT else [B])


def test_the_limit_is_not_crossed() -> None:
    pages = one_page(chunk(COMMIT, A), chunk(COMMIT, B), b"\x41\xff\xff garbage")
    limit = Position(0, PAGE_SIZE + 23)
    assert read(pages, limit=limit) == [(COMMIT, A)]
    assert read(pages, limit, limit) == []
    assert read(pages, Position(1, PAGE_SIZE), limit) == []


def test_the_data_ends_inside_a_record() -> None:
    first = chunk(COMMIT, A)
    pages = PlainPages({(0, 1): first + chunk(OOB, b"x" * (FULL - 23), last=False)})
    with pytest.raises(TruncatedRecord, match="truncated in the middle") as info:
        read(pages)
    assert (info.value.file_no, info.value.offset) == (0, PAGE_SIZE + 23)


CORRUPT = [
    ("length over the page", [b"\x41\xff\xff"], "Invalid chunk length", 0),
    ("length one over the page", [b"\x41\xfa\x3f"], "Invalid chunk length", 0),
    ("stray rest", [chunk(COMMIT, A, first=False)], "starts with continuation chunk", 0),
    ("no end", [chunk(COMMIT, A, last=False), chunk(COMMIT, B)], "missing end chunk", 23),
    (
        "rest of another type",
        [chunk(COMMIT, A, last=False), chunk(OOB, B, first=False)],
        "missing end",
        23,
    ),
    ("unknown type inside", [chunk(COMMIT, A, last=False), chunk(9, B)], "missing end chunk", 23),
]


@pytest.mark.parametrize(
    ("chunks", "reason", "offset"), [pytest.param(*row[1:], id=row[0]) for row in CORRUPT]
)
def test_corrupt(chunks: list[bytes], reason: str, offset: int) -> None:
    with pytest.raises(CorruptBinlog, match=reason) as info:
        read(one_page(*chunks))
    assert info.value.offset == PAGE_SIZE + offset
    assert info.value.evidence[:1] == b"".join(chunks)[offset : offset + 1]


def test_zeros_in_front_of_another_file() -> None:
    pages = PlainPages({(0, 1): chunk(COMMIT, A), (1, 1): chunk(COMMIT, B)})
    with pytest.raises(CorruptBinlog, match="ends here, but it has a successor") as info:
        read(pages)
    assert (info.value.file_no, info.value.offset) == (0, PAGE_SIZE + 23)
