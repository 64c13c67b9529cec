"""The stream of a dump to its replica's socket: packets, at the rate of its account; heartbeats, lag, and the end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.errors import MasterFatalError, ServerError
from binlog_protocol.wire.event_frames import EventFrames
from binlog_protocol.wire.semi_sync import Ack
from binlog_storage.engine import EngineReader
from binlog_storage.errors import StorageError

from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.connections.channel import Channel
from binlog_server.connections.connections import Connection, Connections
from binlog_server.dumps.lag_watch import Lag, LagWatch
from binlog_server.dumps.replica_rows import bytes_between
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks

LOOK_S = 1.0  # between two looks at how far behind a replica is
_LARGE_BYTES = 4 << 20  # larger than any batch of several groups
_BURST_S = 0.1  # of bytes that may go at once after a pause
_PIECE_S = 0.05  # half of it: a timer that fires late costs no throughput


class Throttle:
    """A token bucket for one stream: `rate` bytes a second, smooth to a tenth of one. Pure: `now` is in seconds."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._tokens = rate * _BURST_S
        self._filled_at = now

    @property
    def piece_bytes(self) -> int:
        """The most bytes that should be sent at once."""
        return max(1, int(self.rate * _PIECE_S))

    def pause(self, size: int, now: float) -> float:
        """Seconds to wait before a piece of that size may go; 0: it goes now, and is counted."""
        elapsed = max(0.0, now - self._filled_at)
        self._filled_at = now
        self._tokens = min(self.rate * _BURST_S, self._tokens + elapsed * self.rate)
        missing = size - self._tokens
        if missing >= 1:  # less is a rounding error, and no clock is as fine
            return missing / self.rate
        self._tokens -= size
        return 0.0


class ReplicaStream:
    """All that stands between a dump and its socket. Without limits of the account no timer runs.

    Args:
        channel: that of the connection, whose machine is in state DUMPING.
        heartbeat_s: the pause after which the replica wants a heartbeat; 0 is never.
        grace_s: see `LagWatch`.
        drop: to be called once, with the error for the replica, when it is too far behind.
    """

    def __init__(
        self,
        channel: Channel,
        connection: Connection,
        connections: Connections,
        engine: EngineReader,
        heartbeat_s: float,
        *,
        grace_s: Callable[[], float],
        drop: Callable[[ServerError], None],
    ) -> None:
        self.machine = channel.machine
        self.connection = connection
        self._channel = channel
        self._connections = connections
        self._engine = engine
        self._heartbeat_s = heartbeat_s
        self._grace_s = grace_s
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._acks: ReplicaAcks | None = None
        self._semi_sync: SemiSyncMaster | None = None
        self._last_sent = 0.0
        self.inside_event = False
        """Whether the last bytes sent end inside an event: nothing can be told to the replica now."""
        self.event_bytes = 0
        """Bytes of all events that were sent."""
        # For the throttle; no more than a batch. Made when there is one: an empty one takes 624 bytes.
        self._waiting: deque[memoryview] | None = None
        self._place = connection.sent
        self._bytes_here = 0  # written since that place
        self._taken = 0  # of them, at the last look
        self._throttle: Throttle | None = None
        self._watch: LagWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.change(connection.policy)
        connection.change_limits = self.change

    def follow(self, acks: ReplicaAcks, semi_sync: SemiSyncMaster) -> None:
        """The replica acknowledges: `acks` is told what it gets."""
        self._acks, self._semi_sync = acks, semi_sync

    def heard(self, acks: Iterable[Ack]) -> Iterable[Ack]:
        """Those of the replica's acknowledgements that count now."""
        return acks

    # --- packets ---

    def frames(self, frames: EventFrames) -> None:
        """Write packets that are shared with other replicas; never waits."""
        if frames.size:
            self._write(self.machine.dump_frames(frames))
            self.event_bytes += frames.size
            if self._acks is not None and self._semi_sync is not None:
                self._acks.sent_frames(frames.step, ack_wanted=frames.ack_wanted)
                self._semi_sync.requests += frames.ack_wanted
            self.connection.state = "Sending binlog event to slave"
            self._last_sent = time.monotonic()

    def pass_on(self, frames: EventFrames, now: float) -> bool:
        """Write packets at the tail, at once, while it `takes_all`. Returns whether it does so still."""
        whole = self._channel.write_now(self.machine.dump_frames(frames))
        self.event_bytes += frames.size
        self._last_sent = now
        if self._acks is not None and self._semi_sync is not None:
            self._acks.sent_frames(frames.step, ack_wanted=frames.ack_wanted)
            self._semi_sync.requests += frames.ack_wanted
        return whole or self.takes_all

    @property
    def takes_all(self) -> bool:
        """Whether nothing need be waited for: no rate, a socket that takes more, a connection that has not ended."""
        return self._throttle is None and not self._waiting and self._channel.takes_all

    def event(self, event: bytes) -> None:
        """Write one event for this replica alone; never waits."""
        self._write(self.machine.dump_event(event))
        if self._acks is not None:
            self._acks.sent_event(event)
        self.event_bytes += len(event)
        self._last_sent = time.monotonic()

    def heartbeat_due(self) -> float | None:
        """The time at which the next heartbeat is due, by the monotonic clock; None for never."""
        return self._last_sent + self._heartbeat_s if self._heartbeat_s else None

    @property
    def lacks_heartbeat(self) -> bool:
        """Whether a heartbeat is due, and nothing forbids it."""
        due = self.heartbeat_due()
        return due is not None and time.monotonic() >= due and not self.inside_event

    def _write(self, data: bytes | bytearray) -> None:
        if self.connection.sent != self._place:
            self._place = self.connection.sent
            self._bytes_here = 0
        self._bytes_here += len(data)
        if self._throttle is None and not self._waiting:
            self._channel.write_now(data)
        else:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(memoryview(data))

    # --- back-pressure ---

    async def drain(self) -> None:
        """Wait as the rate demands, and until the replica takes more. Raises as `Channel.drain`."""
        while self._waiting:
            await self._send_piece(self._waiting)
        await self._drain_channel()

    async def _drain_channel(self) -> None:
        if self._channel.is_full:
            self.connection.state = "Writing to net"
        await self._channel.drain()

    async def _send_piece(self, waiting: deque[memoryview]) -> None:
        throttle = self._throttle
        if throttle is None:  # lifted meanwhile
            self._hand_over()
            return
        data = waiting[0]
        piece = data[: throttle.piece_bytes]
        started = self._loop.time()
        pause = throttle.pause(len(piece), started)
        if pause:
            self.connection.state = f"Throttled by MAX_BYTES_PER_SECOND {throttle.rate}"
            await asyncio.sleep(pause)
            self._connections.throttled_ms += (self._loop.time() - started) * 1000
            return
        if len(piece) == len(data):
            waiting.popleft()
        else:
            waiting[0] = data[len(piece) :]
        self._channel.write(bytes(piece))
        await self._drain_channel()

    # --- the end ---

    def flush(self) -> None:
        """Hand over what waits for the throttle: something must be sent behind it that cannot wait."""
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting:
            self._channel.write(bytes(self._waiting.popleft()))

    def fail(self, error: ServerError) -> None:
        """End with an error packet, where the replica can read one: it would not see it inside an event."""
        self.flush()
        if self._may_end:
            self._channel.write(self.machine.dump_error(error))

    def end(self) -> None:
        """End by EOF, likewise: the replica reconnects, unless it has all that it asked for."""
        self.flush()
        if self._may_end:
            self._channel.write(self.machine.dump_end_eof())

    @property
    def _may_end(self) -> bool:
        return self.machine.state is ServerState.DUMPING and not self.inside_event

    def close(self) -> None:
        """The dump has ended."""
        self._stop_watching()
        self.connection.change_limits = None

    # --- limits of the account ---

    def change(self, policy: ReplicaPolicy) -> None:
        """Take other limits of the account, from now on."""
        rate = policy.max_bytes_per_second
        if self._throttle is None or self._throttle.rate != rate:
            self._throttle = Throttle(rate, self._loop.time()) if rate else None
        if not policy.limits_lag:
            self._stop_watching()
        elif self._watch is not None:
            self._watch.policy = policy
        else:
            self._watch = LagWatch(policy)
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _stop_watching(self) -> None:
        self._watch = None
        self.connection.lag_state = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        lag = self._lag()
        if lag is None:
            return
        if lag.is_over:
            self._stop_watching()
            self._connections.replicas_dropped += 1
            self._drop(_dropped(lag, self._grace_s()))
        elif lag.beyond:
            self.connection.lag_state = (
                f"beyond {lag.beyond}, dropped in {lag.drops_in_s:.0f} s unless it comes nearer"
            )
        else:
            self.connection.lag_state = ""

    def _lag(self) -> Lag | None:
        sent, end = self.connection.sent, self._engine.durable_end
        if self._watch is None or sent is None:
            return None  # it is still looking for its position
        try:
            # Most are near the end: no list of all files each second for each of them.
            files = self._engine.files() if sent.file_no < end.file_no else []
            behind = bytes_between(files, sent, end)
        except StorageError:
            return None  # the dump itself meets it
        return self._watch.look(
            self._loop.time(),
            sent,
            end,
            behind,
            self._grace_s(),
            excused=self._takes_what_it_gets(),
        )

    def _takes_what_it_gets(self) -> bool:
        """Whether the replica reads all that it is sent, or makes progress within one large group.

        Within a group its place does not move, so bytes are counted instead.
        """
        waiting = self._channel.untaken + sum(map(len, self._waiting or ()))
        before, self._taken = self._taken, self._bytes_here - waiting
        return not waiting or (self._bytes_here > _LARGE_BYTES and self._taken > before)


def _dropped(lag: Lag, grace_s: float) -> ServerError:
    # A replica stops on 1236. On anything else it would come again at once, only to be dropped again; nobody would see
    # why. It shows 320 bytes of the text at most, 70 of them its own.
    return MasterFatalError(
        f"The slave was dropped: {lag.behind_bytes} bytes and {lag.behind_s:.0f} seconds behind, beyond "
        f"{lag.beyond} of its account, it came no nearer for {grace_s:.0f} seconds. Find out what slows it down, then "
        "START SLAVE; or raise the limit by ALTER USER"
    )
