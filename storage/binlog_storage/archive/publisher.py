"""An archive that is added to. By one process at a time.

Whoever is killed at any step leaves the archive as it was, or with the parts that it was publishing:

1. A part is written under a name of its own that begins with a dot, and synced.
2. `publish` renames it to the next number, and syncs the directory.
3. A new manifest with it is written beside the old one, synced, renamed over it, and the directory is synced.

What was left by a kill in between is not in the manifest, and is removed by the next that adds something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from binlog_protocol.gtid import BinlogState

from binlog_storage.archive.archive import read_manifest
from binlog_storage.archive.errors import ArchiveInUse, NotAnArchive
from binlog_storage.archive.manifest import (
    MANIFEST_NAME,
    ArchiveManifest,
    ArchivePart,
    build_chunk,
    chunk_name,
    part_name,
)
from binlog_storage.disk.disk import Disk, replaced
from binlog_storage.errors import StoreInUse

LOCK_NAME: Final = "_archive.lock"
STAGED_PREFIX: Final = ".staged-"
_CHUNK_PARTS: Final = 1000


class StagedPart(NamedTuple):
    """A part that was written and synced under the name `staged`, and is not published yet."""

    staged: str
    part: ArchivePart


class ArchivePublisher:
    """Adds parts to an archive, and holds it until `close`.

    Args:
        where: the directory, for messages.
        chunk_parts: so many parts go into a chunk.
    """

    def __init__(self, disk: Disk, where: str, *, chunk_parts: int = _CHUNK_PARTS) -> None:
        """Raises `ArchiveInUse`, `NotAnArchive`, `ArchiveDamaged`, `DiskError`."""
        self._disk: Final = disk
        self._chunk_parts: Final = chunk_parts
        _require_ours(disk.names(), where)
        try:
            disk.lock(LOCK_NAME)
        except StoreInUse:
            raise ArchiveInUse(
                f"another process is adding to the archive {where}; wait until it has ended"
            ) from None
        try:
            self.manifest = read_manifest(disk, where)
            """The manifest; None as long as there is no archive yet."""
            self._clean()
        except BaseException:
            disk.close()
            raise

    def begin(self, state: BinlogState, source: Mapping[str, str]) -> None:
        """Make an empty archive that begins there."""
        assert self.manifest is None
        self._write(ArchiveManifest(str(state), dict(source)))

    def publish(self, staged: Sequence[StagedPart]) -> list[ArchivePart]:
        """Add parts in this order; durable when it returns. Returns the parts with their names."""
        manifest = self.manifest
        assert manifest is not None
        found = []
        for number, (name, part) in enumerate(staged, manifest.count + 1):
            found.append(replace(part, name=part_name(number)))
            self._disk.rename(name, part_name(number))
        self._disk.fsync_dir()
        manifest = replace(manifest, parts=(*manifest.parts, *found))
        while len(manifest.parts) > self._chunk_parts:
            manifest = self._with_chunk(manifest)
        self._write(manifest)
        return found

    def _with_chunk(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """The first of its parts in a file of their own."""
        parts, rest = manifest.parts[: self._chunk_parts], manifest.parts[self._chunk_parts :]
        before = manifest.chunks[-1].state if manifest.chunks else manifest.begin
        name = chunk_name(len(manifest.chunks) + 1)
        data, chunk = build_chunk(name, parts, BinlogState.parse(before))
        with replaced(self._disk, name) as file:
            file.pwrite(data, 0)
        return replace(manifest, chunks=(*manifest.chunks, chunk), parts=rest)

    def _write(self, manifest: ArchiveManifest) -> None:
        with replaced(self._disk, MANIFEST_NAME) as file:
            file.pwrite(manifest.build(), 0)
        self.manifest = manifest

    def discard_staged(self, prefix: str) -> None:
        """Remove what was staged under such names and is not wanted."""
        for name in self._disk.names():
            if name.startswith(prefix):
                self._disk.unlink(name)

    def _clean(self) -> None:
        """Remove files that a killed process has left."""
        kept = set() if self.manifest is None else _names_of(self.manifest)
        for name in self._disk.names():
            if _OURS.fullmatch(name) and name not in kept:
                self._disk.unlink(name)

    def close(self) -> None:
        """Release the archive for other processes."""
        self._disk.close()


def _require_ours(names: Sequence[str], where: str) -> None:
    """Raises `NotAnArchive` where there is something else, and no manifest."""
    if MANIFEST_NAME in names:
        return
    foreign = sorted(name for name in names if name not in _BEGINNING)
    if foreign:
        raise NotAnArchive(
            f"{where} is no archive: it holds {foreign[0]!r} and no {MANIFEST_NAME}. Give an empty directory, or one "
            "that does not exist yet"
        )


def _names_of(manifest: ArchiveManifest) -> set[str]:
    """Names of all files that the manifest mentions."""
    parts = {part_name(number) for number in range(1, manifest.count + 1)}
    return parts | {chunk.name for chunk in manifest.chunks} | {MANIFEST_NAME}


# What an archiver may leave when it is killed before there is a manifest.
_BEGINNING: Final = frozenset({LOCK_NAME, f"{MANIFEST_NAME}.new", "lost+found"})
_OURS: Final = re.compile(
    rf"{re.escape(STAGED_PREFIX)}.*|part-[0-9]{{8,}}\.parquet|_archive(-[0-9]{{6,}})?\.json(\.new)?"
)
