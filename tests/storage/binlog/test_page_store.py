"""Pages between the writer and their files: what readers find at each step, and what is synced when."""

from __future__ import annotations

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.page_store import FullPages, PageStore
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, seal
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, group, simple
from tests.storage.sizes import small

FILE_PAGES = 64
RUN = range(10, 15)


def page(number: int, fill: int = 0x55) -> bytes:
    made = bytearray(PAGE_SIZE)
    made[:8] = number.to_bytes(8, "little")
    made[8:100] = bytes((fill,)) * 92
    return seal(made)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    file = disk.open(file_name(0), create=True)
    file.allocate(FILE_PAGES * PAGE_SIZE)
    file.close()
    return disk


@pytest.fixture
def store(disk: MemoryDisk) -> PageStore:
    store = PageStore(disk, 64)
    store.begin_tail(0, 20, bytearray(PAGE_SIZE))
    return store


def add_all(store: PageStore) -> None:
    """A single page, a run of five, a single page again."""
    store.add(0, 9, page(9), 1)
    store.add(0, RUN[0], b"".join(map(page, RUN)), 2)
    store.add(0, 15, page(15), 3)


def found(store: PageStore) -> dict[int, int]:
    """Of the pages there are: the number that was written on it."""
    pages = {number: store.page(0, number, ahead=False) for number in range(7, 18)}
    assert {len(data) for data in pages.values() if data is not None} == {PAGE_SIZE}
    return {
        number: int.from_bytes(data[:8], "little")
        for number, data in pages.items()
        if data is not None and any(data)
    }


def test_the_pages_asked_for_last_stay(disk: MemoryDisk) -> None:
    store = PageStore(disk, 64)
    store.cache_pages = 2
    store.begin_tail(0, 20, bytearray(PAGE_SIZE))
    file = disk.open(file_name(0))
    for number in (1, 2, 3):
        file.pwrite(page(number), number * PAGE_SIZE)
    missed = []
    for number in (1, 2, 1, 1, 3, 1, 2):  # 3 drives out 2
        assert store.page(0, number, ahead=False) == page(number)
        missed.append(store.pages_missed)
    assert missed == [1, 2, 2, 2, 3, 3, 4]


def test_readers_find_each_page_at_each_step(store: PageStore) -> None:
    everything = {number: number for number in range(9, 16)}
    add_all(store)
    assert found(store) == everything
    assert store.waiting == 7
    while ready := store.ready(100, 1):
        store.write(ready)
        assert found(store) == everything
        store.written(ready)
        assert found(store) == everything
        assert store.waiting == 7 - (store.written_end[1] - 9)
    assert store.written_end == (0, 16)
    assert not store.fifo
    assert not store._unflushed_runs


def test_runs_are_the_pages_that_there_are(disk: MemoryDisk, store: PageStore) -> None:
    """In the FIFO, in the cache, in the file, the tail; a run ends in front of a page that is damaged or not there."""
    add_all(store)
    store.write(store.ready(100, 1))
    file = disk.open(file_name(0))
    file.pwrite(page(40) + page(41)[:-1] + b"?" + page(42), 40 * PAGE_SIZE)
    file.close()

    def numbers(first: int, count: int, file_no: int = 0) -> list[int]:
        pages = store.run(file_no, first, count)
        assert pages == [store.page(file_no, first + n) for n in range(len(pages))]
        return [int.from_bytes(data[:8], "little") for data in pages]

    for _ in range(2):  # by the file first, then by the cache
        assert numbers(9, 7) == [*range(9, 16)]
        assert numbers(12, 2) == [12, 13]
        assert numbers(14, 8) == [14, 15, 0, 0, 0, 0, 0, 0]  # empty pages, among them the tail
        assert numbers(40, 5) == [40]
        assert numbers(41, 1) == []
        assert numbers(FILE_PAGES - 1, 9) == [0]
        assert numbers(FILE_PAGES, 9) == []
        assert numbers(1, 9, file_no=7) == []
        assert numbers(9, 0) == []


def test_a_run_counts_what_was_wanted_and_missed(store: PageStore) -> None:
    add_all(store)
    assert len(store.run(0, 9, 7)) == 7
    assert (store.pages_wanted, store.pages_missed) == (7, 0)
    assert len(store.run(0, 30, 2)) == 2
    assert (store.pages_wanted, store.pages_missed) == (9, 2)  # empty pages are not kept


def test_how_far_the_file_is_written(disk: MemoryDisk) -> None:
    """From the first tail on. Of a new file its header comes first, and is not in it yet."""
    store = PageStore(disk, 64)
    store.begin_tail(0, 20, bytearray(PAGE_SIZE))
    assert store.written_end == (0, 20)
    store = PageStore(disk, 64)
    store.add(1, 0, page(0), 1)
    store.begin_tail(1, 1, bytearray(PAGE_SIZE))
    assert store.written_end == (1, 0)
    store.restart()
    store.begin_tail(2, 7, bytearray(PAGE_SIZE))
    assert store.written_end == (2, 7)


def test_what_is_ready(store: PageStore) -> None:
    """Up to a number of pages, but what was added at once is not taken apart; no page whose redo is not durable."""
    add_all(store)

    def keys(durable_lsn: int, count: int) -> list[int]:
        return [pages.key[1] for pages in store.ready(durable_lsn, count)]

    assert keys(1, 100) == []
    assert keys(2, 100) == [9]
    assert keys(100, 1) == keys(100, 5) == [9]
    assert keys(100, 6) == [9, 10]
    assert keys(100, 7) == [9, 10, 15]
    store.written(store.ready(100, 1))
    assert keys(100, 1) == [10], "more at once, rather than never"


def test_pages_of_two_files_are_not_ready_together(store: PageStore) -> None:
    add_all(store)
    store.add(1, 0, page(0), 4)
    assert [pages.key for pages in store.ready(100, 100)] == [(0, 9), (0, 10), (0, 15)]


def test_new_pages_stand_in_place_of_what_was_read(disk: MemoryDisk) -> None:
    file = disk.open(file_name(0))
    for number in range(9, 16):
        file.pwrite(page(1000 + number), number * PAGE_SIZE)
    file.close()
    store = PageStore(disk, 64)
    assert found(store)[12] == 1012
    store.begin_tail(0, 20, bytearray(PAGE_SIZE))
    add_all(store)
    while ready := store.ready(100, 100):
        store.write(ready)
        store.written(ready)
    assert found(store) == {number: number for number in range(9, 16)}


def test_a_file_that_is_made_while_files_are_listed_is_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one file behind RESET MASTER: without it a replica would be told that what it needs was purged."""
    store = PageStore(MemoryDisk(), 64)
    store.add_file(7, FILE_PAGES * PAGE_SIZE)
    store.add(7, 0, page(0), 1)
    listed = store.files.numbers

    def and_then_made() -> list[int]:
        before = listed()
        store.write(list(store.fifo))
        return before

    monkeypatch.setattr(store.files, "numbers", and_then_made)
    assert store.numbers() == [7]


def test_neighbours_are_one_write(store: PageStore, disk: MemoryDisk) -> None:
    add_all(store)
    store.add(0, 18, page(18), 4)
    done: list[str] = []
    disk.fault = lambda what, _: done.append(what)
    store.write(store.ready(100, 100))
    assert done == ["allocate", "write", "write"], "the file was there before: it may have holes"
    done.clear()
    store.add(0, 19, page(19), 5)
    store.write(store.ready(100, 100)[-1:])
    assert done == ["write"]


def test_a_tail_is_one_page(store: PageStore) -> None:
    tail = store.sealed_tail()
    assert tail == FullPages(-1, (0, 20), (0, 21), seal(bytearray(PAGE_SIZE)))
    assert tail.page_count == 1


class Unsynced:
    """How many pages were written since the last sync, at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._now = 0
        write, sync = PageStore.write, PageStore.sync_file

        def noted_write(store: PageStore, pages: list[FullPages], *, hurry: bool = False) -> None:
            write(store, pages, hurry=hurry)
            self._now += sum(some.page_count for some in pages)
            self.most = max(self.most, self._now)

        def noted_sync(store: PageStore, file_no: int) -> None:
            sync(store, file_no)
            self._now = 0

        monkeypatch.setattr(PageStore, "write", noted_write)
        monkeypatch.setattr(PageStore, "sync_file", noted_sync)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> Unsynced:
    """Recovery without a redo log looks at `UNSYNCED_PAGES_MAX`, and no more."""
    monkeypatch.setattr("binlog_storage.binlog.bounds.QUIET_S", 0)  # as many as there may ever be
    return Unsynced(monkeypatch)


LARGE_FILES = small(2048, 64, innodb_log_file_size=64 << 20)


@pytest.mark.parametrize("bulk", [False, True])
def test_no_more_than_a_bound_is_unsynced_in_a_large_group(unsynced: Unsynced, bulk: bool) -> None:
    engine = IbbEngine(MemoryDisk(), LARGE_FILES)
    append_all(engine, simple(20))
    writer = engine.begin(bulk=bulk)
    for number in range(24):
        writer.spill(bytes((number,)) * (1 << 20))
        while engine._flusher._work():
            pass
    assert UNSYNCED_PAGES_MAX // 2 < unsynced.most <= UNSYNCED_PAGES_MAX
    writer.rollback()
    engine.close()


@pytest.mark.parametrize("how", ["checkpoint", "publish", "settle"])
def test_no_more_than_a_bound_is_unsynced_when_all_is_written(unsynced: Unsynced, how: str) -> None:
    engine = IbbEngine(MemoryDisk(), LARGE_FILES)
    for number in range(1, 1200):
        engine.append(*group(Gtid(0, 1, number), 16_000))
    if how == "settle":
        writer = engine.begin(bulk=True)
        writer.spill(bytes(1 << 20))
        writer.settle()
    else:
        engine.sync()
        getattr(engine._flusher, how)()  # the next call of `publish` writes
        getattr(engine._flusher, how)()
    assert not engine._pages.waiting
    assert UNSYNCED_PAGES_MAX // 2 < unsynced.most <= UNSYNCED_PAGES_MAX
    engine.close()


@pytest.mark.parametrize("meanwhile", ["is made ahead", "is written to"])
def test_a_header_that_comes_while_it_is_looked_for(
    meanwhile: str, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was not there, or had no data: that is no damage because both have come since."""
    look = store.page
    if meanwhile == "is written to":
        store.files.make_ahead(1, FILE_PAGES * PAGE_SIZE)

    def and_then(file_no: int, page_no: int, *, ahead: bool = True) -> bytes | None:
        found = look(file_no, page_no, ahead=ahead)
        if meanwhile == "is made ahead":
            store.files.make_ahead(1, FILE_PAGES * PAGE_SIZE)
        else:
            store.add(1, 0, page(0), 1)
            store.begin_tail(1, 1, bytearray(PAGE_SIZE))
        return found

    monkeypatch.setattr(store, "page", and_then)
    assert store.header(1) is None
