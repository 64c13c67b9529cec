"""The life of files: made ahead, ended by FLUSH at every place, deleted by RESET MASTER, found again at start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import File, OsDisk
from binlog_storage.errors import DiskError, DomainInUse
from binlog_storage.ibb.chunk import FILLER, Position, RecordType
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.disks import MortalDisk
from tests.storage.groups import (
    append_all,
    events,
    group,
    gtid_event,
    payloads,
    read_all,
    read_from,
    simple,
)
from tests.storage.log.test_search import LARGE_PAGES, make_large_store
from tests.storage.sizes import small
from tests.storage.vectors import file_bytes, walk
from tests.storage.writing import SMALL, Writing

FILE = 4 * PAGE_SIZE


# --- made ahead ---


class Journal:
    """A disk that writes down what is done to it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.done: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def open(self, name: str, *, create: bool = False) -> File:
        if create:
            self.done.append(("create", name))
        file = self.disk.open(name, create=create)
        sync = file.fdatasync

        def noted() -> None:
            sync()
            self.done.append(("sync", name))

        file.fdatasync = noted  # type: ignore[method-assign]
        return file


def test_the_next_file_is_made_ahead_and_of_full_size() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    assert engine.keeper.caretaker.step() is None
    assert [(f.number, f.size) for f in engine.files()] == [(n, FILE) for n in range(2)]
    assert not any(file_bytes(disk, file_name(1)))
    engine.keeper.caretaker.step()
    assert len(engine.files()) == 2
    groups = simple(40, size=2000)
    while engine.written_end.file_no == 0:
        engine.append(*groups.pop(0))
    engine.keeper.caretaker.step()
    assert len(engine.files()) == 2, "file 1 is entered in memory only"
    engine.sync()
    engine.keeper.caretaker.step()
    assert len(engine.files()) == 2, "file 0 may still need recovery"
    engine.checkpoint()
    engine.keeper.caretaker.step()
    assert [f.size for f in engine.files()] == [FILE] * 3
    append_all(engine, groups)
    engine.sync()
    assert read_all(engine) == payloads(simple(40, size=2000))
    engine.close()


def test_no_file_is_begun_before_the_last_but_one_is_synced() -> None:
    journal = Journal()
    engine = IbbEngine(journal, SMALL)  # type: ignore[arg-type]
    for number, (payload, gtid) in enumerate(simple(200, size=3000)):
        engine.append(payload, gtid)
        if number % 9 == 0:
            engine.sync()
        if number % 7 == 0:
            engine.keeper.caretaker.step()
        if number % 23 == 0:
            engine.checkpoint()
    engine.close()
    created = [
        (at, name)
        for at, (what, name) in enumerate(journal.done)
        if what == "create" and name.endswith(".ibb")
    ]
    assert len(created) > 8
    for at, name in created:
        number = int(name[7:-4])
        if number >= 2:
            older = file_name(number - 2)
            last = max(i for i, step in enumerate(journal.done) if step == ("sync", older))
            assert last < at, f"{name} was made before {older} was done with"


def test_another_size_after_a_restart() -> None:
    """The current file keeps its size; the one made ahead is made anew."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small())
    append_all(engine, simple(5, size=2000))
    engine.sync()
    engine.keeper.caretaker.step()
    engine.close()
    groups = simple(5, size=2000)
    for pages in (9, 4, 6):
        engine = IbbEngine(disk, small(pages, 4))
        engine.keeper.caretaker.step()
        more = simple(60, first=len(groups) + 1, size=3000)
        append_all(engine, more)
        groups += more
        engine.sync()
        assert engine.files()[-1].size == pages * PAGE_SIZE
        assert read_all(engine) == payloads(groups)
        engine.close()
    assert walk(disk).error is None


# --- FLUSH BINARY LOGS ---

# bytes left on the page when FLUSH comes: mid-page, page start, and everything that needs filler or does just not
PLACES = [9000, 100, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("left", PLACES)
@pytest.mark.parametrize("page_no", [1, 2, 3], ids=["page 1", "page 2", "last page"])
def test_flush_at_every_place(left: int, page_no: int) -> None:
    writing = Writing()
    writer = writing.writer
    writer.start_new(0)
    writing.fill_to(left, page_no)
    before = writer.end
    writer.flush()
    following = 1
    assert writer.end == Position(1, PAGE_SIZE + 5)
    writer.write(RecordType.COMMIT, b"behind it")
    writing.flush()
    data = file_bytes(writing.disk, file_name(0))
    pages = len(data) // PAGE_SIZE
    full = page_no == 3 and left < 4
    assert pages == (page_no + 1 if left >= 4 or full else page_no + 2)
    reader = RecordReader(writing.pages, Position(0, PAGE_SIZE))
    records = list(iter(reader.next, None))
    dummies = [r for r in records if r.type == RecordType.DUMMY]
    assert len(dummies) == (0 if full else 1)
    for dummy in dummies:
        assert set(dummy.data) == {FILLER}
        assert dummy.start.page_no == pages - 1
        assert dummy.end == Position(0, pages * PAGE_SIZE)
        assert dummy.start == before or dummy.start.in_page in (0, 5)
    assert records[-1].data == b"behind it"
    assert records[-1].start.file_no == following
    assert data[-PAGE_SIZE:][PAGE_END - 1], "a zero tail before a successor"


def test_flush_counts_files() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    for number in range(1, 6):
        engine.flush()
        assert engine.written_end == (number, PAGE_SIZE + 5)
    assert [f.size for f in engine.files()] == [2 * PAGE_SIZE] * 5 + [FILE]
    assert walk(disk).error is None
    engine.close()


def test_the_header_keeps_the_size_that_the_file_was_made_with() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    engine.flush()
    engine.close()
    engine = IbbEngine(disk, SMALL)
    header = engine._pages.header(0)
    assert header is not None
    assert header.pages == 4
    assert engine.files()[0].size == 2 * PAGE_SIZE
    engine.close()


def crashes(
    way: str, prepared: Callable[[], tuple[MemoryDisk, Callable[[], object]]]
) -> Iterator[MemoryDisk]:
    """A disk for each operation at which what is to be done may crash; it ends with the first that is done to the end.

    Args:
        way: "kill", or "cut": without what was not synced.
        prepared: makes a disk anew, and says what is to be done.
    """
    stop = 0
    while True:
        stop += 1
        disk, act = prepared()
        disk.fail_at = disk.operations + stop
        try:
            act()
        except DiskError:
            if way == "kill":
                disk.kill()
            else:
                disk.crash()
        else:
            break
        yield disk
    assert stop > 6


@pytest.mark.parametrize("way", ["kill", "cut"])
def test_crash_at_every_operation_of_a_flush(way: str) -> None:
    """Never happened, or happened; a group that goes on over it, too."""

    def prepared() -> tuple[MemoryDisk, Callable[[], object]]:
        disk = MemoryDisk()
        engine = IbbEngine(disk, SMALL)
        append_all(engine, simple(3, size=9000))
        engine.sync()
        append_all(engine, simple(2, first=4, size=5000))
        return disk, engine.flush

    for disk in crashes(way, prepared):
        engine = IbbEngine(disk, SMALL)
        found = read_all(engine)
        everything = payloads([*simple(3, size=9000), *simple(2, first=4, size=5000)])
        assert found == everything[: len(found)]
        assert len(found) >= 3
        assert engine.binlog_state() == BinlogState([Gtid(0, 1, len(found))])
        engine.flush()
        engine.append(*group(Gtid(0, 1, 9), 60_000))
        engine.close()
        outcome = walk(disk)
        assert outcome.error is None
        assert len(outcome.groups) == len(found) + 1


# --- DELETE_DOMAIN_ID ---


def test_a_domain_whose_files_were_purged_is_deleted() -> None:
    disk = MemoryDisk()
    options = small(slave_connections_needed_for_purge=0)
    engine = IbbEngine(disk, options)
    append_all(engine, [*simple(3), *simple(2, domain=7)])
    engine.flush()
    append_all(engine, simple(2, first=4))
    with pytest.raises(DomainInUse):
        engine.flush(delete_domains=[7])
    assert engine.written_end.file_no == 1, "no file is begun by a FLUSH that was refused"
    engine.purge_to(1)
    for _ in range(2):
        engine.flush(delete_domains=[7])
    kept = BinlogState([Gtid(0, 1, 5)])
    for _ in range(2):
        assert engine.binlog_state() == kept
        engine.close()
        engine = IbbEngine(disk, options)
    engine.append(*group(Gtid(7, 1, 1)))  # it may come back, from the start
    engine.sync()
    assert engine.binlog_state() == BinlogState([Gtid(0, 1, 5), Gtid(7, 1, 1)])
    engine.close()


# --- RESET MASTER ---


@pytest.mark.parametrize("way", ["kill", "cut"])
def test_crash_at_every_operation_of_a_reset(way: str) -> None:
    """The oldest files may have gone, or all; nothing in between is missing."""
    groups = simple(30, size=6000)
    seen = set()

    def prepared() -> tuple[MemoryDisk, Callable[[], object]]:
        disk = MemoryDisk()
        engine = IbbEngine(disk, SMALL)
        append_all(engine, groups)
        engine.sync()
        return disk, lambda: engine.reset(BinlogState([Gtid(5, 1, 50)]))

    for disk in crashes(way, prepared):
        engine = IbbEngine(disk, SMALL)
        state = str(engine.binlog_state())
        seen.add(state)
        assert state in ("0-1-30", "", "5-1-50")
        outcome = walk(disk)
        assert outcome.error is None
        found = [g.payload for g in outcome.groups]
        assert found == (payloads(groups)[len(groups) - len(found) :] if found else [])
        assert (state == "0-1-30") == bool(found)
        append_all(engine, simple(3, domain=9))
        engine.close()
    assert {"0-1-30", ""} <= seen


def test_reset_removes_every_file() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, simple(30, size=6000))
    engine.sync()
    engine.keeper.caretaker.step()
    disk.open("binlog-000777.ibb", create=True).close()
    disk.open("notes.txt", create=True).close()
    engine.reset()
    assert set(disk.names()) - {PUBLICATION_NAME} == {
        "binlog-000000.ibb",
        "notes.txt",
        REDO_NAME,
    }
    assert engine.written_end == (0, PAGE_SIZE + 5)
    engine.keeper.caretaker.step()
    assert len(engine.files()) == 2
    engine.close()


# --- starting up ---


class Counting:
    """A disk that counts the pages read of .ibb files, and the bytes of the redo log."""

    def __init__(self, directory: Path) -> None:
        self.disk = OsDisk(directory)
        self.pages = 0
        self.redo_bytes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def open(self, name: str, *, create: bool = False) -> File:
        file = self.disk.open(name, create=create)
        pread = file.pread

        def counted(size: int, offset: int) -> bytes:
            if name == REDO_NAME:
                self.redo_bytes += size
            else:
                self.pages += -(-size // PAGE_SIZE)
            return pread(size, offset)

        file.pread = counted  # type: ignore[method-assign]
        return file


def pages_to_open(directory: Path) -> int:
    disk = Counting(directory)
    IbbEngine(disk, StoreOptions(LARGE_PAGES * PAGE_SIZE)).close()  # type: ignore[arg-type]
    assert disk.redo_bytes < 4 * StoreOptions().innodb_log_file_size
    return disk.pages


def test_start_up_does_not_grow_with_the_store(tmp_path: Path) -> None:
    """One that takes the files over writes the last one of these two again, as nobody knows that it is on the disk."""
    taken_over, gone_on = [], []
    for files in (2, 40):
        directory = tmp_path / str(files)
        directory.mkdir()
        make_large_store(directory, files)
        taken_over.append(pages_to_open(directory))
        gone_on.append(pages_to_open(directory))
    assert gone_on[0] == gone_on[1] < 250
    assert taken_over[0] == taken_over[1] < 250 + LARGE_PAGES


@pytest.mark.parametrize("pages", [64, 1024])
def test_start_up_does_not_grow_with_the_file(tmp_path: Path, pages: int) -> None:
    """A file that is nearly full: the pages around its end, and those since the last state record."""
    options = small(pages, 8)
    first = MortalDisk(tmp_path)
    engine = IbbEngine(first, options)
    size = 16_000
    count = pages - 8
    append_all(engine, simple(count, size=size))
    engine.sync()
    first.die()
    disk = Counting(tmp_path)
    engine = IbbEngine(disk, options)  # type: ignore[arg-type]
    assert str(engine.binlog_state()) == f"0-1-{count}"
    assert engine.written_end.file_no == 0
    assert disk.pages < 260
    assert disk.redo_bytes < 4 * options.innodb_log_file_size
    engine.close()


def test_a_group_that_is_open_over_a_crash_is_garbage() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    writer = engine.begin()
    writer.spill(events(90_000, "open"))
    engine.flush()
    disk.crash()
    engine = IbbEngine(disk, SMALL)
    engine.append(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    engine.sync()
    assert read_from(engine, Position(0, PAGE_SIZE)) == [gtid_event(Gtid(0, 1, 1))]
    engine.close()
