"""A store that commands look at as files, whichever format it has."""

from __future__ import annotations

import argparse
from pathlib import Path

from binlog_storage.archive.places import store_argument
from binlog_storage.convert.stores import base_in
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import require_readable


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names it."""
    about = "the store, or the index of a traditional binlog"
    parser.add_argument("directory", type=store_argument, metavar="DIR", help=about)


def given_store(path: Path) -> tuple[Path, str | None]:
    """The directory, and the base name of the traditional binlog there that is meant; None for `.ibb` files.

    Raises `NotAStore`, `BackupRefused`, `DiskError`.
    """
    base = path.stem if path.suffix == ".index" and path.is_file() else None
    directory = path if base is None else path.parent
    disk = ReadOnlyDisk(directory)
    require_readable(disk, directory)
    return directory, base_in(directory, disk.names()) if base is None else base
