"""Pages of a store that may be growing: what is read once, what is read anew, and what is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.read_only_disk import ReadableFile, ReadOnlyDisk
from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, seal
from binlog_storage.log.log_file import first_record
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import batches_from
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import groups
from tests.storage.groups import settle
from tests.storage.sizes import small

PAGES = 200


class Watched:
    """Counts what is read: (file, first page, pages)."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.reads: list[tuple[str, int, int]] = []

    def open(self, name: str) -> ReadableFile:
        return _WatchedFile(self, name, self._disk.open(name))

    def names(self) -> list[str]:
        return self._disk.names()

    def size(self, name: str) -> int:
        return self._disk.size(name)


class _WatchedFile:
    def __init__(self, disk: Watched, name: str, file: ReadableFile) -> None:
        self._disk, self._name, self._file = disk, name, file

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.reads.append((self._name, offset // PAGE_SIZE, size // PAGE_SIZE))
        return self._file.pread(size, offset)

    def size(self) -> int:
        return self._file.size()

    def next_data(self, offset: int) -> int:
        return self._file.next_data(offset)

    def close(self) -> None:
        self._file.close()


def page(number: int) -> bytes:
    return seal(bytearray(b"\x07" * 1000 + number.to_bytes(4, "little") + bytes(PAGE_SIZE - 1004)))


def numbered(*file_nos: int, count: int = PAGES) -> MemoryDisk:
    disk = MemoryDisk()
    for file_no in file_nos:
        file = disk.open(file_name(file_no), create=True)
        file.pwrite(b"".join(map(page, range(count))), 0)
    return disk


def test_pages_one_behind_the_other_are_read_ahead() -> None:
    disk = Watched(numbered(0))
    with LogPages(disk, Position(0, PAGES * PAGE_SIZE)) as pages:
        assert [pages.page(0, n) for n in range(PAGES)] == [page(n) for n in range(PAGES)]
        assert pages.page(0, PAGES) is None
    assert [count for _, _, count in disk.reads][:8] == [1, 2, 4, 8, 16, 32, 64, 64]
    read = Counter(n for _, first, count in disk.reads for n in range(first, first + count))
    assert all(read[n] == 1 for n in range(PAGES))


def test_single_pages_are_not() -> None:
    """As planning reads: a page of every hundred."""
    disk = Watched(numbered(0))
    with LogPages(disk, Position(0, PAGES * PAGE_SIZE)) as pages:
        for n in (1, 100, 50, 150, 1):
            assert pages.page(0, n) == page(n)
    assert disk.reads == [(file_name(0), n, 1) for n in (1, 100, 50, 150)]


def test_what_lies_behind_the_end_is_read_anew_when_that_moves() -> None:
    disk = numbered(0, count=10)
    file = disk.open(file_name(0))
    with LogPages(disk, Position(0, 4 * PAGE_SIZE + 100)) as pages:
        assert [pages.page(0, n) for n in range(5)] == [page(n) for n in range(5)]
        file.pwrite(page(77), 4 * PAGE_SIZE)
        file.pwrite(page(78), 3 * PAGE_SIZE)  # which no server does
        pages.move_end(Position(0, 5 * PAGE_SIZE))
        assert pages.page(0, 4) == page(77)
        assert pages.page(0, 3) == page(3)


def test_a_page_that_is_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again, and then it is whole; elsewhere a page that is not whole is damaged."""
    disk = numbered(0, count=10)
    file = disk.open(file_name(0))
    half = page(5)[:5000] + page(6)[5000:]
    file.pwrite(half, 5 * PAGE_SIZE)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            file.pwrite(page(6), 5 * PAGE_SIZE)

    monkeypatch.setattr("binlog_storage.log.pages.time.sleep", sleep)
    with LogPages(disk, Position(0, 5 * PAGE_SIZE + 100)) as pages:
        assert pages.page(0, 4) == page(4)
        assert pages.page(0, 5) == page(6)
    assert len(slept) == 3
    file.pwrite(half, 2 * PAGE_SIZE)
    with (
        LogPages(disk, Position(0, 5 * PAGE_SIZE + 100)) as pages,
        pytest.raises(CorruptBinlog, match="page 2 in binlog number 0"),
    ):
        pages.page(0, 2)
    file.pwrite(half, 5 * PAGE_SIZE)
    with (
        LogPages(disk, Position(0, 5 * PAGE_SIZE + 100)) as pages,
        pytest.raises(CorruptBinlog, match="page 5 in binlog number 0"),
    ):
        pages.page(0, 5)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for file_no in (3, 4, 6):
        (tmp_path / file_name(file_no)).write_bytes(page(0) + page(1))
    disk = ReadOnlyDisk(tmp_path)
    with LogPages(disk, Position(6, PAGE_SIZE)) as pages:
        with pytest.raises(PositionPurged, match=r"binlog-000002\.ibb was purged meanwhile"):
            pages.page(2, 1)
        with pytest.raises(
            CorruptBinlog, match=r"binlog-000005\.ibb.*is missing, but what was in it was durable"
        ):
            pages.page(5, 1)
        assert pages.page(7, 1) is None
    for path in tmp_path.iterdir():
        path.unlink()
    with (
        LogPages(disk, Position(6, 2 * PAGE_SIZE)) as pages,
        pytest.raises(CorruptBinlog, match=r"binlog-000006\.ibb.*is missing"),
    ):
        pages.page(6, 1)


def test_files_made_ahead_are_no_data() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    groups.append_all(engine, groups.simple(300, size=500))
    settle(engine)
    end = engine.durable_end
    engine.close()
    made = file_numbers(disk.names())
    ahead = disk.open(file_name(made[-1]))
    assert ahead.pread(PAGE_SIZE, 0) == ZERO_PAGE
    with LogPages(disk) as pages:
        assert pages.files() == [n for n in made if n <= end.file_no]
    with LogPages(disk, end) as pages:
        assert pages.files() == [n for n in made if n <= end.file_no]
        assert not pages.has_data(made[-1])


@pytest.mark.parametrize("size", [100, 5000, 40_000])
def test_batches_from_anywhere_up_to_anywhere(size: int) -> None:
    """They begin and end where they are told, whatever files lie between."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    made = groups.simple(120, size=size)
    groups.append_all(engine, made)
    settle(engine)
    end = engine.durable_end
    engine.close()
    with LogPages(disk, end) as pages:
        begin = first_record(pages, Position(0, PAGE_SIZE), end)
        whole = list(batches_from(pages, begin, end))
        assert [p for batch in whole for p in batch.groups] == groups.payloads(made)
        assert [batch.start for batch in whole[1:]] == [batch.end for batch in whole[:-1]]
        for i, batch in enumerate(whole):
            some = [p for b in batches_from(pages, batch.start, end) for p in b.groups]
            assert some == [p for b in whole[i:] for p in b.groups]
            some = [p for b in batches_from(pages, begin, batch.end) for p in b.groups]
            assert some == [p for b in whole[: i + 1] for p in b.groups]


def test_a_file_that_was_made_anew() -> None:
    """Opened while it was made ahead and empty; then a start, or another max_binlog_size, has made it once more."""
    disk = numbered(0)
    disk.open(file_name(1), create=True).pwrite(bytes(4 * PAGE_SIZE), 0)
    with LogPages(disk, Position(0, PAGES * PAGE_SIZE)) as pages:
        assert not pages.has_data(1)
        header = FileHeader(file_no=1, pages=8, start_lsn=1, state_interval_pages=2, oob_ref=1)
        disk.unlink(file_name(1))
        disk.open(file_name(1), create=True).pwrite(header.build() + page(1) + bytes(PAGE_SIZE), 0)
        pages.move_end(Position(1, PAGE_SIZE + 8))
        assert pages.has_data(1)
        assert pages.page(1, 1) == page(1)
        pages.move_end(Position(1, 2 * PAGE_SIZE + 8))
        with pytest.raises(CorruptBinlog, match="more was published"):
            pages.page(1, 2)
