"""Targets: kinds by name; folders of this machine, object stores (s3://, gs://, az://, hdfs://), tables of Iceberg.

What an object store asks of its clients is in the environment, and what a catalog asks in pyiceberg's own
configuration; none of it is in a URL.
"""

from __future__ import annotations

import argparse
import re
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from binlog_storage.archive.places import archive_path, is_remote
from binlog_storage.disk.local_path import NotLocal, local_path

from binlog_pipeline.errors import BadOption

Target = str | PathLike[str]
"""A folder, or a URL, which is a text: a `Path` would lose a slash of it."""

TABLE_SINKS: Final = ("parquet", "delta", "iceberg")
"""Sinks that hold the table."""
SINKS: Final = (*TABLE_SINKS, "changes")
ICEBERG: Final = "iceberg://"
_SCHEME: Final = re.compile(r"(?P<name>[a-z][a-z0-9+.-]+)://")


def target_path(target: Target) -> Path | str:
    """A URL as it is, or the path that a user means. Raises `NotLocal` for a scheme that is not known."""
    text = str(target)
    return text.rstrip("/") if text.startswith(ICEBERG) else archive_path(target)


def checkpoint_path(text: str) -> str:
    """Where Spark keeps its own notes: a folder of this machine, or a URL that is Spark's to understand."""
    found = _SCHEME.match(text)
    return str(local_path(text)) if found is None or found["name"] == "file" else text


def target_argument(text: str) -> Path | str:
    """`target_path` as a type for argparse."""
    try:
        return target_path(text)
    except NotLocal as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def is_local(target: Target) -> bool:
    """Whether it is a folder of this machine, so that a lock can be held there."""
    return not is_remote(target) and not str(target).startswith(ICEBERG)


def folder_path(target: Target, sink: str) -> Path:
    """The folder of a sink that has no other place. Raises `BadOption` for a URL that others have a use for."""
    if is_local(target):
        return local_path(target)
    raise BadOption(
        f"{target}: --sink {sink} writes folders of this machine; delta keeps tables in object stores, too, and "
        "iceberg those of a catalog"
    )


def delta_path(target: Target) -> Path | str:
    """Where a Delta table is. Raises `BadOption`, `NotLocal`."""
    if str(target).startswith(ICEBERG):
        raise BadOption(f"{target} is a table of an Iceberg catalog: say --sink iceberg")
    return archive_path(target)


def iceberg_names(target: Target) -> tuple[str, tuple[str, ...]]:
    """The catalog of iceberg://CATALOG/NAMESPACE/TABLE, and the table's names in it. Raises `BadOption`, `NotLocal`."""
    text = str(target)
    if not text.startswith(ICEBERG):
        target_path(target)
        raise BadOption(f"{target}: --sink iceberg keeps iceberg://CATALOG/NAMESPACE/TABLE")
    catalog, *names = text.removeprefix(ICEBERG).split("/")
    if not catalog or len(names) < 2 or not all(names):
        raise BadOption(f"{target} is not iceberg://CATALOG/NAMESPACE/TABLE")
    return catalog, tuple(unquote(name) for name in names)
