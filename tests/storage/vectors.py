"""The format vectors: files that MariaDB's own readers have read, and what they contain.

`data/ibb-vectors/manifest.json` tells the conventions; the events in them are real ones.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from binlog_storage.binlog.page_store import PageStore
from binlog_storage.disk.disk import Disk
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import group_payload

DATA = Path(__file__).parent / "data"
VECTORS = DATA / "ibb-vectors"


class StoredGroup(NamedTuple):
    """One group of the manifest."""

    gtid: str | None
    events: int
    size: int
    sha: str
    file_no: int
    offset: int
    nodes: list[int]


@functools.cache
def manifest() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((VECTORS / "manifest.json").read_text())
    return data


def sets() -> list[dict[str, Any]]:
    """All sound sets, `tol_*` included."""
    return list(manifest()["vectors"])


def sound_set(name: str) -> dict[str, Any]:
    return next(s for s in sets() if s["name"] == name)


def corrupt_sets() -> list[dict[str, Any]]:
    return list(manifest()["corrupt"])


def groups_of(vector: dict[str, Any]) -> list[StoredGroup]:
    rows = vector["groups"]
    if isinstance(rows, str):
        rows = json.loads(gzip.decompress((VECTORS / rows).read_bytes()))
    return [StoredGroup(*row) for row in rows]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_file(disk: MemoryDisk, name: str, data: bytes) -> None:
    """Put a durable file on `disk`."""
    file = disk.open(name, create=True)
    file.pwrite(data, 0)
    file.fdatasync()
    file.close()
    disk.fsync_dir()


def file_bytes(disk: Disk, name: str) -> bytes:
    """What a reader of that file sees."""
    file = disk.open(name)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def unpack(vector: dict[str, Any]) -> MemoryDisk:
    """The files of a set, checked against the manifest, on a disk."""
    disk = MemoryDisk()
    for entry in vector["files"]:
        data = gzip.decompress((VECTORS / entry["gz"]).read_bytes())
        assert len(data) == entry["size"]
        assert sha(data) == entry["sha256"]
        write_file(disk, entry["name"], data)
    return disk


class ReadGroup(NamedTuple):
    """One group as read, and where its commit record begins."""

    place: Position
    payload: bytes


class Outcome(NamedTuple):
    """What a plain walk over a directory gave: whole groups, and the error that ended it."""

    groups: list[ReadGroup]
    error: CorruptBinlog | None


def walk(disk: Disk) -> Outcome:
    """Read everything from the first file on, as a reader of a store that is not open does."""
    pages = PageStore(disk, 64)
    groups: list[ReadGroup] = []
    error = None
    try:
        first = file_numbers(disk.names())[0]
        pages.header(first)
        reader = RecordReader(pages, Position(first, PAGE_SIZE), skip_partial=True)
        for record in reader.commits():
            groups.append(ReadGroup(record.start, group_payload(pages, record)))
    except CorruptBinlog as found:
        error = found
    finally:
        pages.close()
    return Outcome(groups, error)
