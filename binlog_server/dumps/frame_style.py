"""What a replica's packets look like: from groups, as the store has them, to frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from binlog_protocol.dump.classic_positions import (
    event_ends,
    event_lengths,
    overtaken_ends,
    position_of,
    sealed,
)
from binlog_protocol.dump.weaker_clients import Event, SlaveCapability, client_events
from binlog_protocol.groups.stored_group import is_start_marker, without_skipped
from binlog_protocol.wire.event_frames import EventFrames, event_frames
from binlog_protocol.wire.semi_sync import PositionStep
from binlog_storage.engine import LargeGroup, PlacedBatch, PlacedGroup, Position


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


class FrameStyle(NamedTuple):
    """What differs between replicas in the packets of the same groups. A tuple: part of a key, and quick to hash.

    annotate: the replica wants ANNOTATE_ROWS events.
    skip_marked: the replica wants no events that were logged with @@skip_replication=1.
    classic: events have positions.
    checksum: events have checksums.
    capability: what the replica understands; less than GTID only with `classic`.
    registered: it is a replica. Others get one format description a file, the first: they have no temporary tables
        that end when the upstream starts, and `mariadb-binlog --raw` begins its file anew with each.
    semi_sync: the packets are as `binlog_protocol.wire.semi_sync` says; the last of each batch is to be acknowledged.
    """

    annotate: bool
    skip_marked: bool
    classic: bool = False
    checksum: bool = False
    capability: int = int(SlaveCapability.GTID)
    registered: bool = True
    semi_sync: bool = False

    @property
    def is_costly(self) -> bool:
        """Whether each event is made anew, in Python."""
        return self.classic or self.checksum

    def frames(self, groups: list[bytes]) -> EventFrames:
        """Packets of whole groups, without positions."""
        if not self.registered:
            groups = [group for group in groups if not is_start_marker(group)]
        if self.checksum:
            return self.packets([self._unplaced(group) for group in groups])
        if self.skip_marked:
            groups = [without_skipped(group) for group in groups]
        step = None
        if self.semi_sync and self.annotate:
            # Without positions all events count by their length, but for format descriptions.
            step = PositionStep(sum(len(g) for g in groups if not is_start_marker(g)))
        return event_frames(groups, annotate=self.annotate, semi_sync=self.semi_sync, step=step)

    def packets(self, payloads: list[bytes]) -> EventFrames:
        """Packets of events, unchanged."""
        return event_frames(payloads, annotate=True, semi_sync=self.semi_sync)

    def placed_frames(self, batch: PlacedBatch) -> FramedBatch:
        """Packets of groups with their positions, as many as can be sent in one go."""
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
            overtaken = end - sum(lengths) < before
            ends = (overtaken_ends if overtaken else event_ends)(lengths, end)
            parts.append(sealed(events, ends, checksum=self.checksum))
            if overtaken:
                is_last = group is batch.groups[-1]
                frames = self.packets(parts)
                return FramedBatch(batch.end if is_last else group.end, frames, overtaken=True)
            before = end
        return FramedBatch(batch.end, self.packets(parts))

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
        """Those of a group that the replica gets, as it understands them."""
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
