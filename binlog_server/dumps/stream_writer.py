"""What one replica is sent: numbered packets, heartbeats, and the account of where it thinks that it is."""

from __future__ import annotations

import time
from typing import Protocol

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.dump.classic_positions import position_of
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState
from binlog_protocol.wire.event_frames import EventFrames
from binlog_storage.engine import Position

from binlog_server.connections.connections import Connection
from binlog_server.dumps.coordinates import classic_name
from binlog_server.dumps.stream_events import StreamEvents
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks

# What replicas of the engine style call the file they read. There must be a name, with a dot in it: the parallel
# appliers of 10.11.19 and 11.8.6 crash when they compare names without (compare_log_name), and old replicas stop on a
# heartbeat for another file than theirs. It is always the same: a replica whose connection broke inside a group goes on
# with that group only if the name is what it was.
STREAM_NAME = "binlog.000001"


class StreamSink(Protocol):
    """The way of a stream to its socket."""

    def write(self, data: bytes | bytearray) -> None:
        """Take bytes; never waits."""

    async def drain(self) -> None:
        """Wait until the peer has taken enough; raises `ConnectionError` when it does not."""


class StreamWriter:
    """Writes the packets of one dump.

    Args:
        machine: the connection, in state DUMPING.
        heartbeat_s: the pause after which the replica wants a heartbeat; 0 is never.
    """

    def __init__(
        self,
        machine: ServerConnection,
        sink: StreamSink,
        connection: Connection,
        events: StreamEvents,
        heartbeat_s: float,
        *,
        classic: bool,
    ) -> None:
        self._machine = machine
        self._sink = sink
        self._connection = connection
        self._events = events
        self._heartbeat_s = heartbeat_s
        self._classic = classic
        self._acks: ReplicaAcks | None = None
        self._semi_sync: SemiSyncMaster | None = None
        self._last_sent = 0.0
        self.inside_event = False
        """What was sent last ends inside an event: nothing can be told to the replica now."""
        self.cursor = Position(0, 0)
        """Where the next events come from."""
        self.place_inside = 0
        """Classic style: how far the replica has counted inside a large group."""
        # Engine style: as the replica counts. It adds up events, and stops on a heartbeat that lies before its sum.
        self._replica_position = FIRST_EVENT_POSITION

    def follow(self, acks: ReplicaAcks, semi_sync: SemiSyncMaster) -> None:
        """The replica acknowledges: `acks` is told what it gets."""
        self._acks, self._semi_sync = acks, semi_sync

    def frames(self, frames: EventFrames) -> None:
        """Write packets that are shared with other replicas."""
        if frames.size:
            sequence = self._machine.dump_sequence
            self._sink.write(frames.at_sequence(sequence))
            self._replica_position += frames.size
            self._machine.dump_sequence = frames.sequence_after(sequence)
            if self._acks is not None and self._semi_sync is not None:
                self._acks.sent_frames(frames.step, ack_wanted=frames.ack_wanted)
                self._semi_sync.requests += frames.ack_wanted
            self._connection.state = "Sending binlog event to slave"
            self._last_sent = time.monotonic()

    def event(self, event: bytes) -> None:
        """Write one event for this replica alone."""
        self._sink.write(self._machine.dump_event(event))
        if self._acks is not None:
            self._acks.sent_event(event)
        self._replica_position += len(event)
        self._last_sent = time.monotonic()

    def gtid_list(self, state: BinlogState, flags: int, at: Position) -> None:
        """Write a GTID_LIST: the binlog state at a place."""
        end_position = position_of(at.offset) if self._classic else 0
        self.event(self._events.gtid_list(state, flags, end_position))

    def heartbeat_due(self) -> float | None:
        """When the next heartbeat is due, by the monotonic clock; None for never."""
        return self._last_sent + self._heartbeat_s if self._heartbeat_s else None

    def heartbeat_if_due(self) -> None:
        """Send one, if nothing was sent for so long and nothing forbids it."""
        due = self.heartbeat_due()
        if due is not None and time.monotonic() >= due and not self.inside_event:
            name, position = STREAM_NAME, self._replica_position
            if self._classic:
                name = classic_name(self.cursor.file_no)
                position = self.place_inside or position_of(self.cursor.offset)
            self.event(self._events.heartbeat(name, position))
