"""Folders for what is uploaded: one that a killed process has left goes with the next, and no other one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from binlog_storage.archive.publisher import open_shelf
from binlog_storage.archive.staging_folder import StagingFolder

from tests.storage.archive.memory_objects import MemoryObjects


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def kill(folder: StagingFolder) -> None:
    """As kill -9: what is open is closed, and nothing else is done."""
    os.close(folder._fd)
    folder._fd = -1


def test_what_was_left_goes_and_nothing_else(parent: Path) -> None:
    killed, running = StagingFolder(), StagingFolder()
    (killed.path / ".staged-1").write_bytes(b"x")
    (running.path / ".staged-2").write_bytes(b"x")
    kill(killed)
    other = parent / "other"
    other.mkdir()
    (other / "part").touch()
    (parent / "binlog-archive-link").symlink_to(other)
    (parent / "binlog-archive-file").touch()
    (parent / "binlog-archived").mkdir()
    with contextlib.closing(StagingFolder()) as now:
        assert {one.name for one in parent.iterdir()} == {
            running.path.name,
            now.path.name,
            "other",
            "binlog-archive-link",
            "binlog-archive-file",
            "binlog-archived",
        }
        assert (running.path / ".staged-2").exists()
        assert (other / "part").exists()
    assert not now.path.exists()
    running.close()
    assert not running.path.exists()


def test_one_of_another_user_stays(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = StagingFolder()
    kill(killed)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    StagingFolder().close()
    assert killed.path.exists()


@pytest.mark.parametrize("is_opened", [False, True])
def test_one_that_was_taken_for_a_left_one(
    is_opened: bool, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process starts between the making of it and its lock: a new one is made."""
    real, made = os.open, list[Path]()

    def opened(path: Path, flags: int) -> int:
        fd = real(path, flags) if is_opened else -1
        if not made:
            path.rmdir()
        made.append(path)
        return fd if is_opened else real(path, flags)

    monkeypatch.setattr(os, "open", opened)
    folder = StagingFolder()
    monkeypatch.undo()
    assert [one.exists() for one in made] == [False, True]
    assert folder.path == made[1]
    kill(folder)


def test_it_is_an_archivers(parent: Path, objects: MemoryObjects) -> None:
    killed = open_shelf("s3://bucket/main")
    (killed.staging / ".staged-1").write_bytes(b"x")
    kill(killed._folder)  # type: ignore[union-attr]
    with contextlib.closing(open_shelf("s3://bucket/main")) as shelf:
        assert list(parent.iterdir()) == [shelf.staging]
    assert not list(parent.iterdir())
