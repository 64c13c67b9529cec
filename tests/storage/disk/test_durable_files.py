"""Files that take their place whole: in which order the system is asked, and what a crash leaves after each step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from binlog_storage.disk.durable_files import (
    put_in_place,
    replace_file,
    sync_file,
    sync_folder,
    synced_file,
)

from tests.kit import os_calls
from tests.kit.fixtures import open_below

OLD, NEW = b"old" * 1000, b"new" * 5000


class Crash(BaseException):
    """The process ends here, as far as the disk can tell."""


def recorded(do: Callable[[], object], stop: int | None = None) -> list[tuple[str, str]]:
    """Which calls came, with the last names of the paths; `Crash` in the place of the one with that number, from 0."""
    calls: list[tuple[str, str]] = []

    def around(call: os_calls.Call) -> Any:
        if len(calls) == stop:
            raise Crash
        calls.append((call.name, Path(call.path).name))
        return call.make()

    with pytest.MonkeyPatch.context() as patch:
        for name in os_calls.CALLS:
            patch.setattr(os, name, getattr(os, name))  # so that they are put back
        os_calls.watch(around)
        try:
            do()
        except Crash:
            assert stop is not None
    return calls


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


STEPS = [("open", "a.new"), ("fsync", "a.new"), ("replace", "a.new"), ("fsync", "folder")]


def test_the_order_of_the_steps(folder: Path) -> None:
    """The content in front of the name, the folder behind it: else a power cut leaves an empty file, or none."""
    for data in (OLD, NEW):
        assert recorded(partial(replace_file, folder / "a", data)) == STEPS
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a": data}


def test_synced_with_all_that_was_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What still is in memory of ours would be missed by the sync."""
    sizes = []
    fsync = os.fsync

    def sized(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", sized)
    with synced_file(folder / "a") as file:
        for _ in range(10):
            file.write(b"few")
        assert not sizes
    assert sizes == [30]


@pytest.mark.parametrize("old", [OLD, None])
@pytest.mark.parametrize("stop", range(len(STEPS) + 1))
def test_a_crash_between_two_steps(folder: Path, stop: int, old: bytes | None) -> None:
    """The old content or the new one, and from the rename on the new one. The next who writes is not disturbed."""
    path, staged = folder / "a", folder / "a.new"
    if old is not None:
        path.write_bytes(old)
    calls = recorded(lambda: replace_file(path, NEW), stop)
    assert calls == STEPS[:stop]
    found = path.read_bytes() if path.exists() else None
    assert found == (NEW if ("replace", "a.new") in calls else old)
    assert staged.exists() == (0 < stop <= 2)
    if ("fsync", "a.new") in calls and staged.exists():
        assert staged.read_bytes() == NEW
    replace_file(path, b"after it")
    assert path.read_bytes() == b"after it"
    assert not staged.exists()


def test_a_longer_leftover_is_not_kept_behind_the_end(folder: Path) -> None:
    (folder / "a.new").write_bytes(OLD)
    replace_file(folder / "a", b"short")
    assert (folder / "a").read_bytes() == b"short"


def test_an_error_while_writing(folder: Path) -> None:
    """Nothing is synced that is not whole, nothing gets a name, and nothing takes room."""

    def write() -> None:
        with synced_file(folder / "a") as file:
            file.write(OLD)
            raise Crash

    assert recorded(write, 99) == [("open", "a"), ("unlink", "a")]
    assert not (folder / "a").exists()


def test_an_error_of_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as it is, and what was there stays."""
    (folder / "a").write_bytes(OLD)

    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    for use in (
        partial(replace_file, folder / "a", NEW),
        partial(sync_file, folder / "a"),
        partial(sync_folder, folder),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            use()
    assert (folder / "a").read_bytes() == OLD
    assert not open_below(folder.parent), "a descriptor was left open"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        replace_file(tmp_path / "none" / "a", NEW)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")


def test_permissions(folder: Path) -> None:
    mask = os.umask(0o027)
    try:
        replace_file(folder / "a", NEW)
        replace_file(folder / "secret", NEW, 0o600)
    finally:
        os.umask(mask)
    assert (mode_of(folder / "a"), mode_of(folder / "secret")) == (0o640, 0o600)


def test_steps_by_themselves(folder: Path) -> None:
    """For names of one's own, files that others have written, and many files in one folder."""

    def write() -> None:
        with synced_file(folder / "temporary") as file:
            file.write(NEW)
        put_in_place(folder / "temporary", folder / "b")
        sync_file(folder / "b")
        sync_folder(folder)

    assert recorded(write) == [
        ("open", "temporary"),
        ("fsync", "temporary"),
        ("replace", "temporary"),
        ("fsync", "folder"),
        ("fsync", "b"),
        ("fsync", "folder"),
    ]
    assert (folder / "b").read_bytes() == NEW
