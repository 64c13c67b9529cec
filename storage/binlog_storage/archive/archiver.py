"""A store that is open into an archive, while it is written: what is durable in it and not there yet, part by part.

Where the archive ends is known from the archive alone: its last group is looked for in the store, by GTID, and must be
the same one byte by byte. So it goes on behind a kill, a lost answer, and what another has added.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.stored_group import is_start_marker

from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.errors import ArchiveNotOfStore
from binlog_storage.archive.manifest import FORMS, ArchiveManifest, PartFormName
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.placed_groups import PlacedGroups, part_writer
from binlog_storage.archive.places import Where, is_remote
from binlog_storage.archive.publisher import (
    STAGED_PREFIX,
    ArchivePublisher,
    StagedPart,
    open_shelf,
)
from binlog_storage.archive.seam import place_behind
from binlog_storage.disk.disk import disk_error
from binlog_storage.engine import EngineReader, Position
from binlog_storage.errors import PositionPurged

PART_BYTES: Final = 64 << 20
_LEVEL: Final = 1  # of zstd


class StoreArchiver:
    """Adds to one archive. One thread at a time, but for `stop`.

    Args:
        part_bytes: of the log, in a part; more if the last group is large.
        keys, key_id: for `Archive.open` and `ArchivePublisher`.
        form: of the parts that are added; those that are there may have another one.
    """

    def __init__(
        self,
        engine: EngineReader,
        where: Where,
        *,
        part_bytes: int = PART_BYTES,
        keys: ArchiveKeys | None = None,
        key_id: int = 0,
        form: PartFormName = "parquet",
    ) -> None:
        self._engine: Final = engine
        self.where: Final = where
        self._part_bytes: Final = part_bytes
        self._keys: Final = keys
        self._key_id: Final = key_id
        self._form: Final[PartFormName] = form
        self._merger: Final = Merger(part_bytes, form=form)
        self._publisher: ArchivePublisher | None = None
        self._age = -1
        self._place = Position(0, 0)  # where it goes on
        self._skip = 0  # groups from there on that are archived
        self._known_markers = 0  # that come next, and are archived
        self._stopping = threading.Event()
        self._working = threading.Lock()

    def stop(self) -> None:
        """`step` is to end soon, and lets go of the archive. From any thread."""
        self._stopping.set()
        self._let_go()

    def _let_go(self) -> None:
        if self._working.acquire(blocking=False):  # else it does so itself
            try:
                self.close()
            finally:
                self._working.release()

    def step(self) -> int:
        """Archive all that is durable. Returns how many groups these were; published ones are, also if it raises.

        Raises `ArchiveInUse`, `ArchiveNotOfStore`, `ArchiveUnreachable`, other `StorageError`s: the next step goes on.
        """
        try:
            with self._working:
                return self._step()
        except OSError as error:  # of the folder in which parts are written
            folder = tempfile.gettempdir() if is_remote(self.where) else self.where
            raise disk_error("write a part of the archive in", Path(folder), error) from error
        finally:
            if self._stopping.is_set():
                self._let_go()

    def _step(self) -> int:
        added = 0
        was_purged = False
        try:
            while not self._stopping.is_set():
                try:
                    groups = self._add_part(self._opened())
                except PositionPurged:
                    if was_purged:
                        raise
                    # What was archived was purged, and with it the place to go on at: it is looked for again.
                    self.close()
                    was_purged = True
                    continue
                if groups is None:
                    break
                added += groups
            while not self._stopping.is_set() and self._merger.step(self._opened()):
                pass
        except BaseException:
            self.close()  # what is there has to be looked at again
            raise
        return added

    def close(self) -> None:
        """Let go of the archive."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def _opened(self) -> ArchivePublisher:
        if self._publisher is not None and self._age == self._engine.age:
            return self._publisher
        self.close()
        self._age = self._engine.age
        publisher = self._publisher = ArchivePublisher(
            open_shelf(self.where, self._keys), key_id=self._key_id
        )
        if publisher.manifest is None:
            start = self._engine.first_start()
            publisher.begin(start.state, {"kind": "server", "name": str(self.where)})
        assert publisher.manifest is not None
        self._place, self._skip = self._place_behind(publisher.manifest)
        self._known_markers = publisher.manifest.known_markers
        return publisher

    def _place_behind(self, manifest: ArchiveManifest) -> tuple[Position, int]:
        """A place, and how many groups from there on are archived. Raises `ArchiveNotOfStore`."""
        found = place_behind(self._engine, str(self.where), manifest.state, manifest.last_part)
        if found is None:
            begin = self._engine.first_start().state.position()
            raise ArchiveNotOfStore(
                f"the archive {self.where} is at '{manifest.state.position()}', and the store begins at '{begin}': "
                "what is between is in neither, or they are of different histories. Archive into an empty place"
            )
        return found

    def _add_part(self, publisher: ArchivePublisher) -> int | None:
        """Add one part. Returns its number of groups; None if there is nothing more."""
        write_part = part_writer()
        manifest = publisher.manifest
        assert manifest is not None
        reading = _Reading(self._engine, self._place, self._skip, self._known_markers)
        name = f"{STAGED_PREFIX}server-{uuid.uuid4().hex}{FORMS[self._form]}"
        groups = reading.groups(self._part_bytes)
        facts = write_part(
            publisher.staging / name, groups, _LEVEL, publisher.key(), manifest.state
        )
        if facts is None:
            return None
        part = manifest.grown(facts.part(publisher.staging / name), facts.first_place)
        publisher.publish([StagedPart(name, part)])
        self._place, self._skip, self._known_markers = reading.place, 0, reading.known_markers
        return part.groups


@dataclass
class _Reading:
    """One pass over what is durable. `place` and `known_markers` are where it has come to."""

    engine: EngineReader
    place: Position
    skip: int
    known_markers: int

    def groups(self, bytes_max: int) -> Iterator[PlacedGroups]:
        """Groups until they have so many bytes, or there are no more."""
        size = 0
        while size < bytes_max:
            batch = self.engine.read_placed(self.place)
            if batch.end == self.place:
                return
            self.place, skip, self.skip = batch.end, self.skip, 0
            if batch.large is not None:
                if not skip:
                    size += bytes_max  # it has a part of its own, or ends one
                    self.known_markers = 0
                    yield PlacedGroups([(batch.large.head, batch.large.end)], [], batch.large)
                continue
            found, markers = list[tuple[bytes, Position]](), list[tuple[int, bytes]]()
            for payload, end in batch.groups[skip:]:
                if not is_start_marker(payload):
                    found.append((payload, end))
                    self.known_markers = 0
                elif self.known_markers:
                    self.known_markers -= 1
                else:
                    markers.append((len(found), payload))
            size += sum(len(payload) for payload, _ in found)
            if found or markers:
                yield PlacedGroups(found, markers)
