"""The read side of a store of traditional files: groups of a file and their places, batches, search.

A place is an offset in a file, as MariaDB's positions are: the beginning of a file is 4, and a group ends where its
last event does. Batches are cut behind the first group that ends at or behind a multiple of `_CUT_BYTES`, in front of
and behind a large group, and at the end of a file; so readers that came by different ways meet.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, crc32, strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    HEADER_SIZE,
    TYPE_OFFSET,
    EventHeader,
    split_events,
)
from binlog_protocol.groups.group_runs import GroupRun, pass_bare_groups
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.classic.binlog import (
    FileHead,
    read_head,
    require_followed,
    with_flag_cleared,
)
from binlog_storage.classic.directory import BinlogDirectory
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import Bytes, EventReader
from binlog_storage.classic.file_indexes import FileIndexes, GrowingIndex
from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.gtid_index import BadIndex, IndexedPlace, IndexReader
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.writing import FILE_START
from binlog_storage.engine import (
    GroupBatch,
    LargeGroup,
    Located,
    PlacedBatch,
    PlacedGroup,
    Position,
    StartPoint,
)
from binlog_storage.errors import FileMissing, PositionPurged, UnknownBinlog
from binlog_storage.intake.source import UnfinishedGroup

_CUT_BYTES: Final = 1024 << 10
_OVER_BYTES: Final = 16 << 10  # read behind a cut for the end of the group there
_REACHED_BYTES: Final = 16 << 20  # of a file that are read again for the start of a dump
_PIECE_BYTES: Final = 16 << 10  # of a large group
_HEADS_MAX: Final = 1024
_NEAR_BYTES: Final = 1 << 20  # that are read so as to believe a record of an index


class Extent(NamedTuple):
    """The files that readers see, oldest first, and the durable end, in the last of them."""

    numbers: tuple[int, ...]
    durable: Position


class FileGroup(NamedTuple):
    """A group or start marker of a file: its bytes in normal form, and its place.

    payload: of a large group its GTID event alone.
    """

    gtid: Gtid | None
    payload: bytes
    begin: int
    end: int
    is_large: bool = False


class _FileRun(NamedTuple):
    """Groups that were read at once, and where they lie. To be used before the next item is read.

    ends_of: tells where each of them ends.
    """

    run: GroupRun
    begin: int
    end: int
    ends_of: Callable[[GroupRun], list[int]]

    def ends(self) -> list[int]:
        """Where each ends."""
        return self.ends_of(self.run)

    @property
    def gtid(self) -> Gtid:
        """The last GTID: what the run does to a binlog state, for its groups are of one domain and server."""
        return self.run.last

    def end_of(self, gtid: Gtid) -> int | None:
        """Where the group with a GTID ends; None if it is not one of them."""
        run = self.run
        index = bisect.bisect_left(run.seq_nos, gtid.seq_no)
        if index < len(run) and run.gtid(index) == gtid:
            return self.ends()[index]
        return None

    def groups(self, large_bytes: int) -> Iterator[FileGroup]:
        """Each for itself."""
        begin = self.begin
        for index, end in enumerate(self.ends()):
            payload = self.run.payload(index)
            if len(payload) > large_bytes:
                head = next(split_events(payload))
                yield FileGroup(self.run.gtid(index), head, begin, end, True)
            else:
                yield FileGroup(self.run.gtid(index), payload, begin, end)
            begin = end


class StoredBatch(NamedTuple):
    """Events of one file as they lie there, from offset `begin` on. The next batch begins at `end`.

    cuts: where in `data` each group ends, and whatever stands between two of them.
    checksum_algorithm: of the events.
    large: instead of data, one group that is not in memory. Its pieces have no checksums, but their end positions.
    """

    begin: int
    end: Position
    data: bytes
    cuts: list[int]
    checksum_algorithm: int
    large: LargeGroup | None = None


class StoredFiles:
    """Reads one store; from any thread.

    Args:
        extent: gives what there is now.
    """

    def __init__(
        self, directory: BinlogDirectory, extent: Callable[[], Extent], indexes: FileIndexes
    ) -> None:
        self._directory = directory
        self._extent = extent
        self._indexes = indexes
        self._heads: dict[int, FileHead] = {}
        self._whole: set[int] = set()  # files of which the end was seen, and is one
        self._followed: set[tuple[int, int]] = set()  # files that begin where the one before ends
        self._ends: dict[int, int] = {}  # of the last events of files that were read to their end

    def forget(self) -> None:
        """Other files have the same numbers: RESET MASTER."""
        self._heads.clear()
        self._whole.clear()
        self._followed.clear()
        self._ends.clear()

    def forget_head(self, number: int) -> None:
        """Another one has taken its place: a start marker."""
        self._heads.pop(number, None)

    def head(self, number: int) -> FileHead:
        """The head of a file. Raises `PositionPurged` for one that is gone, `StorageError`."""
        head = self._heads.get(number)
        if head is None:
            name = self._directory.name(number)
            head = read_head(Path(name), self._open(number))
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[number] = head
        return head

    def _open(self, number: int) -> Bytes:
        try:
            return self._directory.to_read(number)
        except FileMissing:
            raise PositionPurged(
                f"Could not find target log: {self._directory.name(number)}"
            ) from None

    def groups(
        self, number: int, offset: int, limit: int | None, large_bytes: int
    ) -> Generator[FileGroup]:
        """The groups of a file from an event on, up to `limit` or its end."""
        with contextlib.closing(self._runs(number, offset, limit, large_bytes)) as runs:
            for item in runs:
                if isinstance(item, FileGroup):
                    yield item
                else:
                    yield from item.groups(large_bytes)

    def _runs(
        self, number: int, offset: int, limit: int | None, large_bytes: int
    ) -> Generator[FileGroup | _FileRun]:
        """The same, groups that were read at once as one."""
        algorithm = 0
        if offset != FILE_START:
            algorithm = self.head(number).description.checksum_algorithm
        name = Path(self._directory.name(number))
        found = FileGroups(
            name,
            offset=offset,
            checksum_algorithm=algorithm,
            file=self._open(number),
            size=limit,
            large_bytes=large_bytes,
        )
        with contextlib.closing(found):
            if offset >= found.size:
                if limit is None:
                    self._ends[number] = offset
                return
            for item in found.items():
                if isinstance(item, GroupRun):
                    yield _FileRun(item, found.end, found.offset, found.ends_of)
                    continue
                is_large = item.rest is not None
                if item.rest is not None:
                    try:
                        for _ in item.rest:
                            pass
                    except UnfinishedGroup:
                        break
                yield FileGroup(item.gtid, item.payload, item.offset, found.offset, is_large)
            if limit is None:
                self._ends[number] = found.end
                if found.closed_at is not None:
                    self._whole.add(number)

    def pieces(
        self, number: int, begin: int, end: int, *, keep_ends: bool = False
    ) -> Iterator[bytes]:
        """The bytes of a group in normal form, in small pieces; `keep_ends`: with the end positions that it has.

        Raises `DamagedBinlog`, `PositionPurged`.
        """
        algorithm = self.head(number).description.checksum_algorithm
        path = Path(self._directory.name(number))
        with contextlib.closing(self._open(number)) as file:
            yield from plain_pieces(file.pread, path, begin, end, algorithm, keep_ends=keep_ends)

    # --- batches ---

    def _limit(self, number: int, extent: Extent) -> int | None:
        """Where readers stop in a file; None at its end."""
        return extent.durable.offset if number == extent.durable.file_no else None

    def _following(self, number: int, extent: Extent) -> int | None:
        """The file behind. Raises `PositionPurged` for a number of no file."""
        numbers = extent.numbers
        try:
            at = numbers.index(number)
        except ValueError:
            raise PositionPurged(
                f"Could not find target log: {self._directory.name(number)}"
            ) from None
        return numbers[at + 1] if at + 1 < len(numbers) else None

    def _batch(
        self, start: Position, large_bytes: int, *, runs: bool = False
    ) -> tuple[list[FileGroup], Position, FileGroup | None]:
        """The groups of the batch from `start` on, its end, and the large group that is the batch.

        `runs`: the groups that are read at once are left out of it, but for its end.
        """
        extent = self._extent()
        if start >= extent.durable:
            return [], start, None
        number = start.file_no
        following = self._following(number, extent)
        cut = _cut_behind(start.offset)
        found: list[FileGroup] = []
        limit = self._limit(number, extent)
        last = start.offset
        groups = self._runs(number, start.offset, limit, large_bytes)
        with contextlib.closing(groups):
            for item in groups:
                if isinstance(item, _FileRun) and runs and large_bytes >= _CUT_BYTES:
                    last = item.end
                    if last >= cut:
                        ends = item.ends()
                        last = ends[bisect.bisect_left(ends, cut)]
                        return found, Position(number, last), None
                    continue
                some = [item] if isinstance(item, FileGroup) else item.groups(large_bytes)
                for group in some:
                    end = Position(number, group.end)
                    if group.is_large:
                        if last > start.offset:
                            return found, Position(number, group.begin), None
                        return found, end, group
                    found.append(group)
                    last = group.end
                    if last >= cut:
                        return found, end, None
        if following is None:
            return found, extent.durable, None
        pair = number, following
        if (number not in self._whole or following != number + 1) and pair not in self._followed:
            self._require_followed(*pair)
        return found, Position(following, FILE_START), None

    def read_placed(self, start: Position, large_bytes: int) -> PlacedBatch:
        """See `EngineReader.read_placed`."""
        found, end, large = self._batch(start, large_bytes)
        if large is not None:
            return PlacedBatch(start, end, [], self._large(start.file_no, large))
        number = start.file_no
        return PlacedBatch(
            start, end, [PlacedGroup(g.payload, Position(number, g.end)) for g in found]
        )

    def read_stored(
        self, start: Position, large_bytes: int, *, with_cuts: bool = True
    ) -> StoredBatch:
        """The events of a batch of `read_placed` as they lie in the file, and those that stand between its groups, but
        for the head of the file: see `head`. A start marker, which is a part of it, is a batch of its own.

        `with_cuts`: whether the caller needs them, which take a step for each group.
        """
        if not with_cuts:
            plain = self._plain_batch(start, large_bytes)
            if plain is not None:
                return plain
        found, end, large = self._batch(start, large_bytes, runs=not with_cuts)
        number = start.file_no
        head = self.head(number)
        algorithm = head.description.checksum_algorithm
        if found and found[0].gtid is None:
            end = Position(number, found[0].end)
            event = with_flag_cleared(self._bytes(number, found[0].begin, end.offset))
            return StoredBatch(found[0].begin, end, event, [len(event)], algorithm)
        begin = max(start.offset, head.end)
        if large is not None and large.begin <= begin:
            whole = self._stored_pieces(number, large.payload, large.begin, large.end)
            return StoredBatch(begin, end, b"", [], algorithm, whole)
        if large is not None:
            end = Position(number, large.begin)
        stop = end.offset if end.file_no == number else self._ends[number]
        cuts: list[int] = []
        last = begin
        for group in found if with_cuts else ():
            if group.begin > last:
                cuts.append(group.begin - begin)
            last = group.end
            cuts.append(last - begin)
        if with_cuts and stop > last:
            cuts.append(stop - begin)
        return StoredBatch(begin, end, self._bytes(number, begin, stop), cuts, algorithm)

    def _plain_batch(self, start: Position, large_bytes: int) -> StoredBatch | None:
        """The batch from `start` on, read once, if nothing but plain groups are in it; None for any other."""
        extent = self._extent()
        number = start.file_no
        if start >= extent.durable or number not in extent.numbers:
            return None
        head = self.head(number)
        algorithm = head.description.checksum_algorithm
        limit = self._limit(number, extent)
        cut = _cut_behind(start.offset)
        stop = cut + _OVER_BYTES if limit is None else min(cut + _OVER_BYTES, limit)
        size = stop - start.offset
        if start.offset < head.end or size > large_bytes:
            return None
        with contextlib.closing(self._open(number)) as file:
            data = file.pread(size, start.offset)
        size = pass_bare_groups(data, 0, len(data), cut - start.offset, algorithm)
        end = Position(number, start.offset + size)
        if end.offset < cut and end != extent.durable:
            return None
        return StoredBatch(start.offset, end, data[:size], [], algorithm)

    def _bytes(self, number: int, begin: int, end: int) -> bytes:
        with contextlib.closing(self._open(number)) as file:
            parts = []
            while begin < end:
                data = file.pread(end - begin, begin)
                if not data:
                    path = Path(self._directory.name(number))
                    raise DamagedBinlog(path, begin, "the file has become shorter")
                parts.append(data)
                begin += len(data)
            return b"".join(parts)

    def _stored_pieces(self, number: int, head: bytes, begin: int, end: int) -> LargeGroup:
        """The events of a group from one of them on, to be read piece by piece: without checksums, with their ends."""
        return LargeGroup(
            head,
            Position(number, end),
            lambda: self.pieces(number, begin, end, keep_ends=True),
        )

    def from_event(self, place: Position, large_bytes: int) -> tuple[Position, LargeGroup | None]:
        """Where to read on for whoever has all in front of an event: there; or behind the group that the event is in,
        and the rest of that group.

        Raises `UnknownBinlog` if no event begins at the place.
        """
        found = self.locate(place, large_bytes)
        if found.border:
            return place, None
        if found.group is not None and found.begin < place:
            begin, end = found.begin.offset, found.after.offset
            with contextlib.closing(self._open(place.file_no)) as file:
                while begin < place.offset:
                    begin += EventHeader.parse(file.pread(HEADER_SIZE, begin)).length
            if begin == place.offset:
                return found.after, self._stored_pieces(place.file_no, b"", begin, end)
        else:
            with contextlib.suppress(DamagedBinlog):
                for _ in self.events(place.file_no, place.offset):
                    return place, None
        raise UnknownBinlog(f"no event begins at {place.offset}")

    def events(self, number: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """The events of a file from one of them on, each with its offset: without checksums, with their ends.

        Raises `DamagedBinlog` where none begins. At the end of the file, and behind it, there are none.
        """
        extent = self._extent()
        self._following(number, extent)
        head = self.head(number)
        limit = self._limit(number, extent)
        if limit is not None:
            limit = max(limit, head.end)
        algorithm = head.description.checksum_algorithm
        path = Path(self._directory.name(number))
        with EventReader(path, offset, file=self._open(number), size=limit) as reader:
            at = offset
            try:
                for event in reader:
                    if event[TYPE_OFFSET] == EventType.FORMAT_DESCRIPTION:
                        yield at, with_flag_cleared(event)
                    else:
                        yield at, strip_checksum(event, algorithm)
                    at = reader.offset
                # Bytes that look like an event which the file does not hold.
                if at == offset < reader.size:
                    raise DamagedBinlog(path, at, "no event begins there")
            except ProtocolError as error:
                raise DamagedBinlog(path, at, str(error)) from None

    def _require_followed(self, number: int, following: int) -> None:
        """See `require_followed`."""
        state = self.head(number).state
        self._learn(state, number, FILE_START, None)
        path = Path(self._directory.name(number))
        size = self._directory.disk.size(path.name)
        require_followed(path, size, state, self.head(following))
        self._followed.add((number, following))

    def _large(self, number: int, group: FileGroup) -> LargeGroup:
        return LargeGroup(
            group.payload,
            Position(number, group.end),
            lambda: self.pieces(number, group.begin, group.end),
        )

    def read(self, start: Position, large_bytes: int) -> GroupBatch:
        """See `EngineReader.read`."""
        at = start
        while True:
            batch = self.read_placed(at, large_bytes)
            if batch.groups or batch.large is not None or batch.end == at:
                payloads = [group.payload for group in batch.groups]
                return GroupBatch(start, batch.end, payloads, batch.large)
            at = batch.end

    # --- places ---

    def _near(
        self, number: int, extent: Extent, passes: Callable[[int, BinlogState], bool]
    ) -> tuple[int, BinlogState]:
        """By the GTID index of a file: where groups may be read from so as to find a place, and the state there."""
        limit = self._limit(number, extent)

        def found_passes(offset: int, state: BinlogState) -> bool:
            return (limit is None or offset <= limit) and passes(offset, state)

        def check_end(index: IndexReader) -> None:
            self._check_index(number, extent, index)

        def check_found(found: IndexedPlace) -> None:
            self._check_found(number, found)

        found = self._indexes.find(number, found_passes, check_end, check_found)
        head = self.head(number)
        if found is None or found.offset <= head.list_end:
            return FILE_START, head.state
        return found.offset, found.state

    def _check_index(self, number: int, extent: Extent, index: IndexReader) -> None:
        """Raises `BadIndex` for one that does not begin and end as its file does."""
        head = self.head(number)
        first = index.first()
        if first.offset != head.list_end or BinlogState(first.change) != head.state:
            raise BadIndex("it begins with another GTID list than its file")
        last = index.find(lambda offset, state: True)
        following = self._following(number, extent)
        if last is None or following is None:
            raise BadIndex("its file has no end")
        state = self._state_behind(number, last.offset, last.state.copy(), None)
        begins = self.head(following).state
        for domain in begins.domains():
            if begins.of_domain(domain) != state.of_domain(domain):
                raise BadIndex("it ends with another state than its file")

    def _check_found(self, number: int, found: IndexedPlace) -> None:
        """Raises `BadIndex` if the groups in front of it are not those that it tells."""
        if found.before is None or found.offset - found.before[0] > _NEAR_BYTES:
            return
        begin, state = found.before
        if begin == self.head(number).list_end:
            begin = FILE_START
        if self._state_behind(number, begin, state.copy(), found.offset) != found.state:
            raise BadIndex(f"it tells other groups in front of offset {found.offset} than its file")

    def _state_behind(
        self, number: int, begin: int, state: BinlogState, end: int | None
    ) -> BinlogState:
        """The state at the end of a file, or at `end`, which is the end of a group. Raises `BadIndex`."""
        try:
            at = self._learn(state, number, begin, end)
        except (DamagedBinlog, UnreadableBinlog) as error:
            raise BadIndex(str(error)) from None
        if end is not None and at != end:
            raise BadIndex(f"no group ends at offset {end}")
        return state

    def build_index(self, number: int, options: ClassicOptions) -> GrowingIndex | None:
        """The GTID index of a file that is not written any more; None if it is gone, or the store is being closed."""
        try:
            index = GrowingIndex.of(self.head(number), options)
            path = Path(self._directory.name(number))
            with contextlib.closing(FileGroups(path, file=self._open(number))) as found:
                for item in found.items():
                    if self._indexes.stopping:
                        return None
                    if isinstance(item, GroupRun):
                        index.add_run(item, found.ends_of(item))
                    elif item.gtid is not None:
                        for _ in item.rest or ():
                            pass
                        index.add(found.offset, item.gtid)
        except PositionPurged:
            return None
        except UnfinishedGroup:
            pass
        return index

    def locate(self, place: Position, large_bytes: int) -> Located:
        """See `EngineReader.locate`."""
        extent = self._extent()
        number = place.file_no
        self._following(number, extent)
        limit = self._limit(number, extent)
        begin, _ = self._near(number, extent, lambda offset, state: offset <= place.offset)
        border = place.offset in (FILE_START, begin) or place == extent.durable
        for group in self.groups(number, begin, limit, large_bytes):
            border = border or place.offset in (group.begin, group.end)
            if group.end > place.offset:
                end = Position(number, group.end)
                shown = (
                    self._large(number, group)
                    if group.is_large
                    else PlacedGroup(group.payload, end)
                )
                return Located(border, shown, Position(number, group.begin), end)
        return Located(border, None, place, place)

    def state_at(self, place: Position) -> BinlogState:
        """See `EngineReader.state_at`."""
        extent = self._extent()
        self._following(place.file_no, extent)
        if place.offset <= FILE_START:
            return self.head(place.file_no).state
        begin, state = self._near(
            place.file_no, extent, lambda offset, state: offset <= place.offset
        )
        self._learn(state, place.file_no, begin, place.offset)
        return state

    def _learn(self, state: BinlogState, number: int, begin: int, end: int | None) -> int:
        """Update a state by the groups of a part of a file. Returns where the last of them ends."""
        at = begin
        for item in self._runs(number, begin, end, _CUT_BYTES):
            at = item.end
            if item.gtid is not None:
                state.update(item.gtid)
        return at

    def first_start(self) -> StartPoint:
        """See `EngineReader.first_start`."""
        number = self._extent().numbers[0]
        return StartPoint(Position(number, FILE_START), self.head(number).state)

    def find_start(self, position: SlavePosition) -> StartPoint:
        """See `EngineReader.find_start`: the last file whose GTID list is before it, then the groups of that file."""
        extent = self._extent()
        for number in reversed(extent.numbers):
            if self.head(number).state.is_before(position):
                return self._start_in(number, position, extent)
        raise PositionPurged

    def reached(self, place: Position, position: SlavePosition) -> list[tuple[int, BinlogState]]:
        """The ends of those groups of a file, in front of a place in it, that a position names; each with the GTIDs
        that the file has up to there. Of a place far behind the beginning that one alone, which takes no reading.
        """
        if place.offset <= FILE_START:
            return []
        if place.offset > _REACHED_BYTES:
            before = set(self.head(place.file_no).gtids)
            gtids = [g for g in self.state_at(place).entries() if g not in before]
            return [(place.offset, BinlogState(gtids))]
        seen = BinlogState()
        found = []
        for item in self._runs(place.file_no, FILE_START, place.offset, _CUT_BYTES):
            if item.gtid is None:
                continue
            named = position.get(item.gtid.domain_id)
            if isinstance(item, FileGroup):
                end = item.end if item.gtid == named else None
            else:
                end = None if named is None else item.end_of(named)
            if end is not None and named is not None:
                there = seen.copy()
                there.update(named)
                found.append((end, there))
            seen.update(item.gtid)
        return found

    def _start_in(self, number: int, position: SlavePosition, extent: Extent) -> StartPoint:
        begin, state = self._near(number, extent, lambda offset, state: state.is_before(position))
        best = StartPoint(Position(number, begin), state)
        for item in self._runs(number, begin, self._limit(number, extent), _CUT_BYTES):
            parts: Iterable[FileGroup | _FileRun] = [item]
            if isinstance(item, _FileRun) and not _behind(best.state, item).is_before(position):
                parts = item.groups(_CUT_BYTES)
            for part in parts:
                if part.gtid is None:
                    continue
                state = _behind(best.state, part)
                if not state.is_before(position):
                    return best
                best = StartPoint(Position(number, part.end), state)
        return best


def _behind(state: BinlogState, part: FileGroup | _FileRun) -> BinlogState:
    """The binlog state behind some groups."""
    behind = state.copy()
    if part.gtid is not None:
        behind.update(part.gtid)
    return behind


def _cut_behind(offset: int) -> int:
    return (offset // _CUT_BYTES + 1) * _CUT_BYTES


def plain_pieces(
    read: Callable[[int, int], bytes],
    path: Path,
    begin: int,
    end: int,
    algorithm: int,
    *,
    keep_ends: bool = False,
    piece_bytes: int = _PIECE_BYTES,
) -> Iterator[bytes]:
    """Events that are laid out from `begin` to `end`, in normal form, in small pieces. Raises `DamagedBinlog`.

    read: as `File.pread`; it may give less than it is asked for.
    piece_bytes: the most that is read at a time.
    """
    at = begin
    tail = CHECKSUM_SIZE if algorithm else 0
    while at < end:
        header = _all_of(read, HEADER_SIZE, at)
        length = EventHeader.parse(header).length
        left = length - HEADER_SIZE
        if left < tail or at + length > end:
            raise DamagedBinlog(path, at, f"an event of {length} bytes")
        summed = crc32(header)
        place = at + HEADER_SIZE
        plain = EventHeader.parse(header)._replace(length=length - tail)
        yield (plain if keep_ends else plain._replace(end_position=0)).build()
        left -= tail
        while left:
            piece = read(min(piece_bytes, left), place)
            if not piece:
                raise DamagedBinlog(path, at, "the file has become shorter")
            summed = crc32(piece, summed)
            place += len(piece)
            left -= len(piece)
            yield piece
        if tail and _all_of(read, tail, place) != summed.to_bytes(tail, "little"):
            raise DamagedBinlog(path, at, "the CRC-32 of an event is wrong")
        at += length


def _all_of(read: Callable[[int, int], bytes], size: int, at: int) -> bytes:
    data = read(size, at)
    while len(data) < size and (more := read(size - len(data), at + len(data))):
        data += more
    return data
