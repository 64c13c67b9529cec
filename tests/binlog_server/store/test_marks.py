"""Marks: where they lie, what goes with them, and that going back to one takes no more room than it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlog_server.settings.config import Config, load
from binlog_server.store.marks import StoreMark
from binlog_server.store.replacement import MARKS, new_mark, remove_mark
from binlog_server.store.store_directory import StoreDirectory

SIZE = 64 << 20


@pytest.fixture
def config(tmp_path: Path) -> Config:
    options = {"max_binlog_size": 1 << 20, "innodb_log_file_size": 4 << 20}
    config = load(None, {"binlog_directory": tmp_path / "store", **options})
    StoreDirectory.of(config).close()
    return config


def _mark(path: Path) -> StoreMark:
    folder = new_mark(path)
    with (folder / "binlog-000000.ibb").open("wb") as file:
        file.write(b"first page")
        file.truncate(SIZE)
    return StoreMark(folder)


def test_the_way_back_leaves_holes_as_they_are(config: Config) -> None:
    mark = _mark(config.binlog_directory)
    mark.restore(config, differs=False)
    found = (config.binlog_directory / "binlog-000000.ibb").stat()
    assert found.st_size == SIZE
    assert found.st_blocks * 512 < SIZE // 100
    assert mark.folder.is_dir()  # it may be met again


def test_an_error_of_the_disk_is_told_in_words(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    mark = _mark(config.binlog_directory)
    monkeypatch.setattr("binlog_server.store.marks.copy_sparse", full)
    with pytest.raises(OSError, match=r"^cannot write \S+binlog-000000.ibb: .*No space left"):
        mark.restore(config, differs=False)
    StoreDirectory.of(config).close()  # the old one


def test_the_last_mark_takes_its_folder_with_it(config: Config) -> None:
    path = config.binlog_directory
    one, other = _mark(path), _mark(path)
    one.discard()
    assert other.folder.is_dir()
    other.discard()
    assert not (path / MARKS).exists()
    remove_mark(other.folder)  # nothing is there any more


def test_marks_of_a_process_that_was_killed_go_with_the_next_start(config: Config) -> None:
    path = config.binlog_directory
    mark = _mark(path)
    StoreDirectory.of(config).close()  # not to serve: it may look at a store beside others
    assert mark.folder.is_dir()
    StoreDirectory.of(config, to_serve=True, keeps_marks=True).close()
    assert mark.folder.is_dir()
    StoreDirectory.of(config, to_serve=True).close()
    assert not (path / MARKS).exists()
