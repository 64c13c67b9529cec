"""One dump: from a replica's position to the tail of the store, for as long as the replica stays.

What the styles of stream have different stands in `frame_style` and `stream_places`.

Everything that can be refused is refused before the first event, because a replica that has got an event reconnects at
once when the connection then fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, TypeVar

from binlog_protocol.dump.dump_position import DumpFilter, Verdict, check_target
from binlog_protocol.errors import (
    CannotOpenFile,
    FirstFileMissing,
    GtidPurged,
    MasterFatalError,
    ProtocolError,
    ServerError,
    TargetPurged,
    TargetReached,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidListFlags
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.engine import EngineReader, LargeGroup, Pin, PlacedGroup, Position
from binlog_storage.errors import BinlogBegunAnew, StorageError, TooManyOpenFiles
from binlog_storage.log.file_times import group_time

from binlog_server.commits.syncer import Syncer
from binlog_server.connections.connections import Connection
from binlog_server.dumps.archive_parts import ArchivedReplica, ArchiveParts
from binlog_server.dumps.dump_request import DumpRequest
from binlog_server.dumps.dump_start import DumpStart, start_of
from binlog_server.dumps.frame_cache import FrameCache, take_error
from binlog_server.dumps.frame_style import FramedBatch, FrameStyle
from binlog_server.dumps.large_group_frames import FrameChunk, LargeGroupFrames
from binlog_server.dumps.replica_stream import ReplicaStream
from binlog_server.dumps.stream_events import StreamEvents
from binlog_server.dumps.stream_places import EnginePlace, StreamPlace
from binlog_server.dumps.tail import Tail
from binlog_server.dumps.tail_feed import TailFeed
from binlog_server.dumps.time_places import TimePlaces
from binlog_server.loop.shielded import shielded
from binlog_server.semi_sync.master import NOWHERE, SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks

log = logging.getLogger(__name__)

_PACKETS_AT_ONCE: Final = 64  # of acknowledgements: half a millisecond

_BEGIN_GROUPS: Final = frozenset({EventType.GTID, EventType.FORMAT_DESCRIPTION})

T = TypeVar("T")


class Dump:
    """Runs one dump. `run` ends when the stream does; cancelling it ends it at once.

    Args:
        format_version: server version in the format description.
        server_id: ours, for artificial events.
        release: ends the hold of the dump, when a slot has taken its place.
        why_ended: why the replica has no slot any more, for the error that it gets; empty if it has one, or had none.
        archive: has what was purged here.
    """

    def __init__(
        self,
        request: DumpRequest,
        stream: ReplicaStream,
        *,
        engine: EngineReader,
        frames: FrameCache,
        tail: Tail,
        feed: TailFeed,
        syncer: Syncer,
        semi_sync: SemiSyncMaster,
        format_version: str,
        server_id: int,
        release: Callable[[Connection, Pin], object],
        why_ended: Callable[[int, str], str],
        times: TimePlaces,
        archive: ArchiveParts | None = None,
    ) -> None:
        self._times = times
        self._release = release
        self._why_ended = why_ended
        self._began: Position | None = None
        self._request = request
        self._last_file = request.last_file
        self._out = stream
        self._connection = stream.connection
        self._engine = engine
        self._frames = frames
        self._archive = archive
        self._unplaced: FrameStyle | None = None  # while archived groups are sent
        self._tail = tail
        self._feed = feed
        self._syncer = syncer
        events = StreamEvents(
            format_version,
            server_id,
            checksum=request.style.checksum,
            capability=request.style.capability,
        )
        self._events = events
        self._place = self._place_in(request.style)
        self._semi_sync = semi_sync
        self._acks: ReplicaAcks | None = None  # with semi-sync
        self._hold: Pin | None = None
        self.refused = False
        """Whether it has ended with an error."""
        self.until: SlavePosition | None = None
        """The position at which it has ended by itself."""

    async def run(self) -> None:
        """Stream. Errors that the replica should know of are sent to it; the machine is closed afterwards."""
        try:
            await self._stream()
        except ServerError as error:
            if error.kind is TargetReached:
                self._out.fail(error)  # as it was asked for
            else:
                self._refuse(error)
        except TooManyOpenFiles as error:
            self._refuse(CannotOpenFile(str(error)))
        except (StorageError, ProtocolError) as error:
            # 1236 stops the replica: it would meet the same error again and again.
            self._refuse(MasterFatalError(self._with_place(error)))
        finally:
            if self._hold is not None:
                self._release(self._connection, self._hold)
            if self._acks is not None:
                self._semi_sync.remove(self._acks)

    def _with_place(self, error: StorageError | ProtocolError) -> str:
        """Groups that are no events say what is wrong with them, but not where they lie."""
        file_no, offset = self._place.cursor
        if isinstance(error, StorageError) or not offset:
            return str(error)
        return f"{error}, in a group of {self._engine.file_name(file_no)} at offset {offset} or behind it"

    async def _stream(self) -> None:
        request = self._request
        # Before the search: what it finds must not be purged before it is read.
        self._hold = await self._take_hold()
        if request.style.registered and not request.non_block and request.target is None:
            self._connection.has = self._has
        try:
            start = await asyncio.to_thread(start_of, request, self._engine)
        except ServerError as error:
            if error.kind not in (GtidPurged, FirstFileMissing):
                raise
            if error.kind is not GtidPurged or self._archive is None:
                raise self._with_slot(error) from None
            groups_filter = await self._send_archived(error)
        else:
            groups_filter = await self._filter(start.state, start.cursor)
            self._began = start.cursor
            if request.style.semi_sync:
                # Who is inside a group does not have all that lies before the next one.
                is_inside = start.rest is not None or start.large_rest is not None
                self._acks = self._follow(NOWHERE if is_inside else start.cursor)
                self._count(self._acks)
            await self._open(start)
        while not groups_filter.is_over:
            assert self._hold is not None
            self._hold.move(self._place.cursor.file_no)
            self._connection.sent = self._place.cursor
            moved = self._tail.moved
            if self._place.cursor >= self._engine.durable_end:
                if request.non_block:
                    break
                await self._out.drain()
                self._connection.state = (
                    "Master has sent all binlog to slave; waiting for more updates"
                )
                shares = groups_filter.transparent and self._out.takes_all
                if not shares or not await self._feed.stay(self, self._style):
                    await self._wait(moved)
            else:
                await self._send_batch(groups_filter)
        if groups_filter.target_reached and not groups_filter.until_reached:
            await self._stay(groups_filter.state.position())
        elif groups_filter.until_reached:
            self.until = groups_filter.state.position()
            self._place.gtid_list(groups_filter.state, GtidListFlags.UNTIL_REACHED)
        self._out.end()

    async def _filter(
        self, state: BinlogState, cursor: Position, *, archived: bool = False
    ) -> DumpFilter:
        """The filter of a stream that begins at this state. Raises `TargetNotInBinlog`, `TargetPurged` (1236)."""
        request = self._request
        if request.target is not None and request.file_position is not None:
            state = await asyncio.to_thread(self._engine.state_at, cursor)
        target, target_time = await self._target(archived=archived)
        return DumpFilter(
            request.position,
            state_at_start=state,
            strict_mode=request.strict_mode,
            ignore_duplicates=request.ignore_duplicates,
            until=request.until,
            until_before_gtids=request.until_before_gtids,
            binlog_state=self._engine.binlog_state(),
            target=target,
            target_time=target_time,
        )

    async def _target(self, *, archived: bool) -> tuple[SlavePosition | None, float | None]:
        """The end of the history for this login, as the filter takes it. Raises as `_filter`."""
        target = self._request.target
        if target is None:
            return None, None
        if target.position is not None:
            check_target(self._engine.binlog_state(), target.position)
            return target.position, None
        assert target.time is not None
        found = await self._times.find(self._engine, target.time)
        if found.is_certain and found.reached:
            return found.before.position(), None
        if not found.is_certain and not archived:
            raise TargetPurged(target)
        # Behind the end of the search, and in the archive, the time of each group tells it.
        return None, target.time

    async def _stay(self, position: SlavePosition) -> None:
        """The history ends here for this login: heartbeats, until the replica goes. Raises `TargetReached` (1236)."""
        request = self._request
        assert request.target is not None
        self.until = position
        if request.stops:
            raise TargetReached(request.target, position)
        if self._hold is not None:  # else it is in the archive
            self._hold.move(self._place.cursor.file_no)
            self._connection.sent = self._place.cursor
        await self._out.drain()
        if not request.non_block:
            self._connection.state = f"Has all up to the target of its login, {request.target}"
            await self._wait_for(asyncio.Event())

    @property
    def _style(self) -> FrameStyle:
        """The style of the groups at the cursor."""
        if self._unplaced is not None:
            return self._unplaced
        style = self._request.style
        return (
            style.sealed_as(checksum=self._events.checksum) if self._request.as_in_files else style
        )

    def _place_in(self, style: FrameStyle) -> StreamPlace:
        place = style.place(self._out, self._events, self._engine, registered=style.registered)
        place.as_in_files = self._request.as_in_files
        if isinstance(place, EnginePlace):
            place.name = self._request.engine_file or place.name
        return place

    async def _send_batch(self, groups_filter: DumpFilter) -> None:
        """Send the next batch at the cursor."""
        if not groups_filter.transparent:
            await self._send_filtered(groups_filter)
            return
        batch = await self._frames.frames(self._place.cursor, self._style, self._read)
        overtaken = batch.overtaken
        if batch.large is not None:
            overtaken = await self._send_large(batch.large)
        else:
            self._out.frames(batch.frames)
        await self._go_to(batch.end, overtaken=overtaken)
        await self._out.drain()

    # --- what was purged here ---

    async def _send_archived(self, purged: ServerError) -> DumpFilter:
        """Send groups of the archive up to a place at which this store goes on.

        They have no places, so they come as from an engine binlog, in a file in front of the first one here. Nothing is
        held here meanwhile: what is purged has been archived before.
        """
        assert self._archive is not None
        request, frames = self._request, self._frames
        self._let_go()
        with ArchivedReplica(self._archive, self._engine) as archived:
            self._unplaced, self._frames = request.style.unplaced, archived.frames
            name = await asyncio.to_thread(request.style.name_before, self._engine)
            self._place = EnginePlace(
                self._out,
                self._events,
                self._engine,
                registered=request.style.registered,
                name=request.engine_file or name,
            )
            acks = self._follow(NOWHERE) if request.style.semi_sync else None
            cursor = await self._begin_archived(archived, purged)
            groups_filter = await self._filter(archived.state, cursor, archived=True)
            self._place.cursor = cursor
            while not groups_filter.is_over:
                self._connection.lag_state = archived.told
                if not archived.is_behind_part(self._place.cursor):
                    await self._send_batch(groups_filter)
                elif (found := await self._read_own(self._in_store(archived))) is None:
                    self._place.cursor = await self._read_own(archived.go_on())
                else:
                    self._unplaced, self._frames = None, frames
                    await self._come_home(*found, acks)
                    break
            self._connection.lag_state = ""
        return groups_filter

    async def _begin_archived(self, archived: ArchivedReplica, purged: ServerError) -> Position:
        """The place in the archive. The stream begins when it is known, or when a heartbeat is due before."""
        reading = _started(archived.begin(self._request.position))
        try:
            await asyncio.wait([reading], timeout=self._request.heartbeat_s or None)
            if not reading.done() or reading.exception() is None:
                self._leave_last_file(NOWHERE.file_no)
                await self._place.open(NOWHERE, 0, FIRST_EVENT_POSITION, None)
            return await self._read(reading)
        except StorageError as error:
            reason = self._with_slot(purged).message.rstrip(".")
            raise MasterFatalError(f"{reason}; {error}") from error
        finally:
            reading.cancel()

    async def _in_store(self, archived: ArchivedReplica) -> tuple[Position, BinlogState] | None:
        """The place here behind an archived part, held; None if that was purged as well."""
        self._hold = await self._take_hold()
        found = await archived.in_store()
        if found is None:
            self._let_go()
        return found

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    async def _come_home(
        self, place: Position, state: BinlogState, acks: ReplicaAcks | None
    ) -> None:
        """From here on the store is read."""
        self._began, style = place, self._request.style
        if acks is not None:
            self._count(acks)
        if style == style.unplaced:  # for whom the stream has one file, and goes on
            await self._go_to(place)
            return
        self._place = self._place_in(style)
        await self._open(DumpStart(place, state, place.file_no, style.position(place.offset)))

    async def _read_own(self, what: Coroutine[None, None, T]) -> T:
        """As `_read`, of work for this replica alone: it ends with the dump."""
        reading = _started(what)
        try:
            return await self._read(reading)
        finally:
            reading.cancel()

    def _has(self) -> tuple[Position, bool] | None:
        """See `Connection`."""
        if self._began is None:
            return None
        if self._request.until is not None:
            return self._began, True  # what lies behind it may be left out for it
        if self._acks is not None:
            return max(self._began, self._acks.acknowledged), True
        return self._connection.sent or self._began, False

    def _with_slot(self, error: ServerError) -> ServerError:
        """The error of a replica whose files are gone, with the end of what has kept them for it."""
        why = self._why_ended(self._request.server_id, self._connection.account)
        if not why:
            return error
        return MasterFatalError(
            f"{error.message.rstrip('.')}. The slot of server_id {self._request.server_id} has ended, {why}"
        )

    async def _take_hold(self) -> Pin:
        """The hold is taken in a thread, which looks at files. RESET MASTER, while it deletes them, is waited for on
        the loop: there may be many dumps.
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

    def _follow(self, has_before: Position) -> ReplicaAcks:
        """The replica acknowledges from now on; it counts with `_count`."""
        self._out.machine.start_semi_sync()
        checksum = self._request.style.checksum
        acks = ReplicaAcks(has_before, checksum=checksum, moved=self._has_more)
        self._out.follow(acks, self._semi_sync)
        return acks

    def _count(self, acks: ReplicaAcks) -> None:
        self._acks = acks
        self._connection.acknowledged = acks.acknowledged
        if not self._request.ends:  # who ends somewhere does not get what is committed behind it
            self._semi_sync.add(acks)

    def take_acks(self) -> bool:
        """The replica has said something. True: there may be more of it. Raises `ProtocolError`."""
        acks, more = self._out.machine.take_acks(_PACKETS_AT_ONCE)
        if self._acks is not None:
            self._semi_sync.acks += len(acks)
            for ack in self._out.heard(acks):
                self._acks.received(ack)
        return more

    def _has_more(self) -> None:
        assert self._acks is not None
        self._connection.acknowledged = self._acks.acknowledged
        self._semi_sync.moved()

    # --- where the replica is ---

    async def _open(self, start: DumpStart) -> None:
        """Begin the stream, with what the replica lacks of a group that it is inside of."""
        state = start.state if self._request.file_position is None else None
        self._leave_last_file(start.file_no)
        await self._place.open(start.cursor, start.file_no, start.position, state, start.reached)
        if start.rest is not None:
            self._out.frames(start.rest)
        elif start.large_rest is not None:
            await self._send_chunks(start.large_rest)
        await self._go_to(start.cursor)

    def _leave_last_file(self, file_no: int) -> None:
        """In front of another one, name the file that the replica has read before, and describe it as what follows.

        A replica that comes back to a file of another name (10.11.19, 11.8.9) writes a description of its own into its
        relay log, with a checksum if what comes has some. If what it has read had none, as of an engine binlog, its SQL
        thread stops there (1594); so it does where a MariaDB was begun again with checksums. Behind this the relay log
        has them, too.
        """
        last_file, self._last_file = self._last_file, ""
        if last_file not in ("", self._place.name_of(file_no)) and self._events.checksum:
            self._out.event(self._events.rotate(last_file))
            self._out.event(self._events.engine_description())

    async def _go_to(self, end: Position, *, overtaken: bool = False) -> None:
        """Move on to `end`, behind all groups that were sent."""
        if self._acks is not None:
            self._acks.sent_all_before(end)
        await self._place.move(end, overtaken=overtaken)

    def _heartbeat_if_due(self) -> None:
        if self._out.lacks_heartbeat:
            self._place.heartbeat()

    # --- groups that are not all sent ---

    async def _send_filtered(self, groups_filter: DumpFilter) -> None:
        """Send one batch group by group, leaving groups out."""
        style, place = self._style, self._place
        batch = await self._read(_started(self._frames.groups(place.cursor, style)))
        if batch.large is not None:
            wanted = _is_wanted(groups_filter, batch.large.head)
            overtaken = wanted and await self._send_large(batch.large)
            await self._go_to(batch.end, overtaken=overtaken)
            if (state := groups_filter.take_gtid_list()) is not None:
                place.gtid_list(state, 0)
        waiting: list[PlacedGroup] = []  # a frame and a write for each would cost most
        try:
            for group in batch.groups:
                if _is_wanted(groups_filter, group.payload):
                    waiting.append(group)
                if group.end != place.cursor:  # the engine style moves at the end only
                    await self._go_to(group.end, overtaken=self._send_groups(waiting))
                if (state := groups_filter.take_gtid_list()) is not None:
                    self._send_groups(waiting)
                    place.gtid_list(state, 0)
                if groups_filter.is_over:
                    break
        finally:
            self._send_groups(waiting)  # also what lies before a group that is refused
        if not groups_filter.is_over:
            await self._go_to(batch.end)
        self._heartbeat_if_due()  # skipping through history may take longer than the replica waits
        await self._out.drain()

    def _send_groups(self, waiting: list[PlacedGroup]) -> bool:
        """Send what waits; returns whether the last of it is overtaken."""
        if not waiting:
            return False
        frames, overtaken = self._style.some(self._place.cursor, waiting)
        waiting.clear()
        self._out.frames(frames)
        return overtaken

    # --- groups too large for memory ---

    async def _send_large(self, group: LargeGroup) -> bool:
        """Send all of the group. Returns whether it is overtaken."""
        frames = LargeGroupFrames(group, self._style, self._place.cursor)
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
                self._place.inside = chunk.position
                self._heartbeat_if_due()
                await self._out.drain()
        finally:
            self._place.inside = 0
            reading.cancel()

    async def _read(self, reading: asyncio.Future[T]) -> T:
        """The result of a read in a thread, with heartbeats meanwhile: the next group may lie GiBs ahead."""
        while not reading.done():
            due = None if self._out.inside_event else self._out.heartbeat_due()
            wait_s = None if due is None else max(0, due - time.monotonic())
            await asyncio.wait([reading], timeout=wait_s)
            self._heartbeat_if_due()
            await self._out.drain()
        return reading.result()

    # --- at the tail, see `TailFeed` ---

    @property
    def cursor(self) -> Position:
        """See `Fed`."""
        return self._place.cursor

    def take(self, batch: FramedBatch, now: float) -> bool:
        """See `Fed`."""
        place, end, out = self._place, batch.end, self._out
        if not place.moves_silently(end) or not out.takes_all:
            return False
        goes_on = out.pass_on(batch.frames, now)
        if self._acks is not None:
            self._acks.sent_all_before(end)
        if self._hold is not None and end.file_no != place.cursor.file_no:
            self._hold.move(end.file_no)
        place.cursor = self._connection.sent = end
        return goes_on

    def heartbeat_due(self) -> float | None:
        """See `Fed`."""
        return self._out.heartbeat_due()

    def beat(self) -> bool:
        """See `Fed`."""
        if not self._out.takes_all:  # its connection may have ended: it goes on, or ends, by itself
            return False
        self._heartbeat_if_due()
        return self._out.takes_all

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


def _release(taken: asyncio.Future[Pin]) -> None:
    if not taken.cancelled() and taken.exception() is None:
        taken.result().release()


def _is_wanted(groups_filter: DumpFilter, group: bytes) -> bool:
    if group[TYPE_OFFSET] not in _BEGIN_GROUPS:
        return True  # stands between two groups of a traditional file
    gtid = group_gtid(group)
    if gtid is None:
        return groups_filter.send_marker()
    return groups_filter.decide(gtid, group_time(group)) is Verdict.SEND
