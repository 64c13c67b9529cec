"""`binlog-server serve --archive`: what it takes, and when not. tests/integration/test_archive.py has replicas."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.disk.disk import OsFile
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskFull
from binlog_storage.intake.errors import DoesNotContinue
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY

from binlog_server.archive_intake import take_archive
from binlog_server.cli import main
from binlog_server.store_directory import StoreDirectory
from tests.pipeline.archives import grow, run, stored
from tests.storage.groups import Group, simple

MARKER = (Path(__file__).parents[2] / "protocol" / "data" / "start-marker-118.event").read_bytes()
VERSION = FormatDescription.parse(MARKER).server_version
SMALL = StoreOptions(max_binlog_size=1 << 20, innodb_log_file_size=4 << 20)


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
    asked = 0

    def is_stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > stop_after

    try:
        take_archive(directory, archive, SlavePosition.parse(start) if start else None, is_stopping)
        return str(directory.engine.binlog_state().position())
    finally:
        directory.close()


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


def test_on_a_full_disk(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait there, as nobody would be served meanwhile; what was taken before stays."""
    allocate, is_full = OsFile.allocate, True

    def no_more(file: OsFile, size: int) -> None:
        if is_full and (tmp_path / "store" / "binlog-000001.ibb").exists():
            raise DiskFull("no room (injected)")
        allocate(file, size)

    monkeypatch.setattr(OsFile, "allocate", no_more)
    at = take(tmp_path / "store", archive)
    assert at not in ("", "0-1-20")
    assert "and what follows is not" in caplog.text
    assert "What there is is served. Make room, and start again" in caplog.text
    is_full = False
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")


def test_when_nothing_can_be_noted(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = StoreDirectory(tmp_path / "store", SMALL)

    def refused(*_: object) -> None:
        raise DiskFull("no room (injected)")

    monkeypatch.setattr(StateStore, "set", refused)
    take_archive(directory, archive, None, lambda: False)
    assert "what follows is not: no room (injected). What there is is served" in caplog.text
    monkeypatch.undo()
    directory.close()
    assert take(tmp_path / "store", archive) == "0-1-20"
    assert stored(tmp_path / "store") == stored(tmp_path / "source")
