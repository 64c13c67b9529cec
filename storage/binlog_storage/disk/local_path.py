"""Paths that users give: of folders and files of this machine. What is elsewhere is refused, not made a folder here.

`s3://bucket/x` is a relative path to the operating system; as a target it would be the folder `s3:` of wherever the
program was started, and data that somebody believes to be elsewhere would be there.
"""

from __future__ import annotations

import argparse
import os
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.errors import DiskFull, StorageError

# Path("s3://bucket") is s3:/bucket: it has lost a slash.
_SCHEME: Final = compiled_later(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/+)")
_LOCAL_FILE: Final = "file"
_OTHERS_BYTES: Final = 256 << 10  # files of a new store beside its redo log and its first file


class NotLocal(StorageError, ValueError):
    """A path is a URL of a place that is not a folder or a file of this machine."""


def local_path(path: str | PathLike[str]) -> Path:
    """The path that a user means; of `file:///x` it is /x. Raises `NotLocal` for any other `scheme://`."""
    text = str(path)
    found = _SCHEME.match(text)
    if found is None:
        return Path(path)
    if found["name"].lower() == _LOCAL_FILE and found["slashes"] == "///":
        return Path(unquote(text[found.end() - 1 :]))
    if found["name"].lower() == _LOCAL_FILE:
        raise NotLocal(
            f"{text}: a file of this machine is written as file:///folder/file, or /folder/file"
        )
    raise NotLocal(
        f"{text}: {found['name']}:// is not supported yet, only folders and files of this machine: give a local "
        f"path, such as a mounted one (a folder that is really called so is ./{text})"
    )


def no_directory(path: Path) -> str:
    """What to say of a path where a directory is wanted, and is none."""
    if (link := link_to_nothing(path)) is not None:
        return f"{link} is a symbolic link to {link.readlink()}, which is not there: is it mounted?"
    return f"{path} is no directory" if path.exists() else f"there is no {path}"


def link_to_nothing(path: Path) -> Path | None:
    """A symbolic link on the way to a path, or the path itself, that leads nowhere: no directory can be made there."""
    ways = (path, *path.absolute().parents)
    return next((way for way in ways if way.is_symlink() and not way.exists()), None)


def nearest_folder(path: Path) -> Path:
    """The path, or as much of it as is there: in which what is missing would be made."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


def free_bytes(path: Path) -> int:
    """Room for this user on the file system of a path. Raises `OSError`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def folder_id(path: Path) -> tuple[int, int] | None:
    """What tells a directory from another one in its place; None if there is none. Raises `OSError`."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def require_room(path: Path, redo: int, first: int) -> None:
    """Check the room for a new store, before anything is made of it. Raises `DiskFull`, `OSError`.

    Args:
        redo: bytes of the redo log. first: those of the first file, where it is made whole.
    """
    free, needed = free_bytes(nearest_folder(path)), redo + first + _OTHERS_BYTES
    if free < needed:
        raise DiskFull(
            f"there is no room for a new store in {path}: it begins with {needed} bytes (innodb_log_file_size={redo}, "
            f"a file with {first}, and {_OTHERS_BYTES} for others), and {free} are free"
        )


def room_at(target: object) -> int | None:
    """The same where a target is, or would be made; None for what is no path. Raises `OSError`."""
    return free_bytes(nearest_folder(target)) if isinstance(target, Path) else None


def path_argument(text: str) -> Path:
    """`local_path` as a type for argparse."""
    try:
        return local_path(text)
    except NotLocal as error:
        raise argparse.ArgumentTypeError(str(error)) from None
