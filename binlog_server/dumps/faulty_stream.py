"""A stream to a replica that may suffer faults: in the place of a `ReplicaStream` where there are some, or may be.

Until the first order for it the stream is a `ReplicaStream`: packets go by unread, shared with other replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from binlog_protocol.errors import DuplicateServerId, ServerError
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.limits import EVENT_BYTES_MAX, PACKET_PAYLOAD_MAX
from binlog_protocol.wire.event_frames import EventFrames
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE, PacketReader
from binlog_protocol.wire.semi_sync import STATUS, Ack, PositionStep, ReplicaPlace

from binlog_server.connections.tls import break_tls
from binlog_server.dumps.fault_run import FaultRun
from binlog_server.dumps.replica_stream import ReplicaStream, Throttle
from binlog_server.faults.faults import GOES_BACK, FaultOrder, Faults, OrderedFault
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks

_BEAT: Final = FaultOrder("heartbeat", event=2)


class FaultyStream(ReplicaStream):
    """See `ReplicaStream`. `checksum`: its events have checksums."""

    def __init__(
        self, faults: Faults, server_id: int, *arguments: Any, checksum: bool, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._faults, connection = faults, self.connection
        who = connection.user, server_id, connection.id
        ordered = faults.of_stream(*who)
        self._run = FaultRun(ordered, checksum=checksum)
        self._checksum = checksum
        self._is_plain = not ordered
        self._new: list[OrderedFault] = []  # while an event is under way
        self._place_of_events = ReplicaPlace()  # while it is plain: behind the events of no store
        self._last: EventFrames | None = None  # the last groups, if nothing came behind them
        self._acks_wanted = self._group_bytes = 0  # while it is plain
        self._suffered: FaultOrder | None = None  # what comes first, behind what was sent
        self._acks_heard = 0
        self._acks_late_until = 0.0  # by the loop's clock
        self._timers: list[asyncio.TimerHandle] = []
        for one in ordered:
            self._expect(one)
        self._leaving: list[Callable[[], None]] = [faults.watch(who, self._order)]

    def follow(self, acks: ReplicaAcks, semi_sync: SemiSyncMaster) -> None:
        super().follow(acks, semi_sync)
        self._run.start_semi_sync()

    @property
    def _status_size(self) -> int:
        return 1 if self._acks is None else len(STATUS)

    # --- orders ---

    def _expect(self, one: OrderedFault) -> None:
        if after := one.fault.after_seconds:
            self._timers.append(self._loop.call_later(after, self._due, one))

    def _order(self, one: OrderedFault) -> None:
        """One that came while the stream runs."""
        self._new.append(one)
        if not self.inside_event:
            self._take_orders()

    def _take_orders(self) -> None:
        """Between two events."""
        if self._is_plain:
            self._is_plain = False
            self._begin()
        for one in self._new:
            self._run.add(one)
            self._expect(one)
        self._new.clear()

    def _begin(self) -> None:
        """The faults get to know where the stream is."""
        place, server_id = self._place_of_events, 0
        summed = place.position + self._group_bytes
        if (frames := self._last) is not None:
            reader = PacketReader(EVENT_BYTES_MAX + len(STATUS))
            reader.feed(frames.at_sequence(0))
            end = 0
            while (packet := reader.next_packet()) is not None:
                event = packet.payload[self._status_size :]
                place.feed(event, self._checksum)
                header = EventHeader.parse(event)
                server_id, end = header.server_id, header.end_position
            if rest := bytes(reader.untaken[: PACKET_HEADER_SIZE + len(STATUS) + HEADER_SIZE]):
                # Of a long event, of which other pieces have come behind this one.
                header = EventHeader.parse(rest, PACKET_HEADER_SIZE + self._status_size)
                place.move(PositionStep.of(header.type, header.length, header.end_position))
                server_id, end = header.server_id, header.end_position
            if not end:  # the events of such a stream have no places, and are summed up
                place.position = summed
        self._last = None
        self._run.begin(self.machine.dump_sequence, place, server_id, self._acks_wanted)

    # --- packets ---

    def frames(self, frames: EventFrames) -> None:
        super().frames(frames)
        if self._is_plain and frames.size:
            self._note(frames)

    def pass_on(self, frames: EventFrames, now: float) -> bool:
        goes_on = super().pass_on(frames, now)
        self._note(frames)
        return goes_on

    def _note(self, frames: EventFrames) -> None:
        if not self.inside_event:
            self._last = frames
        self._acks_wanted += frames.ack_wanted
        # A larger event has packets without a status: too far is no harm. So have those in the middle of one.
        has_status = frames.size <= PACKET_PAYLOAD_MAX and not self.inside_event
        status = self._status_size if has_status else 0
        self._group_bytes += frames.size - frames.packets * (PACKET_HEADER_SIZE + status)

    def event(self, event: bytes) -> None:
        super().event(event)
        if self._is_plain:
            self._last = None
            self._place_of_events.feed(event, self._checksum)

    @property
    def takes_all(self) -> bool:
        """Packets that go by themselves would suffer nothing."""
        return self._is_plain and not self._new and super().takes_all

    def _write(self, data: bytes | bytearray) -> None:
        if self._new and not self.inside_event:
            self._take_orders()
        if self._is_plain:
            super()._write(data)
        else:
            self._run.feed(data)
            self._go_on()

    def _go_on(self) -> None:
        """Send all up to the next fault."""
        while self._suffered is None and (step := self._run.next_step()) is not None:
            if isinstance(step, FaultOrder):
                self._suffered = step
            else:
                super()._write(step)

    async def drain(self) -> None:
        """Raises `ConnectionError` where a fault ends the stream, too."""
        while (fault := self._suffered) is not None:
            await super().drain()
            await self._suffer(fault)
            self._suffered = None
            self._go_on()
        await super().drain()

    async def _suffer(self, fault: FaultOrder) -> None:
        match fault.do:
            case "delay":
                self.connection.state = f"A fault delays it by {fault.seconds} s"
                await self._delay(fault)
            case "throttle":
                self._throttle = Throttle(fault.bytes_per_second, self._loop.time())
                self._leaving.append(self._faults.when_dropped(fault, self._set_free))
            case _:
                self._end_by(fault)
                raise ConnectionAbortedError(f"a fault that was ordered: {fault.do}")

    def _set_free(self) -> None:
        self._throttle = None

    async def _delay(self, fault: FaultOrder) -> None:
        """Until its time is over, or somebody drops it."""
        dropped = asyncio.Event()
        leave = self._faults.when_dropped(fault, dropped.set)
        end = self._loop.time() + fault.seconds
        pause = self._heartbeat_s if fault.heartbeats and self._heartbeat_s else fault.seconds
        try:
            while (left := end - self._loop.time()) > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(dropped.wait(), min(left, pause))
                    break
                if left > pause:
                    super()._write(self._run.heartbeat(_BEAT))
                    await super().drain()
        finally:
            leave()

    def _end_by(self, fault: FaultOrder) -> None:
        match fault.do:
            case "error":
                self.fail(fault.error)
            case "duplicate_server_id":
                self.fail(DuplicateServerId())
            case "break_tls":
                break_tls(self._channel.transport)
            case _:
                self._channel.close()
                if fault.do in GOES_BACK:
                    self._faults.restart(fault)

    def _due(self, one: OrderedFault) -> None:
        """The time of a fault has come: the dump may be waiting for the tail."""
        if not one.is_live or self._run.has_ended:
            return
        one.met += 1
        match one.fault.do:
            case "error":
                self._drop(one.fault.error)
            case "duplicate_server_id":
                self._drop(DuplicateServerId())
            case "cut" | "break_tls" | "lose_tail" | "another_history":
                self._end_by(one.fault)
            case "heartbeat":
                super()._write(self._run.heartbeat(one.fault))
            case _ if self._suffered is None:
                self._suffered = one.fault

    # --- acknowledgements ---

    def heard(self, acks: Iterable[Ack]) -> Iterable[Ack]:
        """Those that are heard now; others later, or never."""
        now = self._loop.time()
        for ack in acks:
            self._acks_heard += 1
            is_lost = False
            for one in self._run.at_acks.pop(self._acks_heard, ()):
                if one.is_live:
                    one.met += 1
                    is_lost |= one.fault.do == "lose_ack"
                    self._acks_late_until = max(self._acks_late_until, now + one.fault.seconds)
            if is_lost:
                continue
            if self._acks_late_until <= now:
                yield ack
            elif self._acks is not None:
                self._timers.append(
                    self._loop.call_at(self._acks_late_until, self._acks.received, ack)
                )

    # --- the end ---

    def flush(self) -> None:
        """What waits goes at once; a fault that would end the stream ends it."""
        self._suffered = None
        while (step := self._run.next_step()) is not None:
            if not isinstance(step, FaultOrder):
                super()._write(step)
        super().flush()

    def fail(self, error: ServerError) -> None:
        self._number_anew()
        super().fail(error)

    def end(self) -> None:
        self._number_anew()
        super().end()

    def _number_anew(self) -> None:
        """Packets were left out, or added."""
        self.flush()
        if self._run.next_seq is not None:
            self.machine.dump_sequence = self._run.next_seq

    def close(self) -> None:
        super().close()
        for leave in self._leaving:
            leave()
        for timer in self._timers:
            timer.cancel()
