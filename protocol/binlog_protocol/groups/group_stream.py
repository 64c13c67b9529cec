"""One stream of groups, for all who read one: events come in, whole groups and what stands between them come out.

The stream takes from a source, which has what was received of a dump, or was read of a file. `next` gives, in order:

====================  ========================================================================================
item                  meaning
====================  ========================================================================================
`GroupRun`            groups, many at once; only if asked for, and only as `group_runs` says
`EventGroup`          one group, whole; without the parts that were given before
`GroupPart`           events of a group that has begun and is large: they are not in memory any more
`StartMarker`         the server has started here; of a group that had begun, nothing more comes: it never was
`Incident`            the server has lost changes here
`StreamEvent`         an event that makes nothing whole: the beginning of a group, or of the connection or the file
`StreamEnded`         the server has ended the stream
None                  the source has nothing more at the moment
====================  ========================================================================================

One call takes no more than one run, or one part and one event, so that a caller may let others have their turns.
Runs and parts are taken by C where it was built, straight from where the bytes were received.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import END_POSITION_OFFSET, TYPE_OFFSET
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    Incident,
    StartMarker,
)
from binlog_protocol.groups.group_runs import GroupRun, TakenPart
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import GROUP_BYTES_MAX
from binlog_protocol.wire.semi_sync import PositionStep, ReplicaPlace

PIECE_BYTES: Final = 1 << 20
"""Bytes of a large group that are held, and given out at once, unless the reader says otherwise."""
_GTID: Final = int(EventType.GTID)
_U32: Final = struct.Struct("<I")


class EventReceived(NamedTuple):
    """One replication event as sent (with its checksum, if any), without the status byte. A large one may be a
    bytearray, which is the receiver's own.

    `ack_wanted`: with semi-sync, the upstream wants to know that it is stored.
    """

    event: bytes
    ack_wanted: bool = False


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """EOF in the stream: the upstream shuts down, or the dump was not to wait."""


class EventSource(Protocol):
    """A source of events: `ClientConnection` once it has sent its dump command, or a binlog file."""

    def take_run(self, checksum_algorithm: int) -> GroupRun | None:
        """The groups at the front, if `group_runs` can take them; not in the middle of a group."""

    def take_part(self, checksum_algorithm: int) -> TakenPart | None:
        """The events at the front, if `group_runs` can take them; in the middle of a group that is not standalone."""

    def take_event(self) -> EventReceived | StreamEnded | None:
        """The next event, whatever it is. None: there is nothing more at the moment."""


class GroupPart(NamedTuple):
    """Events of a group that has begun, behind its GTID event, in normal form. What is left comes as parts, too, and
    at last as an `EventGroup`, whose payload begins with the GTID event."""

    gtid: Gtid
    events: list[bytes | bytearray]


class StreamEvent(NamedTuple):
    """One event as sent, with a checksum if it says so; a large one of a group without, in normal form."""

    sent: bytes
    checksum_algorithm: int

    @property
    def type(self) -> int:
        """See `EventType`."""
        return self.sent[TYPE_OFFSET]

    @property
    def event(self) -> bytes:
        """Without its checksum, which was verified."""
        return strip_checksum(self.sent, self.checksum_algorithm)


class SentSpan(NamedTuple):
    """The place of a group in the stream, by what its server says and by what came.

    first_end: position of the end of its GTID event.
    behind_first: bytes that came behind the GTID event.
    end: position of the end of its last event.
    """

    first_end: int
    behind_first: int
    end: int


Item = GroupRun | EventGroup | GroupPart | StartMarker | Incident | StreamEvent | StreamEnded


class GroupStream:
    """The groups of one connection or file, from its first event on. One thread."""

    def __init__(
        self,
        source: EventSource,
        checksum_algorithm: int,
        *,
        group_bytes_max: int = GROUP_BYTES_MAX,
        large_bytes: int = PIECE_BYTES,
        piece_bytes: int = PIECE_BYTES,
        place: ReplicaPlace | None = None,
    ) -> None:
        """`checksum_algorithm`: of the events in front of the first format description.

        Args:
            group_bytes_max: a larger group is an error.
            large_bytes: a group that has so many bytes and is not whole comes in parts.
            piece_bytes: each part after the first has so many bytes at least.
            place: is moved by what was taken, as a replica counts.
        """
        self._source = source
        self._assembler = EventGroupAssembler(checksum_algorithm, group_bytes_max=group_bytes_max)
        self._large_bytes = large_bytes
        self._piece_bytes = piece_bytes
        self._held_max = large_bytes
        self._place = place
        self._first_end = self._behind_first = self._end = 0
        self.received = False
        """An event has come."""
        self.ack_wanted = False
        """Whether an event that has come is to be acknowledged (semi-sync). The caller who does that sets it back."""

    @property
    def checksum_algorithm(self) -> int:
        """The checksum algorithm of the next event."""
        return self._assembler.checksum_algorithm

    @property
    def unfinished(self) -> Gtid | None:
        """The group that has begun and not ended."""
        return self._assembler.unfinished

    @property
    def span(self) -> SentSpan:
        """The span of the `EventGroup` that came last."""
        return SentSpan(self._first_end, self._behind_first, self._end)

    def next(self, *, runs: bool = True) -> Item | None:
        """The next item; see the head of this file. `runs`: many groups at once, where that is possible.

        Raises what the source raises, and `EventChecksumError`, `GroupTooLarge` or another `ProtocolError`: then the
        stream is to be given up.
        """
        assembler = self._assembler
        if assembler.has_ended:
            return assembler.take_ended()
        if assembler.unfinished is None:
            if runs and (run := self.next_run()) is not None:
                return run
        elif assembler.takes_parts:
            part = self._source.take_part(assembler.checksum_algorithm)
            if part is not None:
                assembler.add_part(part.events, part.event_count)
                self._behind_first += part.step.advance
                self._count(part.step, ack_wanted=part.ack_wanted)
                if assembler.buffered >= self._held_max:
                    return self._part()
        found = self._source.take_event()
        return self._event(*found) if isinstance(found, EventReceived) else found

    def next_run(self) -> GroupRun | None:
        """The groups that lie whole at the front, where `next` would give them as a run. None: `next` knows more."""
        assembler = self._assembler
        if assembler.unfinished is not None or assembler.has_ended:
            return None
        run = self._source.take_run(assembler.checksum_algorithm)
        if run is not None:
            self.received = True
            self._count(run.step, ack_wanted=run.ack_wanted)
        return run

    def _event(self, sent: bytes, ack_wanted: bool) -> Item:
        assembler = self._assembler
        self.received = True
        algorithm = assembler.checksum_algorithm
        size = len(sent)
        end = sent[END_POSITION_OFFSET : END_POSITION_OFFSET + _U32.size]
        place = self._place
        if place is not None and isinstance(sent, bytearray):  # the assembler changes it
            place.feed(sent, algorithm)
            place = None
        whole = assembler.feed(sent, self._held_max)
        if place is not None:
            place.feed(sent, algorithm)
        self.ack_wanted |= ack_wanted
        (self._end,) = _U32.unpack(end)
        if sent[TYPE_OFFSET] == _GTID:
            self._held_max = self._large_bytes
            self._first_end, self._behind_first = self._end, 0
        else:
            self._behind_first += size
        if whole is not None:
            return whole
        if assembler.buffered >= self._held_max:
            return self._part()
        return StreamEvent(sent, 0 if len(sent) != size else algorithm)

    def _count(self, step: PositionStep, *, ack_wanted: bool) -> None:
        if self._place is not None:
            self._place.move(step)
        self.ack_wanted |= ack_wanted

    def _part(self) -> GroupPart:
        """A part of a large group, in its middle: all events held, its GTID event excepted."""
        self._held_max = self._piece_bytes
        gtid = self._assembler.unfinished
        assert gtid is not None
        return GroupPart(gtid, self._assembler.spill())
