"""An archive that is added to. By one process at a time.

Whoever is killed at any step leaves the archive as it was, or with the parts that it was publishing:

1. A part is written under a name of its own that begins with a dot, and synced.
2. `publish` renames it to the next number, and syncs the directory.
3. A new manifest with it is written beside the old one, synced, renamed over it, and the directory is synced.

What was left by a kill in between is not in the manifest, and is removed by the next that adds something.

In an object store nothing is locked. There a part is written into a folder of this machine first, and

2. is uploaded under its number and its checksum: two who write the same number do not write the same object, and the
   same one may be uploaded again.
3. The manifest is written only in the place of the one that was read. Who comes second is told so, and has changed
   nothing. If the answer is lost the manifest is read: it is ours, or was not written.

A part that was uploaded and not published stays until its number is that of another: then nobody can publish it.

Where a part takes the place of some, with a number of its own, those stay for `GRACE_S`, so that whoever reads by the
manifest of before finds them. The manifest says which they are, and since when; they go from it after they are deleted.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.gtid import BinlogState

from binlog_storage.archive.archive import read_manifest
from binlog_storage.archive.encryption import NO_KEYS, ArchiveKey, ArchiveKeys
from binlog_storage.archive.errors import (
    ArchiveDamaged,
    ArchiveInUse,
    ArchiveUnreachable,
    NotAnArchive,
    ObjectChanged,
)
from binlog_storage.archive.manifest import (
    MANIFEST_NAME,
    ArchiveManifest,
    ArchivePart,
    RetiredParts,
    build_chunk,
    chunk_name,
    form_of,
    object_name,
    part_name,
    part_number,
)
from binlog_storage.archive.objects import Objects
from binlog_storage.archive.places import (
    DiskPlace,
    ObjectPlace,
    Place,
    Where,
    is_remote,
    open_objects,
    open_place,
)
from binlog_storage.archive.remembered_manifests import SeenManifest
from binlog_storage.archive.staging_folder import StagingFolder
from binlog_storage.disk.disk import Disk, OsDisk, mapped, replaced
from binlog_storage.disk.given_files import open_given
from binlog_storage.disk.local_path import local_path
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import DiskError, DiskFull, FileMissing, StoreInUse

log = logging.getLogger(__name__)

LOCK_NAME: Final = "_archive.lock"
STAGED_PREFIX: Final = ".staged-"
PART_PREFIX: Final = "part-"
GRACE_S: Final = 6 * 3600
"""So long a part is there after others have taken its place. A reader may take that long from manifest to part."""

_CHUNK_PARTS: Final = 1000


class StagedPart(NamedTuple):
    """A part that was written and synced under the name `staged`, and is not published yet."""

    staged: str
    part: ArchivePart


class Shelf(Protocol):
    """The place of an archive, for who adds to it. Methods raise `DiskError`, `ArchiveUnreachable`."""

    @property
    def place(self) -> Place:
        """To read it."""

    @property
    def staging(self) -> Path:
        """The folder into which parts are written before they are published."""

    is_remote: bool
    """Names are those of `object_name`."""

    def take(self) -> None:
        """Look whether it may be added to; it is held until `close`. Raises `ArchiveInUse`, `NotAnArchive`."""

    def clean(self, manifest: ArchiveManifest | None) -> None:
        """Remove what a killed process has left."""

    def add(self, staged: Mapping[str, str]) -> None:
        """Put staged parts there durably, under new names. Nobody reads them yet."""

    def write_chunk(self, name: str, data: bytes) -> None:
        """Write a list of parts. Nobody reads it yet."""

    def write_manifest(self, data: bytes) -> None:
        """Write the manifest in the place of the last one. Raises `ArchiveInUse` if there is another one by now."""

    def discard_staged(self, prefix: str) -> None:
        """Remove what was staged under such names."""

    def remove(self, name: str) -> None:
        """Remove a part of which nobody tells; one that is not there is no error."""

    def close(self) -> None:
        """Let go."""


def open_shelf(where: Where, keys: ArchiveKeys | None = None) -> FolderShelf | ObjectShelf:
    """The shelf of an archive that somebody names. A folder is made if need be.

    Without `keys` those that the environment names. Raises `NotLocal`, `StoreLibraryMissing`.
    """
    keys = ArchiveKeys.of_environment() if keys is None else keys
    if is_remote(where):
        return ObjectShelf(open_objects(str(where)), keys)
    directory = local_path(where)
    return FolderShelf(OsDisk(directory), str(directory), keys)


def manifest_there(where: Where, key_id: int = 0) -> ArchiveManifest | None:
    """The manifest of an archive as it lies, for a dry run; None where one would be made. Raises as `ArchivePublisher`,
    whose `key_id` this is.

    Nobody is kept out, and nothing is made.
    """
    if key_id:
        ArchiveKeys.of_environment().get(key_id, str(where))
    if not is_remote(where):
        directory = local_path(where)
        if not directory.exists():
            return None
        _require_ours(ReadOnlyDisk(directory).names(), str(directory))
    return read_manifest(open_place(where))


class FolderShelf:
    """See `Shelf`: a folder of this machine. Parts are staged in it.

    Args:
        where: the directory, for messages.
    """

    is_remote = False

    def __init__(self, disk: Disk, where: str, keys: ArchiveKeys = NO_KEYS) -> None:
        self._disk: Final = disk
        self.place: Final = DiskPlace(disk, where, keys)
        self.staging: Final = Path(where)

    def take(self) -> None:
        """See `Shelf`."""
        where = self.place.where
        _require_ours(self._disk.names(), where)
        try:
            self._disk.lock(LOCK_NAME)
        except StoreInUse:
            raise ArchiveInUse(
                f"another process is adding to the archive {where}; wait until it has ended"
            ) from None

    def clean(self, manifest: ArchiveManifest | None) -> None:
        """See `Shelf`."""
        kept = {MANIFEST_NAME} if manifest is None else _names_of(manifest)
        listed = 0 if manifest is None else manifest.listed
        for name in self._disk.names():
            if not _OURS.fullmatch(name) or name in kept:
                continue
            # Those of full lists are not looked at one by one.
            if (part_number(name) or listed + 1) > listed:
                self._disk.unlink(name)

    def add(self, staged: Mapping[str, str]) -> None:
        """See `Shelf`."""
        for name, to in staged.items():
            self._disk.rename(name, to)
        self._disk.fsync_dir()

    def write_chunk(self, name: str, data: bytes) -> None:
        """See `Shelf`. On a full disk nothing stays there of what the manifest does not have."""
        try:
            with replaced(self._disk, name) as file:
                file.pwrite(data, 0)
        except DiskFull:
            with contextlib.suppress(ArchiveDamaged, DiskError):
                self.clean(read_manifest(self.place))
            raise

    def write_manifest(self, data: bytes) -> None:
        """See `Shelf`."""
        self.write_chunk(MANIFEST_NAME, data)

    def discard_staged(self, prefix: str) -> None:
        """See `Shelf`."""
        for name in self._disk.names():
            if name.startswith(prefix):
                self._disk.unlink(name)

    def remove(self, name: str) -> None:
        """See `Shelf`."""
        with contextlib.suppress(FileMissing):
            self._disk.unlink(name)

    def close(self) -> None:
        """See `Shelf`."""
        self._disk.close()


class ObjectShelf:
    """See `Shelf`: a path of an object store. Parts are staged in a folder of this machine, which goes in the end."""

    is_remote = True

    def __init__(self, objects: Objects, keys: ArchiveKeys = NO_KEYS) -> None:
        self._objects: Final = objects
        self.place: Final = ObjectPlace(objects, keys)
        with mapped("make a folder in", Path(tempfile.gettempdir())):
            self._folder: Final = StagingFolder()
        self.staging: Final = self._folder.path
        self._tag: str | None = None  # of the manifest that was read or written last
        self._added: list[str] = []  # staged parts that wait for the manifest

    def take(self) -> None:
        """See `Shelf`."""
        found = self._objects.get(MANIFEST_NAME)
        self._tag = None if found is None else found.tag

    def clean(self, manifest: ArchiveManifest | None) -> None:
        """See `Shelf`. Parts whose number is taken by others can be published by nobody."""
        if manifest is None:
            return
        first = manifest.listed + 1
        kept = _names_of(manifest)
        for name in self._objects.names(PART_PREFIX, part_name(first).partition(".")[0]):
            number = part_number(name)
            if number is not None and number <= manifest.given and name not in kept:
                self._objects.delete(name)

    def add(self, staged: Mapping[str, str]) -> None:
        """See `Shelf`."""
        for name, to in staged.items():
            # It may be there already: these bytes, which have that checksum in their name.
            with (
                open_given(self.staging / name) as file,
                contextlib.suppress(ObjectChanged),
            ):
                self._objects.put(to, file, None)
            self._added.append(name)

    def write_chunk(self, name: str, data: bytes) -> None:
        """See `Shelf`."""
        with contextlib.suppress(ObjectChanged):
            self._objects.put(name, data, None)

    def write_manifest(self, data: bytes) -> None:
        """See `Shelf`."""
        self._put_manifest(data)
        for name in self._added:
            (self.staging / name).unlink()
        self._added.clear()

    def _put_manifest(self, data: bytes) -> None:
        try:
            self._tag = self._objects.put(MANIFEST_NAME, data, self._tag)
        except (ObjectChanged, ArchiveUnreachable) as error:
            # Or it was written, and the answer was lost: the library asks again by itself.
            found = self._objects.get(MANIFEST_NAME)
            if found is not None and b"".join(found.pieces) == data:
                self._tag = found.tag
                return
            if isinstance(error, ObjectChanged):
                raise ArchiveInUse(
                    f"another process has added to the archive {self.place.where} meanwhile: only one may. See that "
                    "no other server or job archives there, and try again: it goes on behind what is there"
                ) from error
            raise

    def discard_staged(self, prefix: str) -> None:
        """See `Shelf`."""
        for path in self.staging.glob(f"{prefix}*"):
            path.unlink()

    def remove(self, name: str) -> None:
        """See `Shelf`."""
        self._objects.delete(name)

    def close(self) -> None:
        """See `Shelf`."""
        self._folder.close()


class ArchivePublisher:
    """Adds parts to an archive, and holds it until `close`.

    Args:
        chunk_parts: so many parts go into a chunk.
        clock: seconds since 1970.
        key_id: new parts are to be encrypted with that key; 0: with the one that the manifest names, if it does.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        chunk_parts: int = _CHUNK_PARTS,
        key_id: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises `ArchiveInUse`, `NotAnArchive`, `ArchiveDamaged`, `ArchiveUnreachable`, `NoBinlogKey`, `DiskError`."""
        self._shelf: Final = shelf
        self._chunk_parts: Final = chunk_parts
        self._clock: Final = clock
        self._told = ""  # the last error of a deletion, which is logged once
        try:
            shelf.take()
            self.manifest = read_manifest(shelf.place)
            """The manifest; None as long as there is no archive yet."""
            known = 0 if self.manifest is None else self.manifest.key_id
            self.key_id: Final = key_id or known
            self.key()
            shelf.clean(self.manifest)
        except BaseException:
            shelf.close()
            raise

    @property
    def staging(self) -> Path:
        """The folder into which parts are to be written."""
        return self._shelf.staging

    @property
    def place(self) -> Place:
        """To read what is there."""
        return self._shelf.place

    @property
    def where(self) -> str:
        """For messages."""
        return self._shelf.place.where

    @property
    def keys(self) -> ArchiveKeys:
        return self._shelf.place.keys

    def key(self) -> ArchiveKey | None:
        """The key with which new parts are to be encrypted; None: they are not. Raises `NoBinlogKey`."""
        return self.keys.get(self.key_id, self._shelf.place.where) if self.key_id else None

    def begin(self, state: BinlogState, source: Mapping[str, str]) -> None:
        """Make an empty archive that begins there."""
        assert self.manifest is None
        self._write(ArchiveManifest(str(state), dict(source)))

    def publish(self, staged: Sequence[StagedPart]) -> list[ArchivePart]:
        """Add parts in this order; durable when it returns. Returns the parts with their names.

        Raises `ArchiveInUse` if another has added meanwhile: nothing was added then.
        """
        manifest = self.manifest
        assert manifest is not None
        found = self._named(staged)
        self._shelf.add(
            {staged_as: part.name for (staged_as, _), part in zip(staged, found, strict=True)}
        )
        given = manifest.given + len(found)
        manifest = replace(manifest, parts=(*manifest.parts, *found), numbers=given)
        while len(manifest.parts) > self._chunk_parts:
            manifest = self._with_chunk(manifest)
        self._write(manifest)
        return found

    def replace(self, run: Sequence[ArchivePart], staged: StagedPart) -> ArchivePart:
        """Put one part that has all of some in their place; durable when it returns. Raises as `publish`.

        Args:
            run: parts that follow each other and are in no chunk.
        """
        manifest = self.manifest
        assert manifest is not None
        begin = manifest.parts.index(run[0])
        end = begin + len(run)
        assert manifest.parts[begin:end] == tuple(run)
        (part,) = self._named([staged])
        self._shelf.add({staged.staged: part.name})
        retired = RetiredParts(int(self._clock()), tuple(one.name for one in run))
        self._write(
            replace(
                manifest,
                parts=(*manifest.parts[:begin], part, *manifest.parts[end:]),
                numbers=manifest.given + 1,
                retired=(*manifest.retired, retired),
            )
        )
        return part

    def _named(self, staged: Sequence[StagedPart]) -> list[ArchivePart]:
        """With names of numbers that nobody has had."""
        assert self.manifest is not None
        found = []
        for number, (_, part) in enumerate(staged, self.manifest.given + 1):
            name = part_name(number, form_of(part.name))
            name = object_name(name, part.sha256) if self._shelf.is_remote else name
            found.append(replace(part, name=name))
        return found

    def _without_old(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """Without retired parts whose time is over: they are deleted."""
        left = list(manifest.retired)
        before = self._clock() - GRACE_S
        try:
            while left and left[0].at <= before:
                for name in left[0].names:
                    self._shelf.remove(name)
                del left[0]
        except (ArchiveUnreachable, DiskError) as error:
            # Whoever may not delete, or has no answer, archives all the same.
            if str(error) != self._told:
                self._told = str(error)
                log.warning(
                    "the archive %(archive)s keeps parts that have become one: %(error)s. See that they may be "
                    "deleted: it is tried again with each part, and until then they take room and the manifest grows",
                    {"archive": self.where, "error": error},
                )
        return replace(manifest, retired=tuple(left))

    def _with_chunk(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """The first of its parts in a file of their own."""
        parts, rest = manifest.parts[: self._chunk_parts], manifest.parts[self._chunk_parts :]
        before = manifest.chunks[-1].state if manifest.chunks else manifest.begin
        data, chunk = build_chunk(
            chunk_name(len(manifest.chunks) + 1),
            parts,
            BinlogState.parse(before),
            self.keys,
            is_object=self._shelf.is_remote,
        )
        highest = max(manifest.listed, *(part_number(part.name) or 0 for part in parts))
        if highest != sum(one.parts for one in (*manifest.chunks, chunk)):
            chunk = replace(chunk, highest=highest)
        self._shelf.write_chunk(chunk.name, data)
        return replace(manifest, chunks=(*manifest.chunks, chunk), parts=rest)

    def _write(self, manifest: ArchiveManifest) -> None:
        manifest = replace(self._without_old(manifest), key_id=self.key_id)
        data = manifest.build(self.keys)
        self._shelf.write_manifest(data)
        if self.keys.memory is not None:
            self.keys.memory.remember(self.where, SeenManifest.of(manifest.given, data))
        self.manifest = manifest

    def discard_staged(self, prefix: str) -> None:
        """Remove what was staged under such names and is not wanted."""
        self._shelf.discard_staged(prefix)

    def close(self) -> None:
        """Release the archive for other processes."""
        self._shelf.close()


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
    """Names of all files that the manifest mentions itself."""
    parts = {part.name for part in manifest.parts}
    retired = {name for one in manifest.retired for name in one.names}
    return parts | retired | {chunk.name for chunk in manifest.chunks} | {MANIFEST_NAME}


# What an archiver may leave when it is killed before there is a manifest.
_BEGINNING: Final = frozenset({LOCK_NAME, f"{MANIFEST_NAME}.new", "lost+found"})
_OURS: Final = compiled_later(
    rf"{re.escape(STAGED_PREFIX)}.*|part-[0-9]{{8,}}\.(parquet|ibb\.zst)|_archive(-[0-9]{{6,}})?\.json(\.new)?"
)
