"""The store of a directory replaced by another one. A kill -9 at any step leaves the old one or the new one, whole.

The directory may be a mount point, so the new store is made in a folder of it, whose name says how far this is:

    binlog-server.replacing    the new store is being made     the old one holds, and this is thrown away
    binlog-server.replaced     it is whole, on the disk        the old one is deleted, and the folder renamed
    binlog-server.moving       nothing of the old one is left  its files move up, and the folder is removed

From the second on, whoever takes the lock of the directory goes on with it before anything else (`finish`). Not
replaced are the lock, and what is no store's: the key of passwords, and files that somebody has put beside a store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from binlog_storage.classic.directory import bases, belongs
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.disk.durable_files import replace_file, sync_file, sync_folder
from binlog_storage.ibb.file_names import LOCK_NAME, file_number

from binlog_server.upstreams.password import KEY_NAME

REPLACING: Final = "binlog-server.replacing"
REPLACED: Final = "binlog-server.replaced"
MOVING: Final = "binlog-server.moving"
MARKS: Final = "binlog-server.marks"
"""Copies of the store of now, made by faults that go back to one (`marks`): they go with the process or the store."""
_LIST: Final = "binlog-server.replaces"
"""In the folder: the names of the old store, one a line. Half of a store does not tell what else is of it."""
_OUR_PREFIX: Final = "binlog-server."


def replace_store(path: Path, make: Callable[[Path], None]) -> None:
    """`make` makes the new store in an empty folder. The caller holds the lock. Raises `OSError`, and as `make`; the
    old store holds then, or the next who takes the lock finishes this.
    """
    made = path / REPLACING
    try:
        made.mkdir()
        make(made)
        for entry in made.rglob("*"):
            sync_folder(entry) if entry.is_dir() else sync_file(entry)
        replace_file(made / _LIST, os.fsencode("\n".join(_names_of_store(path))))
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _become(made, REPLACED)
    finish(path)


def finish(path: Path) -> None:
    """Go on where this was broken off. The caller has just taken the lock. Raises `OSError`."""
    if (path / REPLACING).is_dir():
        shutil.rmtree(path / REPLACING)
    replaced, moving = path / REPLACED, path / MOVING
    if replaced.is_dir():
        for name in os.fsdecode((replaced / _LIST).read_bytes()).split("\n"):
            old = path / name
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        sync_folder(path)
        _become(replaced, MOVING)
    if moving.is_dir():
        (moving / _LIST).unlink(missing_ok=True)
        (moving / LOCK_NAME).unlink(missing_ok=True)
        for entry in moving.iterdir():
            entry.replace(path / entry.name)
        sync_folder(path)
        moving.rmdir()
        sync_folder(path)


def new_mark(path: Path) -> Path:
    """An empty folder for a copy of the store in this directory. Raises `OSError`."""
    marks = path / MARKS
    while True:
        marks.mkdir(mode=0o700, exist_ok=True)
        try:
            return Path(tempfile.mkdtemp(dir=marks))
        except FileNotFoundError:  # the last of the others has just gone
            continue


def remove_mark(mark: Path) -> None:
    """It goes, as far as that is possible."""
    shutil.rmtree(mark, ignore_errors=True)
    with contextlib.suppress(OSError):  # there are others
        mark.parent.rmdir()


def remove_marks(path: Path) -> None:
    """All that a process has left which was killed. The caller holds the lock. Raises `OSError`."""
    if (path / MARKS).is_dir():
        shutil.rmtree(path / MARKS)


def is_half_done(names: Sequence[str]) -> bool:
    """Whether a directory with these names has no whole store before `finish`."""
    return REPLACED in names or MOVING in names


def _names_of_store(path: Path) -> list[str]:
    names = [entry.name for entry in path.iterdir()]
    kept = (LOCK_NAME, KEY_NAME, REPLACING, MARKS)
    binlogs = bases(names)
    return [
        name
        for name in names
        if name not in kept
        and (
            name.startswith(_OUR_PREFIX)
            or name == CACHE_FOLDER
            or file_number(name) is not None
            or any(belongs(name, base) for base in binlogs)
        )
    ]


def _become(folder: Path, name: str) -> None:
    folder.rename(folder.with_name(name))
    sync_folder(folder.parent)
