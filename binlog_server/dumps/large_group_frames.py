"""The packets of a group that is too large for memory, chunk by chunk, in any style.

With positions the group is read twice: whether it fits in front of its end is known only when the lengths of all its
events are; see `binlog_protocol.dump.classic_positions`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.classic_positions import (
    event_lengths,
    position_of,
    sealed,
    sealed_header,
)
from binlog_protocol.dump.weaker_clients import replaced_types, understood
from binlog_protocol.events.checksum import CHECKSUM_SIZE
from binlog_protocol.events.header import HEADER_SIZE, is_marked
from binlog_protocol.groups.event_parts import EventPart, EventRun, event_parts
from binlog_protocol.wire.event_frames import EventFrames, event_frames
from binlog_protocol.wire.long_event import LongEvent
from binlog_storage.engine import LargeGroup, Position

from binlog_server.dumps.frame_style import EventEnds, FrameStyle, stored_ends


@dataclass(frozen=True, slots=True)
class FrameChunk:
    """The packets of one step, perhaps none.

    inside_event: the last event goes on in the next chunk, and nothing may come between.
    position: as a replica of the classic style counts then; 0 in the other one.
    """

    frames: EventFrames
    inside_event: bool
    position: int


class LargeGroupFrames:
    """One large group for one replica. Waits for the disk.

    Args:
        before: in the classic style, what was sent before lies before that place. None for a client that is inside the
            group: it is there because the group is not overtaken.
        start: the position of the event to begin with, for such a client.
    """

    def __init__(
        self,
        group: LargeGroup,
        style: FrameStyle,
        before: Position | None = None,
        start: int | None = None,
    ) -> None:
        self._group = group
        self._style = style
        self._before = before
        self._start = start
        self._whole = replaced_types(style.capability, annotate=style.annotate)
        self.overtaken = False
        """Whether the group is longer than its place. Known from the first chunk on."""

    def begins_at(self, position: int) -> bool:
        """Whether an event of the client begins at this position. Reads the group, twice."""
        at = position_of(self._group.end.offset) - sum(self._lengths())
        for length in self._lengths():
            if at >= position:
                return at == position
            at += length
        return False

    def chunks(self) -> Iterator[FrameChunk]:
        """The chunks, to be taken by one thread at a time. Raises `StorageError`, `ProtocolError`."""
        ends = self._ends()
        long_event: _LongEvent | None = None  # None while one passes that is left out
        for part in self._parts():
            if isinstance(part, EventRun):
                frames, inside = self._run(part.data, ends), False
            else:
                if part.first:
                    long_event = self._long_event(part, ends)
                frames = _NOTHING if long_event is None else long_event.frame(part)
                inside = long_event is not None and not part.last
            yield FrameChunk(frames, inside, ends.position)

    def _parts(self) -> Iterator[EventRun | EventPart]:
        return event_parts(self._group.pieces(), whole=self._whole)

    def _ends(self) -> EventEnds:
        if self._style.keeps_ends:
            ends = EventEnds()
            ends.position = 0 if self._before is None else self._before.offset
            return ends
        before = None if self._before is None else position_of(self._before.offset)
        ends = self._style.ends(self._lengths(), position_of(self._group.end.offset), before)
        self.overtaken = ends.overtaken
        return ends

    def _run(self, run: bytes, ends: EventEnds) -> EventFrames:
        style = self._style
        if not style.is_costly and not style.keeps_ends:
            return style.frames([run])
        events = style.events(run)
        if style.keeps_ends:
            ends.position += len(run)  # at least so far is the replica
            return style.packets([sealed(events, stored_ends(events), checksum=style.checksum)])
        placed = list(
            zip(events, ends.of(event_lengths(events, checksum=style.checksum)), strict=True)
        )
        if self._start is not None:
            placed = [(event, end) for event, end in placed if end > self._start]
        events, end_positions = [event for event, _ in placed], [end for _, end in placed]
        return style.packets([sealed(events, end_positions, checksum=style.checksum)])

    def _long_event(self, part: EventPart, ends: EventEnds) -> _LongEvent | None:
        if self._leaves_out(part):
            return None
        length = self._long_length(part)
        if self._style.keeps_ends:
            ends.position += length
            return _LongEvent(length, stored_ends([part.data])[0], self._style)
        end = ends.next(length)
        if self._start is not None and end <= self._start:
            return None
        return _LongEvent(length, end, self._style)

    def _leaves_out(self, part: EventPart) -> bool:
        """Whether the client does not get the event that begins with this part."""
        style = self._style
        if style.skip_marked and is_marked(part.data):
            return True
        return understood(part.data, style.capability, annotate=style.annotate) is None

    def _long_length(self, part: EventPart) -> int:
        return part.length + CHECKSUM_SIZE if self._style.checksum else part.length

    def _lengths(self) -> Iterator[int]:
        """Lengths of the events that the client gets, as it gets them."""
        style = self._style
        for part in self._parts():
            if isinstance(part, EventRun):
                yield from event_lengths(style.events(part.data), checksum=style.checksum)
            elif part.first and not self._leaves_out(part):
                yield self._long_length(part)


_NOTHING = event_frames([], annotate=True)


class _LongEvent:
    """An event of `length` bytes, sealed and framed while it is read."""

    def __init__(self, length: int, end: int, style: FrameStyle) -> None:
        self._length = length
        self._end = end
        self._checksum = style.checksum
        self._sum = 0
        self._packets = LongEvent(length, semi_sync=style.semi_sync)

    def frame(self, part: EventPart) -> EventFrames:
        data = part.data
        if part.first:
            data = sealed_header(data, self._length, self._end) + data[HEADER_SIZE:]
        if self._checksum:
            self._sum = zlib.crc32(data, self._sum)
            if part.last:
                data += self._sum.to_bytes(CHECKSUM_SIZE, "little")
        return self._packets.frame(data)
