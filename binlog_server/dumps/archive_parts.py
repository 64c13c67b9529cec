"""Replicas whose position was purged here, served from the archive: its parts, fetched for all who read there.

A part is fetched in a thread of its own, a few at once, and the next one while a replica gets this one. It is believed
by its checksum and by the manifest. Parts that lie in an object store are brought into files without a name in TMPDIR:
they end with this process, however it ends. Those that nobody reads any more stay as long as there is room for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Self, TypeVar, cast

from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.archive.archive import Archive, PlacedPart
from binlog_storage.archive.archive_log import (
    PART_END,
    ArchiveLog,
    Following,
    following,
    part_of,
)
from binlog_storage.archive.coverage import is_within
from binlog_storage.archive.errors import ArchiveDamaged, ArchiveUnreachable
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.places import is_remote
from binlog_storage.archive.seam import exact_place, place_behind
from binlog_storage.engine import EngineReader, Position
from binlog_storage.errors import DiskFull, PositionPurged, StorageError

from binlog_server.dumps.frame_cache import FrameCache, take_error
from binlog_server.loop.apart import apart
from binlog_server.loop.shielded import shielded

log = logging.getLogger(__name__)

_TRIES: Final = 3  # the library has tries of its own
_RETRY_S: Final = 2.0
_FULL_RETRY_S: Final = 60.0  # while the disk is full, at most
_AT_ONCE: Final = 4
_UNUSED_MAX: Final = 64  # descriptors
_FRAME_BYTES: Final = 32 << 20

T = TypeVar("T")


class _Fetch:
    """One part that is wanted, or was. `reader` and `number` are there when `task` is done.

    `size`: of what is brought here.
    """

    reader: PartReader
    number: int
    task: asyncio.Task[None]

    def __init__(self, part: ArchivePart, size: int) -> None:
        self.part: Final = part
        self.size: Final = size
        self.wanted = 0  # by so many replicas

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without the part."""
        task = self.task
        return task.done() and (task.cancelled() or task.exception() is not None)


class ArchiveParts:
    """The parts of an archive that are here or come. For one event loop.

    Args:
        archive: the archive as it was seen last, of this store's history. Raises `StorageError` if there is none such.
        refresh: looks at it again; waits for it.
        bytes_max: of parts of an object store that are here. More only if the replicas that read them need more.
    """

    pause: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)
    """Waits between two tries."""

    def __init__(
        self, archive: Callable[[], Archive], refresh: Callable[[], object], bytes_max: int
    ) -> None:
        self.archive: Final = archive
        self._refresh: Final = refresh
        self._bytes_max: Final = bytes_max
        self.log: Final = ArchiveLog()
        # Archived groups are sent without places: such a style needs no more of an engine than `ArchiveLog` has.
        self.frames: Final = FrameCache(cast(EngineReader, self.log), _FRAME_BYTES)
        self._fetches: Final[dict[str, _Fetch]] = {}  # by checksum, the least recently used first
        self._turn: Final = asyncio.Semaphore(_AT_ONCE)
        self.replicas = 0
        """Those that read it now."""
        self.fetched = 0
        self.fetched_bytes = 0
        self.failed = 0
        """Tries that have failed."""

    @property
    def bytes_here(self) -> int:
        """Bytes of the parts that were brought here, or are to come."""
        return sum(fetch.size for fetch in self._fetches.values())

    async def look_again(self, seen: Archive) -> bool:
        """Look at the archive. Returns whether it is another one than was seen."""
        await _asked(self._refresh, self._refresh)
        return self.archive().manifest != seen.manifest

    async def seen(self) -> Archive:
        """The archive; it is looked at first if it was not seen yet, or could not be believed. Raises as `archive`."""
        try:
            return self.archive()
        except StorageError:
            await _asked(self._refresh, self._refresh)
            return self.archive()

    # --- parts ---

    def want(self, placed: PlacedPart, archive: Archive) -> _Fetch:
        """A part is wanted, until `leave`."""
        key = placed.part.sha256
        fetch = self._fetches.pop(key, None)
        if fetch is None or fetch.has_failed:
            fetch = _Fetch(placed.part, placed.part.size if is_remote(archive.where) else 0)
            fetch.task = asyncio.get_running_loop().create_task(self._fetch(fetch, archive))
            fetch.task.add_done_callback(take_error)
        self._fetches[key] = fetch  # to the young end
        fetch.wanted += 1
        self._make_room()
        return fetch

    def has_room_for(self, placed: PlacedPart) -> bool:
        """Whether it may be fetched before anybody needs it."""
        in_use = sum(fetch.size for fetch in self._fetches.values() if fetch.wanted)
        return in_use + placed.part.size <= self._bytes_max

    def leave(self, fetch: _Fetch) -> None:
        """See `want`. What is under way for nobody else ends."""
        fetch.wanted -= 1
        if fetch.wanted:
            return
        if not fetch.task.done() or fetch.has_failed:
            fetch.task.cancel()
            if self._fetches.get(fetch.part.sha256) is fetch:
                del self._fetches[fetch.part.sha256]
        self._make_room()

    def _make_room(self) -> None:
        unused = [key for key, fetch in self._fetches.items() if not fetch.wanted]
        for count, key in enumerate(unused):
            if self.bytes_here <= self._bytes_max and len(unused) - count <= _UNUSED_MAX:
                return
            del self._fetches[key]

    def _drop_unused(self) -> None:
        for key in [key for key, fetch in self._fetches.items() if not fetch.wanted]:
            del self._fetches[key]

    async def _fetch(self, fetch: _Fetch, archive: Archive) -> None:
        tries, pause_s, was_full = 0, _RETRY_S, False
        while True:
            try:
                async with self._turn:
                    opened = partial(self._open, fetch, archive)
                    fetch.reader, fetch.number = await _asked(fetch, opened)
            except StorageError as error:
                self.failed += 1
                if isinstance(error, DiskFull):  # others write there, too: it may take a while
                    self._drop_unused()
                    if not was_full:
                        log.warning(
                            "%(error)s. Replicas wait until there is room", {"error": error}
                        )
                    was_full = True
                    await self.pause(pause_s)
                    pause_s = min(2 * pause_s, _FULL_RETRY_S)
                    continue
                tries += 1
                if tries == _TRIES or not isinstance(error, ArchiveUnreachable):
                    raise
                log.warning("%(error)s. It is tried again", {"error": error})
                await self.pause(_RETRY_S)
            else:
                self.fetched += 1
                self.fetched_bytes += fetch.part.size
                return

    def _open(self, fetch: _Fetch, archive: Archive) -> tuple[PartReader, int]:
        reader = PartReader(archive.place, fetch.part, lambda: not fetch.wanted)
        return reader, self.log.add(reader)


class ArchivedReplica:
    """One replica's way through an archive, part by part, with the next one fetched ahead.

    Use: `begin`; behind each part `in_store`, and `go_on` if that is nowhere; `close` in any case.
    """

    def __init__(self, parts: ArchiveParts, engine: EngineReader) -> None:
        self._parts: Final = parts
        self._engine: Final = engine
        self._at: PlacedPart  # the part that it reads
        self._fetch: _Fetch | None = None
        self._ahead: _Fetch | None = None
        self._looking: asyncio.Task[None] | None = None  # for what to fetch ahead
        self._last: ArchivePart | None = None  # of those that it has read, with groups
        self._markers = 0  # behind the last group of that
        self.frames: Final = parts.frames
        parts.replicas += 1

    def close(self) -> None:
        """It reads no more."""
        self._parts.replicas -= 1
        self._stop_looking()
        for fetch in (self._fetch, self._ahead):
            if fetch is not None:
                self._parts.leave(fetch)
        self._fetch = self._ahead = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> BinlogState:
        """The binlog state in front of its part."""
        return self._at.before

    @property
    def told(self) -> str:
        """For people: where it is."""
        return f"from the archive, part {self._at.number}, up to {self._at.after.position()}"

    async def begin(self, position: SlavePosition) -> Position:
        """The place to read for a replica's position. Raises `PositionPurged`, other `StorageError`s."""

        def find(archive: Archive) -> Following:
            return Following(part_of(archive, position))

        return await self._enter(find, ("begin", str(position)))

    async def go_on(self) -> Position:
        """The place behind the part. Raises `PositionPurged` at the end of the archive, other `StorageError`s."""
        self._note()
        done = self._at

        def find(archive: Archive) -> Following:
            found = following(archive, done)
            if found is None:
                begin = self._engine.first_start().state.position()
                raise PositionPurged(
                    f"the archive {archive.where} ends at '{done.after.position()}', and the binlog begins at "
                    f"'{begin}': what is between is in neither"
                )
            return found

        return await self._enter(find, ("behind", done.part.sha256))

    async def in_store(self) -> tuple[Position, BinlogState] | None:
        """The place in the store behind the part, and the binlog state there; None if that was purged, too.

        Raises `ArchiveNotOfStore`, other `StorageError`s.
        """
        last, markers = self._counted()
        state, where = self._at.after, self._parts.archive().where

        def find() -> Position | None:
            try:
                found = place_behind(self._engine, where, state, last)
                return None if found is None else exact_place(self._engine, *found, markers)
            except PositionPurged:
                return None  # meanwhile

        place = await asyncio.to_thread(find)
        return None if place is None else (place, state)

    @staticmethod
    def is_behind_part(place: Position) -> bool:
        """Whether a place is the end of a part."""
        return place.offset == PART_END

    def _counted(self) -> tuple[ArchivePart | None, int]:
        part = self._at.part
        if part.groups:
            return part, part.markers_behind
        return self._last, self._markers + part.markers_behind

    def _note(self) -> None:
        self._last, self._markers = self._counted()

    async def _enter(
        self, find: Callable[[Archive], Following], thing: tuple[str, str]
    ) -> Position:
        while True:
            archive = await self._parts.seen()
            try:
                found = await _asked((archive.where, *thing), partial(find, archive))
                fetch = await self._fetched(found.placed, archive)
                break
            except ArchiveDamaged:
                # Small parts may have become a large one, and are gone; else it is damage.
                if not await self._parts.look_again(archive):
                    raise
        before, self._fetch, self._at = self._fetch, fetch, found.placed
        if before is not None:
            self._parts.leave(before)
        self._fetch_ahead()
        if found.behind is None:
            return Position(fetch.number, 0)
        return await asyncio.to_thread(
            self._parts.log.place_behind, fetch.number, found.behind, found.markers
        )

    async def _fetched(self, placed: PlacedPart, archive: Archive) -> _Fetch:
        fetch = self._parts.want(placed, archive)
        try:
            await shielded(fetch.task)
        except BaseException:
            self._parts.leave(fetch)
            raise
        return fetch

    # --- ahead ---

    def _fetch_ahead(self) -> None:
        self._stop_looking()
        before, self._ahead = self._ahead, None
        self._looking = asyncio.get_running_loop().create_task(self._look_ahead())
        self._looking.add_done_callback(take_error)
        if before is not None:
            self._parts.leave(before)

    async def _look_ahead(self) -> None:
        archive, done = self._parts.archive(), self._at
        thing = archive.where, "ahead", done.part.sha256

        def find() -> Following | None:
            with contextlib.suppress(PositionPurged):
                if is_within(self._engine.first_start().state, done.after):
                    return None  # the store goes on there
            return following(archive, done)

        found = await _asked(thing, find)
        if found is not None and self._parts.has_room_for(found.placed):
            self._ahead = self._parts.want(found.placed, archive)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()


async def _asked(thing: object, call: Callable[[], T]) -> T:
    """As `apart`, with an error of ours when too many calls do not return."""
    try:
        return await apart(thing, call)
    except OSError as error:
        raise ArchiveUnreachable(f"the archive: {error.strerror or error}") from error
