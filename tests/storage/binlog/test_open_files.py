"""However many files a store has, few of them are open."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog import file_table
from binlog_storage.binlog.file_table import FileTable
from binlog_storage.binlog.full_disk import FullDisk
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.worker import RETRY_S
from binlog_storage.disk.disk import OPEN_FILES_MAX, OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskError, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.log_pages import LogPages
from binlog_storage.testing.memory_disk import MemoryDisk, MemoryFile

from tests.storage.groups import append_all, group, payloads, read_all, read_from, simple

FILES = 150
OPTIONS = StoreOptions(max_binlog_size=4 * PAGE_SIZE)


def open_now() -> int:
    return len(os.listdir("/proc/self/fd")) - 1


@contextlib.contextmanager
def descriptors(more: int) -> Iterator[None]:
    """This process may open no more than so many besides those it has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """All descriptors are in use by others."""
    with descriptors(300), contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):
            while True:
                taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def add(engine: IbbEngine) -> bytes:
    last = engine.binlog_state().get(0, 1) or 0
    payload, gtid = group(Gtid(0, 1, last + 1), size=30_000)
    engine.append(payload, gtid)
    engine.sync()
    return payload


def fill(engine: IbbEngine, files: int) -> list[bytes]:
    groups = []
    while len(engine.files()) < files:
        groups.append(add(engine))
        engine.step()
    return groups


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[IbbEngine]:
    engine = IbbEngine(OsDisk(tmp_path), OPTIONS)
    yield engine
    engine.close()


def test_a_store_with_many_files(engine: IbbEngine, tmp_path: Path) -> None:
    """Everything that goes over all files: writing, reading, listing, purging, inspecting, and reading for Spark."""
    before = open_now()
    with descriptors(OPEN_FILES_MAX + 10):
        groups = fill(engine, FILES)
        assert len(engine.files()) >= FILES
        assert read_all(engine) == groups
        engine.find_start(SlavePosition())
        assert len(engine.explain_purge()) >= FILES - 1
        assert open_now() - before <= OPEN_FILES_MAX
        engine.checkpoint()
        engine.step()
    with descriptors(OPEN_FILES_MAX + 10):
        offline = OfflineBinlog(ReadOnlyDisk(tmp_path))
        assert [b"".join(found.pieces()) for found in offline.groups()] == groups
        offline.close()
        with LogPages(ReadOnlyDisk(tmp_path), engine.durable_end) as pages:
            assert all(pages.page(n, 1) for n in range(engine.durable_end.file_no))
    assert open_now() - before <= OPEN_FILES_MAX


def test_listing_opens_nothing(engine: IbbEngine) -> None:
    fill(engine, 10)
    with none_left():
        # Listing the directory takes one; the files none.
        assert all(engine._pages.files.size(n) == 4 * PAGE_SIZE for n in range(9))


def test_what_is_open_and_idle_is_given_up_when_there_is_no_other(engine: IbbEngine) -> None:
    groups = fill(engine, 20)
    engine.checkpoint()
    table = engine._pages.files
    for n in range(10):
        with table.use(n) as file:
            assert file is not None
    engine._pages._cache.clear()
    with none_left():
        assert read_all(engine) == groups


def test_no_descriptor_at_all_is_said_and_harms_nothing(engine: IbbEngine) -> None:
    """Neither a read nor a write fails for good, least of all the store."""
    groups = fill(engine, 3)
    for n in range(4):
        engine._pages.forget(n)  # none is open
    with none_left():
        with pytest.raises(TooManyOpenFiles, match="Too many open files"):
            read_all(engine)
        groups.append(add(engine))
        with pytest.raises(TooManyOpenFiles):
            engine.checkpoint()
        engine.step()
        engine.sync()
    groups += fill(engine, 8)
    assert read_all(engine) == groups


class Scarce(MemoryDisk):
    """From the n-th call that takes a descriptor on there is none. Syncing the directory takes none: it is locked."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def _take(self, what: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise TooManyOpenFiles(f"cannot {what}: Too many open files (injected)")

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        self._take(f"open {name}")
        return super().open(name, create=create)

    def names(self, folder: str = "") -> list[str]:
        self._take("list")
        return super().names(folder)


def _bulk(engine: IbbEngine, gtid: Gtid) -> None:
    payload = group(gtid, size=70_000).payload
    writer = engine.begin(bulk=True)
    try:
        writer.spill(payload[38:])
        writer.commit(payload[:38], gtid)
    except BaseException:
        writer.rollback()
        raise


def _delete_domain(engine: IbbEngine) -> None:
    engine.purge_to(1)
    engine.flush([7])


# What may be done to a store that has two files, all groups of domain 7 in the first.
DEEDS: dict[str, Callable[[IbbEngine], object]] = {
    "append": lambda engine: append_all(engine, simple(2, first=300, size=200)),
    "go back": lambda engine: engine.append(*group(Gtid(0, 1, 1))),
    "bulk": lambda engine: _bulk(engine, Gtid(0, 1, 300)),
    "sync": lambda engine: engine.sync(),
    "checkpoint": lambda engine: engine.checkpoint(),
    "flush": lambda engine: engine.flush(),
    "delete a domain": _delete_domain,
    "purge": lambda engine: engine.purge_to(1),
    "reset": lambda engine: engine.reset(),
    "reset to a state": lambda engine: engine.reset(BinlogState([Gtid(3, 1, 9)])),
    "round": lambda engine: engine.step(),
    "read": read_all,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_no_descriptor_at_any_moment(deed: str) -> None:
    """The deed is done, or refused and can be done later; nothing ends for good, and nothing is lost."""
    options = StoreOptions(max_binlog_size=16 * PAGE_SIZE, slave_connections_needed_for_purge=0)
    for left in range(200):
        disk = Scarce()
        engine = IbbEngine(disk, options, facts=StateStore(disk))
        groups = simple(3, domain=7, size=200)
        append_all(engine, groups)
        engine.flush()
        more = simple(9, first=100, size=15_000)
        append_all(engine, more)
        engine.checkpoint()
        append_all(engine, simple(1, first=200, size=20_000))
        engine.sync()
        for n in range(5):
            engine._pages.forget(n)
        disk.left = left
        refused = False
        try:
            DEEDS[deed](engine)
        except TooManyOpenFiles:
            refused = True
        enough, disk.left = disk.left > 0, None
        assert not engine._durability.failed
        state = engine.binlog_state()
        if refused:
            DEEDS[deed](engine)
        for _ in range(20):
            engine.step()
        assert engine.stalled() == []
        append_all(engine, simple(3, first=500, size=15_000))
        engine.sync()
        found = engine.binlog_state()
        assert all(
            gtid in found.entries() or deed.startswith(("reset", "delete")) or gtid.domain_id == 0
            for gtid in state.entries()
        )
        whole = read_from(engine, engine.first_start().position)
        assert whole[-3:] == payloads(simple(3, first=500, size=15_000))
        disk.crash()
        engine = IbbEngine(disk, options, facts=StateStore(disk))
        assert engine.binlog_state() == found
        assert read_from(engine, engine.first_start().position) == whole
        engine.close()
        if enough and not refused:
            return
    pytest.fail("it takes more and more")


def test_a_flusher_without_descriptors_says_so(caplog: pytest.LogCaptureFixture) -> None:
    disk = Scarce()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(1, size=15_000))
    engine.checkpoint()
    append_all(engine, simple(2, first=4, size=15_000))
    engine.sync()
    assert engine._pages.waiting
    disk.left = 0
    engine._pages.forget(0)
    assert engine._flusher.worker.step() == RETRY_S
    (stalled,) = engine.stalled()
    assert stalled.what == "flusher"
    assert "Too many open files" in stalled.why
    assert "Too many open files" in caplog.text
    disk.left = None
    engine._flusher.worker.step()
    assert engine.stalled() == []
    engine.close()


def test_reset_without_a_descriptor(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.lock("lock")
    engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
    groups = fill(engine, 4)
    engine.checkpoint()
    for n in range(5):
        engine._pages.forget(n)  # none is open
    with none_left(), pytest.raises(TooManyOpenFiles):
        engine.reset()
    assert read_all(engine) == groups
    engine.reset()
    groups = fill(engine, 3)
    engine.close()
    engine = IbbEngine(OsDisk(tmp_path), OPTIONS)
    assert read_all(engine) == groups
    engine.close()


def test_a_file_stays_open_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads read many files at once by a table that may keep two open: nobody gets bytes of another file."""
    monkeypatch.setattr(file_table, "OPEN_FILES_MAX", 2)
    disk = OsDisk(tmp_path)
    for n in range(20):
        (tmp_path / file_name(n)).write_bytes(b"%04d" % n * 100)
    table = FileTable(disk, FullDisk())
    wrong: list[object] = []

    def read(first: int) -> None:
        for turn in range(300):
            n = (first + turn * 7) % 20
            with table.use(n) as file:
                if file is None or file.pread(400, 0) != b"%04d" % n * 100:
                    wrong.append(n)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    before = open_now()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert open_now() - before <= 2
    table.close()
    assert open_now() == before


def test_a_file_with_unsynced_data_stays_open(
    engine: IbbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells of a write that failed later by the descriptor: a new one may not hear of it."""
    monkeypatch.setattr(file_table, "OPEN_FILES_MAX", 2)
    fill(engine, 6)
    engine.checkpoint()
    table = engine._pages.files
    with table.use(0):
        table.note_unsynced(0, unsynced=True)
    for n in range(1, 5):
        with table.use(n):
            pass
    assert 0 in table._handles
    with table.use(0):
        table.note_unsynced(0, unsynced=False)
    for n in range(1, 5):
        with table.use(n):
            pass
    assert 0 not in table._handles


class Counted(Scarce):
    """Knows which files are open; from the n-th call on, whatever it is, it fails."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__()
        MemoryDisk.__init__(self, contents)
        self.opened: list[MemoryFile] = []
        self.calls = 0
        self.fails_from = 1 << 30
        self.fault = lambda kind, name: self._take(kind)

    def _take(self, what: str) -> None:
        self.calls += 1
        if self.calls >= self.fails_from:
            raise DiskError(f"cannot {what}: Input/output error (injected)")

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        self.opened.append(file)
        return file

    @property
    def open_now(self) -> int:
        return sum(file._epoch == self.epoch for file in self.opened)


def _left_by_a_crash() -> dict[str, bytes]:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
    append_all(engine, simple(6, size=15_000))
    engine.checkpoint()
    append_all(engine, simple(3, first=7, size=15_000))
    engine.sync()
    disk.crash()
    return disk.contents()


OPENINGS: dict[str, tuple[dict[str, bytes], StoreOptions]] = {
    "new": ({}, OPTIONS),
    "behind a crash": (_left_by_a_crash(), OPTIONS),
    "resized": (_left_by_a_crash(), replace(OPTIONS, innodb_log_file_size=1 << 20)),
    "without its redo": (_left_by_a_crash(), replace(OPTIONS, innodb_force_recovery=6)),
}


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("what", OPENINGS)
def test_an_opening_that_fails_leaves_nothing_open(what: str) -> None:
    contents, options = OPENINGS[what]
    failed = 0
    for number in range(1, 1000):
        disk = Counted(contents)
        facts = StateStore(disk)
        disk.calls, disk.fails_from = 0, number
        try:
            engine = IbbEngine(disk, options, facts=facts)
        except DiskError:
            assert not disk.open_now, f"call {number}"
            failed += 1
            continue
        disk.fails_from = 1 << 30
        engine.close()
        assert not disk.open_now
        if disk.calls < number:
            break
    assert failed > 20
