"""An archive that is read: its manifest, and its parts in their order with the binlog state in front of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from binlog_protocol.gtid import BinlogState

from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.errors import ArchiveDamaged, NotAnArchive
from binlog_storage.archive.manifest import (
    MANIFEST_NAME,
    ArchiveChunk,
    ArchiveManifest,
    ArchivePart,
    form_of,
    object_name,
    parse_chunk,
    part_name,
    part_number,
    times_of,
)
from binlog_storage.archive.places import Place, Where, is_remote, open_place
from binlog_storage.archive.remembered_manifests import SeenManifest


class PlacedPart(NamedTuple):
    """A part, the number of it, counted from 1, and the binlog state in front of it."""

    number: int
    part: ArchivePart
    before: BinlogState

    @property
    def after(self) -> BinlogState:
        """The binlog state behind this part."""
        return self.part.added_to(self.before)


class Archive:
    """An archive, as its manifest was when this was made. Keeps no file open."""

    def __init__(self, place: Place, manifest: ArchiveManifest) -> None:
        self.place: Final = place
        self.manifest: Final = manifest
        self.where: Final = place.where
        """The directory or URL, for messages."""

    @classmethod
    def open(cls, where: Where, keys: ArchiveKeys | None = None) -> Self:
        """Raises `NotAnArchive`, `ArchiveDamaged`, `ArchiveTurnedBack`, `ArchiveUnreachable`, `NoBinlogKey`,
        `DiskError`.

        Args:
            keys: for encrypted parts; None: those that the environment names.
        """
        place = open_place(where, keys)
        manifest = read_manifest(place)
        if manifest is None:
            raise NotAnArchive(f"{place.where} is no archive: it has no {MANIFEST_NAME}")
        return cls(place, manifest)

    @property
    def begin(self) -> BinlogState:
        """The binlog state in front of the first part."""
        return BinlogState.parse(self.manifest.begin)

    def parts(
        self, is_wanted: Callable[[ArchiveChunk, BinlogState], bool] = lambda chunk, before: True
    ) -> Iterator[PlacedPart]:
        """All, in order. Raises `ArchiveDamaged`, `DiskError`.

        Args:
            is_wanted: whether anything of a whole chunk is, and of the state in front of it; asked before it is read.
        """
        state, number = self.begin, 1
        seen = set[int]()
        for chunk in self.manifest.chunks:
            behind = BinlogState.parse(chunk.state)
            if is_wanted(chunk, state):
                parts = self._chunk(chunk)
                after = state
                for part in parts:
                    after = part.added_to(after)
                if len(parts) != chunk.parts or after != behind:
                    raise ArchiveDamaged(
                        f"{self.where}/{chunk.name} has {len(parts)} parts up to '{after}', and the manifest says "
                        f"{chunk.parts} up to '{behind}'; restore it from a copy"
                    )
                yield from self._placed(parts, state, number, seen)
            state, number = behind, number + chunk.parts
        yield from self._placed(self.manifest.parts, state, number, seen)

    def _placed(
        self, parts: tuple[ArchivePart, ...], state: BinlogState, number: int, seen: set[int]
    ) -> Iterator[PlacedPart]:
        for at, part in enumerate(parts, number):
            # Else it would be read from anywhere, or twice.
            named = self._number(part) if self.manifest.numbers else at
            name = part_name(named, form_of(part.name))
            if part.name not in (name, object_name(name, part.sha256)):
                raise ArchiveDamaged(
                    f"{self.where}: the manifest says {part.name!a} where {name} would be; restore it "
                    "from a copy"
                )
            if named in seen or named > self.manifest.given:
                raise ArchiveDamaged(
                    f"{self.where}: the manifest says {part.name!a}, a number that was given to another part, or to "
                    "none; restore it from a copy"
                )
            seen.add(named)
            placed = PlacedPart(at, part, state)
            yield placed
            state = placed.after

    def _number(self, part: ArchivePart) -> int:
        """Parts that have become one have a number of their own, not that of their place."""
        number = part_number(part.name)
        return 0 if number is None else number

    def _chunk(self, chunk: ArchiveChunk) -> tuple[ArchivePart, ...]:
        where = f"{self.where}/{chunk.name}"
        data = self.place.read(chunk.name)
        if data is None:
            raise ArchiveDamaged(f"{where} is missing; restore it from a copy")
        parts = parse_chunk(data, chunk, where, self.place.keys)
        if (chunk.ts_min, chunk.ts_max) != times_of(
            parts
        ):  # by these a query for times leaves chunks out
            raise ArchiveDamaged(
                f"{where} has other times than the manifest says; restore it from a copy"
            )
        return parts


def read_manifest(place: Place) -> ArchiveManifest | None:
    """The manifest of an archive; None without one. Raises as `Archive.open`."""
    memory = place.keys.memory
    seen = None if memory is None else memory.seen(place.where)
    data = place.read(MANIFEST_NAME)
    manifest = found = None
    if data is not None:
        manifest = ArchiveManifest.parse(data, f"{place.where}/{MANIFEST_NAME}", place.keys)
        found = SeenManifest.of(manifest.given, data)
    if memory is not None:
        memory.require(place.where, seen, found)
        if found is not None:
            memory.remember(place.where, found)
    return manifest


def is_archive(where: Where) -> bool:
    """Whether a directory has a manifest, sound or not. What lies in an object store is nothing else."""
    return is_remote(where) or (Path(where) / MANIFEST_NAME).is_file()
