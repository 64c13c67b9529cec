"""One dump: from a replica's position to the tail of the store, for as long as the replica stays.

The stream is that of a MariaDB 12.3 master with an engine binlog: one artificial format description, then events
without checksums and positions. Unlike there, a ROTATE comes first, to a file that never ends. Everything that can be
refused is refused before the first event, because a replica that has got an event reconnects at once when the
connection then fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from binlog_server.connections import Connection
from binlog_server.frame_cache import FrameCache, FrameStyle
from binlog_server.syncer import Syncer
from binlog_server.tail import Tail
from protocol.connection.commands import BinlogDump, BinlogDumpGtid
from protocol.connection.server import ServerConnection
from protocol.dump_position import DumpFilter, Verdict, check_position
from protocol.errors import EngineBinlogNeedsGtid, MasterFatalError, ProtocolError, ServerError
from protocol.events.format_description import FormatDescription
from protocol.events.gtid_list import GtidList, GtidListFlags
from protocol.events.heartbeat import HeartbeatEvent
from protocol.events.rotate import FIRST_EVENT_POSITION, RotateEvent
from protocol.gtid import BinlogState, SlavePosition
from protocol.stored_group import group_gtid
from protocol.wire.event_frames import EventFrames
from storage.engine import BinlogEngine, Hold, Position, StartPoint
from storage.errors import PositionPurged, StorageError

log = logging.getLogger(__name__)

GTID_CAPABILITY = 4  # @mariadb_slave_capability of a replica that understands GTID events
SEQUENCES = 256  # the sequence number of packets is one byte
_NS = 1_000_000_000
_HEARTBEAT_NS_MIN = 1_000_000
_HEARTBEAT_NS_MAX = 4_294_967 * _NS  # as CHANGE MASTER allows

# What replicas call the file they read. There must be a name, with a dot in it: the parallel appliers of 10.11.19 and
# 11.8.6 crash when they compare names without (compare_log_name), and old replicas stop on a heartbeat for another
# file than theirs. It is always the same: a replica whose connection broke inside a group goes on with that group only
# if the name is what it was.
STREAM_NAME = "binlog.000001"

UserVariables = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What the replica asked for, by its session variables and the dump command."""

    server_id: int
    position: SlavePosition
    until: SlavePosition | None
    until_before_gtids: bool
    strict_mode: bool
    ignore_duplicates: bool
    heartbeat_s: float
    style: FrameStyle
    non_block: bool

    @classmethod
    def of(cls, command: BinlogDump, variables: UserVariables, *, skip_marked: bool) -> DumpRequest:
        """Raises `ServerError`: 4246 without a GTID position, 1941 or 1943 for a malformed one, 1236."""
        if isinstance(command, BinlogDumpGtid):
            position = command.gtid_position
        else:
            text = variables.get("slave_connect_state")
            if text is None:
                raise EngineBinlogNeedsGtid
            position = SlavePosition.parse(str(text))
            if _integer(variables, "mariadb_slave_capability") < GTID_CAPABILITY:
                raise MasterFatalError(
                    "This server sends GTID events, which the slave does not understand; "
                    "it must say SET @mariadb_slave_capability=4"
                )
        until = variables.get("slave_until_gtid")
        return cls(
            server_id=command.server_id,
            position=position,
            until=None if until is None else SlavePosition.parse(str(until)),
            until_before_gtids=bool(_integer(variables, "slave_gtid_until_before_gtids")),
            strict_mode=bool(_integer(variables, "slave_gtid_strict_mode")),
            ignore_duplicates=bool(_integer(variables, "slave_gtid_ignore_duplicates")),
            heartbeat_s=_heartbeat_s(_integer(variables, "master_heartbeat_period")),
            style=FrameStyle(annotate=command.annotate, skip_marked=skip_marked),
            non_block=command.non_block,
        )


def _integer(variables: UserVariables, name: str) -> int:
    """A user variable as a number; 0 when it is unset or says nothing of the kind."""
    try:
        return int(variables.get(name) or 0)
    except ValueError:
        return 0


def _heartbeat_s(period_ns: int) -> float:
    """In seconds; 0 is none. Not below what CHANGE MASTER allows: a nanosecond would leave no time for others."""
    return min(max(_HEARTBEAT_NS_MIN, period_ns), _HEARTBEAT_NS_MAX) / _NS if period_ns > 0 else 0.0


class Sink(Protocol):
    """Where the stream goes."""

    def write(self, data: bytes | bytearray) -> None:
        """Take bytes; never waits."""

    async def drain(self) -> None:
        """Wait until the peer has taken enough; raises `ConnectionError` when it does not."""


class Dump:
    """Runs one dump. `run` ends when the stream does; cancelling it ends it at once.

    Args:
        machine: the connection, in state DUMPING.
        format_version: server version in the format description.
        server_id: ours, for artificial events.
    """

    def __init__(
        self,
        request: DumpRequest,
        machine: ServerConnection,
        sink: Sink,
        connection: Connection,
        *,
        engine: BinlogEngine,
        frames: FrameCache,
        tail: Tail,
        syncer: Syncer,
        format_version: str,
        server_id: int,
    ) -> None:
        self._request = request
        self._machine = machine
        self._sink = sink
        self._connection = connection
        self._engine = engine
        self._frames = frames
        self._tail = tail
        self._syncer = syncer
        self._format_version = format_version
        self._server_id = server_id
        self._last_sent = 0.0
        self._hold: Hold | None = None
        # As the replica counts, or beyond: it adds up events, and stops on a heartbeat that lies before its sum.
        self._replica_position = FIRST_EVENT_POSITION

    async def run(self) -> None:
        """Stream. Errors that the replica should know of are sent to it; the machine is closed afterwards."""
        try:
            await self._stream()
        except ServerError as error:
            self._refuse(error)
        except (StorageError, ProtocolError) as error:
            # 1236 stops the replica: it would meet the same error again and again.
            self._refuse(MasterFatalError(str(error)))
        finally:
            if self._hold is not None:
                self._hold.release()

    async def _stream(self) -> None:
        request = self._request
        # Before the search: what it finds must not be purged before it is read.
        hold = self._hold = self._engine.hold(f"server_id {request.server_id}", dump=True)
        start = await self._find_start()
        groups_filter = DumpFilter(
            request.position,
            state_at_start=start.state,
            strict_mode=request.strict_mode,
            ignore_duplicates=request.ignore_duplicates,
            until=request.until,
            until_before_gtids=request.until_before_gtids,
            binlog_state=self._engine.binlog_state(),
        )
        self._send(RotateEvent.fake(STREAM_NAME, self._server_id).build())
        description = FormatDescription.artificial(self._format_version, self._server_id)
        self._send(description.build())
        cursor = start.position
        while not groups_filter.until_reached:
            hold.move(cursor.file_no)
            self._connection.sent = cursor
            moved = self._tail.moved
            if cursor >= self._engine.durable_end:
                if request.non_block:
                    break
                await self._sink.drain()
                self._connection.state = (
                    "Master has sent all binlog to slave; waiting for more updates"
                )
                await self._wait(moved)
            elif groups_filter.transparent:
                batch = await self._frames.frames(cursor, request.style)
                self._send_frames(batch.frames)
                cursor = batch.end
                await self._sink.drain()
            else:
                cursor = await self._send_filtered(cursor, groups_filter)
        if groups_filter.until_reached:
            self._send_list(groups_filter.state, GtidListFlags.UNTIL_REACHED)
        self._sink.write(self._machine.dump_end_eof())

    async def _find_start(self) -> StartPoint:
        request = self._request
        check_position(
            self._engine.binlog_state(),
            request.position,
            ignore_duplicates=request.ignore_duplicates,
            until=request.until,
        )
        try:
            return await asyncio.to_thread(self._engine.find_start, request.position)
        except PositionPurged:
            raise MasterFatalError.purged_position() from None

    async def _send_filtered(self, cursor: Position, groups_filter: DumpFilter) -> Position:
        """One batch, group by group; returns where the next begins."""
        batch = await self._frames.groups(cursor)
        for group in batch.groups:
            gtid = group_gtid(group)
            if gtid is None:
                wanted = groups_filter.send_marker()
            else:
                wanted = groups_filter.decide(gtid) is Verdict.SEND
            if wanted:
                self._send_frames(self._request.style.frames([group]))
            state = groups_filter.take_gtid_list()
            if state is not None:
                self._send_list(state, 0)
            if groups_filter.until_reached:
                break
        self._heartbeat_if_due()  # skipping through history may take longer than the replica waits
        await self._sink.drain()
        return batch.end

    async def _wait(self, moved: asyncio.Event) -> None:
        """Until the tail moves, with heartbeats meanwhile. What is or will be appended is synced for us at once."""
        if self._engine.written_end > self._engine.durable_end:
            self._syncer.request()
        self._syncer.readers_waiting += 1
        try:
            await self._wait_for(moved)
        finally:
            self._syncer.readers_waiting -= 1

    async def _wait_for(self, moved: asyncio.Event) -> None:
        while not moved.is_set():
            due = self._heartbeat_due()
            try:
                async with asyncio.timeout(None if due is None else max(0, due - time.monotonic())):
                    await moved.wait()
            except TimeoutError:
                self._heartbeat_if_due()
                await self._sink.drain()

    def _heartbeat_due(self) -> float | None:
        period = self._request.heartbeat_s
        return self._last_sent + period if period else None

    def _heartbeat_if_due(self) -> None:
        due = self._heartbeat_due()
        if due is not None and time.monotonic() >= due:
            heartbeat = HeartbeatEvent(STREAM_NAME, self._replica_position, self._server_id)
            self._send(heartbeat.build())

    def _send_frames(self, frames: EventFrames) -> None:
        if frames.packets:
            sequence = self._machine.dump_sequence
            self._sink.write(frames.at_sequence(sequence))
            self._replica_position += frames.size
            self._machine.dump_sequence = (sequence + frames.packets) % SEQUENCES
            self._connection.state = "Sending binlog event to slave"
            self._last_sent = time.monotonic()

    def _send_list(self, state: BinlogState, flags: int) -> None:
        self._send(GtidList.fake(state.entries(), self._server_id, flags=flags).build())

    def _send(self, event: bytes) -> None:
        self._sink.write(self._machine.dump_event(event))
        self._replica_position += len(event)
        self._last_sent = time.monotonic()

    def _refuse(self, error: ServerError) -> None:
        log.warning(
            "dump refused: connection %d from %s, server_id %d, position '%s': %s",
            self._connection.id,
            self._connection.address,
            self._request.server_id,
            self._request.position,
            error,
        )
        if not self._machine.is_closed:
            self._sink.write(self._machine.dump_error(error))
