"""`binlog-server serve --archive`: what it takes, and when not. tests/integration/test_archive.py has replicas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.archive import taking
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsFile
from binlog_storage.engine import LARGE_GROUP_BYTES
from binlog_storage.errors import DiskFull
from binlog_storage.intake.intake import DoesNotContinue, Taken
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY
from binlog_storage.tables.facts import FactTables

from binlog_server.cli import main
from binlog_server.store import archive_intake
from binlog_server.store.archive_intake import ArchiveIntake
from binlog_server.store.store_directory import StoreDirectory
from tests.pipeline.archives import grow, run, stored
from tests.storage.groups import Group, group, simple

MARKER = (Path(__file__).parents[2] / "protocol" / "data" / "start-marker-118.event").read_bytes()
VERSION = FormatDescription.parse(MARKER).server_version
SMALL = StoreOptions(max_binlog_size=1 << 20, innodb_log_file_size=4 << 20)


def _ibb(directory: StoreDirectory) -> IbbEngine:
    assert isinstance(directory.engine, IbbEngine)
    return directory.engine


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """0-1-1 to 0-1-20 in twenty parts or so, behind the start of a server."""
    groups = simple(20, size=100_000)
    grow(tmp_path / "source", [Group(MARKER, None), *groups])
    run(DirectorySource(str(tmp_path / "source")), tmp_path / "archive", partition_bytes=1)
    return tmp_path / "archive"


def take(store: Path, archive: Path, start: str = "", *, stop_after: int = 1 << 30) -> str:
    """Returns where the store is then."""
    directory = StoreDirectory(store, SMALL)
    intake = ArchiveIntake(directory, archive, SlavePosition.parse(start) if start else None)
    asked = 0

    def is_stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > stop_after

    intake._stopping.is_set = is_stopping  # type: ignore[method-assign]
    try:
        intake.take()
        assert intake.is_whole == (stop_after == 1 << 30)
        return position(directory)
    finally:
        directory.close()


def position(directory: StoreDirectory) -> str:
    return str(directory.engine.binlog_state().position())


def told_version(store: Path) -> object:
    directory = StoreDirectory(store, SMALL)
    try:
        return directory.state.get(UPSTREAM_VERSION_KEY)
    finally:
        directory.close()


def test_all_of_it_and_then_nothing(archive: Path, tmp_path: Path) -> None:
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")
    # Replicas are told who wrote the events.
    assert told_version(tmp_path / "store") == VERSION
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_stopped_in_the_middle_it_goes_on_there(archive: Path, tmp_path: Path) -> None:
    at = take(tmp_path / "store", archive, stop_after=20)
    assert at not in ("", "0-1-20")
    assert told_version(tmp_path / "store") == VERSION
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_from_a_position_on(archive: Path, tmp_path: Path) -> None:
    assert take(tmp_path / "store", archive, "0-1-12") == "0-1-20"
    left = stored(tmp_path / "store")
    assert left == stored(tmp_path / "source")[-len(left) :]
    assert 8 <= len(left) <= 12


def test_a_store_that_has_come_further(archive: Path, tmp_path: Path) -> None:
    grow(tmp_path / "late", simple(5, first=30))
    before = stored(tmp_path / "late")
    assert take(tmp_path / "late", archive) == "0-1-34"
    assert stored(tmp_path / "late") == before


def test_a_store_of_another_history(archive: Path, tmp_path: Path) -> None:
    grow(tmp_path / "other", simple(5, first=30, domain=4))
    before = stored(tmp_path / "other")
    with pytest.raises(DoesNotContinue):
        take(tmp_path / "other", archive)
    assert stored(tmp_path / "other") == before


def test_a_position_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["serve", "--directory", str(tmp_path), "--archive-start-position", "0-1"]
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "'0-1' is no GTID position" in capsys.readouterr().err


class Full:
    """A disk on which no file can be made behind the second one, until there is `room`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
        self.room = False
        allocate = OsFile.allocate

        def no_more(file: OsFile, size: int, start: int = 0) -> None:
            if not self.room and (store / "binlog-000001.ibb").exists():
                raise DiskFull("no room (injected)")
            allocate(file, size, start)

        monkeypatch.setattr(OsFile, "allocate", no_more)


@contextmanager
def going_on(intake: ArchiveIntake) -> Iterator[threading.Thread]:
    """`take_rest`, in a thread that ends with the block."""
    thread = threading.Thread(target=intake.take_rest, daemon=True)
    thread.start()
    yield thread
    intake.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_on_a_full_disk(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait there, as nobody would be served meanwhile; the rest comes by itself when there is room."""
    caplog.set_level("INFO")
    disk = Full(monkeypatch, tmp_path / "store")
    directory = StoreDirectory(tmp_path / "store", SMALL)
    intake = ArchiveIntake(directory, archive, None)
    intake.take()
    assert not intake.is_whole
    assert "no room (injected)" in intake.missing
    taken = directory.engine.binlog_state().last(0)
    assert taken is not None
    assert 0 < taken.seq_no < 20
    assert intake.groups == taken.seq_no
    assert f"{taken.seq_no} groups taken, and what follows is not" in caplog.text
    with going_on(intake) as rest:
        rest.join(1)
        assert rest.is_alive(), "there is no room"
        disk.room = True
        _ibb(directory)._full.freed()  # as by PURGE, and else within a minute
        rest.join(20)
    assert intake.is_whole
    assert "20 groups taken, the store is at '0-1-20'" in caplog.text
    directory.close()
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_stopped_on_a_full_disk_it_goes_on_with_the_next_start(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch, tmp_path / "store")
    directory = StoreDirectory(tmp_path / "store", SMALL)
    intake = ArchiveIntake(directory, archive, None)
    intake.take()
    with going_on(intake):
        pass
    assert not intake.is_whole
    directory.close()
    disk.room = True
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_a_large_group_whose_commit_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets the start go on, and the server end; and it holds no files."""
    large = group(Gtid(0, 1, 3), LARGE_GROUP_BYTES + 1)
    grow(tmp_path / "source", [*simple(2), large, *simple(1, first=4)])
    run(DirectorySource(str(tmp_path / "source")), tmp_path / "archive")
    settle, is_full = Flusher._settle, True

    def full(flusher: Flusher, end: tuple[int, int]) -> None:
        if is_full:
            raise flusher._full.met(DiskFull("no room (injected)"), flusher._full.tries)
        settle(flusher, end)

    monkeypatch.setattr(Flusher, "_settle", full)
    directory = StoreDirectory(tmp_path / "store", SMALL)
    intake = ArchiveIntake(directory, tmp_path / "archive", None)
    taking = threading.Thread(target=intake.take, daemon=True)
    taking.start()
    taking.join(20)
    assert not taking.is_alive()
    assert position(directory) == "0-1-2"
    with going_on(intake) as rest:
        rest.join(1)
        assert rest.is_alive()
    assert _ibb(directory).references.holds() == []
    assert intake.groups == 2
    is_full = False
    _ibb(directory)._full.freed()
    directory.close()
    assert take(tmp_path / "store", tmp_path / "archive") == "0-1-4"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_an_empty_store_whose_first_file_waits_for_room(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive begins behind a position, and with it the store."""
    begins = tmp_path / "begins"
    grow(begins, simple(3, first=5), state=BinlogState([Gtid(0, 1, 4)]))
    run(DirectorySource(str(begins)), tmp_path / "late")
    directory = StoreDirectory(tmp_path / "store", SMALL)
    checkpoint, is_full = Flusher._checkpoint, True

    def full(flusher: Flusher) -> None:
        if is_full:
            raise flusher._full.met(DiskFull("no room (injected)"), flusher._full.tries)
        checkpoint(flusher)

    monkeypatch.setattr(Flusher, "_checkpoint", full)
    intake = ArchiveIntake(directory, tmp_path / "late", None)
    taking = threading.Thread(target=intake.take, daemon=True)
    taking.start()
    taking.join(20)
    assert not taking.is_alive()
    assert not intake.is_whole
    is_full = False
    _ibb(directory)._full.freed()
    with going_on(intake) as rest:
        rest.join(20)
    assert intake.is_whole
    directory.close()
    assert stored(tmp_path / "store") == stored(begins)


def test_what_nobody_has_thought_of_is_tried_again(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archive_intake, "RETRY_S", 0.01)
    directory = StoreDirectory(tmp_path / "store", SMALL)
    intake = ArchiveIntake(directory, archive, None)
    real = taking.take_archive
    failures = [ValueError("a bug"), *[DoesNotContinue("an archive") for _ in range(3)]]

    def take_archive(*args: Any) -> Taken:
        if failures:
            raise failures.pop()
        return real(*args)

    monkeypatch.setattr(taking, "take_archive", take_archive)
    with going_on(intake) as rest:
        rest.join(20)
    assert intake.is_whole
    for said in ("an archive", "ValueError('a bug')"):
        assert caplog.text.count(f"what follows is not taken: {said}. Trying again") == 1
    directory.close()


def test_when_nothing_can_be_noted(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = StoreDirectory(tmp_path / "store", SMALL)

    def refused(*_: object) -> None:
        raise DiskFull("no room (injected)")

    monkeypatch.setattr(FactTables, "set", refused)
    intake = ArchiveIntake(directory, archive, None)
    intake.take()
    assert not intake.is_whole
    assert "what follows is not: no room (injected). What there is is served" in caplog.text
    monkeypatch.undo()
    directory.close()
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")
