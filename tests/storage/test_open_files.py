"""However many files a store has, few of them are open."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.gtid import Gtid, SlavePosition
from storage.binlog import file_table
from storage.binlog.file_names import file_name
from storage.binlog.file_table import FileTable
from storage.binlog.full_disk import FullDisk
from storage.binlog.options import StoreOptions
from storage.binlog.store import IbbEngine
from storage.disk import OsDisk
from storage.errors import TooManyOpenFiles
from storage.ibb.page import PAGE_SIZE
from storage.inspection.groups import OfflineBinlog
from storage.inspection.read_only_disk import ReadOnlyDisk
from storage.planning.log_pages import LogPages
from tests.storage.groups import group, read_all

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
    with descriptors(file_table.OPEN_FILES_MAX + 10):
        groups = fill(engine, FILES)
        assert len(engine.files()) >= FILES
        assert read_all(engine) == groups
        engine.find_start(SlavePosition())
        assert len(engine.explain_purge()) >= FILES - 1
        assert open_now() - before <= file_table.OPEN_FILES_MAX
        engine.checkpoint()
        engine.step()
    with descriptors(file_table.OPEN_FILES_MAX + 10):
        offline = OfflineBinlog(ReadOnlyDisk(tmp_path))
        assert [b"".join(found.pieces()) for found in offline.groups()] == groups
        offline.close()
        with LogPages(ReadOnlyDisk(tmp_path), engine.durable_end) as pages:
            assert all(pages.page(n, 1) for n in range(engine.durable_end.file_no))
    assert open_now() - before <= file_table.OPEN_FILES_MAX


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
