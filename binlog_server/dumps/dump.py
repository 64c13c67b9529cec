"""One dump: from a replica's position to the tail of the store, for as long as the replica stays.

There are two styles. *Engine* is that of a MariaDB 12.3 master with an engine binlog: one artificial format
description, then events without positions. Unlike there, a ROTATE comes first, to a file that never ends. *Classic* is
that of a traditional binlog, by `binlog_protocol.dump.classic_positions`: each file of the store is one for the
replica, begun by ROTATE, format description and GTID_LIST.

Everything that can be refused is refused before the first event, because a replica that has got an event reconnects at
once when the connection then fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator
from typing import Final, TypeVar

from binlog_protocol.dump.classic_positions import position_of
from binlog_protocol.dump.dump_position import DumpFilter, Verdict
from binlog_protocol.errors import CannotOpenFile, MasterFatalError, ProtocolError, ServerError
from binlog_protocol.events.gtid_list import GtidListFlags
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.engine import EngineReader, Hold, LargeGroup, PlacedBatch, Position
from binlog_storage.errors import BinlogBegunAnew, StorageError, TooManyOpenFiles
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE

from binlog_server.commits.syncer import Syncer
from binlog_server.dumps.coordinates import classic_name
from binlog_server.dumps.dump_request import DumpRequest
from binlog_server.dumps.dump_start import DumpStart, start_of
from binlog_server.dumps.frame_cache import FrameCache, take_error
from binlog_server.dumps.large_group_frames import FrameChunk, LargeGroupFrames
from binlog_server.dumps.replica_stream import ReplicaStream
from binlog_server.dumps.stream_events import StreamEvents
from binlog_server.dumps.tail import Tail
from binlog_server.loop.shielded import shielded
from binlog_server.semi_sync.master import NOWHERE, SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks

log = logging.getLogger(__name__)

# What replicas of the engine style call the file they read. There must be a name, with a dot in it: the parallel
# appliers of 10.11.19 and 11.8.6 crash when they compare names without (compare_log_name), and old replicas stop on a
# heartbeat for another file than theirs. It is always the same: a replica whose connection broke inside a group goes on
# with that group only if the name is what it was.
STREAM_NAME: Final = "binlog.000001"
_PACKETS_AT_ONCE: Final = 64  # of acknowledgements: half a millisecond

T = TypeVar("T")


class Dump:
    """Runs one dump. `run` ends when the stream does; cancelling it ends it at once.

    Args:
        format_version: server version in the format description.
        server_id: ours, for artificial events.
    """

    def __init__(
        self,
        request: DumpRequest,
        stream: ReplicaStream,
        *,
        engine: EngineReader,
        frames: FrameCache,
        tail: Tail,
        syncer: Syncer,
        semi_sync: SemiSyncMaster,
        format_version: str,
        server_id: int,
    ) -> None:
        self._request = request
        self._out = stream
        self._connection = stream.connection
        self._cursor = Position(0, 0)  # where the next events come from
        self._place_inside = (
            0  # classic style: how far the replica has counted inside a large group
        )
        self._engine = engine
        self._frames = frames
        self._tail = tail
        self._syncer = syncer
        self._events = StreamEvents(
            format_version,
            server_id,
            checksum=request.style.checksum,
            capability=request.style.capability,
        )
        self._classic = request.style.classic
        self._semi_sync = semi_sync
        self._acks: ReplicaAcks | None = None  # with semi-sync
        self._hold: Hold | None = None
        self.refused = False
        """It has ended with an error."""
        self.until: SlavePosition | None = None
        """Where it has ended by itself."""

    async def run(self) -> None:
        """Stream. Errors that the replica should know of are sent to it; the machine is closed afterwards."""
        try:
            await self._stream()
        except ServerError as error:
            self._refuse(error)
        except TooManyOpenFiles as error:
            self._refuse(CannotOpenFile(str(error)))
        except (StorageError, ProtocolError) as error:
            # 1236 stops the replica: it would meet the same error again and again.
            self._refuse(MasterFatalError(self._with_place(error)))
        finally:
            if self._hold is not None:
                self._hold.release()
            if self._acks is not None:
                self._semi_sync.remove(self._acks)

    def _with_place(self, error: StorageError | ProtocolError) -> str:
        """Groups that are no events say what is wrong with them, but not where they lie."""
        file_no, offset = self._cursor
        if isinstance(error, StorageError) or not offset:
            return str(error)
        return f"{error}, in a group of {file_name(file_no)} at offset {offset} or behind it"

    async def _stream(self) -> None:
        request = self._request
        # Before the search: what it finds must not be purged before it is read.
        hold = self._hold = await self._take_hold()
        start = await asyncio.to_thread(start_of, request, self._engine)
        groups_filter = DumpFilter(
            request.position,
            state_at_start=start.state,
            strict_mode=request.strict_mode,
            ignore_duplicates=request.ignore_duplicates,
            until=request.until,
            until_before_gtids=request.until_before_gtids,
            binlog_state=self._engine.binlog_state(),
        )
        if request.style.semi_sync:
            self._start_semi_sync(start)
        await self._open(start)
        while not groups_filter.until_reached:
            hold.move(self._cursor.file_no)
            self._connection.sent = self._cursor
            moved = self._tail.moved
            if self._cursor >= self._engine.durable_end:
                if request.non_block:
                    break
                await self._out.drain()
                self._connection.state = (
                    "Master has sent all binlog to slave; waiting for more updates"
                )
                await self._wait(moved)
            elif groups_filter.transparent:
                batch = await self._frames.frames(self._cursor, request.style, self._read)
                overtaken = batch.overtaken
                if batch.large is not None:
                    overtaken = await self._send_large(batch.large)
                else:
                    self._out.frames(batch.frames)
                await self._go_to(batch.end, overtaken=overtaken)
                await self._out.drain()
            else:
                await self._send_filtered(groups_filter)
        if groups_filter.until_reached:
            self.until = groups_filter.state.position()
            self._gtid_list(groups_filter.state, GtidListFlags.UNTIL_REACHED, self._cursor)
        self._out.end()

    async def _take_hold(self) -> Hold:
        """In a thread, which looks at files; but RESET MASTER, while it deletes them, is waited for in none: there may
        be many of us.
        """
        name = f"server_id {self._request.server_id}"
        while True:
            moved = self._tail.moved
            taking = asyncio.ensure_future(
                asyncio.to_thread(self._engine.hold, name, dump=True, wait=False)
            )
            try:
                return await shielded(taking)
            except asyncio.CancelledError:
                taking.add_done_callback(_release)  # nobody else knows of it
                raise
            except BinlogBegunAnew:
                await moved.wait()

    # --- semi-sync ---

    def _start_semi_sync(self, start: DumpStart) -> None:
        self._out.machine.start_semi_sync()
        # Who is inside a group does not have all that lies before the next one.
        is_inside = start.rest is not None or start.large_rest is not None
        has_before = NOWHERE if is_inside else start.cursor
        checksum = self._request.style.checksum
        self._acks = ReplicaAcks(has_before, checksum=checksum, moved=self._has_more)
        self._out.follow(self._acks, self._semi_sync)
        self._connection.acknowledged = has_before
        if (
            self._request.until is None
        ):  # who ends somewhere does not get what is committed behind it
            self._semi_sync.add(self._acks)

    def take_acks(self) -> bool:
        """The replica has said something. True: there may be more of it. Raises `ProtocolError`."""
        acks, more = self._out.machine.take_acks(_PACKETS_AT_ONCE)
        if self._acks is not None:
            self._semi_sync.acks += len(acks)
            for ack in acks:
                self._acks.received(ack)
        return more

    def _has_more(self) -> None:
        assert self._acks is not None
        self._connection.acknowledged = self._acks.acknowledged
        self._semi_sync.moved()

    # --- where the replica is ---

    async def _open(self, start: DumpStart) -> None:
        """Send the events that begin a stream."""
        self._cursor = start.cursor
        if not self._classic:
            self._out.event(self._events.rotate(STREAM_NAME))
            self._out.event(self._events.engine_description())
            return
        if start.position == FIRST_EVENT_POSITION:
            await self._begin_file(start.cursor)
            return
        self._tell_place(start.file_no, start.position)
        if self._request.file_position is None:
            self._gtid_list(start.state, 0, start.cursor)
        elif start.rest is not None:
            self._out.frames(start.rest)
        elif start.large_rest is not None:
            await self._send_chunks(start.large_rest)
        self._sent_all_before(start.cursor)
        if start.cursor.file_no != start.file_no:
            await self._begin_file(start.cursor)

    async def _go_to(self, end: Position, *, overtaken: bool) -> None:
        """Move on to `end`, behind all groups that were sent."""
        before, self._cursor = self._cursor, end
        self._sent_all_before(end)
        if not self._classic:
            return
        if end.file_no != before.file_no:
            await self._begin_file(end)
        elif overtaken and self._request.style.registered:
            # Others do not count; and they get one format description a file.
            self._tell_place(end.file_no, position_of(end.offset))

    def _sent_all_before(self, end: Position) -> None:
        if self._acks is not None:
            self._acks.sent_all_before(end)

    async def _begin_file(self, cursor: Position) -> None:
        """The file of `cursor` from its beginning; nothing of it lies before `cursor`."""
        beginning = Position(cursor.file_no, PAGE_SIZE)
        state = await asyncio.to_thread(self._engine.state_at, beginning)
        self._out.event(self._events.rotate(classic_name(cursor.file_no)))
        self._out.event(self._events.file_description(at_beginning=True))
        gtid_list = self._events.file_gtid_list(state, position_of(cursor.offset))
        if gtid_list:
            self._out.event(gtid_list)

    def _tell_place(self, file_no: int, position: int) -> None:
        """The replica is there from now on, whatever it has counted. Never a ROTATE without a description behind."""
        self._out.event(self._events.rotate(classic_name(file_no), position))
        self._out.event(self._events.file_description(at_beginning=False))

    def _gtid_list(self, state: BinlogState, flags: int, at: Position) -> None:
        """Send a GTID_LIST: the binlog state at a place."""
        end_position = position_of(at.offset) if self._classic else 0
        self._out.event(self._events.gtid_list(state, flags, end_position))

    def _heartbeat_if_due(self) -> None:
        if self._out.lacks_heartbeat:
            # Engine style: the replica adds up events, and stops on a heartbeat that lies before its sum.
            name, position = STREAM_NAME, FIRST_EVENT_POSITION + self._out.event_bytes
            if self._classic:
                name = classic_name(self._cursor.file_no)
                position = self._place_inside or position_of(self._cursor.offset)
            self._out.event(self._events.heartbeat(name, position))

    # --- groups that are not all sent ---

    async def _send_filtered(self, groups_filter: DumpFilter) -> None:
        """Send one batch group by group, leaving groups out."""
        if self._classic:
            await self._filter_placed(groups_filter)
        else:
            batch = await self._read(_started(self._frames.groups(self._cursor)))
            if batch.large is not None:
                if _is_wanted(groups_filter, batch.large.head):
                    await self._send_large(batch.large)
                self._list_if_due(groups_filter, batch.end)
            for group in batch.groups:
                if _is_wanted(groups_filter, group):
                    self._out.frames(self._request.style.frames([group]))
                self._list_if_due(groups_filter, batch.end)
                if groups_filter.until_reached:
                    break
            else:
                await self._go_to(batch.end, overtaken=False)
        self._heartbeat_if_due()  # skipping through history may take longer than the replica waits
        await self._out.drain()

    async def _filter_placed(self, groups_filter: DumpFilter) -> None:
        batch = await self._read(_started(self._frames.placed(self._cursor)))
        if batch.large is not None:
            overtaken = False
            if _is_wanted(groups_filter, batch.large.head):
                overtaken = await self._send_large(batch.large)
            await self._go_to(batch.end, overtaken=overtaken)
            self._list_if_due(groups_filter, batch.end)
            return
        for group in batch.groups:
            if _is_wanted(groups_filter, group.payload):
                one = PlacedBatch(self._cursor, group.end, [group])
                framed = self._request.style.placed_frames(one)
                self._out.frames(framed.frames)
                await self._go_to(group.end, overtaken=framed.overtaken)
            else:
                self._cursor = group.end
                self._sent_all_before(group.end)
            self._list_if_due(groups_filter, group.end)
            if groups_filter.until_reached:
                return
        await self._go_to(batch.end, overtaken=False)

    def _list_if_due(self, groups_filter: DumpFilter, end: Position) -> None:
        state = groups_filter.take_gtid_list()
        if state is not None:
            self._gtid_list(state, 0, end)

    # --- groups too large for memory ---

    async def _send_large(self, group: LargeGroup) -> bool:
        """All of it; returns whether it is overtaken."""
        frames = LargeGroupFrames(group, self._request.style, self._cursor)
        await self._send_chunks(frames)
        return frames.overtaken

    async def _send_chunks(self, frames: LargeGroupFrames) -> None:
        """Each chunk is read in a thread while the one before it goes to the socket."""
        chunks = frames.chunks()
        reading = _next_of(chunks)
        try:
            while (chunk := await self._read(reading)) is not None:
                reading = _next_of(chunks)
                self._out.frames(chunk.frames)
                self._out.inside_event = chunk.inside_event
                self._place_inside = chunk.position
                self._heartbeat_if_due()
                await self._out.drain()
        finally:
            self._place_inside = 0
            reading.cancel()

    async def _read(self, reading: asyncio.Task[T]) -> T:
        """What a thread reads, with heartbeats meanwhile; it may be GiBs until the next group is there."""
        while not reading.done():
            due = None if self._out.inside_event else self._out.heartbeat_due()
            wait_s = None if due is None else max(0, due - time.monotonic())
            await asyncio.wait([reading], timeout=wait_s)
            self._heartbeat_if_due()
            await self._out.drain()
        return reading.result()

    # --- waiting ---

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
            due = self._out.heartbeat_due()
            try:
                async with asyncio.timeout(None if due is None else max(0, due - time.monotonic())):
                    await moved.wait()
            except TimeoutError:
                self._heartbeat_if_due()
                await self._out.drain()

    def _refuse(self, error: ServerError) -> None:
        self.refused = True
        place, facts = self._request.place_for_log
        log.warning(
            "dump refused: connection %(connection)d from %(peer)s, server_id %(server_id)d, "
            f"{place}: %(reason)s",
            {
                "connection": self._connection.id,
                "peer": self._connection.address,
                "server_id": self._request.server_id,
                "reason": error,
                **facts,
            },
        )
        self._out.fail(error)


def _next_of(chunks: Iterator[FrameChunk]) -> asyncio.Task[FrameChunk | None]:
    return _started(asyncio.to_thread(next, chunks, None))


def _started(what: Coroutine[None, None, T]) -> asyncio.Task[T]:
    reading = asyncio.get_running_loop().create_task(what)
    reading.add_done_callback(take_error)  # perhaps the replica goes before it comes
    return reading


def _release(taken: asyncio.Future[Hold]) -> None:
    if not taken.cancelled() and taken.exception() is None:
        taken.result().release()


def _is_wanted(groups_filter: DumpFilter, group: bytes) -> bool:
    gtid = group_gtid(group)
    if gtid is None:
        return groups_filter.send_marker()
    return groups_filter.decide(gtid) is Verdict.SEND
