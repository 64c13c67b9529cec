"""The packets of a replica: from groups, as the store has them, to frames. A style of stream is a class."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.classic_positions import (
    OVERTAKEN,
    ends_behind,
    event_ends,
    event_lengths,
    position_of,
    sealed,
)
from binlog_protocol.dump.weaker_clients import Event, SlaveCapability, client_events
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, EventHeader, split_events
from binlog_protocol.groups.stored_group import is_start_marker, without_skipped
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_protocol.wire.event_frames import EventFrames, event_frames
from binlog_protocol.wire.semi_sync import PositionStep
from binlog_storage.engine import EngineReader, LargeGroup, PlacedBatch, PlacedGroup, Position

from binlog_server.dumps.coordinates import (
    ClassicCoordinates,
    Coordinates,
    FileCoordinates,
    classic_name,
)
from binlog_server.dumps.stream_places import (
    STREAM_NAME,
    ClassicPlace,
    EnginePlace,
    StreamPlace,
    TraditionalPlace,
    files_of,
)


@dataclass(frozen=True, slots=True)
class FramedBatch:
    """Groups ready to be sent. `end` is where the next batch begins.

    `overtaken`: the last group is longer than its place; see `binlog_protocol.dump.classic_positions`.
    `large`: instead of frames, one group that each replica gets by `large_group_frames`.
    """

    end: Position
    frames: EventFrames
    overtaken: bool = False
    large: LargeGroup | None = None


class EventEnds:
    """End positions of a large group's events, asked for in their order: none."""

    position = 0  # as a replica counts
    overtaken = False  # whether the group is longer than its place

    def next(self, length: int) -> int:
        """The end position of the next event, `length` bytes long."""
        return 0

    def of(self, lengths: Iterable[int]) -> list[int]:
        """The end positions of the next events."""
        return [self.next(length) for length in lengths]


class _PlacedEnds(EventEnds):
    """As `classic_positions.ends_behind`; a client inside the group, for which `before` is None, is not overtaken."""

    def __init__(self, size: int, end: int, before: int | None) -> None:
        self.overtaken = before is not None and end - size < before
        self._begin = self.position = OVERTAKEN if self.overtaken else end - size
        self._last = self._begin + size
        self._end = end

    def next(self, length: int) -> int:
        is_first = self.position == self._begin
        self.position += length
        if self.position == self._last:
            return self._end
        return self.position if is_first or not self.overtaken else 0


@dataclass(frozen=True, eq=False)
class FrameStyle(ABC):
    """The differences between replicas in the packets of the same groups. It is part of a key: `shared` makes equal
    ones the same object.

    annotate: the replica wants ANNOTATE_ROWS events.
    skip_marked: the replica wants no events that were logged with @@skip_replication=1.
    checksum: events have checksums.
    capability: what the replica understands; less than GTID only in the classic style.
    registered: it is a replica. Others get one format description a file, the first: they have no temporary tables
        that end when the upstream starts, and `mariadb-binlog --raw` begins its file anew with each.
    semi_sync: the packets are as `binlog_protocol.wire.semi_sync` says; the last of each batch is to be acknowledged.
    """

    place: ClassVar[type[StreamPlace]]
    by_files: ClassVar[bool]  # whether clients without GTID may ask, by file and position
    keeps_ends: ClassVar[bool] = False  # whether events have the end positions of their file

    annotate: bool
    skip_marked: bool
    checksum: bool = False
    capability: int = int(SlaveCapability.GTID)
    registered: bool = True
    semi_sync: bool = False

    def sealed_as(self, *, checksum: bool) -> FrameStyle:
        """The same with or without checksums."""
        return shared(
            type(self),
            annotate=self.annotate,
            skip_marked=self.skip_marked,
            checksum=checksum,
            capability=self.capability,
            registered=self.registered,
            semi_sync=self.semi_sync,
        )

    @property
    def unplaced(self) -> FrameStyle:
        """The same without positions: for groups that lie in no file of the store."""
        return shared(
            EngineStyle,
            annotate=self.annotate,
            skip_marked=self.skip_marked,
            checksum=self.checksum,
            capability=self.capability,
            registered=self.registered,
            semi_sync=self.semi_sync,
        )

    def name_before(self, engine: EngineReader) -> str:
        """A name for what comes before the first file of a stream. Waits for the disk."""
        return classic_name(self._number_before(engine))

    def _number_before(self, engine: EngineReader) -> int:
        return max(0, min((file.number for file in engine.files()), default=0) - 1)

    @property
    @abstractmethod
    def is_costly(self) -> bool:
        """Whether each event is made anew, in Python."""

    def position(self, offset: int) -> int:
        """The position of byte `offset` of a file of the store, for the replica."""
        return position_of(offset)

    def reached(
        self, engine: EngineReader, cursor: Position, position: SlavePosition
    ) -> list[tuple[int, BinlogState]]:
        """See `StreamPlace.open`. Waits for the disk."""
        return []

    @abstractmethod
    def read(self, engine: EngineReader, start: Position) -> PlacedBatch:
        """The groups from `start` on, for a replica that does not get all of them; may wait for the disk.

        Raises `StorageError`.
        """

    @abstractmethod
    def framed(self, engine: EngineReader, start: Position) -> FramedBatch:
        """Packets of all groups of the batch from `start` on; likewise. Raises `ProtocolError`, too."""

    @abstractmethod
    def some(self, before: Position, groups: list[PlacedGroup]) -> tuple[EventFrames, bool]:
        """Packets of groups that `read` has given, behind `before`; and whether the last is overtaken.

        Those of one place only: in the classic style there is one.
        """

    @abstractmethod
    def ends(self, lengths: Iterable[int], end: int, before: int | None) -> EventEnds:
        """The end positions of a large group's events.

        Args:
            lengths: of all its events.
            end: the position at which it ends.
            before: where the replica is; None for a client inside the group, which is not overtaken then.
        """

    def frames(self, groups: list[bytes]) -> EventFrames:
        """Packets of whole groups, without positions."""
        if self.checksum:
            return self.packets([self._unplaced(group) for group in groups])
        if self.skip_marked:
            groups = [without_skipped(group) for group in groups]
        step = None
        if self.semi_sync and self.annotate:
            # Without positions all events count by their length, but for format descriptions.
            step = PositionStep(sum(len(g) for g in groups if not is_start_marker(g)))
        return event_frames(
            groups,
            annotate=self.annotate,
            markers=self.registered,
            semi_sync=self.semi_sync,
            step=step,
        )

    def packets(self, payloads: list[bytes]) -> EventFrames:
        """Packets of events, unchanged."""
        return event_frames(payloads, annotate=True, semi_sync=self.semi_sync)

    def rest_of(self, group: PlacedGroup, position: int) -> EventFrames | None:
        """Packets of the events of a group behind a position inside it; None if no event begins there."""
        events = self.events(group.payload)
        lengths = event_lengths(events, checksum=self.checksum)
        ends = event_ends(lengths, position_of(group.end.offset))
        for index, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            if end - length == position:
                rest = sealed(events[index:], ends[index:], checksum=self.checksum)
                return self.packets([rest])
        return None

    def events(self, payload: bytes) -> list[Event]:
        """The events of a group that the replica gets, as it understands them."""
        if not self.registered and is_start_marker(payload):
            return []
        return client_events(
            payload,
            annotate=self.annotate,
            skip_marked=self.skip_marked,
            capability=self.capability,
        )

    def _unplaced(self, group: bytes) -> bytes:
        events = self.events(group)
        return sealed(events, [0] * len(events), checksum=True)


class EngineStyle(FrameStyle):
    """Events without positions."""

    place = EnginePlace
    by_files = False

    def name_before(self, engine: EngineReader) -> str:
        """See `FrameStyle`. There is one file."""
        return STREAM_NAME

    @property
    def is_costly(self) -> bool:
        """See `FrameStyle`."""
        return self.checksum

    def read(self, engine: EngineReader, start: Position) -> PlacedBatch:
        """See `FrameStyle`. The replica moves on at the end of the batch only: no group has a place of its own."""
        batch = engine.read(start)
        groups = [PlacedGroup(group, start) for group in batch.groups]
        return PlacedBatch(start, batch.end, groups, batch.large)

    def framed(self, engine: EngineReader, start: Position) -> FramedBatch:
        """See `FrameStyle`."""
        batch = engine.read(start)
        return FramedBatch(batch.end, self.frames(batch.groups), large=batch.large)

    def some(self, before: Position, groups: list[PlacedGroup]) -> tuple[EventFrames, bool]:
        """See `FrameStyle`."""
        return self.frames([group.payload for group in groups]), False

    def ends(self, lengths: Iterable[int], end: int, before: int | None) -> EventEnds:
        """See `FrameStyle`."""
        return EventEnds()


class ClassicStyle(FrameStyle):
    """Events have positions, of which the whole group is to be known before the first."""

    place = ClassicPlace
    by_files = True

    @property
    def is_costly(self) -> bool:
        """See `FrameStyle`."""
        return True

    def read(self, engine: EngineReader, start: Position) -> PlacedBatch:
        """See `FrameStyle`."""
        return engine.read_placed(start)

    def framed(self, engine: EngineReader, start: Position) -> FramedBatch:
        """See `FrameStyle`."""
        return self.placed_frames(engine.read_placed(start))

    def some(self, before: Position, groups: list[PlacedGroup]) -> tuple[EventFrames, bool]:
        """See `FrameStyle`."""
        framed = self.placed_frames(PlacedBatch(before, groups[-1].end, groups))
        return framed.frames, framed.overtaken

    def placed_frames(self, batch: PlacedBatch) -> FramedBatch:
        """Packets of groups, as many as can be sent in one go."""
        if batch.large is not None:
            return FramedBatch(batch.end, self.packets([]), large=batch.large)
        before = position_of(batch.start.offset)
        parts: list[bytes] = []
        for group in batch.groups:
            events = self.events(group.payload)
            if not events:
                continue
            end = position_of(group.end.offset)
            lengths = event_lengths(events, checksum=self.checksum)
            ends, overtaken = ends_behind(lengths, end, before)
            parts.append(sealed(events, ends, checksum=self.checksum))
            if overtaken:
                is_last = group is batch.groups[-1]
                frames = self.packets(parts)
                return FramedBatch(batch.end if is_last else group.end, frames, overtaken=True)
            before = end
        return FramedBatch(batch.end, self.packets(parts))

    def ends(self, lengths: Iterable[int], end: int, before: int | None) -> EventEnds:
        """See `FrameStyle`."""
        return _PlacedEnds(sum(lengths), end, before)


class FileStyle(FrameStyle):
    """Events as they lie in a traditional file, and as its own server sends them."""

    place = TraditionalPlace
    by_files = True
    keeps_ends = True

    def name_before(self, engine: EngineReader) -> str:
        """See `FrameStyle`."""
        return engine.file_name(self._number_before(engine))

    def position(self, offset: int) -> int:
        """See `FrameStyle`."""
        return offset

    def reached(
        self, engine: EngineReader, cursor: Position, position: SlavePosition
    ) -> list[tuple[int, BinlogState]]:
        """See `FrameStyle`."""
        return files_of(engine).reached(cursor, position)

    @property
    def is_costly(self) -> bool:
        """See `FrameStyle`."""
        return not self._takes_all or not self.checksum

    @property
    def _takes_all(self) -> bool:
        return not self.skip_marked and self.capability >= SlaveCapability.GTID

    def read(self, engine: EngineReader, start: Position) -> PlacedBatch:
        """See `FrameStyle`. What stands between two groups is one of the groups."""
        batch = files_of(engine).read_stored(start)
        groups = []
        begin = 0
        for cut in batch.cuts:
            events = _without_checksums(batch.data[begin:cut], batch.checksum_algorithm)
            end = Position(start.file_no, batch.begin + cut)
            groups.append(PlacedGroup(b"".join(events), end))
            begin = cut
        return PlacedBatch(start, batch.end, groups, batch.large)

    def framed(self, engine: EngineReader, start: Position) -> FramedBatch:
        """See `FrameStyle`."""
        batch = files_of(engine).read_stored(start, with_cuts=False)
        if batch.large is not None:
            return FramedBatch(batch.end, self.packets([]), large=batch.large)
        return FramedBatch(batch.end, self.stored(batch.data, batch.checksum_algorithm))

    def stored(self, data: bytes, checksum_algorithm: int) -> EventFrames:
        """Packets of events as they lie in a file.

        But for a start marker, a batch of its own: it has taken the place of the description in the head, which the
        replica has read, and so it has no position. With one the replica's would go on by the length of the event.
        """
        is_marker = data[TYPE_OFFSET : TYPE_OFFSET + 1] == _DESCRIPTION
        if self._takes_all and bool(checksum_algorithm) == self.checksum and not is_marker:
            return event_frames([data], annotate=self.annotate, semi_sync=self.semi_sync)
        return self._sealed([b"".join(_without_checksums(data, checksum_algorithm))])

    def some(self, before: Position, groups: list[PlacedGroup]) -> tuple[EventFrames, bool]:
        """See `FrameStyle`."""
        return self._sealed([group.payload for group in groups]), False

    def _sealed(self, payloads: list[bytes]) -> EventFrames:
        parts = []
        for payload in payloads:
            events = self.events(payload)
            parts.append(sealed(events, stored_ends(events), checksum=self.checksum))
        return self.packets(parts)

    def ends(self, lengths: Iterable[int], end: int, before: int | None) -> EventEnds:
        """See `FrameStyle`."""
        return EventEnds()


def stored_ends(events: Iterable[Event]) -> list[int]:
    """The end positions that events have."""
    return [EventHeader.parse(bytes(event[:HEADER_SIZE])).end_position for event in events]


def _without_checksums(data: bytes, checksum_algorithm: int) -> Iterator[bytes]:
    for event in split_events(data):
        is_description = event[TYPE_OFFSET] == EventType.FORMAT_DESCRIPTION
        yield event if is_description else strip_checksum(event, checksum_algorithm)


_DESCRIPTION: Final = bytes([EventType.FORMAT_DESCRIPTION])
_STYLES: Final[dict[type[Coordinates], type[FrameStyle]]] = {
    Coordinates: EngineStyle,
    ClassicCoordinates: ClassicStyle,
    FileCoordinates: FileStyle,
}


def style_in(coordinates: Coordinates) -> type[FrameStyle]:
    """The style of stream in which a session with these coordinates is served."""
    return _STYLES[type(coordinates)]


@functools.cache
def shared(
    style: type[FrameStyle],
    *,
    annotate: bool,
    skip_marked: bool,
    checksum: bool,
    capability: int,
    registered: bool,
    semi_sync: bool,
) -> FrameStyle:
    """A style: the same object for the same values, so that replicas share frames."""
    return style(annotate, skip_marked, checksum, capability, registered, semi_sync)
