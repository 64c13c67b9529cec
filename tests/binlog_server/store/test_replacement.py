"""A store replaced by another one, broken off at every step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from binlog_storage.errors import NotAStore

from binlog_server.settings.config import load
from binlog_server.store import replacement
from binlog_server.store.replacement import finish, replace_store
from binlog_server.store.store_directory import StoreDirectory

OLD = {"binlog-server.state": "old", "binlog-000003.ibb": "old", "binlog-server.redo": "old"}
NEW = {"binlog-server.state": "new", "binlog-000000.ibb": "new"}
KEPT = {"binlog-server.key": "key", "binlog-server.lock": "", "server.toml": "mine"}


class Killed(BaseException):
    """Nothing runs behind it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    _write(tmp_path, OLD | KEPT)
    (tmp_path / "#binlog_cache_files").mkdir()
    (tmp_path / "#binlog_cache_files" / "old").touch()
    return tmp_path


def _write(path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (path / name).write_text(text)


def _make(folder: Path) -> None:
    _write(folder, NEW)
    (folder / "binlog-server.lock").touch()


def _files(path: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in path.iterdir() if entry.is_file()}


def test_what_is_no_store_stays(path: Path) -> None:
    replace_store(path, _make)
    assert _files(path) == NEW | KEPT
    assert not [entry for entry in path.iterdir() if entry.is_dir()]


def test_a_new_store_that_cannot_be_made_leaves_the_old_one(path: Path) -> None:
    def full(folder: Path) -> None:
        _make(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        replace_store(path, full)
    assert _files(path) == OLD | KEPT


def test_a_kill_at_any_step_leaves_either_whole(
    path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a name is a step, and so is each sync."""
    whole, seen = path, set[str]()
    for last in range(1000):
        path = tmp_path_factory.mktemp("step") / "store"
        shutil.copytree(whole, path)
        with monkeypatch.context() as patch:
            _kill_at(last, patch)
            try:
                replace_store(path, _make)
            except Killed:
                pass
            else:
                break
        for again in range(1000):
            with monkeypatch.context() as patch:
                _kill_at(again, patch)
                try:
                    finish(path)
                except Killed:
                    continue
                break
        found = _files(path)
        assert found in (OLD | KEPT, NEW | KEPT), last
        seen.add(found["binlog-server.state"])
    assert seen == {"old", "new"}
    assert last > 10


def _kill_at(step: int, patch: pytest.MonkeyPatch) -> None:
    left = step

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def deed(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return act(*args, **kwargs)

        return deed

    for name in ("rename", "replace", "unlink", "rmdir"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
    for name in ("sync_folder", "sync_file"):  # a kill -9 takes nothing that was written
        patch.setattr(replacement, name, counted(lambda path: None))
    patch.setattr(replacement, "replace_file", counted(Path.write_bytes))
    # Nothing is cleaned up behind a kill.
    removed = shutil.rmtree

    def removes(folder: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            counted(removed)(folder)

    patch.setattr(shutil, "rmtree", removes)


def test_whoever_opens_the_store_finishes_it(tmp_path: Path) -> None:
    config = load(None, {"binlog_directory": tmp_path, "max_binlog_size": 262144})
    StoreDirectory.of(config).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replacement, "finish", _killed)
        with pytest.raises(Killed):
            replace_store(tmp_path, _make)
    read_only = load(None, {"binlog_directory": tmp_path, "innodb_read_only": True})
    with pytest.raises(NotAStore, match="start its server once"):
        StoreDirectory.of(read_only, to_serve=True)
    os.remove(tmp_path / "binlog-server.replaced" / "binlog-000000.ibb")
    (tmp_path / "binlog-server.replaced" / "binlog-server.state").unlink()
    StoreDirectory.of(config).close()
    assert not (tmp_path / "binlog-server.replaced").exists()


def _killed(path: Path) -> None:
    raise Killed
